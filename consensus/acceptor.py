"""The acceptor: the memory that makes a decision irrevocable.

One member's part in one decision: what it promised and what it accepted. It serves the fast round (`vote_fast`) and
classic rounds (`prepare`, `accept`). Where a member may restart and still be the same member, the caller writes `state`
durably before it sends any answer whose `changed` is true, and restores it at start. Where a restarted member is a new
member (membership: a new incarnation), memory is enough.
Source: L. Lamport, *Fast Paxos*, sections 2.1 and 3.2; *Paxos Made Simple*, section 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .ballot import Ballot
from .errors import InvalidBallotError


@dataclass(frozen=True, slots=True)
class AcceptorState:
    """All that an acceptor must remember; save and restore it as one record."""

    promised: Ballot = Ballot.NONE
    """No request under a lower ballot is answered any more."""
    accepted_ballot: Ballot = Ballot.NONE
    """The ballot of the last accepted value; `Ballot.NONE` when nothing was accepted."""
    accepted_value: bytes | None = None
    """The last accepted value; None when nothing was accepted."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Answer to a prepare request ("1b"): will not take part in anything below `ballot`."""

    ballot: Ballot
    accepted_ballot: Ballot
    accepted_value: bytes | None
    changed: bool = False
    """The acceptor's state changed: save it before sending this. Local, not part of the message."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """Answer to an accept request ("2b"): voted for `value` under `ballot`."""

    ballot: Ballot
    value: bytes
    changed: bool = False
    """The acceptor's state changed: save it before sending this. Local, not part of the message."""


@dataclass(frozen=True, slots=True)
class Reject:
    """The request came too late: `promised` is higher than the request's `ballot`."""

    ballot: Ballot
    promised: Ballot


class Acceptor:
    """One member's acceptor for one decision, beginning from `state` (default: never asked before)."""

    __slots__ = ("_state",)

    def __init__(self, state: AcceptorState | None = None) -> None:
        self._state = AcceptorState() if state is None else state

    @property
    def state(self) -> AcceptorState:
        """The record to save and to restore."""
        return self._state

    def prepare(self, ballot: Ballot) -> Promise | Reject:
        """Answer a prepare request of a classic round. A repeated request gets the same answer."""
        _require_classic(ballot)
        state = self._state
        if ballot < state.promised:
            return Reject(ballot, state.promised)
        changed = ballot > state.promised
        if changed:
            self._state = replace(state, promised=ballot)
        return Promise(ballot, state.accepted_ballot, state.accepted_value, changed)

    def accept(self, ballot: Ballot, value: bytes) -> Accepted | Reject:
        """Answer an accept request of a classic round. A repeated request gets the same answer."""
        _require_classic(ballot)
        state = self._state
        if ballot < state.promised:
            return Reject(ballot, state.promised)
        if ballot == state.accepted_ballot:
            if value == state.accepted_value:
                return Accepted(ballot, value)
            # An owner that forgot its ballot (restarted without its record) must not get two values
            # under one ballot; the rejection makes it choose a higher one.
            return Reject(ballot, state.promised)
        self._state = AcceptorState(ballot, ballot, value)
        return Accepted(ballot, value, changed=True)

    def vote_fast(self, value: bytes) -> bool:
        """Vote for `value` in the fast round; True when the vote counts and may be sent.

        Refused, and nothing may be sent, when this acceptor already voted or already promised a classic
        round: a later fast vote could complete a quorum that the classic round did not see.
        """
        if self._state != AcceptorState():
            return False
        self._state = AcceptorState(Ballot.FAST, Ballot.FAST, value)
        return True


def _require_classic(ballot: Ballot) -> None:
    if not ballot.is_classic or ballot.member < 0:
        raise InvalidBallotError(f"{ballot} is not a ballot of a classic round; drop the message")
