"""The public names of `consensus`: adding one is a decision, removing one breaks somebody."""

import consensus

SURFACE = [
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


def test_the_public_names_are_frozen() -> None:
    assert sorted(consensus.__all__) == SURFACE
    assert all(hasattr(consensus, name) for name in SURFACE)
