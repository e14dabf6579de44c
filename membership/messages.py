"""Messages between members: what travels, its bounds, and the codec.

What it is: one tagged union of frozen structs. All are one-way; an answer is another message. Every
message of a member carries its incarnation, epoch and configuration id, so that a receiver knows who is
behind.
What it is not: the envelope (magic, version, cluster id), which the transport adds and checks first.
"""

from enum import IntEnum
from typing import Annotated

import msgspec

from membership.configuration import SHORT_BYTES, Identifier, Lineage
from membership.cut import Cut
from membership.errors import MembershipError
from membership.member import INCARNATION_BYTES, Host, Incarnation, Member, Port

Epoch = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
RingMask = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Index = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)]
Round = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Bitmap = Annotated[bytes, msgspec.Meta(max_length=1 << 14)]
ShortIdentifier = Annotated[bytes, msgspec.Meta(min_length=SHORT_BYTES, max_length=SHORT_BYTES)]
AnyIdentifier = Annotated[bytes, msgspec.Meta(min_length=SHORT_BYTES, max_length=INCARNATION_BYTES)]
ShortText = Annotated[str, msgspec.Meta(max_length=500)]

MESSAGE_LIMIT = 64 << 20
"""Bytes an encoded message may have; a datagram is bounded far lower by the transport."""


class DecodeError(MembershipError, ValueError):
    """Raised when bytes are not a message. The bytes must be dropped and counted."""


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
    `age`: half seconds since these reports were made, rounded up, so that a detour never makes them younger.
    """

    kind: AlertKind
    subject: Index
    rings: RingMask
    age: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)] = 0
    member: Member | None = None


class Digest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Summary of what a member knows about the running view change; equal digests need no repair."""

    alerts: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] = 0
    alert_bits: Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)] = 0
    vote_bits: Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)] = 0

    def __bool__(self) -> bool:
        """Whether there is anything to know."""
        return bool(self.alert_bits or self.vote_bits)


EMPTY_DIGEST = Digest()


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=True):
    """Base of all messages."""


class MemberMessage(Message, frozen=True, gc=False):
    """A message of a member: who says it, and in which configuration."""

    sender: Incarnation
    epoch: Epoch
    configuration_id: Identifier


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
    """To a joiner: I cannot help yet (I am joining too, or the cluster waits for more processes)."""

    reason: ShortText


class JoinDenied(MemberMessage, frozen=True, gc=False, tag=4):
    """To a joiner: you cannot join as you are."""

    joiner: Incarnation
    reason: ShortText


class ObserveJoin(Message, frozen=True, gc=False, tag=5):
    """Joiner to observer (phase 2): report my join in this configuration.

    Repeated while the joiner waits, it also pulls: an observer that is further answers with its view.
    """

    joiner: Member
    epoch: Epoch
    configuration_id: Identifier


class JoinObserved(MemberMessage, frozen=True, gc=False, tag=6):
    """Observer to joiner: heard; now wait for the view."""

    joiner: Incarnation


class FullConfiguration(MemberMessage, frozen=True, gc=False, tag=8):
    """A whole configuration (see Configuration.encoded), for a joiner or a member far behind. By stream."""

    body: Annotated[bytes, msgspec.Meta(max_length=MESSAGE_LIMIT)]


class ShortMessage(MemberMessage, frozen=True, gc=False):
    """Base of probes and answers, nearly all packets: they name sender and configuration by the first eight
    bytes of their ids, and leave an empty digest out."""

    sender: ShortIdentifier
    configuration_id: ShortIdentifier
    sequence: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    digest: Digest | None


class Probe(ShortMessage, frozen=True, gc=False, tag=9):
    """Are you there?"""


class ProbeAcknowledged(ShortMessage, frozen=True, gc=False, tag=10):
    """I am here."""


class NotMember(Message, frozen=True, gc=False, tag=11):
    """Answer to a probe by a process that has no view: whoever had this address before is gone.

    Configuration id and sequence echo the probe, so that nobody who has not seen it can forge this.
    """

    incarnation: Incarnation
    configuration_id: ShortIdentifier
    sequence: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class Proof(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An observer's signature under its report in one alert of the message (`alert`: which one)."""

    alert: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    observer: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    public_key: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    signature: Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]


