"""Rows near to those that move: who is limited together with one, and where such rows could go as well.

Among placements that are as good a few rows often change for others beside them: another copy of the same segment
moves in place of one.  This says which pairs of a row and a value these are, when all other rows stay where they are.
"""

from __future__ import annotations

import numpy as np

from mgmt.optimization.assignment import NONE, Assignment, Indices, Integers, LoadCost, Mask, Pairs


def beside(places: Assignment, some: Mask) -> Mask:
    """(rows,) whether a row is one of these, or in a group with one of them."""
    group, groups = group_of(places)
    touched = np.zeros(groups + 1, np.bool_)
    touched[group[some]] = True
    touched[groups] = False
    return some | touched[group]


def group_of(places: Assignment) -> tuple[Indices, int]:
    """(rows,) by which rows are limited together, the finest that there is, and how many there are; the last: none."""
    loads = [limit.load for limit in places.limits if limit.load.groups > 1]
    if not loads:
        return np.zeros(places.rows, np.int32), 0
    finest = max(loads, key=lambda load: load.groups)
    return np.where(finest.group >= 0, finest.group, finest.groups).astype(np.int32), finest.groups


def neighbouring_moves(places: Assignment, choice: Indices) -> Pairs:
    """The rows that this choice moves with where to, and those of their groups with where one of it moves to."""
    moved = np.flatnonzero((choice != places.current) & (choice >= 0))
    near = beside(places, choice != places.current)
    group, groups = group_of(places)
    goals = moved[group[moved] < groups]
    # Pairs of a row near a move and a move of its group.
    rows = np.flatnonzero(near & (group < groups))
    rows, goals = rows[np.argsort(group[rows], kind="stable")], goals[np.argsort(group[goals], kind="stable")]
    first, last = (np.searchsorted(group[goals], group[rows], side) for side in ("left", "right"))
    number = last - first
    offset = np.arange(int(number.sum())) - np.repeat(np.cumsum(number) - number, number)
    rows, instead = np.repeat(rows, number), goals[np.repeat(first, number) + offset]
    values = choice[instead]
    some = _free_for(places, rows, values) & _as_even(places, choice, rows, instead)
    row, value = np.concatenate([moved, rows[some]]), np.concatenate([choice[moved], values[some]])
    return Pairs(row.astype(np.int32), value.astype(np.int32))


def _as_even(places: Assignment, choice: Indices, rows: Integers, instead: Integers) -> Mask:
    """For pairs of a row and one that moves, whether loads cost the same if the first moves instead of the other."""
    same = np.ones(len(rows), np.bool_)
    current = places.current
    leaves, stays = current[rows], current[instead]
    # Where the first has left its value anyhow, or the other has none that it may keep, nothing is known of it.
    known = (leaves >= 0) & (choice[rows] == leaves) & (stays >= 0)
    known &= places.allowed[places.row_class[instead], stays]
    for cost in (cost for tier in places.tiers for cost in tier.costs if isinstance(cost, LoadCost)):
        load = cost.loads[0]
        if len(cost.loads) > 1 or load.groups > 1 or cost.peak or len(np.unique(load.weight)) > 1:
            continue
        (weight,), held = np.unique(load.weight), load.of(choice)
        paid, more, less = (
            np.append(np.broadcast_to(cost.cost((loads,)), held.shape)[0], 0)
            for loads in (held, held + weight, np.maximum(held - weight, 0))
        )
        bucket = np.append(load.bucket, NONE)
        left, kept = bucket[leaves], bucket[stays]
        change = np.where(left >= 0, less[left] - paid[left], 0) + np.where(
            kept >= 0, more[kept] - paid[kept], 0
        )
        same &= (change == 0) | (left == kept)
    return np.asarray(same | ~known)


def _free_for(places: Assignment, rows: Integers, values: Integers) -> Mask:
    """For pairs of a row and a value, whether limits leave room there when all other rows stay where they are."""
    free = np.ones(len(rows), np.bool_)
    current = places.current
    for limit in places.limits:
        load = limit.load
        held = np.flatnonzero((load.group >= 0) & (current >= 0))
        held = held[load.bucket[current[held]] >= 0]
        key, place = np.unique(
            load.group[held].astype(np.int64) * load.buckets + load.bucket[current[held]], return_inverse=True
        )
        total = np.append(np.bincount(place, load.weight[held], len(key)).astype(np.int64), 0)
        group, bucket = load.group[rows].astype(np.int64), load.bucket[values]
        counted = (group >= 0) & (bucket >= 0)
        asked = np.where(counted, group * load.buckets + bucket, NONE)
        at = np.minimum(np.searchsorted(key, asked), max(len(key) - 1, 0))
        known = key[at] == asked if len(key) else np.zeros(len(rows), np.bool_)
        taken = total[np.where(known, at, len(key))]
        here = (current[rows] >= 0) & (load.bucket[np.maximum(current[rows], 0)] == bucket)
        taken = taken + np.where(here, 0, load.weight[rows])
        upper = np.broadcast_to(limit.upper, (load.groups, load.buckets))
        free &= ~counted | (taken <= upper[np.maximum(group, 0), np.maximum(bucket, 0)])
    return free
