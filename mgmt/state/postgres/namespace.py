"""The namespace of a state database on a server: what is there, and making what is not.

What an older rota made is brought up to date when it is opened to be used; one that is only to be read is refused then.

What it is not: it knows nothing of connections and transactions (see ``store``), and writes no definition (see
``tables``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from mgmt.errors import DataError, StateDatabaseError
from mgmt.state.postgres.tables import (
    add_foreign_keys,
    counting_functions,
    counting_trigger_name,
    create_index,
    create_table,
    create_triggers,
    create_version_table,
    upgrade_version_table,
)
from mgmt.state.postgres.typed import postgres_name, quoted
from mgmt.state.schema import SqlType, Table
from mgmt.state.store import VERSION_TABLE, made_by_an_older_rota, no_state_database, refuse_later_format

_SCHEMA_LOCK = 0x726F7461  # an advisory lock: one client at a time makes tables
_VERSION_COLUMNS = {"version", "format", "counted_in", "moved_at"}
_TYPES = {
    "bigint": SqlType.INTEGER,
    "integer": SqlType.INTEGER,
    "smallint": SqlType.INTEGER,
    "text": SqlType.TEXT,
    "character varying": SqlType.TEXT,
    "character": SqlType.TEXT,
    "boolean": SqlType.BOOLEAN,
    "double precision": SqlType.REAL,
    "real": SqlType.REAL,
    "numeric": SqlType.REAL,
    "date": SqlType.DATE,
    "timestamp without time zone": SqlType.TIMESTAMP,
}


class Run(Protocol):
    """Runs one statement in the present transaction and returns its rows."""

    def __call__(self, sql: str, arguments: Sequence[Any] | None = None) -> list[tuple[Any, ...]]: ...


class Namespace:
    """The namespace that a connection makes its tables in.  ``name`` is SQL; ``what`` says in errors which database."""

    def __init__(self, run: Run, what: str) -> None:
        self._run = run
        self._what = what
        (found,) = run("SELECT current_schema()")[0]
        if found is None:
            raise StateDatabaseError(
                f"{what} has no namespace to work in", hint="set search_path to one that exists"
            )
        self.name = '"' + str(found).replace('"', '""') + '"'
        self._version_table = f"{self.name}.{VERSION_TABLE}"

    # ---- the version ----------------------------------------------------------------------------------

    def prepare_version(self) -> None:
        """Make the table of the version and the functions that count it, or what an older rota left out of them."""
        if not self._lacking():
            return
        self._run("SELECT pg_advisory_xact_lock($1)", (_SCHEMA_LOCK,))
        lacking = self._lacking()  # unless another client was faster
        if lacking == _VERSION_COLUMNS:
            statements = create_version_table(self.name)
        else:
            statements = upgrade_version_table(self.name, lacking)
        for statement in [*statements, *counting_functions(self.name)] if lacking else ():
            self._run(statement)

    def require_format(self) -> None:
        """StateDatabaseError for what is no state database, or one of another rota."""
        lacking = self._lacking()
        if lacking == _VERSION_COLUMNS:
            raise no_state_database(self._what)
        if lacking:
            raise made_by_an_older_rota(self._what)
        for (found,) in self._run(f"SELECT format FROM {self._version_table}"):
            refuse_later_format(int(found), self._what)

    def read_version(self) -> int:
        """The version of the state."""
        for (version,) in self._run(f"SELECT version FROM {self._version_table}"):
            return int(version)
        raise DataError(
            "the state database has lost its version row",
            hint="put it back from a copy, or make the state anew in an empty schema",
        )

    def _lacking(self) -> set[str]:
        """The columns that the version table does not have; all of them when there is none."""
        # Not to_regclass: within a transaction it goes on saying that there is none.
        known = (
            "SELECT a.attname::text FROM pg_attribute AS a JOIN pg_class AS c ON a.attrelid = c.oid"
            " JOIN pg_namespace AS n ON c.relnamespace = n.oid"
            " WHERE n.nspname = current_schema() AND c.relname = $1 AND a.attnum > 0 AND NOT a.attisdropped"
        )
        return _VERSION_COLUMNS - {name for (name,) in self._run(known, (VERSION_TABLE,))}

    # ---- the tables of a schema -----------------------------------------------------------------------

    def create(self, tables: Sequence[Table], indexes: Sequence[str]) -> None:
        """Make what of these is not there yet.  DataError for what is there in another shape."""
        self._run("SELECT pg_advisory_xact_lock($1)", (_SCHEMA_LOCK,))
        missing = [table for table in tables if not self._columns(table)]
        for table in missing:
            self._run(create_table(table))
        for table in tables:
            self._require_columns(table)
            if not self._is_counted(table):
                for statement in create_triggers(table, self.name):
                    self._run(statement)
        for table in missing:
            for statement in add_foreign_keys(table):
                self._run(statement)
        for index in indexes:
            statement = create_index(index)
            name = statement.split('"')[1]
            known = "SELECT 1 FROM pg_indexes WHERE schemaname = current_schema() AND indexname = $1"
            if not self._run(known, (name,)):
                self._run(statement)

    def held(self, tables: Sequence[Table]) -> tuple[Table, ...]:
        """Those of these tables that are there.  DataError for one in another shape, or whose changes do not count."""
        found = tuple(table for table in tables if self._columns(table))
        for table in found:
            self._require_columns(table)
            if not self._is_counted(table):
                raise DataError(
                    f"table {table.name!r} of the state database was made by another program: changes of its rows"
                    " are not counted",
                    hint="load the schema first, which adds what counts: mgmt.Database(url).load_schema(text)",
                )
        return found

    def _columns(self, table: Table) -> dict[str, SqlType]:
        """The columns of a table as the server has it; none when there is no such table."""
        found = self._run(
            "SELECT column_name::text, data_type::text FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND table_name = $1",
            (postgres_name(table.name),),
        )
        return {name: _TYPES.get(kind, SqlType.UNKNOWN) for name, kind in found}

    def _require_columns(self, table: Table) -> None:
        found = self._columns(table)
        for column in table.columns:
            kind = found.get(postgres_name(column.name))
            if kind is column.type:
                continue
            wrong = f"is {kind} there" if kind else "is not there, or may not be seen"
            raise DataError(
                f"table {table.name!r} of the state database: no column {column.name!r} of type {column.type}: "
                f"it {wrong}",
                hint="the schema has changed: alter the table, or start with an empty database",
            )

    def _is_counted(self, table: Table) -> bool:
        return bool(
            self._run(
                "SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass($1) AND tgname = $2",
                (f"{self.name}.{quoted(table.name)}", counting_trigger_name()),
            )
        )
