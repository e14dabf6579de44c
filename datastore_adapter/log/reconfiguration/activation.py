"""Activation: what has to be true before the sequencer of a new epoch hands out its first token.

Settle every address below the epoch's base, collect the latest addresses of every stream, start the sequencer; and
the question whether that has happened.  It changes no layout, and can be repeated, by anybody, for the epoch in
force.  Extents that are away or forgotten are left out: `Layout.settled_below` and `Layout.pointers_from` say which.

So a record that stood on a part of its chain when the epoch before was sealed is completed before the first
token of the new one, and the back-pointers of a stream never miss a record that was acknowledged.
Source: CORFU (NSDI 2012) section 2.3 (sequencer recovery); Tango (SOSP 2013) section 5 (back-pointers).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial

from datastore_adapter.log.client.replication import Replication
from datastore_adapter.log.errors import (
    EpochSealedError,
    LayoutError,
    LogError,
    ReplicaUnavailableError,
    TrimmedError,
)
from datastore_adapter.log.layout.chain import LayoutChain
from datastore_adapter.log.layout.document import EpochDocument, Extent, Layout, Segment
from datastore_adapter.log.messages import (
    AddStreamTails,
    BeginBootstrap,
    FinishBootstrap,
    GetStatus,
    ReadStreamTails,
    StatusReply,
    StreamTails,
    TakeTokens,
    Tokens,
)
from datastore_adapter.log.runtime.runtime import Runtime, call_all, hosts_at, results_of
from datastore_adapter.log.settings import LogSettings

_SESSION_BITS = 48
_STREAMS_PER_MESSAGE = 1024


class Activation:
    """Activates epochs, and knows whether one is."""

    def __init__(self, runtime: Runtime, settings: LogSettings, chain: LayoutChain) -> None:
        self._runtime = runtime
        self._settings = settings
        self._chain = chain

    async def is_activated(self, document: EpochDocument) -> bool:
        """Whether the epoch's sequencer works, and so everything below its base is settled."""
        sequencer = document.layout.sequencer
        if sequencer is None or not document.layout.segments:
            return True
        request = TakeTokens(document.layout.data_epoch)
        try:
            reply = await self._runtime.call(
                self._chain.peer(sequencer, document), request, self._settings.call_timeout
            )
        except LogError:
            return False
        return isinstance(reply, Tokens)

    async def serves(self, document: EpochDocument) -> bool:
        """Whether the epoch is activated, and no log unit of it was sealed since."""
        if not await self.is_activated(document):
            return False
        units = {host for segment in document.layout.segments for host in segment.open_extent.chain}
        addresses = self._chain.addresses(tuple(sorted(units)), document)
        statuses = await status_of(self._runtime, self._settings, addresses)
        return all(status.sealed_epoch < document.layout.data_epoch for status in statuses.values())

    async def run(self, document: EpochDocument) -> None:
        """Settle everything below the epoch's base, then start its sequencer.

        Raises EpochSealedError or ReplicaUnavailableError; a later reconfiguration then has to do it.
        """
        replication = self.replication(document)
        try:
            await self._settle(replication)
            streams = await self._stream_tails(replication)
            await self._bootstrap(replication, streams)
        except LogError:
            if not await self.is_activated(document):
                raise
            # Somebody else has activated the epoch meanwhile, which is as good.

    def replication(self, document: EpochDocument) -> Replication:
        """Data operations under `document`."""
        addresses = self._chain.addresses(document.layout.hosts(), document)
        return Replication(self._runtime, self._settings, document, addresses)

    async def _settle(self, replication: Replication) -> None:
        layout = replication.layout
        jobs: list[Callable[[], Awaitable[None]]] = [
            partial(self._settle_extent, replication, segment, extent)
            for segment in layout.segments
            for extent in segment.extents
            if extent.is_held
            and extent.start < layout.base
            and (extent.end is None or extent.end > layout.settled_below)
        ]
        results_of(await self._runtime.gather(jobs))

    async def _settle_extent(self, replication: Replication, segment: Segment, extent: Extent) -> None:
        layout = replication.layout
        start = max(extent.start, layout.settled_below)
        end = layout.base if extent.end is None else min(extent.end, layout.base)
        missing: set[int] = set()
        for host in extent.chain:
            missing.update(await _missing(replication, host, segment, start, end))
        for address in sorted(missing):
            with suppress(TrimmedError):  # one that was trimmed on a part of its chain is settled for good
                await replication.settle(address)

    async def _stream_tails(self, replication: Replication) -> dict[str, tuple[int, ...]]:
        """The latest addresses of every stream, from enough units to cover every extent."""
        ranges: dict[str, list[tuple[str, int, int]]] = {}
        held = [
            (segment, extent)
            for segment in replication.layout.segments
            for extent in segment.extents
            if extent.is_held
        ]
        for segment, extent in held:
            end = replication.layout.base if extent.end is None else extent.end
            for host in extent.chain:
                ranges.setdefault(host, []).append((segment.key, extent.start, end))
        units = tuple(ranges)
        jobs = [partial(_unit_stream_tails, replication, host, tuple(ranges[host])) for host in units]
        answers = dict(zip(units, await self._runtime.gather(jobs), strict=True))
        for answer in answers.values():
            if isinstance(answer, EpochSealedError):
                raise answer
        for segment, extent in held:
            if not any(isinstance(answers[host], dict) for host in extent.chain):
                raise ReplicaUnavailableError(
                    f"segment {segment.key}: none of {', '.join(extent.chain)} told its streams; retry"
                )
        merged: dict[str, set[int]] = {}
        for answer in answers.values():
            if isinstance(answer, dict):
                for stream, addresses in answer.items():
                    merged.setdefault(stream, set()).update(addresses)
        count = self._settings.back_pointers
        return {stream: tuple(sorted(merged[stream], reverse=True)[:count]) for stream in sorted(merged)}

    async def _bootstrap(self, replication: Replication, streams: dict[str, tuple[int, ...]]) -> None:
        sequencer = replication.layout.sequencer
        if sequencer is None:
            raise LayoutError("a layout with segments needs a sequencer")
        epoch, session = replication.epoch, self._runtime.random.getrandbits(_SESSION_BITS)
        await replication.call(sequencer, BeginBootstrap(epoch, session, replication.layout.base))
        pairs = tuple(streams.items())
        for index in range(0, len(pairs), _STREAMS_PER_MESSAGE):
            await replication.call(
                sequencer, AddStreamTails(epoch, session, pairs[index : index + _STREAMS_PER_MESSAGE])
            )
        await replication.call(sequencer, FinishBootstrap(epoch, session))

    async def verify_copies(self, current: EpochDocument, proposed: Layout) -> None:
        """A layout never names a replica that lacks data: ask the new ones."""
        replication = self.replication(current)
        jobs: list[Callable[[], Awaitable[None]]] = []
        for segment in proposed.segments:
            before = current.layout.segment(segment.key)
            assert before is not None
            for extent in before.closed_extents:
                assert extent.end is not None
                if extent.end <= proposed.trimmed_below or not extent.is_held:
                    continue
                chain = segment.extent_of(extent.start).chain
                jobs += [
                    partial(_verify_copy, replication, host, before, extent.start, extent.end)
                    for host in chain
                    if host not in extent.chain
                ]
        results_of(await self._runtime.gather(jobs))


