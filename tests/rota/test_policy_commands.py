"""``rota policy``: tables, one JSON document, exit status, and errors that point at the character."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mgmt.state.database import Database
from tests.postgres_server import PostgresServer
from tests.rota.test_command_line import run

SCHEMA = """\
CREATE TABLE host (name TEXT PRIMARY KEY, rack TEXT NOT NULL, memory INTEGER NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, memory INTEGER NOT NULL, host TEXT,
  variable__host TEXT NOT NULL REFERENCES host (name));
"""
RULES = """\
-- A host holds no more than it has memory for.
CREATE CONSTRAINT memory AS
SELECT host.name FROM task JOIN host ON task.variable__host = host.name
GROUP BY host.name, host.memory CHECK sum(task.memory) <= host.memory;

CREATE CONSTRAINT fewest_moves AS
SELECT id FROM task WHERE variable__host <> host MINIMIZE count(*);
"""
ROWS = """\
INSERT INTO host VALUES ('h0', 'r0', 8), ('h1', 'r1', 8);
INSERT INTO task (id, memory, host) VALUES (1, 6, 'h0'), (2, 5, 'h0'), (3, 1, NULL);
"""
TESTS = """\
INSERT INTO host VALUES ('h0', 'r0', 8), ('h1', 'r1', 8);
TEST 'two large tasks do not share a host';
INSERT INTO task (id, memory) VALUES (1, 6), (2, 5);
EXPECT task SPREAD;
TEST 'what fits stays';
INSERT INTO task (id, memory, host) VALUES (1, 1, 'h1');
EXPECT task = 'h1';
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (
        ("schema.sql", SCHEMA),
        ("rules.sql", RULES),
        ("rows.sql", ROWS),
        ("tests.sql", TESTS),
    ):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


Output = pytest.CaptureFixture[str]
FILES = ("schema.sql", "rules.sql", "rows.sql")


def document(capsys: Output, *arguments: str) -> tuple[int, Any]:
    status, out, _ = run(capsys, "policy", *arguments, "--json")
    return status, json.loads(out)


def test_list(capsys: Output, files: Path) -> None:
    status, answer = document(capsys, "list", *FILES)
    assert status == 0
    assert [(p["name"], p["kind"], p["where"]) for p in answer["policies"]] == [
        ("memory", "rule", "rules.sql:2:1"),
        ("fewest_moves", "minimize", "rules.sql:6:1"),
    ]
    assert answer["policies"][0]["meaning"] == "A host holds no more than it has memory for."
    assert "fewest_moves" in run(capsys, "policy", "list", *FILES)[1]
    assert {"datastore", "kubernetes"} <= {pack["name"] for pack in document(capsys, "list")[1]["packs"]}
    assert "replication_factor" in run(capsys, "policy", "list", "--pack", "datastore")[1]


def test_errors_point_at_the_character(capsys: Output, files: Path) -> None:
    (files / "wrong.sql").write_text("CREATE CONSTRAINT c AS\n\tSELECT nam FROM host CHECK memory > 0;")
    status, _, err = run(capsys, "policy", "solve", "schema.sql", "wrong.sql")
    assert status == 1
    assert err.splitlines()[0].startswith("rota: wrong.sql:2:9: no column 'nam' (did you mean 'name'")
    assert err.splitlines()[1:] == ["2 | \tSELECT nam FROM host CHECK memory > 0;", "  | \t       ^"]


def test_rows_left_without_a_value_are_named(capsys: Output, files: Path) -> None:
    (files / "schema.sql").write_text(
        (files / "schema.sql").read_text().replace("NOT NULL REFERENCES", "REFERENCES")
    )
    (files / "elsewhere.sql").write_text(
        "CREATE CONSTRAINT c AS SELECT * FROM task CHECK variable__host = 'h99';"
    )
    status, answer = document(capsys, "solve", "schema.sql", "rows.sql", "elsewhere.sql")
    (left,) = answer["unassigned"]
    hint = left.pop("hint")
    assert hint.startswith(
        "declare variable__host NOT NULL, or say that a value is better: CREATE CONSTRAINT"
    )
    reasons = {"c": "a CHECK of NULL is UNKNOWN, which passes"}
    assert left == {"table": "task", "variable": "variable__host", "rows": 3, "of": 3, "satisfied": reasons}
    assert status == 0


