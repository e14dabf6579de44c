"""The errors of `consensus`: a caller passed something that no correct peer sends.

Drop the message and count it. The state of the object that raised the error is unchanged.
"""


class ConsensusError(Exception):
    """The root of every error of this package; catch it at the edge, count, and drop the message."""


class InvalidBallotError(ConsensusError, ValueError):
    """A ballot that can not stand where it was used, such as a classic request under the fast ballot.

    Drop the message; a peer that keeps sending it runs another protocol version.
    """


class UnknownMemberError(ConsensusError, ValueError):
    """A member index outside 0..n-1: the message belongs to another configuration. Drop it."""


class InvalidGroupError(ConsensusError, ValueError):
    """A group of less than one member, or a value rule asked about less than a classic quorum."""


class WrongPhaseError(ConsensusError, RuntimeError):
    """A proposer was asked for something its phase does not allow. Look at `Proposer.phase` first."""