async def status_of(
    runtime: Runtime, settings: LogSettings, addresses: Mapping[str, str]
) -> dict[str, StatusReply]:
    """The state of every host that answers."""
    replies = await call_all(runtime, hosts_at(addresses), GetStatus(), settings.call_timeout)
    return {
        host: reply
        for host, reply in replies.items()
        if isinstance(reply, StatusReply) and reply.host == host  # which version 0.1 tells, too
    }


async def _missing(replication: Replication, host: str, segment: Segment, start: int, end: int) -> list[int]:
    missing: list[int] = []
    while start < end:
        reply = await replication.survey(host, segment, start, end)
        missing += reply.missing
        start = reply.next
    return missing


async def _verify_copy(replication: Replication, host: str, segment: Segment, start: int, end: int) -> None:
    missing = await _missing(replication, host, segment, start, end)
    if missing:
        raise ReplicaUnavailableError(
            f"segment {segment.key}: {host} lacks {len(missing)} records from address {missing[0]} on; copy it"
        )


async def _unit_stream_tails(
    replication: Replication, host: str, ranges: tuple[tuple[str, int, int], ...]
) -> dict[str, tuple[int, ...]]:
    tails: dict[str, tuple[int, ...]] = {}
    after: str | None = None
    while True:
        reply = await replication.call(host, ReadStreamTails(replication.epoch, ranges, after))
        if not isinstance(reply, StreamTails):
            raise ReplicaUnavailableError(f"{host} answered with {type(reply).__name__}")
        tails.update(reply.streams)
        if not reply.more:
            return tails
        after = reply.streams[-1][0]
