"""One test for each error class of the policy language: it is raised, where, and with something to do about it."""

from __future__ import annotations

from typing import Any

import pytest

import mgmt
from mgmt.errors import PolicyError
from mgmt.optimization.backends import Answer, AnswerStatus
from mgmt.optimization.problem import Problem, Tag
from tests.mgmt.support import database
from tests.mgmt.test_meaning import JOINED, SCHEMA, THREE, tasks

ROWS: dict[str, list[dict[str, Any]]] = {"host": THREE, "task": tasks((1, 1, "a"), (2, 4, "a"))}


def fail(error: type[PolicyError], policy: str, rows: dict[str, list[dict[str, Any]]] | None = None) -> Any:
    """The error that building and solving a policy raises."""
    state = database(SCHEMA, ROWS if rows is None else rows)
    with pytest.raises(PolicyError) as caught:
        mgmt.Model.build(state, mgmt.SourceText("p.sql", policy)).solve(budget=20)
    assert caught.type is error, caught.value
    return caught.value


START = "CREATE CONSTRAINT c AS\nSELECT * FROM task\nCHECK "


@pytest.mark.parametrize(
    ("error", "policy", "line", "column", "hint"),
    [
        (mgmt.PolicySyntaxError, "CREATE CONSTRAINT c AS\nSELECT 1\nCHECK TRUE TIER 2", 3, 1, "SOFT"),
        (mgmt.UnknownTableError, "CREATE CONSTRAINT c AS\nSELECT * FROM\ntaks CHECK TRUE", 3, 1, "task"),
        (mgmt.UnknownColumnError, START + "wieght = 1", 3, 7, "weight"),
        (mgmt.UnknownFunctionError, START + "soundslike(host) = 'a'", 3, 7, "aggregates are"),
        (mgmt.AmbiguousColumnError, "CREATE CONSTRAINT c AS\nSELECT 1 FROM task a, task b\nCHECK weight = 1", 3, 7,
         "a.weight"),
        (mgmt.DuplicateNameError, START + "TRUE;\n CREATE VIEW C AS SELECT 1 AS x", 4, 2, ""),
        (mgmt.TypeMismatchError, START + "weight = 'heavy'", 3, 7, ""),
        (mgmt.TypeMismatchError, START + "weight", 3, 7, "compare it"),
        (mgmt.UnsupportedConstructError, START + "sqrt(length(variable__host))", 3, 7, "use integers"),
        (mgmt.InfeasibleError, START + "FALSE", None, None, "relax"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_class_its_place_and_a_hint(
    error: type[PolicyError], policy: str, line: int | None, column: int | None, hint: str
) -> None:
    found = fail(error, policy)
    assert (found.line, found.column) == (line, column), found
    assert hint in found.hint
    if line is not None:
        assert str(found).startswith(f"p.sql:{line}:{column}: ")


def test_no_constraints() -> None:
    assert "CREATE CONSTRAINT" in fail(mgmt.NoConstraintsError, "CREATE VIEW v AS SELECT * FROM task").hint


def test_an_unbounded_domain() -> None:
    state = database("CREATE TABLE t (id INTEGER PRIMARY KEY,\n  variable__n INTEGER)")
    with pytest.raises(mgmt.UnboundedDomainError) as caught:
        mgmt.Model.build(state, "CREATE CONSTRAINT c AS SELECT * FROM t CHECK variable__n > 0")
    assert (caught.value.line, caught.value.column) == (2, 3)
    assert "DOMAIN" in caught.value.hint


def test_an_empty_domain_names_the_rows() -> None:
    found = fail(mgmt.EmptyDomainError, START + "TRUE", {"host": [], "task": tasks((7, 1, None))})
    assert found.rows == ((7,),)
    assert found.hint


def test_an_overflow_names_the_constraint() -> None:
    rows = {"host": THREE, "task": tasks((1, 2**61, None), (2, 2**61, None), (3, 2**61, None))}
    policy = f"CREATE CONSTRAINT c AS\nSELECT host.name {JOINED}\nGROUP BY host.name CHECK sum(weight) > 1"
    found = fail(mgmt.OverflowError, policy, rows)
    assert found.line == 3
    assert found.row == {"name": "a"}
    assert "unit" in found.hint


def test_rows_that_break_the_schema() -> None:
    with pytest.raises(mgmt.DataError) as caught:
        database(SCHEMA, {"task": [{"id": 1, "weight": "heavy"}]})
    assert caught.value.rows == ({"id": 1, "weight": "heavy"},)


def test_an_infeasible_core_says_where_its_constraints_are_written() -> None:
    found = fail(
        mgmt.InfeasibleError, START + "variable__host = 'a';\n" + START.replace(" c ", " d ") + "id = 1"
    )
    assert [(member.constraint, member.position.line) for member in found.core] == [("d", 4)]
    assert found.core[0].rows == ({"id": 2, "weight": 4, "host": "a"},)


def test_a_stale_plan() -> None:
    state = database(SCHEMA, ROWS)
    solution = mgmt.Model.build(state, START + "variable__host = 'b'").solve()
    state.execute("UPDATE task SET weight = 9")
    with pytest.raises(mgmt.StalePlanError, match="solve again"):
        state.apply(solution)


def test_a_plan_that_the_database_rejects_comes_with_a_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    model = mgmt.Model.build(database(SCHEMA, ROWS), START + "variable__host = 'b'")
    verdict = model.oracle.examine

    def lying(*arguments: Any) -> Any:
        found = verdict(*arguments)
        return type(found)(("c: 1 rows",), found.objectives, ("c",))

    monkeypatch.setattr(model.oracle, "examine", lying)
    with pytest.raises(mgmt.VerificationError) as caught:
        model.solve()
    assert {"database", "policies", "seed", "assignments"} <= set(caught.value.bundle)


class Undecided:
    """A solver that never comes to an end."""

    name = "undecided"

    def load(self, problem: Problem) -> Undecided:
        del problem
        return self

    def clashing_rows(self, *_: Any) -> tuple[Tag, ...]:
        return ()

    def minimize(self, *_: Any) -> Answer:
        return Answer(AnswerStatus.UNKNOWN)

    def strengthen(self) -> None: ...

    def copy(self) -> Undecided:
        return self

    def require_all(self, literals: Any) -> None: ...

    def require_at_most(self, linear: Any, bound: int) -> None: ...


def test_a_solver_that_finds_nothing_in_time() -> None:
    state = database(SCHEMA, ROWS)
    model = mgmt.Model.build(state, START + "variable__host = 'b'", backend=Undecided())
    with pytest.raises(mgmt.SolveTimeout, match="budget") as caught:
        model.solve(budget=0.2)
    assert caught.value.best is None


ADVICE = [
    ("DUPLICATE", START + "TRUE; CREATE VIEW task AS SELECT 1 AS x", 3, 13, "table of the schema"),
    ("twice", START + "TRUE; CREATE VIEW c AS SELECT 1 AS x", 3, 13, "choose another"),
    ("two columns", START + "TRUE; CREATE VIEW v AS SELECT id, id FROM task", 3, 41, "AS other_id"),
    ("text", START + "weight = 'heavy'", 3, 7, "CAST"),
    ("sum", START + "sum(host) > 1", 3, 11, "count the rows"),
    ("number", START + "variable__host + 1 > 2", 3, 7, "||"),
    ("GROUP BY", "CREATE VIEW v AS SELECT id, weight FROM task GROUP BY weight", 1, 25, "ANY_VALUE"),
    ("CHECK", "CREATE CONSTRAINT c AS SELECT * FROM task CHECK", 1, 43, "CHECK weight <= size"),
    ("alias", "CREATE CONSTRAINT c AS SELECT * FROM (SELECT id FROM task) CHECK TRUE", 1, 46, "AS name"),
    ("no schema", "CREATE CONSTRAINT c AS SELECT * FROM nosuch.task CHECK TRUE", 1, 38, "write task"),
    ("USING", "CREATE CONSTRAINT c AS SELECT * FROM task JOIN host USING (nope) CHECK up", 1, 60, "ON a.x = b.y"),
    ("HAVING", "CREATE VIEW v AS SELECT id FROM task GROUP BY id HAVING", 1, 50, "leave it out"),
    ("unexpected", "CREATE VIEW v AS SELECT * task task", 1, 32, "comma"),
    ("selct", "CREATE VIEW v AS selct * FROM task", 1, 18, "did you mean SELECT?"),
    ("FRM", "CREATE CONSTRAINT c AS SELECT * FRM task CHECK id > 0", 1, 33, "did you mean FROM?"),
    ("inside", "CREATE CONSTRAINT c AS SELECT * FROM task\nCHECK id IN (SELCT id FROM task)", 2, 14, "mean SELECT?"),
    ("chek", "CREATE CONSTRAINT c AS SELECT * FROM task\n chek id > 0", 2, 2, "did you mean CHECK?"),
    ("maximise", "CREATE CONSTRAINT c AS SELECT * FROM task MAXIMISE sum(id)", 1, 43, "did you mean MAXIMIZE?"),
    ("creat", "creat CONSTRAINT c AS SELECT * FROM task CHECK id > 0", 1, 1, "did you mean CREATE?"),
    ("a name", "CREATE VIEW selct AS SELECT * FROM task form task", 1, 46, "comma"),
    ("opened", "CREATE CONSTRAINT c AS SELECT * FROM task CHECK host = 'abc", 1, 56, "single quotes"),
    ("expected )", "CREATE CONSTRAINT c AS SELECT * FROM task CHECK (1", 1, 50, "parenthesis"),
    ("columns", START + "variable__host = (SELECT * FROM host)", 3, 32, "as many columns"),
    ("soundlike", START + "lenght(host) = 1", 3, 7, "did you mean 'length'"),
    ("random", START + "random() > 1", 3, 7, "same state"),
    ("sqrt", START + "sqrt(length(variable__host))", 3, 7, "use integers"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "line", "column", "hint"), [case[1:] for case in ADVICE], ids=[c[0] for c in ADVICE]
)
def test_every_mistake_is_told_with_its_place_and_what_to_do(
    policy: str, line: int, column: int, hint: str
) -> None:
    state = database(SCHEMA, ROWS)
    with pytest.raises(PolicyError) as caught:
        mgmt.Model.build(state, mgmt.SourceText("p.sql", policy))
    assert (caught.value.line, caught.value.column) == (line, column), caught.value
    assert hint in caught.value.hint, caught.value
    for inside in ("sqlglot", "sole row", "rota_", '\\"', "class"):
        assert inside not in str(caught.value), "no word of ours"
