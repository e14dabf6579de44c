"""Candidates: the few values of each class among which an optimum surely is.

With R rows, keep for each class the R cheapest values that one of its rows fits on alone.  In any choice the other
rows touch at most R - 1 values, so one of these is untouched, no dearer, and has room: the row moves there.  Each
move leaves fewer rows elsewhere, so it ends.  That holds when

- each limit is per value (each bucket is one value) and a row that leaves breaks nothing: values with a lower limit
  are always kept.  For limits and costs on buckets of several values, the R cheapest of each combination of buckets
  are kept: a move within it changes none of these loads;
- each cost of a value's own load is affine, or a sum that is convex (then leaving saves at least what coming alone
  costs), or a peak that does not fall with the load (then nothing rises but where the row comes alone).

Of conditions besides limits, those on how many rows move are kept by such moves, and those on buckets of several
values.  Of rows that follow others, and of those that are followed, all values are candidates; with conditions of other
kinds of all rows.

"Cheaper" compares all tiers.  A peak is compared for itself, beside the sums: with several criteria a value is dropped
only when R others are at least as good in all of them (dominance).  Today's values are always kept.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from mgmt.optimization.assignment import (
    NONE,
    UNLIMITED,
    Amounts,
    Assignment,
    Colocation,
    Condition,
    Indices,
    Load,
    LoadCost,
    Mask,
    RowCost,
)
from mgmt.optimization.deadline import NEVER, Deadline
from mgmt.optimization.engines.delta_evaluation.states import LOW, one_place
from mgmt.optimization.engines.model.cells import all_candidates
from mgmt.optimization.engines.model.cost_functions import Affine, Shape, UnsuitableError, sampled_shape
from mgmt.optimization.engines.model.equivalence import EquivalenceClasses
from mgmt.optimization.load_functions import tree_of

_BLOCK = 512
_MOST_COMPARISONS = 20_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Kinds with values, ordered by class."""

    class_: Indices
    value: Indices
    note: str


def candidates_of(classes: EquivalenceClasses, deadline: Deadline = NEVER) -> Candidates:
    """Candidates that are enough for an optimum, and in words why; all values where no rule says so.

    Raises TimeoutError at the deadline.
    """
    assignment = classes.assignment
    every = int(assignment.allowed.sum(axis=1)[assignment.row_class[classes.representative]].sum())
    if assignment.rows >= assignment.values:
        return _all(classes, "every allowed value is a candidate: there are no more values than rows")
    own = [load for load in assignment.loads if _of_single_values(load)]
    if not all(_kept_by_moves(condition, own) for condition in assignment.conditions):
        return _all(
            classes, "every allowed value is a candidate: there are conditions on loads of single values"
        )
    zones = _zones(assignment, own)
    if assignment.rows * (int(zones.max(initial=0)) + 1) >= assignment.values:
        return _all(
            classes, "every allowed value is a candidate: limits or costs are on buckets of many values"
        )
    try:
        criteria = Criteria(classes, own)
    except UnsuitableError as error:
        return _all(classes, f"every allowed value is a candidate: {error}")
    rooms = _Rooms(classes, own)
    always = _with_lower_limits(assignment, own)
    today = np.split(classes.stays.value, np.searchsorted(classes.stays.class_, np.arange(1, classes.number)))
    values = []
    tied = _tied(classes)
    for class_ in range(classes.number):
        deadline.check()
        if tied[class_]:
            values.append(np.flatnonzero(classes.allowed(class_)))
            continue
        fits = np.flatnonzero(classes.allowed(class_) & rooms.fits(class_)).astype(np.int32)
        keeps = always & classes.allowed(class_)
        if len(fits):
            kept = _cheapest(zones[fits], criteria.of(class_, fits), assignment.rows)
            keeps[fits[kept]] = True
        stay = today[class_][today[class_] >= 0] if len(today) else np.zeros(0, np.int32)
        keeps[stay] |= classes.allowed(class_)[stay]
        values.append(np.flatnonzero(keeps))
    class_of = np.repeat(np.arange(classes.number), [len(kept) for kept in values])
    value = np.concatenate(values)
    return Candidates(
        class_of.astype(np.int32),
        value.astype(np.int32),
        f"{len(value)} of {every} values are candidates: for each class the {assignment.rows} cheapest with room"
        + (" in each combination of buckets" if int(zones.max(initial=0)) else ""),
    )


def _tied(classes: EquivalenceClasses) -> Mask:
    """(K,) classes of rows that follow others, or that others follow."""
    tied = np.zeros(classes.assignment.rows, np.bool_)
    for condition in classes.assignment.conditions:
        if isinstance(condition, Colocation):
            tied |= condition.leader >= 0
            tied[condition.leader[condition.leader >= 0]] = True
    return tied[classes.representative]


def _kept_by_moves(condition: Condition, own: list[Load]) -> bool:
    """Whether a row that goes to a candidate can not break a condition.

    Where rows may not move freely it can not: today's values are candidates, so the row has moved already.
    """
    # Conditions without loads are kept as well: who leads or follows has all candidates.
    return not any(load is single for load in condition.loads for single in own)


