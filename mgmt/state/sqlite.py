"""The state database as embedded SQLite, through apsw: a file, or memory.

What other programs change in the same file counts too: a trigger on each table counts the version up.  One
that runs in this process alone needs none, for every change is made here.

What it is not: it decides nothing (see ``mgmt.state.store`` for what is promised).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary

import apsw

from mgmt.errors import (
    DataError,
    StalePlanError,
)
from mgmt.solution import Solution
from mgmt.state import exact_integers, patterns
from mgmt.state.changes import Changes
from mgmt.state.dates import stored
from mgmt.state.present_time import REHEARSED
from mgmt.state.schema import Schema, Table, create_statements, quote
from mgmt.state.sqlite_connection import REFUSED_VALUES, connect, database_errors, update_rows
from mgmt.state.sqlite_snapshot import PrivateCopy, SqliteSnapshot
from mgmt.state.store import (
    FORMAT,
    SQLITE_VERSION_TABLE,
    VERSION_TABLE,
    Parameters,
    Row,
    Snapshot,
    Store,
    check_columns,
    made_by_an_older_rota,
    no_state_database,
    refuse_later_format,
    written_columns,
)

_STEPS_OVER_NOTHING = 2_000_000  # of the virtual machine, for all statements of a policy over empty tables
_PATIENCE = 5_000  # milliseconds that another program may hold the file


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a private copy comes from, and what has changed since it was made or brought up to date."""

    schema: Schema
    others: tuple[int, int]
    changes: Changes


