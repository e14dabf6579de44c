"""Reconfiguration: how a cluster goes from one epoch document to the next.

Seal, read the tails, decide, publish, activate; each part can be repeated, by anybody.

A change that concerns writers (`log.layout.change.concerns_writers`) seals the log units; every other one is
decided without them, and writers go on under the data epoch they know.  That is safe because the chains
they write to and the sequencer they ask are the same in both documents.

After the decision the epoch is activated (`log.reconfiguration.activation`); until then it takes no appends.
Source: CORFU (NSDI 2012) section 2.3 (reconfiguration).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from consensus import classic_quorum
from datastore_adapter.interface import NO_CAUSE, Cause, Fence, FencedError, StaleIntentError
from datastore_adapter.log.errors import LayoutError, ReplicaUnavailableError, SupersededError
from datastore_adapter.log.layout.chain import LayoutChain, Proposal
from datastore_adapter.log.layout.change import (
    LayoutTarget,
    check_target,
    close_layout,
    concerns_writers,
    open_layout,
    quiet_layout,
)
from datastore_adapter.log.layout.document import EpochDocument, Layout, decode_document, encode_document
from datastore_adapter.log.layout.extent_states import forgotten_with
from datastore_adapter.log.layout.host_status import (
    has_come_back,
    has_moved,
    sound,
    trimmed_below,
    without_disk,
)
from datastore_adapter.log.messages import DocumentReply, FetchDocument
from datastore_adapter.log.reconfiguration.activation import Activation, status_of
from datastore_adapter.log.reconfiguration.sealing import seal
from datastore_adapter.log.runtime.runtime import Runtime, call_all, hosts_at
from datastore_adapter.log.settings import LogSettings


@dataclass(frozen=True, slots=True)
class Authority:
    """On whose behalf a change is made, and why; an older one than the document has seen is fenced."""

    view_epoch: int
    plan_id: str = ""
    cause: Cause = NO_CAUSE

    @classmethod
    def of(cls, fence: Fence) -> Authority:
        return cls(fence.view_epoch, fence.plan_id, fence.cause)

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
        return frozenset(host for host in (*layout.hosts(), *layout.forgotten) if host not in self.addresses)


@dataclass(frozen=True, slots=True)
class Reopening:
    """A change that writers had to wait for: seconds of its parts, one after the other."""

    epoch: int
    look: float
    """What is in force was read, and whether its sequencer works."""
    seal: float
    """Layout servers promised, log units were sealed and told their tails, new replicas joined."""
    decide: float
    """The document was chosen, and a majority of its layout servers keeps it."""
    activate: float
    """Addresses below the tail were settled, streams collected, the sequencer started: it takes appends again."""

    @property
    def seconds(self) -> float:
        """In all."""
        return self.look + self.seal + self.decide + self.activate


class Reconfiguration:
    """Changes of the layout and the intent, for one process.

    `on_reopened` is called when an epoch of this process's making takes appends; it must neither block nor raise.
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: LogSettings,
        chain: LayoutChain,
        on_reopened: Callable[[Reopening], None] | None = None,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._chain = chain
        self._on_reopened = on_reopened
        self.activation = Activation(runtime, settings, chain)

    # the changes

    async def open(
        self,
        target: LayoutTarget,
        view: View,
        authority: Authority,
        *,
        force: bool = False,
        at: int | None = None,
        without: frozenset[str] = frozenset(),
        unreliable: frozenset[str] = frozenset(),
    ) -> EpochDocument:
        """Reach `target` in one epoch; the document then in force, activated.

        Without `force` nothing happens when it is reached already; with it a new data epoch begins in any
        case, which completes whatever somebody else left half done.  With `at`, only the document of that
        epoch is changed; SupersededError when it is not the current one.  Hosts of `without` leave every chain
        in which others remain, like those that are not in the view; so do those of `unreliable` that could not be
        sealed, for they could not be settled either.
        """
        now = self._runtime.now
        began = now()
        latest = await self._chain.fetch()
        current = latest.document
        check_target(current.layout, target)
        if at is not None and current.epoch != at:
            raise SupersededError(current.epoch)
        authority.check(current)
        disks = await self._check_layout_servers(
            target, current, ask_all=force and not current.layout.segments
        )
        away = view.gone(current.layout)
        gone = away | without
        activated = await self.activation.is_activated(current)
        renewed = any(current.disks.get(host, disk) != disk for host, disk in disks.items())
        reopen = concerns_writers(current.layout, target) or (
            bool(current.layout.segments) and (force or not activated or renewed)
        )
        if not reopen:
            layout = quiet_layout(current.layout, target, gone=gone, activated=activated, away=away)
            unchanged = replace(layout, settled_below=current.layout.settled_below) == current.layout
            document = self._next(current, layout, view, authority, disks)
            same_hosts = (document.hosts, document.disks) == (current.hosts, current.disks)
            if unchanged and not latest.sealed and same_hosts:
                return current
            return await self._decide_quietly(current, document)
        looked = now()
        proposal = self._proposal(current)
        await proposal.prepare()
        sealed = await seal(self._runtime, self._settings, self._chain, current, target, away)
        gone |= unreliable.difference(sealed.disks)
        layout = open_layout(
            current.layout,
            target,
            epoch=current.epoch + 1,
            tail=sealed.tail,
            gone=gone,
            activated=activated,
            away=away,
            forgetful=sealed.forgetful,
            sealed=sealed.sealed,
        )
        was_sealed = now()
        document = self._next(current, layout, view, authority, {**disks, **sealed.disks})
        decided = await self._decide(proposal, document)
        was_decided = now()
        await self._activate(decided)
        self._check_won(decided, document)
        if self._on_reopened is not None:
            parts = (looked - began, was_sealed - looked, was_decided - was_sealed, now() - was_decided)
            self._on_reopened(Reopening(decided.epoch, *parts))
        return decided

    async def complete(
        self,
        view: View,
        authority: Authority,
        *,
        without: frozenset[str] = frozenset(),
        unreliable: frozenset[str] = frozenset(),
    ) -> EpochDocument:
        """Make the log serve again after somebody left a change half done; the document then in force.

        Where only a host has come back somewhere else, that is named, while writers go on.
        What is wanted is found out here, not by who asked: the chains and roles of the document in
        force by now, without dead hosts, those whose disks take nothing now, and those of `without`; and of
        `unreliable`, where the log does not serve.  Whose disk failed lately and works again stays, unless it is one
        of these: there may be any number of them.
        """
        latest = await self._chain.fetch()
        current = latest.document
        authority.check(current)
        units = self._chain.addresses(current.layout.hosts(), current)
        statuses = await status_of(self._runtime, self._settings, units)
        statuses = sound(current, statuses)
        back = has_come_back(current.layout, statuses, view.addresses)
        replaced = without_disk(current, statuses)
        is_whole = not latest.sealed and not back and not replaced and await self.activation.serves(current)
        if is_whole and not has_moved(current, view.addresses):
            return current
        lost = view.gone(current.layout).union(without)
        if not is_whole:
            # A disk that takes nothing may not even be settled: the others go on without it.
            lost = lost.union(host for host, status in statuses.items() if status.full or status.stopped)
            lost |= unreliable
        target = LayoutTarget.as_is(current.layout).without(lost)
        decided = await self.open(target, view, authority, force=not is_whole, at=current.epoch, without=lost)
        if back and has_come_back(decided.layout, statuses, view.addresses):
            # Said as a failure, so that it is tried again after a while and not at once.
            raise ReplicaUnavailableError(
                f"epoch {decided.epoch} serves, but what was away is so still: a host that has it cannot be sealed"
            )
        return decided

    async def close(
        self, chains: Mapping[str, tuple[str, ...]], view: View, authority: Authority
    ) -> EpochDocument:
        """Name the given chains, whose hosts have copied everything, as replicas of the closed extents."""
        latest = await self._chain.fetch()
        current = latest.document
        authority.check(current)
        if not await self.activation.is_activated(current):
            raise ReplicaUnavailableError(f"epoch {current.epoch} is not activated; open it first")
        units = self._chain.addresses(current.layout.hosts(), current)
        statuses = await status_of(self._runtime, self._settings, units)
        layout = close_layout(current.layout, chains, trimmed_below=trimmed_below(statuses))
        if (
            replace(layout, settled_below=current.layout.settled_below) == current.layout
            and not latest.sealed
        ):
            return current
        await self.activation.verify_copies(current, layout)
        return await self._decide_quietly(current, self._next(current, layout, view, authority))

    async def forget(self, hosts: Collection[str], view: View, authority: Authority) -> EpochDocument:
        """Record an operator's word that `hosts` never come back with what they held; the document then in force.

        What only they held is forgotten: at once, or with the next change of the chains where it is the end of
        the log.  Raises LayoutError for a host that is in the view or that the layout does not name.
        """
        current = (await self._chain.fetch()).document
        authority.check(current)
        layout = current.layout
        for host in sorted(hosts):
            if host in view.addresses:
                raise LayoutError(f"{host} is in the view, so nothing of it is lost; take it out first")
            if host not in layout.hosts() and host not in layout.forgotten:
                raise LayoutError(f"{host} holds nothing; the layout does not name it")
        away = view.gone(layout).union(hosts)
        changed = forgotten_with(layout, hosts, away)
        if changed == layout:
            return current
        return await self._decide_quietly(current, self._next(current, changed.validate(), view, authority))

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
        document = self._next(current, current.layout, view, authority, intent=intent)
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
        disks: Mapping[str, bytes] | None = None,
        *,
        intent: Mapping[str, Any] | None = None,
    ) -> EpochDocument:
        """`disks`: of hosts that answered, where they may be others than the current document names."""
        known = {**current.disks, **(disks or {})}
        missing = [host for host in layout.holders() if host not in known]
        if missing:
            raise ReplicaUnavailableError(f"{missing[0]} did not answer, so its disk is unknown; retry")
        document = EpochDocument(
            epoch=current.epoch + 1,
            cluster_id=current.cluster_id,
            layout=layout,
            hosts=self._hosts(layout, current, view),
            disks={host: known[host] for host in layout.holders()},
            intent=dict(current.intent if intent is None else intent),
            view_epoch=max(current.view_epoch, authority.view_epoch),
            plan_id=authority.plan_id,
            cause=authority.cause,
        )
        return decode_document(encode_document(document))  # as it will be read, so that it can be compared

    async def _decide_quietly(self, current: EpochDocument, document: EpochDocument) -> EpochDocument:
        proposal = self._proposal(current)
        await proposal.prepare()
        decided = await self._decide(proposal, document)
        await self._activate(decided)
        self._check_won(decided, document)
        return decided

    async def _decide(self, proposal: Proposal, document: EpochDocument) -> EpochDocument:
        decided = await proposal.decide(document)
        await self._chain.publish(decided)
        return decided

    async def _activate(self, decided: EpochDocument) -> None:
        """Whoever's document it is: a new data epoch takes no appends before that."""
        if decided.layout.segments and decided.layout.data_epoch == decided.epoch:
            await self.activation.run(decided)

    @staticmethod
    def _check_won(decided: EpochDocument, document: EpochDocument) -> None:
        """Raises SupersededError when another document won."""
        if decided != document:
            raise SupersededError(decided.epoch)

    async def _check_layout_servers(
        self, target: LayoutTarget, current: EpochDocument, *, ask_all: bool
    ) -> dict[str, bytes]:
        """The disks of the layout servers and the sequencer wanted, if they are others than now, or `ask_all`.

        The chain of documents must not be entrusted to servers most of which are away.
        """
        servers = target.layout_servers
        is_new = ask_all or servers != current.layout.layout_servers
        asked = dict.fromkeys(servers if is_new else ())
        asked.update(dict.fromkeys(host for host in target.sequencers[:1] if host not in current.disks))
        if not asked:
            return {}
        addresses = self._chain.addresses(tuple(asked), current)
        request = FetchDocument(current.epoch)
        replies = await call_all(self._runtime, hosts_at(addresses), request, self._settings.call_timeout)
        absent = [host for host in asked if host not in replies]
        present = len(set(servers).intersection(replies))
        too_few = is_new and present < classic_quorum(len(servers))
        if too_few or not current.disks.keys() >= set(absent):
            what = "layout servers" if is_new else "sequencer"
            raise ReplicaUnavailableError(
                f"the new {what} {', '.join(absent)} do not answer; retry or choose others"
            )
        return {host: reply.disk for host, reply in replies.items() if isinstance(reply, DocumentReply)}
