"""Budgets hold: whatever is slow, nothing is begun after the time has ended.  The clock jumps where a step is slow."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import pytest

from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError, SolveTimeout
from mgmt.explaining.solutions.why import why, why_not
from mgmt.optimization.assignment import Limit, Load
from mgmt.optimization.backends import Answer, AnswerStatus, Session
from mgmt.optimization.backends.cp_sat import CpSatBackend, CpSatSession
from mgmt.optimization.columns import Linear
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.general import lifted_search
from mgmt.optimization.infeasibility.assignment_core import find_clash
from mgmt.optimization.infeasibility.constraint_instances import ConstraintSet
from mgmt.optimization.infeasibility.deletion_filter import minimal_core
from mgmt.optimization.lifting.costs import CostLifter
from mgmt.optimization.lifting.demands import Demands
from mgmt.optimization.problem import Problem, Tag
from mgmt.solution import Value
from tests.mgmt.support import database
from tests.mgmt.test_assignment_clash import alike

BUDGET = 10.0
GRACE = 1.2
"""A second to say what clashes, and the tenths that a solver that is asked gets at least."""


class Clock:
    """Stands still, but for the steps that are slow."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.steps = 0

    def __call__(self) -> float:
        return self.now

    def jump(self, seconds: float) -> None:
        self.now += seconds
        self.steps += 1


def test_a_part_of_a_deadline_is_of_what_is_left() -> None:
    clock = Clock()
    deadline = Deadline.after(8, clock)
    clock.jump(4)
    half = deadline.part(0.5)
    assert (deadline.left, half.left) == (4, 2)
    clock.jump(3)
    assert half.passed
    assert not deadline.passed
    assert half.part(0.5).left == half.left == 0
    with pytest.raises(TimeoutError):
        half.check()


def test_deletion_stops_at_the_deadline_with_what_it_has() -> None:
    clock = Clock()

    def clashes(some: list[int]) -> bool:
        clock.jump(3)
        return 7 in some

    kept, minimal = minimal_core(list(range(100)), clashes, Deadline.after(BUDGET, clock))
    assert 7 in kept
    assert not minimal
    assert clock.now <= 1000 + BUDGET + 3


@pytest.mark.parametrize("after", range(1, 40, 3))
def test_a_clash_in_columns_ends_soon_after_the_deadline_wherever_that_falls(
    after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    late = 0

    def counted() -> float:
        nonlocal late
        clock.steps += 1
        late += clock.now > 1000 + BUDGET
        if clock.steps == after:
            clock.now += 2 * BUDGET
        return clock.now

    rows, values = 12, 4
    load = Load(
        np.arange(rows, dtype=np.int32) % 3,
        3,
        np.arange(values, dtype=np.int32),
        values,
        np.arange(1, rows + 1, dtype=np.int64),
    )
    limit = Limit("room", load, np.zeros((1, 1), np.int64), np.full((1, 1), 5, np.int64))
    with suppress(TimeoutError):
        find_clash(
            ConstraintSet(*alike(rows, values, False), (limit,), ()), deadline=Deadline.after(BUDGET, counted)
        )
    assert late <= 12, "it asks, and stops"


class SlowBackend:
    """Takes so many seconds of the clock for each answer; where there is less, it takes that and knows nothing."""

    name = "slow"

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    def load(self, problem: Problem) -> Session:
        return SlowSession(problem, self)

    def clashing_rows(self, problem: Problem, seconds: float, seed: int) -> tuple[Tag, ...]:
        return CpSatBackend().clashing_rows(problem, 60, seed) if self.takes(seconds) else ()

    def takes(self, seconds: float) -> bool:
        """Whether so many seconds are enough."""
        self._clock.jump(max(0.0, min(seconds, self._seconds)))
        return seconds >= self._seconds


class SlowSession(CpSatSession):
    def __init__(self, problem: Problem, backend: SlowBackend) -> None:
        super().__init__(problem)
        self._backend = backend

    def minimize(
        self, objective: Linear | None, hint: Mapping[int, int], seconds: float, seed: int, workers: int
    ) -> Answer:
        if not self._backend.takes(seconds):
            return Answer(AnswerStatus.UNKNOWN)
        return super().minimize(objective, hint, 60, seed, workers)


SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, size INTEGER NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, weight INTEGER NOT NULL,
  variable__host TEXT NOT NULL REFERENCES host (name));
