"""What is left to choose when some rows of an assignment have their values already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mgmt.optimization.assignment import (
    UNLIMITED,
    Amounts,
    Assignment,
    Cost,
    Indices,
    Limit,
    Load,
    LoadCost,
)


def rest_of(places: Assignment, fixed: Indices) -> Assignment:
    """What is left to choose when some rows have their values: the others, under the limits that these leave."""
    there = fixed >= 0
    rest = ~there

    def of_rest(load: Load) -> Load:
        return replace(load, group=load.group[rest], weight=load.weight[rest])

    limits = []
    for limit in places.limits:
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
                costs.append(replace(cost, loads=loads, cost=_added(cost, fixed)))
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


def _added(cost: LoadCost, fixed: Indices) -> Callable[[tuple[Amounts, ...]], Amounts]:
    taken = tuple(load.of(fixed) for load in cost.loads)

    def added(loads: tuple[Amounts, ...]) -> Amounts:
        return cost.cost(tuple(load + base for load, base in zip(loads, taken, strict=True)))

    return added
