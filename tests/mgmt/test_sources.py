"""Rows from outside: read as the schema declares them, read again when they change, and written by compare-and-set."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import psycopg
import pytest

import mgmt
from mgmt.errors import DataError, DuplicateNameError, PolicyError, StalePlanError, StateDatabaseError
from mgmt.source_text import SourceText
from mgmt.state.schema_parsing.parser import parse_schema
from mgmt.state.snapshot import WHOLE
from mgmt.state.sources.misspelling import misspelt
from mgmt.state.sources.opening import open_sources
from mgmt.state.sources.source import Change, ChangedError
from mgmt.state.sources.writing import write
from tests.postgres_server import PostgresServer

SCHEMA = """
CREATE TABLE nodes (name TEXT PRIMARY KEY, memory INTEGER NOT NULL);
CREATE TABLE tasks (id INTEGER PRIMARY KEY, memory INTEGER NOT NULL, host TEXT,
                    variable__host TEXT NOT NULL REFERENCES nodes (name));
"""
POLICIES = """
CREATE CONSTRAINT fits AS SELECT name FROM tasks JOIN nodes ON variable__host = name
GROUP BY name, nodes.memory CHECK sum(tasks.memory) <= nodes.memory;
CREATE CONSTRAINT moves AS SELECT id FROM tasks WHERE variable__host <> host MINIMIZE count(*);
"""
NODES = "name,memory,rack\nn1,8,a\nn2,8,b\n"
TASKS = 'id;memory;Host;note\n2;5;n1;"a;b"\n1;4;n1;\n3;2;;""\n'
# Who runs where, when memory is respected and as little is moved as can be.
PLACED = {frozenset({(1, "n2"), (2, "n1"), (3, place)}) for place in ("n1", "n2")} | {
    frozenset({(1, "n1"), (2, "n2"), (3, place)}) for place in ("n1", "n2")
}


@dataclass
class Outside:
    """Where rows are: what ``mgmt.Database`` takes, and what another program does there."""

    data: Any
    rows: Callable[[], list[tuple[Any, ...]]]
    """id and host of all tasks, in the order in which they lie there."""
    add: Callable[[int], None]
    """A task of this id, by somebody else."""
    change: Callable[[], object] = lambda: None
    """Other memory for the first task, by somebody else."""


def file_rows(path: Path) -> list[tuple[Any, ...]]:
    if path.suffix == ".csv":
        lines = [line.split(";") for line in path.read_text().splitlines()[1:]]
        return [(int(line[0]), line[2] or None) for line in lines]
    if path.suffix == ".parquet":
        return duckdb.sql(f"SELECT id, host FROM '{path}'").fetchall()
    text = path.read_text()
    found = json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
    return [(row["id"], row["host"]) for row in found]


def file_add(path: Path, number: int) -> None:
    if path.suffix == ".csv":
        path.write_text(path.read_text() + f"{number};1;;\n")
    elif path.suffix == ".parquet":
        with duckdb.connect() as connection:
            connection.execute(
                f"CREATE TABLE t AS FROM '{path}'; INSERT INTO t (id, memory) VALUES ({number}, 1)"
            )
            connection.execute(f"COPY t TO '{path}'")
    else:
        row = json.dumps({"id": number, "memory": 1, "host": None})
        path.write_text(
            path.read_text().replace("]", f",{row}]") + ("" if path.suffix == ".json" else row + "\n")
        )


STATEMENTS = (
    "CREATE TABLE nodes (name TEXT, memory INTEGER)",
    "INSERT INTO nodes VALUES ('n1', 8), ('n2', 8)",
    "CREATE TABLE tasks (id INTEGER, memory INTEGER, host TEXT, note TEXT)",
    "INSERT INTO tasks VALUES (2, 5, 'n1', 'x'), (1, 4, 'n1', NULL), (3, 2, NULL, '')",
)


def in_files(directory: Path, kind: str) -> Outside:
    (directory / "nodes.csv").write_text(NODES)
    csv, path = directory / "tasks.csv", directory / f"tasks.{kind}"
    csv.write_text(TASKS)
    form = {"json": "(ARRAY true)", "jsonl": "(FORMAT json)"}.get(kind, "")
    if kind != "csv":
        read = f"SELECT id, memory, Host AS host, note FROM read_csv('{csv}', allow_quoted_nulls=false)"
        duckdb.sql(f"COPY ({read}) TO '{path}' {form}")
    return Outside(
        [directory / "nodes.csv", path], lambda: file_rows(path), lambda number: file_add(path, number)
    )


def in_database(directory: Path, kind: str) -> Outside:
    path = directory / f"rows.{kind}"
    connect: Callable[..., Any] = duckdb.connect if kind == "duckdb" else sqlite3.connect

    def run(*statements: str) -> list[tuple[Any, ...]]:
        connection = connect(str(path))
        for statement in statements:
            found = connection.execute(statement)
        rows: list[tuple[Any, ...]] = found.fetchall()
        connection.commit()
        connection.close()
        return rows

    run("BEGIN", *STATEMENTS)
    return Outside(
        path,
        lambda: run("BEGIN", "SELECT id, host FROM tasks ORDER BY rowid"),
        lambda number: run("BEGIN", f"INSERT INTO tasks (id, memory) VALUES ({number}, 1)") and None,
    )


def on_server(server: PostgresServer) -> Outside:
    namespace = server.new_namespace()
    for statement in STATEMENTS:
        server.run(statement, namespace)
    return Outside(
        server.url(namespace),
        lambda: server.run("SELECT id, host FROM tasks", namespace),
        lambda number: server.run(f"INSERT INTO tasks (id, memory) VALUES ({number}, 1)", namespace) and None,
        lambda: server.run("UPDATE tasks SET memory = 3 WHERE id = 1", namespace),
    )


@pytest.fixture(
    params=[
        *("csv", "parquet", "json", "jsonl", "duckdb", "sqlite"),
        pytest.param("postgres", marks=pytest.mark.postgres),
    ]
)
def outside(request: pytest.FixtureRequest, tmp_path: Path) -> Outside:
    if request.param == "postgres":
        return on_server(request.getfixturevalue("postgres_server"))
    return (in_database if request.param in {"duckdb", "sqlite"} else in_files)(tmp_path, request.param)


@pytest.fixture
def state(outside: Outside) -> Iterator[mgmt.Database]:
    made = mgmt.Database(data=outside.data)
    made.load_schema(SCHEMA)
    yield made
    made.close()


def test_a_plan_is_written_to_where_the_rows_are_unless_they_have_changed(
    state: mgmt.Database, outside: Outside
) -> None:
    model = mgmt.Model.build(state, POLICIES)
    plan = model.solve(budget=5)
    outside.add(4)
    with pytest.raises(StalePlanError):
        state.apply(plan)
    assert dict(outside.rows()) == {2: "n1", 1: "n1", 3: None, 4: None}
    plan = model.solve(budget=5)
    version = state.apply(plan)
    placed = outside.rows()
    assert frozenset(placed) - {row for row in placed if row[0] == 4} in PLACED
    assert None not in dict(placed).values()
    # What was written is what is known here: nothing is read again, and the plan that follows changes nothing.
    assert state.execute("SELECT id, host, variable__host FROM tasks ORDER BY id") == [
        (number, host, host) for number, host in sorted(placed)
    ]
    assert (model.solve(budget=5).deltas, state.version) == ((), version)


def test_only_what_has_changed_is_read_again(state: mgmt.Database, outside: Outside) -> None:
    with state.snapshot() as snapshot:
        before = dict(snapshot.versions)
    outside.add(4)
    with state.snapshot() as snapshot:
        assert snapshot.rows("SELECT count(*) FROM tasks") == [(4,)]
        changed = {
            name
            for (name, part), number in snapshot.versions.items()
            if part == WHOLE and before[name, part] != number
        }
    assert changed == {"tasks"}


def test_rows_that_live_outside_are_not_changed_here(state: mgmt.Database) -> None:
    state.refresh()
    for change in (
        lambda: state.execute("DELETE FROM tasks"),
        lambda: state.insert("tasks", [{"id": 9, "memory": 1}]),
        lambda: state.replace_rows({"tasks": pd.DataFrame({"id": [9], "memory": [1]})}),
    ):
        with pytest.raises(DataError, match=r"the rows of table 'tasks' are those of .*change them there"):
            change()
    assert state.execute("SELECT count(*) FROM tasks") == [(3,)]


def test_files_keep_what_a_plan_does_not_change(tmp_path: Path) -> None:
    outside = in_files(tmp_path, "csv")
    (tmp_path / "tasks.csv").chmod(0o640)
    state = mgmt.Database(data=outside.data)
    state.load_schema(SCHEMA)
    state.apply(mgmt.Model.build(state, POLICIES).solve(budget=5))
    hosts = [host for _, host in outside.rows()]
    expected = TASKS.replace("2;5;n1", "2;5;{}").replace("1;4;n1", "1;4;{}").replace("3;2;", "3;2;{}")
    assert (tmp_path / "tasks.csv").read_text() == expected.format(*hosts)
    assert (tmp_path / "tasks.csv").stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nodes.csv", "tasks.csv"]


def test_nothing_is_written_anywhere_when_one_of_several_has_changed(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text('[{"name": "n1", "memory": 8}, {"name": "n2", "memory": 8}]')
    tasks = in_database(tmp_path, "sqlite")
    state = mgmt.Database(data={"nodes": tmp_path / "nodes.json"})
    state.attach(tasks.data)
    state.load_schema(SCHEMA)
    plan = mgmt.Model.build(state, POLICIES).solve(budget=5)
    (tmp_path / "nodes.json").write_text('[{"name": "n1", "memory": 20}]')
    with pytest.raises(StalePlanError):
        state.apply(plan)
    assert dict(tasks.rows()) == {2: "n1", 1: "n1", 3: None}


def test_after_an_error_everything_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "tasks.csv").write_text("id,memory\n1,many\n")
    state = mgmt.Database(data=[tmp_path / "nodes.csv", tmp_path / "tasks.csv"])
    state.load_schema(SCHEMA)
    for _ in range(2):
        with pytest.raises(DataError, match="'many' is no integer"):
            state.refresh()
    (tmp_path / "tasks.csv").write_text("id,memory\n1,4\n")
    assert state.execute("SELECT count(*) FROM nodes, tasks") == [(2,)]


def test_a_file_without_a_column_for_the_plan_gets_one(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("name,memory\nn1,9\n")
    (tmp_path / "tasks.csv").write_text("id,memory\n1,4\n")
    state = mgmt.Database(data=[tmp_path / "nodes.csv", tmp_path / "tasks.csv"])
    state.load_schema(SCHEMA)
    state.apply(mgmt.Model.build(state, POLICIES).solve(budget=5))
    assert (tmp_path / "tasks.csv").read_text() == "id,memory,host\n1,4,n1\n"


TEXTS = ("", " ", '"', 'a"b', "a,b", "x\r\ny", "\n", "\\.", "\\n", "NULL", "#x", "\t", "ü", "'", "a;b", "007")


@pytest.mark.parametrize(
    "kind", ["csv", "json", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)
def test_texts_come_as_they_are_and_are_written_as_they_are(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    rows = [*enumerate(TEXTS), (len(TEXTS), None)]
    wide = [(*row, row[1]) for row in rows]
    data: str | Path = tmp_path / f"t.{kind}"
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        namespace = server.new_namespace()
        data = server.url(namespace)
        with psycopg.connect(data) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t (id int, x text, host text)")
            cursor.executemany("INSERT INTO t VALUES (%s, %s, %s)", wide)
    elif kind == "sqlite":
        with closing(sqlite3.connect(str(data))) as file, file:
            file.execute("CREATE TABLE t (id int, x text, host text)")
            file.executemany("INSERT INTO t VALUES (?, ?, ?)", wide)
    elif kind == "csv":
        pl.DataFrame(wide, schema=["id", "x", "host"], orient="row").write_csv(data)
    else:
        Path(data).write_text(json.dumps([{"id": number, "x": x, "host": x} for number, x in rows]))
    state = mgmt.Database(data=data)
    schema = "CREATE TABLE t (id INTEGER PRIMARY KEY, x TEXT, host TEXT{});"
    state.load_schema(schema.format(", variable__host TEXT DOMAIN (SELECT x FROM t WHERE x IS NOT NULL)"))
    assert state.execute("SELECT id, x FROM t ORDER BY id") == rows
    # The plan turns their order round.
    joined = f"t AS a JOIN t AS b ON b.id = {len(TEXTS) - 1} - a.id"
    turned = f"CREATE CONSTRAINT turned AS SELECT a.id FROM {joined} CHECK a.variable__host = b.x;"
    state.apply(mgmt.Model.build(state, turned).solve(budget=5))
    again = mgmt.Database(data=data)
    again.load_schema(schema.format(""))
    found = again.execute(f"SELECT id, x, host FROM t WHERE id < {len(TEXTS)} ORDER BY id")
    assert found == [(number, x, TEXTS[-1 - number]) for number, x in rows[:-1]]
    state.close()
    again.close()


@pytest.mark.parametrize(
    "outside", ["csv", pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)
def test_who_writes_while_a_plan_is_written_is_not_overwritten(outside: Outside) -> None:
    (source, *_) = reversed(open_sources(outside.data))
    source.read({"tasks"}, lambda name, rows: None)
    table = parse_schema(SourceText("schema.sql", SCHEMA)).table("tasks")
    with pytest.raises(ChangedError), source.changing():  # noqa: PT012 - found in the end, or by the write
        if source.names is None:
            outside.add(
                4
            )  # to the server it is as if this had come afterwards, but for the row that both change
            outside.change()
        write(source, [Change(table, ("variable__host", "host"), {(1,): "n2", (2,): "n1", (3,): "n1"})])
        if source.names is not None:
            outside.add(4)
    assert dict(outside.rows()) == {2: "n1", 1: "n1", 3: None, 4: None}
    with pytest.raises(ChangedError), source.changing():
        pass
    source.close()


COLUMNS = {"id": [1, 2, 3], "memory": [4, 5, 2], "host": ["n1", None, "n1"], "other": [None, 1.5, None]}


class Arrow:
    """Anything that streams columns as Arrow does."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "data",
    [
        [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)],
        COLUMNS,
        {**COLUMNS, "id": np.arange(1, 4), "memory": np.array([4, 5, 2], dtype=np.float32)},
        {**COLUMNS, "host": np.ma.masked_array(["n1", "", "n1"], mask=[False, True, False])},
        pd.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS),
        Arrow(pl.DataFrame(COLUMNS)),
    ],
    ids=["dicts", "lists", "numpy", "masked", "pandas", "polars", "arrow"],
)
def test_python_data(data: object) -> None:
    state = mgmt.Database(data={"tasks": data, "nodes": [{"name": "n1", "memory": 20}]})
    state.load_schema(SCHEMA)
    rows = [(1, 4, "n1", "n1"), (2, 5, None, None), (3, 2, "n1", "n1")]
    assert (
        state.execute("SELECT * FROM tasks ORDER BY id") == rows
    )  # a variable begins with the value of today
    state.apply(mgmt.Model.build(state, POLICIES).solve(budget=5))
    assert state.execute("SELECT host FROM tasks WHERE id = 2") == [("n1",)]
    # The rows are the database's own now.
    state.execute("DELETE FROM tasks")
    state.replace_rows({"tasks": pd.DataFrame(COLUMNS) if isinstance(data, list) else data})
    assert state.execute("SELECT * FROM tasks ORDER BY id") == rows


