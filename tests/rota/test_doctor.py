"""`rota doctor`, `--watch` and `rota completion`."""

from __future__ import annotations

import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from membership import Address
from rota.access.roles import OPERATE
from rota.access.tls import TlsFiles
from rota.access.tokens import Token, digest_of, write_tokens
from rota.agent.settings import AgentSettings
from rota.client.target import Target
from rota.commands.doctor import host_checks as doctor
from rota.commands.doctor.host_checks import Outcome
from rota.errors import ApiError
from rota.terminal.watching import watch
from tests.rota.certificates import DAY, Authority
from tests.rota.test_command_line import run

NOBODY = "http://127.0.0.1:1"


def test_a_sound_host_has_nothing_that_failed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(f'listen = "127.0.0.1:0"\napi = "127.0.0.1:0"\ndata_dir = "{tmp_path}/data"\n')
    status, out, err = run(capsys, "doctor", "--config", str(config), "--api", NOBODY, "--json")
    assert (status, err) == (0, "")
    checks = {each["check"]: each for each in json.loads(out)["checks"]}
    assert checks.keys() == {
        "settings",
        "versions",
        "agent",
        "port 0",
        "clock",
        "disk",
        "fsync",
        "descriptors",
    }
    assert checks["agent"]["outcome"] == "warning"
    assert not (tmp_path / "data").exists(), "nothing is changed"
    assert list(tmp_path.iterdir()) == [config]


def test_what_keeps_an_agent_from_starting_is_said_with_what_to_do(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "agent.toml"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config.write_text(
            f'listen = "127.0.0.1:{taken.getsockname()[1]}"\napi = "127.0.0.1:0"\nkey_file = "{tmp_path}/none"\n'
            'seeds = ["no.such.host.invalid:1", "127.0.0.1:1"]\n'
        )
        status, out, err = run(capsys, "doctor", "--config", str(config), "--api", NOBODY)
        port = taken.getsockname()[1]
    assert status == 1
    assert err == f"rota: failed: port {port}, seed, keys\n"
    lines = out.splitlines()
    assert any(line.startswith(f"FAIL  port {port}") and "in use" in line for line in lines)
    assert sum(line.startswith(("FAIL  seed", "warn  seed")) for line in lines) == 2
    assert "                   `rota keys generate --help` makes one" in lines


def test_settings_that_are_no_good_do_not_hide_the_rest(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "agent.toml"
    config.write_text("sedes = []\n")
    status, out, _ = run(capsys, "doctor", "--config", str(config), "--api", NOBODY)
    assert status == 1
    assert "did you mean 'seeds'" in out
    assert "fsync" in out


def test_a_disk_that_is_small_slow_or_elsewhere_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_file_system", lambda place: "nfs4")
    monkeypatch.setattr(doctor, "_sync_seconds", lambda place: 0.2)
    space, sync = doctor.disk(tmp_path / "not" / "there")
    assert (space.outcome, sync.outcome) == (Outcome.WARNING, Outcome.WARNING)
    assert "nfs4" in space.text
    monkeypatch.setattr(doctor, "LITTLE_SPACE", 1 << 62)
    assert "free some" in next(doctor.disk(tmp_path)).remedy


def test_an_address_of_another_host_is_told_as_such() -> None:
    finding = doctor.free_to_listen(Address("192.0.2.1", 7946))
    assert (finding.outcome, finding.check) == (Outcome.FAILED, "port 7946")


def https_settings(directory: Path, certificate: Path, key: Path) -> str:
    write_tokens(directory / "tokens", [Token("alice", OPERATE, digest_of("rota_of_alice"))])
    return (
        f'listen = "127.0.0.1:0"\napi = "0.0.0.0:0"\nstore = "none"\n'
        f'api_certificate = "{certificate}"\napi_key = "{key}"\napi_tokens = "{directory}/tokens"\n'
    )


@pytest.mark.parametrize(("lasts", "outcome"), [(30, "good"), (13, "warning"), (-1, "failed")])
def test_a_certificate_is_looked_at_before_clients_do(
    lasts: int, outcome: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    certificate, key = Authority(tmp_path).issue("n1", "n1.example", lasts=lasts * DAY)
    config = tmp_path / "agent.toml"
    config.write_text(https_settings(tmp_path, certificate, key))
    status, out, _ = run(capsys, "doctor", "--config", str(config), "--json")
    (found,) = (each for each in json.loads(out)["checks"] if each["check"] == "https")
    assert (found["outcome"], status) == (outcome, int(outcome == "failed"))
    assert found["text"].startswith("for n1.example, 1 tokens; the certificate expire")


def test_what_keeps_https_from_being_served_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    certificate, _ = authority.issue("n1", "n1.example")
    _, other = authority.issue("n2", "n2.example")
    config = tmp_path / "agent.toml"
    config.write_text(https_settings(tmp_path, certificate, other))
    status, out, err = run(capsys, "doctor", "--config", str(config))
    assert (status, err) == (1, "rota: failed: https\n")
    assert f"{certificate} and {other} are no certificate and its key" in out


def test_an_agent_that_lets_nobody_in_is_not_taken_for_another_program(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("n1", "127.0.0.1")
    context = TlsFiles(certificate, key).context()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with suppress(OSError), listener.accept()[0] as client:
                context.wrap_socket(client, server_side=True)

        thread = threading.Thread(target=answer)
        thread.start()
        running, found = doctor.agent(Target(f"https://127.0.0.1:{listener.getsockname()[1]}"))
        thread.join()
    assert (running, found.outcome) == (True, Outcome.WARNING)
    assert "--ca-file" in found.text
    assert "--token-file" in found.remedy


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        (AgentSettings(), "http://127.0.0.1:7947"),
        (AgentSettings(api_socket=Path("/run/api.sock")), "unix:/run/api.sock"),
        (AgentSettings(api=Address("0.0.0.0", 1), api_certificate=Path("c")), "https://127.0.0.1:1"),
        (AgentSettings(api=Address("::", 1), api_certificate=Path("c")), "https://[::1]:1"),
    ],
)
def test_the_agent_of_this_host_is_asked_where_it_listens(settings: AgentSettings, address: str) -> None:
    assert doctor.own_address(settings) == address


def test_an_agent_without_data_needs_no_solvers(monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.metadata.version

    def version(package: str) -> str:
        if package in ("ortools", "sqlglot"):
            raise importlib.metadata.PackageNotFoundError(package)
        return known(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert doctor.versions(places=False).outcome is Outcome.GOOD
    found = doctor.versions(places=True)
    assert found.outcome is Outcome.FAILED
    assert "rota[agent,plane]" in found.remedy


def test_what_is_watched_is_shown_when_it_changes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.terminal.watching.INTERVAL", 0)
    for json_wanted, told in (
        (False, "1\n\n2\n\naway\n\n"),
        (True, '1\n2\n{"error": "away", "code": "api"}\n'),
    ):
        answers = iter([1, 1, 2, ApiError("away"), KeyboardInterrupt()])

        def look(answers: object = answers) -> object:
            answer = next(answers)  # type: ignore[call-overload]
            if isinstance(answer, BaseException):
                raise answer
            return answer

        with pytest.raises(KeyboardInterrupt):
            watch(look, print, json_wanted=json_wanted)
        assert capsys.readouterr().out == told


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, script, _ = run(capsys, "completion", shell)
    assert status == 0
    assert f"_ROTA_COMPLETE={shell}_complete" in script
    environment = {
        **os.environ,
        "_ROTA_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": "rota sta",
        "COMP_CWORD": "sta" if shell == "fish" else "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", "from rota.commands.command_line import main; main([])"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "status" in done.stdout
