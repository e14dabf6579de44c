"""Agreement of the voters on one cut of the cluster: a fast round where it can succeed, else classic rounds.

One voter's part in deciding the successor of one configuration: acceptor, tally, coordinator. Voters are few, so
everybody talks to everybody, and each vote carries its cut. The quorums and the value rule are in `consensus`.
Source: Rapid, sections 4.3 and 5; L. Lamport, *Fast Paxos*.

Why there is one chain. Every message names the configuration it is about, and a voter keeps one acceptor per
configuration, saved before anything is sent. The electorate is fixed, so the decisions on one configuration are made by
quorums of the same set, and Fast Paxos lets at most one cut through. A voter goes on to the next configuration only
with a decided cut; by induction all voters, and whoever follows them, walk one chain. A voter that was away, or
restarts with its state, meets the next instance with an acceptor that has either never voted in it or remembers how. A
voter without its state is no longer of the electorate (see electorate).

Which round. Three voters need all three for a fast quorum. While one is silent, the first in turn therefore starts a
classic round at once: prepare and accept, two round trips, no waiting.
"""

from consensus import (
    Accepted,
    Acceptor,
    AcceptorState,
    AcceptRequest,
    Ballot,
    ConsensusError,
    FastRound,
    Phase,
    Promise,
    Proposer,
    Reject,
    fast_quorum,
)
from membership.ensemble.electorate import Electorate
from membership.protocol import messages
from membership.protocol.context.context import NEVER, Context
from membership.protocol.messages.sizes import cut_bytes
from membership.protocol.view.cut import Cut

_FALLBACK = 2
"""Retransmissions without a decision after which a voter, in its turn, starts a classic round."""
_ROUND_SLOTS = 2
"""Retransmissions a coordinator gives its round, and others give it, before a higher one."""


