"""An agent in a chaos run: it waits, reports, takes faults, and does not outlive the run."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import ANY

import pytest
import trio
import trio.testing

from chaos.processes import control_messages as control
from membership import Cluster
from rota.agent.chaos_control import ChaosControl
from rota.client.api_client import ApiClient

pytestmark = pytest.mark.socket


class Run:
    """The other end of the control channel."""

    def __init__(self, folder: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / "control"))
        self.listener.listen()
        self.listener.settimeout(30)
        arguments = [
            sys.executable, "-m", "rota", "agent", "--no-store", "--name", "n0", "--listen", "127.0.0.1:0",
            "--api", "127.0.0.1:0", "--preset", "local", "--data-dir", str(folder / "n0"),
            "--chaos-control", str(folder / "control"),
        ]  # fmt: skip
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(arguments, stderr=log)
        self.connection, _ = self.listener.accept()
        self.connection.settimeout(30)
        self.lines = control.Lines()
        self.waiting: list[bytes] = []

    def send(self, order: control.Order) -> None:
        self.connection.sendall(control.encode(order))

    def next_report(self) -> control.Report:
        while not self.waiting:
            data = self.connection.recv(65536)
            assert data, "the agent hung up"
            self.waiting += self.lines.feed(data)
        return control.decode_report(self.waiting.pop(0))

    def next_of(self, kind: type[control.Report]) -> control.Report:
        while not isinstance(report := self.next_report(), kind):
            pass
        return report

    def close(self) -> None:
        self.connection.close()
        self.listener.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    made.close()


def test_it_waits_reports_and_ends_with_the_run(run: Run, tmp_path: Path) -> None:
    hello = run.next_report()
    assert hello == control.Hello("n0", run.process.pid)
    run.send(control.Begin())
    installed = run.next_of(control.Installed)
    assert isinstance(installed, control.Installed)
    assert installed.first
    assert installed.me.name == "n0"
    sample = run.next_of(control.Sample)
    assert isinstance(sample, control.Sample)
    assert sample.size == 1

    log = (tmp_path / "log").read_text()
    api = log.partition("HTTP at ")[2].split()[0].rstrip("/")
    client = ApiClient(api)
    while (status := client.get("/v1/status"))["state"] == "joining":
        pass  # the view is reported when it is installed, and shown a moment later
    assert (status["state"], status["size"], status["control"]) == ("member", 1, None)
    assert [member["name"] for member in client.get("/v1/members")["members"]] == ["n0"]
    with pytest.raises(Exception, match="without the store"):
        client.get("/v1/layout")

    run.connection.close()
    assert run.process.wait(timeout=30) == 1
    assert "chaos run that this agent belonged to is gone" in (tmp_path / "log").read_text()


def test_it_leaves_when_told(run: Run) -> None:
    run.next_report()
    run.send(control.Begin(control.Injected(ingress_loss=0.5, blocked_egress=("127.0.0.1:9",))))
    run.next_of(control.Installed)
    run.send(control.Leave())
    assert run.next_of(control.Gone) == control.Gone(ANY, evicted=False)
    assert run.process.wait(timeout=30) == 0


async def test_its_clock_jumps_when_told_or_as_soon_as_it_is_a_member() -> None:
    jumps: list[float] = []
    cluster = SimpleNamespace(_driver=SimpleNamespace(jump_clock=jumps.append))
    ours, _ = trio.testing.memory_stream_pair()
    chaos_control = ChaosControl(cast(trio.SocketStream, ours), "n0")
    chaos_control._obey(control.JumpClock(60.0), lambda: None)
    assert jumps == []
    chaos_control.joined(cast(Cluster, cluster))
    assert jumps == [60.0]
    chaos_control._obey(control.JumpClock(1.5), lambda: None)
    assert jumps == [60.0, 1.5]
