"""The options of tails, PINNED WHERE, and what is SET for a whole database."""

from __future__ import annotations

from typing import Any

import pytest

import mgmt
from mgmt.errors import (
    DuplicateNameError,
    InfeasibleError,
    PolicyError,
    PolicySyntaxError,
    UnknownColumnError,
    UnsupportedConstructError,
)
from mgmt.language.parsing.set_statements import parse_settings
from mgmt.solution import SolveStatus
from mgmt.source_text import SourceText
from tests.mgmt.support import database, solve
from tests.mgmt.test_meaning import SCHEMA, THREE, place, placed, tasks

pytestmark = pytest.mark.usefixtures("each_database")

JOINED = "FROM task JOIN host ON task.variable__host = host.name"
EMPTY_A = "CREATE CONSTRAINT not_a AS SELECT * FROM task CHECK variable__host <> 'a'"
PREFER_C = "CREATE CONSTRAINT prefer AS SELECT * FROM task WHERE variable__host = 'c' MAXIMIZE count(*)"


def test_pinned_rows_keep_their_value_and_others_do_not() -> None:
    rows = tasks((1, 1, "a"), (2, 5, "a"), (3, 5, None))
    alone = "; CREATE CONSTRAINT stay AS SELECT * FROM task PINNED WHERE weight > 1"
    assert place(PREFER_C + alone, THREE, rows) == {1: "c", 2: "a", 3: "c"}, "3 has no value to keep"
    assert place(PREFER_C + " TIER 1 PINNED WHERE weight < 5", THREE, rows) == {1: "a", 2: "c", 3: "c"}
    joined = "; CREATE CONSTRAINT stay AS SELECT * FROM task JOIN host ON task.host = host.name PINNED WHERE host.up"
    assert place(PREFER_C + joined, THREE, rows) == {1: "a", 2: "a", 3: "c"}


def test_a_pinned_row_cannot_be_moved_out_of_what_a_demand_speaks_of() -> None:
    """Known error of ours: the demand's WHERE was the pin's too, so that what was moved was no longer pinned."""
    rows = tasks((1, 1, "a"), (2, 5, "a"))
    leave_a = "CREATE CONSTRAINT leave AS SELECT * FROM task WHERE variable__host = 'a' MINIMIZE count(*)"
    assert place(f"{leave_a} PINNED WHERE weight > 1", THREE, rows)[2] == "a"
    joined = f"CREATE CONSTRAINT leave AS SELECT * {JOINED} WHERE host.name = 'a' MINIMIZE count(*)"
    assert place(f"{joined} PINNED WHERE weight > 1", THREE, rows)[2] == "a"
    assert place(f"{joined} PINNED WHERE weight > 1", THREE, rows)[1] != "a"
    elsewhere = "CREATE CONSTRAINT few AS SELECT * FROM task WHERE weight < 3 AND variable__host = 'a'"
    found = place(f"{elsewhere} MINIMIZE count(*) PINNED WHERE TRUE; {EMPTY_A} SOFT", THREE, rows)
    assert found[1] == "a", "the constant conditions of the demand say of which rows it speaks"
    assert found[2] != "a"


def test_a_pin_that_cannot_be_kept_is_in_the_core_with_its_reason() -> None:
    policy = (
        f"{EMPTY_A} PRIORITY 2 REASON 'a is being emptied of {{id}}';"
        "CREATE CONSTRAINT stay AS SELECT id, weight FROM task PINNED WHERE TRUE "
        "REASON 'task {id} of weight {weight} is pinned'"
    )
    with pytest.raises(InfeasibleError) as caught:
        place(policy, THREE, tasks((1, 1, "b"), (7, 3, "a")))
    found = [(member.constraint, member.priority, member.reason) for member in caught.value.core]
    assert found == [
        ("not_a", 2, "a is being emptied of 7"),
        ("stay", 1, "task 7 of weight 3 is pinned"),
    ], "what is to be given up first comes first"


def test_a_column_named_pinned_is_a_column() -> None:
    schema = SCHEMA.replace("weight INTEGER", "pinned BOOLEAN, weight INTEGER")
    rows: dict[str, list[dict[str, Any]]] = {
        "host": THREE,
        "task": [{"id": 1, "pinned": True, "host": "a"}, {"id": 2, "pinned": False, "host": "a"}],
    }
    text = (
        f"{PREFER_C}; CREATE CONSTRAINT stay AS SELECT pinned, id FROM task WHERE id > 0 PINNED WHERE pinned"
    )
    assert placed(solve(schema, rows, text)) == {1: "a", 2: "c"}


def test_a_move_budget_bounds_changes_but_not_first_placements() -> None:
    rows = tasks((1, 1, "a"), (2, 1, "a"), (3, 1, None))
    found = place(f"SET move_budget = 1; {PREFER_C}", THREE, rows)
    assert found[3] == "c"
    assert sorted((found[1], found[2])) == ["a", "c"]
    with pytest.raises(InfeasibleError) as caught:
        place(f"SET move_budget TO 1; {EMPTY_A}", THREE, rows)
    assert set(caught.value.constraints) == {"move_budget", "not_a"}


