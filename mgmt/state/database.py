"""The state database: what the management plane believes about hosts, data and placement, as SQL rows.

Embedded SQLite through apsw.  Every change made here counts the version up inside its own transaction; a
solve reads one snapshot, which is a private copy, so that a long solve neither blocks writers nor sees half a
change; and a plan is applied as a compare-and-set on the version it was computed from.

What it is not: it knows nothing of policies.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from mgmt.errors import DataError, PolicySyntaxError, StalePlanError, UnknownColumnError
from mgmt.solution import Solution, Value
from mgmt.source import SourceText
from mgmt.state.schema import Schema, create_statements, quote

_VERSION_TABLE = "rota_state_version"
# What SQLite raises for values it cannot take: broken constraints, wrong types, integers beyond 64 bits.
_REFUSED = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, OverflowError, TypeError)


class Database:
    """A state database.  Safe to use from several threads; each call is one transaction.

    Raises DataError when a row breaks the schema.
    """

    def __init__(self, path: str = ":memory:") -> None:
        self._connection = apsw.Connection(path)
        self._lock = threading.RLock()
        self._schema = Schema()
        with self._lock:
            self._connection.execute("PRAGMA foreign_keys = ON")
            self._connection.execute(
                f"CREATE TABLE IF NOT EXISTS {_VERSION_TABLE} (version INTEGER NOT NULL)"
            )
            self._connection.execute(
                f"INSERT INTO {_VERSION_TABLE} SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM {_VERSION_TABLE})"
            )

    @property
    def schema(self) -> Schema:
        """The tables loaded so far."""
        return self._schema

    @property
    def version(self) -> int:
        """Counts up with every transaction that changed a row."""
        with self._lock:
            return _read_version(self._connection)

    def load_schema(self, sql: str, source: str = "schema.sql") -> None:
        """Create the tables of a schema text; a table that a database file already holds keeps its rows."""
        from mgmt.state.schema_parser import parse_schema

        known = self.schema
        schema = parse_schema(SourceText(source, sql), known)
        with self._transaction():
            for table in schema.tables[len(known.tables) :]:
                statement = create_statements(table)
                self._connection.execute(statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
            for index in schema.indexes[len(known.indexes) :]:
                self._connection.execute(index)
        self._schema = schema

    def execute(
        self, sql: str, parameters: Sequence[Value] | Mapping[str, Value] = ()
    ) -> list[tuple[Any, ...]]:
        """Run one SQL statement in a transaction of its own and return its rows."""
        with self._transaction():
            return [tuple(row) for row in self._connection.execute(sql, _plain(parameters))]

    def execute_many(self, sql: str, rows: Iterable[Sequence[Value] | Mapping[str, Value]]) -> None:
        """Run one SQL statement for each row, all in one transaction."""
        with self._transaction():
            self._connection.executemany(sql, [_plain(row) for row in rows])

    def insert(self, table: str, rows: Iterable[Mapping[str, Value]]) -> None:
        """Insert rows given as mappings from column to value, all in one transaction."""
        with self._transaction():
            self._insert(table, rows)

    def replace_rows(self, contents: Mapping[str, Iterable[Mapping[str, Value]]]) -> None:
        """Replace all rows of the tables named, in one transaction (one version)."""
        with self._transaction():
            self._connection.execute("PRAGMA defer_foreign_keys = ON")
            for table in contents:
                self._connection.execute(f"DELETE FROM {quote(self.schema.table(table).name)}")
            for table, rows in contents.items():
                self._insert(table, rows)

    def snapshot(self) -> Snapshot:
        """A private copy of the whole state at its present version."""
        with self._lock:
            copy = apsw.Connection(":memory:")
            with copy.backup("main", self._connection, "main") as backup:
                backup.step(-1)
            return Snapshot(copy, self.schema, _read_version(copy))

    def apply(self, solution: Solution) -> int:
        """Write a solution if the state is still at its version; returns the new version.

        Raises StalePlanError when the state has changed since the snapshot was taken.
        """
        with self._transaction():
            current = _read_version(self._connection)
            if current != solution.version:
                raise StalePlanError(solution.version, current)
            for (table_name, variable), values in solution.assignments.items():
                table = self.schema.table(table_name)
                column = table.column(variable)
                targets = [column.name, *([column.current] if column.current else [])]
                assignments = ", ".join(f"{quote(target)} = ?1" for target in targets)
                key = " AND ".join(
                    f"{quote(name)} IS ?{number}" for number, name in enumerate(table.primary_key, 2)
                )
                self._connection.executemany(
                    f"UPDATE {quote(table.name)} SET {assignments} WHERE {key}",
                    [(value, *primary_key) for primary_key, value in values.items()],
                )
        return self.version

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()

    def _insert(self, table: str, rows: Iterable[Mapping[str, Value]]) -> None:
        known = self.schema.table(table)
        for row in rows:
            for name in row:
                try:
                    known.column(name)
                except KeyError:
                    raise UnknownColumnError(f"no column {name!r} in table {known.name!r}") from None
            names = ", ".join(quote(name) for name in row)
            marks = ", ".join("?" for _ in row)
            try:
                self._connection.execute(
                    f"INSERT INTO {quote(known.name)} ({names}) VALUES ({marks})", tuple(row.values())
                )
            except _REFUSED as error:
                raise DataError(f"table {known.name!r} refuses a row: {error}", rows=[dict(row)]) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One transaction; the version counts up in it when rows changed."""
        with self._lock:
            if self._connection.in_transaction:  # an inner call belongs to the outer transaction
                yield
                return
            before = self._connection.total_changes()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                if self._connection.total_changes() != before:
                    self._connection.execute(f"UPDATE {_VERSION_TABLE} SET version = version + 1")
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, _REFUSED):
                    raise DataError(f"the state database refuses this: {error}") from error
                if isinstance(error, apsw.SQLError):
                    raise PolicySyntaxError(f"the state database refuses this: {error}") from error
                raise


class Snapshot:
    """A private, complete copy of the state at one version.  What is done to it is seen by nobody else."""

    def __init__(self, connection: apsw.Connection, schema: Schema, version: int) -> None:
        self._connection = connection
        self.schema = schema
        self.version = version

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rows(self, sql: str, parameters: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return self._connection.execute(sql, tuple(parameters)).fetchall()

    def run(self, sql: str, rows: Iterable[Sequence[Value]] | None = None) -> None:
        """Change the private copy: once, or for each row of parameters."""
        if rows is None:
            self._connection.execute(sql).fetchall()
        else:
            self._connection.executemany(sql, rows)

    def columns(self, sql: str) -> list[str]:
        """The names of a query's columns; also checks that the database can run it."""
        cursor = self._connection.cursor()
        return [name for name, _ in _description(cursor, sql)]

    @contextmanager
    def scratch(self) -> Iterator[None]:
        """Whatever is changed inside is undone at the end."""
        self.run("SAVEPOINT scratch")
        try:
            yield
        finally:
            self.run("ROLLBACK TO scratch")
            self.run("RELEASE scratch")

    def dump(self) -> bytes:
        """The copy as the bytes of an SQLite file, for a replayable bundle."""
        return self._connection.serialize("main")

    def close(self) -> None:
        """Free the copy."""
        self._connection.close()


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


def _plain(parameters: Sequence[Value] | Mapping[str, Value]) -> Any:
    return dict(parameters) if isinstance(parameters, Mapping) else tuple(parameters)


def _read_version(connection: apsw.Connection) -> int:
    for (version,) in connection.execute(f"SELECT version FROM {_VERSION_TABLE}"):
        return int(version)
    raise DataError("the state database has lost its version row")
