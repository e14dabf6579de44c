"""What the cost functions of loads are like over the loads that can come about: affine, curves, or tables.

A function that is known is analysed (see ``load_analysis``): it is affine, or a curve of which all is asked that is
needed, however large its loads are.  Where loads have few steps, or the function can only be asked for values, it is
asked for every load on the grid of the weights' common divisor.  No answer depends on that alone: the cost of every
choice is computed by the function itself, and an engine whose model promised less than that refuses the assignment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import Amounts, Load, LoadCost, Mask
from mgmt.optimization.dense_ranks import firsts, joint_ranks
from mgmt.optimization.engines.model.cells import Cells
from mgmt.optimization.engines.model.equivalence import EquivalenceClasses
from mgmt.optimization.engines.model.load_analysis import (
    LARGEST,
    Analysis,
    Bend,
    Range,
    pieces_of,
    range_of,
)
from mgmt.optimization.load_functions import Constant, LoadFunction, Opaque, tree_of

_EVERY = 64
"""So many combinations of loads are asked one by one before a function that is not known is called affine."""
_SAMPLES = 40
_MOST_GROUPS = 8
"""Of a load, for buckets to be sorted by what each group can bring to them."""
_MOST_ENTRIES = 4_000_000
_FEW_ENTRIES = 1_024
"""Of a function that is known; beyond that it is a curve."""


class UnsuitableError(Exception):
    """The assignment is not for this engine; ``str`` says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """What a load can come to with some cells."""

    step: int
    """Every load is a multiple of it."""
    most: Amounts
    """(groups, buckets) in steps."""


class Shape(ABC):
    """A cost function over the loads that can come about, place by place (group * buckets + bucket)."""

    reaches: tuple[Reach, ...]

    @abstractmethod
    def at(self, place: NDArray[np.intp], loads: Sequence[Amounts]) -> Amounts:
        """What places cost under these loads, one for each of them; of more than can be, as under the most."""

    @abstractmethod
    def padded(self, factor: int, none: int) -> Shape:
        """So many times as much, and one place more at the end that always costs ``none``."""

    @abstractmethod
    def within(self, reaches: tuple[Reach, ...]) -> Shape:
        """The same where loads reach no farther, in the same steps."""

    @abstractmethod
    def growing(self) -> bool:
        """Whether no load makes it less anywhere."""

    @abstractmethod
    def falling(self) -> bool:
        """Whether no load makes it more, and some less."""

    @abstractmethod
    def convex(self) -> bool:
        """Whether each step of the one load costs at least as much as the one before, at every place."""

    @abstractmethod
    def superadditive(self) -> bool:
        """Whether amounts of the one load cost together at least what each does alone; so they do if it is convex."""

    @abstractmethod
    def lowest(self) -> Amounts:
        """(places,) what each comes to at least."""

    @abstractmethod
    def highest(self) -> Amounts:
        """(places,) what each comes to at most."""

    @property
    def single(self) -> bool:
        return len(self.reaches) == 1

    @property
    def most(self) -> Amounts:
        """(places,) the steps that the first load can come to."""
        return self.reaches[0].most.reshape(-1)

    def at_steps(self, steps: Amounts) -> Amounts:
        """(places,) what each costs with so many steps of its one load."""
        return self.at(np.arange(steps.size), [steps * self.reaches[0].step])

    def nothing(self) -> Amounts:
        """(places,) what each costs where nothing is."""
        none = np.zeros(self.most.size, np.int64)
        return self.at(np.arange(none.size), [none] * len(self.reaches))

    @abstractmethod
    def opening(self) -> Amounts:
        """(places,) what each costs more at least with some load than with none."""

    @abstractmethod
    def share(self, weight: int) -> Amounts:
        """(places,) what each step of the one load has at least of what it makes a place cost, so many times.

        Beside what the place costs without any; infinite where no load can be.
        """

    def table(self, place: NDArray[np.intp]) -> Amounts:
        """(entries, n) what these places cost with no step, one, and so on; at the end what the most costs."""
        most = self.most[place]
        steps = np.minimum(np.arange(int(most.max(initial=0)) + 1)[:, None], most)
        whole = np.broadcast_to(place, steps.shape).reshape(-1)
        return self.at(whole, [steps.reshape(-1) * self.reaches[0].step]).reshape(steps.shape)

    def room_below(self, height: int) -> Amounts:
        """(places,) at least the steps of the one load that each can have without being above a height."""
        if not self.growing():
            return self.most
        return _first(lambda steps: self.at_steps(steps) > height, self.most) - 1

    def steps_below(self, height: int) -> Amounts:
        """(places,) at most the steps that each needs to come down to a height, where any number is enough."""
        if not self.falling():
            return np.zeros_like(self.most)
        needed = _first(lambda steps: self.at_steps(steps) <= height, self.most)
        return np.where(needed > self.most, 0, needed)

    def level(self, required: Amounts) -> int:
        """What all places cost at least, of a convex function, when each group has so many steps at least.

        As many are taken as there are below a price, and of those at that price the rest.
        """
        groups, buckets = self.reaches[0].most.shape
        most = self.most
        if not most.any():
            return int(self.nothing().sum())

        def cheaper(price: Amounts) -> Amounts:
            """(places,) how many steps cost no more than a price of each group."""
            limit = np.repeat(price, buckets)

            def dear(steps: Amounts) -> Mask:
                after = np.minimum(steps + 1, most)
                return np.asarray(self.at_steps(after) - self.at_steps(steps) > limit)

            return _first(dear, most - 1)

        required = np.minimum(required, most.reshape(groups, buckets).sum(axis=1))
        ends = (
            self.at_steps(np.minimum(most, 1)) - self.nothing(),
            self.at_steps(most) - self.at_steps(np.maximum(most - 1, 0)),
        )
        low = np.minimum(np.full(groups, int(ends[0].min())), -1)
        high = np.maximum(np.full(groups, int(ends[1].max())), -1)
        while bool((low < high).any()):
            middle = low + (high - low) // 2
            enough = cheaper(middle).reshape(groups, buckets).sum(axis=1) >= required
            low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
        # Steps that cost less than nothing are taken, required or not.
        price = np.maximum(low, -1)
        taken = cheaper(price)
        beyond = np.maximum(taken.reshape(groups, buckets).sum(axis=1) - required, 0)
        paid = zip(beyond.tolist(), np.maximum(price, 0).tolist(), strict=True)
        whole: int = int(self.at_steps(taken).sum()) - sum(number * each for number, each in paid)
        return whole


