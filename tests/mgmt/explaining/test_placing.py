"""Why, why not, what if, diff, headroom and the decision log, on a state small enough to check by eye."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import DataError, InfeasibleError, PolicySyntaxError, UnknownColumnError, UnknownTableError
from mgmt.explaining.solutions import what_if as what_ifs
from mgmt.explaining.solutions import why as whys
from mgmt.explaining.solutions.decision_log import Cause, decision_log
from mgmt.explaining.solutions.decisions import decisions_of, row_named
from mgmt.explaining.solutions.difference import diff
from mgmt.explaining.solutions.headroom import headroom
from mgmt.solution import PrimaryKey, SolveStatus, Value
from mgmt.source_text import SourceText
from tests.mgmt.support import UNHURRIED, database

why = partial(whys.why, budget=UNHURRIED)
why_not = partial(whys.why_not, budget=UNHURRIED)
what_if = partial(what_ifs.what_if, budget=UNHURRIED)

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, rack TEXT NOT NULL, size INTEGER NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, weight INTEGER NOT NULL, host TEXT,
  variable__host TEXT NOT NULL REFERENCES host (name));
CREATE TABLE disk (task INTEGER NOT NULL REFERENCES task (id), number INTEGER NOT NULL, PRIMARY KEY (task, number));
"""
POLICY = """\
CREATE CONSTRAINT room AS
SELECT host.name, host.size FROM task JOIN host ON task.variable__host = host.name
GROUP BY host.name, host.size CHECK sum(weight) <= host.size;

CREATE CONSTRAINT heavy_apart AS
SELECT host.rack FROM task JOIN host ON task.variable__host = host.name WHERE task.weight > 5
GROUP BY host.rack CHECK count(*) <= 1;

CREATE CONSTRAINT stay AS SELECT * FROM task WHERE variable__host <> host MINIMIZE count(*);

CREATE CONSTRAINT first_rack AS
SELECT task.id FROM task JOIN host ON task.variable__host = host.name WHERE host.rack <> 'r0'
MINIMIZE sum(task.weight) TIER 2;
"""
HOSTS = [
    {"name": "h0", "rack": "r0", "size": 10},
    {"name": "h1", "rack": "r0", "size": 10},
    {"name": "h2", "rack": "r1", "size": 10},
]


def model(tasks: list[tuple[int, int, str | None]]) -> Model:
    rows = {
        "host": HOSTS,
        "task": [{"id": number, "weight": weight, "host": host} for number, weight, host in tasks],
        "disk": [{"task": number, "number": 0} for number, *_ in tasks],
    }
    return Model.build(database(SCHEMA, rows), SourceText("rules.sql", POLICY))  # type: ignore[arg-type]


def test_a_row_is_named_by_any_spelling_of_its_key() -> None:
    schema = """CREATE TABLE task (
      day TIMESTAMP PRIMARY KEY, variable__slot INTEGER NOT NULL CHECK (variable__slot BETWEEN 0 AND 1)
    );"""
    asked = Model.build(
        database(schema, {"task": [{"day": "2026-01-03 00:00:00"}]}),
        "CREATE CONSTRAINT early AS SELECT * FROM task MINIMIZE sum(variable__slot);",
    )
    for spelling in ("2026-01-03", "2026-01-03 00:00:00", "2026-01-03T00:00"):
        answer = why_not(asked, *_named(asked, f"task:{spelling}"), 1)
        assert str(answer) == (
            "task 2026-01-03 00:00:00 could have slot 1, which costs 1 slot in early (1 instead of 0); "
            "it has slot 0"
        )


def _named(asked: Model, row: str) -> tuple[str, PrimaryKey]:
    table, key = row_named(asked.database.schema, row)
    return table.name, key


def test_why_a_value_is_required() -> None:
    asked = model([(1, 6, "h0"), (2, 9, "h2")])
    asked.database.execute("UPDATE host SET size = 8 WHERE rack = 'r0'")
    (reason,) = why(asked, "task", (2,))
    assert (reason.chosen, reason.before) == ("h2", "h2")
    assert not reason.possible
    assert str(reason) == "task 2 must have host h2: else these clash: room (rules.sql:1:1)"


