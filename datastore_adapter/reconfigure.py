"""Reconfiguration: how a cluster goes from one epoch document to the next.

What it is: seal, read the tails, decide, publish, activate; each part can be repeated, by anybody.
What it is not: the decision what to change (the management plane's `Placement`, lowered to steps).

A change that concerns writers (`layout_change.concerns_writers`) seals the log units; every other one is
decided without them, and writers go on under the data epoch they know.  That is safe because the chains
they write to and the sequencer they ask are the same in both documents.

After the decision the epoch is *activated*: every address below its base is settled, the latest addresses of
every stream are collected, and only then is the sequencer started.  So a record that stood on a part of its
chain when the epoch was sealed is completed before the first token of the new epoch, and the back-pointers
of a stream never miss a record that was acknowledged.
Source: CORFU (NSDI 2012) section 2.3; spec of the project, "layout chain".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from consensus import classic_quorum
from datastore_adapter.document import (
    EpochDocument,
    Extent,
    Layout,
    Segment,
    decode_document,
    encode_document,
)
from datastore_adapter.errors import (
    EpochSealedError,
    LayoutError,
    LogError,
    ReplicaUnavailableError,
    SupersededError,
)
from datastore_adapter.interface import FencedError, StaleIntentError
from datastore_adapter.layout_chain import LayoutChain, Proposal
from datastore_adapter.layout_change import Wish, close_layout, concerns_writers, open_layout, quiet_layout
from datastore_adapter.messages import (
    AddStreamTails,
    BeginBootstrap,
    Done,
    FetchDocument,
    FinishBootstrap,
    GetStatus,
    Join,
    ReadStreamTails,
    Reply,
    Seal,
    Sealed,
    StatusReply,
    StreamTails,
    TakeToken,
    Token,
    WrongEpoch,
)
from datastore_adapter.replication import Replication
from datastore_adapter.runtime import Runtime, call_all
from datastore_adapter.settings import LogSettings

_SESSION_BITS = 48


@dataclass(frozen=True, slots=True)
class Authority:
    """On whose behalf a change is made; an older one than the document has seen is fenced."""

    view_epoch: int

    def check(self, document: EpochDocument) -> None:
        """Raises FencedError."""
        if self.view_epoch < document.view_epoch:
            raise FencedError(
                f"a controller of view {document.view_epoch} has acted since view {self.view_epoch}; observe again"
            )


@dataclass(frozen=True, slots=True)
class View:
    """The live hosts as the caller knows them: name -> ``host:port``."""

    addresses: Mapping[str, str] = field(default_factory=dict)

    def gone(self, layout: Layout) -> frozenset[str]:
        """Hosts that the layout names and the view does not."""
        return frozenset(host for host in layout.hosts() if host not in self.addresses)


class Reconfiguration:
    """Changes of the layout and the intent, for one process."""

    def __init__(self, runtime: Runtime, settings: LogSettings, chain: LayoutChain) -> None:
        self._runtime = runtime
        self._settings = settings
        self._chain = chain

    # the changes

    async def open(
        self, wish: Wish, view: View, authority: Authority, *, force: bool = False, at: int | None = None
    ) -> EpochDocument:
        """Reach `wish` in one epoch; the document then in force, activated.

        Without `force` nothing happens when it is reached already; with it a new data epoch begins in any
        case, which completes whatever somebody else left half done.  With `at`, only the document of that
        epoch is changed; SupersededError when it is not the current one.
        """
        latest = await self._chain.fetch()
        current = latest.document
        if at is not None and current.epoch != at:
            raise SupersededError(current.epoch)
        authority.check(current)
        await self._check_layout_servers(wish, current)
        gone = view.gone(current.layout)
        activated = await self._is_activated(current)
        reopen = concerns_writers(current.layout, wish) or (
            bool(current.layout.segments) and (force or not activated)
        )
        if not reopen:
            layout = quiet_layout(current.layout, wish, gone=gone, activated=activated)
            unchanged = replace(layout, settled_below=current.layout.settled_below) == current.layout
            if unchanged and not latest.sealed and self._hosts(layout, current, view) == current.hosts:
                return current
            return await self._decide_quietly(current, layout, view, authority)
        proposal = self._proposal(current)
        await proposal.prepare()
        tail, forgetful = await self._seal(current, wish)
        layout = open_layout(
            current.layout,
            wish,
            epoch=current.epoch + 1,
            tail=tail,
            gone=gone,
            activated=activated,
            forgetful=forgetful,
        )
        return await self._conclude(proposal, self._next(current, layout, view, authority))

    async def complete(self, view: View, authority: Authority) -> EpochDocument:
        """Make the log serve again after somebody left a change half done; the document then in force.

        What is wished for is found out here, not by who asked: the chains and roles of the document in
        force by now, without dead hosts.
        """
        latest = await self._chain.fetch()
        current = latest.document
        authority.check(current)
        if not latest.sealed and await self._serves(current):
            return current
        gone = view.gone(current.layout)
        wish = Wish.as_is(current.layout).without(gone)
        return await self.open(wish, view, authority, force=True, at=current.epoch)

    async def close(
        self, chains: Mapping[str, tuple[str, ...]], view: View, authority: Authority
    ) -> EpochDocument:
        """Name the given chains, whose hosts have copied everything, as replicas of the closed extents."""
        latest = await self._chain.fetch()
        current = latest.document
        authority.check(current)
        if not await self._is_activated(current):
            raise ReplicaUnavailableError(f"epoch {current.epoch} is not activated; open it first")
        layout = close_layout(current.layout, chains)
        if (
            replace(layout, settled_below=current.layout.settled_below) == current.layout
            and not latest.sealed
        ):
            return current
        await self._verify_copies(current, layout)
        return await self._decide_quietly(current, layout, view, authority)

    async def set_intent(
        self, expected_epoch: int, intent: Mapping[str, Any], view: View, authority: Authority
    ) -> EpochDocument:
        """Replace the intent, if the document is still at `expected_epoch`.

        Raises StaleIntentError or FencedError; after LayoutUnavailableError the outcome is unknown.
        """
        current = (await self._chain.fetch()).document
        if current.epoch != expected_epoch:
            raise StaleIntentError(expected_epoch, current.epoch)
        authority.check(current)
        document = self._next(current, current.layout, view, authority, intent)
        proposal = self._proposal(current)
        try:
            await proposal.prepare()
            decided = await proposal.decide(document)
        except SupersededError as error:
            raise StaleIntentError(expected_epoch, error.epoch) from error
        await self._chain.publish(decided)
        if decided != document:
            raise StaleIntentError(expected_epoch, decided.epoch)
        return decided

    async def _serves(self, document: EpochDocument) -> bool:
        """Whether the epoch is activated, and no log unit of it was sealed since."""
        if not await self._is_activated(document):
            return False
        units = {host for segment in document.layout.segments for host in segment.open_extent.chain}
        addresses = self._chain.addresses(tuple(sorted(units)), document)
        statuses = await status_of(self._runtime, self._settings, addresses)
        return all(status.sealed_epoch < document.layout.data_epoch for status in statuses.values())

    async def is_activated(self, document: EpochDocument) -> bool:
        """Whether the epoch's sequencer works, and so everything below its base is settled."""
        return await self._is_activated(document)

    # deciding

    def _proposal(self, current: EpochDocument) -> Proposal:
        return Proposal(self._chain, self._runtime, self._settings, current)

    def _hosts(self, layout: Layout, current: EpochDocument, view: View) -> dict[str, str]:
        known = {**current.hosts, **view.addresses}
        missing = [host for host in layout.hosts() if host not in known]
        if missing:
            raise LayoutError(f"no address of host {missing[0]!r} is known; it must be in the view")
        return {host: known[host] for host in layout.hosts()}

    def _next(
        self,
        current: EpochDocument,
        layout: Layout,
        view: View,
        authority: Authority,
        intent: Mapping[str, Any] | None = None,
    ) -> EpochDocument:
        document = EpochDocument(
            epoch=current.epoch + 1,
            cluster_id=current.cluster_id,
            layout=layout,
            hosts=self._hosts(layout, current, view),
            intent=dict(current.intent if intent is None else intent),
            view_epoch=max(current.view_epoch, authority.view_epoch),
        )
        return decode_document(encode_document(document))  # as it will be read, so that it can be compared

    async def _decide_quietly(
        self, current: EpochDocument, layout: Layout, view: View, authority: Authority
    ) -> EpochDocument:
        proposal = self._proposal(current)
        await proposal.prepare()
        return await self._conclude(proposal, self._next(current, layout, view, authority))

    async def _conclude(self, proposal: Proposal, document: EpochDocument) -> EpochDocument:
        """Decide, publish, activate.  Raises SupersededError when another document won."""
        decided = await proposal.decide(document)
        await self._chain.publish(decided)
        if decided.layout.segments and decided.layout.data_epoch == decided.epoch:
            await self.activate(decided)
        if decided != document:
            raise SupersededError(decided.epoch)
        return decided

    # sealing

    async def _check_layout_servers(self, wish: Wish, current: EpochDocument) -> None:
        """The chain of documents must not be entrusted to servers most of which are away."""
        servers = wish.layout_servers
        if servers == current.layout.layout_servers:
            return
        addresses = self._chain.addresses(servers, current)
        replies = await call_all(self._runtime, addresses, FetchDocument(), self._settings.call_timeout)
        if len(replies) < classic_quorum(len(servers)):
            absent = ", ".join(host for host in servers if host not in replies)
            raise ReplicaUnavailableError(
                f"the new layout servers {absent} do not answer; retry or choose others"
            )

    async def _seal(self, current: EpochDocument, wish: Wish) -> tuple[int, dict[str, tuple[str, ...]]]:
        """Seal the epoch at the log units, let new replicas join; the log's tail, and who lost what.

        Every unit that stays in a chain must be sealed, because what stands on it alone belongs to the
        old epoch; of a chain that loses all its units, one must be.  A unit that answers but does not know
        the segment has lost its disk: it begins anew.
        """
        layout = current.layout
        everybody = dict.fromkeys(host for chain in wish.chains.values() for host in chain)
        for segment in layout.segments:
            everybody.update(dict.fromkeys(segment.open_extent.chain))
        addresses = self._chain.addresses(tuple(everybody), current)
        replies = await call_all(self._runtime, addresses, Seal(current.epoch), self._settings.call_timeout)
        for host, reply in replies.items():
            if isinstance(reply, WrongEpoch):
                raise EpochSealedError(host, reply.epoch)
        tails = {host: dict(reply.tails) for host, reply in replies.items() if isinstance(reply, Sealed)}
        tail = layout.base
        forgetful: dict[str, tuple[str, ...]] = {}
        for segment in layout.segments:
            chain = segment.open_extent.chain
            sealed = [host for host in chain if segment.key in tails.get(host, ())]
            absent = [host for host in chain if host in wish.chains[segment.key] and host not in tails]
            if absent or not sealed:
                names = ", ".join(absent or chain)
                raise ReplicaUnavailableError(f"segment {segment.key}: {names} could not be sealed; retry")
            forgetful[segment.key] = tuple(host for host in chain if host in tails and host not in sealed)
            tail = max(tail, *(tails[host][segment.key] for host in sealed))
        await self._join(current, wish, tails)
        return tail, forgetful

    async def _join(self, current: EpochDocument, wish: Wish, tails: Mapping[str, Mapping[str, int]]) -> None:
        joins: list[tuple[str, Join]] = []
        for key, chain in sorted(wish.chains.items()):
            segment = current.layout.segment(key)
            present = () if segment is None else segment.open_extent.chain
            for host in chain:
                if host not in tails:
                    raise ReplicaUnavailableError(f"segment {key}: {host} did not answer; retry")
                if host not in present or key not in tails[host]:
                    joins.append((host, Join(current.epoch, key, _kept(segment, host))))
        calls = [
            partial(self._runtime.call, self._address(host, current), request, self._settings.call_timeout)
            for host, request in joins
        ]
        for (host, request), answer in zip(joins, await self._runtime.gather(calls), strict=True):
            if isinstance(answer, WrongEpoch):
                raise EpochSealedError(host, answer.epoch)
            if not isinstance(answer, Done):
                raise ReplicaUnavailableError(f"segment {request.segment}: {host} could not join: {answer}")

    def _address(self, host: str, document: EpochDocument) -> str:
        return self._chain.address(host, document)

    # activation

    async def _is_activated(self, document: EpochDocument) -> bool:
        sequencer = document.layout.sequencer
        if sequencer is None or not document.layout.segments:
            return True
        request = TakeToken(document.layout.data_epoch, None)
        try:
            reply = await self._runtime.call(
                self._address(sequencer, document), request, self._settings.call_timeout
            )
        except LogError:
            return False
        return isinstance(reply, Token)

    async def activate(self, document: EpochDocument) -> None:
        """Settle everything below the epoch's base, then start its sequencer.

        Raises EpochSealedError or ReplicaUnavailableError; a later reconfiguration then has to do it.
        """
        replication = self._replication(document)
        try:
            await self._settle(replication)
            streams = await self._stream_tails(replication)
            await self._bootstrap(replication, streams)
        except LogError:
            if not await self._is_activated(document):
                raise
            # Somebody else has activated the epoch meanwhile, which is as good.

    def _replication(self, document: EpochDocument) -> Replication:
        addresses = self._chain.addresses(document.layout.hosts(), document)
        return Replication(self._runtime, self._settings, document, addresses)

    async def _settle(self, replication: Replication) -> None:
        layout = replication.layout
        jobs: list[Callable[[], Any]] = [
            partial(self._settle_extent, replication, segment, extent)
            for segment in layout.segments
            for extent in segment.extents
            if extent.start < layout.base and (extent.end is None or extent.end > layout.settled_below)
        ]
        _raise_first(await self._runtime.gather(jobs))

    async def _settle_extent(self, replication: Replication, segment: Segment, extent: Extent) -> None:
        layout = replication.layout
        start = max(extent.start, layout.settled_below)
        end = layout.base if extent.end is None else min(extent.end, layout.base)
        missing: set[int] = set()
        for host in extent.chain:
            missing.update(await _missing(replication, host, segment, start, end))
        for address in sorted(missing):
            await replication.settle(address)

    async def _stream_tails(self, replication: Replication) -> dict[str, tuple[int, ...]]:
        """The latest addresses of every stream, from enough units to cover every extent."""
        ranges: dict[str, list[tuple[str, int, int]]] = {}
        for segment in replication.layout.segments:
            for extent in segment.extents:
                end = replication.layout.base if extent.end is None else extent.end
                for host in extent.chain:
                    ranges.setdefault(host, []).append((segment.key, extent.start, end))
        units = tuple(ranges)
        jobs = [partial(_unit_stream_tails, replication, host, tuple(ranges[host])) for host in units]
        answers = dict(zip(units, await self._runtime.gather(jobs), strict=True))
        for answer in answers.values():
            if isinstance(answer, EpochSealedError):
                raise answer
        for segment in replication.layout.segments:
            for extent in segment.extents:
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
        for index in range(0, len(pairs), 1024):
            await replication.call(sequencer, AddStreamTails(epoch, session, pairs[index : index + 1024]))
        await replication.call(sequencer, FinishBootstrap(epoch, session))

    # closing

    async def _verify_copies(self, current: EpochDocument, proposed: Layout) -> None:
        """A layout never names a replica that lacks data: ask the new ones."""
        replication = self._replication(current)
        jobs = []
        for segment in proposed.segments:
            before = current.layout.segment(segment.key)
            assert before is not None
            for extent in before.closed_extents:
                assert extent.end is not None
                chain = segment.extent_of(extent.start).chain
                jobs += [
                    partial(_verify_copy, replication, host, before, extent.start, extent.end)
                    for host in chain
                    if host not in extent.chain
                ]
        _raise_first(await self._runtime.gather(jobs))


async def status_of(
    runtime: Runtime, settings: LogSettings, addresses: Mapping[str, str]
) -> dict[str, StatusReply]:
    """The state of every host that answers."""
    replies: Mapping[str, Reply] = await call_all(runtime, addresses, GetStatus(), settings.call_timeout)
    return {host: reply for host, reply in replies.items() if isinstance(reply, StatusReply)}


def _kept(segment: Segment | None, host: str) -> tuple[tuple[int, int], ...]:
    """The closed ranges of which `host` is a replica already; it keeps them when it joins the open one."""
    if segment is None:
        return ()
    return tuple(
        (extent.start, extent.end)
        for extent in segment.closed_extents
        if extent.end is not None and host in extent.chain
    )


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


def _raise_first(results: list[Any]) -> None:
    for result in results:
        if isinstance(result, LogError):
            raise result
