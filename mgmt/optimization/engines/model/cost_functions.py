"""What the cost functions of loads are like: affine, or a table over the loads that can come about.

The functions come from policies and can only be asked for values.  A function of one load is asked for every load on
the grid of the weights' common divisor where that is few; else it is taken for affine when it agrees with the line
through its first points at all corners of what can be reached and at many loads between.  No answer depends on that
alone: the cost of every choice is computed by the function itself, and an engine whose model promised less than that
refuses the assignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import Amounts, Load, LoadCost
from mgmt.optimization.bucket_functions import of_buckets, sorts_of
from mgmt.optimization.dense_ranks import firsts, joint_ranks
from mgmt.optimization.engines.model.cells import Cells
from mgmt.optimization.engines.model.equivalence import EquivalenceClasses

_EVERY = 64
"""So many combinations of loads are asked one by one before a function is called affine."""
_SAMPLES = 40
_MOST_GROUPS = 8
"""Of a load, for buckets to be sorted by what each group can bring to them."""
_MOST_ENTRIES = 4_000_000


class UnsuitableError(Exception):
    """The assignment is not for this engine; ``str`` says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """What a load can come to with some cells."""

    step: int
    """Every load is a multiple of it."""
    most: Amounts
    """(groups, buckets) in steps."""


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """``constant + sum of slope * load / step``, everywhere."""

    reaches: tuple[Reach, ...]
    constant: Amounts
    """(groups, buckets)"""
    slopes: tuple[Amounts, ...]
    """(groups, buckets) per load."""

    def growing(self) -> bool:
        """Whether no load makes it less anywhere."""
        return all(bool((slope >= 0).all()) for slope in self.slopes)

    def falling(self) -> bool:
        """Whether no load makes it more, and some less."""
        return all(bool((slope <= 0).all()) for slope in self.slopes) and any(
            bool((slope < 0).any()) for slope in self.slopes
        )

    def at(self, place: NDArray[np.intp], loads: Sequence[Amounts]) -> Amounts:
        """What places (group * buckets + bucket) cost under these loads, one for each of them."""
        paid: Amounts = self.constant.reshape(-1)[place]
        for slope, reach, load in zip(self.slopes, self.reaches, loads, strict=True):
            steps = load if reach.step == 1 else load // reach.step
            paid = paid + slope.reshape(-1)[place] * steps
        return paid

    def padded(self, factor: int, none: int) -> Affine:
        """So many times as much, and one place more at the end that always costs ``none``."""
        slopes = tuple(np.append(factor * slope, 0) for slope in self.slopes)
        return Affine(self.reaches, np.append(factor * self.constant, none), slopes)


@dataclass(frozen=True, slots=True, eq=False)
class Tabled:
    """The cost of every combination of loads: ``values[sum of load / step * stride, place]``."""

    reaches: tuple[Reach, ...]
    strides: tuple[int, ...]
    values: Amounts
    """(entries, groups * buckets); beyond what a place can come to, the value of the most it can."""

    @property
    def single(self) -> bool:
        return len(self.reaches) == 1

    def at(self, place: NDArray[np.intp], loads: Sequence[Amounts]) -> Amounts:
        """What places (group * buckets + bucket) cost under these loads, one for each of them."""
        entry = np.zeros(len(place), np.int64)
        for stride, reach, load in zip(self.strides, self.reaches, loads, strict=True):
            steps = load if reach.step == 1 else load // reach.step
            entry += np.maximum(np.minimum(steps, reach.most.reshape(-1)[place]), 0) * stride
        return np.asarray(self.values[entry, place])

    def padded(self, factor: int, none: int) -> Tabled:
        """So many times as much, and one place more at the end that always costs ``none``."""
        last = np.full((len(self.values), 1), none, np.int64)
        values = np.concatenate((factor * self.values, last), axis=1)
        reaches = tuple(Reach(reach.step, np.append(reach.most, 0)) for reach in self.reaches)
        return Tabled(reaches, self.strides, values)

    def convex(self) -> bool:
        """Whether each step costs at least as much as the one before, at every place."""
        if not self.single:
            return False
        steps = np.diff(self.values, axis=0)
        inside = np.arange(1, len(steps))[:, None] < self.reaches[0].most.reshape(-1)[None, :]
        return bool((np.diff(steps, axis=0)[inside] >= 0).all()) if len(steps) > 1 else True

    def growing(self) -> bool:
        """Whether no step is downward."""
        return self.single and bool((np.diff(self.values, axis=0) >= 0).all())

    def falling(self) -> bool:
        """Whether no step is upward."""
        return self.single and bool((np.diff(self.values, axis=0) <= 0).all())


