"""Why an assignment is impossible, and by how much.

Of the constraints' instances few are looked at, for the fewer there are, the smaller is the problem that decides
whether they can hold (``count_problem``): to begin with the bans, then what a placement under those breaks, and so
on, until there is no placement, or one that breaks nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import UNLIMITED, Amounts, Load
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.infeasibility.closed_form import (
    alike_constraints,
    anywhere_alike,
    fits_nowhere,
    too_much_in_all,
)
from mgmt.optimization.infeasibility.constraint_instances import ConstraintSet, Give, Instance
from mgmt.optimization.infeasibility.count_problem import Answer, Counts, least_given, solve, solvers_core
from mgmt.optimization.infeasibility.deletion_filter import minimal_core

_MOST_TO_DROP_SINGLY = 60
_MOST_BANS = 10
"""Beside so many other instances; each takes a model."""


@dataclass(frozen=True, slots=True)
class Clashing:
    """Instances that cannot hold together.  ``minimal``: without any one of them the others can."""

    instances: tuple[Instance, ...]
    minimal: bool


def find_clash(constraints: ConstraintSet, *, deadline: Deadline) -> Clashing | None:
    """A minimal set of instances that clash; None when they do not.

    TooLargeError when there are too many kinds of rows and values to look at, TimeoutError when time ended first.
    """

    def solvers(some: Sequence[Instance]) -> list[Instance]:
        return solvers_core(constraints, some, alike_constraints(constraints, some), deadline)

    core = fits_nowhere(constraints, deadline) or too_much_in_all(constraints, deadline)
    if not core:
        grown = _grow(constraints, [], deadline)
        if grown is None:
            return None
        core = solvers(grown)

    def constraints_clash(names: Sequence[str]) -> bool | None:
        # Not only the instances at hand: without a constraint others of the rest may clash.
        nonlocal core
        try:
            known = [instance for instance in core if instance.constraint in names]
            fewer = _grow(constraints, known, deadline, only=frozenset(names))
        except TimeoutError:
            return None
        core = core if fewer is None else solvers(fewer)
        return fewer is not None

    names = list(dict.fromkeys(instance.constraint for instance in core))
    minimal = len(names) < 2 or minimal_core(names, constraints_clash, deadline)[1]
    if len(set(alike_constraints(constraints, core).values())) > _MOST_TO_DROP_SINGLY:
        return Clashing(tuple(core), minimal and _all_needed(constraints, core, deadline))
    core, shown = minimal_core(
        core,
        lambda some: solve(constraints, some, deadline).clashes,
        deadline,
        kinds_of=lambda some: alike_constraints(constraints, some),
    )
    return Clashing(tuple(core), minimal and shown)


def least_gives(
    constraints: ConstraintSet,
    names: frozenset[str],
    core: Sequence[Instance],
    *,
    whole: bool,
    deadline: Deadline,
) -> tuple[Give, ...] | None:
    """The least that instances of these constraints must give for all to hold: amounts, or with ``whole`` all of it.

    Found among the instances of the core first; what then still clashes is added, until nothing does.  The least for
    some of the instances is a bound for all of them, so what is found is the least.  None if that does not help, or not
    in time.
    """
    known = list(core)
    while True:
        gives = least_given(constraints, known, names, deadline, whole=whole)
        if gives is None:
            return None
        try:
            grown = _grow(constraints.after(gives), known, deadline)
        except TimeoutError:
            return None
        if grown is None:
            return gives
        if set(grown) <= set(known):
            return None
        known = grown


def _all_needed(constraints: ConstraintSet, core: Sequence[Instance], deadline: Deadline) -> bool:
    """Whether without any one of many instances the others hold: what buckets of one group take, and a few bans.

    A bucket without its bound takes all rows that may be there, so all of them must be there.
    """
    bounds = [instance for instance in core if not instance.is_ban]
    bans = [instance for instance in core if instance.is_ban]
    if not all(instance.is_limit for instance in bounds):
        return False
    if len({(instance.source, instance.group) for instance in bounds}) != 1 or len(bans) > _MOST_BANS:
        return False
    limit = constraints.limits[bounds[0].source]
    if bool((limit.bounds[0][bounds[0].group] > 0).any()) or not anywhere_alike(constraints, core):
        return False
    return all(
        solve(constraints, [other for other in core if other != ban], deadline).clashes is False
        for ban in bans
    )


def _grow(
    constraints: ConstraintSet,
    known: Sequence[Instance],
    deadline: Deadline,
    only: frozenset[str] | None = None,
) -> list[Instance] | None:
    """Instances that clash, these and what a placement under them breaks; None when there is one that breaks nothing.

    With ``only``, these constraints are all there is.  TimeoutError when it was not found out in time.
    """
    bans = [ban for ban in constraints.all_bans() if only is None or ban.constraint in only]
    some = list(dict.fromkeys([*known, *bans]))
    while True:
        answer = solve(constraints, some, deadline)
        if answer.clashes:
            return some
        if answer.counts is None:
            raise TimeoutError
        have = set(some)
        broken = [
            instance
            for instance in _broken(constraints, _spread(constraints, answer, deadline))
            if instance not in have and (only is None or instance.constraint in only)
        ]
        if not broken:
            return None
        some.extend(broken)
        # Those alike would break one after the other; as many more each time as there are, it takes few times.
        some.extend(islice(_alike(constraints, answer.counts, broken, set(some)), len(some)))


def _alike(
    constraints: ConstraintSet, counts: Counts, broken: Sequence[Instance], have: Container[Instance]
) -> Iterator[Instance]:
    """Further instances of the skews and limits that are broken.

    Of a skew other buckets that may be as far above the least; of a limit those of the same bounds, on values that
    nothing has told apart so far.
    """
    for place, one in {one.source: one for one in broken if one.is_skew}.items():
        skew = constraints.skews[place]
        alike = (skew.above == skew.above[one.bucket]) & (skew.excused == skew.excused[one.bucket])
        others = (replace(one, bucket=bucket) for bucket in np.flatnonzero(alike).tolist())
        yield from (other for other in others if other not in have)
    seen: set[tuple[int, int, int, int, int]] = set()
    for place, mine in groupby((one for one in broken if one.is_limit), key=lambda one: one.source):
        limit = constraints.limits[place]
        lower, upper = limit.bounds
        first, last = _least_and_most(limit.load, counts.value_of)
        for one in mine:
            at = (one.group, one.bucket)
            sort = (place, one.group, int(first[one.bucket]), int(lower[at]), int(upper[at]))
            if sort in seen or first[one.bucket] != last[one.bucket]:
                continue
            seen.add(sort)
            alike = (first == sort[2]) & (last == sort[2])
            alike &= (lower[one.group] == lower[at]) & (upper[one.group] == upper[at])
            others = (replace(one, bucket=bucket) for bucket in np.flatnonzero(alike).tolist())
            yield from (other for other in others if other not in have)


def _least_and_most(load: Load, number: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(buckets,) the least and the greatest of the numbers of a bucket's values."""
    inside = load.bucket >= 0
    least, most = np.full(load.buckets, len(number), np.intp), np.full(load.buckets, -1, np.intp)
    np.minimum.at(least, load.bucket[inside], number[inside])
    np.maximum.at(most, load.bucket[inside], number[inside])
    return least, most


