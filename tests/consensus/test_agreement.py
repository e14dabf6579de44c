"""Nothing is ever decided twice, and somebody who is left alone decides: random schedules of everything.

The network is a bag of messages; Hypothesis draws which one is delivered, repeated or lost, who votes,
who starts a round, and who crashes and restarts with its durable record only.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consensus import (
    Accepted,
    Acceptor,
    AcceptorState,
    AcceptRequest,
    Ballot,
    FastRound,
    Phase,
    Promise,
    Proposer,
    Reject,
    fast_quorum,
)
from tests.budget import budgeted

Payload = Ballot | AcceptRequest | Promise | Accepted | Reject


@dataclass
class Server:
    """One member: durable acceptor, volatile proposer."""

    index: int
    n: int
    disk: AcceptorState = field(default_factory=AcceptorState)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.acceptor = Acceptor(self.disk)
        self.proposer = Proposer(self.n, self.index, b"own-%d" % self.index)

    def ask(self, request: Ballot | AcceptRequest) -> Promise | Accepted | Reject:
        if isinstance(request, AcceptRequest):
            answer: Promise | Accepted | Reject = self.acceptor.accept(request.ballot, request.value)
        else:
            answer = self.acceptor.prepare(request)
        if not isinstance(answer, Reject) and answer.changed:
            self.disk = self.acceptor.state
        return answer


class Group:
    """n servers, the bag of messages between them, and every decision anybody came to."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.servers = [Server(index, n) for index in range(n)]
        self.bag: list[tuple[int, int, Payload]] = []
        self.tallies = [FastRound(n) for _ in range(n)]
        self.fast_votes: dict[int, bytes] = {}
        self.decisions: dict[bytes, str] = {}

    def vote(self, member: int, value: bytes) -> None:
        server = self.servers[member]
        if server.acceptor.vote_fast(value):
            server.disk = server.acceptor.state
            self.fast_votes[member] = value
            if list(self.fast_votes.values()).count(value) >= fast_quorum(self.n):
                self.decide(value, "fast quorum of votes cast")

    def merge(self, member: int, voter: int) -> None:
        if voter in self.fast_votes:
            tally = self.tallies[member]
            tally.add(self.fast_votes[voter], 1 << voter)
            decided = tally.decided()
            if decided is not None:
                self.decide(decided, f"fast round at {member}")

    def start(self, member: int) -> None:
        server = self.servers[member]
        if server.proposer.phase is Phase.DECIDED:
            return
        ballot = server.proposer.start(above=server.acceptor.state.promised)
        # The own acceptor promises durably first: after a restart the ballot is known to be used.
        self.receive(member, member, server.ask(ballot))
        self.broadcast(member, ballot)

    def broadcast(self, member: int, request: Ballot | AcceptRequest) -> None:
        self.bag.extend((member, other, request) for other in range(self.n))

    def receive(self, source: int, destination: int, payload: Payload) -> None:
        server = self.servers[destination]
        if isinstance(payload, Ballot | AcceptRequest):
            self.bag.append((destination, source, server.ask(payload)))
        elif isinstance(payload, Promise):
            request = server.proposer.on_promise(source, payload)
            if request is not None:
                self.broadcast(destination, request)
        elif isinstance(payload, Accepted):
            value = server.proposer.on_accepted(source, payload)
            if value is not None:
                self.decide(value, f"classic round of {destination}")
        else:
            server.proposer.on_reject(payload)

    def decide(self, value: bytes, how: str) -> None:
        self.decisions.setdefault(value, how)
        assert len(self.decisions) == 1, f"decided twice: {self.decisions}"

    def finish_alone(self, member: int) -> None:
        """No more duels and no more loss: `member` starts rounds until it decides."""
        self.bag.clear()
        for _ in range(3):
            if self.servers[member].proposer.phase is Phase.DECIDED:
                return
            self.start(member)
            while self.bag:
                self.receive(*self.bag.pop(0))
        assert self.servers[member].proposer.phase is Phase.DECIDED


