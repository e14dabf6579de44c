"""The leaderless fast round: count identical votes.

One member's tally of the fast votes of n members: per value one integer bitmap (bit i is member i in canonical order),
merged by OR, so that no sender counts twice and tallies can be gossiped. Whether a member may vote is decided by
`Acceptor.vote_fast`.
Source: *Stable and Consistent Membership at Scale with Rapid*, section 4.3; L. Lamport, *Fast Paxos*.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .errors import UnknownMemberError
from .quorum import fast_quorum


class FastRound:
    """The tally of the fast round of one decision among `n` members."""

    __slots__ = ("_decided", "_equivocators", "_needed", "_voters", "_votes", "n")

    def __init__(self, n: int) -> None:
        self.n = n
        self._needed = fast_quorum(n)
        self._votes: dict[bytes, int] = {}
        self._voters = 0
        self._equivocators = 0
        self._decided: bytes | None = None

    def add(self, value: bytes, bitmap: int) -> bool:
        """Merge the votes of the members in `bitmap` for `value`; True when something new was learnt.

        A member that has been counted for another value is not counted again, only remembered in
        `equivocators`: correct members vote once.
        """
        if bitmap < 0 or bitmap >> self.n:
            raise UnknownMemberError(
                f"the vote bitmap names members outside 0..{self.n - 1}: it belongs to another configuration"
            )
        known = self._votes.get(value, 0)
        fresh = bitmap & ~known
        if not fresh:
            return False
        twice = fresh & self._voters
        if twice:
            self._equivocators |= twice
            fresh &= ~twice
            if not fresh:
                return False
        merged = known | fresh
        self._votes[value] = merged
        self._voters |= fresh
        if self._decided is None and merged.bit_count() >= self._needed:
            self._decided = value
        return True

    def decided(self) -> bytes | None:
        """The value with a fast quorum of votes, or None. Once there, it stays."""
        return self._decided

    def impossible(self) -> bool:
        """Whether no value can reach the fast quorum any more, whatever the silent members vote."""
        if self._decided is not None:
            return False
        silent = self.n - self._voters.bit_count()
        best = max((bitmap.bit_count() for bitmap in self._votes.values()), default=0)
        return best + silent < self._needed

    @property
    def votes(self) -> Mapping[bytes, int]:
        """The bitmap of counted votes per value, in the order the values were first seen; a live view."""
        return MappingProxyType(self._votes)

    @property
    def voters(self) -> int:
        """The bitmap of members whose vote is counted."""
        return self._voters

    @property
    def equivocators(self) -> int:
        """The bitmap of members seen to vote for two values: broken, or forged by somebody."""
        return self._equivocators
