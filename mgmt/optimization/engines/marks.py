"""Rows that choose values, some of which are marked besides: copies of segments, and which of them is the primary.

Two assignments over the same rows and values: ``places`` says where a row is, ``marks`` which rows are marked, and
where those are (no value: not marked).  All tiers of ``places`` come before those of ``marks``.

Both at once are no network.  But either alone is one, and each bounds the whole: no answer is better than the places
would be without marks, or the marks without places.  So the places are chosen first and the marks among them.  Where
the marks then cost more than they would alone, they are bounded by what rows can do in the best places at all (linear
duality says), and it is tried the other way round: the marks first, the places to fit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mgmt.optimization.assignment import (
    NONE,
    Amounts,
    Assignment,
    Cost,
    Indices,
    Limit,
    Load,
    LoadCost,
    Mask,
    Placement,
    RowCost,
)
from mgmt.optimization.engines.fixing import rest_of
from mgmt.optimization.engines.flow import values_of_optima
from mgmt.optimization.engines.load_costs import UnsuitableError
from mgmt.optimization.engines.table import solve

_MOST_PLACES = 1 << 22
_MOST_PAIRS = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class MarkedPlacement:
    """Where the rows are and which are marked; None if there is no such choice."""

    places: Placement
    marks: Placement
    """Its choice has a value where a row is marked: the one it has in ``places``."""

    @property
    def proven(self) -> bool:
        return self.places.proven and self.marks.proven


def solve_marked(
    places: Assignment, marks: Assignment, *, seconds: float, seed: int, workers: int = 1
) -> MarkedPlacement | None:
    """The best places and marks; None if there are none.

    Raises UnsuitableError when one of the two is for no engine, or nothing can be said of both together.
    """
    if marks.conditions:
        raise UnsuitableError("conditions on marks")
    deadline = time.monotonic() + seconds

    def best(assignment: Assignment) -> Placement:
        return solve(assignment, seconds=max(0.1, deadline - time.monotonic()), seed=seed, workers=workers)

    marks = _where_allowed(marks, places.row_class, places.allowed)
    placed = best(places)
    if placed.choice is None:
        return None
    alone = best(marks)
    if alone.choice is None:
        return None

    def floors(place: int) -> int:
        return best(replace(marks, tiers=(marks.tiers[place],))).bounds[0]

    if bool(((alone.choice < 0) | (alone.choice == placed.choice)).all()):
        return _joint(placed, alone, alone, floors)  # the same rows, in the same places
    marked = best(marks_among(marks, placed.choice))
    found = None if marked.choice is None else _joint(placed, marked, alone, floors)
    if found is not None and (found.marks.proven or not placed.proven):
        return found

    def turned(first: Placement) -> bool:
        """Marks first; whether that is proven."""
        nonlocal found
        better = _marks_first(places, placed, first, best)
        if better is not None and (found is None or better[1].worth < found.marks.worth):
            found = _joint(*better, alone, floors)
        return found is not None and found.marks.proven

    if places.rows * places.values <= _MOST_PAIRS and turned(alone):
        return found
    optimal = _values_of_optima(places, placed)
    if optimal is not None:
        narrowed = _where_allowed(marks, *_patterns(optimal))
        alone = best(narrowed)
        if alone.choice is None:
            raise UnsuitableError("no marks fit the best places")
        if found is not None:
            found = _joint(found.places, found.marks, alone, floors)
        # As if they were alone; then only where they meet no row that stays.
        _ = turned(alone) or turned(best(_where_allowed(narrowed, *_patterns(_free_values(places)))))
    if found is None:
        raise UnsuitableError("no marks fit the best places")
    return found


def _values_of_optima(places: Assignment, placed: Placement) -> Mask | None:
    """Which values rows can have in the best places; None if that cannot be told."""
    if not placed.proven or places.rows * places.values > _MOST_PAIRS:
        return None
    try:
        return values_of_optima(places)
    except UnsuitableError:
        return None


def _patterns(allowed: Mask) -> tuple[Indices, Mask]:
    """Rows that may have the same values as classes of rows: (R,) and (C, V)."""
    _, first, row_class = np.unique(
        np.packbits(allowed, axis=1), axis=0, return_index=True, return_inverse=True
    )
    return np.reshape(row_class, -1).astype(np.int32), allowed[first]


def _where_allowed(marks: Assignment, row_class: Indices, allowed: Mask) -> Assignment:
    """The marks with the values narrowed to what rows of these classes may have."""
    classes = np.stack([marks.row_class.astype(np.int64), row_class.astype(np.int64)])
    joint, of_row = np.unique(classes, axis=1, return_inverse=True)
    both = marks.allowed[joint[0]] & allowed[joint[1]]
    return replace(marks, row_class=np.reshape(of_row, -1).astype(np.int32), allowed=both)


def _joint(
    placed: Placement, marked: Placement, alone: Placement, floors: Callable[[int], int]
) -> MarkedPlacement:
    """Marks among places, with the bounds of marks alone."""
    assert placed.choice is not None
    assert marked.choice is not None
    bounds: list[int] = []
    for place, (worth, bound) in enumerate(zip(marked.worth, alone.bounds, strict=True)):
        if list(marked.worth[:place]) == bounds:
            bounds.append(min(worth, bound))
        else:  # that bound holds for marks that are better in the tiers before; this one for all
            bounds.append(min(worth, floors(place)))
    choice = np.where(marked.choice >= 0, placed.choice, NONE).astype(np.int32)
    marks = replace(
        marked,
        choice=choice,
        bounds=tuple(bounds),
        engine=f"{marked.engine.partition(',')[0]}, bounded without places",
    )
    return MarkedPlacement(placed, marks)


def marks_among(marks: Assignment, choice: Indices) -> Assignment:
    """The marks when the places are decided: a single value, to be marked where one is."""
    there = np.maximum(choice, 0)
    possible = (choice >= 0) & marks.allowed[marks.row_class, there]
    limits = []
    for limit in marks.limits:
        shape = (limit.load.groups, limit.load.buckets)
        if shape[0] * shape[1] > _MOST_PLACES:
            raise UnsuitableError(f"{limit.name} limits too many places")
        lower, upper = (np.broadcast_to(side, shape).reshape(-1, 1) for side in (limit.lower, limit.upper))
        limits.append(Limit(limit.name, _among(limit.load, choice, possible), lower, upper))
    tiers = []
    for tier in marks.tiers:
        costs: list[Cost] = []
        for cost in tier.costs:
            if isinstance(cost, RowCost):
                costs.append(_row_cost_among(cost, marks, choice))
            else:
                loads = tuple(_among(load, choice, possible) for load in cost.loads)
                shape = (cost.loads[0].groups, cost.loads[0].buckets)
                costs.append(replace(cost, loads=loads, cost=_reshaped(cost, shape)))
        tiers.append(replace(tier, costs=tuple(costs)))
    return Assignment(
        1,
        possible.astype(np.int32),
        np.array([[False], [True]]),
        marks.required,
        np.full(marks.rows, NONE, np.int32),
        tuple(limits),
        tuple(tiers),
    )


def _among(load: Load, choice: Indices, possible: Mask) -> Load:
    """A load by group and bucket as one by groups: where a row is, is decided."""
    bucket = load.bucket[np.maximum(choice, 0)]
    counted = possible & (bucket >= 0) & (load.group >= 0)
    group = np.where(counted, load.group.astype(np.int64) * load.buckets + bucket, NONE)
    return Load(group.astype(np.int32), load.groups * load.buckets, np.zeros(1, np.int32), 1, load.weight)


def _row_cost_among(cost: RowCost, marks: Assignment, choice: Indices) -> RowCost:
    paid = cost.cost[cost.row_class, np.maximum(choice, 0)] + np.where(choice != marks.current, cost.moved, 0)
    unpaid = cost.unplaced[cost.row_class] + np.where(marks.current >= 0, cost.moved, 0)
    kinds, row_class = np.unique(np.stack([paid, unpaid]), axis=1, return_inverse=True)
    return RowCost(
        cost.name,
        cost.weight,
        np.reshape(row_class, -1).astype(np.int32),
        kinds[0][:, None],
        kinds[1],
        np.zeros(marks.rows, np.int64),
    )


def _reshaped(cost: LoadCost, shape: tuple[int, int]) -> Callable[[tuple[Amounts, ...]], Amounts]:
    def reshaped(loads: tuple[Amounts, ...]) -> Amounts:
        if loads[0].shape[-2:] == (1, 1) != (shape[0] * shape[1], 1):  # one load for all places
            found = np.asarray(cost.cost(loads))
            if found.shape[-2:] == (1, 1):
                return found
        else:
            found = np.asarray(cost.cost(tuple(load.reshape(*load.shape[:-2], *shape) for load in loads)))
        leading = loads[0].shape[:-2]
        return np.broadcast_to(found, (*leading, *shape)).reshape(*leading, shape[0] * shape[1], 1)

    return reshaped


def _marks_first(
    places: Assignment, placed: Placement, first: Placement, best: Callable[[Assignment], Placement]
) -> tuple[Placement, Placement] | None:
    """Places as good as the best ones that have the marked rows where these marks want them."""
    if first.choice is None:
        return None
    fixed = first.choice >= 0
    if places.conditions or bool(
        (fixed & ~places.allowed[places.row_class, np.maximum(first.choice, 0)]).any()
    ):
        return None
    try:
        around = best(rest_of(places, first.choice))
    except UnsuitableError:
        return None
    if around.choice is None or around.worth != placed.worth:
        return None
    choice = first.choice.copy()
    choice[~fixed] = around.choice
    return replace(placed, choice=choice, engine=around.engine), first


def _free_values(places: Assignment) -> Mask:
    """(rows, values) where a row could be if all other rows stayed where they are, as far as limits tell."""
    here = np.arange(places.values)
    free = places.allowed[places.row_class].copy()
    current = np.where(
        (places.current >= 0) & free[np.arange(places.rows), np.maximum(places.current, 0)],
        places.current,
        NONE,
    )
    for limit in places.limits:
        load = limit.load
        if load.groups == 1 or bool((load.group < 0).all()):
            continue
        upper = np.broadcast_to(limit.upper, (load.groups, load.buckets))
        bucket = load.bucket[here]
        own = np.where(current >= 0, load.bucket[np.maximum(current, 0)], NONE)
        rows = np.flatnonzero(load.group >= 0)
        loads = load.of(current.astype(np.int32))
        held = loads[load.group[rows]][:, np.maximum(bucket, 0)]
        held = held - np.where(own[rows][:, None] == bucket[None], load.weight[rows][:, None], 0)
        room = upper[load.group[rows]][:, np.maximum(bucket, 0)] >= held + load.weight[rows][:, None]
        free[rows] &= room | (bucket < 0)[None]
    return free
