"""Alerts, their signatures, the gossip that carries them and the votes, and the digest by which two members compare.

Source: Rapid, sections 4.2 (alerts) and 4.3 (votes as bitmaps, gossiped).
"""

from enum import IntEnum
from typing import Annotated

import msgspec

from membership.protocol.messages.base import ShortMessage
from membership.protocol.messages.fields import Bitmap, Index, RingMask
from membership.protocol.view.configuration import Identifier
from membership.protocol.view.member import Member


class AlertKind(IntEnum):
    """What an alert reports about its subject."""

    REMOVE = 0
    JOIN = 1
    LEAVE = 2
    UPDATE = 3
    EVICT = 4


class Alert(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Reports about one subject, merged over its observers: bit k says that its observer on ring k reported.

    REMOVE, LEAVE and EVICT name the subject by its canonical index, JOIN and UPDATE by its full record (then
    subject is -1). REMOVE: it does not answer; LEAVE: it said so itself; EVICT: an operator wants it out.
    `age`: sixteenths of a second since the oldest of these reports, rounded up and with the time that a datagram may be
    on its way, so that a detour never makes one younger, and ten of them hardly older.
    """

    kind: AlertKind
    subject: Index
    rings: RingMask
    age: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)] = 0
    member: Member | None = None


class Digest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Summary of what a member knows about the running view change; equal digests need no repair."""

    alerts: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0
    alert_bits: Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)] = 0
    vote_bits: Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)] = 0

    def __bool__(self) -> bool:
        """Whether there is anything to know."""
        return bool(self.alert_bits or self.vote_bits)


EMPTY_DIGEST = Digest()


class Proof(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An observer's signature under its report in one alert of the message (`alert`: which one)."""

    alert: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    observer: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    public_key: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    signature: Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]


class Gossip(ShortMessage, frozen=True, gc=False, tag=12):
    """Alerts and votes of the running view change. Bit i of a bitmap: member i voted for the value.

    `proofs`: the signatures under the reports in the alerts, where members sign (see alert_signatures).
    """

    digest: Digest
    alerts: tuple[Alert, ...] = ()
    votes: Annotated[tuple[tuple[Identifier, Bitmap], ...], msgspec.Meta(max_length=64)] = ()
    proofs: tuple[Proof, ...] = ()


Messages = Gossip
