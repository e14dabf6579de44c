"""The normal form of an assignment: limits where conditions say no more, and one load for each that is the same.

What a policy sums twice is one load to the engines.  How many buckets a group uses is a limit on
single buckets where that says the same: of n rows that all must be somewhere, at least two buckets have some exactly
where no bucket has more than n - 1, and all n are in different buckets where none has more than one.  In limits a
network can be seen, in conditions none.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mgmt.optimization.assignment import (
    UNLIMITED,
    Amounts,
    Assignment,
    Condition,
    Limit,
    Load,
    Mask,
    Occupancy,
)
from mgmt.optimization.engines.model.cost_functions import same_load


def normal_form(assignment: Assignment) -> Assignment:
    """An assignment that allows and costs the same."""
    return with_one_load_each(with_limits(assignment))


def with_one_load_each(assignment: Assignment) -> Assignment:
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

    return assignment.mapped(one)


def with_limits(assignment: Assignment) -> Assignment:
    """The same assignment, with limits instead of conditions where that is no difference."""
    limits: list[Limit] = []
    conditions: list[Condition] = []
    for condition in assignment.conditions:
        if not isinstance(condition, Occupancy):
            conditions.append(condition)
            continue
        rows = _rows(condition)
        same = _as_limit(assignment, condition, rows)
        if bool(same.any()):
            limits.append(_limit(condition, same, rows))
        if not bool(same.all()):
            none, all_of_them = np.zeros_like(condition.lower), np.full_like(condition.upper, UNLIMITED)
            lower, upper = (
                np.where(same, free, bound)
                for free, bound in ((none, condition.lower), (all_of_them, condition.upper))
            )
            conditions.append(replace(condition, lower=lower, upper=upper))
    if not limits:
        return assignment
    return replace(assignment, limits=(*assignment.limits, *limits), conditions=tuple(conditions))


def _rows(condition: Occupancy) -> Amounts:
    """(groups,) how many rows each group has that make a bucket used."""
    group = condition.load.group[(condition.load.group >= 0) & (condition.load.weight > 0)]
    return np.bincount(group, minlength=condition.load.groups)


def _as_limit(assignment: Assignment, condition: Occupancy, rows: Amounts) -> Mask:
    """(groups,) where the condition is nothing but a limit."""
    load, lower = condition.load, condition.lower
    outside: Mask = np.asarray(assignment.allowed[:, load.bucket < 0].any(axis=1))
    inside = assignment.required & ~outside[assignment.row_class]
    counted = (load.group >= 0) & (load.weight > 0)
    placed = np.bincount(load.group[counted & inside], minlength=load.groups) == rows
    free_above = condition.upper >= np.minimum(rows, load.buckets)
    few = (lower <= 2) | (lower == rows)
    return np.asarray((lower <= 0) | (placed & (lower <= rows) & few)) & free_above


def _limit(condition: Occupancy, same: Mask, rows: Amounts) -> Limit:
    load = condition.load
    most = np.where(same & (condition.lower > 1), rows - condition.lower + 1, UNLIMITED)
    ones = replace(load, weight=(load.weight > 0).astype(np.int64))
    return Limit(condition.name, ones, np.zeros((1, 1), np.int64), most[:, None])
