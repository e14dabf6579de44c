"""Where the constants of a demand stand: columns of the statements for rows, for values, and for both.

What it is not: it knows no data (see ``frames``).
"""

from __future__ import annotations

from dataclasses import dataclass

from mgmt.language.bound_queries.expressions import Expression


@dataclass(frozen=True, slots=True, eq=False)
class RowSlot(Expression):
    """A column of the rows' statement."""

    slot: int


@dataclass(frozen=True, slots=True, eq=False)
class ValueSlot(Expression):
    """A column of the values' statement."""

    slot: int


@dataclass(frozen=True, slots=True, eq=False)
class ScalarSlot(Expression):
    """A column of the statement that has one row."""

    slot: int


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Expression):
    """A whole number."""

    number: int


@dataclass(frozen=True, slots=True, eq=False)
class Unknown(Expression):
    """A condition that is UNKNOWN."""


@dataclass(frozen=True, slots=True, eq=False)
class Chosen(Expression):
    """The value that the row chooses."""


@dataclass(frozen=True, slots=True, eq=False)
class PairSlot(Expression):
    """A column of what a join finds for a row and a value; NULL where it finds nothing."""

    lookup: int
    slot: int
    keys: tuple[Expression, ...]
    """What the columns that the lookup begins with are compared with: constants of the row or of the value."""

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.keys
