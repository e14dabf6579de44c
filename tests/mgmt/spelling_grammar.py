"""Random policies, each rule in two spellings that mean the same, over data with NULL in every attribute.

``spellings.txt`` has the rules.  What they mean is asked of DuckDB alone: no compiler, no solver, no oracle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import duckdb

from mgmt.solution import PrimaryKey, Value

SCHEMA = """
CREATE TABLE node (name TEXT PRIMARY KEY, rack TEXT, zone TEXT, cpu_cap INTEGER, memory_cap INTEGER, price INTEGER,
  up BOOLEAN);
CREATE TABLE app (name TEXT PRIMARY KEY, quota INTEGER, home TEXT);
CREATE TABLE spare (node TEXT NOT NULL, resource TEXT NOT NULL, capacity INTEGER, PRIMARY KEY (node, resource));
CREATE TABLE demand (task INTEGER NOT NULL, resource TEXT NOT NULL, amount INTEGER, PRIMARY KEY (task, resource));
CREATE TABLE allowed (app TEXT NOT NULL, rack TEXT NOT NULL, most INTEGER, PRIMARY KEY (app, rack));
CREATE TABLE task (id INTEGER PRIMARY KEY, app TEXT, tenant TEXT, kind INTEGER, cpu INTEGER, memory INTEGER, home TEXT,
  node TEXT, variable__node TEXT REFERENCES node (name));
"""
_NULLABLE = re.compile(r"\b(?!node|variable__node)\w+ (TEXT|INTEGER|BOOLEAN)(?=[,)])")
_PLACED = """CREATE CONSTRAINT placed AS
  SELECT 1 AS one FROM task WHERE variable__node IS NULL MINIMIZE count(*) TIER 1;"""
_OF_TASKS = (
    "{a}.cpu > 1",
    "{a}.app = 'a0'",
    "{a}.app <> 'a1'",
    "{a}.tenant IS NOT NULL",
    "{a}.kind = 1",
    "{a}.memory IS NULL",
    "NOT {a}.kind = 0",
    "({a}.cpu < 3 OR {a}.kind = 0)",
)
_OF_NODES = (
    "node.up",
    "NOT node.up",
    "node.cpu_cap > 3",
    "node.rack = 'r1'",
    "node.rack <> 'r1'",
    "node.zone IS NULL",
    "node.price BETWEEN 1 AND 3",
    "node.name <> 'n0'",
)
_OF_BOTH = (
    "node.cpu_cap < task.cpu * 2",
    "node.rack = task.home",
    "node.rack <> task.home",
    "node.price + task.cpu > 4",
    "task.kind = 1 AND node.zone = 'z1'",
    "node.price * task.cpu >= 4",
    "task.kind = 1 OR node.up",
    "node.up",
    "node.rack = 'r0'",
    "node.rack IN ('r0', 'r2')",
    "node.zone IS NULL AND task.app = 'a0'",
)
_OF_GROUPS = (
    ("any({C})", "bool_or({C})", ""),
    ("bool_or({N})", "bool_or({N})", ""),
    ("all({C})", "bool_and({C})", ""),
    ("bool_and({U})", "bool_and({U})", ""),
    ("count(*)", "count(*)", "> 1"),
    ("count(node.zone)", "count(node.zone)", "= 1"),
    ("count(DISTINCT node.{k})", "count(DISTINCT node.{k})", "< 2"),
    ("count(DISTINCT node.up)", "count(DISTINCT node.up)", "= 1"),
    ("min(node.price)", "min(node.price)", "> 2"),
    ("max(task.{size})", "max(task.{size})", "<= {n}"),
    ("max(node.up)", "max(CAST(node.up AS INTEGER))", "= 1"),
    ("sum(task.{size})", "sum(task.{size})", "<= {n} + 1"),
    ("sum(node.up)", "sum(CAST(node.up AS INTEGER))", ">= 1"),
)
"""Aggregates, in plain SQL, and what they are compared with."""
_COMBINED = (
    "{one}",
    "NOT ({one})",
    "({one} AND {other})",
    "({one} OR NOT {other})",
    "CASE WHEN {one} THEN {other} ELSE {third} END",
    "({one}) IS NOT FALSE",
    "coalesce({one}, {other})",
)


@dataclass(frozen=True, slots=True)
class Rule:
    """Spellings that mean the same; ``meaning``: rows that break it, or of an objective its value."""

    name: str
    is_objective: bool
    meaning: str
    spellings: tuple[str, ...]


@cache
def rules() -> tuple[dict[str, str], tuple[Rule, ...]]:
    """The macros and the rules of ``spellings.txt``."""
    text = Path(__file__).with_name("spellings.txt").read_text()
    (_, *macros), *sections = [
        [line.strip() for line in section.splitlines()]
        for section in text[text.index("macros\n") :].split("\n\n")
    ]
    found = []
    for name, meaning, *spellings in sections:
        kind, _, plain = meaning.partition(" ")
        found.append(Rule(name, kind == "value", plain, tuple(spellings)))
    return dict(macro.split(" ", 1) for macro in macros), tuple(found)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many of each there are, and the numbers that rules speak of."""

    nodes: tuple[int, ...]
    tasks: tuple[int, ...]
    racks: int
    zones: int
    apps: int
    numbers: tuple[int, ...]
    most: int
    room: int


