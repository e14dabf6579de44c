"""A process that was removed as faulty is let in again when its links work: history, link test, cluster."""

from __future__ import annotations

import random

import pytest

import chaos
import chaos.simulated_cluster.cluster
from chaos import faults
from chaos.simulated_cluster.faults import core_on
from membership.address import Address
from membership.protocol.context.context import Context
from membership.protocol.lifecycle.readmission import Readmission
from membership.protocol.messages import NotMember, Probe
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut, Removal
from membership.protocol.view.member import Member
from membership.protocol.view.removal_history import RemovalHistory
from membership.settings import Settings
from tests.budget import budgeted

PATIENCE = Settings().probe_failures * Settings().probe_interval


class History:
    """A view that changes, and one member's memory of it."""

    def __init__(self, lab, size: int = 6) -> None:
        self.memory = RemovalHistory(Settings())
        self.view: Configuration = lab.configuration(size)
        self.lab = lab

    def cut(self, cut: Cut, now: float = 0.0) -> None:
        self.memory.on_cut(self.view, cut, now)
        self.view = self.view.apply(cut)

    def fail(self, number: int, incarnation: int = 0, now: float = 0.0) -> None:
        self.cut(
            Cut.of(removals=[Removal(self.lab.member(number, incarnation=incarnation).incarnation)]), now
        )

    def join(self, number: int, incarnation: int, now: float = 0.0) -> None:
        self.cut(Cut.of([self.lab.member(number, incarnation=incarnation)]), now)

    def patience(self, number: int) -> float:
        return self.memory.test_time(self.lab.member(number, incarnation=9))


class TestMemory:
    def test_only_who_was_removed_as_faulty_must_prove_itself(self, lab) -> None:
        history = History(lab)
        history.fail(1)
        history.cut(Cut.of(removals=[Removal(lab.member(2).incarnation, left=True)]))
        history.cut(Cut.of(removals=[Removal(lab.member(3).incarnation, evicted=True)]))
        history.cut(Cut.of([lab.member(4, incarnation=1)], [Removal(lab.member(4).incarnation)]))
        assert [history.patience(number) for number in (1, 2, 3, 4, 5, 7)] == [PATIENCE, 0, 0, 0, 0, 0]

    def test_a_new_process_at_the_name_or_the_address_is_the_same_offender(self, lab) -> None:
        history = History(lab)
        history.fail(1)
        gone = lab.member(1)
        renamed = Member.create("other", gone.address, b"i" * 16)
        moved = Member.create(gone.name, Address("10.0.0.9", 9), b"i" * 16)
        assert history.memory.test_time(renamed) == history.memory.test_time(moved) == PATIENCE

    def test_patience_grows_for_who_is_soon_removed_again_up_to_a_bound(self, lab) -> None:
        history = History(lab)
        seen = []
        for round_number in range(4):
            history.fail(1, round_number, now=100.0 * round_number)
            seen.append(history.patience(1))
            history.join(1, round_number + 1, now=100.0 * round_number + 70.0)
            assert history.patience(1) == 0, "while it is in, a restart is a restart"
        assert seen == [PATIENCE, 8 * PATIENCE, 64 * PATIENCE, 64 * PATIENCE]

    def test_a_new_process_is_not_tested_longer_until_it_is_a_crash_loop(self, lab) -> None:
        history = History(lab)
        seen = []
        for round_number in range(5):
            history.fail(1, round_number, now=100.0 * round_number)
            joiner = lab.member(1, incarnation=9)
            seen.append(history.memory.test_time(joiner, is_new=True))
            other = RemovalHistory(Settings())
            other.learn(history.memory.everything(), 0.0)
            assert other.test_time(joiner, is_new=True) == seen[-1]
            history.join(1, round_number + 1, now=100.0 * round_number + 70.0)
        assert seen == [PATIENCE, PATIENCE, PATIENCE, 8 * PATIENCE, 8 * PATIENCE]

    def test_offences_are_forgiven_after_ten_times_the_patience_in_the_view(self, lab) -> None:
        history = History(lab)
        history.fail(1)
        history.join(1, 1, now=10.0)
        history.fail(1, 1, now=10.0 + 10 * PATIENCE)
        assert history.patience(1) == PATIENCE

    def test_who_leaves_in_order_begins_anew(self, lab) -> None:
        history = History(lab)
        history.fail(1)
        history.join(1, 1, now=5.0)
        history.cut(Cut.of(removals=[Removal(lab.member(1, incarnation=1).incarnation, left=True)]), 6.0)
        assert history.patience(1) == 0
        assert not history.memory.everything()

    def test_it_is_handed_on_with_the_view_and_bounded(self, lab) -> None:
        history = History(lab, 1300)
        history.cut(Cut.of(removals=[Removal(lab.member(number).incarnation) for number in range(1, 1201)]))
        assert len(history.memory.everything()) == 1000
        other = RemovalHistory(Settings())
        other.learn(history.memory.everything(), 1.0)
        assert other.everything() == history.memory.everything()


