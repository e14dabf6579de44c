"""A DuckDB file as a source: those of its tables that the schema declares.

It is open only while it is read or written.  A table has changed when the number of its rows has, or the sum of their
hashes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from mgmt.state.schema import Table, literal, quote
from mgmt.state.sources.source import PLACE, Cell, Rows, Source, put_by_row

_AS = "outside"


class DuckDbFile(Source):
    """The tables of its schema ``main``."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.file = path.resolve()

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[None]:
        mode = "READ_WRITE" if writing else "READ_ONLY"
        self.loader.execute(f"ATTACH {literal(str(self.file))} AS {_AS} ({mode}); BEGIN")
        try:
            yield
            self.loader.execute("COMMIT")
        except BaseException:
            self.loader.execute("ROLLBACK")
            raise
        finally:
            self.loader.execute(f"DETACH {_AS}")

    def fingerprints(self, names: Collection[str]) -> Mapping[str, object]:
        known = f"SELECT lower(table_name) FROM duckdb_tables() WHERE database_name = '{_AS}' AND schema_name = 'main'"
        there = sorted({name for (name,) in self.loader.execute(known).fetchall()} & set(names))
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

    def _row_id(self, name: str) -> str:
        """What tells rows apart, in SQL: all of a row where a column hides its id."""
        is_hidden = "rowid" in map(str.lower, self.columns(name))
        return "CAST(own AS VARCHAR)" if is_hidden else "own.rowid"


def _table(name: str) -> str:
    return f"{_AS}.main.{quote(name)}"
