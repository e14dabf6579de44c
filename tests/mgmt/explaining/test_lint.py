"""Lint: each rule fires where it should, with a position, and is silent on its neighbour that is right."""

from __future__ import annotations

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import PolicyError, PolicySyntaxError
from mgmt.explaining.policies.lint import Finding, Rule, lint, remarks
from mgmt.language.policy_packs import load_pack, pack_names
from mgmt.source_text import SourceText
from mgmt.state.database import Database

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, rack TEXT, size INTEGER NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, weight INTEGER NOT NULL, host TEXT,
  variable__host TEXT NOT NULL REFERENCES host (name));
"""
ROWS = (
    "INSERT INTO host VALUES ('h0', 'r0', 4), ('h1', 'r1', 4)",
    "INSERT INTO task (id, weight, host) VALUES (1, 3, 'h0'), (2, 2, 'h0')",
)
USED = "CREATE CONSTRAINT used AS SELECT * FROM task CHECK variable__host <> 'h9' OR weight = 7;\n"
ROOM = """CREATE CONSTRAINT room AS SELECT host.name FROM task JOIN host ON task.variable__host = host.name
GROUP BY host.name, host.size CHECK sum(weight) <= host.size {};
"""


def findings(policy: str, *statements: str, schema: str = SCHEMA) -> list[Finding]:
    state = Database()
    state.load_schema(schema)
    for statement in statements:
        state.execute(statement)
    return list(lint(Model.build(state, SourceText("p.sql", policy))))


def rules(*arguments: str, schema: str = SCHEMA) -> set[str]:
    return {str(finding.rule) for finding in findings(*arguments, schema=schema)}


SHARE = "CREATE VIEW share AS SELECT sum(size) AS total FROM host;\n"
PAIR = "CREATE CONSTRAINT pair AS SELECT task.id FROM task {} MINIMIZE sum(size) TIER 2;\n"


@pytest.mark.parametrize(
    ("rule", "wrong", "right"),
    [
        (
            Rule.CROSS_PRODUCT,
            "CREATE CONSTRAINT c AS SELECT task.id FROM task CROSS JOIN host CHECK task.variable__host <> host.rack;",
            "CREATE CONSTRAINT c AS SELECT id FROM task JOIN host ON host.name = variable__host CHECK rack <> 'x';",
        ),
        (
            Rule.CROSS_PRODUCT,
            "CREATE VIEW share AS SELECT size AS total FROM host; CREATE CONSTRAINT c AS SELECT id FROM task, share"
            " CHECK variable__host <> 'x' OR total > 1;",
            SHARE
            + "CREATE CONSTRAINT c AS SELECT id FROM task, share CHECK variable__host <> 'x' OR total > 1;",
        ),
        (
            Rule.CROSS_PRODUCT,
            "CREATE CONSTRAINT c AS SELECT host.size FROM task CROSS JOIN host WHERE task.variable__host <> task.host"
            " GROUP BY host.size CHECK count(*) <= host.size;",
            "CREATE CONSTRAINT c AS SELECT host.name FROM task CROSS JOIN host WHERE task.variable__host <> task.host"
            " GROUP BY host.name, host.size CHECK count(*) <= host.size;",
        ),
        (
            Rule.UNUSED_VARIABLE,
            "CREATE CONSTRAINT c AS SELECT * FROM task CHECK weight > 0;",
            "CREATE VIEW v AS SELECT id, variable__host FROM task;"
            "CREATE CONSTRAINT c AS SELECT * FROM v CHECK variable__host <> 'x';",
        ),
        (
            Rule.RENAMED_VARIABLE,
            "CREATE VIEW v AS SELECT id, variable__host AS host FROM task;"
            "CREATE CONSTRAINT c AS SELECT * FROM v CHECK host <> 'x';",
            "CREATE VIEW v AS SELECT id, variable__host FROM task;"
            "CREATE CONSTRAINT c AS SELECT * FROM v CHECK variable__host <> 'x';",
        ),
        (
            Rule.FROZEN_VARIABLE,
            USED + "CREATE CONSTRAINT c AS SELECT * FROM task CHECK host <> 'h1';",
            USED + "CREATE CONSTRAINT c AS SELECT * FROM task CHECK variable__host <> 'h1' OR host = 'h1';",
        ),
        (
            Rule.CONSTANT_OBJECTIVE,
            USED + "CREATE CONSTRAINT c AS SELECT * FROM task MINIMIZE sum(weight);",
            USED
            + "CREATE CONSTRAINT c AS SELECT * FROM task WHERE variable__host = 'h1' MINIMIZE sum(weight);",
        ),
        (
            Rule.CONSTANT_OBJECTIVE,
            "CREATE CONSTRAINT c AS SELECT * FROM task WHERE variable__host = 'h1' MAXIMIZE 3 - 3;",
            "CREATE CONSTRAINT c AS SELECT * FROM task WHERE variable__host = 'h1' MAXIMIZE 3;",
        ),
        (
            Rule.CONSTANT_CHECK,
            USED + "CREATE CONSTRAINT c AS SELECT * FROM task WHERE variable__host = 'h1' CHECK 1 = 1;",
            "CREATE CONSTRAINT c AS SELECT * FROM task WHERE variable__host = 'h1' CHECK FALSE;",
        ),
        (
            Rule.CONSTANT_CHECK,
            USED + "CREATE CONSTRAINT c AS SELECT * FROM task CHECK TRUE SOFT;",
            "CREATE CONSTRAINT c AS SELECT * FROM task WHERE variable__host = 'h1' CHECK FALSE SOFT;",
        ),
        (
            Rule.NULL_COMPARISON,
            "CREATE CONSTRAINT c AS SELECT * FROM task CHECK variable__host <> NULL;",
            "CREATE CONSTRAINT c AS SELECT * FROM task CHECK variable__host IS NOT NULL;",
        ),
    ],
)
def test_the_rules_about_the_text(rule: Rule, wrong: str, right: str) -> None:
    (found,) = [finding for finding in findings(wrong) if finding.rule is rule]
    assert found.is_warning
    assert found.position is not None
    assert f": {rule}: " in str(found)
    assert rule not in rules(right)


def test_a_variable_that_only_its_domain_speaks_of_is_unused() -> None:
    """The CHECK that bounds it, and a budget of moves, used to count as something that is asked of it."""
    schema = SCHEMA.replace(
        "REFERENCES host (name));",
        "REFERENCES host (name), level INTEGER,\n"
        "  variable__level INTEGER NOT NULL CHECK (variable__level BETWEEN 1 AND 3){});",
    )
    plain, tied = schema.format(""), schema.format(", CHECK (variable__level > 1 OR variable__host <> 'h0')")
    (found,) = (one for one in findings(USED, schema=plain) if one.rule is Rule.UNUSED_VARIABLE)
    assert found.message.startswith("no constraint and no objective speaks of task.variable__level")
    assert Rule.UNUSED_VARIABLE in rules(USED + "SET move_budget = 2;", schema=plain)
    assert Rule.UNUSED_VARIABLE not in rules(USED, schema=tied), "a rule over two variables is one for both"
    level = "CREATE CONSTRAINT l AS SELECT sum(variable__level) FROM task MINIMIZE sum(variable__level);"
    assert Rule.UNUSED_VARIABLE not in rules(USED + level, schema=plain)


def test_words_that_look_like_annotations() -> None:
    """Read over without a word, the view was no constraint at all."""
    for text in ("-- @hard_constriant\n", "/* what\n * @hard-constraint */\n", "-- @Hard_Constraints\n"):
        with pytest.raises(
            PolicySyntaxError, match=r"^p\.sql:\d:\d: no annotation @.*did you mean @hard_con"
        ) as caught:
            findings(USED + text + "CREATE VIEW v AS SELECT * FROM task CHECK weight > 0;")
        assert caught.value.column == text.splitlines()[-1].index("@") + 1
    with pytest.raises(PolicySyntaxError, match=r"^schema\.sql:2:4: .*did you mean @variable_columns"):
        findings(USED, schema=SCHEMA.replace("CREATE", "-- @variable_colums (weight)\nCREATE", 1))
    found = [one for one in findings("-- @wieght 3\n" + USED) if one.rule is Rule.UNKNOWN_ANNOTATION]
    assert [str(one) for one in found] == [
        "p.sql:1:4: unknown-annotation: @wieght is read over like any comment "
        "(the annotations are @hard_constraint, @soft_constraint, @variable_columns)"
    ]
    harmless = "-- by ops@example.org\n-- see '@hard_constriant'\n" + USED.replace(
        "'h9'", "'-- @hard_constriant'"
    )
    assert Rule.UNKNOWN_ANNOTATION not in rules(harmless)


def test_positions_are_those_of_the_texts() -> None:
    (found,) = findings(USED + "CREATE CONSTRAINT c AS SELECT * FROM task\n  CHECK host <> 'h1';")
    assert str(found) == (
        "p.sql:3:3: frozen-variable: c looks at task.host, the value of today, which no plan changes "
        "(did you mean variable__host?)"
    )


def test_weights_that_leave_64_bits() -> None:
    heavy = "UPDATE task SET weight = 4000000000000000000"
    objective = "CREATE CONSTRAINT c AS SELECT * FROM task WHERE variable__host = 'h1' MINIMIZE sum(weight) WEIGHT {};"
    assert Rule.WEIGHT_OVERFLOW in rules(objective.format(9), *ROWS, heavy)
    assert Rule.WEIGHT_OVERFLOW not in rules(objective.format(9), *ROWS)
    counted = "CREATE CONSTRAINT {} AS SELECT * FROM task WHERE variable__host = '{}' CHECK count(*) <= {};"
    beside = objective.format(9) + counted.format("wide", "h1", 9) + counted.format("none", "h0", 0)
    found = {finding.rule: finding.message for finding in findings(beside, *ROWS, heavy)}
    assert Rule.WEIGHT_OVERFLOW in found
    assert found[Rule.VIOLATED_TODAY].startswith("none does not hold"), "the rows are looked at all the same"
    assert found[Rule.NEVER_BINDS].startswith("wide holds")


def test_a_constraint_that_does_not_hold_today() -> None:
    found = {finding.rule: finding for finding in findings(ROOM.format(""), *ROWS)}
    assert str(found[Rule.VIOLATED_TODAY]).startswith(
        "p.sql:2:31: violated-today: room does not hold as things are, in 1 row "
    )
    assert not found[Rule.VIOLATED_TODAY].is_warning
    assert Rule.VIOLATED_TODAY not in rules(ROOM.format(""), *ROWS, "UPDATE host SET size = 5")


def test_a_check_that_can_never_bind() -> None:
    assert Rule.NEVER_BINDS in rules(ROOM.format("+ 100"), *ROWS)
    assert Rule.NEVER_BINDS not in rules(ROOM.format(""), *ROWS)
    assert Rule.NEVER_BINDS not in rules(ROOM.format("+ 100")), "without rows there is nothing to say"


@pytest.mark.parametrize(
    ("rule", "wrong", "right"),
    [
        (
            Rule.NO_VARIABLE,
            "CREATE CONSTRAINT c AS SELECT * FROM host CHECK size > 1;",
            "CREATE CONSTRAINT c AS SELECT * FROM task JOIN host ON variable__host = name CHECK size > 1;",
        ),
        (
            Rule.UNREAD_VIEW,
            "CREATE VIEW v AS SELECT * FROM task WHERE variable__host = 'h1';",
            "CREATE VIEW v AS SELECT * FROM task; CREATE CONSTRAINT c AS SELECT * FROM v CHECK variable__host <> 'x';",
        ),
    ],
)
def test_what_may_be_meant_is_a_note(rule: Rule, wrong: str, right: str) -> None:
    (found,) = [finding for finding in findings(USED + wrong, *ROWS) if finding.rule is rule]
    assert not found.is_warning
    assert str(found.position).startswith("p.sql:2:")
    assert rule not in rules(USED + right, *ROWS)
    assert Rule.NEVER_BINDS not in {
        each.rule for each in findings(USED + wrong, *ROWS) if "c holds" in each.message
    }


@pytest.mark.parametrize(
    "says",
    [
        "WHERE host = NULL CHECK variable__host = 'h1'",
        "CHECK host <> 'h1'",
        "CHECK weight < 9",
        "CHECK TRUE",
        "WHERE weight > 99 CHECK variable__host = 'h1'",
    ],
)
def test_what_leaves_the_solver_no_say_is_told_beside_a_plan(says: str) -> None:
    state = Database()
    state.load_schema(SCHEMA)
    for statement in ROWS:
        state.execute(statement)
    model = Model.build(state, f"CREATE CONSTRAINT c AS SELECT id FROM task {says};")
    assert remarks(model)


def test_what_demands_nothing_of_the_rows_of_today() -> None:
    """One line for all of them, with what is empty."""
    schema = SCHEMA + "CREATE TABLE banned (task INTEGER PRIMARY KEY, host TEXT);\n"
    policy = (
        "CREATE CONSTRAINT heavy AS SELECT * FROM task WHERE weight > 9 CHECK variable__host = 'h0';"
        "CREATE CONSTRAINT few AS SELECT * FROM task WHERE weight > 9 MAXIMIZE sum(variable__host = 'h0');"
        "CREATE CONSTRAINT apart AS SELECT * FROM task JOIN banned ON task = id CHECK variable__host <> banned.host;"
        "CREATE CONSTRAINT gone AS SELECT * FROM task WHERE variable__host IN ('h8', 'h9') MINIMIZE count(*);"
        "CREATE CONSTRAINT still AS SELECT * FROM task WHERE variable__host IN ('h1', 'h9') MINIMIZE count(*);"
    )
    (found,) = [each for each in findings(policy, *ROWS, schema=schema) if each.rule is Rule.NO_ROWS]
    assert found.message == (
        "no row of today is subject to heavy (no row meets its conditions), few (no row meets its conditions), "
        "apart (banned is empty), gone (no variable__host meets its conditions)"
    )
    rows = (
        *ROWS,
        "UPDATE task SET weight = 10",
        "INSERT INTO banned VALUES (1, 'h0')",
        "UPDATE host SET name = 'h9' WHERE name = 'h1'",
    )
    assert Rule.NO_ROWS not in {each.rule for each in findings(policy, *rows, schema=schema)}
    assert Rule.NO_ROWS not in {each.rule for each in findings(policy, schema=schema)}, (
        "no rows, nothing to say"
    )
    (_, task) = [each for each in findings(USED, ROWS[0]) if each.rule is Rule.NO_ROWS]
    assert task.message == "task is empty, so no variable__host is decided"


def test_what_cannot_be_computed_is_an_error_with_its_place() -> None:
    policy = "CREATE CONSTRAINT c AS SELECT * FROM task CHECK CAST('x' AS INTEGER) = 1;"
    with pytest.raises(PolicyError, match=r"p.sql:2:43: c: .*'x'"):
        findings(USED + policy, *ROWS)


def test_what_fails_without_rows_is_not_said_to_demand_nothing() -> None:
    """A group is there without rows, too: ``at least one`` of a host that is misspelt fails."""
    policy = "CREATE CONSTRAINT c AS SELECT * FROM task WHERE variable__host = 'H0' CHECK count(*) >= 1;"
    found = {each.rule: each.message for each in findings(policy, *ROWS, "UPDATE task SET host = 'h0'")}
    assert found[Rule.VIOLATED_TODAY] == "c does not hold as things are, in 1 row"
    assert found[Rule.NO_ROWS] == "no row of today is subject to c (no variable__host meets its conditions)"


def test_values_of_today_that_are_no_candidates() -> None:
    """A host that is gone: its tasks were placed anew without a word."""
    schema = """
        CREATE TABLE disk (host TEXT, slot INTEGER, PRIMARY KEY (host, slot));
        CREATE TABLE task (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, host TEXT, slot INTEGER, level INTEGER,
          size INTEGER, variable__host TEXT, variable__slot INTEGER,
          variable__level INTEGER CHECK (variable__level BETWEEN 1 AND 3),
          variable__size INTEGER DOMAIN (SELECT slot FROM disk),
          FOREIGN KEY (variable__host, variable__slot) REFERENCES disk (host, slot), UNIQUE (kind));
    """
    rows = (
        "INSERT INTO disk VALUES ('h0', 1), ('h1', 2)",
        "INSERT INTO task (id, kind, host, slot, level, size) VALUES (1, 'a', 'h0', 1, 3, 1), (2, 'b', 'h0', 2, 4, 3), "
        "(3, 'c', NULL, 7, NULL, NULL)",
    )
    policy = "CREATE CONSTRAINT c AS SELECT * FROM task CHECK variable__level > 1;"
    found = [each for each in findings(policy, *rows, schema=schema) if each.rule is Rule.NO_CANDIDATE]
    assert [(each.message, each.is_warning) for each in found] == [
        ("in 1 of task the host, slot of today is no candidate of variable__host, variable__slot, so it is decided "
         "anew: 2 (h0, 2)", False),
        ("in 1 of task the level of today is no candidate of variable__level, so it is decided anew: 2 (4)", False),
        ("in 1 of task the size of today is no candidate of variable__size, so it is decided anew: 2 (3)", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("checked", "meant"),
    [
        ("CHECK variable__host <> 'Vienna'", "'vienna'"),
        ("WHERE weight > 2 CHECK variable__host IN ('vienna', 'berlim', 'rome')", "'berlin'"),
        ("JOIN host ON name = variable__host CHECK rack <> 'nroth' OR host.name = 'vienna'", "'north'"),
        ("JOIN host ON name = variable__host WHERE rack <> 'nroth' MINIMIZE count(*)", "'north'"),
        ("JOIN host ON name = variable__host WHERE rack <> 'south' MINIMIZE count(*)", ""),
    ],
)
def test_a_text_that_is_nearly_one_of_the_values(checked: str, meant: str) -> None:
    rows = ("INSERT INTO host VALUES ('vienna', 'north', 4), ('berlin', 'north', 4)", ROWS[1])
    found = findings(f"CREATE CONSTRAINT c AS SELECT id FROM task {checked};", *rows)
    assert [each.hint for each in found if each.rule is Rule.MISSPELT_VALUE] == [
        f"did you mean {each}?" for each in [meant] if each
    ]


def test_what_every_plan_keeps_is_not_said_to_fail_today() -> None:
    policy = "CREATE CONSTRAINT c AS SELECT id FROM task CHECK variable__host IS NOT NULL;"
    found = rules(policy, *ROWS, "UPDATE task SET host = NULL WHERE id = 1")
    assert found >= {Rule.NEVER_BINDS}
    assert Rule.VIOLATED_TODAY not in found


def test_hosts_without_a_rack() -> None:
    by_rack = ROOM.replace("host.name, host.size", "host.rack").replace("<= host.size", "<= 9").format("")
    by_rack = by_rack.replace("SELECT host.name", "SELECT host.rack")
    (found,) = [
        f for f in findings(by_rack, *ROWS, "UPDATE host SET rack = ''") if f.rule is Rule.MISSING_LABEL
    ]
    assert found.message == "2 of host have no rack: h0, h1"
    assert Rule.MISSING_LABEL in rules(by_rack, *ROWS, "UPDATE host SET rack = NULL WHERE name = 'h0'")
    assert Rule.MISSING_LABEL not in rules(by_rack, *ROWS)


@pytest.mark.parametrize("name", pack_names())
def test_the_packs_are_clean(name: str) -> None:
    pack = load_pack(name)
    state = Database()
    state.load_schema(pack.schema)
    assert [str(finding) for finding in lint(Model.build(state, pack)) if finding.is_warning] == []
