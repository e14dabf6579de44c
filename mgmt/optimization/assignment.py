"""Assignment structure: many rows, each choosing one value of a domain, under limits on what values receive.

Most placement is of this form: replicas or pods choose hosts, what a host (or rack, or zone) receives is counted or
summed, limited from above and below, and paid for.  The form is columnar: no object per row or per cell, only arrays
over R rows and V values.  It is small where a boolean per cell would be R times V.

What it is not: it knows neither SQL (``mgmt.compiler`` recognises it in policies) nor how to solve itself (the engines
do); everything here only says what a choice is worth, so it is also what the engines are checked against.

Where ``-1`` stands in an index array, there is none: a row that is in no group, a value in no bucket, no choice made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Indices: TypeAlias = NDArray[np.int32]
Amounts: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Integers: TypeAlias = NDArray[np.integer[Any]]
"""Whole numbers of any width, where the width does not matter."""

CostFunction: TypeAlias = Callable[[tuple[Amounts, ...]], Amounts]

NONE = -1
UNLIMITED = np.int64(2**62)
"""No limit, with room to add to it."""
UNKNOWN = -(2**62)
"""In place of a bound that nobody knows."""


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What buckets receive: ``load[g, b]`` is the sum of ``weight[r]`` over the rows r of group g whose value is in b.

    A bucket is a value (a host) or several (a rack).  Groups are of rows (the replicas of one segment); with one
    group for all rows, ``groups`` is 1.
    """

    group: Indices
    """(R,) the group of each row, or NONE."""
    groups: int
    bucket: Indices
    """(V,) the bucket of each value, or NONE."""
    buckets: int
    weight: Amounts
    """(R,) what a row adds; never negative."""

    def of(self, choice: Indices) -> Amounts:
        """(groups, buckets): the loads under a choice, (R,) with NONE for rows without a value."""
        # One more, for no choice; so that there may be no values at all.
        chosen = np.append(self.bucket, NONE)[choice]
        counted = (chosen >= 0) & (self.group >= 0)
        place = self.group[counted].astype(np.int64) * self.buckets + chosen[counted]
        total = np.zeros(self.groups * self.buckets, np.int64)
        np.add.at(total, place, self.weight[counted])
        return total.reshape(self.groups, self.buckets)


LoadChange: TypeAlias = Callable[[Load], Load]


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """A constraint: ``lower <= load <= upper`` in every group and bucket."""

    name: str
    load: Load
    lower: Amounts
    """Broadcastable to (groups, buckets)."""
    upper: Amounts
    """Broadcastable to (groups, buckets)."""

    @property
    def bounds(self) -> tuple[Amounts, Amounts]:
        """Lower and upper, as (groups, buckets)."""
        shape = (self.load.groups, self.load.buckets)
        return np.broadcast_to(self.lower, shape), np.broadcast_to(self.upper, shape)

    def mapped(self, change: LoadChange) -> Limit:
        return replace(self, load=change(self.load))

    def broken(self, choice: Indices) -> Mask:
        """(groups, buckets): where it does not hold."""
        load = self.load.of(choice)
        return (load < self.lower) | (load > self.upper)


@dataclass(frozen=True, slots=True, eq=False)
class Either:
    """A constraint: in every group and bucket one of these limits holds, all of the same groups and buckets."""

    name: str
    limits: tuple[Limit, ...]

    @property
    def loads(self) -> tuple[Load, ...]:
        return tuple(limit.load for limit in self.limits)

    def mapped(self, change: LoadChange) -> Either:
        return replace(self, limits=tuple(limit.mapped(change) for limit in self.limits))

    def holds(self, choice: Indices, current: Indices) -> bool:
        del current
        return not bool(np.logical_and.reduce([limit.broken(choice) for limit in self.limits]).any())


@dataclass(frozen=True, slots=True, eq=False)
class Occupancy:
    """A constraint: of how many buckets each group has rows, however many; those of weight 0 do not count."""

    name: str
    load: Load
    lower: Amounts
    """(groups,)"""
    upper: Amounts
    """(groups,)"""

    @property
    def loads(self) -> tuple[Load, ...]:
        return (self.load,)

    def mapped(self, change: LoadChange) -> Occupancy:
        return replace(self, load=change(self.load))

    def holds(self, choice: Indices, current: Indices) -> bool:
        del current
        used = (self.load.of(choice) > 0).sum(axis=1)
        return bool(((used >= self.lower) & (used <= self.upper)).all())


