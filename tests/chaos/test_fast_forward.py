"""Leaps over quiet time leave what simulating every packet would have left, and only quiet time is leapt over."""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import sqrt
from statistics import fmean, pvariance

import pytest

import chaos
from chaos import NetworkSettings, SimulationError, faults
from chaos.faults import At
from chaos.simulated_cluster.cluster import Cluster
from chaos.simulated_cluster.fast_forward import FastForward
from chaos.simulated_cluster.faults import core_on
from membership.protocol.context.effects import EdgeFailed
from membership.protocol.monitoring.edge import Edge
from membership.protocol.monitoring.edge_detector import UntimedDetector, WindowedDetector
from membership.protocol.monitoring.loss_test import LossTest
from membership.protocol.monitoring.phi_detector import PhiAccrualDetector
from membership.protocol.monitoring.simulation_fast_forward import FastForwardEdge
from membership.settings import Settings
from tests.budget import budgeted

LAN = Settings.lan()


def standing(nodes: int, loss: float, *, seed: int = 0, settings: Settings = LAN) -> Cluster:
    cluster = Cluster(
        nodes, seed=seed, settings=settings, network=NetworkSettings(loss=loss), count_bytes=False
    )
    cluster.start()
    assert cluster.run(60.0, stop=lambda: cluster.converged() and len(cluster.running()) == nodes)
    cluster.run(cluster.now + 30.0)
    return cluster


def edges(cluster: Cluster) -> Iterator[Edge]:
    for host in cluster.running():
        yield from core_on(host)._monitor.subjects


def alike(one: list[float], other: list[float]) -> bool:
    """Whether two samples may have one mean: within four standard errors."""
    error = sqrt(pvariance(one) / len(one) + pvariance(other) / len(other))
    return abs(fmean(one) - fmean(other)) <= 4 * error


class TestTheSameStates:
    """At 20 % loss in both directions: a third of the attempts, so that the states of edges are rich."""

    def sample(self, leap: bool) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {"score": [], "burdened": [], "suspicious": [], "failures": []}
        for seed in range(2):
            cluster = standing(10, 0.2, seed=seed)
            forward = FastForward(cluster, random.Random(seed))
            for _ in range(40):
                until = cluster.now + 25.0
                if leap:
                    forward.run(until)
                else:
                    cluster.run(until)
                for edge in edges(cluster):
                    assert isinstance(edge.detector, WindowedDetector)
                    found["score"].append(edge.loss.score)
                    found["burdened"].append(edge.loss.score > 0)
                    found["suspicious"].append(edge.loss.suspicious)
                    found["failures"].append(edge.detector._results.bit_count())
            assert (forward.leapt > 900.0) is leap
        return found

    @pytest.mark.slow("half an hour of ten members, packet by packet")
    def test_after_leaps_edges_are_in_the_states_of_a_full_simulation(self) -> None:
        """Six seconds: half an hour of ten members is simulated packet by packet, to compare what is frequent."""
        simulated, leapt = self.sample(leap=False), self.sample(leap=True)
        assert fmean(simulated["burdened"]) > 0.1
        assert fmean(simulated["suspicious"]) > 0.003
        assert fmean(simulated["failures"]) > 0.02
        for what in simulated:
            assert alike(simulated[what], leapt[what]), what

    @pytest.mark.parametrize("loss", [0.1, 0.36, 0.6])
    @pytest.mark.parametrize("rounds", [1, 7, 40])
    def test_rounds_passed_at_once_are_rounds_drawn_one_by_one(self, loss: float, rounds: int) -> None:
        rng = random.Random(1)
        quiet, dumb = [], []
        for _ in range(3000):
            edge = fresh()
            passed = FastForwardEdge(edge, edge.detector, LAN).pass_rounds(rounds, loss, rng)  # type: ignore[arg-type]
            quiet.append((passed, edge.loss.score, results(edge)))
            edge = fresh()
            dumb.append((one_by_one(edge, rounds, loss, rng), edge.loss.score, results(edge)))
        for column in range(3):
            assert alike([float(row[column]) for row in quiet], [float(row[column]) for row in dumb])
            assert alike([float(row[column] > 0) for row in quiet], [float(row[column] > 0) for row in dumb])


