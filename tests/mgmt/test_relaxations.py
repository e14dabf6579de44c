"""Infeasible states: cores down to minimal rows, and what would help, each applied and solved."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mgmt.compiler.infeasibility import relaxations
from mgmt.compiler.infeasibility.relaxations import _Finder, relaxed
from mgmt.compiler.infeasibility.waivers import condition_without
from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError, Relaxation
from mgmt.language.bound_queries.queries import BoundQuery
from mgmt.optimization.infeasibility.elastic import Placement
from mgmt.solution import Value
from tests.budget import budgeted
from tests.mgmt.support import UNHURRIED, database
from tests.mgmt.test_solving import POLICY, state_of


def infeasible(model: Model, budget: float = UNHURRIED) -> InfeasibleError:
    with pytest.raises(InfeasibleError) as caught:
        model.solve(budget)
    return caught.value


def texts(error: InfeasibleError) -> list[str]:
    return [str(relaxation) for relaxation in error.relaxations]


def assert_each_helps(model: Model, error: InfeasibleError) -> None:
    assert error.relaxations
    for relaxation in error.relaxations:
        helped = relaxed(model, relaxation)
        assert isinstance(helped, Model)
        helped.solve(60)


def test_too_few_racks() -> None:
    model = Model.build(state_of(3), POLICY)
    error = infeasible(model)
    (member,) = error.core
    assert (member.constraint, member.count) == ("apart", 2)
    assert member.clash == "together they need at least 3 and allow 2"
    assert texts(error) == ["add a host like h0 in a new rack", "drop apart for rack r0"]
    assert_each_helps(model, error)


@pytest.mark.parametrize("select", ["name, variable__host", "name"])
def test_groups_by_a_variable_are_told_as_the_policy_has_it(select: str) -> None:
    """Not by the values that are joined for it, as ``"domain_1"."value"``, nor by the prefix of the column."""
    state = database(
        "CREATE TABLE host (name TEXT PRIMARY KEY); CREATE TABLE copy (id INTEGER PRIMARY KEY, name TEXT NOT NULL,"
        " variable__host TEXT NOT NULL REFERENCES host (name));"
    )
    state.execute("INSERT INTO host VALUES ('h0')")
    state.execute("INSERT INTO copy (id, name) VALUES (1, 'a'), (2, 'a')")
    apart = f"SELECT {select} FROM copy GROUP BY name, variable__host CHECK count(*) <= 1"
    model = Model.build(state, f"CREATE CONSTRAINT apart AS {apart};")
    error = infeasible(model)
    (dropped,) = [each for each in error.relaxations if each.waivers]
    assert (str(dropped), *map(str, dropped.waivers)) == (
        "drop apart for name a, host h0",
        """apart: CHECK (...) OR ("copy"."name" = 'a' AND "copy"."variable__host" = 'h0')""",
    )
    assert_each_helps(model, error)


def test_too_little_room() -> None:
    """Two tasks of 1 and 2 on hosts of 1."""
    model = Model.build(state_of(2, size=1), POLICY)
    error = infeasible(model)
    assert error.constraints == ("room",)
    assert len(error.core[0].rows) == 4, "on none of the hosts is room for task 1"
    raised, dropped = texts(error)
    assert raised.startswith("raise h")
    assert raised.endswith(".size by 1")
    assert dropped.startswith("drop room for name h")
    assert_each_helps(model, error)
    assert model.satisfiable() is False, "only copies were changed"


def test_what_is_added_is_no_more_than_needed() -> None:
    model = Model.build(state_of(5), POLICY)
    error = infeasible(model)
    assert "add 3 rows of host like h0, each in a new rack" in texts(error)
    assert_each_helps(model, error)


def test_one_row_of_each_kind_is_tried_before_many_of_any_and_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Time may be short, and one row of the right kind is what helps most often."""
    tried: list[str] = []

    class Told(_Finder):
        def _tried_out(self, relaxation: Relaxation, placement: Placement | None) -> bool:
            tried.append(relaxation.text)
            return super()._tried_out(relaxation, placement)

    monkeypatch.setattr(relaxations, "_Finder", Told)
    model = Model.build(state_of(3), POLICY)
    assert_each_helps(model, infeasible(model))
    assert len(tried) == len(set(tried))
    added = [text for text in tried if text.startswith("add")]
    numbers = [int(text.split()[1]) if "rows of" in text else 1 for text in added]
    assert numbers == sorted(numbers)
    assert {1, 8, 80} == set(numbers)


