"""A snapshot of an SQLite database: a private copy in memory, which is used again for the next one.

A copy is brought up to date by the rows that changed since it was made.  Whatever is done to it in a ``scratch`` is
undone, and one to which anything else was done is not used again.

What it is not: it does not know what has changed (see ``sqlite``).
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from itertools import compress, islice
from typing import Any

import apsw

from mgmt.solution import PrimaryKey, Value
from mgmt.state import json_texts, store, text_limits
from mgmt.state.changes import ChangedRows
from mgmt.state.guard import Guard
from mgmt.state.kept_views import KeptViews
from mgmt.state.present_time import Present
from mgmt.state.schema import Schema, SqlType, Table, quote
from mgmt.state.sqlite_connection import database_errors, update_rows
from mgmt.state.store import VERSION_TABLE, KeptRows, KeptView, Place, Snapshot, no_place


class PrivateCopy:
    """A copy of a whole database, and what is kept in it beside the rows."""

    def __init__(self, connection: apsw.Connection, seconds: float, *, steps: int | None = None) -> None:
        """``seconds`` for one statement; ``steps`` of the database's own for all together, None is no limit."""
        self.connection = connection
        self.guard = Guard(connection, seconds, steps)
        self.views = KeptViews(connection, self.guard)
        self.present = Present(connection)
        text_limits.install(connection, self.guard.look)
        json_texts.install(connection, self.guard.look)
        self.spoilt = False
        """Whether something was done to it that is not undone."""

    def bring_up_to_date(
        self,
        original: apsw.Connection,
        tables: Mapping[str, Iterable[int]],
        version: int,
        moved_at: float | None,
    ) -> None:
        """Give the rows of these numbers the contents they have in the original, with its version and last move."""
        with self.spoilt_by_failure():
            self.connection.execute("BEGIN").fetchall()
            for table, numbers in tables.items():
                self._replace_rows(original, table, json.dumps(list(numbers)))
            # Triggers of a shared file have counted here too.
            self.connection.execute(f"UPDATE {VERSION_TABLE} SET version = ?", (version,)).fetchall()
            if moved_at is not None:
                self.connection.execute(f"UPDATE {VERSION_TABLE} SET moved_at = ?", (moved_at,)).fetchall()
            self.connection.execute("COMMIT").fetchall()

    @contextmanager
    def spoilt_by_failure(self) -> Iterator[None]:
        """What is done inside leaves nothing to undo, unless it fails halfway."""
        spoilt, self.spoilt = self.spoilt, True
        yield
        self.spoilt = spoilt

    def _replace_rows(self, original: apsw.Connection, table: str, numbers: str) -> None:
        within = f"FROM {quote(table)} WHERE _rowid_ IN (SELECT value FROM json_each(?))"
        info = original.execute("SELECT name FROM pragma_table_info(?) ORDER BY cid", (table,)).fetchall()
        columns = [str(name) for (name,) in info]
        names = ", ".join(map(quote, columns))
        before = self.connection.execute(f"SELECT {names} {within}", (numbers,)).fetchall()
        after = original.execute(f"SELECT _rowid_, {names} {within}", (numbers,)).fetchall()
        self.connection.execute(f"DELETE {within}", (numbers,)).fetchall()
        self.connection.executemany(
            f"INSERT INTO {quote(table)} (_rowid_, {names}) VALUES ({', '.join('?' * (1 + len(columns)))})",
            after,
        )
        rows = [*before, *(row[1:] for row in after)]
        self.views.changed(table, ChangedRows(tuple(name.lower() for name in columns), rows))

    def close(self) -> None:
        self.connection.close()