def fresh() -> Edge:
    edge = Edge(None, WindowedDetector(10, 4), LossTest(LAN))  # type: ignore[arg-type]
    edge.sent = edge.answered = edge.sent_before = edge.answered_before = 1
    return edge


def results(edge: Edge) -> int:
    assert isinstance(edge.detector, WindowedDetector)
    return edge.detector._results.bit_count()


def one_by_one(edge: Edge, rounds: int, loss: float, rng: random.Random) -> int:
    """The dumb twin: every attempt of every round is drawn, as the monitor would send it."""
    for passed in range(rounds):
        if edge.loss.score + LAN.loss_threshold / 4 >= LAN.loss_threshold or results(edge) >= 4:
            return passed
        if (bin(edge.detector._results << 1 | 1)[-10:]).count("1") >= 4:  # type: ignore[attr-defined]
            return passed
        edge.sent = edge.answered = 0
        for step in range(9):
            regular = step % 2 == 0 and not edge.answered
            if regular or edge.loss.suspicious:
                edge.sent |= 1 << step
                if rng.random() >= loss:
                    if not edge.answered:
                        edge.detector.on_probe_result(True, 0.0)
                    edge.answered |= 1 << step
        edge.conclude_round(0.0)
    return rounds


class TestTheSameAccusations:
    """One attempt a probe, so that chance makes accusations often: the time until the first is the same."""

    SETTINGS = Settings(probe_attempts=1, probe_failures=3, probe_window=5)

    def first_accusation(self, seed: int, leap: bool) -> float:
        cluster = standing(3, 0.045, seed=seed, settings=self.SETTINGS)
        accusations: list[float] = []
        inner = cluster.simulator.on_events
        assert inner is not None

        def listen(host: chaos.Host, events: object) -> None:
            inner(host, events)  # type: ignore[arg-type]
            if any(isinstance(event, EdgeFailed) for event in events):  # type: ignore[attr-defined]
                accusations.append(cluster.now)

        cluster.simulator.on_events = listen
        began = cluster.now
        forward = FastForward(cluster, random.Random(seed))
        while not accusations:
            if leap:
                forward.run(cluster.now + 50.0)
            else:
                cluster.run(cluster.now + 50.0)
        return accusations[0] - began

    @pytest.mark.slow("sixty first accusations, packet by packet")
    def test_the_first_accusation_takes_as_long(self) -> None:
        """Four seconds: sixty first accusations, simulated packet by packet."""
        simulated = [self.first_accusation(seed, leap=False) for seed in range(60)]
        leapt = [self.first_accusation(seed, leap=True) for seed in range(60)]
        assert fmean(simulated) > 40.0
        assert alike(simulated, leapt), (fmean(simulated), fmean(leapt))


