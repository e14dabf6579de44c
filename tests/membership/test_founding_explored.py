"""Foundings and foundings anew, explored exhaustively within a bound: one cluster, and everybody comes into it."""

from __future__ import annotations

import pytest

from membership.protocol.context.stable_storage import StableState
from membership.protocol.core.dispatch import Dispatcher
from membership.protocol.lifecycle.founder_election import FounderElection
from membership.protocol.lifecycle.refounding import Refounding
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut, Removal
from membership.protocol.view.member import Member
from tests.membership.exploration import (
    KINDS,
    SETTINGS,
    Deviation,
    ExplorationError,
    Host,
    World,
    explore,
    finish,
    member,
    run,
)


def started(world: World) -> World:
    for host in world.hosts:
        world.start(host)
    return world


def cold(expect: int) -> World:
    """Nobody was in any view."""
    return started(World([Host(number, expect=expect, processes=1) for number in range(3)]))


def of_all() -> Configuration:
    founder, *others = (member(number, 0) for number in range(3))
    return Configuration.found(founder, b"cluster-for-test", SETTINGS.rings).apply(Cut.of(others))


def after_a_power_cut(lost: frozenset[int] = frozenset(), copied: frozenset[int] = frozenset()) -> World:
    """All were in one view; some have lost their disks, or got copies of them."""
    view = of_all()
    disks = [StableState() if number in lost else StableState(view) for number in range(3)]
    return started(World([Host(number, disks[number], number in copied, processes=1) for number in range(3)]))


def after_a_removal(*, is_told: bool) -> World:
    """Two of three have voted for the next view, without them; the one that is in it was told of it or not."""
    view = of_all()
    removed = view.members[view.index_of("n1") or 0], view.members[view.index_of("n2") or 0]
    after = view.apply(Cut.of((), [Removal(each.incarnation) for each in removed]))
    disks = [StableState(after if is_told else view), *2 * [StableState(view, (after,))]]
    return started(World([Host(number, disk, processes=1) for number, disk in enumerate(disks)]))


WORLDS = {
    "cold start, two of three": lambda: cold(2),
    "cold start, all three": lambda: cold(3),
    "power cut": after_a_power_cut,
    "power cut, one disk lost": lambda: after_a_power_cut(lost=frozenset({1})),
    "power cut, one disk is a copy": lambda: after_a_power_cut(copied=frozenset({0})),
    "most were removed": lambda: after_a_removal(is_told=True),
    "most were removed, and only they know": lambda: after_a_removal(is_told=False),
}


ALWAYS = ("cold start, two of three", "power cut")
EACH = [
    pytest.param(world, marks=() if world in ALWAYS else pytest.mark.slow("hundreds of schedules more"))
    for world in WORLDS
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", EACH)
def test_one_cluster_whatever_happens_once(world: str, kind: str) -> None:
    assert explore(WORLDS[world], 1, [kind]) > 1


@pytest.mark.sweep("tens of thousands of schedules")
@pytest.mark.parametrize("world", WORLDS)
def test_one_cluster_whatever_happens_twice(world: str) -> None:
    assert explore(WORLDS[world], 2) > 1000


def test_a_vote_that_came_to_nothing_does_not_keep_those_apart_who_are_all_there() -> None:
    """Found by two deviations: one had voted to let another in, and the third had accepted the view before, and never
    heard that it was in force."""
    schedule = (Deviation(35, "blink", 0), Deviation(93, "cut power", 2))
    world, _ = run(WORLDS["cold start, two of three"], schedule)
    finish(world)


def test_who_may_still_be_let_into_an_earlier_view_does_not_count_before_it_has_accepted_the_next() -> None:
    """Found by two deviations: one that was alone in the view it remembers had let two others in, of whom one never
    heard of it; it founded on the word of that one, which then came into the earlier view as the member it was."""
    schedule = (Deviation(20, "cut off", 2), Deviation(34, "cut power", 0))
    world, _ = run(WORLDS["most were removed"], schedule)
    finish(world)


def test_a_founder_that_decides_alone_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it did before others had to accept its view: it dies, and the others wait for it for ever."""

    def propose(self: Refounding, joiners: list[Member], asking: Member, now: float) -> None:
        waits_for_others(self, joiners, asking, now)
        self.on_accepted(now)

    waits_for_others = Refounding.propose
    monkeypatch.setattr(Refounding, "propose", propose)
    monkeypatch.setattr(FounderElection, "is_in_force", True)
    # Nor did it give up a view of which half came back and knew nothing.
    monkeypatch.setattr(Dispatcher, "_gives_up_for_joiner", lambda *_: False)
    with pytest.raises(ExplorationError):
        explore(WORLDS["cold start, two of three"], 1, ["cut power"])
