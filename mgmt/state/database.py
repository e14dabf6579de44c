"""The state database: what the management plane believes about hosts, data and placement, as SQL rows.

``Database()`` is DuckDB in memory, ``Database(path)`` a DuckDB file.  Every transaction that changes a row counts the
version up; a solve reads one snapshot, which is a private copy, so that a long solve neither blocks writers nor sees
half a change; and a plan is applied as a compare-and-set on the version it was computed from.  The time is part of the
snapshot: it stands still in one, and in a private copy.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from copy import copy
from datetime import UTC, datetime
from functools import partial
from typing import Any

from mgmt.errors import StalePlanError
from mgmt.solution import Solution
from mgmt.source_text import SourceText
from mgmt.state.date_texts import REHEARSED
from mgmt.state.duckdb_access.engine import STATEMENT_SECONDS
from mgmt.state.memory_limits import LEAST_MEMORY, MEMORY
from mgmt.state.schema import Schema, Table, create_table
from mgmt.state.snapshot import PrivateCopy, Reading, Snapshot
from mgmt.state.sources.attached_sources import Attached
from mgmt.state.sources.loading import at_place, load
from mgmt.state.sources.misspelling import misspelt
from mgmt.state.sources.opening import Data, is_source, open_sources
from mgmt.state.sources.python_data import is_tabular, rows_of
from mgmt.state.sources.source import Change, ChangedError, Rows, new_loader
from mgmt.state.store import Parameters, Row, Store, changed_by, written_columns

__all__ = ["Database", "Snapshot"]

REHEARSAL_SECONDS = 1.0
"""Of the processor: how long a statement over empty tables may take."""


class _Copies:
    """The private copies of one database: one that is not in use is kept for the next snapshot."""

    def __init__(self, store: Store, seconds: float) -> None:
        self._store, self._seconds = store, seconds
        self._lock = threading.Lock()
        self._idle: PrivateCopy | None = None

    def take(self, schema: Schema) -> tuple[PrivateCopy, Reading]:
        with self._lock:
            kept, self._idle = self._idle, None
        if kept is not None and kept.schema is not schema:
            kept.catalog.close()
            kept = None
        if kept is None:
            kept = PrivateCopy(self._store.new_catalog(), schema)
            kept.catalog.seconds = self._seconds
        return kept, kept.bring_up_to_date(self._store.read)

    def give_back(self, used: PrivateCopy) -> None:
        with self._lock:
            if not used.spoilt and self._idle is None:
                self._idle, used = used, PrivateCopy(used.catalog, used.schema)
                return
        used.catalog.close()

    def close(self) -> None:
        with self._lock:
            if self._idle is not None:
                self._idle.catalog.close()
            self._idle = None


class Database:
    """A state database.  Safe to use from several threads; each call is one transaction.

    Raises DataError when a row breaks the schema, StateDatabaseError when the database itself is not to be had.  A
    statement of a policy that keeps the database busy for more than ``statement_seconds`` is stopped, with a
    StatementTimeoutError; over empty tables, when a model is built, for more than a second.  ``memory``: bytes that
    rows and statements may take in the database, and beside them a model that is left to CP-SAT; what needs more
    is refused, the model before it is built.

    With ``create`` false it must be a state database already: nothing is made in it, and of a schema those tables
    are used that it holds.
    """

    def __init__(
        self,
        url: str = ":memory:",
        *,
        data: Data = (),
        statement_seconds: float = STATEMENT_SECONDS,
        memory: int = MEMORY,
        create: bool = True,
    ) -> None:
        if memory < LEAST_MEMORY:
            raise ValueError(f"memory: {memory} bytes are too few, at least {LEAST_MEMORY} are needed")
        outside = is_source(url)
        path = None if outside or url == ":memory:" else url
        self._store = Store(path, create=create, memory=memory)
        self._seconds, self._memory = statement_seconds, memory
        self._copies = _Copies(self._store, statement_seconds)
        self._create = create or outside
        self._schema = Schema()
        self._read = Schema()  # also the tables that are not there
        self._schema_texts: tuple[SourceText, ...] = ()
        self._moment: datetime | None = None
        self._sources = Attached()
        self._reading = threading.RLock()
        if outside:
            self.attach(url)
        self.attach(data)

    def attach(self, data: Data) -> None:
        """Take rows from outside: paths and addresses, or by the names of tables paths and Python data.

        A file is a table, by its stem or as ``name=path``, with the types that DuckDB finds unless a schema declares
        it; of a database those tables are used that the schema declares.  Python data is copied.
        """
        with self._reading:
            for source in open_sources(data):
                found = tuple(self._sources.add(source, self._read))
                self._store.create(found)
                self._read = Schema((*self._read.tables, *found))
                self._schema = Schema((*self._schema.tables, *found))
                self._store.use(self._schema)

    def refresh(self) -> None:
        """Read from the sources what has changed there; a snapshot does it anyway."""
        if not self._sources:
            return
        with self._reading, self._forgetting(), self._store.filling() as fill:

            def take(table: Table, rows: Rows) -> None:
                with at_place(rows.place):
                    fill(table, partial(load, table=table, rows=rows), True)

            self._sources.refresh(self._schema, take)

    def has_rows_of_schema(self) -> bool:
        """Whether any of the schema's tables is there: in it, where it was not made, or in a source."""
        self.refresh()
        return bool(self._schema.tables) and (bool(self._sources.tables) or not self._sources)

    @property
    def brought_tables(self) -> set[str]:
        """The tables, in lower case, that a source brings; without sources all, whose rows it keeps itself."""
        found = [table.name.lower() for table in self._schema.tables if table.found or not self._sources]
        return {*self._sources.tables, *found}

    def misspelt_tables(self) -> dict[str, str]:
        """Tables that the schema declares and no source brings, each with one that a source brings instead."""
        found = [table.name.lower() for table in self._schema.tables if table.found]
        missing = {table.name.lower() for table in self._schema.tables} - self.brought_tables
        near = {name: misspelt(name, found) for name in sorted(missing)}
        return {name: other for name, other in near.items() if other is not None}

    @property
    def schema(self) -> Schema:
        """The tables loaded so far."""
        return self._schema

    @property
    def schema_texts(self) -> tuple[SourceText, ...]:
        """The texts the schema was loaded from, in order; the last is of the tables that none of them declares."""
        found = [create_table(table) for table in self._schema.tables if table.found]
        text = SourceText("undeclared tables", ";\n".join(found))
        return (*self._schema_texts, text) if found else self._schema_texts

    @property
    def version(self) -> int:
        """Counts up with every transaction that changed a row."""
        return self._store.version

    @property
    def moment(self) -> datetime | None:
        """The time in it, where that stands still: in a private copy; else None."""
        return self._moment

    def now(self) -> datetime:
        """The time for who asks now: ``moment``, or where it goes on, the present."""
        return self._moment or datetime.now(UTC)

    def at(self, moment: datetime) -> Database:
        """The same database, as if it were this time.  Changes to one are changes to the other."""
        same = copy(self)
        same._moment = moment
        return same

    def load_schema(self, sql: str, source: str = "schema.sql") -> None:
        """Create the tables of a schema text; a table that the database already holds keeps its rows.

        In a database that is to be used as it is (``create`` false), tables that are not there are left out.
        """
        from mgmt.state.schema_parsing.parser import parse_schema

        known = self._read
        text = SourceText(source, sql)
        schema = parse_schema(text, known)
        tables = tuple(table for table in schema.tables if table not in known.tables)
        if self._create:
            self._store.create(tables)
            used = schema
        else:
            used = Schema((*self._schema.tables, *self._store.held(tables)))
        self._store.use(used)
        self._read, self._schema = schema, used
        self._sources.forget(table.name for table in tables if known.find(table.name) is not None)
        self._schema_texts = (*self._schema_texts, text)

    def execute(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Run one SQL statement in a transaction of its own and return its rows."""
        self.refresh()
        self._sources.refuse_changes(changed_by(sql))
        return self._store.execute(sql, parameters, self.now())

    def execute_many(self, sql: str, rows: Iterable[Parameters]) -> None:
        """Run one SQL statement for each row, all in one transaction."""
        self._sources.refuse_changes(changed_by(sql))
        self._store.execute_many(sql, rows, self.now())

    def insert(self, table: str, rows: Iterable[Row] | object) -> None:
        """Insert rows, all in one transaction: mappings from column to value, or whole columns (a frame, say)."""
        self._insert({table: rows}, replace=False)

    def replace_rows(self, contents: Mapping[str, Iterable[Row] | object]) -> None:
        """Replace all rows of the tables named, in one transaction (one version)."""
        self._insert(contents, replace=True)

    def _insert(self, contents: Mapping[str, Any], *, replace: bool) -> None:
        self._sources.refuse_changes({name.lower() for name in contents})
        tables = [(self.schema.table(name), rows) for name, rows in contents.items()]
        if not any(is_tabular(rows) for _, rows in tables):
            self._store.insert(tables, replace=replace)
            return
        with self._store.filling() as fill, closing(new_loader()) as loader:
            for table, data in tables:
                rows = rows_of(data, f"the data for {table.name!r}", loader)
                with at_place(rows.place):
                    fill(table, partial(load, table=table, rows=rows), replace)

    def snapshot(self, moment: datetime | None = None) -> Snapshot:
        """A private copy of the whole state at its present version, and of this moment (by default: the present)."""
        self.refresh()
        used, reading = self._copies.take(self.schema)
        return Snapshot(used, reading, moment or self.now(), self._copies.give_back)

    def rehearsal(self) -> Snapshot:
        """A snapshot with the tables of the schema and not a row in them."""
        catalog = self._store.new_catalog()
        catalog.seconds, catalog.over_rows = min(self._seconds, REHEARSAL_SECONDS), False
        for table in self.schema.tables:
            catalog.run(create_table(table))
        empty = PrivateCopy(catalog, self.schema)
        return Snapshot(empty, Reading(0, None, {}), REHEARSED, lambda _: catalog.close())

    def clone(self, contents: bytes | None = None, moment: datetime | None = None) -> Database:
        """A private copy in memory: same schema, rows and version.  Changes to it are seen by nobody else.

        With ``contents``, the rows and the version are those of an earlier snapshot (``Snapshot.dump``).  The time
        stands still in it, at ``moment`` (by default: the present, or that of this database where it stands still).
        """
        moment = moment or self.now()
        other = Database(statement_seconds=self._seconds, memory=self._memory)
        other._store.create(self._schema.tables)
        other._store.use(self._schema)
        other._schema, other._read, other._schema_texts = self._schema, self._schema, self._schema_texts
        if contents is not None:
            other.restore(contents)
        else:
            with self.snapshot(moment) as snapshot:
                if not other._store.copy(snapshot):
                    other.restore(snapshot.dump())
        other._moment = moment
        return other

    def restore(self, contents: bytes) -> None:
        """Put the rows and the version of a dump into the empty tables of one in memory; others' rows are left out."""
        self._store.restore(contents, self._schema)

    def apply(self, solution: Solution, now: float | None = None) -> int:
        """Write a solution if the state is still at its version; returns the new version.

        One that changes nothing is not written, and leaves the version as it is.

        ``now``: the time in Unix seconds, from which SET cooldown counts if anything moves; by default the present, or
        that of a private copy.

        Raises StalePlanError when the state has changed since the snapshot was taken.
        """
        if not solution.deltas:
            self.refresh()
            current = self.version
            if current != solution.version:
                raise StalePlanError(solution.version, current)
            return current
        now = self.now().timestamp() if now is None else now
        if not self._sources:
            return self._store.apply(self.schema, solution, now)
        changes = [Change(*written) for written in written_columns(self.schema, solution)]
        with self._reading:
            try:
                if self._store.version == solution.version:
                    with self._forgetting(), self._sources.changing(changes):
                        return self._store.apply(self.schema, solution, now)
            except ChangedError:
                self.refresh()
            raise StalePlanError(solution.version, self._store.version)

    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        """What is raised inside leaves it open what is known of the sources: all is read again."""
        try:
            yield
        except BaseException:
            self._sources.forget(table.name for table in self._schema.tables)
            raise

    def close(self) -> None:
        """Close the connection."""
        self._copies.close()
        self._sources.close()
        self._store.close()
