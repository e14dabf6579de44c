"""What a row adds to an aggregate by its choice, and the loads, constants and linear forms that come of it.

A COUNT or SUM over the candidates of a group is an amount per row and value.  Where it is the row's alone, times
whether the value counts, it is a load; where the choice makes no difference it is a constant of the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mgmt.compiler.assignments.columns.candidates import (
    Candidates,
    Classes,
    Grid,
    Places,
    classes_of,
    each_once,
)
from mgmt.compiler.assignments.columns.vectors import LARGEST, Integers, Mask, Vector, evaluate
from mgmt.compiler.assignments.normalization.expressions import Chosen, RowColumn, ScalarColumn, ValueColumn
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import (
    EXTREMES,
    Aggregate,
    AggregateFunction,
    Arithmetic,
    Coalesce,
    Expression,
    has_aggregate,
)
from mgmt.optimization.assignment import NONE, Load

_Made = TypeVar("_Made")
_MOST_SPLIT = 64
"""So many groups at most get a load each where one row adds to several of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The groups of rows and of values ("buckets"); a group of the query is a pair of them."""

    rows: Classes
    values: Classes
    exists: Mask
    """Broadcastable to (groups, buckets): which pairs have a candidate."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.count, self.values.count

    @property
    def count(self) -> int:
        """How many groups there are."""
        return int(np.broadcast_to(self.exists, self.shape).sum())


def groups_of(data: Candidates) -> Groups:
    """The possible groups: those of all pairs of a row and a value, the solver left out."""
    shape = data.shape
    rows = data.row_classes(shape.row_keys)
    values = data.value_classes(shape.value_keys)
    exists = np.ones((1, 1), np.bool_)
    if shape.pair_gates:
        grid = data.grid(*shape.pair_gates)
        possible = grid.holds(shape.pair_gates)
        exists = _any_within(_any_within(possible, grid.rows, rows).T, grid.values, values).T
    if shape.unmixed:
        pairs = np.stack([data.place, values.of])[:, data.place >= 0]
        if len(np.unique(pairs, axis=1).T) < pairs.shape[1]:
            raise NotAnAssignment("several rows of constants are joined to one group")
    groups = Groups(rows, values, exists)
    if not data.is_slice:
        data.require_groups(groups.count)
    return groups


def one_group(data: Candidates) -> Groups:
    """All rows and values as one group."""
    rows, values = data.row_classes(()), data.value_classes(())
    return Groups(rows, values, np.ones((1, 1), np.bool_))


def _any_within(held: Mask, kinds: Classes, groups: Classes) -> Mask:
    """(groups, n): whether what is said of kinds of rows (kinds, n) holds of any row of each group."""
    pairs = classes_of([groups.of, kinds.of], len(kinds.of)).examples
    pairs = pairs[np.argsort(groups.of[pairs], kind="stable")]
    starts = np.searchsorted(groups.of[pairs], np.arange(groups.count))
    return np.asarray(np.logical_or.reduceat(held[kinds.of[pairs]], starts, axis=0))


@dataclass(frozen=True, slots=True, eq=False)
class Contribution:
    """An aggregate before the choice: what each kind of row adds at each kind of value."""

    data: Candidates
    grid: Grid
    amount: Integers
    """(row classes, value classes)"""

    def constant(self, groups: Groups | None = None) -> Integers | None:
        """(rows,) what each row adds, to its group, whatever it chooses; None if the choice makes a difference."""
        if not self.amount.any():
            return np.zeros(self.data.rows, np.int64)
        if not self.data.has_every_value or (groups is not None and groups.values.count > 1):
            return None
        if self.amount.size and bool((self.amount == self.amount[:, :1]).all()):
            return self.amount[:, 0][self.grid.rows.of]
        return None

    def by_value(self) -> Iterator[tuple[Integers, Mask]]:
        """What each row adds, (rows,), and at which values, (values,), for each way in which values let rows add."""
        columns, of = np.unique(self.amount, axis=1, return_inverse=True)
        if columns.shape[1] > _MOST_SPLIT:
            raise NotAnAssignment("an amount that depends on the row and on the value at once")
        for number, column in enumerate(columns.T):
            if column.any():
                yield column[self.grid.rows.of], of.reshape(-1)[self.grid.values.of] == number

    def separated(self, rows: Places | None = None) -> tuple[Integers, Mask]:
        """(rows,) what each row adds, and (values,) where it does.  NotAnAssignment when it takes both to tell.

        ``rows``: only of these, which may agree where all together do not.
        """
        kinds, of = np.arange(len(self.amount)), self.grid.rows.of
        if rows is not None:
            kinds, of = np.unique(of[rows], return_inverse=True)
        amount = self.amount[kinds]
        counts = (amount != 0).any(axis=0)
        first = int(np.argmax(counts)) if counts.any() else 0
        weight = amount[:, first] if amount.shape[1] else np.zeros(len(kinds), np.int64)
        if not bool((amount == weight[:, None] * counts[None, :]).all()):
            raise NotAnAssignment("an amount that depends on the row and on the value at once")
        return weight[of], counts[self.grid.values.of]


