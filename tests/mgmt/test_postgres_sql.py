"""What a query means: random SQL has the same rows on SQLite and, translated, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from mgmt.errors import PolicyError
from mgmt.state.database import Database
from mgmt.state.store import Snapshot
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres

SCHEMA = """
CREATE TABLE Item (id INTEGER PRIMARY KEY, Small INTEGER, big BIGINT, name TEXT, up BOOLEAN, ratio DOUBLE PRECISION);
CREATE TABLE pair (a INTEGER, b INTEGER, label TEXT, PRIMARY KEY (a, b));
"""
NAMES = ["", "a", "B", "b", "ab", "Ab", "_", "zz", "é", "Z", "a b", "%", "10", "9", None]


def rows(random: Random) -> dict[str, list[dict[str, Any]]]:
    pick = random.choice
    return {
        "Item": [
            {
                "id": number,
                "Small": pick([-7, -3, -1, 0, 1, 2, 5, None]),
                "big": pick([-(2**62), -5_000_000_000, 3_000_000_000, 2**40, None]),
                "name": pick(NAMES),
                "up": pick([True, False, None]),
                "ratio": pick([-2.5, -0.5, 0.0, 0.25, 2.5, 7.75, None]),
            }
            for number in range(12)
        ],
        "pair": [{"a": a, "b": b, "label": pick(NAMES)} for a in range(3) for b in range(2)],
    }


class Maker:
    """Random expressions and queries in the dialect that the compiler hands to a store."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def integer(self, depth: int) -> str:
        pick = self.random.choice
        if depth == 0:
            return pick(["id", "Small", "i.small", "-3", "0", "2", "100000", "NULL", "up", "TRUE"])
        a, b, c = (self.integer(depth - 1) for _ in range(3))
        return pick(
            [
                lambda: f"({a} {pick('+-*')} {b})",
                lambda: f"({a} {pick('/%')} {b})",
                lambda: f"({a} {pick(['<<', '>>', '&', '|'])} {pick(['1', '3', '64', '-2', 'small'])})",
                lambda: f"{pick(['max', 'min'])}({a}, {b}{pick(['', ', ' + c])})",
                lambda: f"abs({a})",
                lambda: f"-({a})",
                lambda: f"coalesce({a}, {b}, {c})",
                lambda: f"nullif({a}, {b})",
                lambda: f"iif({self.condition(depth - 1)}, {a}, {b})",
                lambda: (
                    f"CASE WHEN {self.condition(depth - 1)} THEN {a} WHEN {self.condition(0)} THEN {b} END"
                ),
                lambda: f"CASE {a} WHEN {b} THEN 1 WHEN up THEN 2 ELSE {c} END",
                lambda: f"length({self.text(depth - 1)})",
                lambda: f"CAST({self.real(depth - 1)} AS INTEGER)",
                lambda: f"instr({self.text(0)}, {self.text(0)})",
                lambda: f"(SELECT count(*) FROM pair p WHERE p.a < i.small AND {self.condition(0)})",
                lambda: f"(SELECT sum(p.b) FROM pair AS p WHERE p.a = {a})",
                lambda: f"({self.condition(depth - 1)})",
            ]
        )()

    def real(self, depth: int) -> str:
        pick = self.random.choice
        if depth == 0:
            return pick(["ratio", "0.5", "-1.25", "ratio * 2"])
        a, b = self.real(depth - 1), self.integer(depth - 1)
        return pick([f"({a} + {b})", f"({a} * 0.5)", f"({b} / 2.0)", f"CAST({b} AS REAL)", f"round({a})"])

    def text(self, depth: int) -> str:
        pick = self.random.choice
        if depth == 0:
            return pick(["name", "i.name", "'a'", "'É B'", "'it''s ?1 :x'", "NULL"])
        a, b = self.text(depth - 1), self.text(depth - 1)
        return pick(
            [
                f"({a} || {b})",
                f"coalesce({a}, 'none')",
                f"lower({a})",
                f"upper({a})",
                f"substr({a}, 1, id)",
                f"CAST({self.integer(depth - 1)} AS TEXT)",
                f"trim({a})",
                f"rtrim({a}, 'b')",
                f"replace({a}, 'a', 'bc')",
                f"CASE WHEN {self.condition(0)} THEN {a} ELSE {b} END",
            ]
        )

    def condition(self, depth: int) -> str:
        pick = self.random.choice
        compare = pick(["=", "<>", "<", "<=", ">", ">=", "IS", "IS NOT", "IS DISTINCT FROM"])
        a, b = self.integer(max(0, depth - 1)), self.integer(max(0, depth - 1))
        x, y = self.text(max(0, depth - 1)), self.text(max(0, depth - 1))
        simple = pick(
            [
                f"{a} {compare} {b}",
                f"{x} {compare} {y}",
                f"{self.real(0)} {pick(['<', '>='])} {a}",
                "up",
                "up = 1",
                "up = TRUE",
                f"up {compare} {a}",
                f"up IN ({a}, {b})",
                f"{a} IN (0, 1, NULL)",
                f"{a} NOT IN ({b}, 2)",
                f"{x} IN ('a', 'b')",
                f"{a} BETWEEN -1 AND {b}",
                f"{x} BETWEEN 'a' AND 'zz'",
                f"{a} IS NULL",
                f"{x} IS NOT NULL",
                f"({a} > 0) IS {pick(['TRUE', 'NOT TRUE', 'FALSE', 'NOT FALSE'])}",
                f"{a} IS TRUE",
                f"{x} LIKE {pick(['a', '%b', '_', 'zz%'])!r}",
                f"EXISTS (SELECT * FROM pair p WHERE p.b = {a})",
                f"{a} IN (SELECT p.a FROM pair p WHERE p.label = name)",
                "up IN (SELECT p.b FROM pair p)",
                f"{a} IN (SELECT j.up FROM item j)",
                "(id, small) IN (SELECT q.a, q.b FROM pair q)",
                a if a != "NULL" else "up",
            ]
        )
        if depth == 0:
            return simple
        one, other = self.condition(depth - 1), self.condition(depth - 1)
        return pick(
            [simple, f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})", f"({one}) = ({other})"]
        )

    def aggregate(self) -> str:
        pick = self.random.choice
        a, condition = self.integer(1), self.condition(0)
        return pick(
            [
                "count(*)",
                f"count({a})",
                f"sum({a})",
                f"min({a})",
                f"max({condition})",
                f"sum({condition})",
                f"avg({a})",
                f"count(DISTINCT {pick(['small', 'name', 'up'])})",
                f"sum({a}) FILTER (WHERE {condition})",
                f"count(*) FILTER (WHERE {condition})",
                "sum(ratio)",
                "max(name)",
                f"coalesce(sum({a}), 0) / 2",
                f"sum({a}) > {self.random.randint(-3, 9)}",
            ]
        )

    def query(self) -> str:
        pick = self.random.choice
        condition = self.condition(2)
        return pick(
            [
                lambda: f"SELECT id, {self.integer(3)} AS v FROM item i WHERE {condition} ORDER BY id",
                lambda: f"SELECT id, {condition} FROM item AS i ORDER BY 1",
                lambda: f"SELECT id, {self.text(2)}, {self.real(1)} FROM Item i ORDER BY i.ID DESC",
                lambda: f"SELECT name FROM item i WHERE {condition} ORDER BY name, id LIMIT 5 OFFSET 1",
                lambda: (
                    f"SELECT DISTINCT {pick(['name', 'small', 'up'])} AS d FROM item i WHERE {condition} ORDER BY d"
                ),
                lambda: f"SELECT {self.aggregate()}, {self.aggregate()} FROM item i WHERE {condition}",
                lambda: (
                    f"SELECT {pick(['up', 'name', 'small % 3'])} AS k, {self.aggregate()} AS v FROM item i "
                    f"WHERE {condition} GROUP BY 1 HAVING {self.aggregate()} IS NOT NULL ORDER BY k"
                ),
                lambda: (
                    f"SELECT count(*), sum(v) FROM (SELECT {condition} AS v FROM item i) WHERE "
                    f"{pick(['NOT v', 'v', 'v IS NULL', 'v = 1'])}"
                ),
                lambda: (
                    f"SELECT i.id, p.b, p._rowid_ FROM item i LEFT JOIN pair p ON p.a = i.small AND {condition} "
                    "ORDER BY 1, 2"
                ),
                lambda: (
                    f"SELECT v FROM (SELECT {self.integer(1)} AS v FROM item i UNION "
                    f"SELECT {condition} FROM item i) ORDER BY v"
                ),
                lambda: (
                    f"WITH w AS (SELECT small, up FROM item i WHERE {condition}) "
                    "SELECT small, count(*) FROM w GROUP BY small ORDER BY small"
                ),
                lambda: (
                    "SELECT id, row_number() OVER (PARTITION BY up ORDER BY name DESC, id), "
                    f"sum({self.integer(1)}) OVER (ORDER BY id) FROM item i ORDER BY id"
                ),
            ]
        )()


