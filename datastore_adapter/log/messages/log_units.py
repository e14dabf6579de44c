"""Writing, reading, sealing and trimming the copies of records."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from datastore_adapter.log.messages.base import Entry, Message
from datastore_adapter.log.messages.fields import (
    Address,
    Count,
    DiskId,
    Epoch,
    Pointers,
    RecordId,
    SegmentKey,
    StreamName,
)


class Seal(Message, frozen=True, tag=10):
    """Refuse every data request of `epoch` and below from now on, and tell the tails."""

    epoch: Epoch


class Join(Message, frozen=True, tag=11):
    """Become a replica of `segment` in the epoch after `epoch`: forget all its records outside `keep`."""

    epoch: Epoch
    segment: SegmentKey
    keep: tuple[tuple[Address, Address], ...] = ()
    """Ranges ``[start, end)`` of closed extents for which this unit is a replica already."""
    retain_below: Address = 0
    """What it has below this address besides is not lost: it counts as missing until it was compared (`Reclaim`)."""


class Write(Message, frozen=True, tag=12):
    epoch: Epoch
    segment: SegmentKey
    address: Address
    entry: Entry
    repair: bool = False
    """Replace a damaged copy; without it a damaged address is refused like a written one."""
    settling: bool = False
    """It completes an address that others have: also where the disk is full."""


class WriteBatch(Message, frozen=True, tag=19):
    """New records, by segment.  What is not plain (another record, damage) is left out and told."""

    epoch: Epoch
    records: tuple[tuple[SegmentKey, tuple[tuple[Address, Entry], ...]], ...]


class Read(Message, frozen=True, tag=13):
    epoch: Epoch
    segment: SegmentKey
    address: Address


class StripeRange(Message, frozen=True):
    """About the addresses of one stripe of a segment in ``[start, end)``."""

    epoch: Epoch
    segment: SegmentKey
    start: Address
    end: Address
    stripe: Count
    stripes: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]


class ReadStreamTails(Message, frozen=True, tag=17):
    """The latest addresses of every stream in the given ranges, by stream name after `after`."""

    epoch: Epoch
    ranges: tuple[tuple[SegmentKey, Address, Address], ...]
    """Segment, start, end (exclusive)."""
    after: StreamName | None = None


class CountStreams(Message, frozen=True, tag=36):
    """How much there is of every stream in these segments, by stream name after `after`."""

    segments: tuple[SegmentKey, ...]
    after: StreamName | None = None


class Trim(Message, frozen=True, tag=18):
    """Forget the records below `address` in all segments."""

    epoch: Epoch
    address: Address


class Trust(Message, frozen=True, tag=35):
    """An operator's word: what is here of these segments, though in doubt, is all there is."""

    segments: tuple[SegmentKey, ...]


class Sealed(Message, frozen=True, tag=10):
    tails: tuple[tuple[SegmentKey, Address], ...]
    """Per segment, one above the highest address ever written here."""
    disk: DiskId = b""


class Done(Message, frozen=True, tag=11):
    pass


class BatchWritten(Message, frozen=True, tag=22):
    """All records of the batch stand here, but for those at `left_out`: a `Write` of each tells why."""

    left_out: tuple[Address, ...] = ()


class Overwritten(Message, frozen=True, tag=12):
    """Another entry stands at the address, or the same one already (`record_id` tells)."""

    record_id: RecordId


class Found(Message, frozen=True, tag=13):
    entry: Entry


class Unwritten(Message, frozen=True, tag=14):
    pass


class Trimmed(Message, frozen=True, tag=15):
    below: Address


class Corrupt(Message, frozen=True, tag=16):
    """The copy here is damaged, or may have been lost; ask another replica."""


class StreamTails(Message, frozen=True, tag=19):
    streams: tuple[tuple[StreamName, Pointers], ...]
    more: bool


class StreamCount(msgspec.Struct, frozen=True, array_like=True, gc=False):
    stream: StreamName
    records: Count
    bytes: Address
    """About what they take on the disk, by the size of the latest."""


class StreamCounts(Message, frozen=True, tag=36):
    streams: tuple[StreamCount, ...]
    more: bool


Requests: TypeAlias = Seal | Join | Write | WriteBatch | Read | ReadStreamTails | CountStreams | Trim | Trust
Replies: TypeAlias = (
    Sealed
    | Done
    | BatchWritten
    | Overwritten
    | Found
    | Unwritten
    | Trimmed
    | Corrupt
    | StreamTails
    | StreamCounts
)
