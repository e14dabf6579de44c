"""Sums over cells as products: the weight of a row times whether the value is one of some.

A sum is of rank one if each of some rows counts with each of some values by the same weight.  Many sums are of the same
rows, or the same values: these are kept once, as a *kind*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mgmt.optimization.columns import Integers, Linears, Lists, Mask, filled, joined


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """Of each sum the kind of rows with their weights and the kind of values; ``whole`` where their product is it."""

    rows: Lists
    """Of each kind of rows."""
    weights: Integers
    values: Lists
    """Of each kind of values."""
    row_kind: Integers
    value_kind: Integers
    whole: Mask

    def __len__(self) -> int:
        return len(self.row_kind)

    def take(self, sums: Integers) -> Factors:
        return Factors(
            self.rows, self.weights, self.values, self.row_kind[sums], self.value_kind[sums], self.whole[sums]
        )

    def without_weights(self) -> Factors:
        return replace(self, weights=np.ones_like(self.weights)).with_equal_kinds()

    def with_equal_kinds(self) -> Factors:
        """The same where equal rows and weights, and equal values, are of one kind."""
        pairs = np.stack((self.rows.items, self.weights), 1).ravel()
        first_rows, of_rows = Lists(2 * self.rows.starts, pairs).alike()
        first_values, of_values = self.values.alike()
        return Factors(
            self.rows.take(first_rows),
            self.weights[self.rows.places(first_rows)[0]],
            self.values.take(first_values),
            of_rows[self.row_kind],
            of_values[self.value_kind],
            self.whole,
        )


def joined_factors(parts: Sequence[Factors]) -> Factors:
    """The sums of all, one after the other."""
    rows = np.cumsum([0, *(len(part.rows) for part in parts)]).tolist()
    values = np.cumsum([0, *(len(part.values) for part in parts)]).tolist()
    return Factors(
        joined([part.rows for part in parts]),
        np.concatenate([part.weights for part in parts]),
        joined([part.values for part in parts]),
        np.concatenate([first + part.row_kind for first, part in zip(rows, parts, strict=False)]),
        np.concatenate([first + part.value_kind for first, part in zip(values, parts, strict=False)]),
        np.concatenate([part.whole for part in parts]),
    )


def factors_of(linears: Linears, stride: int) -> Factors:
    """Of sums over cells, numbered ``row * stride + value`` and in order, none of them empty."""
    terms, owners, count = linears.terms.items, linears.terms.owners, len(linears)
    row, value = np.divmod(terms, stride)
    first = linears.terms.starts[:-1][owners]
    by_value, by_row = row == row[first], value == value[first]  # of the first row, with the first value
    rows = Lists(linears.terms.starts, row).keep(by_row)
    some_values = Lists(linears.terms.starts, value).keep(by_value)
    weights = linears.coefficients[by_row]
    whole = rows.lengths * some_values.lengths == linears.terms.lengths
    # Each term must be of one of the rows, with its weight, and with one of the values.
    place = places_in(rows, owners, row)
    known = place >= 0
    same = known & (weights[np.maximum(place, 0)] == linears.coefficients)
    same &= places_in(some_values, owners, value) >= 0
    wrong = np.bincount(owners[~same], minlength=count) > 0
    each = np.arange(count)
    return Factors(rows, weights, some_values, each, each, whole & ~wrong).with_equal_kinds()


def places_in(lists: Lists, owners: Integers, items: Integers) -> Integers:
    """Where in its list each item stands, or -1; lists are in order."""
    if not len(lists.items):
        return filled(len(items), -1)
    width = int(max(lists.items.max(), items.max(initial=0))) + 1
    keys = lists.owners * width + lists.items
    wanted = owners * width + items
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, place, -1)
