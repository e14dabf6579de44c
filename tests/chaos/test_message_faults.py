"""Faults that choose by message type, on a cluster: what is lost, who dies, and when it ends."""

from __future__ import annotations

import pytest

from chaos import ScriptError, faults
from chaos.script import parse
from chaos.simulated_cluster.cluster import Cluster
from membership.settings import Settings


def standing(nodes: int = 5, seed: int = 1) -> Cluster:
    cluster = Cluster(nodes, seed=seed, settings=Settings.local())
    cluster.start()
    assert cluster.run(30.0, stop=lambda: cluster.converged() and len(cluster.running()) == nodes)
    cluster.run(cluster.now + 2.0)
    return cluster


def test_the_first_that_sends_the_type_dies_after_it_and_no_other() -> None:
    cluster = standing()
    sent = cluster.simulator.sent
    cluster.apply(faults.CrashOn("Probe", ("n1", "n2", "n3")))
    cluster.run(cluster.now + 1.0)
    dead = [host.name for host in cluster.hosts.values() if not host.up]
    assert len(dead) == 1
    assert cluster.simulator.sent > sent
    assert any(f"{dead[0]} crashes" in line for line in cluster.trace)


def test_a_type_nobody_sends_kills_nobody_and_can_be_taken_back() -> None:
    cluster = standing()
    cluster.apply(faults.CrashOn("Prepare", ("n1",)))
    cluster.apply(faults.CrashOn("Probe", ("n2",)))
    cluster.apply(faults.Disarm(("n2",)))
    cluster.run(cluster.now + 2.0)
    assert len(cluster.running()) == 5
    cluster.message_faults.clear()
    assert cluster.simulator.before_send is None


def test_lost_probes_look_like_a_death_and_other_losses_do_not() -> None:
    cluster = standing()
    everybody = tuple(cluster.hosts)
    before = cluster.latest
    cluster.apply(faults.DropMessages("Decided", 1.0, everybody))
    cluster.run(cluster.now + 5.0)
    assert cluster.latest is before  # nothing was being decided
    cluster.apply(faults.DropMessages("Probe", 1.0, ("n4",)))
    cluster.run(cluster.now + 4.0)
    assert {name for view in cluster.views for name in view.removed} == {"n4"}


def test_an_ended_loss_loses_nothing() -> None:
    cluster = standing()
    before = cluster.latest
    cluster.apply(faults.DropMessages("Probe", 1.0, ("n4",)))
    cluster.apply(faults.DropMessages("Probe", 0.0, ("n4",)))
    assert cluster.simulator.before_send is None
    cluster.run(cluster.now + 4.0)
    assert cluster.latest is before


def test_everything_twice_and_in_disorder_changes_no_view() -> None:
    cluster = standing()
    before, delivered = cluster.latest, cluster.simulator.delivered
    cluster.apply(faults.Duplication(1.0))
    cluster.apply(faults.Reordering(1.0, 0.1))
    cluster.run(cluster.now + 10.0)
    assert cluster.latest is before
    assert cluster.simulator.delivered > delivered


def test_a_restart_is_a_new_incarnation_at_once() -> None:
    cluster = standing()
    cluster.apply(faults.Restart(("n3",)))
    assert len(cluster.running()) == 5
    assert cluster.hosts["n3"].generation == 2


def test_an_unknown_type_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        ScriptError, match="Oops is no message type; there are Accept, Accepted, CatchUpRequest"
    ):
        parse("nodes 3\nat 1s crash-on Oops n1")
