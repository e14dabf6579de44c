"""Copying extents from one log unit to another."""

from __future__ import annotations

from typing import TypeAlias

from datastore_adapter.log.messages.base import Entry, Message, StripeRange
from datastore_adapter.log.messages.fields import (
    Address,
    Count,
    Epoch,
    HostName,
    RecordId,
    SegmentKey,
    StreamName,
)


class Survey(StripeRange, frozen=True, tag=14):
    """Which addresses of the stripe in ``[start, end)`` are missing, and which are of `stream`?"""

    stream: StreamName | None = None


class ReadChunk(StripeRange, frozen=True, tag=15):
    """State transfer: the entries of the stripe at ``[start, end)``, as many as fit in `max_bytes`."""

    max_bytes: Count


class WriteChunk(Message, frozen=True, tag=16):
    """State transfer: entries of closed extents, as read from another replica."""

    epoch: Epoch
    segment: SegmentKey
    entries: tuple[tuple[Address, Entry], ...]
    checksum: int
    trimmed_below: Address = 0


class PullChunk(StripeRange, frozen=True, tag=31):
    """State transfer: fetch what a `ReadChunk` of this range gives from `source`, and keep it."""

    max_bytes: Count
    source: HostName
    """A host that the latest document names."""


class Reclaim(StripeRange, frozen=True, tag=32):
    """State transfer: of what was retained in the range, keep what is the same on `source`."""

    source: HostName


class ReadIds(StripeRange, frozen=True, tag=33):
    """Which entries stand in the range, by their record ids?"""


class Confirm(StripeRange, frozen=True, tag=34):
    """Of what was retained in the range only these entries are right; a host's request to its own unit."""

    ids: tuple[tuple[Address, RecordId], ...]


class SurveyReply(Message, frozen=True, tag=17):
    missing: tuple[Address, ...]
    """Unwritten or damaged, ascending."""
    found: tuple[Address, ...]
    """Records of the stream asked for, ascending."""
    next: Address
    """The survey is complete below this address."""
    trimmed_below: Address = 0
    retained: bool = False
    """Something in the range asked for is there, and counts as missing because it was not compared yet."""


class Chunk(Message, frozen=True, tag=18):
    entries: tuple[tuple[Address, Entry], ...]
    checksum: int
    next: Address
    """Where to go on; equal to the `end` asked for when nothing is left."""
    trimmed_below: Address = 0


class Pulled(Message, frozen=True, tag=23):
    next: Address
    """Where to go on; the `start` asked for when the source has no sound copy of that address."""
    bytes: Count = 0
    """Of entries that came over the network."""


class Ids(Message, frozen=True, tag=24):
    ids: tuple[tuple[Address, RecordId], ...]
    """Ascending; junk has an empty one.  What is damaged here is left out."""
    next: Address
    """Where to go on; equal to the `end` asked for when nothing is left."""


Requests: TypeAlias = Survey | ReadChunk | WriteChunk | PullChunk | Reclaim | ReadIds | Confirm
Replies: TypeAlias = SurveyReply | Chunk | Pulled | Ids
