"""Columns of relations as the encoder sees them: constants, choices, truths and numbers, one cell per row.

A *choice* is a variable column over a finite domain: one boolean per value, exactly one of them true; *options*
are the same for what is computed from such (a text chosen by CASE).  A *truth* is three-valued, as in SQL: a
literal for "is true" and one for "is false"; neither is UNKNOWN.  A *number* is a linear expression and a literal
for "is NULL".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mgmt.optimization.problem import FALSE, TRUE, Linear


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """The values a variable column can take, in the database's order, and their places."""

    values: tuple[Any, ...]
    places: Mapping[Any, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", {value: place for place, value in enumerate(self.values)})


@dataclass(frozen=True, slots=True)
class Choice:
    """One variable: ``first`` is the boolean of the domain's first value; ``null`` the literal of NULL."""

    first: int
    domain: Domain
    null: int

    def literal(self, value: Any) -> int:
        """The literal that holds exactly when this value is chosen."""
        place = self.domain.places.get(value)
        return FALSE if place is None else 2 * (self.first + place)

    @property
    def values(self) -> Sequence[Any]:
        """Everything it can take, without NULL."""
        return self.domain.values

    @property
    def literals(self) -> tuple[int, ...]:
        """One per value, and that of NULL if it may be NULL; exactly one holds."""
        values = tuple(2 * (self.first + place) for place in range(len(self.domain.values)))
        return values if self.null == FALSE else (*values, self.null)


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """A value computed from variables: what it can be, each with the literal under which it is that.

    Exactly one of these and ``null`` holds.
    """

    places: Mapping[Any, int]
    null: int

    @property
    def values(self) -> Sequence[Any]:
        """Everything it can be, without NULL."""
        return tuple(self.places)

    def literal(self, value: Any) -> int:
        """The literal that holds exactly when it is this value."""
        return self.places.get(value, FALSE)


@dataclass(frozen=True, slots=True)
class Truth:
    """Never both; neither is UNKNOWN."""

    true: int
    false: int


@dataclass(frozen=True, slots=True)
class Number:
    """``value`` means nothing where ``null`` holds."""

    value: Linear
    null: int


UNKNOWN = Truth(FALSE, FALSE)
NULL_NUMBER = Number(Linear(0), TRUE)


@dataclass(frozen=True, slots=True)
class Constants:
    cells: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Choices:
    cells: Sequence[Choice | Options | None]  # None is NULL: a row of an outer join without a partner


@dataclass(frozen=True, slots=True)
class Truths:
    cells: Sequence[Truth]


@dataclass(frozen=True, slots=True)
class Numbers:
    cells: Sequence[Number]


Column = Constants | Choices | Truths | Numbers


def take(column: Column, rows: Sequence[int]) -> Column:
    """The cells of these rows, in this order; row -1 is NULL."""
    if isinstance(column, Constants):
        return Constants(_take(column.cells, rows, lambda: None))
    if isinstance(column, Choices):
        return Choices(_take(column.cells, rows, lambda: None))
    if isinstance(column, Truths):
        return Truths(_take(column.cells, rows, lambda: UNKNOWN))
    return Numbers(_take(column.cells, rows, lambda: NULL_NUMBER))


def _take(cells: Sequence[Any], rows: Sequence[int], null: Callable[[], Any]) -> list[Any]:
    return [cells[row] if row >= 0 else null() for row in rows]


@dataclass(frozen=True, slots=True)
class RelationData:
    """The symbolic side of a relation: its columns by lower-case name, and which rows exist.

    ``places`` maps the database's row number to the place in the columns.
    """

    columns: Mapping[str, Column]
    exists: Sequence[int]
    places: Mapping[int, int]
