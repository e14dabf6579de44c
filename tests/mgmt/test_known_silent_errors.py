"""Errors that an earlier system (DCM) made without a word; each is named after its error, and ours does it right."""

from __future__ import annotations

from typing import Any

import pytest

import mgmt
from mgmt.errors import InfeasibleError, PolicySyntaxError, TypeMismatchError, UnsupportedConstructError
from tests.mgmt.support import database, solve
from tests.mgmt.test_meaning import JOINED, SCHEMA, THREE, hosts, place, placed, tasks

pytestmark = pytest.mark.usefixtures("each_database")

AT_A = "CREATE CONSTRAINT at_a AS SELECT * FROM task WHERE variable__host = 'a' MAXIMIZE count(*)"


def test_where_on_a_variable_was_dropped_in_a_constraint_without_aggregates() -> None:
    policy = f"CREATE CONSTRAINT c AS SELECT * FROM task WHERE variable__host = 'a' CHECK weight >= 5; {AT_A}"
    found = place(policy, THREE, tasks((1, 3, None), (2, 6, None)))
    assert found[1] != "a"
    assert found[2] == "a"


def test_a_join_predicate_was_dropped_beside_two_variable_qualifiers() -> None:
    policy = f"""CREATE CONSTRAINT apart AS SELECT * FROM task a JOIN task b
        ON a.variable__host = b.variable__host AND a.weight = b.weight AND a.id < b.id CHECK FALSE; {AT_A};"""
    found = place(policy, THREE, tasks((1, 1, None), (2, 1, None), (3, 2, None)))
    assert found[3] == "a"
    assert [found[1], found[2]].count("a") == 1


def test_minimum_and_maximum_over_a_gated_join_were_not_gated() -> None:
    policy = f"""CREATE CONSTRAINT c AS SELECT host.name {JOINED} GROUP BY host.name
        CHECK max(weight) - min(weight) <= 1; {AT_A};"""
    found = place(policy, THREE, tasks((1, 1, None), (2, 9, None), (3, 2, None)))
    assert (found[1], found[3]) == ("a", "a")
    assert found[2] != "a"


def _keyed(kind: str) -> str:
    return f"""CREATE TABLE host (name TEXT PRIMARY KEY);
        CREATE TABLE part (id INTEGER UNIQUE NOT NULL, whole INTEGER NOT NULL,
          variable__host TEXT NOT NULL REFERENCES host (name), {kind} (whole, variable__host){{more}});"""


@pytest.mark.parametrize("kind", ["PRIMARY KEY", "UNIQUE"])
def test_composite_keys_were_not_enforced(kind: str) -> None:
    schema = _keyed(kind).format(more="" if kind == "PRIMARY KEY" else ", PRIMARY KEY (id)")
    rows: dict[str, list[dict[str, Any]]] = {
        "host": [{"name": "a"}, {"name": "b"}],
        "part": [{"id": 1, "whole": 1}, {"id": 2, "whole": 1}],
    }
    policy = "CREATE CONSTRAINT c AS SELECT * FROM part WHERE variable__host = 'a' MAXIMIZE count(*)"
    assert sorted(solve(schema, rows, policy).assignments["part", "variable__host"].values()) == ["a", "b"]
    with pytest.raises(InfeasibleError):
        solve(schema, rows, "CREATE CONSTRAINT c AS SELECT * FROM part CHECK variable__host = 'a'")


def test_a_composite_foreign_key_was_taken_column_by_column() -> None:
    schema = """CREATE TABLE disk (host TEXT, slot INTEGER, PRIMARY KEY (host, slot));
        CREATE TABLE file (id INTEGER PRIMARY KEY, variable__host TEXT NOT NULL, variable__slot INTEGER NOT NULL,
          FOREIGN KEY (variable__host, variable__slot) REFERENCES disk (host, slot));"""
    rows: dict[str, list[dict[str, Any]]] = {
        "disk": [{"host": "a", "slot": 1}, {"host": "b", "slot": 2}],
        "file": [{"id": 1}],
    }
    solution = solve(schema, rows, "CREATE CONSTRAINT c AS SELECT * FROM file CHECK variable__host = 'b'")
    assert solution.value("file", "variable__slot", 1) == 2


def test_booleans_ranged_over_32_bits() -> None:
    schema = "CREATE TABLE t (id INTEGER PRIMARY KEY, variable__on BOOLEAN NOT NULL);"
    solution = solve(
        schema, {"t": [{"id": 1}]}, "CREATE CONSTRAINT c AS SELECT * FROM t MAXIMIZE sum(variable__on)"
    )
    assert solution.objectives[0].after == 1


