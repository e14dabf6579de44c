"""Joining: the two phases of a join, the view that admits, and the election of a founder at a cold start.

Source: Rapid, section 4.1 (joins). The cold start is our own (see founder_election).
"""

from typing import Annotated

import msgspec

from membership.protocol.messages.base import MemberMessage, Message
from membership.protocol.messages.fields import Epoch, RingMask, ShortText
from membership.protocol.view.configuration import Identifier
from membership.protocol.view.member import INCARNATION_BYTES, Host, Incarnation, Member, Port

ACCEPTED_LIMIT = 16
"""Proposed views that a process has written down, at most, without knowing whether they came into force."""


class JoinRequest(Message, frozen=True, gc=False, tag=1):
    """Joiner to seed (phase 1): who observes me? `attempt` counts the joiner's tries."""

    joiner: Member
    attempt: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] = 0


class ObserverEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One distinct temporary observer and its rings."""

    host: Host
    port: Port
    rings: RingMask


class ObserversAssigned(MemberMessage, frozen=True, gc=False, tag=2):
    """To a joiner: ask these, in this configuration. Also sent unasked when a cut left the joiner out."""

    cluster_id: Identifier
    joiner: Incarnation
    observers: Annotated[tuple[ObserverEntry, ...], msgspec.Meta(max_length=64)]


class JoinDeferred(Message, frozen=True, gc=False, tag=3):
    """To a joiner: I cannot help yet (I am joining too, or the cluster waits for more processes).

    `joiner`: its incarnation, for another process may have its address by now; empty from agents before 0.2.
    """

    reason: ShortText
    joiner: Annotated[bytes, msgspec.Meta(max_length=INCARNATION_BYTES)] = b""


class JoinDenied(MemberMessage, frozen=True, gc=False, tag=4):
    """To a joiner: you cannot join as you are."""

    joiner: Incarnation
    reason: ShortText


class ObserveJoin(Message, frozen=True, gc=False, tag=5):
    """Joiner to observer (phase 2): report my join in this configuration.

    Repeated while the joiner waits, it also pulls: an observer that is further answers with its view.
    `is_new`: it is a process just started, and none that comes back by itself after the others removed it.
    """

    joiner: Member
    epoch: Epoch
    configuration_id: Identifier
    is_new: bool = False


class JoinObserved(MemberMessage, frozen=True, gc=False, tag=6):
    """Observer to joiner: heard; now wait for the view."""

    joiner: Incarnation


class ColdStart(Message, frozen=True, gc=False, tag=54):
    """Among processes that start together and none of which was told to found: who is there, who promised whom.

    `candidate`: others name the sender as a seed. `turn`: of its candidacy. `follows`: the incarnation, and its turn,
    that the sender promised itself to; empty for nobody. `asking`: the sender names the receiver as a seed.
    `remembers`: the epoch of the last view that the sender was in, -1 if it was in none. `is_copy`: there may have
    been later ones, for that is what a copy of its disk says, or others recovered without it. `accepted`: ids of the
    proposed views that the sender has written down since (see refounding).
    """

    sender: Member
    candidate: bool
    turn: Epoch
    follows: Annotated[bytes, msgspec.Meta(max_length=16)]
    follows_turn: Epoch
    asking: bool
    remembers: Annotated[int, msgspec.Meta(ge=-1, lt=1 << 62)] = -1
    is_copy: bool = False
    accepted: Annotated[tuple[Identifier, ...], msgspec.Meta(max_length=ACCEPTED_LIMIT)] = ()


Messages = (
    JoinRequest | ObserversAssigned | JoinDeferred | JoinDenied | ObserveJoin | JoinObserved | ColdStart
)
