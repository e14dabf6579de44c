"""The loss test of an edge: against a dumb twin, against its closed form, and what it tells apart."""

from __future__ import annotations

import random
from dataclasses import replace
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from membership.protocol.monitoring.loss_test import LossTest, false_alarm_rounds
from membership.settings import Settings, SettingsError

ROUNDS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40)


def step(settings: Settings, lost: int, answered: int) -> float:
    """The logarithm of the likelihood ratio of a round, no round worth more than a quarter of the threshold."""
    tolerated, faulty = settings.loss_tolerated, settings.loss_faulty
    ratio = lost * log(faulty / tolerated) + answered * log((1 - faulty) / (1 - tolerated))
    return min(ratio, settings.loss_threshold / 4)


@given(ROUNDS)
def test_the_score_is_the_largest_sum_over_the_latest_rounds(rounds: list[tuple[int, int]]) -> None:
    """Page's recursion against its definition; the threshold is so high that the memory's end is not reached."""
    settings = replace(Settings(), loss_threshold=160.0)
    test = LossTest(settings)
    for lost, answered in rounds:
        test.on_round(lost, answered)
    steps = [step(settings, lost, answered) for lost, answered in rounds]
    assert test.score == pytest.approx(max(sum(steps[start:]) for start in range(len(steps) + 1)), abs=1e-9)


@given(ROUNDS)
def test_it_never_convicts_in_less_than_four_rounds_and_forgets_within_a_few(
    rounds: list[tuple[int, int]],
) -> None:
    settings = Settings()
    test = LossTest(settings)
    for lost, answered in rounds:
        before = test.score
        test.on_round(lost, answered)
        assert test.score - before <= settings.loss_threshold / 4 + 1e-9
    for _ in range(3):
        test.on_round(0, 9)
    assert test.score == 0


def attempts(rng: random.Random, loss: float, most: int) -> tuple[int, int]:
    """One probe: repeated until it is answered, at most so often."""
    for lost in range(most):
        if rng.random() >= loss:
            return lost, 1
    return most, 0


def burst(rng: random.Random, loss: float) -> tuple[int, int]:
    """The nine attempts of one round on a suspicious link."""
    answered = sum(rng.random() >= loss for _ in range(9))
    return 9 - answered, answered


@pytest.mark.parametrize("loss", [0.36, 0.45, 0.5])
def test_false_alarms_are_as_rare_as_the_closed_form_says(loss: float) -> None:
    settings = replace(Settings(), loss_threshold=4.0)
    rng = random.Random(4)
    alarms, rounds = 0, 40_000
    test = LossTest(settings)
    for _ in range(rounds):
        test.on_round(*burst(rng, loss))
        if test.is_faulty:
            alarms += 1
            test = LossTest(settings)
    assert alarms > 0, "the threshold is low enough here to see some"
    assert rounds / alarms >= false_alarm_rounds(settings, loss)


def test_the_figures_in_the_settings() -> None:
    settings = Settings()
    assert false_alarm_rounds(settings, 0.36) == pytest.approx(exp(settings.loss_threshold))
    assert 9e19 < false_alarm_rounds(settings, 1 - 0.95**2) < 1e20
    assert false_alarm_rounds(settings, 1 - 0.99**2) > 1e33
    low, high = settings.loss_tolerated, settings.loss_faulty
    per_answer = log((1 - low) / (1 - high))
    assert per_answer / (log(high / low) + per_answer) == pytest.approx(0.593, abs=0.001)
    with pytest.raises(ValueError, match="break-even"):
        false_alarm_rounds(settings, 0.6)


def test_eighty_per_cent_one_way_is_convicted_after_about_eight_rounds() -> None:
    rng = random.Random(5)
    needed = []
    for _ in range(300):
        test = LossTest(Settings())
        rounds = 0
        while not test.is_faulty:
            if test.suspicious:
                test.on_round(*burst(rng, 0.8))
            else:
                test.on_round(*attempts(rng, 0.8, 5))
            rounds += 1
        needed.append(rounds)
    assert 6 < sum(needed) / len(needed) < 9
    assert sorted(needed)[270] <= 12, "nine of ten observers make up their minds within a few rounds"


@pytest.mark.parametrize(
    "change",
    [{"loss_tolerated": 0.9}, {"loss_faulty": 1.0}, {"loss_tolerated": 0.0}, {"probe_attempts": 33}],
)
def test_settings_that_make_no_test_are_refused(change: dict[str, float]) -> None:
    values = {"probe_retransmit": 0.01, **change}
    with pytest.raises(SettingsError):
        replace(Settings(), **values)