def contribution_of(data: Candidates, aggregate: Aggregate, extra: Sequence[Expression] = ()) -> Contribution:
    """The amounts of a COUNT or SUM; ``extra`` conditions hold besides the query's own."""
    if aggregate.function not in {AggregateFunction.COUNT, AggregateFunction.SUM}:
        raise NotAnAssignment(f"{aggregate.function} over choices")
    shape = data.shape
    conditions = [*shape.gates, *shape.pair_gates, *extra]
    if aggregate.condition is not None:
        conditions.append(aggregate.condition)
    used = [*conditions, *([aggregate.operand] if aggregate.operand is not None else [])]
    if any(has_aggregate(part) for part in used):
        raise NotAnAssignment("an aggregate of aggregates over choices")
    grid = data.grid(*used)
    present = grid.holds(conditions)
    if aggregate.operand is None:
        return Contribution(data, grid, present.astype(np.int64))
    operand = grid.evaluate(aggregate.operand)
    present = present & ~operand.nulls
    if aggregate.function is AggregateFunction.COUNT:
        return Contribution(data, grid, present.astype(np.int64))
    if operand.codes:
        raise NotAnAssignment("a sum of text")
    return Contribution(data, grid, np.where(present, operand.values, 0))


def group_totals(data: Candidates, groups: Groups, amounts: Integers) -> Integers:
    """(groups, 1): the sum over the rows of each group."""
    if float(np.abs(amounts).sum(dtype=np.float64)) > LARGEST:
        raise NotAnAssignment("sums beyond 62 bits")
    total = np.zeros(groups.rows.count, np.int64)
    np.add.at(total, groups.rows.of, amounts)
    return total.reshape(-1, 1)


@dataclass(frozen=True, slots=True, eq=False)
class PartLoad:
    """A load over all groups, or (``group``) over one of them alone."""

    load: Load
    group: int | None


def loads_of(
    data: Candidates, groups: Groups, weight: Integers, counts: Mask, *, split: bool
) -> Iterator[PartLoad]:
    """The loads that these amounts are; several, one for each group, where a row is in more than one."""
    check_weights(weight)
    bucket = buckets_of(data, groups.values.of, counts)
    rows = data.choosers.rows
    counted = weight > 0
    chooser, group = data.chooser[counted], groups.rows.of[counted]
    amounts = weight[counted]
    groups_of_rows = np.full(rows, NONE, np.int32)
    groups_of_rows[chooser] = group
    if bool((groups_of_rows[chooser] == group).all()):
        total = np.zeros(rows, np.int64)
        np.add.at(total, chooser, amounts)
        yield PartLoad(Load(groups_of_rows, groups.rows.count, bucket, groups.values.count, total), None)
        return
    if not split or groups.rows.count > _MOST_SPLIT:
        raise NotAnAssignment("rows that are in several groups")
    for number in range(groups.rows.count):
        total = np.zeros(rows, np.int64)
        np.add.at(total, chooser[group == number], amounts[group == number])
        alone = np.where(total > 0, 0, NONE).astype(np.int32)
        yield PartLoad(Load(alone, 1, bucket, groups.values.count, total), number)


def buckets_of(data: Candidates, of: Places, counts: Mask) -> NDArray[np.int32]:
    """(domain values,) the bucket each value counts in: what ``of`` says of the values that count, else NONE."""
    values = data.choosers.values
    found = np.full(values, NONE, np.int32)
    counting = np.flatnonzero(counts & (data.place >= 0))
    places = data.place[counting]
    if bool((places >= values).any()):
        raise NotAnAssignment("a load of rows without a value")
    if not each_once(places):
        raise NotAnAssignment("a value that counts in several groups")
    found[places] = of[counting]
    return found


