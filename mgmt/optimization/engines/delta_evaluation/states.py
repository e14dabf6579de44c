"""What changes of a choice change: loads, limits and costs under the choice of the moment, place by place.

Greedy and local search both change a choice a row at a time and ask, for many rows or many values at once, what each
change would do (delta evaluation).  A place is a group and a bucket of a load; there is one more, the last, for none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import (
    NONE,
    UNLIMITED,
    Amounts,
    Indices,
    Integers,
    Limit,
    Load,
    LoadCost,
    Mask,
)
from mgmt.optimization.engines.model.cost_functions import Affine, Shape, UnsuitableError, widest_shape
from mgmt.optimization.engines.model.equivalence import EquivalenceClasses
from mgmt.optimization.load_functions import parts_of

Reals = NDArray[np.float64]
Numbers = NDArray[np.intp]

LOW = -(2**60)
"""Where no place is, the height under a peak."""
_MOST_PLACES = 200_000
"""A cost function that is neither affine nor tabled is asked for all places at a time, so only if they are so few."""


@dataclass(slots=True, eq=False)
class LoadState:
    """A load that changes with the choice; per row (or class) and per value there is one more, for none."""

    group: Numbers
    weight: Amounts
    bucket: Numbers
    groups: int
    buckets: int
    total: Amounts
    """(groups * buckets + 1,)"""

    @classmethod
    def of(cls, load: Load, rows: Indices | slice, choice: Indices | None = None) -> LoadState:
        """For these rows, which may stand for others like them; with no choice nothing is placed."""
        group, weight = load.group[rows], load.weight[rows]
        counts = (group >= 0) & (weight > 0)
        total = np.zeros(load.groups * load.buckets + 1, np.int64)
        if choice is not None:
            total[:-1] = load.of(choice).reshape(-1)
        return cls(
            np.append(np.where(counts, group, NONE), NONE).astype(np.intp),
            np.append(np.where(counts, weight, 0), 0),
            np.append(load.bucket, NONE).astype(np.intp),
            load.groups,
            load.buckets,
            total,
        )

    @property
    def by_group(self) -> Amounts:
        """(groups, buckets)"""
        return self.total[:-1].reshape(self.groups, self.buckets)

    def place(self, row: int, value: int) -> int:
        """Where a row at a value adds to it, or NONE."""
        group, bucket = int(self.group[row]), int(self.bucket[value])
        return NONE if group < 0 or bucket < 0 else group * self.buckets + bucket

    def places(self, row: Integers, value: Integers) -> Numbers:
        """The same for pairs; the last place is for none."""
        group, bucket = self.group[row], self.bucket[value]
        inside = (bucket >= 0) & (group >= 0)
        return np.where(inside, group * self.buckets + bucket, self.groups * self.buckets)


@dataclass(slots=True, eq=False)
class LimitState:
    """A limit over a load that changes."""

    load: LoadState
    lower: Amounts
    """(places + 1,)"""
    upper: Amounts
    """(places + 1,)"""
    wants: bool
    """Whether there is a lower limit at all."""
    caps: bool
    """Whether the rows there are could exceed it."""

    @classmethod
    def of(cls, limit: Limit, load: LoadState) -> LimitState:
        lower, upper = limit.bounds
        total = int(limit.load.weight[limit.load.group >= 0].sum())
        wants, caps = bool((lower > 0).any()), bool((upper < total).any())
        return cls(load, np.append(lower, -UNLIMITED), np.append(upper, UNLIMITED), wants, caps)

    def free(self, group: int) -> Amounts:
        """(buckets,) how much more a group may have; negative where it has too much."""
        return np.asarray(self._of_group(self.upper, group) - self.load.by_group[group])

    def missing(self, group: int) -> Amounts:
        """(buckets,) how much a group has too little; negative where it has more."""
        return np.asarray(self._of_group(self.lower, group) - self.load.by_group[group])

    def _of_group(self, bound: Amounts, group: int) -> Amounts:
        buckets = self.load.buckets
        return bound[group * buckets : (group + 1) * buckets]

    def excess(self, load: Amounts, place: Numbers | slice) -> Amounts:
        """By how much loads at places are above or below what they may be."""
        over = np.maximum(load - self.upper[place], 0)
        return np.asarray(over + np.maximum(self.lower[place] - load, 0) if self.wants else over)


@dataclass(slots=True, eq=False)
class CostState:
    """A cost over loads that change: what each place pays, times a factor."""

    cost: LoadCost
    factor: int
    loads: tuple[LoadState, ...]
    group: Numbers
    """As in its loads, which agree on it."""
    now: Amounts
    """(places + 1,) the last stands for none: it pays nothing, and is no peak."""
    shape: Shape | None
    """With the place for none, and the factor; None where it is the greatest of parts, or has to be asked."""
    parts: list[CostState]

    @classmethod
    def of(
        cls, classes: EquivalenceClasses, cost: LoadCost, loads: Sequence[LoadState], factor: int
    ) -> CostState:
        """Raises UnsuitableError where costs of single places are not known."""
        if one_place(classes, cost.loads) is None:
            raise UnsuitableError(f"{cost.name} is over several places at once")
        group = np.maximum.reduce([load.group for load in loads])
        made = cls(cost, factor, tuple(loads), group, np.zeros(0, np.int64), None, [])
        parts = parts_of(cost)
        if len(parts) > 1:
            for part in parts:
                own = [loads[cost.loads.index(load)] for load in part.loads]
                made.parts.append(cls.of(classes, part, own, factor))
        else:
            try:
                made.shape = widest_shape(classes, cost).padded(factor, LOW if cost.peak else 0)
            except UnsuitableError:
                if len(loads[0].total) > _MOST_PLACES:
                    raise
        made.now = made.at(np.arange(len(loads[0].total)), [load.total for load in loads])
        return made

    @property
    def top(self) -> int:
        """The highest place there is."""
        return int(self.now[:-1].max(initial=-UNLIMITED))

    @property
    def local(self) -> bool:
        """Whether places can be asked for one by one."""
        return self.shape is not None or (bool(self.parts) and all(part.local for part in self.parts))

    @property
    def rising(self) -> bool:
        """Whether no load makes it lower."""
        return self.shape.growing() if self.shape is not None else all(part.rising for part in self.parts)

    def unit(self) -> float:
        """What heights change in steps of."""
        if self.shape is None:
            return min(part.unit() for part in self.parts)
        if not isinstance(self.shape, Affine):
            return float(self.factor)
        steps = [
            np.gcd.reduce(np.abs(slope).reshape(-1)) * max(1, int(np.gcd.reduce(own.weight)) // reach.step)
            for slope, own, reach in zip(self.shape.slopes, self.loads, self.shape.reaches, strict=True)
        ]
        return float(max(self.factor, int(np.gcd.reduce(np.array(steps, np.int64)))))

    def of_group(self, class_: int) -> Amounts:
        """(buckets,) what the places of a row's group pay."""
        buckets = self.loads[0].buckets
        return self.now[self.group[class_] * buckets :][:buckets]

    def with_row(self, class_: int) -> Amounts:
        """(buckets,) the same with one row more of it there."""
        first = self.loads[0]
        place = self.group[class_] * first.buckets + np.arange(first.buckets)
        return self.at(place, [load.total[place] + load.weight[class_] for load in self.loads])

    def update(self, place: Numbers) -> None:
        """Loads have changed at these places."""
        if self.local:
            self.now[place] = self.at(place, [load.total[place] for load in self.loads])
        else:
            self.update_all()

    def update_all(self) -> None:
        """Loads have changed anywhere."""
        self.now = self.at(np.arange(len(self.now)), [load.total for load in self.loads])

    def at(self, place: Numbers, loads: Sequence[Amounts]) -> Amounts:
        """What places pay under these loads."""
        if self.shape is not None:
            return self.shape.at(place, loads)
        if self.parts:
            of_part = (
                part.at(place, [loads[self.loads.index(load)] for load in part.loads]) for part in self.parts
            )
            return np.asarray(np.maximum.reduce(list(of_part)))
        asked = []
        for own, load in zip(self.loads, loads, strict=True):
            whole = own.total.copy()
            whole[place] = load
            asked.append(whole[:-1].reshape(own.groups, own.buckets))
        costs = self.factor * np.broadcast_to(self.cost.cost(tuple(asked)), asked[0].shape).reshape(-1)
        return np.append(costs, LOW if self.cost.peak else 0).astype(np.int64)[place]


def one_place(classes: EquivalenceClasses, loads: tuple[Load, ...]) -> Indices | None:
    """(K,) the group each class is of in all loads, if the loads agree on that and on the buckets."""
    group = np.full(classes.number, NONE, np.int32)
    for load in loads:
        if not np.array_equal(load.bucket, loads[0].bucket):
            return None
        own = classes.group(load)
        if bool(((own != NONE) & (group != NONE) & (own != group)).any()):
            return None
        group = np.where(own != NONE, own, group).astype(np.int32)
    return group


def at_values(told: Amounts | Mask, bucket: Numbers, without: int | bool) -> np.ndarray:
    """What was told of buckets, of values; ``without`` where a value is in no bucket."""
    return np.where(bucket[:-1] < 0, without, told[bucket[:-1]])