@dataclass(frozen=True, slots=True, eq=False)
class Budget:
    """A constraint: between what and what loads of a group come to together, each bucket at its price."""

    name: str
    loads: tuple[Load, ...]
    """All of the same groups."""
    prices: tuple[Amounts, ...]
    """(buckets,) per load."""
    lower: Amounts
    """(groups,)"""
    upper: Amounts
    """(groups,)"""

    def mapped(self, change: LoadChange) -> Budget:
        return replace(self, loads=tuple(map(change, self.loads)))

    def holds(self, choice: Indices, current: Indices) -> bool:
        del current
        paid = sum(load.of(choice) @ price for load, price in zip(self.loads, self.prices, strict=True))
        return bool(((paid >= self.lower) & (paid <= self.upper)).all())


@dataclass(frozen=True, slots=True, eq=False)
class MoveLimit:
    """A constraint: how many rows of each group, of those that have a value today, do not keep it."""

    name: str
    group: Indices
    """(R,) the group of each row, or NONE."""
    upper: Amounts
    """(groups,)"""

    @property
    def loads(self) -> tuple[Load, ...]:
        return ()

    def mapped(self, change: LoadChange) -> MoveLimit:
        del change
        return self

    def holds(self, choice: Indices, current: Indices) -> bool:
        moved = (self.group >= 0) & (current != NONE) & (choice != current)
        return bool((np.bincount(self.group[moved], minlength=len(self.upper)) <= self.upper).all())


@dataclass(frozen=True, slots=True, eq=False)
class Skew:
    """A constraint: what each bucket of a load has, and ``above`` it, is at most the least of what all have.

    ``base`` is what a bucket has besides its load; one that is UNLIMITED is never the least.  Nothing is demanded of
    a bucket whose load is at most what is ``excused``, nor where ``above`` is -UNLIMITED.
    """

    name: str
    load: Load
    """Of one group."""
    base: Amounts
    """(buckets,)"""
    above: Amounts
    """(buckets,)"""
    excused: Amounts
    """(buckets,) -1 where nothing is."""

    @property
    def loads(self) -> tuple[Load, ...]:
        return (self.load,)

    def mapped(self, change: LoadChange) -> Skew:
        return replace(self, load=change(self.load))

    def holds(self, choice: Indices, current: Indices) -> bool:
        del current
        (load,) = self.load.of(choice)
        least = (load + self.base).min(initial=UNLIMITED)
        return bool(((load <= self.excused) | (load + self.above <= least)).all())


@dataclass(frozen=True, slots=True, eq=False)
class Colocation:
    """A constraint: a row that follows another one has the same value, or none."""

    name: str
    leader: Indices
    """(R,) the row that each follows, or NONE."""

    @property
    def loads(self) -> tuple[Load, ...]:
        return ()

    def mapped(self, change: LoadChange) -> Colocation:
        del change
        return self

    def holds(self, choice: Indices, current: Indices) -> bool:
        del current
        follows = np.flatnonzero((self.leader >= 0) & (choice != NONE))
        return bool((choice[follows] == choice[self.leader[follows]]).all())


Condition: TypeAlias = Either | Occupancy | Budget | MoveLimit | Skew | Colocation
"""Constraints that are no limits on single loads.  Not every engine takes them."""


@dataclass(frozen=True, slots=True, eq=False)
class RowCost:
    """An objective that is a sum over rows, each paying for the value it has."""

    name: str
    weight: int
    row_class: Indices
    """(R,) rows of a class pay alike."""
    cost: Amounts
    """(K, V) per class and value."""
    unplaced: Amounts
    """(K,) per class, for a row without a value."""
    moved: Amounts
    """(R,) what a row pays on top when its value is not today's (or it has one today and none then)."""

    @property
    def loads(self) -> tuple[Load, ...]:
        return ()

    def mapped(self, change: LoadChange) -> RowCost:
        del change
        return self

    def of(self, choice: Indices, current: Indices) -> int:
        placed = choice >= 0
        paid = self.unplaced[self.row_class]
        paid[placed] = self.cost[self.row_class[placed], choice[placed]]
        return self.weight * int((paid + np.where(choice != current, self.moved, 0)).sum())


