"""Copying a log as it is: parts of it with everything that stands there, and the same parts into an empty log.

For backups.  A part is read from the log units in chunks, all stripes at the same time.  It is written at the same
addresses: the sequencer gives them out, a hole for each hole, so that each stream, and each address that a record
names (a map's snapshots do), means what it meant.  Either can be repeated: what stands already is not changed.  A
copy does not survive a change of the layout in its middle.  The next epoch fills what is not written yet of the
addresses given out, and these are lost to the copy; that is told.
Source: CORFU (NSDI 2012) section 2 (write-once addresses are the log's only state).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final

import msgspec

from datastore_adapter.log.client.replication import Replication, away_error
from datastore_adapter.log.errors import NotCopiedError, ProtocolError, ReplicaUnavailableError
from datastore_adapter.log.layout.document import Extent, ExtentState, Segment
from datastore_adapter.log.messages import JUNK, TOKENS_LIMIT, Address, Chunk, Entry, ReadChunk
from datastore_adapter.log.messages.codec import entries_checksum
from datastore_adapter.log.runtime.runtime import Runtime, results_of

SPAN: Final = 1 << 14
"""Addresses of one part at most."""
OVERHEAD: Final = 64
"""Bytes that a record counts beside its payload."""
POINTERS: Final = 4
"""Of each record."""
UNNAMED: Final = ""
"""The stream that addresses without a record are taken for."""


class LogPart(msgspec.Struct, frozen=True, array_like=True):
    """All that stands in ``[start, next)``."""

    start: Address
    next: Address
    trimmed_below: Address
    """Below this, records are gone; not above `start`."""
    entries: dict[Address, Entry]
    """By address, ascending; without holes."""
    lost: tuple[Address, ...] = ()
    """Holes where there were records, which nobody has any more."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(LogPart)


def encode_part(part: LogPart) -> bytes:
    return _encoder.encode(part)


def decode_part(data: bytes) -> LogPart:
    """Raises ProtocolError on anything that is no part."""
    try:
        part = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"not a part of a log: {error}") from None
    addresses = list(part.entries)
    if not part.trimmed_below <= part.start <= part.next <= part.start + SPAN or addresses != sorted(
        address for address in addresses if part.start <= address < part.next
    ):
        raise ProtocolError("not a part of a log: its addresses are out of order")
    return part


def bounded(part: LogPart, max_bytes: int) -> LogPart:
    """So much of it as fits, at least one record; without what its bounds and holes leave out."""
    kept: dict[int, Entry] = {}
    until, size = part.next, 0
    for address, entry in sorted(part.entries.items()):
        if entry.is_junk or not part.start <= address < part.next:
            continue
        size += len(entry.payload) + OVERHEAD
        if kept and size > max_bytes:
            until = address
            break
        kept[address] = entry
    lost = tuple(address for address in part.lost if part.start <= address < until)
    return LogPart(part.start, until, part.trimmed_below, kept, lost)


