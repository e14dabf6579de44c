"""Columns of relations as the encoder sees them: constants, choices, truths and numbers, a cell in each row.

A *choice* takes one of several values, each with the literal under which it does; exactly one of these or the
literal of NULL holds.  A *truth* is three-valued, as in SQL: a literal for "is true" and one for "is false"; neither is
UNKNOWN.
A *number* is a linear expression and a literal for "is NULL".

Choices and numbers are kept once for each different cell, with the place of each row's among them: a variable that
stands in a thousand rows of a join is not written out a thousand times.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from operator import is_
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from mgmt.errors import TypeMismatchError
from mgmt.language.bound_queries.expressions import Expression
from mgmt.optimization.columns import (
    FALSE,
    LIMIT,
    TRUE,
    Integers,
    Linears,
    Lists,
    Mask,
    filled,
    group_numbers,
    joined,
    stacked,
    too_large,
)
from mgmt.optimization.problem import Problem
from mgmt.optimization.products import Grid

_ITEMS_A_CELL = 10
"""Of lists of values and literals: so many take less than one cell of a model."""
_MOST_DIGITS = 6  # after the point, of fractions that are taken for decimal ones


class Values:
    """Numbers for values of any kind, the same one for equal values."""

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {}
        self._values: list[Any] = []

    def codes(self, constants: Constants) -> Integers:
        """The number of each value; -1 for NULL."""
        distinct, number = constants.distinct
        keys = _keys(distinct)
        known = self._codes
        new = {key: value for key, value in zip(keys, distinct, strict=True) if key not in known}
        known.update(zip(new, range(len(known), len(known) + len(new)), strict=True))
        self._values.extend(new.values())
        codes = np.fromiter(map(self._codes.__getitem__, keys), np.int64, len(keys))
        return np.where(constants.null, -1, codes[number])

    def code(self, value: Any) -> int:
        return int(self.codes(objects([value]))[0])

    @property
    def grown(self) -> tuple[dict[Hashable, int], list[Any]]:
        """What grows with every new value."""
        return self._codes, self._values

    def of(self, codes: Integers) -> Constants:
        """The values of these numbers; NULL for -1."""
        cells = np.empty(len(codes), object)
        cells[:] = [None if code < 0 else self._values[code] for code in codes.tolist()]
        return Constants.of(cells)


def _key(value: Any) -> Hashable:
    return value if isinstance(value, Hashable) else repr(value)


def _keys(values: list[Any]) -> list[Hashable]:
    """The same of many."""
    try:
        hash(tuple(values))
    except TypeError:
        return [_key(value) for value in values]
    return values


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """Choices, each a list of values by number, in order, with their literals, and the literal of NULL."""

    codes: Lists
    literals: Integers
    null: Integers

    @classmethod
    def sorted(cls, owners: Integers, codes: Integers, literals: Integers, null: Integers) -> Options:
        """The same with its lists put in order; no value twice in one."""
        order = np.lexsort((codes, owners))
        return cls(Lists.grouped(owners[order], codes[order], len(null)), literals[order], null)

    def __len__(self) -> int:
        return len(self.null)

    def take(self, rows: Integers) -> Options:
        places, starts = self.codes.places(rows)
        return Options(Lists(starts, self.codes.items[places]), self.literals[places], self.null[rows])

    def literal(self, choices: Integers, codes: Integers) -> Integers:
        """The literal under which a choice takes a value, for each pair of these."""
        keys = (self.codes.owners << 32) | self.codes.items
        wanted = (choices << 32) | codes
        places = np.searchsorted(keys, wanted)
        found = filled(len(wanted), FALSE)
        inside = places < len(keys)
        inside[inside] = keys[places[inside]] == wanted[inside]
        inside &= codes >= 0
        found[inside] = self.literals[places[inside]]
        return found

    def with_null(self) -> Options:
        """The same with NULL as one of the values, number -1, and after them a choice that is always NULL."""
        rows = np.flatnonzero(self.null != FALSE)
        count = len(self)
        owners = np.concatenate((self.codes.owners, rows, [count]))
        codes = np.concatenate((self.codes.items, filled(len(rows) + 1, -1)))
        literals = np.concatenate((self.literals, self.null[rows], [TRUE]))
        return Options.sorted(owners, codes, literals, filled(count + 1, FALSE))

    @property
    def domain(self) -> Integers:
        """All values, in order of their numbers."""
        return np.unique(self.codes.items)

    @property
    def all_literals(self) -> Lists:
        """Of each choice all of which exactly one holds."""
        rows = np.flatnonzero(self.null != FALSE)
        owners = np.concatenate((self.codes.owners, rows))
        return Lists.grouped(owners, np.concatenate((self.literals, self.null[rows])), len(self))


class GridOptions:
    """Choices among the same values, whose cells are in a grid; the lists are made where somebody asks for them."""

    def __init__(self, problem: Problem, grid: Grid, domain: Integers) -> None:
        self.problem = problem
        self.grid = grid
        self.in_grid = domain
        """The values by number, in the order of the grid."""
        self._order = np.argsort(domain)
        self.domain = domain[self._order]
        """The values in order of their numbers."""

    def __len__(self) -> int:
        return self.grid.rows

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, GridOptions)
            and (self.grid.first, self.grid.rows) == (other.grid.first, other.grid.rows)
            and np.array_equal(self.grid.null, other.grid.null)
            and np.array_equal(self.in_grid, other.in_grid)
        )

    __hash__ = object.__hash__

    @cached_property
    def _listed(self) -> Options:
        return self.take(np.arange(self.grid.rows))

    @property
    def codes(self) -> Lists:
        return self._listed.codes

    @property
    def literals(self) -> Integers:
        return self._listed.literals

    @property
    def null(self) -> Integers:
        return self.grid.null

    @property
    def all_literals(self) -> Lists:
        return self.grid.all_literals

    def take(self, rows: Integers) -> Options:
        """The choices of some rows as lists."""
        count, values = len(rows), len(self.domain)
        self.problem.foresee(count * values // _ITEMS_A_CELL)
        codes = Lists(np.arange(count + 1) * values, np.tile(self.domain, count))
        literals = self.grid.literals(rows[:, None], self._order[None, :]).ravel()
        return Options(codes, literals, self.grid.null[rows])

    def with_null(self) -> Options:
        """The same with NULL as one of the values, number -1, and after them a choice that is always NULL."""
        return self._listed.with_null()

    def places(self, codes: Integers) -> Integers:
        """Where in the grid these values are; -1 for those that cannot be chosen."""
        if not len(self.domain):
            return filled(len(codes), -1)
        found = np.minimum(np.searchsorted(self.domain, codes), len(self.domain) - 1)
        return np.where(self.domain[found] == codes, self._order[found], -1)

    def literal(self, choices: Integers, codes: Integers) -> Integers:
        """The literal under which a choice takes a value, for each pair of these."""
        places = self.places(codes)
        return np.where(places >= 0, self.grid.literals(choices, places), FALSE)


AnyOptions: TypeAlias = Options | GridOptions


@dataclass(frozen=True, slots=True, eq=False)
class Constants:
    """``cells`` are numbers, or objects."""

    cells: NDArray[Any]
    null: Mask
    _distinct: list[tuple[list[Any], Integers]] = field(default_factory=list, repr=False)
    """What is different in it, once somebody has asked."""

    @classmethod
    def of(cls, cells: NDArray[Any]) -> Constants:
        """A column of the database's."""
        if isinstance(cells, np.ma.MaskedArray):
            null = np.ma.getmaskarray(cells)
            data = np.ma.getdata(cells)
            if data.dtype.kind == "O":
                data = _blanked(data, null)
            return cls(data, null)
        if cells.dtype.kind == "O":
            nulls = map(is_, cells.tolist(), repeat(None))
            return cls(cells, np.fromiter(nulls, np.bool_, len(cells)))
        return cls(cells, np.zeros(len(cells), np.bool_))

    @classmethod
    def repeated(cls, value: Any, count: int) -> Constants:
        cells = np.empty(count, object)
        cells[:] = value
        return cls.of(cells)

    def __len__(self) -> int:
        return len(self.null)

    @property
    def distinct(self) -> tuple[list[Any], Integers]:
        """The different values, those of NULL among them, and the place of each row's."""
        if not self._distinct:
            if self.cells.dtype.kind != "O":
                found, number = np.unique(self.cells, return_inverse=True)
                self._distinct.append((found.tolist(), number))
            else:
                values = self.cells.tolist()
                keys = _keys(values)
                different = dict(zip(keys, values, strict=True))
                places = dict(zip(different, range(len(different)), strict=True))
                number = np.fromiter(map(places.__getitem__, keys), np.int64, len(keys))
                self._distinct.append((list(different.values()), number))
        return self._distinct[0]

    @property
    def numbers(self) -> Integers:
        """A number for each row's value, the same one for equal values of this column alone."""
        if self.cells.dtype.kind in "iub" and not self.null.any():
            return self.cells.astype(np.int64)
        return np.where(self.null, -1, self.distinct[1])

    @property
    def values(self) -> list[Any]:
        """As Python has them."""
        found = self.cells.tolist()
        if self.null.any() and self.cells.dtype.kind != "O":
            return [None if null else cell for cell, null in zip(found, self.null.tolist(), strict=True)]
        return list(found)

    def whole(self, expression: Expression) -> Integers:
        """As exact integers, 0 for NULL; conditions are 0 and 1.  TypeMismatchError for text and reals."""
        if self.cells.dtype.kind in "iub":
            return np.where(self.null, 0, self.cells).astype(np.int64)
        found = np.zeros(len(self), np.int64)
        for place in np.flatnonzero(~self.null).tolist():
            value = self.cells[place]
            if not isinstance(value, (int, np.integer)):
                value = value.item() if isinstance(value, np.generic) else value
                raise TypeMismatchError(
                    f"expected a whole number, found {value!r}",
                    position=expression.position,
                    hint=f"the solver computes with exact integers; {self._scaling()}, or put it on a side by itself",
                )
            if abs(int(value)) > LIMIT:
                raise too_large(abs(int(value)))
            found[place] = int(value)
        return found

    def _scaling(self) -> str:
        """How to make whole numbers of fractions."""
        fractions = [cell for cell in self.cells[~self.null].tolist() if isinstance(cell, float)]
        if fractions and all(map(math.isfinite, fractions)):
            for scale in (10**digits for digits in range(1, _MOST_DIGITS + 1)):
                if all(round(cell * scale) / scale == cell for cell in fractions):
                    return f"write CAST(... * {scale} AS BIGINT), and {scale} times as much beside it"
        return "scale or cast it"

    @property
    def is_text(self) -> bool:
        return self.cells.dtype.kind == "O" and any(isinstance(cell, str) for cell in self.cells.tolist())


