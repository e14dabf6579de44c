"""What goes cell by cell is solved by the engines as far as it lifts, and from their plan by the constraint model."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mgmt.compiler.model import Model
from mgmt.compiler.partition import Part
from mgmt.errors import InfeasibleError, SolveTimeout, VerificationError
from mgmt.optimization.general.lexicographic import Optimum
from mgmt.optimization.general.lifted_search import LiftedSearch
from mgmt.optimization.problem import Problem
from mgmt.solution import Solution
from mgmt.state.database import Database
from tests.mgmt.support import database

SCHEMA = """
CREATE TABLE node (name TEXT PRIMARY KEY, rack TEXT, price INTEGER NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, size INTEGER NOT NULL, node TEXT REFERENCES node (name),
  variable__node TEXT NOT NULL REFERENCES node (name));
"""
CHEAP = """CREATE CONSTRAINT cheap AS SELECT id FROM task JOIN node ON task.variable__node = node.name
  MINIMIZE sum(price) TIER 1;"""
PAIRS = """FROM task AS a JOIN node AS x ON a.variable__node = x.name
  JOIN task AS b ON a.id < b.id JOIN node AS y ON b.variable__node = y.name"""
FAR = f"CREATE CONSTRAINT far AS SELECT a.id {PAIRS} MINIMIZE sum(abs(x.price - y.price)) TIER 2;"
NEAR = f"""CREATE CONSTRAINT near AS SELECT a.id {PAIRS}
  JOIN task AS c ON b.id < c.id JOIN node AS z ON c.variable__node = z.name
  CHECK abs(x.price - y.price) + abs(y.price - z.price) <= {{n}};"""
APART = "CREATE CONSTRAINT apart AS SELECT id FROM task CHECK all_different(variable__node);"


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Database:
    """Some nodes, and none of the policies is recognised by its text."""
    monkeypatch.setattr(Part, "may_be_columnar", property(lambda _: False))
    return database(
        SCHEMA,
        {
            "node": [{"name": f"n{n:03}", "rack": f"r{n % 7}", "price": 5 + n} for n in range(40)],
            "task": [{"id": n, "size": 1 + n, "node": f"n{n:03}"} for n in range(4)],
        },
    )


def no_time_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object, **__: object) -> Optimum:
        raise SolveTimeout("too many cells")

    monkeypatch.setattr("mgmt.compiler.parts.constraint_model.optimize", late)


def left_out(solution: Solution) -> str:
    (part,) = solution.statistics["parts"]
    return " ".join(note for note in part["notes"] if note.startswith("not lifted"))


def test_a_plan_of_what_lifts_is_one_of_all_with_bounds_up_to_what_was_left_out(
    state: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_time_for_more(monkeypatch)
    solution = Model.build(state, CHEAP + FAR).solve(budget=20)
    assert "far" in left_out(solution)
    assert [(o.after, o.bound) for o in solution.objectives] == [(20, 20), (0, None)]
    assert (solution.status, solution.gap) == ("feasible", 1.0)


def test_it_is_optimal_if_all_that_was_left_out_holds_anyway(
    state: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_time_for_more(monkeypatch)
    solution = Model.build(state, CHEAP + NEAR.format(n=3)).solve(budget=20)
    assert (solution.status, left_out(solution).count("near")) == ("optimal", 1)


def test_where_it_breaks_what_was_left_out_the_constraint_model_starts_from_it(
    state: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mgmt.compiler.parts import constraint_model

    hints: list[Mapping[int, int]] = []
    optimize = constraint_model.optimize

    def noted(problem: Problem, backend: object, hint: Mapping[int, int], **others: object) -> Optimum:
        hints.append(hint)
        return optimize(problem, backend, hint, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(constraint_model, "optimize", noted)
    with pytest.raises(InfeasibleError):
        Model.build(state, CHEAP + APART + NEAR.format(n=2)).solve(budget=60, clashes=False)
    (hint,) = hints
    chosen = sorted((variable - 1) % 40 for variable in range(1, 161) if hint[variable])
    assert chosen == [0, 1, 2, 3]  # the four cheapest nodes, which are too far from each other


def test_there_is_no_plan_where_there_is_none_of_what_lifts(
    state: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_time_for_more(monkeypatch)
    full = """CREATE CONSTRAINT full AS SELECT node.name FROM task JOIN node ON task.variable__node = node.name
      WHERE node.rack = 'r1' GROUP BY node.name CHECK count(*) > 1;"""
    with pytest.raises(InfeasibleError):
        Model.build(state, full + NEAR.format(n=3)).solve(budget=20, clashes=False)


def test_that_there_is_none_though_todays_is_accepted_is_an_error_of_ours(
    state: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object, **__: object) -> LiftedSearch:
        return LiftedSearch(Optimum(None, (), 0), None, ())

    monkeypatch.setattr("mgmt.compiler.parts.constraint_model.search", none)
    with pytest.raises(VerificationError, match="today's values satisfy everything"):
        Model.build(state, CHEAP + NEAR.format(n=3)).solve(budget=20)
