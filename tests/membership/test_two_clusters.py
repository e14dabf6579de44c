"""A founding after a power cut, cut through by kills and a partition at any moment: never two clusters.

Source: the rule of `refounding`. Before it, the founder and one other went on in the first view as soon as
they had it, and the other three, one of which was in that view and had not heard of it, founded the cluster once more:
28 of 40 seeds.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from chaos.simulated_cluster.message_faults import MessageFaults
from consensus import classic_quorum
from membership.protocol.context.effects import StableStateToSave
from membership.protocol.view.configuration import RESTART_STRIDE, Configuration
from tests.budget import budgeted
from tests.membership.test_power_cut import cut_power, running, start


def in_a_view_of_several(world) -> list[int]:
    return [
        number
        for number, host in enumerate(world.hosts)
        if host.process is not None and len(host.process.configuration or ()) > 1
    ]


def clusters(world) -> list[Configuration]:
    """The views that can go on: a majority of their members stand in them."""
    standing = Counter(
        core.configuration for core in world.cores if core.configuration and not core.gathering
    )
    return [view for view, count in standing.items() if count >= classic_quorum(len(view))]


def split(world, side: list[int]) -> list[int]:
    """Cut these off from the others, which are returned."""
    others = [number for number in range(world.nodes) if number not in side]
    world.simulator.network.partition([side, others])
    return others


def accepted(world) -> list[Configuration]:
    """The views that anybody has accepted so far."""
    return [view for _, _, event in world.seen(StableStateToSave) for view in event.state.accepted]


def heals(world) -> bool:
    world.simulator.network.heal()
    return world.run(90.0, lambda: world.together(world.nodes))


@pytest.mark.parametrize("seed", [1, 3, 5, 7, 9, 10, 11, 14, 15, 16, 17, 18])
def test_two_who_have_the_first_view_and_three_who_were_killed_before(cluster, seed: int) -> None:
    world = running(cluster, 5, seed)
    cut_power(world)
    start(world, range(5))
    assert world.run(40.0, lambda: len(in_a_view_of_several(world)) >= 2)
    others = split(world, in_a_view_of_several(world))
    cut_power(world, others)
    start(world, others)
    world.run(40.0)
    assert len(clusters(world)) <= 1
    assert heals(world)


@pytest.mark.parametrize("seed", range(6))
def test_three_go_on_without_two_who_alone_have_accepted_a_view(cluster, seed: int) -> None:
    """It counts for nobody, is never shown, and in the end those two come over."""
    world = running(cluster, 5, seed)
    cut_power(world)
    faults = MessageFaults(world.simulator, random.Random(seed), world.simulator.crash)
    faults.drop("FullConfiguration", 1.0, world.hosts[2:])
    start(world, range(5))
    assert world.run(40.0, lambda: bool(world.disks["h1"].accepted))
    faults.clear()
    cut_off = [next(number for number, core in enumerate(world.cores) if core.founded), 1]
    others = split(world, cut_off)
    cut_power(world, others)
    start(world, others)
    assert world.run(40.0, lambda: in_a_view_of_several(world) == others)
    world.run(20.0)
    assert in_a_view_of_several(world) == others
    assert heals(world)


@pytest.mark.parametrize("seed", range(12))
def test_an_epoch_that_was_shown_is_not_given_again_though_who_showed_it_lost_its_disk(
    cluster, seed: int
) -> None:
    """Found by `rota chaos fuzz --store`, seed 3180: one showed the view, and those who had promised had not heard."""
    world = running(cluster, 4, seed)
    cut_power(world)
    start(world, range(4))
    assert world.run(40.0, lambda: bool(in_a_view_of_several(world)))
    (shown,) = {world.cores[number].configuration for number in in_a_view_of_several(world)}
    (first, *_) = in_a_view_of_several(world)
    cut_power(world)
    del world.disks[f"h{first}"]
    start(world, range(4))
    assert world.run(60.0, lambda: world.together(4))
    assert min(view.epoch for view in clusters(world)) > shown.epoch + 1


@pytest.mark.parametrize("seed", budgeted(range(40), 10, in_test=10))
def test_one_cluster_whenever_a_founding_is_cut_through(cluster, seed: int) -> None:
    """Any side, any of it killed, at any moment of the founding, several times over."""
    rng = random.Random(seed)
    count = rng.randint(3, 6)
    world = running(cluster, count, seed)
    cut_power(world)
    start(world, range(count))
    for _ in range(rng.randint(1, 3)):
        began = len(accepted(world))
        world.run(40.0, lambda: len(accepted(world)) > began)  # noqa: B023
        world.run(rng.random() * 0.05)
        side = rng.sample(range(count), rng.randint(1, count - 1))
        split(world, side)
        killed = rng.sample(range(count), rng.randint(1, count))
        cut_power(world, killed)
        start(world, killed)
        world.run(rng.choice((5.0, 30.0)))
        assert len(clusters(world)) <= 1
    start(world, range(count))
    assert heals(world)
    assert world.epoch >= RESTART_STRIDE
