"""What an objective makes of sums over cells, in many rows at once: functions of loads, with constants row by row.

Until it is known which places of loads the rows are, a constant is of one group, with a bucket for each row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgmt.optimization.columns import Integers
from mgmt.optimization.general.operators import Operator
from mgmt.optimization.load_functions import (
    Constant,
    Greatest,
    LoadFunction,
    Positive,
    Product,
    Quotient,
    Total,
    constant,
)


def row_constant(values: Integers) -> Constant:
    """A number for each row."""
    return Constant(values[None, :])


def weighted(constants: Integers, parts: Sequence[tuple[Integers, LoadFunction]]) -> LoadFunction:
    """A constant, and others by their factors."""
    if not parts:
        return row_constant(constants)
    terms = [Product(row_constant(factors), part) for factors, part in parts]
    return Total((row_constant(constants), *terms))


def operated(operator: Operator, parts: Sequence[LoadFunction], rows: int) -> LoadFunction:
    """An operator over others."""
    if operator is Operator.MAXIMUM:
        return Greatest(tuple(parts))
    one = np.ones(rows, np.int64)
    if operator is Operator.AT_MOST_ZERO:
        return weighted(one, [(-one, Positive(parts[0]))])
    left, right = parts
    if operator is Operator.PRODUCT:
        return Product(left, right)
    quotient = Quotient(left, right)
    return (
        quotient
        if operator is Operator.QUOTIENT
        else Total((left, Product(row_constant(-one), Product(quotient, right))))
    )


def placed(function: LoadFunction, row: Integers, otherwise: int) -> LoadFunction:
    """The function with a row, or none (-1), at each place (groups, buckets) of loads; a number where there is none.

    Without constants it is nothing.
    """
    there = row >= 0

    def spread(leaf: LoadFunction) -> LoadFunction:
        if not isinstance(leaf, Constant):
            return leaf
        return constant(np.where(there, leaf.values[0, np.maximum(row, 0)], 0))

    found = function.mapped(spread)
    if not there.all() and otherwise:
        found = Total((found, constant(np.where(there, 0, otherwise))))
    return found.simplified()
