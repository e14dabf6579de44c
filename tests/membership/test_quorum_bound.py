"""How soon a side without a majority says so, and that it comes back by itself.

Source: the specification, section 3.7. The bound is stated at `Settings.quorum_timeout`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

import chaos.simulated_cluster.cluster
import chaos.simulation.simulator
from chaos import faults
from membership.protocol.context.effects import Event, Evicted, QuorumLost, QuorumRegained
from membership.runtime.join_diagnosis import unheard
from membership.settings import Settings
from tests.budget import budgeted

PRESETS = {"lan": Settings.lan(), "local": Settings.local(), "wan": Settings.wan()}
RESTING = 15.0
"""Probe intervals (seconds with the `lan` preset) after which all members rest."""
SEEDS = budgeted(range(12), 3, in_test=1)


def bound(settings: Settings) -> float:
    return settings.quorum_timeout + (settings.probe_failures + 3) * settings.probe_interval


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("nodes", "cut_off"), [(5, 2), (9, 1), (12, 4), (30, 7)])
def test_a_minority_says_so_within_the_bound_and_rejoins_by_itself(
    cluster, nodes: int, cut_off: int, preset: str, seed: int
) -> None:
    settings = PRESETS[preset]
    world = cluster(nodes, seed=seed, settings=settings)
    world.boot(300.0)
    world.run(RESTING * settings.probe_interval)
    minority = range(nodes - cut_off, nodes)
    world.simulator.network.partition([range(nodes - cut_off), minority])
    began = world.now
    small = {f"h{number}" for number in minority}
    lost: dict[str, float] = {}

    def all_know() -> bool:
        lost.update({name: at - began for at, name, _ in world.seen(QuorumLost)})
        return small <= lost.keys()

    world.run(2 * bound(settings), all_know)
    assert lost.keys() == small, "all of them, and nobody else"
    assert max(lost.values()) <= bound(settings)
    assert min(lost.values()) >= settings.quorum_timeout
    world.run(bound(settings))
    assert not world.seen(Evicted)
    view = world.hosts[-1].process.configuration
    assert len(view) == nodes, "it keeps its last view and installs nothing"
    world.simulator.network.heal()
    assert world.run(60 * settings.probe_interval, lambda: world.together(nodes))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("preset", PRESETS)
def test_an_even_split_says_so_on_both_sides_within_the_bound(cluster, preset: str, seed: int) -> None:
    settings = PRESETS[preset]
    world = cluster(8, seed=seed, settings=settings)
    world.boot(300.0)
    world.run(RESTING * settings.probe_interval)
    world.simulator.network.partition([range(4), range(4, 8)])
    began = world.now
    world.run(2 * bound(settings), lambda: len({name for _, name, _ in world.seen(QuorumLost)}) == 8)
    lost = {name: at - began for at, name, _ in world.seen(QuorumLost)}
    assert len(lost) == 8
    assert max(lost.values()) <= bound(settings)
    world.simulator.network.heal()
    assert world.run(bound(settings), lambda: len({name for _, name, _ in world.seen(QuorumRegained)}) == 8)


@pytest.mark.parametrize(
    ("nodes", "dead", "seed"),
    [
        (50, 26, 8),  # n12 had nearly all of its neighbours left, and never knew
        pytest.param(100, 52, 9, marks=pytest.mark.slow("a hundred simulated processes")),  # n67 likewise
        (10, 6, 1),
        (12, 11, 2),
        (33, 17, 3),
        pytest.param(200, 101, 4, marks=pytest.mark.slow("two hundred simulated processes")),
        pytest.param(500, 280, 280, marks=pytest.mark.sweep("five hundred simulated processes")),
        pytest.param(500, 498, 498, marks=pytest.mark.slow("five hundred simulated processes")),
    ],
)
def test_every_survivor_says_so_within_the_bound_whatever_its_neighbours(
    nodes: int, dead: int, seed: int
) -> None:
    world = chaos.simulated_cluster.cluster.Cluster(nodes, seed=seed, count_bytes=False)
    world.start()
    assert world.run(60.0, stop=lambda: world.converged() and world.views[-1].size == nodes)
    rng = random.Random(seed)
    world.run(world.now + RESTING + rng.random())
    victims = random.Random(seed * 7 + 1).sample(list(world.hosts), dead)
    began = world.now
    world.apply(faults.Crash(tuple(victims)))
    world.run(began + 2 * bound(world.settings))
    lost = {notice.host: notice.seconds - began for notice in world.quorum_notices}
    assert lost.keys() == world.hosts.keys() - set(victims)
    assert all(notice.lost for notice in world.quorum_notices), "and for good"
    assert max(lost.values()) <= bound(world.settings)


@pytest.mark.parametrize("seed", range(4))
def test_a_founder_whose_joiners_never_hear_of_their_view_says_so_and_can_recover(seed: int) -> None:
    """What fuzz seed 1664 leaves behind, when the founder lives: it alone knows whom it has admitted."""
    world = chaos.simulated_cluster.cluster.Cluster(4, seed=seed)
    events: list[Event] = []
    handle = world.simulator.on_events

    def listen(host: chaos.simulation.simulator.Host, happened: Sequence[Any]) -> None:
        events.extend(happened)
        handle(host, happened)

    world.simulator.on_events = listen
    world.apply(faults.DropMessages("FullConfiguration", 1.0, ("n1", "n2", "n3")))
    world.start(spread=0.0)
    assert world.run(30.0, stop=lambda: bool(world.quorum_notices))
    (notice,) = [event for event in events if isinstance(event, QuorumLost)]
    admitted = len(world.latest)
    assert admitted > 1
    assert (notice.unheard, notice.watched) == (admitted - 1, admitted - 1)
    assert f"{admitted - 1} of the {admitted - 1} members watched here have not been heard" in unheard(notice)
    world.message_faults.clear()
    assert world.run(world.now + 30.0, stop=world.converged), "it hands out the view by itself"


def test_who_loses_members_it_has_heard_does_not_speak_of_founding_anew(cluster) -> None:
    world = cluster(5, seed=1)
    world.boot()
    world.run(5.0)
    for host in world.hosts[2:]:
        world.simulator.crash(host)
    assert world.run(40.0, lambda: len(world.seen(QuorumLost)) == 2)
    assert {(event.unheard, event.watched) for _, _, event in world.seen(QuorumLost)} == {(0, 4)}
    assert unheard(QuorumLost(0, 4)) == unheard(QuorumLost()) == unheard(QuorumLost(2, 4)) == ""
