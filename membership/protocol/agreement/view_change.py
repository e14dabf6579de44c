"""Agreement on the next view: a leaderless fast round, and classic rounds when it cannot decide.

One member's part: its acceptor, its tally of fast votes, and its turn as a coordinator. The quorums and the value rule
are in `consensus`. Votes spread with gossip, and name a cut by its hash (see proposals).

A member votes for a next view, in the fast round or a classic one, only when it has that view durably among those that
it has accepted, beside the present one: after a power cut those who come back may be the only ones that know of it (see
founder_election). So it does nothing until then, and a member whose disk takes nothing does not vote: the others decide
without it. What it promises in classic rounds needs no disk, as it comes back as another member.
Source: Rapid, section 4.3; L. Lamport, *Fast Paxos*. Any member may become coordinator until a decision is known.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from consensus import (
    Accepted,
    Acceptor,
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
from membership.address import Address
from membership.protocol import messages
from membership.protocol.agreement.proposals import Proposals
from membership.protocol.context.context import NEVER, Context
from membership.protocol.view.configuration import ConfigurationError
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member

_SETTLE_TICKS = 6
"""Gossip ticks given to votes before a coordinator starts, when the fast round is known to be out of reach."""
_HOLDERS_ASKED = 2
"""Members asked at a time for the decided cut: under heavy loss one question or its answer is often lost."""
_FIRST_CLASSIC = 2
_ROUND_SLOTS = 4
"""Fallback slots a coordinator gives its own classic round, and others give it, before a higher one."""
_DOUBLINGS = 2
"""Each round gets twice the time of the last, so often: on busy machines a round takes seconds, and one that is
always overtaken by a higher one never ends. No more, or members that were cut off with a minority for long would be
slow to decide when they are back."""


class ViewChange:
    """The decision about one configuration's successor."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._size = len(context.view)
        self._acceptor = Acceptor()
        self._fast = FastRound(self._size)
        self._proposer = Proposer(self._size, context.index)
        self.proposals = Proposals(context)
        self._candidate: Cut | None = None
        self._decided: bytes | None = None
        self._accept: AcceptRequest | None = None
        self._unanswered: tuple[messages.Accept, Member] | None = None
        self._intended: bytes | None = None
        """What this member votes for in the fast round as soon as that is durable."""
        self._decided_by_classic = False
        self._rank: int | None = None
        self._expedited = False
        self._resend_at = NEVER
        self._pause = 0.0
        self.active_since: float | None = None
        self.vote_bits = 0
        self.suspected: frozenset[int] = frozenset()
        self.fallback_at = NEVER

    # What the rest of the core asks.

    @property
    def holding(self) -> bool:
        """Whether this member has a proposal: then it reports nothing more in this configuration."""
        return self._candidate is not None or self._intended is not None or self.has_voted

    @property
    def has_voted(self) -> bool:
        """Whether this member has cast its fast vote, or accepted a value in a classic round."""
        return self._acceptor.state.accepted_value is not None

    @property
    def decision(self) -> Cut | None:
        """The decided cut, once both the decision and its body are known."""
        return None if self._decided is None else self.proposals.get(self._decided)

    @property
    def decided_by_classic(self) -> bool:
        """Whether this member decided as coordinator of a classic round, and so must tell everybody."""
        return self._decided_by_classic

    @property
    def fast_votes(self) -> Mapping[bytes, int]:
        """The known fast votes: the bitmap of voters per cut's hash."""
        return self._fast.votes

    @property
    def proposal(self) -> Cut | None:
        """This member's own cut, once it has one."""
        return self._candidate

    @property
    def classic_under_way(self) -> bool:
        """Whether a classic round has begun, by this member or with its promise."""
        return self._proposer.phase is not Phase.IDLE or self._acceptor.state.promised.is_classic

    @property
    def deadline(self) -> float:
        """When `tick` has something to do."""
        return min(self.fallback_at, self._resend_at)

    def encoded_votes(self, limit: int) -> tuple[tuple[bytes, bytes], ...]:
        """Fast votes as (value, bitmap bytes), the most voted first."""
        votes = self._fast.votes
        if not votes:
            return ()
        ranked = sorted(votes.items(), key=lambda item: (-item[1].bit_count(), item[0]))[:limit]
        width = (self._size + 7) // 8
        return tuple((value, bitmap.to_bytes(width, "little")) for value, bitmap in ranked)

    # The fast round.

    def propose(self, cut: Cut, now: float) -> None:
        """Vote for this member's own cut, unless it has voted or has promised a classic round."""
        if self._candidate is not None:
            return
        self._candidate = cut
        value = cut.hash
        self.proposals.add(cut)
        self._vote(value, now)
        if self._decided is None:
            self._arm_fallback(now)  # also should the disk take no vote
        self._send_accept(self._proposer.propose(value), now)
        self._expedite_fallback(now)

    def _vote(self, value: bytes, now: float) -> None:
        if self._intended not in (None, value) or self._acceptor.state.promised != Ballot.NONE:
            return
        self._intended = value
        # Refused after a classic promise: such a vote could complete a quorum the classic round never saw.
        if not self._is_durable(value) or not self._acceptor.vote_fast(value):
            return
        self._context.count("fast votes")
        self._fast.add(value, 1 << self._context.index)
        self._after_votes(value, now)

    def _is_durable(self, value: bytes) -> bool:
        """Whether this member has durably accepted the view that this cut leads to; if not, it begins to."""
        cut = self.proposals.get(value)
        if cut is None:
            return False
        try:
            view = self._context.cache.apply(self._context.view, cut)
        except ConfigurationError:
            return False  # nobody could install it
        storage = self._context.storage
        if storage.state.view is not self._context.view:
            storage.install(self._context.view)
        accepted = storage.state.accepted
        if all(known.id != view.id for known in accepted) and len(accepted) < messages.ACCEPTED_LIMIT:
            storage.accept((*accepted, view))
        return storage.has_accepted(view)

    def on_saved(self, now: float) -> None:
        """Something has become durable: say what waited for that."""
        if self._decided is not None:
            return
        if self._intended is not None:
            self._vote(self._intended, now)
        if self._accept is not None:
            self._accept_own(self._accept)
        self._answer_again(now)

    def merge_votes(self, votes: Iterable[tuple[bytes, bytes]], sender: Member, now: float) -> None:
        """Add votes gossiped by `sender`."""
        mine = 1 << self._context.index
        for value, encoded in votes:
            bitmap = int.from_bytes(encoded, "little")
            if bitmap >> self._size:
                self._context.drop("votes of members outside the view")
                continue
            if bitmap & mine and not self._fast.votes.get(value, 0) & mine:
                self._context.drop("a vote of this member that it did not cast")
                bitmap &= ~mine
            if bitmap and self._fast.add(value, bitmap):
                self._after_votes(value, now)
                self._adopt(value, sender, now)

    def _after_votes(self, value: bytes, now: float) -> None:
        self.vote_bits = self._fast.voters.bit_count()
        if self._decided is None and self._fast.decided() is not None:
            self._decide(value)
            self._expect_body(now)
        elif self._decided is None:
            self._arm_fallback(now)
            self._expedite_fallback(now)

    def _adopt(self, value: bytes, sender: Member, now: float) -> None:
        """Vote with a majority, once its cut is known: any proposed value may be voted for."""
        if self._decided is not None:
            if value == self._decided:
                self.proposals.want(value, sender, now)
            return
        if self._acceptor.state.promised != Ballot.NONE or self.holding:
            return
        if 2 * self._fast.votes[value].bit_count() < self._size:
            return
        if value in self.proposals:
            self._vote(value, now)
        else:
            self.proposals.want(value, sender, now)

    # Bodies.

    def on_body(self, message: messages.CutBody, now: float) -> None:
        """A pulled cut arrived."""
        value = self.proposals.on_body(message)
        if value is None:
            return
        if self._decided is None and 2 * self._fast.votes.get(value, 0).bit_count() >= self._size:
            self._vote(value, now)
        if self._accept is not None and self._accept.value == value:
            self._send_accept(self._accept, now)
        self._answer_again(now)

    def _answer_again(self, now: float) -> None:
        """Take up the request to accept that waits for its cut, or for the disk."""
        if self._unanswered is not None and self._unanswered[0].value in self.proposals:
            (request, coordinator), self._unanswered = self._unanswered, None
            self.on_accept(request, coordinator, now)

    def on_decided(self, value: bytes, sender: Member, now: float) -> None:
        """A member knows the decision."""
        self._decide(value)
        if value == self._decided:
            self.proposals.want(value, sender, now)
            self._expect_body(now)

    def _expect_body(self, now: float) -> None:
        """The decision is known: should its cut not come, ask for it without waiting to be told again."""
        if self.decision is None and self._resend_at == NEVER:
            self._pause = self._context.settings.gossip_interval
            self._resend_at = now + self._pause

    def _pull_decided(self, value: bytes, now: float) -> None:
        if value in self.proposals:
            self._resend_at = NEVER
            return
        for _ in range(_HOLDERS_ASKED):
            self._pull_from_voter(value, now)
        self._pause = min(2 * self._pause, self._context.settings.classic_retransmit)
        self._resend_at = now + self._pause

    def _decide(self, value: bytes) -> None:
        if self._decided is None:
            self._decided = value
            self.fallback_at = self._resend_at = NEVER
        elif self._decided != value:
            self._context.count("CONFLICTING DECISIONS")

    # Whose turn it is to coordinate.

    def _arm_fallback(self, now: float) -> None:
        if self.active_since is None:
            self.active_since = now
        if self.fallback_at == NEVER:
            settings = self._context.settings
            wait = settings.fallback_delay + self._turn() * settings.fallback_slot
            self.fallback_at = now + wait * (1 + 0.1 * self._context.rng.random())

    def _expedite_fallback(self, now: float) -> None:
        """Start classic rounds early when the fast round cannot succeed any more, or hardly."""
        if self._expedited or self._decided is not None or self.fallback_at == NEVER:
            return
        removals = self._candidate.removals if self._candidate is not None else ()
        dead = sum(1 for removal in removals if removal.failed)
        impossible = self._fast.impossible()
        if impossible or self._size - dead < fast_quorum(self._size):
            self._expedited = True
            settings = self._context.settings
            ticks = 1 if impossible else _SETTLE_TICKS
            wait = settings.gossip_interval * ticks + self._turn() * settings.fallback_slot
            self.fallback_at = min(self.fallback_at, now + wait * (1 + 0.1 * self._context.rng.random()))

    def _turn(self) -> int:
        """This member's place in the order of coordinators: ring 0 from a point the configuration id sets.

        Members that the own proposal removes as failed are passed over.
        """
        view = self._context.view
        start = bisect_left(view.rings.keys[0], int.from_bytes(view.id[:8], "big"))
        if self._rank is None:
            self._rank = (self._context.index - start) % self._size
        passed = 0
        if self._candidate is not None:
            for removal in self._candidate.removals:
                index = view.index_of_incarnation(removal.incarnation)
                if index is not None and not removal.left and (index - start) % self._size < self._rank:
                    passed += 1
        return self._rank - passed

    def _yield_to_other(self, now: float) -> None:
        """Another coordinator is at work: give it time, then take a turn again."""
        if self._proposer.phase in (Phase.IDLE, Phase.CHOOSING) or self._proposer.decided is not None:
            self._postpone(now)

    def _postpone(self, now: float) -> None:
        settings = self._context.settings
        before = max(0, self._acceptor.state.promised.round - _FIRST_CLASSIC)
        patience = _ROUND_SLOTS << min(before, _DOUBLINGS)
        wait = settings.fallback_slot * (patience + self._turn())
        self.fallback_at = now + wait * (1 + 0.5 * self._context.rng.random())

    # Classic rounds, as coordinator.

    def tick(self, now: float) -> None:
        """Repeat requests to silent acceptors; start a round when it is this member's turn."""
        if self._decided is not None:
            if now >= self._resend_at:
                self._pull_decided(self._decided, now)
        elif now >= self.fallback_at:
            self._start_round(now)
        elif now >= self._resend_at:
            self._resend(now)

    def _start_round(self, now: float) -> None:
        self._context.count("classic rounds started")
        ballot = self._proposer.start(self._acceptor.state.promised)
        self._accept = None
        self._postpone(now)
        self._resend_at = now + self._context.settings.classic_retransmit
        # Seen by the own acceptor first: from here on this member casts no fast vote.
        answer = self._acceptor.prepare(ballot)
        self._context.send_all(self._others(), messages.Prepare(*self._context.header, *ballot))
        if isinstance(answer, Promise):
            self._send_accept(self._proposer.on_promise(self._context.index, answer), now)

    def _resend(self, now: float) -> None:
        self._resend_at = now + self._context.settings.classic_retransmit
        waiting = [index for index in self._proposer.waiting_for() if index != self._context.index]
        addresses = [self._context.view.members[index].address for index in waiting]
        request = self._proposer.request
        if self._proposer.phase is Phase.PREPARING:
            self._context.send_all(addresses, messages.Prepare(*self._context.header, *self._proposer.ballot))
        elif self._accept is not None and self._accept.value not in self.proposals:
            self._pull_from_voter(self._accept.value, now)
        elif request is not None and self._proposer.phase is Phase.ACCEPTING:
            accept = messages.Accept(*self._context.header, *request.ballot, request.value)
            self._context.send_all(addresses, accept)

    def _others(self) -> list[Address]:
        members = self._context.view.members
        return [member.address for index, member in enumerate(members) if index != self._context.index]

    def _send_accept(self, request: AcceptRequest | None, now: float) -> None:
        """Ask all to accept, once the cut is known: acceptors pull it from the coordinator."""
        if request is None or self._decided is not None:
            return
        self._accept = request
        if request.value not in self.proposals:
            self._pull_from_voter(request.value, now)
            return
        accept = messages.Accept(*self._context.header, *request.ballot, request.value)
        self._context.send_all(self._others(), accept)
        self._accept_own(request)

    def _accept_own(self, request: AcceptRequest) -> None:
        if not self._is_durable(request.value):
            return
        answer = self._acceptor.accept(request.ballot, request.value)
        if isinstance(answer, Accepted):
            self._count_accepted(self._context.index, answer)

    def _pull_from_voter(self, value: bytes, now: float) -> None:
        voters = self._fast.votes.get(value, 0) & ~(1 << self._context.index)
        candidates = [index for index in range(self._size) if voters >> index & 1]
        if not candidates:  # it was accepted in a classic round only; anybody may have it
            candidates = [index for index in range(self._size) if index != self._context.index]
        if candidates:
            holder = self._context.view.members[self._context.rng.choice(candidates)]
            self.proposals.want(value, holder, now, at_once=True)

    def on_promised(self, message: messages.Promised, sender: int, now: float) -> None:
        """Phase 1b."""
        value = message.value or None
        voted = Ballot(message.voted_round, message.voted_coordinator)
        promise = Promise(Ballot(message.round, message.coordinator), voted, value)
        try:
            request = self._proposer.on_promise(sender, promise)
        except ConsensusError:
            self._context.drop("a promise that contradicts itself")
            return
        if value is not None and voted == Ballot.FAST and self._fast.add(value, 1 << sender):
            self._after_votes(value, now)
        if request is None and self._proposer.phase is Phase.CHOOSING and self._candidate is not None:
            request = self._proposer.propose(self._candidate.hash)
        self._send_accept(request, now)

    def on_accepted(self, message: messages.Accepted, sender: int) -> None:
        """Phase 2b, sent to the coordinator alone."""
        if self._accept is None:
            return
        ballot = Ballot(message.round, message.coordinator)
        self._count_accepted(sender, Accepted(ballot, self._accept.value))

    def _count_accepted(self, sender: int, accepted: Accepted) -> None:
        value = self._proposer.on_accepted(sender, accepted)
        if value is not None:
            self._decided_by_classic = True
            self._decide(value)

    def on_rejected(self, message: messages.Rejected, now: float) -> None:
        """Somebody has promised a higher ballot."""
        ballot = Ballot(message.round, message.coordinator)
        if ballot.is_classic and ballot > self._proposer.ballot:
            self._proposer.on_reject(Reject(self._proposer.ballot, ballot))

    # Classic rounds, as acceptor.

    def on_prepare(self, message: messages.Prepare, sender: Member, now: float) -> None:
        """Phase 1a."""
        ballot = Ballot(message.round, message.coordinator)
        answer = self._acceptor.prepare(ballot)
        if isinstance(answer, Reject):
            self._reject(answer, sender)
            return
        promised = messages.Promised(
            *self._context.header,
            *answer.ballot,
            *answer.accepted_ballot,
            answer.accepted_value or b"",
        )
        self._context.send(sender.address, promised)
        if answer.changed:
            self._yield_to_other(now)

    def on_accept(self, message: messages.Accept, sender: Member, now: float) -> None:
        """Phase 2a. Accepted only with the body at hand, or a decision could lose it, and when that is durable."""
        ballot = Ballot(message.round, message.coordinator)
        if ballot < self._acceptor.state.promised:
            self._reject(
                Reject(ballot, self._acceptor.state.promised), sender
            )  # nothing of it is written down
            return
        if message.value not in self.proposals:
            self._unanswered = (message, sender)
            self.proposals.want(message.value, sender, now)
            return
        if not self._is_durable(message.value):
            self._unanswered = (message, sender)
            return
        answer = self._acceptor.accept(ballot, message.value)
        if isinstance(answer, Reject):
            self._reject(answer, sender)
            return
        self._context.send(sender.address, messages.Accepted(*self._context.header, *ballot))
        if answer.changed:
            self._yield_to_other(now)

    def _reject(self, answer: Reject, sender: Member) -> None:
        self._context.send(sender.address, messages.Rejected(*self._context.header, *answer.promised))