def _all(classes: EquivalenceClasses, note: str) -> Candidates:
    return Candidates(*all_candidates(classes), note)


def _of_single_values(load: Load) -> bool:
    """Whether no two values share a bucket."""
    used = load.bucket[load.bucket >= 0]
    return not len(used) or int(np.bincount(used).max()) == 1


def _zones(assignment: Assignment, own: list[Load]) -> Indices:
    """(V,) a number for each combination of buckets of several values."""
    single = {id(load) for load in own}
    zone = np.zeros(assignment.values, np.int64)
    for load in assignment.loads:
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
            lower, _ = limit.bounds
            buckets = np.asarray((lower > 0).any(axis=0))
            wants |= (limit.load.bucket >= 0) & buckets[limit.load.bucket]
    return wants


class _Rooms:
    """Where a row keeps the upper limits of single values when nothing else is there."""

    def __init__(self, classes: EquivalenceClasses, own: list[Load]) -> None:
        single = {id(load) for load in own}
        self._classes = classes
        self._limits = [limit for limit in classes.assignment.limits if id(limit.load) in single]
        self._upper: dict[tuple[int, int], Amounts] = {}

    def fits(self, class_: int) -> Mask:
        """(V,) where it does for a row of a class."""
        fits = np.ones(self._classes.assignment.values, np.bool_)
        row = self._classes.representative[class_]
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
            upper = limit.bounds[1][group]
            known = self._upper[number, group] = np.where(bucket < 0, UNLIMITED, upper[bucket])
        return known


def _cheapest(zone: Indices, criteria: list[Amounts], rows: int) -> Indices:
    """Indices of values that fewer than ``rows`` others of their zone are at least as good as, in all criteria."""
    if len(zone) <= rows:
        return np.arange(len(zone), dtype=np.int32)
    kept = [
        members[_undominated([criterion[members] for criterion in criteria], rows)]
        for members in _members(zone)
    ]
    return np.concatenate(kept).astype(np.int32)


def _members(zone: Indices) -> list[Indices]:
    if int(zone.max()) == int(zone.min()):
        return [np.arange(len(zone), dtype=np.int32)]
    order = np.argsort(zone, kind="stable").astype(np.int32)
    return np.split(order, np.flatnonzero(np.diff(zone[order])) + 1)


