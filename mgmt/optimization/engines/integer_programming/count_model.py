"""The integer model over cell counts that the solvers are given, tier by tier.

Its first variables are the cells.  Limits are linear rows.  A cost that is affine in its loads goes into the objective
or, under a peak, into linear rows; a curve is written down operator by operator (see ``curve_rows``); a convex table
becomes its tangents; any other table an element constraint over load variables, beside the tangents of its lower
envelope for the linear relaxation.

What it is not: it knows no solver; ``cp_sat``, ``highs`` and ``linear_relaxation`` write it down for theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd

import numpy as np

from mgmt.optimization.assignment import UNLIMITED, Amounts, Limit, Load, LoadCost
from mgmt.optimization.deadline import NEVER, Deadline
from mgmt.optimization.engines.integer_programming.condition_rows import by_class, encode, rows_together
from mgmt.optimization.engines.integer_programming.count_terms import (
    Division,
    Element,
    Maximum,
    Multiplication,
    Row,
    Sum,
    added,
    at_least,
    scaled,
)
from mgmt.optimization.engines.integer_programming.curve_rows import CurveRows
from mgmt.optimization.engines.model.cells import Cells
from mgmt.optimization.engines.model.cost_functions import (
    Affine,
    Curve,
    Reach,
    Shape,
    Tabled,
    UnsuitableError,
    shape_of,
)
from mgmt.optimization.load_functions import parts_of

_MOST_KINDS = 5_000
"""Of rows of a class at a place of a load, each with linear rows of its own."""
_MOST_WRITTEN = 20_000
"""Entries of a table that a solver is given: it does not look at the clock while it loads a model."""


@dataclass(slots=True)
class CountModel:
    """Grows with each tier whose objective is asked for, and with what is required besides."""

    cells: Cells
    deadline: Deadline = NEVER
    """Limits and costs that are written after it raise TimeoutError."""
    lower: list[int] = field(default_factory=list)
    upper: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    elements: list[Element] = field(default_factory=list)
    maxima: list[Maximum] = field(default_factory=list)
    multiplications: list[Multiplication] = field(default_factory=list)
    divisions: list[Division] = field(default_factory=list)
    # What the variables besides the cells are, given the counts.
    _defined: list[Callable[[Amounts], Sequence[int]]] = field(default_factory=list)
    _load_variables: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    _objectives: dict[int, Sum] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cells = self.cells
        self.upper = cells.most.tolist()
        self.lower = [0] * len(self.upper)
        starts = np.searchsorted(cells.class_, np.arange(cells.classes.number + 1)).tolist()
        for class_, count in enumerate(cells.classes.count.tolist()):
            variables = range(starts[class_], starts[class_ + 1])
            self.rows.append(Row(variables, [1] * len(variables), count, count))
        for limit in cells.classes.assignment.limits:
            self.deadline.check()
            self._limit(limit)
        together = rows_together(cells.classes.assignment.conditions)
        for condition in cells.classes.assignment.conditions:
            encoded = encode(condition, cells, self._variable, together)
            self.rows += [Row(*row) for row in encoded.rows]
            self.rows += [Row(*row, implied=True) for row in encoded.implied]
            self._defined += encoded.values

    @property
    def linear(self) -> bool:
        """Whether the linear rows say everything."""
        return not (self.elements or self.maxima or self.multiplications or self.divisions)

    def values(self, counts: Amounts) -> list[int]:
        """All variables, given the counts of the cells."""
        values: list[int] = counts.tolist()
        for defined in self._defined:
            values += defined(counts)
        return values

    def objective(self, number: int) -> Sum:
        """A tier as a sum to minimise; the first call writes the variables it needs."""
        known = self._objectives.get(number)
        if known is None:
            known = self._objectives[number] = self._objective(number)
        return known

    def require_at_most(self, objective: Sum, bound: int) -> None:
        """From now on an objective is at most so much."""
        if objective.variables:
            self.rows.append(Row(objective.variables, objective.factors, None, bound - objective.constant))

    def range_of(self, term: Sum) -> tuple[int, int]:
        """The least and the most that the ranges of its variables alone allow."""
        low = high = term.constant
        for variable, factor in zip(term.variables, term.factors, strict=True):
            low += factor * (self.lower[variable] if factor > 0 else self.upper[variable])
            high += factor * (self.upper[variable] if factor > 0 else self.lower[variable])
        return low, high

    # ---- objectives ---------------------------------------------------------------------------------

    def _objective(self, number: int) -> Sum:
        tier = self.cells.classes.assignment.tiers[number]
        constant = tier.constant
        factors = self.cells.costs[number].copy()
        others: list[tuple[int, int]] = []
        for cost in tier.costs:
            if not isinstance(cost, LoadCost) or cost.weight == 0:
                continue
            self.deadline.check()
            if cost.peak:
                peaks = [self._peak(part, shape_of(self.cells, part)) for part in parts_of(cost)]
                others.append((self._highest(cost, peaks), cost.weight))
                continue
            shape = shape_of(self.cells, cost)
            if isinstance(shape, Affine):
                constant += cost.weight * int(shape.constant.sum())
                for load, reach, slope in zip(cost.loads, shape.reaches, shape.slopes, strict=True):
                    place, weight = self.cells.places(load)
                    counted = place >= 0
                    slopes = slope.reshape(-1)[place[counted]]
                    factors[counted] += cost.weight * slopes * (weight[counted] // reach.step)
            else:
                targets = self._targets(cost, shape, above=cost.weight > 0)
                constant += cost.weight * int(np.delete(shape.nothing(), list(targets)).sum())
                for target in targets.values():
                    constant += cost.weight * target.constant
                    own = zip(target.variables, target.factors, strict=True)
                    others += [(variable, cost.weight * factor) for variable, factor in own]
        used = np.flatnonzero(factors)
        of_cells = Sum(constant, used.tolist(), factors[used].tolist())
        return added([of_cells, *(Sum(0, [variable], [factor]) for variable, factor in others)])

    def _highest(self, cost: LoadCost, peaks: Sequence[int]) -> int:
        """A variable that is at least, or exactly, the greatest of these."""
        if len(peaks) == 1:
            return peaks[0]
        return self._at_least(cost, [Sum(0, [peak], [1]) for peak in peaks])

    def _peak(self, cost: LoadCost, shape: Shape) -> int:
        """A variable that is at least (or, where it is to be large, exactly) the greatest cost of a place."""
        exact = cost.weight < 0
        if isinstance(shape, Affine):
            reached, terms = self._affine_terms(cost, shape)
        elif isinstance(shape, Tabled) and not exact and shape.convex():
            loads = self._loads(cost.loads[0], shape.reaches[0])
            terms = [
                Sum(offset, [variable], [slope])
                for place, variable in loads.items()
                for slope, offset, _ in _tangents(_column(shape, place))
            ]
            reached = list(loads)
        else:
            targets = self._targets(cost, shape, above=not exact)
            reached, terms = list(targets), list(targets.values())
        resting = np.delete(shape.nothing(), reached)
        if len(resting):
            terms.append(Sum(int(resting.max()), [], []))
        return self._at_least(cost, terms)

    def _at_least(self, cost: LoadCost, terms: Sequence[Sum]) -> int:
        """A variable that is at least each of these and no more than a peak needs."""
        exact = cost.weight < 0
        ranges = [self.range_of(term) for term in terms]
        low, high = max(one for one, _ in ranges), max(other for _, other in ranges)
        peak = self._variable(low, high)
        if exact:
            kept = [term for term, (_, most) in zip(terms, ranges, strict=True) if most >= low]
            self.maxima.append(Maximum(peak, kept))
        for term, (_, most) in zip(terms, ranges, strict=True):
            if most > low:
                self.rows.append(
                    Row([*term.variables, peak], [*term.factors, -1], None, -term.constant, implied=exact)
                )

        def define(counts: Amounts) -> Sequence[int]:
            loads = tuple(self.cells.load(load, counts) for load in cost.loads)
            return [int(np.broadcast_to(cost.cost(loads), loads[0].shape).max())]

        self._defined.append(define)
        return peak

    def _affine_terms(self, cost: LoadCost, shape: Affine) -> tuple[list[int], list[Sum]]:
        """Places that cells add to, and the cost of each."""
        terms: dict[int, Sum] = {}
        constant = shape.constant.reshape(-1)
        for load, reach, slope in zip(cost.loads, shape.reaches, shape.slopes, strict=True):
            rows = self.cells.rows(load)
            factor = rows.factor // reach.step * np.repeat(slope.reshape(-1)[rows.place], np.diff(rows.start))
            for place, cells, factors in rows.by_place(factor):
                term = terms.get(place)
                if term is None:
                    terms[place] = Sum(int(constant[place]), cells, factors)
                    continue
                known = dict(zip(term.variables, term.factors, strict=True))
                for cell, one in zip(cells, factors, strict=True):
                    known[cell] = known.get(cell, 0) + one
                term.variables, term.factors = list(known), list(known.values())
        return list(terms), list(terms.values())

    def _targets(self, cost: LoadCost, shape: Shape, *, above: bool) -> dict[int, Sum]:
        """Per place that cells add to, its cost; ``above``: at least that."""
        if isinstance(shape, Tabled):
            targets = self._table(cost, shape, above=above and shape.convex())
        else:
            assert isinstance(shape, Curve)
            targets = self._curve(cost, shape, above=above)
        if shape.superadditive():
            self._above_each_row(cost.loads[0], shape, targets)
        elif shape.single and shape.growing():
            self._above_each_class(cost.loads[0], shape, targets)
        return targets

    def _curve(self, cost: LoadCost, shape: Curve, *, above: bool) -> dict[int, Sum]:
        loads = [self._loads(load, reach) for load, reach in zip(cost.loads, shape.reaches, strict=True)]
        written = CurveRows(shape, loads, self._variable)
        places = sorted({place for of_load in loads for place in of_load})
        targets = {place: written.at(place, above=above) for place in places}
        corners = shape.corners() or ()
        for place in places if corners else ():
            steps, costs = (told[:, place].tolist() for told in corners)
            ends = sorted(set(zip(steps, costs, strict=True)))
            for slope, offset, scale in _envelope(ends):
                line = Sum(offset, [loads[0][place]], [slope])
                self.rows.append(at_least(scaled(targets[place], scale), line, implied=True))
        self.rows += written.rows
        self.maxima += written.maxima
        self.multiplications += written.multiplications
        self.divisions += written.divisions
        self._defined.append(
            lambda counts: written.values(tuple(self.cells.load(load, counts) for load in cost.loads))
        )
        return targets

    def _table(self, cost: LoadCost, shape: Tabled, *, above: bool) -> dict[int, Sum]:
        if len(shape.values) > _MOST_WRITTEN and not above:
            raise UnsuitableError(f"the cost {cost.name} has a table of {len(shape.values)} entries")
        loads = [self._loads(load, reach) for load, reach in zip(cost.loads, shape.reaches, strict=True)]
        places = sorted({place for of_load in loads for place in of_load})
        targets: dict[int, Sum] = {}
        for place in places:
            used = [
                (of_load[place], stride)
                for of_load, stride in zip(loads, shape.strides, strict=True)
                if place in of_load
            ]
            variables, strides = [variable for variable, _ in used], [stride for _, stride in used]
            entries = 1 + sum(stride * self.upper[variable] for variable, stride in used)
            values = shape.values[:entries, place]
            target = self._variable(int(values.min()), int(values.max()))
            targets[place] = Sum(0, [target], [1])
            if not above:
                self.elements.append(Element(variables, strides, target, values.tolist()))
            if shape.single:
                for slope, offset, scale in _tangents(values):
                    self.rows.append(
                        Row([variables[0], target], [slope, -scale], None, -offset, implied=not above)
                    )

        def define(counts: Amounts) -> Sequence[int]:
            loads = tuple(self.cells.load(load, counts) for load in cost.loads)
            costs = np.broadcast_to(cost.cost(loads), loads[0].shape)
            return [int(cost) for cost in costs.reshape(-1)[places]]

        self._defined.append(define)
        return targets

    def _above_each_row(self, load: Load, shape: Shape, targets: dict[int, Sum]) -> None:
        """A superadditive cost is at least what all rows cost alone, each beside nothing."""
        rows = self.cells.rows(load)
        where = np.repeat(rows.place, np.diff(rows.start))
        alone = shape.at(where, [rows.factor]) - shape.nothing()[where]
        nothing = shape.nothing().tolist()
        for place, own, factors in rows.by_place(alone):
            self.rows.append(at_least(targets[place], Sum(nothing[place], own, factors), implied=True))

    def _above_each_class(self, load: Load, shape: Shape, targets: dict[int, Sum]) -> None:
        """A growing cost is at least what it is of the rows of each class alone."""
        cells = self.cells
        rows = cells.rows(load)
        kinds = [
            (place, some) for place, own, _ in rows.by_place(rows.factor) for some in by_class(cells, own)
        ]
        if len(kinds) > _MOST_KINDS:
            return
        if not kinds:
            return
        weight = cells.classes.weight(load)
        classes = [int(cells.class_[some[0]]) for _, some in kinds]
        numbers = [
            np.arange(min(int(cells.classes.count[class_]), int(cells.most[some].sum())) + 1)
            for class_, (_, some) in zip(classes, kinds, strict=True)
        ]
        lengths = list(map(len, numbers))
        where, each = (np.repeat(told, lengths) for told in ([place for place, _ in kinds], weight[classes]))
        values = shape.at(where, [each * np.concatenate(numbers)])
        for (place, some), own in zip(kinds, np.split(values, np.cumsum(lengths)[:-1]), strict=True):
            for slope, offset, scale in _tangents(own):
                if slope:
                    line = Sum(offset, some.tolist(), [slope] * len(some))
                    self.rows.append(at_least(scaled(targets[place], scale), line, implied=True))

    def _loads(self, load: Load, reach: Reach) -> dict[int, int]:
        """Per place that cells add to, a variable for the load there, in steps."""
        known = self._load_variables.get((id(load), reach.step))
        if known is not None:
            return known
        rows = self.cells.rows(load)
        most = reach.most.reshape(-1)
        variables: dict[int, int] = {}
        for place, cells, factors in rows.by_place(rows.factor // reach.step):
            variables[place] = self._variable(0, int(most[place]))
            self.rows.append(Row([*cells, variables[place]], [*factors, -1], 0, 0))

        def define(counts: Amounts) -> Sequence[int]:
            steps = self.cells.load(load, counts).reshape(-1)[rows.place] // reach.step
            return [int(number) for number in steps]

        self._defined.append(define)
        self._load_variables[id(load), reach.step] = variables
        return variables

    def _limit(self, limit: Limit) -> None:
        """The rows of a limit that can bind."""
        rows = self.cells.rows(limit.load)
        if not len(rows.place):
            return
        lower, upper = (bound.reshape(-1)[rows.place] for bound in limit.bounds)
        highest = np.add.reduceat(rows.factor * self.cells.most[rows.cell], rows.start[:-1])
        binds = ((lower > 0) | (upper < highest)).tolist()
        terms = zip(binds, lower.tolist(), upper.tolist(), rows.by_place(rows.factor), strict=True)
        for bind, least, most, (_, cells, factors) in terms:
            if bind:
                self.rows.append(Row(cells, factors, max(0, least), None if most >= UNLIMITED else most))

    def _variable(self, lower: int, upper: int) -> int:
        self.lower.append(lower)
        self.upper.append(upper)
        return len(self.lower) - 1


def _column(shape: Tabled, place: int) -> Amounts:
    column: Amounts = shape.values[: int(shape.reaches[0].most.reshape(-1)[place]) + 1, place]
    return column


def _tangents(values: Amounts) -> list[tuple[int, int, int]]:
    """The lines of the lower envelope of values at 0, 1, 2 and so on."""
    return _envelope(enumerate(values.tolist()))


def _envelope(points: Iterable[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Slope, offset and scale of the lines whose maximum is the lower envelope: ``scale * y >= slope * x + offset``.

    Where the values are convex at distances of 1 the scale is 1 and the envelope goes through all of them.
    """
    hull: list[tuple[int, int]] = []
    for at, value in points:
        while len(hull) >= 2:
            (first, low), (second, high) = hull[-2:]
            if (high - low) * (at - second) < (value - high) * (second - first):
                break
            hull.pop()
        hull.append((at, value))
    if len(hull) == 1:
        return [(0, hull[0][1], 1)]
    lines = []
    for (first, low), (second, high) in pairwise(hull):
        common = gcd(high - low, second - first)
        slope, scale = (high - low) // common, (second - first) // common
        lines.append((slope, scale * low - slope * first, scale))
    return lines
