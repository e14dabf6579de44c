"""State transfer: bring a new replica up to date with the closed extents of a segment.

What it is: a copy in checksummed chunks that can be stopped and resumed anywhere, because the new replica
itself tells what it is missing; another source is taken when one dies.
What it is not: a change of the layout.  The new replica becomes one of the closed extents only when a later
document says so, after it was asked whether anything is missing (`Reconfiguration.close`).
Source: the project's spec, "state transfer"; CorfuDB's state transfer does the same per address batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from datastore_adapter.document import Extent, Segment
from datastore_adapter.errors import LogError, ReplicaUnavailableError, TrimmedError
from datastore_adapter.messages import Chunk, Done, ReadChunk, WriteChunk, entries_checksum
from datastore_adapter.replication import Replication
from datastore_adapter.runtime import Runtime
from datastore_adapter.settings import LogSettings
from datastore_adapter.striping import addresses_in


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a transfer is; `seconds` since it began."""

    records: int
    total: int
    bytes: int
    seconds: float


class Transfer:
    """One segment to one new replica.  `report` is called after every chunk."""

    def __init__(
        self,
        runtime: Runtime,
        settings: LogSettings,
        replication: Replication,
        report: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._replication = replication
        self._report = report
        self._began = runtime.now()
        self._bytes = 0
        self._missing = 0
        self._total = 0

    async def run(self, segment: Segment, destination: str, prefer: str | None = None) -> None:
        """Copy every closed extent that `destination` lacks, from `prefer` where it can.

        The addresses must be settled: the epoch is activated.  Raises EpochSealedError and
        ReplicaUnavailableError; run it again under the layout of that moment.
        """
        if destination not in segment.open_extent.chain:
            raise ReplicaUnavailableError(
                f"{destination} is not in the open chain of segment {segment.key}; open it there first"
            )
        lacking = [extent for extent in segment.closed_extents if destination not in extent.chain]
        self._total = sum(
            self._count(segment, extent.start, extent.end or extent.start) for extent in lacking
        )
        self._missing = self._total
        for extent in lacking:
            await self._copy_extent(segment, extent, destination, prefer)
        self._tell()

    async def _copy_extent(
        self, segment: Segment, extent: Extent, destination: str, prefer: str | None
    ) -> None:
        assert extent.end is not None
        sources = sorted(extent.chain, key=lambda host: host != prefer)
        position = extent.start
        while position < extent.end:
            reply = await self._replication.survey(destination, segment, position, extent.end)
            if not reply.missing:
                self._missing -= self._count(segment, position, reply.next)
                position = reply.next
                continue
            first = reply.missing[0]
            self._missing -= self._count(segment, position, first)
            position = await self._copy_chunk(segment, first, extent.end, destination, sources)
            self._missing -= self._count(segment, first, position)
            self._tell()

    async def _copy_chunk(
        self, segment: Segment, start: int, end: int, destination: str, sources: list[str]
    ) -> int:
        """Copy from `start`, which is missing, as far as one chunk goes; the address to go on from.

        A source that fails goes to the end of the list; one whose own copy is damaged is mended if the
        others are there, or else gone around.
        """
        failure: LogError | None = None  # also when one source has trimmed already what another lacks
        for _ in range(2 * len(sources)):
            try:
                chunk = await self._read(segment, start, end, sources[0])
                if chunk.trimmed_below > start or (chunk.entries and chunk.entries[0][0] == start):
                    await self._write(segment, chunk, destination)
                    return self._end_of(segment, chunk, start)
                await self._replication.settle(start)
            except (ReplicaUnavailableError, TrimmedError) as error:
                failure = error
                sources.append(sources.pop(0))
        raise failure or ReplicaUnavailableError(f"segment {segment.key}: nobody has address {start}; retry")

    async def _read(self, segment: Segment, start: int, end: int, source: str) -> Chunk:
        stripe = self._replication.layout.stripe_of(segment.key, start)
        assert stripe is not None, "what is missing has a stripe"
        request = ReadChunk(
            self._replication.epoch, segment.key, start, end, *stripe, self._settings.chunk_bytes
        )
        chunk = await self._replication.call(source, request)
        if not isinstance(chunk, Chunk):
            raise ReplicaUnavailableError(f"{source} answered with {type(chunk).__name__}")
        if entries_checksum(chunk.entries) != chunk.checksum:
            raise ReplicaUnavailableError(f"a chunk from {source} was damaged on its way")
        return chunk

    async def _write(self, segment: Segment, chunk: Chunk, destination: str) -> None:
        request = WriteChunk(
            self._replication.epoch, segment.key, chunk.entries, chunk.checksum, chunk.trimmed_below
        )
        reply = await self._replication.call(destination, request)
        if not isinstance(reply, Done):
            raise ReplicaUnavailableError(f"{destination} answered with {type(reply).__name__}")
        size = sum(len(entry.payload) + 64 for _, entry in chunk.entries)
        self._bytes += size
        if self._settings.transfer_bytes_per_second:
            await self._runtime.sleep(size / self._settings.transfer_bytes_per_second)

    def _end_of(self, segment: Segment, chunk: Chunk, start: int) -> int:
        """Where the unbroken run of copied addresses ends."""
        stripe = self._replication.layout.stripe_of(segment.key, start)
        assert stripe is not None, "what was copied has a stripe"
        copied = {address for address, _ in chunk.entries}
        begin = max(start, chunk.trimmed_below)
        return next((a for a in addresses_in(begin, chunk.next, stripe) if a not in copied), chunk.next)

    def _count(self, segment: Segment, start: int, end: int) -> int:
        """How many addresses of one extent's stripe lie in ``[start, end)``."""
        stripe = self._replication.layout.stripe_of(segment.key, start)
        return 0 if stripe is None else len(addresses_in(start, max(start, end), stripe))

    def _tell(self) -> None:
        done = min(self._total, self._total - max(0, self._missing))
        self._report(Progress(done, self._total, self._bytes, self._runtime.now() - self._began))
