"""Finding the records of a stream without pointers: ask the log units what they hold of it.

The search of a range of addresses under one layout, which fills the holes it meets, so that nothing can appear later
in what it has searched; the names of all streams in a range; and how much there is of each.  For following the tail
the back-pointers are cheaper (`log.sequencer.back_pointers`).
Source: CORFU (NSDI 2012) section 2.2 (filling holes); Tango (SOSP 2013) section 5 (scanning when pointers end).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, TypeVar

from datastore_adapter.log.client.replication import Replication, away_error
from datastore_adapter.log.errors import ReplicaUnavailableError
from datastore_adapter.log.layout.document import Extent, ExtentState, Segment
from datastore_adapter.log.layout.striping import addresses_in
from datastore_adapter.log.messages import (
    CountStreams,
    ReadStreamTails,
    StreamCount,
    StreamCounts,
    StreamTails,
    SurveyReply,
)
from datastore_adapter.log.runtime.runtime import Runtime, results_of
from datastore_adapter.log.settings import LogSettings

T = TypeVar("T")

HOLES_AT_ONCE: Final = 256
"""Holes of one extent that are filled at a time."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found in the part of the range it covered."""

    addresses: tuple[int, ...]
    """Of records of the stream, ascending; none below `trimmed_below`."""
    complete_below: int
    """How far the search went: below this, every record is found and every hole filled."""
    trimmed_below: int
    """Below this, records are gone."""


@dataclass(frozen=True, slots=True)
class StreamSize:
    """How much there is of a stream."""

    records: int
    bytes: int
    """About what they take on a disk."""


