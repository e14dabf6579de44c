"""Deciding, keeping and telling the documents of the layout chain."""

from __future__ import annotations

from typing import TypeAlias

from consensus import Ballot
from datastore_adapter.log.messages.base import Message
from datastore_adapter.log.messages.fields import Address, Count, DiskId, Epoch


class FetchDocument(Message, frozen=True, tag=1):
    """What is the latest document known to you?"""

    known: Epoch = -1
    """The asker has the document of this epoch: only a later one is of use."""


class Prepare(Message, frozen=True, tag=2):
    """Phase 1 of deciding the document after `epoch`."""

    epoch: Epoch
    round: Count
    member: Address


class Accept(Message, frozen=True, tag=3):
    """Phase 2: vote for `document`, the encoding of the document of ``epoch + 1``."""

    epoch: Epoch
    round: Count
    member: Address
    document: bytes


class Install(Message, frozen=True, tag=4):
    """A decided document, to be kept if it is newer than what is known."""

    document: bytes


class FetchHistory(Message, frozen=True, tag=5):
    """The latest documents below an epoch that you keep."""

    below: Address


class DocumentReply(Message, frozen=True, tag=1):
    document: bytes | None
    """None: there is none, or none later than the asker knows."""
    sealed: bool
    """Somebody began to decide the next epoch here, and the decision is not known."""
    epoch: Epoch
    """Of the latest document known here; -1: none is."""
    disk: DiskId = b""
    unvoted: bool = False
    """Though it is sealed, no document of the next epoch has this server's vote."""


class Promised(Message, frozen=True, tag=2):
    accepted_round: Count
    accepted_member: Address
    accepted: bytes | None


class Voted(Message, frozen=True, tag=3):
    pass


class Rejected(Message, frozen=True, tag=4):
    """A higher ballot was promised."""

    round: Count
    member: Address


class Installed(Message, frozen=True, tag=5):
    epoch: Epoch
    disk: DiskId = b""


class History(Message, frozen=True, tag=6):
    documents: tuple[bytes, ...]
    """Compressed with zlib, latest first."""
    next: Address
    """Ask for those below it next; 0: there are no more."""


def ballot_of(message: Prepare | Accept | Rejected) -> Ballot:
    return Ballot(message.round, message.member)


Requests: TypeAlias = FetchDocument | Prepare | Accept | Install | FetchHistory
Replies: TypeAlias = DocumentReply | Promised | Voted | Rejected | Installed | History
