"""Who says that the majority is gone when links are open one way only, against a brute-force twin.

The twin knows the directed links and computes the sides, by transitive closure, and who answers whom. See
`quorum_watch` for what is promised and `Settings.quorum_timeout` for the bound.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import chaos
from chaos import faults
from chaos.simulation.host import Host
from consensus import classic_quorum
from membership.protocol.context.effects import Evicted
from membership.protocol.view.view_difference import ViewChanged
from membership.settings import Settings
from tests.budget import budgeted
from tests.membership.test_quorum_bound import RESTING, bound

Links = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Trouble:
    """What happens to a cluster, all at one moment."""

    dead: frozenset[int] = frozenset()
    deaf: frozenset[int] = frozenset()
    mute: frozenset[int] = frozenset()
    blocked: Links = frozenset()

    def faults(self) -> list[faults.Fault]:
        """In the vocabulary of `chaos`."""
        found: list[faults.Fault] = [faults.Block(f"n{a}", f"n{b}") for a, b in sorted(self.blocked)]
        if self.dead:
            found.append(faults.Crash(_names(self.dead)))
        if self.deaf:
            found.append(faults.DropIngress(1.0, _names(self.deaf)))
        if self.mute:
            found.append(faults.DropEgress(1.0, _names(self.mute)))
        return found


def _names(members: Iterable[int]) -> tuple[str, ...]:
    return tuple(f"n{member}" for member in sorted(members))


# The family of troubles: what is drawn for a cluster of this size.

Draw = Callable[[int, random.Random], Trouble]


def sick(
    gone: Callable[[int, random.Random], int], parts: Sequence[str], size: int, rng: random.Random
) -> Trouble:
    """So many members are dead, deaf or mute."""
    members: dict[str, set[int]] = {"dead": set(), "deaf": set(), "mute": set()}
    for member in rng.sample(range(size), gone(size, rng)):
        members[rng.choice(parts)].add(member)
    dead, deaf, mute = map(frozenset, members.values())
    return Trouble(dead, deaf, mute)


def groups(dead: int, size: int, rng: random.Random) -> Trouble:
    """Nothing passes from one group to the other; the way back is open. Up to a third of all is dead, too."""
    order = rng.sample(range(size), size)
    gone = rng.randint(1, max(1, size // 3)) if dead else 0
    first = rng.randint(gone + 1, size - 1)
    blocked = frozenset((a, b) for a in order[gone:first] for b in order[first:])
    return Trouble(dead=frozenset(order[:gone]), blocked=blocked)


def cycle(size: int, rng: random.Random) -> Trouble:
    """Three groups, each of which reaches only one of the others: news comes round, and nobody is answered."""
    order = rng.sample(range(size), size)
    parts = [order[part::3] for part in range(3)]
    return Trouble(blocked=frozenset((a, b) for i in range(3) for a in parts[i] for b in parts[(i + 1) % 3]))


def links(size: int, rng: random.Random) -> Trouble:
    """Each link is blocked or open for itself."""
    share = rng.choice([0.1, 0.3, 0.5, 0.7, 0.9])
    pairs = ((a, b) for a in range(size) for b in range(size) if a != b)
    return Trouble(blocked=frozenset(pair for pair in pairs if rng.random() < share))


def _any(size: int, rng: random.Random) -> int:
    return rng.randint(1, size - 1)


def _one_too_many(size: int, rng: random.Random) -> int:
    return size - classic_quorum(size) + 1


def _just_not_too_many(size: int, rng: random.Random) -> int:
    return size - classic_quorum(size)


KINDS: dict[str, Draw] = {
    "mute": partial(sick, _any, ["mute"]),
    "deaf": partial(sick, _any, ["deaf"]),
    "mixed": partial(sick, _any, ["dead", "deaf", "mute"]),
    "one too many": partial(sick, _one_too_many, ["dead", "deaf", "mute"]),
    "just not too many": partial(sick, _just_not_too_many, ["dead", "deaf", "mute"]),
    "groups": partial(groups, 0),
    "groups and dead": partial(groups, 1),
    "cycle": cycle,
    "links": links,
}


# The twin.


class Twin:
    """Who reaches whom while the trouble lasts."""

    def __init__(self, size: int, trouble: Trouble) -> None:
        self.alive = frozenset(range(size)) - trouble.dead
        self._majority = classic_quorum(size)
        self._direct = {
            a: {
                b
                for b in self.alive - {a} - trouble.deaf
                if a not in trouble.mute and (a, b) not in trouble.blocked
            }
            for a in self.alive
        }

    @property
    def without_majority(self) -> set[int]:
        """The members of sides that are no majority."""
        reached = {a: {a} | direct for a, direct in self._direct.items()}
        for via in self.alive:
            for a in self.alive:
                if via in reached[a]:
                    reached[a] |= reached[via]
        sides = {a: {b for b in reached[a] if a in reached[b]} for a in self.alive}
        return {a for a, side in sides.items() if len(side) < self._majority}

    @property
    def in_touch(self) -> set[int]:
        """The members whom a majority answers, themselves included."""
        answering = {a: {b for b in direct if a in self._direct[b]} for a, direct in self._direct.items()}
        return {a for a, others in answering.items() if 1 + len(others) >= self._majority}


def test_the_twin_knows_the_examples() -> None:
    mute_of_three = Twin(3, Trouble(mute=frozenset({2})))
    assert mute_of_three.without_majority == {2}
    assert mute_of_three.in_touch == {0, 1}
    twelve = Twin(12, Trouble(dead=frozenset(range(5)), deaf=frozenset({5, 6})))
    assert twelve.without_majority == set(range(5, 12))
    star = Twin(4, Trouble(blocked=frozenset((a, b) for a in range(1, 4) for b in range(1, 4) if a != b)))
    assert star.without_majority == set()
    assert star.in_touch == {0}


# The runs.


class Run:
    """A cluster in trouble, for the time within which everything must have been said and a little longer."""

    def __init__(
        self, size: int, trouble: Trouble, *, seed: int, loss: float = 0.0, settings: Settings | None = None
    ) -> None:
        self.cluster = cluster = chaos.Cluster(
            size, seed=seed, rejoin=False, count_bytes=False, settings=settings
        )
        self.bound = bound(cluster.settings)
        self._since: dict[str, float] = {}
        self._evicted: dict[str, float] = {}
        self._on_events = cluster.simulator.on_events
        cluster.simulator.on_events = self._listen
        cluster.start()
        formed = 300.0 * cluster.settings.probe_interval
        assert cluster.run(formed, stop=lambda: cluster.converged() and len(cluster.latest or ()) == size)
        cluster.apply(faults.Loss(loss))
        rest = RESTING + random.Random(seed).random()
        cluster.run(cluster.now + rest * cluster.settings.probe_interval)
        assert not cluster.quorum_notices
        self.began = cluster.now
        for fault in trouble.faults():
            cluster.apply(fault)
        cluster.run(cluster.now + self.bound + RESTING * cluster.settings.probe_interval)

    def _listen(self, host: Host, events: Sequence[Any]) -> None:
        now = self.cluster.now
        for event in events:
            if isinstance(event, ViewChanged):
                self._since[host.name] = now
            elif isinstance(event, Evicted):
                self._evicted[host.name] = now
        self._on_events(host, events)

    @property
    def said(self) -> set[int]:
        """Who has said that the majority is lost."""
        return {int(notice.host[1:]) for notice in self.cluster.quorum_notices if notice.lost}

    def knew_in_time(self, member: int) -> bool:
        """Whether it said so, for good, or learnt that it is out; counted from its last view if that came later."""
        name = f"n{member}"
        began = max(self.began, self._since[name])
        if name in self._evicted:
            return self._evicted[name] <= began + self.bound
        notices = [n for n in self.cluster.quorum_notices if n.host == name and n.seconds >= began]
        return [n.lost for n in notices] == [True] and notices[0].seconds <= began + self.bound


def check(kind: str, size: int, seed: int, *, loss: float = 0.0, settings: Settings | None = None) -> None:
    trouble = KINDS[kind](size, random.Random(f"{kind} {size} {seed}"))
    twin = Twin(size, trouble)
    run = Run(size, trouble, seed=seed, loss=loss, settings=settings)
    assert not [member for member in sorted(twin.without_majority) if not run.knew_in_time(member)], trouble
    assert not run.said & twin.in_touch, trouble


def test_the_mute_one_of_three_says_so() -> None:
    """It hears the two others all the time."""
    for seed in range(3):
        run = Run(3, Trouble(mute=frozenset({2})), seed=seed)
        assert run.said == {2}
        assert run.knew_in_time(2)


def test_of_twelve_with_five_dead_and_two_deaf_all_say_so() -> None:
    """Seven would be a majority, and the two are heard all the time."""
    run = Run(12, Trouble(dead=frozenset({1, 3, 5, 7, 9}), deaf=frozenset({2, 11})), seed=1)
    assert run.said == {0, 2, 4, 6, 8, 10, 11}
    assert all(run.knew_in_time(member) for member in run.said)


@pytest.mark.parametrize("seed", budgeted(range(40), 3, in_test=1))
@pytest.mark.parametrize("size", [3, 5, 12])
@pytest.mark.parametrize("kind", KINDS)
def test_everybody_without_a_majority_says_so_and_nobody_else(kind: str, size: int, seed: int) -> None:
    check(kind, size, seed)


@pytest.mark.parametrize("seed", budgeted(range(8), 1))
@pytest.mark.parametrize("size", [4, 7, 20, 30])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_of_other_sizes(kind: str, size: int, seed: int) -> None:
    check(kind, size, seed)


@pytest.mark.parametrize(
    ("size", "kinds"),
    [
        pytest.param(60, ["mixed", "groups"], marks=pytest.mark.slow("sixty simulated processes")),
        pytest.param(60, list(KINDS), marks=pytest.mark.sweep("sixty simulated processes")),
        pytest.param(
            300,
            ["one too many", "groups", "links"],
            marks=pytest.mark.sweep("three hundred simulated processes"),
        ),
    ],
)
def test_the_same_where_neighbours_are_a_small_sample(size: int, kinds: list[str]) -> None:
    for kind in kinds:
        check(kind, size, size)


@pytest.mark.parametrize("seed", budgeted(range(12), 1))
@pytest.mark.parametrize("kind", ["mute", "one too many", "just not too many", "groups"])
@pytest.mark.parametrize("preset", [Settings.local(), Settings.wan()], ids=["local", "wan"])
def test_the_same_with_other_presets(preset: Settings, kind: str, seed: int) -> None:
    check(kind, 9, seed, settings=preset)


@pytest.mark.parametrize("seed", budgeted(range(8), 1))
@pytest.mark.parametrize("size", [5, 12, 30])
@pytest.mark.parametrize("kind", ["mute", "one too many", "just not too many", "groups"])
def test_the_same_while_a_fifth_of_all_packets_is_lost(kind: str, size: int, seed: int) -> None:
    """A majority that is just there is answered now by these and now by those, and is not said to be lost."""
    check(kind, size, seed, loss=0.2)


@pytest.mark.parametrize("seed", budgeted(range(20), 1, in_test=1))
@pytest.mark.parametrize("fault", [faults.DropIngress, faults.DropEgress])
def test_a_few_members_that_lose_most_packets_one_way_alarm_nobody_else(
    fault: type[faults.DropIngress | faults.DropEgress], seed: int
) -> None:
    cluster = chaos.Cluster(12, seed=seed, count_bytes=False)
    cluster.start()
    assert cluster.run(60.0, stop=lambda: cluster.converged() and len(cluster.latest or ()) == 12)
    cluster.run(cluster.now + RESTING)
    lossy = tuple(random.Random(seed).sample(sorted(cluster.hosts), 3))
    cluster.apply(fault(0.8, lossy))
    cluster.run(cluster.now + 60.0)
    assert {notice.host for notice in cluster.quorum_notices} <= set(lossy)


@pytest.mark.parametrize("seed", range(3))
def test_a_mute_member_that_is_heard_again_has_its_majority_back(seed: int) -> None:
    """Half of eight are mute, so no view changes meanwhile, and everybody says so."""
    cluster = chaos.Cluster(8, seed=seed, count_bytes=False)
    cluster.start()
    assert cluster.run(60.0, stop=lambda: cluster.converged() and len(cluster.latest or ()) == 8)
    cluster.run(cluster.now + RESTING)
    views = len(cluster.views)
    mute = ("n1", "n2", "n5", "n6")
    cluster.apply(faults.DropEgress(1.0, mute))
    cluster.run(cluster.now + bound(cluster.settings))
    assert sorted(notice.host for notice in cluster.quorum_notices) == sorted(cluster.hosts)
    cluster.apply(faults.DropEgress(0.0, mute))
    cluster.run(cluster.now + bound(cluster.settings))
    last = {notice.host: notice.lost for notice in cluster.quorum_notices}
    assert last == dict.fromkeys(cluster.hosts, False)
    assert len(cluster.quorum_notices) == 2 * 8, "no wavering"
    assert len(cluster.views) == views