TYPES = (
    "CREATE TABLE t (id INTEGER, name TEXT, yes BOOLEAN, x REAL, day DATE, at TIMESTAMP, n INTEGER DEFAULT 7)"
)


def test_values_are_read_as_the_schema_declares_them(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "ID,name,yes,x,day,at,left_out\n"
        "1,007,0,1e3,2026-11-25,2026-11-25 10:00:00+02,x\n"
        ' 2.0 ,"",true,-1,2026-11-25 00:00:00,2026-11-25T10:00:00Z,\n'
        ",,,,,,\n"
    )
    state = mgmt.Database(data=tmp_path / "t.csv")
    state.load_schema(TYPES)
    assert state.execute("SELECT * FROM t") == [
        (1, "007", False, 1000.0, "2026-11-25", "2026-11-25 08:00:00", 7),
        (2, "", True, -1.0, "2026-11-25", "2026-11-25 10:00:00", 7),
        (None, None, None, None, None, None, 7),
    ]


@pytest.mark.parametrize(
    ("column", "values", "bad"),
    [
        ("id", ["1", "1.5"], "'1.5' is no integer"),
        ("id", ["1", "0x10"], "'0x10' is no integer"),
        ("id", ["1", "9223372036854775808"], "'9223372036854775808' is no integer"),
        ("id", [1.0, 1.5], "'1.5' is no integer"),
        ("id", [1, 2**63], "'9223372036854775808' is no integer"),
        ("yes", [1, 2], "'2' is no boolean"),
        ("yes", ["f", "maybe"], "'maybe' is no boolean"),
        ("x", ["1", "one"], "'one' is no real"),
        ("day", ["2026-11-25", "2026-11-25 10:00"], "'2026-11-25 10:00' is no date"),
        ("at", [datetime(2026, 11, 25, tzinfo=UTC), "soon"], "'soon' is no timestamp"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_row(column: str, values: list[Any], bad: str) -> None:
    state = mgmt.Database(data={"t": {column: values}})
    state.load_schema(TYPES)
    with pytest.raises(DataError) as refused:
        state.refresh()
    assert f"row 2: column '{column}' of table 't': {bad}" in str(refused.value)
    assert [row["row"] for row in refused.value.rows] == [2]


def test_a_value_of_another_type_in_a_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as file:
        file.execute("CREATE TABLE t AS SELECT unnest([1, 2::HUGEINT ** 63]) AS id")
    state = mgmt.Database(data=path)
    state.load_schema("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    with pytest.raises(
        DataError, match=r"t\.duckdb, row 2: column 'id' of table 't': '9\.?2.* is no integer"
    ):
        state.refresh()
    state.close()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "tasks.csv",
            "id,memory\n1,4\n2,\n",
            "tasks.csv, row 2: column 'memory' of table 'tasks': it is empty",
        ),
        ("tasks.csv", "id\n1\n", "tasks.csv has no column 'memory', which table 'tasks' needs (it has id)"),
        (
            "tasks.csv",
            "id,memory\n1,4\n1,5\n",
            "tasks.csv: table 'tasks' refuses a row: PRIMARY KEY (id) is broken: id 1",
        ),
        (
            "tasks.csv",
            "id,memory,hosts\n1,4,a\n",
            "tasks.csv has no column 'host', which table 'tasks' declares, but 'hosts' (rename it there",
        ),
        (
            "tasks.csv",
            "id,memory\n1,4\n2,5,6\n",
            "tasks.csv: line 3: 3 value(s) for 2 column(s)",
        ),
        (
            "tasks.csv",
            'id,memory\n1,"4\n',
            "tasks.csv: line 2, column 'memory': the double quote that begins",
        ),
        ("tasks.csv", "", "tasks.csv has no header"),
        (
            "tasks.csv",
            "id,memory,ID\n1,2,3\n",
            "tasks.csv has two columns 'ID' (case does not tell columns apart",
        ),
        ("tasks.csv", "\xff\n", "tasks.csv: line 1, column 1: byte ff is no UTF-8 (save it as UTF-8)"),
        ("tasks.json", '[{"id": 1]', "tasks.json is no JSON: line 1, column 10: Expecting ',' delimiter"),
        ("tasks.json", "[1]", "tasks.json holds no rows"),
        ("tasks.parquet", "id,memory", "tasks.parquet: it is damaged, or no Parquet file"),
        ("tasks.xls", "id,memory", "tasks.xls is no kind of file that holds rows"),
        ("tasks.sqlite", "SQLite format 3\0 and then", "tasks.sqlite"),
    ],
)
def test_a_file_that_is_wrong_is_said_so(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    state = mgmt.Database()
    state.load_schema(SCHEMA)
    with pytest.raises(PolicyError) as refused:  # noqa: PT012 - some are found when it is opened
        state.attach(tmp_path / name)
        state.refresh()
    assert message in str(refused.value)
    assert state.version == 0


@pytest.mark.parametrize(
    ("declared", "found", "is_meant"),
    [
        ("memory", "memroy", True), ("pods", "podz", True), ("Cost", "costs", True),
        ("max_replicas", "max_replcas", True), ("tasks_2025", "tasks_2024", False),
        ("disk1", "disk2", False), ("zone_a", "zone_b", False), ("memory_mb", "memory_gb", False),
        ("min_replicas", "max_replicas", False), ("target_host", "target_port", False),
        ("host", "host_of_yesterday", False),
    ],
)  # fmt: skip
def test_another_name_is_a_misspelt_one_where_the_letters_of_one_word_differ(
    declared: str, found: str, is_meant: bool
) -> None:
    assert misspelt(declared, ["rack", found]) == (found if is_meant else None)


def test_tables_that_nobody_declares_have_the_types_found(tmp_path: Path) -> None:
    (tmp_path / "zones.csv").write_text("zone,first,cost\na,2026-11-25,1\nb,2026-11-26,2\n")
    tags = pl.DataFrame({"zone": ["a", "b"], "tags": [["x"], ["y", "z"]]})
    state = mgmt.Database(data={"zone": tmp_path / "zones.csv", "tag": tags})
    state.load_schema(
        "CREATE TABLE task (id INTEGER PRIMARY KEY, variable__zone TEXT NOT NULL DOMAIN (SELECT zone FROM zone));"
    )
    state.insert("task", [{"id": 1}])
    policies = """
        CREATE CONSTRAINT only AS SELECT * FROM task JOIN zone ON zone.zone = variable__zone
        JOIN tag ON tag.zone = zone.zone WHERE first < DATE '2026-11-26' OR tags ->> '$[0]' = 'x'
        CHECK false;
        CREATE CONSTRAINT cheap AS SELECT cost FROM task JOIN zone ON zone.zone = variable__zone MINIMIZE sum(cost);
    """
    plan = mgmt.Model.build(state, policies).solve(budget=5)
    assert [delta.new for delta in plan.deltas] == ["b"]
    # One that is declared after all is read as that.
    state.load_schema("CREATE TABLE zone (zone TEXT PRIMARY KEY, cost REAL);")
    assert state.execute("SELECT * FROM zone") == [("a", 1.0), ("b", 2.0)]


def test_two_sources_for_one_table_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(NODES)
    with pytest.raises(DuplicateNameError, match=r"table 'nodes' comes from .*a\.csv and from .*a\.csv"):
        mgmt.Database(data=[f"nodes={tmp_path}/a.csv", f"nodes={tmp_path}/a.csv"])


def test_a_name_with_characters_of_patterns_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "nodes[1]*.csv").write_text(NODES)
    (tmp_path / "nodes1.csv").write_text(NODES.replace("n1", "n9"))
    state = mgmt.Database(data={"nodes": tmp_path / "nodes[1]*.csv"})
    assert state.execute("SELECT name FROM nodes") == [("n1",), ("n2",)]


