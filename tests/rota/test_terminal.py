"""What commands show on a terminal: the first help, tables of 80 columns, what the shell completes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from rota.client.api_client import ApiClient
from rota.commands.command_line import SECTIONS, rota
from rota.commands.options import ConnectionOption
from tests.rota.test_command_line import commands, run

CONNECTION_OPTIONS = ("--api", "--token-file", "--ca-file", "--certificate", "--context")


def test_every_command_is_in_one_section_of_the_first_help(capsys: pytest.CaptureFixture[str]) -> None:
    listed = [name for _, names in SECTIONS for name in names]
    assert sorted(listed) == sorted(rota.commands)
    _, out, _ = run(capsys, "--help")
    assert [line.rstrip(":") for line in out.splitlines() if line.endswith(":") and line[0] != " "] == [
        *(title for title, _ in SECTIONS),
        "Options",
    ]
    assert len(SECTIONS[0][1]) == 5


def test_the_options_of_the_connection_are_in_one_help(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "help", "connection")
    assert all(f"\n  {option} " in out for option in CONNECTION_OPTIONS)
    others = {"kube", "vsphere"}  # their options are about servers that are not rota's
    for path in [(), *commands(rota)]:
        if path in {("agent",), ("context", "set")} or others & {*path}:  # what these set themselves
            continue
        _, out, _ = run(capsys, *path, "--help")
        assert not any(f"\n  {option}" in out for option in CONNECTION_OPTIONS), path
        command: click.Command = rota
        for name in path:
            assert isinstance(command, click.Group)
            command = command.commands[name]
        asks = any(isinstance(option, ConnectionOption) for option in command.params)
        assert ("`rota help connection`" in " ".join(out.split())) == (asks or path == ("help",)), path


def test_help_of_a_command_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "help", "layout", "history") == run(capsys, "layout", "history", "--help")
    status, _, err = run(capsys, "help", "layout", "nonsense")
    assert (status, "no such command: rota layout nonsense" in err) == (2, True)


def member(number: int) -> dict[str, Any]:
    return {
        "name": f"db-{number:02}", "address": f"192.168.100.{number}:7946", "state": "member", "version": "0.2.0",
        "http": f"http://192.168.100.{number}:7947", "incarnation": "00112233445566", "joined_epoch": 3,
        "tags": {"capacity": "1000000000000", "rack": f"rack-{number}", "zone": "north", "owner": "data-team"},
    }  # fmt: skip


def layout(racks: int) -> dict[str, Any]:
    copies = [
        {"host": f"db-{n:02}.example", "rack": f"rack-{n}", "role": "primary" if n == 1 else "replica",
         "state": "in_sync"}
        for n in range(1, racks + 1)
    ]  # fmt: skip
    segments = [
        {"key": f"s0{n}", "slots": [], "bytes": 0, "load": 0.0, "retired": False, "away": [],
         "replicas": copies[n : n + 3]}
        for n in range(racks - 2)
    ]  # fmt: skip
    return {
        "layout_epoch": 3, "segments": segments, "drained": [], "roles": {}, "servers": {}, "notices": [],
        "rack_violations": 0, "under_replicated": 0,
    }  # fmt: skip


def test_tables_have_a_line_for_each_row_at_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    former = [{**member(9), "how": "evicted", "time": 0.0, "epoch": 12}]
    answers = {
        "/v1/members": {"epoch": 7, "id": "ab" * 16, "members": [member(100), member(101)], "former": former},
        "/v1/layout": layout(9),
    }
    monkeypatch.setattr(ApiClient, "get", lambda self, path, **query: answers[path])
    _, out, _ = run(capsys, "members", "--all")
    assert [line.split()[0] for line in out.splitlines() if "192." in line] == ["db-100", "db-101", "db-09"]
    assert "rack=rack-100…" in out
    assert max(map(len, out.splitlines())) <= 80
    _, out, _ = run(capsys, "layout", "show")
    assert "s00       db-01.example   rack-1:db-01.example" in out
    assert max(map(len, out.splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "100")
    assert "rack=rack-100 owner=data-team …\n" in run(capsys, "members")[1], "whole tags"
    monkeypatch.delenv("COLUMNS")
    _, out, _ = run(capsys, "members")
    assert "owner=data-team zone=north capacity=1.0TB\n" in out, "nothing is cut where a program reads"
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(capsys, "members", "--wide")
    assert "owner=data-team zone=north capacity=1.0TB" in out, "as it is, however long that makes the line"


def test_few_racks_have_a_column_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(ApiClient, "get", lambda self, path, **query: layout(3))
    _, out, _ = run(capsys, "layout", "show")
    assert out.splitlines()[1].split() == ["segment", "rack-1", "rack-2", "rack-3", "primary"]


ANSWERS: dict[str, Any] = {
    "/v1/members": {"members": [{"name": "n1"}, {"name": "n2"}]},
    "/v1/layout": {"segments": [{"key": "s00"}, {"key": "s01"}]},
    "/v1/streams": {"streams": [{"name": "greetings"}], "maps": [{"name": "default"}]},
}


@pytest.mark.parametrize(
    ("typed", "begun", "expected"),
    [
        ("drain", "n", ["n1", "n2"]),
        ("log forget n1", "", ["n1", "n2"]),
        ("why", "", ["n1", "n2", "s00", "s01"]),
        ("why-not", "s", ["s00", "s01"]),
        ("why-not s00", "n", ["n1", "n2"]),
        ("log read", "g", ["greetings"]),
        ("map get --map", "", ["default"]),
        ("context use", "", ["production"]),
        ("members --context", "p", ["production"]),
        ("policy list --pack", "data", ["datastore"]),
        ("chaos run", "kill-s", ["kill-sequencer"]),
        ("members", "--ap", ["--api"]),
    ],
)
def test_names_are_completed(
    typed: str, begun: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ApiClient, "get", lambda self, path, **query: ANSWERS[path])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "rota").mkdir()
    (tmp_path / "rota" / "contexts.toml").write_text('[contexts.production]\napi = "http://a:1"\n')
    shell = ShellComplete(rota, {}, "rota", "_ROTA_COMPLETE")
    assert [item.value for item in shell.get_completions(typed.split(), begun)] == expected


def test_where_no_agent_answers_no_name_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_API", "http://127.0.0.1:1")
    shell = ShellComplete(rota, {}, "rota", "_ROTA_COMPLETE")
    assert shell.get_completions(["drain"], "") == []


def test_whatever_goes_wrong_nothing_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where somebody else answers at that address, or the contexts are damaged: no traceback while one types."""
    shell = ShellComplete(rota, {}, "rota", "_ROTA_COMPLETE")
    for answer in ([], {}, {"members": [{"name": None}, {"name": "n1"}]}, {"members": 5}):
        monkeypatch.setattr(ApiClient, "get", lambda self, path, answer=answer, **query: answer)
        assert shell.get_completions(["drain"], "") == []
