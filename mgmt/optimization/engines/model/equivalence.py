"""Equivalence classes: rows of an assignment that nothing tells apart, with their number.

Rows of one class may choose alike, weigh alike in every load, are of the same groups, and pay alike; so only how many
of them take each value matters, and which of them is settled afterwards: those that have a value today keep it first.
Where moving a row is rewarded instead of paid for, today's value tells rows apart too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import (
    NONE,
    Amounts,
    Assignment,
    Colocation,
    Indices,
    Load,
    Mask,
    MoveLimit,
    RowCost,
)
from mgmt.optimization.dense_ranks import firsts, joint_ranks


@dataclass(frozen=True, slots=True, eq=False)
class Stays:
    """How many rows of a class have a value today (or none), where leaving it costs something."""

    class_: Indices
    value: Indices
    count: Amounts


@dataclass(frozen=True, slots=True, eq=False)
class EquivalenceClasses:
    """The classes of an assignment's rows, K of them."""

    assignment: Assignment
    of_row: Indices
    """(R,) the class of each row."""
    representative: Indices
    """(K,) one row of each class, to look things up by."""
    count: Amounts
    """(K,) how many rows are of the class."""
    required: Mask
    """(K,) whether its rows must have a value."""
    moving: Amounts
    """(T, K) per tier what a row of the class pays for not having today's value."""
    stays: Stays
    known: dict[int, tuple[object, Any]] = field(default_factory=dict)
    """What was found out about costs, by their identity (see ``cost_functions``)."""

    @property
    def number(self) -> int:
        return len(self.representative)

    def allowed(self, class_: int) -> Mask:
        """(V,) what rows of a class may choose."""
        allowed: Mask = self.assignment.allowed[self.assignment.row_class[self.representative[class_]]]
        return allowed

    def group(self, load: Load) -> Indices:
        """(K,) the group each class is of in a load; NONE also where it adds nothing."""
        return np.where(load.weight[self.representative] > 0, load.group[self.representative], NONE).astype(
            np.int32
        )

    def weight(self, load: Load) -> Amounts:
        """(K,) what a row of each class adds to a load."""
        return load.weight[self.representative]

    def coming(self, class_: int) -> Amounts:
        """(T, 1 + V) per tier what a row of a class pays that comes to no value (the first), or to each value."""
        assignment, row = self.assignment, self.representative[class_]
        total = np.zeros((len(assignment.tiers), 1 + assignment.values), np.int64)
        for number, tier in enumerate(assignment.tiers):
            for cost in tier.costs:
                if isinstance(cost, RowCost):
                    pays = cost.row_class[row]
                    total[number, 0] += cost.weight * cost.unplaced[pays]
                    total[number, 1:] += cost.weight * cost.cost[pays]
            total[number] += self.moving[number, class_]
        return total

    def costs(self, class_: Indices, value: Indices, stays: Mask) -> Amounts:
        """(T, n) per tier what a row of each class pays for each value; NONE is no value."""
        assignment = self.assignment
        total = np.zeros((len(assignment.tiers), len(class_)), np.int64)
        row = self.representative[class_]
        placed = value >= 0
        for number, tier in enumerate(assignment.tiers):
            for cost in tier.costs:
                if isinstance(cost, RowCost):
                    pays = cost.row_class[row]
                    paid = np.where(placed, cost.cost[pays, np.maximum(value, 0)], cost.unplaced[pays])
                    total[number] += cost.weight * paid
            total[number] += np.where(stays, 0, self.moving[number, class_])
        return total

    def expand(self, class_: Indices, value: Indices, count: Amounts) -> Indices:
        """(R,) a choice that gives each value (NONE is no value) to so many rows of each class, moving the fewest.

        The counts of a class add up to its number of rows.
        """
        assignment = self.assignment
        places = assignment.values + 1  # the last one stands for no value
        place = class_.astype(np.int64) * places + np.where(value < 0, places - 1, value)
        used, inverse = np.unique(place, return_inverse=True)
        wanted = np.zeros(len(used) + 1, np.int64)  # one more, for what no row is to have
        np.add.at(wanted, inverse, count)
        today = np.where(assignment.current < 0, places - 1, assignment.current)
        at = self.of_row.astype(np.int64) * places + today
        found = np.searchsorted(used, at)
        found[np.append(used, -1)[found] != at] = len(used)
        order = np.argsort(at, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = _rank_within(at[order])
        keeps = rank < wanted[found]
        choice = today.astype(np.int64)
        left = wanted - np.bincount(found[keeps], minlength=len(wanted))
        movers = np.flatnonzero(~keeps)
        movers = movers[np.argsort(self.of_row[movers], kind="stable")]
        choice[movers] = np.repeat(used % places, left[:-1])
        return np.where(choice == places - 1, NONE, choice).astype(np.int32)


def equivalence_classes(assignment: Assignment) -> EquivalenceClasses:
    """The classes of an assignment."""
    rows = assignment.rows
    moving = np.zeros((len(assignment.tiers), rows), np.int64)
    columns: list[NDArray[Any]] = [assignment.row_class, assignment.required]
    for load in assignment.loads:
        adds = (load.weight > 0) & (load.group >= 0)
        columns += [np.where(adds, load.group, NONE), np.where(adds, load.weight, 0)]
    for number, tier in enumerate(assignment.tiers):
        for cost in tier.costs:
            if isinstance(cost, RowCost):
                columns.append(cost.row_class)
                moving[number] += cost.weight * cost.moved
    columns += list(moving)
    limited = np.zeros(rows, np.bool_)
    for condition in assignment.conditions:
        if isinstance(condition, MoveLimit):
            limited |= condition.group >= 0
            columns.append(condition.group)
        elif isinstance(condition, Colocation):
            columns += [condition.leader, _followed(condition)]  # each that is followed is a class of its own
    # A row that is better off moved must not take the place of one that is not: today's value tells them apart.
    rewarded = (moving < 0).any(axis=0) if len(moving) else np.zeros(rows, np.bool_)
    if bool(rewarded.any()):
        columns.append(np.where(rewarded, assignment.current, NONE))
    of_row, number = joint_ranks(columns, rows)
    row = firsts(of_row, number).astype(np.int32)
    count = np.bincount(of_row, minlength=number)
    counted = limited | ((moving != 0).any(axis=0) if len(moving) else np.zeros(rows, np.bool_))
    places = assignment.values + 1
    place, number_of = np.unique(
        of_row[counted] * places + assignment.current[counted] + 1, return_counts=True
    )
    stays = Stays(
        (place // places).astype(np.int32), (place % places - 1).astype(np.int32), number_of.astype(np.int64)
    )
    return EquivalenceClasses(
        assignment,
        of_row.astype(np.int32),
        row.astype(np.int32),
        count,
        assignment.required[row],
        moving[:, row],
        stays,
    )


def _followed(condition: Colocation) -> Indices:
    """(R,) the row itself where others follow it, else NONE."""
    followed = np.full(len(condition.leader), NONE, np.int32)
    leaders = condition.leader[condition.leader >= 0]
    followed[leaders] = leaders
    return followed


def _rank_within(ordered: Amounts) -> Amounts:
    """Of each element of a sorted array, how many equal ones stand before it."""
    if not len(ordered):
        return np.zeros(0, np.int64)
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    lengths = np.diff(np.append(starts, len(ordered)))
    return np.arange(len(ordered), dtype=np.int64) - np.repeat(starts, lengths)
