"""Construction: a choice made row by row.

Greedy: one row after another goes where it costs least, the hardest to place first.  So a choice that was begun can be
finished, too, as by the whole parts of a linear relaxation's counts (rounding).

First fit decreasing: rows by what they weigh, each into the first value with room, the roomiest values first.  That is
for costs of using values at all, where greedy sees no difference between values that are not used yet.

A choice found here keeps every limit, or is none: that there is none proves nothing.  TimeoutError: the deadline passed
first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mgmt.optimization.assignment import NONE, Amounts, Colocation, Indices
from mgmt.optimization.deadline import NEVER, Deadline
from mgmt.optimization.engines.delta_evaluation.partial_solution import PartialSolution
from mgmt.optimization.engines.integer_programming.linear_relaxation import Reals
from mgmt.optimization.engines.model.cells import Cells
from mgmt.optimization.engines.model.equivalence import EquivalenceClasses


def greedy(classes: EquivalenceClasses, deadline: Deadline = NEVER) -> Indices | None:
    """A choice that keeps the limits, or None when this simple way finds none."""
    empty = np.zeros(0, np.int64)
    return complete(classes, empty.astype(np.int32), empty.astype(np.int32), empty, deadline)


def complete(
    classes: EquivalenceClasses, class_: Indices, value: Indices, count: Amounts, deadline: Deadline = NEVER
) -> Indices | None:
    """The same with so many rows of classes already at values."""
    partial = PartialSolution(classes)
    partial.add_all(class_, value, count)
    waiting = hardest_first(classes, partial)
    while waiting:
        late: list[int] = []
        chosen: list[tuple[int, int]] = []
        for one in waiting:
            deadline.check()
            at = class_ == one
            rows = int(classes.count[one] - count[at].sum())
            values = _place(partial, one, rows, value[at], count[at]) if rows > 0 else []
            late += [one] if len(values) < rows else []
            chosen += [(one, where) for where in values]
        if late and not chosen:
            return None
        class_ = np.append(class_, [one for one, _ in chosen]).astype(np.int32)
        value = np.append(value, [where for _, where in chosen]).astype(np.int32)
        count = np.append(count, np.ones(len(chosen), np.int64))
        waiting = late  # others may have made room since: a condition may want one row where another is
    return None if partial.missing() else classes.expand(class_, value, count)


def hardest_first(classes: EquivalenceClasses, partial: PartialSolution) -> list[int]:
    """Kinds in the order to place them: those that fill much of what they may fill come first, followers last."""
    allowed = classes.assignment.allowed.sum(axis=1)[classes.assignment.row_class[classes.representative]]
    share = np.zeros(classes.number)
    for limit in classes.assignment.limits:
        weight = np.where(classes.group(limit.load) != NONE, classes.weight(limit.load), 0)
        room = np.broadcast_to(limit.upper, (limit.load.groups, limit.load.buckets)).max(initial=1)
        share = np.maximum(share, weight / max(1, int(room)))
    for load, slope in partial.heights():
        share = np.maximum(share, classes.weight(load) * slope)
    anywhere = allowed >= allowed.max(initial=0)
    order = np.lexsort((np.arange(classes.number), -share, ~classes.required, anywhere, _depth(classes)))
    return [int(one) for one in order]


def _depth(classes: EquivalenceClasses) -> Indices:
    """(K,) how many rows have to be placed before: the one that a row follows, the one that this one follows."""
    depth = np.zeros(classes.number, np.int32)
    for condition in classes.assignment.conditions:
        if isinstance(condition, Colocation):
            row = classes.representative
            for _ in range(classes.number):  # as long as a chain can be; a circle ends there, too
                row = np.append(condition.leader, NONE)[row].astype(np.int32)
                if bool((row == NONE).all()):
                    break
                depth += row != NONE
    return depth


def _place(partial: PartialSolution, class_: int, rows: int, value: Indices, count: Amounts) -> list[int]:
    """Values for so many rows of a class, which are placed there; fewer when one that must have a value has no room."""
    classes = partial.classes
    coming = classes.coming(class_)
    moving = classes.moving[:, class_]
    staying: dict[int, int] = {}
    if bool((moving != 0).any()):
        of_class = classes.stays.class_ == class_
        staying = dict(
            zip(classes.stays.value[of_class].tolist(), classes.stays.count[of_class].tolist(), strict=True)
        )
        for at, number in zip(value.tolist(), count.tolist(), strict=True):
            staying[at] = staying.get(at, 0) - number
    for at, number in staying.items():
        if number > 0:
            coming[:, at + 1] -= moving
    chosen: list[int] = []
    while len(chosen) < rows:
        left = rows - len(chosen)
        at = _cheapest(partial, class_, coming, left)
        if at is None:
            break
        stay = staying.get(at, 0)
        # Where nothing counts a row, the next ones go there as well, as long as they pay the same.
        number = 1 if partial.counts(class_, at) else min(left, stay if stay > 0 else left)
        if stay > 0:
            staying[at] = stay - number
            if not staying[at]:
                coming[:, at + 1] += moving
        partial.add(class_, at, number)
        chosen += [at] * number
    return chosen


def _cheapest(partial: PartialSolution, class_: int, coming: Amounts, rows: int) -> int | None:
    """The best value for the next of so many rows of a class; None when it must have one and none has room.

    NONE is no value.
    """
    required = bool(partial.classes.required[class_])
    room = partial.room(class_)
    together = partial.together(class_, rows, room)
    at = np.flatnonzero(room if together is None else room & together)
    if not len(at):
        return None if required else NONE
    wanted = partial.wanted(class_)
    if wanted is not None:
        at = at[wanted[at] == wanted[at].max()]
    more, height = partial.prices(class_)
    more += coming[:, 1:]
    for tier in more:
        at = at[tier[at] == tier[at].min()]
    best = int(at[0]) if len(at) == 1 else int(at[np.argmin(height[at])])
    if not required and (wanted is None or not wanted[best]) and tuple(coming[:, 0]) <= tuple(more[:, best]):
        return NONE
    return best


_NEARLY = 1e-6


def rounded(cells: Cells, counts: Reals, deadline: Deadline = NEVER) -> Indices | None:
    """A choice near fractional counts that keeps the limits, or None when greedy can not finish it."""
    whole = np.floor(counts + _NEARLY).astype(np.int64)
    keeps = np.flatnonzero((whole > 0) & (cells.value >= 0))
    return complete(cells.classes, cells.class_[keeps], cells.value[keeps], whole[keeps], deadline)


def first_fit(classes: EquivalenceClasses, prices: Amounts, deadline: Deadline = NEVER) -> Iterator[Indices]:
    """Choices that keep upper limits, one for each way to say what is large, and what is roomy.

    Roomy is what has much of everything, or for many rows in what it has least of; or much of that for its price (V,).
    """
    rows, rooms, numbers = [], [], []
    for limit in classes.assignment.limits:
        load, total = limit.load, int(limit.load.weight.sum())
        if load.groups == 1 and load.buckets == classes.assignment.values and total:
            room = np.minimum(limit.bounds[1][0], total)[load.bucket]
            rows.append(
                np.where(classes.group(load) >= 0, classes.weight(load), 0) / max(1.0, float(room.mean()))
            )
            rooms.append(room / max(1.0, float(room.mean())))
            mean = float(load.weight[load.group >= 0].mean())
            numbers.append(room / max(1.0, mean))
    if not rows:
        return
    roomy = [np.add.reduce(rooms), np.minimum.reduce(numbers)]
    if bool((prices != prices[0]).any()):
        roomy += [room / np.maximum(prices, 0.5) for room in roomy]
    for size in (*rows, np.maximum.reduce(rows), np.add.reduce(rows)):
        for room in roomy:
            values = np.argsort(-room, kind="stable").astype(np.int32)
            found = _placed(classes, np.argsort(-size, kind="stable").tolist(), values, deadline)
            if found is not None:
                yield found


def _placed(
    classes: EquivalenceClasses, order: list[int], values: Indices, deadline: Deadline
) -> Indices | None:
    partial = PartialSolution(classes)
    chosen: list[tuple[int, int]] = []
    for class_ in order:
        deadline.check()
        for _ in range(int(classes.count[class_])):
            room = partial.room(class_)[values]
            if not bool(room.any()):
                return None
            value = int(values[int(room.argmax())])
            partial.add(class_, value)
            chosen.append((class_, value))
    class_of, value_of = (np.array(part, np.int32) for part in zip(*chosen, strict=True))
    return classes.expand(class_of, value_of, np.ones(len(chosen), np.int64))
