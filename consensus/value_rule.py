"""The value rule: what a classic round may propose, given what a quorum has promised.

A pure function from promises to a forced value (some earlier round may have decided it) or to a free choice, of which
it reports the candidates that were voted for.
Source: L. Lamport, *Fast Paxos*, section 2.2, Figure 1 and observation O4, with the one fast round of `Ballot.FAST`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from .acceptor import Promise
from .errors import InvalidGroupError
from .quorum import classic_quorum, fast_quorum


@dataclass(frozen=True, slots=True)
class Forced:
    """Only this value is safe: an earlier round may have decided it."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Free:
    """No earlier round can have decided: every value is safe.

    `candidates` are the values voted for in the fast round, most votes first, equal counts by value.
    """

    candidates: tuple[bytes, ...]


def choose(promises: Collection[Promise], n: int) -> Forced | Free:
    """Apply the rule to `promises`, one each of distinct members, in a group of `n` members."""
    if len(promises) < classic_quorum(n):
        raise InvalidGroupError(
            f"{len(promises)} promises of {n} members are no classic quorum; wait for {classic_quorum(n)}"
        )
    if len(promises) > n:
        raise InvalidGroupError(f"{len(promises)} promises in a group of {n}: count each member once")
    highest = max(promise.accepted_ballot for promise in promises)
    votes = Counter(
        promise.accepted_value
        for promise in promises
        if promise.accepted_ballot == highest and promise.accepted_value is not None
    )
    ranked = tuple(sorted((value for value in votes if value is not None), key=lambda v: (-votes[v], v)))
    if not ranked:
        return Free(())
    if highest.is_classic:
        return Forced(ranked[0])
    # A fast quorum for a value needs every member not heard of and at least this many of those heard of.
    # At most one value reaches it, because quorums of these sizes meet.
    needed = fast_quorum(n) - (n - len(promises))
    if votes[ranked[0]] >= needed:
        return Forced(ranked[0])
    return Free(ranked)
