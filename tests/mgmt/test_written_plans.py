"""A plan that is applied is written, in every kind of source and by keys of every type, and nothing else changes."""

from __future__ import annotations

import csv
import json
import os
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pytest

import mgmt
from mgmt.errors import DataError
from mgmt.solution import Delta, Solution, SolveStatus, Value
from mgmt.state.schema import literal
from mgmt.state.sources.files import File
from tests.postgres_server import PostgresServer

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Column:
    """A part of a key: its type in the schema, and in DuckDB and PostgreSQL the one that it is stored as."""

    schema: str
    duckdb: str
    postgres: str
    values: Sequence[str | None]
    """As DuckDB reads them."""

    def plain(self, text: str | None) -> Any:
        """A value as SQLite and JSON store it."""
        if text is None or self.duckdb in {"VARCHAR", "UUID", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "COLOUR"}:
            return text
        if self.duckdb == "BLOB":
            return bytes.fromhex(text.replace("\\x", ""))
        return json.loads(text)


def one(schema: str, duckdb: str, postgres: str, *values: str) -> list[Column]:
    return [Column(schema, duckdb, postgres, values)]


COLOURS = "ENUM ('red', 'green', 'blue')"
KEYS = {
    "whole numbers": one("INTEGER", "BIGINT", "bigint", "1", "-2", "9007199254740993"),
    "unsigned numbers": one("INTEGER", "UBIGINT", "numeric(20)", "1", "2", "9223372036854775807"),
    "whole numbers in texts": one("INTEGER", "VARCHAR", "text", "001", " 2 ", "3.0"),
    "whole decimals": one("INTEGER", "DECIMAL(9,2)", "numeric(9,2)", "1.00", "2.00", "3.00"),
    "whole doubles": one("INTEGER", "DOUBLE", "double precision", "1.0", "2.0", "300.0"),
    "texts": one("TEXT", "VARCHAR", "text", "a, b", "", "ü'\"x\n"),
    "padded texts": one("TEXT", "VARCHAR", "char(4)", "a   ", " b  ", "abcd"),
    "words": one("TEXT", "COLOUR", "colour", "red", "green", "blue"),
    "uuids": one("TEXT", "UUID", "uuid", *(f"{each}0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11" for each in "abc")),
    "bytes": one("TEXT", "BLOB", "bytea", "\\x00\\xff", "\\x5c", "\\x61\\x62"),
    "decimals": one("TEXT", "DECIMAL(9,2)", "numeric(9,2)", "1.50", "2.00", "-0.25"),
    "booleans": one("BOOLEAN", "BOOLEAN", "boolean", "true", "false"),
    "booleans as numbers": one("BOOLEAN", "INTEGER", "integer", "1", "0"),
    "booleans in texts": one("BOOLEAN", "VARCHAR", "text", "t", "False"),
    "fractions": one("DOUBLE PRECISION", "DOUBLE", "double precision", "0.1", "1e300", "-5e-324"),
    "fractions of four bytes": one("DOUBLE PRECISION", "FLOAT", "real", "0.1", "0.3", "1e30"),
    "decimals as fractions": one("DOUBLE PRECISION", "DECIMAL(9,3)", "numeric(9,3)", "0.1", "0.3", "1.125"),
    "dates": one("DATE", "DATE", "date", "2026-11-25", "1969-12-31", "9999-12-31"),
    "dates in texts": one("DATE", "VARCHAR", "text", "2026-11-25", "2026-11-26 00:00:00", "2026-11-27"),
    "midnights": one("DATE", "TIMESTAMP", "timestamp", "2026-11-25 00:00:00", "2026-11-26", "2026-11-27"),
    "times": one("TIMESTAMP", "TIMESTAMP", "timestamp", "2026-11-25 10:00", "2026-11-25 10:00:00.000001", "1970-01-01"),
    "times with a zone": one("TIMESTAMP", "TIMESTAMPTZ", "timestamptz",
                             "2026-11-25 10:00:00+02", "2026-11-25 10:00:00+00", "2026-11-25 10:00:00.25-03:30"),
    "times in texts": one("TIMESTAMP", "VARCHAR", "text",
                          "2026-11-25T10:00:00+02:00", "2026-11-25T10:00:00Z", "2026-11-25 11:00"),
    "several": [
        Column("TEXT", "VARCHAR", "text", ["a", "a", "b"]),
        Column("INTEGER", "VARCHAR", "text", ["01", "2", "01"]),
    ],
    "with NULL": [
        Column("TEXT", "VARCHAR", "text", ["a", None, None]),
        Column("INTEGER", "BIGINT", "int", ["1", "1", None]),
    ],
}  # fmt: skip
BEFORE, AFTER = ("n1", None, "n2"), ("n2", "n1", "n2")


