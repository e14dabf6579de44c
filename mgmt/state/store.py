"""What a kind of state database must do: the store under ``mgmt.state.database.Database``, and its snapshots.

SQL is given as SQLite reads it, with names in any case; a store of another kind translates it.

What it is not: an implementation (see ``sqlite`` and ``postgres``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mgmt.errors import DataError, PolicySyntaxError, StateDatabaseError, UnknownColumnError
from mgmt.solution import PrimaryKey, Solution, Value
from mgmt.state.schema import Schema, SqlType, Table

Parameters = Sequence[Value] | Mapping[str, Value]
Row = Mapping[str, Value]

VERSION_TABLE = "rota_state_version"
SQLITE_VERSION_TABLE = (
    f"CREATE TABLE IF NOT EXISTS {VERSION_TABLE}"
    " (version INTEGER NOT NULL, format INTEGER NOT NULL DEFAULT 1, moved_at REAL)"
)
"""What makes it in an SQLite file, be it a state database or a snapshot's dump."""
# Of the version table and the triggers; a database of a later one is refused.
FORMAT = 1


STATEMENT_SECONDS = 30.0
"""How long one statement of a snapshot may take: far longer than any of the largest states needs."""
REHEARSAL_SECONDS = 1.0
"""The same over empty tables."""


MOST_ROWS = 5_000_000
"""Of one query: more than the largest states need, and less than the memory holds."""


@dataclass(frozen=True, slots=True)
class ByKey:
    """That the rows of a view with a key come of the tables' rows with that key alone, and of nothing else."""

    column: str
    """Of the view: the key."""
    columns: tuple[str, ...]
    """All columns of the view."""
    tables: Mapping[str, str]
    """Per table below it, in lower case, the column that holds the key."""
    below: tuple[tuple[str, str], ...]
    """The views between it and the tables, with their SQL, in order."""


@dataclass(frozen=True, slots=True)
class KeptView:
    """A view that is to stay."""

    name: str
    sql: str
    computed: bool
    """Whether it will be asked often, so that its rows are best computed once."""
    reads: frozenset[str] = frozenset()
    """The tables below it, in lower case; of a computed one."""
    changing: bool = False
    """Whether it may say something else although no row has changed."""
    by_key: ByKey | None = None


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows of a kept view, and which of them are others than they were."""

    number: int
    state: int
    """Another number when any row is another."""
    before: int | None = None
    """The state that they differ from in some places; None if nobody knows."""
    places: Sequence[int] = ()
    """Those, counted from 0 in the order of the rows; ``_rowid_`` is one more."""


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """When statements must have ended, by the monotonic clock, and how long they had ``together``."""

    deadline: float
    seconds: float


Place = Callable[[str], AbstractContextManager[None]]
"""What the database says against a statement is said inside this, so that it is known what the statement was for."""


def no_place(name: str) -> AbstractContextManager[None]:
    """Nobody wants to know."""
    del name
    return nullcontext()


class RefusedStatementError(PolicySyntaxError):
    """The database does not run a statement.  ``unknown_function``: because it calls one that does not exist."""

    def __init__(self, reason: str, *, unknown_function: bool = False) -> None:
        super().__init__(f"the state database refuses this: {reason}")
        self.reason = reason
        self.unknown_function = unknown_function


def refused_values(reason: object) -> DataError:
    """The error for values or rows that the database does not take, or cannot compute with."""
    return DataError(
        f"the state database refuses this: {reason}",
        hint="compare the values with the types of their columns, and with what the schema demands of a row",
    )


def too_many_rows() -> DataError:
    """The error for a query of more than ``MOST_ROWS``."""
    return DataError(
        f"it makes more than {MOST_ROWS} rows",
        hint="filter or aggregate earlier, and look whether a join or a recursion is meant to make so many",
    )


class Store(ABC):
    """One state database.  Safe to use from several threads; each call is one transaction.

    Every transaction that changes a row counts the version up by one.  A statement of a snapshot that takes more than
    ``statement_seconds`` is a StatementTimeoutError, one of a rehearsal ``rehearsal_seconds``.
    """

    def __init__(self, statement_seconds: float) -> None:
        self.statement_seconds = statement_seconds
        self.rehearsal_seconds = min(statement_seconds, REHEARSAL_SECONDS)

    @property
    @abstractmethod
    def version(self) -> int:
        """The number of transactions that have changed a row."""

    @property
    @abstractmethod
    def functions(self) -> frozenset[str]:
        """The names, in lower case, of the functions that queries may call."""

    @abstractmethod
    def create(self, tables: Sequence[Table], indexes: Sequence[str]) -> None:
        """Create what of these tables and indexes is not there yet."""

    @abstractmethod
    def held(self, tables: Sequence[Table]) -> tuple[Table, ...]:
        """Those of these tables that are there.  DataError for one that is there in another shape."""

    def use(self, schema: Schema) -> None:
        """These are its tables from now on."""
        del schema

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
    def snapshot(self, schema: Schema, moment: datetime) -> Snapshot:
        """A private copy of the schema's tables at the present version; ``moment``: the time in it."""

    @abstractmethod
    def rehearsal(self, schema: Schema) -> Snapshot:
        """A snapshot with the tables of the schema and not a row in them."""

    @abstractmethod
    def apply(self, schema: Schema, solution: Solution, now: float) -> int:
        """Write a solution if the state is still at its version, else StalePlanError; returns the new version.

        If rows move by it, ``now`` (Unix seconds) is kept as the time when they did.
        """

    def restore(self, contents: bytes) -> None:
        """Become the copy that a snapshot dumped.  Only an embedded store can."""
        del contents
        raise StateDatabaseError(
            "this state database cannot be replaced by a dump", hint="restore it into memory"
        )

    @abstractmethod
    def close(self) -> None:
        """Close every connection."""