class Pointers:
    """New back-pointers for the records of a copy, whose parts come in order.

    Those of the original may miss records (`Layout.pointers_from`); a new log takes its pointers for complete.
    """

    def __init__(self) -> None:
        self._latest: dict[str, tuple[int, ...]] = {}

    def renewed(self, part: LogPart) -> LogPart:
        entries: dict[int, Entry] = {}
        for address, entry in part.entries.items():
            latest = self._latest.get(entry.stream, ())
            entries[address] = Entry(entry.record_id, entry.stream, latest, entry.payload)
            self._latest[entry.stream] = (address, *latest[: POINTERS - 1])
        return msgspec.structs.replace(part, entries=entries)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What one round of questions tells of a range."""

    entries: dict[int, Entry]
    """By address, holes among them."""
    missing: tuple[int, ...]
    """Addresses that are not written, or damaged."""
    next: int
    trimmed_below: int


class Copying:
    """Under the layout of `replication`."""

    def __init__(self, runtime: Runtime, replication: Replication) -> None:
        self._runtime = runtime
        self._replication = replication
        self._layout = replication.layout

    async def read(self, start: int, end: int, max_bytes: int) -> Excerpt:
        """What the log units have of ``[start, end)``, as far as about `max_bytes` go; `end` is not above the tail."""
        extents = [
            (segment, extent)
            for segment in self._layout.segments
            for extent in [segment.extent_of(max(start, segment.extents[0].start))]
            if extent.start < end
        ]
        share = max(1, max_bytes // max(1, len(extents)))
        jobs = [partial(self._chunk, *extent, start, end, share) for extent in extents]
        entries: dict[int, Entry] = {}
        complete, trimmed = end, self._layout.trimmed_below
        for reply in results_of(await self._runtime.gather(jobs)):
            entries.update(reply.entries)
            complete = min(complete, reply.next)
            trimmed = max(trimmed, reply.trimmed_below)
        begin, complete = max(start, trimmed), max(complete, min(trimmed, end))
        addresses = range(begin, complete)
        missing = tuple(address for address in addresses if address not in entries)
        return Excerpt({a: entries[a] for a in addresses if a in entries}, missing, complete, trimmed)

    async def _chunk(self, segment: Segment, extent: Extent, start: int, end: int, max_bytes: int) -> Chunk:
        start = max(start, extent.start)
        until = end if extent.end is None else min(end, extent.end)
        stripe = self._layout.stripe_of(segment.key, start)
        if stripe is None or extent.state is ExtentState.FORGOTTEN:
            return Chunk((), 0, until)
        request = ReadChunk(self._replication.epoch, segment.key, start, until, *stripe, max_bytes)
        failure: ReplicaUnavailableError | None = None
        try:
            settled = until <= self._layout.settled_below
            for host in extent.chain[::-1] if settled else extent.chain[-1:]:
                try:
                    reply = await self._replication.call(host, request)
                except ReplicaUnavailableError as error:
                    failure = failure or error
                    continue
                if isinstance(reply, Chunk) and reply.checksum == entries_checksum(reply.entries):
                    return reply
                failure = ReplicaUnavailableError(f"{host} answered with {type(reply).__name__}, or damage")
            raise away_error(segment, extent, failure)
        finally:
            del failure  # it leads back to this frame

    async def take(self, tail: int, part: LogPart) -> None:
        """Have the sequencer, which stands at `tail`, give out every address up to the end of the part.

        Raises NotCopiedError when somebody else takes addresses meanwhile, or other parts come first.
        """
        if part.start > max(tail, part.trimmed_below):
            raise NotCopiedError(f"the log ends at {tail}, and this part begins at {part.start}")
        while tail < part.start:
            many = min(part.start - tail, TOKENS_LIMIT)
            await self._take(tail, (UNNAMED, many))
            tail += many
        streams = [self._stream(part, address) for address in range(tail, part.next)]
        if streams:
            await self._take(tail, *((stream, len(list(run))) for stream, run in groupby(streams)))

    @staticmethod
    def _stream(part: LogPart, address: int) -> str:
        entry = part.entries.get(address)
        return UNNAMED if entry is None else entry.stream

    async def _take(self, tail: int, *streams: tuple[str, int]) -> None:
        tokens = await self._replication.take_tokens(*streams)
        if tokens.first != tail:
            raise NotCopiedError(
                f"address {tail} went to somebody else: nobody may write to the log meanwhile"
            )

    async def write(self, part: LogPart) -> None:
        """Have every address of the part, all of them given out, hold what it holds there.

        Raises NotCopiedError where something else stands.
        """
        entries = {address: part.entries.get(address, JUNK) for address in range(part.start, part.next)}
        jobs = [
            partial(self._write, chain, {address: entries[address] for address in addresses})
            for chain, addresses in self._replication.by_chain(entries).items()
        ]
        results_of(await self._runtime.gather(jobs))

    async def _write(self, chain: tuple[str, ...], entries: Mapping[int, Entry]) -> None:
        for address, fate in (await self._replication.write_all(chain, entries)).items():
            if fate.failure is not None:
                raise fate.failure
            if not await self._replication.write(address, entries[address]):
                raise NotCopiedError(f"address {address} holds something else")
