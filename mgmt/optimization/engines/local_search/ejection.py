"""Making room: rows without a value get one where rows that cost less to leave out give way.

The row that is dearest to leave out comes first.  At each value it may have, the rows there that may stay without one
are taken away, the cheapest first, until the limits are kept; the value where that costs least is taken, if the whole
is then better.  So a pod of a high priority takes the place of some of low ones.

What it is not: it proves nothing, and what was taken away finds another place only if there is room left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import NONE, Amounts, Indices
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines.model.equivalence import EquivalenceClasses

Numbers = NDArray[np.intp]

_MOST_PRICES = 20_000_000
_MOST_FAILED = 6
"""Values that turn out not to do, in a row, before rows alike stay without one."""


def ejections(classes: EquivalenceClasses, choice: Indices, *, deadline: Deadline) -> Iterator[Indices]:
    """Better and better choices, from one that keeps everything; ends when no row finds room."""
    assignment = classes.assignment
    if bool(assignment.required.all()) or not assignment.tiers:
        return
    if assignment.rows * assignment.values * len(assignment.tiers) > _MOST_PRICES:
        return
    best, worth = choice.copy(), assignment.worth(choice)
    room = _Room(classes)
    progress = True
    while progress:
        progress = False
        for rows in room.alike(np.flatnonzero((best == NONE) & ~assignment.required)):
            if deadline.passed:
                return
            options = room.options(best, rows[0])
            failed = 0
            number = len(rows)
            while rows and options and failed < _MOST_FAILED:
                if deadline.passed:
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
    classes: EquivalenceClasses
    _upper: list[Amounts] = field(init=False)
    """Per limit, (groups, buckets)."""
    _prices: dict[tuple[int, int], Amounts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._upper = [limit.bounds[1] for limit in self.classes.assignment.limits]

    def _gain(self, row: int) -> Amounts:
        """(T, V) what it costs to leave a row out instead of having it at a value."""
        class_, current = int(self.classes.of_row[row]), int(self.classes.assignment.current[row])
        if (class_, current) not in self._prices:
            paid = self.classes.coming(class_)
            paid[:, 1 + current] -= self.classes.moving[:, class_]
            self._prices[class_, current] = paid[:, :1] - paid[:, 1:]
        return self._prices[class_, current]

    def alike(self, rows: Numbers) -> list[list[int]]:
        """Rows that nothing tells apart together, the dearest to leave out first."""
        found: dict[tuple[int, int], list[int]] = {}
        for row in rows.tolist():
            key = int(self.classes.of_row[row]), int(self.classes.assignment.current[row])
            found.setdefault(key, []).append(row)

        def worth(alike: list[int]) -> list[int]:
            most: list[int] = self._gain(alike[0]).max(axis=1, initial=-(2**62)).tolist()
            return most

        return sorted(found.values(), key=worth, reverse=True)

    def options(self, choice: Indices, row: int) -> list[tuple[int, list[int]]]:
        """Values for the row, each with those that must leave it for that, the cheapest first."""
        assignment = self.classes.assignment
        loads = [limit.load.of(choice) for limit in assignment.limits]
        found: list[tuple[tuple[int, ...], int, list[int]]] = []
        for value in np.flatnonzero(assignment.allowed[assignment.row_class[row]]).tolist():
            leaving = self._leaving(choice, loads, row, value)
            if leaving is None:
                continue
            cost = -self._gain(row)[:, value]
            for other in leaving:
                cost = cost + self._gain(other)[:, value]
            if tuple(cost.tolist()) < (0,) * len(cost):
                found.append((tuple(cost.tolist()), value, leaving))
        found.sort(key=lambda one: (one[0], one[1]))
        return [(value, leaving) for _, value, leaving in found]

    def _leaving(self, choice: Indices, loads: list[Amounts], row: int, value: int) -> list[int] | None:
        """Who must leave a value for the row to have room there; None when that is not enough."""
        excess: list[tuple[int, int]] = []
        for number, (limit, there) in enumerate(zip(self.classes.assignment.limits, loads, strict=True)):
            group, bucket = limit.load.group[row], limit.load.bucket[value]
            if group >= 0 and bucket >= 0 and limit.load.weight[row] > 0:
                upper = self._upper[number][group, bucket]
                over = int(there[group, bucket] + limit.load.weight[row] - upper)
                if over > 0:
                    excess.append((number, over))
        if not excess:
            return []
        holders = np.flatnonzero((choice == value) & ~self.classes.assignment.required)
        leaving: list[int] = []
        left = dict(excess)
        for other in sorted(holders.tolist(), key=lambda one: tuple(self._gain(one)[:, value].tolist())):
            helps = False
            for number in list(left):
                load = self.classes.assignment.limits[number].load
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
