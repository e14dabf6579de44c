"""The state database as embedded SQLite, through apsw: a file, or memory.

What other programs change in the same file counts too: a trigger on each table counts the version up.  One
that runs in this process alone needs none, for every change is made here.

What it is not: it decides nothing (see ``mgmt.state.store`` for what is promised).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from mgmt.errors import (
    DataError,
    OverflowError,  # noqa: A004 - the published name
    StalePlanError,
    StateDatabaseError,
)
from mgmt.solution import PrimaryKey, Solution, Value
from mgmt.state import sole_row
from mgmt.state.guard import Guard
from mgmt.state.schema import Schema, SqlType, Table, create_statements, quote
from mgmt.state.store import (
    FORMAT,
    VERSION_TABLE,
    Parameters,
    RefusedStatementError,
    Row,
    Snapshot,
    Store,
    check_columns,
    no_state_database,
    refuse_later_format,
)

# What SQLite raises for values it cannot take: broken constraints, wrong types, integers beyond 64 bits.
_REFUSED_VALUES = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, ArithmeticError, TypeError)
_STEPS_OVER_NOTHING = 2_000_000  # of the virtual machine, for all statements of a policy over empty tables
_PATIENCE = 5_000  # milliseconds that another program may hold the file


class SqliteStore(Store):
    """See :class:`mgmt.state.store.Store`; ``url`` is a path or ``:memory:``."""

    def __init__(self, url: str, statement_seconds: float, *, create: bool = True) -> None:
        super().__init__(statement_seconds)
        self._url = url
        self._lock = threading.RLock()
        with _database_errors(url):
            self._connection = _connect(url, create=create)
            self._connection.set_busy_timeout(_PATIENCE)
            self._connection.execute("PRAGMA foreign_keys = ON")
            if create:
                with self._transaction():
                    self._prepare_version()
            self._require_format()
        self._shared = bool(self._connection.filename)
        self._changes: dict[str, int] = {}
        # Also of rows that are rolled back, which does no harm: what is counted too often is only read again.
        self._connection.preupdate_hook(self._count_change)

    @property
    def version(self) -> int:
        with self._lock, _database_errors(self._url):
            return _read_version(self._connection)

    @property
    def functions(self) -> frozenset[str]:
        with self._lock:
            found = self._connection.execute("SELECT name FROM pragma_function_list").fetchall()
        return frozenset(str(name).lower() for (name,) in found)

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

    def snapshot(self, schema: Schema) -> Snapshot:
        with self._lock, _database_errors(self._url):
            copy = _connect(":memory:")
            with copy.backup("main", self._connection, "main") as backup:
                backup.step(-1)
            snapshot = SqliteSnapshot(copy, schema, _read_version(copy), self.statement_seconds)
            snapshot.table_versions = self._table_versions(schema)
            return snapshot

    def rehearsal(self, schema: Schema) -> Snapshot:
        empty = _connect(":memory:")
        for table in schema.tables:
            empty.execute(create_statements(table))
        return SqliteSnapshot(empty, schema, 0, self.rehearsal_seconds, steps=_STEPS_OVER_NOTHING)

    def apply(self, schema: Schema, solution: Solution) -> int:
        with self._transaction():
            current = _read_version(self._connection)
            if current != solution.version:
                raise StalePlanError(solution.version, current)
            before = self._connection.total_changes()
            for (table_name, variable), values in solution.assignments.items():
                if not values:
                    continue
                table = schema.table(table_name)
                column = table.column(variable)
                targets = [column.name, *([column.current] if column.current else [])]
                _update(self._connection, table, targets, values)
            return current + (self._connection.total_changes() != before)

    def restore(self, contents: bytes) -> None:
        with self._lock, _database_errors(self._url):
            self._connection.deserialize("main", contents)
            _read_version(self._connection)  # what is no database, or none of ours, is refused here

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def held(self, tables: Sequence[Table]) -> tuple[Table, ...]:
        with self._lock, _database_errors(self._url):
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
        execute(
            f"CREATE TABLE IF NOT EXISTS {VERSION_TABLE} (version INTEGER NOT NULL, format INTEGER NOT NULL DEFAULT 1)"
        )
        names = [name for (name,) in execute("SELECT name FROM pragma_table_info(?)", (VERSION_TABLE,))]
        if "format" not in names:  # of a file that is older than formats
            execute(f"ALTER TABLE {VERSION_TABLE} ADD COLUMN format INTEGER NOT NULL DEFAULT 1")
        execute(
            f"INSERT INTO {VERSION_TABLE} (version, format) SELECT 0, {FORMAT}"
            f" WHERE NOT EXISTS (SELECT 1 FROM {VERSION_TABLE})"
        )

    def _require_format(self) -> None:
        execute = self._connection.execute
        names = [name for (name,) in execute("SELECT name FROM pragma_table_info(?)", (VERSION_TABLE,))]
        if not names:
            raise no_state_database(self._url)
        if "format" in names:
            for (found,) in execute(f"SELECT format FROM {VERSION_TABLE}").fetchall():
                refuse_later_format(int(str(found)), self._url)

    def _count_change(self, update: apsw.PreUpdate) -> None:
        name = update.table_name.lower()
        self._changes[name] = self._changes.get(name, 0) + 1

    def _table_versions(self, schema: Schema) -> dict[str, int]:
        """Per table how many of its rows have changed here; what others commit changes all of them."""
        others = 0
        if self._shared:
            others = int(str(self._connection.execute("PRAGMA data_version").fetchall()[0][0]))
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
                self._connection.execute(
                    f"INSERT INTO {quote(table.name)} ({names}) VALUES ({marks})", tuple(row.values())
                )
            except _REFUSED_VALUES as error:
                raise DataError(f"table {table.name!r} refuses a row: {error}", rows=[dict(row)]) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One transaction; the version counts up by one in it when rows changed."""
        with self._lock:
            if self._connection.in_transaction:  # an inner call belongs to the outer transaction
                yield
                return
            with _database_errors(self._url):
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