def _undominated(criteria: list[Amounts], rows: int) -> Indices:
    """Indices that fewer than ``rows`` others are before in a fixed order and at least as good as, or a few more."""
    number = len(criteria[0])
    if len(criteria) == 1:
        return _least(criteria[0], rows)
    order = np.lexsort(criteria).astype(np.int32)
    if number <= rows:
        return order
    if len(criteria) == 2:
        return _by_two(criteria[0][order], order, rows)
    pool = order[: max(rows, min(number, 4 * rows, _MOST_COMPARISONS // number))]
    kept = [pool]
    for block in np.array_split(order[len(pool) :], max(1, (number - len(pool)) // _BLOCK)):
        as_good = np.ones((len(block), len(pool)), np.bool_)
        for criterion in criteria:
            as_good &= criterion[pool][None, :] <= criterion[block][:, None]
        kept.append(block[as_good.sum(axis=1) < rows])
    return np.concatenate(kept).astype(np.int32)


def _least(criterion: Amounts, rows: int) -> Indices:
    """Indices of the lowest, the first ones of equals."""
    if len(criterion) <= rows:
        return np.arange(len(criterion), dtype=np.int32)
    highest = np.partition(criterion, rows - 1)[rows - 1]
    below = np.flatnonzero(criterion < highest)
    equal = np.flatnonzero(criterion == highest)[: rows - len(below)]
    return np.concatenate((below, equal)).astype(np.int32)


def _by_two(first: Amounts, order: Indices, rows: int) -> Indices:
    """The order is by the second criterion; ``first`` is the first one in that order."""
    kept = [order[:rows]]
    best = np.sort(first[:rows])
    for begin in range(rows, len(order), _BLOCK):
        block = first[begin : begin + _BLOCK]
        # Values after `rows` others that are as good in both are dropped; within a block not all are seen.
        kept.append(order[begin : begin + _BLOCK][block < best[-1]])
        best = np.sort(np.concatenate((best, block)))[:rows]
    return np.concatenate(kept).astype(np.int32)


_MOST_PLACES = 20_000_000
"""Of all classes together, for their costs to be compared."""


class Criteria:
    """What values are compared by: all sums as one rank, tier by tier, and each peak."""

    def __init__(self, classes: EquivalenceClasses, own: list[Load]) -> None:
        """Raises UnsuitableError when a cost is of no kind that the rule holds for."""
        single = {id(load) for load in own}
        self._classes = classes
        self._sums: list[list[_Alone]] = []
        self._peaks: list[_Alone] = []
        for tier in classes.assignment.tiers:
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
        self._load_costs = [*self._peaks, *(cost for costs in self._sums for cost in costs)]
        self._row_costs = [
            cost for tier in classes.assignment.tiers for cost in tier.costs if isinstance(cost, RowCost)
        ]
        self._known: tuple[Hashable, list[Amounts]] = (None, [])
        """The criteria of the class asked for last: the next one mostly pays alike, and only weighs more or less."""

    def _comparable(self, cost: LoadCost, single: set[int]) -> _Alone | None:
        classes, load = self._classes, cost.loads[0]
        group = one_place(classes, cost.loads)
        if group is None or any(id(load) not in single for load in cost.loads):
            return None
        sorts = len(np.unique(tree_of(cost).sorts(load.buckets)))
        if classes.number * load.groups * sorts > _MOST_PLACES:
            return None
        shape, example = sampled_shape(classes, cost)
        comparable = shape.growing() if cost.peak else isinstance(shape, Affine) or shape.convex()
        if not comparable or (cost.weight < 0 and (cost.peak or not isinstance(shape, Affine))):
            return None
        return _Alone(classes, cost, group, shape, example)

    def of(self, class_: int, values: Indices) -> list[Amounts]:
        """The criteria of each value for a row of a class; lower is better."""
        classes = self._classes
        whole = np.flatnonzero(
            (classes.stays.class_ == class_) & (classes.stays.count == classes.count[class_])
        )
        today = tuple(np.unique(classes.stays.value[whole]).tolist())
        key = (today, classes.moving[:, class_].tobytes(), self._paying(class_))
        if self._known[0] != key:
            self._known = key, self._everywhere(class_, today)
        return [criterion[values] for criterion in self._known[1]]

    def _paying(self, class_: int) -> tuple[int, ...]:
        """What a row of a class pays by, besides its moves."""
        row = self._classes.representative[class_]
        pays = [int(cost.row_class[row]) for cost in self._row_costs]
        adds = [int(part) for cost in self._load_costs for part in cost.adds(class_)]
        return (*pays, *adds)

    def _everywhere(self, class_: int, today: tuple[int, ...]) -> list[Amounts]:
        """The criteria of all values."""
        classes = self._classes
        sums = classes.coming(class_)[:, 1:]
        for value in today:
            if value >= 0:
                sums[:, value] -= classes.moving[:, class_]
        for number, costs in enumerate(self._sums):
            for cost in costs:
                sums[number] += cost.weight * cost.more(class_)
        varying = [tier for tier in sums if bool((tier != tier[0]).any())]
        criteria = [cost.height(class_) for cost in self._peaks]
        if len(varying) > 1:
            criteria.append(_rank(varying))
        elif varying or not criteria:
            criteria.append(varying[0] if varying else np.zeros(classes.assignment.values, np.int64))
        return criteria


class _Alone:
    """The cost of each value with one row of a class there, or none, and nothing else."""

    def __init__(
        self,
        classes: EquivalenceClasses,
        cost: LoadCost,
        group: Indices,
        shape: Shape,
        example: Amounts,
    ) -> None:
        self.weight = cost.weight
        self._group, self._shape = group, shape
        self._adds = [np.where(classes.group(load) != NONE, classes.weight(load), 0) for load in cost.loads]
        self._inside = cost.loads[0].bucket >= 0
        self._of_value = example[cost.loads[0].bucket]  # of any bucket where a value is in none
        self._examples = int(example.max(initial=-1)) + 1

    def adds(self, class_: int) -> tuple[int, ...]:
        """The group a row of a class adds to, and how much to each load."""
        return (int(self._group[class_]), *(int(weight[class_]) for weight in self._adds))

    def more(self, class_: int) -> Amounts:
        """(V,) what a row of a class adds to the cost of each value."""
        if self._group[class_] == NONE:
            return np.zeros(len(self._inside), np.int64)
        return np.where(self._inside, (self._at(class_, 1) - self._at(class_, 0))[self._of_value], 0)

    def height(self, class_: int) -> Amounts:
        """(V,) what each value comes to with a row of a class; very little where it adds to no load."""
        if self._group[class_] == NONE:
            return np.full(len(self._inside), LOW)
        return np.where(self._inside, self._at(class_, 1)[self._of_value], LOW)

    def _at(self, class_: int, rows: int) -> Amounts:
        place = self._group[class_] * self._examples + np.arange(self._examples)
        return self._shape.at(place, [np.full(len(place), rows * adds[class_]) for adds in self._adds])


def _rank(tiers: list[Amounts]) -> Amounts:
    """Equal numbers for values that are equal in all tiers, and the order of the first that differs."""
    order = np.lexsort(tiers[::-1])
    differs = np.zeros(len(order), np.bool_)
    for tier in tiers:
        differs[1:] |= tier[order][1:] != tier[order][:-1]
    rank = np.empty(len(order), np.int64)
    rank[order] = np.cumsum(differs)
    return rank
