"""What several messages share."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from datastore_adapter.log.messages.fields import (
    Address,
    Count,
    DiskId,
    Epoch,
    HostName,
    Pointers,
    RecordId,
    SegmentKey,
    StreamName,
)


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What stands at one address: a record, or junk that fills a hole (no record id, no stream)."""

    record_id: RecordId
    """Unique per append, so that a writer recognises its own record."""
    stream: StreamName
    previous: Pointers
    """Addresses of earlier records of the stream, latest first."""
    payload: bytes

    @property
    def is_junk(self) -> bool:
        return not self.record_id


JUNK: Final = Entry(b"", "", (), b"")


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all requests and replies; the tag says which one it is."""


class HostIdentity(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Who a request is for, and who a reply is from: an address only says where they are."""

    host: HostName
    disk: DiskId = b""
    """That its roles remember by; empty: whichever it has."""

    def is_meant_by(self, meant: HostIdentity | None) -> bool:
        """Whether a request for `meant` is for this host; None: it is for whoever gets it."""
        return meant is None or meant == self or (not meant.disk and meant.host == self.host)


class UnknownRequest(Message, frozen=True, tag=0):
    """What stands for a request of a kind that only a later version knows."""

    kind: int


class StripeRange(Message, frozen=True):
    """About the addresses of one stripe of a segment in ``[start, end)``."""

    epoch: Epoch
    segment: SegmentKey
    start: Address
    end: Address
    stripe: Count
    stripes: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
