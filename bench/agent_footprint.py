"""What one agent process costs: from its start to its readiness, and the memory it takes then and later.

`rota agent` as anybody starts it, on loopback, watched from outside through /proc and its own /readyz; as an
installed program, with its bytecode compiled. Three of them: alone with a store, and so its own controller; alone
without a store; and with a store as a member of another's cluster. The solver is a process of its own, which an agent
starts when something is to be solved and ends when it is idle: its memory is told separately. Memory grows with the
log that an agent holds, which is not measured here.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.result import Result
from rota.agent.parent_process import READY_DESCRIPTOR

LIMIT_MEMORY: Final = 60 * 2**20
"""Bytes: what one agent alone may take at any time."""
LIMIT_READY: Final = 0.5
"""Seconds from the start of the process to its readiness, on a machine with nothing else to do."""
PATIENCE: Final = 60.0
_PAUSE: Final = 0.005
_LOOK: Final = 0.1
"""Seconds between two looks at the solver's process."""

ALONE: Final = "alone, controller"
STORELESS: Final = "alone, without store"
MEMBER: Final = "member, not controller"
KINDS: Final = (ALONE, STORELESS, MEMBER)


@dataclass(frozen=True, slots=True)
class Start:
    """One start."""

    seconds: float
    cpu_seconds: float
    """CPU seconds the process had used when it was ready: what does not depend on who else uses the machine."""
    rss: int
    """Bytes resident at readiness."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes resident, the most so far and at the end of the watch."""

    peak: int
    last: int
    solver_peak: int
    """Of the solver's process; 0: there was none."""
    solver_last: int


@dataclass(frozen=True, slots=True)
class Agent:
    """A running agent."""

    pid: int
    listen: str
    started: Start


def start_of(kind: str) -> Start:
    """Start an agent, wait until it is ready, end it. RuntimeError: it ended by itself or was never ready."""
    with running(kind) as agent:
        return agent.started


def memory_of(kinds: Sequence[str], seconds: float) -> list[Memory]:
    """Watch agents of these kinds, all at once, each in a cluster of its own, for so long after readiness."""
    with ExitStack() as stack:
        agents = [stack.enter_context(running(kind)) for kind in kinds]
        solver_peaks = [0] * len(agents)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for number, agent in enumerate(agents):
                for child in _children(agent.pid):
                    solver_peaks[number] = max(solver_peaks[number], _memory(child, "VmHWM"))
            time.sleep(_LOOK)
        return [
            Memory(
                _memory(agent.pid, "VmHWM"),
                _memory(agent.pid, "VmRSS"),
                solver_peak,
                sum(_memory(child, "VmRSS") for child in _children(agent.pid)),
            )
            for agent, solver_peak in zip(agents, solver_peaks, strict=True)
        ]


@contextlib.contextmanager
def running(kind: str) -> Iterator[Agent]:
    """An agent of this kind that is ready, with a founder beside it if it is a member."""
    with tempfile.TemporaryDirectory(prefix="rota-footprint-") as name, ExitStack() as stack:
        folder = Path(name)
        if kind == MEMBER:
            founder = stack.enter_context(_agent(folder, "founder"))
            yield stack.enter_context(_agent(folder, "member", "--seed", founder.listen))
        else:
            yield stack.enter_context(
                _agent(folder, "alone", *(("--no-store",) if kind == STORELESS else ()))
            )


@contextlib.contextmanager
def _agent(folder: Path, name: str, *options: str) -> Iterator[Agent]:
    reader, writer = os.pipe()
    # Bytecode is kept between the starts, as for any program that is installed.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    begin = time.monotonic()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "rota", "agent", "--name", name, "--data-dir", str(folder / name)),
            *("--listen", "127.0.0.1:0", "--api", "127.0.0.1:0", *options),
        ],
        env={**environment, READY_DESCRIPTOR: str(writer)},
        pass_fds=[writer],
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    try:
        with os.fdopen(reader) as channel:
            announced = channel.readline()
        if not announced:
            _, said = process.communicate()
            raise RuntimeError(f"the agent ended before it listened: {said.decode(errors='replace')[-500:]}")
        addresses = json.loads(announced)
        host, _, port = addresses["api"].rpartition(":")
        ready = _until_ready(process, (host, int(port)), begin)
        started = Start(ready, _cpu_seconds(process.pid), _memory(process.pid, "VmRSS"))
        yield Agent(process.pid, addresses["listen"], started)
    finally:
        process.kill()
        process.communicate()


