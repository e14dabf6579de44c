"""One load for each that is the same: what a policy sums twice is one load to the engines.

What it is not: it changes neither what is allowed nor what anything costs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mgmt.optimization.assignment import (
    Assignment,
    Condition,
    Cost,
    Either,
    Limit,
    Load,
    LoadCost,
    Occupancy,
    Skew,
)
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
        return replace(cost, loads=tuple(map(one, cost.loads))) if isinstance(cost, LoadCost) else cost

    return replace(
        assignment,
        limits=tuple(map(of_limit, assignment.limits)),
        conditions=tuple(map(of_condition, assignment.conditions)),
        tiers=tuple(replace(tier, costs=tuple(map(of_cost, tier.costs))) for tier in assignment.tiers),
    )
