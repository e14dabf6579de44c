"""Real agent processes in the centralised mode: three voters and their cluster, with kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rota.agent.settings import load
from rota.errors import SettingsError
from tests.own_addresses import own_address

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
"""Seconds: these machines may be busy."""


class Agents:
    """Agent processes by name; each logs into the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ensemble = [str(own_address()) for _ in range(3)]
        self.voter_apis = [str(own_address()) for _ in range(3)]
        self.member_apis = [str(own_address()) for _ in range(3)]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def voter(self, number: int) -> None:
        options = [word for address in self.ensemble for word in ("--ensemble", address)]
        self._start(
            f"e{number}", "--listen", self.ensemble[number], "--api", self.voter_apis[number], *options
        )

    def member(self, number: int) -> None:
        seeds = [word for address in self.ensemble for word in ("--seed", address)]
        mode = ("--mode", "centralised", "--no-store", "--name", f"n{number}")
        self._start(f"n{number}", "--listen", "127.0.0.1:0", "--api", self.member_apis[number], *mode, *seeds)

    def rota(self, *words: str) -> str:
        """What the command prints."""
        command = [sys.executable, "-m", "rota", *words]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
        ).stdout

    def _start(self, name: str, *options: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "rota", "agent", "--preset", "local"),
                    *("--data-dir", str(self._folder / name), *options),
                ],
                cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=log,
            )  # fmt: skip

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def view(self, number: int) -> set[str]:
        url = f"http://{self.member_apis[number]}/v1/members"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return {member["name"] for member in json.load(answer)["members"]}
        except OSError:
            return set()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        limit = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > limit:
                logs = [path.read_text()[-1500:] for path in sorted(self._folder.glob("*.log"))]
                pytest.fail(f"{what}\n" + "\n--\n".join(logs))
            time.sleep(0.1)


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    yield made
    for process in made.processes.values():
        process.kill()
    for process in made.processes.values():
        process.wait()


@pytest.mark.socket
def test_a_cluster_with_an_ensemble_outlives_kills_of_both(agents: Agents) -> None:
    for number in range(3):
        agents.voter(number)
        agents.member(number)
    agents.until(lambda: all(agents.view(n) == {"n0", "n1", "n2"} for n in range(3)), "three members")
    voter = ("--api", agents.voter_apis[0])
    agents.until(lambda: all(f"n{n} " in agents.rota("members", *voter) for n in range(3)), "e0 knows them")
    status = agents.rota("status", *voter)
    assert f"{agents.ensemble[0]}, voter, rota " in status.splitlines()[0]
    assert all(address in status for address in agents.ensemble)
    assert "joined" in agents.rota("events", *voter)
    agents.kill("e0")
    agents.kill("n2")
    agents.until(lambda: all(agents.view(n) == {"n0", "n1"} for n in range(2)), "without n2 and e0")
    agents.kill("e1")
    agents.voter(0)
    agents.kill("n1")
    agents.until(lambda: agents.view(0) == {"n0"}, "e0 goes on with its state")


def test_the_store_and_founders_have_no_place_in_the_centralised_mode() -> None:
    with pytest.raises(SettingsError, match="--no-store"):
        load(None, {"mode": "centralised", "seeds": ("127.0.0.1:1",)})
    with pytest.raises(SettingsError, match="--seed"):
        load(None, {"mode": "centralised", "store": False})
    with pytest.raises(SettingsError, match="leave the seeds out"):
        load(None, {"ensemble": ("127.0.0.1:1",), "seeds": ("127.0.0.1:2",)})
    with pytest.raises(SettingsError, match="not a mode"):
        load(None, {"mode": "central"})
