"""Clashes that are seen without a solver: a row that fits nowhere, and more rows than all buckets take together.

What it is not: complete; what it does not see may clash all the same (see ``assignment_core``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import UNLIMITED, Amounts, Limit, Mask
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.infeasibility.constraint_instances import ConstraintSet, Instance
from mgmt.optimization.infeasibility.count_problem import MOST_CELLS, distinct, value_patterns
from mgmt.optimization.infeasibility.deletion_filter import minimal_core

_MOST_WEIGHTS = 200
"""So many of a group's weights are looked at as "of this weight or more"."""
_MOST_SETS = 200
"""So many sets of values that rows may choose from are looked at."""
_MOST_BANS = 50
"""With more bans on rows it is not looked which of them can be left out."""


def fits_nowhere(constraints: ConstraintSet, deadline: Deadline) -> list[Instance]:
    """What keeps one row from every value, bans and too little room, without a solver; empty if nothing does."""
    bans = constraints.all_bans()
    full = [
        Instance(limit.name, place, group, bucket)
        for place, limit in enumerate(constraints.limits)
        for group, bucket in np.argwhere(limit.bounds[1] < _heaviest(limit)[:, None]).tolist()
    ]
    rows = np.flatnonzero(blocked_alone(constraints, [*bans, *full]))
    if not len(rows):
        return []
    row = int(rows[0])
    full = [
        instance for instance in full if constraints.limits[instance.source].load.group[row] == instance.group
    ]
    mine = [ban for ban in bans if constraints.bans[ban.source].row_class[row] == ban.group]
    mine = minimal_core(mine, lambda some: bool(blocked_alone(constraints, [*some, *full])[row]), deadline)[0]
    left = ~_blocked(constraints, mine, rows[:1])[0, :-1]
    blocked = _blocked(constraints, full, rows[:1])[0, :-1] & left
    buckets = {
        place: set(constraints.limits[place].load.bucket[blocked].tolist())
        for place in range(len(constraints.limits))
    }
    return mine + [instance for instance in full if instance.bucket in buckets[instance.source]]


def _heaviest(limit: Limit) -> Amounts:
    """(groups,) the weight of each group's heaviest row."""
    found = np.zeros(limit.load.groups, np.int64)
    inside = limit.load.group >= 0
    np.maximum.at(found, limit.load.group[inside], limit.load.weight[inside])
    return found


def blocked_alone(constraints: ConstraintSet, core: Sequence[Instance]) -> Mask:
    """(R,) which rows these instances keep from every value, whatever the other rows have."""
    columns = [constraints.row_class.astype(np.int64)]
    columns.extend(
        constraints.bans[place].row_class.astype(np.int64) for place in {d.source for d in core if d.is_ban}
    )
    for place in {instance.source for instance in core if instance.is_limit}:
        load = constraints.limits[place].load
        columns.extend((load.group.astype(np.int64), load.weight))
    examples, of_row, _ = distinct(columns)
    if not constraints.rows or len(examples) * (constraints.values + 1) > MOST_CELLS:
        return np.zeros(constraints.rows, np.bool_)
    return np.asarray(_blocked(constraints, core, examples).all(axis=1))[of_row]


def _blocked(constraints: ConstraintSet, core: Sequence[Instance], rows: NDArray[np.intp]) -> Mask:
    """(rows, V + 1) what these instances keep each of some rows from by itself."""
    blocked = ~constraints.allowed[constraints.row_class[rows]]
    for instance in (instance for instance in core if instance.is_ban):
        ban = constraints.bans[instance.source]
        blocked[ban.row_class[rows] == instance.group] |= ban.forbidden[instance.group]
    for place in {instance.source for instance in core if instance.is_limit}:
        load = constraints.limits[place].load
        at = tuple(np.array([(d.group, d.bucket) for d in core if d.is_limit and d.source == place]).T)
        room = np.full((load.groups, load.buckets), UNLIMITED, np.int64)
        room[at] = constraints.limits[place].bounds[1][at]
        group, weight = load.group[rows][:, None], load.weight[rows][:, None]
        over = room[np.maximum(group, 0), np.maximum(load.bucket, 0)[None]] < weight
        blocked[:, :-1] |= over & (group >= 0) & (load.bucket >= 0)[None] & (weight > 0)
    return blocked


