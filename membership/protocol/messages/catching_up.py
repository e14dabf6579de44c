"""What a member that is behind asks for, and is told: the cuts since, a whole view, or that it is out."""

from typing import Annotated

import msgspec

from membership.protocol.messages.base import MemberMessage, Message
from membership.protocol.messages.fields import MESSAGE_LIMIT, AnyIdentifier, Epoch
from membership.protocol.view.configuration import Lineage
from membership.protocol.view.cut import Cut
from membership.protocol.view.removal_history import RemovedMembers


class FullConfiguration(MemberMessage, frozen=True, gc=False, tag=8):
    """A whole configuration (see Configuration.encoded), for a joiner or a member far behind. By stream.

    `faulty`: who was removed as faulty, as far as the sender knows. `proposed`: it is not in force yet, but to be
    written down (see refounding); who does not know of that takes it for one that is.
    """

    body: Annotated[bytes, msgspec.Meta(max_length=MESSAGE_LIMIT)]
    faulty: RemovedMembers = ()
    proposed: bool = False


class CatchUpRequest(MemberMessage, frozen=True, gc=False, tag=21):
    """I am at this configuration: what was decided since?"""


class DecidedChain(MemberMessage, frozen=True, gc=False, tag=22):
    """The cuts decided since this (the receiver's) epoch and configuration, in order."""

    cuts: Annotated[tuple[Cut, ...], msgspec.Meta(min_length=1, max_length=4096)]


class EvictedNotice(Message, frozen=True, gc=False, tag=23):
    """To a former member: the view of `epoch` and later ones do not contain this incarnation.

    `by_operator`: it was evicted by command, as far as the sender remembers. `lineage`: of the sender's chain.
    """

    incarnation: AnyIdentifier
    epoch: Epoch
    by_operator: bool = False
    lineage: Lineage = ()


Messages = FullConfiguration | CatchUpRequest | DecidedChain | EvictedNotice
