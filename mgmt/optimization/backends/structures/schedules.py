"""Schedules: what must not be at the same time, and what shares a capacity while it lasts.

*Either a ends before b begins, or b before a* is a pair that must not overlap, perhaps only where both have the same
value of a choice.  Pairs make up cliques: no two of these overlap.  Sums of amounts over what lasts at an hour, or when
something begins, that are bounded alike for every hour, or beginning, are a capacity that is shared.

Everything found follows from the rows that it is found in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np

from mgmt.optimization.backends.structures.differences import ZERO, Clause, Difference, Differences
from mgmt.optimization.columns import TRUE, Linear
from mgmt.optimization.problem import NO_BOUND, LinearRows, Problem


class Task(NamedTuple):
    """What begins at the value of a variable and lasts so long, or ``until`` some time, where ``present`` holds."""

    start: int
    length: int
    present: int
    until: int = NO_BOUND


@dataclass(frozen=True, slots=True)
class Shared:
    """At any time the amounts of what lasts then are at most the capacity."""

    tasks: tuple[Task, ...]
    amounts: tuple[int, ...]
    capacity: int


@dataclass(frozen=True, slots=True)
class Schedules:
    """``apart``: no two of the tasks of any of these overlap.  The rows stay: they say it, too, and may say more."""

    apart: tuple[tuple[Task, ...], ...] = ()
    shared: tuple[Shared, ...] = ()


def schedules_of(problem: Problem) -> Schedules:
    """The schedules that the rows of a problem say together."""
    differences = Differences(problem)
    if not differences.few:
        return Schedules()
    return Schedules(tuple(_cliques(_pairs(differences))), tuple(_capacities(problem, differences)))


# ---- what must not overlap --------------------------------------------------------------------------


def _pairs(differences: Differences) -> list[tuple[Task, Task]]:
    """Tasks two of which do not overlap."""
    alternatives = {
        clause: found
        for clause in differences.clauses()
        if (found := _alternative(clause, differences)) is not None
    }
    equal = differences.equal({found[2][0] for found in alternatives.values() if len(found[2]) == 1})
    overlapping: dict[Clause, list[tuple[Difference, Difference, int, int]]] = {}
    for clause, (one, other, conditions) in alternatives.items():
        if len(conditions) == 1:
            both = equal.get(conditions[0], [])
        else:
            both = [(conditions[0], conditions[1]) if conditions else (TRUE, TRUE)]
        overlapping[clause] = [(one, other, *each) for each in both]
    return _attributed(chain(*overlapping.values()))


def _alternative(clause: Clause, differences: Differences) -> tuple[Difference, Difference, list[int]] | None:
    """Two of which one holds: a task ends before another begins, or the other way round; and where that is so."""
    known = [differences.implied[literal] for literal in clause if literal in differences.implied]
    conditions = [literal ^ 1 for literal in clause if literal not in differences.implied]
    if len(known) != 2 or len(conditions) > 2:
        return None
    one, other = known
    same = (one.before, one.after) == (other.after, other.before) and ZERO not in (one.before, one.after)
    return (one, other, conditions) if same and min(one.gap, other.gap) > 0 else None


def _attributed(pairs: Iterable[tuple[Difference, Difference, int, int]]) -> list[tuple[Task, Task]]:
    """Which of two conditions is whose: the one that stands beside the same start in all pairs."""
    beside: dict[int, set[int]] = {}
    pairs = list(pairs)
    for one, _, *conditions in pairs:
        ends = {one.before, one.after}
        for condition in conditions:
            beside[condition] = beside.get(condition, ends) & ends
    found = []
    for one, other, mine, theirs in pairs:
        if mine != theirs and (one.before not in beside[mine] or one.after not in beside[theirs]):
            mine, theirs = theirs, mine
        found.append((Task(one.before, one.gap, mine), Task(other.before, other.gap, theirs)))
    return found


def _cliques(pairs: Iterable[tuple[Task, Task]]) -> Iterator[tuple[Task, ...]]:
    """Tasks any two of which are a pair, so that each pair is in one."""
    near: dict[Task, set[Task]] = defaultdict(set)
    for one, other in pairs:
        near[one].add(other)
        near[other].add(one)
    covered: set[tuple[Task, Task]] = set()
    for first in sorted(near):
        for second in sorted(near[first]):
            if first > second or (first, second) in covered:
                continue
            clique, candidates = [first, second], near[first] & near[second]
            while candidates:
                third = min(candidates)
                clique.append(third)
                candidates = candidates & near[third]
            covered.update((a, b) for a in clique for b in clique if a < b)
            yield tuple(clique)


# ---- what shares a capacity -------------------------------------------------------------------------


class _Lasting(NamedTuple):
    """It holds where ``start`` is from ``first`` to ``last``."""

    start: int
    first: int
    last: int


_Sum: TypeAlias = dict["_Lasting", int]
_MOST_HOURS = 10_000
"""Hours that are looked at one by one."""


def _capacities(problem: Problem, differences: Differences) -> Iterator[Shared]:
    """Of rows of sums that are bounded alike, those that are about all times at which it matters."""
    lasting = _lasting(problem, differences)
    if not lasting:
        return
    families: dict[int, list[_Sum]] = defaultdict(list)
    known = np.zeros(problem.variables, np.bool_)
    known[[literal >> 1 for literal in lasting]] = True
    for block in problem.rows:
        if not isinstance(block, LinearRows):
            continue
        bounded = (block.lower == -NO_BOUND) & (block.upper < NO_BOUND) & (block.enforcement == TRUE)
        strange = block.linears.terms.any(~known[block.linears.terms.items])
        for row in np.flatnonzero(bounded & ~strange & (block.linears.terms.lengths > 1)).tolist():
            linear = block.linears.row(row)
            terms = _amounts(linear, lasting)
            if terms is not None:
                negative = sum(factor for factor in linear.coefficients if factor < 0)
                room = int(block.upper[row]) - linear.constant - negative
                families[room].append(terms)
    for room, rows in families.items():
        yield from _over_hours(problem, rows, room)


def _amounts(linear: Linear, lasting: Mapping[int, _Lasting]) -> dict[_Lasting, int] | None:
    """The amounts of what lasts in a sum; None where there is anything else in it.

    What does not hold counts with a negative factor.
    """
    found: dict[_Lasting, int] = {}
    for name, factor in zip(linear.variables, linear.coefficients, strict=True):
        each = lasting.get(2 * name + (factor < 0))
        if each is None or each in found:
            return None
        found[each] = abs(factor)
    return found


def _lasting(problem: Problem, differences: Differences) -> dict[int, _Lasting]:
    """By literal, those that say that something lasts at an hour."""
    found: dict[int, _Lasting] = {}
    parts = dict(differences.conjunctions)
    parts.update((literal, [literal]) for literal in differences.implied)
    for literal, some in parts.items():
        known = [differences.spelt_out(each) for each in some]
        starts = {each.before + each.after for each in known if each is not None}
        if None in known or len(starts) != 1 or any(each and each.before and each.after for each in known):
            continue
        start = starts.pop()
        first, last = int(problem.lower[start]), int(problem.upper[start])
        for each in known:
            assert each is not None
            if each.before == ZERO:
                first = max(first, each.gap)
            else:
                last = min(last, -each.gap)
        found[literal] = _Lasting(start, first, last)
    return found


def _over_hours(problem: Problem, rows: list[_Sum], room: int) -> Iterator[Shared]:
    """Families of rows for one hour each: an hour is the last at which what lasts then may begin."""
    left = sorted(rows, key=lambda row: -len(row))
    while left:
        amounts = {each.start: factor for each, factor in left[0].items()}
        lengths = dict.fromkeys(amounts, 0)
        mine: list[_Sum] = []
        others: list[_Sum] = []
        for row in left:
            same = all(amounts.get(each.start) == factor for each, factor in row.items())
            (mine if same else others).append(row)
        left = others
        for terms in mine:
            for each in terms:
                if each.first > problem.lower[each.start] and each.last < problem.upper[each.start]:
                    lengths[each.start] = max(lengths[each.start], each.last - each.first + 1)
        said = set(map(frozenset, mine))
        until = None if min(lengths.values()) == 0 else _until(problem, said, amounts, lengths, room)
        if until is None:
            continue
        tasks = tuple(
            Task(start, length, TRUE, NO_BOUND if problem.upper[start] + length <= until else until)
            for start, length in lengths.items()
        )
        yield Shared(tasks, tuple(amounts.values()), room)


def _until(
    problem: Problem,
    said: Collection[frozenset[_Lasting]],
    amounts: dict[int, int],
    lengths: dict[int, int],
    room: int,
) -> int | None:
    """The first hour at which more may last than there is room for and no row says so; None where others follow."""
    starts = list(amounts)
    earliest, latest = problem.lower[starts], problem.upper[starts]
    last = int((latest + list(lengths.values())).max())
    left = set(said)
    if last - int(earliest.min()) > _MOST_HOURS:
        return None
    for hour in range(int(earliest.min()), last):
        wanted, needed = set(), 0
        for start, low, high in zip(starts, earliest.tolist(), latest.tolist(), strict=True):
            first, final = max(low, hour - lengths[start] + 1), min(high, hour)
            if first <= final:
                wanted.add(_Lasting(start, first, final))
                needed += amounts[start]
        if needed > room and frozenset(wanted) not in said:
            return None if left or hour <= latest.max() else hour
        left.discard(frozenset(wanted))
    return None if left else last