def too_much_in_all(constraints: ConstraintSet, deadline: Deadline) -> list[Instance]:
    """The bounds of all buckets that some rows of one group may be in, and the bans that keep them there.

    They clash: together the buckets take less than these rows bring, in amount, or fewer rows: of those of some weight
    or more, each bucket takes only as many as fit.  Empty if there are none.
    """
    choices = Choices.of(constraints, constraints.all_bans())
    if choices is None:
        return []
    sets, set_of = np.unique(choices.allowed, axis=0, return_inverse=True)
    of_row = set_of.reshape(-1)[choices.of_row]
    for number, allowed in enumerate(sets[:_MOST_SETS]):
        deadline.check()
        if bool(allowed[-1]):
            continue
        rows = np.flatnonzero(of_row == number)
        for place, limit in enumerate(constraints.limits):
            buckets = np.unique(limit.load.bucket[allowed[:-1]])
            if not len(buckets) or buckets[0] < 0:
                continue  # some value is in no bucket and takes everything
            group = _overloaded(constraints, limit, rows, buckets)
            if group is not None:
                bounds = [Instance(limit.name, place, group, int(bucket)) for bucket in buckets.tolist()]
                rows = rows[limit.load.group[rows] == group]
                return [*bounds, *_needed_bans(constraints, bounds, rows, deadline)]
    return []


def _overloaded(
    constraints: ConstraintSet, limit: Limit, rows: NDArray[np.intp], buckets: NDArray[np.int32]
) -> int | None:
    """A group of which some rows bring more than these buckets take."""
    upper = limit.bounds[1][:, buckets]
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


def _needed_bans(
    constraints: ConstraintSet, bounds: Sequence[Instance], rows: NDArray[np.intp], deadline: Deadline
) -> list[Instance]:
    """Of the bans on some rows those without which too few of them must be in these buckets."""
    limit = constraints.limits[bounds[0].source]
    buckets = np.array([instance.bucket for instance in bounds], np.int32)
    inside = np.isin(limit.load.bucket, buckets)
    mine = [
        instance
        for instance in constraints.all_bans()
        if bool((constraints.bans[instance.source].row_class[rows] == instance.group).any())
    ]
    if len(mine) > _MOST_BANS:
        return mine

    def keep_them(some: Sequence[Instance]) -> bool | None:
        choices = Choices.of(constraints, some)
        if choices is None:
            return None
        held = rows[choices.captive(inside)[choices.of_row[rows]]]
        return _overloaded(constraints, limit, held, buckets) is not None

    return minimal_core(mine, keep_them, deadline)[0]


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """What rows may choose under some bans; rows that may choose alike are one pattern."""

    of_row: NDArray[np.intp]
    """(R,) the pattern of each."""
    allowed: Mask
    """(patterns, V + 1); the last is to have none."""

    @classmethod
    def of(cls, constraints: ConstraintSet, bans: Sequence[Instance]) -> Choices | None:
        """None where there are too many patterns to look at."""
        columns = [constraints.row_class.astype(np.int64)]
        columns.extend(ban.row_class.astype(np.int64) for ban in constraints.bans)
        examples, of_row, _ = distinct(columns)
        if not constraints.rows or len(examples) * (constraints.values + 1) > MOST_CELLS:
            return None
        allowed = constraints.allowed[constraints.row_class[examples]]
        for instance in bans:
            ban = constraints.bans[instance.source]
            allowed[ban.row_class[examples] == instance.group] &= ~ban.forbidden[instance.group]
        return cls(of_row, allowed)

    def captive(self, inside: Mask) -> Mask:
        """(patterns,) which must have one of these (V,) values."""
        return np.asarray(~(self.allowed & ~np.append(inside, False)).any(axis=1))


