"""One load for each that is the same: what a policy sums twice is one load to the engines.

A cost over the same load several times becomes a cost over it once, so that a square is a function of one load.

What it is not: it changes neither what is allowed nor what anything costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mgmt.optimization.assignment import (
    Amounts,
    Assignment,
    Condition,
    Cost,
    CostFunction,
    Either,
    Indices,
    Limit,
    Load,
    LoadCost,
    Occupancy,
    Skew,
)
from mgmt.optimization.bucketwise import of_buckets, sorts_of
from mgmt.optimization.engines.load_costs import same_load


def unified(assignment: Assignment) -> Assignment:
    """The same assignment, with each load once."""
    known: dict[tuple[int, ...], list[Load]] = {}

    def one(load: Load) -> Load:
        numbers = (np.asarray(each, np.int64).tobytes() for each in (load.group, load.bucket, load.weight))
        alike = known.setdefault((load.groups, load.buckets, *map(hash, numbers)), [])
        for other in alike:
            if same_load(load, other):
                return other
        alike.append(load)
        return load

    def of_limit(limit: Limit) -> Limit:
        return replace(limit, load=one(limit.load))

    def of_condition(condition: Condition) -> Condition:
        if isinstance(condition, Either):
            return replace(condition, limits=tuple(map(of_limit, condition.limits)))
        if isinstance(condition, (Occupancy, Skew)):
            return replace(condition, load=one(condition.load))
        return condition

    def of_cost(cost: Cost) -> Cost:
        return (
            _over_each_once(cost, [one(load) for load in cost.loads]) if isinstance(cost, LoadCost) else cost
        )

    return replace(
        assignment,
        limits=tuple(map(of_limit, assignment.limits)),
        conditions=tuple(map(of_condition, assignment.conditions)),
        tiers=tuple(replace(tier, costs=tuple(map(of_cost, tier.costs))) for tier in assignment.tiers),
    )


def _over_each_once(cost: LoadCost, loads: Sequence[Load]) -> LoadCost:
    distinct = list({id(load): load for load in loads}.values())
    places = [next(at for at, load in enumerate(distinct) if load is own) for own in loads]
    if len(distinct) == len(loads):
        return replace(cost, loads=tuple(loads))
    return replace(cost, loads=tuple(distinct), cost=_OfDistinct(cost.cost, places))


@dataclass(frozen=True, slots=True, eq=False)
class _OfDistinct:
    """The function of all loads as one of the distinct ones."""

    function: CostFunction
    places: Sequence[int]

    def __call__(self, loads: tuple[Amounts, ...]) -> Amounts:
        return self.function(tuple(loads[place] for place in self.places))

    def of_buckets(self, buckets: Indices, number: int) -> CostFunction:
        return _OfDistinct(of_buckets(self.function, buckets, number), self.places)

    def sorts(self, number: int) -> Indices:
        return sorts_of(self.function, number)
