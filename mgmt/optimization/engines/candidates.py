"""Candidates: the few values of each kind among which an optimum surely is.

With R rows, keep for each kind the R cheapest values that one of its rows fits on alone.  In any choice the other
rows touch at most R - 1 values, so one of these is untouched, no dearer, and has room: the row moves there.  Each
move leaves fewer rows elsewhere, so it ends.  That holds when

- each limit is per value (each bucket is one value) and a row that leaves breaks nothing: values with a lower limit
  are always kept.  For limits and costs on buckets of several values, the R cheapest of each combination of buckets
  are kept: a move within it changes none of these loads;
- each cost of a value's own load is affine, or a sum that is convex (then leaving saves at least what coming alone
  costs), or a peak that does not fall with the load (then nothing rises but where the row comes alone).

Of conditions besides limits, those on how many rows move are kept by such moves, and those on buckets of several
values; with others all values are candidates.

"Cheaper" compares all tiers.  A peak is compared for itself, beside the sums: with several measures a value is dropped
only when R others are at least as good in all of them.  Today's values are always kept.

What it is not: it does not look for a choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import (
    NONE,
    UNLIMITED,
    Amounts,
    Assignment,
    Condition,
    Either,
    Indices,
    Load,
    LoadCost,
    Mask,
    MoveLimit,
)
from mgmt.optimization.bucketwise import of_buckets, sorts_of
from mgmt.optimization.engines.cells import all_candidates, bounds_of
from mgmt.optimization.engines.kinds import Kinds, loads_of
from mgmt.optimization.engines.load_costs import Affine, UnsuitableError, sampled_shape

_BLOCK = 512
_MOST_COMPARISONS = 20_000_000
_BLOCK_OF_KINDS = 2**18
"""Of places that a cost is asked for at a time, for several kinds together."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Kinds with values, ordered by kind."""

    kind: Indices
    value: Indices
    note: str


def candidates_of(kinds: Kinds) -> Candidates:
    """Candidates that are enough for an optimum, and in words why; all values where no rule says so."""
    assignment = kinds.assignment
    every = int(assignment.allowed.sum(axis=1)[assignment.row_class[kinds.row]].sum())
    if assignment.rows >= assignment.values:
        return _all(kinds, "every allowed value is a candidate: there are no more values than rows")
    own = [load for load in loads_of(assignment) if _of_single_values(load)]
    if not all(_kept_by_moves(condition, own) for condition in assignment.conditions):
        return _all(
            kinds, "every allowed value is a candidate: there are conditions on loads of single values"
        )
    zones = _zones(assignment, own)
    if assignment.rows * (int(zones.max(initial=0)) + 1) >= assignment.values:
        return _all(
            kinds, "every allowed value is a candidate: limits or costs are on buckets of many values"
        )
    try:
        measures = _Measures(kinds, own)
    except UnsuitableError as error:
        return _all(kinds, f"every allowed value is a candidate: {error}")
    rooms = _Rooms(kinds, own)
    always = _with_lower_limits(assignment, own)
    today = np.split(kinds.stays.value, np.searchsorted(kinds.stays.kind, np.arange(1, kinds.number)))
    values = []
    for kind in range(kinds.number):
        fits = np.flatnonzero(kinds.allowed(kind) & rooms.fits(kind)).astype(np.int32)
        keeps = always & kinds.allowed(kind)
        if len(fits):
            kept = _cheapest(zones[fits], measures.of(kind, fits), assignment.rows)
            keeps[fits[kept]] = True
        stay = today[kind][today[kind] >= 0] if len(today) else np.zeros(0, np.int32)
        keeps[stay] |= kinds.allowed(kind)[stay]
        values.append(np.flatnonzero(keeps))
    kind_of = np.repeat(np.arange(kinds.number), [len(kept) for kept in values])
    value = np.concatenate(values)
    return Candidates(
        kind_of.astype(np.int32),
        value.astype(np.int32),
        f"{len(value)} of {every} values are candidates: for each kind the {assignment.rows} cheapest with room"
        + (" in each combination of buckets" if int(zones.max(initial=0)) else ""),
    )


