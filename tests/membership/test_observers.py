"""Observers in trouble, in whole clusters: starved, stopped, with a jumping clock, deaf, lossy, or plain wrong."""

from __future__ import annotations

import pytest

import chaos
from chaos import NetworkSettings
from membership.protocol.context.effects import Evicted
from membership.protocol.monitoring.phi_detector import phi_accrual
from membership.protocol.view.view_difference import ViewChanged
from membership.settings import Settings
from tests.budget import budgeted

DETECTORS = pytest.mark.parametrize("kind", ["windowed", "phi"])


def chosen(kind: str) -> dict[str, object]:
    return {"detectors": phi_accrual()} if kind == "phi" else {}


def starve(run, host, begin: float, end: float, *, stopped: float, running: float) -> None:
    """Let the host's process run only now and then."""
    now = begin
    while now < end:
        run.simulator.call_at(now, lambda: run.simulator.pause(host))
        run.simulator.call_at(now + stopped, lambda: run.simulator.resume(host))
        now += stopped + running


@DETECTORS
@pytest.mark.parametrize("stopped", [0.6, 0.9])
def test_a_starved_observer_accuses_nobody(cluster, kind: str, stopped: float) -> None:
    """Its answers wait unread while it does not run, and its own probes leave late."""
    run = cluster(20, core=chosen(kind))
    run.boot()
    run.run(3.0)
    since, before = run.now, run.epoch
    starve(run, run.hosts[4], since, since + 60.0, stopped=stopped, running=0.05)
    run.run(60.0)
    assert not run.removed(since) - {"n4"}, "whether it is too slow to stay is for the others to say"
    run.run(30.0)
    if run.epoch == before:
        assert run.together(20)


@DETECTORS
def test_an_observer_that_was_stopped_for_thirty_seconds_accuses_nobody(cluster, kind: str) -> None:
    run = cluster(20, core=chosen(kind))
    run.boot()
    run.run(3.0)
    since = run.now
    for host in run.hosts[5:8]:
        run.simulator.pause(host)
    run.run(30.0)
    for host in run.hosts[5:8]:
        run.simulator.resume(host)
    assert run.run(20.0, lambda: run.together(20))
    assert run.removed(since) == {"n5", "n6", "n7"}
    assert {name for _, name, _ in run.seen(Evicted)} == {"h5", "h6", "h7"}


@DETECTORS
@pytest.mark.parametrize("seconds", [2.0, 30.0, 3600.0])
def test_a_clock_that_jumps_ahead_changes_nothing(cluster, kind: str, seconds: float) -> None:
    run = cluster(12, core=chosen(kind))
    run.boot()
    run.run(3.0)
    before = run.epoch
    for moment in (1.0, 1.3, 8.0):
        run.run(moment)
        for host in run.hosts[3:5]:
            run.simulator.jump_clock(host, seconds)
    run.run(30.0)
    assert run.epoch == before
    assert not any(core._monitor.failed_edges() for core in run.cores)
    assert all(core._monitor.health.score == 0 for core in run.cores), "all are themselves again"


@DETECTORS
@pytest.mark.parametrize("direction", ["ingress", "egress"])
def test_a_sick_observer_blames_nobody_while_it_lasts_and_afterwards(
    cluster, kind: str, direction: str
) -> None:
    """60 % loss in one direction is more than bad weather and less than what convicts."""
    run = cluster(20, seed=2, core=chosen(kind))
    run.boot()
    run.run(3.0)
    since, sick = run.now, run.hosts[7]
    drop = getattr(run.simulator.network, f"drop_{direction}")
    drop(sick.index, 0.6)
    run.run(60.0)
    drop(sick.index, 0.0)
    run.run(30.0)
    assert not run.removed(since) - {"n7"}