def check_weights(weight: Integers) -> None:
    """NotAnAssignment when these cannot be what rows add to a load."""
    if bool((weight < 0).any()):
        raise NotAnAssignment("negative amounts")
    if float(weight.sum(dtype=np.float64)) > LARGEST:
        raise NotAnAssignment("sums beyond 62 bits")


@dataclass(frozen=True, slots=True, eq=False)
class LinearForm:
    """A sum of factors times aggregates, and of factors times what has no aggregate."""

    aggregates: tuple[tuple[int, Aggregate], ...]
    rest: tuple[tuple[int, Expression], ...]

    def scaled(self, factor: int) -> LinearForm:
        return LinearForm(
            tuple((factor * one, aggregate) for one, aggregate in self.aggregates),
            tuple((factor * one, part) for one, part in self.rest),
        )

    def plus(self, other: LinearForm) -> LinearForm:
        return LinearForm(self.aggregates + other.aggregates, self.rest + other.rest)


def linear_form(data: Candidates, expression: Expression) -> LinearForm | None:
    """An expression as a linear form of its aggregates; None if it is none."""
    if not has_aggregate(expression):
        return LinearForm((), ((1, expression),))
    if isinstance(expression, Aggregate):
        return LinearForm(((1, expression),), ())
    if isinstance(expression, Coalesce) and _is_number_anyhow(data, expression):
        return linear_form(data, expression.operands[0])
    if not isinstance(expression, Arithmetic):
        return None
    left, right = linear_form(data, expression.left), linear_form(data, expression.right)
    if left is None or right is None:
        return None
    if expression.operator == "+":
        return left.plus(right)
    if expression.operator == "-":
        return left.plus(right.scaled(-1))
    if expression.operator == "*":
        for form, other in ((left, expression.right), (right, expression.left)):
            factor = _number(data, other)
            if factor is not None:
                return form.scaled(factor)
    return None


def _is_number_anyhow(data: Candidates, part: Coalesce) -> bool:
    """Whether the first operand is never NULL, or a least or greatest that is taken for 0 where it is NULL, too.

    That is so in an objective; a check of one has no linear form.
    """
    first, *others = part.operands
    if not isinstance(first, Aggregate):
        return False
    if first.function in {AggregateFunction.COUNT, AggregateFunction.SUM}:
        return True
    return first.function in EXTREMES and len(others) == 1 and _number(data, others[0]) == 0


def _number(data: Candidates, expression: Expression) -> int | None:
    """The value of an expression that is the same for all rows and values."""
    if any(isinstance(node, (RowColumn, ValueColumn, Chosen, Aggregate)) for node in expression.walk()):
        return None
    if not any(isinstance(node, ScalarColumn) for node in expression.walk()):
        return None
    found = data.grid(expression).evaluate(expression)
    if found.codes or found.nulls.any():
        return None
    return int(found.values[0, 0])


def at_groups(data: Candidates, groups: Groups, expression: Expression) -> Vector:
    """An expression without aggregates, broadcastable to (groups, buckets), from any row of each."""
    leaves = data.leaves(groups.rows.examples, groups.values.examples)
    return evaluate(expression, leaves)


def constants_at(data: Candidates, groups: Groups, form: LinearForm) -> Vector:
    """The part of a linear form without aggregates, broadcastable to (groups, buckets)."""
    values: Integers = np.zeros((1, 1), np.int64)
    null: Mask | None = None
    for factor, part in form.rest:
        found = at_groups(data, groups, part)
        if found.codes:
            raise NotAnAssignment("text compared with an aggregate")
        if found.values.size and abs(factor) * int(np.abs(found.values).max()) > LARGEST:
            raise NotAnAssignment("bounds beyond 62 bits")
        values = values + factor * found.values
        if found.null is not None:
            null = found.null if null is None else null | found.null
    return Vector(values, null)


def whole_or_sliced(data: Candidates, make: Callable[[Candidates], _Made]) -> list[_Made]:
    """What is made of a candidates, or of each of its slices where the whole is of no shape."""
    try:
        return [make(data)]
    except NotAnAssignment as reason:
        try:
            slices = data.slices()
        except NotAnAssignment:
            raise reason from None
        if data.shape.grouped:
            data.require_groups(sum(groups_of(part).count for part in slices))
        return [make(part) for part in slices]