def test_a_policy_cannot_read_files(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    state = mgmt.Database(data=tmp_path / "nodes.csv")
    with pytest.raises(PolicyError):
        state.execute(f"SELECT * FROM read_csv('{tmp_path}/nodes.csv')")


def test_without_psycopg_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "import mgmt\n"
        "mgmt.Database().close()\n"
        "try: mgmt.Database('postgresql://localhost/state')\n"
        "except mgmt.StateDatabaseError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'rota[postgres]'" in done.stdout


@pytest.mark.parametrize(
    ("url", "advice", "retryable"),
    [
        ("mysql://localhost/state", "postgresql://user@host/database", False),
        ("postgresql://[state", "postgresql://user@host:port/database", False),
        ("postgresql://localhost/state?colour=red", "postgresql://user@host:port/database", False),
        ("postgresql://rota:secret@/state?host=/nowhere", "is the server running", True),
    ],
)
def test_an_address_that_leads_nowhere(url: str, advice: str, retryable: bool) -> None:
    with pytest.raises(StateDatabaseError) as caught:
        mgmt.Database(url).refresh()
    assert advice in str(caught.value)
    assert caught.value.retryable is retryable
    assert "secret" not in str(caught.value)


@pytest.mark.postgres
def test_a_connection_that_broke_meanwhile_is_made_again(postgres_server: PostgresServer) -> None:
    outside = on_server(postgres_server)
    state = mgmt.Database(outside.data)
    state.load_schema(SCHEMA)
    state.refresh()
    postgres_server.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rota'"
    )
    outside.add(4)
    assert state.execute("SELECT count(*) FROM tasks") == [(4,)]
    state.close()


