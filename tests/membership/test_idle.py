"""Idle members, which is what they are nearly all of the time: nothing is found later, or wrongly, for that."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from itertools import pairwise

import pytest

from chaos import Cluster, Host
from chaos.faults import Crash, DropEgress, DropIngress
from membership.protocol.messages import Probe

RESTING = 15.0
"""Seconds after which all members of a cluster rest."""


def resting_cluster(nodes: int, seed: int) -> Cluster:
    cluster = Cluster(nodes, seed=seed)
    cluster.start(1.0)
    assert cluster.run(60.0, stop=lambda: cluster.latest is not None and len(cluster.latest) == nodes)
    cluster.run(cluster.now + RESTING + random.Random(seed).random())
    return cluster


def test_an_idle_member_sends_fewer_than_eight_packets_a_second() -> None:
    cluster = resting_cluster(60, 1)
    sent = 0

    def count(_: Host, destinations: Sequence[Hashable], message: object) -> Sequence[Hashable]:
        nonlocal sent
        sent += len(destinations)
        return destinations

    cluster.simulator.before_send = count
    cluster.run(cluster.now + 30.0)
    assert sent / 60 / 30 < 7.0


def test_no_member_is_by_chance_probed_by_nobody_for_two_intervals() -> None:
    """Else it is found so much later than one that died with it that each goes alone: two of a hundred pairs did."""
    cluster = resting_cluster(60, 1)
    probed: dict[Hashable, list[float]] = {host.address: [cluster.now] for host in cluster.hosts.values()}

    def note(_: Host, destinations: Sequence[Hashable], message: object) -> Sequence[Hashable]:
        if isinstance(message, Probe):
            for destination in destinations:
                probed[destination].append(cluster.now)
        return destinations

    cluster.simulator.before_send = note
    cluster.run(cluster.now + 60.0)
    gaps = [
        later - earlier for times in probed.values() for earlier, later in pairwise([*times, cluster.now])
    ]
    assert max(gaps) < 2.0


@pytest.mark.parametrize("seed", [6, 31])
def test_members_that_die_together_go_in_one_cut_within_six_seconds(seed: int) -> None:
    """Each is missed at a time of its own. One went alone (seed 31) while only who rested told others, and while
    reports of one made nobody hurry about another."""
    cluster = resting_cluster(100, seed)
    views, crashed = len(cluster.views), cluster.now
    victims = tuple(random.Random(seed).sample(sorted(cluster.hosts), 3))
    cluster.apply(Crash(victims))
    cluster.run(crashed + 6.0)
    assert [set(view.removed) for view in cluster.views[views:]] == [set(victims)]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_member_out_of_reach_for_less_than_four_probes_stays(seed: int) -> None:
    """From the first attempt of the first probe to the last of the fourth are 3.72 s, however early others are told."""
    cluster = resting_cluster(60, seed)
    views = len(cluster.views)
    victim = (f"n{seed + 1}",)
    for loss, seconds in ((1.0, 3.7), (0.0, 15.0)):
        cluster.apply(DropIngress(loss, victim))
        cluster.apply(DropEgress(loss, victim))
        cluster.run(cluster.now + seconds)
    assert len(cluster.views) == views