def _kept_by_moves(condition: Condition, own: list[Load]) -> bool:
    """Whether a row that goes to a candidate can not break a condition.

    Where rows may not move freely it can not: today's values are candidates, so the row has moved already.
    """
    if isinstance(condition, MoveLimit):
        return True
    loads = [limit.load for limit in condition.limits] if isinstance(condition, Either) else [condition.load]
    return not any(load is single for load in loads for single in own)


def _all(kinds: Kinds, note: str) -> Candidates:
    return Candidates(*all_candidates(kinds), note)


def _of_single_values(load: Load) -> bool:
    """Whether no two values share a bucket."""
    used = load.bucket[load.bucket >= 0]
    return len(np.unique(used)) == len(used)


def _zones(assignment: Assignment, own: list[Load]) -> Indices:
    """(V,) a number for each combination of buckets of several values."""
    single = {id(load) for load in own}
    zone = np.zeros(assignment.values, np.int64)
    for load in loads_of(assignment):
        if id(load) not in single:
            _, bucket = np.unique(load.bucket, return_inverse=True)
            _, zone = np.unique(zone * (int(bucket.max(initial=0)) + 1) + bucket, return_inverse=True)
    return zone.astype(np.int32)


def _with_lower_limits(assignment: Assignment, own: list[Load]) -> Mask:
    """(V,) values that want at least something."""
    single = {id(load) for load in own}
    wants = np.zeros(assignment.values, np.bool_)
    for limit in assignment.limits:
        if id(limit.load) in single:
            lower, _ = bounds_of(limit)
            buckets = np.asarray((lower > 0).any(axis=0))
            wants |= (limit.load.bucket >= 0) & buckets[limit.load.bucket]
    return wants


class _Rooms:
    """Where a row keeps the upper limits of single values when nothing else is there."""

    def __init__(self, kinds: Kinds, own: list[Load]) -> None:
        single = {id(load) for load in own}
        self._kinds = kinds
        self._limits = [limit for limit in kinds.assignment.limits if id(limit.load) in single]
        self._upper: dict[tuple[int, int], Amounts] = {}

    def fits(self, kind: int) -> Mask:
        """(V,) where it does for a row of a kind."""
        fits = np.ones(self._kinds.assignment.values, np.bool_)
        row = self._kinds.row[kind]
        for number, limit in enumerate(self._limits):
            group, weight = int(limit.load.group[row]), limit.load.weight[row]
            if group >= 0 and weight > 0:
                fits &= self._of_group(number, group) >= weight
        return fits

    def _of_group(self, number: int, group: int) -> Amounts:
        """(V,) the limits of a group, value by value."""
        known = self._upper.get((number, group))
        if known is None:
            limit = self._limits[number]
            bucket = limit.load.bucket
            upper = bounds_of(limit)[1][group]
            known = self._upper[number, group] = np.where(bucket < 0, UNLIMITED, upper[bucket])
        return known


