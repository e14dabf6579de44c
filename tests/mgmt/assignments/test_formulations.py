"""Engines, the constraint model and enumeration find the same optimum of random assignments."""

from __future__ import annotations

from collections import Counter

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError
from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.solution import Solution
from tests.budget import budgeted
from tests.mgmt.assignments.assignment_grammar import AssignmentMaker
from tests.mgmt.support import brute_force, database, solution_value


def value_of(solution: Solution | InfeasibleError, model: Model) -> tuple[int, ...] | None:
    return None if isinstance(solution, InfeasibleError) else solution_value(model, solution)


def attempt(model: Model) -> Solution | InfeasibleError:
    try:
        return model.solve(budget=30, clashes=False)
    except InfeasibleError as error:
        return error


def check(seed: int) -> str:
    """They agree on one random state and policy."""
    maker = AssignmentMaker(seed)
    state, text = database(maker.schema, maker.data()), maker.policies()
    fast = Model.build(state, text)
    general = Model.build(state, text, backend=CpSatBackend())
    found = attempt(fast)
    best = brute_force(fast, state)
    expected = None if best is None else best[0]
    assert value_of(found, fast) == expected, f"the assignment: {text}"
    assert value_of(attempt(general), general) == expected, f"the constraint model: {text}"
    if isinstance(found, InfeasibleError):
        return "infeasible"
    assert found.gap == 0, text
    return "lifted" if not found.statistics["left_out"] else "left to the solver"


@pytest.mark.parametrize("chunk", budgeted(range(4), 1))
def test_engines_and_the_constraint_model_find_what_enumeration_finds(chunk: int) -> None:
    outcomes = Counter(check(1000 * chunk + number) for number in range(12))
    assert outcomes["lifted"] >= 5, outcomes


@pytest.mark.parametrize("chunk", budgeted(range(10), 1))
def test_many_more(chunk: int) -> None:
    for number in range(10):
        check(1_000_000 + 1000 * chunk + number)