def objects(values: Sequence[Any]) -> Constants:
    """A column of these values, as Python has them."""
    cells = np.empty(len(values), object)
    cells[:] = values
    return Constants.of(cells)


def _blanked(cells: NDArray[Any], null: Mask) -> NDArray[Any]:
    """The same with None where it is NULL."""
    found = cells.copy()
    found[null] = None
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """``index`` is the place of each row's choice among the options; -1 is NULL."""

    options: AnyOptions
    index: Integers

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True, slots=True, eq=False)
class Truths:
    """Never both; neither is UNKNOWN."""

    true: Integers
    false: Integers

    def __len__(self) -> int:
        return len(self.true)


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """``index`` is the place of each row's number; -1 is NULL.  A value means nothing where its ``null`` holds."""

    linears: Linears
    null: Integers
    index: Integers

    @classmethod
    def plain(cls, linears: Linears, null: Integers | None = None) -> Numbers:
        """A number in each row."""
        count = len(linears)
        return cls(linears, filled(count, FALSE) if null is None else null, np.arange(count))

    def __len__(self) -> int:
        return len(self.index)

    @property
    def nulls(self) -> Integers:
        """A literal for "is NULL" in each row."""
        return np.append(self.null, TRUE)[self.index]


Column: TypeAlias = Constants | Choices | Truths | Numbers