class SqliteSnapshot(Snapshot):
    """See :class:`mgmt.state.store.Snapshot`."""

    def __init__(
        self,
        connection: apsw.Connection,
        schema: Schema,
        version: int,
        seconds: float,
        *,
        steps: int | None = None,
    ) -> None:
        """``seconds`` for one statement; ``steps`` of the database's own for all together, None is no limit."""
        super().__init__(schema, version)
        self._connection = connection
        self._guard = Guard(connection, seconds, steps)
        self._kept_views: dict[str, str] = {}

    def rows(self, sql: str, parameters: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        with _database_errors("a snapshot"), self._guard.reading():
            return self._connection.execute(sql, tuple(parameters)).fetchall()

    def run(self, sql: str, rows: Iterable[Sequence[Value]] | None = None) -> None:
        with _database_errors("a snapshot"):
            if rows is None:
                self._connection.execute(sql).fetchall()
            else:
                self._connection.executemany(sql, rows)

    def columns(self, sql: str) -> list[str]:
        with _database_errors("a snapshot"), self._guard.reading():
            return [name for name, _ in _description(self._connection.cursor(), sql)]

    def keep_view(self, name: str, sql: str, *, computed: bool) -> None:
        if computed:
            with _database_errors("a snapshot"), self._guard.keeping_a_view():
                self._connection.execute(f"CREATE TABLE {quote(name)} AS {sql}").fetchall()
        else:
            self.define_view(name, sql)
        self._kept_views[name] = "TABLE" if computed else "VIEW"

    def define_view(self, name: str, sql: str) -> None:
        if name in self._kept_views:
            return
        with _database_errors("a snapshot"), self._guard.defining_a_view():
            self._connection.execute(f"CREATE VIEW {quote(name)} AS {sql}").fetchall()

    def define_table(
        self, name: str, columns: Sequence[tuple[str, SqlType]], rows: Sequence[Sequence[Any]]
    ) -> None:
        # Without types: the values keep the ones they were fetched with.
        names = ", ".join(quote(column) for column, _ in columns)
        self.run(f"CREATE TABLE {quote(name)} ({names or quote('no column')})")
        targets = ", ".join(["_rowid_", *([names] if names else [])])
        marks = ", ".join("?" for _ in range(len(columns) + 1))
        self.run(
            f"INSERT INTO {quote(name)} ({targets}) VALUES ({marks})",
            [(number, *row) for number, row in enumerate(rows, 1)],
        )

    def write(self, table: Table, column: str, values: Mapping[PrimaryKey, Value]) -> None:
        _update(self._connection, table, [column], values)

    @contextmanager
    def scratch(self) -> Iterator[None]:
        self.run("SAVEPOINT scratch")
        try:
            yield
        finally:
            self.run("ROLLBACK TO scratch")
            self.run("RELEASE scratch")

    def dump(self) -> bytes:
        for name, kind in reversed(self._kept_views.items()):
            self.run(f"DROP {kind} {quote(name)}")
        self._kept_views.clear()
        with self._guard.lowered():  # SQLite asks itself for a PRAGMA on the way
            return self._connection.serialize("main")

    def close(self) -> None:
        self._connection.close()


def _connect(path: str, *, create: bool = True) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    connection = apsw.Connection(path, flags)
    sole_row.install(connection)
    connection.execute("PRAGMA case_sensitive_like = ON")  # as in the policies' dialect; ILIKE ignores case
    return connection


def _update(
    connection: apsw.Connection, table: Table, columns: Sequence[str], values: Mapping[PrimaryKey, Value]
) -> None:
    assignments = ", ".join(f"{quote(column)} = ?1" for column in columns)
    key = " AND ".join(f"{quote(name)} IS ?{number}" for number, name in enumerate(table.primary_key, 2))
    connection.executemany(
        f"UPDATE {quote(table.name)} SET {assignments} WHERE {key}",
        [(value, *primary_key) for primary_key, value in values.items()],
    )


def _counting_trigger(table: Table, event: str) -> str:
    name = quote(f"{VERSION_TABLE} {event.lower()} {table.name}")
    return (
        f"CREATE TRIGGER IF NOT EXISTS {name} AFTER {event} ON {quote(table.name)}"
        f" BEGIN UPDATE {VERSION_TABLE} SET version = version + 1; END"
    )


@contextmanager
def _database_errors(what: str) -> Iterator[None]:
    """What SQLite raises as our errors."""
    try:
        yield
    except _REFUSED_VALUES as error:
        raise DataError(f"the state database refuses this: {error}") from error
    except apsw.SQLError as error:
        reason = str(error)
        if "integer overflow" in reason:
            raise OverflowError(
                "a number computed by the state database leaves 64 bits", hint="use smaller units"
            ) from error
        raise RefusedStatementError(
            reason.removeprefix("SQLError: "), unknown_function="no such function" in reason
        ) from error
    except (apsw.BusyError, apsw.LockedError) as error:
        raise StateDatabaseError(
            f"the state database {what} is in use by another program: {error}",
            hint="try again; if it stays so, look for a program that keeps a transaction open",
            retryable=True,
        ) from error
    except (apsw.CantOpenError, apsw.NotADBError, apsw.PermissionsError, apsw.AuthError) as error:
        raise StateDatabaseError(
            f"the state database {what} cannot be opened: {error}",
            hint="give the path of an SQLite file, or of a file to be made, in a directory that may be written",
        ) from error
    except (apsw.ReadOnlyError, apsw.FullError, apsw.IOError, apsw.CorruptError) as error:
        raise StateDatabaseError(
            f"the state database {what} cannot be used: {error}",
            hint="look at the file's rights, the disk's free space and its health",
        ) from error


def _description(cursor: apsw.Cursor, sql: str) -> tuple[tuple[str, str], ...]:
    """A statement's columns without running it."""
    found: list[tuple[tuple[str, str], ...]] = []

    def trace(cursor: apsw.Cursor, _sql: str, _bindings: object) -> bool:
        found.append(tuple((entry[0], entry[1]) for entry in cursor.get_description()))
        return False  # do not run it

    cursor.exec_trace = trace
    try:
        cursor.execute(sql)
    except apsw.ExecTraceAbort:
        pass
    finally:
        cursor.exec_trace = None
    return found[0]


def _plain(parameters: Parameters) -> Any:
    return dict(parameters) if isinstance(parameters, Mapping) else tuple(parameters)


def _read_version(connection: apsw.Connection) -> int:
    for (version,) in connection.execute(f"SELECT version FROM {VERSION_TABLE}"):
        return int(version)
    raise DataError("the state database has lost its version row")
