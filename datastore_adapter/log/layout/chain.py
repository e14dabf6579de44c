"""The chain of epoch documents: reading its end from a majority, and deciding the next one.

The proposer's side of the layout chain.  A `Proposal` is one attempt to decide the document after a given one, in two
calls, so that log units can be sealed between the promise and the choice.

Only answers from the disks that a document names count for it (`disk_identity`): ballots are for these and no others,
and who asks what a layout server knows looks at the disk that answers.  A named layout server that is behind
counts once it was told the document: as it had not, it has voted for no later one.
Source: L. Lamport, *Paxos Made Simple*; L. Lamport, D. Malkhi, L. Zhou, *Vertical Paxos*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consensus import Ballot, Forced, Promise, choose, classic_quorum
from datastore_adapter.log.errors import LayoutUnavailableError, SupersededError
from datastore_adapter.log.layout.document import EpochDocument, decode_document, encode_document
from datastore_adapter.log.messages import (
    Accept,
    DocumentReply,
    FetchDocument,
    Install,
    Installed,
    Prepare,
    Promised,
    Rejected,
    Reply,
    Voted,
    WrongEpoch,
)
from datastore_adapter.log.runtime.runtime import Backoff, Patience, Peer, Runtime, call_all, hosts_at
from datastore_adapter.log.settings import LogSettings

_MEMBER_BITS = 48


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of the chain, as a majority of its layout servers holds it."""

    document: EpochDocument
    sealed: bool
    """Deciding the next epoch has begun, and its outcome is not known."""


