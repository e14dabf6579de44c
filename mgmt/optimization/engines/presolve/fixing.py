"""What is left to choose when some rows of an assignment have their values already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mgmt.optimization.assignment import (
    NONE,
    UNLIMITED,
    Amounts,
    Assignment,
    Cost,
    Indices,
    Limit,
    Load,
    LoadCost,
    Mask,
)
from mgmt.optimization.load_functions import LoadFunction, LoadNumber, tree_of


def rest_of(places: Assignment, fixed: Indices) -> Assignment:
    """What is left to choose when some rows have their values: the others, under the limits that these leave."""
    there = fixed >= 0
    rest = ~there

    def of_rest(load: Load) -> Load:
        return replace(load, group=load.group[rest], weight=load.weight[rest])

    limits = []
    for limit in without_implied(places.limits):
        limit = _of_groups(limit, rest, fixed)
        taken = limit.load.of(fixed)
        upper = np.where(limit.upper >= UNLIMITED, UNLIMITED, limit.upper - taken)
        limits.append(Limit(limit.name, of_rest(limit.load), limit.lower - taken, upper))
    tiers = []
    for tier in places.tiers:
        constant = tier.constant
        costs: list[Cost] = []
        for cost in tier.costs:
            if isinstance(cost, LoadCost):
                loads = tuple(map(of_rest, cost.loads))
                added = _above(tree_of(cost), [load.of(fixed) for load in cost.loads])
                costs.append(replace(cost, loads=loads, cost=added))
                continue
            paid = cost.cost[cost.row_class, np.maximum(fixed, 0)]
            paid = paid + np.where(fixed != places.current, cost.moved, 0)
            constant += cost.weight * int(paid[there].sum())
            costs.append(replace(cost, row_class=cost.row_class[rest], moved=cost.moved[rest]))
        tiers.append(replace(tier, costs=tuple(costs), constant=constant))
    return replace(
        places,
        row_class=places.row_class[rest],
        required=places.required[rest],
        current=places.current[rest],
        limits=tuple(limits),
        tiers=tuple(tiers),
    )


def without_implied(limits: Sequence[Limit]) -> list[Limit]:
    """The limits without those that another one implies: copies in distinct racks are on distinct hosts."""
    return [limit for limit in limits if not any(_implies(other, limit) for other in limits)]


def _implies(coarse: Limit, fine: Limit) -> bool:
    """Whether what keeps one limit keeps the other: it allows no more in buckets that are parts of its own."""
    one, other = coarse.load, fine.load
    if one.buckets >= other.buckets or one.groups != other.groups or bool((fine.lower > 0).any()):
        return False
    if int(coarse.upper.max()) > int(fine.upper.min()) or not np.array_equal(one.group, other.group):
        return False
    inside = other.bucket >= 0
    whole = np.full(other.buckets, NONE, np.int32)
    whole[other.bucket[inside]] = one.bucket[inside]
    parts = bool((one.bucket[inside] >= 0).all()) and np.array_equal(
        whole[other.bucket[inside]], one.bucket[inside]
    )
    return parts and np.array_equal(one.weight, other.weight)


def _of_groups(limit: Limit, rest: Mask, fixed: Indices) -> Limit:
    """The limit for groups with rows that are left, and those that the others break: the rest is settled."""
    load = limit.load
    if load.groups == 1 or bool((limit.lower > 0).any()):
        return limit
    shape = (load.groups, load.buckets)
    counted = (fixed >= 0) & (load.group >= 0)
    place = load.group[counted].astype(np.int64) * load.buckets + load.bucket[fixed[counted]]
    inside = load.bucket[fixed[counted]] >= 0
    place, row = np.unique(place[inside], return_inverse=True)
    total = np.zeros(len(place), np.int64)
    np.add.at(total, row, load.weight[counted][inside])
    group, bucket = np.divmod(place, load.buckets)
    broken = total > np.broadcast_to(limit.upper, shape)[group, bucket]
    kept = np.zeros(load.groups, np.bool_)
    kept[load.group[rest & (load.group >= 0)]] = True
    kept[group[broken]] = True
    number = np.append(np.where(kept, np.cumsum(kept) - 1, NONE), NONE)
    own = replace(load, group=number[load.group].astype(np.int32), groups=int(kept.sum()))
    upper = limit.upper
    if np.ndim(upper) == 2 and upper.shape[0] > 1:
        upper = upper[kept]
    return Limit(limit.name, own, np.zeros(1, np.int64), upper)


def _above(function: LoadFunction, taken: Sequence[Amounts]) -> LoadFunction:
    """A cost function of loads that have something already, (groups, buckets) each."""

    def more(leaf: LoadFunction) -> LoadFunction:
        return leaf + taken[leaf.number] if isinstance(leaf, LoadNumber) else leaf

    return function.mapped(more)
