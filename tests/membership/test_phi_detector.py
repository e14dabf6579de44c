"""The phi-accrual detector: its formula, its patience, its bounds."""

from __future__ import annotations

import random
from math import isfinite, log10
from statistics import NormalDist, fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from membership.protocol.monitoring.phi_detector import PhiAccrualDetector, phi, phi_accrual
from membership.settings import Settings, SettingsError

SECONDS = st.floats(0.001, 1e6)


@given(st.floats(0, 40), st.floats(0.1, 10), st.floats(0.1, 10))
def test_phi_is_the_logarithm_of_the_normal_tail(silence: float, mean: float, deviation: float) -> None:
    # By symmetry, so that the small probability is not lost in one minus nearly one.
    tail = NormalDist(mean, deviation).cdf(2 * mean - silence)
    if tail > 1e-12:
        assert phi(silence, mean, deviation) == pytest.approx(-log10(tail), rel=1e-3, abs=1e-9)


@given(SECONDS, SECONDS, SECONDS, st.floats(0, 1e9))
def test_phi_is_finite_and_grows_with_silence(
    mean: float, deviation: float, silence: float, more: float
) -> None:
    first, second = phi(silence, mean, deviation), phi(silence + more, mean, deviation)
    assert isfinite(second)
    assert 0 <= first <= second * (1 + 1e-3) + 1e-9


def test_the_two_forms_of_the_tail_meet() -> None:
    below, above = phi(24.999999, 0, 1), phi(25.000001, 0, 1)
    assert above == pytest.approx(below, rel=1e-2)


def regular(detector: PhiAccrualDetector, rounds: int, interval: float = 1.0) -> float:
    for number in range(1, rounds + 1):
        detector.on_probe_result(True, number * interval)
    return rounds * interval


def test_a_crash_is_found_after_about_four_intervals() -> None:
    detector = PhiAccrualDetector(8.0, 100, 1.0, 0.0)
    now = regular(detector, 50)
    found = None
    for number in range(1, 10):
        detector.on_probe_result(False, now + number)
        if found is None and detector.is_faulty(now + number):
            found = number
    assert found == 4
    detector.on_probe_result(True, now + 10)
    assert not detector.is_faulty(now + 10)


def test_a_subject_that_never_answered_is_found_too() -> None:
    detector = phi_accrual().new(Settings(), 100.0)
    for number in range(1, 6):
        detector.on_probe_result(False, 100.0 + number)
    assert detector.is_faulty(105.0)


def test_it_learns_patience_from_lost_rounds() -> None:
    """Lost rounds make the intervals longer: five lost in a row convict a regular subject, not a patchy one."""
    rng = random.Random(6)
    patchy = PhiAccrualDetector(8.0, 100, 1.0, 0.0)
    for number in range(1, 301):
        patchy.on_probe_result(rng.random() >= 0.4 or number == 300, float(number))
    strict = PhiAccrualDetector(8.0, 100, 1.0, 0.0)
    regular(strict, 300)
    for number in range(301, 306):
        for detector in (patchy, strict):
            detector.on_probe_result(False, float(number))
    assert strict.is_faulty(305.0)
    assert not patchy.is_faulty(305.0)
    assert patchy.has_evidence()


def test_the_distribution_is_that_of_the_last_intervals_only() -> None:
    detector = PhiAccrualDetector(8.0, 20, 1.0, 0.0)
    rng = random.Random(7)
    now, intervals = 0.0, []
    for _ in range(1000):
        interval = rng.choice([1.0, 1.0, 2.0, 5.0])
        now += interval
        intervals.append(interval)
        detector.on_probe_result(True, now)
    assert len(detector._intervals) == 20
    mean, deviation = detector._distribution()
    assert mean == pytest.approx(fmean(intervals[-20:]))
    assert deviation == pytest.approx(pstdev(intervals[-20:]))


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1e12)), max_size=60))
def test_it_never_raises_whatever_the_clock_does(results: list[tuple[bool, float]]) -> None:
    detector = PhiAccrualDetector(8.0, 10, 1.0, 0.0)
    for success, now in results:
        detector.on_probe_result(success, now)
        assert isfinite(detector.phi(now))
        if success:
            assert not detector.is_faulty(now)


@pytest.mark.parametrize(("threshold", "samples"), [(0, 10), (float("nan"), 10), (8, 1), (8, 1 << 20)])
def test_bad_parameters_are_refused(threshold: float, samples: int) -> None:
    with pytest.raises(SettingsError):
        phi_accrual(threshold, samples)
