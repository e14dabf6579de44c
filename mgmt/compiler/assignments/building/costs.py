"""Objectives: what rows pay for their values, and what loads cost.

What is linear in the aggregates is paid row by row; any other function of the loads of a group is a cost of loads,
summed over the groups or their peak.  The greatest of what choices cost is a peak over kinds of values, or of each of
several groups a sum of steps, each of which is paid where a row reaches it.  Maximised objectives are turned round:
everything here is minimised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mgmt.compiler.assignments.building.conditions import moving_rows
from mgmt.compiler.assignments.building.contributions import (
    Contribution,
    Groups,
    LinearForm,
    at_groups,
    constants_at,
    contribution_of,
    group_totals,
    groups_of,
    linear_form,
    loads_of,
    one_group,
)
from mgmt.compiler.assignments.building.load_costs import Translation
from mgmt.compiler.assignments.columns.candidates import Candidates, at_places, classes
from mgmt.compiler.assignments.columns.vectors import LARGEST, MOST_CELLS, Integers, Mask
from mgmt.compiler.assignments.normalization.expressions import Chosen, Constant
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import (
    EXTREMES,
    Aggregate,
    AggregateFunction,
    Case,
    Coalesce,
    Expression,
    Extreme,
)
from mgmt.optimization.assignment import NONE, Cost, Load, LoadCost, RowCost
from mgmt.optimization.load_functions import LoadFunction, LoadNumber, Positive, Total, greatest, tree_of

_MOST_KINDS = 16
"""Each is a load of its own."""
_MOST_STEPS = 64
"""Each is a cost of its own."""


class Coster:
    """Makes costs of one objective."""

    def __init__(self, data: Candidates) -> None:
        self._data = data
        demand = data.shape.bound.demand
        assert demand is not None
        self._sign = -1 if demand.maximize else 1
        self._weight = demand.tail.weight
        self.costs: list[Cost] = []
        self.constant = 0
        """What is paid whatever is chosen, weight and sign included."""

    def run(self) -> None:
        """Fill ``costs``.  NotAnAssignment when the objective is neither linear nor a function of loads."""
        shape = self._data.shape
        if not shape.grouped:
            self._pay_rows(1, self._sum_of_rows())
        elif shape.nested:
            self._over_groups(shape.demand)
        else:
            self._sum_over_groups(1, shape.demand)

    # ---- rows ---------------------------------------------------------------------------------------

    def _sum_of_rows(self) -> Aggregate:
        """The objective over rows as the sum over all of them."""
        demand = self._data.shape.demand
        return Aggregate(demand.type, demand.position, AggregateFunction.SUM, demand, None)

    def _pay_rows(self, factor: int, aggregate: Aggregate) -> None:
        """``factor`` times the sum over all groups: each row pays for its own value."""
        data = self._data
        if self._moved(factor, aggregate):
            return
        amount = contribution_of(data, aggregate)
        always = amount.constant()
        if always is not None:
            self._always(factor * int(always.sum()))
            return
        row_class, cost = self._by_chooser(amount)
        cost = cost * (factor * self._sign)
        values = data.choosers.values
        unplaced = cost[:, values]
        least = np.minimum(cost[:, :values].min(axis=1, initial=LARGEST), unplaced)
        if data.choosers.rows and float(np.abs(cost).max()) * data.choosers.rows * self._weight > LARGEST:
            raise NotAnAssignment("costs beyond 62 bits")
        if not data.choosers.nullable:
            unplaced = least  # it is never paid
        self.costs.append(
            RowCost(
                data.shape.name,
                self._weight,
                row_class.astype(np.int32),
                np.ascontiguousarray(cost[:, :values]),
                unplaced,
                np.zeros(data.choosers.rows, np.int64),
            )
        )

    def _always(self, amount: int) -> None:
        self.constant += amount * self._sign * self._weight

    def _by_chooser(self, amount: Contribution) -> tuple[NDArray[np.intp], Integers]:
        """(R,) a class for each choosing row, and (K, V + 1) what a row of the class pays; last: without value."""
        data = self._data
        grid = amount.grid
        width = data.choosers.values + 1
        if grid.rows.count * width > MOST_CELLS:
            raise NotAnAssignment(f"{grid.rows.count} kinds of rows pay differently for {width - 1} values")
        paid = np.zeros((grid.rows.count + 1, width), np.int64)  # the last: rows that are not in the query
        known = np.flatnonzero(data.place >= 0)
        columns = amount.amount[:, grid.values.of[known]]
        paid[:-1] = at_places(columns, data.place[known], width, np.add)
        if data.once_per_chooser:
            row_class = np.full(data.choosers.rows, grid.rows.count, np.intp)
            row_class[data.chooser] = grid.rows.of
            return row_class, paid
        present, where = np.unique(data.chooser, return_inverse=True)
        if (len(present) + 1) * width > MOST_CELLS:
            raise NotAnAssignment("rows that pay for several things each")
        summed = np.zeros((len(present) + 1, width), np.int64)
        np.add.at(summed, where, paid[grid.rows.of])
        row_class = np.full(data.choosers.rows, len(present), np.intp)
        row_class[present] = np.arange(len(present))
        return row_class, summed

    def _moved(self, factor: int, aggregate: Aggregate) -> bool:
        """``choice <> today's value`` as a condition: what is paid for moving.  False if it is not that."""
        data = self._data
        if aggregate.function is AggregateFunction.COUNT and aggregate.operand is not None:
            return False
        operands = [aggregate.operand] if aggregate.operand is not None else []
        if any(isinstance(node, Chosen) for part in operands for node in part.walk()):
            return False
        present = moving_rows(data, aggregate)
        if present is None:
            return False
        paid = present.astype(np.int64)
        if aggregate.operand is not None:
            grid = data.grid(aggregate.operand)
            operand = grid.evaluate(aggregate.operand)
            if operand.codes:
                return False
            values = np.where(operand.nulls[:, 0], 0, operand.values[:, 0])[grid.rows.of]
            paid = np.where(present, values, 0)
        amounts = np.zeros(data.choosers.rows, np.int64)
        np.add.at(amounts, data.chooser, paid)
        amounts = amounts * (factor * self._sign)
        choosers = data.choosers
        gone = choosers.has_current & (choosers.current < 0)
        self.constant += self._weight * int(amounts[gone].sum())
        moved = np.where(choosers.current >= 0, amounts, 0)
        self.costs.append(
            RowCost(
                data.shape.name,
                self._weight,
                np.zeros(choosers.rows, np.int32),
                np.zeros((1, choosers.values), np.int64),
                np.zeros(1, np.int64),
                moved,
            )
        )
        return True

    # ---- groups -------------------------------------------------------------------------------------

    def _over_groups(self, demand: Expression) -> None:
        """A linear form of aggregates over the groups."""
        form = linear_form(self._data, demand)
        if form is None:
            raise NotAnAssignment("an objective that is not linear in its outer aggregates")
        groups = groups_of(self._data)
        for factor, part in form.rest:
            if not groups.exists.any():
                continue
            found = at_groups(self._data, groups, part)
            if found.nulls.any():
                raise NotAnAssignment("an objective that may be NULL")
            self._always(factor * int(found.values[0, 0]))
        for factor, outer in form.aggregates:
            inner = _each(outer)
            if outer.function in {AggregateFunction.SUM, AggregateFunction.COUNT}:
                self._sum_over_groups(factor, inner)
            elif outer.function is AggregateFunction.MAXIMUM:
                self._peak(factor, inner, negated=False, alone=self._stands_alone(form, outer))
            elif outer.function is AggregateFunction.MINIMUM:
                self._peak(-factor, inner, negated=True, alone=self._stands_alone(form, outer))
            else:
                raise NotAnAssignment(f"{outer.function} over groups")

    def _sum_over_groups(self, factor: int, each: Expression) -> None:
        groups = groups_of(self._data)
        shape = self._data.shape
        gates = shape.group_gates
        form = linear_form(self._data, each)
        if form is not None and not gates and not shape.strict:
            for number, part in form.rest:
                found = at_groups(self._data, groups, part)
                if found.nulls.any():
                    raise NotAnAssignment("an objective that may be NULL in some groups")
                whole = np.broadcast_to(np.where(groups.exists, found.values, 0), groups.shape)
                self._always(factor * number * int(whole.sum()))
            for number, aggregate in form.aggregates:
                if aggregate.function is AggregateFunction.COUNT_DISTINCT:
                    self._pay_distinct(factor * number, aggregate, groups)
                elif aggregate.function in EXTREMES:
                    alone = self._stands_alone(form, aggregate)
                    self._pay_extreme(factor * number, aggregate, groups, alone=alone)
                else:
                    self._pay_rows(factor * number, aggregate)
            return
        if not self._pay_missing_distinct(factor, each, groups):
            self._add_load_cost(factor * self._sign, each, groups, peak=False)

    def _pay_missing_distinct(self, factor: int, each: Expression, groups: Groups) -> bool:
        """``greatest(2 - count(DISTINCT value), 0)``, what a soft demand for two of them pays; False if it is not that.

        One is missing where all rows of a group, which must be somewhere, have the same.
        """
        data, shape = self._data, self._data.shape
        aggregate = self._missing_of_two(each, groups)
        column = None if aggregate is None else data.column_of_choice(aggregate.operand)
        if aggregate is None or column is None or column.nulls.any() or shape.group_gates or shape.strict:
            return False
        if groups.values.count != 1 or data.choosers.nullable:
            return False
        weight, counts = contribution_of(
            data, replace(aggregate, function=AggregateFunction.COUNT)
        ).separated()
        values = classes([column], data.values)
        (part,) = loads_of(data, replace(groups, values=values), weight, counts, split=False)
        total = group_totals(data, groups, weight)
        if bool((part.load.bucket == NONE).any()) or bool((total == 0).any()):
            return False
        cost = Positive(LoadNumber(0) + (1 - total)) * (factor * self._sign)
        self.costs.append(LoadCost(shape.name, self._weight, (part.load,), cost, False))
        return True

    def _missing_of_two(self, each: Expression, groups: Groups) -> Aggregate | None:
        """The count(DISTINCT) of which this is what is missing to two; None if it is something else."""
        each = each.operands[0] if isinstance(each, Coalesce) else each
        if not isinstance(each, Extreme) or not each.greatest or len(each.operands) != 2:
            return None
        forms = [linear_form(self._data, part) for part in each.operands]
        for form, wanted in zip(forms, (2, 0), strict=True):
            if form is None:
                return None
            rest = constants_at(self._data, groups, LinearForm((), form.rest))
            if rest.nulls.any() or bool((rest.values != wanted).any()):
                return None
        aggregates = [pair for form in forms if form is not None for pair in form.aggregates]
        if len(aggregates) != 1 or aggregates[0][0] != -1:
            return None
        aggregate = aggregates[0][1]
        return aggregate if aggregate.function is AggregateFunction.COUNT_DISTINCT else None

    def _pay_distinct(self, factor: int, aggregate: Aggregate, groups: Groups) -> None:
        """``factor`` for each different value that a group has."""
        data = self._data
        column = data.column_of_choice(aggregate.operand)
        if column is None or groups.values.count != 1:
            raise NotAnAssignment("distinct values of something else than the choice, as an objective")
        weight, counts = contribution_of(
            data, replace(aggregate, function=AggregateFunction.COUNT)
        ).separated()
        values = classes([column], data.values)
        (part,) = loads_of(data, replace(groups, values=values), weight, counts, split=False)
        cost = Positive(LoadNumber(0)) * (factor * self._sign)
        self.costs.append(LoadCost(data.shape.name, self._weight, (part.load,), cost, False))

    def _stands_alone(self, form: LinearForm, aggregate: Aggregate) -> bool:
        """Whether nothing is lost with an aggregate that is NULL: it is taken for 0, or there is nothing beside it."""
        coalesced = (node for node in self._data.shape.demand.walk() if isinstance(node, Coalesce))
        return len(form.aggregates) + len(form.rest) == 1 or any(
            node.operands[0] is aggregate for node in coalesced
        )

    def _pay_extreme(self, factor: int, aggregate: Aggregate, groups: Groups | None, *, alone: bool) -> None:
        """``factor`` times the greatest or least of what the rows of each group have, 0 where it has none.

        ``groups`` None: of all rows together.  Not ``alone``: no group may be without one.
        """
        data, sign = self._data, factor * self._sign
        counted = contribution_of(data, replace(aggregate, function=AggregateFunction.COUNT))
        assert aggregate.operand is not None
        operand = counted.grid.evaluate(aggregate.operand)
        if operand.codes:
            raise NotAnAssignment("the greatest of texts, as an objective")
        is_least = aggregate.function is AggregateFunction.MINIMUM
        amount, sign = (-operand.values, -sign) if is_least else (operand.values, sign)
        if not alone and not _has_some(data, counted, groups or one_group(data)):
            raise NotAnAssignment("an objective that may be NULL")
        if not counted.amount.any():
            return
        if float(np.abs(amount).max()) * self._weight * abs(factor) > LARGEST:
            raise NotAnAssignment("costs beyond 62 bits")
        extremes = _Extremes(data, counted, amount)
        base = extremes.least if extremes.some_row_counts else min(extremes.least, 0)
        together = groups is None or groups.shape == (1, 1)
        if together and sign > 0 and (extremes.some_row_counts or base == 0):
            self._always(factor * (-base if is_least else base))
            loads, cost = extremes.peak(base)
            self.costs.append(LoadCost(data.shape.name, self._weight * sign, loads, cost, True))
            return
        for step, some in extremes.steps(groups or one_group(data)):
            cost = Positive(Total(tuple(map(LoadNumber, range(len(some)))))) * (sign * step)
            self.costs.append(LoadCost(data.shape.name, self._weight, some, cost, False))

    def _peak(self, factor: int, each: Expression, *, negated: bool, alone: bool) -> None:
        """``factor`` times the greatest over the groups of a value, or of its negation."""
        of_all = AggregateFunction.MINIMUM if negated else AggregateFunction.MAXIMUM
        if isinstance(each, Aggregate) and each.function is of_all:
            groups = groups_of(self._data)
            if self._data.shape.group_gates or self._data.shape.strict or not groups.exists.all():
                raise NotAnAssignment("the greatest over some groups")
            self._pay_extreme(-factor if negated else factor, each, None, alone=alone)
            return
        if factor * self._sign <= 0:
            raise NotAnAssignment("a greatest load that is maximised")
        groups = groups_of(self._data)
        if not groups.exists.all() or self._data.shape.group_gates or self._data.shape.strict:
            raise NotAnAssignment("the greatest over some groups")
        sign, times = (-1 if negated else 1), factor * self._sign
        if (
            isinstance(each, Extreme)
            and each.greatest != negated
            and self._peak_of_each(sign, each, groups, times)
        ):
            return
        self._add_load_cost(sign, each, groups, peak=True, times=times)

    def _peak_of_each(self, sign: int, each: Extreme, groups: Groups, times: int) -> bool:
        """Take in the greatest of a greatest as the greatest of several peaks; False where one is a constant."""
        apart = Coster(self._data)
        try:
            for part in each.operands:
                apart._add_load_cost(sign, part, groups, peak=True, times=times)
            peaks = [cost for cost in apart.costs if isinstance(cost, LoadCost)]
            if len(peaks) < len(each.operands):
                return False
            self.costs.append(_greatest(peaks))
        except NotAnAssignment:
            return False
        return True

    def _add_load_cost(
        self, sign: int, each: Expression, groups: Groups, *, peak: bool, times: int = 1
    ) -> None:
        data = self._data
        aggregates = [node for node in each.walk() if isinstance(node, Aggregate)]
        aggregates += [
            node for gate in data.shape.group_gates for node in gate.walk() if isinstance(node, Aggregate)
        ]
        if data.shape.strict:
            raise NotAnAssignment("an objective over STRICT GROUPS")
        loads: list[Load] = []
        places: dict[int, int | Integers] = {}
        for aggregate in {id(node): node for node in aggregates}.values():
            amount = contribution_of(data, aggregate)
            always = amount.constant(groups)
            if always is not None:
                places[id(aggregate)] = group_totals(data, groups, always)
                continue
            weight, counts = amount.separated()
            (part,) = loads_of(data, groups, weight, counts, split=False)
            same = [place for place, load in enumerate(loads) if _is_same(load, part.load)]
            places[id(aggregate)] = same[0] if same else len(loads)
            if not same:
                loads.append(part.load)
        translation = Translation(data, groups, places)
        function = translation.cost(each, data.shape.group_gates, sign, peak=peak)
        _check(function, loads, groups.shape)
        if not loads:
            found = np.broadcast_to(function(()), groups.shape)
            if found.size:
                self.constant += self._weight * times * int(found.max() if peak else found.sum())
            return
        self.costs.append(LoadCost(data.shape.name, self._weight * times, tuple(loads), function, peak))


