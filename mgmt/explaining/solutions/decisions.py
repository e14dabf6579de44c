"""Decisions: each is a variable column of one row; how people name it, and policies that fix it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mgmt.compiler.model import Model
from mgmt.errors import DataError, UnknownColumnError, UnknownTableError
from mgmt.solution import PrimaryKey, Value
from mgmt.source_text import SourceText
from mgmt.state.row_duplication import row_condition
from mgmt.state.schema import Column, Schema, SqlType, Table, literal, quote, without_prefix

ASKED = "what was asked for"
"""The name of the constraint that a question adds; no policy has it, it would need quotes."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the solver decides for one row."""

    table: str
    primary_key: PrimaryKey
    variable: str

    @property
    def column(self) -> str:
        """What people call the variable column: ``host`` for ``variable__host``."""
        return without_prefix(self.variable)

    def __str__(self) -> str:
        return f"{self.table} {shown_key(self.primary_key)}"


def shown_key(key: Sequence[Value]) -> str:
    return "/".join(map(str, key))


def row_named(schema: Schema, name: str) -> tuple[Table, PrimaryKey]:
    """The table and key that ``table:key`` (``table:part,part`` for a composite key) names.

    Raises UnknownTableError, or DataError when it does not have that form.
    """
    table_name, colon, keys = name.partition(":")
    if not colon:
        raise DataError(
            f"{name!r} names no row", hint="write table:key, or table:part,part for a composite key"
        )
    table = schema.table(table_name)
    if not table.primary_key:
        raise DataError(
            f"table {table.name!r} has no primary key, so its rows cannot be named",
            hint="give the table a PRIMARY KEY",
        )
    # The last part takes what commas are too many.
    parts = keys.split(",", len(table.primary_key) - 1)
    if len(parts) != len(table.primary_key):
        raise DataError(
            f"{name!r} does not name a row of {table.name!r}",
            hint=f"its key is ({', '.join(table.primary_key)}): write {table.name}:{','.join(table.primary_key)}",
        )
    key = [
        parsed_value(table.column(column), part)
        for column, part in zip(table.primary_key, parts, strict=True)
    ]
    return table, tuple(key)


def parsed_value(column: Column, text: str) -> Value:
    """A value of a column as people write it; ``NULL`` is NULL.  DataError when it is no value of its type."""
    text = text.strip()
    if text.upper() == "NULL":
        return None
    if column.type is SqlType.BOOLEAN and text.lower() in {"true", "false", "1", "0", "yes", "no"}:
        return text.lower() in {"true", "1", "yes"}
    if column.type in {SqlType.INTEGER, SqlType.BOOLEAN}:
        try:
            return int(text)
        except ValueError:
            raise DataError(
                f"{text!r} is no value of {column.name!r}, which is {column.type}",
                hint="write a whole number, or NULL",
            ) from None
    return text


def decisions_of(
    model: Model, table_name: str, key: PrimaryKey, column: str | None = None
) -> tuple[Decision, ...]:
    """The decisions of one row, or the one of a column (by the variable's name or that of its current value).

    Raises UnknownTableError, UnknownColumnError, DataError when there is no such row.
    """
    table = model.database.schema.table(table_name)
    if not table.variables:
        raise UnknownTableError(
            f"the solver decides nothing in table {table.name!r}",
            hint=f"it does in {', '.join(t.name for t in model.database.schema.tables if t.variables)}",
        )
    where = row_condition(dict(zip(table.primary_key, key, strict=True)))
    keys = ", ".join(map(quote, table.primary_key))
    found = model.database.execute(f"SELECT {keys} FROM {quote(table.name)} WHERE {where}")
    if not found:
        raise DataError(
            f"no row {shown_key(key)} in table {table.name!r}",
            rows=[key],
            hint=f"its key is ({', '.join(table.primary_key)}): look which rows there are",
        )
    variables = table.variables
    if column is not None:
        wanted = column.lower()
        variables = tuple(v for v in variables if wanted in {v.name.lower(), (v.current or "").lower()})
        if not variables:
            raise UnknownColumnError(
                f"the solver decides no column {column!r} of table {table.name!r}",
                hint=f"it decides {', '.join(v.name for v in table.variables)}",
            )
    # The key as the database writes it: a time stamp has other spellings, too.
    return tuple(Decision(table.name, found[0], variable.name) for variable in variables)


def required(model: Model, decision: Decision, value: Value, *, equal: bool = True) -> Model:
    """The model with the further demand that a decision is (or is not) a value."""
    table = model.database.schema.table(decision.table)
    where = row_condition(dict(zip(table.primary_key, decision.primary_key, strict=True)))
    keys = ", ".join(map(quote, table.primary_key))
    column = quote(decision.variable)
    if value is None:
        check = f"{column} IS NULL" if equal else f"{column} IS NOT NULL"
    elif table.column(decision.variable).nullable:
        # Unknown passes a CHECK.
        check = f"{column} IS {'NOT ' if equal else ''}DISTINCT FROM {literal(value)}"
    else:
        check = f"{column} {'=' if equal else '<>'} {literal(value)}"
    text = f"CREATE CONSTRAINT {quote(ASKED)} AS SELECT {keys} FROM {quote(table.name)} WHERE {where} CHECK {check};"
    return model.extended(SourceText("the question", text))
