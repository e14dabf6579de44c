"""Clashes that are seen without a solver: a row that fits nowhere, and more rows than all buckets take together.

What it is not: complete; what it does not see may clash all the same (see ``assignment_clash``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import UNLIMITED, Amounts, Limit, Mask
from mgmt.optimization.demand_model import MOST_CELLS, distinct
from mgmt.optimization.demands import Demand, Demands
from mgmt.optimization.minimal_core import minimal_core

_MOST_WEIGHTS = 200
"""So many of a group's weights are looked at as "of this weight or more"."""
_MOST_SETS = 200
"""So many sets of values that rows may choose from are looked at."""
_MOST_BANS = 50
"""With more bans on rows it is not looked which of them can be left out."""


def fits_nowhere(demands: Demands) -> list[Demand]:
    """What keeps one row from every value, bans and too little room, without a solver; empty if nothing does."""
    bans = demands.all_bans()
    full = [
        Demand(limit.name, place, group, bucket)
        for place, limit in enumerate(demands.limits)
        for group, bucket in np.argwhere(demands.bounds(limit)[1] < _heaviest(limit)[:, None]).tolist()
    ]
    rows = np.flatnonzero(blocked_alone(demands, [*bans, *full]))
    if not len(rows):
        return []
    row = int(rows[0])
    full = [demand for demand in full if demands.limits[demand.source].load.group[row] == demand.group]
    mine = [ban for ban in bans if demands.bans[ban.source].row_class[row] == ban.group]
    mine = minimal_core(mine, lambda some: bool(blocked_alone(demands, [*some, *full])[row]), math.inf)[0]
    left = ~_blocked(demands, mine, rows[:1])[0, :-1]
    blocked = _blocked(demands, full, rows[:1])[0, :-1] & left
    buckets = {
        place: set(demands.limits[place].load.bucket[blocked].tolist())
        for place in range(len(demands.limits))
    }
    return mine + [demand for demand in full if demand.bucket in buckets[demand.source]]


def _heaviest(limit: Limit) -> Amounts:
    """(groups,) the weight of each group's heaviest row."""
    found = np.zeros(limit.load.groups, np.int64)
    inside = limit.load.group >= 0
    np.maximum.at(found, limit.load.group[inside], limit.load.weight[inside])
    return found


def blocked_alone(demands: Demands, core: Sequence[Demand]) -> Mask:
    """(R,) which rows these demands keep from every value, whatever the other rows have."""
    columns = [np.zeros(demands.rows, np.int64)]
    columns.extend(
        demands.bans[place].row_class.astype(np.int64) for place in {d.source for d in core if d.is_ban}
    )
    for place in {demand.source for demand in core if demand.is_limit}:
        load = demands.limits[place].load
        columns.extend((load.group.astype(np.int64), load.weight))
    examples, of_row, _ = distinct(columns)
    if not demands.rows or len(examples) * (demands.values + 1) > MOST_CELLS:
        return np.zeros(demands.rows, np.bool_)
    return np.asarray(_blocked(demands, core, examples).all(axis=1))[of_row]


def _blocked(demands: Demands, core: Sequence[Demand], rows: NDArray[np.intp]) -> Mask:
    """(rows, V + 1) what these demands keep each of some rows from by itself."""
    blocked = np.zeros((len(rows), demands.values + 1), np.bool_)
    blocked[:, -1] = not demands.nullable
    for demand in (demand for demand in core if demand.is_ban):
        ban = demands.bans[demand.source]
        blocked[ban.row_class[rows] == demand.group] |= ban.forbidden[demand.group]
    for place in {demand.source for demand in core if demand.is_limit}:
        load = demands.limits[place].load
        at = tuple(np.array([(d.group, d.bucket) for d in core if d.is_limit and d.source == place]).T)
        room = np.full((load.groups, load.buckets), UNLIMITED, np.int64)
        room[at] = demands.bounds(demands.limits[place])[1][at]
        group, weight = load.group[rows][:, None], load.weight[rows][:, None]
        over = room[np.maximum(group, 0), np.maximum(load.bucket, 0)[None]] < weight
        blocked[:, :-1] |= over & (group >= 0) & (load.bucket >= 0)[None] & (weight > 0)
    return blocked