class SqliteSnapshot(Snapshot):
    """See :class:`mgmt.state.store.Snapshot`."""

    def __init__(
        self,
        copy: PrivateCopy,
        schema: Schema,
        version: int,
        moment: datetime,
        give_back: Callable[[PrivateCopy], None] = PrivateCopy.close,
    ) -> None:
        """``give_back`` takes the copy when the snapshot is closed."""
        super().__init__(schema, version, moment)
        copy.present.set(moment)
        self._copy, self._give_back = copy, give_back
        self._connection, self._guard = copy.connection, copy.guard
        self._scratches = 0
        self._closed = False

    def within(self, seconds: float) -> AbstractContextManager[None]:
        return self._guard.within(seconds)

    def rows(self, sql: str, parameters: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        with database_errors("a snapshot"), self._guard.reading():
            found = list(islice(self._connection.execute(sql, tuple(parameters)), store.MOST_ROWS + 1))
        if len(found) > store.MOST_ROWS:
            raise store.too_many_rows()
        return found

    def run(self, sql: str, rows: Iterable[Sequence[Value]] | None = None) -> None:
        self._changing()
        with database_errors("a snapshot"):
            if rows is None:
                self._connection.execute(sql, can_cache=False).fetchall()
            else:
                self._connection.executemany(sql, rows, can_cache=False)

    def columns(self, sql: str) -> list[str]:
        with database_errors("a snapshot"), self._guard.reading():
            return [name for name, _ in _description(self._connection.cursor(), sql)]

    def keep_views(self, views: Sequence[KeptView], at: Place = no_place) -> None:
        with self._copy.spoilt_by_failure(), database_errors("a snapshot"):
            self._copy.views.keep(views, at)
        self._copy.spoilt |= bool(self._scratches)

    def kept_rows(self, name: str) -> KeptRows | None:
        return self._copy.views.rows(name) if self._copy.views.has(name) else None

    def define_view(self, name: str, sql: str) -> None:
        if self._copy.views.has(name):
            return
        self._changing()
        self._copy.views.make_way(name, lasting=not self._scratches)
        with database_errors("a snapshot"), self._guard.defining_a_view():
            self._connection.execute(f"CREATE VIEW {quote(name)} AS {sql}").fetchall()

    def define_table(
        self, name: str, columns: Sequence[tuple[str, SqlType]], rows: Sequence[Sequence[Any]]
    ) -> None:
        # Without types: the values keep the ones they were fetched with.
        self._copy.views.make_way(name, lasting=not self._scratches)
        names = ", ".join(quote(column) for column, _ in columns)
        self.run(f"CREATE TABLE {quote(name)} ({names or quote('no column')})")
        targets = ", ".join(["_rowid_", *([names] if names else [])])
        marks = ", ".join("?" for _ in range(len(columns) + 1))
        self.run(
            f"INSERT INTO {quote(name)} ({targets}) VALUES ({marks})",
            [(number, *row) for number, row in enumerate(rows, 1)],
        )

    def write(self, table: Table, columns: Mapping[str, Mapping[PrimaryKey, Value]]) -> None:
        self._changing()
        names = ", ".join(map(quote, (*table.primary_key, *columns)))
        # Reading all is cheaper than writing all, and most of them stand already.
        rows = self._connection.execute(f"SELECT {names} FROM {quote(table.name)}").fetchall()
        if not rows:
            return
        fields = list(zip(*rows, strict=True))
        keys = list(zip(*fields[: len(table.primary_key)], strict=True))
        for (column, values), standing in zip(columns.items(), fields[len(table.primary_key) :], strict=True):
            update_rows(self._connection, table, [column], _others(keys, standing, values))

    @contextmanager
    def scratch(self) -> Iterator[None]:
        self._scratches += 1
        self.run("SAVEPOINT scratch")
        try:
            yield
        finally:
            self._scratches -= 1
            # The database may have given it up by itself.
            with self._copy.spoilt_by_failure(), database_errors("a snapshot"):
                self._connection.execute("ROLLBACK TO scratch; RELEASE scratch").fetchall()

    def dump(self) -> bytes:
        self._copy.spoilt = True
        self._copy.views.drop_all()
        with self._guard.lowered():  # SQLite asks itself for a PRAGMA on the way
            return self._connection.serialize("main")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._copy.views.end()
            self._give_back(self._copy)
            del self._copy, self._connection, self._guard  # whoever has it next must not be disturbed

    def _changing(self) -> None:
        """Something is done to the copy; outside of a scratch nobody undoes it."""
        if not self._scratches:
            self._copy.spoilt = True


def _others(
    keys: Sequence[PrimaryKey], standing: Sequence[Value], values: Mapping[PrimaryKey, Value]
) -> dict[PrimaryKey, Value]:
    """The values that do not stand already, by the keys of their rows."""
    wanted = list(map(values.get, keys, standing))
    differs: Iterable[bool] = map(operator.ne, wanted, standing)
    if float in set(map(type, wanted)):  # equal to an integer, and yet another value
        differs = map(operator.or_, differs, (isinstance(value, float) for value in wanted))
    return dict(compress(zip(keys, wanted, strict=True), differs))


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
