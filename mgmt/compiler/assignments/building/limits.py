"""CHECKs of single rows, and CHECKs over groups that compare a linear form of loads with a constant of the group.

The former forbid values to rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mgmt.compiler.assignments.building.conditions import (
    alternatives_of,
    bands_of,
    budget_of,
    combined,
    move_limit_of,
    occupancy_of,
    one_of,
    range_of,
)
from mgmt.compiler.assignments.building.contributions import (
    Groups,
    LinearForm,
    at_groups,
    constants_at,
    contribution_of,
    group_totals,
    groups_of,
    linear_form,
    loads_of,
)
from mgmt.compiler.assignments.building.skews import compares_with_least, skews_of
from mgmt.compiler.assignments.columns.candidates import Candidates, Choosers, Grid, at_places, classes_of
from mgmt.compiler.assignments.columns.vectors import MOST_CELLS, Integers, Mask, Vector, compared
from mgmt.compiler.assignments.normalization.aggregates import clauses, counted, gated
from mgmt.compiler.assignments.normalization.expressions import Constant
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import (
    TURNED,
    Aggregate,
    AggregateFunction,
    Arithmetic,
    Case,
    Comparison,
    Disjunction,
    Expression,
    has_aggregate,
)
from mgmt.optimization.assignment import UNLIMITED, Condition, Limit, Load
from mgmt.state.schema import SqlType


@dataclass(frozen=True, slots=True, eq=False)
class Ban:
    """What one constraint forbids.  Rows of class -1 are not in it."""

    row_class: NDArray[np.intp]
    """(R,) the class of each choosing row, or -1."""
    forbidden: Mask
    """(K, V + 1) per class and value; the last: to have no value."""


def ban_of(data: Candidates) -> Ban | None:
    """What a CHECK of single rows forbids; None when every choice passes."""
    shape = data.shape
    if shape.group_gates or has_aggregate(shape.demand):
        raise NotAnAssignment("aggregates over rows that are not grouped")
    conditions = [*shape.gates, *shape.pair_gates]
    grid = data.grid(*conditions, shape.demand)
    return forbidding(data, grid, grid.holds(conditions) & grid.evaluate(shape.demand).false)


def forbidding(data: Candidates, grid: Grid, broken: Mask) -> Ban | None:
    """The ban of what is ``broken``, (row classes, value classes) of a grid; None when nothing is."""
    if not broken.any():
        return None
    width = data.choosers.values + 1
    if grid.rows.count * width > MOST_CELLS:
        raise NotAnAssignment(
            f"{grid.rows.count} kinds of rows may choose differently from {width - 1} values"
        )
    known = np.flatnonzero(data.place >= 0)
    forbidden = at_places(broken[:, grid.values.of[known]], data.place[known], width, np.logical_or)
    row_class = np.full(data.choosers.rows, -1, np.intp)
    if data.once_per_chooser:
        row_class[data.chooser] = grid.rows.of
        return Ban(row_class, forbidden)
    pairs = classes_of([data.chooser, grid.rows.of], data.rows).examples
    present, where = np.unique(data.chooser[pairs], return_inverse=True)
    if len(present) * width > MOST_CELLS:
        raise NotAnAssignment("rows with several conditions each on many values")
    joined = np.zeros((len(present), width), np.bool_)
    np.logical_or.at(joined, where, forbidden[grid.rows.of[pairs]])
    row_class[present] = np.arange(len(present))
    return Ban(row_class, joined)


def joint(choosers: Choosers, bans: list[Ban]) -> tuple[NDArray[np.int32], Mask, Mask]:
    """(R,) classes, (C, V) what each may choose, and (C,) whether it may stay without a value."""
    found = classes_of([ban.row_class for ban in bans], choosers.rows)
    if found.count * (choosers.values + 1) > MOST_CELLS * 2:
        raise NotAnAssignment(f"{found.count} kinds of rows may choose differently")
    allowed = np.ones((found.count, choosers.values + 1), np.bool_)
    allowed[:, -1] = choosers.nullable
    for ban in bans:
        kinds = ban.row_class[found.examples]
        inside = kinds >= 0
        allowed[inside] &= ~ban.forbidden[kinds[inside]]
    return found.of.astype(np.int32), np.ascontiguousarray(allowed[:, :-1]), allowed[:, -1]


class Limiter:
    """Makes limits of one grouped CHECK."""

    def __init__(self, data: Candidates) -> None:
        self._data = data
        self._groups = groups_of(data)
        self.limits: list[Limit] = []
        self.conditions: list[Condition] = []
        self.bans: list[Ban] = []
        self.impossible = False
        """Some group's check fails whatever is chosen."""

    def run(self) -> None:
        """Fill ``limits``.  NotAnAssignment when the check is none of these comparisons."""
        shape = self._data.shape
        live: Mask = self._groups.exists
        for gate in shape.group_gates:
            if not has_aggregate(gate):
                live = live & at_groups(self._data, self._groups, gate).true
        for clause in clauses(counted(gated(filter(has_aggregate, shape.group_gates), shape.demand))):
            self._require(clause, live)

    def _require(self, check: Expression, live: Mask) -> None:
        """Demand a condition of the groups that are ``live``."""
        if not live.any():
            return
        if (found := self._settled(check)) is not None:
            self.impossible |= bool((live & found.false).any())
        elif isinstance(check, Disjunction):
            settled = {id(part): self._settled(part) for part in check.operands}
            open_parts = [part for part in check.operands if settled[id(part)] is None]
            for found in settled.values():
                live = live if found is None else live & found.false
            if not open_parts or not live.any():
                self.impossible |= bool(live.any())
            elif any(map(compares_with_least, open_parts)):
                self.conditions.extend(skews_of(self._data, self._groups, open_parts, live))
            elif len(open_parts) > 1:
                self._add(alternatives_of(self._data, self._groups, open_parts, live))
            else:
                self._require(open_parts[0], live)
        elif isinstance(check, Comparison) and compares_with_least(check):
            self.conditions.extend(skews_of(self._data, self._groups, [check], live))
        elif isinstance(check, Comparison):
            special = self._condition(check, live)
            if special is None:
                self._compare(check, live)
            self._add(special or ())
        elif isinstance(check, Aggregate) and check.function is AggregateFunction.ALL_DIFFERENT:
            self._all_different(check, live)
        else:
            raise NotAnAssignment(f"CHECK of {type(check).__name__} over groups")

    def _settled(self, check: Expression) -> Vector | None:
        """Broadcastable to (groups, buckets): what a condition is whatever is chosen; None if it depends on that."""
        if not has_aggregate(check):
            return at_groups(self._data, self._groups, check)
        if not isinstance(check, Comparison) or check.null_safe or compares_with_least(check):
            return None
        left, right = linear_form(self._data, check.left), linear_form(self._data, check.right)
        if left is None or right is None:
            return None
        form = left.plus(right.scaled(-1))
        known = constants_at(self._data, self._groups, form)
        total = known.values
        for factor, aggregate in form.aggregates:
            if aggregate.function not in {AggregateFunction.COUNT, AggregateFunction.SUM}:
                return None
            always = contribution_of(self._data, aggregate).constant(self._groups)
            if always is None:
                return None
            total = total + factor * group_totals(self._data, self._groups, always)
        zero = Vector(np.zeros((1, 1), np.int64))
        return compared(Vector(total, known.null), check.operator, zero)

    def _condition(self, check: Comparison, live: Mask) -> Iterable[Condition | Limit] | None:
        """The conditions that a comparison is; None when it is a limit, or nothing of the kind."""
        for condition_of in (move_limit_of, bands_of, occupancy_of):
            found = condition_of(self._data, self._groups, check, live)
            if found is not None:
                return found
        return None

    def _compare(self, check: Comparison, live: Mask) -> None:
        if check.null_safe or check.operator == "<>":
            raise NotAnAssignment(f"{check.operator} between aggregates")
        left, right = linear_form(self._data, check.left), linear_form(self._data, check.right)
        if left is None or right is None:
            multiplied = self._multiplied(check, live)
            if multiplied is None:
                raise NotAnAssignment("a comparison that is not linear in the aggregates")
            self._compare(multiplied, live)
            return
        form = left.plus(right.scaled(-1))
        if self._forbid(form, check.operator, live):
            return
        try:
            weight, counts, constant = combined(
                self._data,
                self._groups,
                form,
                {id(one): contribution_of(self._data, one) for _, one in form.aggregates},
            )
        except NotAnAssignment:  # what rows add may differ from value to value, or from group to group
            if self._by_value(form, check, live):
                return
            self._group_by_group(check, form, live)
            return
        bound = constants_at(self._data, self._groups, form.scaled(-1))
        wanted = Vector(bound.values - constant, bound.null)
        self._limit(weight, counts, check.operator, wanted, live)

    def _multiplied(self, check: Comparison, live: Mask) -> Comparison | None:
        """``load / capacity <= 3`` as a bound on the load; None when it is no quotient by what is always positive."""
        quotient, limit, operator = check.left, check.right, check.operator
        if isinstance(limit, Arithmetic) and limit.operator == "/" and has_aggregate(limit):
            quotient, limit, operator = limit, quotient, TURNED[operator]
        if not isinstance(quotient, Arithmetic) or quotient.operator != "/" or has_aggregate(limit):
            return None
        if has_aggregate(quotient.right) or operator == "=":
            return None
        divisor = at_groups(self._data, self._groups, quotient.right)
        if bool((live & ((divisor.values <= 0) | divisor.nulls)).any()):
            return None
        position = check.position
        # It is rounded towards zero: from below zero on, what is less than a whole number more comes to the same.
        away = 1 if operator in {"<", "<="} else -1
        one = Constant(SqlType.INTEGER, position, away)
        if operator in {"<", ">"}:
            limit = Arithmetic(SqlType.INTEGER, position, limit, one, "-")
        zero = Constant(SqlType.INTEGER, position, 0)
        beyond = Arithmetic(SqlType.INTEGER, position, limit, one, "+")
        beyond = Arithmetic(SqlType.INTEGER, position, beyond, quotient.right, "*")
        beyond = Arithmetic(SqlType.INTEGER, position, beyond, one, "-")
        exact = Arithmetic(SqlType.INTEGER, position, limit, quotient.right, "*")
        away_from_zero = Comparison(SqlType.BOOLEAN, position, limit, zero, ">=" if away > 0 else "<=")
        bound = Case(SqlType.INTEGER, position, (away_from_zero,), (beyond,), exact)
        return Comparison(SqlType.BOOLEAN, position, quotient.left, bound, "<=" if away > 0 else ">=")

    def _group_by_group(self, check: Comparison, form: LinearForm, live: Mask) -> None:
        try:
            found = list(alternatives_of(self._data, self._groups, [check], live))
        except NotAnAssignment:
            ones = one_of(self._data, self._groups, form, check.operator, live)
            if ones is None:
                self.conditions.append(budget_of(self._data, self._groups, form, check.operator, live))
                return
            self.conditions.extend(ones)
        else:
            self._add(found)

    def _forbid(self, form: LinearForm, operator: str, live: Mask) -> bool:
        """Take in that there must be none of some rows: each may not choose what would make it one of them."""
        if len(form.aggregates) != 1 or operator not in {"=", "<", "<="}:
            return False
        ((factor, aggregate),) = form.aggregates
        amount = contribution_of(self._data, aggregate)
        bound = constants_at(self._data, self._groups, LinearForm((), form.rest))
        least = -bound.values - (operator == "<")
        none = live & (least == 0)
        if factor != 1 or bound.nulls.any() or bool((live & ~none).any()) or bool((amount.amount < 0).any()):
            return False
        # Rows and values apart by what they add and by their groups.
        own, groups = amount.grid, self._groups
        rows = classes_of([own.rows.of, groups.rows.of], self._data.rows)
        values = classes_of([own.values.of, groups.values.of], self._data.values)
        broken = amount.amount[np.ix_(own.rows.of[rows.examples], own.values.of[values.examples])] > 0
        if not bool(none.all()):
            within = np.ix_(groups.rows.of[rows.examples], groups.values.of[values.examples])
            broken = broken & np.broadcast_to(none, groups.shape)[within]
        ban = forbidding(self._data, Grid(rows, values, own.leaves), broken)
        self.bans.extend([] if ban is None else [ban])
        return True

    def _by_value(self, form: LinearForm, check: Comparison, live: Mask) -> bool:
        """Take in a bound on one aggregate of which rows add otherwise at other values; False if it is not that."""
        if len(form.aggregates) != 1 or (self._data.has_every_value and self._groups.values.count < 2):
            return False
        ((factor, aggregate),) = form.aggregates
        bound = constants_at(self._data, self._groups, form.scaled(-1))
        buckets, ways = self._groups.values, list(contribution_of(self._data, aggregate).by_value())
        within: Mask = np.zeros((len(ways), buckets.count), np.bool_)
        for number, (_, where) in enumerate(ways):
            within[number, buckets.of[where]] = True
        if bool((within.sum(axis=0) > 1).any()):
            return False  # a group of values in several of these ways
        for inside, (weight, where) in zip(within, ways, strict=True):
            self._limit(factor * weight, where, check.operator, bound, live & inside.reshape(1, -1))
        nothing = np.zeros(self._data.rows, np.int64), np.zeros(self._data.values, np.bool_)
        self._limit(*nothing, check.operator, bound, live & ~np.asarray(within.any(axis=0)).reshape(1, -1))
        return True

    def _limit(self, weight: Integers, counts: Mask, operator: str, wanted: Vector, live: Mask) -> None:
        """``sum of weights <operator> wanted`` in the live groups."""
        if bool((weight <= 0).all()) and bool((weight < 0).any()):
            weight, wanted = -weight, Vector(-wanted.values, wanted.null)
            operator = TURNED[operator]
        live = live if wanted.null is None else live & ~wanted.null
        value = wanted.values
        lower, upper = range_of(operator, value)
        lower = np.where(live, lower, -UNLIMITED)
        upper = np.where(live, upper, UNLIMITED)
        if self._data.shape.strict and bool(((lower > 0) | (upper < 0)).any()):
            raise NotAnAssignment("STRICT GROUPS with a check that an empty group fails")
        if not counts.any() or not weight.any():
            self.impossible |= bool(((lower > 0) | (upper < 0)).any())
            return
        self._add_limit(weight, counts, lower, upper)

    def _add(self, found: Iterable[Condition | Limit]) -> None:
        for one in found:
            if isinstance(one, Limit):
                self.limits.append(one)
            else:
                self.conditions.append(one)

    def _add_limit(self, weight: Integers, counts: Mask, lower: Integers, upper: Integers) -> None:
        name = self._data.shape.name
        for part in loads_of(self._data, self._groups, weight, counts, split=True):
            low, high = lower, upper
            if part.group is not None:
                rows = self._groups.rows.count
                low = np.broadcast_to(low, (rows, low.shape[1]))[part.group : part.group + 1]
                high = np.broadcast_to(high, (rows, high.shape[1]))[part.group : part.group + 1]
            most = _most(part.load)
            if bool((low <= 0).all()) and bool((high >= most).all()):
                continue  # it cannot be broken
            self.limits.append(Limit(name, part.load, np.maximum(low, 0), np.minimum(high, UNLIMITED)))

    def _all_different(self, check: Aggregate, live: Mask) -> None:
        """No two rows of a group with the same value: each value is a bucket that takes one."""
        data, operand = self._data, check.operand
        if self._groups.values.count != 1 or data.shape.strict:
            raise NotAnAssignment("all_different within groups of values")
        if check.condition is not None or not bool(live.all()):
            raise NotAnAssignment("all_different of some rows or groups")
        column = data.column_of_choice(operand)
        if column is None:
            raise NotAnAssignment("all_different of something else than the choice")
        counting = replace(check, function=AggregateFunction.COUNT, operand=operand)
        weight, counts = contribution_of(data, counting).separated()
        kinds = np.unique(column.values, return_inverse=True)[1]
        values = replace(self._groups.values, of=kinds, examples=np.unique(kinds, return_index=True)[1])
        groups = Groups(self._groups.rows, values, self._groups.exists)
        one = np.ones((1, 1), np.int64)
        for part in loads_of(data, groups, weight, counts, split=True):
            self.limits.append(Limit(data.shape.name, part.load, np.zeros((1, 1), np.int64), one))


def _most(load: Load) -> int:
    """The largest load that any choice could bring about in any group."""
    counted = load.group >= 0
    if not counted.any():
        return 0
    total = np.zeros(load.groups, np.int64)
    np.add.at(total, load.group[counted], load.weight[counted])
    return int(total.max())


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """What a grouped CHECK comes to."""

    limits: Sequence[Limit]
    conditions: Sequence[Condition]
    bans: Sequence[Ban]
    impossible: bool
    """It fails whatever is chosen."""


def limits_of(data: Candidates) -> Limits:
    """The limits, conditions and bans that a grouped CHECK is."""
    limiter = Limiter(data)
    limiter.run()
    return Limits(limiter.limits, limiter.conditions, limiter.bans, limiter.impossible)
