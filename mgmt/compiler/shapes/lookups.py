"""What a join finds for every row and every value: one entry, or none.

What it is not: joins that find several entries, which would count rows several times, are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mgmt.compiler.shapes.vectors import MOST_CELLS, Integers, Mask, OtherShape, Vector


def looked_up(
    keys: Sequence[Vector], entries: int, asked: Sequence[Vector], column: Vector, shape: tuple[int, int]
) -> Vector:
    """(rows, values): the column of the entry (of one or more) whose keys are what is asked for; NULL if there is none.

    Each of ``asked`` is a column over rows (n, 1) or over values (1, m), or one constant (1, 1).
    """
    rows, row_entries, rows_known = _codes(keys, asked, entries, axis=0, count=shape[0])
    values, value_entries, values_known = _codes(keys, asked, entries, axis=1, count=shape[1])
    usable = np.ones(entries, np.bool_)
    for key in keys:
        usable &= ~key.nulls
    places = np.flatnonzero(usable)
    width = int(max(values.max(initial=-1), value_entries.max(initial=-1))) + 1
    height = int(max(rows.max(initial=-1), row_entries.max(initial=-1))) + 1
    if max(height * width, shape[0] * shape[1]) > MOST_CELLS:
        raise OtherShape("a join between too many kinds of rows and of values")
    entry: NDArray[np.intp] = np.full((height, width), -1, np.intp)
    entry[row_entries[places], value_entries[places]] = places
    if int((entry >= 0).sum()) < len(places):
        raise OtherShape("a join between rows and values that finds several rows")
    found = entry[rows[:, None], values[None, :]]
    found = np.where(rows_known[:, None] & values_known[None, :], found, -1)
    at = np.maximum(found, 0)
    return Vector(column.values[at], (found < 0) | column.nulls[at], column.codes)


def _codes(
    keys: Sequence[Vector], asked: Sequence[Vector], entries: int, *, axis: int, count: int
) -> tuple[Integers, Integers, Mask]:
    """A number for what each row (or value) asks for and for what each entry has, and whether nothing asked is NULL."""
    joint = np.zeros(count + entries, np.int64)
    known = np.ones(count, np.bool_)
    for key, wanted in zip(keys, asked, strict=True):
        if min(wanted.values.shape) > 1:
            raise OtherShape("a join by what takes rows and values to tell")
        if wanted.values.shape[1 - axis] != 1:
            continue  # it is asked by the other side
        if wanted.codes != key.codes and not wanted.nulls.all() and not key.nulls.all():
            raise OtherShape("text compared with a number")
        own = np.broadcast_to(wanted.values.reshape(-1), (count,))
        known &= ~np.broadcast_to(wanted.nulls.reshape(-1), (count,))
        both = np.unique(np.concatenate((own, key.values)), return_inverse=True)[1]
        joint = np.unique(joint * (int(both.max(initial=0)) + 1) + both, return_inverse=True)[1]
    return joint[:count], joint[count:], known
