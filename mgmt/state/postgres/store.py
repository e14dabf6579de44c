"""The state database on PostgreSQL, through psycopg.

Changes go through one connection; the version is counted by triggers, so that what other programs write counts
too.  Each snapshot has a connection of its own, for its tables are temporary ones of the same names; it is kept
for the next snapshot.

What it is not: it decides nothing (see ``mgmt.state.store`` for what is promised).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from mgmt.errors import DataError, StalePlanError, StateDatabaseError
from mgmt.solution import Solution
from mgmt.state.postgres.connection import connect, describe, postgres_errors
from mgmt.state.postgres.snapshots import Meanings, PostgresSnapshot, Session, update_statement
from mgmt.state.postgres.statements import Translation, translate
from mgmt.state.postgres.tables import (
    MOVED_AT,
    add_foreign_keys,
    columns_of,
    counting_trigger_name,
    create_index,
    create_table,
    create_triggers,
    create_version_table,
)
from mgmt.state.postgres.typed import postgres_name, quoted
from mgmt.state.schema import Schema, SqlType, Table
from mgmt.state.store import (
    VERSION_TABLE,
    Parameters,
    RefusedStatementError,
    Row,
    Snapshot,
    Store,
    check_columns,
    no_state_database,
    refuse_later_format,
    written_columns,
)

if TYPE_CHECKING:
    import psycopg

_SCHEMA_LOCK = 0x726F7461  # an advisory lock: one client at a time makes tables
_KEPT_SESSIONS = 4
_OWN_STATEMENTS = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b", re.IGNORECASE)
_TYPES = {
    "bigint": SqlType.INTEGER,
    "integer": SqlType.INTEGER,
    "smallint": SqlType.INTEGER,
    "text": SqlType.TEXT,
    "character varying": SqlType.TEXT,
    "character": SqlType.TEXT,
    "boolean": SqlType.BOOLEAN,
    "double precision": SqlType.REAL,
    "real": SqlType.REAL,
    "numeric": SqlType.REAL,
}
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
                self._namespace = self._find_namespace()
                if create:
                    self._prepare_version()
                self._require_format()
        except BaseException:
            self._connection.close()
            raise

    @property
    def version(self) -> int:
        with self._transaction():
            return self._read_version()

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
            self._rows("SELECT pg_advisory_xact_lock($1)", (_SCHEMA_LOCK,))
            missing = [table for table in tables if not self._columns(table)]
            for table in missing:
                self._run(create_table(table))
            for table in tables:
                self._require_columns(table)
                if not self._is_counted(table):
                    for statement in create_triggers(table, self._namespace):
                        self._run(statement)
            for table in missing:
                for statement in add_foreign_keys(table):
                    self._run(statement)
            for index in indexes:
                statement = create_index(index)
                name = statement.split('"')[1]
                known = "SELECT 1 FROM pg_indexes WHERE schemaname = current_schema() AND indexname = $1"
                if not self._rows(known, (name,)):
                    self._run(statement)

    def held(self, tables: Sequence[Table]) -> tuple[Table, ...]:
        with self._transaction():
            found = tuple(table for table in tables if self._columns(table))
            for table in found:
                self._require_columns(table)
                if not self._is_counted(table):
                    raise DataError(
                        f"table {table.name!r} of the state database was made by another program: changes of its rows"
                        " are not counted",
                        hint="load the schema first, which adds what counts: mgmt.Database(url).load_schema(text)",
                    )
        return found

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

    def snapshot(self, schema: Schema) -> Snapshot:
        session = self._session()
        try:
            with postgres_errors(self._what):
                session.limit(None)
                version = session.load(schema, self._namespace)
                session.limit(self.statement_seconds)
        except BaseException:
            session.close()
            raise
        snapshot = PostgresSnapshot(session, schema, version, self._meanings, self._keep)
        snapshot.moved_at = session.moved_at
        return snapshot

    def rehearsal(self, schema: Schema) -> Snapshot:
        session = self._session()
        try:
            with postgres_errors(self._what):
                session.clear(schema)
                session.limit(self.rehearsal_seconds)
        except BaseException:
            session.close()
            raise
        return PostgresSnapshot(session, schema, 0, self._meanings, self._keep)

    def apply(self, schema: Schema, solution: Solution, now: float) -> int:
        with self._transaction():
            for table, (variable, *_), _ in islice(written_columns(schema, solution), 1):
                # Changes no row, but its trigger locks the version: with the rights of the tables' owner.
                name = quoted(variable)
                self._run(f"UPDATE {quoted(table.name)} SET {name} = {name} WHERE FALSE")
            current = self._read_version()
            if current != solution.version:
                raise StalePlanError(solution.version, current)
            if solution.deltas:
                self._rows("SELECT set_config($1, $2, true)", (MOVED_AT, repr(now)))
            for table, targets, values in written_columns(schema, solution):
                statement, arguments = update_statement(table, targets, values)
                self._rows(statement, arguments)
            return self._read_version()

    def close(self) -> None:
        with self._lock:
            self._connection.close()
            while self._sessions:
                self._sessions.pop().close()

    # ---- tables -------------------------------------------------------------------------------------

    @property
    def _version_table(self) -> str:
        return f"{self._namespace}.{VERSION_TABLE}"

    def _find_namespace(self) -> str:
        """The namespace in which tables are made, as SQL."""
        (found,) = self._rows("SELECT current_schema()")[0]
        if found is None:
            raise StateDatabaseError(
                f"{self._what} has no namespace to work in", hint="set search_path to one that exists"
            )
        return '"' + str(found).replace('"', '""') + '"'

    def _prepare_version(self) -> None:
        if not self._has_version_table():
            self._rows("SELECT pg_advisory_xact_lock($1)", (_SCHEMA_LOCK,))
            if not self._has_version_table():  # another client was faster
                for statement in create_version_table(self._namespace):
                    self._run(statement)

    def _require_format(self) -> None:
        if not self._has_version_table():
            raise no_state_database(self._what)
        for (found,) in self._rows(f"SELECT format FROM {self._version_table}"):
            refuse_later_format(int(found), self._what)

    def _has_version_table(self) -> bool:
        # Not to_regclass: within a transaction it goes on saying that there is none.
        known = (
            "SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON c.relnamespace = n.oid"
            " WHERE n.nspname = current_schema() AND c.relname = $1"
        )
        return bool(self._rows(known, (VERSION_TABLE,)))

    def _columns(self, table: Table) -> dict[str, SqlType]:
        """The columns of a table as the server has it; none when there is no such table."""
        found = self._rows(
            "SELECT column_name::text, data_type::text FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND table_name = $1",
            (postgres_name(table.name),),
        )
        return {name: _TYPES.get(kind, SqlType.UNKNOWN) for name, kind in found}

    def _require_columns(self, table: Table) -> None:
        found = self._columns(table)
        for column in table.columns:
            kind = found.get(postgres_name(column.name))
            if kind is column.type:
                continue
            wrong = f"is {kind} there" if kind else "is not there, or may not be seen"
            raise DataError(
                f"table {table.name!r} of the state database: no column {column.name!r} of type {column.type}: "
                f"it {wrong}",
                hint="the schema has changed: alter the table, or start with an empty database",
            )

    def _is_counted(self, table: Table) -> bool:
        return bool(
            self._rows(
                "SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass($1) AND tgname = $2",
                (f"{self._namespace}.{quoted(table.name)}", counting_trigger_name()),
            )
        )

    def _copy(self, table: Table, names: Sequence[str], rows: Sequence[Row]) -> None:
        """Insert rows that have the same columns; the server names the row it refuses."""
        for row in rows[:1]:
            check_columns(table, row)
        if not names:
            raise DataError(f"table {table.name!r} refuses a row without a value", rows=[{}])
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
            raise DataError(f"table {table.name!r} refuses a row: {reason}", rows=blamed) from error

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

    def _read_version(self) -> int:
        for (version,) in self._rows(f"SELECT version FROM {self._version_table}"):
            return int(version)
        raise DataError("the state database has lost its version row")

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
    try:
        if isinstance(parameters, Mapping):
            return [_plain(parameters[str(key)]) for key in translation.parameters]
        return [_plain(parameters[int(key)]) for key in translation.parameters]
    except (KeyError, IndexError, ValueError) as error:
        raise RefusedStatementError(
            f"it has {len(translation.parameters)} parameters; no value for {error}"
        ) from error


def _plain(value: Any) -> Any:
    """A value as a parameter.  DataError for one that no column holds."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise DataError(f"the state database refuses this: {value} does not fit into 64 bits")
    if isinstance(value, bytes):
        raise DataError(f"the state database refuses this: {value!r} is no text")
    return value


def _storable(value: Any, kind: SqlType) -> Any:
    """A value for a column of this type, as strict as SQLite is."""
    if kind is SqlType.BOOLEAN and isinstance(value, str) and value not in {"0", "1"}:
        raise DataError(f"the state database refuses this: {value!r} is neither true nor false")
    if kind is SqlType.INTEGER and isinstance(value, float) and value.is_integer():
        return int(value)
    return _plain(value)


def _refused_line(error: BaseException | None) -> int | None:
    diagnosis = getattr(error, "diag", None)
    match = re.search(r"line (\d+)", getattr(diagnosis, "context", None) or "")
    return int(match.group(1)) if match else None
