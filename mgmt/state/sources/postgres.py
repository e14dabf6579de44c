"""Rows on a PostgreSQL server: those tables and views that the schema declares, with nothing of ours beside them.

All are read in one repeatable read, read only transaction.  The server tells which have changed: by a sum over where
each row lies and which transaction wrote it, of a view over its rows.  A plan is written in a serializable transaction
that compares these first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mgmt.errors import DataError, StateDatabaseError
from mgmt.state.schema import Table, quote
from mgmt.state.sources.csv_file import csv_texts
from mgmt.state.sources.source import PLACE, Cell, ChangedError, Rows, Source, first_line

try:
    import psycopg
except ImportError:  # an extra of the package
    _MISSING = True
else:
    _MISSING = False

_OLDEST = 130000
_DEFAULTS = {"connect_timeout": "10", "application_name": "rota", "client_encoding": "UTF8"}
_SETTINGS = b"SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL timezone = 'UTC'; SET LOCAL lock_timeout = '5s'"
_READING = b"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_WRITING = b"BEGIN ISOLATION LEVEL SERIALIZABLE"
_BUSY = {"40P01", "55P03", "53300", "57014"}
_OVERTAKEN = "40001"
_FORBIDDEN = "42501"
_REFUSING = ("0A", "22", "23", "42", "44", "55000", "P0")
"""What is said against a value or a row, a trigger's own words included."""
_AWAY = ("08", "57P")
_COLUMNS = "FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
_TABLES = f"""
SELECT DISTINCT ON (lower(c.relname)) lower(c.relname), c.oid::regclass::text, c.relkind::text,
  array(SELECT attname::text {_COLUMNS}), array(SELECT format_type(atttypid, atttypmod) {_COLUMNS})
FROM pg_class AS c
WHERE lower(c.relname) = ANY($1::text[]) AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND pg_table_is_visible(c.oid)
ORDER BY lower(c.relname), c.relname
""".encode()


@dataclass(frozen=True, slots=True)
class _Table:
    """A table as it was found: its name for SQL, its columns with their types, and what changes with its rows."""

    name: str
    columns: tuple[tuple[str, str], ...]
    identity: str
    """SQL for a text that tells its rows apart, as they are now."""
    fingerprint: tuple[Any, ...]


