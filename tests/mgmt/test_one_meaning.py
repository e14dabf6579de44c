"""Expressions that the database computes mean one thing, whichever database it is; what could mean two is refused."""

from __future__ import annotations

from math import inf
from pathlib import Path

import psycopg
import pytest

from mgmt.errors import (
    DataError,
    PolicyError,
    TypeMismatchError,
    UnknownFunctionError,
    UnsupportedConstructError,
)
from mgmt.state.reals import real_text
from tests.mgmt.support import database
from tests.mgmt.test_meaning import SCHEMA
from tests.mgmt.test_pushed_down import ROWS, build
from tests.postgres_server import PostgresServer

LINES = [
    tuple(line.rsplit(" => ", 1))
    for line in Path(__file__).with_name("one_meaning.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
]


CHECK = r"name LIKE 'a\_%'"


def test_each_has_one_meaning(each_database: str) -> None:
    assert each_database
    state = database(SCHEMA, ROWS)
    for start in range(0, len(LINES), 40):
        lines = LINES[start : start + 40]
        columns = ", ".join(f"({sql}) AS c{number}" for number, (sql, _) in enumerate(lines))
        model = build(f"SELECT name AS x, {columns} FROM host WHERE name = 'a'", state)
        assert model.solve(budget=60)
        names = ", ".join(f"c{number}" for number in range(len(lines)))
        with model.database.snapshot() as snapshot, model.available_views(snapshot):
            found = snapshot.rows(f"SELECT {names} FROM v")[0]
        for (sql, expected), value in zip(lines, found, strict=True):
            assert repr(value) == expected, sql


@pytest.mark.parametrize(
    ("sql", "error", "what"),
    [
        ("TRUNC(2.789, 2)", UnsupportedConstructError, "trunc to so many decimals"),
        ("first_value(size) IGNORE NULLS OVER (ORDER BY name)", UnsupportedConstructError, "IGNORE NULLS"),
        ("to_number('5', '9')", UnsupportedConstructError, "to_number"),
        ("E'a\\nb'", UnsupportedConstructError, "in this spelling"),
        ("X'41'", UnsupportedConstructError, "in this spelling"),
        ("B'01'", UnsupportedConstructError, "in this spelling"),
        ("U&'\\0041'", UnsupportedConstructError, "in this spelling"),
        ("N'a'", UnsupportedConstructError, "in this spelling"),
        ("0x10", UnsupportedConstructError, "in this spelling"),
        ("(ARRAY[1, 2])[1]", UnsupportedConstructError, "an element of a list"),
        ("(SELECT array_agg(name) FROM host)", UnsupportedConstructError, "makes a list"),
        ("(SELECT json_agg(name) FROM host)", UnsupportedConstructError, "makes a list"),
        ("(SELECT json_group_array(name) FROM host)", UnsupportedConstructError, "makes a list"),
        ("(SELECT string_agg(name, ',') FROM host)", UnsupportedConstructError, "in no order"),
        ("(SELECT string_agg(DISTINCT rack, ',') FROM host)", UnsupportedConstructError, "DISTINCT"),
        ("OVERLAY('abc' PLACING 'x' FROM 2)", UnsupportedConstructError, "OVERLAY"),
        ("CAST('t' AS BOOLEAN)", TypeMismatchError, "a text is no condition"),
        ("CAST(rack AS BOOLEAN)", TypeMismatchError, "a text is no condition"),
        ("(SELECT 1 FROM task AS t LEFT JOIN (host AS a JOIN host AS b ON a.name = b.name) ON a.size = t.id)",
         UnsupportedConstructError, "a parenthesised join"),
        ("(SELECT name FROM host ORDER BY size FETCH FIRST 1 ROW WITH TIES)", UnsupportedConstructError, "WITH TIES"),
        ("(SELECT name FROM host ORDER BY size FETCH FIRST 1 PERCENT ROWS ONLY)", UnsupportedConstructError, "percent"),
        ("substring(name, 0)", UnsupportedConstructError, "from no place"),
        ("(" * 20 + "size" + " > ANY (ARRAY[1, 2]))" * 20, UnsupportedConstructError, "compared with each of a list"),
        ("greatest_of(1)", UnknownFunctionError, "greatest_of"),
    ],
)  # fmt: skip
def test_what_would_have_two_meanings_is_refused(
    each_database: str, sql: str, error: type[PolicyError], what: str
) -> None:
    assert each_database
    with pytest.raises(error, match=what) as caught:
        build(f"SELECT ({sql}) AS x FROM host")
    assert caught.value.line == 2
    assert caught.value.hint


@pytest.mark.parametrize(
    "sql",
    [
        "CAST(rack AS DOUBLE PRECISION)",
        "CAST(rack || '' AS DOUBLE PRECISION)",
        "CAST(rack AS BIGINT)",
        "CAST(size || '.5' AS BIGINT)",
        "sqrt(size - 100)",
        "ln(size - 5)",
        "log(size - 5)",
        "log(size - 4, 2)",
        "power(size - 5, -1)",
        "power(0 - size, 0.5)",
        "acos(size)",
        "chr(size - 5)",
        "split_part(name, 'b', size - 5)",
        "substring(name, 1, size - 6)",
    ],
)
def test_what_is_no_value_is_an_error_and_not_null(each_database: str, sql: str) -> None:
    assert each_database
    model = build(f"SELECT ({sql}) AS x FROM host WHERE name = 'a'")
    with pytest.raises(DataError) as caught:
        model.solve(budget=20)
    assert caught.value.line is not None


@pytest.mark.parametrize("column", ["TEXT PRIMARY KEY CHECK ({})", "TEXT PRIMARY KEY, CHECK ({})"])
def test_a_schema_reads_a_backslash_alike(each_database: str, column: str) -> None:
    assert each_database
    schema = f"CREATE TABLE host (name {column.format(CHECK)})"
    database(schema, {"host": [{"name": "a_b"}]})
    with pytest.raises(DataError):
        database(schema, {"host": [{"name": "ab"}]})


@pytest.mark.postgres
def test_the_text_of_a_real_is_that_of_postgresql(postgres_server: PostgresServer) -> None:
    found = [
        0.0,
        -0.0,
        1.0,
        -2.5,
        0.1,
        1 / 3,
        1e-4,
        9.9e-5,
        1e14,
        1e15,
        123456789012345.0,
        1.5e15,
        2e300,
        5e-324,
    ]
    found += [-1.25e-7, 1e22, 1.7976931348623157e308, inf, -inf, 100.0, 1234567.125]
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        for value in found:
            (text,) = connection.execute(
                "SELECT CAST(CAST(%s AS double precision) AS text)", (value,)
            ).fetchone()
            assert real_text(value) == text