def _check(function: LoadFunction, loads: Sequence[Load], shape: tuple[int, int]) -> None:
    """NotAnAssignment where costs may be beyond 62 bits at the greatest loads."""
    most = []
    for load in loads:
        total = np.zeros((load.groups, 1), np.int64)
        counted = load.group >= 0
        np.add.at(total[:, 0], load.group[counted], load.weight[counted])
        most.append(np.broadcast_to(total, shape))
    large = function.magnitude([float(total.max(initial=0)) for total in most])
    none = tuple(np.zeros(shape, np.int64) for _ in loads)
    for extreme in (none, tuple(most)) if large <= LARGEST else ():
        whole = np.broadcast_to(function(extreme), shape)
        large = max(large, float(np.abs(whole).sum(dtype=np.float64)))
    if large > LARGEST:
        raise NotAnAssignment("costs beyond 62 bits")


def _is_same(one: Load, other: Load) -> bool:
    return all(
        np.array_equal(mine, others)
        for mine, others in ((one.weight, other.weight), (one.group, other.group), (one.bucket, other.bucket))
    )


def _each(outer: Aggregate) -> Expression:
    """What one group adds to a SUM or COUNT over groups, or is compared by in MAX and MIN."""
    one = outer.operand
    if outer.function is AggregateFunction.COUNT and one is not None:
        raise NotAnAssignment("a count of values over groups")
    if outer.condition is None and one is not None:
        return one
    if outer.function not in {AggregateFunction.SUM, AggregateFunction.COUNT}:
        raise NotAnAssignment("the greatest over some groups")
    if outer.condition is None:
        return Constant(outer.type, outer.position, 1)
    zero = Constant(outer.type, outer.position, 0)
    return Case(
        outer.type,
        outer.position,
        (outer.condition,),
        (one or Constant(outer.type, outer.position, 1),),
        zero,
    )


