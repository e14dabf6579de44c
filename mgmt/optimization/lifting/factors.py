"""Sums over cells as products: the weight of a row times whether the value is one of some.

A sum is of rank one if each of some rows counts with each of some values by the same weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgmt.optimization.columns import Integers, Linears, Lists, Mask, filled


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """Of each sum the rows with their weights, and the values; ``whole`` where their product is the sum."""

    rows: Lists
    weights: Integers
    values: Lists
    whole: Mask

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, sums: Integers) -> Factors:
        places, starts = self.rows.places(sums)
        return Factors(
            Lists(starts, self.rows.items[places]),
            self.weights[places],
            self.values.take(sums),
            self.whole[sums],
        )

    def without_weights(self) -> Factors:
        return Factors(self.rows, np.ones_like(self.weights), self.values, self.whole)


def factors_of(linears: Linears, values: int) -> Factors:
    """Of sums over cells, numbered ``row * values + value`` and in order, none of them empty."""
    terms, owners, count = linears.terms.items, linears.terms.owners, len(linears)
    row, value = terms // values, terms % values
    first = linears.terms.starts[:-1][owners]
    by_value, by_row = row == row[first], value == value[first]  # of the first row, with the first value
    rows = Lists(linears.terms.starts, row).keep(by_row)
    some_values = Lists(linears.terms.starts, value).keep(by_value)
    weights = linears.coefficients[by_row]
    whole = rows.lengths * some_values.lengths == linears.terms.lengths
    # Each term must be of one of the rows, with its weight, and with one of the values.
    place = _found(rows, owners, row)
    known = place >= 0
    same = known & (weights[np.maximum(place, 0)] == linears.coefficients)
    same &= _found(some_values, owners, value) >= 0
    wrong = np.bincount(owners[~same], minlength=count) > 0
    return Factors(rows, weights, some_values, whole & ~wrong)


def _found(lists: Lists, owners: Integers, items: Integers) -> Integers:
    """Where in its list each item stands, or -1; lists are in order."""
    if not len(lists.items):
        return filled(len(items), -1)
    width = int(max(lists.items.max(), items.max(initial=0))) + 1
    keys = lists.owners * width + lists.items
    wanted = owners * width + items
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, place, -1)
