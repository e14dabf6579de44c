"""Edge failure detectors and probing. Source: Rapid section 6; the specification, section 3.2."""

from __future__ import annotations

import random

import pytest

from membership.address import Address
from membership.protocol.context.effects import EdgeFailed, EdgeRecovered
from membership.protocol.context.refusals import Refusal, counter_of
from membership.protocol.messages import (
    Digest,
    IndirectAnswer,
    IndirectProbe,
    NotMember,
    Probe,
    StreamProbe,
    Unanswered,
)
from membership.protocol.monitoring.edge_detector import DetectorFactory, WindowedDetector
from membership.protocol.monitoring.monitor import Monitor
from membership.protocol.monitoring.phi_detector import phi_accrual
from membership.protocol.view.cut import Cut, Removal
from membership.settings import Settings


class TestWindow:
    def test_four_failures_of_the_last_ten_are_faulty(self) -> None:
        detector = WindowedDetector(10, 4)
        for success in (False, True, False, True, False, True):
            detector.on_probe_result(success, 0.0)
            assert not detector.is_faulty(0.0)
        detector.on_probe_result(False, 0.0)
        assert detector.is_faulty(0.0)

    def test_b7_failures_slide_out_instead_of_adding_up(self) -> None:
        """1 % loss for a million probes must evict nobody; a cumulative count evicts everybody in minutes."""
        detector = WindowedDetector(10, 4)
        rng = random.Random(1)
        for _ in range(100_000):
            detector.on_probe_result(rng.random() >= 0.01**3, 0.0)
            assert not detector.is_faulty(0.0)
        for success in [False] * 4 + [True] * 7:
            detector.on_probe_result(success, 0.0)
        assert not detector.is_faulty(0.0)

    def test_evidence_is_recent(self) -> None:
        detector = WindowedDetector(10, 4)
        detector.on_probe_result(False, 0.0)
        assert detector.has_evidence()
        detector.on_probe_result(True, 0.0)
        assert detector.has_evidence()
        detector.on_probe_result(True, 0.0)
        assert not detector.has_evidence()


NO_REST = Settings(idle_probes=Settings().rings)


class Prober:
    """A monitor with a network in which some subjects are silent. Unless told otherwise, it never rests."""

    def __init__(
        self,
        lab,
        size: int = 30,
        settings: Settings | None = None,
        factory: DetectorFactory | None = None,
    ) -> None:
        self.lab = lab
        self.settings = settings or NO_REST
        self.context = lab.context(lab.configuration(size), settings=self.settings)
        self.monitor = Monitor(self.context, factory)
        self.monitor.on_view_change(0.0)
        self.silent: set[bytes] = set()
        self.answer_share = 1.0
        self.rng = random.Random(2)
        self.probes = 0
        self.probes_to: dict[str, int] = {}
        self.requests: list[IndirectProbe] = []
        self.told: list[tuple[str, tuple[Address, ...]]] = []
        """About whom other observers were told, and whom."""
        self.reached_by_helpers: bool | None = None
        """What helpers answer; None: nothing."""
        self.now = 0.0
        self.events: list[object] = []

    def run(self, until: float) -> None:
        while self.monitor.deadline <= until:
            self.now = self.monitor.deadline
            self.monitor.tick(self.now, Digest())
            self.collect()

    def collect(self) -> None:
        effects = self.context.take_effects(0.0)
        self.events.extend(effects.events)
        by_address = {edge.subject.address: edge.subject for edge in self.monitor.subjects}
        for send in effects.sends:
            if isinstance(send.message, IndirectProbe):
                self.help(send.message, send.destinations)
                continue
            if isinstance(send.message, StreamProbe):
                continue
            if isinstance(send.message, Unanswered):
                self.told.append((self.context.view.members[send.message.subject].name, send.destinations))
                continue
            assert isinstance(send.message, Probe)
            for address in send.destinations:
                self.probes += 1
                subject = by_address[address]
                self.probes_to[subject.name] = self.probes_to.get(subject.name, 0) + 1
                if subject.incarnation not in self.silent and self.rng.random() < self.answer_share:
                    self.monitor.on_acknowledgement(subject.incarnation, send.message.sequence, self.now)

    def help(self, request: IndirectProbe, helpers: tuple[Address, ...]) -> None:
        self.requests.append(request)
        view = self.context.view
        for address in helpers:
            index = view.index_of_address(address)
            assert index is not None
            if self.reached_by_helpers is not None:
                header = (view.members[index].incarnation, view.epoch, view.id)
                answer = IndirectAnswer(*header, request.subject, request.sequence, self.reached_by_helpers)
                self.monitor.indirect.on_answer(answer)

    @property
    def failed(self) -> set[str]:
        return {edge.subject.name for edge in self.monitor.failed_edges()}


