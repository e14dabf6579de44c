"""A DuckDB file as a source: those of its tables that the schema declares.

It is open only while it is read or written.  A table has changed when the number of its rows has, or the sum of their
hashes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from mgmt.state.schema import Table, literal, quote
from mgmt.state.sources.source import PLACE, Cell, Rows, Source, first_line, put_by_row

_AS = "outside"


class DuckDbFile(Source):
    """The tables and views of its schema ``main``."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.file = path.resolve()
        self._views: set[str] = set()

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[None]:
        # While it is attached no other program writes.
        mode, begin = ("READ_WRITE", "BEGIN") if writing else ("READ_ONLY", "")
        self.loader.execute(f"ATTACH {literal(str(self.file))} AS {_AS} ({mode}); {begin}")
        try:
            yield
            if writing:
                self.loader.execute("COMMIT")
        except BaseException:
            if writing:
                self.loader.execute("ROLLBACK")
            raise
        finally:
            self.loader.execute(f"DETACH {_AS}")

    def fingerprints(self, names: Collection[str]) -> Mapping[str, object]:
        known = (
            f"SELECT lower(table_name), table_type = 'VIEW' FROM information_schema.tables"
            f" WHERE table_catalog = '{_AS}' AND table_schema = 'main'"
        )
        found = dict(self.loader.execute(known).fetchall())
        there = sorted(found.keys() & set(names))
        self._views = {name for name in there if found[name]}
        asked = {name: f"SELECT count(*), sum(hash(own)) FROM {_table(name)} AS own" for name in there}
        return {name: self.loader.execute(sql).fetchall() for name, sql in asked.items()}

    def rows(self, name: str) -> Rows:
        return Rows(self.loader, f"SELECT * FROM {_table(name)}", self.place)

    def columns(self, name: str) -> Sequence[str]:
        return list(self.rows(name).columns())

    def placed(self, name: str, columns: Sequence[str]) -> Rows:
        chosen = ", ".join((f"{self._row_id(name)} AS {quote(PLACE)}", *map(quote, columns)))
        return Rows(self.loader, f"SELECT {chosen} FROM {_table(name)} AS own", self.place)

    def put(self, table: Table, column: str, cells: Sequence[Cell]) -> None:
        put_by_row(self.loader, _table(table.name), column, cells, self._row_id(table.name))

    def refusal(self, error: Exception) -> str | None:
        import duckdb

        refusing = (
            duckdb.ProgrammingError,
            duckdb.IntegrityError,
            duckdb.DataError,
            duckdb.NotSupportedError,
        )
        return first_line(error) if isinstance(error, refusing) else None

    def _row_id(self, name: str) -> str:
        """What tells rows apart, in SQL: all of a row in a view, and where a column hides its id."""
        has_none = name.lower() in self._views or "rowid" in map(str.lower, self.columns(name))
        return "CAST(own AS VARCHAR)" if has_none else "own.rowid"


def _table(name: str) -> str:
    return f"{_AS}.main.{quote(name)}"