def _broken(constraints: ConstraintSet, loads: Sequence[Amounts]) -> list[Instance]:
    found: list[Instance] = []
    for place, (limit, load) in enumerate(zip(constraints.limits, loads, strict=False)):
        lower, upper = limit.bounds
        wrong = np.argwhere((load < lower) | (load > upper))
        found.extend(Instance(limit.name, place, group, bucket) for group, bucket in wrong.tolist())
    for place, load in enumerate(loads[len(constraints.limits) :]):
        above = np.flatnonzero(constraints.broken_skews(place, load[0])).tolist()
        found.extend(Instance(constraints.skews[place].name, place, -1, bucket) for bucket in above)
    return found


def _spread(constraints: ConstraintSet, answer: Answer, deadline: Deadline) -> list[Amounts]:
    """The loads under a placement by counts, of limits and then of skews.

    Among values that are alike, rows go where there is most room.
    """
    counts, cells_of = answer.counts, answer.cells
    assert counts is not None
    assert cells_of is not None
    loads = [np.zeros((load.groups, load.buckets), np.int64) for load in _all_loads(constraints)]
    uppers = [limit.bounds[1] for limit in constraints.limits]
    for kind, cells in enumerate(cells_of.tolist()):
        rows = iter(np.flatnonzero(counts.kind_of == kind).tolist())
        for place, number in enumerate(cells):
            if counts.value_example[place] >= constraints.values:
                for _ in range(number):
                    next(rows)
                continue
            deadline.check()
            alike = np.flatnonzero(counts.value_of == place)
            for _ in range(number):
                _put(constraints, next(rows), alike, loads, uppers)
    return loads


def _put(
    constraints: ConstraintSet,
    row: int,
    alike: NDArray[np.intp],
    loads: Sequence[Amounts],
    uppers: Sequence[Amounts],
) -> None:
    """Add a row to the loads, at the value with the most room for it."""
    room = np.full(len(alike), int(UNLIMITED), np.int64)
    for limit, load, upper in zip(constraints.limits, loads, uppers, strict=False):
        group = int(limit.load.group[row])
        if group >= 0 and limit.load.weight[row] > 0 and len(alike) > 1:
            buckets = limit.load.bucket[alike]
            left = (upper[group] - load[group])[np.maximum(buckets, 0)] // limit.load.weight[row]
            room = np.minimum(room, np.where(buckets >= 0, left, UNLIMITED))
    value = int(alike[int(room.argmax())])
    for own, load in zip(_all_loads(constraints), loads, strict=True):
        group, bucket = int(own.group[row]), int(own.bucket[value])
        if group >= 0 and bucket >= 0:
            load[group, bucket] += own.weight[row]


def _all_loads(constraints: ConstraintSet) -> list[Load]:
    return [*(limit.load for limit in constraints.limits), *(skew.load for skew in constraints.skews)]
