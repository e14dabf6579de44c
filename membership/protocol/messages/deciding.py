"""One view change: the cut that is voted for, classic rounds, and the decision. Fast votes travel in gossip.

Source: Rapid, section 4.3; L. Lamport, *Fast Paxos* (2006).
"""

from typing import Annotated

import msgspec

from membership.protocol.messages.base import MemberMessage
from membership.protocol.messages.fields import Epoch, Index, Round
from membership.protocol.view.configuration import Identifier
from membership.protocol.view.cut import Cut


class PullCut(MemberMessage, frozen=True, gc=False, tag=13):
    """Send me the cut with this hash."""

    value: Identifier


class CutBody(MemberMessage, frozen=True, gc=False, tag=14):
    """The cut that was pulled."""

    cut: Cut


class Prepare(MemberMessage, frozen=True, gc=False, tag=15):
    """Classic round, phase 1a. The ballot is (round, index of the coordinator)."""

    round: Round
    coordinator: Index


class Promised(MemberMessage, frozen=True, gc=False, tag=16):
    """Classic round, phase 1b: the acceptor's last vote, with an empty value if it never voted."""

    round: Round
    coordinator: Index
    voted_round: Round
    voted_coordinator: Index
    value: Annotated[bytes, msgspec.Meta(max_length=16)]


class Accept(MemberMessage, frozen=True, gc=False, tag=17):
    """Classic round, phase 2a."""

    round: Round
    coordinator: Index
    value: Identifier


class Accepted(MemberMessage, frozen=True, gc=False, tag=18):
    """Classic round, phase 2b, to the coordinator alone."""

    round: Round
    coordinator: Index


class Rejected(MemberMessage, frozen=True, gc=False, tag=19):
    """The acceptor has promised this higher ballot."""

    round: Round
    coordinator: Index


class Decided(MemberMessage, frozen=True, gc=False, tag=20):
    """In this epoch and configuration the cut with this hash was decided; the sender is at `latest_epoch`."""

    value: Identifier
    latest_epoch: Epoch


Messages = PullCut | CutBody | Prepare | Promised | Accept | Accepted | Rejected | Decided
