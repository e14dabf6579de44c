"""Columns of integers as numbers 0, 1, ... in the order of their values: what ``np.unique`` tells, without sorting.

Most columns here are numbers of rows, groups or values already, so a table of those in use is shorter than a sort.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import Amounts, Integers

_WIDE = 8
"""A table may have so many times the places that there are keys."""


def ranks(keys: Integers) -> tuple[Amounts, int]:
    """The rank of each key among the distinct ones, and how many of these there are."""
    if not len(keys):
        return np.zeros(0, np.int64), 0
    low, high = int(keys.min()), int(keys.max())
    if low == high:
        return np.zeros(len(keys), np.int64), 1
    if high - low > _WIDE * len(keys):
        distinct, rank = np.unique(keys, return_inverse=True)
        return np.reshape(rank, -1).astype(np.int64), len(distinct)
    used = np.zeros(high - low + 1, np.bool_)
    used[keys - low] = True
    rank = np.cumsum(used) - 1
    return rank[keys - low], int(rank[-1]) + 1


def joint_ranks(columns: Sequence[Integers], rows: int) -> tuple[Amounts, int]:
    """The same for rows that are equal in all the columns."""
    joint, number = np.zeros(rows, np.int64), min(rows, 1)
    for column in columns:
        rank, count = ranks(column)
        if count > 1:
            joint, number = ranks(joint * count + rank)
    return joint, number


def alike_rows(table: NDArray[np.bool_]) -> tuple[Amounts, int]:
    """The same for the rows of a table of truths."""
    packed = np.packbits(table, axis=1)
    words = np.zeros((len(packed), -(-packed.shape[1] // 8) * 8), np.uint8)
    words[:, : packed.shape[1]] = packed
    return joint_ranks(list(words.view(np.int64).T), len(packed))


def firsts(rank: Amounts, number: int) -> Amounts:
    """(number,) the first row of each rank."""
    first = np.full(number, len(rank), np.int64)
    first[rank[::-1]] = np.arange(len(rank))[::-1]
    return first
