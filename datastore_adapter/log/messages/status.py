"""The state of all roles of a host."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from datastore_adapter.log.messages.base import Message
from datastore_adapter.log.messages.fields import Address, Count, DiskId, Epoch, SegmentKey


class GetStatus(Message, frozen=True, tag=30):
    """The state of all roles of this host."""

    counters: bool = False
    """Tell the counters, too."""


class SegmentStatus(msgspec.Struct, frozen=True, array_like=True, gc=False):
    key: SegmentKey
    tail: Address
    records: Count
    bytes: Address
    trimmed_below: Address = 0


class StatusReply(Message, frozen=True, tag=30):
    host: str
    document_epoch: Epoch
    sealed_layout: bool
    sealed_epoch: Epoch
    segments: tuple[SegmentStatus, ...]
    sequencer_epoch: Epoch
    """The epoch this host's sequencer hands out tokens of; -1: of none."""
    counters: dict[str, int]
    """By ``role.event``; empty unless they were asked for."""
    full: bool = False
    """The disk takes no more records."""
    room: Annotated[int, msgspec.Meta(ge=-1, le=1 << 62)] = -1
    """Bytes that the disk still takes, about, once it was full; -1: it never was."""
    disk: DiskId = b""
    doubtful: tuple[SegmentStatus, ...] = ()
    """Of segments that are no copies until they were compared with others."""
    failure: str = ""
    """Why the disk counts as failed, in words; empty: it does not."""
    sync_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """What it takes to make records durable, of late; 0: not known."""
    stopped: bool = False
    """The disk has failed, and has not worked since; `failure` stays for a while after it works again."""


Requests: TypeAlias = GetStatus
Replies: TypeAlias = StatusReply