def test_b8_detectors_survive_the_view_changes_of_a_busy_cluster(cluster) -> None:
    """Members come every second, faster than a detector counts to four; a dead one must still be found in time."""
    run = cluster(20)
    run.boot()
    run.run(3.0)
    victim, since = run.hosts[-1], run.now
    run.simulator.crash(victim)
    for number in range(100, 108):
        run.add(number, start_at=run.now + number - 100, found=False)
    assert run.run(8.0, lambda: "n19" in run.removed(since))
    changes = {event.configuration.epoch for _, _, event in run.seen(ViewChanged, since)}
    assert len(changes) >= 4, "the view changed again and again meanwhile"


def test_b19_a_detector_accuses_nobody_once_its_subject_is_gone(cluster) -> None:
    run = cluster(20)
    run.boot()
    run.run(3.0)
    run.simulator.crash(run.hosts[-1])
    assert run.run(15.0, lambda: run.together(19))
    before = run.epoch
    run.run(30.0)
    assert run.epoch == before
    for core in run.cores:
        members = {member.incarnation for member in core.configuration.members}
        assert all(edge.subject.incarnation in members for edge in core._monitor.subjects)
        assert not core._monitor.failed_edges()


@pytest.mark.slow("ten simulated minutes")
@pytest.mark.parametrize("kind", ["windowed", "phi"])
def test_b7_one_per_cent_loss_does_not_accumulate(cluster, kind: str) -> None:
    run = cluster(8, settings=Settings.local(), network=NetworkSettings(loss=0.01), core=chosen(kind))
    run.boot()
    before = run.epoch
    run.run(600.0)
    assert run.epoch == before
    assert max(edge.loss.score for core in run.cores for edge in core._monitor.subjects) < 4


@DETECTORS
@pytest.mark.parametrize("seed", range(2))
def test_eighty_per_cent_loss_is_found_by_every_kind(cluster, kind: str, seed: int) -> None:
    run = cluster(30, seed=seed, rejoin=False, core=chosen(kind))
    run.boot()
    run.run(3.0)
    since = run.now
    run.simulator.network.drop_egress(run.hosts[-1].index, 0.8)
    run.simulator.network.drop_ingress(run.hosts[-2].index, 0.8)
    run.run(20.0)
    assert run.removed(since) == {"n28", "n29"}


def test_a_blackhole_between_two_of_a_small_cluster_accuses_nobody_for_long(cluster) -> None:
    """Helpers reach what the broken link does not: not even noise is left in the tables."""
    run = cluster(6)
    run.boot()
    run.run(3.0)
    before = run.epoch
    one, two = run.hosts[1].index, run.hosts[2].index
    run.simulator.network.block(one, two)
    run.simulator.network.block(two, one)
    run.run(60.0)
    assert run.epoch == before
    edges = [edge for core in run.cores for edge in core._monitor.subjects if edge.detector.has_evidence()]
    assert edges, "one of the two observes the other"
    assert {edge.subject.name for edge in edges} <= {"n1", "n2"}
    assert all(edge.excused for edge in edges)
    assert not any(core._monitor.failed_edges() for core in run.cores)


@pytest.mark.parametrize("seed", budgeted(range(6), 0, in_test=2))
def test_bad_observers_go_and_nobody_they_accuse(seed: int) -> None:
    report = chaos.run("bad-observer", nodes=60, faulty=3, seed=seed, duration=30)
    assert report.broken == ()
    assert len(report.views) == 1


@pytest.mark.parametrize("first", budgeted(range(0, 200, 10), 1))
def test_bad_observers_over_two_hundred_seeds(first: int) -> None:
    for seed in range(first, first + 10):
        report = chaos.run("bad-observer", nodes=60, faulty=3, seed=seed, duration=20)
        assert report.broken == (), seed


@pytest.mark.parametrize("scenario", budgeted(["loss-egress", "loss-ingress"], 1))
@pytest.mark.parametrize("seed", budgeted(range(2), 1))
def test_lossy_members_of_a_large_cluster_go_in_one_cut(scenario: str, seed: int) -> None:
    report = chaos.run(scenario, nodes=300, faulty=10, seed=seed, duration=45)
    assert report.broken == ()
    assert report.sizes == (300, 290)
    assert report.detection_seconds is not None
    assert report.detection_seconds < 14