@pytest.mark.postgres
def test_nothing_of_ours_is_on_the_server_and_views_and_other_types_will_do(
    postgres_server: PostgresServer,
) -> None:
    namespace = postgres_server.new_namespace()
    for statement in (
        "CREATE TYPE colour AS ENUM ('red', 'blue')",
        'CREATE TABLE "Things" (id numeric(9, 2), yes boolean, at timestamptz, paint colour, tags text[], gone int)',
        """INSERT INTO "Things" VALUES (1, true, '2026-11-25 10:00+02', 'red', '{a,b}')""",
        'INSERT INTO "Things" (id, yes) VALUES (2, false)',
        'ALTER TABLE "Things" DROP COLUMN gone',
        'CREATE VIEW seen AS SELECT id, yes FROM "Things"',
    ):
        postgres_server.run(statement, namespace)
    made = f"SELECT relname FROM pg_class WHERE relnamespace = '{namespace}'::regnamespace ORDER BY 1"
    before = postgres_server.run(made)
    state = mgmt.Database(postgres_server.url(namespace))
    state.load_schema(
        "CREATE TABLE things (id INTEGER PRIMARY KEY, yes BOOLEAN, at TIMESTAMP, paint TEXT, tags TEXT);"
        "CREATE TABLE seen (id INTEGER PRIMARY KEY, yes BOOLEAN); CREATE TABLE absent (id INTEGER);"
    )
    assert state.execute("SELECT * FROM things ORDER BY id") == [
        (1, True, "2026-11-25 08:00:00", "red", "{a,b}"),
        (2, False, None, None, None),
    ]
    postgres_server.run('UPDATE "Things" SET yes = true', namespace)
    assert state.execute("SELECT * FROM seen ORDER BY id") == [(1, True), (2, True)]
    assert postgres_server.run(made) == before
    state.close()


@pytest.mark.postgres
def test_who_may_not_write_is_told_so(postgres_server: PostgresServer) -> None:
    outside = on_server(postgres_server)
    namespace = outside.data.rpartition("search_path%3D")[2]
    postgres_server.run("CREATE ROLE reader LOGIN")
    postgres_server.run(f"GRANT USAGE ON SCHEMA {namespace} TO reader")
    postgres_server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA {namespace} TO reader")
    state = mgmt.Database(postgres_server.url(namespace, user="reader"))
    state.load_schema(SCHEMA)
    plan = mgmt.Model.build(state, POLICIES).solve(budget=5)
    with pytest.raises(
        StateDatabaseError, match=r"no permission in the database postgres at .*applies UPDATE"
    ):
        state.apply(plan)
    assert state.execute("SELECT host FROM tasks WHERE id = 1") == [("n1",)]  # here neither
    state.close()
