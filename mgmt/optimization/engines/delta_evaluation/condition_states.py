"""Conditions under a choice that is being made row by row: where one row more keeps them.

An alternative is kept at every place that the row adds to; where it does not hold already it cannot be broken.  How
many buckets a group has rows in is kept from above, and the last one that may be opened is one with room for all.
What may be so far above the least of a family only is kept where a row comes to.

What groups pay is kept from above.

What it is not: lower bounds on buckets in use, and limits on moves, are not looked at; a finished choice is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mgmt.optimization.assignment import (
    NONE,
    UNLIMITED,
    Amounts,
    Budget,
    Colocation,
    Condition,
    Either,
    Indices,
    Load,
    Mask,
    Occupancy,
    Skew,
)
from mgmt.optimization.engines.delta_evaluation.states import LoadState, Numbers, at_values


class ConditionState(Protocol):
    """A condition over loads that change."""

    @property
    def loads(self) -> tuple[LoadState, ...]: ...

    def room(self, class_: int) -> Mask | None:
        """(V,) where a row of a class more breaks nothing; None: everywhere."""


def state_of(condition: Condition, values: int, state: Callable[[Load], LoadState]) -> ConditionState | None:
    """The condition over the states of its loads; None where a row more can not break it, or is not asked."""
    if isinstance(condition, Either):
        limits = [(state(limit.load), *limit.bounds) for limit in condition.limits]
        loads, lower, upper = (tuple(part) for part in zip(*limits, strict=True))
        return EitherState(loads, lower, upper)
    if isinstance(condition, Occupancy):
        return OccupancyState((state(condition.load),), condition.upper)
    if isinstance(condition, Budget):
        return BudgetState(tuple(map(state, condition.loads)), condition.prices, condition.upper)
    if isinstance(condition, Skew):
        return SkewState((state(condition.load),), condition)
    return _colocation(condition, values, state) if isinstance(condition, Colocation) else None


@dataclass(frozen=True, slots=True, eq=False)
class EitherState:
    """An alternative: per limit its load and bounds."""

    loads: tuple[LoadState, ...]
    lower: tuple[Amounts, ...]
    upper: tuple[Amounts, ...]

    def room(self, class_: int) -> Mask | None:
        """(V,) where a row of the class breaks nothing; None: everywhere."""
        good: Mask | None = None
        for load in self.loads:
            group = int(load.group[class_])
            if group != NONE:
                # Buckets of one place in all limits, so what this one adds to is what is looked at.
                bucket = load.bucket[:-1]
                keeps = self._held(class_, group, bucket) | ~self._held(None, group, bucket) | (bucket < 0)
                good = keeps if good is None else good & keeps
        return good

    def _held(self, class_: int | None, group: int, bucket: Numbers) -> Mask:
        """(V,) whether one of the limits holds in a group and these buckets, with a row of a class more."""
        held = np.zeros(len(bucket), np.bool_)
        for load, lower, upper in zip(self.loads, self.lower, self.upper, strict=True):
            there = load.by_group[group][bucket]
            if class_ is not None and load.group[class_] == group:
                there = there + np.where(load.bucket[:-1] == bucket, load.weight[class_], 0)
            held |= (there >= lower[group][bucket]) & (there <= upper[group][bucket])
        return held


@dataclass(frozen=True, slots=True, eq=False)
class OccupancyState:
    """How many buckets each group may have rows in."""

    loads: tuple[LoadState, ...]
    upper: Amounts

    def room(self, class_: int) -> Mask | None:
        """(V,) where a row of the class opens no bucket too many; None: everywhere."""
        (load,) = self.loads
        group = int(load.group[class_])
        if group == NONE or self._left(group) > 0:
            return None
        return at_values(load.by_group[group] > 0, load.bucket, True)

    def together(self, class_: int, fits: Amounts, rows: int) -> Mask | None:
        """(V,) values of the buckets where so many rows fit, or the most if that is fewer.

        Asked before the last bucket of a group is opened; None: it is not the last one, or there is one open.
        ``fits`` are the rows that each value has room for.
        """
        (load,) = self.loads
        group = int(load.group[class_])
        if group == NONE or self._left(group) != 1 or bool(load.by_group[group].any()):
            return None
        bucket = load.bucket[:-1]
        room = np.bincount(bucket[bucket >= 0], fits[bucket >= 0], minlength=load.buckets)
        return at_values(room >= min(rows, int(room.max(initial=0))), load.bucket, True)

    def _left(self, group: int) -> int:
        (load,) = self.loads
        return int(self.upper[group]) - int(np.count_nonzero(load.by_group[group]))


@dataclass(frozen=True, slots=True, eq=False)
class BudgetState:
    """What each group may pay at most."""

    loads: tuple[LoadState, ...]
    prices: tuple[Amounts, ...]
    upper: Amounts

    def room(self, class_: int) -> Mask | None:
        """(V,) where a row of the class costs no more than is left, or nothing; None: everywhere."""
        more: dict[int, Amounts] = {}
        for load, price in zip(self.loads, self.prices, strict=True):
            group = int(load.group[class_])
            if group != NONE:
                own = np.append(price, 0)[load.bucket[:-1]] * load.weight[class_]
                more[group] = more[group] + own if group in more else own
        keeps = [(paid <= self._left(group)) | (paid <= 0) for group, paid in more.items()]
        return np.logical_and.reduce(keeps) if keeps else None

    def _left(self, group: int) -> int:
        paid = (load.by_group[group] @ price for load, price in zip(self.loads, self.prices, strict=True))
        return int(self.upper[group]) - int(sum(paid))


@dataclass(frozen=True, slots=True, eq=False)
class SkewState:
    """How far what a bucket has may be above the least."""

    loads: tuple[LoadState, ...]
    skew: Skew

    def room(self, class_: int) -> Mask | None:
        """(V,) where it holds of the bucket that a row of the class more comes to; no other one is worse off."""
        (load,) = self.loads
        if load.group[class_] == NONE:
            return None
        before = load.by_group[0]
        after = before + load.weight[class_]
        least = np.minimum(after + self.skew.base, _least_of_others(before + self.skew.base))
        return at_values((after <= self.skew.excused) | (after + self.skew.above <= least), load.bucket, True)


def _least_of_others(height: Amounts) -> Amounts:
    """(buckets,) the least that the others have."""
    others = np.full(len(height), height.min(initial=UNLIMITED))
    if len(height):
        lowest = int(np.argmin(height))
        others[lowest] = np.delete(height, lowest).min(initial=UNLIMITED)
    return others


@dataclass(frozen=True, slots=True, eq=False)
class ColocationState:
    """Where those are that others follow, and those that follow; a group is one that is followed."""

    loads: tuple[LoadState, ...]

    def room(self, class_: int) -> Mask | None:
        """(V,) where those are that it follows, and those that follow it; None: everywhere."""
        lead, follow = self.loads
        good: Mask | None = None
        if follow.group[class_] != NONE:
            good = lead.by_group[follow.group[class_]] > 0
        if lead.group[class_] != NONE and bool(follow.by_group[lead.group[class_]].any()):
            there = follow.by_group[lead.group[class_]] > 0
            good = there if good is None else good & there
        return good


def _colocation(
    condition: Colocation, values: int, state: Callable[[Load], LoadState]
) -> ColocationState | None:
    leaders = np.unique(condition.leader[condition.leader >= 0])
    if not len(leaders):
        return None
    number = np.full(len(condition.leader) + 1, NONE, np.int32)
    number[leaders] = np.arange(len(leaders))
    ones = np.ones(len(condition.leader), np.int64)

    def load(group: Indices) -> LoadState:
        return state(Load(group, len(leaders), np.arange(values, dtype=np.int32), values, ones))

    return ColocationState((load(number[:-1]), load(number[condition.leader])))
