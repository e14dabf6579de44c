"""Random policies over a small fixed schema, from a seed.

Made by a plain generator rather than by composed Hypothesis strategies: building thousands of nested strategies
costs far more than the compiler under test.  A seed is enough to see a failing policy again.

``spelling_grammar`` makes policies in two spellings that mean the same, over more tables and of any size.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, rack TEXT, size INTEGER, up BOOLEAN NOT NULL,
  variable__leader BOOLEAN NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, weight INTEGER, host TEXT,
  variable__host TEXT NOT NULL REFERENCES host (name),
  variable__extra INTEGER NOT NULL DOMAIN (SELECT size FROM host WHERE size IS NOT NULL));
"""
# The same, where a task may stay without a host.
NULLABLE = SCHEMA.replace("variable__host TEXT NOT NULL", "variable__host TEXT")

VIEWS = """
CREATE VIEW placed AS SELECT h.name AS place, h.rack, t.weight AS number, t.variable__extra AS total,
  CASE WHEN h.variable__leader THEN 1 ELSE 0 END AS lead
  FROM task t JOIN host h ON t.variable__host = h.name WHERE t.variable__extra > 0;
CREATE VIEW loads AS SELECT h.name AS place, h.rack AS rack, count(*) AS number, max(t.weight) AS total,
  sum(t.variable__extra) AS lead
  FROM task t JOIN host h ON t.variable__host = h.name GROUP BY h.name, h.rack;
CREATE VIEW busy AS SELECT h.name AS place, h.rack AS rack, count(*) AS number, min(t.weight) AS total,
  count(*) FILTER (WHERE h.variable__leader) AS lead
  FROM task t JOIN host h ON t.variable__host = h.name GROUP BY h.name, h.rack HAVING count(*) > 0;
CREATE VIEW either AS SELECT variable__host AS place, host AS rack, weight AS number, variable__extra AS total,
  id AS lead FROM task WHERE variable__extra >= 0
  UNION ALL SELECT name, rack, size, 1, CASE WHEN variable__leader THEN 1 ELSE 0 END FROM host
  UNION ALL SELECT variable__host, NULL, 7, variable__extra, 2 FROM task;
CREATE VIEW seen AS SELECT DISTINCT t.variable__host AS place, h.rack, h.size AS number, t.variable__extra AS total,
  h.size AS lead FROM task t JOIN host h ON t.variable__host = h.name;
"""


@dataclass(frozen=True)
class Shape:
    """A FROM clause and the columns in its scope."""

    source: str
    integers: tuple[str, ...]
    texts: tuple[str, ...]
    booleans: tuple[str, ...]
    distinct: tuple[str, ...]
    keys: tuple[str, ...]