class _Measures:
    """What values are compared by: all sums as one rank, tier by tier, and each peak."""

    def __init__(self, kinds: Kinds, own: list[Load]) -> None:
        """Raises UnsuitableError when a cost is of no kind that the rule holds for."""
        single = {id(load) for load in own}
        self._kinds = kinds
        self._sums: list[list[_Alone]] = []
        self._peaks: list[_Alone] = []
        for tier in kinds.assignment.tiers:
            self._sums.append([])
            for cost in tier.costs:
                if not isinstance(cost, LoadCost) or not cost.weight:
                    continue
                if all(id(load) not in single for load in cost.loads):
                    continue  # a move within a combination of buckets changes nothing here
                alone = self._comparable(cost, single)
                if alone is None:
                    raise UnsuitableError(
                        f"how {cost.name} grows with the load does not let values be compared"
                    )
                (self._peaks if cost.peak else self._sums[-1]).append(alone)

    def _comparable(self, cost: LoadCost, single: set[int]) -> _Alone | None:
        if any(id(load) not in single for load in cost.loads) or not _of_one_place(cost):
            return None
        alone = _Alone(self._kinds, cost)
        if self._kinds.number * alone.places > _MOST_COMPARISONS:
            return None
        shape = sampled_shape(self._kinds, cost)
        if cost.peak:
            growing = (
                all(bool((slope >= 0).all()) for slope in shape.slopes)
                if isinstance(shape, Affine)
                else shape.growing()
            )
            return alone if cost.weight > 0 and growing else None
        return alone if isinstance(shape, Affine) or (cost.weight > 0 and shape.convex()) else None

    def of(self, kind: int, values: Indices) -> list[Amounts]:
        """The measures of each value for a row of a kind; lower is better."""
        kinds = self._kinds
        sums = kinds.coming(kind)[:, 1:]
        whole = np.flatnonzero((kinds.stays.kind == kind) & (kinds.stays.count == kinds.count[kind]))
        for value in np.unique(kinds.stays.value[whole]).tolist():
            if value >= 0:
                sums[:, value] -= kinds.moving[:, kind]
        sums = sums[:, values]
        for number, costs in enumerate(self._sums):
            for cost in costs:
                sums[number] += cost.weight * cost.more(kind, values)
        varying = [tier for tier in sums if len(tier) and bool((tier != tier[0]).any())]
        measures = [cost.height(kind, values) for cost in self._peaks]
        if len(varying) > 1:
            measures.append(_rank(varying))
        elif varying or not measures:
            measures.append(varying[0] if varying else np.zeros(len(values), np.int64))
        return measures