def too_much_in_all(demands: Demands) -> list[Demand]:
    """The bounds of all buckets that some rows of one group may be in, and the bans that keep them there.

    They clash: together the buckets take less than these rows bring, in amount, or fewer rows: of those of some weight
    or more, each bucket takes only as many as fit.  Empty if there are none.
    """
    choices = Choices.of(demands, demands.all_bans())
    if choices is None:
        return []
    sets, set_of = np.unique(choices.allowed, axis=0, return_inverse=True)
    of_row = set_of.reshape(-1)[choices.of_row]
    for number, allowed in enumerate(sets[:_MOST_SETS]):
        if bool(allowed[-1]):
            continue
        rows = np.flatnonzero(of_row == number)
        for place, limit in enumerate(demands.limits):
            buckets = np.unique(limit.load.bucket[allowed[:-1]])
            if not len(buckets) or buckets[0] < 0:
                continue  # some value is in no bucket and takes everything
            group = _overloaded(demands, limit, rows, buckets)
            if group is not None:
                bounds = [Demand(limit.name, place, group, int(bucket)) for bucket in buckets.tolist()]
                rows = rows[limit.load.group[rows] == group]
                return [*bounds, *_needed_bans(demands, bounds, rows)]
    return []


def _overloaded(
    demands: Demands, limit: Limit, rows: NDArray[np.intp], buckets: NDArray[np.int32]
) -> int | None:
    """A group of which some rows bring more than these buckets take."""
    upper = demands.bounds(limit)[1][:, buckets]
    rows = rows[limit.load.group[rows] >= 0]
    group_of, weight_of = limit.load.group[rows], limit.load.weight[rows]
    brought = np.zeros(limit.load.groups, np.float64)
    np.add.at(brought, group_of, weight_of)
    # In floating point only to see where it is worth an exact sum.
    short = brought * (1 + 1e-9) > upper.sum(axis=1, dtype=np.float64)
    crowded = np.bincount(group_of, minlength=limit.load.groups) > len(buckets)
    for group in np.flatnonzero(short | crowded).tolist():
        weights = weight_of[group_of == group]
        if sum(weights.tolist()) > sum(upper[group].tolist()) or _too_many(weights, upper[group]):
            return int(group)
    return None


def _needed_bans(demands: Demands, bounds: Sequence[Demand], rows: NDArray[np.intp]) -> list[Demand]:
    """Of the bans on some rows those without which too few of them must be in these buckets."""
    limit = demands.limits[bounds[0].source]
    buckets = np.array([demand.bucket for demand in bounds], np.int32)
    inside = np.isin(limit.load.bucket, buckets)
    mine = [
        demand
        for demand in demands.all_bans()
        if bool((demands.bans[demand.source].row_class[rows] == demand.group).any())
    ]
    if len(mine) > _MOST_BANS:
        return mine

    def keep_them(some: Sequence[Demand]) -> bool | None:
        choices = Choices.of(demands, some)
        if choices is None:
            return None
        held = rows[choices.captive(inside)[choices.of_row[rows]]]
        return _overloaded(demands, limit, held, buckets) is not None

    return minimal_core(mine, keep_them, math.inf)[0]


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """What rows may choose under some bans; rows that may choose alike are one pattern."""

    of_row: NDArray[np.intp]
    """(R,) the pattern of each."""
    allowed: Mask
    """(patterns, V + 1); the last is to have none."""

    @classmethod
    def of(cls, demands: Demands, bans: Sequence[Demand]) -> Choices | None:
        """None where there are too many patterns to look at."""
        columns = [np.zeros(demands.rows, np.int64)]
        columns.extend(ban.row_class.astype(np.int64) for ban in demands.bans)
        examples, of_row, _ = distinct(columns)
        if not demands.rows or len(examples) * (demands.values + 1) > MOST_CELLS:
            return None
        allowed = np.ones((len(examples), demands.values + 1), np.bool_)
        allowed[:, -1] = demands.nullable
        for demand in bans:
            ban = demands.bans[demand.source]
            allowed[ban.row_class[examples] == demand.group] &= ~ban.forbidden[demand.group]
        return cls(of_row, allowed)

    def captive(self, inside: Mask) -> Mask:
        """(patterns,) which must have one of these (V,) values."""
        return np.asarray(~(self.allowed & ~np.append(inside, False)).any(axis=1))


