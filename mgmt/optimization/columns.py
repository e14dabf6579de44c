"""Columns of lists and of linear expressions: one of either in each row, all of them in a few arrays.

A column of lists is in compressed sparse rows: the items of all rows one after the other, and where each row's start.
A *literal* is a number: ``2 * variable`` is the variable (of domain 0..1), ``2 * variable + 1`` its negation.
Variable 0 is the constant 1, so TRUE and FALSE are literals too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mgmt.errors import OverflowError  # noqa: A004 - the published name
from mgmt.optimization.dense_ranks import firsts, joint_ranks

Integers: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

TRUE = 0
FALSE = 1
# Half of the 64-bit range, so that the difference of two values still fits.
LIMIT = 2**62


def integers(values: ArrayLike) -> Integers:
    return np.asarray(values, np.int64)


def filled(count: int, value: int) -> Integers:
    found = np.empty(count, np.int64)
    found.fill(value)
    return found


def components(one: Integers, other: Integers, count: int) -> Integers:
    """(N,) of each of so many the number of its component, pairs being connected; -1 where it is in no pair."""
    lowest = np.arange(count)
    while True:
        before = lowest.copy()
        np.minimum.at(lowest, one, lowest[other])
        np.minimum.at(lowest, other, lowest[one])
        lowest = lowest[lowest]
        if bool((lowest == before).all()):
            break
    used = np.unique(np.concatenate((one, other)))
    found = filled(count, -1)
    found[used] = np.unique(lowest[used], return_inverse=True)[1]
    return found


def group_numbers(*keys: Integers) -> tuple[Integers, Integers]:
    """Numbers rows whose keys are all equal alike: a first row of each number, and each row's number.

    The numbers go in the order of the keys.
    """
    if (keys[0][1:] > keys[0][:-1]).all():
        return np.arange(len(keys[0])), np.arange(len(keys[0]))
    number, count = joint_ranks(keys, len(keys[0]))
    return firsts(number, count), number


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """A list of integers in each row: row i has ``items[starts[i]:starts[i + 1]]``."""

    starts: Integers
    items: Integers

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Lists:
        """The column of these lists."""
        return cls(_starts([len(row) for row in rows]), integers([item for row in rows for item in row]))

    @classmethod
    def side_by_side(cls, *columns: Integers) -> Lists:
        """In each row one item of each column."""
        count = len(columns[0]) if columns else 0
        return cls(np.arange(count + 1) * len(columns), np.stack(columns, 1).ravel() if columns else _EMPTY)

    @classmethod
    def grouped(cls, owners: Integers, items: Integers, count: int) -> Lists:
        """``count`` rows, each with the items whose owner it is, in their order."""
        if not (owners[1:] >= owners[:-1]).all():
            items = items[owners.argsort(kind="stable")]
        return cls(_starts(np.bincount(owners, minlength=count)), items)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> Integers:
        return self.starts[1:] - self.starts[:-1]

    @property
    def owners(self) -> Integers:
        """The row that each item is of."""
        return np.arange(len(self)).repeat(self.lengths)

    def places(self, rows: Integers) -> tuple[Integers, Integers]:
        """Where the items of these rows stand, and where each row's start among them."""
        lengths = self.lengths[rows]
        starts = _starts(lengths)
        places: Integers = (self.starts[rows] - starts[:-1]).repeat(lengths)
        places += np.arange(starts[-1])
        return places, starts

    def take(self, rows: Integers) -> Lists:
        places, starts = self.places(rows)
        return Lists(starts, self.items[places])

    def keep(self, wanted: Mask) -> Lists:
        """Without the items that are not wanted."""
        return self if wanted.all() else Lists(_starts(wanted)[self.starts], self.items[wanted])

    def any(self, marked: Mask) -> Mask:
        """Which rows have a marked item."""
        if not marked.any():
            return np.zeros(len(self), np.bool_)
        marks = _starts(marked)[self.starts]
        found: Mask = marks[1:] > marks[:-1]
        return found

    def row(self, number: int) -> Integers:
        return self.items[self.starts[number] : self.starts[number + 1]]

    def distinct(self) -> Lists:
        """Each row sorted, without repetitions."""
        owners, items = self.owners, self.items
        if ((items[1:] > items[:-1]) | (owners[1:] > owners[:-1])).all():
            return self
        first, _ = group_numbers(owners, items)
        return Lists.grouped(owners[first], items[first], len(self))

    def alike(self) -> tuple[Integers, Integers]:
        """Numbers rows of equal items alike: a first row of each number, and each row's number."""
        mixed = _mixed(self.items, np.arange(len(self.items)) - np.repeat(self.starts[:-1], self.lengths))
        total = np.add.reduceat(np.append(mixed, 0), self.starts[:-1]) if len(self) else _EMPTY
        first, number = group_numbers(self.lengths, np.where(self.lengths, total, 0))
        same = self.take(first[number]).items == self.items
        return (first, number) if same.all() else (np.arange(len(self)), np.arange(len(self)))