class PostgresServer(Source):
    """The tables of a database on a server."""

    advice = "is there a policy of row security, a trigger or a rule that keeps these rows, or changes what is written?"

    def __init__(self, url: str) -> None:
        self._address, place = _parsed(url)
        super().__init__(place)
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._tables: dict[str, _Table] = {}

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[None]:
        connection = self._connected()
        connection.execute(b"%s; %s" % (_WRITING if writing else _READING, _SETTINGS))
        try:
            with tempfile.NamedTemporaryFile(suffix=".csv") as self._copied:
                yield
            connection.execute("COMMIT")
        except BaseException:
            if not connection.closed:
                connection.execute("ROLLBACK")
            raise

    def fingerprints(self, names: Collection[str]) -> Mapping[str, object]:
        assert self._connection is not None
        found = self._connection.execute(_TABLES, [sorted(names)]).fetchall()
        asked = " UNION ALL ".join(
            f"SELECT {number}, count(*), sum(hashtextextended({_identity(kind)}, 0))::text FROM {name} AS own"
            for number, (_, name, kind, _, _) in enumerate(found)
        )
        told = self._connection.execute(asked.encode()).fetchall() if found else []
        sums = {number: tuple(rest) for number, *rest in told}
        self._tables = {
            key: _Table(name, tuple(zip(columns, types, strict=True)), _identity(kind), sums[number])
            for number, (key, name, kind, columns, types) in enumerate(found)
        }
        return self._tables

    def rows(self, name: str) -> Rows:
        table = self._tables[name]
        names = [column for column, _ in table.columns]
        return self._copy(table, names, ", ".join(map(quote, names)))

    def _copy(self, table: _Table, names: Sequence[str], chosen: str) -> Rows:
        assert self._connection is not None
        query = f"COPY (SELECT {chosen} FROM {table.name} AS own) TO STDOUT (FORMAT csv)"
        self._copied.seek(0)
        self._copied.truncate()
        with self._connection.cursor().copy(query.encode()) as copied:
            self._copied.writelines(copied)
        self._copied.flush()
        place = f"{table.name} in {self.place}"
        return Rows(self.loader, csv_texts(self._copied.name, names), place)

    def columns(self, name: str) -> Sequence[str]:
        return [column for column, _ in self._tables[name.lower()].columns]

    def placed(self, name: str, columns: Sequence[str]) -> Rows:
        table = self._tables[name.lower()]
        return self._copy(table, [PLACE, *columns], ", ".join((table.identity, *map(quote, columns))))

    def put(self, table: Table, column: str, cells: Sequence[Cell]) -> None:
        assert self._connection is not None
        own = self._tables[table.name.lower()]
        self._connection.execute(
            f"UPDATE {own.name} AS own SET {quote(column)} = CAST(new.text AS {dict(own.columns)[column]})"
            f" FROM unnest($1::text[], $2::text[]) AS new(place, text) WHERE {own.identity} = new.place".encode(),
            [[cell.place for cell in cells], [cell.spelt() for cell in cells]],
        )

    def settle(self) -> None:
        assert self._connection is not None
        self._connection.execute(b"SET CONSTRAINTS ALL IMMEDIATE")

    def refusal(self, error: Exception) -> str | None:
        state = (error.sqlstate or "") if isinstance(error, psycopg.Error) else ""
        if not isinstance(error, psycopg.Error) or not state.startswith(_REFUSING) or state == _FORBIDDEN:
            return None
        detail = error.diag.message_detail
        return f"{first_line(error)} ({detail.rstrip('.')})" if detail else first_line(error)

    def close(self) -> None:
        super().close()
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        """The connection; a new one where it broke while nothing was done on it."""
        if self._connection is not None:
            try:
                self._connection.execute("SELECT 1")
            except psycopg.OperationalError:
                self._connection.close()
            else:
                return self._connection
        self._connection = psycopg.connect(
            self._address, autocommit=True, prepare_threshold=None, cursor_factory=psycopg.RawCursor
        )
        if self._connection.info.server_version < _OLDEST:
            raise StateDatabaseError(
                f"{self.place} is PostgreSQL {self._connection.info.server_version // 10000}",
                hint="rows can be read from 13 or newer",
            )
        return self._connection

    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            with super().errors():
                yield
        except psycopg.Error as error:
            raise _translated(error, self.place) from error


def _identity(kind: str) -> str:
    """What says of a row that it is the one that was read; a view's rows lie nowhere."""
    if kind in {"v", "f"}:
        return "own::text"
    # The rows of tables that inherit from it are its own, too.
    return "own.tableoid::text || ' ' || own.ctid::text || ' ' || own.xmin::text"


def _parsed(url: str) -> tuple[str, str]:
    """The address for libpq, and for people, without a password."""
    if _MISSING:
        raise StateDatabaseError(
            "rows on PostgreSQL need psycopg, which is not installed", hint="pip install 'rota[postgres]'"
        )
    try:
        known = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise StateDatabaseError(
            f"this is no address of a PostgreSQL database: {first_line(error)}",
            hint="write postgresql://user@host:port/database, special characters as %XX",
        ) from error
    place = f"the database {known.get('dbname') or '(default)'} at {known.get('host') or 'the default host'}"
    return psycopg.conninfo.make_conninfo("", **{**_DEFAULTS, **known}), place


def _translated(error: psycopg.Error, place: str) -> Exception:
    state, message = error.sqlstate or "", first_line(error)
    if state == _OVERTAKEN:
        return ChangedError()
    if not state or state.startswith(_AWAY) or state in _BUSY:
        return StateDatabaseError(
            f"{place} is not to be had: {message}",
            hint="is the server running, is the address right? if a plan was being written, it may have been",
            retryable="FATAL" not in str(error) or "starting up" in str(error),
        )
    if state == _FORBIDDEN:
        return StateDatabaseError(
            f"no permission in {place}: {message}",
            hint="who solves needs SELECT on the tables, who applies UPDATE",
        )
    if state.startswith(("22", "23")):
        return DataError(f"{place} refuses this: {message}", hint="compare the schema with the tables there")
    return StateDatabaseError(f"{place} fails: {message}", hint="look into the server's log")
