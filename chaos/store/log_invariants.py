"""What must hold of the log at every moment, looked at whenever a host is asked for something, or told a layout.

Nobody accepts a request that was sent to another host, or to a disk that it had before, wherever addresses have gone.
There is one document of each epoch, the highest view on whose behalf it was changed never goes back, and a layout names
no replica that lacks an acknowledged record, a replica being a host with the very disk it is named for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from datastore_adapter import EpochDocument
from datastore_adapter.log.host.node import LogNode
from datastore_adapter.log.layout.document import decode_document
from datastore_adapter.log.layout.striping import addresses_in
from datastore_adapter.log.log_unit.segment_store import AddressState
from datastore_adapter.log.messages import Install, Request
from datastore_adapter.log.runtime.runtime import Peer


class LogInvariants:
    """`node_on` gives the node that runs on a host, if one does; `fail` is called with what is wrong.

    `acknowledged`: the addresses of records that clients were told are there. `has_lost`: whether a host's disk has
    lost files. A layout may have been decided before that, or without asking it: then the host itself must say that it
    is no replica of what it lacks.
    """

    def __init__(
        self,
        node_on: Callable[[str], LogNode | None],
        acknowledged: Callable[[], Iterable[int]],
        fail: Callable[[str], None],
        has_lost: Callable[[str], bool] = lambda host: False,
    ) -> None:
        self._node_on = node_on
        self._acknowledged = acknowledged
        self._fail = fail
        self._has_lost = has_lost
        self.documents: dict[int, EpochDocument] = {}
        """Every document that was told to a host, by epoch."""
        self._encoded: dict[int, bytes] = {}

    @property
    def latest(self) -> list[EpochDocument]:
        """The two documents of the highest epochs: one of them is in force."""
        return [self.documents[epoch] for epoch in sorted(self.documents)[-2:]]

    def accepted(self, host: str, peer: Peer) -> None:
        """A host accepts a request that was sent to this peer."""
        node, meant = self._node_on(host), peer.identity
        if node is None or meant is None:
            return
        if meant.host != host:
            self._fail(f"{host} at {peer.address} accepts what {meant.host} is asked")
        elif meant.disk and meant.disk != node.identity.disk:
            self._fail(f"{host} accepts what is asked of a disk that it had before")

    def look(self, request: Request) -> EpochDocument | None:
        """A host is about to handle this; the document it brings, if nobody knew of it."""
        if not isinstance(request, Install):
            return None
        document = decode_document(request.document)
        known = self._encoded.setdefault(document.epoch, request.document)
        if known != request.document:
            self._fail(f"there are two documents of epoch {document.epoch}")
        if document.epoch in self.documents:
            return None
        self.documents[document.epoch] = document
        before = self.documents.get(document.epoch - 1)
        if before is not None and before.view_epoch > document.view_epoch:
            self._fail(
                f"epoch {document.epoch} was changed for view {document.view_epoch}, after view {before.view_epoch}"
            )
        addresses = set(self._acknowledged())
        for key, host, lacking in self._lacking(document, addresses):
            self._fail(f"epoch {document.epoch} names {host} for {key}, which lacks {lacking[:5]}")
        return document

    def _lacking(self, document: EpochDocument, addresses: set[int]) -> Iterable[tuple[str, str, list[int]]]:
        layout = document.layout
        for segment in layout.segments:
            for extent in segment.closed_extents:
                assert extent.end is not None
                stripe = layout.stripe_of(segment.key, extent.start)
                if stripe is None or not extent.is_held:
                    continue
                needed = [a for a in addresses_in(extent.start, extent.end, stripe) if a in addresses]
                for host in extent.chain:
                    node = self._node_on(host)
                    if node is None or node.identity.disk != document.disks[host]:
                        continue  # what is named is another disk than the one that is there now
                    if self._has_lost(host) and not node.log_unit.is_sound(segment.key):
                        continue
                    if lacking := missing(node, segment.key, needed):
                        yield segment.key, host, lacking


def missing(node: LogNode, key: str, addresses: Iterable[int]) -> list[int]:
    """Those of the addresses that this node has nothing for."""
    store = node.log_unit.stores.get(key)
    if store is None:
        return list(addresses)
    return [
        address
        for address in addresses
        if address not in store.index and store.state(address) is AddressState.UNWRITTEN
    ]