_VIEW = (
    ("number", "total", "lead"),
    ("place", "rack"),
    ("number > 0", "total IS NULL", "lead = 1"),
    ("place", "rack"),
)
_JOINED = (
    ("id", "weight", "size", "variable__extra", "CASE WHEN variable__leader THEN 1 ELSE 0 END"),
    ("t.host", "variable__host", "name", "rack"),
    ("up", "variable__leader", "NOT variable__leader"),
    ("variable__host", "rack", "name", "variable__leader"),
)
SHAPES = (
    Shape(
        "task",
        ("id", "weight", "variable__extra"),
        ("host", "variable__host"),
        ("weight IS NULL", "variable__host = host"),
        ("variable__host", "host", "variable__extra"),
        ("host", "id", "variable__extra", "variable__host", "variable__extra % 2", "upper(variable__host)"),
    ),
    Shape(
        "task t JOIN host h ON t.variable__host = h.name",
        *_JOINED,
        ("name", "rack", "rack, up", "weight < variable__extra"),
    ),
    Shape("host h CROSS JOIN task t", *_JOINED, ("name", "rack", "t.host", "variable__leader")),
    Shape("task t LEFT JOIN host h ON t.host = h.name", *_JOINED, ("id", "rack")),
    Shape(
        "task a JOIN task b ON a.id < b.id",
        ("a.id", "b.weight", "a.variable__extra", "b.variable__extra"),
        ("a.variable__host", "b.variable__host", "b.host"),
        ("a.variable__host = b.variable__host", "a.weight < b.weight"),
        ("a.variable__host", "b.variable__extra"),
        ("a.id", "b.weight"),
    ),
    Shape(
        "task a JOIN task b ON a.variable__host = b.variable__host",
        ("a.id", "b.weight", "a.variable__extra"),
        ("a.variable__host", "b.host"),
        ("a.weight < b.weight",),
        ("a.variable__host", "b.variable__extra"),
        ("a.id",),
    ),
    Shape(
        "host h LEFT JOIN task t ON t.variable__host = h.name", *_JOINED, ("name", "rack", "t.variable__host")
    ),
    Shape(
        "task t LEFT JOIN host h ON t.variable__host = h.name AND variable__leader", *_JOINED, ("id", "rack")
    ),
    Shape("task t FULL JOIN host h ON t.variable__host = h.name AND t.weight > 0", *_JOINED, ("id", "name")),
    Shape("placed", *_VIEW, ("place", "rack", "lead", "rack, total")),
    Shape("either", *_VIEW, ("rack", "number", "lead")),
    Shape("seen", *_VIEW, ("rack",)),
    Shape(
        "seen RIGHT JOIN host o ON o.name = place",
        _VIEW[0],
        ("place", "seen.rack"),
        _VIEW[2],
        ("place", "seen.rack"),
        ("o.name",),
    ),
    Shape("loads", *_VIEW, ("rack", "number", "rack, number % 2")),
    Shape("busy", *_VIEW, ("rack", "total", "lead > 0")),
    Shape(
        "host q JOIN placed p ON p.place = q.name",
        *_VIEW[:1],
        ("place", "q.rack"),
        *_VIEW[2:3],
        ("place",),
        ("q.name",),
    ),
    Shape(
        "loads CROSS JOIN (SELECT count(*) AS hosts FROM host) AS total_of",
        ("number", "hosts"),
        *_VIEW[1:],
        ("rack",),
    ),
)


def with_views(text: str) -> str:
    """A policy with those of the views above that it names."""
    views = [view.strip() + ";\n" for view in VIEWS.split(";\n") if view.strip()]
    return "".join(view for view in views if re.search(rf"\b{view.split()[2]}\b", text)) + text


