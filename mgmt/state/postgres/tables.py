"""The tables of a schema in PostgreSQL: their definitions, the version table and the triggers that count.

Names are in lower case, so that other programs need no quotes.  Text sorts by code point, as in SQLite.  Every
statement that changes a row of a table counts the version up, once per transaction, whoever runs it: the
triggers run with the rights of their owner.  The version's row is locked before any row of the tables, so that
two writers wait for each other instead of in a circle.

What it is not: it runs nothing (see ``store``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlglot
from sqlglot import exp

from mgmt.state.postgres.dates import as_text, column_check
from mgmt.state.postgres.expressions import ROW_NUMBER, Columns
from mgmt.state.postgres.statements import constraint, default
from mgmt.state.postgres.typed import NATIVE, STORAGE, identifier, quoted
from mgmt.state.schema import TEMPORAL, Column, SqlType, Table
from mgmt.state.store import FORMAT, VERSION_TABLE

_LOCK, _COUNT = "rota_state_lock", "rota_state_count"
MOVED_AT = "rota.moved_at"
"""The setting of a transaction in which a plan is applied: when, in Unix seconds."""


def columns_of(table: Table) -> Columns:
    """The types of a table's columns by lower-case name."""
    return {column.name.lower(): column.type for column in table.columns}


def copied_columns_of(table: Table) -> Columns:
    """The same of its copy in a snapshot, where dates are texts."""
    kinds = columns_of(table).items()
    return {name: SqlType.TEXT if kind in TEMPORAL else kind for name, kind in kinds}


def create_table(table: Table) -> str:
    """The table itself; foreign keys come later, for they may point at tables to come."""
    variable = _variables(table)
    parts = [_column(table, column) for column in table.columns]
    for place, unique in enumerate(table.uniques):
        if not variable & {name.lower() for name in unique}:
            kind = "PRIMARY KEY" if table.primary_key and place == 0 else "UNIQUE"
            parts.append(f"{kind} ({_names(unique)})")
    parts.extend(f"CHECK ({constraint(check, columns_of(table))})" for check in table.checks)
    return f"CREATE TABLE {quoted(table.name)} ({', '.join(parts)})"


def add_foreign_keys(table: Table) -> list[str]:
    """They hold at the end of a transaction; those over variable columns are the solver's."""
    variable = _variables(table)
    return [
        f"ALTER TABLE {quoted(table.name)} ADD FOREIGN KEY ({_names(key.columns)}) REFERENCES {quoted(key.table)}"
        f"{f' ({_names(key.referenced)})' if key.referenced else ''} DEFERRABLE INITIALLY DEFERRED"
        for key in table.foreign_keys
        if not variable & {name.lower() for name in key.columns}
    ]


def create_index(sql: str) -> str:
    """An index of the schema."""
    tree = sqlglot.parse_one(sql, dialect="sqlite")
    for name in list(tree.find_all(exp.Identifier)):
        name.replace(identifier(name.name))
    tree.set("exists", True)
    return tree.sql(dialect="postgres")


def create_copy(table: Table) -> str:
    """The private table of a snapshot: the same columns, and the rows' numbers."""
    parts = [f"{ROW_NUMBER} bigint"]
    parts.extend(f"{quoted(column.name)} {STORAGE[column.type]}" for column in table.columns)
    if table.primary_key:
        parts.append(f"PRIMARY KEY ({_names(table.primary_key)})")
    return f"CREATE TEMPORARY TABLE {quoted(table.name)} ({', '.join(parts)})"


def fill_copy(table: Table, namespace: str) -> str:
    """All rows of a table into its private copy, numbered by primary key."""
    names = _names([column.name for column in table.columns])
    values = ", ".join(as_text(quoted(column.name), column.type) for column in table.columns)
    order = f"ORDER BY {_names(table.primary_key)}" if table.primary_key else ""
    return (
        f"INSERT INTO pg_temp.{quoted(table.name)} ({ROW_NUMBER}, {names})"
        f" SELECT row_number() OVER ({order}), {values} FROM {namespace}.{quoted(table.name)} {order}"
    )


_VERSION_COLUMNS = {
    "version": "bigint NOT NULL",
    "format": "integer NOT NULL",
    "counted_in": "xid8",
    "moved_at": "double precision",
}


