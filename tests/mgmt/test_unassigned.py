"""Rows left without a value: a solve and lint say so where nothing asks for one, and only there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mgmt.compiler.decisions import Assignments
from mgmt.compiler.model import Model
from mgmt.errors import StatementTimeoutError
from mgmt.explaining.policies.lint import Rule, lint
from mgmt.language.policy_packs import load_pack
from mgmt.solution import Solution, Value
from tests.mgmt.support import database

SCHEMA = """
CREATE TABLE pm (name TEXT PRIMARY KEY, cpu INTEGER NOT NULL);
CREATE TABLE vm (id INTEGER PRIMARY KEY, cpu INTEGER NOT NULL, pm TEXT,
  controllable__pm TEXT REFERENCES pm (name),
  controllable__share INTEGER CHECK (controllable__share BETWEEN 0 AND 9));
"""
ROWS: dict[str, list[dict[str, Value]]] = {
    "pm": [{"name": f"pm{number}", "cpu": 10} for number in range(4)],
    "vm": [{"id": number, "cpu": 4, "pm": f"pm{number}" if number < 3 else None} for number in range(5)],
}
# As it is written in DCM: the spare capacity, which must not be negative, and whose least is maximised.
SPARE = """
CREATE VIEW spare AS SELECT pm.name, pm.cpu - sum(vm.cpu) AS cpu
FROM vm JOIN pm ON vm.controllable__pm = pm.name GROUP BY pm.name, pm.cpu;
CREATE CONSTRAINT capacity AS SELECT * FROM spare CHECK cpu >= 0;
CREATE CONSTRAINT balance AS SELECT * FROM spare MAXIMIZE min(cpu);
"""
ON_PM3 = "CREATE CONSTRAINT on_pm3 AS SELECT * FROM vm CHECK controllable__pm = 'pm3';"
NOWHERE = "CREATE CONSTRAINT nowhere AS SELECT * FROM vm CHECK controllable__pm = 'pm9';"
MOVES = "CREATE CONSTRAINT moves AS SELECT * FROM vm WHERE controllable__pm {} pm MINIMIZE count(*);"


def solved(policy: str, schema: str = SCHEMA) -> Solution:
    return Model.build(database(schema, ROWS), policy).solve(budget=20)


def linted(policy: str, schema: str = SCHEMA) -> list[str]:
    found = lint(Model.build(database(schema, ROWS), policy))
    return [str(finding) for finding in found if finding.rule is Rule.UNASSIGNED]


@pytest.mark.parametrize(
    ("policy", "rows", "reasons"),
    [
        (SPARE, 5, "capacity, balance (WHERE and ON drop a row without a value)"),
        (NOWHERE, 5, "nowhere (a CHECK of NULL is UNKNOWN, which passes)"),
        ("CREATE CONSTRAINT few AS SELECT * FROM vm MINIMIZE count(controllable__share);"
         "CREATE CONSTRAINT five AS SELECT * FROM vm CHECK sum(controllable__share) = 5;",
         4, "few, five (aggregates skip NULL)"),
        ("CREATE VIEW v AS SELECT id, controllable__pm AS place FROM vm;"
         "CREATE CONSTRAINT c AS SELECT * FROM v JOIN pm ON place = name MINIMIZE sum(pm.cpu);",
         5, "c (WHERE and ON drop a row without a value)"),
        (NOWHERE.replace(";", " SOFT;"), 5, "nowhere (a CHECK of NULL is UNKNOWN, which passes)"),
        # The three that run today would count as moved; the two that do not would not.
        (MOVES.format("IS DISTINCT FROM"), 2, "moves (WHERE and ON drop a row without a value)"),
    ],
)  # fmt: skip
def test_the_plan_says_which_rows_have_no_value_and_why_that_satisfies_what(
    policy: str, rows: int, reasons: str
) -> None:
    (found,) = solved(policy).unassigned
    assert (found.table, found.rows, found.of) == ("vm", rows, 5)
    assert found.reasons == reasons
    assert str(found) == f"{rows} of 5 rows of vm have no {found.variable}: NULL satisfies {reasons}"


def test_what_it_says_to_write_helps() -> None:
    (found,) = solved(SPARE).unassigned
    assert "declare controllable__pm NOT NULL" in found.hint
    statement = found.hint[found.hint.index("CREATE") : found.hint.index(",", found.hint.index("MINIMIZE"))]
    before = SPARE.replace("min(cpu)", "min(cpu) TIER 2") + statement
    required = SCHEMA.replace("REFERENCES pm (name)", "NOT NULL REFERENCES pm (name)")
    for plan in (solved(before), solved(SPARE, required)):
        assert plan.unassigned == ()
        assert None not in plan.assignments["vm", "controllable__pm"].values()


@pytest.mark.parametrize(
    "policy",
    [
        NOWHERE + "CREATE CONSTRAINT n AS SELECT * FROM vm WHERE controllable__pm IS NULL MINIMIZE count(*);",
        NOWHERE + "CREATE CONSTRAINT n AS SELECT * FROM vm MAXIMIZE count(controllable__pm);",
        NOWHERE + "CREATE CONSTRAINT n AS SELECT * FROM vm JOIN pm ON controllable__pm = name MAXIMIZE sum(pm.cpu);",
        NOWHERE + "CREATE CONSTRAINT n AS SELECT * FROM vm CHECK controllable__pm IS NOT NULL OR cpu = 4;",
        NOWHERE + "CREATE CONSTRAINT n AS SELECT * FROM vm CHECK coalesce(controllable__pm, 'pm1') = 'pm1' OR id > 0;",
        "CREATE CONSTRAINT c AS SELECT * FROM vm WHERE id < 3 CHECK controllable__pm <> pm OR id = 1;"
        "CREATE CONSTRAINT d AS SELECT * FROM vm WHERE id < 3 AND controllable__pm IS DISTINCT FROM pm "
        "MINIMIZE count(*) TIER 2;" + ON_PM3.replace("controllable__pm =", "coalesce(controllable__pm, 'pm3') ="),
    ],
)  # fmt: skip
def test_it_says_nothing_where_somebody_asks_for_values(policy: str) -> None:
    assert solved(policy).unassigned == ()
    assert linted(policy) == []


def test_rows_with_values_are_nothing_to_speak_of() -> None:
    plan = solved("CREATE CONSTRAINT even AS SELECT * FROM vm MAXIMIZE sum(controllable__share);")
    assert plan.unassigned == (), "of controllable__pm nobody speaks: that is another finding of lint"


def test_a_database_that_takes_too_long_for_the_question_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_long(*_: object) -> Iterator[Assignments]:
        raise StatementTimeoutError(1.0, together=True)

    monkeypatch.setattr("mgmt.compiler.results.unassigned._fillings", too_long)
    assert solved(SPARE).unassigned == ()


def test_lint_says_it_before_anything_is_solved() -> None:
    (found,) = linted(ON_PM3)
    assert found.startswith(
        "schema.sql:4:3: unassigned: nothing asks for a value of vm.controllable__pm: NULL in all 5 rows satisfies "
        "on_pm3 (a CHECK of NULL is UNKNOWN, which passes) (declare controllable__pm NOT NULL, or say that a value is "
    )
    assert linted(ON_PM3, SCHEMA.replace("REFERENCES pm (name)", "NOT NULL REFERENCES pm (name)")) == []


def test_a_tuple_of_variables_is_filled_together() -> None:
    schema = """
    CREATE TABLE disk (host TEXT NOT NULL, slot INTEGER NOT NULL, PRIMARY KEY (host, slot));
    CREATE TABLE file (id INTEGER PRIMARY KEY, variable__host TEXT, variable__slot INTEGER,
      FOREIGN KEY (variable__host, variable__slot) REFERENCES disk (host, slot));"""
    placed = """CREATE CONSTRAINT placed AS SELECT * FROM file JOIN disk
    ON variable__host = disk.host AND variable__slot = disk.slot MAXIMIZE count(*);
    CREATE CONSTRAINT never AS SELECT * FROM file CHECK variable__host = 'x';"""
    rows: dict[str, list[dict[str, Value]]] = {
        "disk": [{"host": host, "slot": slot} for host in "abc" for slot in range(ord(host) - 96)],
        "file": [{"id": 1}, {"id": 2}],
    }
    plan = Model.build(database(schema, rows), placed).solve(budget=20)
    assert set(plan.assignments["file", "variable__host"].values()) == {None}
    assert plan.unassigned == ()


@pytest.mark.parametrize(
    ("pack", "rows"),
    [
        ("kubernetes", {
            "node": [{"name": "a", "cpu": 1, "memory": 1, "ephemeral_storage": 1}],
            "template": [{"name": "t"}],
            "pod": [{"name": "p", "template": "t", "cpu": 2, "memory": 0}],
        }),
        ("borg", {
            "machine": [{"name": "a", "cpu": 1, "ram": 1, "rack": "r", "power": "w"}],
            "band": [{"name": "b", "rank": 1, "quota_needed": False}],
            "job": [{"name": "j", "band": "b", "owner": "o", "disruption_budget": 1}],
            "task": [{"name": "t", "job": "j", "cpu": 2, "ram": 0}],
        }),
    ],
)  # fmt: skip
def test_the_packs_ask(pack: str, rows: dict[str, list[dict[str, Value]]]) -> None:
    """Also where there is no room for anything."""
    found = load_pack(pack)
    state = database(found.schema)
    for table, contents in rows.items():
        state.insert(table, contents)
    model = Model.build(state, found)
    plan = model.solve(budget=20)
    assert [list(values.values()) for values in plan.assignments.values()] == [[None]]
    assert plan.unassigned == ()
    assert Rule.UNASSIGNED not in {finding.rule for finding in lint(model)}
