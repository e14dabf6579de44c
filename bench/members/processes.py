"""Many real members in a few processes of this machine, and what they report.

The parent of some ``bench.members.member_process``; it starts members, kills some, and knows who stands in which
view. Everything goes over loopback with real datagrams and streams.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import trio

SEEDS: Final = 3
"""Members every other one knows as its seeds; the first of them founds the cluster."""

MOST_PROCESSES: Final = 8
PATIENCE: Final = 120.0
"""Seconds after which members that have not agreed are given up."""


class MemberProcessesError(Exception):
    """A process ended, or the members have not agreed in time."""


class View(NamedTuple):
    """One view, as it is named in the reports."""

    epoch: int
    id: str
    size: int


class Alert(NamedTuple):
    """A member reported another."""

    seconds: float
    observer: str
    subject: str


@dataclass(slots=True)
class Standing:
    """Who stands in one view, in one process."""

    members: int
    first: float
    last: float


@dataclass(slots=True)
class Usage:
    """What all processes together have used and sent since they were started."""

    cpu_seconds: float = 0.0
    max_rss: int = 0
    """Bytes of the largest process."""
    longest_round: float = 0.0
    counters: Counter[str] = field(default_factory=Counter)


class MemberProcesses:
    """Make one with `open_member_processes`."""

    def __init__(self, nodes: int, processes: list[trio.Process]) -> None:
        self.nodes = nodes
        self.views: dict[View, list[Standing | None]] = {}
        """For each view seen so far, the standing in each process."""
        self.alerts: list[Alert] = []
        self._processes = processes
        self._answers: list[dict[str, Any]] = []
        self._news = trio.Event()

    @property
    def processes(self) -> int:
        """How many processes there are."""
        return len(self._processes)

    @property
    def unique_sizes(self) -> list[int]:
        """The different sizes that members have seen, ascending."""
        return sorted({view.size for view in self.views})

    def last_installation(self, view: View) -> float:
        """When the last member came to stand in `view`."""
        return max(standing.last for standing in self.views[view] if standing is not None)

    async def start(self, spread: float) -> tuple[float, float]:
        """Start all members within `spread` seconds; when the first and when the last really started."""
        seeds = [address for answer in await self._collect("bound") for address in answer["addresses"]]
        begin = time.monotonic() + 0.2
        await self._command({"command": "start", "seeds": seeds, "begin": begin, "spread": spread})
        return begin, max(answer["seconds"] for answer in await self._collect("started"))

    async def until_all_at(self, size: int, *, after: int = -1, patience: float = PATIENCE) -> View | None:
        """Wait until `size` members stand in one view of that size and an epoch above `after`; None in vain."""
        with trio.move_on_after(patience):
            while True:
                for view, standings in self.views.items():
                    there = sum(standing.members for standing in standings if standing is not None)
                    if view.size == there == size and view.epoch > after:
                        return view
                await self._news.wait()
        return None

    async def kill(self, numbers: Iterable[int]) -> float:
        """Let these members vanish at once; when the first did (seconds)."""
        gone = sorted(numbers)
        for process, share in enumerate(shares(self.nodes, self.processes)):
            here = [number for number in gone if number in share]
            await self._command({"command": "kill", "members": here}, process)
        return float(min(answer["seconds"] for answer in await self._collect("killed")))

    async def observers(self, numbers: Iterable[int]) -> dict[str, dict[str, int]]:
        """Who observes these members in the present view, by name, and on how many rings."""
        await self._command({"command": "observers", "members": list(numbers)})
        found: dict[str, dict[str, int]] = (await self._collect("observers"))[0]["observers"]
        return found

    async def usage(self) -> Usage:
        """What has been used so far."""
        await self._command({"command": "statistics"})
        total = Usage()
        for answer in await self._collect("statistics"):
            total.cpu_seconds += answer["cpu_seconds"]
            total.max_rss = max(total.max_rss, answer["max_rss"])
            total.longest_round = max(total.longest_round, answer["longest_round"])
            total.counters.update(answer["counters"])
        return total

    async def _command(self, command: dict[str, Any], process: int | None = None) -> None:
        line = json.dumps(command).encode() + b"\n"
        for each in self._processes if process is None else [self._processes[process]]:
            assert each.stdin is not None
            await each.stdin.send_all(line)

    async def _collect(self, event: str) -> list[dict[str, Any]]:
        """One answer of each process."""
        with trio.fail_after(PATIENCE):
            while True:
                found = [answer for answer in self._answers if answer["event"] == event]
                if len(found) >= len(self._processes):
                    self._answers = [answer for answer in self._answers if answer["event"] != event]
                    return found
                await self._news.wait()

    async def listen(self, number: int) -> None:
        """Take in what one process says, until it ends."""
        process = self._processes[number]
        assert process.stdout is not None
        buffer = b""
        async for chunk in process.stdout:
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                self._hear(number, json.loads(line))
            self._news.set()
            self._news = trio.Event()
        raise MemberProcessesError(
            f"process {number} of the members ended with status {await process.wait()}"
        )

    def _hear(self, number: int, report: dict[str, Any]) -> None:
        match report["event"]:
            case "view":
                view = View(report["epoch"], report["id"], report["size"])
                standings = self.views.setdefault(view, [None] * len(self._processes))
                standings[number] = Standing(report["members"], report["first"], report["last"])
            case "alert":
                self.alerts.append(Alert(report["seconds"], report["observer"], report["subject"]))
            case _:
                self._answers.append(report)


def shares(nodes: int, processes: int) -> list[range]:
    """The members of each process: all as even as possible."""
    share = math.ceil(nodes / processes)
    return [range(first, min(first + share, nodes)) for first in range(0, nodes, share)]


@asynccontextmanager
async def open_member_processes(nodes: int, processes: int, seed: int) -> AsyncIterator[MemberProcesses]:
    """The processes, waiting for `MemberProcesses.start`; at the end of the block they are ended."""
    opened: list[trio.Process] = []
    try:
        for share in shares(nodes, processes):
            plan = {
                "first": share.start,
                "count": len(share),
                "seed": f"{seed} {share.start}",
                "seeds": min(SEEDS, nodes),
            }
            opened.append(
                await trio.lowlevel.open_process(
                    [sys.executable, "-m", "bench.members.member_process", json.dumps(plan)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                )
            )
        crowd = MemberProcesses(nodes, opened)
        async with trio.open_nursery() as nursery:
            for number in range(len(opened)):
                nursery.start_soon(crowd.listen, number)
            yield crowd
            nursery.cancel_scope.cancel()
    finally:
        for process in opened:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
