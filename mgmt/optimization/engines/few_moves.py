"""Few moves: bring down peaks from the choice of today, when only so many rows may move.

Rows that move must be the right ones, so all moves of single rows, and all exchanges of a row of a high value with any
other row, are weighed at once with numpy: by how much the squared excess over a target falls for each row that leaves
its value of today.  When the rows that may move are used up, some go home and others are tried.  Targets lie between
the heights of today and their mean.

What it is not: it proves nothing.  Each choice it gives keeps limits and conditions, and it gives only better ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import (
    NONE,
    Amounts,
    Assignment,
    Indices,
    LoadCost,
    Mask,
    MoveLimit,
)
from mgmt.optimization.engines.cells import bounds_of
from mgmt.optimization.engines.exchanges import peaks_of

Reals = NDArray[np.float64]
Numbers = NDArray[np.intp]

_SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Of the way from the peaks to the mean, where the target is."""
_GIVES_UP = 60
"""Rounds without a better choice before the search ends."""
_MOST_PAIRS = 8_000


def few_moves(
    assignment: Assignment, choice: Indices, tier: int, *, deadline: float, seed: int
) -> Iterator[Indices]:
    """Better and better choices for a tier of peaks, from one that keeps everything; ends when it finds no more.

    Nothing comes where nothing limits the moves, or where the peaks are not over single values and one group.
    """
    peaks = peaks_of(assignment, tier)
    if peaks is None or not any(isinstance(c, MoveLimit) for c in assignment.conditions):
        return
    if any(load.groups != 1 or not _single(load.bucket) for peak in peaks for load in peak.loads):
        return
    if any(not np.array_equal(load.bucket, peaks[0].loads[0].bucket) for p in peaks for load in p.loads):
        return
    search = _Search(assignment, choice, peaks, np.random.default_rng(seed), deadline)
    best, worth = choice, assignment.worth(choice)
    rounds = idle = 0
    while time.monotonic() < deadline and idle < _GIVES_UP:
        start = choice if rounds < len(_SHARES) else search.relaxed(best)
        found = search.descend(start, _SHARES[rounds % len(_SHARES)])
        rounds += 1
        idle += 1
        reached = assignment.worth(found)
        if reached < worth and not any(assignment.broken(found)):
            best, worth, idle = found, reached, 0
            yield found
            homing = search.home(best)
            if homing is not None and assignment.worth(homing) < worth:
                best, worth = homing, assignment.worth(homing)
                yield best


def _single(bucket: Indices) -> bool:
    used = bucket[bucket >= 0]
    return len(np.unique(used)) == len(used)


