"""Snapshots on PostgreSQL: temporary tables of the same names in a session of their own.

The rows are copied in one REPEATABLE READ transaction, which ends at once: a long solve holds no lock and no old
row of the real tables.  Afterwards only the private tables are reached; queries run READ ONLY, and what a solve
writes into the private tables is rolled back.  A session whose copy is still at the present version is used
again as it is.

What it is not: it decides nothing (see ``mgmt.state.store`` for what is promised).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import apsw

from mgmt.errors import StatementTimeoutError
from mgmt.solution import PrimaryKey, Value
from mgmt.state import store
from mgmt.state.postgres.connection import postgres_errors
from mgmt.state.postgres.expressions import ROW_NUMBER, Columns, ColumnType
from mgmt.state.postgres.own_functions import PRESENT_SETTING
from mgmt.state.postgres.statements import Translation, translate
from mgmt.state.postgres.tables import copied_columns_of, create_copy, fill_copy
from mgmt.state.postgres.typed import NATIVE, STORAGE, quoted
from mgmt.state.present_time import text_of
from mgmt.state.schema import TEMPORAL, Schema, SqlType, Table, create_statements, quote
from mgmt.state.store import SQLITE_VERSION_TABLE, VERSION_TABLE, Snapshot, TimeLimit

if TYPE_CHECKING:
    import psycopg

_MOST_MEANINGS = 20_000
_SAME_TIME = 0.9  # and more of the time that is left
_WORTH_STATISTICS = 1_000  # rows; below, the planner does well without them
# Type numbers of PostgreSQL's own types.
_TYPE_OF_OID = {
    **dict.fromkeys((20, 21, 23), SqlType.INTEGER),
    **dict.fromkeys((700, 701, 1700), SqlType.REAL),
    **dict.fromkeys((25, 1043, 1042, 19, 705), SqlType.TEXT),
    16: SqlType.BOOLEAN,
}
_ARRAYS = {
    SqlType.INTEGER: "bigint[]",
    SqlType.TEXT: "text[]",
    SqlType.BOOLEAN: "boolean[]",
    SqlType.REAL: "double precision[]",
    SqlType.UNKNOWN: "bigint[]",
    **dict.fromkeys(TEMPORAL, "text[]"),
}


class Meanings:
    """What statements have been found to mean, for all snapshots of one schema.

    The same text means the same in the same *world*: the views and tables defined before it.
    """

    def __init__(self) -> None:
        self.translations: dict[tuple[int, str], Translation] = {}
        self.columns: dict[int, Columns] = {}  # of the view defined last in a world
        self._worlds: dict[tuple[int, str, object], int] = {}

    def world(self, before: int, name: str, definition: object) -> int:
        """The world after a definition; the first one is 0."""
        if len(self.translations) > _MOST_MEANINGS:
            self.translations.clear()
            self.columns.clear()
        return self._worlds.setdefault((before, name, definition), len(self._worlds) + 1)


class Session:
    """A connection with private copies of the tables; used by one snapshot at a time."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], what: str) -> None:
        self.connection = connection
        self.what = what
        self.spoiled = False  # changed for good: not to be used again
        self.seconds: float | None = None  # that a statement may take by itself
        self.together: TimeLimit | None = None  # for several
        self.told: float | None = None  # what the server lets the next one take
        self.over_rows = True
        self._tables: tuple[Table, ...] = ()
        self._version: int | None = None
        self.moved_at: float | None = None

    def load(self, schema: Schema, namespace: str) -> int:
        """Make the copies those of the present state; returns its version."""
        self._prepare(schema)
        self.over_rows = True
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        version, self.moved_at = self.fetch(f"SELECT version, moved_at FROM {namespace}.{VERSION_TABLE}")[0]
        if version == self._version:
            self.execute("ROLLBACK")
            return int(version)
        self._version = None
        if schema.tables:
            self._empty(schema)
            for table in schema.tables:
                cursor = self.execute(fill_copy(table, namespace))
                if cursor.rowcount > _WORTH_STATISTICS:
                    self.execute(f"ANALYZE pg_temp.{quoted(table.name)}")
        self.execute("COMMIT")
        self._version = version
        return int(version)

    def clear(self, schema: Schema) -> None:
        """Make the copies empty."""
        self._prepare(schema)
        self.over_rows = False
        self._version = None
        if schema.tables:
            self._empty(schema)

    def limit(self, seconds: float | None) -> None:
        """How long a statement may take from now on; None is for ever."""
        self.seconds = seconds
        self._tell(seconds)

    def tell_moment(self, moment: datetime, seconds: float) -> None:
        """The time in the snapshot, and how long a statement of it may take; in one message."""
        self.seconds = seconds
        self._tell(seconds, f"; SET {PRESENT_SETTING} = '{text_of(moment)}'")

    def keep_time(self) -> None:
        """Have the server stop the next statement in time; it need not be told again what has changed little."""
        left, told = self.seconds, self.told
        if self.together is not None:
            left = min(left or math.inf, max(0.0, self.together.deadline - time.monotonic()))
        if left is None or told is None or not _SAME_TIME * left <= told <= left / _SAME_TIME:
            self._tell(left)

    def stopped(self) -> StatementTimeoutError | None:
        """Why the server has stopped a statement; None: not because of its time."""
        if self.told is None:
            return None
        if self.together is not None and (self.seconds is None or self.told < self.seconds):
            return StatementTimeoutError(self.together.seconds, over_rows=self.over_rows, together=True)
        return StatementTimeoutError(self.told, over_rows=self.over_rows)

    def _tell(self, seconds: float | None, more: str = "") -> None:
        milliseconds = 0 if seconds is None else max(1, round(1000 * seconds))
        self.execute(f"SET statement_timeout = {milliseconds}{more}")
        self.told = seconds

    def _prepare(self, schema: Schema) -> None:
        if self._tables != schema.tables:
            self.execute("DISCARD TEMPORARY")
            self._version = None
            for table in schema.tables:
                self.execute(create_copy(table))
            self._tables = schema.tables

    def _empty(self, schema: Schema) -> None:
        names = ", ".join(f"pg_temp.{quoted(table.name)}" for table in schema.tables)
        self.execute(f"TRUNCATE {names}")

    def execute(self, sql: str, arguments: Sequence[Any] | None = None) -> psycopg.Cursor[tuple[Any, ...]]:
        return self.connection.execute(sql.encode(), arguments)

    def fetch(self, sql: str, arguments: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        return self.execute(sql, arguments).fetchall()

    def alive(self) -> bool:
        """Whether the server is still there."""
        try:
            with postgres_errors(self.what):
                self.execute("SELECT 1")
        except Exception:  # whatever is wrong with it, another one is opened
            return False
        return not self.spoiled

    def close(self) -> None:
        self.connection.close()


class PostgresSnapshot(Snapshot):
    """See :class:`mgmt.state.store.Snapshot`.  ``release`` takes the session back."""

    def __init__(
        self,
        session: Session,
        schema: Schema,
        version: int,
        moment: datetime,
        meanings: Meanings,
        release: Callable[[Session], None],
    ) -> None:
        super().__init__(schema, version, moment)
        self._session = session
        self._meanings = meanings
        self._release: Callable[[Session], None] | None = release
        self._relations: dict[str, Columns] = {
            table.name.lower(): copied_columns_of(table) for table in schema.tables
        }
        self._world = 0  # the views and tables defined so far
        self._depth = 0

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        session = self._session
        before, session.together = session.together, TimeLimit(time.monotonic() + seconds, seconds)
        try:
            yield
        finally:
            session.together = before
            if self._depth == 0 and not session.connection.broken:
                session.keep_time()

    def rows(self, sql: str, parameters: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        translation = self._translate(sql)
        arguments = [_plain(value) for value in translation.values(parameters)]
        with self._errors():
            self._session.keep_time()
            return self._read_only(translation.sql, arguments)

    def run(self, sql: str, rows: Iterable[Sequence[Value]] | None = None) -> None:
        translation = self._translate(sql)
        self._changing()
        with self._errors():
            if rows is None:
                self._session.execute(translation.sql)
            else:
                arguments = [[_plain(value) for value in translation.values(row)] for row in rows]
                with self._session.connection.cursor() as cursor:
                    cursor.executemany(translation.sql.encode(), arguments)

    def columns(self, sql: str) -> list[str]:
        translation = self._translate(sql)
        with self._errors():
            self._session.keep_time()
            self._read_only(f"SELECT * FROM ({translation.sql}) AS q LIMIT 0", [])
        return [name for name, _ in translation.columns]

    def define_view(self, name: str, sql: str) -> None:
        translation = self._translate(sql)
        self._changing()
        self._world = self._meanings.world(self._world, name, sql)
        names = ", ".join(quoted(column) for column, _ in translation.columns)
        with self._errors():
            self._session.execute(f"CREATE TEMPORARY VIEW {quoted(name)} ({names}) AS {translation.sql}")
            known = self._meanings.columns.get(self._world) or self._describe(name, translation)
        self._meanings.columns[self._world] = self._relations[name.lower()] = known

    def define_table(
        self, name: str, columns: Sequence[tuple[str, SqlType]], rows: Sequence[Sequence[Any]]
    ) -> None:
        self._changing()
        stored = [(column, _stored(kind, rows, place)) for place, (column, kind) in enumerate(columns)]
        self._world = self._meanings.world(self._world, name, tuple(stored))
        parts = "".join(f", {quoted(column)} {STORAGE[kind or SqlType.UNKNOWN]}" for column, kind in stored)
        names = "".join(f", {quoted(column)}" for column, _ in columns)
        with self._errors():
            self._session.execute(f"CREATE TEMPORARY TABLE {quoted(name)} ({ROW_NUMBER} bigint{parts})")
            sql = f"COPY {quoted(name)} ({ROW_NUMBER}{names}) FROM STDIN"
            with self._session.connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
                for number, row in enumerate(rows, 1):
                    copy.write_row((number, *map(_plain, row)))
        self._relations[name.lower()] = {column.lower(): kind for column, kind in stored}

    def write(self, table: Table, columns: Mapping[str, Mapping[PrimaryKey, Value]]) -> None:
        for column, values in columns.items():
            if not values:
                continue
            self._changing()
            statement, arguments = update_statement(table, [column], values)
            with self._errors():
                self._session.execute(statement, arguments)

    @contextmanager
    def scratch(self) -> Iterator[None]:
        savepoint = f"scratch_{self._depth}"
        world, relations, told = self._world, dict(self._relations), self._session.told
        with self._errors():
            self._session.execute(f"SAVEPOINT {savepoint}" if self._depth else "BEGIN")
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._world, self._relations, self._session.told = world, relations, told  # all is undone
            if not self._session.connection.broken:
                self._session.execute(f"ROLLBACK TO {savepoint}" if self._depth else "ROLLBACK")

    def dump(self) -> bytes:
        copy = apsw.Connection(":memory:")
        copy.execute(SQLITE_VERSION_TABLE)
        copy.execute(
            f"INSERT INTO {VERSION_TABLE} (version, moved_at) VALUES (?, ?)", (self.version, self.moved_at)
        )
        for table in self.schema.tables:
            copy.execute(create_statements(table))
            names = ", ".join(quote(column.name) for column in table.columns)
            marks = ", ".join("?" for _ in table.columns)
            found = self.rows(f"SELECT {names} FROM {quote(table.name)} ORDER BY {ROW_NUMBER}")
            copy.executemany(f"INSERT INTO {quote(table.name)} ({names}) VALUES ({marks})", found)
        return copy.serialize("main")

    def close(self) -> None:
        release, self._release = self._release, None
        if release is None:
            return
        if self._session.spoiled or self._session.connection.broken:
            self._session.close()
        else:
            release(self._session)

    # ---- parts --------------------------------------------------------------------------------------

    def _errors(self) -> Any:
        session = self._session
        return postgres_errors(session.what, policy=True, stopped=session.stopped)

    def _changing(self) -> None:
        if self._depth == 0:
            self._session.spoiled = True

    def _translate(self, sql: str) -> Translation:
        key = (self._world, sql)
        found = self._meanings.translations.get(key)
        if found is None:
            found = self._meanings.translations[key] = translate(sql, self._relations)
        return found

    def _describe(self, name: str, translation: Translation) -> Columns:
        """The columns of a view with the types that the server has found."""
        cursor = self._session.execute(f"SELECT * FROM {quoted(name)} LIMIT 0")
        return {
            column.lower(): kind and _TYPE_OF_OID.get(entry.type_code, SqlType.UNKNOWN)
            for (column, kind), entry in zip(translation.columns, cursor.description or (), strict=True)
        }

    def _read_only(self, sql: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run a query that cannot write, also inside a transaction that does."""
        before, after = "BEGIN READ ONLY", "ROLLBACK"
        if self._depth:
            # A message that the server cannot read is not begun, and leaves no savepoint: this is one of its own.
            before, after = "SET LOCAL transaction_read_only = on", "RELEASE query"
            self._session.execute("SAVEPOINT query")
        try:
            if arguments:
                self._session.execute(before)
                found = self._session.fetch(sql, arguments)
                self._session.execute(after)
                return found
            # In one message; the answer of interest is the only one with columns.
            most = store.MOST_ROWS + 1
            asked = f"DECLARE answer NO SCROLL CURSOR FOR {sql}; FETCH {most} FROM answer; CLOSE answer"
            cursor = self._session.execute(f"{before}; {asked}; {after}")
            found = []
            while True:
                if cursor.description is not None:
                    found = cursor.fetchall()
                if not cursor.nextset():
                    break
        except BaseException:
            if not self._session.connection.broken:
                self._session.execute("ROLLBACK TO query" if self._depth else "ROLLBACK")
            raise
        if len(found) > store.MOST_ROWS:
            raise store.too_many_rows()
        return found


def _stored(kind: SqlType, rows: Sequence[Sequence[Any]], place: int) -> ColumnType:
    """The type of a fetched column: as the compiler says, unless the values say otherwise."""
    if kind in {SqlType.TEXT, SqlType.REAL, SqlType.BOOLEAN}:
        return kind
    if kind in TEMPORAL:
        return SqlType.TEXT
    found = {type(row[place]) for row in rows} - {type(None)}
    if str in found:
        return SqlType.TEXT
    if float in found:
        return SqlType.REAL
    return None if kind is SqlType.UNKNOWN and not found else SqlType.INTEGER


def update_statement(
    table: Table, columns: Sequence[str], values: Mapping[PrimaryKey, Value], *, native: bool = False
) -> tuple[str, list[list[Any]]]:
    """One UPDATE that puts a value into these columns of each row, and its arguments.

    ``native``: of the table itself, where dates are no texts.
    """
    key_types = [table.column(name).type for name in table.primary_key]
    kinds = [table.column(columns[0]).type, *key_types]
    arguments: list[list[Any]] = [[_typed(value, kinds[0]) for value in values.values()]]
    for place, kind in enumerate(key_types):
        arguments.append([_typed(key[place], kind) for key in values])
    arrays = ", ".join(f"CAST(${number} AS {_ARRAYS[kind]})" for number, kind in enumerate(kinds, 1))
    names = ", ".join(["value", *(f"k{place}" for place in range(len(key_types)))])

    def given(name: str, kind: SqlType) -> str:
        return f"CAST(given.{name} AS {NATIVE[kind]})" if native and kind in TEMPORAL else f"given.{name}"

    matches = " AND ".join(
        f"{quoted(table.name)}.{quoted(name)} = {given(f'k{place}', key_types[place])}"
        for place, name in enumerate(table.primary_key)
    )
    assignments = ", ".join(f"{quoted(column)} = {given('value', kinds[0])}" for column in columns)
    return (
        f"UPDATE {quoted(table.name)} SET {assignments} FROM unnest({arrays}) AS given ({names}) WHERE {matches}",
        arguments,
    )


def _typed(value: Value, kind: SqlType) -> Any:
    if value is None:
        return None
    return bool(value) if kind is SqlType.BOOLEAN else _plain(value)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value