class Agreement:
    """The decision on one configuration's successor."""

    def __init__(
        self,
        context: Context,
        electorate: Electorate,
        state: AcceptorState | None = None,
        accepted: Cut | None = None,
    ) -> None:
        self._context = context
        self._electorate = electorate
        self._acceptor = Acceptor(state)
        self._fast = FastRound(electorate.size)
        self._proposer = Proposer(electorate.size, electorate.index)
        self._bodies: dict[bytes, Cut] = {}
        self._decided: bytes | None = None
        self._resend_at = NEVER
        self._fallback_at = NEVER
        self.decided_by_coordinating = False
        if accepted is not None:
            self._bodies[accepted.hash] = accepted
            if self.state.accepted_ballot == Ballot.FAST:
                self._fast.add(accepted.hash, 1 << electorate.index)

    # What the rest of the core asks.

    @property
    def state(self) -> AcceptorState:
        """What must be saved before anything is sent."""
        return self._acceptor.state

    @property
    def accepted(self) -> Cut | None:
        """The cut that `state` names."""
        value = self.state.accepted_value
        return None if value is None else self._bodies[value]

    @property
    def holding(self) -> bool:
        """Whether this voter has proposed or voted: then it proposes nothing else here."""
        return self._proposer.value is not None or self.state.accepted_value is not None

    @property
    def decision(self) -> Cut | None:
        """The decided cut."""
        return None if self._decided is None else self._bodies[self._decided]

    @property
    def deadline(self) -> float:
        """When `tick` has something to do."""
        return min(self._fallback_at, self._resend_at)

    def resume(self, now: float) -> None:
        """After a restart: see to it that what was begun here ends."""
        if self.state.accepted_value is not None:
            self._resend_at = now
            self._arm_fallback(now)

    # The fast round.

    def propose(self, cut: Cut, now: float) -> None:
        """Vote for this cut, or coordinate it where too few voters answer for the fast round."""
        if self.holding or self._decided is not None:
            return
        self._bodies[cut.hash] = cut
        request = self._proposer.propose(cut.hash)
        if request is not None:
            self._request_acceptance(request)
        elif self.state != AcceptorState():
            self._arm_fallback(now)  # somebody else's round is under way, or was
        elif len(self._answering(now)) >= fast_quorum(self._electorate.size):
            self._vote(cut, now)
        else:
            self._start_round(now)

    def _answering(self, now: float) -> list[int]:
        return self._electorate.answering(now, self._context.settings.greeting_interval)

    def _vote(self, cut: Cut, now: float) -> None:
        # Refused after a classic promise: such a vote could complete a quorum the classic round never saw.
        if not self._acceptor.vote_fast(cut.hash):
            return
        self._context.count("fast votes")
        self._fast.add(cut.hash, 1 << self._electorate.index)
        self._send_vote(cut, range(self._electorate.size))
        self._resend_at = now + self._context.settings.classic_retransmit
        self._arm_fallback(now)
        self._count_votes(now)

    def _send_vote(self, cut: Cut, receivers: range | list[int]) -> None:
        self._send(receivers, messages.EnsembleVote(*self._context.header, cut), cut)

    def on_vote(self, cut: Cut, voter: int, now: float, *, adopt: bool) -> None:
        """Another's vote. `adopt`: this voter sees nothing against the cut, so it votes alike."""
        if self._decided is not None:
            return
        self._bodies[cut.hash] = cut
        if not self._fast.add(cut.hash, 1 << voter):
            return
        self._arm_fallback(now)
        if adopt and not self.holding:
            self._vote(cut, now)
        else:
            self._count_votes(now)

    def _count_votes(self, now: float) -> None:
        value = self._fast.decided()
        if value is not None:
            self._decide(value)
        elif self._fast.impossible() and self._proposer.phase is Phase.IDLE:
            self._fallback_at = min(self._fallback_at, now + self._turn(now) * self._slot)

    # Whose turn it is to coordinate.

    @property
    def _slot(self) -> float:
        return self._context.settings.classic_retransmit

    def _turn(self, now: float) -> int:
        identifier = self._context.header[2]
        return self._electorate.turn(identifier, now, self._context.settings.greeting_interval)

    def _arm_fallback(self, now: float) -> None:
        if self._fallback_at == NEVER:
            self._fallback_at = now + (_FALLBACK + self._turn(now)) * self._slot

    def _postpone(self, now: float) -> None:
        wait = self._slot * (_ROUND_SLOTS + self._turn(now))
        self._fallback_at = now + wait * (1 + 0.5 * self._context.rng.random())

    def tick(self, now: float) -> None:
        """Repeat what was not answered; start a round when it is this voter's turn."""
        if self._decided is not None:
            return
        if now >= self._fallback_at and not self._bodies:
            self._fallback_at = NEVER  # nothing to decide; whoever began that round will try again
        elif now >= self._fallback_at:
            self._start_round(now)
        elif now >= self._resend_at:
            self._resend(now)

    def _resend(self, now: float) -> None:
        self._resend_at = now + self._context.settings.classic_retransmit
        waiting = list(self._proposer.waiting_for())
        request = self._proposer.request
        if self._proposer.phase is Phase.PREPARING:
            self._send_prepare(waiting)
        elif self._proposer.phase is Phase.ACCEPTING and request is not None:
            self._send_accept(request, waiting)
        elif self.accepted is not None and self.state.accepted_ballot == Ballot.FAST:
            missing = [index for index in range(self._electorate.size) if not self._fast.voters >> index & 1]
            self._send_vote(self.accepted, missing)

    # Classic rounds, as coordinator.

    def _start_round(self, now: float) -> None:
        self._context.count("classic rounds started")
        ballot = self._proposer.start(self.state.promised)
        self._postpone(now)
        self._resend_at = now + self._context.settings.classic_retransmit
        # Seen by the own acceptor first: from here on this voter casts no fast vote.
        answer = self._acceptor.prepare(ballot)
        self._send_prepare(range(self._electorate.size))
        if isinstance(answer, Promise):
            self._count_promise(self._electorate.index, answer)

    def _send_prepare(self, receivers: range | list[int]) -> None:
        self._send(receivers, messages.Prepare(*self._context.header, *self._proposer.ballot))

    def on_promise(self, message: messages.EnsemblePromise, voter: int, now: float) -> None:
        """Phase 1b."""
        if self._decided is not None:
            return
        value = None
        if message.cut is not None:
            value = message.cut.hash
            self._bodies[value] = message.cut
        voted = Ballot(message.voted_round, message.voted_coordinator)
        self._count_promise(voter, Promise(Ballot(message.round, message.coordinator), voted, value))
        if value is not None and voted == Ballot.FAST and self._fast.add(value, 1 << voter):
            self._count_votes(now)

    def _count_promise(self, voter: int, promise: Promise) -> None:
        try:
            request = self._proposer.on_promise(voter, promise)
        except ConsensusError:
            self._context.drop("a promise that contradicts itself")
            return
        if request is None and self._proposer.phase is Phase.CHOOSING and self._bodies:
            request = self._proposer.propose(min(self._bodies))
        if request is not None:
            self._request_acceptance(request)

    def _request_acceptance(self, request: AcceptRequest) -> None:
        self._send_accept(request, range(self._electorate.size))
        answer = self._acceptor.accept(request.ballot, request.value)
        if isinstance(answer, Accepted):
            self._count_accepted(self._electorate.index, answer)

    def _send_accept(self, request: AcceptRequest, receivers: range | list[int]) -> None:
        cut = self._bodies[request.value]
        self._send(receivers, messages.EnsembleAccept(*self._context.header, *request.ballot, cut), cut)

    def on_accepted(self, message: messages.Accepted, voter: int) -> None:
        """Phase 2b, sent to the coordinator alone."""
        request = self._proposer.request
        if request is not None and self._decided is None:
            self._count_accepted(voter, Accepted(Ballot(message.round, message.coordinator), request.value))

    def _count_accepted(self, voter: int, accepted: Accepted) -> None:
        value = self._proposer.on_accepted(voter, accepted)
        if value is not None:
            self.decided_by_coordinating = True
            self._decide(value)

    def on_rejected(self, message: messages.Rejected) -> None:
        """Somebody has promised a higher ballot."""
        ballot = Ballot(message.round, message.coordinator)
        if ballot.is_classic and ballot > self._proposer.ballot:
            self._proposer.on_reject(Reject(self._proposer.ballot, ballot))

    # Classic rounds, as acceptor.

    def on_prepare(self, message: messages.Prepare, voter: int, now: float) -> None:
        """Phase 1a."""
        answer = self._acceptor.prepare(Ballot(message.round, message.coordinator))
        if isinstance(answer, Reject):
            self._reject(answer, voter)
            return
        if answer.changed:
            self._postpone(now)
        promise = messages.EnsemblePromise(
            *self._context.header, *answer.ballot, *answer.accepted_ballot, self.accepted
        )
        self._send([voter], promise, self.accepted)

    def on_accept(self, message: messages.EnsembleAccept, voter: int, now: float) -> None:
        """Phase 2a."""
        self._bodies[message.cut.hash] = message.cut
        ballot = Ballot(message.round, message.coordinator)
        answer = self._acceptor.accept(ballot, message.cut.hash)
        if isinstance(answer, Reject):
            self._reject(answer, voter)
            return
        if answer.changed:
            self._postpone(now)
        self._send([voter], messages.Accepted(*self._context.header, *ballot))

    def _reject(self, answer: Reject, voter: int) -> None:
        self._send([voter], messages.Rejected(*self._context.header, *answer.promised))

    def _decide(self, value: bytes) -> None:
        self._decided = value
        self._fallback_at = self._resend_at = NEVER

    def _send(self, receivers: range | list[int], message: messages.Message, cut: Cut | None = None) -> None:
        reliable = cut is not None and cut_bytes(cut) > self._context.settings.datagram_payload
        members = self._electorate.members
        addresses = [members[index].address for index in receivers if index != self._electorate.index]
        if reliable:
            for address in addresses:
                self._context.send(address, message, reliable=True)
        else:
            self._context.send_all(addresses, message)
