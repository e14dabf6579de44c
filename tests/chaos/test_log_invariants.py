"""What is found wrong with the layouts that hosts are told."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from chaos.store.log_invariants import LogInvariants, missing
from datastore_adapter import EpochDocument, Extent, Layout, LogSettings, Segment
from datastore_adapter.log.host.node import LogNode
from datastore_adapter.log.layout.document import encode_document
from datastore_adapter.log.layout.striping import Striping
from datastore_adapter.log.messages import HostIdentity, Install
from datastore_adapter.log.runtime.runtime import Peer
from tests.datastore_adapter.memory_storage import MemoryStorage


@dataclass
class Told:
    """Invariants over one empty node, n1, and what they found."""

    def __post_init__(self) -> None:
        self.found: list[str] = []
        self.acknowledged: set[int] = set()
        self.robbed: set[str] = set()
        node = LogNode("n1", MemoryStorage(), LogSettings(), draw=lambda count: b"n1")
        self.disk = node.identity.disk
        self.invariants = LogInvariants(
            {"n1": node}.get, lambda: self.acknowledged, self.found.append, self.robbed.__contains__
        )

    def tell(self, document: EpochDocument) -> None:
        self.invariants.look(Install(encode_document(document)))


def document(
    epoch: int, view_epoch: int = 1, chain: tuple[str, ...] = ("n1",), end: int = 0
) -> EpochDocument:
    extents = (*((Extent(0, end, chain),) if end else ()), Extent(end, None, chain))
    layout = Layout(
        segments=(Segment("s00", extents),),
        stripings=(Striping(0, ("s00",)),),
        layout_servers=("n1",),
        sequencers=("n1",),
    )
    addresses = {host: f"{host}:1" for host in ("n1", "n2")}
    disks = {host: host.encode() for host in addresses}
    return EpochDocument(epoch, "c", layout, addresses, disks, view_epoch=view_epoch)


def test_a_chain_of_good_documents() -> None:
    told = Told()
    for each in (document(1), document(1), document(2, 2), document(4, 2)):
        told.tell(each)
    assert told.found == []
    assert sorted(told.invariants.documents) == [1, 2, 4]


def test_two_documents_of_one_epoch() -> None:
    told = Told()
    told.tell(document(3))
    told.tell(document(3, chain=("n2",)))
    assert told.found == ["there are two documents of epoch 3"]


def test_a_deposed_controller_s_document() -> None:
    told = Told()
    told.tell(document(1, view_epoch=7))
    told.tell(document(2, view_epoch=6))
    assert told.found == ["epoch 2 was changed for view 6, after view 7"]


def test_a_replica_that_lacks_an_acknowledged_record() -> None:
    told = Told()
    told.acknowledged = {2, 5}
    told.tell(document(1, end=4))
    assert told.found == ["epoch 1 names n1 for s00, which lacks [2]"], (
        "5 is in the open extent, and n2 is down"
    )


def test_what_lacks_a_record_and_says_so_is_no_replica() -> None:
    """The layout names another disk than the one that is there now; or files were lost, and the unit knows it."""
    other, robbed = Told(), Told()
    other.acknowledged = robbed.acknowledged = {2}
    named = document(1, end=4)
    other.tell(structs.replace(named, disks={**named.disks, "n1": b"another"}))
    robbed.robbed.add("n1")
    robbed.tell(named)
    assert other.found == robbed.found == []


def test_a_node_without_the_segment_lacks_all() -> None:
    assert missing(LogNode("n1", MemoryStorage(), LogSettings(), draw=bytes), "s07", [1, 2]) == [1, 2]


def test_a_request_for_another_host_or_disk_is_accepted_by_nobody() -> None:
    told = Told()
    for identity in (None, HostIdentity("n1"), HostIdentity("n1", told.disk)):
        told.invariants.accepted("n1", Peer("n1:1", identity))
        told.invariants.accepted("n2", Peer("n2:1", identity))
    assert not told.found, "on n2 nothing runs"
    told.invariants.accepted("n1", Peer("n2:1", HostIdentity("n2")))
    told.invariants.accepted("n1", Peer("n1:1", HostIdentity("n1", b"before")))
    assert told.found == [
        "n1 at n2:1 accepts what n2 is asked",
        "n1 accepts what is asked of a disk that it had before",
    ]
