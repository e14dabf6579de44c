"""Bounds on how many rows keep the values they have today: those are limits on moves."""

from __future__ import annotations

import numpy as np

from mgmt.optimization.assignment import Indices, MoveLimit
from mgmt.optimization.columns import Lists, Mask, filled
from mgmt.optimization.lifting.sums.cell_sums import CellSums
from mgmt.optimization.lifting.sums.families import layers_of
from mgmt.optimization.lifting.sums.normal_form import Ranges
from mgmt.optimization.problem import NO_BOUND


def are_move_limits(ranges: Ranges, sums: CellSums, current: Indices) -> Mask:
    """Which bounds are lower ones on the number of rows that have today's value.  Of linears that are no products."""
    terms = ranges.linears.terms
    of_today = current[sums.row_of(terms.items)] == sums.value_of(terms.items)
    other = terms.any(~of_today) | terms.any(ranges.linears.coefficients != 1)
    found: Mask = ~other & (ranges.lower > -NO_BOUND) & (ranges.upper >= terms.lengths)
    return found


def move_limits(name: str, ranges: Ranges, sums: CellSums, rows: int) -> list[MoveLimit]:
    """Limits for bounds that are such; those about different rows are one."""
    if not len(ranges):
        return []
    terms = ranges.linears.terms
    of_rows = Lists(terms.starts, sums.row_of(terms.items))
    layer, number, marks = layers_of([of_rows], rows)
    found = []
    for one, (group,) in enumerate(marks):
        mine = np.flatnonzero(layer == one)
        upper = filled(len(mine), 0)
        upper[number[mine]] = terms.lengths[mine] - ranges.lower[mine]
        found.append(MoveLimit(name, group.astype(np.int32), upper))
    return found
