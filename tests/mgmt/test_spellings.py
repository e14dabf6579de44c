"""A policy means the same however it is spelled: two spellings of random rules, and plain SQL over every plan.

At 300 nodes and 30 tasks there are too many plans for that; there both spellings have an answer in two seconds, and
neither is better than what the other has proven.
"""

from __future__ import annotations

from collections import Counter

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError, SolveTimeout
from mgmt.solution import Solution
from tests.budget import budgeted
from tests.mgmt.spelling_grammar import LARGE, PlainSql, SpellingMaker
from tests.mgmt.support import UNHURRIED, database


def answer(made: SpellingMaker, policies: str, budget: float) -> Solution | None:
    """The plan, None where it is proven that there is none."""
    model = Model.build(database(made.schema, made.rows), policies)
    try:
        return model.solve(budget=budget, clashes=False)
    except InfeasibleError:
        return None


def check(seed: int, about: str = "") -> str:
    """Both spellings of one policy have the optimum that enumeration finds."""
    made = SpellingMaker(seed, about=about)
    plain = PlainSql(made)
    best = plain.best()
    for policies in made.policies:
        solution = answer(made, policies, UNHURRIED)
        if solution is None:
            assert best is None, f"seed {seed}, called infeasible: {policies}"
        else:
            assert plain.judged(solution.assignments["task", "variable__node"]) == best, (
                f"seed {seed}: {policies}"
            )
            assert solution.gap == 0, f"seed {seed}: {policies}"
    return "infeasible" if best is None else "solved"


@pytest.mark.parametrize("chunk", budgeted(range(500), 4, in_test=1))
def test_two_spellings_have_the_optimum_that_plain_sql_finds(chunk: int) -> None:
    outcomes = Counter(check(seed) for seed in range(4 * chunk, 4 * chunk + 4))
    assert chunk or outcomes["solved"], outcomes


@pytest.mark.parametrize("chunk", budgeted(range(625), 2, in_test=1))
def test_groups_may_be_empty_where_a_choice_is_null_or_a_join_finds_nothing(chunk: int) -> None:
    for seed in range(4 * chunk, 4 * chunk + 4):
        check(seed, "may be empty")


# Seeds of defects: a sum over nothing that the solver has no say in; more racks wanted than there are.
@pytest.mark.parametrize("seed", [387, 922])
def test_what_once_went_wrong(seed: int) -> None:
    check(seed)


def check_large(seed: int) -> None:
    """Both spellings have an answer within their budget, and answers that can both be true."""
    made = SpellingMaker(seed, LARGE)
    plain = PlainSql(made)
    found = [answer(made, policies, budget=2.0) for policies in made.policies]
    assert len({solution is None for solution in found}) == 1, f"seed {seed}: {made.policies}"
    values = []
    for solution in filter(None, found):
        values.append(plain.judged(solution.assignments["task", "variable__node"]))
        assert values[-1] is not None, f"seed {seed}, breaks a rule: {made.policies}"
    proven = [value for value, solution in zip(values, filter(None, found), strict=True) if solution.gap == 0]
    assert set(proven) <= {min(values)} if values else True, f"seed {seed}: {made.policies}"


UNANSWERED = {17, 47, 178}
"""One of their spellings does not lift wholly, and the first plan breaks what was left out of it."""
LATE = pytest.mark.xfail(raises=SolveTimeout, strict=False, reason="no plan within two seconds")


@pytest.mark.sweep("two hundred problems of 9000 cells")
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=LATE if seed in UNANSWERED else ()) for seed in range(200)]
)
def test_of_many_rows_and_values_there_is_an_answer_in_two_seconds(seed: int) -> None:
    check_large(seed)
