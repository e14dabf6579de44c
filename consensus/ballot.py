"""Ballots: the total order of the rounds of one decision.

A ballot is (round, member index), compared in that order, so that two members never own the same classic ballot. One
decision has one fast round, which comes before every classic one. A new decision starts again from `Ballot.NONE`.
Source: L. Lamport, *Paxos Made Simple*, section 2.2 (proposal numbers); *Fast Paxos*, section 2.1.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from .errors import InvalidBallotError


class _RoundAndMember(NamedTuple):
    round: int
    member: int


class Ballot(_RoundAndMember):
    """The number of one round: `round` first, then the index of the member that owns it."""

    __slots__ = ()

    NONE: ClassVar[Ballot]
    """Below everything: nothing promised, nothing accepted."""
    FAST: ClassVar[Ballot]
    """The only fast round; nobody owns it."""

    @property
    def is_classic(self) -> bool:
        """Whether one member owns this round, so that it carries one value only."""
        return self.round > Ballot.FAST.round

    def successor(self, member: int) -> Ballot:
        """The lowest classic ballot of `member` that is higher than this one."""
        if member < 0:
            raise InvalidBallotError(f"ballots belong to members 0 and up, not {member}")
        if self.is_classic and member > self.member:
            return Ballot(self.round, member)
        return Ballot(max(self.round, Ballot.FAST.round) + 1, member)


Ballot.NONE = Ballot(0, 0)
Ballot.FAST = Ballot(1, 0)