def joined(columns: Sequence[Lists]) -> Lists:
    """The rows of all, one column after the other."""
    lengths = np.concatenate([_EMPTY, *(column.lengths for column in columns)])
    return Lists(_starts(lengths), np.concatenate([_EMPTY, *(column.items for column in columns)]))


_EMPTY = np.zeros(0, np.int64)


def _starts(lengths: ArrayLike) -> Integers:
    lengths = integers(lengths)
    found = filled(len(lengths) + 1, 0)
    lengths.cumsum(out=found[1:])
    return found


def _mixed(items: Integers, places: Integers) -> Integers:
    """A hash of each item and its place in its row."""
    found = items.astype(np.uint64) + (places.astype(np.uint64) + np.uint64(1)) * np.uint64(
        0x9E3779B97F4A7C15
    )
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    mixed: Integers = (found ^ (found >> np.uint64(31))).view(np.int64)
    return mixed


@dataclass(frozen=True, slots=True)
class Linear:
    """One linear expression: ``constant`` plus the sum of coefficient times variable."""

    constant: int
    variables: tuple[int, ...] = ()
    coefficients: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Linears:
    """A linear expression in each row."""

    constants: Integers
    terms: Lists
    """The variables."""
    coefficients: Integers

    @classmethod
    def of(cls, *rows: Linear) -> Linears:
        coefficients = integers([factor for row in rows for factor in row.coefficients])
        return cls(
            integers([row.constant for row in rows]), Lists.of([row.variables for row in rows]), coefficients
        )

    @classmethod
    def constant(cls, values: ArrayLike) -> Linears:
        constants = integers(values)
        return cls(constants, Lists(np.zeros(len(constants) + 1, np.int64), _EMPTY), _EMPTY)

    @classmethod
    def single(cls, variables: Integers) -> Linears:
        """One variable in each row."""
        count = len(variables)
        return cls(filled(count, 0), Lists(np.arange(count + 1), variables), filled(count, 1))

    @classmethod
    def literals(cls, literals: Integers, factors: Integers | int = 1) -> Linears:
        """In each row a literal, as 0 or 1, times a factor."""
        factors = np.broadcast_to(integers(factors), literals.shape)
        negated = literals & 1
        known = literals < 2
        constants = np.where(known, (1 - negated) * factors, negated * factors)
        return cls(
            constants,
            Lists(_starts(~known), literals[~known] >> 1),
            np.where(negated == 1, -factors, factors)[~known],
        )

    def __len__(self) -> int:
        return len(self.constants)

    @property
    def is_constant(self) -> Mask:
        found: Mask = self.terms.lengths == 0
        return found

    def take(self, rows: Integers) -> Linears:
        places, starts = self.terms.places(rows)
        return Linears(
            self.constants[rows], Lists(starts, self.terms.items[places]), self.coefficients[places]
        )

    def row(self, number: int) -> Linear:
        first, last = self.terms.starts[number : number + 2].tolist()
        variables = tuple(self.terms.items[first:last].tolist())
        return Linear(int(self.constants[number]), variables, tuple(self.coefficients[first:last].tolist()))

    def scaled(self, factors: Integers | int) -> Linears:
        """Each row times its factor."""
        if isinstance(factors, int) and abs(factors) == 1:
            return self if factors == 1 else Linears(-self.constants, self.terms, -self.coefficients)
        factors = np.broadcast_to(integers(factors), self.constants.shape)
        spread = factors.repeat(self.terms.lengths)
        if largest(factors) * max(largest(self.constants), largest(self.coefficients)) > LIMIT:
            self._refuse_products(factors, spread)
        found = Linears(self.constants * factors, self.terms, self.coefficients * spread)
        return found if (factors != 0).all() else found._without_zeros()

    def _refuse_products(self, factors: Integers, spread: Integers) -> None:
        """OverflowError where a number times its factor leaves 64 bits."""
        for values, by in ((self.constants, factors), (self.coefficients, spread)):
            sizes = np.abs(values.astype(np.float64) * by)
            if len(sizes) and sizes.max() > LIMIT:
                place = int(sizes.argmax())
                raise too_large(abs(int(values[place]) * int(by[place])))

    def plus(self, constants: Integers | int) -> Linears:
        return Linears(self.constants + constants, self.terms, self.coefficients)

    def _refuse_overflow(self, owners: Integers, count: int) -> None:
        """OverflowError where a sum of some rows may leave 64 bits."""
        for values, whose in (
            (self.constants, owners),
            (self.coefficients, np.repeat(owners, self.terms.lengths)),
        ):
            if largest(values) * len(values) <= LIMIT:
                continue
            total = np.bincount(whose, np.abs(values.astype(np.float64)), minlength=count)
            if len(total) and total.max() > LIMIT:
                raise too_large(sum(map(abs, values[whose == total.argmax()].tolist())))

    def _without_zeros(self) -> Linears:
        kept = self.coefficients != 0
        return self if kept.all() else Linears(self.constants, self.terms.keep(kept), self.coefficients[kept])

    def summed(self, owners: Integers, count: int) -> Linears:
        """``count`` rows, each the sum of those whose owner it is, with each variable once and in order."""
        self._refuse_overflow(owners, count)
        constants = np.zeros(count, np.int64)
        np.add.at(constants, owners, self.constants)
        if not len(self.terms.items):
            return Linears.constant(constants)
        spread, variables, ordered = owners.repeat(self.terms.lengths), self.terms.items, self.coefficients
        later = spread[1:] > spread[:-1]
        alike = spread[1:] == spread[:-1]
        if not (later | alike & (variables[1:] > variables[:-1])).all():
            order = np.lexsort((variables, spread))
            spread, variables, ordered = spread[order], variables[order], ordered[order]
            alike = spread[1:] == spread[:-1]
        new = np.ones(len(spread), np.bool_)
        new[1:] = ~alike | (variables[1:] != variables[:-1])
        begins = new.nonzero()[0]
        coefficients = np.add.reduceat(ordered, begins) if len(begins) else _EMPTY
        terms = Lists(_starts(np.bincount(spread[begins], minlength=count)), variables[begins])
        return Linears(constants, terms, coefficients)._without_zeros()


def stacked(columns: Sequence[Linears]) -> Linears:
    """The rows of all, one column after the other."""
    return Linears(
        np.concatenate([_EMPTY, *(column.constants for column in columns)]),
        joined([column.terms for column in columns]),
        np.concatenate([_EMPTY, *(column.coefficients for column in columns)]),
    )


def sum_of(*columns: Linears) -> Linears:
    """The sum of these in each row."""
    count = len(columns[0])
    return stacked(columns).summed(np.tile(np.arange(count), len(columns)), count)


def difference(left: Linears, right: Linears) -> Linears:
    return sum_of(left, right.scaled(-1))


def too_large(value: int) -> OverflowError:
    return OverflowError(f"a sum may reach {value}, beyond exact 64-bit integers", hint="use a larger unit")


def largest(values: Integers) -> int:
    return max(int(values.max()), -int(values.min())) if len(values) else 0


def truncated(dividends: Integers, divisors: Integers) -> Integers:
    """Integer division toward zero, as SQL does it."""
    quotients = np.abs(dividends) // np.abs(divisors)
    return np.where((dividends < 0) == (divisors < 0), quotients, -quotients)