def _until_ready(process: subprocess.Popen[bytes], api: tuple[str, int], begin: float) -> float:
    while process.poll() is None and time.monotonic() < begin + PATIENCE:
        connection = http.client.HTTPConnection(*api, timeout=PATIENCE)
        with contextlib.suppress(OSError), contextlib.closing(connection):
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return time.monotonic() - begin
        time.sleep(_PAUSE)
    raise RuntimeError(f"the agent was not ready within {PATIENCE:g} s")


def _cpu_seconds(process: int) -> float:
    # Fields 14 and 15 of the line; the second, in parentheses, may contain spaces.
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(process: int, field: str) -> int:
    """A figure of /proc/PID/status in bytes; 0 when the process is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return 0


def _children(process: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            found += map(int, children.read_text().split())
    return found


def agent_footprint(starts: int, seconds: float) -> Result:
    """``starts`` of each kind, one after the other, of which the fastest counts, since others use the machine too;
    then one of each is watched for ``seconds``."""
    start_of(STORELESS)  # compiles what is not compiled yet
    figures: dict[str, Any] = {"starts": starts, "watched_seconds": seconds}
    rows: list[tuple[str, str, str]] = []
    ok = True
    for kind in KINDS:
        measured = [start_of(kind) for _ in range(starts)]
        ready = min(each.seconds for each in measured)
        found = {
            "ready_seconds": round(ready, 3),
            "ready_seconds_median": round(statistics.median(each.seconds for each in measured), 3),
            "ready_cpu_seconds": round(min(each.cpu_seconds for each in measured), 3),
            "ready_rss": max(each.rss for each in measured),
        }
        figures[kind] = found
        # A member waits for the others' view change besides.
        ok = ok and (kind == MEMBER or ready < LIMIT_READY)
        rows += [
            (
                f"{kind}: s to readiness, best",
                f"{ready:.2f}",
                "" if kind == MEMBER else f"goal {LIMIT_READY:g}",
            ),
            (f"{kind}: s to readiness, median", f"{found['ready_seconds_median']:.2f}", ""),
            (f"{kind}: CPU s to readiness", f"{found['ready_cpu_seconds']:.2f}", ""),
            (f"{kind}: MiB when ready", _mebibytes(found["ready_rss"]), f"goal {_mebibytes(LIMIT_MEMORY)}"),
        ]
    for kind, memory in zip(KINDS, memory_of(KINDS, seconds), strict=True):
        figures[kind] |= {
            "peak_rss": memory.peak,
            "later_rss": memory.last,
            "solver_peak_rss": memory.solver_peak,
            "solver_later_rss": memory.solver_last,
        }
        ok = ok and memory.peak < LIMIT_MEMORY
        rows += [
            (
                f"{kind}: MiB at most in {seconds:g} s",
                _mebibytes(memory.peak),
                f"goal {_mebibytes(LIMIT_MEMORY)}",
            ),
            (f"{kind}: MiB then", _mebibytes(memory.last), ""),
            (f"{kind}: its solver's process, MiB at most", _mebibytes(memory.solver_peak), ""),
            (f"{kind}: its solver's process, MiB then", _mebibytes(memory.solver_last), ""),
        ]
    source = (
        "nothing; the goals are ours, for a machine that does nothing else, the solver's process not counted"
    )
    return Result({**figures, "ok": ok}, rows, source, ok=ok)


def _mebibytes(size: float) -> str:
    return f"{size / 2**20:.0f}"
