"""The normal form of bounds on sums over cells: no more of a row than the least it comes to, and no common factor.

Of a row that must have a value exactly one cell holds, so what all of its cells have in common is a constant.  What is
no cell stands for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mgmt.optimization.columns import Integers, Linears, Lists, Mask, filled, group_numbers, stacked
from mgmt.optimization.lifting.refusal import NotLiftedError
from mgmt.optimization.lifting.sums.cell_sums import CellSums
from mgmt.optimization.problem import NO_BOUND

_MOST_TOLD = 40_000_000
"""Rows that may have other values, each, times values: so many bytes, and eight times as many for a moment."""


@dataclass(frozen=True, slots=True, eq=False)
class Demanded:
    """Where bounds come from: of which row of a constraint each is, and what it was before it was in normal form."""

    rows: Integers
    factors: Integers
    """What the row bounds, less a constant, is so many times the sum."""
    lower: Integers
    """Of the sum times the size of the factor."""
    upper: Integers

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, where: Integers) -> Demanded:
        return Demanded(self.rows[where], self.factors[where], self.lower[where], self.upper[where])


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """``lower <= linear <= upper``, over cells, without constants."""

    linears: Linears
    lower: Integers
    upper: Integers
    demanded: Demanded

    @classmethod
    def of(cls, linears: Linears, lower: Integers, upper: Integers, rows: Integers | None = None) -> Ranges:
        """``rows`` of a constraint, where somebody asks which they were."""
        told = filled(len(lower), 0) if rows is None else rows
        return cls(linears, lower, upper, Demanded(told, filled(len(lower), 1), lower, upper))

    def __len__(self) -> int:
        return len(self.lower)

    def take(self, places: Integers | Mask) -> Ranges:
        if places.dtype == np.bool_ and places.all():
            return self
        where: Integers = np.arange(len(self))[places]
        return Ranges(
            self.linears.take(where), self.lower[where], self.upper[where], self.demanded.take(where)
        )

    def multiplied(self) -> Ranges:
        """The same with the common factors that normal form has taken away."""
        told = self.demanded
        sizes = np.abs(told.factors)
        return Ranges(
            self.linears.scaled(sizes),
            told.lower,
            told.upper,
            Demanded(told.rows, np.sign(told.factors), told.lower, told.upper),
        )


def joined_ranges(parts: Sequence[Ranges]) -> Ranges:
    """All of them, one after the other, which nobody asks of what demands them."""
    lower, upper = (
        np.concatenate(some) for some in zip(*((part.lower, part.upper) for part in parts), strict=True)
    )
    return Ranges.of(stacked([part.linears for part in parts]), lower, upper)


@dataclass(frozen=True, slots=True, eq=False)
class Rowwise:
    """The terms of expressions row by row: of each pair of an expression and a row the number of its terms."""

    owners: Integers
    rows: Integers
    """Of each pair; of what is no cell, the term."""
    number: Integers
    """Of each term, the pair that it is of."""
    complete: Mask
    """Whether one of the terms holds, whatever is chosen."""
    least: Integers
    """What each pair comes to at least."""
    most: Integers

    @classmethod
    def of(cls, linears: Linears, sums: CellSums) -> Rowwise:
        terms, owners, cells = linears.terms.items, linears.terms.owners, sums.cells
        is_cell = terms < sums.width
        row = np.where(is_cell, terms // sums.stride, terms)
        new = np.ones(len(terms), np.bool_)
        new[1:] = (owners[1:] != owners[:-1]) | (row[1:] != row[:-1])
        number = np.cumsum(new) - 1
        rows, of_cells = row[new], is_cell[new]
        sizes = np.bincount(number, minlength=len(rows))
        known = np.where(of_cells, rows, 0)
        complete = of_cells & (sizes == sums.domain_sizes[known]) & cells.required[known]
        low, high = sums.limits(terms)
        low[is_cell] = high[is_cell] = 1
        factors = _of_each_value(linears.coefficients, sums.is_every(terms), number)
        ends = np.stack((factors * low, factors * high))
        start = np.where(complete | ~of_cells, 2**62, 0)
        least, most = start.copy(), -start
        np.minimum.at(least, number, ends.min(0, initial=2**62))
        np.maximum.at(most, number, ends.max(0, initial=-(2**62)))
        return cls(owners[new], rows, number, complete, least, most)

    def ends(self, count: int) -> tuple[Integers, Integers]:
        """The least and the most that each of so many expressions comes to."""
        return _summed(self.least, self.owners, count), _summed(self.most, self.owners, count)


def _of_each_value(factors: Integers, every: Mask, number: Integers) -> Integers:
    """What each term comes to with what all cells of its row do."""
    if not every.any():
        return factors
    common = filled(int(number.max()) + 1, 0)
    common[number[every]] = factors[every]
    return np.where(every, factors, factors + common[number])


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """Expressions as ``factor * linear + constant``."""

    linears: Linears
    factors: Integers
    constants: Integers


def reduced(linears: Linears, sums: CellSums) -> Reduced:
    """Sums over cells in normal form: none that only takes away, no common factor, no constant."""
    rowwise = Rowwise.of(linears, sums)
    common = np.where(rowwise.complete, rowwise.least, 0)
    constants = linears.constants + _summed(common, rowwise.owners, len(linears))
    coefficients = linears.coefficients - common[rowwise.number]
    kept = coefficients != 0
    terms, coefficients = linears.terms.keep(kept), coefficients[kept]
    sign = np.where(terms.any(coefficients > 0), 1, -1)
    divisor = filled(len(linears), 1)
    some = np.flatnonzero(terms.lengths)
    if len(some):
        divisor[some] = np.gcd.reduceat(np.abs(coefficients), terms.starts[:-1][some])
    factors = sign * divisor
    spread = np.repeat(factors, terms.lengths)
    return Reduced(Linears(filled(len(linears), 0), terms, coefficients // spread), factors, constants)


def normalized(ranges: Ranges, sums: CellSums) -> tuple[Ranges, Integers, Integers]:
    """The same bounds on sums in normal form, and the least and the most that these come to."""
    found = reduced(ranges.linears, sums)
    low, high = _shifted(ranges.lower, -found.constants), _shifted(ranges.upper, -found.constants)
    falling, divisor = found.factors < 0, np.abs(found.factors)
    low, high = np.where(falling, -high, low), np.where(falling, -low, high)
    demanded = Demanded(ranges.demanded.rows, found.factors, low, high)
    low = np.where(low == -NO_BOUND, low, -(-low // divisor))
    high = np.where(high == NO_BOUND, high, high // divisor)
    return Ranges(found.linears, low, high, demanded), *Rowwise.of(found.linears, sums).ends(len(ranges))


def _shifted(bounds: Integers, by: Integers) -> Integers:
    return np.where(np.abs(bounds) == NO_BOUND, bounds, bounds + by)


def _summed(values: Integers, owners: Integers, count: int) -> Integers:
    found = filled(count, 0)
    np.add.at(found, owners, values)
    return found


def values_within(ranges: Ranges, sums: CellSums) -> tuple[Integers, Integers, Mask]:
    """Of bounds on the cells of one row each: the rows, which table is of each, and tables (V + 1) of what they allow.

    These are values, and none.
    """
    terms, values = ranges.linears.terms, sums.cells.values
    cells = np.stack((sums.value_of(terms.items), ranges.linears.coefficients), 1).ravel()
    _, same = Lists(2 * terms.starts, cells).alike()
    first, number = group_numbers(same, ranges.lower, ranges.upper)
    if len(first) * values > _MOST_TOLD:
        raise NotLiftedError(f"{len(first)} kinds of rows that may each have others of {values} values")
    kinds = ranges.take(first)
    owners, value, worth = kinds.linears.terms.owners, kinds.linears.terms.items, kinds.linears.coefficients
    table = np.zeros((len(first), values + 1), np.int64)
    every = sums.is_every(value)
    table[owners[every], :values] += worth[every][:, None]
    table[owners[~every], sums.value_of(value[~every])] += worth[~every]
    allows = (table >= kinds.lower[:, None]) & (table <= kinds.upper[:, None])
    return sums.row_of(terms.items[terms.starts[:-1]]), number, allows


@dataclass(frozen=True, slots=True, eq=False)
class Literals:
    """Bounds that say of some rows that one of them has one of some values, or has none of some.

    Terms are cells: those of the values that count.
    """

    bounds: Integers
    """Of each pair of a bound and a row, the bound."""
    negated: Mask
    """Of each pair, whether the row is to have none of the values."""
    cells: Lists
    """Of each pair."""


def is_membership(linears: Linears, lower: Integers, upper: Integers, sums: CellSums) -> Mask:
    """Which bounds say so: of terms of 1 (or of -1 for each row), and what one row says suffices."""
    rowwise = Rowwise.of(linears, sums)
    least, most = _plain_ends(linears, rowwise)
    up = (lower == least + 1) & (upper >= most)
    down = (upper == most - 1) & (lower <= least)
    factors = linears.coefficients
    sign = filled(len(rowwise.rows), 0)
    sign[rowwise.number] = factors
    uneven = linears.terms.any((np.abs(factors) != 1) | (factors != sign[rowwise.number]))
    found: Mask = ~uneven & (up | down) & (linears.terms.lengths > 0) & ~sums.is_product(linears)
    return found


def as_literals(linears: Linears, lower: Integers, sums: CellSums) -> Literals:
    """Those bounds row by row."""
    rowwise = Rowwise.of(linears, sums)
    least, _ = _plain_ends(linears, rowwise)
    up = lower == least + 1
    sign = filled(len(rowwise.rows), 0)
    sign[rowwise.number] = linears.coefficients
    negated = (sign > 0) ^ up[rowwise.owners]
    return Literals(rowwise.owners, negated, Lists.grouped(rowwise.number, linears.terms.items, len(sign)))


def _plain_ends(linears: Linears, rowwise: Rowwise) -> tuple[Integers, Integers]:
    """The ends where any row may have a value without a term."""
    ends = np.zeros((2, len(rowwise.rows)), np.int64)
    np.minimum.at(ends[0], rowwise.number, linears.coefficients)
    np.maximum.at(ends[1], rowwise.number, linears.coefficients)
    return _summed(ends[0], rowwise.owners, len(linears)), _summed(ends[1], rowwise.owners, len(linears))


def disjoined(literals: Literals, owners: Integers, count: int, stride: int) -> tuple[Linears, Linears, Mask]:
    """Clauses of literals, by whose they are: sums of what rows have, and of what they have not, one for each clause.

    One of the former holds, or not all of the latter: all are as many as there are rows in them.  The mask tells the
    clauses that always hold.
    """
    cells, of_cell = literals.cells.items, literals.cells.owners
    clause, negated = owners[literals.bounds], literals.negated
    row = cells[literals.cells.starts[:-1]] // stride if len(clause) else clause
    first, pair = group_numbers(clause, row)
    times = np.bincount(pair[negated], minlength=len(first))
    entry, number = group_numbers(pair[of_cell], cells)
    of_pair, cell = pair[of_cell][entry], cells[entry]
    has = np.bincount(number[~negated[of_cell]], minlength=len(entry)) > 0
    has_not = np.bincount(number[negated[of_cell]], minlength=len(entry)) == times[of_pair]
    # A row that is not to have some values may have any other; what else it may have says nothing.
    has_not &= (times[of_pair] > 0) & ~has
    has &= times[of_pair] == 0
    parts = [
        Linears(
            filled(count, 0),
            Lists.grouped(clause[first[of_pair[kept]]], cell[kept], count),
            filled(int(kept.sum()), 1),
        )
        for kept in (has, has_not)
    ]
    left = np.bincount(of_pair[has_not], minlength=len(first))
    always = np.bincount(clause[first[(times > 0) & (left == 0)]], minlength=count) > 0
    return parts[0], parts[1], always
