"""A voter's durable state, as bytes: saved before the voter says anything that depends on it.

The electorate, the cluster's present configuration, and this voter's acceptor for the next one. The file is kept by
`membership.runtime.voter_storage`.
Source: L. Lamport, *Paxos Made Simple*, section 2.2 (an acceptor restarts with its memory or not at all).
"""

import msgspec

from consensus import AcceptorState, Ballot
from membership.errors import MembershipError
from membership.protocol.messages import Epoch, Round
from membership.protocol.view.configuration import Configuration, Identifier
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member


class RecordError(MembershipError, ValueError):
    """Raised when a saved record cannot be used. The message says what to do."""


class VoterState(msgspec.Struct, frozen=True, array_like=True):
    """A voter's memory. Ballots are (round, member); `accepted` is the cut voted for last."""

    me: Member
    electorate: tuple[Member, ...] = ()
    formed: bool = False
    epoch: Epoch = 0
    configuration_id: Identifier = bytes(16)
    configuration: bytes = b""
    """Encoded; empty while the cluster has no members yet."""
    promised: tuple[Round, int] = (0, 0)
    accepted_ballot: tuple[Round, int] = (0, 0)
    accepted: Cut | None = None

    @classmethod
    def of_chain(
        cls, standing: "VoterState", view: Configuration, state: AcceptorState, accepted: Cut | None
    ) -> "VoterState":
        """The record of a voter whose electorate has formed (`standing`), at this view."""
        return cls(
            standing.me,
            standing.electorate,
            standing.formed,
            view.epoch,
            view.id,
            view.encoded() if len(view) else b"",
            (state.promised.round, state.promised.member),
            (state.accepted_ballot.round, state.accepted_ballot.member),
            accepted,
        )

    @property
    def state(self) -> AcceptorState:
        """What the acceptor has promised and accepted."""
        value = None if self.accepted is None else self.accepted.hash
        return AcceptorState(Ballot(*self.promised), Ballot(*self.accepted_ballot), value)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(VoterState)


def encode_state(record: VoterState) -> bytes:
    """The record as bytes."""
    return _encoder.encode(record)


def decode_state(data: bytes) -> VoterState:
    """The record in these bytes. Raises RecordError."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, ValueError) as error:
        raise RecordError(
            f"this is no saved state of an ensemble member ({error}): restore the file from the same member, "
            "or stay away; never copy another member's"
        ) from error