def _has_some(data: Candidates, counted: Contribution, groups: Groups) -> bool:
    """Whether in each group there is a row that counts, whatever is chosen."""
    always = counted.constant(groups)
    return always is not None and bool((group_totals(data, groups, always) > 0).all())


class _Extremes:
    """The greatest of what rows have, ``amount`` by kinds of rows and of values, where they are counted."""

    def __init__(self, data: Candidates, counted: Contribution, amount: Integers) -> None:
        self._data, self._grid, self._present, self._amount = data, counted.grid, counted.amount > 0, amount
        self._steps = np.unique(amount[self._present])
        self.least = int(self._steps[0])
        always = counted.constant()
        self.some_row_counts = always is not None and bool((always > 0).any())
        """Whatever is chosen."""
        told = np.where(self._present, amount, self.least)
        _, first, self._of = np.unique(
            np.concatenate((self._present, told), axis=1), axis=0, return_index=True, return_inverse=True
        )
        self._kinds = [kind for kind in first.tolist() if self._present[kind].any()]
        if len(self._kinds) > _MOST_KINDS:
            raise NotAnAssignment(f"the greatest of what {len(self._kinds)} kinds of rows have")

    def _load(self, kind: int, of: Integers, count: int, counts: Mask, groups: Groups) -> Load:
        """Of the rows of a kind, and of the values that count, in the buckets ``of`` kinds of values."""
        data = self._data
        weight = (self._of.reshape(-1) == self._of.reshape(-1)[kind])[self._grid.rows.of].astype(np.int64)
        values = self._grid.values.of
        buckets = replace(groups.values, of=of[values], examples=np.zeros(count, np.intp))
        (part,) = loads_of(data, replace(groups, values=buckets), weight, counts[values], split=False)
        return part.load

    def peak(self, base: int) -> tuple[tuple[Load, ...], LoadFunction]:
        """The greatest above a base of all rows together, as the greatest over kinds of rows and of values."""
        width = self._present.shape[1]
        one = one_group(self._data)
        loads = tuple(
            self._load(kind, np.arange(width), width, self._present[kind], one) for kind in self._kinds
        )
        prices = np.where(self._present, self._amount - base, 0)[self._kinds]
        terms = [Positive(LoadNumber(number)) * price for number, price in enumerate(prices)]
        return loads, terms[0] if len(terms) == 1 else greatest(*terms)

    def steps(self, groups: Groups) -> Iterator[tuple[int, tuple[Load, ...]]]:
        """How much more the greatest is, of each group, where there is a row that has at least so much."""
        if groups.values.count != 1:
            raise NotAnAssignment("the greatest of what rows have within groups of values")
        if len(self._steps) > _MOST_STEPS:
            raise NotAnAssignment(f"the greatest of {len(self._steps)} different amounts")
        before = 0
        for step in self._steps.tolist():
            reached = self._present & (self._amount >= step)
            of = np.zeros(reached.shape[1], np.intp)
            loads = [
                self._load(kind, of, 1, reached[kind], groups) for kind in self._kinds if reached[kind].any()
            ]
            if step != before:
                for some in _of_own_groups(loads):
                    yield step - before, some
            before = step


