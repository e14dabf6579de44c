"""The same assignment over a few of its values, so that what comes after costs no more than these few.

Buckets that none of these values is in have no load whatever is chosen.  They are left out where that makes no
difference: what they cost is a constant then, of those of a peak the highest stays, and so do those that break a limit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mgmt.optimization.assignment import (
    NONE,
    Amounts,
    Assignment,
    Cost,
    Indices,
    Limit,
    Load,
    LoadCost,
    Mask,
    RowCost,
    Tier,
)
from mgmt.optimization.engines.model.equivalence import EquivalenceClasses, Stays
from mgmt.optimization.load_functions import tree_of


def restricted(classes: EquivalenceClasses, values: Indices) -> EquivalenceClasses:
    """The classes over these values alone, in order; today's values have to be among them.

    A choice of place i is one of ``values[i]``, and is worth the same.
    """
    assignment = classes.assignment
    place = np.full(assignment.values + 1, NONE, np.int32)
    place[values] = np.arange(len(values), dtype=np.int32)
    narrow = _Restriction(assignment, values, place).assignment()
    stays = classes.stays
    return replace(
        classes,
        assignment=narrow,
        stays=Stays(stays.class_, place[stays.value], stays.count),
        known={},
    )


class _Restriction:
    """Which buckets of each load stay, and everything over those."""

    def __init__(self, assignment: Assignment, values: Indices, place: Indices) -> None:
        self._whole, self._values, self._place = assignment, values, place
        self._stay: dict[int, Mask] = {}
        """Per load the buckets that stay; loads of one cost have the same mask, the very object."""
        self._loads: dict[int, Load] = {}
        for load in assignment.loads:
            self._stay[id(load)] = np.zeros(load.buckets, np.bool_)
            self._keep(load, load.bucket[values])
        for limit in assignment.limits:
            lower, upper = limit.bounds
            self._stay[id(limit.load)] |= ((lower > 0) | (upper < 0)).any(axis=0)
        for condition in assignment.conditions:
            for load in condition.loads:
                self._stay[id(load)][:] = True
        costs = [cost for tier in assignment.tiers for cost in tier.costs if isinstance(cost, LoadCost)]
        for cost in costs:
            self._together(cost)
        self._empty = {id(cost): _of_nothing(cost) for cost in costs}
        for cost in costs:
            left = np.flatnonzero(~self._stay[id(cost.loads[0])])
            if len(left) and (
                cost.peak or len(left) == cost.loads[0].buckets
            ):  # none at all would be no load
                highest = left[int(self._empty[id(cost)][:, left].max(axis=0).argmax())]
                self._stay[id(cost.loads[0])][highest] = True

    def assignment(self) -> Assignment:
        whole = self._whole
        return Assignment(
            len(self._values),
            whole.row_class,
            np.ascontiguousarray(whole.allowed[:, self._values]),
            whole.required,
            self._place[whole.current],
            tuple(map(self._limit, whole.limits)),
            tuple(map(self._tier, whole.tiers)),
            tuple(condition.mapped(self._load) for condition in whole.conditions),
        )

    def _keep(self, load: Load, buckets: Indices) -> None:
        self._stay[id(load)][buckets[buckets >= 0]] = True

    def _together(self, cost: LoadCost) -> None:
        """Give all loads of a cost one mask, and whatever shares one with them."""
        masks = [self._stay[id(load)] for load in cost.loads]
        joint = np.logical_or.reduce(masks)
        for name, mask in self._stay.items():
            if any(mask is other for other in masks):
                self._stay[name] = joint

    def _load(self, load: Load) -> Load:
        if id(load) not in self._loads:
            stay = self._stay[id(load)]
            number = np.append(np.where(stay, np.cumsum(stay) - 1, NONE), NONE)  # the last: of no bucket
            bucket = number[load.bucket[self._values]].astype(np.int32)
            self._loads[id(load)] = replace(load, bucket=bucket, buckets=int(stay.sum()))
        return self._loads[id(load)]

    def _limit(self, limit: Limit) -> Limit:
        lower, upper = (self._of_buckets(bound, limit.load) for bound in (limit.lower, limit.upper))
        return replace(limit, load=self._load(limit.load), lower=lower, upper=upper)

    def _of_buckets(self, bound: Amounts, load: Load) -> Amounts:
        if bound.shape[-1] == 1 and load.buckets != 1:
            return bound
        return bound[..., self._stay[id(load)]]

    def _tier(self, tier: Tier) -> Tier:
        left = sum(
            cost.weight * int(self._empty[id(cost)][:, ~self._stay[id(cost.loads[0])]].sum())
            for cost in tier.costs
            if isinstance(cost, LoadCost) and not cost.peak
        )
        return replace(tier, costs=tuple(map(self._cost, tier.costs)), constant=tier.constant + left)

    def _cost(self, cost: Cost) -> Cost:
        if isinstance(cost, RowCost):
            return replace(cost, cost=np.ascontiguousarray(cost.cost[:, self._values]))
        load = cost.loads[0]
        stay = np.flatnonzero(self._stay[id(load)]).astype(np.int32)
        function = cost.cost if len(stay) == load.buckets else tree_of(cost).of_buckets(stay, load.buckets)
        return replace(cost, loads=tuple(map(self._load, cost.loads)), cost=function)


def _of_nothing(cost: LoadCost) -> Amounts:
    """(groups, buckets) what is paid where nothing is."""
    load = cost.loads[0]
    nothing = np.zeros((load.groups, load.buckets), np.int64)
    return np.broadcast_to(cost.cost(tuple(nothing for _ in cost.loads)), nothing.shape)