def test_why_a_value_is_preferred() -> None:
    (reason,) = why(model([(1, 3, "h2")]), "task", (1,))
    assert reason.chosen == "h2"
    assert reason.other in {"h0", "h1"}
    assert reason.difference is not None
    assert reason.difference.decisive_tier == 1
    assert str(reason) == (
        f"task 1 has host h2; the next best is host {reason.other}, which costs 1 row of task in stay (1 instead of 0)"
    )


def test_why_when_another_value_is_as_good() -> None:
    (reason,) = why(model([(1, 3, None)]), "task", (1,))
    assert reason.tie
    assert {reason.chosen, reason.other} == {"h0", "h1"}
    assert str(reason) == (
        f"task 1 has host {reason.chosen}; it could have host {reason.other} just as well, at no cost"
    )


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("b", ("variable__rack", "b")),
        ("2", ("variable__slot", 2)),
        (2, ("variable__slot", 2)),
        ("true", ("variable__leads", True)),
        ("elsewhere", ("variable__rack", "elsewhere")),
    ],
)
def test_why_not_is_about_the_column_that_can_have_the_value(value: Value, meant: tuple[str, Value]) -> None:
    state = database(
        "CREATE TABLE slot (rack TEXT, slot INTEGER, PRIMARY KEY (rack, slot)); CREATE TABLE task (id INTEGER PRIMARY"
        " KEY, variable__rack TEXT NOT NULL, variable__slot INTEGER NOT NULL, variable__leads BOOLEAN NOT NULL,"
        " FOREIGN KEY (variable__rack, variable__slot) REFERENCES slot (rack, slot));"
    )
    state.execute("INSERT INTO slot VALUES ('a', 1), ('b', 2)")
    state.execute("INSERT INTO task (id) VALUES (1)")
    policy = "CREATE CONSTRAINT c AS SELECT id FROM task CHECK variable__leads OR variable__slot > 0;"
    answer = why_not(Model.build(state, policy), "task", (1,), value)
    assert (answer.decision.variable, answer.other) == meant


def test_why_not_says_what_forbids_it_or_what_it_costs() -> None:
    asked = model([(1, 8, "h0"), (2, 3, "h1"), (3, 8, "h2")])
    forbidden = why_not(asked, "task", (1,), "h9")
    assert not forbidden.possible
    assert str(forbidden) == "task 1 cannot have host h9: it is not one of the values to choose from"
    chosen = why_not(asked, "task", (1,), "h0", "host")
    assert str(chosen) == "task 1 has host h0: it is what was chosen"
    moved = why_not(asked, "task", (2,), "h0")
    assert moved.difference is not None
    assert moved.difference.decisive_tier == 1
    assert str(moved) == (
        "task 2 could have host h0, which costs 2 rows of task in stay (2 instead of 0); it has host h1"
    )
    assert [str(change.decision) for change in moved.consequences.decisions] == ["task 1"]


def test_why_not_names_the_constraints_without_the_question_itself() -> None:
    asked = model([(1, 6, "h0"), (2, 9, "h2")])
    asked.database.execute("DELETE FROM host WHERE name = 'h1'")
    asked.database.execute("UPDATE host SET size = 8 WHERE name = 'h0'")
    answer = why_not(asked, "task", (2,), "h0")
    assert [member.constraint for member in answer.core] == ["room"]
    assert str(answer) == "task 2 cannot have host h0: it clashes with room (rules.sql:1:1)"
    assert str(answer.relaxations[0]) == "raise h0.size by 1"
    assert asked.constraints == ("room", "heavy_apart", "stay", "first_rack"), "the model is as it was"