class SqliteStore(Store):
    """See :class:`mgmt.state.store.Store`; ``url`` is a path or ``:memory:``."""

    def __init__(self, url: str, statement_seconds: float, *, create: bool = True) -> None:
        super().__init__(statement_seconds)
        self._url = url
        self._lock = threading.RLock()
        with database_errors(url):
            self._connection = connect(url, create=create)
            self._connection.set_busy_timeout(_PATIENCE)
            self._connection.execute("PRAGMA foreign_keys = ON")
            if create:
                with self._transaction():
                    self._prepare_version()
            self._require_format()
        self._shared = bool(self._connection.filename)
        self._changes: dict[str, int] = {}
        self._copies: WeakKeyDictionary[PrivateCopy, _Origin] = WeakKeyDictionary()
        self._idle: PrivateCopy | None = None
        # Also of rows that are rolled back, which does no harm: what is counted too often is only read again.
        self._connection.preupdate_hook(self._count_change)

    @property
    def version(self) -> int:
        with self._lock, database_errors(self._url):
            return _read_version(self._connection)

    @property
    def functions(self) -> frozenset[str]:
        with self._lock:
            found = self._connection.execute("SELECT name FROM pragma_function_list").fetchall()
        names = frozenset(str(name).lower() for (name,) in found)
        return frozenset(name for name in names - patterns.NAMES if not exact_integers.is_ours(name))

    def execute(self, sql: str, parameters: Parameters) -> list[tuple[Any, ...]]:
        with self._transaction():
            return [tuple(row) for row in self._connection.execute(sql, _plain(parameters))]

    def execute_many(self, sql: str, rows: Iterable[Parameters]) -> None:
        with self._transaction():
            self._connection.executemany(sql, [_plain(row) for row in rows])

    def insert(self, contents: Sequence[tuple[Table, Iterable[Row]]], *, replace: bool = False) -> None:
        with self._transaction():
            if replace:
                self._connection.execute("PRAGMA defer_foreign_keys = ON")
                for table, _ in contents:
                    self._connection.execute(f"DELETE FROM {quote(table.name)}")
            for table, rows in contents:
                self._insert(table, rows)

    def snapshot(self, schema: Schema, moment: datetime) -> Snapshot:
        with self._lock, database_errors(self._url):
            copy = self._renewed(schema) or self._copied(schema)
            version = _read_version(copy.connection)
            snapshot = SqliteSnapshot(copy, schema, version, moment, self._take_back)
            snapshot.table_versions = self._table_versions(schema, self._copies[copy])
            snapshot.moved_at = _read_moved_at(copy.connection)
            return snapshot

    def _copied(self, schema: Schema) -> PrivateCopy:
        """A whole copy; what changes from now on is remembered for it."""
        others = self._other_changes()  # before the rows: what comes between is then taken for a later change
        connection = connect(":memory:")
        with connection.backup("main", self._connection, "main") as backup:
            backup.step(-1)
        copy = PrivateCopy(connection, self.statement_seconds)
        copy.spoilt = self._connection.in_transaction
        self._copies[copy] = _Origin(schema, others, Changes())
        return copy

    def _renewed(self, schema: Schema) -> PrivateCopy | None:
        """The copy that was given back, with the rows that changed since; None when a whole new one is better."""
        copy, self._idle = self._idle, None
        if copy is None:
            return None
        origin = self._copies[copy]
        changed = {name: rows for name, rows in origin.changes.tables.items() if name != VERSION_TABLE}
        few = {name: rows for name, rows in changed.items() if rows is not None and schema.find(name)}
        if self._connection.in_transaction or origin.schema is not schema or len(few) < len(changed):
            self._forget(copy)
            return None
        self._connection.execute("BEGIN")  # of one moment, whatever other programs write
        try:
            version = _read_version(self._connection)
            if self._other_changes() != origin.others:
                self._forget(copy)
                return None
            copy.bring_up_to_date(self._connection, few, version, _read_moved_at(self._connection))
        finally:
            self._connection.execute("COMMIT")
        origin.changes.tables.clear()
        return copy

    def _take_back(self, copy: PrivateCopy) -> None:
        with self._lock:
            if copy.spoilt or self._idle is not None or copy not in self._copies:
                self._forget(copy)
            else:
                self._idle = copy

    def _forget(self, copy: PrivateCopy | None) -> None:
        if copy is not None:
            self._copies.pop(copy, None)
            copy.close()

    def _other_changes(self) -> tuple[int, int]:
        """Numbers that change with the tables' definitions, and with what other connections commit."""
        ((definitions,),) = self._connection.execute("PRAGMA schema_version").fetchall()
        ((commits,),) = self._connection.execute("PRAGMA data_version").fetchall()
        return int(str(definitions)), int(str(commits))

    def rehearsal(self, schema: Schema) -> Snapshot:
        empty = connect(":memory:")
        for table in schema.tables:
            empty.execute(create_statements(table))
        copy = PrivateCopy(empty, self.rehearsal_seconds, steps=_STEPS_OVER_NOTHING)
        return SqliteSnapshot(copy, schema, 0, REHEARSED)

    def apply(self, schema: Schema, solution: Solution, now: float) -> int:
        with self._transaction():
            current = _read_version(self._connection)
            if current != solution.version:
                raise StalePlanError(solution.version, current)
            before = self._connection.total_changes()
            for table, targets, values in written_columns(schema, solution):
                update_rows(self._connection, table, targets, values)
            if solution.deltas:
                self._connection.execute(f"UPDATE {VERSION_TABLE} SET moved_at = ?", (now,))
            return current + (self._connection.total_changes() != before)

    def restore(self, contents: bytes) -> None:
        with self._lock, database_errors(self._url):
            self._forget(self._idle)
            self._idle = None
            self._copies.clear()  # those that are out are of the state before
            self._connection.deserialize("main", contents)
            _read_version(self._connection)  # what is no database, or none of ours, is refused here

    def close(self) -> None:
        with self._lock:
            self._forget(self._idle)
            self._idle = None
            self._connection.close()

    def held(self, tables: Sequence[Table]) -> tuple[Table, ...]:
        with self._lock, database_errors(self._url):
            names = {
                str(name).lower()
                for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
            found = tuple(table for table in tables if table.name.lower() in names)
            for table in found:
                self._require_columns(table)
        return found

    def create(self, tables: Sequence[Table], indexes: Sequence[str]) -> None:
        with self._transaction():
            for table in tables:
                statement = create_statements(table)
                self._connection.execute(statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
                self._require_columns(table)
                if self._shared:
                    for event in ("INSERT", "UPDATE", "DELETE"):
                        self._connection.execute(_counting_trigger(table, event))
            for index in indexes:
                self._connection.execute(index.replace(" INDEX ", " INDEX IF NOT EXISTS ", 1))

    def _require_columns(self, table: Table) -> None:
        """A table that was there already must be this one."""
        found = {
            name.lower(): kind
            for name, kind in self._connection.execute(
                "SELECT name, type FROM pragma_table_info(?)", (table.name,)
            )
        }
        for column in table.columns:
            if column.name.lower() not in found:
                raise DataError(
                    f"table {table.name!r} of the state database has no column {column.name!r}",
                    hint="the schema has changed: alter the table, or start with an empty database",
                )

    def _prepare_version(self) -> None:
        execute = self._connection.execute
        execute(SQLITE_VERSION_TABLE)
        names = [name for (name,) in execute("SELECT name FROM pragma_table_info(?)", (VERSION_TABLE,))]
        if "format" not in names:  # of a file that is older than formats
            execute(f"ALTER TABLE {VERSION_TABLE} ADD COLUMN format INTEGER NOT NULL DEFAULT 1")
        if "moved_at" not in names:  # or than the time of the last plan
            execute(f"ALTER TABLE {VERSION_TABLE} ADD COLUMN moved_at REAL")
        execute(
            f"INSERT INTO {VERSION_TABLE} (version, format) SELECT 0, {FORMAT}"
            f" WHERE NOT EXISTS (SELECT 1 FROM {VERSION_TABLE})"
        )

    def _require_format(self) -> None:
        execute = self._connection.execute
        names = [name for (name,) in execute("SELECT name FROM pragma_table_info(?)", (VERSION_TABLE,))]
        if not names:
            raise no_state_database(self._url)
        if not {"format", "moved_at"} <= set(names):
            raise made_by_an_older_rota(self._url)
        for (found,) in execute(f"SELECT format FROM {VERSION_TABLE}").fetchall():
            refuse_later_format(int(str(found)), self._url)

    def _count_change(self, update: apsw.PreUpdate) -> None:
        name = update.table_name.lower()
        self._changes[name] = self._changes.get(name, 0) + 1
        for origin in self._copies.values():
            origin.changes.note(name, update.rowid, update.rowid_new)

    def _table_versions(self, schema: Schema, origin: _Origin) -> dict[str, int]:
        """Per table how many of its rows have changed here; what others commit changes all of them."""
        others = origin.others[1] if self._shared else 0
        return {
            name: (others << 40) + self._changes.get(name, 0)
            for name in (table.name.lower() for table in schema.tables)
        }

    def _insert(self, table: Table, rows: Iterable[Row]) -> None:
        for row in rows:
            check_columns(table, row)
            names = ", ".join(quote(name) for name in row)
            marks = ", ".join("?" for _ in row)
            try:
                values = [stored(value, table.column(name).type) for name, value in row.items()]
                self._connection.execute(
                    f"INSERT INTO {quote(table.name)} ({names}) VALUES ({marks})", values
                )
            except REFUSED_VALUES as error:
                raise DataError(
                    f"table {table.name!r} refuses a row: {error}",
                    rows=[dict(row)],
                    hint="mend the row, or the rule of the schema that it breaks",
                ) from error
            except DataError as error:
                reason = f"table {table.name!r} refuses a row: {error.message}"
                raise DataError(reason, rows=[dict(row)], hint=error.hint) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One transaction; the version counts up by one in it when rows changed."""
        with self._lock:
            if self._connection.in_transaction:  # an inner call belongs to the outer transaction
                yield
                return
            with database_errors(self._url):
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    changes = self._connection.total_changes()
                    version = self._version_if_any()
                    yield
                    if version is not None and self._connection.total_changes() != changes:
                        # Whatever the triggers have counted, row by row.
                        self._connection.execute(f"UPDATE {VERSION_TABLE} SET version = ?", (version + 1,))
                    self._connection.execute("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise

    def _version_if_any(self) -> int | None:
        """The version; None while the version table is being made."""
        try:
            return _read_version(self._connection)
        except apsw.SQLError:
            return None


def _counting_trigger(table: Table, event: str) -> str:
    name = quote(f"{VERSION_TABLE} {event.lower()} {table.name}")
    return (
        f"CREATE TRIGGER IF NOT EXISTS {name} AFTER {event} ON {quote(table.name)}"
        f" BEGIN UPDATE {VERSION_TABLE} SET version = version + 1; END"
    )


def _plain(parameters: Parameters) -> Any:
    return dict(parameters) if isinstance(parameters, Mapping) else tuple(parameters)


def _read_version(connection: apsw.Connection) -> int:
    for (version,) in connection.execute(f"SELECT version FROM {VERSION_TABLE}"):
        return int(version)
    raise DataError(
        "the state database has lost its version row",
        hint="put the file back from a copy, or make the state anew",
    )


def _read_moved_at(connection: apsw.Connection) -> float | None:
    try:
        (found,) = connection.execute(f"SELECT moved_at FROM {VERSION_TABLE}").fetchall()[0]
    except apsw.SQLError:  # a file that is only read, and older than this column
        return None
    return None if found is None else float(str(found))
