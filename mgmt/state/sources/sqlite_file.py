"""An SQLite file as a source, through the standard library: those of its tables and views that the schema declares.

SQLite counts what others commit (``PRAGMA data_version``, per connection) and what this one changes, so the connection
is kept.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote as url_quoted

from mgmt.errors import StateDatabaseError
from mgmt.state.schema import Table, quote
from mgmt.state.sources.python_data import rows_of
from mgmt.state.sources.source import PLACE, Cell, Rows, Source

_PATIENCE = 5.0  # seconds that another program may keep the file locked


class SqliteFile(Source):
    """The tables of an SQLite file."""

    advice = "is there a trigger that keeps these rows, or changes what is written?"

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._placed: list[tuple[Any, ...]] = []
        self._locators: list[str] = []
        """Of the rows placed last, in SQL; their values are the last ones of each."""
        self.file = path.resolve()
        address = f"file:{url_quoted(str(self.file))}?mode=rw"
        with self.errors():
            self._connection = sqlite3.connect(
                address, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
        # What is no text is refused with its row, when all are read.
        self._connection.text_factory = lambda text: text.decode(errors="surrogateescape")

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise

    def fingerprints(self, names: Collection[str]) -> Mapping[str, object]:
        # With the first of the two reading begins, and so does what the second speaks of.
        known = self._connection.execute("SELECT lower(name), type FROM sqlite_master").fetchall()
        there = {name: kind for name, kind in known if kind in {"table", "view"} and name in names}
        ((of_others,),) = self._connection.execute("PRAGMA data_version")
        # With one table others change of themselves: views, or by a trigger all of them.
        may_follow = {"table", "view"} if "trigger" in {kind for _, kind in known} else {"view"}
        own = self._connection.total_changes
        return {name: (of_others, own if there[name] in may_follow else 0) for name in sorted(there)}

    def rows(self, name: str) -> Rows:
        cursor = self._connection.execute(f"SELECT * FROM {quote(name)}")
        names = [column[0] for column in cursor.description]
        cells: Sequence[Sequence[Any]] = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(names)
        return rows_of(dict(zip(names, cells, strict=True)), self.place, self.loader)

    def columns(self, name: str) -> Sequence[str]:
        return [row[1] for row in self._connection.execute(f"PRAGMA table_info({quote(name)})")]

    def placed(self, name: str, columns: Sequence[str]) -> Rows:
        own = list(map(quote, columns))
        self._locators = self._row_id(name) or own
        chosen = ", ".join((*own, *self._locators))
        self._placed = self._connection.execute(f"SELECT {chosen} FROM {quote(name)}").fetchall()
        cells = {column: [row[number] for row in self._placed] for number, column in enumerate(columns)}
        return rows_of({PLACE: range(len(self._placed)), **cells}, self.place, self.loader)

    def put(self, table: Table, column: str, cells: Sequence[Cell]) -> None:
        same = " AND ".join(f"{each} COLLATE BINARY IS ?" for each in self._locators)
        last = -len(self._locators)
        self._connection.executemany(
            f"UPDATE {quote(table.name)} SET {quote(column)} = ? WHERE {same}",
            [
                (
                    cell.value if cell.like is None else self._placed[cell.like][last - 1],
                    *self._placed[cell.place][last:],
                )
                for cell in cells
            ],
        )

    def refusal(self, error: Exception) -> str | None:
        return str(error) if isinstance(error, sqlite3.IntegrityError) else None

    def _row_id(self, name: str) -> list[str]:
        """What a table calls its row id; nothing for one without it, and for a view."""
        kind = "SELECT type FROM sqlite_master WHERE lower(name) = lower(?) AND type IN ('table', 'view')"
        taken = {column.lower() for column in self.columns(name)}
        free = [each for each in ("rowid", "_rowid_", "oid") if each not in taken]
        if free and self._connection.execute(kind, (name,)).fetchall() == [("table",)]:
            with suppress(sqlite3.OperationalError):
                self._connection.execute(f"SELECT {free[0]} FROM {quote(name)} LIMIT 0")
                return free[:1]
        return []

    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            with super().errors():
                yield
        except sqlite3.Error as error:
            busy = "locked" in str(error) or "busy" in str(error)
            hint = "nothing was changed; try again" if busy else "is it an SQLite file, whole, and yours?"
            raise StateDatabaseError(
                f"cannot use {self.place}: {error}", hint=hint, retryable=busy
            ) from error

    def close(self) -> None:
        super().close()
        self._connection.close()
