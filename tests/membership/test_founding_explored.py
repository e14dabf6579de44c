"""Foundings and foundings anew, explored exhaustively within a bound: one cluster, and everybody comes into it."""

from __future__ import annotations

import pytest

from membership.protocol.context.stable_storage import StableState
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut
from tests.membership.exploration import SETTINGS, Host, World, explore, member


def started(world: World) -> World:
    for host in world.hosts:
        world.start(host)
    return world


def cold(expect: int) -> World:
    """Nobody was in any view."""
    return started(World([Host(number, expect=expect, processes=1) for number in range(3)]))


def after_a_power_cut(lost: frozenset[int] = frozenset(), superseded: frozenset[int] = frozenset()) -> World:
    """All were in one view; some have lost their disks, or were removed from the view that they remember."""
    founder, *others = (member(number, 0) for number in range(3))
    view = Configuration.found(founder, b"cluster-for-test", SETTINGS.rings).apply(Cut.of(others))
    disks = [StableState() if number in lost else StableState(view) for number in range(3)]
    return started(
        World([Host(number, disks[number], number in superseded, processes=1) for number in range(3)])
    )


WORLDS = {
    "cold start, two of three": lambda: cold(2),
    "cold start, all three": lambda: cold(3),
    "power cut": after_a_power_cut,
    "power cut, one disk lost": lambda: after_a_power_cut(lost=frozenset({1})),
    "power cut, one was removed": lambda: after_a_power_cut(superseded=frozenset({0})),
}


@pytest.mark.parametrize("world", WORLDS)
def test_one_cluster_whatever_happens_once(world: str) -> None:
    assert explore(WORLDS[world], 1) > 10
