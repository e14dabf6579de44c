"""A plan from the demands that have a shape, where the others would go cell by cell over many cells."""

from __future__ import annotations

import pytest

from mgmt.compiler.model import Model
from mgmt.compiler.parts.constraint_model import GeneralPart
from mgmt.errors import InfeasibleError, SolveTimeout
from mgmt.state.database import Database
from tests.mgmt.support import database

SCHEMA = """
CREATE TABLE node (name TEXT PRIMARY KEY, rack TEXT, price INTEGER NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, size INTEGER NOT NULL, variable__node TEXT NOT NULL REFERENCES node (name));
"""
CHEAP = """CREATE CONSTRAINT cheap AS SELECT id FROM task JOIN node ON task.variable__node = node.name
  MINIMIZE sum(price) TIER 1;"""
FULLEST = """CREATE VIEW tasks AS SELECT node.name, node.rack, count(*) AS number FROM task
  JOIN node ON task.variable__node = node.name GROUP BY node.name, node.rack;
CREATE VIEW most AS SELECT rack, max(number) AS number FROM tasks GROUP BY rack;
CREATE CONSTRAINT fullest AS SELECT rack FROM most MINIMIZE sum(number) TIER 2;"""
NEAR = """CREATE CONSTRAINT near AS SELECT a.id FROM task AS a JOIN node AS x ON a.variable__node = x.name
  JOIN task AS b ON a.id < b.id JOIN node AS y ON b.variable__node = y.name CHECK abs(x.price - y.price) <= {n};"""


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Database:
    """Many cells, and nothing of them is encoded one by one."""

    def too_long(*_: object) -> GeneralPart:
        raise SolveTimeout("too many cells")

    monkeypatch.setattr(GeneralPart, "encode", too_long)
    return database(
        SCHEMA,
        {
            "node": [{"name": f"n{n:03}", "rack": f"r{n % 7}", "price": 5 + n} for n in range(250)],
            "task": [{"id": n, "size": 1 + n} for n in range(9)],
        },
    )


def test_it_is_a_plan_of_all_if_it_breaks_nothing_and_has_bounds_up_to_what_was_left_out(
    state: Database,
) -> None:
    solution = Model.build(state, CHEAP + FULLEST).solve(budget=20)
    assert [(o.after, o.bound) for o in solution.objectives] == [(45, 45), (9, None)]
    assert (solution.status, solution.gap) == ("feasible", 1.0)


def test_it_is_optimal_if_all_that_was_left_out_holds_anyway(state: Database) -> None:
    solution = Model.build(state, CHEAP + NEAR.format(n=3)).solve(budget=20)
    assert solution.status == "optimal"
    assert set(solution.assignments["task", "variable__node"].values()) == {"n000"}


def test_it_is_none_where_it_breaks_what_was_left_out(state: Database) -> None:
    apart = "CREATE CONSTRAINT apart AS SELECT id FROM task CHECK all_different(variable__node);"
    with pytest.raises(SolveTimeout):
        Model.build(state, CHEAP + apart + NEAR.format(n=3)).solve(budget=20)


def test_the_constraint_model_goes_on_where_there_is_none_in_time(
    state: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_in_time(*_: object, **__: object) -> None:
        raise SolveTimeout("no placement")

    monkeypatch.setattr("mgmt.compiler.parts.assignment.solve", none_in_time)
    with pytest.raises(SolveTimeout, match="too many cells"):
        Model.build(state, CHEAP + FULLEST).solve(budget=20)


def test_there_is_no_plan_where_there_is_none_of_a_part_of_the_demands(state: Database) -> None:
    full = """CREATE CONSTRAINT full AS SELECT node.name FROM task JOIN node ON task.variable__node = node.name
      WHERE node.rack = 'r1' GROUP BY node.name CHECK count(*) > 1;"""
    with pytest.raises(InfeasibleError):
        Model.build(state, full + NEAR.format(n=3)).solve(budget=20, clashes=False)


def test_the_constraint_model_betters_it(state: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    free = FULLEST.replace("TIER 2", "TIER 1")
    solution = Model.build(state, free).solve(budget=60)
    assert (solution.status, solution.objectives[0].after) == ("optimal", 1)