def test_each_distinct_subject_is_probed_once_per_interval(lab) -> None:
    prober = Prober(lab)
    subjects = set(prober.context.view.subjects_of(prober.context.me))
    prober.run(10.0)
    assert len(prober.monitor.subjects) == len(subjects)
    assert prober.probes == len(subjects) * 10
    rings = [edge.rings for edge in prober.monitor.subjects]
    assert sum(rings) == 1023, "every ring has one subject"


def test_a_silent_subject_is_found_after_four_intervals(lab) -> None:
    prober = Prober(lab)
    prober.run(5.0)
    victim = prober.monitor.subjects[0].subject
    prober.silent.add(victim.incarnation)
    prober.run(8.0)
    assert not prober.failed
    prober.run(10.0)
    assert prober.failed == {victim.name}
    assert prober.events == [EdgeFailed(victim)]
    prober.silent.clear()
    prober.run(25.0)
    assert prober.events[1:] == [EdgeRecovered(victim)]


def test_an_unanswered_probe_is_repeated_within_its_interval(lab) -> None:
    settings = Settings()
    prober = Prober(lab)
    prober.silent = {edge.subject.incarnation for edge in prober.monitor.subjects[:1]}
    prober.run(20.0)
    subject = prober.monitor.subjects[0].subject.name
    others = [count for name, count in prober.probes_to.items() if name != subject]
    assert set(others) == {20}
    # After two rounds without any answer the link is suspicious and is probed twice as often.
    expected = 2 * settings.probe_attempts + 18 * (2 * settings.probe_attempts - 1)
    assert abs(prober.probes_to[subject] - expected) <= 2 * settings.probe_attempts


def test_twenty_per_cent_loss_both_ways_fails_no_edge(lab) -> None:
    prober = Prober(lab)
    prober.answer_share = 0.8 * 0.8
    prober.run(600.0)
    assert not prober.events


def test_eighty_per_cent_loss_one_way_fails_every_edge(lab) -> None:
    prober = Prober(lab)
    prober.answer_share = 0.2
    prober.run(60.0)
    found = {event.subject.name for event in prober.events if isinstance(event, EdgeFailed)}
    assert found == {edge.subject.name for edge in prober.monitor.subjects}


class TestRest:
    """With nothing against its subjects for a while, a member probes a few of them at a time."""

    def resting(self, lab, factory: DetectorFactory | None = None) -> Prober:
        prober = Prober(lab, 300, Settings(), factory)
        prober.run(20.0)
        return prober

    def probes_of(self, prober: Prober, seconds: float) -> dict[str, int]:
        before = dict(prober.probes_to)
        prober.run(prober.now + seconds)
        return {name: count - before.get(name, 0) for name, count in prober.probes_to.items()}

    def test_a_few_subjects_at_a_time_and_each_in_its_turn(self, lab) -> None:
        prober = self.resting(lab)
        assert prober.monitor.idle
        subjects = len(prober.monitor.subjects)
        assert set(self.probes_of(prober, float(subjects)).values()) == {prober.settings.idle_probes}
        assert not prober.told

    def test_it_begins_when_a_window_of_probes_was_answered(self, lab) -> None:
        prober = Prober(lab, 300, Settings())
        prober.run(prober.settings.probe_window + 0.5)
        assert set(prober.probes_to.values()) >= {prober.settings.probe_window}

    def test_a_silent_subject_ends_it_and_its_other_observers_are_told_once(self, lab) -> None:
        prober = self.resting(lab)
        victim = prober.monitor.subjects[0].subject
        prober.silent.add(victim.incarnation)
        sound = prober.monitor.subjects[1].subject.name
        assert self.probes_of(prober, 10.0)[sound] >= 6, "all are probed again"
        view = prober.context.view
        others = {view.addresses[index] for index in view.observers_of(victim)} - {prober.context.me.address}
        [(name, told)] = prober.told
        assert (name, set(told)) == (victim.name, others)
        assert prober.failed == {victim.name}

    def test_one_that_is_told_probes_all_at_once_if_three_attempts_fit(self, lab) -> None:
        prober = self.resting(lab)
        began = prober.monitor.deadline
        prober.run(began + 0.3)
        edge = next(edge for edge in prober.monitor.subjects if not edge.sent)
        prober.silent.add(edge.subject.incarnation)
        prober.monitor.on_unanswered(edge.index, began + 0.3)
        prober.run(began + 0.4)
        assert all(each.sent for each in prober.monitor.subjects)
        prober.run(began + 4.1)
        assert prober.failed == {edge.subject.name}
        assert not prober.told, "the others know"

    def test_one_that_is_told_late_in_a_round_judges_nobody_by_fewer(self, lab) -> None:
        prober = self.resting(lab)
        began = prober.monitor.deadline
        prober.run(began + 0.5)
        edge = next(edge for edge in prober.monitor.subjects if not edge.sent)
        prober.silent.add(edge.subject.incarnation)
        prober.monitor.on_unanswered(edge.index, began + 0.5)
        prober.run(began + 4.1)
        assert not prober.failed
        prober.run(began + 5.1)
        assert prober.failed == {edge.subject.name}

    def test_a_word_about_others_than_its_subjects_changes_nothing(self, lab) -> None:
        prober = self.resting(lab)
        subjects = {edge.index for edge in prober.monitor.subjects}
        foreign = next(index for index in range(300) if index not in subjects)
        for index in (foreign, 300):
            prober.monitor.on_unanswered(index, prober.now)
        assert prober.monitor.idle
        assert prober.context.counters[counter_of(Refusal.UNANSWERED_NOT_OBSERVED)] == 2

    def test_it_ends_while_a_view_change_is_under_way(self, lab) -> None:
        prober = self.resting(lab)
        prober.monitor.tick(prober.monitor.deadline, Digest(alerts=1, alert_bits=1))
        assert len(lab.sent(prober.context, Probe)) == 1
        assert all(edge.sent for edge in prober.monitor.subjects)

    def test_a_detector_that_goes_by_time_is_never_kept_waiting(self, lab) -> None:
        prober = self.resting(lab, phi_accrual())
        assert set(self.probes_of(prober, 20.0).values()) == {20}

    def test_few_subjects_never_rest(self, lab) -> None:
        prober = Prober(lab, 4, Settings())
        prober.run(30.0)
        assert prober.probes == 3 * 30