class LayoutChain:
    """Access to the chain for one process.  `addresses` of hosts in the view go before the document's."""

    def __init__(self, runtime: Runtime, settings: LogSettings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._view: dict[str, str] = {}
        self._known: EpochDocument | None = None
        self._replaced: frozenset[str] = frozenset()
        """Layout servers that answered last time from another disk than the document names."""
        self._silent: frozenset[str] = frozenset()
        """Those that did not answer."""

    @property
    def known(self) -> EpochDocument | None:
        """The latest document seen so far; perhaps not the current one."""
        return self._known

    def set_view(self, addresses: Mapping[str, str]) -> None:
        """Host name -> ``host:port`` of the live hosts."""
        self._view = dict(addresses)

    def learn(self, document: EpochDocument) -> None:
        """Unless it is older than what is known, or of another cluster."""
        known = self._known
        if known is None or (document.cluster_id == known.cluster_id and document.epoch > known.epoch):
            self._known = document

    def peer(self, host: str, document: EpochDocument) -> Peer:
        """The host with the disk that `document` names, at the address it has in the view or else there."""
        return document.peer(host, self._view.get(host))

    def peers(self, hosts: tuple[str, ...], document: EpochDocument) -> dict[str, Peer]:
        return {host: self.peer(host, document) for host in hosts}

    def addresses(self, hosts: tuple[str, ...], document: EpochDocument) -> dict[str, str]:
        """Where these hosts are, for who asks which disks they have."""
        return {host: self._view.get(host) or document.address_of(host) for host in hosts}

    async def fetch(self) -> Latest:
        """The current end of the chain.  Raises LayoutUnavailableError.

        A document counts only when a majority of the layout servers it names holds it: were there a later
        one, a majority of the same servers would have voted for it, and one of those asked would know.
        """
        known = self._known
        if known is not None:
            latest = await self._ask(self.addresses(known.layout.layout_servers, known), quick=True)
            if latest is not None:
                return latest
        everybody = dict(self._view)
        if known is not None:
            everybody = {**known.hosts, **self._view}
        latest = await self._ask(everybody, quick=False)
        if latest is None and self._known is not known:
            # What was learnt may name layout servers that nobody asked yet.
            assert self._known is not None
            latest = await self._ask({**self._known.hosts, **self._view}, quick=False)
        if latest is not None:
            return latest
        if self._known is None:
            raise LayoutUnavailableError("no host that could be reached knows a layout; retry")
        raise self._no_majority(self._known)

    def _no_majority(self, known: EpochDocument) -> LayoutUnavailableError:
        servers = known.layout.layout_servers
        gone = [host for host in servers if host in self._silent and self._view and host not in self._view]
        silent = [host for host in servers if host in self._silent and host not in gone]
        replaced = [host for host in servers if host in self._replaced]
        reasons = (
            ("not in the view", gone),
            ("back without the disk that voted", replaced),
            ("silent", silent),
        )
        found = "; ".join(f"{reason}: {', '.join(hosts)}" for reason, hosts in reasons if hosts)
        text = f"no majority of the layout servers {', '.join(servers)} of epoch {known.epoch} answered"
        text += f" ({found})" if found else ""
        lost = tuple(host for host in servers if host in gone or host in replaced)
        if len(servers) - len(lost) >= classic_quorum(len(servers)):
            later = "; `rota layout recover` goes on once the view is without them" if silent else ""
            return LayoutUnavailableError(f"{text}; retry{later}")
        return LayoutUnavailableError(
            f"{text}. Live hosts serve what they hold, but no lost copy, sequencer or layout server is replaced. Start "
            "them with the disks they had, or go on by `rota layout recover` if those are lost for good",
            lost,
        )

    async def _ask(self, addresses: Mapping[str, str], *, quick: bool) -> Latest | None:
        needed = classic_quorum(len(addresses)) if quick and addresses else len(addresses)
        asked_from = -1 if self._known is None else self._known.epoch
        replies = await call_all(
            self._runtime,
            hosts_at(addresses),
            FetchDocument(asked_from),
            self._settings.call_timeout,
            lambda replies: len(replies) >= needed,
        )
        told = {host: reply for host, reply in replies.items() if isinstance(reply, DocumentReply)}
        for reply in told.values():
            if reply.document is not None:
                self.learn(decode_document(reply.document))
        best = self._known
        if best is None:
            return None
        servers = best.layout.layout_servers
        held = {host: (reply.epoch, reply.sealed) for host, reply in told.items()}
        behind = [host for host, (epoch, _) in held.items() if epoch < best.epoch]
        if behind and not quick:
            # Whoever is behind and reachable is told; a layout server needs it to take part again.
            known = {host: addresses[host] for host in behind}
            for host, epoch in (await self._install(best, known, self._settings.call_timeout)).items():
                held[host] = (epoch, False)
        self._replaced = frozenset(
            host for host in servers if host in told and told[host].disk != best.disks[host]
        )
        self._silent = frozenset(servers).difference(told)
        holders = [
            host
            for host in servers
            if host not in self._replaced and held.get(host, (-1, False))[0] == best.epoch
        ]
        if len(holders) < classic_quorum(len(servers)):
            return None
        return Latest(best, any(held[host][1] for host in holders))

    async def publish(self, document: EpochDocument) -> None:
        """Tell a decided document to all hosts it concerns.

        Raises LayoutUnavailableError when no majority of its layout servers keeps it: then the layout
        servers before them remain the only ones that know.
        """
        self.learn(document)
        addresses = {**document.hosts, **self._view}
        servers = document.layout.layout_servers
        holders: set[str] = set()
        patience = Patience(self._settings.call_timeout)
        deadline = self._runtime.now() + self._settings.reconfiguration_timeout
        backoff = Backoff(self._runtime, self._settings.backoff_first, self._settings.backoff_limit)
        while True:
            installed = await self._install(document, addresses, patience.seconds)
            holders.update(host for host in servers if installed.get(host, -1) >= document.epoch)
            if len(holders) >= classic_quorum(len(servers)):
                return
            if self._runtime.now() >= deadline:
                raise LayoutUnavailableError(
                    f"epoch {document.epoch} is decided, but only {len(holders)} of its layout servers "
                    f"{', '.join(servers)} could be told; retry"
                )
            patience.grow()
            addresses = {host: addresses[host] for host in servers if host not in holders}
            await backoff.pause()

    async def _install(
        self, document: EpochDocument, addresses: Mapping[str, str], timeout: float
    ) -> dict[str, int]:
        request = Install(encode_document(document))
        replies = await call_all(self._runtime, hosts_at(addresses), request, timeout)
        return {
            host: reply.epoch
            for host, reply in replies.items()
            if isinstance(reply, Installed) and reply.disk == document.disks.get(host, reply.disk)
        }


class Proposal:
    """One attempt to decide the document after `current`.

    A ballot belongs to one attempt: its member part is random, because proposers are not numbered (any
    agent may be one, and may restart).
    """

    def __init__(
        self, chain: LayoutChain, runtime: Runtime, settings: LogSettings, current: EpochDocument
    ) -> None:
        self._chain = chain
        self._runtime = runtime
        self._settings = settings
        self.current = current
        self._member = runtime.random.getrandbits(_MEMBER_BITS)
        self._ballot = Ballot.FAST.successor(self._member)
        self._forced: bytes | None = None
        self._deadline = runtime.now() + settings.reconfiguration_timeout
        self._backoff = Backoff(runtime, settings.backoff_first, settings.backoff_limit)
        self._patience = Patience(settings.call_timeout)

    @property
    def _servers(self) -> dict[str, Peer]:
        return self._chain.peers(self.current.layout.layout_servers, self.current)

    async def prepare(self) -> None:
        """Phase 1: seal the epoch at a majority of the layout servers.

        Raises SupersededError when the epoch was decided already, LayoutUnavailableError without majority.
        """
        while not await self._try_prepare():
            await self._pause()

    async def decide(self, value: EpochDocument) -> EpochDocument:
        """Phase 2: the document decided, which is another than `value` if one may have been chosen before.

        Raises SupersededError, or LayoutUnavailableError; after the latter `value` may or may not be decided.
        """
        encoded = encode_document(value)
        while True:
            chosen = encoded if self._forced is None else self._forced
            request = Accept(self.current.epoch, self._ballot.round, self._ballot.member, chosen)
            replies = await self._ask(request, Voted)
            votes = sum(isinstance(reply, Voted) for reply in replies.values())
            if votes >= self._quorum:
                decided = decode_document(chosen)
                self._chain.learn(decided)
                return decided
            self._raise_ballot(replies)
            await self._pause()
            await self.prepare()

    @property
    def _quorum(self) -> int:
        return classic_quorum(len(self.current.layout.layout_servers))

    async def _try_prepare(self) -> bool:
        request = Prepare(self.current.epoch, self._ballot.round, self._ballot.member)
        replies = await self._ask(request, Promised)
        promises = [
            Promise(self._ballot, Ballot(reply.accepted_round, reply.accepted_member), reply.accepted)
            for reply in replies.values()
            if isinstance(reply, Promised)
        ]
        if len(promises) < self._quorum:
            self._raise_ballot(replies)
            return False
        choice = choose(promises, len(self.current.layout.layout_servers))
        self._forced = choice.value if isinstance(choice, Forced) else None
        return True

    async def _ask(self, request: Prepare | Accept, good: type[Promised | Voted]) -> dict[str, Reply]:
        def enough(replies: Mapping[str, Reply]) -> bool:
            return sum(isinstance(reply, good) for reply in replies.values()) >= self._quorum

        servers = self._servers
        replies = await call_all(self._runtime, servers, request, self._patience.seconds, enough)
        if not enough(replies):
            self._patience.grow()
        behind = {}
        for host, reply in replies.items():
            if isinstance(reply, WrongEpoch):
                if reply.epoch > self.current.epoch:
                    raise SupersededError(reply.epoch)
                behind[host] = servers[host]
        if behind:
            install = Install(encode_document(self.current))
            await call_all(self._runtime, behind, install, self._settings.call_timeout)
        return replies

    def _raise_ballot(self, replies: Mapping[str, Reply]) -> None:
        rejections = [reply for reply in replies.values() if isinstance(reply, Rejected)]
        highest = max((Ballot(reply.round, reply.member) for reply in rejections), default=self._ballot)
        self._ballot = max(highest, self._ballot).successor(self._member)

    async def _pause(self) -> None:
        if self._runtime.now() >= self._deadline:
            raise LayoutUnavailableError(
                f"no majority of the layout servers {', '.join(self.current.layout.layout_servers)} of epoch "
                f"{self.current.epoch} took part; retry"
            )
        await self._backoff.pause()
