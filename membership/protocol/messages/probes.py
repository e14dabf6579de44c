"""Probes of subjects, directly, through helpers and over a stream, and the answers.

Nearly all packets are probes and acknowledgements, so they are as short as can be.
Source: Rapid, section 4.1 (observers probe their subjects); indirect probes are SWIM's (A. Das et al., DSN 2002).
"""

from typing import Annotated

import msgspec

from membership.protocol.messages.base import MemberMessage, Message, ShortMessage
from membership.protocol.messages.fields import ShortIdentifier
from membership.protocol.messages.reports import Digest
from membership.protocol.view.member import Incarnation


class Probe(ShortMessage, frozen=True, gc=False, tag=9):
    """Are you there? An empty digest is left out."""

    sequence: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    digest: Digest | None


class QuorumAlarm(Probe, frozen=True, gc=False, tag=44):
    """Are you there? I count no majority within my reach: count for yourself. Answered like any probe."""


class ProbeAcknowledged(ShortMessage, frozen=True, gc=False, tag=10):
    """I am here. An empty digest is left out."""

    sequence: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    digest: Digest | None


class NotMember(Message, frozen=True, gc=False, tag=11):
    """Answer to a probe by a process that has no view: whoever had this address before is gone.

    Configuration id and sequence echo the probe, so that nobody who has not seen it can forge this.
    """

    incarnation: Incarnation
    configuration_id: ShortIdentifier
    sequence: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class Unanswered(ShortMessage, frozen=True, gc=False, tag=45):
    """Observer to the other observers of a subject (its index): it does not answer me, so do not be idle now."""

    subject: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


class IndirectProbe(MemberMessage, frozen=True, gc=False, tag=40):
    """Observer to helper: probe the member with this index for me, in this round of mine."""

    subject: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    sequence: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class IndirectAnswer(MemberMessage, frozen=True, gc=False, tag=41):
    """Helper to observer: whether the member with this index answered."""

    subject: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    sequence: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    reached: bool


class StreamProbe(MemberMessage, frozen=True, gc=False, tag=42):
    """Are you there? By stream, to a subject that does not answer datagrams."""

    sequence: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class StreamProbeAcknowledged(MemberMessage, frozen=True, gc=False, tag=43):
    """I am here; by stream too."""

    sequence: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


Messages = (
    Probe
    | QuorumAlarm
    | ProbeAcknowledged
    | NotMember
    | Unanswered
    | IndirectProbe
    | IndirectAnswer
    | StreamProbe
    | StreamProbeAcknowledged
)