def alike_demands(demands: Demands, core: Sequence[Demand]) -> dict[Demand, tuple[object, ...]]:
    """Per demand of a core its kind: with two buckets of a limit exchanged, demands of one kind are one another's.

    The core asks the same of both buckets, and their values are alike in all else that it asks.
    """
    kinds: dict[Demand, tuple[object, ...]] = {demand: (demand,) for demand in core}
    for place in {demand.source for demand in core if demand.is_limit}:
        mine = [demand for demand in core if demand.is_limit and demand.source == place]
        limit = demands.limits[place]
        lower, upper = demands.bounds(limit)
        asked: dict[int, list[tuple[int, int, int]]] = {}
        for one in sorted(mine, key=lambda demand: demand.group):
            at = (one.group, one.bucket)
            asked.setdefault(one.bucket, []).append((one.group, int(lower[at]), int(upper[at])))
        sort_of = _sorts_of_values(demands, [demand for demand in core if demand not in set(mine)])
        held: dict[int, list[int]] = {bucket: [] for bucket in asked}
        for bucket, sort in zip(limit.load.bucket.tolist(), sort_of.tolist(), strict=True):
            if bucket in held:
                held[bucket].append(sort)
        for one in mine:
            kinds[one] = (place, one.group, *asked[one.bucket], *sorted(held[one.bucket]))
    return kinds


def _sorts_of_values(demands: Demands, some: Sequence[Demand]) -> NDArray[np.intp]:
    """(V,) the same number for values that these demands do not tell apart."""
    columns = [np.zeros(demands.values, np.int64)]
    columns.extend(
        load.bucket.astype(np.int64)
        for load in {
            id(load): load for load in (demands.load(one) for one in some if not one.is_ban)
        }.values()
    )
    for place in {demand.source for demand in some if demand.is_ban}:
        classes = [demand.group for demand in some if demand.is_ban and demand.source == place]
        patterns = np.unique(demands.bans[place].forbidden[classes, :-1], axis=1, return_inverse=True)[1]
        columns.append(patterns.reshape(-1))
    return distinct(columns)[1]


def anywhere_alike(demands: Demands, core: Sequence[Demand]) -> bool:
    """Whether rows that must be in the bounded buckets of a core may be in each of them.

    Then no bound can be left out: the bucket would take all of them.  The bounds are of one group.
    """
    bounds = [demand for demand in core if not demand.is_ban]
    limit = demands.limits[bounds[0].source]
    choices = Choices.of(demands, [demand for demand in core if demand.is_ban])
    if choices is None:
        return False
    rows = np.flatnonzero(limit.load.group == bounds[0].group)
    patterns = np.unique(choices.of_row[rows])
    inside = np.isin(limit.load.bucket, [demand.bucket for demand in bounds])
    held = patterns[choices.captive(inside)[patterns]]
    reached = np.array(
        [
            choices.allowed[held][:, :-1][:, limit.load.bucket == demand.bucket].any(axis=1)
            for demand in bounds
        ]
    )
    return bool(reached.all())


def _too_many(weights: Amounts, upper: Amounts) -> bool:
    """Whether there are more rows of some weight or more than buckets can take of these, each the lightest of them."""
    ordered = np.sort(weights[weights > 0])
    if float(ordered.sum(dtype=np.float64)) >= float(UNLIMITED):
        return False
    for start in np.unique(ordered, return_index=True)[1][:_MOST_WEIGHTS].tolist():
        filled = np.cumsum(ordered[start:])
        if int(np.searchsorted(filled, upper, side="right").sum()) < len(filled):
            return True
    return False


def shortfall(demands: Demands, some: Sequence[Demand], wanted: Sequence[Demand]) -> tuple[int, int] | None:
    """What rows must put into the buckets of ``wanted`` at least, given ``some``, and what those allow.

    None when it is not too much, or cannot be added up.
    """
    if not wanted or not all(demand.is_limit for demand in wanted):
        return None
    places = {demand.source for demand in wanted}
    if len(places) != 1:
        return None
    limit = demands.limits[places.pop()]
    _, upper = demands.bounds(limit)
    allowed = sum(int(upper[demand.group, demand.bucket]) for demand in wanted)
    if allowed >= UNLIMITED:
        return None
    choice = np.ones((demands.rows, demands.values + 1), np.bool_)
    choice[:, -1] = demands.nullable
    for demand in some:
        if demand.is_ban:
            ban = demands.bans[demand.source]
            choice[ban.row_class == demand.group] &= ~ban.forbidden[demand.group]
    inside = np.zeros((limit.load.groups, demands.values + 1), np.bool_)
    for demand in wanted:
        inside[demand.group, :-1] |= limit.load.bucket == demand.bucket
    counted = np.flatnonzero(limit.load.group >= 0)
    must = ~(choice[counted] & ~inside[limit.load.group[counted]]).any(axis=1)
    needed = int(limit.load.weight[counted[must]].sum())
    return (needed, allowed) if needed > allowed else None
