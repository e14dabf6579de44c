"""The state database: what the management plane believes about hosts, data and placement, as SQL rows.

``Database(url)`` is embedded SQLite for a path or ``:memory:`` and PostgreSQL for ``postgresql://...``; both take the
same schema and the same policies and behave alike.  Every transaction that changes a row counts the version up;
a solve reads one snapshot, which is a private copy, so that a long solve neither blocks writers nor sees half a
change; and a plan is applied as a compare-and-set on the version it was computed from.  The time is part of the
snapshot: it stands still in one, and in a private copy.

What it is not: it knows nothing of policies.  What a kind of database must do is ``mgmt.state.store``.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from copy import copy
from datetime import UTC, datetime
from typing import Any

from mgmt.errors import StalePlanError, StateDatabaseError
from mgmt.solution import Solution
from mgmt.source import SourceText
from mgmt.state.schema import Schema
from mgmt.state.store import STATEMENT_SECONDS, Parameters, Row, Snapshot, Store

__all__ = ["Database", "Snapshot"]


class Database:
    """A state database.  Safe to use from several threads; each call is one transaction.

    Raises DataError when a row breaks the schema, StateDatabaseError when the database itself is not to be had.  A
    statement of a policy that keeps the database busy for more than ``statement_seconds`` is stopped, with a
    StatementTimeoutError; over empty tables, when a model is built, for more than a second.

    With ``create`` false it must be a state database already: nothing is made in it, and of a schema those tables
    are used that it holds.
    """

    def __init__(
        self, url: str = ":memory:", *, statement_seconds: float = STATEMENT_SECONDS, create: bool = True
    ) -> None:
        self._store = _open(url, statement_seconds, create=create)
        self._create = create
        self._schema = Schema()
        self._read = Schema()  # also the tables that are not there
        self._schema_texts: tuple[SourceText, ...] = ()
        self._moment: datetime | None = None
        self._same_as: Database | None = None

    @property
    def schema(self) -> Schema:
        """The tables loaded so far."""
        return self._schema

    @property
    def schema_texts(self) -> tuple[SourceText, ...]:
        """The texts the schema was loaded from, in order."""
        return self._schema_texts

    @property
    def version(self) -> int:
        """Counts up with every transaction that changed a row."""
        return self._store.version

    @property
    def functions(self) -> frozenset[str]:
        """The names, in lower case, of the functions that policies may leave to the database."""
        return self._store.functions

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
        same._same_as = self  # a private copy is closed when nobody has it any more
        return same

    def load_schema(self, sql: str, source: str = "schema.sql") -> None:
        """Create the tables of a schema text; a table that the database already holds keeps its rows.

        In a database that is to be used as it is (``create`` false), tables that are not there are left out.
        """
        from mgmt.state.schema_parser import parse_schema

        known = self._read
        text = SourceText(source, sql)
        schema = parse_schema(text, known)
        tables, indexes = schema.tables[len(known.tables) :], schema.indexes[len(known.indexes) :]
        if self._create:
            self._store.create(tables, indexes)
            used = schema
        else:
            used = Schema((*self._schema.tables, *self._store.held(tables)))
        self._store.use(used)
        self._read, self._schema = schema, used
        self._schema_texts = (*self._schema_texts, text)

    def execute(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Run one SQL statement in a transaction of its own and return its rows."""
        return self._store.execute(sql, parameters)

    def execute_many(self, sql: str, rows: Iterable[Parameters]) -> None:
        """Run one SQL statement for each row, all in one transaction."""
        self._store.execute_many(sql, rows)

    def insert(self, table: str, rows: Iterable[Row]) -> None:
        """Insert rows given as mappings from column to value, all in one transaction."""
        self._store.insert([(self.schema.table(table), rows)])

    def replace_rows(self, contents: Mapping[str, Iterable[Row]]) -> None:
        """Replace all rows of the tables named, in one transaction (one version)."""
        self._store.insert(
            [(self.schema.table(table), rows) for table, rows in contents.items()], replace=True
        )

    def snapshot(self, moment: datetime | None = None) -> Snapshot:
        """A private copy of the whole state at its present version, and of this moment (by default: the present)."""
        return self._store.snapshot(self.schema, moment or self.now())

    def rehearsal(self) -> Snapshot:
        """A snapshot with the tables of the schema and not a row in them."""
        return self._store.rehearsal(self.schema)

    def clone(self, contents: bytes | None = None, moment: datetime | None = None) -> Database:
        """A private copy in memory: same schema, rows and version.  Changes to it are seen by nobody else.

        With ``contents``, the rows and the version are those of an earlier snapshot (``Snapshot.dump``).  The time
        stands still in it, at ``moment`` (by default: the present, or that of this database where it stands still).
        """
        moment = moment or self.now()
        if contents is None:
            with self.snapshot(moment) as snapshot:
                contents = snapshot.dump()
        other = Database(statement_seconds=self._store.statement_seconds)
        # Nobody else would close it: its connection refers to itself in ways that the garbage collector cannot see.
        weakref.finalize(other, other._store.close)
        other._store.restore(contents)
        other._schema, other._read, other._schema_texts = self._schema, self._schema, self._schema_texts
        other._moment = moment
        return other

    def apply(self, solution: Solution, now: float | None = None) -> int:
        """Write a solution if the state is still at its version; returns the new version.

        One that changes nothing is not written, and leaves the version as it is.

        ``now``: the time in Unix seconds, from which SET cooldown counts if anything moves; by default the present, or
        that of a private copy.

        Raises StalePlanError when the state has changed since the snapshot was taken.
        """
        if not solution.deltas:
            current = self.version
            if current != solution.version:
                raise StalePlanError(solution.version, current)
            return current
        return self._store.apply(self.schema, solution, self.now().timestamp() if now is None else now)

    def close(self) -> None:
        """Close the connection."""
        self._store.close()


def _open(url: str, statement_seconds: float, *, create: bool) -> Store:
    scheme, separator, _ = url.partition("://")
    if not separator:
        from mgmt.state.sqlite import SqliteStore

        return SqliteStore(url, statement_seconds, create=create)
    if scheme in {"postgresql", "postgres"}:
        from mgmt.state.postgres.store import PostgresStore

        return PostgresStore(url, statement_seconds, create=create)
    raise StateDatabaseError(
        f"no state database for {scheme}:// addresses",
        hint="give the path of a file, :memory:, or postgresql://user@host/database",
    )