class Link:
    """An observer with a joiner that was removed; each way loses a share of the datagrams."""

    def __init__(self, lab, *, there: float = 0.0, back: float = 0.0, seed: int = 0) -> None:
        self.context: Context = lab.context(lab.configuration(5), seed=seed)
        history = History(lab, 9)
        history.fail(8)
        self.context.removal_history.learn(history.memory.everything(), 0.0)
        self.joiner = lab.member(8, incarnation=1)
        self.probation = Readmission(self.context)
        self.rng = random.Random(seed)
        self.there, self.back = there, back
        self.probes = 0

    def run(self, begin: float, end: float) -> float | None:
        """When the joiner, who asks each second, is to be reported; None if not by the end."""
        now, asks = begin, begin
        while now < end:
            if now >= asks:
                asks += 1.0
                if self.rng.random() >= self.back and self.probation.passes(self.joiner, now):
                    return now
            if self.probation.tick(now):
                return now
            for send in self.context.take_effects(now).sends:
                if isinstance(send.message, Probe):
                    self.probes += 1
                    self._answer(send.message, now)
            now = max(now + 0.001, min(self.probation.deadline, asks))
        return None

    def _answer(self, probe: Probe, now: float) -> None:
        if self.rng.random() >= self.there and self.rng.random() >= self.back:
            answer = NotMember(self.joiner.incarnation, probe.configuration_id, probe.sequence)
            self.probation.on_answer(self.joiner.address, answer, now + 0.001)


class TestTrial:
    def test_a_healthy_link_is_proven_in_the_time_that_detection_takes(self, lab) -> None:
        proven = Link(lab).run(0.0, 60.0)
        assert proven is not None
        assert PATIENCE <= proven <= PATIENCE + 1.0

    @pytest.mark.parametrize("seed", range(5))
    def test_the_worst_weather_takes_longer(self, lab, seed: int) -> None:
        proven = Link(lab, there=0.2, back=0.2, seed=seed).run(0.0, 60.0)
        assert proven is not None
        assert PATIENCE <= proven <= 6 * PATIENCE

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize(("there", "back"), [(0.8, 0.0), (0.0, 0.8), (1.0, 0.0)])
    def test_a_link_that_fails_in_one_direction_is_not_proven_in_an_hour(
        self, lab, there: float, back: float, seed: int
    ) -> None:
        link = Link(lab, there=there, back=back, seed=seed)
        assert link.run(0.0, 3600.0) is None
        assert link.probes < 3 * 3600, "who does not answer costs little"
        link.there = link.back = 0.0
        proven = link.run(3600.0, 3700.0)
        assert proven is not None
        assert proven - 3600.0 <= PATIENCE + 2.0, "and is believed soon when it is over"

    def test_an_outage_in_the_middle_begins_it_anew(self, lab) -> None:
        link = Link(lab)
        assert link.run(0.0, 3.0) is None
        link.there = 1.0
        assert link.run(3.0, 6.0) is None
        link.there = 0.0
        proven = link.run(6.0, 30.0)
        assert proven is not None
        assert proven >= 6.0 + PATIENCE

    def test_what_was_not_asked_or_comes_from_elsewhere_proves_nothing(self, lab) -> None:
        link = Link(lab, there=1.0)
        identifier = link.context.view.short_id
        for tick in range(300):
            now = tick / 10
            assert not link.probation.passes(link.joiner, now)
            assert not link.probation.tick(now)
            for send in link.context.take_effects(now).sends:
                if isinstance(send.message, Probe):
                    asked = NotMember(link.joiner.incarnation, identifier, send.message.sequence)
                    link.probation.on_answer(Address("10.0.0.9", 9), asked, now)
            invented = NotMember(link.joiner.incarnation, identifier, 1 << 60 | 5000 + tick)
            link.probation.on_answer(link.joiner.address, invented, now)

    def test_who_asks_no_more_is_probed_no_more(self, lab) -> None:
        link = Link(lab)
        link.probation.passes(link.joiner, 0.0)
        now = 0.0
        while (due := link.probation.deadline) < 60.0:
            now = due
            link.probation.tick(now)
        assert now <= 2 * Settings().join_attempt_timeout + 1.0


