"""Which policies are an assignment, and that columns, cells and enumeration find the same optimum."""

from __future__ import annotations

from collections import Counter

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError
from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.solution import Solution
from tests.budget import budgeted
from tests.mgmt.assignments.assignment_grammar import CHECKS, OBJECTIVES, SCHEMA, VIEWS, AssignmentMaker
from tests.mgmt.support import brute_force, database, solution_value

PLAIN = SCHEMA.replace("UNIQUE", "")


def model_of(text: str) -> Model:
    statement = text.format(n=1)
    return Model.build(database(PLAIN), f"{VIEWS} CREATE CONSTRAINT c AS SELECT 1 AS one {statement};")


@pytest.mark.parametrize("text", [*CHECKS, *OBJECTIVES])
def test_it_has_a_shape(text: str) -> None:
    (part,) = model_of(text).partition.parts
    assert [each.why for each in part.formulations] == [""]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "FROM task a JOIN task b ON a.id < b.id JOIN host h ON a.variable__host = h.name "
            "JOIN host g ON b.variable__host = g.name MINIMIZE sum(h.size * g.size)",
            "what one choice leads to beside another choice",
        ),
        ("FROM loads JOIN rack_loads ON loads.rack = rack_loads.rack CHECK used < 3", "two grouped views"),
        ("FROM loads GROUP BY rack CHECK sum(tasks * tasks) < 3", "groups of groups"),
        (
            "FROM task t JOIN host h ON t.variable__host = h.name GROUP BY h.name || t.app CHECK count(*) < 2",
            "a group key over rows and values at once",
        ),
        (
            "FROM task t JOIN host h ON t.variable__host = h.name WHERE h.name || t.app <> 'h0x' CHECK FALSE",
            "what only the database computes of a choice",
        ),
    ],
)
def test_it_has_none(text: str, reason: str) -> None:
    text = text.replace("used < 3", "loads.used < 3")
    (part,) = model_of(text).partition.parts
    assert reason in part.why


def value_of(solution: Solution | InfeasibleError, model: Model) -> tuple[int, ...] | None:
    return None if isinstance(solution, InfeasibleError) else solution_value(model, solution)


def attempt(model: Model) -> Solution | InfeasibleError:
    try:
        return model.solve(budget=30, clashes=False)
    except InfeasibleError as error:
        return error


def check(seed: int) -> str:
    """Columns, cells and enumeration agree on one random state and policy."""
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
    return "columns" if found.statistics["roads"] == {"columns": 1} else "cells"


@pytest.mark.parametrize("chunk", budgeted(range(4), 1))
def test_columns_and_cells_find_what_enumeration_finds(chunk: int) -> None:
    outcomes = Counter(check(1000 * chunk + number) for number in range(12))
    assert outcomes["columns"] >= 5, outcomes


@pytest.mark.parametrize("chunk", budgeted(range(10), 1))
def test_many_more(chunk: int) -> None:
    for number in range(10):
        check(1_000_000 + 1000 * chunk + number)