def test_what_a_plan_does_not_show_is_said_beside_it(capsys: Output, files: Path) -> None:
    (files / "gone.sql").write_text(ROWS.replace("3, 1, NULL", "3, 1, 'h9'"))
    (files / "none.sql").write_text(
        "CREATE CONSTRAINT none AS SELECT * FROM task WHERE memory > 99 CHECK variable__host = 'h0';"
        "CREATE CONSTRAINT same AS SELECT * FROM task MINIMIZE 5;"
    )
    given = ("solve", "schema.sql", "rules.sql", "none.sql", "--data", "gone.sql")
    status, answer = document(capsys, *given)
    assert (status, [(each["rule"], each["warning"]) for each in answer["remarks"]]) == (
        0,
        [("constant-objective", True), ("no-rows", False), ("no-candidate", False)],
    )
    lines = run(capsys, "policy", *given)[1].splitlines()
    assert lines[-1] == (
        "note: schema.sql:3:3: no-candidate: in 1 of task the host of today is no candidate of variable__host, "
        "so it is decided anew: 3 (h9)"
    )
    assert document(capsys, "solve", *FILES)[1]["remarks"] == []


def test_a_forgotten_file(capsys: Output, files: Path) -> None:
    """Of no tasks the plan was optimal, and nobody noticed."""
    (files / "host.csv").write_text("name,rack,memory\nh0,r0,8\n")
    (files / "task.csv").write_text("id,memory,host\n")
    given = ("policy", "solve", "schema.sql", "rules.sql")
    for data in ((), ("--data", "host.csv")):
        status, _, err = run(capsys, *given, *data)
        assert (status, err) == (
            2,
            "rota: nothing brings rows of 'task', whose variable__host is to be decided: give --data task=FILE, or "
            "INSERT INTO task in a FILE\n",
        )
    status, out, _ = run(capsys, *given, "--data", "host.csv", "--data", "task.csv")
    assert status == 0, "a table may be empty"
    assert "no-rows: task is empty, so no variable__host is decided" in out
    (files / "none.json").write_text('{"task": []}')
    assert run(capsys, *given, "--data", "none.json")[0] == 0
    (files / "empty.sql").write_text("-- to be written\n")
    assert run(capsys, *given, "empty.sql", "--data", "rows.sql")[::2] == (
        2,
        "rota: empty.sql holds no statement: it says nothing\n",
    )


def test_the_time_is_the_present_or_the_one_that_is_said(capsys: Output, files: Path) -> None:
    (files / "late.sql").write_text(
        "CREATE CONSTRAINT late AS SELECT * FROM task CHECK variable__host = 'h0' OR now() >= '2026-11-23 07:40';"
        "CREATE CONSTRAINT elsewhere AS SELECT * FROM task MAXIMIZE sum(variable__host = 'h1');"
    )
    given = ("solve", "schema.sql", "rows.sql", "late.sql")
    for now, host in (("2026-11-23 07:39:59", "h0"), ("2026-11-23 07:40", "h1")):
        status, answer = document(capsys, *given, "--now", now, "--log")
        assert (status, {delta["new"] for delta in answer["deltas"]} - {host}) == (0, set())
        assert answer["moment"].startswith(now.replace(" ", "T"))
        assert f"as of {now}" in run(capsys, "policy", *given, "--now", now, "--bundle", "late.zip")[1]
        again = document(capsys, "solve", "--replay", "late.zip", "--log")[1]
        assert (again["deltas"], again["moment"]) == (answer["deltas"], answer["moment"])
    assert document(capsys, *given)[0] == 0
    status, _, err = run(capsys, "policy", *given, "--now", "noon")
    assert status == 2
    assert err.startswith("rota: --now 'noon' is no time; write dates as")