"""
ROOM = """
CREATE CONSTRAINT room AS SELECT host.name FROM task JOIN host ON variable__host = host.name
  GROUP BY host.name, host.size CHECK sum(weight) <= host.size;
"""
OTHERS = "".join(
    f"CREATE CONSTRAINT other{n} AS SELECT * FROM task WHERE id = 1 CHECK variable__host <> 'b';"
    for n in range(9)
)
BELOW = "CREATE CONSTRAINT price AS SELECT * FROM task MINIMIZE count(*) FILTER (WHERE variable__host = 'b');"


def slow_model(clock: Clock, seconds: float, weight: int) -> Model:
    hosts: list[dict[str, Value]] = [{"name": "a", "size": 3}, {"name": "b", "size": 2}]
    tasks: list[dict[str, Value]] = [{"id": number, "weight": weight} for number in (1, 2)]
    state = database(SCHEMA, {"host": hosts, "task": tasks})
    return Model.build(state, ROOM + OTHERS + BELOW, backend=SlowBackend(clock, seconds), clock=clock)


@pytest.mark.parametrize("seconds", [1.5, 2.5, 4.0])
def test_what_clashes_is_told_within_the_budget_and_a_second(seconds: float) -> None:
    clock = Clock()
    with pytest.raises(InfeasibleError) as caught:
        slow_model(clock, seconds, 4).solve(BUDGET)
    assert clock.now <= 1000 + BUDGET + GRACE
    assert clock.steps > 1, "the steps are slow"
    assert not caught.value.minimal
    assert "room" in caught.value.constraints
    before = clock.now
    caught.value.relaxations_within(2)
    assert clock.now <= before + 1 + GRACE


@pytest.mark.parametrize("seconds", [0.1, 0.7, 2.5])
@pytest.mark.parametrize("task", [1, 2], ids=["bound to be there", "free"])
@pytest.mark.parametrize("question", ["why", "why not"])
def test_why_and_why_not_end_with_their_budget(question: str, task: int, seconds: float) -> None:
    clock = Clock()
    model = slow_model(clock, seconds, 1)
    with suppress(SolveTimeout):
        if question == "why":
            why(model, "task", (task,), budget=BUDGET)
        else:
            why_not(model, "task", (task,), "b", budget=BUDGET)
    assert clock.steps > 1, "the steps are slow"
    assert clock.now <= 1000 + BUDGET + GRACE


@pytest.mark.parametrize(
    ("owner", "name"), [(Demands, "_try"), (CostLifter, "costs_of")], ids=["demands", "objectives"]
)
def test_lifting_ends_with_the_budget(owner: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, honest = Clock(), getattr(owner, name)

    def slow(*arguments: object) -> object:
        clock.jump(BUDGET)
        return honest(*arguments)

    monkeypatch.setattr(lifted_search, "_ALWAYS", 0)
    monkeypatch.setattr(owner, name, slow)
    prices = "".join(BELOW.replace("price", f"price{number}") for number in range(9))
    hosts: list[dict[str, Value]] = [{"name": "a", "size": 3}, {"name": "b", "size": 2}]
    tasks: list[dict[str, Value]] = [{"id": number, "weight": 2} for number in (1, 2)]
    state = database(SCHEMA, {"host": hosts, "task": tasks})
    with pytest.raises(SolveTimeout):
        Model.build(state, ROOM + OTHERS + prices, clock=clock).solve(BUDGET)
    assert clock.steps == 1, "of several"