class TestViewChange:
    def change(self, prober: Prober, victim_name: str, now: float) -> None:
        view = prober.context.view
        removed = view.member(victim_name)
        prober.context.install(view.apply(Cut.of([], [Removal(removed.incarnation)])))
        prober.monitor.on_view_change(now)

    def test_b8_the_detector_of_an_edge_that_stays_survives(self, lab) -> None:
        """Reset at every view change, it would never get to its fourth failure in a busy cluster."""
        prober = Prober(lab)
        prober.run(3.0)
        victim = prober.monitor.subjects[0].subject
        prober.silent.add(victim.incarnation)
        subjects = {edge.subject.name for edge in prober.monitor.subjects}
        others = [
            m.name for m in prober.context.view.members if m.name not in subjects and m != prober.context.me
        ]
        now = 3.0
        for other in others[:6]:
            now += 1.0
            prober.run(now)
            self.change(prober, other, now)
            assert victim.name in {edge.subject.name for edge in prober.monitor.subjects}
        assert victim.name in prober.failed

    def test_b19_no_accusation_of_a_former_subject(self, lab) -> None:
        prober = Prober(lab)
        victim = prober.monitor.subjects[0].subject
        prober.silent.add(victim.incarnation)
        prober.run(8.0)
        assert victim.name in prober.failed
        self.change(prober, victim.name, 8.0)
        assert prober.failed == set()
        prober.run(20.0)
        assert prober.failed == set()

    def test_a_new_edge_is_not_judged_by_probes_before_it(self, lab) -> None:
        prober = Prober(lab, 300)
        prober.run(3.5)
        before = {edge.subject.name for edge in prober.monitor.subjects}
        self.change(prober, prober.monitor.subjects[0].subject.name, 3.5)
        fresh = [edge for edge in prober.monitor.subjects if edge.subject.name not in before]
        assert fresh
        prober.run(4.5)
        assert not any(edge.detector.has_evidence() for edge in fresh)


