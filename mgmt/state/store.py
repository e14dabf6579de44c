"""Where the rows of a state live: what a store must do, and what all of them have in common.

What it is not: an implementation (see ``duckdb_store``); policies run over a copy (see ``snapshot``), never in a store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mgmt.errors import DataError, StateDatabaseError, UnknownColumnError
from mgmt.solution import PrimaryKey, Solution, Value
from mgmt.state.duckdb_access.engine import Catalog
from mgmt.state.duckdb_access.values import stored
from mgmt.state.schema import Schema, Table

if TYPE_CHECKING:
    import duckdb

Parameters = Sequence[Value] | Mapping[str, Value]
Row = Mapping[str, Value]
Fill = Callable[[Table, Callable[["duckdb.DuckDBPyConnection"], None], bool], None]
"""Fill a table by what is done with a connection; if so said, in place of the rows that it has."""

VERSION_TABLE = "rota_state_version"
# Of the version table; a database of a later one is refused.
FORMAT = 1


Cells = tuple[str, str]
"""A table and a column of it, in lower case; or instead of a column WHOLE, all of them, or NUMBER, how many rows."""
WHOLE, NUMBER = "*", ""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: the version, when a plan last moved rows (Unix seconds), and a number per table.

    The numbers, by names in lower case, change when a table's rows do.  ``changed``: of the tables that were read anew,
    what is not as it was.
    """

    version: int
    moved_at: float | None
    tables: Mapping[str, int]
    changed: frozenset[Cells] = frozenset()


def cells_of(table: Table) -> frozenset[Cells]:
    """All that can change of a table."""
    name = table.name.lower()
    return frozenset((name, part) for part in (WHOLE, NUMBER, *(c.name.lower() for c in table.columns)))


class Store(ABC):
    """The rows of one state.  Safe to use from several threads; each call is one transaction.

    Every transaction that changes a row counts the version up by one.
    """

    @property
    @abstractmethod
    def version(self) -> int:
        """The number of transactions that have changed a row."""

    @abstractmethod
    def create(self, tables: Sequence[Table]) -> None:
        """Create those of these tables that are not there yet."""

    @abstractmethod
    def held(self, tables: Sequence[Table]) -> tuple[Table, ...]:
        """Those of these tables that are there.  DataError for one that is there in another shape."""

    @abstractmethod
    def use(self, schema: Schema) -> None:
        """These are its tables from now on."""

    @abstractmethod
    def execute(self, sql: str, parameters: Parameters) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""

    @abstractmethod
    def execute_many(self, sql: str, rows: Iterable[Parameters]) -> None:
        """Run one statement for each row."""

    @abstractmethod
    def insert(self, contents: Sequence[tuple[Table, Iterable[Row]]], *, replace: bool = False) -> None:
        """Insert rows; with ``replace`` the tables are emptied first."""

    @abstractmethod
    def filling(self) -> AbstractContextManager[Fill]:
        """One transaction in which tables are filled, in whole columns."""

    @abstractmethod
    def new_catalog(self) -> Catalog:
        """An empty one that ``read`` can fill."""

    @abstractmethod
    def read(self, catalog: Catalog, schema: Schema, known: Mapping[str, int]) -> Reading:
        """Make the tables of a catalog those of the present version; those whose number is known are there."""

    @abstractmethod
    def apply(self, schema: Schema, solution: Solution, now: float) -> int:
        """Write a solution if the state is still at its version, else StalePlanError; returns the new version.

        If rows move by it, ``now`` (Unix seconds) is kept as the time when they did.
        """

    @abstractmethod
    def close(self) -> None:
        """Close every connection."""


def written_columns(
    schema: Schema, solution: Solution
) -> Iterator[tuple[Table, list[str], Mapping[PrimaryKey, Value]]]:
    """What applying a solution writes: a table, columns of it (the variable, and its value of today), and values."""
    for (table_name, variable), values in solution.assignments.items():
        if values:
            table = schema.table(table_name)
            column = table.column(variable)
            yield table, [column.name, *([column.current] if column.current else [])], values


def check_columns(table: Table, row: Row) -> None:
    """UnknownColumnError for a name that is no column of the table."""
    for name in row:
        try:
            table.column(name)
        except KeyError:
            raise UnknownColumnError(
                f"no column {name!r} in table {table.name!r}",
                hint=f"it has {', '.join(column.name for column in table.columns)}",
            ) from None


def checked_rows(
    table: Table, rows: Iterable[Row]
) -> Iterator[tuple[tuple[str, ...], list[tuple[Any, ...]]]]:
    """Rows in runs of the same columns, each value checked against its column's type."""
    names: tuple[str, ...] = ()
    run: list[tuple[Any, ...]] = []
    for row in rows:
        if tuple(row) != names or not run:
            check_columns(table, row)
            if not row:
                raise refused_row(table, row, "it has no value")
            if run:
                yield names, run
            names, run = tuple(row), []
            types = [table.column(name).type for name in names]
        try:
            run.append(tuple(map(stored, row.values(), types)))
        except DataError as error:
            raise refused_row(table, row, error.message, error.hint) from error
    if run:
        yield names, run


def refused_row(table: Table, row: Row, reason: str, hint: str | None = None) -> DataError:
    """The error for a row that breaks the schema."""
    return DataError(
        f"table {table.name!r} refuses a row: {reason}",
        rows=[dict(row)],
        hint=hint or "mend the row, or the rule of the schema that it breaks",
    )


def no_state_database(url: str) -> StateDatabaseError:
    """The error for a database that was to be used as it is, and has never been one of ours."""
    return StateDatabaseError(
        f"{url} is no state database: it has no table {VERSION_TABLE}",
        hint="rows that are to stay where they are go with --data, or mgmt.Database(data=...)",
    )


def refuse_later_format(found: int, url: str) -> None:
    """StateDatabaseError when the database was made by a later version of this program."""
    if found > FORMAT:
        raise StateDatabaseError(
            f"the state database {url} has format {found}; this program knows formats up to {FORMAT}",
            hint="it was used by a newer rota: upgrade this one, or use another database",
        )