SMALL = Sizes((2, 2, 3, 3, 4), (0, 1, 2, 2, 3, 3, 4), 3, 2, 2, numbers=(0, 1, 1, 2, 3), most=4, room=8)
LARGE = Sizes((300,), (30,), racks=12, zones=4, apps=6, numbers=(1, 2, 3, 5, 8), most=9, room=50)


class SpellingMaker:
    """One state, and one policy in two spellings, from a seed."""

    def __init__(self, seed: int, sizes: Sizes = SMALL, about: str = "") -> None:
        """``about``: words that the names of all rules have."""
        self.random, self._sizes, self._about = Random(seed), sizes, about
        self._may_be_null = self.random.random() < 0.7
        self.optional = self.random.random() < 0.5
        self.schema = SCHEMA if self._may_be_null else _NULLABLE.sub(r"\g<0> NOT NULL", SCHEMA)
        if not self.optional:
            self.schema = self.schema.replace("variable__node TEXT", "variable__node TEXT NOT NULL")
        self.rows = self._rows()
        self.names: list[str] = []
        self.broken: list[str] = []
        """Per check the rows that break it, in plain SQL."""
        self.tiers: dict[int, list[str]] = {}
        """Per tier the values of its objectives, in plain SQL."""
        self._texts: tuple[list[str], list[str]] = ([], [])
        self._make_policies()

    @property
    def policies(self) -> tuple[str, str]:
        one, other = self._texts
        return "\n".join(one), "\n".join(other)

    def _make_policies(self) -> None:
        pick = self.random.choice
        if self.optional and self.random.random() < 0.8:
            for text in self._texts:
                text.append(_PLACED)
            self.tiers[1] = ["(SELECT count(*) FROM task WHERE variable__node IS NULL)"]
        macros, all_rules = rules()
        suited = [rule for rule in all_rules if self._about in rule.name]
        checks = pick((0, 1, 1, 2, 3))
        objectives = pick((0, 1, 1, 2)) if checks else 1
        for number in range(checks + objectives):
            rule = pick([rule for rule in suited if rule.is_objective == (number >= checks)])
            self.names.append(rule.name)
            parts = self._parts(f"c{number}")
            for name, macro in macros.items():
                parts[name] = macro.format(**parts)
            parts |= self._of_groups(parts)
            tail = ""
            if rule.is_objective:
                tier, weight = pick((1, 2, 3)), pick((1, 1, 2))
                tail = f" TIER {tier} WEIGHT {weight}"
                self.tiers.setdefault(tier, []).append(f"{weight} * ({rule.meaning.format(**parts)})")
            else:
                self.broken.append(rule.meaning.format(**parts))
            for text, spelling in zip(self._texts, self.random.sample(rule.spellings, 2), strict=True):
                for statement in spelling.format(**parts).split("; "):
                    is_view = statement.startswith("VIEW ")
                    start = "CREATE " if is_view else f"CREATE CONSTRAINT {parts['P']} AS SELECT 1 AS one "
                    text.append(f"{start}{statement}{'' if is_view else tail};")

    def _parts(self, prefix: str) -> dict[str, str]:
        pick = self.random.choice
        other = pick(_OF_TASKS)
        return {
            "P": prefix,
            "k": pick(("rack", "rack", "zone", "name")),
            "r": pick(("app", "app", "tenant")),
            "size": pick(("cpu", "memory")),
            "cap": pick(("cpu_cap", "memory_cap")),
            "n": str(pick(self._sizes.numbers)),
            "T": pick(_OF_TASKS).format(a="task"),
            "U": other.format(a="task"),
            "Ub": other.format(a="b"),
            "N": pick(_OF_NODES),
            "C": pick(_OF_BOTH),
        }

    def _of_groups(self, parts: Mapping[str, str]) -> dict[str, str]:
        """Groups and a condition on their aggregates, in its three spellings."""
        pick = self.random.choice
        spelled: dict[str, dict[str, str]] = {"G": {}, "G_beside": {}, "G_plain": {}}
        for place in ("one", "other", "third"):
            ours, plain, test = (part.format(**parts) for part in pick(_OF_GROUPS))
            own = pick((None, None, parts["U"], parts["N"]))
            there = f" FILTER (WHERE {parts['ON']}{'' if own is None else f' AND ({own})'})"
            filtered = ours if own is None else f"{plain} FILTER (WHERE {own})"
            beside = f"{plain}{there}"
            known = f"coalesce({beside}, 0)" if plain.startswith("sum") else beside
            for name, text in (("G", filtered), ("G_beside", beside), ("G_plain", known)):
                spelled[name][place] = f"{text} {test}".strip()
        combined = pick(_COMBINED)
        groups = pick((f"task.{parts['r']}", f"node.{parts['k']}", f"task.{parts['r']}, node.{parts['k']}"))
        return {"g": groups} | {name: combined.format(**each) for name, each in spelled.items()}

    def _maybe(self, value: Any) -> Any:
        return None if self._may_be_null and self.random.random() < 0.25 else value

    def _rows(self) -> dict[str, list[dict[str, Any]]]:
        draw, sizes, maybe = self.random.randrange, self._sizes, self._maybe
        nodes, tasks = self.random.choice(sizes.nodes), self.random.choice(sizes.tasks)
        names = [f"n{number}" for number in range(nodes)]
        resources = ("cpu", "memory")
        return {
            "node": [
                {
                    "name": name,
                    "rack": maybe(f"r{draw(sizes.racks)}"),
                    "zone": maybe(f"z{draw(sizes.zones)}"),
                    "cpu_cap": maybe(draw(sizes.room)),
                    "memory_cap": maybe(draw(2, sizes.room)),
                    "price": maybe(draw(1, 6)),
                    "up": maybe(draw(4) > 0),
                }
                for name in names
            ],
            "app": [
                {"name": f"a{n}", "quota": maybe(draw(2, sizes.room)), "home": maybe(f"r{draw(sizes.racks)}")}
                for n in range(sizes.apps)
            ],
            "spare": [
                {"node": name, "resource": resource, "capacity": maybe(draw(2, sizes.room))}
                for name in names
                for resource in resources
                if draw(8)
            ],
            "task": [
                {
                    "id": number,
                    "app": maybe(f"a{draw(sizes.apps)}"),
                    "tenant": maybe(f"t{draw(sizes.apps)}"),
                    "kind": maybe(draw(2)),
                    "cpu": maybe(draw(1, sizes.most)),
                    "memory": maybe(draw(sizes.most)),
                    "home": maybe(f"r{draw(sizes.racks)}"),
                    "node": self.random.choice((None, *names)),
                }
                for number in range(tasks)
            ],
            "demand": [
                {"task": number, "resource": resource, "amount": maybe(draw(1, sizes.most))}
                for number in range(tasks)
                for resource in resources
                if draw(8)
            ],
            "allowed": [
                {"app": f"a{app}", "rack": f"r{rack}", "most": maybe(draw(3))}
                for app in range(sizes.apps)
                for rack in range(sizes.racks)
                if draw(2)
            ],
        }


