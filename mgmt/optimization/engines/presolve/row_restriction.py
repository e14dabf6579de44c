"""Some rows of an assignment as one of their own, with what is demanded and paid of these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np

from mgmt.optimization.assignment import (
    NONE,
    Amounts,
    Assignment,
    Colocation,
    Condition,
    Cost,
    Indices,
    Integers,
    Limit,
    Load,
    Mask,
    MoveLimit,
    RowCost,
)

_Column = TypeVar("_Column", Indices, Amounts)


def rows_of(part: Limit | Condition | Cost) -> Mask:
    """(R,) which rows a limit, a condition or a cost is about."""
    if isinstance(part, RowCost):
        kinds = (part.cost != 0).any(axis=1) | (part.unplaced != 0)
        return np.asarray(kinds[part.row_class] | (part.moved != 0))
    if isinstance(part, MoveLimit):
        return np.asarray(part.group != NONE)
    if isinstance(part, Colocation):
        found = part.leader != NONE
        found[part.leader[found]] = True
        return np.asarray(found)
    loads = (part.load,) if isinstance(part, Limit) else part.loads
    return np.asarray(np.logical_or.reduce([load.group != NONE for load in loads]))


def joint_rows(assignment: Assignment) -> Iterator[Mask]:
    """The rows of each limit, of each condition and of each cost that is not of one row after the other."""
    yield from map(rows_of, assignment.limits)
    yield from map(rows_of, assignment.conditions)
    costs = (cost for tier in assignment.tiers for cost in tier.costs)
    yield from (rows_of(cost) for cost in costs if not isinstance(cost, RowCost))


def of_rows(assignment: Assignment, rows: Integers, *, idle: bool = False) -> Assignment:
    """The assignment of these rows, of which what is about others has none; -1 is a row that may have no value.

    Without constants, and without what is about none of the rows; ``idle``: but with what is about no row at all.
    """
    chosen = np.zeros(assignment.rows + 1, np.bool_)
    chosen[rows] = True

    def stays(part: Limit | Condition | Cost) -> bool:
        mask = rows_of(part)
        return bool(mask[chosen[:-1]].any()) or (idle and not bool(mask.any()))

    def load_of(load: Load) -> Load:
        return replace(load, group=_taken(load.group, rows, NONE), weight=_taken(load.weight, rows, 0))

    tiers = []
    for tier in assignment.tiers:
        costs = tuple(_cost(cost, rows) for cost in tier.costs if stays(cost))
        if costs:
            tiers.append(replace(tier, costs=costs, constant=0))
    nothing = np.zeros((1, assignment.values), np.bool_)
    found = Assignment(
        assignment.values,
        _taken(assignment.row_class, rows, len(assignment.allowed)),
        np.concatenate((assignment.allowed, nothing)),
        np.append(assignment.required, False)[rows],
        _taken(assignment.current, rows, NONE),
        tuple(limit for limit in assignment.limits if stays(limit)),
        tuple(tiers),
        tuple(_condition(each, rows) for each in assignment.conditions if stays(each)),
    )
    return found.mapped(load_of)


def _taken(column: _Column, rows: Integers, otherwise: int) -> _Column:
    found: _Column = np.append(column, np.array([otherwise], column.dtype))[rows]
    return found


def _cost(cost: Cost, rows: Integers) -> Cost:
    if not isinstance(cost, RowCost):
        return cost
    return replace(
        cost,
        row_class=_taken(cost.row_class, rows, len(cost.cost)),
        cost=np.concatenate((cost.cost, np.zeros_like(cost.cost[:1]))),
        unplaced=np.append(cost.unplaced, 0),
        moved=_taken(cost.moved, rows, 0),
    )


def _condition(condition: Condition, rows: Integers) -> Condition:
    if isinstance(condition, MoveLimit):
        return replace(condition, group=_taken(condition.group, rows, NONE))
    if isinstance(condition, Colocation):
        number = np.full(len(condition.leader) + 1, NONE, np.int32)
        number[rows] = np.arange(len(rows))
        number[NONE] = NONE
        return replace(condition, leader=number[_taken(condition.leader, rows, NONE)])
    return condition
