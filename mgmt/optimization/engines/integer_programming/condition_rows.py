"""Conditions as linear rows over cell counts and further variables of 0 or 1."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from mgmt.optimization.assignment import (
    NONE,
    UNLIMITED,
    Amounts,
    Budget,
    Colocation,
    Condition,
    Either,
    Indices,
    Load,
    Mask,
    MoveLimit,
    Occupancy,
    Skew,
)
from mgmt.optimization.engines.model.cells import Cells

Term: TypeAlias = tuple[list[int], list[int]]
"""Variables and their factors."""
LinearRow: TypeAlias = tuple[Sequence[int], Sequence[int], int | None, int | None]


@dataclass(frozen=True, slots=True)
class Encoded:
    """``rows`` are (variables, factors, lower, upper), None for no bound; ``values`` gives the new variables.

    ``implied`` are rows that say no more, of whole numbers.
    """

    rows: list[LinearRow] = field(default_factory=list)
    implied: list[LinearRow] = field(default_factory=list)
    values: list[Callable[[Amounts], Sequence[int]]] = field(default_factory=list)


def encode(
    condition: Condition,
    cells: Cells,
    new_variable: Callable[[int, int], int],
    together: Collection[bytes] = (),
) -> Encoded:
    """The rows of a condition; ``new_variable(lower, upper)`` makes a variable beside the cells.

    ``together``: see :func:`rows_together`.
    """
    if isinstance(condition, Either):
        return _either(condition, cells, new_variable)
    if isinstance(condition, Occupancy):
        return _occupancy(condition, cells, new_variable, together)
    if isinstance(condition, Budget):
        return _budget(condition, cells)
    if isinstance(condition, Skew):
        return _skew(condition, cells, new_variable)
    if isinstance(condition, Colocation):
        return _colocation(condition, cells)
    return _move_limit(condition, cells)


def _colocation(condition: Colocation, cells: Cells) -> Encoded:
    """At each value rows of a class only where the one is that they follow; that one is a class of its own."""
    found = Encoded()
    classes = cells.classes
    leader = condition.leader[classes.representative]
    own = np.where(leader >= 0, classes.of_row[leader], NONE)
    width = classes.assignment.values + 1
    known = cells.class_.astype(np.int64) * width + cells.value + 1
    order = np.argsort(known, kind="stable")
    follows = np.flatnonzero((own[cells.class_] != NONE) & (cells.value >= 0))
    wanted = own[cells.class_[follows]].astype(np.int64) * width + cells.value[follows] + 1
    for cell, first, last in zip(
        follows.tolist(),
        np.searchsorted(known, wanted, "left", order).tolist(),
        np.searchsorted(known, wanted, "right", order).tolist(),
        strict=True,
    ):
        there = order[first:last].tolist()
        count = int(classes.count[cells.class_[cell]])
        found.rows.append(([cell, *there], [1, *([-count] * len(there))], None, 0))
    return found


def _either(condition: Either, cells: Cells, new_variable: Callable[[int, int], int]) -> Encoded:
    """Per place and limit a variable that is 1 only where the limit holds; one of them is."""
    found = Encoded()
    bounds = [tuple(bound.reshape(-1) for bound in limit.bounds) for limit in condition.limits]
    terms = [_terms(cells, limit.load) for limit in condition.limits]
    places: list[int] = []
    shape = condition.limits[0].load
    for place in range(shape.groups * shape.buckets):
        highest = [_most(cells, term.get(place)) for term in terms]
        always = (
            lower[place] <= 0 and upper[place] >= most
            for (lower, upper), most in zip(bounds, highest, strict=True)
        )
        if any(always):
            continue
        places.append(place)
        variables = [new_variable(0, 1) for _ in condition.limits]
        found.rows.append((variables, [1] * len(variables), 1, None))
        for variable, (lower, upper), term, most in zip(variables, bounds, terms, highest, strict=True):
            own, factors = term.get(place, ([], []))
            least, allowed = int(lower[place]), int(upper[place])
            if least > 0:
                found.rows.append(([*own, variable], [*factors, -least], 0, None))
            if allowed < most:
                found.rows.append(([*own, variable], [*factors, most - allowed], None, most))

    def values(counts: Amounts) -> Sequence[int]:
        held = []
        for limit, (lower, upper) in zip(condition.limits, bounds, strict=True):
            load = cells.load(limit.load, counts).reshape(-1)
            held.append((lower <= load) & (load <= upper))
        return [int(one[place]) for place in places for one in held]

    found.values.append(values)
    return found


def rows_together(conditions: Iterable[Condition]) -> frozenset[bytes]:
    """Loads of rows all of which are in the bucket, or none, as :func:`_told` tells them."""
    found = set()
    for condition in conditions:
        if not isinstance(condition, Either) or len(condition.limits) != 2:
            continue
        none, every = sorted(condition.limits, key=lambda limit: int(limit.upper.max()))
        load = none.load
        total = int(load.weight[load.group >= 0].sum())
        same = np.array_equal(load.weight, every.load.weight) and np.array_equal(
            load.bucket, every.load.bucket
        )
        if (
            same
            and load.groups * load.buckets == 1
            and not none.upper.any()
            and bool((every.lower == total).all())
        ):
            found.add(_told(load.group == 0, load.bucket))
    return frozenset(found)


def _told(rows: Mask, bucket: Indices) -> bytes:
    """The same for loads of the same rows at the same values, whatever buckets these are in."""
    return np.packbits(rows).tobytes() + np.packbits(bucket >= 0).tobytes()


def _always_whole(condition: Occupancy, cells: Cells, together: Collection[bytes]) -> Mask:
    """(groups,) whether all rows of a group are in buckets, or none of them is."""
    load, assignment = condition.load, cells.classes.assignment
    counted = (load.group >= 0) & (load.weight > 0)
    outside: Mask = np.asarray(assignment.allowed[:, load.bucket < 0].any(axis=1))
    loose = counted & (outside[assignment.row_class] | ~assignment.required)
    whole = np.bincount(load.group[loose], minlength=load.groups) == 0
    for group in np.flatnonzero(~whole).tolist() if together else ():
        whole[group] = _told(counted & (load.group == group), load.bucket) in together
    return np.asarray(whole)


def _occupancy(
    condition: Occupancy,
    cells: Cells,
    new_variable: Callable[[int, int], int],
    together: Collection[bytes],
) -> Encoded:
    """Per place a variable that is 1 where a group has rows: all of them, if it is whole and has one place at most."""
    found = Encoded()
    load = condition.load
    whole = _always_whole(condition, cells, together) & (condition.upper == 1)
    counted = load.group >= 0
    total = np.bincount(load.group[counted], load.weight[counted], load.groups).astype(np.int64)
    least = np.where(whole, total, 1).tolist()
    used: list[int] = []
    of_group: dict[int, list[int]] = {}
    for place, (own, factors) in _terms(cells, load).items():
        variable = new_variable(0, 1)
        used.append(place)
        of_group.setdefault(place // load.buckets, []).append(variable)
        found.rows.append(([*own, variable], [*factors, -_most(cells, (own, factors))], None, 0))
        found.rows.append(([*own, variable], [*factors, -least[place // load.buckets]], 0, None))
        found.implied.extend(_of_each_class(cells, own, variable))
    for group in range(load.groups):
        variables = of_group.get(group, [])
        lower, upper = int(condition.lower[group]), int(condition.upper[group])
        if lower > 0 or upper < len(variables):
            found.rows.append((variables, [1] * len(variables), max(lower, 0), upper))
    found.values.append(
        lambda counts: [int(cells.load(load, counts).reshape(-1)[place] > 0) for place in used]
    )
    return found


def _of_each_class(cells: Cells, own: Sequence[int], variable: int) -> Iterator[LinearRow]:
    """That the rows of each class alone, and those that stay, are in a place only where the variable is 1.

    In fractions that says more than that all of them are: a class that is there as a whole needs all of the variable.
    """
    for some in by_class(cells, own):
        most = min(int(cells.classes.count[cells.class_[some[0]]]), int(cells.most[some].sum()))
        yield [*some.tolist(), variable], [*([1] * len(some)), -most], None, 0
        for cell in some[cells.stays[some] & (cells.most[some] < most)].tolist():
            yield [cell, variable], [1, -int(cells.most[cell])], None, 0


def by_class(cells: Cells, own: Sequence[int]) -> list[Indices]:
    """Some of the cells, those of each class together."""
    order = np.array(own, np.int32)[np.argsort(cells.class_[own], kind="stable")]
    starts = np.flatnonzero(np.diff(cells.class_[order], prepend=NONE))
    return list(np.split(order, starts[1:]))


def _move_limit(condition: MoveLimit, cells: Cells) -> Encoded:
    """At least what has a value today, less what may move, stays."""
    found = Encoded()
    current = cells.classes.assignment.current
    today = condition.group[(condition.group >= 0) & (current != NONE)]
    having = np.bincount(today, minlength=len(condition.upper))
    group = condition.group[cells.classes.representative][cells.class_]
    staying = np.flatnonzero(cells.stays & (cells.value >= 0) & (group >= 0))
    for number, (own, most) in enumerate(zip(having.tolist(), condition.upper.tolist(), strict=True)):
        if own > most:
            variables = staying[group[staying] == number].tolist()
            found.rows.append((variables, [1] * len(variables), own - most, None))
    return found


def _budget(condition: Budget, cells: Cells) -> Encoded:
    """What each group pays."""
    found = Encoded()
    paid: list[dict[int, int]] = [{} for _ in condition.lower]
    for load, price in zip(condition.loads, condition.prices, strict=True):
        for place, (own, factors) in _terms(cells, load).items():
            group, bucket = divmod(place, load.buckets)
            for cell, factor in zip(own, factors, strict=True):
                paid[group][cell] = paid[group].get(cell, 0) + int(price[bucket]) * factor
    bounds = zip(paid, condition.lower.tolist(), condition.upper.tolist(), strict=True)
    for of_cells, lower, upper in bounds:
        low, high = (None if lower <= -UNLIMITED else lower), (None if upper >= UNLIMITED else upper)
        if low is not None or high is not None:
            found.rows.append((list(of_cells), list(of_cells.values()), low, high))
    return found


def _skew(condition: Skew, cells: Cells, new_variable: Callable[[int, int], int]) -> Encoded:
    """A variable for the least, from its lowest value on; per bucket that may be excused one that is 1 if it is not."""
    found = Encoded()
    base = {place: one for place, one in enumerate(condition.base.tolist()) if one < UNLIMITED}
    if not base:
        return found
    terms = _terms(cells, condition.load)
    highest = {place: _most(cells, terms.get(place)) for place in range(condition.load.buckets)}
    lowest = min(base.values())
    most_least = min(one + highest[place] for place, one in base.items()) - lowest
    least = new_variable(0, most_least)
    for place, one in base.items():
        if one - lowest < most_least:
            own, factors = terms.get(place, ([], []))
            found.rows.append(([*own, least], [*factors, -1], lowest - one, None))
    asked: list[int] = []
    excused = condition.excused.tolist()
    for place, above in enumerate(condition.above.tolist()):
        most, free = highest[place], lowest - above
        if above == -UNLIMITED or most <= free or most <= excused[place]:
            continue
        own, factors = terms.get(place, ([], []))
        more = max(0, excused[place] - free)  # what an excused load may have beyond the least
        if excused[place] < 0 or not more:
            found.rows.append(([*own, least], [*factors, -1], None, free))
            continue
        variable = new_variable(0, 1)
        asked.append(place)
        found.rows.append(([*own, variable], [*factors, excused[place] - most], None, excused[place]))
        found.rows.append(([*own, least, variable], [*factors, -1, more], None, free + more))

    def values(counts: Amounts) -> Sequence[int]:
        load = cells.load(condition.load, counts)[0]
        reached = int((load + condition.base).min()) - lowest
        return [reached, *(int(load[place] > condition.excused[place]) for place in asked)]

    found.values.append(values)
    return found


def _terms(cells: Cells, load: Load) -> dict[int, Term]:
    """Per place that cells add to, these with what a row of each adds."""
    rows = cells.rows(load)
    return {place: (own, factors) for place, own, factors in rows.by_place(rows.factor)}


def _most(cells: Cells, term: Term | None) -> int:
    """The most that a load can come to."""
    if term is None:
        return 0
    return int((cells.most[term[0]] * np.array(term[1], np.int64)).sum())
