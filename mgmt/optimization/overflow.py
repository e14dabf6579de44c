"""What is too much for some limits: a placement that keeps all else, with as little as can be found above these.

First as many rows as can be are placed within all limits, the heaviest first to count.  Those that are left go where
most of the others of them are, so that few buckets have to take more than they may.  That is not the least there is,
but it is found where exact counting (see ``assignment_clash``) has too many cells to look at: in a cluster that is too
small as a whole.

What it is not: it proves nothing, and it only helps where a limit is too low from above.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np

from mgmt.errors import SolveTimeout
from mgmt.optimization.assignment import (
    NONE,
    Amounts,
    Assignment,
    Indices,
    Limit,
    Mask,
    RowCost,
    Tier,
)
from mgmt.optimization.engines import UnsuitableError, solve
from mgmt.optimization.engines.cells import bounds_of
from mgmt.optimization.engines.kinds import Kinds, kinds_of
from mgmt.optimization.engines.ledger import Ledger

_LEAST_SECONDS = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class Overflow:
    """A choice that keeps everything but some limits, and by how much it is above these."""

    choice: Indices
    above: tuple[tuple[int, int, int, int], ...]
    """Place of the limit among the limits, group, bucket, and how much is too much there."""


def overflow(assignment: Assignment, constraints: Collection[str], *, seconds: float) -> Overflow | None:
    """A choice in which only limits of these constraints are exceeded; None when none is found."""
    loose = [place for place, limit in enumerate(assignment.limits) if limit.name in constraints]
    if not loose or seconds < _LEAST_SECONDS:
        return None
    placed = _most_placed(assignment, loose, seconds)
    if placed is None:
        return None
    others = tuple(limit for place, limit in enumerate(assignment.limits) if place not in loose)
    rest = replace(assignment, limits=others, tiers=())
    filler = _Filler(kinds_of(rest), [assignment.limits[place] for place in loose], placed)
    left = np.flatnonzero(assignment.required & (placed == NONE))
    heavy = sum(assignment.limits[place].load.weight[left] for place in loose)
    for row in left[np.argsort(-np.asarray(heavy), kind="stable")].tolist():
        if not filler.put(row):
            return None
    choice = filler.choice
    if any(rest.broken(choice)):
        return None
    above = []
    for place in loose:
        limit = assignment.limits[place]
        load, (_, upper) = limit.load.of(choice), bounds_of(limit)
        for group, bucket in np.argwhere(load > upper).tolist():
            above.append((place, group, bucket, int(load[group, bucket] - upper[group, bucket])))
    return Overflow(choice, tuple(above))


def _most_placed(assignment: Assignment, loose: list[int], seconds: float) -> Indices | None:
    """A choice that keeps all limits and leaves out rows of little weight; None when there is none."""
    weight = np.maximum(sum(assignment.limits[place].load.weight for place in loose), 1)
    pays = np.where(assignment.required, weight, 0)
    prices, row_class = np.unique(pays, return_inverse=True)
    leaving_out = RowCost(
        "left out",
        1,
        row_class.astype(np.int32),
        np.zeros((len(prices), assignment.values), np.int64),
        prices.astype(np.int64),
        np.zeros(assignment.rows, np.int64),
    )
    fewer = replace(
        assignment, required=np.zeros(assignment.rows, np.bool_), tiers=(Tier(1, (leaving_out,)),)
    )
    try:
        return solve(fewer, seconds=seconds, seed=0).choice
    except (SolveTimeout, UnsuitableError):
        return None


@dataclass(slots=True, eq=False)
class _Filler:
    """Puts rows beyond the loose limits, and keeps the others."""

    strict: Kinds
    """Of the assignment without the loose limits."""
    loose: list[Limit]
    choice: Indices
    _ledger: Ledger = field(init=False)
    _loads: list[Amounts] = field(init=False)

    def __post_init__(self) -> None:
        self.choice = self.choice.copy()
        self._ledger = Ledger(self.strict)
        rows = np.flatnonzero(self.choice != NONE)
        self._ledger.add_all(self.strict.of_row[rows], self.choice[rows], np.ones(len(rows), np.int64))
        self._loads = [limit.load.of(self.choice) for limit in self.loose]

    def put(self, row: int) -> bool:
        """Give a row a value: where fewest buckets go above that have not yet, and then by the least."""
        kind = int(self.strict.of_row[row])
        at = np.flatnonzero(self._ledger.room(kind))
        if not len(at):
            return False
        fresh, more = self._above(row)
        value = int(at[np.lexsort((more[at], fresh[at]))[0]])
        self.choice[row] = value
        self._ledger.add(kind, value)
        for limit, load in zip(self.loose, self._loads, strict=True):
            own = limit.load
            if own.group[row] >= 0 and own.bucket[value] >= 0:
                load[own.group[row], own.bucket[value]] += own.weight[row]
        return True

    def _above(self, row: int) -> tuple[Amounts, Amounts]:
        """(V,) how many limits a row would bring above that are not, and by how much more all are."""
        values = self.strict.assignment.values
        fresh, more = np.zeros(values, np.int64), np.zeros(values, np.int64)
        for limit, load in zip(self.loose, self._loads, strict=True):
            group, bucket = limit.load.group[row], limit.load.bucket
            if group == NONE:
                continue
            counted: Mask = bucket >= 0
            free = (bounds_of(limit)[1][group] - load[group])[np.maximum(bucket, 0)]
            weight = int(limit.load.weight[row])
            fresh += counted & (free >= 0) & (weight > free)
            more += np.where(counted, np.maximum(weight - free, 0) - np.maximum(-free, 0), 0)
        return fresh, more