def _of_own_groups(loads: Sequence[Load]) -> list[tuple[Load, ...]]:
    """Loads none of which is of a group that another is of, each by itself; else all together."""
    groups = np.concatenate([np.unique(load.group[load.group >= 0]) for load in loads])
    return [tuple(loads)] if len(np.unique(groups)) < len(groups) else [(load,) for load in loads]


def costs_of(data: Candidates) -> tuple[Sequence[Cost], int]:
    """The costs of an objective, and what it costs whatever is chosen; to be minimised, weights included."""
    coster = Coster(data)
    coster.run()
    return coster.costs, coster.constant


def joined(parts: Sequence[tuple[Sequence[Cost], int]]) -> tuple[Sequence[Cost], int]:
    """The costs of an objective that slices of its candidates make together."""
    if len(parts) == 1:
        return parts[0]
    costs = [cost for some, _ in parts for cost in some]
    if not any(isinstance(cost, LoadCost) and cost.peak for cost in costs):
        return costs, sum(constant for _, constant in parts)
    peaks = [cost for cost in costs if isinstance(cost, LoadCost)]
    if len(peaks) < len(costs) or len(costs) < len(parts) or any(constant for _, constant in parts):
        raise NotAnAssignment("a greatest load beside other costs, over several joins")
    return [_greatest(peaks)], 0


def _greatest(peaks: Sequence[LoadCost]) -> LoadCost:
    """The greatest of several peaks as one, where their buckets are of the same values."""
    first = peaks[0].loads[0]
    loads: list[Load] = []
    terms: list[LoadFunction] = []
    for peak in peaks:
        load = peak.loads[0]
        if load.groups != 1 or load.buckets != first.buckets or not peak.peak:
            raise NotAnAssignment("peaks of different groups")
        pairs = np.unique(np.stack((first.bucket, load.bucket)), axis=1)
        if pairs.shape[1] != len(np.unique(pairs[0])) or pairs.shape[1] != len(np.unique(pairs[1])):
            raise NotAnAssignment("peaks over different values")
        of = np.full(load.buckets, NONE, np.int32)
        of[pairs[0, pairs[0] >= 0]] = pairs[1, pairs[0] >= 0]
        if bool((of < 0).any()):
            raise NotAnAssignment("peaks over different values")
        terms.append(tree_of(peak).of_buckets(of, load.buckets).shifted(len(loads)))
        loads.extend(replace(each, bucket=first.bucket) for each in peak.loads)
    return LoadCost(peaks[0].name, peaks[0].weight, tuple(loads), greatest(*terms), True)