@overload
def take(column: Constants, rows: Integers) -> Constants: ...


@overload
def take(column: Column, rows: Integers) -> Column: ...


def take(column: Column, rows: Integers) -> Column:
    """The cells of these rows, in this order; row -1 is NULL."""
    missing = rows < 0
    if isinstance(column, Constants):
        if not len(column):
            return Constants.repeated(None, len(rows))
        cells, null = column.cells[rows], column.null[rows] | missing
        return Constants(_blanked(cells, null) if cells.dtype.kind == "O" else cells, null)
    if isinstance(column, Truths):
        return Truths(np.append(column.true, FALSE)[rows], np.append(column.false, FALSE)[rows])
    index = np.append(column.index, -1)[rows]
    if isinstance(column, Choices):
        return Choices(column.options, index)
    return Numbers(column.linears, column.null, index)


def joined_constants(columns: Sequence[Constants]) -> Constants:
    """One column after the other."""
    if not columns:
        return Constants.of(np.empty(0, object))
    kinds = {column.cells.dtype for column in columns}
    if len(kinds) == 1:
        cells = np.concatenate([column.cells for column in columns])
        return Constants(cells, np.concatenate([column.null for column in columns]))
    cells = np.empty(sum(map(len, columns)), object)
    cells[:] = [cell for column in columns for cell in column.values]
    return Constants.of(cells)


