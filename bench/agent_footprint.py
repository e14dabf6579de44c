"""What one agent process alone costs: from its start to its readiness, and the memory it then takes.

What it is: `rota agent` as anybody starts it, a founder on loopback, watched from outside through /proc and its own
/readyz. With a store a lone founder is the controller too, and loads the solver, the largest thing an agent can hold,
soon after it is ready; the others never do. So memory is read at readiness, and again for an agent without a store.
What it is not: an agent at work; memory grows with the log it holds.
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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.local_cluster import READY_DESCRIPTOR
from bench.result import Result

LIMIT_MEMORY: Final = 60 * 2**20
"""Bytes: what one agent alone may take."""
LIMIT_READY: Final = 0.5
"""Seconds from the start of the process to its readiness, on a machine with nothing else to do."""
SETTLING: Final = 2.0
"""Seconds after readiness at which memory is read."""
PATIENCE: Final = 60.0
_PAUSE: Final = 0.005


@dataclass(frozen=True, slots=True)
class Footprint:
    """One start."""

    ready_seconds: float
    ready_cpu_seconds: float
    """CPU seconds the process had used when it was ready: what does not depend on who else uses the machine."""
    ready_rss: int
    """Bytes resident at readiness."""
    settled_rss: int
    """Bytes resident `SETTLING` seconds later."""


def measure(*, store: bool) -> Footprint:
    """Start an agent, watch it, end it. Raises RuntimeError if it ends by itself or is never ready."""
    with (
        tempfile.TemporaryDirectory(prefix="rota-footprint-") as folder,
        _agent(Path(folder), store) as started,
    ):
        process, api, begin = started
        ready = _until_ready(process, api, begin)
        cpu, rss = _cpu_seconds(process.pid), _resident(process.pid)
        time.sleep(SETTLING)
        return Footprint(ready, cpu, rss, _resident(process.pid))


@contextlib.contextmanager
def _agent(folder: Path, store: bool) -> Iterator[tuple[subprocess.Popen[bytes], tuple[str, int], float]]:
    """A founder; the process, its HTTP address, and when it was started."""
    reader, writer = os.pipe()
    begin = time.monotonic()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "agent", "agent", "--name", "alone", "--data-dir", str(folder / "data")),
            *("--listen", "127.0.0.1:0", "--api", "127.0.0.1:0"),
            *(() if store else ("--no-store",)),
        ],
        env={**os.environ, READY_DESCRIPTOR: str(writer)},
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
        host, _, port = json.loads(announced)["api"].rpartition(":")
        yield process, (host, int(port)), begin
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


def _resident(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def agent_footprint(starts: int) -> Result:
    """Several starts, one after the other; the fastest counts, since others use the machine too."""
    figures: dict[str, Any] = {"starts": starts}
    rows: list[tuple[str, str, str]] = []
    ok = True
    for name, store in (("with_store", True), ("without_store", False)):
        measured = [measure(store=store) for _ in range(starts)]
        ready = min(each.ready_seconds for each in measured)
        found = {
            "ready_seconds": round(ready, 3),
            "ready_seconds_median": round(statistics.median(each.ready_seconds for each in measured), 3),
            "ready_cpu_seconds": round(min(each.ready_cpu_seconds for each in measured), 3),
            "ready_rss": max(each.ready_rss for each in measured),
            "settled_rss": max(each.settled_rss for each in measured),
        }
        figures[name] = found
        # With a store the lone agent is the controller as well, and what it then loads is the solver's.
        memory = found["ready_rss"] if store else found["settled_rss"]
        ok = ok and memory < LIMIT_MEMORY and ready < LIMIT_READY
        text = name.replace("_", " ")
        settled_goal = "" if store else f"goal {LIMIT_MEMORY / 2**20:.0f}"
        rows += [
            (f"{text}: seconds to readiness, best", f"{ready:.2f}", f"goal {LIMIT_READY:g}"),
            (f"{text}: seconds to readiness, median", f"{found['ready_seconds_median']:.2f}", ""),
            (f"{text}: CPU seconds to readiness", f"{found['ready_cpu_seconds']:.2f}", ""),
            (
                f"{text}: MiB when ready",
                f"{found['ready_rss'] / 2**20:.0f}",
                f"goal {LIMIT_MEMORY / 2**20:.0f}",
            ),
            (f"{text}: MiB {SETTLING:g} s later", f"{found['settled_rss'] / 2**20:.0f}", settled_goal),
        ]
    source = "nothing; the goals are ours, for a machine that does nothing else"
    return Result({**figures, "ok": ok}, rows, source, ok=ok)
