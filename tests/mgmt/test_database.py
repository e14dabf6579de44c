"""The state database: versions, snapshots, compare-and-set, and rows that break the schema."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import DataError, PolicySyntaxError, StalePlanError, UnknownColumnError, UnknownTableError
from mgmt.state.database import Database
from tests.mgmt.support import database

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
        with snapshot.scratch():
            snapshot.run("DELETE FROM task")
        assert snapshot.rows("SELECT id FROM task") == [(1,)]
        snapshot.run("DELETE FROM host")
    assert state.execute("SELECT count(*) FROM host") == [(1,)], (
        "what is done to a snapshot is seen by nobody"
    )


def test_a_solution_is_applied_to_its_own_version_only() -> None:
    state = database(SCHEMA, ROWS)
    solution = Model.build(state, POLICY).solve()
    assert state.apply(solution) == solution.version + 1
    assert state.execute("SELECT host, variable__host FROM task") == [("a", "a")]
    with pytest.raises(StalePlanError) as caught:
        state.apply(solution)
    assert (caught.value.expected, caught.value.current) == (solution.version, solution.version + 1)


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
    ],
)
def test_rows_that_break_the_schema_are_refused_and_nothing_changes(row: dict[str, object]) -> None:
    state = database(SCHEMA, ROWS)
    before = state.version
    with pytest.raises(DataError):
        state.insert("host", [{"name": "good", "up": True}, row])  # type: ignore[list-item]
    assert state.version == before
    assert state.execute("SELECT name FROM host") == [("a",)]


def test_foreign_keys_over_constants_hold_at_the_end_of_the_transaction() -> None:
    state = database(SCHEMA, ROWS)
    with pytest.raises(DataError, match="FOREIGN KEY"):
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


def test_a_database_file_keeps_rows_and_version(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    first = Database(path)
    first.load_schema(SCHEMA)
    first.insert("host", [{"name": "a", "up": True}])
    first.close()
    second = Database(path)
    second.load_schema(SCHEMA)
    assert (second.version, second.execute("SELECT name FROM host")) == (1, [("a",)])
    second.close()