@pytest.fixture(scope="module")
def snapshots(postgres_server: PostgresServer) -> Iterator[tuple[Snapshot, Snapshot]]:
    contents = rows(Random(7))
    addresses = (":memory:", postgres_server.url(postgres_server.new_namespace()))
    databases = [Database(address) for address in addresses]
    for database in databases:
        database.load_schema(SCHEMA)
        for table, found in contents.items():
            database.insert(table, found)
    with databases[0].snapshot() as one, databases[1].snapshot() as other:
        yield one, other
    for database in databases:
        database.close()


def outcome(snapshot: Snapshot, sql: str) -> object:
    try:
        return snapshot.rows(sql)
    except PolicyError as error:
        return error


def compare(snapshots: tuple[Snapshot, Snapshot], seed: int) -> bool:
    """Whether a query ran; if it did on both, the rows are the same."""
    sql = Maker(Random(seed)).query()
    one, other = (outcome(snapshot, sql) for snapshot in snapshots)
    if isinstance(one, PolicyError):
        return False  # a misuse of the generator
    assert other == one, f"{seed}: {sql}"
    return True


def test_random_queries_have_the_same_rows(snapshots: tuple[Snapshot, Snapshot]) -> None:
    ran = sum(compare(snapshots, seed) for seed in range(400))
    assert ran > 350


@pytest.mark.slow
def test_many_more_random_queries_have_the_same_rows(snapshots: tuple[Snapshot, Snapshot]) -> None:
    for seed in range(10_000, 11_000):
        compare(snapshots, seed)
