"""The proposer: coordinator of classic rounds.

The bookkeeping of one member that tries to get a decision with rising ballots: phase 1 (prepare, promises), the value
rule, phase 2 (accept, accepted). It counts distinct senders; repeated and late answers are harmless.
The caller sends each request to all members (itself included) and asks `waiting_for()` whom to ask again. It must wait
a random, growing time before it starts a higher round, or dueling proposers can starve each other.
Source: L. Lamport, *Paxos Made Simple*, section 2.2; *Fast Paxos*, section 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .acceptor import Accepted, Promise, Reject
from .ballot import Ballot
from .errors import InvalidBallotError, UnknownMemberError, WrongPhaseError
from .quorum import classic_quorum
from .value_rule import Forced, choose


class Phase(Enum):
    """Where a proposer stands."""

    IDLE = "idle"
    """No round started, or the last one was given up."""
    PREPARING = "preparing"
    """Waiting for promises."""
    CHOOSING = "choosing"
    """Enough promises, the choice is free, and no value to propose is known yet: see `propose`."""
    ACCEPTING = "accepting"
    """Waiting for members to accept."""
    DECIDED = "decided"
    """Done; `Proposer.decided` is the value."""


@dataclass(frozen=True, slots=True)
class AcceptRequest:
    """Phase 2 request ("2a") to send to all members."""

    ballot: Ballot
    value: bytes


class Proposer:
    """Member `index` of `n` as coordinator of classic rounds for one decision.

    `value` is what it proposes when the value rule leaves the choice free and nobody voted for anything.
    A ballot must never be used twice. So where members restart as themselves, pass the restored acceptor's
    `promised` as `above` to `start`, and let the own acceptor promise durably before the request goes out.
    """

    __slots__ = (
        "_accepted",
        "_ballot",
        "_highest",
        "_phase",
        "_promises",
        "_request",
        "decided",
        "index",
        "n",
        "value",
    )

    def __init__(self, n: int, index: int, value: bytes | None = None) -> None:
        classic_quorum(n)  # refuses an empty group
        if not 0 <= index < n:
            raise UnknownMemberError(f"member {index} is not one of the {n} members 0..{n - 1}")
        self.n = n
        self.index = index
        self.value = value
        self.decided: bytes | None = None
        self._phase = Phase.IDLE
        self._ballot = Ballot.NONE
        self._highest = Ballot.FAST
        self._promises: dict[int, Promise] = {}
        self._request: AcceptRequest | None = None
        self._accepted = 0

    @property
    def phase(self) -> Phase:
        """Where it stands now."""
        return self._phase

    @property
    def ballot(self) -> Ballot:
        """The ballot of the current round; `Ballot.NONE` before the first."""
        return self._ballot

    @property
    def request(self) -> AcceptRequest | None:
        """The accept request of the current round, for sending again; None before phase 2."""
        return self._request

    def start(self, above: Ballot = Ballot.FAST) -> Ballot:
        """Begin a round higher than `above` and every ballot seen; the ballot to send in prepare requests."""
        if self._phase is Phase.DECIDED:
            raise WrongPhaseError("the decision is made; do not start another round")
        self._highest = max(self._highest, above)
        self._ballot = self._highest = self._highest.successor(self.index)
        self._promises.clear()
        self._request = None
        self._accepted = 0
        self._phase = Phase.PREPARING
        return self._ballot

    def on_promise(self, sender: int, promise: Promise) -> AcceptRequest | None:
        """Count a promise; the accept request to send to all when this one completed the quorum."""
        self._check_member(sender)
        if self._phase is not Phase.PREPARING or promise.ballot != self._ballot:
            return None
        _check_promise(promise)
        self._promises.setdefault(sender, promise)
        if len(self._promises) < classic_quorum(self.n):
            return None
        return self._choose()

    def propose(self, value: bytes) -> AcceptRequest | None:
        """Set the own value; the accept request when the round was only waiting for one."""
        self.value = value
        return self._choose() if self._phase is Phase.CHOOSING else None

    def on_accepted(self, sender: int, accepted: Accepted) -> bytes | None:
        """Count an acceptance; the decided value when this one completed the quorum, else None."""
        self._check_member(sender)
        if self._phase is not Phase.ACCEPTING or accepted.ballot != self._ballot:
            return None
        self._accepted |= 1 << sender
        if self._request is None or self._accepted.bit_count() < classic_quorum(self.n):
            return None
        self._phase = Phase.DECIDED
        self.decided = self._request.value
        return self.decided

    def on_reject(self, reject: Reject) -> Ballot:
        """Learn of a higher ballot; the ballot that `start` would use next.

        The current round goes on: the other members may still be enough. Giving up is the caller's timer.
        """
        self._highest = max(self._highest, reject.promised)
        return self._highest.successor(self.index)

    def waiting_for(self) -> tuple[int, ...]:
        """The members that have not answered the current phase, in canonical order: send to them again."""
        if self._phase is Phase.PREPARING:
            return tuple(member for member in range(self.n) if member not in self._promises)
        if self._phase is Phase.ACCEPTING:
            return tuple(member for member in range(self.n) if not self._accepted >> member & 1)
        return ()

    def _choose(self) -> AcceptRequest | None:
        choice = choose(tuple(self._promises.values()), self.n)
        value: bytes | None
        if isinstance(choice, Forced):
            value = choice.value
        else:
            value = choice.candidates[0] if choice.candidates else self.value
        if value is None:
            self._phase = Phase.CHOOSING
            return None
        self._request = AcceptRequest(self._ballot, value)
        self._phase = Phase.ACCEPTING
        return self._request

    def _check_member(self, member: int) -> None:
        if not 0 <= member < self.n:
            raise UnknownMemberError(f"member {member} is not one of the {self.n} members; drop the message")


def _check_promise(promise: Promise) -> None:
    has_value = promise.accepted_value is not None
    if has_value != (promise.accepted_ballot > Ballot.NONE) or promise.accepted_ballot >= promise.ballot:
        raise InvalidBallotError(f"{promise} contradicts itself; drop the message")
