"""What an agent tells of its own host: the disk, what it holds, what it measured in the last hour."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import trio

from datastore_adapter import LogThread
from rota.http.answers import Disk, Held, Measured, Space
from rota.services.measurements import INTERVAL, Measurements

log = logging.getLogger("rota")

PATIENCE: Final = 2.0
"""Seconds that a disk may take to tell how much room it has, and the log what it holds."""
READS: Final = ("log_unit.Read", "log_unit.Survey", "log_unit.ReadChunk")
NETWORK: Final = (
    "datagram_bytes_sent", "datagram_bytes_received", "stream_bytes_sent", "stream_bytes_received",
)  # fmt: skip

Counters = Mapping[str, int]
Gauges = Mapping[str, float | None]
Look = Callable[[], Awaitable[tuple[Counters, Gauges]]]


class HostMonitor:
    """Of the agent with this data directory."""

    def __init__(self, data_dir: Path, clock: Callable[[], float] = time.time) -> None:
        self._data_dir = data_dir
        self._clock = clock
        self.started = clock()
        self._measurements = Measurements()
        self._asking = trio.CapacityLimiter(1)
        """A disk that never answers keeps one thread, and not one more each time."""
        self._failures: set[type[Exception]] = set()
        """Those that were told of."""

    async def run(self, look: Look) -> None:
        """Measure at even times what `look` tells, and the room on the disk."""
        due = trio.current_time()
        while True:
            counters, gauges = await self._measure(look)
            self._measurements.take(self._clock(), counters, gauges)
            due = max(due + INTERVAL, trio.current_time())
            await trio.sleep_until(due)

    async def _measure(self, look: Look) -> tuple[Counters, Gauges]:
        """Nothing where that fails, of whatever kind the failure is: an agent does not end over what is only drawn."""
        try:
            space = await self.space()
            counters, gauges = await look()
        except Exception as error:
            if type(error) not in self._failures:
                self._failures.add(type(error))
                log.warning("this host is not measured at times, which is told once", exc_info=True)
            return {}, {}
        room = {"disk_free": space and space["free"], "disk_total": space and space["total"]}
        return counters, {**gauges, **room}

    def now(self) -> float:
        """In Unix seconds."""
        return self._clock()

    def measured(self) -> Measured:
        """What was measured in the last hour."""
        return self._measurements.told()

    async def space(self) -> Space | None:
        """Of the file system with the data directory; None where it does not tell in time."""
        with trio.move_on_after(PATIENCE):
            try:
                usage = await trio.to_thread.run_sync(
                    shutil.disk_usage, self._data_dir, abandon_on_cancel=True, limiter=self._asking
                )
            except (OSError, RuntimeError):  # the latter where there can be no more threads
                return None
            return {"free": usage.free, "total": usage.total}
        return None


def counted(statistics: Counters, *, with_log: bool) -> dict[str, int]:
    """The counters that are drawn as rates, by the names of their series."""

    def sum_of(*names: str) -> int:
        return sum(statistics.get(name, 0) for name in names)

    network = {"network_bytes": sum_of(*NETWORK)}
    if not with_log:
        return network
    return network | {
        "records": sum_of("log_unit.records"),
        "reads": sum_of(*READS),
        "synced_bytes": sum_of("storage.synced_bytes"),
    }


def disk_of(server: LogThread) -> Disk:
    """How the disk of its log is."""
    report = server.disk
    return {
        "state": report.state,
        "reason": report.failure or ("it takes no more records" if report.full else ""),
        "sync_seconds": report.sync_seconds,
    }


async def held_by(server: LogThread) -> Held | None:
    """What the log holds here; None where its thread does not answer in time, as it waits for its disk."""
    with trio.move_on_after(PATIENCE):
        segments = await server.segments()
        return {
            "bytes": sum(segment.bytes for segment in segments),
            "records": sum(segment.records for segment in segments),
            "segments": [
                {"key": segment.key, "bytes": segment.bytes, "records": segment.records}
                for segment in segments
            ],
        }
    return None
