"""What values are compared by, for a row of one kind: all tiers' sums as one number, and each peak for itself.

A value is at least as good as another where it is in all measures.  Costs of a value's own load are compared with one
row there and nothing else.

What it is not: which values are dropped is for ``candidates`` to say, with the reason why that may be.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import NONE, Amounts, Indices, Load, LoadCost, RowCost
from mgmt.optimization.bucketwise import of_buckets, sorts_of
from mgmt.optimization.engines.kinds import Kinds
from mgmt.optimization.engines.load_costs import Affine, UnsuitableError, sampled_shape

_MOST_PLACES = 20_000_000
"""Of all kinds together, for their costs to be asked for one by one."""
_BLOCK_OF_KINDS = 2**18
"""Of places that a cost is asked for at a time, for several kinds together."""


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
        if any(id(load) not in single for load in cost.loads) or not _of_one_place(cost):
            return None
        alone = _Alone(self._kinds, cost)
        if self._kinds.number * alone.places > _MOST_PLACES:
            return None
        shape = sampled_shape(self._kinds, cost)
        if cost.peak:
            growing = (
                all(bool((slope >= 0).all()) for slope in shape.slopes)
                if isinstance(shape, Affine)
                else shape.growing()
            )
            return alone if cost.weight > 0 and growing else None
        return alone if isinstance(shape, Affine) or (cost.weight > 0 and shape.convex()) else None

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
        values = np.arange(kinds.assignment.values, dtype=np.int32)
        sums = kinds.coming(kind)[:, 1:]
        for value in today:
            if value >= 0:
                sums[:, value] -= kinds.moving[:, kind]
        for number, costs in enumerate(self._sums):
            for cost in costs:
                sums[number] += cost.weight * cost.more(kind, values)
        varying = [tier for tier in sums if bool((tier != tier[0]).any())]
        measures = [cost.height(kind, values) for cost in self._peaks]
        if len(varying) > 1:
            measures.append(_rank(varying))
        elif varying or not measures:
            measures.append(varying[0] if varying else np.zeros(len(values), np.int64))
        return measures


class _Alone:
    """The cost of each value with one row of a kind there, or none, and nothing else."""

    def __init__(self, kinds: Kinds, cost: LoadCost) -> None:
        self.weight = cost.weight
        self._kinds, self._loads = kinds, cost.loads
        load = cost.loads[0]
        _, example, sort = np.unique(
            sorts_of(cost.cost, load.buckets), return_index=True, return_inverse=True
        )
        self._function = of_buckets(cost.cost, example.astype(np.int32), load.buckets)
        self._sorts = len(example)
        self._sort_of_value = sort[load.bucket]  # of any sort where a value is in no bucket
        self._group = _groups_of(kinds, cost)
        self._empty = self._ask(np.zeros(0, np.intp))[0]
        self._asked: tuple[range, Amounts] = (range(0), np.zeros((0, self._sorts), np.int64))

    @property
    def places(self) -> int:
        """How many different places there are."""
        return self._loads[0].groups * self._sorts

    def adds(self, kind: int) -> tuple[int, ...]:
        """The group a row of a kind adds to, and how much to each load."""
        weights = (int(load.weight[self._kinds.row[kind]]) for load in self._loads)
        return (int(self._group[kind]), *weights)

    def more(self, kind: int, values: Indices) -> Amounts:
        """(n,) what a row of a kind adds to the cost of each value."""
        group = self._group[kind]
        if group == NONE:
            return np.zeros(len(values), np.int64)
        paid = self._with_row(kind) - self._empty[group]
        return np.where(self._loads[0].bucket[values] >= 0, paid[self._sort_of_value[values]], 0)

    def height(self, kind: int, values: Indices) -> Amounts:
        """(n,) what each value comes to with a row of a kind; very little where it adds to no load."""
        low = -(2**62)
        if self._group[kind] == NONE:
            return np.full(len(values), low, np.int64)
        paid = self._with_row(kind)[self._sort_of_value[values]]
        return np.where(self._loads[0].bucket[values] >= 0, paid, low)

    def _with_row(self, kind: int) -> Amounts:
        """(sorts,); asked for some kinds at a time."""
        kinds, paid = self._asked
        if kind not in kinds:
            block = max(1, _BLOCK_OF_KINDS // max(1, self.places))
            kinds = range(kind, min(kind + block, self._kinds.number))
            whole = self._ask(np.arange(kinds.start, kinds.stop))
            paid = whole[np.arange(len(kinds)), np.maximum(self._group[kinds.start : kinds.stop], 0)]
            self._asked = kinds, paid
        return np.asarray(paid[kind - kinds.start])

    def _ask(self, of: NDArray[np.intp]) -> Amounts:
        """(n, groups, sorts) with a row of each of these kinds; with no kinds, once with nothing."""
        loads = []
        for load in self._loads:
            alone = np.zeros((max(1, len(of)), load.groups, self._sorts), np.int64)
            group = self._kinds.group(load)[of]
            adds = np.flatnonzero(group != NONE)
            alone[adds, group[adds]] = self._kinds.weight(load)[of[adds], None]
            loads.append(alone)
        return np.broadcast_to(self._function(tuple(loads)), loads[0].shape)


def _groups_of(kinds: Kinds, cost: LoadCost) -> Indices:
    """(K,) the group that each kind adds to in the loads of a cost of one place."""
    group = np.full(kinds.number, NONE, np.int32)
    for load in cost.loads:
        group = np.maximum(group, kinds.group(load))
    return group


def _of_one_place(cost: LoadCost) -> bool:
    """Whether a row adds to all loads of a cost at one place."""
    group = np.full(len(cost.loads[0].group), NONE, np.int32)
    for load in cost.loads:
        if not np.array_equal(load.bucket, cost.loads[0].bucket):
            return False
        adds = (load.group >= 0) & (load.weight > 0)
        if bool((adds & (group >= 0) & (group != load.group)).any()):
            return False
        group = np.where(adds, load.group, group).astype(np.int32)
    return True


def _rank(tiers: list[Amounts]) -> Amounts:
    """Equal numbers for values that are equal in all tiers, and the order of the first that differs."""
    order = np.lexsort(tiers[::-1])
    differs = np.zeros(len(order), np.bool_)
    for tier in tiers:
        differs[1:] |= tier[order][1:] != tier[order][:-1]
    rank = np.empty(len(order), np.int64)
    rank[order] = np.cumsum(differs)
    return rank
