"""One reader of a stream: where it stands, and what comes next.

Batches of records in order of address, each up to the tail of the moment it is asked for.  A reader that is not far
behind follows the back-pointers, at one question to the sequencer and one read per record; one that is far behind, or
whose pointers lead to holes only, searches the log units.  It misses nothing: records that were trimmed before it
came to them are a TrimmedError, and where nobody has what comes next it goes no further.

The tail and the pointers are the sequencer's word, and die with it: an address that was given out and never written
may be given again by the next one, to another stream.  So a reader stands no further than what is written or settled,
and never at a tail it was only told; and where the epoch has changed on the way, it searches.
Nothing happens between two calls.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Final, Protocol

from datastore_adapter.log.client.record import Record
from datastore_adapter.log.client.stream_search import Found
from datastore_adapter.log.errors import ExtentAwayError, TrimmedError, UnwrittenError
from datastore_adapter.log.sequencer.back_pointers import BackPointerWalk, StreamTail

READ_AHEAD: Final = 16
"""Records read at a time, and kept until they are asked for."""
WALK_LIMIT: Final = 64
"""Records a walk along the pointers reads at most; a longer way is searched."""


class StreamSource(Protocol):
    """What a reader needs of the log."""

    @property
    def epoch(self) -> int:
        """The data epoch that it works in, as far as is known."""
        ...

    @property
    def base(self) -> int:
        """Where that epoch began: what was written before it lies below, and stays."""
        ...

    @property
    def pointers_from(self) -> int:
        """Pointers lead to every record from here on, and may miss lower ones."""
        ...

    @property
    def settled_below(self) -> int:
        """No record will ever appear below, as far as is known."""
        ...

    async def last_addresses(self, stream: str, *, timeout: float | None = None) -> StreamTail:
        """The tail, and the latest addresses of the stream below it."""
        ...

    async def find(self, stream: str | None, start: int, end: int, *, timeout: float | None = None) -> Found:
        """Raises ExtentAwayError where a part of the range cannot be searched."""
        ...

    def away_within(self, start: int, end: int) -> tuple[int, int] | None:
        """The first and the last address in ``[start, end)`` that nobody who is there holds, as far as is known."""
        ...

    async def read_all(
        self, addresses: Sequence[int], *, timeout: float | None = None
    ) -> list[Record | None]:
        """The records at the addresses, None for holes."""
        ...


class StreamReader:
    """A reader of `stream` that has seen everything below `start`; None: begin with what is not trimmed.

    For one task at a time.
    """

    def __init__(
        self, source: StreamSource, stream: str, start: int | None, *, timeout: float | None = None
    ) -> None:
        self._source = source
        self._stream = stream
        self._timeout = timeout
        self.position = start
        """Everything below was returned, or is not of the stream and never will be; None: not known yet."""

    async def advance(self) -> AsyncIterator[Record]:
        """The records from the position to the tail of now, in order of address.

        A caller that breaks off goes on behind the last record it got.  Raises TrimmedError, and ExtentAwayError once
        it has got every record below the first address that nobody who is there holds.
        """
        settled = self._source.settled_below  # asked first: it has to hold for the tail that is told now
        told = await self._source.last_addresses(self._stream, timeout=self._timeout)
        walked: dict[int, Record | None] = {}
        end = told.tail
        if self.position is not None and self.position < told.tail:
            end, walked = await self._walk(self.position, told)
        async for record in self._search(end):
            yield record
        for address in sorted(walked):
            self.position = address + 1
            entry = walked[address]
            if entry is not None and entry.stream == self._stream:
                yield entry
        self.position = max(self.position or 0, min(settled, told.tail))

    async def _walk(self, start: int, told: StreamTail) -> tuple[int, dict[int, Record | None]]:
        """Go back along the pointers as far as is worth it: from where on they tell all, and what they lead to there.

        What lies before that is searched for.
        """
        floor = self._source.pointers_from
        walk = BackPointerWalk(max(start, floor), told.tail, told.latest)
        read: dict[int, Record | None] = {}
        with suppress(ExtentAwayError, UnwrittenError):
            while walk.unread and len(read) < WALK_LIMIT:
                addresses = walk.unread[:READ_AHEAD]
                records = await self._source.read_all(addresses, timeout=self._timeout)
                for address, record in zip(addresses, records, strict=True):
                    walk.learn(address, () if record is None else record.previous)
                    read[address] = record
        if self._source.epoch != told.epoch:  # nobody knows what was read there
            return min(told.tail, self._source.base), {}
        if walk.unread:  # it is too long, or something is away
            return told.tail, {}
        return max(walk.covered_from, floor), read

    async def _search(self, end: int) -> AsyncIterator[Record]:
        """What the log units hold of the stream between the position and `end`."""
        while self.position is None or self.position < end:
            found = await self._find(self.position or 0, end)
            if self.position is None:
                self.position = found.trimmed_below
            elif found.trimmed_below > self.position:
                raise TrimmedError(
                    f"stream {self._stream!r}: records from address {self.position} on were trimmed; "
                    f"what is left begins at {found.trimmed_below}",
                    found.trimmed_below,
                )
            for first in range(0, len(found.addresses), READ_AHEAD):
                addresses = found.addresses[first : first + READ_AHEAD]
                records = await self._source.read_all(addresses, timeout=self._timeout)
                for address, record in zip(addresses, records, strict=True):
                    self.position = address + 1
                    if record is not None and record.stream == self._stream:
                        yield record
            self.position = max(self.position, found.complete_below)

    async def _find(self, start: int, end: int) -> Found:
        try:
            return await self._source.find(self._stream, start, end, timeout=self._timeout)
        except ExtentAwayError:
            away = self._source.away_within(start, end)
            if away is None or away[0] == start:
                raise
        return await self._source.find(self._stream, start, away[0], timeout=self._timeout)