def test_a_move_budget_counts_over_all_tables() -> None:
    schema = (
        SCHEMA
        + "CREATE TABLE lamp (id INTEGER PRIMARY KEY, lit BOOLEAN NOT NULL, variable__lit BOOLEAN NOT NULL);"
    )
    rows = {
        "host": THREE,
        "task": tasks((1, 1, "a")),
        "lamp": [{"id": 1, "lit": False}, {"id": 2, "lit": False}],
    }
    text = f"""SET move_budget = 2; {PREFER_C};
        CREATE CONSTRAINT light AS SELECT * FROM lamp MAXIMIZE sum(variable__lit);"""
    solution = solve(schema, rows, text)
    assert len(solution.deltas) == 2


@pytest.mark.parametrize(("least", "moves"), [(1, 2), (2, 2), (3, 0), (100, 0)])
def test_a_gain_below_the_least_changes_nothing(least: int, moves: int) -> None:
    state = database(SCHEMA, {"host": THREE, "task": tasks((1, 1, "a"), (2, 1, "a"))})
    solution = mgmt.Model.build(state, f"SET min_gain = {least}; {PREFER_C}").solve()
    assert len(solution.deltas) == moves
    assert (solution.status is SolveStatus.UNCHANGED) == (moves == 0)
    assert solution.objectives[0].after == moves


def test_what_is_broken_is_mended_whatever_it_gains() -> None:
    rows = tasks((1, 1, "a"), (2, 1, "b"))
    assert place(f"SET min_gain = 100; {EMPTY_A}; {PREFER_C}", THREE, rows) == {1: "c", 2: "c"}


def test_settings_are_read_from_all_texts() -> None:
    texts = [SourceText("a.sql", "SET move_budget = 3;"), SourceText("b.sql", "\nSET min_gain TO 4")]
    found = parse_settings(texts)
    assert found.move_budget is not None
    assert found.min_gain is not None
    assert (found.move_budget.value, found.min_gain.value, found.min_gain.position.line) == (3, 4, 2)


@pytest.mark.parametrize(
    ("text", "error", "column"),
    [
        ("SET speed = 3", PolicySyntaxError, 5),
        ("SET", PolicySyntaxError, 1),
        ("SET move_budget", PolicySyntaxError, 1),
        ("SET move_budget = -3", PolicySyntaxError, 1),
        ("SET move_budget = 3.5", PolicySyntaxError, 1),
        ("SET min_gain = 1; SET min_gain = 2", DuplicateNameError, 19),
        ("SET cooldown = soon", PolicySyntaxError, 1),
        ("CREATE CONSTRAINT c AS SELECT * FROM task CHECK TRUE SOFT PRIORITY 2", PolicySyntaxError, 59),
        ("CREATE CONSTRAINT c AS SELECT * FROM task MINIMIZE sum(id) PRIORITY 2", PolicySyntaxError, 60),
        ("CREATE CONSTRAINT c AS SELECT * FROM task CHECK TRUE PINNED WHERE", PolicySyntaxError, 54),
        ("CREATE CONSTRAINT c AS SELECT * FROM task PINNED WHERE TRUE TIER 2", PolicySyntaxError, 61),
        ("CREATE CONSTRAINT c AS SELECT * FROM task CHECK TRUE REASON 'x' REASON 'y'", PolicySyntaxError, 65),
        ("CREATE CONSTRAINT c AS SELECT * FROM task CHECK TRUE REASON 'of {wieght}'", UnknownColumnError, 61),
        ("CREATE CONSTRAINT c AS SELECT * FROM task CHECK TRUE REASON '{variable__host}'",
         UnsupportedConstructError, 61),
        ("CREATE CONSTRAINT c AS SELECT name FROM host PINNED WHERE up", UnsupportedConstructError, 46),
        ("CREATE CONSTRAINT c AS SELECT DISTINCT id FROM task PINNED WHERE TRUE", UnsupportedConstructError, 53),
        ("CREATE CONSTRAINT c AS SELECT * FROM task PINNED WHERE id > 1 AND variable__host = 'a'",
         UnsupportedConstructError, 67),
        ("CREATE CONSTRAINT c AS SELECT * FROM task CHECK id > 0 PINNED WHERE variable__host = 'a'",
         UnsupportedConstructError, 69),
        ("CREATE CONSTRAINT c AS SELECT * FROM task WHERE variable__host = 'a' PINNED WHERE id > 1",
         UnsupportedConstructError, 49),
        ("CREATE VIEW v AS SELECT id FROM task WHERE variable__host = 'a';"
         "CREATE CONSTRAINT c AS SELECT * FROM task JOIN v ON v.id = task.id PINNED WHERE TRUE",
         UnsupportedConstructError, 132),
        ("CREATE CONSTRAINT c AS SELECT * FROM task JOIN host ON variable__host = name CHECK up"
         " PINNED WHERE host.size = 1", UnsupportedConstructError, 105),
    ],
)  # fmt: skip
def test_options_out_of_place_are_refused_where_they_stand(
    text: str, error: type[PolicyError], column: int
) -> None:
    with pytest.raises(error) as caught:
        mgmt.Model.build(database(SCHEMA), f"{text}; {PREFER_C}")
    assert (caught.value.line, caught.value.column) == (1, column), caught.value
