"""A state database in a DuckDB file: kept, and refused when it is of no use."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from mgmt.errors import DataError, StateDatabaseError
from mgmt.state.database import Database
from tests.mgmt.test_database import SCHEMA


def test_a_database_file_keeps_rows_and_version(tmp_path: Path) -> None:
    path = str(tmp_path / "state.duckdb")
    first = Database(path)
    first.load_schema(SCHEMA)
    first.insert("host", [{"name": "a", "up": True}])
    with pytest.raises(StateDatabaseError, match="open already"):
        Database(path)
    first.close()
    second = Database(path)
    second.load_schema(SCHEMA)
    assert (second.version, second.execute("SELECT name FROM host")) == (1, [("a",)])
    second.close()


def test_a_file_that_cannot_be_used_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StateDatabaseError, match="path of a DuckDB file") as caught:
        Database(str(tmp_path / "nowhere" / "state.duckdb"))
    assert not caught.value.retryable
    (tmp_path / "text").write_text("this is no database, however long it may be" * 1000)
    with pytest.raises(StateDatabaseError, match="path of a DuckDB file"):
        Database(str(tmp_path / "text"))
    with pytest.raises(StateDatabaseError, match="postgresql://"):
        Database("mysql://root@localhost/state")


def test_a_file_of_a_later_format_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "state.duckdb")
    Database(path).close()
    with duckdb.connect(path) as other:
        other.execute("UPDATE rota_state_version SET format = format + 1")
    with pytest.raises(StateDatabaseError, match="upgrade"):
        Database(path)


def test_in_a_file_that_is_used_as_it_is_nothing_is_made(tmp_path: Path) -> None:
    path = str(tmp_path / "state.duckdb")
    state = Database(path)
    state.load_schema(SCHEMA)
    state.close()
    state = Database(path, create=False)
    state.load_schema(
        SCHEMA + "CREATE TABLE more (id INTEGER PRIMARY KEY, home TEXT REFERENCES host (name));"
    )
    assert [table.name for table in state.schema.tables] == ["host", "task"]
    state.close()
    with duckdb.connect(path) as other:
        assert other.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(3,)]
    with pytest.raises(StateDatabaseError):
        Database(str(tmp_path / "nowhere.duckdb"), create=False)
    assert not (tmp_path / "nowhere.duckdb").exists()


def test_a_file_with_other_tables_than_the_schema_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "state.duckdb")
    first = Database(path)
    first.load_schema(SCHEMA)
    first.close()
    second = Database(path)
    with pytest.raises(DataError, match="no column 'colour'"):
        second.load_schema("CREATE TABLE host (name TEXT PRIMARY KEY, colour TEXT)")
    second.close()
