"""State transfer: bring a new replica up to date with the closed extents of a segment.

A copy in checksummed chunks, straight from one host to the other, that can be stopped and resumed anywhere, because
the new replica itself tells what it is missing; another source is taken when one dies.  It does not change the
layout.  The new replica becomes one of the closed extents only when a later document says so, after it was asked
whether anything is missing (`Reconfiguration.close`).
Source: the project's spec, "state transfer"; CorfuDB's state transfer does the same per address batch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from datastore_adapter.log.client.replication import Replication
from datastore_adapter.log.errors import LogError, ReplicaUnavailableError, TrimmedError
from datastore_adapter.log.layout.document import Extent, Segment
from datastore_adapter.log.layout.striping import Stripe, addresses_in
from datastore_adapter.log.messages import PullChunk, Pulled, Reclaim
from datastore_adapter.log.runtime.runtime import Runtime
from datastore_adapter.log.settings import LogSettings


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
        closed = [extent for extent in segment.closed_extents if extent.is_held]
        lacking = [extent for extent in closed if destination not in extent.chain]
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
        reply = await self._replication.survey(destination, segment, position, extent.end)
        while reply.retained and position < extent.end:
            pulled = await self._from_any(
                sources, partial(self._reclaim, segment, position, extent.end, destination)
            )
            position = pulled.next
        position = extent.start
        while position < extent.end:
            reply = await self._replication.survey(destination, segment, position, extent.end)
            if not reply.missing:
                self._missing -= self._count(segment, position, reply.next)
                position = reply.next
                continue
            first = reply.missing[0]
            self._missing -= self._count(segment, position, first)
            pulled = await self._from_any(
                sources, partial(self._copy_chunk, segment, first, extent.end, destination)
            )
            position = pulled.next
            self._missing -= self._count(segment, first, position)
            await self._throttle(pulled.bytes)
            self._tell()

    async def _from_any(self, sources: list[str], attempt: Callable[[str], Awaitable[Pulled]]) -> Pulled:
        """Try one source after the other; one that fails goes to the end of the list."""
        failure: LogError | None = None  # also when one source has trimmed already what another lacks
        try:
            for _ in range(2 * len(sources)):
                try:
                    return await attempt(sources[0])
                except (ReplicaUnavailableError, TrimmedError) as error:
                    failure = error
                    sources.append(sources.pop(0))
            assert failure is not None
            raise failure
        finally:
            del failure  # it leads back to this frame

    async def _reclaim(self, segment: Segment, start: int, end: int, destination: str, source: str) -> Pulled:
        """Have `destination` compare what it still has with `source`."""
        request = Reclaim(
            self._replication.epoch, segment.key, start, end, *self._stripe(segment, start), source
        )
        return await self._pull(destination, request)

    async def _copy_chunk(
        self, segment: Segment, start: int, end: int, destination: str, source: str
    ) -> Pulled:
        """Copy from `start`, which is missing, as far as one chunk goes.

        Where the source's own copy is damaged it is mended if the others are there, or else gone around.
        """
        request = PullChunk(
            self._replication.epoch,
            segment.key,
            start,
            end,
            *self._stripe(segment, start),
            self._settings.chunk_bytes,
            source,
        )
        pulled = await self._pull(destination, request)
        if pulled.next == start:
            await self._replication.settle(start)
            pulled = await self._pull(destination, request)
        if pulled.next == start:
            raise ReplicaUnavailableError(
                f"segment {segment.key}: {source} has no sound copy of {start}; retry"
            )
        return pulled

    async def _pull(self, destination: str, request: PullChunk | Reclaim) -> Pulled:
        # The destination waits for the source, and then for its own disk.
        reply = await self._replication.call(destination, request, 3 * self._settings.call_timeout)
        if not isinstance(reply, Pulled):
            raise ReplicaUnavailableError(f"{destination} answered with {type(reply).__name__}")
        return reply

    async def _throttle(self, size: int) -> None:
        """Spread the bytes over time.  Every chunk pays for itself, so that a slow one earns nothing for the next."""
        self._bytes += size
        if self._settings.transfer_bytes_per_second:
            await self._runtime.sleep(size / self._settings.transfer_bytes_per_second)

    def _stripe(self, segment: Segment, address: int) -> Stripe:
        stripe = self._replication.layout.stripe_of(segment.key, address)
        assert stripe is not None, "what is missing has a stripe"
        return stripe

    def _count(self, segment: Segment, start: int, end: int) -> int:
        """How many addresses of one extent's stripe lie in ``[start, end)``."""
        stripe = self._replication.layout.stripe_of(segment.key, start)
        return 0 if stripe is None else len(addresses_in(start, max(start, end), stripe))

    def _tell(self) -> None:
        done = min(self._total, self._total - max(0, self._missing))
        self._report(Progress(done, self._total, self._bytes, self._runtime.now() - self._began))