def act(group: Group, action: int, a: int, b: int) -> None:
    """One step of a schedule: what and who come from the three numbers."""
    member = a % group.n
    if action == 0:
        group.vote(member, (b"x", b"y", b"z")[b % 3])
    elif action == 1:
        group.merge(member, b % group.n)
    elif action == 2:
        group.start(member)
    elif action == 3:
        group.servers[member].restart()
    elif group.bag:
        position = (a * 8191 + b) % len(group.bag)
        if action == 4:
            group.bag.pop(position)  # lost
        elif action == 5:
            group.receive(*group.bag[position])  # delivered, and a copy stays for later
        else:
            group.receive(*group.bag.pop(position))


steps = st.tuples(st.integers(0, 20), st.integers(0, 400), st.integers(0, 400))


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 7), st.lists(steps, max_size=120))
def test_no_schedule_decides_two_values(n: int, script: list[tuple[int, int, int]]) -> None:
    group = Group(n)
    for step in script:
        act(group, *step)
    group.finish_alone(0)
    assert len(group.decisions) == 1


def run(seed: int) -> None:
    rng = random.Random(seed)
    group = Group(rng.randint(1, 9))
    favourite = rng.randrange(3)
    for _ in range(rng.randint(20, 400)):
        action = rng.choices(range(7), [6, 6, 1, 1, 2, 2, 20])[0]
        # Most votes agree, as they do in a view change; otherwise fast quorums would be too rare.
        b = favourite if action == 0 and rng.random() < 0.8 else rng.randrange(400)
        act(group, action, rng.randrange(400), b)
    group.finish_alone(rng.randrange(group.n))
    assert len(group.decisions) == 1


@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_random_schedules_with_agreeing_votes(first: int) -> None:
    for seed in range(first, first + 100):
        run(seed)


@pytest.mark.parametrize("first", budgeted(range(1000, 50_000, 7000), 1))
def test_many_random_schedules(first: int) -> None:
    for seed in range(first, first + 7000):
        run(seed)


def test_b2_a_group_of_five_that_voted_after_promising_would_have_decided_twice() -> None:
    """The history behind B2: three fast votes, a classic round that is free to choose, then a fourth vote."""
    group = Group(5)
    for member in (0, 1):
        group.vote(member, b"x")
    group.vote(2, b"y")
    ballot = group.servers[4].proposer.start()
    for member in (2, 3, 4):
        promise = group.servers[member].ask(ballot)
        assert isinstance(promise, Promise)
        group.receive(member, 4, promise)
    request = group.servers[4].proposer.request
    assert request == AcceptRequest(ballot, b"y")
    for member in (2, 3, 4):
        group.receive(member, 4, group.servers[member].ask(request))
    assert list(group.decisions) == [b"y"]
    for member in (3, 4):  # the late fast votes: with them x would have its four
        group.vote(member, b"x")
    assert list(group.fast_votes.values()).count(b"x") == 2


def test_dueling_proposers_starve_only_as_long_as_they_duel() -> None:
    group = Group(3)
    for _ in range(50):  # each prepares just before the other's accept requests arrive
        for member in (0, 1):
            group.start(member)
            prepares = [item for item in group.bag if isinstance(item[2], Ballot)]
            group.bag = [item for item in group.bag if not isinstance(item[2], Ballot)]
            for item in prepares:
                group.receive(*item)
            answers = [item for item in group.bag if isinstance(item[2], Promise | Reject)]
            group.bag = [item for item in group.bag if not isinstance(item[2], Promise | Reject)]
            for item in answers:
                group.receive(*item)
    assert len(group.decisions) <= 1
    group.finish_alone(1)
    assert len(group.decisions) == 1


def test_b5_another_member_finishes_what_a_dead_coordinator_began() -> None:
    for dies_after in ("prepare", "accept"):
        group = Group(5)
        group.start(0)
        while group.bag and not (
            dies_after == "accept" and any(isinstance(item[2], AcceptRequest) for item in group.bag)
        ):
            if dies_after == "prepare":
                group.bag.clear()
            else:
                group.receive(*group.bag.pop(0))
        if dies_after == "accept":  # one member accepts, then the coordinator is gone
            request = next(item for item in group.bag if isinstance(item[2], AcceptRequest))
            group.servers[3].ask(request[2])  # type: ignore[arg-type]
        group.bag.clear()
        group.finish_alone(4)
        assert len(group.decisions) == 1