@dataclass(frozen=True)
class Place:
    """Where the rows of a table ``t`` are: what ``mgmt.Database`` takes, and how others read them."""

    data: str | Path
    rows: Callable[[], Rows]


def rows_of(columns: Sequence[Column], convert: Callable[[Column, str | None], Any]) -> Rows:
    """The rows of the table, the values of the key converted."""
    keys = zip(*(column.values for column in columns), strict=True)
    cells = ([convert(*each) for each in zip(columns, key, strict=True)] for key in keys)
    return [(*key, host) for key, host in zip(cells, BEFORE, strict=False)]


def fill(run: Callable[[str], object], types: Sequence[str], rows: Rows) -> None:
    run(f"CREATE TYPE colour AS {COLOURS}")
    defined = ", ".join(f"k{place} {kind}" for place, kind in enumerate(types))
    run(f"CREATE TABLE t ({defined}, host text)")
    for *key, host in rows:
        cells = ", ".join(f"CAST({literal(v)} AS {kind})" for v, kind in zip(key, types, strict=True))
        run(f"INSERT INTO t VALUES ({cells}, {literal(host)})")


def on_server(server: PostgresServer, columns: Sequence[Column]) -> Place:
    def spelt(column: Column, text: str | None) -> str | None:
        return text if text is None or column.duckdb != "BLOB" else "\\x" + text.replace("\\x", "")

    namespace = server.new_namespace()
    types = [column.postgres for column in columns]
    fill(lambda sql: server.run(sql, namespace), types, rows_of(columns, spelt))
    return Place(server.url(namespace), lambda: server.run("SELECT * FROM t", namespace))


def in_duckdb(columns: Sequence[Column], path: Path) -> Place:
    def connected() -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(str(path))
        connection.execute("SET TimeZone = 'UTC'")
        return connection

    def read() -> Rows:
        with connected() as connection:
            return connection.execute("FROM t").fetchall()

    with connected() as connection:
        types = [column.duckdb for column in columns]
        fill(connection.execute, types, rows_of(columns, lambda _, text: text))
    return Place(path, read)


def in_sqlite(columns: Sequence[Column], path: Path) -> Place:
    def run(sql: str, *values: object) -> Rows:
        with closing(sqlite3.connect(path)) as file, file:
            return file.execute(sql, values).fetchall()

    run(f"CREATE TABLE t ({', '.join(f'k{place}' for place in range(len(columns)))}, host)")
    for row in rows_of(columns, Column.plain):
        run(f"INSERT INTO t VALUES ({', '.join('?' * len(row))})", *row)
    return Place(path, lambda: run("SELECT * FROM t ORDER BY rowid"))


def in_parquet(columns: Sequence[Column], path: Path) -> Place:
    beside = path.with_suffix(".duckdb")
    in_duckdb(columns, beside)
    with duckdb.connect(str(beside)) as connection:
        connection.execute(f"COPY t TO '{path}'")
    return Place(path, lambda: duckdb.execute(f"FROM '{path}'").fetchall())