class TestCluster:
    """What the issue describes: each of three was removed five times and admitted four times within a minute."""

    @pytest.mark.parametrize("seed", budgeted(range(4), 1, in_test=1))
    def test_heavy_loss_one_way_flaps_nobody_and_all_are_back_soon(self, seed: int) -> None:
        report = chaos.run("loss-over", nodes=30, faulty=3, seed=seed)
        assert report.broken == ()
        assert (report.faulty_removed, report.healthy_removed, report.readded) == (3, 0, 0)
        assert sum(len(view.removed) for view in report.views) == 3

    def test_one_that_dies_and_is_started_after_its_removal_is_back_in_about_detection_time(self) -> None:
        world = chaos.simulated_cluster.cluster.Cluster(10, seed=1)
        world.start()
        assert world.run(30.0, stop=lambda: world.converged() and world.views[-1].size == 10)
        world.apply(faults.Crash(("n3",)))
        assert world.run(world.now + 20.0, stop=lambda: world.views[-1].size == 9)
        world.apply(faults.Start(("n3", "n10")))
        began = world.now
        assert world.run(began + 2.0, stop=lambda: world.views[-1].size == 10), "a fresh one need not wait"
        assert world.views[-1].joined == ("n10",)
        assert world.run(began + 10.0, stop=world.converged)
        assert world.now - began >= PATIENCE
        world.apply(faults.Restart(("n3",)))
        assert world.run(
            world.now + 3.0, stop=lambda: world.views[-1].joined == ("n3",) == world.views[-1].removed
        )

    @pytest.mark.parametrize("is_killed", [True, False])
    def test_three_deaths_are_no_reason_to_doubt_links_and_three_partitions_are(
        self, is_killed: bool
    ) -> None:
        world = chaos.simulated_cluster.cluster.Cluster(6, seed=1)
        world.start()
        assert world.run(30.0, stop=lambda: world.converged() and world.views[-1].size == 6)
        others = tuple(sorted(world.hosts.keys() - {"n3"}))
        away = []
        for _ in range(3):
            world.apply(faults.Crash(("n3",)) if is_killed else faults.Partition((("n3",), others)))
            assert world.run(world.now + 20.0, stop=lambda: world.views[-1].size == 5)
            world.apply(faults.Start(("n3",)) if is_killed else faults.Heal())
            began = world.now
            assert world.run(began + 70 * PATIENCE, stop=world.converged)
            away.append(world.now - began)
        assert away[0] < 3 * PATIENCE
        assert (away[2] < 3 * PATIENCE) is is_killed

    def test_who_joins_later_knows_it_too(self) -> None:
        world = chaos.simulated_cluster.cluster.Cluster(6, seed=2)
        world.start()
        assert world.run(30.0, stop=lambda: world.converged() and world.views[-1].size == 6)
        lost = core_on(world.hosts["n3"])
        world.apply(faults.Crash(("n3",)))
        assert world.run(world.now + 20.0, stop=lambda: world.views[-1].size == 5)
        world.apply(faults.Start(("n6",)))
        assert world.run(world.now + 5.0, stop=world.converged)
        newcomer = core_on(world.hosts["n6"])
        assert newcomer._context.removal_history.test_time(lost.me) == PATIENCE
