"""The state database on PostgreSQL, through psycopg.

Changes go through one connection; the version is counted by triggers, so that what other programs write counts
too.  Each snapshot has a connection of its own, for its tables are temporary ones of the same names; it is kept
for the next snapshot.

What it is not: it decides nothing (see ``mgmt.state.store`` for what is promised).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from mgmt.errors import DataError, StalePlanError, StateDatabaseError
from mgmt.solution import Solution
from mgmt.state.dates import stored
from mgmt.state.postgres.connection import connect, describe, postgres_errors
from mgmt.state.postgres.namespace import Namespace
from mgmt.state.postgres.snapshots import Meanings, PostgresSnapshot, Session, update_statement
from mgmt.state.postgres.statements import Translation, translate
from mgmt.state.postgres.tables import MOVED_AT, columns_of
from mgmt.state.postgres.typed import quoted
from mgmt.state.present_time import REHEARSED
from mgmt.state.schema import Schema, SqlType, Table
from mgmt.state.store import (
    VERSION_TABLE,
    Parameters,
    RefusedStatementError,
    Row,
    Snapshot,
    Store,
    check_columns,
    refused_values,
    written_columns,
)

if TYPE_CHECKING:
    import psycopg

_KEPT_SESSIONS = 4
_OWN_STATEMENTS = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b", re.IGNORECASE)
# Functions of the server that look outside the state, or have an effect although they are called stable.
_NOT_FOR_POLICIES = re.compile(
    r"(pg|lo|has|inet|txid|query_to|table_to|schema_to|database_to|cursor_to|current_setting|row_security)(_|$)"
)


class PostgresStore(Store):
    """See :class:`mgmt.state.store.Store`; ``url`` is ``postgresql://user@host:port/database``."""

    def __init__(self, url: str, statement_seconds: float, *, create: bool = True) -> None:
        super().__init__(statement_seconds)
        self._url = url
        self._lock = threading.RLock()
        self._connection = connect(url)
        self._what = describe(url)
        self._schema = Schema()
        self._sessions: list[Session] = []
        self._meanings = Meanings()
        self._translations: dict[str, Translation] = {}
        self._in_transaction = False
        self._functions: frozenset[str] | None = None
        try:
            with self._transaction():
                self._namespace = Namespace(self._rows, self._what)
                if create:
                    self._namespace.prepare_version()
                self._namespace.require_format()
        except BaseException:
            self._connection.close()
            raise

    @property
    def version(self) -> int:
        with self._transaction():
            return self._namespace.read_version()

    @property
    def functions(self) -> frozenset[str]:
        if self._functions is not None:
            return self._functions
        with self._transaction():
            found = self._rows(
                "SELECT DISTINCT proname::text FROM pg_proc WHERE prokind IN ('f', 'w') AND provolatile <> 'v'"
                " AND NOT proretset AND pronamespace = 'pg_catalog'::regnamespace"
            )
        self._functions = frozenset(name for (name,) in found if not _NOT_FOR_POLICIES.match(name))
        return self._functions

    def create(self, tables: Sequence[Table], indexes: Sequence[str]) -> None:
        with self._transaction():
            self._namespace.create(tables, indexes)

    def held(self, tables: Sequence[Table]) -> tuple[Table, ...]:
        with self._transaction():
            return self._namespace.held(tables)

    def use(self, schema: Schema) -> None:
        self._schema = schema
        self._translations.clear()
        self._meanings = Meanings()

    def execute(self, sql: str, parameters: Parameters) -> list[tuple[Any, ...]]:
        with self._transaction():
            if not _OWN_STATEMENTS.match(sql) and not parameters:
                return self._rows(sql)  # as it is: what only this kind of database has
            translation = self._translate(sql)
            return self._rows(translation.sql, _arguments(translation, parameters))

    def execute_many(self, sql: str, rows: Iterable[Parameters]) -> None:
        with self._transaction():
            translation = self._translate(sql)
            with self._errors(), self._connection.cursor() as cursor:
                cursor.executemany(
                    translation.sql.encode(), [_arguments(translation, row) or () for row in rows]
                )

    def insert(self, contents: Sequence[tuple[Table, Iterable[Row]]], *, replace: bool = False) -> None:
        with self._transaction():
            if replace:
                for table, _ in contents:
                    self._run(f"DELETE FROM {quoted(table.name)}")
            for table, rows in contents:
                for names, same in groupby(rows, key=tuple):
                    self._copy(table, names, list(same))

    def snapshot(self, schema: Schema, moment: datetime) -> Snapshot:
        session = self._session()
        try:
            with postgres_errors(self._what):
                session.limit(None)
                version = session.load(schema, self._namespace.name)
                session.tell_moment(moment, self.statement_seconds)
        except BaseException:
            session.close()
            raise
        snapshot = PostgresSnapshot(session, schema, version, moment, self._meanings, self._keep)
        snapshot.moved_at = session.moved_at
        return snapshot

    def rehearsal(self, schema: Schema) -> Snapshot:
        session = self._session()
        try:
            with postgres_errors(self._what):
                session.clear(schema)
                session.tell_moment(REHEARSED, self.rehearsal_seconds)
        except BaseException:
            session.close()
            raise
        return PostgresSnapshot(session, schema, 0, REHEARSED, self._meanings, self._keep)

    def apply(self, schema: Schema, solution: Solution, now: float) -> int:
        with self._transaction():
            for table, (variable, *_), _ in islice(written_columns(schema, solution), 1):
                # Changes no row, but its trigger locks the version: with the rights of the tables' owner.
                name = quoted(variable)
                self._run(f"UPDATE {quoted(table.name)} SET {name} = {name} WHERE FALSE")
            current = self._namespace.read_version()
            if current != solution.version:
                raise StalePlanError(solution.version, current)
            if solution.deltas:
                self._rows("SELECT set_config($1, $2, true)", (MOVED_AT, repr(now)))
            for table, targets, values in written_columns(schema, solution):
                statement, arguments = update_statement(table, targets, values, native=True)
                self._rows(statement, arguments)
            return self._namespace.read_version()

    def close(self) -> None:
        with self._lock:
            self._connection.close()
            while self._sessions:
                self._sessions.pop().close()

    def _copy(self, table: Table, names: Sequence[str], rows: Sequence[Row]) -> None:
        """Insert rows that have the same columns; the server names the row it refuses."""
        for row in rows[:1]:
            check_columns(table, row)
        if not names:
            raise DataError(
                f"table {table.name!r} refuses a row without a value",
                rows=[{}],
                hint="give at least the columns of its key",
            )
        targets = ", ".join(map(quoted, names))
        kinds = [table.column(name).type for name in names]
        sql = f"COPY {quoted(table.name)} ({targets}) FROM STDIN"
        last = 0
        try:
            with self._errors(), self._connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
                for row in rows:
                    last += 1
                    copy.write_row(list(map(_storable, row.values(), kinds)))
        except DataError as error:
            line = last if error.__cause__ is None else _refused_line(error.__cause__)
            blamed = [dict(rows[line - 1])] if line is not None and line <= len(rows) else []
            reason = error.message.removeprefix("the state database refuses this: ")
            raise DataError(
                f"table {table.name!r} refuses a row: {reason}",
                rows=blamed,
                hint="mend the row, or the rule of the schema that it breaks",
            ) from error

    # ---- connections --------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One transaction on the connection for changes; an inner one belongs to the outer."""
        with self._lock:
            if self._in_transaction:
                yield
                return
            self._begin()
            self._in_transaction = True
            try:
                yield
                with self._errors():
                    self._connection.execute("COMMIT")
            except BaseException:
                if not self._connection.broken:
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._in_transaction = False

    def _begin(self) -> None:
        """BEGIN; a connection that was lost while nothing was done on it is made again."""
        if self._connection.closed and not self._connection.broken:
            raise StateDatabaseError(f"{self._what} was closed by this program", hint="open it again")
        try:
            with self._errors():
                self._connection.execute("BEGIN")
        except StateDatabaseError:
            if not self._connection.closed:
                raise
            self._connection = connect(self._url)
            with self._errors():
                self._connection.execute("BEGIN")

    def _errors(self) -> Any:
        return postgres_errors(self._what)

    def _rows(self, sql: str, arguments: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        with self._errors():
            cursor: psycopg.Cursor[Any] = self._connection.execute(sql.encode(), arguments)
            return cursor.fetchall() if cursor.description else []

    def _run(self, sql: str) -> None:
        self._rows(sql)

    def _translate(self, sql: str) -> Translation:
        if sql not in self._translations:
            relations = {table.name.lower(): columns_of(table) for table in self._schema.tables}
            relations[VERSION_TABLE] = {"version": SqlType.INTEGER, "format": SqlType.INTEGER}
            self._translations[sql] = translate(sql, relations)
        return self._translations[sql]

    def _session(self) -> Session:
        with self._lock:
            while self._sessions:
                session = self._sessions.pop()
                if session.alive():
                    return session
                session.close()
        return Session(connect(self._url), self._what)

    def _keep(self, session: Session) -> None:
        """Take back the session of a snapshot that was closed."""
        with self._lock:
            if len(self._sessions) < _KEPT_SESSIONS and not self._connection.closed:
                self._sessions.append(session)
                return
        session.close()


def _arguments(translation: Translation, parameters: Parameters) -> list[Any] | None:
    """The values of $1, $2, ..."""
    if not translation.parameters:
        if parameters:
            raise RefusedStatementError("it has no parameters, but values for them were given")
        return None
    return [_plain(value) for value in translation.values(parameters)]


def _plain(value: Any) -> Any:
    """A value as a parameter.  DataError for one that no column holds."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise refused_values(f"{value} does not fit into 64 bits")
    if isinstance(value, bytes):
        raise refused_values(f"{value!r} is no text")
    return value


def _storable(value: Any, kind: SqlType) -> Any:
    """A value for a column of this type, as strict as SQLite is."""
    if kind is SqlType.BOOLEAN and isinstance(value, str) and value not in {"0", "1"}:
        raise refused_values(f"{value!r} is neither true nor false")
    if kind is SqlType.INTEGER and isinstance(value, float) and value.is_integer():
        return int(value)
    return _plain(stored(value, kind))


def _refused_line(error: BaseException | None) -> int | None:
    diagnosis = getattr(error, "diag", None)
    match = re.search(r"line (\d+)", getattr(diagnosis, "context", None) or "")
    return int(match.group(1)) if match else None
