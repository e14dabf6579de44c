"""Making room: rows without a value get one where rows that cost less to leave out give way.

The row that is dearest to leave out comes first.  At each value it may have, the rows there that may stay without one
are taken away, the cheapest first, until the limits are kept; the value where that costs least is taken, if the whole
is then better.  So a pod of a high priority takes the place of some of low ones.

What it is not: it proves nothing, and what was taken away finds another place only if there is room left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import NONE, Amounts, Assignment, Indices, RowCost
from mgmt.optimization.engines.cells import bounds_of

Numbers = NDArray[np.intp]

_MOST_PRICES = 20_000_000
_MOST_FAILED = 6
"""Values that turn out not to do, in a row, before rows alike stay without one."""


def make_room(assignment: Assignment, choice: Indices, *, deadline: float) -> Iterator[Indices]:
    """Better and better choices, from one that keeps everything; ends when no row finds room."""
    if bool(assignment.required.all()) or not assignment.tiers:
        return
    if assignment.rows * assignment.values * len(assignment.tiers) > _MOST_PRICES:
        return
    best, worth = choice.copy(), assignment.worth(choice)
    room = _Room(assignment)
    progress = True
    while progress:
        progress = False
        for rows in room.alike(np.flatnonzero((best == NONE) & ~assignment.required)):
            options = room.options(best, rows[0])
            failed = 0
            number = len(rows)
            while rows and options and failed < _MOST_FAILED:
                if time.monotonic() > deadline:
                    return
                number = min(number, len(rows), len(options))
                changed = best.copy()
                for row, (value, leaving) in zip(rows[:number], options, strict=False):
                    changed[leaving] = NONE
                    changed[row] = value
                reached = assignment.worth(changed)
                if reached < worth and not any(assignment.broken(changed)):
                    best, worth, progress = changed, reached, True
                    rows, options = rows[number:], options[number:]
                    yield best
                elif number > 1:
                    number //= 2
                else:
                    failed += 1
                    options = options[1:]


@dataclass(slots=True, eq=False)
class _Room:
    assignment: Assignment
    _placed: Amounts = field(init=False)
    """(T, R, V) what rows pay for values, of the costs of single rows."""
    _unplaced: Amounts = field(init=False)
    """(T, R)"""
    _upper: list[Amounts] = field(init=False)
    """Per limit, (groups, buckets)."""

    def __post_init__(self) -> None:
        assignment = self.assignment
        shape = (len(assignment.tiers), assignment.rows)
        self._placed = np.zeros((*shape, assignment.values), np.int64)
        self._unplaced = np.zeros(shape, np.int64)
        self._upper = [bounds_of(limit)[1] for limit in assignment.limits]
        away = np.arange(assignment.values)[None, :] != assignment.current[:, None]
        for number, tier in enumerate(assignment.tiers):
            for cost in tier.costs:
                if isinstance(cost, RowCost):
                    moved = cost.moved[:, None] * away
                    self._placed[number] += cost.weight * (cost.cost[cost.row_class] + moved)
                    left = np.where(assignment.current != NONE, cost.moved, 0)
                    self._unplaced[number] += cost.weight * (cost.unplaced[cost.row_class] + left)

    def worth_of(self, row: int) -> tuple[int, ...]:
        """What it costs, tier by tier, to leave a row out instead of placing it where it is cheapest."""
        gain = self._unplaced[:, row] - self._placed[:, row].min(axis=1, initial=2**62)
        return tuple(gain.tolist())

    def alike(self, rows: Numbers) -> list[list[int]]:
        """Rows that nothing tells apart together, the dearest to leave out first."""
        assignment = self.assignment
        found: dict[tuple[int, ...], list[int]] = {}
        for row in rows.tolist():
            key = [int(assignment.row_class[row]), int(assignment.current[row])]
            for limit in assignment.limits:
                key += [int(limit.load.group[row]), int(limit.load.weight[row])]
            for tier in assignment.tiers:
                key += [int(cost.row_class[row]) for cost in tier.costs if isinstance(cost, RowCost)]
            found.setdefault(tuple(key), []).append(row)
        return sorted(found.values(), key=lambda alike: self.worth_of(alike[0]), reverse=True)

    def options(self, choice: Indices, row: int) -> list[tuple[int, list[int]]]:
        """Values for the row, each with those that must leave it for that, the cheapest first."""
        assignment = self.assignment
        loads = [limit.load.of(choice) for limit in assignment.limits]
        found: list[tuple[tuple[int, ...], int, list[int]]] = []
        for value in np.flatnonzero(assignment.allowed[assignment.row_class[row]]).tolist():
            leaving = self._leaving(choice, loads, row, value)
            if leaving is None:
                continue
            cost = self._placed[:, row, value] - self._unplaced[:, row]
            for other in leaving:
                cost = cost + self._unplaced[:, other] - self._placed[:, other, value]
            if tuple(cost.tolist()) < (0,) * len(cost):
                found.append((tuple(cost.tolist()), value, leaving))
        found.sort(key=lambda one: (one[0], one[1]))
        return [(value, leaving) for _, value, leaving in found]

    def _leaving(self, choice: Indices, loads: list[Amounts], row: int, value: int) -> list[int] | None:
        """Who must leave a value for the row to have room there; None when that is not enough."""
        excess: list[tuple[int, int]] = []
        for number, (limit, there) in enumerate(zip(self.assignment.limits, loads, strict=True)):
            group, bucket = limit.load.group[row], limit.load.bucket[value]
            if group >= 0 and bucket >= 0 and limit.load.weight[row] > 0:
                upper = self._upper[number][group, bucket]
                over = int(there[group, bucket] + limit.load.weight[row] - upper)
                if over > 0:
                    excess.append((number, over))
        if not excess:
            return []
        holders = np.flatnonzero((choice == value) & ~self.assignment.required)
        leaving: list[int] = []
        left = dict(excess)
        for other in sorted(holders.tolist(), key=lambda one: tuple(self._loss(one, value))):
            helps = False
            for number in list(left):
                load = self.assignment.limits[number].load
                if load.group[other] == load.group[row] and load.weight[other] > 0:
                    left[number] -= int(load.weight[other])
                    helps = True
                    if left[number] <= 0:
                        del left[number]
            if helps:
                leaving.append(other)
            if not left:
                return leaving
        return None

    def _loss(self, row: int, value: int) -> list[int]:
        loss: list[int] = (self._unplaced[:, row] - self._placed[:, row, value]).tolist()
        return loss
