"""Where the constants of a demand stand: columns of the statements for rows, for values, and for both.

And what else a demand is made of here that no policy can write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mgmt.language.bound_queries.expressions import Expression


@dataclass(frozen=True, slots=True, eq=False)
class RowColumn(Expression):
    """A column of the rows' statement."""

    slot: int


@dataclass(frozen=True, slots=True, eq=False)
class ValueColumn(Expression):
    """A column of the values' statement."""

    slot: int


@dataclass(frozen=True, slots=True, eq=False)
class ScalarColumn(Expression):
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
class LookupColumn(Expression):
    """A column of what a join finds for a row and a value; NULL where it finds nothing."""

    lookup: int
    slot: int
    keys: tuple[Expression, ...]
    """What the columns that the lookup begins with are compared with: constants of the row or of the value."""

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.keys


@dataclass(frozen=True, slots=True, eq=False)
class WindowMinimum(Expression):
    """The least that an expression over a group is in the groups with the same keys; NULLs are left out."""

    operand: Expression
    keys: tuple[Expression, ...]
    of_groups: bool = False
    """Groups with NULL in a key are a family, too; a join finds none for them."""

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.operand, *self.keys)

    def with_children(self, change: Callable[[Expression], Expression]) -> Expression:
        return replace(self, operand=change(self.operand), keys=tuple(map(change, self.keys)))
