"""Agreement on the cut: fast round, classic fallback, and the known ways to get them wrong.

Source: Rapid section 4.3; Lamport, Fast Paxos. The quorums and the value rule have their own tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from consensus import fast_quorum
from membership.protocol import messages as wire
from membership.protocol.agreement.view_change import ViewChange
from membership.protocol.context.context import NEVER, Context
from membership.protocol.view.cut import Cut, Removal


class Table:
    """Members of one configuration around a table: messages are carried by hand, and may be lost."""

    def __init__(self, lab, size: int) -> None:
        self.view = lab.configuration(size)
        self.contexts: list[Context] = [lab.context(self.view, index, seed=index) for index in range(size)]
        self.changes = [ViewChange(context) for context in self.contexts]
        self.dead: set[int] = set()
        self.lost: Callable[[int, int, Any], bool] = lambda sender, receiver, message: False
        self.log: list[tuple[int, int, Any]] = []
        self.now = 0.0

    def cut(self, *removed: int) -> Cut:
        return Cut.of([], [Removal(self.view.members[index].incarnation) for index in removed])

    def vote(self, index: int, cut: Cut) -> None:
        self.changes[index].propose(cut, self.now)

    def gossip(self) -> None:
        """Everybody tells everybody its votes."""
        alive = [index for index in range(len(self.changes)) if index not in self.dead]
        for sender in alive:
            votes = self.changes[sender].encoded_votes(8)
            for receiver in alive:
                if receiver != sender:
                    self.changes[receiver].merge_votes(votes, self.view.members[sender], self.now)
        self.carry()

    def carry(self) -> None:
        """Deliver what was sent until nothing is under way."""
        while True:
            under_way = []
            for sender, context in enumerate(self.contexts):
                for send in context.take_effects(NEVER).sends:
                    receivers = [self.view.index_of_address(address) for address in send.destinations]
                    under_way += [(sender, receiver, send.message) for receiver in receivers]
            if not under_way:
                return
            for sender, receiver, message in under_way:
                if sender in self.dead or receiver in self.dead or self.lost(sender, receiver, message):
                    continue
                self.log.append((sender, receiver, message))
                self.deliver(sender, receiver, message)

    def deliver(self, sender: int, receiver: int, message: Any) -> None:
        change, member, now = self.changes[receiver], self.view.members[sender], self.now
        match message:
            case wire.Prepare():
                change.on_prepare(message, member, now)
            case wire.Promised():
                change.on_promised(message, sender, now)
            case wire.Accept():
                change.on_accept(message, member, now)
            case wire.Accepted():
                change.on_accepted(message, sender)
            case wire.Rejected():
                change.on_rejected(message, now)
            case wire.PullCut():
                change.proposals.on_pull(message, member)
            case wire.CutBody():
                change.on_body(message, now)
            case _:
                raise AssertionError(message)

    def pass_time(self, until: float, stop: Callable[[], bool] = lambda: False) -> None:
        while True:
            if stop():
                return
            alive = [c for index, c in enumerate(self.changes) if index not in self.dead]
            soonest = min((change.deadline for change in alive), default=NEVER)
            if soonest > until:
                break
            self.now = soonest
            for change in alive:
                change.tick(self.now)
            self.carry()
        self.now = until

    @property
    def decisions(self) -> set[bytes]:
        return {change.decision.hash for change in self.changes if change.decision is not None}

    def counted(self, kind: type[Any]) -> int:
        return sum(isinstance(message, kind) for _, _, message in self.log)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 10, 48])
def test_a_fast_quorum_of_identical_votes_decides(lab, size: int) -> None:
    table = Table(lab, size)
    cut = Cut.of([lab.member(900)])
    quorum = fast_quorum(size)
    table.dead = set(range(quorum - 1, size))
    for index in range(quorum - 1):
        table.vote(index, cut)
    table.gossip()
    assert table.decisions == set()
    table.dead.discard(quorum - 1)
    table.vote(quorum - 1, cut)
    table.gossip()
    assert table.decisions == {cut.hash}
    assert all(change.decision == cut for change in table.changes[:quorum])


def test_b2_after_a_classic_promise_no_fast_vote_is_cast_or_gossiped(lab) -> None:
    """With it, two values can be decided among five."""
    table = Table(lab, 5)
    member = table.view.members[1]
    table.changes[0].on_prepare(wire.Prepare(*table.contexts[1].header, 2, 1), member, 0.0)
    table.vote(0, table.cut(4))
    assert table.changes[0].encoded_votes(8) == ()
    # Nor by adopting what a majority voted.
    for index in (1, 2, 3):
        table.vote(index, table.cut(4))
    table.gossip()
    assert all(not bitmap & 1 for bitmap in table.changes[0]._fast.votes.values())


def test_b3_a_repeated_promise_counts_once(lab) -> None:
    table = Table(lab, 5)
    coordinator = table.changes[0]
    table.vote(0, table.cut(4))
    table.lost = lambda sender, receiver, message: True
    table.pass_time(20.0, stop=lambda: coordinator._proposer.ballot.is_classic)
    ballot = coordinator._proposer.ballot
    promise = wire.Promised(*table.contexts[1].header, *ballot, 0, 0, b"")
    for _ in range(3):
        coordinator.on_promised(promise, 1, table.now)
    assert not table.contexts[0].take_effects(NEVER).sends or coordinator._proposer.request is None
    coordinator.on_promised(promise, 2, table.now)
    assert coordinator._proposer.request is not None, "three distinct members of five are a majority"


def test_b4_a_decided_cut_that_is_unknown_here_is_pulled_first(lab) -> None:
    table = Table(lab, 5)
    cut = Cut.of([lab.member(900)])
    laggard = table.changes[0]
    votes = ((cut.hash, (0b11110).to_bytes(1, "little")),)
    for index in range(1, 5):
        table.vote(index, cut)
    laggard.merge_votes(votes, table.view.members[1], 0.0)
    assert laggard.decision is None
    assert laggard._decided == cut.hash
    table.carry()
    assert laggard.decision == cut
    assert table.counted(wire.PullCut) == 1


def test_a_cut_that_was_not_asked_for_is_not_taken(lab) -> None:
    table = Table(lab, 3)
    body = wire.CutBody(*table.contexts[1].header, Cut.of([lab.member(900)]))
    table.changes[0].on_body(body, 0.0)
    assert table.contexts[0].counters["dropped: a cut that nobody asked for"] == 1


def test_a_member_adopts_what_a_majority_votes(lab) -> None:
    table = Table(lab, 5)
    cut = table.cut(4)
    for index in (1, 2, 3):
        table.vote(index, cut)
    table.gossip()
    assert table.changes[0]._acceptor.state.accepted_value == cut.hash
    table.gossip()
    assert table.decisions == {cut.hash}


class TestForgedVotes:
    def test_b14_a_vote_of_this_member_that_it_did_not_cast(self, lab) -> None:
        table = Table(lab, 5)
        value = table.cut(4).hash
        table.changes[0].merge_votes(((value, b"\x1f"),), table.view.members[1], 0.0)
        assert not table.changes[0]._fast.votes.get(value, 0) & 1
        assert "dropped: a vote of this member that it did not cast" in table.contexts[0].counters

    def test_votes_of_members_that_are_not_there(self, lab) -> None:
        table = Table(lab, 5)
        table.changes[0].merge_votes(((bytes(16), b"\xff"),), table.view.members[1], 0.0)
        assert table.changes[0].vote_bits == 0


class TestFallback:
    def split(self, table: Table, dead: tuple[int, ...] = ()) -> tuple[Cut, Cut]:
        """Votes so divided that the fast round cannot decide."""
        size = len(table.changes)
        one, two = table.cut(size - 1), table.cut(size - 1, size - 2)
        table.dead = set(dead)
        for index in range(size):
            if index not in table.dead:
                table.vote(index, one if index % 2 else two)
        return one, two

    @pytest.mark.parametrize("size", [3, 4, 5, 8, 20])
    def test_divided_votes_are_settled_by_a_classic_round(self, lab, size: int) -> None:
        table = Table(lab, size)
        cuts = self.split(table)
        table.gossip()
        assert table.decisions == set()
        table.pass_time(5.0, stop=lambda: bool(table.decisions))
        assert len(table.decisions) == 1
        assert table.decisions <= {cut.hash for cut in cuts}
        assert table.now < 1.0, "a fast round known to be impossible is not waited for"

    def test_one_round_costs_at_most_four_messages_per_member_and_one_to_tell(self, lab) -> None:
        """The single collector of the specification: 5 N, not N squared."""
        size = 20
        table = Table(lab, size)
        self.split(table)
        table.gossip()
        table.log.clear()
        table.pass_time(5.0, stop=lambda: bool(table.decisions))
        kinds = (wire.Prepare, wire.Promised, wire.Accept, wire.Accepted)
        assert sum(table.counted(kind) for kind in kinds) <= 4 * (size - 1)

    @pytest.mark.parametrize("dies_after", [wire.Prepare, wire.Accept])
    def test_b5_when_the_coordinator_dies_another_takes_over(self, lab, dies_after: type[Any]) -> None:
        table = Table(lab, 7)
        self.split(table)
        table.gossip()

        def lost(sender: int, receiver: int, message: Any) -> bool:
            if isinstance(message, dies_after) and not table.dead:
                table.dead.add(sender)
                return False
            return False

        table.lost = lost
        table.pass_time(60.0, stop=lambda: len(table.dead) == 1 and bool(table.decisions))
        assert len(table.dead) == 1
        assert len(table.decisions) == 1

    def test_a_value_accepted_by_a_majority_survives_its_coordinator(self, lab) -> None:
        """Its acceptances are lost and it dies; whoever follows must find the same value."""
        table = Table(lab, 5)
        self.split(table)
        table.gossip()
        table.lost = lambda sender, receiver, message: isinstance(message, wire.Accepted) and not table.dead
        table.pass_time(5.0, stop=lambda: table.counted(wire.Accept) == 4)
        accepted = {
            change._acceptor.state.accepted_value
            for change in table.changes
            if change._acceptor.state.accepted_ballot.is_classic
        }
        assert len(accepted) == 1
        coordinator = next(sender for sender, _, message in table.log if isinstance(message, wire.Accept))
        table.dead = {coordinator}
        table.pass_time(60.0, stop=lambda: bool(table.decisions))
        assert table.decisions == accepted

    def test_everybody_alone_starts_no_stampede(self, lab) -> None:
        """The votes are divided and everybody knows: with turns in hash order hardly anybody starts."""
        table = Table(lab, 60)
        self.split(table)
        table.gossip()
        table.pass_time(10.0, stop=lambda: bool(table.decisions))
        started = sum(context.counters.get("classic rounds started", 0) for context in table.contexts)
        assert started <= 3

    def test_the_dead_are_passed_over(self, lab) -> None:
        """Three of eight died: the fast quorum is out of reach, and no turn waits for them."""
        table = Table(lab, 8)
        table.dead = {5, 6, 7}
        cut = table.cut(5, 6, 7)
        for index in range(5):
            table.vote(index, cut)
        table.gossip()
        table.pass_time(10.0, stop=lambda: len(table.decisions) == 1)
        assert table.decisions == {cut.hash}
        assert table.now < 1.0

    def test_without_a_majority_nothing_is_ever_decided(self, lab) -> None:
        table = Table(lab, 6)
        table.dead = {3, 4, 5}
        for index in range(3):
            table.vote(index, table.cut(3, 4, 5))
        table.gossip()
        table.pass_time(120.0)
        assert table.decisions == set()


def test_rounds_that_take_long_are_given_longer_before_a_higher_one(lab) -> None:
    """On a busy machine every answer takes seconds; coordinators that overtake each other would never end."""
    table = Table(lab, 10)
    seconds = 2.0
    for index in range(10):
        table.vote(index, table.cut(9) if index % 2 else table.cut(8))
    under_way: list[tuple[float, int, int, Any]] = []

    def delay(sender: int, receiver: int, message: Any) -> bool:
        under_way.append((table.now + seconds / 2, sender, receiver, message))
        return True

    table.lost = delay
    while table.now < 60.0 and not any(change.decision for change in table.changes):
        table.pass_time(table.now + 0.05)
        due = [each for each in under_way if each[0] <= table.now]
        under_way[:] = [each for each in under_way if each[0] > table.now]
        for _, sender, receiver, message in due:
            table.deliver(sender, receiver, message)
        table.carry()
    assert len(table.decisions) == 1
