"""Random expressions of constants have the same values in both kinds of database, or are refused by both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from random import Random

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import PolicyError
from mgmt.state.database import Database
from tests.postgres_server import PostgresServer

SCHEMA = """
CREATE TABLE h (k INTEGER PRIMARY KEY, a INTEGER, b INTEGER, x REAL, s TEXT, t TEXT, u BOOLEAN, d DATE);
CREATE TABLE task (id INTEGER PRIMARY KEY, variable__v BOOLEAN NOT NULL);
"""
NAMES = ("k", "a", "b", "x", "s", "t", "u", "d")
ROWS = [
    (1, 5, -3, 2.5, "abc", "b%", True, "2026-01-31"),
    (2, 0, 7, -0.125, "a_c", "", False, "2024-02-29"),
    (3, None, 2, None, None, "12", True, None),
    (4, -9, None, 1e16, "Zé", "3.5", False, "1999-12-31"),
]
DEMAND = "CREATE CONSTRAINT z AS SELECT * FROM task, v CHECK variable__v OR k > 0"
# Of numbers (n), reals (q), texts (t) and conditions (c); a sign of comparison is o, a quantifier z.
LEAVES: Mapping[str, Sequence[str]] = {
    "n": ("a", "b", "k", "0", "1", "3", "-2", "NULL"),
    "q": ("x", "2.5", "0.1", "1e3", "-1.5"),
    "t": ("s", "t", "'a'", "''", "'b_%'", "'é'", "NULL"),
    "c": ("u", "TRUE", "FALSE", "a > 1", "s = 'abc'", "x IS NULL"),
    "o": ("=", "<>", "<", "<=", ">", ">="),
    "z": ("ANY", "ALL"),
    "not": ("", "NOT "),
}
MADE: Mapping[str, Sequence[str]] = {
    "n": (
        "({n} + {n})", "({n} - {n})", "({n} * {n})", "({n} / {n})", "({n} % {n})", "-({n})", "abs({n})",
        "length({t})", "strpos({t}, {t})", "CASE WHEN {c} THEN {n} ELSE {n} END", "coalesce({n}, {n})",
        "nullif({n}, {n})", "({n} # {n})", "({n} & {n})", "sign({n})", "greatest({n}, {n})",
        "least({n}, {n}, {n})", "CAST({q} AS BIGINT)", "CAST({c} AS INTEGER)", "ascii({t})", "({c}) + 1",
        "EXTRACT(DAY FROM d)", "(d - DATE '2020-01-01')", "(SELECT count(*) FROM h AS o WHERE o.a < h.b)",
        "(SELECT max(o.b) FROM h AS o WHERE o.s <> h.s)", "sum({n}) OVER (ORDER BY k)",
        "row_number() OVER (ORDER BY {n} DESC, k)", "rank() OVER (ORDER BY {t})",
        "lag(a, 1, 0) OVER (ORDER BY k)", "count({t}) OVER (PARTITION BY u)",
    ),
    "q": (
        "({q} + {n})", "({q} * {q})", "({n} / 2.0)", "({q} % {n})", "round({q}, 1)", "round({q}, -1)", "round({q})",
        "floor({q})", "ceil({q})", "trunc({q})", "sqrt(abs({q}))", "abs({q})", "CAST({n} AS DOUBLE PRECISION)",
        "coalesce({q}, 1.5)", "CASE WHEN {c} THEN {q} ELSE {q} END", "avg({n}) OVER ()", "greatest({q}, {q})",
        "nullif({q}, 2.5)",
    ),
    "t": (
        "({t} || {t})", "({t} || {n})", "({t} || {q})", "upper('a' || {t})", "substring({t}, {n}, abs(b))",
        "left({t}, 2)", "right({t}, k)", "replace({t}, {t}, {t})", "trim({t}, {t})", "CAST({n} AS TEXT)",
        "CAST({q} AS TEXT)", "concat({t}, {n}, {q})", "concat_ws('-', {t}, {t})", "coalesce({t}, {t})",
        "CASE WHEN {c} THEN {t} ELSE {t} END", "split_part({t}, 'b', 2)", "split_part({t}, 'b', -1)",
        "lpad({t}, k, 'xy')", "reverse({t})", "repeat({t}, k)", "translate({t}, 'ab', 'b')",
        "max(s || {t}) OVER (PARTITION BY u)", "CAST(d AS TEXT)", "to_char(d, 'YYYY/MM')", "greatest({t}, {t})",
        "nullif({t}, {t})", "md5({t})", "first_value({t}) OVER (ORDER BY k)",
        "(SELECT string_agg(o.s, ',' ORDER BY o.k) FROM h AS o WHERE o.k <= h.k)",
    ),
    "c": (
        "({n} {o} {n})", "({t} {o} {t})", "({q} {o} {n})", "({c} AND {c})", "({c} OR {c})", "(NOT {c})",
        "({t} {not}LIKE {t})", "({t} {not}ILIKE {t})", "({t} {not}LIKE 'a%')", r"({t} {not}LIKE '%\_%')",
        "({n} {not}IN ({n}, {n}))", "({n} {not}BETWEEN {n} AND {n})", "({n} {not}BETWEEN SYMMETRIC {n} AND {n})",
        "({t} IS {not}NULL)", "({c} IS {not}TRUE)", "({c} IS {not}UNKNOWN)", "({n} IS {not}DISTINCT FROM {n})",
        "({t} LIKE {z} (ARRAY[{t}, 'a%']))", "({n} {o} {z} (ARRAY[{n}, {n}]))",
        "({n} {o} {z} (SELECT o.a FROM h AS o WHERE o.k <> h.k))", "(s IN (SELECT o.t FROM h AS o))",
        "EXISTS (SELECT 1 FROM h AS o WHERE o.a > h.b)", "(s ~ '[a-c]+.?')", "starts_with({t}, {t})",
        "(CASE WHEN {c} THEN {c} ELSE {c} END)", "coalesce({c}, FALSE)", "(({n}, {t}) = ({n}, {t}))",
        "CAST({n} AS BOOLEAN)", "(d < DATE '2025-01-01')", "({c} = {c})",
    ),
}  # fmt: skip


def expression(random: Random, kind: str, depth: int) -> str:
    """One of a kind; every part in braces is another one, less deep."""
    chosen = random.choice(MADE[kind] if depth and kind in MADE else LEAVES[kind])
    return re.sub(r"\{(\w+)\}", lambda part: expression(random, part[1], depth - 1), chosen)


@pytest.fixture(scope="module")
def states(postgres_server: PostgresServer) -> Iterator[tuple[Database, ...]]:
    """The same rows in both."""
    made = (Database(":memory:"), Database(postgres_server.url(postgres_server.new_namespace())))
    for state in made:
        state.load_schema(SCHEMA)
        state.insert("h", [dict(zip(NAMES, row, strict=True)) for row in ROWS])
        state.insert("task", [{"id": 1}])
    yield made
    for state in made:
        state.close()


def values(state: Database, expressions: Sequence[str]) -> object:
    """What each row has, reals to twelve digits and without a zero below zero; or that it is refused."""
    columns = ", ".join(f"({one}) AS c{number}" for number, one in enumerate(expressions))
    names = ", ".join(f"c{number}" for number in range(len(expressions)))
    try:
        model = Model.build(state, f"CREATE VIEW v AS SELECT k, {columns} FROM h; {DEMAND}")
        assert model.solve(budget=60)
        with model.database.snapshot() as snapshot, model.available_views(snapshot):
            rows = sorted(snapshot.rows(f"SELECT k, {names} FROM v"), key=lambda row: row[0])
    except PolicyError:
        return "refused"
    return [tuple(f"{v + 0.0:.12g}" if isinstance(v, float) else v for v in row) for row in rows]


@pytest.mark.postgres
@pytest.mark.parametrize("seed", range(6))
def test_both_give_the_same(states: tuple[Database, ...], seed: int) -> None:
    random = Random(seed)
    for _ in range(8):
        waiting = [[expression(random, random.choice("nqtc"), random.randint(1, 3)) for _ in range(12)]]
        while waiting:  # of a refused one the others are asked for again
            asked = waiting.pop()
            one, other = (values(state, asked) for state in states)
            if "refused" in {str(one), str(other)} and len(asked) > 1:
                waiting += [asked[: len(asked) // 2], asked[len(asked) // 2 :]]
            else:
                assert one == other, "\n".join(asked)