class _Alone:
    """The cost of each value with one row of a kind there, or none, and nothing else."""

    def __init__(self, kinds: Kinds, cost: LoadCost) -> None:
        self.weight = cost.weight
        self._kinds, self._loads = kinds, cost.loads
        load = cost.loads[0]
        _, example, sort = np.unique(
            sorts_of(cost.cost, load.buckets), return_index=True, return_inverse=True
        )
        self._function = of_buckets(cost.cost, example.astype(np.int32), load.buckets)
        self._sorts = len(example)
        self._sort_of_value = sort[load.bucket]  # of any sort where a value is in no bucket
        self._group = _groups_of(kinds, cost)
        self._empty = self._ask(np.zeros(0, np.intp))[0]
        self._asked: tuple[range, Amounts] = (range(0), np.zeros((0, self._sorts), np.int64))

    @property
    def places(self) -> int:
        """How many different places there are."""
        return self._loads[0].groups * self._sorts

    def more(self, kind: int, values: Indices) -> Amounts:
        """(n,) what a row of a kind adds to the cost of each value."""
        group = self._group[kind]
        if group == NONE:
            return np.zeros(len(values), np.int64)
        paid = self._with_row(kind) - self._empty[group]
        return np.where(self._loads[0].bucket[values] >= 0, paid[self._sort_of_value[values]], 0)

    def height(self, kind: int, values: Indices) -> Amounts:
        """(n,) what each value comes to with a row of a kind; very little where it adds to no load."""
        low = -(2**62)
        if self._group[kind] == NONE:
            return np.full(len(values), low, np.int64)
        paid = self._with_row(kind)[self._sort_of_value[values]]
        return np.where(self._loads[0].bucket[values] >= 0, paid, low)

    def _with_row(self, kind: int) -> Amounts:
        """(sorts,); asked for some kinds at a time."""
        kinds, paid = self._asked
        if kind not in kinds:
            block = max(1, _BLOCK_OF_KINDS // max(1, self.places))
            kinds = range(kind, min(kind + block, self._kinds.number))
            whole = self._ask(np.arange(kinds.start, kinds.stop))
            paid = whole[np.arange(len(kinds)), np.maximum(self._group[kinds.start : kinds.stop], 0)]
            self._asked = kinds, paid
        return np.asarray(paid[kind - kinds.start])

    def _ask(self, of: NDArray[np.intp]) -> Amounts:
        """(n, groups, sorts) with a row of each of these kinds; with no kinds, once with nothing."""
        loads = []
        for load in self._loads:
            alone = np.zeros((max(1, len(of)), load.groups, self._sorts), np.int64)
            group = self._kinds.group(load)[of]
            adds = np.flatnonzero(group != NONE)
            alone[adds, group[adds]] = self._kinds.weight(load)[of[adds], None]
            loads.append(alone)
        return np.broadcast_to(self._function(tuple(loads)), loads[0].shape)


def _groups_of(kinds: Kinds, cost: LoadCost) -> Indices:
    """(K,) the group that each kind adds to in the loads of a cost of one place."""
    group = np.full(kinds.number, NONE, np.int32)
    for load in cost.loads:
        group = np.maximum(group, kinds.group(load))
    return group


def _of_one_place(cost: LoadCost) -> bool:
    """Whether a row adds to all loads of a cost at one place."""
    group = np.full(len(cost.loads[0].group), NONE, np.int32)
    for load in cost.loads:
        if not np.array_equal(load.bucket, cost.loads[0].bucket):
            return False
        adds = (load.group >= 0) & (load.weight > 0)
        if bool((adds & (group >= 0) & (group != load.group)).any()):
            return False
        group = np.where(adds, load.group, group).astype(np.int32)
    return True


def _rank(tiers: list[Amounts]) -> Amounts:
    """Equal numbers for values that are equal in all tiers, and the order of the first that differs."""
    order = np.lexsort(tiers[::-1])
    differs = np.zeros(len(order), np.bool_)
    for tier in tiers:
        differs[1:] |= tier[order][1:] != tier[order][:-1]
    rank = np.empty(len(order), np.int64)
    rank[order] = np.cumsum(differs)
    return rank


def _cheapest(zone: Indices, measures: list[Amounts], rows: int) -> Indices:
    """Indices of values that fewer than ``rows`` others of their zone are at least as good as, in all measures."""
    if len(zone) <= rows:
        return np.arange(len(zone), dtype=np.int32)
    kept = [
        members[_undominated([measure[members] for measure in measures], rows)] for members in _members(zone)
    ]
    return np.concatenate(kept).astype(np.int32)


def _members(zone: Indices) -> list[Indices]:
    if int(zone.max()) == int(zone.min()):
        return [np.arange(len(zone), dtype=np.int32)]
    order = np.argsort(zone, kind="stable").astype(np.int32)
    return np.split(order, np.flatnonzero(np.diff(zone[order])) + 1)


def _undominated(measures: list[Amounts], rows: int) -> Indices:
    """Indices that fewer than ``rows`` others are before in a fixed order and at least as good as, or a few more."""
    number = len(measures[0])
    if len(measures) == 1:
        return _least(measures[0], rows)
    order = np.lexsort(measures).astype(np.int32)
    if number <= rows:
        return order
    if len(measures) == 2:
        return _by_two(measures[0][order], order, rows)
    pool = order[: max(rows, min(number, 4 * rows, _MOST_COMPARISONS // number))]
    kept = [pool]
    for block in np.array_split(order[len(pool) :], max(1, (number - len(pool)) // _BLOCK)):
        as_good = np.ones((len(block), len(pool)), np.bool_)
        for measure in measures:
            as_good &= measure[pool][None, :] <= measure[block][:, None]
        kept.append(block[as_good.sum(axis=1) < rows])
    return np.concatenate(kept).astype(np.int32)


def _least(measure: Amounts, rows: int) -> Indices:
    """Indices of the lowest, the first ones of equals."""
    if len(measure) <= rows:
        return np.arange(len(measure), dtype=np.int32)
    highest = np.partition(measure, rows - 1)[rows - 1]
    below = np.flatnonzero(measure < highest)
    equal = np.flatnonzero(measure == highest)[: rows - len(below)]
    return np.concatenate((below, equal)).astype(np.int32)


def _by_two(first: Amounts, order: Indices, rows: int) -> Indices:
    """The order is by the second measure; ``first`` is the first one in that order."""
    kept = [order[:rows]]
    best = np.sort(first[:rows])
    for begin in range(rows, len(order), _BLOCK):
        block = first[begin : begin + _BLOCK]
        # Values after `rows` others that are as good in both are dropped; within a block not all are seen.
        kept.append(order[begin : begin + _BLOCK][block < best[-1]])
        best = np.sort(np.concatenate((best, block)))[:rows]
    return np.concatenate(kept).astype(np.int32)