class StreamSearch:
    """Searches under the layout of `replication`."""

    def __init__(
        self, runtime: Runtime, settings: LogSettings, replication: Replication, counters: Counter[str]
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._replication = replication
        self._counters = counters

    async def find(self, stream: str | None, start: int, end: int) -> Found:
        """What of `stream` lies in ``[start, end)``, as far as one round of questions tells; None: fill holes only.

        `end` must not be above the tail.
        """
        jobs = [
            partial(self._find_in_extent, segment, extent, stream, max(start, extent.start), end)
            for segment in self._replication.layout.segments
            for extent in [segment.extent_of(max(start, segment.extents[0].start))]
            if extent.start < end
        ]
        addresses: list[int] = []
        complete, trimmed = end, self._replication.layout.trimmed_below
        for reply in results_of(await self._runtime.gather(jobs)):
            addresses += reply.found
            complete = min(complete, reply.missing[0] if reply.missing else reply.next)
            trimmed = max(trimmed, reply.trimmed_below)
        within = sorted(address for address in addresses if trimmed <= address < complete)
        return Found(tuple(within), complete, trimmed)

    async def names(self, start: int, end: int, until: float) -> set[str]:
        """Every stream with a record in ``[start, end)``, all of which must be settled.

        Begins no further page from `until` on: :class:`ReplicaUnavailableError`.
        """
        jobs = [
            partial(self._names_in_extent, segment, extent, max(start, extent.start), end, until)
            for segment in self._replication.layout.segments
            for extent in segment.extents
            if extent.start < end and (extent.end is None or extent.end > start)
            if self._has_addresses(segment, extent, max(start, extent.start), end)
        ]
        names: set[str] = set()
        for found in results_of(await self._runtime.gather(jobs)):
            names |= found
        return names

    async def sizes(self, until: float) -> dict[str, StreamSize]:
        """Every stream and how much there is of it, as the last host of each chain holds it.

        Begins no further page from `until` on: :class:`ReplicaUnavailableError`.
        """
        segments: dict[str, list[str]] = {}
        for segment in self._replication.layout.segments:
            segments.setdefault(segment.open_extent.chain[-1], []).append(segment.key)
        jobs = [partial(self._sizes_on, host, tuple(keys), until) for host, keys in sorted(segments.items())]
        sizes: dict[str, StreamSize] = {}
        for found in results_of(await self._runtime.gather(jobs)):
            for count in found:
                known = sizes.get(count.stream, StreamSize(0, 0))
                sizes[count.stream] = StreamSize(known.records + count.records, known.bytes + count.bytes)
        return sizes

    async def _sizes_on(self, host: str, segments: tuple[str, ...], until: float) -> list[StreamCount]:
        counts: list[StreamCount] = []
        while True:
            after = counts[-1].stream if counts else None
            reply = await self._replication.call(host, CountStreams(segments, after))
            if not isinstance(reply, StreamCounts):
                raise ReplicaUnavailableError(f"{host} answered with {type(reply).__name__}")
            _check_ascending(host, after, [count.stream for count in reply.streams])
            counts += reply.streams
            if not reply.more or not reply.streams:
                return counts
            if self._runtime.now() >= until:
                raise ReplicaUnavailableError(f"{host} holds more streams than it can tell of in time")

    async def fill(self, address: int) -> None:
        """Complete an address whose writer had time enough."""
        if await self._replication.read(address) is None:
            entry = await self._replication.settle(address)
            self._counters["holes_filled"] += entry.is_junk

    async def _find_in_extent(
        self, segment: Segment, extent: Extent, stream: str | None, start: int, end: int
    ) -> SurveyReply:
        """What one extent holds of the stream, after one attempt to fill its holes."""
        until = end if extent.end is None else min(end, extent.end)
        if not self._has_addresses(segment, extent, start, until):
            return SurveyReply((), (), until)
        reply = await self._survey(segment, extent, stream, start, until)
        if not reply.missing:
            return reply
        await self._runtime.sleep(self._settings.hole_timeout)
        jobs = [partial(self.fill, address) for address in reply.missing[:HOLES_AT_ONCE]]
        results_of(await self._runtime.gather(jobs))
        return await self._survey(segment, extent, stream, start, until)

    async def _survey(
        self, segment: Segment, extent: Extent, stream: str | None, start: int, end: int
    ) -> SurveyReply:
        return await self._of_any(
            segment,
            extent,
            end,
            lambda host: self._replication.survey(host, segment, start, end, stream),
        )

    async def _names_in_extent(
        self, segment: Segment, extent: Extent, start: int, end: int, until: float
    ) -> set[str]:
        return await self._of_any(
            segment, extent, end, lambda host: self._names_on(host, segment, start, end, until)
        )

    async def _of_any(
        self, segment: Segment, extent: Extent, end: int, ask: Callable[[str], Awaitable[T]]
    ) -> T:
        """The answer of the first host that gives one."""
        failure: ReplicaUnavailableError | None = None
        try:
            for host in self._hosts(extent, end):
                try:
                    return await ask(host)
                except ReplicaUnavailableError as error:
                    failure = failure or error
            raise away_error(segment, extent, failure)
        finally:
            del failure  # it leads back to this frame

    async def _names_on(self, host: str, segment: Segment, start: int, end: int, until: float) -> set[str]:
        names: set[str] = set()
        after: str | None = None
        while True:
            request = ReadStreamTails(self._replication.epoch, ((segment.key, start, end),), after)
            reply = await self._replication.call(host, request)
            if not isinstance(reply, StreamTails):
                raise ReplicaUnavailableError(f"{host} answered with {type(reply).__name__}")
            _check_ascending(host, after, [name for name, _ in reply.streams])
            names.update(name for name, addresses in reply.streams if addresses)
            if not reply.more or not reply.streams:
                return names
            if self._runtime.now() >= until:
                raise ReplicaUnavailableError(f"{host} holds more streams than it can tell of in time")
            after = reply.streams[-1][0]

    def _has_addresses(self, segment: Segment, extent: Extent, start: int, end: int) -> bool:
        """Whether anything can be found in the range; no host need be there where nothing can."""
        if extent.is_held:
            return True
        stripe = self._replication.layout.stripe_of(segment.key, start)
        until = end if extent.end is None else min(end, extent.end)
        empty = stripe is None or not addresses_in(start, max(start, until), stripe)
        return not empty and extent.state is not ExtentState.FORGOTTEN

    def _hosts(self, extent: Extent, end: int) -> tuple[str, ...]:
        """Who may answer for addresses below `end`: the tail, and once they are settled everybody."""
        if end <= self._replication.layout.settled_below:
            return extent.chain[::-1]
        return extent.chain[-1:]


def _check_ascending(host: str, after: str | None, names: list[str]) -> None:
    """A host that tells of the same names again would go on for ever.  Raises :class:`ReplicaUnavailableError`."""
    told = names if after is None else [after, *names]
    if any(later <= earlier for earlier, later in pairwise(told)):
        raise ReplicaUnavailableError(f"{host} told of streams out of order")
