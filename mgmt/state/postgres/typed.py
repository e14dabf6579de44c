"""Values with their types, and how PostgreSQL is made to see them as SQLite does.

SQLite's conditions are the integers 0 and 1, its integers have 64 bits, and a NULL needs no type.  PostgreSQL has
booleans, three widths of integers and a type for everything.  So each translated expression carries its type,
and a place that needs a condition, a number or a text asks for one.

What it is not: it walks no tree (see ``expressions``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from mgmt.state.schema import TEMPORAL, SqlType

_LONGEST_NAME = 63  # bytes; PostgreSQL cuts longer ones off, and two may then be the same


@dataclass(frozen=True, slots=True)
class Typed:
    """A translated expression and its type; UNKNOWN for NULL, a parameter, and what only the database knows."""

    tree: exp.Expr
    type: SqlType

    @property
    def column_type(self) -> SqlType | None:
        """Its type as a column; None for a bare NULL."""
        return None if self.is_null else self.type

    @property
    def is_null(self) -> bool:
        return isinstance(self.tree, exp.Null)

    @property
    def is_parameter(self) -> bool:
        return isinstance(self.tree, exp.Parameter)


def identifier(name: str) -> exp.Identifier:
    """A name as PostgreSQL writes it: in lower case, for names here are the same in any case."""
    return exp.Identifier(this=postgres_name(name), quoted=True)


def postgres_name(name: str) -> str:
    """The name in lower case; one that is too long ends in a digest of itself."""
    lowered = name.lower()
    encoded = lowered.encode()
    if len(encoded) <= _LONGEST_NAME:
        return lowered
    digest = hashlib.sha256(encoded).hexdigest()[:16]
    return encoded[: _LONGEST_NAME - 17].decode(errors="ignore") + "_" + digest


def quoted(name: str) -> str:
    """The same as SQL text."""
    return '"' + postgres_name(name).replace('"', '""') + '"'


def cast(tree: exp.Expr, to: str) -> exp.Expr:
    """CAST (tree AS to)."""
    return exp.Cast(this=tree, to=exp.DataType.build(to, dialect="postgres"))


def condition(value: Typed) -> exp.Expr:
    """The value where PostgreSQL wants a boolean: a number is true when it is not 0."""
    if value.type in {SqlType.INTEGER, SqlType.REAL}:
        return exp.Paren(this=exp.NEQ(this=value.tree, expression=exp.Literal.number(0)))
    if value.is_null:
        return cast(value.tree, "boolean")
    if value.is_parameter:
        return exp.Paren(this=exp.NEQ(this=cast(value.tree, "bigint"), expression=exp.Literal.number(0)))
    return value.tree


def number(value: Typed) -> Typed:
    """The value where a number is wanted: true is 1 and false is 0."""
    if value.type is SqlType.BOOLEAN:
        return Typed(cast(cast(value.tree, "int"), "bigint"), SqlType.INTEGER)
    if value.is_null:
        return Typed(cast(value.tree, "bigint"), SqlType.INTEGER)
    return value


def text(value: Typed) -> exp.Expr:
    """The value where a text is wanted."""
    value = number(value) if value.type is SqlType.BOOLEAN else value
    return value.tree if value.type is SqlType.TEXT else cast(value.tree, "text")


def by_code_point(value: Typed) -> exp.Expr:
    """The value where its order or its letters' case counts: as SQLite has it, whatever the server's language.

    Columns are so already, for every table, view and derived table here is made so.
    """
    if value.type is not SqlType.TEXT or isinstance(value.tree, exp.Column):
        return value.tree
    tree = value.tree if isinstance(value.tree, exp.Literal) else exp.Paren(this=value.tree)
    return exp.Paren(this=exp.Collate(this=tree, expression=exp.Identifier(this="C", quoted=True)))


def small_integer(value: Typed) -> exp.Expr:
    """The value where a function of PostgreSQL takes 32 bits only."""
    return cast(number(value).tree, "int")


def unify(values: Sequence[Typed]) -> list[Typed]:
    """Values that stand side by side: if only some are conditions, all become numbers."""
    types = {value.type for value in values} - {SqlType.UNKNOWN}
    mixed = SqlType.BOOLEAN in types and (
        bool(types & {SqlType.INTEGER, SqlType.REAL}) or any(value.is_parameter for value in values)
    )
    if not mixed:
        return list(values)
    return [value if value.is_null or value.is_parameter else number(value) for value in values]


STORAGE = {
    SqlType.INTEGER: "bigint",
    SqlType.TEXT: 'text COLLATE "C"',
    SqlType.BOOLEAN: "boolean",
    SqlType.REAL: "double precision",
    SqlType.UNKNOWN: "bigint",
    **dict.fromkeys(TEMPORAL, 'text COLLATE "C"'),
}
"""Of columns in snapshots; dates are texts there (see ``mgmt.state.dates``)."""
NATIVE = {**STORAGE, SqlType.DATE: "date", SqlType.TIMESTAMP: "timestamp(6) without time zone"}
"""Of columns in the tables of the state itself."""


def common_type(values: Sequence[Typed]) -> SqlType:
    """The type of unified values."""
    types = {value.type for value in values} - {SqlType.UNKNOWN}
    if SqlType.REAL in types:
        return SqlType.REAL
    return next(iter(sorted(types)), SqlType.UNKNOWN)


def assigned(value: Typed, target: SqlType) -> exp.Expr:
    """The value as it is stored in a column of this type; nothing is rounded, as in a STRICT table."""
    if value.is_parameter:
        # By way of text: a number with a fraction is then refused instead of rounded.
        given = cast(value.tree, "text")
        return given if target in {SqlType.TEXT, SqlType.UNKNOWN} else cast(given, NATIVE[target])
    if value.is_null:
        return value.tree
    if target is SqlType.BOOLEAN:
        return condition(value)
    if target in TEMPORAL and value.type is SqlType.TEXT:
        return cast(value.tree, NATIVE[target])
    if target is SqlType.INTEGER:
        return number(value).tree
    return text(value) if target is SqlType.TEXT else value.tree