def in_csv(columns: Sequence[Column], path: Path) -> Place:
    def quoted(_: Column, text: str | None) -> str:
        return "" if text is None else '"' + text.replace('"', '""') + '"'

    names = [f"k{place}" for place in range(len(columns))]
    lines = [[*names, "host"], *([*key, host or ""] for *key, host in rows_of(columns, quoted))]
    path.write_text("".join(",".join(line) + "\r\n" for line in lines), newline="")

    def read() -> Rows:
        with path.open(newline="") as file:
            return [(*key, host or None) for *key, host in list(csv.reader(file))[1:]]

    return Place(path, read)


def in_json(columns: Sequence[Column], path: Path) -> Place:
    def plain(column: Column, text: str | None) -> Any:
        return text if column.duckdb == "BLOB" else column.plain(text)

    names = [*(f"k{place}" for place in range(len(columns))), "host"]
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows_of(columns, plain)]
    path.write_text(f"[{', '.join(lines)}]")
    return Place(path, lambda: [tuple(row[name] for name in names) for row in json.loads(path.read_text())])


MAKERS = {
    "csv": in_csv,
    "json": in_json,
    "parquet": in_parquet,
    "duckdb": in_duckdb,
    "sqlite": in_sqlite,
}


def opened(data: str | Path | Sequence[str | Path], columns: Sequence[Column], *names: str) -> mgmt.Database:
    state = mgmt.Database(data=data)
    names = names or tuple(f"k{place}" for place in range(len(columns)))
    defined = ", ".join(f"{name} {column.schema}" for name, column in zip(names, columns, strict=True))
    state.load_schema(
        f"CREATE TABLE t ({defined}, host TEXT, variable__host TEXT DOMAIN (SELECT host FROM t WHERE host IS NOT NULL),"
        f" PRIMARY KEY ({', '.join(names)}))"
    )
    return state


def plan_of(state: mgmt.Database, hosts: Sequence[Value], width: int = 0) -> Solution:
    """A plan that gives the rows these hosts, in their order; the key is so many columns wide, or all but two."""
    keys = list(zip(*state.execute("SELECT * FROM t"), strict=True))[: width or -2]
    values = dict(zip(zip(*keys, strict=True), hosts, strict=False))
    first = next(iter(values))
    return Solution(
        SolveStatus.FEASIBLE,
        state.version,
        (Delta("t", first, "host", None, values[first], "variable__host"),),
        (),
        {("t", "variable__host"): values},
    )


def place_of(kind: str, columns: Sequence[Column], directory: Path, request: pytest.FixtureRequest) -> Place:
    if kind == "postgres":
        return on_server(request.getfixturevalue("postgres_server"), columns)
    return MAKERS[kind](columns, directory / f"t.{kind}")