ROOMS = """
CREATE TABLE rack (name TEXT PRIMARY KEY, power INTEGER NOT NULL);
CREATE TABLE host (name TEXT PRIMARY KEY, rack TEXT NOT NULL REFERENCES rack (name));
CREATE TABLE used (rack TEXT PRIMARY KEY REFERENCES rack (name), power INTEGER NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, power INTEGER NOT NULL, host TEXT,
  variable__host TEXT NOT NULL REFERENCES host (name));
"""
SPARE = """
CREATE VIEW spare AS SELECT rack.name AS rack, rack.power - used.power AS left_over
FROM rack JOIN used ON used.rack = rack.name;
CREATE CONSTRAINT power AS
SELECT spare.rack FROM task JOIN host ON task.variable__host = host.name JOIN spare ON spare.rack = host.rack
GROUP BY spare.rack, spare.left_over CHECK spare.left_over >= sum(task.power);
"""


def test_numbers_are_found_behind_views() -> None:
    rows = {
        "rack": [{"name": "r0", "power": 10}],
        "host": [{"name": "h0", "rack": "r0"}],
        "used": [{"rack": "r0", "power": 4}],
        "task": [{"id": i, "power": 5, "host": None} for i in range(2)],
    }
    model = Model.build(database(ROOMS, rows), SPARE)  # type: ignore[arg-type]
    error = infeasible(model)
    assert error.core[0].rows == ({"rack": "r0", "left_over": 6},), "the group's keys, selected or not"
    assert error.core[0].clash == "together they need at least 10 and allow 6"
    assert texts(error)[0] == "raise r0.power by 4"
    assert error.relaxations[0].statements == (
        """UPDATE "rack" SET "power" = "power" + 4 WHERE "name" = 'r0'""",
    )
    assert_each_helps(model, error)


def test_rows_that_break_a_rule_by_themselves() -> None:
    policy = POLICY + "CREATE CONSTRAINT light AS SELECT id FROM task CHECK weight < 2;"
    model = Model.build(state_of(2), policy)
    error = infeasible(model)
    assert error.core[0].rows == ({"id": 1},)
    assert "drop light for id 1" in texts(error)
    assert_each_helps(model, error)


def test_keys_of_tables_clash_too() -> None:
    schema = """
    CREATE TABLE port (number INTEGER PRIMARY KEY);
    CREATE TABLE service (name TEXT PRIMARY KEY, variable__port INTEGER NOT NULL REFERENCES port (number),
      UNIQUE (variable__port));
    """
    rows = {"port": [{"number": 1}], "service": [{"name": "a"}, {"name": "b"}]}
    policy = "CREATE CONSTRAINT any_port AS SELECT * FROM service CHECK variable__port > 0;"
    model = Model.build(database(schema, rows), policy)  # type: ignore[arg-type]
    error = infeasible(model)
    assert error.constraints == ("UNIQUE (variable__port) of service",)
    assert texts(error) == ["add a port like 1"]
    assert_each_helps(model, error)


@pytest.mark.slow("hypothesis, a solve for each row and relaxation")
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    tasks=st.integers(1, 5),
    hosts=st.integers(1, 3),
    racks=st.integers(1, 3),
    size=st.integers(0, 6),
    most=st.integers(0, 2),
)
def test_every_row_of_a_core_is_needed_and_every_relaxation_helps(
    tasks: int, hosts: int, racks: int, size: int, most: int
) -> None:
    policy = POLICY.replace("CHECK count(*) <= 1", f"CHECK count(*) <= {most}")
    model = Model.build(state_of(tasks, hosts, racks, size), policy)
    if model.satisfiable(20):
        return
    error = infeasible(model)
    assert error.minimal
    for name in error.constraints:
        kept = set(error.constraints) - {name}
        rest = model.revised(lambda query, kept=kept: query if query.name in kept else None)  # type: ignore[misc]
        assert rest.satisfiable(20) is True
    alone = model.revised(lambda query: query if query.name in error.constraints else None)
    assert alone.satisfiable(20) is False
    assert_each_helps(model, error)


