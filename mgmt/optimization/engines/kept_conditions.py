"""Conditions under a choice that is being made row by row: where one row more keeps them.

An alternative is kept at every place that the row adds to; where it does not hold already it cannot be broken.  How
many buckets a group has rows in is kept from above, and the last one that may be opened is one with room for all.
What may be so far above the least of a family only is kept where a row comes to.

What it is not: lower bounds on buckets in use, and limits on moves, are not looked at; a finished choice is checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from mgmt.optimization.assignment import (
    NONE,
    UNLIMITED,
    Amounts,
    Either,
    Following,
    Indices,
    Limit,
    Load,
    Mask,
    Occupancy,
    Skew,
)
from mgmt.optimization.engines.cells import bounds_of
from mgmt.optimization.engines.kinds import Kinds


@dataclass(slots=True, eq=False)
class KeptLoad:
    """A load that grows with the choice."""

    total: Amounts
    """(groups, buckets)"""
    bucket: Indices
    """(V,)"""
    group: Indices
    """(K,)"""
    weight: Amounts
    """(K,)"""

    @classmethod
    def of(cls, kinds: Kinds, load: Load) -> KeptLoad:
        group = kinds.group(load)
        weight = np.where(group != NONE, kinds.weight(load), 0)
        return cls(np.zeros((load.groups, load.buckets), np.int64), load.bucket, group, weight)

    def add(self, kind: int, value: int, rows: int) -> None:
        """So many rows of a kind that is in it more (or less) at a value."""
        bucket = self.bucket[value]
        if bucket >= 0:
            self.total[self.group[kind], bucket] += rows * self.weight[kind]

    def add_all(self, kind: Indices, value: Indices, rows: Amounts) -> None:
        """The same for many kinds, also for those that are not in it."""
        counted = (self.group[kind] != NONE) & (self.bucket[value] >= 0)
        kind, value = kind[counted], value[counted]
        places = (self.group[kind], self.bucket[value])
        np.add.at(self.total, places, self.weight[kind] * rows[counted])


@dataclass(slots=True, eq=False)
class KeptEither:
    """An alternative: per limit its load and bounds."""

    loads: tuple[KeptLoad, ...]
    bounds: tuple[tuple[Amounts, Amounts], ...]

    def breakable(self, kind: int) -> bool:
        """Whether a row more of a kind may break it anywhere: only what is bounded from above can be."""
        return any(
            load.group[kind] != NONE and bool((upper < UNLIMITED).any())
            for load, (_, upper) in zip(self.loads, self.bounds, strict=True)
        )

    def room(self, kind: int) -> Mask | None:
        """(V,) where a row of the kind breaks nothing; None: everywhere."""
        good: Mask | None = None
        for load in self.loads:
            group = int(load.group[kind])
            if group == NONE:
                continue
            # Buckets of one place in all limits, so what this one adds to is what is looked at.
            bucket = np.maximum(load.bucket, 0)
            held, holds = self._held(None, group, bucket), self._held(kind, group, bucket)
            own = (load.bucket < 0) | holds | ~held
            good = own if good is None else good & own
        return good

    def _held(self, kind: int | None, group: int, bucket: Indices) -> Mask:
        """(V,) whether one of the limits holds in a group and these buckets, with a row of a kind more."""
        held = np.zeros(len(bucket), np.bool_)
        for load, (lower, upper) in zip(self.loads, self.bounds, strict=True):
            there = load.total[group, bucket]
            if kind is not None and load.group[kind] == group:
                there = there + np.where(load.bucket == bucket, load.weight[kind], 0)
            held |= (there >= lower[group, bucket]) & (there <= upper[group, bucket])
        return held


@dataclass(slots=True, eq=False)
class KeptOccupancy:
    """How many buckets each group may have rows in."""

    loads: tuple[KeptLoad, ...]
    upper: Amounts

    def breakable(self, kind: int) -> bool:
        """Whether a row more of a kind may break it."""
        return bool(self.loads[0].group[kind] != NONE)

    def room(self, kind: int) -> Mask | None:
        """(V,) where a row of the kind opens no bucket too many; None: everywhere."""
        (load,) = self.loads
        group = int(load.group[kind])
        if group == NONE or self._left(group) > 0:
            return None
        opened = load.total[group] > 0
        return np.asarray((load.bucket < 0) | opened[np.maximum(load.bucket, 0)])

    def together(self, kind: int, fits: Amounts, rows: int) -> Mask | None:
        """(V,) values of the buckets where so many rows fit, or the most if that is fewer.

        Asked before the last bucket of a group is opened; None: it is not the last one, or there is one open.
        ``fits`` are the rows that each value has room for.
        """
        (load,) = self.loads
        group = int(load.group[kind])
        if group == NONE or self._left(group) != 1 or bool(load.total[group].any()):
            return None
        inside = load.bucket >= 0
        room = np.bincount(load.bucket[inside], fits[inside], minlength=load.total.shape[1])
        enough = room >= min(rows, int(room.max(initial=0)))
        return np.asarray(~inside | enough[np.maximum(load.bucket, 0)])

    def _left(self, group: int) -> int:
        (load,) = self.loads
        return int(self.upper[group]) - int(np.count_nonzero(load.total[group]))


@dataclass(slots=True, eq=False)
class KeptSkew:
    """How far what a bucket has may be above the least."""

    loads: tuple[KeptLoad, ...]
    skew: Skew

    def breakable(self, kind: int) -> bool:
        """Whether a row more of a kind may break it."""
        return bool(self.loads[0].group[kind] != NONE)

    def room(self, kind: int) -> Mask | None:
        """(V,) where it holds of the bucket that a row of the kind more comes to; no other one is worse off."""
        (load,) = self.loads
        if load.group[kind] == NONE:
            return None
        after = load.total[0] + load.weight[kind]
        least = np.minimum(after + self.skew.base, _least_of_others(load.total[0] + self.skew.base))
        holds = (after <= self.skew.excused) | (after + self.skew.above <= least)
        return np.asarray((load.bucket < 0) | holds[np.maximum(load.bucket, 0)])


def _least_of_others(height: Amounts) -> Amounts:
    """(buckets,) the least that the others have."""
    others = np.full(len(height), height.min(initial=UNLIMITED))
    if len(height):
        lowest = int(np.argmin(height))
        others[lowest] = np.delete(height, lowest).min(initial=UNLIMITED)
    return others


@dataclass(slots=True, eq=False)
class KeptFollowing:
    """Where those are that others follow, and those that follow; a group is one that is followed."""

    loads: tuple[KeptLoad, KeptLoad]

    @classmethod
    def of(cls, kinds: Kinds, condition: Following) -> KeptFollowing:
        leader = condition.leader[kinds.row]
        leaders = np.unique(condition.leader[condition.leader >= 0])
        values = np.arange(kinds.assignment.values, dtype=np.int32)

        def load(row: Indices) -> KeptLoad:
            at = np.minimum(np.searchsorted(leaders, row), max(0, len(leaders) - 1))
            group = np.where(leaders[at] == row, at, NONE) if len(leaders) else np.full(len(row), NONE)
            total = np.zeros((len(leaders), len(values)), np.int64)
            return KeptLoad(total, values, group.astype(np.int32), np.ones(len(row), np.int64))

        return cls((load(kinds.row), load(leader)))

    def breakable(self, kind: int) -> bool:
        """Whether a row more of a kind may break it."""
        return any(load.group[kind] != NONE for load in self.loads)

    def room(self, kind: int) -> Mask | None:
        """(V,) where those are that it follows, and those that follow it; None: everywhere."""
        lead, follow = self.loads
        good: Mask | None = None
        if follow.group[kind] != NONE:
            good = lead.total[follow.group[kind]] > 0
        if lead.group[kind] != NONE and bool(follow.total[lead.group[kind]].any()):
            there = follow.total[lead.group[kind]] > 0
            good = there if good is None else good & there
        return good


Kept: TypeAlias = KeptEither | KeptOccupancy | KeptSkew | KeptFollowing


class KeptConditions:
    """All that a choice can be made under row by row, with nothing chosen yet.

    There may be thousands, of which one row touches few: what concerns a kind is looked up once.
    """

    def __init__(self, kinds: Kinds) -> None:
        self._all = _conditions(kinds)
        self._loads = [(load, owner) for owner, one in enumerate(self._all) for load in one.loads]
        self._touched: Mask = np.zeros((kinds.number, len(self._loads)), np.bool_)
        """(K, loads)"""
        for place, (load, _) in enumerate(self._loads):
            self._touched[:, place] = load.group != NONE
        self._of_kind: dict[int, tuple[list[Kept], list[KeptLoad]]] = {}

    def breakable(self, kind: int) -> list[Kept]:
        """Those that a row more of a kind may break."""
        return self._concerning(kind)[0]

    def add(self, kind: int, value: int, rows: int) -> None:
        for load in self._concerning(kind)[1]:
            load.add(kind, value, rows)

    def add_all(self, kind: Indices, value: Indices, rows: Amounts) -> None:
        for condition in self._all:
            for load in condition.loads:
                load.add_all(kind, value, rows)

    def _concerning(self, kind: int) -> tuple[list[Kept], list[KeptLoad]]:
        if kind not in self._of_kind:
            touched = [self._loads[place] for place in np.flatnonzero(self._touched[kind]).tolist()]
            owners = [self._all[owner] for owner in dict.fromkeys(owner for _, owner in touched)]
            self._of_kind[kind] = (
                [one for one in owners if one.breakable(kind)],
                [load for load, _ in touched],
            )
        return self._of_kind[kind]


def _conditions(kinds: Kinds) -> list[Kept]:
    found: list[Kept] = []
    for condition in kinds.assignment.conditions:
        if isinstance(condition, Either):
            loads = tuple(KeptLoad.of(kinds, limit.load) for limit in condition.limits)
            found.append(KeptEither(loads, tuple(map(_bounds, condition.limits))))
        elif isinstance(condition, Occupancy):
            found.append(KeptOccupancy((KeptLoad.of(kinds, condition.load),), condition.upper))
        elif isinstance(condition, Skew):
            found.append(KeptSkew((KeptLoad.of(kinds, condition.load),), condition))
        elif isinstance(condition, Following):
            found.append(KeptFollowing.of(kinds, condition))
    return found


def _bounds(limit: Limit) -> tuple[Amounts, Amounts]:
    return bounds_of(limit)