@dataclass(slots=True, eq=False)
class _Search:
    assignment: Assignment
    choice: Indices
    peaks: list[LoadCost]
    random: np.random.Generator
    deadline: float

    def descend(self, start: Indices, share: float) -> Indices:
        """Moves and exchanges, the best first, until none brings the excess over the target down."""
        choice = start.copy()
        heights = self._heights(choice)
        tops, means = heights.max(axis=1), heights.mean(axis=1)
        targets = tops - share * (tops - means)
        while time.monotonic() < self.deadline:
            step = self._best_step(choice, targets)
            if step is None:
                break
            for row, value in step:
                choice[row] = value
        return choice

    def relaxed(self, choice: Indices) -> Indices:
        """Some of the rows that moved go home, where that keeps everything."""
        away = self._away(choice)
        if not len(away):
            return choice
        number = int(self.random.integers(1, max(2, len(away) // 2 + 1)))
        changed = choice.copy()
        some = self.random.permutation(away)[:number]
        changed[some] = self.assignment.current[some]
        return choice if any(self.assignment.broken(changed)) else changed

    def home(self, choice: Indices) -> Indices | None:
        """The same with all rows at home that need not have moved."""
        best, worth = choice, self.assignment.worth(choice)
        for row in self._away(choice).tolist():
            changed = best.copy()
            changed[row] = self.assignment.current[row]
            reached = self.assignment.worth(changed)
            if reached <= worth and not any(self.assignment.broken(changed)):
                best, worth = changed, reached
        return None if best is choice else best

    # ---- steps --------------------------------------------------------------------------------------

    def _best_step(self, choice: Indices, targets: Reals) -> list[tuple[int, int]] | None:
        """The move or the exchange that brings the excess down most for each row that it makes leave home."""
        now = self._heights(choice)
        excess = self._excess(now, targets)
        free = self._free(choice)
        steps: list[tuple[float, list[tuple[int, int]]]] = []
        self._moves(choice, targets, excess, free, steps)
        self._exchanges(choice, targets, excess, free, steps)
        for _, step in sorted(steps, key=lambda step: step[0]):
            changed = choice.copy()
            for row, value in step:
                changed[row] = value
            if not any(self.assignment.broken(changed)):
                return step
        return None

    def _moves(
        self,
        choice: Indices,
        targets: Reals,
        excess: Reals,
        free: int,
        steps: list[tuple[float, list[tuple[int, int]]]],
    ) -> None:
        assignment = self.assignment
        rows = np.flatnonzero(choice >= 0)
        more = self._changed(choice, rows, +1)  # (P, rows, V) each value with the row
        less = self._changed(choice, rows, -1)
        own = choice[rows]
        leaves = self._excess(less, targets)[np.arange(len(rows)), own] - excess[own]
        change = leaves[:, None] + self._excess(more, targets) - excess[None, :]
        good = assignment.allowed[assignment.row_class[rows]] & self._room(choice, rows)
        good[np.arange(len(rows)), own] = False
        uses = self._uses(rows, choice)
        good &= uses <= free
        change = np.where(good, change, 0.0)
        score = np.where(uses > 0, change / np.maximum(uses, 1), change * 4)
        for place in np.argsort(score, axis=None)[:8].tolist():
            row, value = divmod(place, assignment.values)
            if change[row, value] < -1e-9:
                steps.append((float(score[row, value]), [(int(rows[row]), value)]))

    def _exchanges(
        self,
        choice: Indices,
        targets: Reals,
        excess: Reals,
        free: int,
        steps: list[tuple[float, list[tuple[int, int]]]],
    ) -> None:
        if not excess.any():
            return
        at = int(np.argmax(excess))
        gives, takes = np.flatnonzero(choice == at), np.flatnonzero((choice >= 0) & (choice != at))
        if len(gives) * len(takes) > _MOST_PAIRS:
            takes = self.random.choice(takes, max(1, _MOST_PAIRS // len(gives)), replace=False)
        give, take = (part.reshape(-1) for part in np.meshgrid(gives, takes, indexing="ij"))
        if not len(give):
            return
        there = choice[take]
        assignment = self.assignment
        good = (
            assignment.allowed[assignment.row_class[give], there]
            & assignment.allowed[assignment.row_class[take], at]
        )
        uses = self._uses(give, choice)[np.arange(len(give)), there] + self._uses(take, choice)[:, at]
        good &= uses <= free
        give, take, there, uses = give[good], take[good], there[good], uses[good]
        if not len(give):
            return
        here = self._exchanged(choice, give, take)[:, np.arange(len(give)), at]
        other = self._exchanged(choice, take, give)[:, np.arange(len(give)), there]
        change = self._excess(here, targets) + self._excess(other, targets) - excess[at] - excess[there]
        score = np.where(uses > 0, change / np.maximum(uses, 1), change * 4)
        for place in np.argsort(score)[:8].tolist():
            if change[place] < -1e-9:
                pair = [(int(give[place]), int(there[place])), (int(take[place]), at)]
                steps.append((float(score[place]), pair))

    # ---- heights ------------------------------------------------------------------------------------

    def _heights(self, choice: Indices) -> Reals:
        """(P, V)"""
        return np.stack(
            [self._of(peak, tuple(load.of(choice) for load in peak.loads)) for peak in self.peaks]
        )

    def _changed(self, choice: Indices, rows: Numbers, sign: int) -> Reals:
        """(P, rows, V) the height of every value with the row more (or less) there."""
        found = []
        for peak in self.peaks:
            loads = tuple(
                load.of(choice)[None] + sign * load.weight[rows][:, None, None] for load in peak.loads
            )
            found.append(self._of(peak, loads))
        return np.stack(found)

    def _exchanged(self, choice: Indices, leaves: Numbers, comes: Numbers) -> Reals:
        found = []
        for peak in self.peaks:
            loads = tuple(
                load.of(choice)[None] + (load.weight[comes] - load.weight[leaves])[:, None, None]
                for load in peak.loads
            )
            found.append(self._of(peak, loads))
        return np.stack(found)

    def _of(self, peak: LoadCost, loads: tuple[Amounts, ...]) -> Reals:
        """The last axis are values instead of buckets; what has no bucket is as low as can be."""
        bucket = peak.loads[0].bucket
        costs = np.broadcast_to(peak.cost(loads), loads[0].shape)[..., 0, :]
        heights = costs[..., np.maximum(bucket, 0)].astype(np.float64) * peak.weight
        return np.where(bucket >= 0, heights, -(2.0**60))

    def _excess(self, heights: Reals, targets: Reals) -> Reals:
        """The first axis are the peaks."""
        above = np.maximum(heights - targets.reshape(-1, *([1] * (heights.ndim - 1))), 0)
        return np.asarray((above**2).sum(axis=0))

    # ---- what may be --------------------------------------------------------------------------------

    def _room(self, choice: Indices, rows: Numbers) -> Mask:
        """(rows, V) where a row more keeps the upper limits; what leaving breaks is found out at the end."""
        good = np.ones((len(rows), self.assignment.values), np.bool_)
        for limit in self.assignment.limits:
            load = limit.load
            there = load.of(choice)
            _, upper = bounds_of(limit)
            group, weight = load.group[rows], load.weight[rows]
            counted = np.flatnonzero((group >= 0) & (weight > 0))
            buckets = np.maximum(load.bucket, 0)
            own = choice[rows[counted]]
            same = load.bucket[own][:, None] == load.bucket[None, :]
            fits = (
                there[group[counted]][:, buckets] + weight[counted][:, None]
                <= upper[group[counted]][:, buckets]
            )
            good[counted] &= fits | same | (load.bucket < 0)[None, :]
        return good

    def _uses(self, rows: Numbers, choice: Indices) -> Amounts:
        """(rows, V) how many more rows are away from home when the row goes there."""
        home = self.assignment.current[rows]
        limited = self._limited()[rows] & (home != NONE)
        away = (np.arange(self.assignment.values)[None, :] != home[:, None]).astype(np.int64)
        was = (choice[rows] != home).astype(np.int64)
        return np.asarray(np.where(limited[:, None], away - was[:, None], 0))

    def _limited(self) -> Mask:
        found = np.zeros(self.assignment.rows, np.bool_)
        for condition in self.assignment.conditions:
            if isinstance(condition, MoveLimit):
                found |= condition.group >= 0
        return found

    def _away(self, choice: Indices) -> Numbers:
        current = self.assignment.current
        return np.flatnonzero(self._limited() & (current != NONE) & (choice != current))

    def _free(self, choice: Indices) -> int:
        """How many more rows may leave home, in the group with the most."""
        free = 0
        current = self.assignment.current
        for condition in self.assignment.conditions:
            if isinstance(condition, MoveLimit):
                moved = (condition.group >= 0) & (current != NONE) & (choice != current)
                used = np.bincount(condition.group[moved], minlength=len(condition.upper))
                free = max(free, int((condition.upper - used).max(initial=0)))
        return free