CROWDED = """
CREATE TABLE rack (name TEXT PRIMARY KEY, power INTEGER NOT NULL);
CREATE TABLE host (name TEXT PRIMARY KEY, rack TEXT NOT NULL REFERENCES rack (name), size INTEGER NOT NULL,
  up BOOLEAN NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, weight INTEGER NOT NULL, app INTEGER NOT NULL, host TEXT,
  variable__host TEXT NOT NULL REFERENCES host (name));
"""
PLACED = "FROM task JOIN host ON task.variable__host = host.name"
RULES = {
    "room": f"SELECT host.name, host.size {PLACED} GROUP BY host.name, host.size CHECK sum(weight) <= host.size",
    "apart": f"SELECT host.rack {PLACED} GROUP BY host.rack CHECK count(*) <= {{number}}",
    "apps": f"SELECT app, host.name {PLACED} GROUP BY app, host.name CHECK count(*) <= 1",
    "alive": f"SELECT task.id {PLACED} CHECK host.up",
    "light": "SELECT id FROM task CHECK weight < {number} + 1",
    "least": f"SELECT host.name {PLACED} GROUP BY host.name CHECK count(*) >= {{number}}",
    "power": f"SELECT rack.name, rack.power {PLACED} JOIN rack ON rack.name = host.rack"
    " GROUP BY rack.name, rack.power CHECK sum(weight) <= rack.power",
    "pin": "SELECT id FROM task WHERE id < {number} CHECK variable__host = 'h0'",
    "keep": "SELECT id FROM task WHERE host IS NOT NULL CHECK variable__host = host",
    "pairs": "SELECT a.id AS a, b.id AS b FROM task a, task b WHERE a.id < b.id AND a.app = b.app"
    " CHECK a.variable__host <> b.variable__host",
    "total": "SELECT 1 AS n FROM task WHERE variable__host = 'h0' CHECK count(*) <= {number}",
}


def random_state(seed: int) -> tuple[dict[str, list[dict[str, Value]]], str]:
    """A few tasks and hosts, mostly too few, and some of the rules."""
    random = Random(seed)
    racks, hosts, tasks = random.randint(1, 3), random.randint(1, 4), random.randint(1, 6)
    standing = [None, *(f"h{number}" for number in range(hosts))]
    rows: dict[str, list[dict[str, Value]]] = {
        "rack": [{"name": f"r{number}", "power": random.randint(0, 9)} for number in range(racks)],
        "host": [
            {
                "name": f"h{number}",
                "rack": f"r{number % racks}",
                "size": random.randint(0, 6),
                "up": random.random() < 0.7,
            }
            for number in range(hosts)
        ],
        "task": [
            {
                "id": number,
                "weight": random.randint(1, 4),
                "app": random.randint(0, 2),
                "host": random.choice(standing),
            }
            for number in range(tasks)
        ],
    }
    chosen = random.sample(sorted(RULES), random.randint(2, 6))
    policies = (
        f"CREATE CONSTRAINT {name} AS {RULES[name].format(number=random.randint(0, 3))};" for name in chosen
    )
    return rows, "\n".join(policies)


WAIVED_SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY);
CREATE TABLE task (id INTEGER PRIMARY KEY, team TEXT, zone INTEGER,
  variable__host TEXT NOT NULL REFERENCES host (name));
