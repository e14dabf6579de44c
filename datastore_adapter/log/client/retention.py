"""What the streams of a log still need, so that what none needs can be trimmed.

A mark per stream, below which its users need nothing any more, kept in a stream of its own.  The log is trimmed from
its beginning up to the first record that some stream needs; a stream without a mark needs all its records.  It cannot
free the middle of the log.  One old record of a stream that nobody forgets keeps everything after it.

Marks only grow, so that tables are merged by the greater mark, in any order.  A record holds what its writer knew, and
from where on it had not looked: that record and those from there on are the whole table.  No trim goes beyond what
the records before it allow, which lets a reader that finds a trim ahead of it decide whether it missed anything.
Source: M. Balakrishnan et al., *Tango*, SOSP 2013, section 3.2 (forget: trim what every object has forgotten).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

import msgspec

from datastore_adapter.log.client.log_client import LogClient
from datastore_adapter.log.client.record import Record
from datastore_adapter.log.client.stream_reader import StreamReader
from datastore_adapter.log.errors import ProtocolError, TrimmedError, UnwrittenError

RETENTION_STREAM: Final = "rota/retention"


class _Marks(msgspec.Struct, frozen=True, array_like=True):
    """One record of the table."""

    since: int
    """Everything of the table below this address is in `marks`."""
    marks: dict[str, int]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Marks)


class Retention:
    """The table of marks of one log, as a client sees it.  For one task at a time."""

    def __init__(self, client: LogClient) -> None:
        self._client = client
        self._marks: dict[str, int] = {}
        self._reader: StreamReader | None = None

    async def marks(self) -> Mapping[str, int]:
        """The marks that were set before the call."""
        if self._reader is None:
            newest = await self._client.latest(RETENTION_STREAM, 1)
            start = _decode(newest[0]).since if newest else None
            self._reader = self._client.reader(RETENTION_STREAM, start)
        while True:
            try:
                async for record in self._reader.advance():
                    self._marks = _merged(self._marks, _decode(record).marks)
            except TrimmedError as error:
                # What was trimmed of the table is in one of the records that are left.
                self._reader.position = max(self._reader.position or 0, error.below)
            else:
                return self._marks

    async def forget(self, below: Mapping[str, int]) -> int:
        """Nobody needs the records of these streams below these addresses; the address the log begins at now.

        Returns once everything that no stream needs is trimmed.  A crash in the middle loses nothing; the next
        call does the rest.  Raises UnwrittenError for an address beyond the tail.
        """
        tail = await self._client.tail()
        for stream, mark in below.items():
            if mark > tail:
                raise UnwrittenError(f"stream {stream!r}: address {mark} is beyond the log's tail, {tail}")
        await self.marks()
        assert self._reader is not None
        assert self._reader.position is not None
        since = self._reader.position
        table = _Marks(since, _merged(self._marks, {**below, RETENTION_STREAM: since}))
        await self._client.append(RETENTION_STREAM, _encoder.encode(table))
        marks = await self.marks()  # also what others have written before it
        begin, end = await self._settle(max(marks.values()))
        end = await self._first_needed(marks, begin, end)
        if end > begin:
            await self._client.trim(end)
        return max(begin, end)

    async def records(self, reader: StreamReader, stream: str) -> AsyncIterator[Record]:
        """`reader.advance`, over trims that took nothing of the stream from there on.

        The reader must have a position.  Raises TrimmedError when the stream was forgotten beyond it.
        """
        while True:
            try:
                async for record in reader.advance():
                    yield record
            except TrimmedError as error:
                assert reader.position is not None
                if (await self.marks()).get(stream, 0) > reader.position:
                    raise
                reader.position = max(reader.position, error.below)
            else:
                return

    async def _settle(self, end: int) -> tuple[int, int]:
        """Fill every hole below `end`, so that no record can appear there; where the log begins, and `end`."""
        end = min(end, await self._client.tail())
        begin = position = 0
        while position < end:
            found = await self._client.find(None, position, end)
            begin = max(begin, found.trimmed_below)
            position = max(found.complete_below, begin)
        return begin, end

    async def _first_needed(self, marks: Mapping[str, int], begin: int, end: int) -> int:
        """The first address below `end` whose record is needed, or `end`."""
        names = await self._client.names(begin, end)
        for stream in sorted(names, key=lambda stream: (marks.get(stream, 0), stream)):
            position = max(begin, marks.get(stream, 0))
            while position < end:
                found = await self._client.find(stream, position, end)
                if found.addresses:
                    end = found.addresses[0]
                position = found.complete_below
        return end


def _merged(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {stream: max(left.get(stream, 0), right.get(stream, 0)) for stream in {*left, *right}}


def _decode(record: Record) -> _Marks:
    try:
        return _decoder.decode(record.payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(
            f"address {record.address} holds no table of what streams need: {error}"
        ) from None