def _first(holds: Callable[[Amounts], Mask], most: Amounts) -> Amounts:
    """(places,) the first number up to ``most`` from which on something holds; one more where it never does."""
    low, high = np.zeros_like(most), most + 1
    while bool((low < high).any()):
        middle = np.minimum(low + (high - low) // 2, most)
        held = holds(middle) & (low < high)
        low, high = np.where(held | (low >= high), low, middle + 1), np.where(held, middle, high)
    return low


@dataclass(frozen=True, slots=True, eq=False)
class Affine(Shape):
    """``constant + sum of slope * load / step``, everywhere."""

    reaches: tuple[Reach, ...]
    constant: Amounts
    """(groups, buckets)"""
    slopes: tuple[Amounts, ...]
    """(groups, buckets) per load."""

    def within(self, reaches: tuple[Reach, ...]) -> Affine:
        return replace(self, reaches=reaches)

    def growing(self) -> bool:
        return all(bool((slope >= 0).all()) for slope in self.slopes)

    def falling(self) -> bool:
        return all(bool((slope <= 0).all()) for slope in self.slopes) and any(
            bool((slope < 0).any()) for slope in self.slopes
        )

    def convex(self) -> bool:
        return self.single

    def superadditive(self) -> bool:
        return self.single

    def lowest(self) -> Amounts:
        return self._end(np.minimum)

    def highest(self) -> Amounts:
        return self._end(np.maximum)

    def _end(self, of: Callable[[Amounts, int], Amounts]) -> Amounts:
        end = self.constant.reshape(-1).copy()
        for reach, slope in zip(self.reaches, self.slopes, strict=True):
            end += of(slope * reach.most, 0).reshape(-1)
        return end

    def opening(self) -> Amounts:
        return np.asarray(self.lowest() - self.nothing())

    def share(self, weight: int) -> Amounts:
        return np.where(self.most > 0, weight * self.slopes[0].reshape(-1), np.inf)

    def at(self, place: NDArray[np.intp], loads: Sequence[Amounts]) -> Amounts:
        paid: Amounts = self.constant.reshape(-1)[place]
        for slope, reach, load in zip(self.slopes, self.reaches, loads, strict=True):
            steps = load if reach.step == 1 else load // reach.step
            paid = paid + slope.reshape(-1)[place] * steps
        return paid

    def padded(self, factor: int, none: int) -> Affine:
        slopes = tuple(np.append(factor * slope, 0) for slope in self.slopes)
        return Affine(self.reaches, np.append(factor * self.constant, none), slopes)

    def room_below(self, height: int) -> Amounts:
        constant, slope = self.constant.reshape(-1), self.slopes[0].reshape(-1)
        room = np.maximum(height - constant, 0) // np.maximum(slope, 1)
        return np.asarray(np.where(slope > 0, room, 2**40))

    def steps_below(self, height: int) -> Amounts:
        constant, slope = self.constant.reshape(-1), self.slopes[0].reshape(-1)
        needed = -((height - constant) // -np.minimum(slope, -1))
        return np.asarray(np.where(slope < 0, np.maximum(needed, 0), 0))


@dataclass(frozen=True, slots=True, eq=False)
class Tabled(Shape):
    """The cost of every combination of loads: ``values[sum of load / step * stride, place]``."""

    reaches: tuple[Reach, ...]
    strides: tuple[int, ...]
    values: Amounts
    """(entries, groups * buckets); beyond what a place can come to, the value of the most it can."""
    adds_up: bool = False
    """Whether the function is known to be superadditive."""

    def within(self, reaches: tuple[Reach, ...]) -> Tabled:
        return replace(self, reaches=reaches)

    def at(self, place: NDArray[np.intp], loads: Sequence[Amounts]) -> Amounts:
        entry = np.zeros(len(place), np.int64)
        for stride, reach, load in zip(self.strides, self.reaches, loads, strict=True):
            steps = load if reach.step == 1 else load // reach.step
            entry += np.maximum(np.minimum(steps, reach.most.reshape(-1)[place]), 0) * stride
        return np.asarray(self.values[entry, place])

    def padded(self, factor: int, none: int) -> Tabled:
        last = np.full((len(self.values), 1), none, np.int64)
        values = np.concatenate((factor * self.values, last), axis=1)
        reaches = tuple(Reach(reach.step, np.append(reach.most, 0)) for reach in self.reaches)
        return Tabled(reaches, self.strides, values, self.adds_up and factor >= 0)

    def superadditive(self) -> bool:
        return self.adds_up or self.convex()

    def convex(self) -> bool:
        if not self.single:
            return False
        steps = np.diff(self.values, axis=0)
        inside = np.arange(1, len(steps))[:, None] < self.most[None, :]
        return bool((np.diff(steps, axis=0)[inside] >= 0).all()) if len(steps) > 1 else True

    def growing(self) -> bool:
        return self.single and bool((np.diff(self.values, axis=0) >= 0).all())

    def falling(self) -> bool:
        return self.single and bool((np.diff(self.values, axis=0) <= 0).all())

    def lowest(self) -> Amounts:
        return np.asarray(self.values.min(axis=0))

    def highest(self) -> Amounts:
        return np.asarray(self.values.max(axis=0))

    def nothing(self) -> Amounts:
        return np.asarray(self.values[0])

    def opening(self) -> Amounts:
        return np.asarray(self.values[min(1, len(self.values) - 1) :].min(axis=0) - self.values[0])

    def share(self, weight: int) -> Amounts:
        steps = np.arange(1, len(self.values))[:, None]
        shares = weight * (self.values[1:] - self.values[0]) / steps
        return np.asarray(np.where(steps <= self.most, shares, np.inf).min(axis=0, initial=np.inf))

    def steps_below(self, height: int) -> Amounts:
        return np.asarray((self.values <= height).argmax(axis=0))

    def room_below(self, height: int) -> Amounts:
        return len(self.values) - 1 - np.asarray((self.values[::-1] <= height).argmax(axis=0))


@dataclass(frozen=True, eq=False)
class Curve(Shape):
    """A function that is known; of one load, cut into pieces where it is of one kind each."""

    reaches: tuple[Reach, ...]
    function: LoadFunction
    none: int | None = None
    """What a place more at the end costs."""

    def within(self, reaches: tuple[Reach, ...]) -> Curve:
        return replace(self, reaches=reaches)

    @cached_property
    def edges(self) -> Amounts:
        """(pieces + 1, groups, buckets) where pieces begin, and the last ends; of several loads there is one."""
        (reach,) = self.reaches
        return pieces_of(self.function, reach.step, reach.most)

    @cached_property
    def whole(self) -> Analysis:
        """Of the whole range of loads at once."""
        return Analysis(
            Range(
                tuple(reach.step for reach in self.reaches),
                tuple(np.zeros_like(reach.most)[None] for reach in self.reaches),
                tuple(reach.most[None] for reach in self.reaches),
            )
        )

    @cached_property
    def bend(self) -> Bend:
        """Of each piece."""
        if not self.single:
            return self.whole.of(self.function)
        (reach,) = self.reaches
        return Analysis(range_of(self.edges, reach.step, reach.most)).of(self.function)

    @property
    def resolved(self) -> bool:
        """Whether each piece is a polynomial, of which everything is known."""
        return self.single and self.bend.terms is not None

    def growing(self) -> bool:
        return self._monotone

    @cached_property
    def _monotone(self) -> bool:
        return bool(self.bend.rises.all()) and bool((self._jumps() >= 0).all())

    def falling(self) -> bool:
        return self.single and self._falling

    @cached_property
    def _falling(self) -> bool:
        return bool(self.bend.falls.all()) and bool((self._jumps() <= 0).all())

    def convex(self) -> bool:
        return self.single and self._convex

    @cached_property
    def _convex(self) -> bool:
        if not bool(self.bend.convex.all()):
            return False
        (most,) = (reach.most for reach in self.reaches)
        edges = self.edges[1:-1]
        for at in (edges - 1, edges):
            inside = (at >= 1) & (at < most)
            middle = np.clip(at, 1, np.maximum(most - 1, 1))
            rises = self._of_steps(middle + 1) - 2 * self._of_steps(middle) + self._of_steps(middle - 1)
            if bool((rises[inside] < 0).any()):
                return False
        return True

    def superadditive(self) -> bool:
        return self.single and (self.convex() or bool(self.whole.of(self.function).superadditive.all()))

    def _jumps(self) -> Amounts:
        """What the first step of each piece but the first costs."""
        if not self.single:
            return np.zeros(0, np.int64)
        most = self.reaches[0].most
        begins = np.minimum(self.edges[1:-1], most)
        jumps = self._of_steps(begins) - self._of_steps(np.maximum(begins - 1, 0))
        return np.where(self.edges[1:-1] <= most, jumps, 0)

    def _of_steps(self, steps: Amounts) -> Amounts:
        """(n, groups, buckets)"""
        return np.broadcast_to(self.function((steps * self.reaches[0].step,)), steps.shape)

    def lowest(self) -> Amounts:
        return np.asarray(self._over_pieces(self.bend.low).min(axis=0))

    def highest(self) -> Amounts:
        return np.asarray(self._over_pieces(self.bend.high).max(axis=0))

    def opening(self) -> Amounts:
        return np.asarray(
            self._over_pieces(self.bend.low)[-len(self.edges[1:-1]) :].min(axis=0) - self.nothing()
        )

    def share(self, weight: int) -> Amounts:
        bend, (reach,) = self.bend, self.reaches
        within = range_of(self.edges, reach.step, reach.most)
        # Above its chord the share is least at one of the ends; else it is that of the least in any part of it.
        ends = [self._of_steps(end) for end in (within.first[0], within.last[0])]
        chord = bend.concave if weight > 0 else bend.convex
        least = weight * (bend.low if weight > 0 else bend.high) - weight * ends[0][:1]
        at_ends = [
            weight * (at - ends[0][:1]) / np.maximum(step, 1)
            for at, step in zip(ends, (within.first[0], within.last[0]), strict=True)
        ]
        farthest = np.maximum(np.where(least > 0, within.last[0], within.first[0]), 1)
        shares = np.where(chord, np.minimum(*at_ends), least / farthest)
        return np.where(self.most > 0, self._over_pieces(shares)[1:].min(axis=0, initial=np.inf), np.inf)

    def corners(self) -> tuple[Amounts, Amounts] | None:
        """(n, places) the steps at which pieces begin and end, and what they cost; None where these are not the lowest.

        Between its corners no piece is below the line through them.
        """
        if not self.resolved or not bool(self.bend.concave.all()):
            return None
        (reach,) = self.reaches
        within = range_of(self.edges, reach.step, reach.most)
        steps = np.concatenate((within.first[0], within.last[0]))
        return steps.reshape(len(steps), -1), self._of_steps(steps).reshape(len(steps), -1)

    def _over_pieces(self, told: NDArray[Any]) -> NDArray[Any]:
        """(pieces, places)"""
        pieces = len(self.edges) - 1 if self.single else 1
        return np.broadcast_to(told, (pieces, *self.reaches[0].most.shape)).reshape(pieces, -1)

    @cached_property
    def _flat(self) -> LoadFunction:
        """With constants (places,), or of no dimension."""
        shape = self.reaches[0].most.shape

        def flat(leaf: LoadFunction) -> LoadFunction:
            if not isinstance(leaf, Constant):
                return leaf
            if leaf.values.size == 1:
                return Constant(leaf.values.reshape(()))
            values = np.broadcast_to(leaf.values, shape).reshape(-1)
            return Constant(values if self.none is None else np.append(values, values[-1:]))

        return self.function.mapped(flat)

    @cached_property
    def _flat_most(self) -> tuple[Amounts, ...]:
        return tuple(
            reach.step * (reach.most.reshape(-1) if self.none is None else np.append(reach.most, 0))
            for reach in self.reaches
        )

    def at(self, place: NDArray[np.intp], loads: Sequence[Amounts]) -> Amounts:
        few = [np.clip(load, 0, most[place]) for load, most in zip(loads, self._flat_most, strict=True)]

        def here(leaf: LoadFunction) -> Amounts:
            if isinstance(leaf, Constant):
                return leaf.values[place] if leaf.values.ndim else leaf.values
            return leaf.of_values(few)

        paid = np.broadcast_to(self._flat.evaluated(here), place.shape)
        return paid if self.none is None else np.where(place == len(self._flat_most[0]) - 1, self.none, paid)

    def padded(self, factor: int, none: int) -> Curve:
        return Curve(self.reaches, self.function if factor == 1 else self.function * factor, none)


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


def shape_of(cells: Cells, cost: LoadCost) -> Shape:
    """What a cost function is like over the loads that cells can bring about.

    Raises UnsuitableError when it is not known, not affine, and has too many values for a table.
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
    return widest.within(same_steps)


def widest_shape(classes: EquivalenceClasses, cost: LoadCost) -> Shape:
    """The same whatever the candidates are; found out once for the classes."""
    if id(cost) not in classes.known:
        found: Shape | UnsuitableError
        try:
            found = _shape_within(cost, tuple(widest_reach(classes, load) for load in cost.loads))
        except UnsuitableError as error:
            found = error
        classes.known[id(cost)] = cost, found  # with the cost, lest another one gets its identity
    _, shape = classes.known[id(cost)]
    if isinstance(shape, UnsuitableError):
        raise shape
    assert isinstance(shape, Shape)
    return shape


def sampled_shape(classes: EquivalenceClasses, cost: LoadCost) -> tuple[Shape, Amounts]:
    """The same over one bucket of each sort alone, and (buckets,) which of these stands for each.

    What is so of its slopes and steps is so everywhere.
    """
    load = cost.loads[0]
    if load.groups > _MOST_GROUPS:
        return widest_shape(classes, cost), np.arange(load.buckets)
    reaches = [widest_reach(classes, load) for load in cost.loads]
    function = tree_of(cost)
    columns = [function.sorts(load.buckets), *(row for reach in reaches for row in reach.most)]
    of_bucket, number = joint_ranks(columns, load.buckets)
    example = firsts(of_bucket, number).astype(np.int32)
    few = tuple(Reach(reach.step, reach.most[:, example]) for reach in reaches)
    return _shape_within(replace(cost, cost=function.of_buckets(example, load.buckets)), few), of_bucket


def _shape_within(cost: LoadCost, reaches: tuple[Reach, ...]) -> Shape:
    function = tree_of(cost)
    if any(isinstance(node, Opaque) for node in function.walk()):
        return _affine(cost, reaches) or _table(cost, reaches)
    most = [float(reach.step) * float(reach.most.max(initial=0)) for reach in reaches]
    if function.magnitude(most) > LARGEST:
        raise UnsuitableError(f"the cost {cost.name} may be beyond 62 bits")
    curve = Curve(reaches, function)
    whole = curve.whole.of(function)
    if whole.affine:
        assert whole.terms is not None
        shape = reaches[0].most.shape
        none = np.zeros((1, *shape), np.int64)
        constant, *slopes = (
            np.broadcast_to(whole.terms.get(loads, none), (1, *shape))[0]
            for loads in ((), *((number,) for number in range(len(reaches))))
        )
        return Affine(reaches, constant, tuple(slopes))
    entries = prod(int(reach.most.max(initial=0)) + 1 for reach in reaches)
    few = entries <= _FEW_ENTRIES and entries * reaches[0].most.size <= _MOST_ENTRIES
    return replace(_table(cost, reaches), adds_up=curve.superadditive()) if few else curve


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