"""


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32), st.integers(1, 60), st.sampled_from(["id", "team, zone", "id, team", "zone"]))
def test_the_condition_of_a_waiver_lets_go_the_rows_it_names_and_no_others(
    seed: int, number: int, outputs: str
) -> None:
    random = Random(seed)
    rows = [
        {
            "id": number_of,
            "team": random.choice(["a", "it's", None]),
            "zone": random.choice([1, 2, 3, 4, None]),
        }
        for number_of in range(number)
    ]
    state = database(WAIVED_SCHEMA, {"host": [{"name": "h"}], "task": rows})
    rule = f"CREATE CONSTRAINT rule AS SELECT {outputs} FROM task CHECK variable__host = 'h'"
    query = next(query for query in Model.build(state, rule).queries if query.name == "rule")
    assert isinstance(query, BoundQuery)
    names = outputs.split(", ")
    told = [{name: row[name] for name in names} for row in rows]
    waived = random.sample(told, random.randint(1, number))
    clause, condition = condition_without(query, waived)
    assert clause == "WHERE"
    kept = {key for (key,) in state.execute(f"SELECT id FROM task WHERE {condition}")}
    assert kept == {row["id"] for row, known in zip(rows, told, strict=True) if known not in waived}


def test_what_helps_against_one_clash_is_joined_with_what_helps_against_the_next() -> None:
    """The room and the weights clash by themselves; neither is enough, and nothing was offered."""
    policy = POLICY + "CREATE CONSTRAINT light AS SELECT id FROM task CHECK weight < 2;"
    model = Model.build(state_of(2, hosts=2, size=1), policy)
    error = infeasible(model)
    assert error.constraints == ("room",)
    assert_each_helps(model, error)
    assert re.fullmatch(r"raise h[01]\.size by 1 and drop light for id 1 \(less may do\)", texts(error)[0])


def test_a_row_that_two_rules_keep_away_counts_for_both() -> None:
    """Where it stays after all, one of them lets it go; it was as good to let it go by both, elsewhere."""
    policy = """CREATE CONSTRAINT keep AS SELECT id FROM task CHECK variable__host = host;
    CREATE CONSTRAINT pin AS SELECT id FROM task CHECK variable__host = 'h0';
    CREATE CONSTRAINT none AS SELECT host.rack FROM task JOIN host ON task.variable__host = host.name
    GROUP BY host.rack CHECK count(*) <= 1;"""
    state = state_of(2, hosts=3, racks=1)
    state.execute("UPDATE task SET host = 'h1'")
    model = Model.build(state, policy)
    error = infeasible(model)
    assert_each_helps(model, error)
    for relaxation in error.relaxations:
        assert sum(len(waiver.rows) for waiver in relaxation.waivers) == 3, str(relaxation)


@pytest.mark.parametrize("chunk", budgeted(range(6), 2))
def test_every_small_infeasible_state_is_told_what_helps(chunk: int) -> None:
    """Of the states of these seeds more than a fifth were told nothing."""
    told = 0
    for number in range(10 * (chunk % 2), 10 * (chunk % 2) + 10):
        rows, policy = random_state(1000 * (chunk // 2) + number)
        model = Model.build(database(CROWDED, rows), policy)
        if model.satisfiable(20) is not False:
            continue
        assert_each_helps(model, infeasible(model))
        told += 1
    assert told >= 5, "the generator makes too few states that are infeasible"


@pytest.mark.slow("1500 rows, each let go")
def test_thousands_of_rows_can_be_let_go() -> None:
    """Each was a condition inside the next one, and the compiler ran out of stack."""
    schema = (
        "CREATE TABLE task (id INTEGER PRIMARY KEY, team TEXT, zone INTEGER, variable__on BOOLEAN NOT NULL);"
    )
    state = database(schema, {"task": [{"id": n, "team": f"t{n % 7}", "zone": n} for n in range(1500)]})
    rules = """CREATE CONSTRAINT on AS SELECT id FROM task CHECK variable__on;
    CREATE CONSTRAINT off AS SELECT team, zone FROM task GROUP BY team, zone
    CHECK count(*) FILTER (WHERE variable__on) = 0;"""
    model = Model.build(state, rules)
    error = infeasible(model)
    assert_each_helps(model, error)
    (waiver,) = (waiver for relaxation in error.relaxations[:1] for waiver in relaxation.waivers)
    assert len(waiver.rows) == 1500
