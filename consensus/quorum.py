"""How many members are enough.

What it is: the two quorum sizes of Fast Paxos for a group of n members, tolerating the most failures
that leaderless agreement allows. Any two classic quorums meet; any two fast quorums and any classic
quorum meet in one common member, which is what makes the value rule unambiguous.
What it isn't: a policy. Weighted or hierarchical quorums are not offered.
Source: L. Lamport, *Fast Paxos*, section 2.2; *Stable and Consistent Membership at Scale with Rapid*,
section 4.3 ("three quarters").
"""

from .errors import InvalidGroupError


def fast_quorum(n: int) -> int:
    """Identical votes that decide the fast round among `n` members: n - floor((n - 1) / 4)."""
    _check(n)
    return n - (n - 1) // 4


def classic_quorum(n: int) -> int:
    """Members that must promise, and then accept, in a classic round among `n`: a majority."""
    _check(n)
    return n // 2 + 1


def _check(n: int) -> None:
    if n < 1:
        raise InvalidGroupError(f"a group has at least one member, not {n}; check the configuration")