class TestWhenThereIsNothingToLeapOver:
    def test_a_leap_ends_before_a_fault_to_come(self) -> None:
        cluster = standing(6, 0.01)
        forward = FastForward(cluster, random.Random(1))
        cluster.schedule([At(300.0, faults.Crash(("n3",)))], offset=cluster.now)
        began = cluster.now
        forward.run(began + 600.0)
        assert 500.0 < forward.leapt < 600.0, "it leaps before and afterwards"
        (last,) = cluster.views[-1:]
        assert last.removed == ("n3",)
        assert 300.0 < last.seconds - began < 307.0, "the fault is not put off"

    def test_a_crash_in_a_leap_would_be_a_call(self) -> None:
        cluster = standing(3, 0.0)
        cluster.simulator.call_after(100.0, lambda: None)
        cluster.simulator.skip(90.0)
        with pytest.raises(SimulationError, match="a call is pending"):
            cluster.simulator.skip(20.0)

    @pytest.mark.parametrize(
        "fault",
        [
            faults.Pause(("n1",)),
            faults.Crash(("n1",)),
            faults.Delay(0.5, ("n1",)),
            faults.Reordering(0.1, 1.0),
            faults.DropMessages("Decided", 1.0, ("n1",)),
            faults.DropIngress(0.9, ("n1",)),
            faults.Block("n1", "n2"),
        ],
        ids=lambda fault: type(fault).__name__,
    )
    def test_while_something_is_wrong_every_packet_is_simulated(self, fault: faults.Fault) -> None:
        cluster = standing(6, 0.0)
        forward = FastForward(cluster, random.Random(1))
        cluster.apply(fault)
        forward.run(cluster.now + 3.0)
        assert not forward.leapt
        forward.run(cluster.now + 12.0)
        assert forward.leapt < 4.0

    def test_a_new_view_is_left_to_settle(self) -> None:
        cluster = standing(6, 0.0)
        cluster.apply(faults.Start(("n9",)))
        cluster.run(cluster.now + 2.0)
        forward = FastForward(cluster, random.Random(1))
        forward.run(cluster.last_installation + 15.0)
        assert not forward.leapt

    def test_detectors_that_go_by_time_are_simulated(self) -> None:
        detector = PhiAccrualDetector.__new__(PhiAccrualDetector)
        assert not isinstance(detector, UntimedDetector)
        assert isinstance(WindowedDetector(10, 4), UntimedDetector)


class TestLeaps:
    def test_messages_and_timers_are_put_off_and_clocks_do_not_jump(self) -> None:
        cluster = standing(5, 0.0)
        simulator = cluster.simulator
        clocks = [cluster.now + host.clock_offset for host in cluster.hosts.values()]
        delivered, before = simulator.delivered, cluster.now
        simulator.skip(1000.0)
        assert cluster.now == pytest.approx(before + 1000.0)
        assert [cluster.now + host.clock_offset for host in cluster.hosts.values()] == pytest.approx(clocks)
        cluster.run(cluster.now + 2.0)
        assert simulator.delivered >= delivered + 30, "three probes of each, and their answers"

    def test_without_loss_a_year_is_one_leap_after_the_other(self) -> None:
        cluster = standing(4, 0.0)
        forward = FastForward(cluster, random.Random(1))
        forward.run(365 * 86_400.0)
        assert forward.leapt > 365 * 86_400.0 - 100.0
        assert cluster.converged()
        cluster.apply(faults.Crash(("n2",)))
        assert cluster.run(cluster.now + 8.0, stop=cluster.converged), (
            "the failure detectors are as awake as ever"
        )

    def test_a_dead_link_stops_at_the_brink_whatever_is_asked(self) -> None:
        edge = fresh()
        quiet = FastForwardEdge(edge, edge.detector, LAN)  # type: ignore[arg-type]
        state = quiet.snapshot()
        assert quiet.pass_rounds(1000, 1.0, random.Random(1)) == 3
        assert quiet.near_threshold
        assert quiet.pass_rounds(1000, 1.0, random.Random(1)) == 0
        quiet.restore(state)
        assert not quiet.near_threshold
        assert edge.settled

    @pytest.mark.slow("two weeks are simulated twice")
    def test_two_weeks_of_five_per_cent_loss_are_the_same_for_the_same_seed(self) -> None:
        one, two = (chaos.run("ambient-loss", nodes=4, loss=0.05, duration=1_209_600.0, seed=3) for _ in "ab")
        assert one.ok
        assert not one.views
        assert one.received == two.received


@pytest.mark.first
@pytest.mark.parametrize("weather", budgeted([(0.01, 0), (0.05, 0), (0.01, 1), (0.01, 2)], 1))
def test_two_weeks_of_ambient_loss_change_no_view_of_fifty(weather: tuple[float, int]) -> None:
    loss, seed = weather
    report = chaos.run("ambient-loss", nodes=50, loss=loss, duration=1_209_600.0, seed=seed)
    assert report.ok, report.broken
    assert not report.views
