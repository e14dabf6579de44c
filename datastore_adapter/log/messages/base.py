"""What several messages share."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from datastore_adapter.log.messages.fields import (
    Address,
    Count,
    Epoch,
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