each_kind = pytest.mark.parametrize("kind", [*MAKERS, pytest.param("postgres", marks=pytest.mark.postgres)])
others = pytest.mark.slow("each type of a key in one kind of source is enough where one waits for it")
quick = {(kind, key) for number, kind in enumerate(MAKERS) for key in list(KEYS)[number :: len(MAKERS)]}


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        *(pytest.param(*each, marks=[] if each in quick else others) for each in product(MAKERS, KEYS)),
        *(pytest.param("postgres", key, marks=pytest.mark.postgres) for key in KEYS),
    ],
)
def test_rows_are_found_by_keys_of_every_type(
    kind: str, key: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    columns = KEYS[key]
    place = place_of(kind, columns, tmp_path, request)
    before = place.rows()
    state = opened(place.data, columns)
    state.apply(plan_of(state, AFTER))
    expected = [(*key, host) for (*key, _), host in zip(before, AFTER, strict=False)]
    assert sorted(place.rows(), key=repr) == sorted(expected, key=repr)
    state.close()
    again = opened(place.data, columns)
    assert sorted(host for *_, host in again.execute("SELECT * FROM t")) == sorted(AFTER[: len(before)])
    again.close()


@each_kind
def test_all_columns_of_a_plan_are_written(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    columns = [
        *one("INTEGER", "BIGINT", "bigint", "1", "2", "3"),
        *one("TEXT", "VARCHAR", "varchar(2)", "r1", "r2", "r2"),
        *one("BOOLEAN", "INTEGER", "smallint", "0", "0", "0"),
    ]
    place = place_of(kind, columns, tmp_path, request)
    state = mgmt.Database(data=place.data)
    state.load_schema(
        "CREATE TABLE t (k0 INTEGER PRIMARY KEY, k1 TEXT, k2 BOOLEAN, host TEXT, variable__a BOOLEAN CURRENT k2,"
        " variable__b TEXT CURRENT k1 DOMAIN (SELECT k1 FROM t), variable__host TEXT DOMAIN (SELECT host FROM t))"
    )
    plan = plan_of(state, AFTER, 1)
    assignments = {
        ("t", "variable__a"): {(1,): True, (2,): False, (3,): True},
        ("t", "variable__b"): {(1,): "r2", (2,): "r1", (3,): "r2"},
        **plan.assignments,
    }
    state.apply(replace(plan, assignments=assignments))
    state.close()
    again = mgmt.Database(data=place.data)
    again.load_schema("CREATE TABLE t (k0 INTEGER PRIMARY KEY, k1 TEXT, k2 BOOLEAN, host TEXT)")
    assert sorted(again.execute("SELECT * FROM t")) == [
        (1, "r2", True, "n2"),
        (2, "r1", False, "n1"),
        (3, "r2", True, "n2"),
    ]
    again.close()


ROWS = "INSERT INTO t VALUES (1, 'n1'), (2, NULL), (3, 'n2')"
KEEPING = {
    "row security": "CREATE POLICY all_seen ON t FOR SELECT USING (true);"
    " CREATE POLICY some_changed ON t FOR UPDATE USING (id <> 1); ALTER TABLE t ENABLE ROW LEVEL SECURITY",
    "a trigger that keeps a row": "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
    " CREATE TRIGGER f BEFORE UPDATE ON t FOR EACH ROW WHEN (OLD.id = 1) EXECUTE FUNCTION f()",
    "a trigger that writes something else": "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS"
    " 'BEGIN NEW.host = OLD.host; RETURN NEW; END';"
    " CREATE TRIGGER f BEFORE UPDATE ON t FOR EACH ROW WHEN (OLD.id = 1) EXECUTE FUNCTION f()",
    "a trigger at the end of the transaction": "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS"
    " 'BEGIN UPDATE t SET host = OLD.host WHERE id = OLD.id; RETURN NEW; END'; CREATE CONSTRAINT TRIGGER f AFTER UPDATE"
    " ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (OLD.id = 1 AND OLD.host = 'n1') EXECUTE FUNCTION f()",
    "a rule": "CREATE RULE f AS ON UPDATE TO t WHERE OLD.id = 1 DO INSTEAD NOTHING",
}


def opened_rows(*data: str | Path) -> mgmt.Database:
    return opened(data, one("INTEGER", "", "", "1", "2", "3"), "id")


@pytest.mark.postgres
@pytest.mark.parametrize("keeping", KEEPING.values(), ids=KEEPING)
def test_a_row_that_a_server_keeps_is_named_and_nothing_is_written_anywhere(
    postgres_server: PostgresServer, keeping: str, tmp_path: Path
) -> None:
    namespace = postgres_server.new_namespace()
    run = postgres_server.run
    for statement in ("CREATE TABLE t (id int, host text)", ROWS, keeping):
        run(statement, namespace)
    run(
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'planner') THEN CREATE ROLE planner LOGIN;"
        f" END IF; END $$; GRANT USAGE ON SCHEMA {namespace} TO planner; GRANT SELECT, UPDATE ON t TO planner",
        namespace,
    )
    beside = tmp_path / "beside.csv"
    beside.write_text("id,host\n1,n1\n")
    state = opened_rows(beside, postgres_server.url(namespace, user="planner"))
    state.load_schema(
        "CREATE TABLE beside (id INTEGER PRIMARY KEY, host TEXT, variable__host TEXT DOMAIN (SELECT host FROM t))"
    )
    plan = plan_of(state, AFTER)
    assignments = {**plan.assignments, ("beside", "variable__host"): {(1,): "n2"}}
    with pytest.raises(
        DataError, match=r"column 'host' of table 't' id 1 has 'n1', not 'n2' \(is there a policy"
    ) as said:
        state.apply(replace(plan, assignments=assignments))
    assert said.value.rows == ({"id": 1, "host": "n1"},)
    assert run("SELECT * FROM t ORDER BY id", namespace) == [(1, "n1"), (2, None), (3, "n2")]
    assert beside.read_text() == "id,host\n1,n1\n"
    assert state.execute("SELECT host FROM t ORDER BY id") == [("n1",), (None,), ("n2",)]
    state.close()


@pytest.mark.postgres
@pytest.mark.parametrize(
    "made",
    [
        f"CREATE TABLE s (id int, host text); CREATE VIEW t AS SELECT * FROM s; {ROWS}",
        "CREATE TABLE t (id int, host text); CREATE TABLE u () INHERITS (t); INSERT INTO t VALUES (1, 'n1');"
        " INSERT INTO u VALUES (2, NULL), (3, 'n2')",
        "CREATE TABLE t (id int, host text) PARTITION BY LIST (host); CREATE TABLE u PARTITION OF t DEFAULT;"
        f" CREATE TABLE v PARTITION OF t FOR VALUES IN ('n1'); {ROWS}",
    ],
    ids=["a view", "tables that inherit", "partitions"],
)
def test_rows_are_found_wherever_a_server_keeps_them(postgres_server: PostgresServer, made: str) -> None:
    namespace = postgres_server.new_namespace()
    postgres_server.run(made, namespace)
    state = opened_rows(postgres_server.url(namespace))
    hosts = dict(zip((number for (number,) in state.execute("SELECT id FROM t")), AFTER, strict=True))
    state.apply(plan_of(state, AFTER))
    assert dict(postgres_server.run("SELECT * FROM t", namespace)) == hosts
    state.close()


OF_A_VIEW = (
    f"CREATE TABLE s (id INT, host); CREATE VIEW t AS SELECT * FROM s; {ROWS.replace(' t ', ' s ')};"
    " CREATE TRIGGER f INSTEAD OF UPDATE ON t BEGIN"
)
IN_SQLITE = {
    "without row ids": (f"CREATE TABLE t (id TEXT PRIMARY KEY, host) WITHOUT ROWID; {ROWS}", None),
    "row ids hidden": (
        f"CREATE TABLE t (id INT, host, rowid TEXT, oid INT); {ROWS.replace(' t ', ' t (id, host) ')}",
        None,
    ),
    "an index": (f"CREATE TABLE t (id INT, host); {ROWS}; CREATE INDEX i ON t (host, id)", None),
    "a trigger": (
        f"CREATE TABLE t (id INT, host); {ROWS};"
        " CREATE TRIGGER f BEFORE UPDATE ON t WHEN OLD.id = 2 BEGIN SELECT raise(IGNORE); END",
        "'t' id 2 has None, not 'n1'",
    ),
    "a view": (f"{OF_A_VIEW} UPDATE s SET host = NEW.host WHERE id = OLD.id; END", None),
    "a view that forgets": (f"{OF_A_VIEW} SELECT 1; END", "id 1 has 'n1', not 'n2'; id 2 has None, not 'n1'"),
}


@pytest.mark.parametrize(("made", "kept"), IN_SQLITE.values(), ids=IN_SQLITE)
def test_sqlite_takes_a_row_or_it_is_named(tmp_path: Path, made: str, kept: str | None) -> None:
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as file:
        file.executescript(made)
    state = opened_rows(path)
    plan = plan_of(state, AFTER)
    if kept is None:
        state.apply(plan)
    else:
        with pytest.raises(DataError, match=kept):
            state.apply(plan)
    state.close()
    with closing(sqlite3.connect(path)) as file:
        rows = file.execute("SELECT id, host FROM t").fetchall()
    assert sorted(host for _, host in rows if host) == sorted(filter(None, BEFORE if kept else AFTER))


REFUSING = f"CREATE TABLE t (id int, host text, CHECK (id <> 2 OR host IS NULL)); {ROWS}"
IN_ITS_WORDS = {
    "duckdb": (REFUSING, "CHECK constraint failed on table"),
    "duckdb of a view": (
        f"CREATE TABLE s (id int, host text); {ROWS.replace(' t ', ' s ')}; CREATE VIEW t AS FROM s",
        "Can only update base table",
    ),
    "sqlite": (REFUSING, "CHECK constraint failed: id <> 2 OR host IS NULL"),
    "sqlite of a trigger": (
        f"CREATE TABLE t (id INT, host); {ROWS}; CREATE TRIGGER f BEFORE UPDATE ON t BEGIN SELECT"
        " raise(ABORT, 'not before Monday'); END",
        "not before Monday",
    ),
    "postgres": (REFUSING, r'violates check constraint "t_check" \(Failing row contains \(2, n1\)\)'),
    "postgres of a trigger": (
        f"CREATE TABLE t (id int, host text); {ROWS}; CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql"
        " AS 'BEGIN RAISE ''not before Monday''; END'; CREATE CONSTRAINT TRIGGER f AFTER UPDATE ON t"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION f()",
        "not before Monday",
    ),
    "postgres of a view": (
        f"CREATE TABLE s (id int, host text); {ROWS.replace(' t ', ' s ')}; CREATE VIEW t AS SELECT DISTINCT * FROM s",
        r'cannot update view "t" \(Views containing DISTINCT',
    ),
}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.postgres] if "postgres" in case else []) for case in IN_ITS_WORDS],
)
def test_what_a_source_says_against_a_plan_is_told(
    case: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    made, told = IN_ITS_WORDS[case]
    path = tmp_path / f"t.{case.partition(' ')[0]}"
    data: str | Path = path
    if "postgres" in case:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        namespace = server.new_namespace()
        server.run(made, namespace)
        data = server.url(namespace)
    elif "duckdb" in case:
        with duckdb.connect(str(path)) as file:
            file.execute(made)
    else:
        with closing(sqlite3.connect(path)) as other:
            other.executescript(made)
    state = opened_rows(data)
    with pytest.raises(DataError, match=f"did not take the plan, and nothing was written: .*{told}"):
        state.apply(plan_of(state, AFTER))
    state.refresh()
    assert sorted(state.execute("SELECT id, host FROM t")) == [(1, "n1"), (2, None), (3, "n2")]
    state.close()


def test_texts_that_a_collation_takes_for_one_are_several_keys(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as file:
        file.execute("CREATE TABLE t (k0 TEXT COLLATE NOCASE, host TEXT)")
        file.execute("INSERT INTO t VALUES ('a', 'n1'), ('A', NULL), ('b', 'n2')")
    state = opened(path, KEYS["texts"])
    state.apply(plan_of(state, AFTER))
    state.close()
    with duckdb.connect(str(path)) as file:
        assert file.execute("FROM t").fetchall() == [("a", "n2"), ("A", "n1"), ("b", "n2")]


def beside_schema(name: str) -> str:
    return f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, host TEXT, variable__host TEXT DOMAIN (SELECT host FROM t));"


def test_a_file_may_be_several_tables(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,host,rack\n1,n1,a\n2,n2,a\n")
    state = mgmt.Database(data=[path, f"racks={path}"])
    hosts = "id INTEGER PRIMARY KEY, host TEXT, variable__host TEXT DOMAIN (SELECT host FROM t)"
    racks = "id INTEGER PRIMARY KEY, host TEXT, rack TEXT, variable__rack TEXT DOMAIN (SELECT host FROM t)"
    state.load_schema(f"CREATE TABLE t ({hosts}); CREATE TABLE racks ({racks})")
    plan = plan_of(state, ("n2", "n2"), 1)
    racked = {**plan.assignments, ("racks", "variable__rack"): {(1,): "n1", (2,): "n2"}}
    state.apply(replace(plan, assignments=racked))
    assert path.read_text() == "id,host,rack\n1,n2,n1\n2,n2,n2\n"
    assert state.execute("SELECT id, host, rack FROM racks") == [(1, "n2", "n1"), (2, "n2", "n2")]
    state.close()


def test_what_a_view_shows_is_read_again_once_its_table_is_written(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as file:
        file.executescript(
            f"CREATE TABLE t (id INT, host); {ROWS};"
            " CREATE VIEW used AS SELECT host AS name, count(*) AS n FROM t GROUP BY 1"
        )
    state = opened_rows(path)
    state.load_schema("CREATE TABLE used (name TEXT, n INTEGER)")
    state.apply(plan_of(state, AFTER))
    assert sorted(state.execute("SELECT * FROM used")) == [("n1", 1), ("n2", 2)]
    state.close()


@pytest.mark.parametrize("fails", ["is compared", "is committed"])
def test_it_is_said_which_of_several_sources_a_plan_was_written_to(
    tmp_path: Path, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / "t.csv", tmp_path / "a.csv", tmp_path / "b.csv"]
    for path in paths:
        path.write_text("id,host\n1,n1\n2,n2\n")
    state = mgmt.Database(data=paths)
    state.load_schema("".join(map(beside_schema, "tab")))
    plan = plan_of(state, ("n2", "n2"), 1)
    hosts = plan.assignments["t", "variable__host"]
    plan = replace(plan, assignments={(name, "variable__host"): hosts for name in "tab"})
    before, written = paths[0].read_text(), "id,host\n1,n2\n2,n2\n"
    replaced = os.replace

    def replace_or_fail(new: Path, old: Path) -> None:
        if old == paths[1]:
            raise OSError(28, "No space left on device")
        replaced(new, old)

    if fails == "is committed":
        monkeypatch.setattr(os, "replace", replace_or_fail)
        told = (
            rf"^the plan was written to {re.escape(str(paths[2]))}, and not to .*t\.csv, .*a\.csv: .*No space"
        )
        with pytest.raises(mgmt.StateDatabaseError, match=told):
            state.apply(plan)
        assert [path.read_text() for path in paths] == [before, before, written]
    else:
        put = File.put

        def put_while_another_changes(file: File, *what: Any) -> None:
            put(file, *what)
            paths[1].write_text(before + "3,n1\n")

        monkeypatch.setattr(File, "put", put_while_another_changes)
        with pytest.raises(mgmt.StalePlanError):
            state.apply(plan)
        assert [path.read_text() for path in paths] == [before, before + "3,n1\n", before]
    monkeypatch.undo()
    assert state.execute("SELECT host FROM b ORDER BY id") == [
        (line.split(",")[1],) for line in paths[2].read_text().splitlines()[1:]
    ]
    state.close()


def test_a_key_may_hold_what_the_plan_changes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,host\n1,n1\n1,n2\n2,n1\n")
    state = mgmt.Database(data=path)
    state.load_schema(
        "CREATE TABLE t (id INTEGER, host TEXT, PRIMARY KEY (id, host),"
        " variable__host TEXT DOMAIN (SELECT host FROM t))"
    )
    state.apply(plan_of(state, ("n2", "n1", "n2"), 2))
    assert path.read_text() == "id,host\n1,n2\n1,n1\n2,n2\n"
    assert state.execute("SELECT id, host FROM t") == [(1, "n2"), (1, "n1"), (2, "n2")]
