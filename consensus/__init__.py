"""Agreement on one value among n members: the fast round of Fast Paxos, and classic Paxos beneath it.

Sans-I/O and without a clock: every object is a plain state machine that is told what arrived and says what to send.
The view change uses it (N members, fast round first), and so does the layout chain (three to five servers, classic
rounds only, durable acceptors). It imports nothing else of rota.
"""

from .acceptor import Accepted, Acceptor, AcceptorState, Promise, Reject
from .ballot import Ballot
from .errors import (
    ConsensusError,
    InvalidBallotError,
    InvalidGroupError,
    UnknownMemberError,
    WrongPhaseError,
)
from .fast_round import FastRound
from .proposer import AcceptRequest, Phase, Proposer
from .quorum import classic_quorum, fast_quorum
from .value_rule import Forced, Free, choose

__all__ = [
    "AcceptRequest",
    "Accepted",
    "Acceptor",
    "AcceptorState",
    "Ballot",
    "ConsensusError",
    "FastRound",
    "Forced",
    "Free",
    "InvalidBallotError",
    "InvalidGroupError",
    "Phase",
    "Promise",
    "Proposer",
    "Reject",
    "UnknownMemberError",
    "WrongPhaseError",
    "choose",
    "classic_quorum",
    "fast_quorum",
]
