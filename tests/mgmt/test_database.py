"""The state database: versions, snapshots, compare-and-set, and rows that break the schema."""

from __future__ import annotations

from threading import Thread

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import (
    DataError,
    PolicySyntaxError,
    StalePlanError,
    UnknownColumnError,
    UnknownTableError,
)
from mgmt.state.database import Database
from tests.mgmt.support import BACKEND, database

pytestmark = pytest.mark.usefixtures("each_database")

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, up BOOLEAN NOT NULL, size INTEGER CHECK (size >= 0));
CREATE TABLE task (id INTEGER PRIMARY KEY, home TEXT REFERENCES host (name), host TEXT,
  variable__host TEXT NOT NULL REFERENCES host (name));
"""
ROWS = {"host": [{"name": "a", "up": True, "size": 1}], "task": [{"id": 1}]}
POLICY = "CREATE CONSTRAINT c AS SELECT * FROM task CHECK variable__host = 'a'"


def test_every_change_counts_and_reading_does_not() -> None:
    state = database(SCHEMA)
    assert state.version == 0
    state.insert("host", [{"name": "a", "up": True}, {"name": "b", "up": False}])
    assert state.version == 1
    state.execute("UPDATE host SET size = ? WHERE name = ?", (4, "a"))
    state.execute_many("UPDATE host SET size = ? WHERE name = ?", [(5, "a"), (6, "b")])
    assert state.version == 3
    assert state.execute("SELECT name, up, size FROM host ORDER BY name") == [("a", 1, 5), ("b", 0, 6)]
    state.execute("UPDATE host SET size = 1 WHERE name = 'nobody'")
    assert state.version == 3


def test_a_snapshot_stays_as_it_was() -> None:
    state = database(SCHEMA, ROWS)
    with state.snapshot() as snapshot:
        state.execute("DELETE FROM task")
        assert snapshot.version == state.version - 1
        assert snapshot.rows("SELECT id FROM task") == [(1,)]
        host = state.schema.table("host")
        with snapshot.scratch():
            snapshot.write(host, {"size": {("a",): 7}})
        assert snapshot.rows("SELECT size FROM host") == [(1,)]
        snapshot.write(host, {"size": {("a",): 7}})
    assert state.execute("SELECT size FROM host") == [(1,)], "what is done to a snapshot is seen by nobody"


def test_a_solution_is_applied_to_its_own_version_only() -> None:
    state = database(SCHEMA, ROWS)
    solution = Model.build(state, POLICY).solve()
    assert state.apply(solution) == solution.version + 1
    assert state.execute("SELECT host, variable__host FROM task") == [("a", "a")]
    with pytest.raises(StalePlanError) as caught:
        state.apply(solution)
    assert (caught.value.expected, caught.value.current) == (solution.version, solution.version + 1)


def test_after_a_plan_nothing_moves_for_the_cooldown_unless_something_is_broken() -> None:
    state = database(SCHEMA, ROWS)
    state.insert("host", [{"name": "b", "up": True}])
    policies = """SET cooldown = 60;
        CREATE CONSTRAINT up AS SELECT * FROM task JOIN host ON variable__host = name CHECK up;
        CREATE CONSTRAINT roomy AS SELECT * FROM task JOIN host ON variable__host = name MAXIMIZE sum(size)"""
    model = Model.build(state, policies)

    def chosen(now: float, *, apply: bool = False) -> object:
        solution = model.solve(now=now)
        if apply:
            state.apply(solution, now)
        return solution.assignments["task", "variable__host"][1,]

    assert chosen(1000.0, apply=True) == "a"
    state.execute("UPDATE host SET size = 9 WHERE name = 'b'")
    assert [chosen(now) for now in (1000.0, 1059.9, 1060.0, 999.0)] == ["a", "a", "b", "b"]
    state.execute("UPDATE host SET up = ? WHERE name = 'a'", (False,))
    assert chosen(1001.0, apply=True) == "b"
    state.execute("UPDATE host SET up = ?, size = 10 WHERE name = 'a'", (True,))
    assert [chosen(now) for now in (1060.9, 1061.0)] == ["b", "a"]


def test_what_is_held_back_is_said_and_until_when() -> None:
    state = database(SCHEMA, ROWS)
    state.insert("host", [{"name": "b", "up": True}])
    prefer = (
        "CREATE CONSTRAINT roomy AS SELECT * FROM task JOIN host ON variable__host = name MAXIMIZE sum(size)"
    )
    model = Model.build(state, f"SET cooldown = 60; {prefer}")
    state.apply(model.solve(now=1000.0), 1000.0)
    state.execute("UPDATE host SET size = 9 WHERE name = 'b'")
    assert model.solve(now=1060.0).held == ""
    assert model.solve(now=1001.0).held == (
        "a plan that gains 8 is held back by SET cooldown = 60 until 1970-01-01 00:17:40+00:00"
    )
    least = Model.build(state, f"SET min_gain = 10; {prefer}")
    assert (
        least.solve().held
        == "a plan that gains 8 is held back by SET min_gain = 10, until more is to be gained"
    )
    state.execute("UPDATE host SET size = 0 WHERE name = 'b'")
    assert least.solve().held == "", "there is none that is better"


def test_a_solution_that_changes_nothing_is_not_written(each_database: str) -> None:
    """It counted the version up each time, so that every plan computed meanwhile was stale."""
    assert each_database
    state = database(SCHEMA, ROWS)
    model = Model.build(state, POLICY)
    version = state.apply(model.solve())
    solution = model.solve()
    assert not solution.deltas
    assert state.apply(solution) == version == state.version
    state.insert("host", [{"name": "b", "up": True}])
    with pytest.raises(StalePlanError):
        state.apply(solution)


def test_a_plan_that_moves_nothing_starts_no_cooldown() -> None:
    state = database(SCHEMA, ROWS)
    state.execute("UPDATE task SET host = 'a', variable__host = 'a'")
    state.apply(Model.build(state, POLICY).solve(), 1000.0)
    with state.snapshot() as snapshot:
        assert snapshot.moved_at is None


@pytest.mark.parametrize(
    "row",
    [
        {"name": "b", "up": 7},
        {"name": "b", "up": True, "size": "large"},
        {"name": "b", "up": True, "size": -1},
        {"name": "b"},
        {"name": "a", "up": True},
        {"name": None, "up": True},
        {"name": "b", "up": True, "size": 2**64},
        {"name": b"b", "up": True},
        {"name": "b", "up": "true"},
        {"name": "b", "up": True, "size": 2.5},
    ],
)
def test_rows_that_break_the_schema_are_refused_and_nothing_changes(row: dict[str, object]) -> None:
    state = database(SCHEMA, ROWS)
    before = state.version
    with pytest.raises(DataError) as caught:
        state.insert("host", [{"name": "good", "up": True}, row])  # type: ignore[list-item]
    assert caught.value.rows == (row,)
    assert state.version == before
    assert state.execute("SELECT name FROM host") == [("a",)]


def test_foreign_keys_over_constants_hold_at_the_end_of_the_transaction() -> None:
    state = database(SCHEMA, ROWS)
    with pytest.raises(DataError, match=r"(?i)foreign key"):
        state.insert("task", [{"id": 2, "home": "nobody"}])
    state.replace_rows({"task": [{"id": 3, "home": "z"}], "host": [{"name": "z", "up": True}]})
    assert state.execute("SELECT id, home FROM task") == [(3, "z")]


def test_names_and_statements_that_are_wrong() -> None:
    state = database(SCHEMA)
    with pytest.raises(UnknownTableError):
        state.insert("hosts", [{"name": "a"}])
    with pytest.raises(UnknownColumnError):
        state.insert("host", [{"nam": "a"}])
    with pytest.raises(PolicySyntaxError):
        state.execute("SELEC 1")


def test_like_tells_case_apart_and_text_sorts_by_code_point() -> None:
    state = database(SCHEMA)
    state.insert("host", [{"name": name, "up": True} for name in ("a", "B", "_", "Z", "é", "ab")])
    with state.snapshot() as snapshot:
        assert snapshot.rows("SELECT name FROM host WHERE name LIKE 'A%'") == []
        assert snapshot.rows("SELECT count(*) FROM host WHERE lower(name) LIKE lower('A%')") == [(2,)]
        found = [name for (name,) in snapshot.rows("SELECT name FROM host ORDER BY name")]
    assert found == sorted(found) == ["B", "Z", "_", "a", "ab", "é"]
    assert [name for (name,) in state.execute("SELECT name FROM host ORDER BY name")] == found


def test_statements_with_parameters() -> None:
    state = database(SCHEMA, ROWS)
    state.execute("INSERT INTO host (name, up, size) VALUES ($name, $up, 3)", {"name": "it's ?", "up": True})
    assert state.execute("SELECT size FROM host WHERE name = $1 AND up = $2", ("it's ?", 1)) == [(3,)]
    state.execute(
        "UPDATE host SET up = ?, size = size + ? WHERE name IS NOT DISTINCT FROM ?", (False, 2, "it's ?")
    )
    assert state.execute("SELECT up, size FROM host WHERE name LIKE 'it%'") == [(0, 5)]
    assert state.execute("DELETE FROM host WHERE NOT up RETURNING name") == [("it's ?",)]
    before = state.version
    with pytest.raises(DataError):
        state.execute("UPDATE host SET size = ? WHERE name = 'a'", ("large",))
    with pytest.raises(DataError):
        state.execute_many("UPDATE host SET size = ?", [(1,), (-7,)])
    assert state.version == before
    assert state.execute("SELECT up, size FROM host") == [(1, 1)]


def clients_of_one(kind: str, number: int) -> list[Database]:
    """So many clients of one state; of DuckDB's there is one, which many threads may use."""
    if kind == "duckdb":
        return [BACKEND.open()] * number
    address = BACKEND.address()
    return [BACKEND.open(address) for _ in range(number)]


