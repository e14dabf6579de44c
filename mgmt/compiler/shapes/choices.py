"""CHECKs of single rows: which row may not choose which value, and which must choose one at all.

What it is not: CHECKs over groups (see ``limits``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mgmt.compiler.shapes.frames import Choosers, Frame, Grid, at_places, classes_of
from mgmt.compiler.shapes.vectors import MOST_CELLS, Mask, OtherShape
from mgmt.language.bound_queries.expressions import has_aggregate


@dataclass(frozen=True, slots=True, eq=False)
class Ban:
    """What one constraint forbids.  Rows of class -1 are not in it."""

    row_class: NDArray[np.intp]
    """(R,) the class of each choosing row, or -1."""
    forbidden: Mask
    """(K, V + 1) per class and value; the last: to have no value."""


def ban_of(frame: Frame) -> Ban | None:
    """What a CHECK of single rows forbids; None when every choice passes."""
    shape = frame.shape
    if shape.group_gates or has_aggregate(shape.demand):
        raise OtherShape("aggregates over rows that are not grouped")
    conditions = [*shape.gates, *shape.pair_gates]
    grid = frame.grid(*conditions, shape.demand)
    return forbidding(frame, grid, grid.holds(conditions) & grid.evaluate(shape.demand).false)


def forbidding(frame: Frame, grid: Grid, broken: Mask) -> Ban | None:
    """The ban of what is ``broken``, (row classes, value classes) of a grid; None when nothing is."""
    if not broken.any():
        return None
    width = frame.choosers.values + 1
    if grid.rows.count * width > MOST_CELLS:
        raise OtherShape(f"{grid.rows.count} kinds of rows may choose differently from {width - 1} values")
    known = np.flatnonzero(frame.place >= 0)
    forbidden = at_places(broken[:, grid.values.of[known]], frame.place[known], width, np.logical_or)
    row_class = np.full(frame.choosers.rows, -1, np.intp)
    if frame.once_per_chooser:
        row_class[frame.chooser] = grid.rows.of
        return Ban(row_class, forbidden)
    pairs = classes_of([frame.chooser, grid.rows.of], frame.rows).examples
    present, where = np.unique(frame.chooser[pairs], return_inverse=True)
    if len(present) * width > MOST_CELLS:
        raise OtherShape("rows with several conditions each on many values")
    joined = np.zeros((len(present), width), np.bool_)
    np.logical_or.at(joined, where, forbidden[grid.rows.of[pairs]])
    row_class[present] = np.arange(len(present))
    return Ban(row_class, joined)


def joint(choosers: Choosers, bans: list[Ban]) -> tuple[NDArray[np.int32], Mask, Mask]:
    """(R,) classes, (C, V) what each may choose, and (C,) whether it may stay without a value."""
    found = classes_of([ban.row_class for ban in bans], choosers.rows)
    if found.count * (choosers.values + 1) > MOST_CELLS * 2:
        raise OtherShape(f"{found.count} kinds of rows may choose differently")
    allowed = np.ones((found.count, choosers.values + 1), np.bool_)
    allowed[:, -1] = choosers.nullable
    for ban in bans:
        kinds = ban.row_class[found.examples]
        inside = kinds >= 0
        allowed[inside] &= ~ban.forbidden[kinds[inside]]
    return found.of.astype(np.int32), np.ascontiguousarray(allowed[:, :-1]), allowed[:, -1]