class PolicyMaker:
    """Random policy texts."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def data(self) -> dict[str, list[dict[str, Any]]]:
        pick = self.random.choice
        hosts = [
            {
                "name": f"h{i}",
                "rack": pick(["r1", "r2", None]),
                "size": pick([-1, 0, 1, 3]),
                "up": pick([0, 1]),
            }
            for i in range(pick([1, 2, 2]))
        ]
        tasks = [
            {"id": i, "weight": pick([None, 0, 1, 2, 5]), "host": pick([None, "h0", "h1"])}
            for i in range(pick([0, 1, 2, 2]))
        ]
        return {"host": hosts, "task": tasks}

    def policies(self) -> str:
        statements = [self.statement(number) for number in range(self.random.randint(1, 3))]
        return with_views("\n".join(statements))

    def statement(self, number: int) -> str:
        pick = self.random.choice
        shape = pick(SHAPES)
        where = f" WHERE {self.boolean(shape, 1)}" if pick([True, False]) else ""
        grouping = pick(["rows", "rows", "all", *shape.keys, *shape.keys])
        aggregated = grouping != "rows" or pick([False, False, True])
        group = "" if grouping in {"rows", "all"} else f" GROUP BY {grouping}"
        having = " HAVING count(*) > 1" if group and pick([True, False, False]) else ""
        strict = " STRICT GROUPS" if group and pick([True, False, False, False]) else ""
        tail = self.tail(shape, aggregated)
        return (
            f"CREATE CONSTRAINT c{number} AS SELECT 1 AS one FROM {shape.source}{where}{group}{having}{strict} "
            f"{tail};"
        )

    def tail(self, shape: Shape, aggregated: bool) -> str:
        condition = self.grouped_boolean(shape) if aggregated else self.boolean(shape, 2)
        kind = self.random.choice(["check", "check", "soft", "objective"])
        if kind == "check":
            return f"CHECK {condition}"
        tier = self.random.randint(1, 3)
        if kind == "soft":
            return f"CHECK {condition} SOFT TIER {tier}"
        value = self.grouped_integer(shape) if aggregated else self.integer(shape, 2)
        sense = self.random.choice(["MINIMIZE", "MAXIMIZE"])
        return f"{sense} {value} TIER {tier} WEIGHT {self.random.randint(1, 2)}"

    def integer(self, shape: Shape, depth: int) -> str:
        pick = self.random.choice
        if depth == 0 or pick([True, False, False]):
            return pick([*shape.integers, *shape.integers, "-2", "0", "1", "3"])
        a, b = self.integer(shape, depth - 1), self.integer(shape, depth - 1)
        forms: list[Callable[[], str]] = [
            lambda: f"({a} {pick('+-*')} {b})",
            lambda: f"({a} {pick('/%')} {pick(['2', '-3', '0'])})",
            lambda: f"({a} {pick('/%')} {b})",
            lambda: f"{pick(['greatest', 'least'])}({a}, {b})",
            lambda: f"abs({a})",
            lambda: f"coalesce({a}, {b})",
            lambda: f"nullif({a}, {b})",
            lambda: f"CASE WHEN {self.boolean(shape, depth - 1)} THEN {a} ELSE {b} END",
            lambda: f"CASE {a} WHEN 1 THEN {b} END",
            lambda: self.value_query(a, b),
        ]
        return pick(forms)()

    def boolean(self, shape: Shape, depth: int) -> str:
        pick = self.random.choice
        text = pick(shape.texts)
        comparison = pick(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"])
        leaves = [
            lambda: f"{self.integer(shape, depth)} {comparison} {self.integer(shape, depth)}",
            lambda: (
                f"{text} {pick(['=', '<>', 'IS NOT DISTINCT FROM'])} "
                f"{pick([*shape.texts, repr('h0'), repr('no')])}"
            ),
            lambda: f"{text} IN ('h1', 'r2')",
            lambda: f"{text} IN (SELECT name FROM host WHERE up)",
            lambda: f"{text} NOT IN ('h0', NULL)",
            lambda: f"{text} {pick(['<', '<=', '>', '>='])} {pick([*shape.texts, repr('h0')])}",
            lambda: f"substring({text}, 2) = CAST({pick(shape.integers)} AS TEXT)",
            lambda: f"({text} || {pick(shape.texts)}) LIKE '%0h%'",
            lambda: f"{text} IS {pick(['', 'NOT '])}NULL",
            lambda: pick(shape.booleans),
            lambda: f"({pick(shape.booleans)}) IS {pick(['', 'NOT '])}TRUE",
            lambda: f"{self.integer(shape, depth)} BETWEEN 0 AND 2",
            lambda: f"CASE WHEN {pick(shape.booleans)} THEN {text} END = {pick(shape.texts)}",
            lambda: f"coalesce({text}, nullif({pick(shape.texts)}, 'h0'), 'h1') <> 'h1'",
            lambda: f"({text}, {pick(shape.integers)}) IN (('h0', 1), ('h1', 0))",
            lambda: self.truth_query(shape, text),
        ]
        if depth == 0 or pick([True, False]):
            return pick(leaves)()
        a, b = self.boolean(shape, depth - 1), self.boolean(shape, depth - 1)
        return pick([f"({a} AND {b})", f"({a} OR {b})", f"NOT ({a})", f"(({a}) = ({b}))"])

    def value_query(self, one: str, other: str) -> str:
        """A subquery that is a number.  It may capture names of the query around it, as SQL has it."""
        return self.random.choice(
            [
                "(SELECT count(*) FROM task s WHERE s.variable__extra > 0)",
                "(SELECT sum(s.weight) FROM task s JOIN host u ON s.variable__host = u.name)",
                f"(SELECT max(s.variable__extra) FROM task s WHERE s.weight < {one})",
                f"(SELECT u.size FROM host u WHERE u.name = 'h0' AND {other} > 0)",
                f"(SELECT count(*) FROM host u WHERE u.variable__leader OR u.size = {other})",
            ]
        )

    def truth_query(self, shape: Shape, text: str) -> str:
        pick = self.random.choice
        number = pick(shape.integers)
        test = pick(["EXISTS", "NOT EXISTS"])
        quantified = pick(["= ANY", "<> ALL", "<= ALL", "> ANY"])
        return pick(
            [
                f"{test} (SELECT 1 FROM host u WHERE u.name = {text} AND u.variable__leader)",
                f"{test} (SELECT 1 FROM task s WHERE s.variable__host = {text} AND s.weight > {number})",
                f"{text} IN (SELECT s.variable__host FROM task s WHERE s.variable__extra > 0)",
                f"{text} NOT IN (SELECT s.variable__host FROM task s WHERE s.weight > {number})",
                f"{text} NOT IN (SELECT u.rack FROM host u WHERE u.name <> {text})",
                f"({text}, {number}) IN (SELECT s.variable__host, s.weight FROM task s)",
                f"{number} {quantified} (SELECT s.variable__extra FROM task s)",
                f"{number} {quantified} (SELECT u.size FROM host u WHERE u.up OR {number} > 1)",
                f"{text} IN (SELECT s.variable__host FROM task s GROUP BY s.variable__host HAVING count(*) > 1)",
                f"{text} IN (SELECT s.variable__host FROM task s WHERE s.weight <> {number} GROUP BY s.variable__host)",
                f"{test} (SELECT s.variable__extra % 2 FROM task s WHERE s.variable__host = {text} GROUP BY 1 "
                f"HAVING sum(s.weight) > {number})",
                f"{number} {quantified} (SELECT count(*) FROM task s WHERE s.id > {number} GROUP BY s.variable__host)",
                f"{test} (SELECT 1 FROM task s WHERE s.variable__host = {text} HAVING count(*) > 1)",
                f"({text}, {number}) NOT IN (SELECT s.host, s.variable__extra FROM task s)",
            ]
        )

    def aggregate(self, shape: Shape) -> str:
        pick = self.random.choice
        operand = self.integer(shape, 1)
        plain = pick(
            ["count(*)", f"sum({operand})", f"min({operand})", f"max({operand})", f"count({operand})"]
        )
        return pick(
            [
                plain,
                f"{plain} FILTER (WHERE {self.boolean(shape, 0)})",
                f"count(DISTINCT {pick(shape.distinct)})",
                f"count(DISTINCT {operand})",
            ]
        )

    def constant(self, shape: Shape) -> str:
        """An integer that the solver does not decide, as far as its name tells."""
        decided = ("variable__", "total", "number", "lead", "CASE")
        return self.random.choice(
            [name for name in shape.integers if not any(d in name for d in decided)] or ["1"]
        )

    def grouped_boolean(self, shape: Shape) -> str:
        pick = self.random.choice
        simple = pick(
            [
                f"{self.aggregate(shape)} {pick(['=', '<=', '>', '<>'])} "
                f"{pick([self.aggregate(shape), '0', '1', '2'])}",
                f"all_different({pick(shape.distinct)})",
                f"all_equal({pick([*shape.distinct, *shape.integers])})",
                f"any({self.boolean(shape, 1)})",
                f"all({self.boolean(shape, 0)}) FILTER (WHERE {pick(shape.booleans)})",
                f"increasing({self.integer(shape, 1)} ORDER BY {self.constant(shape)} DESC)",
                f"{self.aggregate(shape)} IS NOT NULL",
            ]
        )
        return pick([simple, simple, f"({simple} OR NOT {self.aggregate(shape)} < 2)"])

    def grouped_integer(self, shape: Shape) -> str:
        one, other = self.aggregate(shape), self.aggregate(shape)
        return self.random.choice([one, f"greatest({one}, {other}, 0)", f"{one} - 2 * {other}"])
