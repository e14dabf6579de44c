"""Work shared by processes: the order of the arguments, what raises, a worker that dies."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

import chaos
from chaos.fuzzing.workers import in_order


def square(number: int) -> int:
    return number * number


def fragile(number: int) -> int:
    if number == 3:
        raise ArithmeticError("three")
    return number


def mortal(number: int) -> int:
    if number == 3:
        os._exit(7)
    return number


@pytest.mark.slow("seven interpreters are started")
@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_results_come_in_order(jobs: int) -> None:
    assert list(in_order(square, range(3), jobs)) == [0, 1, 4]


@pytest.mark.slow("two interpreters are started")
def test_a_call_that_raises_is_told_in_its_place() -> None:
    results = in_order(fragile, range(6), 2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(chaos.WorkerError, match="ArithmeticError: three"):
        next(results)


@pytest.mark.slow("two interpreters are started")
def test_a_worker_that_dies_is_no_endless_wait() -> None:
    results = in_order(mortal, range(6), 2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(chaos.WorkerError, match="status 7"):
        next(results)


@pytest.mark.slow("two interpreters are started")
def test_fuzzing_in_processes_reports_the_same() -> None:
    alone, together = (
        chaos.fuzz(3, first=100, nodes=3),
        chaos.fuzz(3, first=100, nodes=3, jobs=2),
    )
    assert replace(together, cpu_seconds=0.0) == replace(alone, cpu_seconds=0.0)


def test_no_jobs_are_refused() -> None:
    with pytest.raises(chaos.BadArgumentError, match="at least one job"):
        chaos.fuzz(1, jobs=0)


def test_when_the_time_is_up_no_further_seed_begins() -> None:
    report = chaos.fuzz(50, first=100, nodes=3, minutes=1e-9)
    assert report.ok
    assert report.runs == 1
    with pytest.raises(chaos.BadArgumentError, match="more than 0 minutes"):
        chaos.fuzz(1, minutes=0)
