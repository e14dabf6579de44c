"""Why a request was not carried out."""

from __future__ import annotations

from typing import Final, TypeAlias

from datastore_adapter.log.messages.base import Message
from datastore_adapter.log.messages.fields import DiskId, Epoch, HostName


class WrongEpoch(Message, frozen=True, tag=40):
    """Layout server: `epoch` is the current one.  Log unit, sequencer: `epoch` and all below are sealed."""

    epoch: Epoch


class NotAReplica(Message, frozen=True, tag=41):
    """This unit holds no copy of the segment: the asker's layout is old."""


class NotReady(Message, frozen=True, tag=42):
    """The sequencer was not bootstrapped for this epoch."""


UNKNOWN: Final = "unknown"
"""Code of the refusal of what only a later version knows."""


class Refused(Message, frozen=True, tag=43):
    """The request can not be carried out; `code` is for programs, `message` for people."""

    code: str
    message: str


class Misdirected(Message, frozen=True, tag=44):
    """The request is for another host, or for another disk of this one; nothing of it was looked at.

    Never said of a request that does not name whom it is for, as those of version 0.1 do not.
    """

    host: HostName
    """Who is here instead."""
    disk: DiskId


Replies: TypeAlias = WrongEpoch | NotAReplica | NotReady | Refused | Misdirected
