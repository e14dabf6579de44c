"""The table of Figure 11: the fast path is the cut detector, and the estimates are the closed form."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bench.__main__ import bench
from bench.members.cut_sensitivity import HIGH, LOW, RINGS, closed_form, conflicts, estimate
from membership.address import Address
from membership.protocol.cut_detection.alert_table import AlertTable
from membership.protocol.cut_detection.cut_detector import CutDetector
from membership.protocol.messages import Alert, AlertKind
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member
from membership.settings import Settings


def member(number: int) -> Member:
    return Member.create(
        f"n{number}", Address("10.0.0.1", 1 + number), random.Random(number).randbytes(16), {}
    )


def view_of_a_thousand() -> Configuration:
    first = Configuration.found(member(0), bytes(16), RINGS)
    return first.apply(Cut.of([member(number) for number in range(1, 1000)]))


VIEW = view_of_a_thousand()


def independent_subjects(count: int, rng: random.Random) -> list[int]:
    """Members with ten different observers each, none of which is among them: no alert is implicit."""
    while True:
        subjects = rng.sample(range(len(VIEW)), count)
        observers = [VIEW.observers_of(VIEW.members[subject]) for subject in subjects]
        if all(len(set(each)) == RINGS and not set(each) & set(subjects) for each in observers):
            return subjects


def detector_conflicts(order: list[int], subjects: list[int], high: int, low: int) -> bool:
    """Whether the detector's first cut lacks a subject when alerts come in this order (of subjects' numbers)."""
    settings = Settings(high_watermark=high, low_watermark=low)
    table = AlertTable(VIEW, settings)
    detector = CutDetector(VIEW, table, settings)
    rings = dict.fromkeys(subjects, 0)
    for number in order:
        subject = subjects[number]
        table.merge(Alert(AlertKind.REMOVE, subject, 1 << rings[subject]), 0.0)
        rings[subject] += 1
        assessment = detector.assess()
        if assessment.ready:
            return len(detector.cut(assessment).removals) < len(subjects)
    raise AssertionError("all alerts are there, and nothing is proposed")


def arrivals(order: list[int], failures: int) -> np.ndarray:
    found: list[list[float]] = [[] for _ in range(failures)]
    for moment, number in enumerate(order):
        found[number].append(float(moment))
    return np.array([found])


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    failures=st.integers(2, 5),
    high=st.sampled_from(HIGH),
    low=st.sampled_from(LOW),
)
def test_the_fast_path_is_the_cut_detector(seed: int, failures: int, high: int, low: int) -> None:
    rng = random.Random(seed)
    subjects = independent_subjects(failures, rng)
    # Runs of one subject, so that conflicts are not rare.
    order = [number for number in range(failures) for _ in range(RINGS)]
    rng.shuffle(order)
    if rng.random() < 0.5:
        order.sort(key=lambda number: number * rng.random())
    slow = detector_conflicts(order, subjects, high, low)
    # To the detector a lone accuser is noise: at L = 1 it does what it does at L = 2.
    assert bool(conflicts(arrivals(order, failures), high, max(low, 2))[0]) == slow


def test_a_conflict_and_none_by_hand() -> None:
    apart = [0] * 10 + [1] * 10
    assert conflicts(arrivals(apart, 2), 9, 3)[0]
    in_turns = [0, 1] * 10
    assert not conflicts(arrivals(in_turns, 2), 9, 3)[0]
    # Three alerts about the other before the ninth about the first make it unstable: nothing is proposed yet.
    assert not conflicts(arrivals([1] * 3 + [0] * 10 + [1] * 7, 2), 9, 3)[0]
    assert conflicts(arrivals([1] * 2 + [0] * 10 + [1] * 8, 2), 9, 3)[0]


@pytest.mark.parametrize("high", HIGH)
def test_two_failures_are_the_closed_form(high: int) -> None:
    draws = 40_000
    estimates = estimate(2, draws, 7)
    for low in LOW:
        exact = closed_form(high, low)
        error = (exact * (1 - exact) / draws) ** 0.5
        assert abs(estimates[high, low] - exact) < 4.5 * error


def test_the_command_judges_the_whole_table() -> None:
    outcome = CliRunner().invoke(bench, ["cut-sensitivity", "--draws", "40000", "--json"])
    figures = json.loads(outcome.stdout)
    assert len(figures["cells"]) == 64
    assert figures["within_sampling_error"]
    assert outcome.exit_code == 0
    shown = CliRunner().invoke(bench, ["cut-sensitivity", "--draws", "1000"]).stdout
    assert "F=16 ours" in shown