def test_of_a_long_line_what_stands_around_the_character_is_shown(capsys: Output, files: Path) -> None:
    conditions = " AND ".join(f"memory <> {number}" for number in range(9000, 9400))
    head = f"CREATE CONSTRAINT c AS SELECT name FROM host CHECK {conditions}"
    (files / "wrong.sql").write_text(f"{head} AND nam = 'h0' AND {conditions};\n")
    shown, caret = run(capsys, "policy", "solve", "schema.sql", "wrong.sql")[2].splitlines()[1:]
    assert len(shown) < 140
    assert shown.startswith("1 | …")
    assert shown.endswith("…")
    assert shown[caret.index("^") :].startswith("nam = 'h0' AND memory")
    status, answer = document(capsys, "solve", "schema.sql", "wrong.sql")
    assert (status, answer["code"]) == (1, "policy")
    (files / "bad_rows.sql").write_text(
        "INSERT INTO host VALUES ('h0', 'r0', 1);\n\nINSERT INTO host VALUES ('h0', NULL, 1);"
    )
    err = run(capsys, "policy", "solve", "schema.sql", "rules.sql", "--data", "bad_rows.sql")[2]
    assert err.startswith("rota: bad_rows.sql:3:1: the state database refuses this: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("solve",), "there is no schema"),
        (
            ("solve", "--pack", "unknown"),
            "there is no policy pack 'unknown': the installed ones are borg, datastore, kubernetes, vm_balance",
        ),
        (("solve", "schema.sql"), "there are no policies"),
        (("solve", "nowhere.sql"), "cannot read nowhere.sql"),
        (("test", *FILES), "there are no tests"),
        (("solve", *FILES, "--db", "nowhere.sqlite"), "there is no state database nowhere.sqlite"),
        (("solve", *FILES, "--apply"), "--apply needs where to write to"),
        (("solve", *FILES, "--replay", "x.zip"), "--replay takes everything from the bundle"),
        (("solve", "--replay", "nowhere.zip"), "cannot read nowhere.zip"),
    ],
)
def test_what_cannot_be_meant(capsys: Output, files: Path, arguments: tuple[str, ...], message: str) -> None:
    status, _, err = run(capsys, "policy", *arguments)
    assert status == 2
    assert err.startswith(f"rota: {message}")


def test_solve(capsys: Output, files: Path) -> None:
    status, answer = document(capsys, "solve", *FILES, "--log")
    assert (status, answer["status"]) == (0, "optimal")
    (objective,) = answer["objectives"]
    assert (objective["name"], objective["before"], objective["after"], objective["proven"]) == (
        "fewest_moves", None, 1, True,
    )  # fmt: skip
    causes = {delta["primary_key"][0]: delta["cause"] for delta in answer["deltas"]}
    assert causes[3] == "required"
    out = run(capsys, "policy", "solve", *FILES, "--log")[1]
    assert out.startswith("optimal: 2 changes, in ")
    assert "required: it had no value" in out


def test_solve_what_cannot_be(capsys: Output, files: Path) -> None:
    (files / "more.sql").write_text("INSERT INTO task (id, memory) VALUES (4, 7);")
    status, answer = document(capsys, "solve", *FILES, "--data", "more.sql")
    assert (status, answer["status"]) == (1, "infeasible")
    assert [member["constraint"] for member in answer["core"]] == ["memory"]
    assert answer["core"][0]["clash"] == "together they need at least 19 and allow 16"
    assert any(relaxation["text"].startswith("raise h") for relaxation in answer["relaxations"])
    status, out, err = run(capsys, "policy", "solve", *FILES, "--data", "more.sql")
    assert status == 1
    assert "Any one of these helps:" in out
    assert err == "rota: no placement satisfies these constraints together: memory (rules.sql:2:1)\n"


def test_rows_as_json(capsys: Output, files: Path) -> None:
    rows = {"host": [{"name": "h9", "rack": "r", "memory": 1}], "task": [{"id": 1, "memory": 1}]}
    (files / "rows.json").write_text(json.dumps(rows))
    answer = document(capsys, "solve", "schema.sql", "rules.sql", "--data", "rows.json")[1]
    assert [delta["new"] for delta in answer["deltas"]] == ["h9"]
    for text, message in (
        ("{", "is no JSON"),
        ('{"host": 1}', "is no list of rows"),
    ):
        (files / "rows.json").write_text(text)
        assert message in run(capsys, "policy", "solve", "schema.sql", "rules.sql", "--data", "rows.json")[2]