def test_what_if_nothing_changes_that_a_plan_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another plan would be one that was better anyway, where the first is not proven."""
    asked = model([(1, 8, "h0"), (2, 3, "h1")])
    plan = replace(asked.solve(UNHURRIED), status=SolveStatus.FEASIBLE)
    plans = iter([plan])
    monkeypatch.setattr(Model, "solve", lambda *given, **named: next(plans))
    answer = what_if(
        asked, "UPDATE task SET variable__host = 'h2' WHERE id = 1; UPDATE task SET weight = weight"
    )
    assert str(answer) == "nothing would change"


def test_what_if_a_row_without_a_key_is_there_twice() -> None:
    state = database(
        "CREATE TABLE used (slot INTEGER); CREATE TABLE task (id INTEGER PRIMARY KEY,"
        " variable__slot INTEGER NOT NULL CHECK (variable__slot BETWEEN 0 AND 1));"
    )
    state.execute("INSERT INTO used VALUES (0), (1), (1)")
    state.execute("INSERT INTO task (id) VALUES (1)")
    policy = (
        "CREATE CONSTRAINT c AS SELECT id FROM task JOIN used ON slot = variable__slot MINIMIZE count(*);"
    )
    answer = what_if(Model.build(state, policy), "INSERT INTO used VALUES (0), (0)")
    assert str(answer).startswith("it costs 1 row")


def test_what_if_changes_only_a_private_copy() -> None:
    asked = model([(1, 3, "h0"), (2, 3, "h1")])
    version = asked.database.version
    answer = what_if(asked, "DELETE FROM host WHERE name = 'h0'; UPDATE host SET size = 7 WHERE name = 'h1'")
    assert answer.difference is not None
    (change,) = answer.difference.decisions
    assert (change.decision.primary_key, change.one) == ((1,), "h0")
    assert [change.name for change in answer.difference.objectives] == ["stay"]
    assert str(answer) == "it costs 1 row of task in stay (1 instead of 0); 1 value changes"
    assert asked.database.version == version
    broken = what_if(asked, "UPDATE host SET size = 1")
    assert isinstance(broken.after, InfeasibleError)
    assert broken.difference is None
    with pytest.raises(PolicySyntaxError):
        what_if(asked, "UPDATE nothing SET size = 1")
    with pytest.raises(DataError, match="nothing to try"):
        what_if(asked, " ; ")
    with pytest.raises(DataError, match="DROP is not tried: only rows may be other"):
        what_if(asked, "UPDATE host SET size = 7; DROP TABLE host")


def test_what_is_better_anyway_is_no_consequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first plan is not proven: two tasks are in the dear rack for nothing."""
    asked = model([(number, 1, None) for number in range(1, 10)])
    poor = "CREATE CONSTRAINT poor AS SELECT * FROM task CHECK id > 2 OR variable__host = 'h2';"
    poor_plan = asked.extended(SourceText("poor", poor)).solve(UNHURRIED)
    objectives = tuple(replace(each, bound=None, proven=False) for each in poor_plan.objectives)
    plans = iter([replace(poor_plan, status=SolveStatus.FEASIBLE, objectives=objectives)])
    solve = Model.solve

    def poor_at_first(asked: Model, *given: Any, **named: Any) -> Any:
        return next(plans, None) or solve(asked, *given, **named)

    monkeypatch.setattr(Model, "solve", poor_at_first)
    answer = what_if(asked, "UPDATE task SET weight = 2 WHERE id = 9")
    assert str(answer) == "nothing would change"


def test_the_difference_of_two_solutions() -> None:
    one, other = model([(1, 3, "h0")]).solve(), model([(1, 3, "h2")]).solve()
    found = diff(one, other)
    assert [(c.decision.primary_key, c.one, c.other) for c in found.decisions] == [((1,), "h0", "h2")]
    assert [(c.name, c.worse_by) for c in found.objectives] == [("first_rack", 3)]
    assert found.decisive_tier == 2
    assert found
    assert diff(one, one).decisive_tier is None
    assert not diff(one, one)


def test_the_difference_says_which_objectives_only_one_has() -> None:
    state = model([(1, 3, "h0")])
    without = state.revised(lambda query: None if query.name == "first_rack" else query)
    found = diff(state.solve(), without.solve())
    assert (found.only_one, found.only_other) == (("first_rack",), ())
    assert found