def alike_constraints(
    constraints: ConstraintSet, core: Sequence[Instance]
) -> dict[Instance, tuple[object, ...]]:
    """Per instance of a core its kind: with two buckets of a limit exchanged, those of one kind are one another's.

    The core asks the same of both buckets, and their values are alike in all else that it asks.
    """
    kinds: dict[Instance, tuple[object, ...]] = {instance: (instance,) for instance in core}
    for place in {instance.source for instance in core if instance.is_limit}:
        mine = [instance for instance in core if instance.is_limit and instance.source == place]
        limit = constraints.limits[place]
        lower, upper = limit.bounds
        asked: dict[int, list[tuple[int, int, int]]] = {}
        for one in sorted(mine, key=lambda instance: instance.group):
            at = (one.group, one.bucket)
            asked.setdefault(one.bucket, []).append((one.group, int(lower[at]), int(upper[at])))
        sort_of = _sorts_of_values(constraints, [instance for instance in core if instance not in set(mine)])
        held: dict[int, list[int]] = {bucket: [] for bucket in asked}
        for bucket, sort in zip(limit.load.bucket.tolist(), sort_of.tolist(), strict=True):
            if bucket in held:
                held[bucket].append(sort)
        for one in mine:
            kinds[one] = (place, one.group, *asked[one.bucket], *sorted(held[one.bucket]))
    return kinds


def _sorts_of_values(constraints: ConstraintSet, some: Sequence[Instance]) -> NDArray[np.intp]:
    """(V,) the same number for values that these instances do not tell apart."""
    columns = [value_patterns(constraints.allowed)]
    columns.extend(
        load.bucket.astype(np.int64)
        for load in {
            id(load): load for load in (constraints.load(one) for one in some if not one.is_ban)
        }.values()
    )
    for place in {instance.source for instance in some if instance.is_ban}:
        classes = [instance.group for instance in some if instance.is_ban and instance.source == place]
        columns.append(value_patterns(constraints.bans[place].forbidden[classes]))
    return distinct(columns)[1]


def anywhere_alike(constraints: ConstraintSet, core: Sequence[Instance]) -> bool:
    """Whether rows that must be in the bounded buckets of a core may be in each of them.

    Then no bound can be left out: the bucket would take all of them.  The bounds are of one group.
    """
    bounds = [instance for instance in core if not instance.is_ban]
    limit = constraints.limits[bounds[0].source]
    choices = Choices.of(constraints, [instance for instance in core if instance.is_ban])
    if choices is None:
        return False
    rows = np.flatnonzero(limit.load.group == bounds[0].group)
    patterns = np.unique(choices.of_row[rows])
    inside = np.isin(limit.load.bucket, [instance.bucket for instance in bounds])
    held = patterns[choices.captive(inside)[patterns]]
    reached = np.array(
        [
            choices.allowed[held][:, :-1][:, limit.load.bucket == instance.bucket].any(axis=1)
            for instance in bounds
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


def shortfall(
    constraints: ConstraintSet, some: Sequence[Instance], wanted: Sequence[Instance]
) -> tuple[int, int] | None:
    """What rows must put into the buckets of ``wanted`` at least, given ``some``, and what those allow.

    None when it is not too much, or cannot be added up.
    """
    if not wanted or not all(instance.is_limit for instance in wanted):
        return None
    places = {instance.source for instance in wanted}
    if len(places) != 1:
        return None
    limit = constraints.limits[places.pop()]
    _, upper = limit.bounds
    allowed = sum(int(upper[instance.group, instance.bucket]) for instance in wanted)
    if allowed >= UNLIMITED:
        return None
    choice = constraints.allowed[constraints.row_class]
    for instance in some:
        if instance.is_ban:
            ban = constraints.bans[instance.source]
            choice[ban.row_class == instance.group] &= ~ban.forbidden[instance.group]
    inside = np.zeros((limit.load.groups, constraints.values + 1), np.bool_)
    for instance in wanted:
        inside[instance.group, :-1] |= limit.load.bucket == instance.bucket
    counted = np.flatnonzero(limit.load.group >= 0)
    must = ~(choice[counted] & ~inside[limit.load.group[counted]]).any(axis=1)
    needed = int(limit.load.weight[counted[must]].sum())
    return (needed, allowed) if needed > allowed else None