def test_distinct_was_ignored() -> None:
    policy = "CREATE CONSTRAINT c AS SELECT DISTINCT variable__host FROM task CHECK count(*) = 1"
    found = place(policy, THREE, tasks((1, 1, None), (2, 1, None), (3, 1, None)))
    assert len(set(found.values())) == 1


def test_in_a_list_crashed() -> None:
    assert place(
        "CREATE CONSTRAINT c AS SELECT * FROM task CHECK variable__host IN ('c', 'x')",
        THREE,
        tasks((1, 1, None)),
    ) == {1: "c"}


def test_remainder_was_documented_and_not_there() -> None:
    column = "variable__n INTEGER NOT NULL CHECK (variable__n BETWEEN 6 AND 9)"
    schema = f"CREATE TABLE t (id INTEGER PRIMARY KEY, {column});"
    policy = "CREATE CONSTRAINT c AS SELECT * FROM t CHECK variable__n % 4 = 3"
    assert solve(schema, {"t": [{"id": 1}]}, policy).value("t", "variable__n", 1) == 7


def test_capacity_constraint_added_objectives_and_left_tasks_unplaced() -> None:
    policy = """CREATE CONSTRAINT room AS SELECT * FROM task, host
        CHECK capacity_constraint(task.variable__host, host.name, task.weight, host.size)"""
    state = database(SCHEMA, {"host": THREE, "task": tasks((1, 9, None), (2, 7, None), (3, 5, None))})
    solution = mgmt.Model.build(state, policy).solve(budget=20)
    assert solution.objectives == ()
    assert placed(solution) == {1: "b", 2: "c", 3: "a"}
    with pytest.raises(InfeasibleError):
        place(policy, THREE, tasks((1, 9, None), (2, 7, None), (3, 6, None)))


def test_types_of_intermediate_views_were_guessed() -> None:
    view = "CREATE VIEW v AS SELECT id, coalesce(variable__host, 'none') AS place, weight * 2 AS twice FROM task;"
    with pytest.raises(TypeMismatchError):
        place(
            f"{view} CREATE CONSTRAINT c AS SELECT * FROM v CHECK place > twice", THREE, tasks((1, 1, None))
        )
    with pytest.raises(TypeMismatchError):
        place(
            f"{view} CREATE CONSTRAINT c AS SELECT * FROM v CHECK sum(place) = 1", THREE, tasks((1, 1, None))
        )
    policy = f"{view} CREATE CONSTRAINT c AS SELECT * FROM v CHECK place = 'b' AND twice = 2"
    assert place(policy, THREE, tasks((1, 1, None))) == {1: "b"}


def test_a_table_in_lower_case_was_not_found() -> None:
    schema = SCHEMA.replace("TABLE task", "TABLE Task")
    for name in ("task", "TASK", "Task"):
        solution = solve(
            schema,
            {"host": THREE, name: tasks((1, 1, None))},
            f"CREATE CONSTRAINT c AS SELECT * FROM {name} CHECK Variable__Host = 'b'",
        )
        assert solution.value("Task", "variable__host", 1) == "b"


def test_tables_were_read_one_after_the_other() -> None:
    """Whatever is written while a plan is made, the plan is of one moment, and says of which."""
    state = database(SCHEMA, {"host": THREE, "task": tasks((1, 1, None))})
    model = mgmt.Model.build(state, "CREATE CONSTRAINT c AS SELECT * FROM task CHECK variable__host <> 'a'")
    with state.snapshot() as before:
        state.replace_rows({"task": [], "host": []})
        assert before.rows("SELECT (SELECT count(*) FROM host), (SELECT count(*) FROM task)") == [(3, 1)]
    state.insert("host", THREE)
    solution = model.solve()
    state.insert("task", tasks((2, 1, None)))
    with pytest.raises(mgmt.StalePlanError):
        state.apply(solution)


def test_increasing_on_strings_went_by_dictionary_code() -> None:
    with pytest.raises(TypeMismatchError, match="increasing takes numbers"):
        place(
            "CREATE CONSTRAINT c AS SELECT * FROM task CHECK increasing(variable__host)",
            THREE,
            tasks((1, 1, None)),
        )


def test_balance_by_the_least_spare_room_went_blind_beside_a_full_host() -> None:
    """The least spare room is that of the full host whatever else is done; squares, one tier later, see the others."""
    full = hosts(("a", "r1", 8, True), ("b", "r1", 20, True), ("c", "r1", 20, True))
    rows = tasks((1, 8, "a"), (2, 3, None), (3, 3, None), (4, 3, None), (5, 3, None))
    policy = f"""
        CREATE VIEW load AS SELECT host.name, host.size, sum(weight) AS used {JOINED} GROUP BY host.name, host.size;
        CREATE CONSTRAINT stay AS SELECT * FROM task PINNED WHERE weight = 8;
        CREATE CONSTRAINT room AS SELECT * FROM load CHECK used <= size;
        CREATE CONSTRAINT spare AS SELECT * FROM load MAXIMIZE min(size - used);
        CREATE CONSTRAINT even AS SELECT * FROM load MINIMIZE sum(used * used) TIER 2;
    """
    found = list(place(policy, full, rows).values())
    assert (found.count("b"), found.count("c")) == (2, 2)


