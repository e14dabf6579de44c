"""The store: the rows of a state in DuckDB, in memory or in a file of its own, and how many transactions changed them.

Policies run over a copy (``mgmt.state.snapshot``), never in the store.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from mgmt.errors import DataError, StalePlanError, StateDatabaseError, UnknownColumnError
from mgmt.solution import PrimaryKey, Solution, Value
from mgmt.state.duckdb_access.bulk_rows import insert_rows, update_rows
from mgmt.state.duckdb_access.engine import Catalog, RefusedStatementError, errors, fetched
from mgmt.state.duckdb_access.values import stored
from mgmt.state.integrity_constraints import require_rules
from mgmt.state.memory_limits import MEMORY
from mgmt.state.schema import Schema, SqlType, Table, create_table, quote
from mgmt.state.snapshot import WHOLE, Cells, Reading, Snapshot, cells_of, restore

if TYPE_CHECKING:
    import duckdb

Parameters = Sequence[Value] | Mapping[str, Value]
Row = Mapping[str, Value]
Fill = Callable[[Table, Callable[["duckdb.DuckDBPyConnection"], None], bool], None]
"""Fill a table by what is done with a connection; if so said, in place of the rows that it has."""

VERSION_TABLE = "rota_state_version"
# Of the version table; a database of a later one is refused.
FORMAT = 1
_CHANGING = re.compile(r"\b(insert|update|delete|merge|truncate|drop|create|alter)\b", re.IGNORECASE)
_MOST_TRIED = 1_000
"""Rows that are put in one by one to find the one that cannot be."""
_WORD = re.compile(r"\w+")

_Run: TypeAlias = tuple[Table, tuple[str, ...], list[tuple[Any, ...]]]
"""Rows to insert into the same columns of a table."""


def changed_by(sql: str) -> set[str]:
    """What a statement may change: every word of it, in lower case, if it changes anything."""
    if _CHANGING.search(sql) is None:
        return set()
    return {word.lower() for word in _WORD.findall(sql)}


class Store:
    """The rows of one state.  Safe to use from several threads; each call is one transaction.

    Every transaction that changes a row counts the version up by one.  ``path`` is None for memory.
    """

    def __init__(self, path: str | None = None, *, create: bool = True, memory: int = MEMORY) -> None:
        self._what = path or ":memory:"
        self._lock = threading.RLock()
        if path is not None and not create and not Path(path).is_file():
            raise no_state_database(path)
        self._catalog = Catalog(path, memory=memory)
        self._schema = Schema()
        self._numbers: dict[str, int] = {}
        self._version = 0
        self._moved_at: float | None = None
        self._lasting = path is not None
        if self._lasting:
            try:
                self._prepare_version(create=create)
            except BaseException:
                self._catalog.close()
                raise

    @property
    def version(self) -> int:
        """The number of transactions that have changed a row."""
        with self._lock:
            return self._version

    def create(self, tables: Sequence[Table]) -> None:
        """Create those of these tables that are not there yet."""
        with self._lock, errors(self._what):
            there = self._tables()
            for table in tables:
                if table.name.lower() not in there:
                    self._run(create_table(table))
                elif (before := self._schema.find(table.name)) is not None and before.found:
                    self._run(f"DROP TABLE {quote(table.name)}; {create_table(table)}")
                    continue
                self._require_columns(table, there)

    def held(self, tables: Sequence[Table]) -> tuple[Table, ...]:
        """Those of these tables that are there.  DataError for one that is there in another shape."""
        with self._lock, errors(self._what):
            there = self._tables()
            found = tuple(table for table in tables if table.name.lower() in there)
            for table in found:
                self._require_columns(table, there)
        return found

    def use(self, schema: Schema) -> None:
        """These are its tables from now on."""
        self._schema = schema

    def execute(self, sql: str, parameters: Parameters, now: datetime) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        with self._lock, errors(self._what):
            self._catalog.tell(now)
            if len(self._catalog.connection.extract_statements(sql)) != 1:
                raise RefusedStatementError("it is not one statement")
            touched = changed_by(sql)
            if not touched:
                return fetched(self._run(sql, parameters))
            with self._transaction(touched) as note:
                rows = fetched(self._run(sql, parameters))
                counted = self._counts_rows()
                note(_changed(rows, counted=counted))
            return [] if counted else rows

    def execute_many(self, sql: str, rows: Iterable[Parameters], now: datetime) -> None:
        """Run one statement for each row."""
        with self._lock, errors(self._what):
            self._catalog.tell(now)
            touched = {word.lower() for word in _WORD.findall(sql)}
            with self._transaction(touched) as note:
                for row in rows:
                    found = fetched(self._run(sql, row))
                    note(_changed(found, counted=self._counts_rows()))

    def insert(self, contents: Sequence[tuple[Table, Iterable[Row]]], *, replace: bool = False) -> None:
        """Insert rows; with ``replace`` the tables are emptied first."""
        touched = {table.name.lower() for table, _ in contents}
        runs = [(table, *run) for table, rows in contents for run in checked_rows(table, rows)]
        with self._lock, errors(self._what):
            try:
                with self._transaction(touched, added=not replace) as note:
                    for table, _ in contents if replace else ():
                        ((number,),) = self._run(f"DELETE FROM {quote(table.name)}").fetchall()
                        note(number > 0)
                    for table, names, values in runs:
                        insert_rows(self._catalog, table, names, values)
                        note(True)
            except DataError as error:
                emptied = [table for table, _ in contents] if replace else []
                raise self._naming_the_row(error, runs, emptied) from error

    @contextmanager
    def filling(self) -> Iterator[Fill]:
        """One transaction in which tables are filled, in whole columns."""
        touched: set[str] = set()
        with self._lock, errors(self._what), self._transaction(touched) as note:

            def fill(table: Table, load: Callable[[duckdb.DuckDBPyConnection], None], replace: bool) -> None:
                touched.add(table.name.lower())
                if replace:
                    self._run(f"DELETE FROM {quote(table.name)}")
                load(self._catalog.connection)
                # Its keys, while it is known where its rows are from.
                require_rules(self._catalog, Schema((table,)), touched)
                note(True)

            yield fill

    def new_catalog(self) -> Catalog:
        """An empty one that ``read`` can fill."""
        return Catalog(beside=self._catalog)

    def read(self, catalog: Catalog, schema: Schema, known: Mapping[str, int]) -> Reading:
        """Make the tables of a catalog those of the present version; those whose number is known are there."""
        with self._lock:
            numbers = {name: self._numbers.get(name, 0) for name in (t.name.lower() for t in schema.tables)}
            changed: set[Cells] = set()
            for table in schema.tables:
                number = known.get(table.name.lower())
                if number == numbers[table.name.lower()]:
                    continue
                name = quote(table.name)
                own = f"{quote(self._catalog.name)}.main.{name}"
                others = cells_of(table) if number is None else _other_cells(catalog, table, own)
                if others:
                    catalog.run(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM {own}")
                    changed |= others
            return Reading(self._version, self._moved_at, numbers, frozenset(changed))

    def copy(self, snapshot: Snapshot) -> bool:
        """Take the rows and the version of a snapshot into its empty tables, if it can see them."""
        with self._lock:
            reading = snapshot.copy_into(self._catalog)
            if reading is not None:
                self._version, self._moved_at = reading.version, reading.moved_at
            return reading is not None

    def restore(self, contents: bytes, schema: Schema) -> None:
        """Put the rows and the version of a dump into its empty tables."""
        with self._lock:
            reading = restore(contents, schema, self._catalog)
            self._version, self._moved_at = reading.version, reading.moved_at

    def apply(self, schema: Schema, solution: Solution, now: float) -> int:
        """Write a solution if the state is still at its version, else StalePlanError; returns the new version.

        If rows move by it, ``now`` (Unix seconds) is kept as the time when they did.
        """
        touched = {table.lower() for table, _ in solution.assignments}
        with self._lock:
            if self._version != solution.version:
                raise StalePlanError(solution.version, self._version)
            with errors(self._what), self._transaction(touched) as note:
                for table, targets, values in written_columns(schema, solution):
                    cells = dict.fromkeys(targets, tuple(values.values()))
                    note(update_rows(self._catalog, table, tuple(values), cells) > 0)
                if solution.deltas:
                    self._moved_at = now
            return self._version

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            self._catalog.close()

    def _naming_the_row(self, error: DataError, runs: Sequence[_Run], emptied: Sequence[Table]) -> DataError:
        """An error for rows to insert as one for the first of them that cannot be."""
        broken = error.rows[0] if error.rows else None
        if isinstance(broken, dict):
            for table, names, values in runs:
                for row in reversed(values):
                    found = dict(zip(names, row, strict=True))
                    if broken.items() <= found.items():
                        return refused_row(table, found, _reason(error))
        self._run("BEGIN")
        try:
            for table in emptied:
                self._run(f"DELETE FROM {quote(table.name)}")
            for table, names, values in runs:
                for row in values[:_MOST_TRIED]:
                    try:
                        insert_rows(self._catalog, table, names, [row])
                        require_rules(self._catalog, self._schema, {table.name.lower()}, added=True)
                    except DataError as alone:
                        return refused_row(table, dict(zip(names, row, strict=True)), _reason(alone))
        finally:
            self._run("ROLLBACK")
        return error

    @contextmanager
    def _transaction(self, touched: set[str], *, added: bool = False) -> Iterator[Callable[[bool], None]]:
        """One transaction over these tables; what is yielded is told whether a row has changed."""
        changed = False

        def note(any_row: bool) -> None:
            nonlocal changed
            changed = changed or any_row

        before = self._version, self._moved_at
        self._run("BEGIN")
        try:
            yield note
            if changed:
                require_rules(self._catalog, self._schema, touched, added=added)
                self._version += 1
                self._save_version()
            self._run("COMMIT")
        except BaseException:
            self._version, self._moved_at = before
            self._run("ROLLBACK")
            raise
        if changed:
            for name in touched:
                self._numbers[name] = self._numbers.get(name, 0) + 1

    def _counts_rows(self) -> bool:
        """Whether the statement executed last has told how many rows it has changed, instead of rows."""
        return [column[0] for column in self._catalog.connection.description or ()] == ["Count"]

    def _run(self, sql: str, parameters: Parameters | tuple[object, ...] = ()) -> Any:
        if parameters:
            return self._catalog.connection.execute(sql, _plain(parameters))
        return self._catalog.connection.execute(sql)

    # ---- tables and the version -----------------------------------------------------------------------

    def _tables(self) -> dict[str, set[str]]:
        """The tables that are there, with their columns; in lower case."""
        found: dict[str, set[str]] = {}
        known = "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = current_catalog()"
        for table, column in self._run(known).fetchall():
            found.setdefault(table.lower(), set()).add(column.lower())
        return found

    def _require_columns(self, table: Table, there: Mapping[str, set[str]]) -> None:
        """A table that was there already must be this one."""
        columns = there.get(table.name.lower())
        for column in table.columns if columns is not None else ():
            if columns is not None and column.name.lower() not in columns:
                raise DataError(
                    f"table {table.name!r} of the state database has no column {column.name!r}",
                    hint="the schema has changed: alter the table, or start with an empty database",
                )

    def _prepare_version(self, *, create: bool) -> None:
        with errors(self._what):
            if VERSION_TABLE not in self._tables():
                if not create:
                    raise no_state_database(self._what)
                self._run(
                    f"CREATE TABLE {VERSION_TABLE} (version BIGINT NOT NULL, format BIGINT NOT NULL, moved_at DOUBLE)"
                )
                self._run(f"INSERT INTO {VERSION_TABLE} VALUES (0, {FORMAT}, NULL)")
            rows = self._run(f"SELECT version, format, moved_at FROM {VERSION_TABLE}").fetchall()
        if len(rows) != 1:
            raise DataError(
                "the state database has lost its version row",
                hint="put the file back from a copy, or make the state anew",
            )
        ((self._version, found, self._moved_at),) = rows
        refuse_later_format(found, self._what)

    def _save_version(self) -> None:
        if self._lasting:
            self._run(
                f"UPDATE {VERSION_TABLE} SET version = ?, moved_at = ?", (self._version, self._moved_at)
            )


def _other_cells(catalog: Catalog, table: Table, own: str) -> frozenset[Cells]:
    """What is not the same in a catalog's table and in ``own``, row by row in the order in which they stand there."""
    name, columns = quote(table.name), [quote(column.name) for column in table.columns]
    differ = ", ".join(f"bool_or(mine.{each} IS DISTINCT FROM theirs.{each})" for each in columns)
    rows = f"(SELECT count(*) FROM {name}), (SELECT count(*) FROM {own})"
    sql = f"SELECT {rows}, {differ} FROM {name} AS mine POSITIONAL JOIN {own} AS theirs"
    ((before, after, *others),) = catalog.rows(sql)
    if before != after:
        return cells_of(table)
    key = table.name.lower()
    found = {(key, c.name.lower()) for c, other in zip(table.columns, others, strict=True) if other}
    return frozenset(found | {(key, WHOLE)}) if found else frozenset()


def _reason(error: DataError) -> str:
    _, told, reason = error.message.partition("refuses a row: ")
    return reason if told else error.message.removeprefix("the state database refuses this: ")


def _changed(rows: Sequence[tuple[Any, ...]], *, counted: bool) -> bool:
    """Whether a statement has changed rows: it has counted them, or returned them; a definition does neither."""
    return bool(rows) and (not counted or rows[0][0] > 0)


def _plain(parameters: Parameters | tuple[object, ...]) -> Any:
    return dict(parameters) if isinstance(parameters, Mapping) else list(parameters)


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
            name = _refused_cell(row, types)
            raise refused_row(table, row, f"column {name!r}: {error.message}", error.hint) from error
    if run:
        yield names, run


def _refused_cell(row: Row, types: Sequence[SqlType]) -> str:
    """The first column of a row whose value is none of its type."""
    for (name, value), kind in zip(row.items(), types, strict=True):
        try:
            stored(value, kind)
        except DataError:
            return name
    return ""


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
