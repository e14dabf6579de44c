"""Indirect probes: what helpers do, whose answers count, and what they count for."""

from __future__ import annotations

import random
from math import comb

import pytest

from membership.protocol.messages import IndirectAnswer, IndirectProbe, Probe, StreamProbe
from membership.protocol.monitoring.indirect_probe import HELPED_SEQUENCE, IndirectProbes, Verdicts
from membership.protocol.monitoring.local_health import WORST, LocalHealth


class TestVerdicts:
    def test_six_good_of_six_excuse(self) -> None:
        verdicts = Verdicts()
        for _ in range(5):
            verdicts.add(True)
            assert not verdicts.excuse
        verdicts.add(True)
        assert verdicts.excuse

    def test_two_bad_ones_among_eight_do_not(self) -> None:
        verdicts = Verdicts()
        for _ in range(20):
            verdicts.add(True)
        verdicts.add(False)
        assert verdicts.excuse
        verdicts.add(False)
        assert not verdicts.excuse
        for _ in range(7):
            verdicts.add(True)
        assert verdicts.excuse, "only the last eight count"

    @pytest.mark.parametrize(("answers", "expected"), [(0.2, 0.0016), (0.9025, 0.89)])
    def test_the_closed_form(self, answers: float, expected: float) -> None:
        exact = sum(comb(6, good) * answers**good * (1 - answers) ** (6 - good) for good in (5, 6))
        assert exact == pytest.approx(expected, abs=0.005)
        rng = random.Random(3)
        excused = 0
        for _ in range(4000):
            verdicts = Verdicts()
            for _ in range(6):
                verdicts.add(rng.random() < answers)
            excused += verdicts.excuse
        assert excused / 4000 == pytest.approx(exact, abs=0.02)

    def test_three_bad_ones_in_a_row_confirm_the_silence(self) -> None:
        verdicts = Verdicts()
        for reached in (True, False, False):
            verdicts.add(reached)
            assert not verdicts.confirm
        verdicts.add(False)
        assert verdicts.confirm
        verdicts.add(True)
        assert not verdicts.confirm

    def test_streams_count_only_when_no_helper_says_anything(self) -> None:
        verdicts = Verdicts()
        for _ in range(2):
            verdicts.add_stream(True)
        assert not verdicts.excuse
        verdicts.add_stream(True)
        assert verdicts.excuse
        verdicts.add(False)
        assert not verdicts.excuse


class TestObserver:
    def asking(self, lab, size: int = 10, stream: bool = False):
        context = lab.context(lab.configuration(size))
        indirect = IndirectProbes(context)
        subject = context.view.members[3]
        indirect.ask(subject, 3, 7, {4, 5}, stream=stream)
        sends = context.take_effects(0.0).sends
        return context, indirect, subject, sends

    def test_two_others_are_asked_that_are_not_silent_themselves(self, lab) -> None:
        for seed in range(20):
            context = lab.context(lab.configuration(10), seed=seed)
            indirect = IndirectProbes(context)
            indirect.ask(context.view.members[3], 3, 7, {4, 5}, stream=False)
            (send,) = context.take_effects(0.0).sends
            asked = {context.view.index_of_address(address) for address in send.destinations}
            assert len(asked) == 2
            assert not asked & {0, 3, 4, 5}

    def test_once_per_round(self, lab) -> None:
        context, indirect, subject, _ = self.asking(lab)
        indirect.ask(subject, 3, 7, (), stream=True)
        assert not context.take_effects(0.0).sends

    def test_there_may_be_nobody_to_ask(self, lab) -> None:
        context = lab.context(lab.configuration(2))
        indirect = IndirectProbes(context)
        indirect.ask(context.view.members[1], 1, 7, (), stream=True)
        (send,) = context.take_effects(0.0).sends
        assert isinstance(send.message, StreamProbe)
        assert send.reliable

    def test_b14_only_a_helper_that_was_asked_counts_and_once(self, lab) -> None:
        context, indirect, subject, sends = self.asking(lab)
        view = context.view
        helper = view.members[view.index_of_address(sends[0].destinations[0])]
        stranger = next(
            member
            for member in view.members
            if member.address not in sends[0].destinations and member != subject
        )
        header = (view.epoch, view.id)
        for answer in (
            IndirectAnswer(stranger.incarnation, *header, 3, 7, True),
            IndirectAnswer(helper.incarnation, *header, 3, 8, True),
            IndirectAnswer(helper.incarnation, *header, 2, 7, True),
            IndirectAnswer(helper.incarnation, *header, 3000, 7, True),
        ):
            indirect.on_answer(answer)
        assert indirect.conclude_round(6, watched=True).reached == 0
        for _ in range(3):
            indirect.on_answer(IndirectAnswer(helper.incarnation, *header, 3, 7, True))
        summary = indirect.conclude_round(7, watched=True)
        assert (summary.reached, summary.unreached, summary.unhelpful) == (1, 0, 1)

    def test_a_late_observer_blames_no_helper(self, lab) -> None:
        _, indirect, subject, _ = self.asking(lab, stream=True)
        assert indirect.conclude_round(7, watched=False).unhelpful == 0
        assert subject.incarnation not in indirect.verdicts

    def test_a_stream_answer_counts_in_its_round(self, lab) -> None:
        _, indirect, subject, _ = self.asking(lab, stream=True)
        indirect.on_stream_answer(subject.incarnation, 6)
        assert subject.incarnation not in indirect.verdicts
        indirect.on_stream_answer(subject.incarnation, 7)
        assert subject.incarnation in indirect.verdicts

    def test_requests_do_not_survive_a_view_change(self, lab) -> None:
        _, indirect, _, _ = self.asking(lab)
        indirect.on_view_change({})
        assert indirect.conclude_round(7, watched=True).unhelpful == 0
        assert not indirect.verdicts


