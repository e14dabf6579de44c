"""Quorums: how many of n members are enough, in a fast and in a classic round.

The two sizes of Fast Paxos that tolerate the most failures. Any two classic quorums meet; any two fast quorums and any
classic quorum meet in one common member, which makes the value rule unambiguous.
Source: L. Lamport, *Fast Paxos*, section 2.2; *Stable and Consistent Membership at Scale with Rapid*, section 4.3
("three quarters").
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