# ---- errors that this system made without a word ----------------------------------------------------

NULLABLE = SCHEMA.replace("variable__host TEXT NOT NULL", "variable__host TEXT")


def test_a_pinned_row_was_left_without_a_value() -> None:
    policy = """CREATE CONSTRAINT c AS SELECT * FROM task PINNED WHERE id = 1;
        CREATE CONSTRAINT none AS SELECT * FROM task WHERE variable__host IS NULL MAXIMIZE count(*);"""
    rows = {"host": THREE, "task": tasks((1, 1, "b"), (2, 1, "b"), (3, 1, None))}
    assert placed(solve(NULLABLE, rows, policy)) == {1: "b", 2: None, 3: None}


def test_pinned_without_a_condition_was_a_name_for_the_table() -> None:
    with pytest.raises(PolicySyntaxError, match="PINNED needs WHERE"):
        place("CREATE CONSTRAINT c AS SELECT * FROM task PINNED", THREE, tasks((1, 1, "a")))


def test_rows_that_nothing_can_be_chosen_for_were_an_error() -> None:
    rows = {"host": [], "task": tasks((1, 1, None))}
    policy = "CREATE CONSTRAINT c AS SELECT * FROM task MAXIMIZE count(variable__host)"
    assert placed(solve(NULLABLE, rows, policy)) == {1: None}


@pytest.mark.parametrize(
    "select",
    [
        "SELECT * FROM (SELECT id AS a, weight AS b FROM task) AS x TABLESAMPLE SYSTEM (1)",
        "SELECT * EXCEPT (weight) FROM task",
        "SELECT * REPLACE (5 AS weight) FROM task",
    ],
)
def test_other_names_of_columns_were_dropped(select: str) -> None:
    with pytest.raises(UnsupportedConstructError) as caught:
        solve(
            SCHEMA,
            {"host": THREE, "task": tasks((1, 9, None))},
            f"CREATE CONSTRAINT c AS {select} CHECK TRUE",
        )
    assert caught.value.line == 1


@pytest.mark.parametrize(
    "select",
    [
        "WITH x (b, a) AS (SELECT id AS a, weight AS b FROM task) SELECT * FROM x",
        "SELECT * FROM (SELECT id AS a, weight AS b FROM task) AS x (b, a)",
        "SELECT * FROM (SELECT id AS a, weight AS b, variable__host AS h FROM task) AS x (b, a)",
        "SELECT x.b, x.a FROM task AS x (b, a)",
    ],
)
def test_names_that_were_given_to_columns_were_dropped(select: str) -> None:
    rows = {"host": THREE, "task": tasks((1, 9, None))}
    solve(SCHEMA, rows, f"CREATE CONSTRAINT c AS {select} CHECK b = 1 AND a = 9")
    with pytest.raises(InfeasibleError):
        solve(SCHEMA, rows, f"CREATE CONSTRAINT c AS {select} CHECK b <> 1 OR a <> 9")


@pytest.mark.parametrize("check", ["NOT n <= 5", "NOT (n < 6 OR n > 7)", "NOT (NOT (n > 5))", "NOT n <> 6"])
def test_by_how_much_a_soft_not_is_missed_did_not_count(check: str) -> None:
    policy = f"""CREATE CONSTRAINT c AS SELECT count(*) AS n FROM task WHERE variable__host = 'a'
        CHECK {check} SOFT TIER 1;
        CREATE CONSTRAINT none AS SELECT * FROM task WHERE variable__host = 'a' MINIMIZE count(*) TIER 2;"""
    found = place(policy, THREE, tasks((1, 1, None), (2, 1, None), (3, 1, None)))
    assert set(found.values()) == {"a"}


def test_by_how_much_a_soft_between_is_missed_did_not_count() -> None:
    policy = """CREATE CONSTRAINT c AS SELECT count(*) AS n FROM task WHERE variable__host = 'a'
        CHECK n BETWEEN 5 AND 7 SOFT TIER 1;
        CREATE CONSTRAINT none AS SELECT * FROM task WHERE variable__host = 'a' MINIMIZE count(*) TIER 2;"""
    found = place(policy, THREE, tasks((1, 1, None), (2, 1, None), (3, 1, None)))
    assert set(found.values()) == {"a"}
