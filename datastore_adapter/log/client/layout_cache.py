"""The layout as a client knows it: found from any agents' addresses, and followed from epoch to epoch.

The latest document seen, and asking for a later one when that is of no use any more. A later one may have been
decided (`log.client.current_epoch`): a client that is behind is refused, and asks again.
Source: CORFU (NSDI 2012) section 2.1 (clients hold a projection, and fetch the next one when theirs is sealed).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from consensus import classic_quorum
from datastore_adapter.log.errors import LayoutError, ReplicaUnavailableError
from datastore_adapter.log.layout.document import EpochDocument, decode_document
from datastore_adapter.log.messages import DocumentReply, FetchDocument, Reply
from datastore_adapter.log.runtime.runtime import Event, Runtime, call_all, hosts_at, whoever_at
from datastore_adapter.log.settings import LogSettings


class LayoutCache:
    """For one client.  `seeds` are ``host:port`` of any agents."""

    def __init__(
        self, runtime: Runtime, settings: LogSettings, seeds: Sequence[str], counters: Counter[str]
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._seeds = tuple(seeds)
        self._counters = counters
        self.document: EpochDocument | None = None
        """The latest document seen."""
        self.sealed = -1
        """The highest epoch seen sealed: only a layout of a higher data epoch is of use."""
        self._asking: Event | None = None
        """The layout is being asked for; set when that ends."""
        self._silent: tuple[str, ...] = ()
        """Layout servers of the document from whose disks nothing came when it was asked for last."""

    async def current(self) -> EpochDocument:
        """One to work with, asked for if there is none.  Raises ReplicaUnavailableError."""
        document = self.document
        if document is None or document.layout.data_epoch <= self.sealed or not document.layout.segments:
            return await self.fetch()
        return document

    async def fetch(self) -> EpochDocument:
        """The latest layout that any agent tells.  Raises ReplicaUnavailableError when it is of no use yet."""
        if self._asking is not None:
            await self._asking.wait()  # one of many tasks asks for all
            return self._usable()
        self._asking = self._runtime.event()
        try:
            await self._ask()
        finally:
            self._asking.set()
            self._asking = None
        return self._usable()

    async def _ask(self) -> None:
        peers = {seed: whoever_at(seed) for seed in self._seeds}
        document = self.document
        if document is not None:
            # The layout servers know first.  Every other time all are asked, in case none of those is left.
            everybody = self._counters["layout_fetches"] % 2 == 1
            hosts = document.hosts if everybody else document.layout.layout_servers
            known = {host: document.address_of(host) for host in hosts}
            # Seeds are most often among them, and asked whoever is there by now.
            peers |= hosts_at({host: at for host, at in known.items() if at not in peers})
        request = FetchDocument(-1 if document is None else document.epoch)
        replies = await call_all(self._runtime, peers, request, self._settings.call_timeout, self._is_news)
        self._counters["layout_fetches"] += 1
        for told in _documents(replies):
            if document is None or told.cluster_id == document.cluster_id:
                self._learn(told)
            else:  # who is at a seed's address by now
                self._counters["strangers"] += 1
        self._silent = ()
        if document is not None and self.document is document:
            disks = {reply.disk for reply in replies.values() if isinstance(reply, DocumentReply)}
            servers = document.layout.layout_servers
            self._silent = tuple(host for host in servers if document.disks[host] not in disks)
        if not replies:
            raise ReplicaUnavailableError(
                f"no agent answered at {', '.join(sorted({peer.address for peer in peers.values()}))}"
            )

    def trouble(self) -> str:
        """What keeps the layout from changing, for who has waited for that in vain; empty if nothing does."""
        document = self.document
        if document is None or not self._silent:
            return ""
        servers = document.layout.layout_servers
        if len(servers) - len(self._silent) >= classic_quorum(len(servers)):
            return ""
        return (
            f"; of the layout servers {', '.join(servers)} no majority is there, {', '.join(self._silent)} do not "
            "answer: no lost copy or sequencer is replaced until they are back, or `rota layout recover` goes on "
            "without them"
        )

    def _usable(self) -> EpochDocument:
        document = self.document
        if document is None or not document.layout.segments:
            raise ReplicaUnavailableError("no agent knows a layout with segments yet")
        if document.layout.data_epoch <= self.sealed:
            raise ReplicaUnavailableError(f"epoch {self.sealed} is sealed and no later one is decided yet")
        return document

    def _is_news(self, replies: Mapping[str, Reply]) -> bool:
        """Whether some reply is enough to go on with, so that dead agents need not be waited for."""
        known = self.document
        return any(
            bool(document.layout.segments) and document.layout.data_epoch > self.sealed
            for document in _documents(replies)
            if known is None or (document.cluster_id == known.cluster_id and document.epoch > known.epoch)
        )

    def _learn(self, document: EpochDocument) -> None:
        known = self.document
        if known is not None and document.cluster_id != known.cluster_id:
            raise LayoutError(
                f"agents of two clusters answered, {known.cluster_id} and {document.cluster_id}; check the seeds"
            )
        if known is None or document.epoch > known.epoch:
            self.document = document


def _documents(replies: Mapping[str, Reply]) -> Iterator[EpochDocument]:
    return (
        decode_document(reply.document)
        for reply in replies.values()
        if isinstance(reply, DocumentReply) and reply.document is not None
    )
