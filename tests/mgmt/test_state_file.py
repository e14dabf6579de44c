"""A state database in an SQLite file: kept, shared with other programs, and refused when it is of no use."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from mgmt.compiler.model import Model
from mgmt.errors import DataError, StalePlanError, StateDatabaseError
from mgmt.state.database import Database
from tests.mgmt.test_database import POLICY, SCHEMA


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


def test_what_another_program_changes_in_the_file_counts_too(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    state = Database(path)
    state.load_schema(SCHEMA)
    state.insert("host", [{"name": "a", "up": True}, {"name": "b", "up": False}])
    state.insert("task", [{"id": 1}])
    solution = Model.build(state, POLICY).solve()
    other = apsw.Connection(path)
    other.execute("UPDATE host SET up = 1 WHERE name = 'b'")
    with pytest.raises(StalePlanError):
        state.apply(solution)
    before = state.version
    state.execute("UPDATE host SET up = 0")
    assert state.version == before + 1, "one transaction counts once, whatever the triggers count"
    state.close()


def test_a_file_that_cannot_be_used_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StateDatabaseError, match="directory that may be written") as caught:
        Database(str(tmp_path / "nowhere" / "state.db"))
    assert not caught.value.retryable
    (tmp_path / "text").write_text("this is no database, however long it may be" * 100)
    with pytest.raises(StateDatabaseError, match="path of an SQLite file"):
        Database(str(tmp_path / "text"))
    with pytest.raises(StateDatabaseError, match="postgresql://"):
        Database("mysql://root@localhost/state")


def test_a_file_of_a_later_format_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    Database(path).close()
    apsw.Connection(path).execute("UPDATE rota_state_version SET format = format + 1")
    with pytest.raises(StateDatabaseError, match="upgrade"):
        Database(path)


def test_a_file_that_is_used_as_it_is_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    state = Database(str(path))
    state.load_schema(SCHEMA)
    state.close()
    before = path.read_bytes()
    state = Database(str(path), create=False)
    state.load_schema(
        SCHEMA + "CREATE TABLE more (id INTEGER PRIMARY KEY, home TEXT REFERENCES host (name));"
    )
    assert [table.name for table in state.schema.tables] == ["host", "task"]
    with state.snapshot() as snapshot:
        assert snapshot.rows("SELECT count(*) FROM host") == [(0,)]
    state.close()
    assert path.read_bytes() == before
    with pytest.raises(StateDatabaseError):
        Database(str(tmp_path / "nowhere.db"), create=False)
    assert not (tmp_path / "nowhere.db").exists()
    apsw.Connection(str(path)).execute("ALTER TABLE rota_state_version DROP COLUMN moved_at")
    with pytest.raises(StateDatabaseError, match="older rota"):
        Database(str(path), create=False)
    Database(str(path)).close()
    Database(str(path), create=False).close()


def test_a_file_with_other_tables_than_the_schema_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    first = Database(path)
    first.load_schema(SCHEMA)
    first.close()
    second = Database(path)
    with pytest.raises(DataError, match="no column 'colour'"):
        second.load_schema("CREATE TABLE host (name TEXT PRIMARY KEY, colour TEXT)")
    second.close()
