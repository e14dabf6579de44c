"""An SQLite file as a source, through the standard library: those of its tables and views that the schema declares.

SQLite counts what others commit (``PRAGMA data_version``, per connection), so the connection is kept.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote as url_quoted

from mgmt.errors import StateDatabaseError
from mgmt.state.schema import quote
from mgmt.state.sources.python_data import rows_of
from mgmt.state.sources.source import Change, Rows, Source

_PATIENCE = 5.0  # seconds that another program may keep the file locked


class SqliteFile(Source):
    """The tables of an SQLite file."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        address = f"file:{url_quoted(str(path.resolve()))}?mode=rw"
        with self.errors():
            self._connection = sqlite3.connect(
                address, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )

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
        known = self._connection.execute(
            "SELECT lower(name) FROM sqlite_master WHERE type IN ('table', 'view')"
        )
        there = {name for (name,) in known} & set(names)
        return dict.fromkeys(sorted(there), self._connection.execute("PRAGMA data_version").fetchall())

    def rows(self, name: str) -> Rows:
        cursor = self._connection.execute(f"SELECT * FROM {quote(name)}")
        names = [column[0] for column in cursor.description]
        cells: Sequence[Sequence[Any]] = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(names)
        return rows_of(dict(zip(names, cells, strict=True)), self.place, self.loader)

    def write(self, changes: Sequence[Change]) -> None:
        for change in changes:
            table = quote(change.table.name)
            there = [row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")]
            same = " AND ".join(f"{quote(name)} = ?" for name in change.table.primary_key)
            for column in map(quote, change.targets(there, self.place)):
                self._connection.executemany(
                    f"UPDATE {table} SET {column} = ? WHERE {same} AND {column} IS NOT ?",
                    [(value, *key, value) for key, value in change.values.items()],
                )

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
