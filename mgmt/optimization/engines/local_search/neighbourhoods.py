"""Large neighbourhoods: some places and the rows in them are decided anew by CP-SAT, all else stays as it is.

The first is the highest place where a peak is to come down, or one drawn by what it costs; the others are drawn.  Of
places that are empty a few are offered.  How much is decided anew grows while a neighbourhood is searched to its end
soon, and shrinks when its time ends first.  (Shaw, CP 1998.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mgmt.errors import SolveTimeout
from mgmt.optimization.assignment import NONE, Indices, Load, LoadCost, Mask
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines.incumbent import Incumbent
from mgmt.optimization.engines.integer_programming import cp_sat
from mgmt.optimization.engines.model.cells import Cells
from mgmt.optimization.engines.model.cost_functions import UnsuitableError

Reals = NDArray[np.float64]

_FIRST_SIZE = 120
"""Cells that are decided anew at first."""
_LEAST_SIZE = 40
_GROWS, _SHRINKS = 1.15, 0.7
_MOST_SECONDS = 1.0
_LEAST_SECONDS = 0.03
_EMPTY = 3
"""Empty values offered in each bucket."""
_LEFT_OUT = 8
"""Kinds that have rows without a value, taken along."""


def nearby(
    cells: Cells, best: Incumbent, *, deadline: Deadline, seed: int, workers: int
) -> Iterator[Indices]:
    """Better and better choices than the incumbent, which is to take them, until the time ends."""
    assert best.choice is not None
    size = float(_FIRST_SIZE)
    drawing = _Drawing(cells, np.random.default_rng(seed))
    number = 0
    while deadline.left > _LEAST_SECONDS:
        tier = best.open_tier
        some = None if tier is None else drawing.some(best.choice, tier, int(size))
        if some is None:
            return
        turn, number = deadline.within(_MOST_SECONDS), number + 1
        half = turn.part(1 / 2)
        try:
            found = cp_sat.solve(
                cells.only(some),
                hint=best.choice,
                known_bounds=best.bounds,
                deadline=turn,
                seed=seed + number,
                workers=workers,
            )
        except (SolveTimeout, UnsuitableError):
            return
        if found.choice is not None and found.worth < best.worth:
            yield found.choice
        elif size >= len(cells) and not turn.passed:
            return  # all has been decided anew
        size *= _GROWS if not half.passed else _SHRINKS
        size = max(size, _LEAST_SIZE)


@dataclass(slots=True, eq=False)
class _Drawing:
    cells: Cells
    random: np.random.Generator
    _loads: dict[int, list[Load | None]] = field(default_factory=dict)

    def some(self, choice: Indices, tier: int, size: int) -> Mask | None:
        """The cells to choose among: those of the choice, and about so many others; None if it has others."""
        counts = self.cells.counts(choice)
        if counts is None:
            return None
        bucket, weight = self._buckets(choice, tier)
        order = self._order(weight)
        place = np.argsort(order)[bucket]  # of each value, when its bucket has its turn
        place[bucket < 0] = len(order)
        used = np.zeros(len(bucket) + 1, np.bool_)
        used[choice] = True
        offered = used[:-1] | self._few_empty(place, used[:-1])
        first, cells = 2, self.cells
        last = len(order)
        low, high = min(first, last), last
        while low < high:  # as many buckets as make so many cells
            middle = (low + high + 1) // 2
            if int(self._free(choice, offered & (place < middle)).sum()) <= size:
                low = middle
            else:
                high = middle - 1
        return np.asarray(self._free(choice, offered & (place < low)) | (counts > 0)) & (cells.most > 0)

    def _free(self, choice: Indices, values: Mask) -> Mask:
        """(n,) cells of these values of the classes that have rows there, and of some that have rows nowhere."""
        cells = self.cells
        inside = np.append(values, False)
        free = np.zeros(cells.classes.number, np.bool_)
        free[cells.classes.of_row[inside[choice]]] = True
        outside = np.unique(cells.classes.of_row[choice == NONE])
        if len(outside):
            free[outside[:_LEFT_OUT]] = True
        return np.asarray(free[cells.class_] & (inside[cells.value] | (cells.value == NONE)))

    def _buckets(self, choice: Indices, tier: int) -> tuple[Indices, Reals]:
        """(V,) the bucket of each value in one of the loads that the tier is about, and how much they matter."""
        assignment = self.cells.classes.assignment
        costs = [
            cost
            for cost in assignment.tiers[tier].costs
            if isinstance(cost, LoadCost) and cost.weight and cost.loads[0].buckets > 1
        ]
        if not costs or self.random.random() < 0.1:
            return np.arange(assignment.values, dtype=np.int32), np.ones(assignment.values)
        cost = costs[int(self.random.integers(len(costs)))]
        load = cost.loads[0]
        paid = np.broadcast_to(
            cost.cost(tuple(own.of(choice) for own in cost.loads)), (load.groups, load.buckets)
        )
        height = (cost.weight * paid).astype(np.float64)
        height = height.max(axis=0) if cost.peak else height.sum(axis=0)
        if cost.peak:
            return load.bucket, np.where(height == height.max(), 1e9, 1.0)
        return load.bucket, height - height.min() + 1.0

    def _order(self, weight: Reals) -> Indices:
        """Buckets in the order of their turns: the first by its weight, all others at random."""
        first = int(self.random.choice(len(weight), p=weight / weight.sum()))
        others = self.random.permutation(len(weight))
        return np.concatenate(([first], others[others != first])).astype(np.int32)

    def _few_empty(self, place: NDArray[np.intp], used: Mask) -> Mask:
        """(V,) some of the values that have nothing, in each bucket."""
        empty = self.random.permutation(np.flatnonzero(~used))
        empty = empty[np.argsort(place[empty], kind="stable")]
        ordered = place[empty]
        rank = np.arange(len(empty)) - np.searchsorted(ordered, ordered)
        few = np.zeros(len(used), np.bool_)
        few[empty[rank < _EMPTY]] = True
        return few
