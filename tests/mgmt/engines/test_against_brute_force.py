"""Every engine, and the table over them, against trying every choice on tiny random assignments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from mgmt.optimization.assignment import Assignment, Placement
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines import solve
from mgmt.optimization.engines.engine_choice import by_cells, may_be_feasible
from mgmt.optimization.engines.integer_programming import cp_sat, highs
from mgmt.optimization.engines.model.cells import all_candidates, cells_of
from mgmt.optimization.engines.model.cost_functions import UnsuitableError
from mgmt.optimization.engines.model.equivalence import equivalence_classes
from tests.budget import budgeted
from tests.mgmt.engines.random_assignments import Maker, brute_force

Engine = Callable[[Assignment, int], Placement]


def table(assignment: Assignment, seed: int) -> Placement:
    return solve(assignment, deadline=Deadline.after(60), seed=seed)


def without_flow(assignment: Assignment, seed: int) -> Placement:
    return by_cells(assignment, [], deadline=Deadline.after(60), seed=seed, workers=1)


def cp_sat_alone(assignment: Assignment, seed: int) -> Placement:
    """All values as candidates, no hint, no bounds."""
    classes = equivalence_classes(assignment)
    cells = cells_of(classes, *all_candidates(classes))
    if not may_be_feasible(cells):
        return Placement(None, (), (), "")
    deadline = Deadline.after(60)
    found = cp_sat.solve(
        cells, hint=None, known_bounds=[None] * len(assignment.tiers), deadline=deadline, seed=seed, workers=1
    )
    return Placement(found.choice, found.worth, found.bounds, "")


def mixed_integer_alone(assignment: Assignment, seed: int) -> Placement:
    classes = equivalence_classes(assignment)
    cells = cells_of(classes, *all_candidates(classes))
    if not may_be_feasible(cells):
        return Placement(None, (), (), "")
    known_bounds = [None] * len(assignment.tiers)
    found = highs.solve(cells, hint=None, known_bounds=known_bounds, deadline=Deadline.after(60), seed=seed)
    return Placement(found.choice, found.worth, found.bounds, "")


def check(engine: Engine, assignment: Assignment, seed: int) -> str:
    expected = brute_force(assignment)
    placement = engine(assignment, seed)
    if expected is None:
        assert placement.choice is None, f"seed {seed}: a choice where none keeps the limits"
        return "infeasible"
    assert placement.choice is not None, f"seed {seed}: called infeasible, but {expected} can be reached"
    assert not list(assignment.broken(placement.choice)), f"seed {seed}"
    assert placement.worth == assignment.worth(placement.choice) == expected, f"seed {seed}"
    assert placement.bounds == expected, f"seed {seed}"
    return "solved"


@pytest.mark.parametrize("engine", [table, without_flow, cp_sat_alone])
@pytest.mark.parametrize("many_values", [False, True], ids=["rows", "values"])
def test_the_answer_is_what_enumeration_finds(engine: Engine, many_values: bool) -> None:
    sizes = {"most_rows": 3, "most_values": 8} if many_values else {"most_rows": 5, "most_values": 4}
    outcomes = Counter(check(engine, Maker(seed, **sizes).assignment(), seed) for seed in range(100))
    assert outcomes["solved"] >= 30, "the generator makes too few assignments that can be solved"
    assert outcomes["infeasible"] >= 15, "the generator makes too few assignments that can not be solved"


def test_a_mixed_integer_program_finds_it_where_all_is_linear() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(100):
        try:
            outcomes[check(mixed_integer_alone, Maker(seed).assignment(), seed)] += 1
        except UnsuitableError:
            outcomes["not linear"] += 1
    assert outcomes["solved"] >= 20
    assert outcomes["infeasible"] >= 10
    assert outcomes["not linear"] <= 60


# Seeds of defects: a cost of two loads that is affine everywhere but in one corner.
@pytest.mark.parametrize("seed", [10_002])
def test_what_once_went_wrong(seed: int) -> None:
    for engine in (table, without_flow, cp_sat_alone):
        check(engine, Maker(seed).assignment(), seed)


@pytest.mark.parametrize("chunk", budgeted(range(4), 1))
def test_many_more(chunk: int) -> None:
    for seed in range(100_000 + 100 * chunk, 100_000 + 100 * chunk + 100):
        check(without_flow, Maker(seed).assignment(), seed)
        check(table, Maker(seed, most_rows=3, most_values=8).assignment(), seed)
