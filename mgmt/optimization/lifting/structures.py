"""What each constraint and objective was lifted to, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mgmt.optimization.assignment import (
    Budget,
    Colocation,
    Condition,
    Cost,
    Either,
    Limit,
    Load,
    MoveLimit,
    Occupancy,
    RowCost,
    Skew,
)
from mgmt.optimization.lifting.lift import Lifted


def structures_of(lifted: Lifted) -> Mapping[str, tuple[str, ...]]:
    """By constraint or objective what there is of it in the assignment, each once."""
    found: dict[str, dict[str, None]] = {}
    for name, what in _structures(lifted):
        found.setdefault(name, {})[what] = None
    return {name: tuple(each) for name, each in found.items()}


def _structures(lifted: Lifted) -> Iterator[tuple[str, str]]:
    for name in lifted.allowing:
        yield name, "the values that rows may have"
    for limit in lifted.assignment.limits:
        yield limit.name, _limit(limit)
    for condition in lifted.assignment.conditions:
        yield condition.name, _condition(condition)
    for tier in lifted.assignment.tiers:
        for cost in tier.costs:
            yield cost.name, _cost(cost)


def _limit(limit: Limit) -> str:
    lower, upper = limit.bounds
    if not lower.any() and bool((upper == 1).all()) and bool((limit.load.weight <= 1).all()):
        return f"rows that are all apart: one at most in each of {_buckets(limit.load)}"
    return f"a limit on the load of {_buckets(limit.load)}"


def _condition(condition: Condition) -> str:
    match condition:
        case Either():
            return f"one of {len(condition.limits)} limits on loads of {_buckets(condition.loads[0])}"
        case Occupancy():
            return f"a limit on how many are used of {_buckets(condition.load)}"
        case Budget():
            return f"a budget for loads of {_buckets(condition.loads[0])}"
        case MoveLimit():
            return "a limit on moves"
        case Skew():
            return f"a limit on how far loads are above the least of {_buckets(condition.load)}"
        case Colocation():
            return "rows that follow others"


def _cost(cost: Cost) -> str:
    if isinstance(cost, RowCost):
        return "a cost of rows"
    kind = "the greatest function" if cost.peak else "a function"
    return f"{kind} of the load of {_buckets(cost.loads[0])}"


def _buckets(load: Load) -> str:
    """``2 buckets``, ``2 buckets for each of 3 groups``."""
    buckets = f"{load.buckets} bucket" if load.buckets == 1 else f"{load.buckets} buckets"
    return buckets if load.groups == 1 else f"{buckets} for each of {load.groups} groups"