def test_a_file_that_no_schema_declares_is_a_table_and_is_kept_in_a_bundle(
    capsys: Output, files: Path
) -> None:
    (files / "lab.csv").write_text(',"node",code,variable__x\n0,h0,0100,1\n1,h1,1,2\n')
    rule = "SELECT task.id FROM task JOIN lab ON variable__host = lab.node CHECK lab.code = '0100'"
    (files / "lab.sql").write_text(f"CREATE CONSTRAINT only AS {rule};")
    given = ("schema.sql", "lab.sql", "--data", "rows.sql", "--data", "lab.csv", "--bundle", "lab.zip")
    status, answer = document(capsys, "solve", *given)
    assert (status, {delta["new"] for delta in answer["deltas"]}) == (0, {"h0"})
    assert document(capsys, "solve", "--replay", "lab.zip")[1]["deltas"] == answer["deltas"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_every_text_may_begin_with_a_byte_order_mark(capsys: Output, files: Path, encoding: str) -> None:
    for name in (*FILES, "tests.sql"):
        (files / name).write_text((files / name).read_text(), encoding=encoding)
    assert document(capsys, "solve", *FILES)[1]["status"] == "optimal"
    assert run(capsys, "policy", "test", "schema.sql", "rules.sql", "tests.sql")[0] == 0
    rows = {"host": [{"name": "h9", "rack": "r", "memory": 9}], "task": [{"id": 1, "memory": 1}]}
    (files / "rows.json").write_text(json.dumps(rows), encoding=encoding)
    given = ("schema.sql", "rules.sql", "--data")
    assert document(capsys, "solve", *given, "rows.json")[1]["deltas"][0]["new"] == "h9"
    (files / "rows.json.gz").write_bytes(gzip.compress((files / "rows.json").read_bytes()))
    assert document(capsys, "solve", *given, "rows.json.gz")[1]["deltas"][0]["new"] == "h9"
    (files / "rules.sql").write_bytes("-- \nKöln".encode("latin-1"))
    status, _, err = run(capsys, "policy", "solve", "schema.sql", "rules.sql")
    assert (status, err) == (2, "rota: rules.sql: line 2, column 2: byte f6 is no UTF-8 (save it as UTF-8)\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"host": [{"name": "h9", "memory": "x"}]}', ", row 1: table 'host' refuses a row: column 'memory': 'x'"),
        ('{"hosts": []}', ": no table 'hosts'"),
        ('{"host": [{"name": "h9"}, {"name": "h8", "rak": 1}]}', ": no column 'rak' in table 'host'"),
        ('{"host": 1}', ": 'host' is no list of rows"),
        ('{"host": [1]}', ": 'host' is no list of rows"),
        ('{"host": [}', " is no JSON: line 1, column 11: Expecting value"),
        ("{" * 100_000, " is no JSON: line 1, column 2: Expecting property name"),
    ],
)  # fmt: skip
def test_rows_of_several_tables_that_are_wrong(capsys: Output, files: Path, text: str, message: str) -> None:
    (files / "rows.json").write_text(text)
    status, _, err = run(capsys, "policy", "solve", "schema.sql", "rules.sql", "--data", "rows.json")
    assert status == 1
    assert err.startswith(f"rota: rows.json{message}")


def test_one_object_is_a_row_of_the_table_that_its_file_is_called_as(capsys: Output, files: Path) -> None:
    (files / "host.json").write_text('{"name": "h9",\n "rack": "r", "memory": 9}')
    (files / "tasks.jsonl").write_text('{"id": 1, "memory": 1}\n')
    given = ("schema.sql", "rules.sql", "--data", "host.json", "--data", "task=tasks.jsonl", "--apply")
    assert document(capsys, "solve", *given)[1]["deltas"][0]["new"] == "h9"