def reach_of(cells: Cells, load: Load) -> Reach:
    """What a load can come to, by the rows there are, the cells' own bounds and the limits on the same load."""
    place, weight = cells.places(load)
    counted = place >= 0
    most = np.zeros(load.groups * load.buckets, np.int64)
    # The rows of a class that come to a place are no more than the class has.
    key = cells.class_[counted].astype(np.int64) * len(most) + place[counted]
    used, inverse = np.unique(key, return_inverse=True)
    rows = np.zeros(len(used), np.int64)
    np.add.at(rows, inverse, cells.most[counted])
    class_ = (used // len(most)).astype(np.int32)
    rows = np.minimum(rows, cells.classes.count[class_])
    np.add.at(most, used % len(most), rows * cells.classes.weight(load)[class_])
    weights = weight[counted]
    step = int(np.gcd.reduce(weights)) if len(weights) else 1
    return _capped(cells.classes, load, step, most)


def widest_reach(classes: EquivalenceClasses, load: Load) -> Reach:
    """What a load can come to whatever the candidates are."""
    group, weight = classes.group(load), classes.weight(load)
    counted = group >= 0
    total = np.zeros(load.groups, np.int64)
    np.add.at(total, group[counted], (weight * classes.count)[counted])
    most = np.repeat(total, load.buckets)
    step = int(np.gcd.reduce(weight[counted])) if bool(counted.any()) else 1
    return _capped(classes, load, step, most)


def _capped(classes: EquivalenceClasses, load: Load, step: int, most: Amounts) -> Reach:
    """With what the limits on the same load leave of it."""
    for limit in classes.assignment.limits:
        if same_load(limit.load, load):
            most = np.minimum(most, np.maximum(limit.bounds[1].reshape(-1), 0))
    return Reach(step, (most // step).reshape(load.groups, load.buckets))


def same_load(one: Load, other: Load) -> bool:
    """Whether two loads are of the same rows, values and weights."""
    return one is other or (
        one.groups == other.groups
        and one.buckets == other.buckets
        and np.array_equal(one.group, other.group)
        and np.array_equal(one.bucket, other.bucket)
        and np.array_equal(one.weight, other.weight)
    )


def shape_of(cells: Cells, cost: LoadCost) -> Affine | Tabled:
    """What a cost function is like over the loads that cells can bring about.

    Raises UnsuitableError when it is not affine and has too many values for a table.
    """
    reaches = tuple(reach_of(cells, load) for load in cost.loads)
    try:
        widest = widest_shape(cells.classes, cost)
    except UnsuitableError:
        return _shape_within(cost, reaches)
    same_steps = tuple(
        Reach(wide.step, reach.most * (reach.step // wide.step))
        for reach, wide in zip(reaches, widest.reaches, strict=True)
    )
    return replace(widest, reaches=same_steps)


def widest_shape(classes: EquivalenceClasses, cost: LoadCost) -> Affine | Tabled:
    """The same whatever the candidates are; found out once for the classes."""
    known = classes.known.get(id(cost))
    if known is None:
        try:
            known = _shape_within(cost, tuple(widest_reach(classes, load) for load in cost.loads))
        except UnsuitableError as error:
            known = error
        classes.known[id(cost)] = known
    if isinstance(known, UnsuitableError):
        raise known
    assert isinstance(known, Affine | Tabled)
    return known


def sampled_shape(classes: EquivalenceClasses, cost: LoadCost) -> tuple[Affine | Tabled, Amounts]:
    """The same over one bucket of each sort alone, and (buckets,) which of these stands for each.

    What is so of its slopes and steps is so everywhere.
    """
    load = cost.loads[0]
    if load.groups > _MOST_GROUPS:
        return widest_shape(classes, cost), np.arange(load.buckets)
    reaches = [widest_reach(classes, load) for load in cost.loads]
    columns = [sorts_of(cost.cost, load.buckets), *(row for reach in reaches for row in reach.most)]
    of_bucket, number = joint_ranks(columns, load.buckets)
    example = firsts(of_bucket, number).astype(np.int32)
    few = tuple(Reach(reach.step, reach.most[:, example]) for reach in reaches)
    return _shape_within(replace(cost, cost=of_buckets(cost.cost, example, load.buckets)), few), of_bucket


def _shape_within(cost: LoadCost, reaches: tuple[Reach, ...]) -> Affine | Tabled:
    affine = _affine(cost, reaches)
    return affine if affine is not None else _table(cost, reaches)


def _ask(cost: LoadCost, loads: list[Amounts]) -> Amounts:
    """The function's values; it may say one number for all."""
    values = np.asarray(cost.cost(tuple(loads)))
    return np.broadcast_to(values, loads[0].shape).astype(np.int64)


def _affine(cost: LoadCost, reaches: tuple[Reach, ...]) -> Affine | None:
    zero = [np.zeros_like(reach.most)[None] for reach in reaches]
    constant = _ask(cost, zero)[0]
    slopes = []
    for number, reach in enumerate(reaches):
        one = [*zero]
        one[number] = np.minimum(reach.most, 1)[None] * reach.step
        slopes.append(_ask(cost, one)[0] - constant)

    def agrees(steps: list[Amounts]) -> bool:
        line = constant.copy()
        for slope, number in zip(slopes, steps, strict=True):
            line += slope * number
        loads = [number[None] * reach.step for number, reach in zip(steps, reaches, strict=True)]
        return bool((_ask(cost, loads)[0] == line).all())

    farthest = [range(int(reach.most.max(initial=0)) + 1) for reach in reaches]
    few = prod(map(len, farthest)) <= _EVERY
    corners = product(*((0, len(every) - 1) for every in farthest))
    for steps in product(*farthest) if few else corners:
        if not agrees([np.minimum(reach.most, number) for reach, number in zip(reaches, steps, strict=True)]):
            return None
    if few:
        return Affine(reaches, constant, tuple(slopes))
    random = np.random.default_rng(0)
    for _ in range(_SAMPLES):
        shares = [random.random(reach.most.shape) for reach in reaches]
        samples = [
            np.floor(share * (reach.most + 1)).astype(np.int64).clip(0, reach.most)
            for share, reach in zip(shares, reaches, strict=True)
        ]
        if not agrees(samples):
            return None
    return Affine(reaches, constant, tuple(slopes))


def _table(cost: LoadCost, reaches: tuple[Reach, ...]) -> Tabled:
    sizes = [int(reach.most.max(initial=0)) + 1 for reach in reaches]
    entries = 1
    strides = []
    for size in sizes:
        strides.append(entries)
        entries *= size
    places = reaches[0].most.size
    if entries * places > _MOST_ENTRIES:
        raise UnsuitableError(
            f"an objective's cost is not linear in its loads, and a table of it would have {entries * places} entries"
        )
    number = np.arange(entries)
    loads = []
    for reach, stride, size in zip(reaches, strides, sizes, strict=True):
        steps = (number // stride % size)[:, None, None]
        loads.append(np.minimum(steps, reach.most[None]) * reach.step)
    return Tabled(reaches, tuple(strides), _ask(cost, loads).reshape(entries, places))
