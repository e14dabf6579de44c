"""Cold start with `expect=N` and nobody told to found: exactly one cluster comes out.

Source: the specification, section 3.1 (safe cold start).
"""

from __future__ import annotations

import itertools
import random

import pytest

from chaos import NetworkSettings
from chaos.simulated_cluster.message_faults import MessageFaults
from membership.address import Address
from membership.protocol import messages as wire
from membership.protocol.context.effects import JoinWaiting
from membership.protocol.core import Core
from membership.protocol.view.view_difference import ViewChanged
from membership.settings import Settings

SEEDS = range(6)


def address(number: int) -> Address:
    return Address("10.0.0.1", 1000 + number)


def cold(cluster, count: int, *, seed: int, expect: int | None = None, named: int | None = None, **options):
    """Processes that all name the first `named` of them (all, by default); none is started yet."""
    world = cluster(0, seed=seed, **options)
    named = count if named is None else named
    for number in range(count):
        seeds = [address(other) for other in range(named) if other != number]
        world.add(number, found=False, expect=count if expect is None else expect, seeds=seeds)
    return world


def founders(world) -> set[bytes]:
    return {core.configuration.cluster_id for core in world.cores if core.configuration is not None}


@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize("count", [2, 3, 5, 12])
@pytest.mark.parametrize("spread", [0.0, 1.0, 60.0])
def test_all_start_alike_and_one_cluster_comes_out(cluster, count: int, loss: float, spread: float) -> None:
    for seed in SEEDS:
        world = cold(cluster, count, seed=seed, network=NetworkSettings(loss=loss))
        rng = random.Random(seed)
        for host in world.hosts:
            world.simulator.call_at(spread * rng.random(), lambda host=host: world.simulator.start(host))  # noqa: B023
        assert world.run(spread + 30.0, lambda: world.together(count)), f"seed {seed}"  # noqa: B023
        assert len(founders(world)) == 1
        sizes = {len(event.configuration) for _, _, event in world.seen(ViewChanged)}
        assert sizes == {1, count}, "the founder alone, and then everybody"
        assert sum(core.founded for core in world.cores) == 1
        assert world.hosts[0].process.founded, "the lowest address"


@pytest.mark.parametrize("seed", SEEDS)
def test_some_are_no_seeds(cluster, seed: int) -> None:
    """Seven processes, three of which everybody names; the others are heard through these only."""
    world = cold(cluster, 7, seed=seed, named=3)
    rng = random.Random(seed)
    for host in world.hosts:
        world.simulator.call_at(5 * rng.random(), lambda host=host: world.simulator.start(host))
    assert world.run(60.0, lambda: world.together(7))
    assert len(founders(world)) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_fewer_than_expected_wait_and_say_so(cluster, seed: int) -> None:
    world = cold(cluster, 5, seed=seed)
    for host in world.hosts[1:]:
        world.simulator.start(host)
    world.run(120.0)
    assert not world.seen(ViewChanged)
    reasons = {event.reason for _, _, event in world.seen(JoinWaiting)}
    assert "the cluster starts with 5 processes, 4 have met so far" in reasons
    world.simulator.start(world.hosts[0])
    assert world.run(30.0, lambda: world.together(5))
    assert len(founders(world)) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_the_lowest_comes_last_and_takes_over(cluster, seed: int) -> None:
    """The others are bound to the lowest of them already; it steps down, and they follow."""
    world = cold(cluster, 4, seed=seed)
    for number in (3, 2, 1, 0):
        world.simulator.start(world.hosts[number])
        world.run(3.0)
    assert world.run(30.0, lambda: world.together(4))
    assert world.hosts[0].process.founded


@pytest.mark.parametrize("seed", SEEDS)
def test_who_collects_dies_and_is_started_again(cluster, seed: int) -> None:
    world = cold(cluster, 4, seed=seed)
    for host in world.hosts[:3]:
        world.simulator.start(host)
    world.run(3.0)
    world.simulator.crash(world.hosts[0])
    world.run(3.0)
    world.simulator.start(world.hosts[3])
    world.run(10.0)
    assert not [
        core for core in world.cores if core.configuration is not None and len(core.configuration) > 1
    ]
    world.simulator.start(world.hosts[0])
    assert world.run(60.0, lambda: world.together(4))
    assert len(founders(world)) == 1