class Snapshot(ABC):
    """A private, complete copy of the state at one version.  What is done to it is seen by nobody else."""

    def __init__(self, schema: Schema, version: int, moment: datetime) -> None:
        self.schema = schema
        self.version = version
        self.moment = moment
        """The time, for all statements that ask for it; in UTC."""
        self.moved_at: float | None = None
        """When a plan last moved rows, in Unix seconds; None: no plan has."""
        self.table_versions: Mapping[str, int] = {}
        """Per table, in lower case, a number that changes when its rows do; a table without one may have changed."""

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def within(self, seconds: float) -> AbstractContextManager[None]:
        """Inside, all queries and kept views together may take so long, and each not longer than it may anyway."""

    @abstractmethod
    def rows(self, sql: str, parameters: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query; conditions are 1 and 0."""

    @abstractmethod
    def run(self, sql: str, rows: Iterable[Sequence[Value]] | None = None) -> None:
        """Change the private copy: once, or for each row of parameters."""

    @abstractmethod
    def columns(self, sql: str) -> list[str]:
        """The names of a query's columns; also checks that the database can run it."""

    @abstractmethod
    def define_view(self, name: str, sql: str) -> None:
        """Make a view of a query."""

    def keep_views(self, views: Sequence[KeptView], at: Place = no_place) -> None:
        """Make views, in this order, that stay, if this kind of snapshot can; each inside ``at`` of its name.

        Until the snapshot is dumped ``define_view`` then has nothing to do for them.
        """
        del views, at

    def kept_rows(self, name: str) -> KeptRows | None:
        """What is known of a kept view's rows, if they have an order and change in places."""
        del name
        return None

    @abstractmethod
    def define_table(
        self, name: str, columns: Sequence[tuple[str, SqlType]], rows: Sequence[Sequence[Any]]
    ) -> None:
        """Make a table of these rows; they are numbered from 1 on by ``_rowid_``, in order."""

    @abstractmethod
    def write(self, table: Table, columns: Mapping[str, Mapping[PrimaryKey, Value]]) -> None:
        """Put values into columns; of each, those of the rows with these primary keys."""

    @abstractmethod
    def scratch(self) -> AbstractContextManager[None]:
        """Whatever is changed inside is undone at the end."""

    @abstractmethod
    def dump(self) -> bytes:
        """The copy as the bytes of an SQLite file, for a replayable bundle."""

    @abstractmethod
    def close(self) -> None:
        """Free the copy."""


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


def no_state_database(url: str) -> StateDatabaseError:
    """The error for a database that was to be used as it is, and has never been one of ours."""
    return StateDatabaseError(
        f"{url} is no state database: it has no table {VERSION_TABLE}",
        hint="give the address of one, or make one of it: mgmt.Database(url).load_schema(text)",
    )


def made_by_an_older_rota(url: str) -> StateDatabaseError:
    """The error for a database that was to be used as it is, and lacks what was added since it was made."""
    return StateDatabaseError(
        f"the state database {url} was made by an older rota",
        hint="open it once with mgmt.Database(url), which adds what it lacks",
    )


def refuse_later_format(found: int, url: str) -> None:
    """StateDatabaseError when the database was made by a later version of this program."""
    if found > FORMAT:
        raise StateDatabaseError(
            f"the state database {url} has format {found}; this program knows formats up to {FORMAT}",
            hint="it was used by a newer rota: upgrade this one, or use another database",
        )