@pytest.mark.parametrize(("weight", "expected", "limits"), [(3, 8, "room"), (6, 1, "heavy_apart")])
def test_headroom_is_exact(weight: int, expected: int, limits: str) -> None:
    """Three hosts of 10 take three tasks of 3 each, nine in all; of heavy ones each rack takes one."""
    asked = model([(1, weight, "h0")])
    answer = headroom(asked, "task", (1,))
    assert (answer.count, answer.exact) == (expected, True)
    assert [member.constraint for member in answer.core] == [limits]
    assert asked.database.execute("SELECT count(*) FROM task") == [(1,)]


def test_headroom_counts_what_has_a_place_where_rows_may_stay_without() -> None:
    """On two hosts of ten are seven and six and one: six more of one fit, with or without the six that is left out."""
    schema = SCHEMA.replace("variable__host TEXT NOT NULL", "variable__host TEXT")
    left_out = (
        "CREATE CONSTRAINT left_out AS SELECT id FROM task WHERE variable__host IS NULL MINIMIZE sum(weight);"
    )
    tasks = [(1, 7, "h0"), (2, 6, "h1"), (3, 6, None), (4, 1, "h1")]
    rows = {
        "host": HOSTS[:2],
        "task": [{"id": number, "weight": weight, "host": host} for number, weight, host in tasks],
    }
    policies = POLICY.split("CREATE CONSTRAINT heavy")[0] + left_out
    asked = Model.build(database(schema, rows), policies)  # type: ignore[arg-type]
    answer = headroom(asked, "task", (4,))
    assert (answer.count, answer.exact) == (6, True)
    assert [member.constraint for member in answer.core] == ["room"]


def test_headroom_of_what_does_not_fit_today_says_why() -> None:
    with pytest.raises(InfeasibleError):
        headroom(model([(1, 11, None)]), "task", (1,))
    with pytest.raises(DataError, match="no row"):
        headroom(model([(1, 1, None)]), "task", (7,))


def test_the_decision_log_tells_required_moves_from_optional_ones() -> None:
    asked = model([(1, 8, "h0"), (2, 8, "h1"), (3, 1, "h2"), (4, 1, None)])
    solution = asked.solve()
    log = {entry.delta.primary_key: entry for entry in decision_log(asked, solution)}
    moved = [key for key in log if key in {(1,), (2,)}]
    assert len(moved) == 1, "one of the heavy ones has to leave the rack"
    assert log[4,].cause is Cause.REQUIRED
    assert str(log[4,]).endswith("required: it had no value")
    # It could stay if the other one moved, at the same price.
    assert log[moved[0]].cause is Cause.NEUTRAL
    one_way = model([(1, 8, "h0"), (2, 8, "h1")])
    one_way.database.execute("UPDATE host SET size = 7 WHERE name = 'h1'")
    (entry,) = decision_log(one_way, one_way.solve())
    assert entry.cause is Cause.REQUIRED
    assert [member.constraint for member in entry.core] == ["room"]
    assert str(entry) == "task 2: host h1 -> h2, required by room"


def test_an_optional_move_says_what_it_is_good_for() -> None:
    policy = POLICY.replace("MINIMIZE count(*);", "MINIMIZE count(*) TIER 3;")
    rows = {"host": HOSTS, "task": [{"id": 1, "weight": 3, "host": "h2"}]}
    asked = Model.build(database(SCHEMA, rows), policy)  # type: ignore[arg-type]
    (entry,) = decision_log(asked, asked.solve())
    assert entry.cause is Cause.OPTIONAL
    assert str(entry).endswith("optional: first_rack is better by 3 with it")


def test_rows_are_named_by_table_and_key() -> None:
    asked = model([(1, 1, None)])
    schema = asked.database.schema
    assert row_named(schema, "task:1")[1] == (1,)
    assert row_named(schema, "disk:1,0")[1] == (1, 0)
    assert decisions_of(asked, "task", (1,), "host")[0].variable == "variable__host"
    for name, kind in (
        ("task", DataError),
        ("task:x", DataError),
        ("disk:1", DataError),
        ("tusk:1", UnknownTableError),
    ):
        with pytest.raises(kind):
            row_named(schema, name)
    with pytest.raises(UnknownTableError, match="decides nothing"):
        decisions_of(asked, "host", ("h0",))
    with pytest.raises(UnknownColumnError, match="variable__host"):
        decisions_of(asked, "task", (1,), "weight")