@pytest.mark.parametrize("seed", [*SEEDS, 7, 10])  # with 4, 7 and 10 a second one had heard of the first view
def test_who_founds_dies_before_anybody_hears_of_it_and_is_started_again(cluster, seed: int) -> None:
    """What it proposed is lost with it; it was not in force, and they choose anew."""
    world = cold(cluster, 4, seed=seed)
    message_faults = MessageFaults(world.simulator, random.Random(seed), world.simulator.crash)
    message_faults.crash_on("FullConfiguration", world.hosts)
    message_faults.drop("FullConfiguration", 1.0, world.hosts)
    for host in world.hosts:
        world.simulator.start(host)
    assert world.run(20.0, lambda: len(world.cores) == 3)
    assert {len(event.configuration) for _, _, event in world.seen(ViewChanged)} == {1}
    message_faults.clear()
    world.run(10.0)
    assert not founders(world)
    world.simulator.start(next(host for host in world.hosts if host.process is None))
    assert world.run(30.0, lambda: world.together(4))
    assert len(founders(world)) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_halves_that_cannot_meet_found_nothing_and_one_cluster_later(cluster, seed: int) -> None:
    """Enough processes on each side, but more than half of the seeds on neither."""
    world = cold(cluster, 6, seed=seed, expect=3)
    world.simulator.network.partition([[0, 1, 2], [3, 4, 5]])
    for host in world.hosts:
        world.simulator.start(host)
    world.run(60.0)
    assert not founders(world)
    world.simulator.network.heal()
    assert world.run(60.0, lambda: world.together(6))
    assert len(founders(world)) == 1


@pytest.mark.parametrize("seed", range(40))
def test_never_two_clusters_whatever_starts_and_dies(cluster, seed: int) -> None:
    """Random starts, crashes before anybody is in, partitions and loss: at most one cluster has members."""
    rng = random.Random(seed)
    count = rng.randint(3, 7)
    world = cold(cluster, count, seed=seed, network=NetworkSettings(loss=rng.choice((0.0, 0.1, 0.3))))
    for host in world.hosts:
        world.simulator.call_at(20 * rng.random(), lambda host=host: world.simulator.start(host))
    for _ in range(rng.randint(0, 3)):
        cut = rng.sample(range(count), rng.randint(1, count - 1))
        world.simulator.call_at(20 * rng.random(), lambda cut=cut: world.simulator.network.partition([cut]))
    world.simulator.call_at(25.0, world.simulator.network.heal)
    assert world.run(90.0, lambda: world.together(count))
    assert len(founders(world)) == 1
    assert sum(core.founded for core in world.cores) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_with_a_cluster_there_nobody_founds_another(cluster, seed: int) -> None:
    world = cluster(3, seed=seed)
    world.boot()
    for number in range(3, 6):
        seeds = [address(other) for other in range(6) if other != number]
        world.add(number, found=False, expect=3, seeds=seeds, start_at=world.now)
    assert world.run(30.0, lambda: world.together(6))
    assert len(founders(world)) == 1


def test_a_promise_is_given_to_one_candidate_and_not_taken_back_while_it_may_found(lab) -> None:
    def core(number: int, others: tuple[int, ...]) -> Core:
        made = Core(
            lab.member(number),
            seeds=[lab.member(other).address for other in others],
            settings=Settings(),
            rng=random.Random(number),
            expect=3,
        )
        made.start(0.0)
        return made

    def question(number: int, turn: int = 0, follows: bytes = b"") -> wire.ColdStart:
        return wire.ColdStart(lab.member(number), True, turn, follows, 0, True)

    def promised(made: Core) -> bytes:
        (answer,) = lab.sent(made.receive(lab.member(9).address, question(9), 1.0), wire.ColdStart)
        follows: bytes = answer.follows
        return follows

    made = core(5, (2, 3, 9))
    made.receive(lab.member(3).address, question(3), 0.1)
    assert promised(made) == lab.member(3).incarnation
    made.receive(lab.member(2).address, question(2), 0.2)
    assert promised(made) == lab.member(3).incarnation, "a lower one alone is no reason"
    made.receive(lab.member(3).address, question(3, 1, lab.member(2).incarnation), 0.3)
    assert promised(made) == lab.member(2).incarnation, "the first one promised itself: free"
    again = lab.member(2, incarnation=7)
    made.receive(again.address, wire.ColdStart(again, True, 0, b"", 0, True), 0.4)
    assert promised(made) == again.incarnation, "another process at its address: the old one is dead"


def test_an_earlier_promise_does_not_count_after_following_somebody(lab) -> None:
    """The turn says for which candidacy a promise was given."""
    made = Core(
        lab.member(3),
        seeds=[lab.member(2).address, lab.member(5).address],
        settings=Settings(),
        rng=random.Random(1),
        expect=3,
    )
    made.start(0.0)
    lower, follower, third = lab.member(2), lab.member(5), lab.member(6)
    me = made.me.incarnation
    made.receive(lower.address, wire.ColdStart(lower, True, 0, b"", 0, True), 0.1)
    reborn = lab.member(2, incarnation=1)
    made.receive(reborn.address, wire.ColdStart(reborn, False, 0, me, 0, True), 0.2)
    for member, turn in itertools.product((follower, third), (0,)):
        made.receive(member.address, wire.ColdStart(member, True, 0, me, turn, True), 0.3)
    assert not made.founded, "these were given before it followed the first"
    for member in (follower, third, reborn):
        made.receive(member.address, wire.ColdStart(member, member is not reborn, 0, me, 1, True), 0.4)
    assert made.founded