def create_version_table(namespace: str) -> list[str]:
    """The version's only row."""
    version = f"{namespace}.{VERSION_TABLE}"
    columns = ", ".join(f"{name} {kind}" for name, kind in _VERSION_COLUMNS.items())
    return [
        f"CREATE TABLE {version} ({columns})",
        f"INSERT INTO {version} (version, format) VALUES (0, {FORMAT})",
        # Who may see the state may see its version.
        f"GRANT SELECT ON {version} TO PUBLIC",
    ]


def upgrade_version_table(namespace: str, lacking: Iterable[str]) -> list[str]:
    """The columns that one of an older rota does not have; the functions have to be made anew with them."""
    added = ", ".join(f"ADD COLUMN {name} {_VERSION_COLUMNS[name]}" for name in sorted(lacking))
    return [f"ALTER TABLE {namespace}.{VERSION_TABLE} {added}"]


def counting_functions(namespace: str) -> list[str]:
    """The functions that lock the version and count it up."""
    version = f"{namespace}.{VERSION_TABLE}"
    rights = f"LANGUAGE plpgsql SECURITY DEFINER SET search_path = {namespace}, pg_temp"
    return [
        f"CREATE OR REPLACE FUNCTION {namespace}.{_LOCK}() RETURNS trigger {rights} AS $$"
        f" BEGIN PERFORM 1 FROM {version} FOR UPDATE; RETURN NULL; END $$",
        f"CREATE OR REPLACE FUNCTION {namespace}.{_COUNT}() RETURNS trigger {rights} AS $$"
        " BEGIN"
        " IF TG_OP <> 'TRUNCATE' THEN"
        "  PERFORM 1 FROM changed LIMIT 1;"
        "  IF NOT FOUND THEN RETURN NULL; END IF;"
        " END IF;"
        # Who applies a plan says when, for the length of the transaction.
        f" UPDATE {version} SET version = version + 1, counted_in = pg_current_xact_id(),"
        f"  moved_at = coalesce(nullif(current_setting('{MOVED_AT}', true), '')::double precision, moved_at)"
        "  WHERE counted_in IS DISTINCT FROM pg_current_xact_id();"
        " RETURN NULL; END $$",
    ]


def create_triggers(table: Table, namespace: str) -> list[str]:
    """Lock before, count after every statement that may change rows."""
    name = f"{namespace}.{quoted(table.name)}"
    every = "INSERT OR UPDATE OR DELETE OR TRUNCATE"
    made = [
        f"CREATE TRIGGER {_LOCK} BEFORE {every} ON {name}"
        f" FOR EACH STATEMENT EXECUTE FUNCTION {namespace}.{_LOCK}()"
    ]
    for event, rows in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD"), ("TRUNCATE", "")):
        referencing = f" REFERENCING {rows} TABLE AS changed" if rows else ""
        made.append(
            f"CREATE TRIGGER {_COUNT}_{event.lower()} AFTER {event} ON {name}{referencing}"
            f" FOR EACH STATEMENT EXECUTE FUNCTION {namespace}.{_COUNT}()"
        )
    return made


def counting_trigger_name() -> str:
    """The trigger by which a table is known to be counted."""
    return f"{_COUNT}_update"


def _column(table: Table, column: Column) -> str:
    parts = [quoted(column.name), NATIVE[column.type]]
    if not column.nullable and not column.is_variable:
        parts.append("NOT NULL")
    if column.type in TEMPORAL:
        parts.append(f"CHECK ({column_check(quoted(column.name), column.type)})")
    if column.definition:
        parts.extend(_definition(table, column))
    return " ".join(parts)


def _definition(table: Table, column: Column) -> list[str]:
    """DEFAULT and CHECK of a column."""
    tree = sqlglot.parse_one(f"CREATE TABLE t (c INTEGER {column.definition})", dialect="sqlite")
    parts = []
    for part in tree.find_all(exp.ColumnConstraint):
        kind = part.args.get("kind")
        if isinstance(kind, exp.DefaultColumnConstraint):
            parts.append(f"DEFAULT {default(kind.this, column.type)}")
        elif isinstance(kind, exp.CheckColumnConstraint):
            parts.append(f"CHECK ({constraint(kind.this, columns_of(table))})")
    return parts


def _variables(table: Table) -> set[str]:
    return {column.name.lower() for column in table.variables}


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))