class PlainSql:
    """What the rules' meanings say of plans."""

    def __init__(self, made: SpellingMaker) -> None:
        self._made = made
        self._connection = duckdb.connect(config={"threads": 1})
        for statement in SCHEMA.replace(" REFERENCES node (name)", "").split(";\n")[:-1]:
            self._connection.execute(statement)
        for table, rows in made.rows.items():
            if rows:
                marks = ", ".join(f"({', '.join('?' * len(row))})" for row in rows)
                values = [value for row in rows for value in row.values()]
                names = ", ".join(rows[0])
                self._connection.execute(f"INSERT INTO {table} ({names}) VALUES {marks}", values)
        broken = " + ".join(f"(SELECT count(*) FROM ({sql}))" for sql in made.broken) or "0"
        tiers = [" + ".join(values) for _, values in sorted(made.tiers.items())]
        self._statement = f"SELECT {', '.join((broken, *tiers))}"

    def judged(self, chosen: Mapping[PrimaryKey, Value]) -> tuple[int, ...] | None:
        """The objectives of a plan by tier; None where it breaks a rule."""
        cases = " ".join(
            f"WHEN {key} THEN {'NULL' if node is None else repr(node)}" for (key,), node in chosen.items()
        )
        if cases:
            self._connection.execute(f"UPDATE task SET variable__node = CASE id {cases} END")
        ((broken, *values),) = self._connection.execute(self._statement).fetchall()
        return None if broken else tuple(int(value or 0) for value in values)

    def best(self) -> tuple[int, ...] | None:
        """The best objectives of all plans that break no rule, None where there is none."""
        return min((values for values in map(self.judged, self._plans()) if values is not None), default=None)

    def _plans(self) -> Iterator[dict[PrimaryKey, Value]]:
        names: list[Value] = [row["name"] for row in self._made.rows["node"]]
        keys = [(row["id"],) for row in self._made.rows["task"]]
        for plan in product([*names, None] if self._made.optional else names, repeat=len(keys)):
            yield dict(zip(keys, plan, strict=True))