def _joined_indexes(indexes: Sequence[Integers], lengths: Sequence[int]) -> Integers:
    """Places among cells of so many columns, one column's after the other's; -1 stays."""
    offsets = np.cumsum([0, *lengths]).tolist()
    moved = [np.where(index < 0, -1, index + offset) for index, offset in zip(indexes, offsets, strict=False)]
    return np.concatenate(moved)


def joined_numbers(columns: Sequence[Numbers]) -> Numbers:
    index = _joined_indexes([column.index for column in columns], [len(column.linears) for column in columns])
    null = np.concatenate([column.null for column in columns])
    return Numbers(stacked([column.linears for column in columns]), null, index)


def joined_choices(columns: Sequence[Choices]) -> Choices:
    index = _joined_indexes([column.index for column in columns], [len(column.options) for column in columns])
    codes = joined([column.options.codes for column in columns])
    literals = np.concatenate([column.options.literals for column in columns])
    null = np.concatenate([column.options.null for column in columns])
    return Choices(Options(codes, literals, null), index)


def joined_truths(columns: Sequence[Truths]) -> Truths:
    return Truths(
        np.concatenate([column.true for column in columns]),
        np.concatenate([column.false for column in columns]),
    )


def pairs_of(*indexes: Integers) -> tuple[list[Integers], Integers]:
    """The different combinations of places, none of them -1, and each row's among them; -1 where one is."""
    known = np.flatnonzero(np.logical_and.reduce([index >= 0 for index in indexes]))
    first, number = group_numbers(*(index[known] for index in indexes))
    found = filled(len(indexes[0]), -1)
    found[known] = number
    return [index[known][first] for index in indexes], found


@dataclass(frozen=True, slots=True, eq=False)
class RelationData:
    """The symbolic side of a relation: its columns by lower-case name, and which rows exist.

    ``row_ids`` are the database's numbers of the rows, in the order of the columns.
    """

    columns: Mapping[str, Column]
    exists: Integers
    row_ids: Integers
    _order: list[tuple[Integers, Integers]] = field(default_factory=list, repr=False)
    """Where the numbers stand in their order, and the numbers so; once somebody has asked."""

    def places(self, numbers: Constants) -> Integers:
        """Where rows of these numbers stand; -1 where there is no number."""
        if not self._order:
            order = np.argsort(self.row_ids, kind="stable")
            self._order.append((order, self.row_ids[order]))
        order, row_ids = self._order[0]
        wanted = np.where(numbers.null, -1, numbers.cells).astype(np.int64)
        if not len(order):
            return filled(len(wanted), -1)
        found = order[np.minimum(np.searchsorted(row_ids, wanted), len(order) - 1)]
        return np.where(numbers.null, -1, found)
