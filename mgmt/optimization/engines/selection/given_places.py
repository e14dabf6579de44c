"""The selection when the places are decided: which rows to select, each where it is."""

from __future__ import annotations

from collections.abc import Callable
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
)
from mgmt.optimization.engines.model.cost_functions import UnsuitableError

_MOST_PLACES = 1 << 22


def selection_among(selection: Assignment, choice: Indices) -> Assignment:
    """The selection when the places are decided: a single value, to be selected where one is."""
    there = np.maximum(choice, 0)
    possible = (choice >= 0) & selection.allowed[selection.row_class, there]
    limits = []
    for limit in selection.limits:
        shape = (limit.load.groups, limit.load.buckets)
        if shape[0] * shape[1] > _MOST_PLACES:
            raise UnsuitableError(f"{limit.name} limits too many places")
        lower, upper = (np.broadcast_to(side, shape).reshape(-1, 1) for side in (limit.lower, limit.upper))
        limits.append(Limit(limit.name, _among(limit.load, choice, possible), lower, upper))
    tiers = []
    for tier in selection.tiers:
        costs: list[Cost] = []
        for cost in tier.costs:
            if isinstance(cost, RowCost):
                costs.append(_row_cost_among(cost, selection, choice))
            else:
                loads = tuple(_among(load, choice, possible) for load in cost.loads)
                shape = (cost.loads[0].groups, cost.loads[0].buckets)
                costs.append(replace(cost, loads=loads, cost=_reshaped(cost, shape)))
        tiers.append(replace(tier, costs=tuple(costs)))
    return Assignment(
        1,
        possible.astype(np.int32),
        np.array([[False], [True]]),
        selection.required,
        np.full(selection.rows, NONE, np.int32),
        tuple(limits),
        tuple(tiers),
    )


def _among(load: Load, choice: Indices, possible: Mask) -> Load:
    """A load by group and bucket as one by groups: where a row is, is decided."""
    bucket = load.bucket[np.maximum(choice, 0)]
    counted = possible & (bucket >= 0) & (load.group >= 0)
    group = np.where(counted, load.group.astype(np.int64) * load.buckets + bucket, NONE)
    return Load(group.astype(np.int32), load.groups * load.buckets, np.zeros(1, np.int32), 1, load.weight)


def _row_cost_among(cost: RowCost, selection: Assignment, choice: Indices) -> RowCost:
    paid = cost.cost[cost.row_class, np.maximum(choice, 0)] + np.where(
        choice != selection.current, cost.moved, 0
    )
    unpaid = cost.unplaced[cost.row_class] + np.where(selection.current >= 0, cost.moved, 0)
    classes, row_class = np.unique(np.stack([paid, unpaid]), axis=1, return_inverse=True)
    return RowCost(
        cost.name,
        cost.weight,
        np.reshape(row_class, -1).astype(np.int32),
        classes[0][:, None],
        classes[1],
        np.zeros(selection.rows, np.int64),
    )


def _reshaped(cost: LoadCost, shape: tuple[int, int]) -> Callable[[tuple[Amounts, ...]], Amounts]:
    def reshaped(loads: tuple[Amounts, ...]) -> Amounts:
        if loads[0].shape[-2:] == (1, 1) != (shape[0] * shape[1], 1):  # one load for all places
            found = np.asarray(cost.cost(loads))
            if found.shape[-2:] == (1, 1):
                return found
        else:
            found = np.asarray(cost.cost(tuple(load.reshape(*load.shape[:-2], *shape) for load in loads)))
        leading = loads[0].shape[:-2]
        return np.broadcast_to(found, (*leading, *shape)).reshape(*leading, shape[0] * shape[1], 1)

    return reshaped