class TestHelper:
    def request(self, lab, subject: int, sequence: int = 5):
        context = lab.context(lab.configuration(10))
        indirect = IndirectProbes(context)
        view = context.view
        requester = view.members[2]
        message = IndirectProbe(requester.incarnation, view.epoch, view.id, subject, sequence)
        indirect.on_request(message, requester, 100.0)
        return context, indirect, requester, message

    def test_it_probes_once_and_reports_the_answer(self, lab) -> None:
        context, indirect, requester, _ = self.request(lab, 6)
        subject = context.view.members[6]
        (send,) = context.take_effects(0.0).sends
        assert send.destinations == (subject.address,)
        assert isinstance(send.message, Probe)
        assert send.message.sequence >= HELPED_SEQUENCE
        assert send.message.digest is None
        indirect.on_acknowledgement(context.view.members[7].incarnation, send.message.sequence)
        assert not context.take_effects(0.0).sends, "somebody else's answer"
        indirect.on_acknowledgement(subject.incarnation, send.message.sequence)
        (answer,) = context.take_effects(0.0).sends
        assert answer.destinations == (requester.address,)
        assert answer.message.reached
        assert (answer.message.subject, answer.message.sequence) == (6, 5)
        indirect.tick(indirect.deadline)
        assert not context.take_effects(0.0).sends

    def test_it_says_so_when_there_is_no_answer(self, lab) -> None:
        context, indirect, _, _ = self.request(lab, 6)
        context.take_effects(0.0)
        assert indirect.deadline == 100.5
        indirect.tick(100.4)
        assert not context.take_effects(0.0).sends
        indirect.tick(100.5)
        (answer,) = context.take_effects(0.0).sends
        assert not answer.message.reached

    @pytest.mark.parametrize("subject", [0, 10, 5000])
    def test_nonsense_is_dropped(self, lab, subject: int) -> None:
        context, _, _, _ = self.request(lab, subject)
        assert not context.take_effects(0.0).sends
        assert context.counters["dropped: a request to probe nobody, or this member itself"] == 1

    def test_b13_a_flood_of_requests_is_bounded(self, lab) -> None:
        context, indirect, requester, message = self.request(lab, 6)
        for _ in range(1000):
            indirect.on_request(message, requester, 100.0)
        assert context.counters["probes on behalf of others"] <= 64
        indirect.tick(101.0)
        context.take_effects(0.0)
        indirect.on_request(message, requester, 101.0)
        assert len(context.take_effects(0.0).sends) == 1


class TestLocalHealth:
    def after(self, health: LocalHealth, **counts: int) -> int:
        health.on_round(**{"edges": 10, "silent": 0, "reached": 0, "unreached": 0, "unhelpful": 0, **counts})
        return health.score

    def test_a_dead_subject_or_two_are_no_reason_for_doubt(self) -> None:
        health = LocalHealth()
        assert self.after(health, silent=1, unreached=2) == 0
        assert self.after(health, silent=1, unhelpful=2) == 0
        assert self.after(health, silent=2, unreached=3, unhelpful=1) == 0
        assert self.after(health, silent=1, reached=2) == 0, "one broken link"

    @pytest.mark.parametrize(
        "signs",
        [
            {"silent": 6, "unreached": 12},
            {"silent": 3, "reached": 4, "unreached": 1},
            {"silent": 2, "unhelpful": 4},
        ],
    )
    def test_signs_of_own_trouble_raise_it_to_a_bound_and_it_recovers(self, signs: dict[str, int]) -> None:
        health = LocalHealth()
        for _ in range(50):
            self.after(health, **signs)
        assert health.score == WORST
        for expected in reversed(range(WORST)):
            assert self.after(health) == expected
        assert self.after(health) == 0

    def test_own_lag_raises_it(self) -> None:
        health = LocalHealth()
        health.on_lag()
        assert health.score > 0
