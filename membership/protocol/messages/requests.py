"""What a member asks others to report or to agree to: its leave, its metadata, an eviction, a recovery."""

from typing import Annotated

import msgspec

from membership.protocol.messages.base import MemberMessage
from membership.protocol.messages.fields import ShortText
from membership.protocol.view.configuration import Identifier
from membership.protocol.view.member import Incarnation, Member


class LeaveRequest(MemberMessage, frozen=True, gc=False, tag=24):
    """Leaver to its observers: report my leave."""


class UpdateRequest(MemberMessage, frozen=True, gc=False, tag=50):
    """Member to its observers: report my new metadata. `member` is its own record with them."""

    member: Member


class EvictRequest(MemberMessage, frozen=True, gc=False, tag=51):
    """A member, for an operator, to the observers of another member: report that it must go."""

    subject: Incarnation


class RecoveryRequest(MemberMessage, frozen=True, gc=False, tag=52):
    """A member, for an operator, to the survivors it was given: the majority is lost for good, do you agree?"""

    recovery: Identifier
    survivors: Annotated[tuple[Incarnation, ...], msgspec.Meta(min_length=1, max_length=1 << 15)]
    forced: bool


class RecoveryAnswer(MemberMessage, frozen=True, gc=False, tag=53):
    """A survivor's answer; an empty refusal agrees."""

    recovery: Identifier
    refusal: ShortText


Messages = LeaveRequest | UpdateRequest | EvictRequest | RecoveryRequest | RecoveryAnswer