def test_two_clients_apply_only_one_of_two_plans(each_database: str) -> None:
    clients = clients_of_one(each_database, 2)
    for client in dict.fromkeys(clients):
        client.load_schema(SCHEMA)
    clients[0].insert("host", [{"name": "a", "up": True}])
    clients[1].insert("task", [{"id": 1}])
    solutions = [Model.build(client, POLICY).solve() for client in clients]
    assert clients[1].apply(solutions[1]) == solutions[1].version + 1
    with pytest.raises(StalePlanError):
        clients[0].apply(solutions[0])


def test_plans_applied_at_once_by_many_threads_count_one_by_one(each_database: str) -> None:
    """Each thread solves and applies until its plan is taken: as many versions as plans."""
    clients = clients_of_one(each_database, 3)
    for client in dict.fromkeys(clients):
        client.load_schema(SCHEMA)
    clients[0].insert("host", [{"name": "a", "up": True}, {"name": "b", "up": True}])
    clients[0].insert("task", [{"id": 1}])
    before = clients[0].version
    stale: list[StalePlanError] = []
    move = "CREATE CONSTRAINT move AS SELECT * FROM task CHECK variable__host IS DISTINCT FROM host"

    def apply_three(client: Database) -> None:
        model = Model.build(client, move)
        taken = 0
        while taken < 3:
            try:
                client.apply(model.solve())
                taken += 1
            except StalePlanError as error:
                stale.append(error)

    threads = [Thread(target=apply_three, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert clients[0].version == before + 9


def test_a_snapshot_that_is_read_holds_up_nobody(each_database: str) -> None:
    state = database(SCHEMA, ROWS)
    with state.snapshot() as snapshot, snapshot.scratch():
        assert snapshot.rows("SELECT count(*) FROM host") == [(1,)]
        state.replace_rows({"task": (), "host": [{"name": "z", "up": True}]})
        with state.snapshot() as later:
            assert later.rows("SELECT name FROM host") == [("z",)]
            assert later.version == snapshot.version + 1
        assert snapshot.rows("SELECT name FROM host") == [("a",)]


def test_queries_of_a_snapshot_see_its_tables_only() -> None:
    state = database(SCHEMA, ROWS)
    with state.snapshot() as snapshot:
        for sql in ("SELECT nobody FROM host", "SELECT name FROM hosts", "SELEC 1"):
            with pytest.raises(PolicySyntaxError):
                snapshot.rows(sql)
        assert snapshot.rows("SELECT name FROM host") == [("a",)], "it goes on after a refusal"


def test_long_names_and_names_in_any_case() -> None:
    long, other = f"a{'b' * 70}c", f"a{'b' * 70}d"
    state = database(f'CREATE TABLE "Big Table" ({long} INTEGER PRIMARY KEY, {other} TEXT, "Order" INTEGER)')
    state.insert("big table", [{long: 1, other: "x", "order": 3}])
    assert state.execute(f'SELECT {other}, "ORDER" FROM "BIG TABLE" WHERE {long.upper()} = 1') == [("x", 3)]


def test_defaults_and_checks_are_the_schemas() -> None:
    state = database(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, up BOOLEAN NOT NULL DEFAULT TRUE, n INTEGER DEFAULT -3 "
        "CHECK (n % 2 <> 0), s TEXT DEFAULT 'it''s', CHECK (up OR n > 0)); CREATE UNIQUE INDEX i ON t (s, n)"
    )
    state.insert("t", [{"id": 1}])
    assert state.execute("SELECT * FROM t") == [(1, 1, -3, "it's")]
    for row in ({"id": 2, "n": 4}, {"id": 2, "up": False}, {"id": 2}):
        with pytest.raises(DataError) as caught:
            state.insert("t", [{"id": 3, "n": 1}, row])
        assert caught.value.rows == (row,)
    state.load_schema("CREATE TABLE u (id INTEGER PRIMARY KEY)")
    assert [table.name for table in state.schema.tables] == ["t", "u"]