@dataclass(frozen=True, slots=True, eq=False)
class LoadCost:
    """An objective over loads: the sum over all groups and buckets, or the peak, of a function of the loads there."""

    name: str
    weight: int
    loads: tuple[Load, ...]
    """All of the same groups and buckets."""
    cost: CostFunction
    """Element by element: arrays (..., groups, buckets), one per load, to costs of the same shape, or one for all.

    Exact for every load a choice can bring about.  See ``mgmt.optimization.load_functions`` for those that engines
    know; whether another one grows, or is convex, they find out by asking for every load, where that is few.
    """
    peak: bool

    def mapped(self, change: LoadChange) -> LoadCost:
        return replace(self, loads=tuple(map(change, self.loads)))

    def of(self, choice: Indices) -> int:
        loads = tuple(load.of(choice) for load in self.loads)
        costs = np.broadcast_to(self.cost(loads), loads[0].shape)
        return self.weight * int(costs.max() if self.peak else costs.sum())


Cost: TypeAlias = RowCost | LoadCost


@dataclass(frozen=True, slots=True, eq=False)
class Tier:
    """Costs whose sum is minimised; lower tiers go first and are not given up for higher ones.

    ``constant`` is what the objectives cost whatever is chosen.
    """

    number: int
    costs: tuple[Cost, ...]
    constant: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """R rows choose among V values."""

    values: int
    row_class: Indices
    """(R,) rows of a class may choose alike."""
    allowed: Mask
    """(C, V) per class: what a row may choose, as far as it depends on the row alone."""
    required: Mask
    """(R,) whether the row must have a value."""
    current: Indices
    """(R,) today's value, or NONE; it need not be allowed."""
    limits: tuple[Limit, ...]
    tiers: tuple[Tier, ...]
    """In order."""
    conditions: tuple[Condition, ...] = ()

    @property
    def rows(self) -> int:
        return len(self.row_class)

    @property
    def loads(self) -> tuple[Load, ...]:
        """Every load there is, each once."""
        spoken_of = [limit.load for limit in self.limits]
        spoken_of += [load for condition in self.conditions for load in condition.loads]
        spoken_of += [load for tier in self.tiers for cost in tier.costs for load in cost.loads]
        return tuple(dict.fromkeys(spoken_of))

    def mapped(self, change: LoadChange) -> Assignment:
        """The same with other loads in place of these."""
        return replace(
            self,
            limits=tuple(limit.mapped(change) for limit in self.limits),
            conditions=tuple(condition.mapped(change) for condition in self.conditions),
            tiers=tuple(
                replace(tier, costs=tuple(cost.mapped(change) for cost in tier.costs)) for tier in self.tiers
            ),
        )

    def broken(self, choice: Indices) -> Iterator[str]:
        """In words, what a choice breaks."""
        placed = choice >= 0
        if bool((self.required & ~placed).any()):
            yield "rows without a value"
        if not bool(self.allowed[self.row_class[placed], choice[placed]].all()):
            yield "values that are not allowed"
        for limit in self.limits:
            if bool(limit.broken(choice).any()):
                yield limit.name
        for condition in self.conditions:
            if not condition.holds(choice, self.current):
                yield condition.name

    def worth(self, choice: Indices) -> tuple[int, ...]:
        """Per tier what a choice costs."""
        return tuple(
            tier.constant
            + sum(
                cost.of(choice, self.current) if isinstance(cost, RowCost) else cost.of(choice)
                for cost in tier.costs
            )
            for tier in self.tiers
        )


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Rows and values, one of each."""

    row: Indices
    value: Indices


@dataclass(frozen=True, slots=True, eq=False)
class Optima:
    """What all best choices keep to.  Others may keep to it too, where linear duality cannot tell."""

    row_class: Indices
    """(R,) rows of a class may choose alike."""
    allowed: Mask
    """(C, V) false for values that no best choice gives them."""
    limits: tuple[Limit, ...]
    """Between which numbers the best choices have what is counted."""


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """An engine's answer: a choice, and per tier its cost and a bound that no choice can go below.

    A tier's bound holds for choices that reach the costs of the tiers before it; the answer is optimal when all
    bounds are met.  ``choice`` is None if there provably is none.
    """

    choice: Indices | None
    worth: tuple[int, ...]
    bounds: tuple[int, ...]
    engine: str
    """For people: what found it, and what proved it."""
    notes: tuple[str, ...] = ()
    """What was done to the problem on the way, with figures: classes, candidates, bounds."""
    solver_variables: int = 0
    """Of the largest model that a solver was given; 0 when none was needed."""
    optima: Callable[[], Optima] | None = None
    """None if it cannot be told."""

    @property
    def proven(self) -> bool:
        return self.worth == self.bounds