class Gossip(MemberMessage, frozen=True, gc=False, tag=12):
    """Alerts and votes of the running view change. Bit i of a bitmap: member i voted for the value.

    `proofs`: the signatures under the reports in the alerts, where members sign (see evidence).
    """

    digest: Digest
    alerts: tuple[Alert, ...] = ()
    votes: Annotated[tuple[tuple[Identifier, Bitmap], ...], msgspec.Meta(max_length=64)] = ()
    proofs: tuple[Proof, ...] = ()


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


class LeaveRequest(MemberMessage, frozen=True, gc=False, tag=24):
    """Leaver to its observers: report my leave."""


class UpdateRequest(MemberMessage, frozen=True, gc=False, tag=50):
    """Member to its observers: report my new metadata. `member` is its own record with them."""

    member: Member


class EvictRequest(MemberMessage, frozen=True, gc=False, tag=51):
    """A member, for an operator, to the observers of another member: report that it must go."""

    subject: Incarnation


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


class EnsembleJoin(Message, frozen=True, gc=False, tag=70):
    """Centralised mode, process to ensemble member: let me in. Also asks members, who name the ensemble."""

    joiner: Member


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
    """Ensemble to an observer, while a member is suspected: what do you see? Any evidence counts about the subjects,
    which others have reported for a while already."""

    subjects: Annotated[tuple[Index, ...], msgspec.Meta(max_length=1024)]


class EnsembleGreeting(Message, frozen=True, gc=False, tag=74):
    """Among ensemble members, regularly: who I am, whom I hold for the electorate, and how far I am.

    `orphans`: members of the cluster that do not call the sender, and for whom no other member vouches to it.
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


class RecoveryRequest(MemberMessage, frozen=True, gc=False, tag=52):
    """A member, for an operator, to the survivors it was given: the majority is lost for good, do you agree?"""

    recovery: Identifier
    survivors: Annotated[tuple[Incarnation, ...], msgspec.Meta(min_length=1, max_length=1 << 15)]
    forced: bool


class ColdStart(Message, frozen=True, gc=False, tag=54):
    """Among processes that start together and none of which was told to found: who is there, who promised whom.

    `candidate`: others name the sender as a seed. `turn`: of its candidacy. `follows`: the incarnation, and its turn,
    that the sender promised itself to; empty for nobody. `asking`: the sender names the receiver as a seed.
    """

    sender: Member
    candidate: bool
    turn: Epoch
    follows: Annotated[bytes, msgspec.Meta(max_length=16)]
    follows_turn: Epoch
    asking: bool


class RecoveryAnswer(MemberMessage, frozen=True, gc=False, tag=53):
    """A survivor's answer; an empty refusal agrees."""

    recovery: Identifier
    refusal: ShortText


_UNION = (
    JoinRequest
    | ObserversAssigned
    | JoinDeferred
    | JoinDenied
    | ObserveJoin
    | JoinObserved
    | FullConfiguration
    | Probe
    | ProbeAcknowledged
    | NotMember
    | Gossip
    | PullCut
    | CutBody
    | Prepare
    | Promised
    | Accept
    | Accepted
    | Rejected
    | Decided
    | CatchUpRequest
    | DecidedChain
    | EvictedNotice
    | LeaveRequest
    | UpdateRequest
    | EvictRequest
    | IndirectProbe
    | IndirectAnswer
    | StreamProbe
    | StreamProbeAcknowledged
    | EnsembleJoin
    | EnsembleMembers
    | EnsembleReport
    | EnsembleQuestion
    | EnsembleGreeting
    | EnsembleAlerts
    | EnsembleVote
    | EnsemblePromise
    | EnsembleAccept
    | RecoveryRequest
    | RecoveryAnswer
    | ColdStart
)

ANONYMOUS_MESSAGES: tuple[type[Message], ...] = (
    JoinRequest,
    JoinDeferred,
    ColdStart,
    NotMember,
    EnsembleJoin,
    EnsembleGreeting,
)
"""Messages a process may send before it knows the cluster id; the envelope then carries zeros."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(_UNION)


def encode(message: Message) -> bytes:
    """The message as MessagePack bytes."""
    return _encoder.encode(message)


def decode(data: bytes | bytearray | memoryview) -> Message:
    """The message in these bytes, fully validated. Raises DecodeError, and nothing else, on bad input."""
    if len(data) > MESSAGE_LIMIT:
        raise DecodeError(f"a message has at most {MESSAGE_LIMIT} bytes, not {len(data)}")
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DecodeError(f"not a message: {error}") from error