class TestSelfDoubt:
    def test_nearly_all_subjects_silent_means_the_fault_is_here(self, lab) -> None:
        prober = Prober(lab)
        subjects = [edge.subject.incarnation for edge in prober.monitor.subjects]
        sound = max(2, -(-len(subjects) // 4))
        prober.silent = set(subjects[sound:])
        prober.run(10.0)
        assert not prober.monitor.doubts_itself, "a fault here would touch the others too"
        prober.silent = set(subjects[sound - 1 :])
        prober.run(20.0)
        assert prober.monitor.doubts_itself

    @pytest.mark.parametrize("pause", [0.7, 5.0, 30.0])
    def test_failures_during_an_own_pause_do_not_count(self, lab, pause: float) -> None:
        """The answers are in the socket's buffer, or were never asked for: no subject is to blame."""
        prober = Prober(lab)
        prober.run(5.0)
        everybody = {edge.subject.incarnation for edge in prober.monitor.subjects}
        for _ in range(6):
            prober.silent = everybody
            late = prober.monitor.deadline + prober.settings.probe_interval + pause
            prober.monitor.tick(prober.monitor.deadline, Digest())
            prober.collect()
            prober.monitor.tick(late, Digest())
            prober.silent = set()
            prober.collect()
        assert not prober.events
        assert prober.context.counters["probe rounds discarded for own lag"] >= 5


class TestNotMember:
    def probe(self, prober: Prober) -> Probe:
        prober.monitor.tick(prober.monitor.deadline, Digest())
        return prober.lab.sent(prober.context, Probe)[-1]

    def test_b15_another_incarnation_at_the_address_is_no_sign_of_life_nor_accused_at_once(self, lab) -> None:
        """It will take the subject's place in one cut; should it not, the probes keep failing."""
        prober = Prober(lab)
        probe = self.probe(prober)
        subject = prober.monitor.subjects[0].subject
        answer = NotMember(b"another process!", probe.configuration_id, probe.sequence)
        assert prober.monitor.on_not_member(subject.address, answer, 1.0) is None
        assert not prober.failed
        assert prober.monitor.subjects[0].replaced
        assert not prober.monitor.subjects[0].answered

    def test_a_subject_that_answers_itself_again_was_not_replaced(self, lab) -> None:
        """Two had one address for a moment; nothing is held against the subject any more."""
        prober = Prober(lab)
        probe = self.probe(prober)
        edge = prober.monitor.subjects[0]
        answer = NotMember(b"another process!", probe.configuration_id, probe.sequence)
        prober.monitor.on_not_member(edge.subject.address, answer, 1.0)
        assert edge.has_evidence()
        prober.monitor.on_acknowledgement(edge.subject.incarnation, probe.sequence, 1.1)
        assert not edge.has_evidence()

    def test_the_same_incarnation_only_lacks_its_view(self, lab) -> None:
        prober = Prober(lab)
        probe = self.probe(prober)
        subject = prober.monitor.subjects[0].subject
        answer = NotMember(subject.incarnation, probe.configuration_id, probe.sequence)
        assert prober.monitor.on_not_member(subject.address, answer, 1.0) == subject
        assert not prober.failed

    def test_b14_it_must_echo_the_probe(self, lab) -> None:
        prober = Prober(lab)
        probe = self.probe(prober)
        subject = prober.monitor.subjects[0].subject
        for configuration_id, sequence in (
            (bytes(16), probe.sequence),
            (probe.configuration_id, probe.sequence + 64),
        ):
            forged = NotMember(b"another process!", configuration_id, sequence)
            prober.monitor.on_not_member(subject.address, forged, 1.0)
        assert not prober.failed


class TestExcuse:
    def test_a_subject_that_others_reach_is_behind_a_broken_link(self, lab) -> None:
        prober = Prober(lab)
        victim = prober.monitor.subjects[0].subject
        prober.silent.add(victim.incarnation)
        prober.reached_by_helpers = True
        prober.run(60.0)
        assert not prober.events
        prober.reached_by_helpers = False
        prober.run(62.5)
        assert prober.failed == {victim.name}, "two rounds later: then it is the subject after all"

    @pytest.mark.parametrize("helpers", [False, None])
    def test_one_that_they_do_not_reach_is_found_as_soon_as_without_them(self, lab, helpers) -> None:
        prober = Prober(lab)
        prober.run(5.0)
        victim = prober.monitor.subjects[0].subject
        prober.silent.add(victim.incarnation)
        prober.reached_by_helpers = helpers
        prober.run(10.0)
        assert prober.failed == {victim.name}

    def test_what_was_said_is_forgotten_when_it_answers_again(self, lab) -> None:
        prober = Prober(lab)
        victim = prober.monitor.subjects[0].subject
        prober.silent.add(victim.incarnation)
        prober.reached_by_helpers = True
        prober.run(10.0)
        prober.silent.clear()
        prober.run(20.0)
        assert not prober.monitor.indirect.verdicts
        assert not any(edge.excused for edge in prober.monitor.subjects)


class TestLocalHealth:
    def test_one_that_cannot_reach_what_others_reach_waits_longer(self, lab) -> None:
        """Four of ten subjects silent: not most of them, but helpers reach some of those."""
        prober = Prober(lab)
        prober.run(3.0)
        prober.silent = {edge.subject.incarnation for edge in prober.monitor.subjects[:4]}
        answers = iter([True, True, False] * 1000)
        prober.help = lambda request, helpers: [  # type: ignore[method-assign]
            Prober.help(prober, request, (helper,))
            for helper in helpers
            if not setattr(prober, "reached_by_helpers", next(answers))
        ]
        prober.run(10.0)
        assert not prober.failed
        assert prober.monitor.health.score > 0
        prober.silent.clear()
        prober.run(30.0)
        assert prober.monitor.health.score == 0, "it recovers"

    def test_a_lossy_subject_is_no_reason_for_doubt(self, lab) -> None:
        prober = Prober(lab)
        prober.silent = {edge.subject.incarnation for edge in prober.monitor.subjects[:1]}
        prober.reached_by_helpers = False
        prober.run(20.0)
        assert prober.monitor.health.score == 0

    def test_nobody_joins_others_on_half_the_evidence_while_it_is_sick(self, lab) -> None:
        prober = Prober(lab)
        victim = prober.monitor.subjects[0].subject
        prober.silent.add(victim.incarnation)
        prober.run(3.95)
        assert [edge.subject.name for edge in prober.monitor.corroborating_edges()] == [victim.name]
        prober.monitor.health.on_lag()
        assert not prober.monitor.corroborating_edges()


def test_one_that_doubts_itself_does_not_probe_more_often(lab) -> None:
    """If nobody answers, twice the packets to everybody help nobody."""
    prober = Prober(lab)
    prober.silent = {edge.subject.incarnation for edge in prober.monitor.subjects}
    prober.run(20.0)
    # Only the second silent round starts the doubt: until then nothing was suspicious.
    assert max(prober.probes_to.values()) <= 20 * prober.settings.probe_attempts


def test_b7_two_per_cent_of_attempts_lost_for_long_fail_no_edge(lab) -> None:
    prober = Prober(lab)
    prober.answer_share = 0.98
    prober.run(3000.0)
    assert not prober.events


def test_attempts_missed_by_a_late_member_are_skipped(lab) -> None:
    """In a burst they would leave no time for an answer, and load a machine that has no time to spare already."""
    prober = Prober(lab)
    prober.silent = {edge.subject.incarnation for edge in prober.monitor.subjects}
    prober.run(5.0)
    retransmit = prober.settings.probe_retransmit
    late = prober.monitor.deadline + 2.2 * retransmit
    before = prober.probes
    prober.monitor.tick(late, Digest())
    prober.collect()
    assert prober.probes == before + len(prober.monitor.subjects), "one attempt for those that were missed"
    assert prober.monitor.deadline >= late + retransmit / 4


def test_late_answers_are_no_losses(lab) -> None:
    """On a link with a round trip of 0.8 s most attempts are answered in the next round only."""
    prober = Prober(lab)
    waiting: list[tuple[float, bytes, int]] = []
    while prober.monitor.deadline <= 60.0:
        now = prober.monitor.deadline
        for at, incarnation, sequence in [entry for entry in waiting if entry[0] <= now]:
            prober.monitor.on_acknowledgement(incarnation, sequence, at)
        waiting = [entry for entry in waiting if entry[0] > now]
        prober.monitor.tick(now, Digest())
        by_address = {edge.subject.address: edge.subject for edge in prober.monitor.subjects}
        effects = prober.context.take_effects(0.0)
        assert not effects.events
        for send in effects.sends:
            if isinstance(send.message, Probe) and send.message.sequence < 1 << 61:
                for address in send.destinations:
                    if address in by_address:
                        incarnation = by_address[address].incarnation
                        waiting.append((now + 0.8, incarnation, send.message.sequence))
    assert not any(edge.loss.score for edge in prober.monitor.subjects)


@pytest.mark.parametrize("pause", [0.7, 30.0, 3600.0])
def test_phi_does_not_count_time_that_it_did_not_watch(lab, pause: float) -> None:
    """A pause or a jump of the own clock makes no silence."""
    prober = Prober(lab, factory=phi_accrual())
    prober.run(10.0)
    for _ in range(5):
        late = prober.monitor.deadline + prober.settings.probe_interval + pause
        prober.now = late
        prober.monitor.tick(late, Digest())
        prober.collect()
        prober.run(late + 2.5)
    assert not prober.events
    victim = prober.monitor.subjects[0].subject
    prober.silent.add(victim.incarnation)
    prober.run(prober.now + 6.0)
    assert prober.failed == {victim.name}
