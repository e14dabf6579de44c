"""Fractions and quotients beside what the solver decides: what plain SQL says of every plan.

A group that no row has chosen is checked, too: its sum is 0, as is its count.
"""

from __future__ import annotations

from itertools import product
from operator import eq
from random import Random

import duckdb
import pytest

from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError, PolicyError, TypeMismatchError, UnsupportedConstructError
from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.solution import Value
from tests.mgmt.assignments.both_ways import by_engines
from tests.mgmt.support import UNHURRIED, database

SCHEMA = """
CREATE TABLE node (name TEXT PRIMARY KEY, cap INTEGER NOT NULL, share DOUBLE, part DECIMAL(4, 2));
CREATE TABLE task (id INTEGER PRIMARY KEY, size INTEGER NOT NULL, preferred TEXT,
  {variable} TEXT NOT NULL REFERENCES node (name));
"""
NODES = [("n0", 3, 0.5, "0.75"), ("n1", 5, 0.3, "1.20"), ("n2", 4, None, "0.50")]
NAMES = tuple(name for name, *_ in NODES)
SIZES = (1, 2, 4)
JOIN = "FROM task JOIN node ON task.node = node.name"
ROWS: dict[str, list[dict[str, Value]]] = {
    "node": [dict(zip(("name", "cap", "share", "part"), row, strict=True)) for row in NODES],
    "task": [{"id": row, "size": size, "preferred": None} for row, size in enumerate(SIZES)],
}
PLACED = f"{JOIN} GROUP BY node.name, node.cap, node.share, node.part"
CHOSEN = PLACED.replace("task.node", "variable__node")
RULES = {
    PLACED: (
        "sum(size) <= 0.8 * cap",
        "0.8 * cap > sum(size)",
        "sum(size) >= 0.4 * cap",
        "sum(size) < cap * share",
        "sum(size) > cap * part",
        "sum(size) = 2.0 * part",
        "sum(size) <> 4.0",
        "NOT (sum(size) <= 0.8 * cap)",
        "sum(size) <= 1e30 AND sum(size) > '-inf'::DOUBLE AND sum(size) <> 'nan'::DOUBLE",
        "max(size) < 0.7 * cap",
        "sum(size) BETWEEN 1.5 AND 4.5",
        "sum(size) IN (2.5, 3.0, 4)",
        "sum(size) * 100 / cap <= 80",
        "sum(size) / cap < 1",
        "sum(size) / cap >= 1",
        "1 > sum(size) * 2 / cap",
        "(sum(size) - 5) / 2 <= -1",
        "(sum(size) - 5) / 2 > -2",
        "(2 - sum(size)) / cap = 0",
    ),
    "FROM node": (
        "(SELECT sum(size) FROM task WHERE task.node = node.name) <= 0.8 * cap",
        "(SELECT count(*) FROM task WHERE task.node = node.name) * 10 / cap <= 3",
    ),
}
CASES = [(source, rule) for source, rules in RULES.items() for rule in rules]


def plain(source: str, rule: str) -> list[tuple[str, ...]]:
    """The plans that keep a rule."""
    connection = duckdb.connect(config={"integer_division": True})
    connection.execute(SCHEMA.format(variable="node"))
    connection.executemany("INSERT INTO node VALUES (?, ?, ?, ?)", NODES)
    if source == PLACED:
        source = source.replace(JOIN, "FROM node LEFT JOIN task ON task.node = node.name")
        rule = rule.replace("sum(size)", "coalesce(sum(size), 0)").replace("count(*)", "count(task.id)")
    ending = "HAVING" if source.startswith("FROM node LEFT") else "WHERE"
    found = []
    for plan in product(NAMES, repeat=len(SIZES)):
        connection.execute("DELETE FROM task")
        rows = [(row, size, plan[row], plan[row]) for row, size in enumerate(SIZES)]
        connection.executemany("INSERT INTO task VALUES (?, ?, ?, ?)", rows)
        if not connection.execute(f"SELECT 1 {source} {ending} NOT ({rule})").fetchall():
            found.append(plan)
    return found


@pytest.mark.parametrize(("source", "rule"), CASES, ids=[rule for _, rule in CASES])
def test_the_plans_are_those_that_plain_sql_accepts(source: str, rule: str) -> None:
    """Of the plans that keep the rule the nearest to a preference is found, by engines and by the constraint model."""
    accepted = plain(source, rule)
    policy = (
        f"CREATE CONSTRAINT kept AS SELECT 1 AS one {source.replace('task.node', 'variable__node')}"
        f" CHECK {rule.replace('task.node', 'variable__node')};"
        "CREATE CONSTRAINT liked AS SELECT * FROM task MAXIMIZE count(*) FILTER (WHERE variable__node = preferred)"
    )
    preferred = Random(rule).choices(NAMES, k=len(SIZES))
    rows = ROWS | {"task": [row | {"preferred": at} for row, at in zip(ROWS["task"], preferred, strict=True)]}
    best = max((sum(map(eq, plan, preferred)) for plan in accepted), default=None)
    for backend in (None, CpSatBackend()):
        state = database(SCHEMA.format(variable="variable__node"), rows)
        model = Model.build(state, policy, backend=backend)
        try:
            found = model.solve(UNHURRIED).objectives[0].after
        except InfeasibleError:
            found = None
        assert found == best, backend


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("power(sum(size), 2) <= 9", "sum inside something that the solver does not compute"),
        ("avg(size) <= 3", "write avg.* as sum.* <= 5 \\* count"),
        (
            "min(size * 0.5) <= max(size)",
            r"write CAST\(... \* 10 AS BIGINT\), and 10 times as much beside it",
        ),
        ("sum(size) / cap <= 0.8", "put it on a side by itself"),
        ("sum(sqrt(size)) <= cap", "scale or cast it"),
    ],
)
def test_what_is_no_whole_number_is_refused_with_what_to_write(rule: str, words: str) -> None:
    state = database(SCHEMA.format(variable="variable__node"), ROWS)
    policy = f"CREATE CONSTRAINT kept AS SELECT 1 AS one {CHOSEN} CHECK {rule}"
    with pytest.raises(PolicyError, match=words) as caught:
        Model.build(state, policy).solve(UNHURRIED)
    assert isinstance(caught.value, (TypeMismatchError, UnsupportedConstructError))


@pytest.mark.parametrize(
    ("rule", "missed_by"),
    [
        ("sum(size) <= 0.5 * cap", 5),  # 7 where at most 2 whole ones are allowed
        ("sum(size) BETWEEN 1.5 AND 0.5 * cap", 5),
        ("sum(size) >= cap * part * 2", 5),  # of at least 12
        ("sum(size) = 0.5 * cap", 1),  # no number is: 0 or 1
    ],
)
def test_a_soft_rule_is_missed_by_whole_numbers(rule: str, missed_by: int) -> None:
    rows = ROWS | {"node": ROWS["node"][1:2]}
    policy = f"CREATE CONSTRAINT kept AS SELECT 1 AS one {CHOSEN} CHECK {rule} SOFT"
    solution = Model.build(database(SCHEMA.format(variable="variable__node"), rows), policy).solve(UNHURRIED)
    assert solution.objectives[0].after == missed_by


def test_keys_that_others_settle_need_not_be_whole_numbers() -> None:
    policy = f"CREATE CONSTRAINT kept AS SELECT 1 AS one {CHOSEN} CHECK sum(size) <= cap * part"
    state = database(SCHEMA.format(variable="variable__node"), ROWS)
    assert by_engines(Model.build(state, policy).solve(UNHURRIED))
