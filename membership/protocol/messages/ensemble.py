"""The centralised mode: between processes and the ensemble, and among the voters.

Both modes share probes, chains of cuts, whole views, eviction notices, and the classic round's requests.
Source: Rapid, section 5.
"""

from typing import Annotated

import msgspec

from membership.protocol.messages.base import MemberMessage, Message
from membership.protocol.messages.fields import Epoch, Index, Round
from membership.protocol.messages.reports import Alert, Digest, Proof
from membership.protocol.view.configuration import Identifier
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Incarnation, Member


class EnsembleJoin(Message, frozen=True, gc=False, tag=70):
    """Centralised mode, process to ensemble member: let me in. Also asks members, who name the ensemble.

    `is_new` as in `ObserveJoin`.
    """

    joiner: Member
    is_new: bool = False


class EnsembleMembers(Message, frozen=True, gc=False, tag=71):
    """To a joiner: your request is heard (`observed`), and these are the members of the ensemble."""

    joiner: Incarnation
    cluster_id: Identifier
    observed: bool
    electorate: Annotated[tuple[Member, ...], msgspec.Meta(max_length=64)]


class EnsembleReport(MemberMessage, frozen=True, gc=False, tag=72):
    """Member to ensemble: what I observe of my subjects, on my own rings only; with `proofs` where members sign."""

    alerts: Annotated[tuple[Alert, ...], msgspec.Meta(max_length=1024)]
    proofs: tuple[Proof, ...] = ()


class EnsembleQuestion(MemberMessage, frozen=True, gc=False, tag=73):
    """Ensemble to members, while somebody is suspected: whom do you see failing? Any evidence counts about the
    subjects, which others have reported for a while already; often there are none."""

    subjects: Annotated[tuple[Index, ...], msgspec.Meta(max_length=1024)]


class EnsembleGreeting(Message, frozen=True, gc=False, tag=74):
    """Among ensemble members, regularly: who I am, whom I hold for the electorate, and how far I am.

    `orphans`: members of the cluster whose heartbeats the sender misses, and whose observers are silent or accuse them.
    """

    member: Member
    electorate: Annotated[tuple[Member, ...], msgspec.Meta(max_length=64)]
    epoch: Epoch
    configuration_id: Identifier
    digest: Digest
    orphans: Annotated[tuple[Index, ...], msgspec.Meta(max_length=65536)] = ()


class EnsembleAlerts(MemberMessage, frozen=True, gc=False, tag=75):
    """Among ensemble members: everything reported to me about this configuration; where members sign, what of it
    is proven."""

    alerts: tuple[Alert, ...]
    proofs: tuple[Proof, ...] = ()


class EnsembleVote(MemberMessage, frozen=True, gc=False, tag=76):
    """Among ensemble members: my fast vote, with the cut itself."""

    cut: Cut


class EnsemblePromise(MemberMessage, frozen=True, gc=False, tag=77):
    """Among ensemble members, phase 1b: the acceptor's last vote, with the cut itself, or None."""

    round: Round
    coordinator: Index
    voted_round: Round
    voted_coordinator: Index
    cut: Cut | None


class EnsembleAccept(MemberMessage, frozen=True, gc=False, tag=78):
    """Among ensemble members, phase 2a, with the cut itself."""

    round: Round
    coordinator: Index
    cut: Cut


Messages = (
    EnsembleJoin
    | EnsembleMembers
    | EnsembleReport
    | EnsembleQuestion
    | EnsembleGreeting
    | EnsembleAlerts
    | EnsembleVote
    | EnsemblePromise
    | EnsembleAccept
)
