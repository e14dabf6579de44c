"""A snapshot: a private copy of the state at one version, in which policies are computed.

Copies are used again: for the next snapshot only those tables are read that have changed, and what was computed of the
others stays.  Whatever is done to one in a ``scratch`` is undone; one to which anything else was done is given up.
What has changed, the store knows (``mgmt.state.store``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mgmt.errors import DataError
from mgmt.solution import PrimaryKey, Value
from mgmt.state.duckdb_access.bulk_rows import incoming, insert_rows, update_rows
from mgmt.state.duckdb_access.engine import Catalog, TimeLimit, errors
from mgmt.state.duckdb_access.values import stored
from mgmt.state.schema import Schema, SqlType, Table, quote, storage

if TYPE_CHECKING:
    from duckdb import Statement
    from numpy.typing import NDArray

Place = Callable[[str], AbstractContextManager[None]]
"""What the engine says against a statement is said inside this, so that it is known what the statement was for."""

_ROW = "rowid"

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


def no_place(name: str) -> AbstractContextManager[None]:
    """Nobody wants to know."""
    del name
    return nullcontext()


@dataclass(frozen=True, slots=True)
class KeptView:
    """A view that is to stay."""

    name: str
    sql: str
    computed: bool
    """Whether it will be asked often, so that its rows are best computed once."""
    reads: frozenset[Cells] = frozenset()
    """What is below it."""
    changing: bool = False
    """Whether it may say something else although no row has changed."""


@dataclass(slots=True)
class PrivateCopy:
    """A catalog with the tables of a schema, and what is kept in it beside them."""

    catalog: Catalog
    schema: Schema
    tables: Mapping[str, int] = field(default_factory=dict)
    """The numbers of the tables' contents (see :class:`Reading`)."""
    views: tuple[KeptView, ...] = ()
    versions: dict[Cells, int] = field(default_factory=dict)
    """Of all that can change, the number of its table's contents when it last did."""
    stale: set[Cells] = field(default_factory=set)
    """What is not as it was when the views were made."""
    filled: dict[str, bool] = field(default_factory=dict)
    """Of tables and views, in lower case, whether they have rows, where it is known."""
    spoilt: bool = False
    """Whether something was done to it that is not undone."""

    def bring_up_to_date(self, read: Callable[[Catalog, Schema, Mapping[str, int]], Reading]) -> Reading:
        """Read the tables that have changed."""
        reading = read(self.catalog, self.schema, self.tables)
        self.stale |= reading.changed
        self.versions.update((cells, reading.tables[cells[0]]) for cells in reading.changed)
        for name, _ in reading.changed:
            self.filled.pop(name, None)
        self.tables = reading.tables
        return reading


