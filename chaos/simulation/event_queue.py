"""A calendar queue: the future of a simulation in buckets of one millisecond.

A dict of buckets and a heap of the bucket times; entries of one bucket come out in the order they went in, so the
order of a run is the order of its causes, without a tie-breaking counter. Nothing can be removed; owners of timers
ignore stale entries.
Source: R. Brown, *Calendar Queues*, CACM 31(10), 1988; buckets of fixed width suffice here.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

TICKS_PER_SECOND = 1000
"""Resolution of virtual time: one bucket is one millisecond."""

Entry = TypeVar("Entry")


class CalendarQueue(Generic[Entry]):
    """Entries ordered by integer time (ticks), first in first out within one tick."""

    __slots__ = ("_buckets", "_times")

    def __init__(self) -> None:
        self._buckets: dict[int, list[Entry]] = {}
        self._times: list[int] = []

    def push(self, tick: int, entry: Entry) -> None:
        """Add `entry` at `tick`, which is not before the tick being worked on."""
        bucket = self._buckets.get(tick)
        if bucket is None:
            self._buckets[tick] = [entry]
            heappush(self._times, tick)
        else:
            bucket.append(entry)

    def next_tick(self) -> int | None:
        """The time of the earliest entry, or None when nothing is left."""
        return self._times[0] if self._times else None

    def bucket(self, tick: int) -> list[Entry]:
        """The entries at `tick`; it grows when something is pushed there while it is worked on."""
        return self._buckets[tick]

    def drop(self, tick: int, done: int) -> None:
        """Forget the first `done` entries of the earliest bucket `tick`; all gone, the bucket goes too."""
        bucket = self._buckets[tick]
        if done < len(bucket):
            del bucket[:done]
            return
        del self._buckets[tick]
        heappop(self._times)

    def postpone(self, ticks: int, stays: Callable[[Entry], bool]) -> None:
        """Let everything but what `stays` happen so many ticks later; only between two buckets.

        At one time, what stays comes before what was put off until then.
        """
        buckets: dict[int, list[Entry]] = {}
        for tick, bucket in self._buckets.items():
            if kept := [entry for entry in bucket if stays(entry)]:
                buckets[tick] = kept
        for tick, bucket in self._buckets.items():
            if moved := [entry for entry in bucket if not stays(entry)]:
                buckets.setdefault(tick + ticks, []).extend(moved)
        self._buckets = buckets
        self._times = list(buckets)
        heapify(self._times)

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))
