"""The state machine that runs a wave's steps, against random graphs, engines and failures."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter.interface import Cancelled, Done, Failed, Pending, Running, Step, StepGraph, StepStatus
from mgmt.control.step_scheduling import (
    ExecutionLimits,
    Outcome,
    StepScheduler,
    StepState,
    is_transfer,
    same_effect,
)

LIMITS = ExecutionLimits(transfers=3, transfers_per_host=1, attempts=3)


def layout_step(number: int, *after: int) -> Step:
    return Step(number, "open", f"step {number}", frozenset(after))


def copy_step(number: int, source: str, destination: str, *after: int, size: int = 10) -> Step:
    return Step(number, "copy", f"copy {number}", frozenset(after), f"s{number}", source, destination, size)


def scheduler_of(*steps: Step, limits: ExecutionLimits = LIMITS) -> StepScheduler:
    return StepScheduler(StepGraph(steps), limits)


def numbers(steps: tuple[Step, ...]) -> list[int]:
    return [step.number for step in steps]


def test_nothing_to_do_is_done() -> None:
    assert scheduler_of().outcome is Outcome.DONE


def test_a_step_waits_for_those_before_it() -> None:
    scheduler = scheduler_of(layout_step(0), copy_step(1, "a", "b", 0), layout_step(2, 0, 1))
    assert numbers(scheduler.startable(0.0)) == [0]
    scheduler.started(0, 0.0)
    assert scheduler.startable(0.0) == ()
    assert scheduler.record(0, Done(), 1.0) is StepState.DONE
    assert numbers(scheduler.startable(1.0)) == [1]
    scheduler.started(1, 1.0)
    scheduler.record(1, Done(), 2.0)
    scheduler.started(2, 2.0)
    assert scheduler.record(2, Done(), 3.0) is StepState.DONE
    assert scheduler.outcome is Outcome.DONE
    assert scheduler.progress().to_json() == {"steps": 3, "steps_done": 3, "bytes": 10, "bytes_done": 10}


def test_no_host_sends_or_receives_more_than_its_share() -> None:
    scheduler = scheduler_of(
        copy_step(0, "a", "b"), copy_step(1, "a", "c"), copy_step(2, "d", "b"), copy_step(3, "e", "f")
    )
    assert numbers(scheduler.startable(0.0)) == [0, 3]
    scheduler.started(0, 0.0)
    scheduler.started(3, 0.0)
    assert scheduler.startable(0.0) == ()
    scheduler.record(0, Done(), 1.0)
    assert numbers(scheduler.startable(1.0)) == [1, 2]


def test_no_more_transfers_than_the_cluster_may_carry() -> None:
    scheduler = scheduler_of(*(copy_step(i, f"a{i}", f"b{i}") for i in range(5)))
    assert numbers(scheduler.startable(0.0)) == [0, 1, 2]


def test_a_retryable_failure_waits_longer_each_time_and_ends_for_good() -> None:
    scheduler = scheduler_of(layout_step(0))
    now = 0.0
    for pause in (0.1, 0.2):
        scheduler.started(0, now)
        assert scheduler.record(0, Failed("busy", "later", retryable=True), now) is StepState.WAITING
        assert scheduler.startable(now + pause - 0.001) == ()
        now += pause
        assert numbers(scheduler.startable(now)) == [0]
    scheduler.started(0, now)
    assert scheduler.record(0, Failed("busy", "later", retryable=True), now) is StepState.FAILED
    assert scheduler.outcome is Outcome.FAILED
    assert scheduler.error == "busy: later"
    assert scheduler.startable(1e9) == ()


def test_the_back_off_is_bounded() -> None:
    scheduler = scheduler_of(layout_step(0), limits=ExecutionLimits(attempts=50))
    for _ in range(40):
        scheduler.started(0, 0.0)
        scheduler.record(0, Failed("busy", "later", retryable=True), 0.0)
    assert scheduler.startable(4.999) == ()
    assert numbers(scheduler.startable(5.0)) == [0]


def test_after_a_final_failure_nothing_new_starts_and_what_runs_ends() -> None:
    scheduler = scheduler_of(copy_step(0, "a", "b"), copy_step(1, "c", "d"), copy_step(2, "a", "d", 0))
    scheduler.started(0, 0.0)
    scheduler.started(1, 0.0)
    scheduler.record(0, Failed("corrupt", "bad sum", retryable=False), 1.0)
    assert scheduler.outcome is Outcome.RUNNING
    assert scheduler.startable(100.0) == ()
    scheduler.record(1, Done(), 2.0)
    assert scheduler.outcome is Outcome.FAILED


@pytest.mark.parametrize("status", [Pending(), Cancelled()])
def test_what_the_engine_forgot_or_cancelled_is_started_again(status: StepStatus) -> None:
    scheduler = scheduler_of(layout_step(0))
    scheduler.started(0, 0.0)
    assert scheduler.record(0, status, 0.0) is StepState.WAITING
    assert numbers(scheduler.startable(1.0)) == [0]


def test_a_refusal_counts_as_an_attempt() -> None:
    scheduler = scheduler_of(layout_step(0))
    assert [scheduler.refused(0, "no", 0.0) for _ in range(3)] == [
        StepState.WAITING, StepState.WAITING, StepState.FAILED,
    ]  # fmt: skip


def test_a_step_without_progress_stalls() -> None:
    scheduler = scheduler_of(copy_step(0, "a", "b"))
    scheduler.started(0, 0.0)
    scheduler.record(0, Running(1, 10), 20.0)
    scheduler.record(0, Running(1, 10), 40.0)
    assert scheduler.stalled(49.0) == ()
    assert numbers(scheduler.stalled(51.0)) == [0]
    scheduler.record(0, Running(2, 10), 51.0)
    assert scheduler.stalled(52.0) == ()
    assert scheduler.progress().bytes_done == 2


def test_a_status_of_a_step_that_does_not_run_is_ignored() -> None:
    scheduler = scheduler_of(layout_step(0))
    assert scheduler.record(0, Done(), 0.0) is StepState.WAITING


def test_the_same_effect_under_another_number() -> None:
    assert same_effect(copy_step(1, "a", "b"), Step(9, "copy", "x", frozenset(), "s1", "a", "b"))
    assert not same_effect(copy_step(1, "a", "b"), copy_step(1, "a", "c"))
    assert not is_transfer(layout_step(0))
    one, other = Step(0, "open", "x", arguments={"chains": 1}), Step(0, "open", "x", arguments={"chains": 2})
    assert not same_effect(one, other)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Step, ...]:
    steps: list[Step] = []
    for number in range(draw(st.integers(0, 8))):
        after = draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set()
        if draw(st.booleans()):
            source, destination = draw(st.sampled_from("abc")), draw(st.sampled_from("xyz"))
            steps.append(copy_step(number, source, destination, *after))
        else:
            steps.append(layout_step(number, *after))
    return tuple(steps)


@given(graphs(), st.data())
def test_any_run_keeps_order_and_limits_and_comes_to_an_end(
    steps: tuple[Step, ...], data: st.DataObject
) -> None:
    scheduler = scheduler_of(*steps)
    done: set[int] = set()
    starts: Counter[int] = Counter()
    failed_for_good = False
    now = 0.0
    for _ in range(1000):
        if scheduler.outcome is not Outcome.RUNNING:
            break
        for step in scheduler.startable(now):
            assert step.after <= done
            assert not failed_for_good
            scheduler.started(step.number, now)
            starts[step.number] += 1
        transfers = [step for step in scheduler.running if is_transfer(step)]
        assert len(transfers) <= LIMITS.transfers
        for end in ("source", "destination"):
            assert max(Counter(getattr(step, end) for step in transfers).values(), default=0) <= 1
        for step in scheduler.running:
            status = data.draw(
                st.sampled_from(
                    [Done(), Running(1, 10), Failed("a", "b", True), Failed("a", "b", False), Pending()]
                )
            )
            state = scheduler.record(step.number, status, now)
            if state is StepState.DONE:
                done.add(step.number)
            failed_for_good |= state is StepState.FAILED
        now += 1.0
    assert scheduler.outcome is (Outcome.FAILED if failed_for_good else Outcome.DONE)
    assert all(count <= LIMITS.attempts for count in starts.values())
    if not failed_for_good:
        assert done == {step.number for step in steps}
