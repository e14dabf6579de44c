"""Random small data and policies: the solver, brute force and plain SQL agree.

The compiler either refuses a policy with a position, or its answer is the optimum that enumeration finds.
Every solution has also passed the oracle inside ``solve``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError, UnsupportedConstructError
from mgmt.solution import Solution
from mgmt.state.database import Database
from tests.budget import budgeted
from tests.mgmt.policy_grammar import NULLABLE, SCHEMA, PolicyMaker
from tests.mgmt.support import brute_force, database, solution_value


def attempt(action: Callable[[], object]) -> object:
    """What an action returns, or the refusal it raises."""
    try:
        return action()
    except (UnsupportedConstructError, InfeasibleError) as error:
        return error


def check(schema: str, seed: int, state: Database | None = None) -> str:
    """The outcome for one seed; in a given database its rows are replaced."""
    maker = PolicyMaker(seed)
    data = maker.data()
    if state is None:
        state = database(schema, data)
    else:
        state.replace_rows(data)
    text = maker.policies()
    model = attempt(lambda: Model.build(state, text))
    if isinstance(model, UnsupportedConstructError):
        assert model.position is not None, text
        return "refused"
    assert isinstance(model, Model)
    expected = brute_force(model, state)
    solution = attempt(lambda: model.solve(budget=30, seed=seed))
    if isinstance(solution, InfeasibleError):
        assert expected is None, f"called infeasible, but {expected} is allowed: {text}"
        assert solution.minimal
        assert set(solution.constraints) <= set(model.constraints)
        return "infeasible"
    assert isinstance(solution, Solution)
    assert expected is not None, f"solved what has no solution: {text}"
    assert solution_value(model, solution) == expected[0], text
    return "solved"


@pytest.mark.parametrize("chunk", budgeted(range(12), 2, in_test=1))
def test_the_answer_is_what_enumeration_finds(chunk: int) -> None:
    first = 1000 * (chunk // 3) + 3 * (chunk % 3)
    outcomes = Counter(check(SCHEMA, first + number) for number in range(3))
    assert outcomes["solved"] >= 1, "the generator makes too few policies that can be solved"


@pytest.mark.parametrize("chunk", budgeted(range(2), 1))
def test_also_when_a_variable_may_stay_unassigned(chunk: int) -> None:
    outcomes = Counter(check(NULLABLE, 100_000 + 1000 * chunk + number) for number in range(9))
    assert outcomes["solved"] >= 2, "the generator makes too few policies that can be solved"


@pytest.mark.first
@pytest.mark.parametrize("chunk", budgeted(range(20), 1))
@pytest.mark.parametrize("schema", [SCHEMA, NULLABLE], ids=["assigned", "nullable"])
def test_many_more(schema: str, chunk: int) -> None:
    for number in range(10):
        check(schema, 1_000_000 + 1000 * chunk + number)
