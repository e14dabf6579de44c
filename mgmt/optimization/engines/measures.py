"""What values are compared by, for a row of one kind: all tiers' sums as one number, and each peak for itself.

A value is at least as good as another where it is in all measures.  Costs of a value's own load are compared with one
row there and nothing else.

What it is not: which values are dropped is for ``candidates`` to say, with the reason why that may be.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from mgmt.optimization.assignment import NONE, Amounts, Indices, Load, LoadCost, RowCost
from mgmt.optimization.bucketwise import sorts_of
from mgmt.optimization.engines.evaluation import LOW, one_place
from mgmt.optimization.engines.kinds import Kinds
from mgmt.optimization.engines.load_costs import Affine, Tabled, UnsuitableError, sampled_shape

_MOST_PLACES = 20_000_000
"""Of all kinds together, for their costs to be compared."""


class Measures:
    """What values are compared by: all sums as one rank, tier by tier, and each peak."""

    def __init__(self, kinds: Kinds, own: list[Load]) -> None:
        """Raises UnsuitableError when a cost is of no kind that the rule holds for."""
        single = {id(load) for load in own}
        self._kinds = kinds
        self._sums: list[list[_Alone]] = []
        self._peaks: list[_Alone] = []
        for tier in kinds.assignment.tiers:
            self._sums.append([])
            for cost in tier.costs:
                if not isinstance(cost, LoadCost) or not cost.weight:
                    continue
                if all(id(load) not in single for load in cost.loads):
                    continue  # a move within a combination of buckets changes nothing here
                alone = self._comparable(cost, single)
                if alone is None:
                    raise UnsuitableError(
                        f"how {cost.name} grows with the load does not let values be compared"
                    )
                (self._peaks if cost.peak else self._sums[-1]).append(alone)
        self._load_costs = [*self._peaks, *(cost for costs in self._sums for cost in costs)]
        self._row_costs = [
            cost for tier in kinds.assignment.tiers for cost in tier.costs if isinstance(cost, RowCost)
        ]
        self._known: tuple[Hashable, list[Amounts]] = (None, [])
        """The measures of the kind asked for last: the next one mostly pays alike, and only weighs more or less."""

    def _comparable(self, cost: LoadCost, single: set[int]) -> _Alone | None:
        kinds, load = self._kinds, cost.loads[0]
        group = one_place(kinds, cost.loads)
        if group is None or any(id(load) not in single for load in cost.loads):
            return None
        sorts = len(np.unique(sorts_of(cost.cost, load.buckets)))
        if kinds.number * load.groups * sorts > _MOST_PLACES:
            return None
        shape, example = sampled_shape(kinds, cost)
        comparable = shape.growing() if cost.peak else isinstance(shape, Affine) or shape.convex()
        if not comparable or (cost.weight < 0 and (cost.peak or not isinstance(shape, Affine))):
            return None
        return _Alone(kinds, cost, group, shape, example)

    def of(self, kind: int, values: Indices) -> list[Amounts]:
        """The measures of each value for a row of a kind; lower is better."""
        kinds = self._kinds
        whole = np.flatnonzero((kinds.stays.kind == kind) & (kinds.stays.count == kinds.count[kind]))
        today = tuple(np.unique(kinds.stays.value[whole]).tolist())
        key = (today, kinds.moving[:, kind].tobytes(), self._paying(kind))
        if self._known[0] != key:
            self._known = key, self._everywhere(kind, today)
        return [measure[values] for measure in self._known[1]]

    def _paying(self, kind: int) -> tuple[int, ...]:
        """What a row of a kind pays by, besides its moves."""
        row = self._kinds.row[kind]
        pays = [int(cost.row_class[row]) for cost in self._row_costs]
        adds = [int(part) for cost in self._load_costs for part in cost.adds(kind)]
        return (*pays, *adds)

    def _everywhere(self, kind: int, today: tuple[int, ...]) -> list[Amounts]:
        """The measures of all values."""
        kinds = self._kinds
        sums = kinds.coming(kind)[:, 1:]
        for value in today:
            if value >= 0:
                sums[:, value] -= kinds.moving[:, kind]
        for number, costs in enumerate(self._sums):
            for cost in costs:
                sums[number] += cost.weight * cost.more(kind)
        varying = [tier for tier in sums if bool((tier != tier[0]).any())]
        measures = [cost.height(kind) for cost in self._peaks]
        if len(varying) > 1:
            measures.append(_rank(varying))
        elif varying or not measures:
            measures.append(varying[0] if varying else np.zeros(kinds.assignment.values, np.int64))
        return measures


class _Alone:
    """The cost of each value with one row of a kind there, or none, and nothing else."""

    def __init__(
        self, kinds: Kinds, cost: LoadCost, group: Indices, shape: Affine | Tabled, example: Amounts
    ) -> None:
        self.weight = cost.weight
        self._group, self._shape = group, shape
        self._adds = [np.where(kinds.group(load) != NONE, kinds.weight(load), 0) for load in cost.loads]
        self._inside = cost.loads[0].bucket >= 0
        self._of_value = example[cost.loads[0].bucket]  # of any bucket where a value is in none
        self._examples = int(example.max(initial=-1)) + 1

    def adds(self, kind: int) -> tuple[int, ...]:
        """The group a row of a kind adds to, and how much to each load."""
        return (int(self._group[kind]), *(int(weight[kind]) for weight in self._adds))

    def more(self, kind: int) -> Amounts:
        """(V,) what a row of a kind adds to the cost of each value."""
        if self._group[kind] == NONE:
            return np.zeros(len(self._inside), np.int64)
        return np.where(self._inside, (self._at(kind, 1) - self._at(kind, 0))[self._of_value], 0)

    def height(self, kind: int) -> Amounts:
        """(V,) what each value comes to with a row of a kind; very little where it adds to no load."""
        if self._group[kind] == NONE:
            return np.full(len(self._inside), LOW)
        return np.where(self._inside, self._at(kind, 1)[self._of_value], LOW)

    def _at(self, kind: int, rows: int) -> Amounts:
        place = self._group[kind] * self._examples + np.arange(self._examples)
        return self._shape.at(place, [np.full(len(place), rows * adds[kind]) for adds in self._adds])


def _rank(tiers: list[Amounts]) -> Amounts:
    """Equal numbers for values that are equal in all tiers, and the order of the first that differs."""
    order = np.lexsort(tiers[::-1])
    differs = np.zeros(len(order), np.bool_)
    for tier in tiers:
        differs[1:] |= tier[order][1:] != tier[order][:-1]
    rank = np.empty(len(order), np.int64)
    rank[order] = np.cumsum(differs)
    return rank
