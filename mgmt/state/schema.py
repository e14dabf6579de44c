"""The schema: tables, keys and variable columns, as values.

A column whose name starts with ``variable__`` or ``controllable__`` is decided by the solver (DCM, OSDI 2020,
section 3).  Its values come from its foreign key, from ``DOMAIN (SELECT ...)``, or are 0 and 1 for a BOOLEAN.
It is paired with the column of the same name without the prefix, or with the one named by ``CURRENT column``,
which holds the value of today.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from mgmt.errors import (
    UnknownTableError,
)
from mgmt.source_text import Position

VARIABLE_PREFIXES = ("variable__", "controllable__")
RESERVED_COLUMNS = {"rowid"}


class SqlType(StrEnum):
    """What the compiler tells apart.  Integers are exact 64-bit; reals stay in the database."""

    INTEGER = "integer"
    TEXT = "text"
    BOOLEAN = "boolean"
    REAL = "real"
    DATE = "date"  # texts outside of the engine: see mgmt.state.date_texts
    TIMESTAMP = "timestamp"
    UNKNOWN = "unknown"  # NULL, or a function of the database whose type only its values tell


TEMPORAL = frozenset({SqlType.DATE, SqlType.TIMESTAMP})
TEXTUAL = TEMPORAL | {SqlType.TEXT}
"""Of values that are texts to the solver: there is no number to compute with."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.  ``references`` is (table, column) of a foreign key on this column alone."""

    name: str
    type: SqlType
    nullable: bool
    position: Position
    references: tuple[str, str] | None = None
    domain: str | None = None  # SQL of DOMAIN (SELECT ...), in DuckDB's dialect
    range: tuple[int, int] | None = None  # the least and the greatest value, where CHECKs gave the domain
    current: str | None = None  # the column with the value of today, when paired
    definition: str = ""  # DEFAULT and CHECK, in DuckDB's dialect
    declared: bool = False  # as variable, by a comment before its table: -- @variable_columns (name)

    @property
    def is_variable(self) -> bool:
        """Whether the solver decides this column."""
        return self.declared or self.name.lower().startswith(VARIABLE_PREFIXES)

    @property
    def is_unbounded(self) -> bool:
        """Whether the solver decides it and nothing yet says of which values."""
        bound = self.type is SqlType.BOOLEAN or self.references is not None or self.domain is not None
        return self.is_variable and not bound


@dataclass(frozen=True, slots=True)
class ForeignKey:
    columns: tuple[str, ...]
    table: str
    referenced: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VariableRule:
    """A CHECK or a FOREIGN KEY of several columns that speaks of variable columns: the solver upholds it."""

    name: str
    condition: str
    position: Position


@dataclass(frozen=True, slots=True)
class Table:
    """One base table.  ``uniques`` includes the primary key, if there is one.

    ``primary_key`` tells rows apart in plans; it holds no variable column.
    """

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    uniques: tuple[tuple[str, ...], ...]
    foreign_keys: tuple[ForeignKey, ...]
    checks: tuple[str, ...] = ()
    rules: tuple[VariableRule, ...] = ()
    found: bool = False
    """Whether it is as its source brings it, until a schema declares it."""
    variables: tuple[Column, ...] = field(init=False, repr=False, compare=False)
    """The columns the solver decides."""

    def __post_init__(self) -> None:
        found = tuple(column for column in self.columns if column.is_variable)
        object.__setattr__(self, "variables", found)

    def column(self, name: str) -> Column:
        """The column of this name, in any case.  KeyError when there is none."""
        for column in self.columns:
            if column.name.lower() == name.lower():
                return column
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Schema:
    tables: tuple[Table, ...] = ()

    def find(self, name: str) -> Table | None:
        """The table of this name, in any case."""
        return next((table for table in self.tables if table.name.lower() == name.lower()), None)

    def table(self, name: str) -> Table:
        """The table of this name, in any case.  UnknownTableError when there is none."""
        table = self.find(name)
        if table is None:
            raise UnknownTableError(
                f"no table {name!r}", hint=f"tables: {', '.join(t.name for t in self.tables) or 'none'}"
            )
        return table


def quote(name: str) -> str:
    """An identifier for SQL text."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: object) -> str:
    """A value as SQL text."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, (int, float)):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"


_STORAGE = {
    SqlType.INTEGER: "BIGINT",
    SqlType.TEXT: "VARCHAR",
    SqlType.BOOLEAN: "BOOLEAN",
    SqlType.REAL: "DOUBLE",
    SqlType.DATE: "DATE",
    SqlType.TIMESTAMP: "TIMESTAMP",
}


def create_table(table: Table) -> str:
    """The table for the engine.

    Its keys and checks are not declared: an index for each key makes loading ten times as slow, and one statement after
    a change says as much, and of which row.  Variable columns hold no value before the first plan, so what is demanded
    of them is the solver's matter.
    """
    parts = ", ".join(_column_definition(column) for column in table.columns)
    return f"CREATE TABLE {quote(table.name)} ({parts})"


def without_prefix(name: str) -> str:
    """What people call a variable column: ``host`` for ``variable__host``."""
    prefixes = (each for each in VARIABLE_PREFIXES if name.lower().startswith(each))
    return name[len(next(prefixes, "")) :]


def shown_row(row: Mapping[str, object]) -> str:
    """``app a, host h1``: variable columns as people call them, unless another one is called so."""
    plain = {name: without_prefix(name) for name in row}
    return ", ".join(f"{name if plain[name] in row else plain[name]} {value}" for name, value in row.items())


def storage(kind: SqlType) -> str:
    """DuckDB's name of a type."""
    return _STORAGE[kind]


def unique_name(table: Table, unique: Sequence[str]) -> str:
    """What a key over variables is called where it clashes with something."""
    return f"UNIQUE ({', '.join(unique)}) of {table.name}"


def _column_definition(column: Column) -> str:
    parts = [quote(column.name), storage(column.type)]
    if not column.nullable and not column.is_variable:
        parts.append("NOT NULL")
    if column.definition:
        parts.append(column.definition)
    return " ".join(parts)
