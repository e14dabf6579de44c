"""A process stands still with all that it has started, goes on with them, and its end is waited for."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from chaos.processes.agent_process import AgentProcess, wait_until_ended

FAMILY = """
import subprocess, sys
inner = [sys.executable, "-c", "import time; time.sleep(60)"]
outer = [sys.executable, "-c", f"import subprocess; subprocess.run({inner})"]
subprocess.run(outer)
"""


def states(pids: list[int]) -> set[str]:
    """As the system names them; Z for one that has ended, whether its end was noticed or not."""
    files = [Path(f"/proc/{pid}/stat") for pid in pids]
    return {file.read_text().rpartition(")")[2].split()[0] if file.exists() else "Z" for file in files}


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_pause_is_of_the_whole_family(tmp_path: Path) -> None:
    process = AgentProcess("n0", [sys.executable, "-c", FAMILY], tmp_path / "log")
    family: list[int] = []
    try:
        wait(lambda: len(process.started()) == 2)
        family = process.started()
        process.pause()
        wait(lambda: states([process.pid, *family]) == {"T"})
        process.resume()
        wait(lambda: "T" not in states([process.pid, *family]))
        began = time.monotonic()
        wait_until_ended(family, 0.1)
        assert time.monotonic() - began >= 0.1, "they run still"
    finally:
        for pid in family:
            os.kill(pid, signal.SIGKILL)
        process.kill()
    wait_until_ended(family, 20.0)
    assert states(family) == {"Z"}
    assert process.started() == []