class Snapshot:
    """See the module.  Used by one thread at a time."""

    def __init__(
        self,
        copy: PrivateCopy,
        reading: Reading,
        moment: datetime,
        give_back: Callable[[PrivateCopy], None],
    ) -> None:
        """``give_back`` takes the copy when the snapshot is closed."""
        self.schema = copy.schema
        self.version = reading.version
        self.moment = moment
        """The time, for all statements that ask for it; in UTC."""
        self.moved_at = reading.moved_at
        """When a plan last moved rows, in Unix seconds; None: no plan has."""
        self.versions: Mapping[Cells, int] = copy.versions
        """Of tables and columns a number that changes when they do; what has none may have changed."""
        self._copy, self._give_back = copy, give_back
        self._catalog = copy.catalog
        self._catalog.tell(moment)
        self._scratches: list[list[str]] = []
        """Per scratch, the names of what was made in it."""
        self._there = {view.name.lower(): _kind(view) for view in copy.views}
        """Beside the tables of the schema: names in lower case, and whether each is a TABLE or a VIEW."""
        self._kept: set[str] = set()
        """Those of the kept views that are asked for and there."""
        self._settled: set[str] = set()
        """The tables and kept views, in lower case, that no value of a variable and nothing in a scratch changes."""
        self._closed = False

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """Inside, all queries and kept views together may take so long, and each not longer than it may anyway."""
        return self._catalog.within(seconds)

    @property
    def limit(self) -> TimeLimit | None:
        """Until when, where they may only take so long together."""
        return self._catalog.limit

    @property
    def memory(self) -> int:
        """The bytes that statements may take, and a model beside them."""
        return self._catalog.memory

    def parsed(self, sql: str) -> Statement:
        """A query that is asked again and again, of this or another snapshot."""
        return self._catalog.parsed(sql)

    def rows(self, sql: str | Statement, parameters: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return self._catalog.rows(sql, list(parameters))

    def arrays(self, sql: str) -> tuple[int, list[NDArray[Any]]]:
        """How many rows a query has, and its columns: of numbers, masked where they are NULL, or of objects."""
        return self._catalog.arrays(sql)

    def columns(self, sql: str) -> list[str]:
        """The names of a query's columns; also checks that the engine can run it."""
        return [name for name, _ in self._catalog.describe(sql)]

    def describe(self, sql: str) -> list[tuple[str, str]]:
        """The same with DuckDB's types."""
        return self._catalog.describe(sql)

    def keep_views(self, views: Sequence[KeptView], at: Place = no_place) -> None:
        """Make views, in this order, that stay; each inside ``at`` of its name.

        Until the snapshot is closed ``define_view`` then has nothing to do for them.
        """
        copy, spoilt = self._copy, self._copy.spoilt
        copy.spoilt = True  # should one of them fail
        if copy.views == tuple(views):
            others = [view for view in views if view.changing or view.reads & copy.stale]
            wanted = [view for view in others if view.computed]
        else:
            for view in reversed(copy.views):
                self._drop(view.name.lower())
            copy.views = ()
            others = wanted = list(views)
        for view in others:
            copy.filled.pop(view.name.lower(), None)
        for view in wanted:
            kind = self._there[view.name.lower()] = _kind(view)
            with at(view.name), self._catalog.limited(), errors("the state"):
                made = f"CREATE OR REPLACE {kind} {quote(view.name)} AS {view.sql}"
                counted = self._catalog.connection.execute(made).fetchall()
            if view.computed:
                copy.filled[view.name.lower()] = counted[0][0] > 0
        copy.views = tuple(views)
        copy.stale.clear()
        copy.spoilt = spoilt or bool(self._scratches)
        self._kept = {view.name.lower() for view in views}
        if not self._scratches:
            self._settled = {view.name.lower() for view in views if view.reads}
            self._settled |= {table.name.lower() for table in self.schema.tables}

    def has_rows(self, name: str) -> bool:
        """Whether a table or a kept view has any; where that is not known for sure, True."""
        name = name.lower()
        if name not in self._settled:
            return True
        found = self._copy.filled.get(name)
        if found is None:
            found = self._copy.filled[name] = bool(self.rows(f"SELECT 1 FROM {quote(name)} LIMIT 1"))
        return found

    def define_view(self, name: str, sql: str) -> None:
        """Make a view of a query."""
        if name.lower() in self._kept:
            return
        self._catalog.require_query(sql)
        self._making(name, "VIEW")
        before = f"CREATE OR REPLACE VIEW {quote(name)} AS "
        with errors("the state", before=len(before.encode())), self._catalog.limited():
            self._catalog.connection.execute(before + sql)

    def define_table(
        self,
        name: str,
        columns: Sequence[tuple[str, SqlType]],
        cells: Sequence[Sequence[Any]],
        count: int,
    ) -> None:
        """Make a table of so many rows, given by column; they are numbered from 0 on by ``rowid``, in order."""
        self._making(name, "TABLE")
        columns = [(column, _known(kind, each)) for (column, kind), each in zip(columns, cells, strict=True)]
        columns = [(_ROW, SqlType.INTEGER), *columns]  # rows of a transaction have no numbers yet
        listed = ", ".join(f"{quote(column)} {storage(kind)}" for column, kind in columns)
        self._catalog.run(f"CREATE TABLE {quote(name)} ({listed})")
        if not count:
            return
        with incoming(self._catalog, columns, [range(count), *cells]) as source, errors("the state"):
            self._catalog.connection.execute(f"INSERT INTO {quote(name)} SELECT * FROM {source}")

    def write(self, table: Table, columns: Mapping[str, Mapping[PrimaryKey, Value]]) -> None:
        """Put values into columns; of each, those of the rows with these primary keys."""
        self._changing()
        alike: dict[tuple[PrimaryKey, ...], dict[str, Sequence[Value]]] = {}
        for column, values in columns.items():
            alike.setdefault(tuple(values), {})[column] = tuple(values.values())
        for keys, cells in alike.items():
            update_rows(self._catalog, table, keys, cells)

    @contextmanager
    def scratch(self) -> Iterator[None]:
        """Whatever is changed inside is undone at the end; of what is made in an inner one, only that it is there."""
        outermost = not self._scratches
        self._scratches.append([])
        if outermost:
            self._catalog.run("BEGIN")
            before = set(self._kept), dict(self._there), set(self._settled)
        try:
            yield
        except BaseException:
            if outermost:
                self._catalog.run("ROLLBACK")
            raise
        else:
            if outermost:
                self._catalog.run("ROLLBACK")
            else:
                for name in reversed(self._scratches[-1]):
                    self._drop(name)
        finally:
            self._scratches.pop()
            if outermost:
                self._kept, self._there, self._settled = before

    def copy_into(self, catalog: Catalog) -> Reading | None:
        """Put the rows into the empty tables of another catalog; None where it does not see them."""
        if not catalog.sees(self._catalog):
            return None
        for table in self.schema.tables:
            names = ", ".join(quote(column.name) for column in table.columns)
            own = f"{quote(self._catalog.name)}.main.{quote(table.name)}"
            catalog.run(f"INSERT INTO {quote(table.name)} ({names}) SELECT {names} FROM {own}")
        return Reading(self.version, self.moved_at, {})

    def dump(self) -> bytes:
        """The rows and the version, for a replayable bundle."""
        tables = {}
        for table in self.schema.tables:
            names = ", ".join(quote(column.name) for column in table.columns)
            rows = self.rows(f"SELECT {names} FROM {quote(table.name)}")
            tables[table.name] = rows
        state = {"version": self.version, "moved_at": self.moved_at, "tables": tables}
        return json.dumps(state, ensure_ascii=False).encode()

    def close(self) -> None:
        """Free the copy."""
        if not self._closed:
            self._closed = True
            self._give_back(self._copy)
            del self._copy, self._catalog  # whoever has it next must not be disturbed

    def _making(self, name: str, kind: str) -> None:
        self._changing()
        name = name.lower()
        self._drop(name)
        self._there[name] = kind
        if name in self._kept:
            self._kept.discard(name)
            self._settled.clear()
            if not self._scratches:
                self._copy.views = ()
        if self._scratches:
            self._scratches[-1].append(name)

    def _drop(self, name: str) -> None:
        kind = self._there.pop(name, None)
        if kind is not None:
            self._catalog.run(f"DROP {kind} {quote(name)}")

    def _changing(self) -> None:
        """Something is done to the copy; outside of a scratch nobody undoes it."""
        if not self._scratches:
            self._copy.spoilt = True


def restore(contents: bytes, schema: Schema, catalog: Catalog) -> Reading:
    """Put the rows of a dump into the empty tables of a schema.  DataError when it is none of this schema."""
    try:
        state = json.loads(contents)
        tables = {str(name).lower(): rows for name, rows in state["tables"].items()}
        version, moved_at = int(state["version"]), state["moved_at"]
        for table in schema.tables:
            types = [column.type for column in table.columns]
            rows = [
                tuple(stored(*each) for each in zip(row, types, strict=True))
                for row in tables.get(table.name.lower(), ())
            ]
            if rows:
                insert_rows(catalog, table, [column.name for column in table.columns], rows)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"this is no dump of a state: {error}", hint="save it again") from error
    return Reading(version, None if moved_at is None else float(moved_at), {})


def _kind(view: KeptView) -> str:
    return "TABLE" if view.computed else "VIEW"


def _known(kind: SqlType, cells: Sequence[Any]) -> SqlType:
    """A type, or where only its values tell it, that of these."""
    if kind is not SqlType.UNKNOWN:
        return kind
    kinds = {type(cell) for cell in cells if cell is not None}
    if not kinds or kinds == {int}:
        return SqlType.INTEGER
    return {frozenset({bool}): SqlType.BOOLEAN, frozenset({float}): SqlType.REAL}.get(
        frozenset(kinds), SqlType.TEXT
    )