@dataclass
class Kept:
    """A database of some kind: its address, and what another program does with it."""

    url: str
    run: Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(params=["state", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def kept(request: pytest.FixtureRequest, files: Path) -> Kept:
    """A state database of rota's own, or one in which there is nothing of rota's; with nothing in it."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        namespace = server.new_namespace()
        return Kept(server.url(namespace), lambda *texts: [server.run(text, namespace) for text in texts][-1])

    def run_sqlite(*texts: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect("rows.sqlite")) as connection, connection:
            return [connection.execute(text).fetchall() for text in texts][-1]

    def run_state(*texts: str) -> list[tuple[Any, ...]]:
        with closing(Database("state.db")) as state:
            for text in texts:
                if text.startswith("CREATE"):
                    state.load_schema(text)
                else:
                    found = state.execute(text)
            return found

    kept = Kept("rows.sqlite", run_sqlite) if request.param == "sqlite" else Kept("state.db", run_state)
    kept.run("CREATE TABLE other (id INTEGER PRIMARY KEY)", "SELECT * FROM other")
    return kept


TABLES = [
    *SCHEMA.replace(" REFERENCES host (name)", "")
    .replace("variable__host TEXT NOT NULL", "note TEXT")
    .split(";")[:2]
]


def test_a_database_is_read_and_written_only_to_apply(capsys: Output, files: Path, kept: Kept) -> None:
    tables = [SCHEMA] if kept.url == "state.db" else TABLES
    kept.run(
        *tables, "INSERT INTO host VALUES ('h0', 'r0', 8)", "INSERT INTO task (id, memory) VALUES (1, 1)"
    )
    arguments = ("solve", "schema.sql", "rules.sql", "--db", kept.url)
    everything = "SELECT * FROM task, host"
    before = kept.run(everything)
    assert document(capsys, *arguments)[0] == 0
    run(capsys, "policy", "what-if", "DELETE FROM task", "schema.sql", "rules.sql", "--db", kept.url)
    assert run(capsys, "policy", "why", "task:1", "schema.sql", "rules.sql", "--db", kept.url)[0] == 0
    assert kept.run(everything) == before
    assert document(capsys, *arguments, "--apply")[0] == 0
    assert kept.run("SELECT host FROM task") == [("h0",)]
    (files / "more.sql").write_text("INSERT INTO host VALUES ('h7', 'r0', 8);")
    status, _, err = run(capsys, "policy", *arguments, "more.sql", "--apply")
    assert (status, "leave out INSERT" in err) == (2, True)
    assert "\nnothing to apply; the state stays at" in run(capsys, "policy", *arguments, "--apply")[1]
    kept.run("UPDATE task SET host = NULL")
    assert "\napplied; the state is at version " in run(capsys, "policy", *arguments, "--apply")[1]


def test_tables_that_a_database_lacks_are_empty_ones_and_are_not_made(
    capsys: Output, files: Path, kept: Kept
) -> None:
    tables = [SCHEMA] if kept.url == "state.db" else TABLES
    kept.run(
        *tables,
        "INSERT INTO host VALUES ('h0', 'r0', 8), ('h1', 'r1', 8)",
        "INSERT INTO task (id, memory) VALUES (1, 1), (2, 1)",
    )
    (files / "pins.sql").write_text(
        "CREATE TABLE pin (task INTEGER PRIMARY KEY REFERENCES task (id), host TEXT NOT NULL);"
        "CREATE CONSTRAINT pinned AS SELECT * FROM task JOIN pin ON pin.task = task.id CHECK variable__host = pin.host;"
    )
    (files / "pin_rows.sql").write_text("INSERT INTO pin VALUES (2, 'h1');")
    arguments = ("solve", "schema.sql", "rules.sql", "pins.sql", "--db", kept.url)
    assert document(capsys, *arguments)[0] == 0
    answer = document(capsys, *arguments, "--data", "pin_rows.sql")[1]
    assert {(delta["primary_key"][0], delta["new"]) for delta in answer["deltas"]} >= {(2, "h1")}
    assert document(capsys, *arguments, "--apply")[0] == 0
    with pytest.raises(Exception, match="pin"):
        kept.run("SELECT * FROM pin")


def test_a_database_without_any_of_the_tables(capsys: Output, files: Path, kept: Kept) -> None:
    status, _, err = run(capsys, "policy", "solve", "schema.sql", "rules.sql", "--db", kept.url)
    assert (status, "has none of the schema's tables" in err) == (2, True), err


def test_a_file_that_is_called_almost_as_a_table_is_not_left_out(capsys: Output, files: Path) -> None:
    """No rule would find rows in the table, and so none would be broken."""
    (files / "hosts.csv").write_text("name,memory\nh1,8\n")
    (files / "taskz.csv").write_text("id,memory\n1,9\n")
    (files / "two.sql").write_text(
        "CREATE TABLE hosts (name TEXT PRIMARY KEY, memory INTEGER); CREATE TABLE tasks (id INTEGER PRIMARY KEY,"
        " memory INTEGER, variable__host TEXT NOT NULL REFERENCES hosts (name));"
    )
    (files / "rule.sql").write_text("CREATE CONSTRAINT some AS SELECT * FROM tasks CHECK memory < 9")
    arguments = ("policy", "solve", "two.sql", "rule.sql", "--data", "hosts.csv", "--data")
    status, _, err = run(capsys, *arguments, "taskz.csv")
    assert (status, "write --data tasks=FILE" in err) == (2, True), err
    assert run(capsys, *arguments, "tasks=taskz.csv")[0] == 1, "the rule is broken"
    (files / "tasks.sql").write_text("INSERT INTO tasks (id, memory) VALUES (1, 9)")
    assert run(capsys, *arguments, "taskz.csv", "--data", "tasks.sql")[0] == 1, "its rows come from elsewhere"


def test_what_is_no_state_database_stays_as_it_is(capsys: Output, files: Path) -> None:
    with closing(duckdb.connect("other.db")) as connection:
        connection.execute("CREATE TABLE host AS SELECT 1 AS one")
    before = Path("other.db").read_bytes()
    status, _, err = run(capsys, "policy", "solve", "schema.sql", "rules.sql", "--db", "other.db")
    assert (status, "is no state database" in err, "--data" in err) == (1, True, True), err
    assert Path("other.db").read_bytes() == before


def test_tables_from_several_places(capsys: Output, files: Path) -> None:
    Path("machines.csv").write_text("name,rack,memory\nh0,r0,8\n")
    with closing(sqlite3.connect("rows.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE task (id INTEGER, memory INTEGER, host TEXT)")
        connection.execute("INSERT INTO task VALUES (1, 6, NULL)")
    arguments = ("solve", "schema.sql", "rules.sql", "--data", "host=machines.csv", "--db", "rows.sqlite")
    answer = document(capsys, *arguments)[1]
    assert [(delta["table"], delta["new"]) for delta in answer["deltas"]] == [("task", "h0")]
    assert document(capsys, *arguments, "--apply")[0] == 0
    assert document(capsys, *arguments)[1]["status"] == "unchanged"


def test_a_server_that_is_not_there_is_said_so(capsys: Output, files: Path) -> None:
    arguments = ("policy", "solve", "schema.sql", "rules.sql", "--db")
    status, _, err = run(capsys, *arguments, "postgresql://rota:secret@/state?host=/nowhere")
    assert (status, "is the server running" in err, "secret" in err) == (1, True, False), err


def test_lint(capsys: Output, files: Path) -> None:
    status, answer = document(capsys, "lint", *FILES)
    assert status == 0
    assert [(finding["rule"], finding["warning"]) for finding in answer["findings"]] == [
        ("violated-today", False)
    ]
    (files / "odd.sql").write_text("CREATE CONSTRAINT odd AS SELECT * FROM task CHECK host <> 'h9';")
    status, out, err = run(capsys, "policy", "lint", *FILES, "odd.sql")
    assert (status, err) == (1, "rota: 1 warning\n")
    assert out.startswith("warning: odd.sql:1:45: frozen-variable: ")
    assert "    1 | CREATE CONSTRAINT odd" in out
    assert out.endswith("1 warning, 2 notes\n")


def test_explain(capsys: Output, files: Path) -> None:
    status, answer = document(capsys, "explain", *FILES)
    assert status == 0
    memory = answer["queries"][0]
    assert memory["position"] == "rules.sql:2:1"
    assert memory["database_sql"].startswith('SELECT "task".rowid')
    assert memory["groups"] == ['"host"."name"', '"host"."memory"']
    assert (memory["lifted"], memory["left_out"]) == (["a limit on the load of 2 buckets"], [])
    assert memory["solver_sql"][-1] == 'CHECK SUM("task"."memory") <= "host"."memory"'
    assert (memory["fetched_rows"], memory["rows"], memory["linear_rows"]) == (5, 2, 2), (
        "tasks and hosts, apart"
    )
    assert memory["columns"][0] == {"name": "name", "type": "text", "decided": False}
    assert memory["literals"] == 6, "three tasks, two hosts"
    assert answer["problem"]["decisions"] == 3
    assert {delta["column"] for delta in answer["solve"]["deltas"]} == {"host"}
    assert answer["solve"]["status"] == "optimal"
    out = run(capsys, "policy", "explain", *FILES, "--no-solve")[1]
    assert "left to the solver" in out
    assert "solved:" not in out
    out = run(capsys, "policy", "explain", *FILES)[1]
    assert "\n  lifted to              a limit on the load of 2 buckets\n" in out
    assert "\n  part                   backend: " in out
    assert "\n  columns                name text" in out
    assert " over 6 literals, " in out
    assert re.search(r"\n task \d +host +- +h\d", out), "what changes"


def test_the_memory_to_solve_in_is_a_size(capsys: Output, files: Path) -> None:
    assert run(capsys, "policy", "solve", *FILES, "--memory", "100M")[0] == 0
    status, _, err = run(capsys, "policy", "solve", *FILES, "--memory", "10M")
    assert (status, "'10M' is less than 64M" in err) == (2, True), err


def test_explain_says_what_is_left_to_the_solver_and_why(capsys: Output, files: Path) -> None:
    (files / "near.sql").write_text(
        "CREATE VIEW latency AS SELECT one, other, ms"
        " FROM (VALUES ('h0', 'h1', 1), ('h1', 'h0', 3)) AS measured (one, other, ms);"
        "CREATE CONSTRAINT near AS SELECT a.id FROM task AS a JOIN task AS b ON b.id = a.id + 1"
        " JOIN latency ON a.variable__host = one AND b.variable__host = other MINIMIZE sum(ms);"
    )
    status, answer = document(capsys, "explain", *FILES, "near.sql")
    assert status == 0
    left_out = {query["name"]: query["left_out"] for query in answer["queries"] if query["left_out"]}
    assert list(left_out) == ["near"]
    (reason,) = left_out["near"]
    assert answer["solve"]["statistics"]["left_out"] == [f"near: {reason}"]
    out = run(capsys, "policy", "explain", *FILES, "near.sql", "--no-solve")[1]
    assert f"\n  not lifted             {reason}\n" in out
    assert out.endswith("\nnot lifted, so CP-SAT goes on from the engines' plan for the rest: near\n")


def test_explain_saves_the_model_for_other_solvers(capsys: Output, files: Path) -> None:
    (files / "level.sql").write_text(
        "CREATE CONSTRAINT last AS SELECT id FROM task WHERE variable__host = 'h1' MINIMIZE count(*) TIER 2;"
    )
    given = (*FILES, "level.sql", "--no-solve", "--minizinc", "model.mzn")
    assert run(capsys, "policy", "explain", *given)[0] == 0
    first = (files / "model.mzn").read_text()
    assert first.count("solve minimize") == 1
    assert "% tier" not in first
    assert run(capsys, "policy", "explain", *given, "--tier", "2")[0] == 0
    second = (files / "model.mzn").read_text()
    assert "<= 1; % tier 1" in second, "one of the two large tasks has to move"
    assert second.splitlines()[-1] != first.splitlines()[-1]
    status, _, err = run(capsys, "policy", "explain", *given, "--tier", "3")
    assert (status, err) == (1, "rota: there is no tier 3 (the tiers of the objectives: 1, 2)\n")
    assert run(capsys, "policy", "explain", *FILES, "--tier", "2")[0] == 2


def test_test(capsys: Output, files: Path) -> None:
    status, answer = document(capsys, "test", "schema.sql", "rules.sql", "tests.sql")
    assert (status, answer["passed"], answer["coverage"]) == (0, True, 1.0)
    out = run(capsys, "policy", "test", "schema.sql", "rules.sql", "tests.sql")[1]
    assert "ok   what fits stays\n2 of 2 tests passed\n100% of the policies" in out
    (files / "tests.sql").write_text(TESTS.replace("task = 'h1'", "task = 'h0'"))
    status, out, err = run(capsys, "policy", "test", "schema.sql", "rules.sql", "tests.sql")
    assert (status, err) == (1, "rota: 1 of 2 tests failed\n")
    assert "       tests.sql:7:1: EXPECT task = 'h0': task(1) is h1" in out


def test_why_and_why_not(capsys: Output, files: Path) -> None:
    status, answer = document(capsys, "why", "task:1", *FILES)
    assert status == 0
    assert answer["decisions"][0]["variable"] == "variable__host"
    status, answer = document(capsys, "why-not", "task:3", "h7", *FILES)
    assert (status, answer["possible"]) == (0, False)
    out = run(capsys, "policy", "why-not", "task:3", "h7", *FILES)[1]
    assert out == "task 3 cannot have host h7: it is not one of the values to choose from\n"
    for arguments, message in (
        (("why", "task:9"), "rota: no row 9 in table 'task'"),
        (("why", "host:h0"), "rota: the solver decides nothing in table 'host' (it does in task)"),
        (("why-not", "task", "h0"), "rota: 'task' names no row"),
        (("headroom", "task:x"), "rota: 'x' is no value of 'id'"),
    ):
        status, _, err = run(capsys, "policy", *arguments, *FILES)
        assert status == 1
        assert err.startswith(message)


def test_what_if_and_headroom(capsys: Output, files: Path) -> None:
    status, answer = document(capsys, "what-if", "UPDATE host SET memory = 20 WHERE name = 'h0'", *FILES)
    assert (status, answer["after"]["status"]) == (0, "optimal")
    assert answer["difference"]["decisive_tier"] == 1
    status, answer = document(capsys, "what-if", "UPDATE host SET memory = 1", *FILES)
    assert (status, answer["after"]["status"], answer["difference"]) == (1, "infeasible", None)
    status, answer = document(capsys, "headroom", "task:3", *FILES)
    assert (status, answer["count"], answer["exact"]) == (0, 4, True)
    assert [member["constraint"] for member in answer["core"]] == ["memory"]
    assert run(capsys, "policy", "headroom", "task:3", *FILES)[1].startswith("4 more rows like task 3 fit\n")


def test_bundles(capsys: Output, files: Path) -> None:
    before = document(capsys, "solve", *FILES, "--bundle", "today.zip")[1]
    status, out, err = run(capsys, "policy", "solve", "--replay", "today.zip", "--json")
    assert (status, err) == (0, "the same answer as in the bundle\n")
    assert json.loads(out)["deltas"] == before["deltas"]
    (files / "more.sql").write_text("INSERT INTO task (id, memory) VALUES (4, 7);")
    assert document(capsys, "solve", *FILES, "more.sql", "--bundle", "full.zip")[0] == 1
    status, _, err = run(capsys, "policy", "solve", "--replay", "full.zip")
    assert status == 1
    assert err.splitlines()[0] == "the same answer as in the bundle"
    (files / "no.zip").write_text("no bundle")
    assert run(capsys, "policy", "solve", "--replay", "no.zip")[0] == 1


def test_diff(capsys: Output, files: Path) -> None:
    document(capsys, "solve", *FILES, "--bundle", "one.zip")
    (files / "more.sql").write_text("UPDATE host SET memory = 20 WHERE name = 'h0'")
    (files / "level.sql").write_text(
        "CREATE CONSTRAINT level AS SELECT id FROM task MINIMIZE count(*) TIER 2;"
    )
    document(capsys, "solve", *FILES, "more.sql", "level.sql", "--bundle", "other.zip")
    status, answer = document(capsys, "diff", "one.zip", "other.zip")
    assert (status, answer["one"]["status"], answer["other"]["status"]) == (0, "optimal", "optimal")
    found = answer["difference"]
    back = [change for change in found["decisions"] if change["primary_key"] != [3]]
    assert [(change["one"], change["other"]) for change in back] == [("h1", "h0")], "the one that had to move"
    assert (found["only_one"], found["only_other"], found["decisive_tier"]) == ([], ["level"], 1)
    status, out, _ = run(capsys, "policy", "diff", "one.zip", "other.zip")
    assert status == 0
    assert out.startswith("one.zip: optimal, 2 changes against today\nother.zip: optimal, 1 change against")
    assert "row      column   one   other" in out
    assert "only other has: level\n" in out
    assert run(capsys, "policy", "diff", "one.zip", "one.zip")[1].endswith("the plans are the same\n")


def test_diff_with_what_holds_no_plan(capsys: Output, files: Path) -> None:
    document(capsys, "solve", *FILES, "--bundle", "one.zip")
    (files / "more.sql").write_text("INSERT INTO task (id, memory) VALUES (4, 7);")
    document(capsys, "solve", *FILES, "more.sql", "--bundle", "full.zip")
    status, answer = document(capsys, "diff", "one.zip", "full.zip")
    assert (status, answer["difference"], answer["other"]["core"][0]["constraint"]) == (1, None, "memory")
    (files / "no.zip").write_text("no bundle")
    for name, message in (("no.zip", "rota: this is no bundle"), ("none.zip", "rota: cannot read none.zip")):
        status, _, err = run(capsys, "policy", "diff", "one.zip", name)
        assert status != 0
        assert err.startswith(message)
