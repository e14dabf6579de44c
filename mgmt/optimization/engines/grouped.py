"""Constraints on the same buckets, each of other rows, as one with a group for each.

A policy says of each segment, or of each pair of exams that clash, what is the same for all of them.  One load with a
thousand groups is what engines are quick with, not a thousand loads of one group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import NONE, Assignment, Condition, Limit, Load, Mask, Occupancy
from mgmt.optimization.engines.cells import bounds_of

_FEW = 8
"""Limits of one name and one group stay as they are where they are no more than this."""
_TRIED = 32
"""Loads that a constraint may be added to, of those there are; each takes rows that it does not have yet."""

_Bounded = TypeVar("_Bounded", Limit, Occupancy)


def grouped(assignment: Assignment) -> Assignment:
    """The same assignment with fewer limits and conditions."""
    limits = _together([limit for limit in assignment.limits if limit.load.groups == 1], _FEW)
    limits += [limit for limit in assignment.limits if limit.load.groups > 1]
    used = [condition for condition in assignment.conditions if isinstance(condition, Occupancy)]
    conditions: list[Condition] = [
        condition for condition in assignment.conditions if not isinstance(condition, Occupancy)
    ]
    conditions += _together(used, 1)
    if len(limits) == len(assignment.limits) and len(conditions) == len(assignment.conditions):
        return assignment
    return replace(assignment, limits=tuple(limits), conditions=tuple(conditions))


@dataclass(slots=True, eq=False)
class _Pack:
    """Constraints without common rows."""

    rows: Mask
    members: list[int] = field(default_factory=list)


def _together(constraints: Sequence[_Bounded], few: int) -> list[_Bounded]:
    alike: dict[tuple[str, int, bytes], list[_Bounded]] = {}
    for one in constraints:
        key = one.name, one.load.buckets, one.load.bucket.tobytes()
        alike.setdefault(key, []).append(one)
    found: list[_Bounded] = []
    for same in alike.values():
        if len(same) <= few:
            found += same
            continue
        rows = [np.flatnonzero((one.load.group >= 0) & (one.load.weight > 0)) for one in same]
        packs: list[_Pack] = []
        for number, own in enumerate(rows):
            pack = next((pack for pack in packs[-_TRIED:] if not bool(pack.rows[own].any())), None)
            if pack is None:
                pack = _Pack(np.zeros(len(same[number].load.group), np.bool_))
                packs.append(pack)
            pack.rows[own] = True
            pack.members.append(number)
        found += [_as_one([same[n] for n in pack.members], [rows[n] for n in pack.members]) for pack in packs]
    return found


def _as_one(same: Sequence[_Bounded], rows: Sequence[NDArray[np.intp]]) -> _Bounded:
    first = same[0]
    if len(same) == 1:
        return first
    group = np.full(len(first.load.group), NONE, np.int32)
    weight = np.zeros(len(group), np.int64)
    groups = 0
    for one, own in zip(same, rows, strict=True):
        group[own] = one.load.group[own] + groups
        weight[own] = one.load.weight[own]
        groups += one.load.groups
    load = Load(group, groups, first.load.bucket, first.load.buckets, weight)
    bounds = [bounds_of(one) if isinstance(one, Limit) else (one.lower, one.upper) for one in same]
    lower, upper = (np.concatenate(ends) for ends in zip(*bounds, strict=True))
    return replace(first, load=load, lower=lower, upper=upper)
