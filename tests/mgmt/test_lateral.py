"""LATERAL (SELECT ...): the rows that PostgreSQL gives for the same text, in both kinds of database."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

from mgmt.compiler.model import Model
from mgmt.errors import PolicyError
from tests.mgmt.support import database
from tests.mgmt.test_meaning import SCHEMA, hosts, tasks
from tests.mgmt.test_pushed_down import build
from tests.postgres_server import PostgresServer

ROWS = {
    "host": [*hosts(("a", "r1", 5, True), ("b", "r1", 9, True), ("c", "r2", 7, False)),
             *hosts(("d", "r3", 7, True))],
    "task": tasks((1, 1, "a"), (2, 4, "a"), (3, 6, "b"), (4, 6, None), (5, 20, None)),
}  # fmt: skip
SELECTS = Path(__file__).with_name("lateral.sql").read_text("utf-8").split(";\n")[:-1]


@pytest.fixture(scope="module")
def twin(postgres_server: PostgresServer) -> psycopg.Connection:
    """The same rows in plain tables, for PostgreSQL to read the same text by itself."""
    connection = psycopg.connect(postgres_server.url(postgres_server.new_namespace()), autocommit=True)
    connection.execute("CREATE TABLE host (name TEXT, rack TEXT, size BIGINT, up BOOLEAN)")
    connection.execute("CREATE TABLE task (id BIGINT, weight BIGINT, host TEXT)")
    for table, rows in ROWS.items():
        for row in rows:
            known = {
                name: value
                for name, value in row.items()
                if name in {"name", "rack", "size", "up", "id", "weight", "host"}
            }
            marks = ", ".join(["%s"] * len(known))
            connection.execute(
                f"INSERT INTO {table} ({', '.join(known)}) VALUES ({marks})", tuple(known.values())
            )
    yield connection
    connection.close()


@pytest.mark.postgres
@pytest.mark.parametrize("select", SELECTS)
def test_it_means_what_postgresql_reads(each_database: str, twin: psycopg.Connection, select: str) -> None:
    assert each_database
    expected = sorted(repr(tuple(map(plain, row))) for row in twin.execute(select))
    names = [column.name for column in twin.execute(select).description or ()]
    model = build(f"SELECT 1 AS x, q.* FROM ({select}) AS q", database(SCHEMA, ROWS))
    assert model.solve(budget=20)
    with model.database.snapshot() as snapshot, model.available_views(snapshot):
        found = snapshot.rows(f"SELECT {', '.join(names)} FROM v")
    assert sorted(map(repr, found)) == expected


@pytest.mark.parametrize(
    ("select", "what", "column"),
    [
        (
            "task AS t, LATERAL (SELECT name FROM host WHERE name = t.variable__host) AS h",
            "the solver decides",
            75,
        ),
        (
            "task AS t, LATERAL (SELECT variable__host FROM task WHERE id < t.id) AS h",
            "the solver decides",
            47,
        ),
        ("task AS t, LATERAL (WITH x AS (SELECT 1 AS n) SELECT n + t.id AS n FROM x) AS h", "WITH", 0),
        ("task AS t, LATERAL (SELECT name FROM host WHERE size > t.weight LIMIT 1) AS h", "in no order", 0),
        ("task AS t, LATERAL (SELECT name FROM host ORDER BY size LIMIT t.id) AS h", "a computed LIMIT", 0),
        ("task AS t, LATERAL (SELECT DISTINCT ON (rack) rack, t.id FROM host) AS h", "DISTINCT ON", 0),
        (
            "task AS t, LATERAL (SELECT a.name FROM host AS a RIGHT JOIN task AS b ON b.id = t.id) AS h",
            "RIGHT",
            0,
        ),
        ("task AS t, LATERAL (SELECT n FROM (SELECT t.id AS n) AS q) AS h", "in a derived table", 62),
        (
            "task AS t, LATERAL (SELECT sum(size) AS s FROM host WHERE size > t.id HAVING count(*) > 1) AS h",
            "HAVING",
            0,
        ),
        (
            "task AS t, LATERAL (SELECT count(*) FROM host WHERE size > t.id GROUP BY ROLLUP (rack)) AS h",
            "GROUPING SETS",
            0,
        ),
        ("task AS t RIGHT JOIN LATERAL (SELECT t.id AS n) AS h ON TRUE", "RIGHT", 0),
        ("task AS t JOIN LATERAL (SELECT t.id) AS h USING (id)", "USING", 0),
        ("task AS t, LATERAL (SELECT t.id AS n)", "alias", 0),
        ("task AS t, LATERAL (SELECT t.id AS n) AS h (a, b)", "2 names", 0),
        ("task AS t, LATERAL (SELECT t.nothing AS n) AS h", "nothing", 0),
        ("LATERAL (SELECT t.id AS n) AS h, task AS t", "t.id", 0),
        ("task AS t, generate_series(1, t.variable__host) AS n", "the solver decides", 0),
        ("task AS t, LATERAL json_tree(t.host) AS n", "LATERAL of this", 0),
        ("task AS t, LATERAL (SELECT id AS i FROM task UNION SELECT t.id LIMIT 1) AS h", "UNION", 0),
    ],
)
def test_what_has_no_such_rows_is_refused(select: str, what: str, column: int) -> None:
    with pytest.raises(PolicyError, match=what) as caught:
        build(f"SELECT 1 AS x FROM {select}", database(SCHEMA, ROWS))
    assert caught.value.line == 2
    assert column in {0, caught.value.column}
    assert caught.value.hint


def test_the_solver_decides_beside_it() -> None:
    """Each task goes to the smallest host that is larger than it, if there is one."""
    rule = """CREATE CONSTRAINT smallest AS SELECT * FROM task AS t LEFT JOIN LATERAL (
        SELECT name FROM host WHERE size > t.weight ORDER BY size, name LIMIT 1) AS h ON TRUE
        CHECK h.name IS NULL OR t.variable__host = h.name"""
    found = Model.build(database(SCHEMA, ROWS), rule).solve(budget=20)
    places = found.assignments["task", "variable__host"]
    assert [places[number,] for number in (1, 2, 3, 4)] == ["a", "a", "c", "c"]


def plain(value: object) -> object:
    """A whole number of PostgreSQL as one of ours."""
    return int(value) if isinstance(value, Decimal) else value
