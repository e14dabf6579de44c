"""CHECKs that are no limits on single loads.

Alternatives, how many values a group uses, how far the greatest is above the least, what a group pays, how many move.

What a row adds may depend on its group here (pods of one group count per host, those of another per zone), so each
group of rows is looked at by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from mgmt.compiler.assignments.building.contributions import (
    Contribution,
    Groups,
    LinearForm,
    buckets_of,
    check_weights,
    constants_at,
    contribution_of,
    group_totals,
    linear_form,
    loads_of,
)
from mgmt.compiler.assignments.columns.candidates import Candidates, Classes, Places
from mgmt.compiler.assignments.columns.vectors import LARGEST, Integers, Mask, Vector, evaluate
from mgmt.compiler.assignments.normalization.expressions import Chosen, RowColumn, ValueColumn
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import (
    EXTREMES,
    TURNED,
    Aggregate,
    AggregateFunction,
    Comparison,
    Expression,
    signature,
)
from mgmt.optimization.assignment import (
    NONE,
    UNLIMITED,
    Budget,
    Either,
    Indices,
    Limit,
    Load,
    MoveLimit,
    Occupancy,
)
from mgmt.state.schema import SqlType

_MOST_KINDS = 100
"""Each is a condition, too."""
_MOST_BANDS = 40
"""Amounts of which each is compared with each."""
_MOST_PAYING = 16
"""Kinds of rows that pay differently: each is a load of its own."""
_MOST_GROUPS = 2_000
"""Each is a condition of its own."""


def alternatives_of(
    data: Candidates, groups: Groups, parts: Sequence[Expression], live: Mask
) -> Iterator[Either | Limit | Occupancy]:
    """An OR of comparisons of loads, for each group of rows by itself.  NotAnAssignment when it is none."""
    check_groups(data, groups)
    sides = []
    amounts: dict[int, Contribution] = {}
    for part in parts:
        if not isinstance(part, Comparison) or part.null_safe or part.operator == "<>":
            raise NotAnAssignment(f"OR with {type(part).__name__} over aggregates")
        left, right = linear_form(data, part.left), linear_form(data, part.right)
        if left is None or right is None:
            raise NotAnAssignment("OR with a comparison that is not linear in the aggregates")
        sides.append((left.plus(right.scaled(-1)), part.operator))
        for _, aggregate in (*left.aggregates, *right.aggregates):
            amounts[id(aggregate)] = contribution_of(data, aggregate)
    live = np.broadcast_to(live, groups.shape)
    for group, rows in members(groups):
        if not live[group].any():
            continue
        limits = [_limit(data, groups, form, operator, amounts, group, rows) for form, operator in sides]
        first = limits[0]
        limits[0] = replace(
            first,
            lower=np.where(live[group : group + 1], first.lower, 0),
            upper=np.where(live[group : group + 1], first.upper, UNLIMITED),
        )
        joined = _as_one(limits)
        if joined is not None:
            yield joined
        else:
            yield from _all_or_none(data, limits) or [Either(data.shape.name, tuple(limits))]


def _as_one(limits: Sequence[Limit]) -> Limit | None:
    """Alternatives as one limit: none of the rows or what holds where none is, or ranges that touch; else None."""
    if len(limits) != 2:
        return limits[0] if len(limits) == 1 else None
    for none, other in (limits, limits[::-1]):
        one, load = none.load, other.load
        free = none.upper >= UNLIMITED
        if bool((none.lower > 0).any()) or not np.array_equal(one.bucket, load.bucket):
            continue
        counted = bool((one.weight[load.weight > 0] > 0).all())
        if counted and bool((free | ((none.upper == 0) & (other.lower <= 0) & (other.upper >= 0))).all()):
            upper = np.where(free, UNLIMITED, np.broadcast_to(other.upper, free.shape))
            return replace(other, lower=np.zeros_like(upper), upper=upper)
        if np.array_equal(one.weight, load.weight) and bool((other.lower <= none.upper + 1).all()):
            return replace(other, lower=none.lower, upper=np.maximum(none.upper, other.upper))
    return None


def _all_or_none(data: Candidates, limits: Sequence[Limit]) -> list[Either | Occupancy]:
    """``count(*) = 0 OR count(*) = n`` in each of several buckets: all of a group is in one of them, or none of it is.

    Nothing where the limits say something else.
    """
    if len(limits) != 2:
        return []
    none, all_ = limits if not limits[0].upper.any() else limits[::-1]
    load, total = none.load, int(none.load.weight[none.load.group >= 0].sum())
    same = np.array_equal(load.weight, all_.load.weight) and np.array_equal(load.bucket, all_.load.bucket)
    if not same or load.buckets < 2 or none.upper.any() or bool((none.lower > 0).any()):
        return []
    if not total or bool((all_.lower != total).any()) or bool((all_.upper < total).any()):
        return []
    one = np.ones(1, np.int64)
    found: list[Either | Occupancy] = [Occupancy(data.shape.name, load, 0 * one, one)]
    if data.choosers.nullable or bool((load.bucket == NONE).any()):
        anywhere = np.where(load.bucket == NONE, NONE, 0).astype(np.int32)
        whole = Load(load.group, 1, anywhere, 1, load.weight)
        sides = (Limit(part.name, whole, part.lower[:, :1], part.upper[:, :1]) for part in (none, all_))
        found.append(Either(data.shape.name, tuple(sides)))
    return found


def one_of(
    data: Candidates, groups: Groups, form: LinearForm, operator: str, live: Mask
) -> Iterator[Either] | None:
    """At least one row of each group where it counts, whatever counts for other rows; None for anything else."""
    if len(form.aggregates) != 1 or groups.values.count != 1 or operator not in {">", ">="}:
        return None
    ((factor, aggregate),) = form.aggregates
    rest = constants_at(data, groups, LinearForm((), form.rest))
    amount = contribution_of(data, aggregate)
    least = np.broadcast_to(-rest.values + (operator == ">"), groups.shape)
    wanted = np.broadcast_to(live if rest.null is None else live & ~rest.null, groups.shape)[:, 0]
    if factor != 1 or bool((amount.amount < 0).any()) or bool((least[wanted] != 1).any()):
        return None
    return _ones(data, groups, amount, wanted)


def _ones(data: Candidates, groups: Groups, amount: Contribution, wanted: Mask) -> Iterator[Either]:
    check_groups(data, groups)
    one = np.ones((1, 1), np.int64)
    for group, rows in members(groups):
        if not wanted[group]:
            continue
        kinds = amount.grid.rows.of[rows]
        limits = []
        for kind in np.unique(kinds).tolist():
            counts = (amount.amount[kind] > 0)[amount.grid.values.of]
            bucket = buckets_of(data, np.zeros(data.values, np.intp), counts)
            load = _load(data, np.ones(int((kinds == kind).sum()), np.int64), rows[kinds == kind], bucket, 1)
            limits.append(Limit(data.shape.name, load, one, one * UNLIMITED))
        yield Either(data.shape.name, tuple(limits))


def budget_of(data: Candidates, groups: Groups, form: LinearForm, operator: str, live: Mask) -> Budget:
    """A bound on a sum of what takes the row and the value to tell.  NotAnAssignment when it is none."""
    if groups.values.count != 1 or data.shape.strict or len(form.aggregates) != 1:
        raise NotAnAssignment("an amount that depends on the row and on the value at once")
    ((factor, aggregate),) = form.aggregates
    amount = contribution_of(data, aggregate)
    kinds, of = np.unique(amount.amount, axis=0, return_inverse=True)
    of_rows = of.reshape(-1)[amount.grid.rows.of]
    if len(kinds) > _MOST_PAYING or float(np.abs(kinds).max(initial=0)) * abs(factor) * data.rows > LARGEST:
        raise NotAnAssignment(f"{len(kinds)} kinds of rows that add differently")
    loads, prices = [], []
    for number, kind in enumerate(kinds):
        paying = np.unique(kind)
        if not paying.any():
            continue
        bucket = np.searchsorted(paying, kind)[amount.grid.values.of]
        values = Classes(bucket, np.zeros(len(paying), np.intp))
        weight = (of_rows == number).astype(np.int64)
        counts = (kind != 0)[amount.grid.values.of]
        (part,) = loads_of(data, replace(groups, values=values), weight, counts, split=False)
        loads.append(part.load)
        prices.append(factor * paying)
    rest = constants_at(data, groups, LinearForm((), form.rest))
    wanted = live if rest.null is None else live & ~rest.null
    lower, upper = range_of(operator, np.broadcast_to(-rest.values, groups.shape)[:, 0])
    asked = np.broadcast_to(wanted, groups.shape)[:, 0]
    lower, upper = np.where(asked, lower, -UNLIMITED), np.where(asked, upper, UNLIMITED)
    return Budget(data.shape.name, tuple(loads), tuple(prices), lower, upper)


def occupancy_of(
    data: Candidates, groups: Groups, check: Comparison, live: Mask
) -> Iterator[Occupancy | Either] | None:
    """A comparison of ``count(DISTINCT value)`` with a constant; None when the check is something else."""
    left, right = linear_form(data, check.left), linear_form(data, check.right)
    if left is None or right is None:
        return None
    form = left.plus(right.scaled(-1))
    distinct = [(factor, part) for factor, part in form.aggregates if _is_distinct(part)]
    if not distinct:
        return None
    ((factor, aggregate), *more) = distinct
    if more or check.operator == "<>" or check.null_safe:
        raise NotAnAssignment("count(DISTINCT ...) compared with what is no constant of the group")
    bound = constants_at(data, groups, LinearForm((), form.rest))
    total = np.broadcast_to(bound.values, groups.shape)
    for number, other in form.aggregates:
        if other is not aggregate:
            always = contribution_of(data, other).constant(groups)
            if always is None:
                raise NotAnAssignment("count(DISTINCT ...) compared with what is no constant of the group")
            total = total + number * group_totals(data, groups, always)
    sign = 1 if factor > 0 else -1
    least, most = range_of(check.operator if factor > 0 else TURNED[check.operator], -sign * total)
    # What so many times the number has to be, as what the number has to be.
    least = np.where(least == -UNLIMITED, least, -(-least // abs(factor)))
    most = np.where(most == UNLIMITED, most, most // abs(factor))
    live = np.broadcast_to(live if bound.null is None else live & ~bound.null, groups.shape)
    if isinstance(aggregate.operand, RowColumn):
        return _exclusive(data, groups, aggregate, least, most, live)
    if groups.values.count != 1:
        raise NotAnAssignment("count(DISTINCT ...) within groups of values")
    if data.shape.strict:
        raise NotAnAssignment("STRICT GROUPS here")
    return _occupancies(data, groups, aggregate, least[:, 0], most[:, 0], live[:, 0])


def _is_distinct(part: Aggregate) -> bool:
    return part.function is AggregateFunction.COUNT_DISTINCT


def _exclusive(
    data: Candidates, groups: Groups, aggregate: Aggregate, least: Integers, most: Integers, live: Mask
) -> Iterator[Either]:
    """At most one constant of rows in each group: rows that have it, or rows that have another one, are none.

    So a host is for the pods of one app alone.
    """
    check_groups(data, groups)
    if not bool((live & (least <= 0) & (most == 1)).all()):
        raise NotAnAssignment("count(DISTINCT ...) of what rows are, but not at most one")
    assert isinstance(aggregate.operand, RowColumn)
    own = data.row_column(aggregate.operand.slot)
    amount = contribution_of(data, replace(aggregate, function=AggregateFunction.COUNT))
    nothing, zero = np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int64)
    for _, rows in members(groups):
        weight, counts = amount.separated(rows)
        bucket = buckets_of(data, groups.values.of, counts)
        kinds = np.unique(own.values[rows[weight > 0]])
        if len(kinds) > _MOST_KINDS:
            raise NotAnAssignment(f"groups of one of {len(kinds)} kinds of rows")
        for kind in kinds.tolist() if len(kinds) > 1 else ():
            mine = own.values[rows] == kind
            loads = [_load(data, weight * side, rows, bucket, groups.values.count) for side in (mine, ~mine)]
            limits = tuple(Limit(data.shape.name, load, nothing, zero) for load in loads)
            yield Either(data.shape.name, limits)


def _occupancies(
    data: Candidates, groups: Groups, aggregate: Aggregate, least: Integers, most: Integers, live: Mask
) -> Iterator[Occupancy]:
    column = data.column_of_choice(aggregate.operand)
    if column is None:
        raise NotAnAssignment("distinct values of something else than the choice")
    amount = contribution_of(data, replace(aggregate, function=AggregateFunction.COUNT))
    _, examples, kinds = np.unique(column.values, return_index=True, return_inverse=True)
    values = Classes(kinds.astype(np.intp).reshape(-1), examples)
    lower = np.where(live, np.maximum(least, 0), 0)
    upper = np.where(live, np.minimum(most, values.count), values.count)
    name = data.shape.name
    try:
        weight, counts = amount.separated()
        (part,) = loads_of(data, replace(groups, values=values), weight, counts, split=False)
    except NotAnAssignment:
        check_groups(data, groups)
    else:
        yield Occupancy(name, part.load, lower, upper)
        return
    for group, rows in members(groups):
        if live[group]:
            weight, counts = amount.separated(rows)
            load = _load(data, weight, rows, buckets_of(data, values.of, counts), values.count)
            yield Occupancy(name, load, lower[group : group + 1], upper[group : group + 1])


def bands_of(data: Candidates, groups: Groups, check: Comparison, live: Mask) -> list[Either] | None:
    """A comparison of the greatest with the least of what rows have; None when the check is something else.

    Where a group fails because of its greatest and its least, no row has what the one has where another has the other.
    """
    aggregates = [node for node in check.walk() if isinstance(node, Aggregate)]
    if {node.function for node in aggregates} != EXTREMES or check.null_safe or data.shape.strict:
        return None
    if len({(_said(node.operand), _said(node.condition)) for node in aggregates}) > 1:
        raise NotAnAssignment("the greatest of some rows compared with the least of others")
    counting = replace(aggregates[0], type=SqlType.INTEGER, function=AggregateFunction.COUNT)
    counted = contribution_of(data, counting)
    assert counting.operand is not None
    amount, present = counted.grid.evaluate(counting.operand), counted.amount > 0
    kinds = np.unique(amount.values[present])
    if amount.codes or len(kinds) > _MOST_BANDS:
        raise NotAnAssignment(f"the greatest compared with the least of {len(kinds)} amounts")
    refused = _refused_bands(data, groups, check, kinds) & np.broadcast_to(live, groups.shape)
    wider = (refused[1:, :] & ~refused[:-1, :]).any() or (refused[:, :-1] & ~refused[:, 1:]).any()
    if bool(wider) or bool(refused[np.arange(len(kinds)), np.arange(len(kinds))].any()):
        raise NotAnAssignment("a comparison of the greatest with the least that is no band")

    def none(some: Mask, where: Mask) -> Limit:
        """That no row has one of these amounts, in the groups ``where`` that is demanded."""
        of_kinds = replace(counted, amount=(some & present).astype(np.int64))
        weight, counts = of_kinds.separated()
        (part,) = loads_of(data, groups, weight, counts, split=False)
        nothing = np.zeros(groups.shape, np.int64)
        return Limit(data.shape.name, part.load, nothing, np.where(where, nothing, UNLIMITED))

    found = []
    for low, high in zip(*np.nonzero(refused.any(axis=(2, 3))), strict=True):
        # Only what no narrower band says.
        own = refused[low, high].copy()
        own &= ~refused[low + 1, high] if low + 1 < len(kinds) else True
        own &= ~refused[low, high - 1] if high else True
        if own.any():
            sides = (none(amount.values <= kinds[low], own), none(amount.values >= kinds[high], own))
            found.append(Either(data.shape.name, sides))
    return found


def _refused_bands(data: Candidates, groups: Groups, check: Comparison, kinds: Integers) -> Mask:
    """(kinds, kinds, groups, buckets): whether a group fails of which the least and the greatest are these."""
    found = np.zeros((len(kinds), len(kinds), *groups.shape), np.bool_)
    for low, least in enumerate(kinds.tolist()):
        for high, greatest in enumerate(kinds.tolist()[low:], low):

            def amount(node: Aggregate, least: int = least, greatest: int = greatest) -> Vector:
                one = least if node.function is AggregateFunction.MINIMUM else greatest
                return Vector(np.full((1, 1), one, np.int64))

            leaves = data.leaves(groups.rows.examples, groups.values.examples, amount)
            found[low, high] = evaluate(check, leaves).false
    return found


def _said(part: Expression | None) -> object:
    return None if part is None else signature(part)


def move_limit_of(data: Candidates, groups: Groups, check: Comparison, live: Mask) -> list[MoveLimit] | None:
    """``count(*) <= constant`` of the rows that leave their value of today; None when the check is something else."""
    aggregate, operator, other = _aggregate_first(check)
    if not isinstance(aggregate, Aggregate) or aggregate.function is not AggregateFunction.COUNT:
        return None
    if aggregate.operand is not None or operator not in {"<=", "<"} or groups.values.count != 1:
        return None
    moving = moving_rows(data, aggregate)
    form = linear_form(data, other)
    if moving is None or form is None or form.aggregates:
        return None
    check_groups(data, groups)
    bound = constants_at(data, groups, form)
    live = live if bound.null is None else live & ~bound.null
    live = np.broadcast_to(live, groups.shape)[:, 0]
    upper = np.broadcast_to(bound.values, groups.shape)[:, 0] - (operator == "<")
    choosers = data.choosers
    found = []
    for group, rows in members(groups):
        chosen = data.chooser[rows[moving[rows]]]
        if len(np.unique(chosen)) < len(chosen):
            raise NotAnAssignment("rows that count several times when they move")
        gone = int((choosers.current[chosen] < 0).sum())
        if not live[group] or int(upper[group]) >= len(chosen):
            continue
        member = np.full(choosers.rows, NONE, np.int32)
        member[chosen] = 0
        found.append(MoveLimit(data.shape.name, member, upper[group : group + 1] - gone))
    return found


def _aggregate_first(check: Comparison) -> tuple[Expression, str, Expression]:
    """The sides of a comparison and what is between them, turned so that an aggregate by itself is on the left."""
    if isinstance(check.right, Aggregate):
        return check.right, TURNED[check.operator], check.left
    return check.left, check.operator, check.right


def moving_rows(data: Candidates, aggregate: Aggregate) -> Mask | None:
    """(rows,) those an aggregate looks at when, and only when, they do not keep today's value; None if it is not so."""
    conditions = [*data.shape.gates, *([aggregate.condition] if aggregate.condition is not None else [])]
    moves = [condition for condition in conditions if _is_move(data, condition)]
    if len(moves) != 1 or data.shape.values is not None or data.shape.pair_gates:
        return None
    (move,) = moves
    assert isinstance(move, Comparison)
    if data.choosers.nullable and not move.null_safe:
        return None  # without a value it is unknown whether the row moves, and that does not count
    others = [condition for condition in conditions if condition is not move]
    if any(isinstance(node, (Chosen, ValueColumn)) for part in others for node in part.walk()):
        return None
    grid = data.grid(*others)
    present = grid.holds(others)[:, 0][grid.rows.of]
    today = data.choosers.has_current[data.chooser]
    if move.null_safe and bool((present & ~today).any()):
        return None  # what has no value today leaves nothing
    return np.asarray(present & today)


def _is_move(data: Candidates, condition: Expression) -> bool:
    if not isinstance(condition, Comparison) or condition.operator != "<>":
        return False
    sides = (condition.left, condition.right)
    return any(isinstance(side, Chosen) for side in sides) and any(
        isinstance(side, RowColumn) and side.slot in data.shape.current_slots for side in sides
    )


# ---- one group of rows at a time ------------------------------------------------------------------------


def check_groups(data: Candidates, groups: Groups) -> None:
    if data.shape.strict:
        raise NotAnAssignment("STRICT GROUPS here")
    if groups.rows.count > _MOST_GROUPS:
        raise NotAnAssignment(f"{groups.rows.count} groups with a condition each")


def members(groups: Groups) -> Iterator[tuple[int, Places]]:
    """Each group with its rows."""
    order = np.argsort(groups.rows.of, kind="stable")
    edges = np.searchsorted(groups.rows.of[order], np.arange(groups.rows.count + 1))
    for group in range(groups.rows.count):
        yield group, order[edges[group] : edges[group + 1]]


def combined(
    data: Candidates,
    groups: Groups,
    form: LinearForm,
    amounts: Mapping[int, Contribution],
    rows: Places | None = None,
) -> tuple[Integers, Mask, Integers]:
    """(rows,) what each row adds to the aggregates of a form, (values,) where, and what there is whatever is chosen.

    The latter is of the shape (groups, 1), or (1, 1) with ``rows``, those of one group.
    """

    def total(own: Integers) -> Integers:
        return group_totals(data, groups, own) if rows is None else own.sum().reshape(1, 1)

    constant = np.zeros((1, 1), np.int64)
    weight = np.zeros(data.rows if rows is None else len(rows), np.int64)
    counts: Mask = np.zeros(data.values, np.bool_)
    for factor, aggregate in form.aggregates:
        amount = amounts[id(aggregate)]
        always = amount.constant(groups)
        if always is not None:
            constant = constant + factor * total(always if rows is None else always[rows])
            continue
        own, where = amount.separated(rows)
        if not own.any() or not where.any():
            continue
        if abs(factor) * float(np.abs(own).sum(dtype=np.float64)) > LARGEST:
            raise NotAnAssignment("sums beyond 62 bits")
        if data.shape.values is None and data.choosers.nullable and bool(where[-1]):
            # What counts without a value is all there is, less what counts with one of the others.
            constant = constant + factor * total(own)
            factor, where = -factor, ~where
        if weight.any() and not bool((counts == where).all()):
            raise NotAnAssignment("aggregates over different values in one comparison")
        counts = where
        weight = weight + factor * own
    return weight, counts, constant


def _limit(
    data: Candidates,
    groups: Groups,
    form: LinearForm,
    operator: str,
    amounts: dict[int, Contribution],
    group: int,
    rows: Places,
) -> Limit:
    """``form <operator> 0`` in the groups of these rows."""
    weight, counts, constant = combined(data, groups, form, amounts, rows)
    rest = constants_at(data, groups, LinearForm((), form.rest))
    bound = -np.broadcast_to(rest.values, groups.shape)[group] - constant[0]
    if bool((weight <= 0).all()) and bool((weight < 0).any()):
        weight, bound, operator = -weight, -bound, TURNED[operator]
    lower, upper = range_of(operator, bound)
    if rest.null is not None:
        unknown = np.broadcast_to(rest.null, groups.shape)[group]
        lower, upper = np.where(unknown, 0, lower), np.where(unknown, UNLIMITED, upper)
    load = _load(data, weight, rows, buckets_of(data, groups.values.of, counts), groups.values.count)
    return Limit(data.shape.name, load, np.maximum(lower, 0)[None], np.minimum(upper, UNLIMITED)[None])


def range_of(operator: str, value: Integers) -> tuple[Integers, Integers]:
    """What is at least and at most allowed."""
    below, above = np.full_like(value, -UNLIMITED), np.full_like(value, UNLIMITED)
    lower = {"=": value, ">=": value, ">": value + 1}.get(operator, below)
    upper = {"=": value, "<=": value, "<": value - 1}.get(operator, above)
    return lower, upper


def _load(data: Candidates, weight: Integers, rows: Places, bucket: Indices, buckets: int) -> Load:
    """The load of one group of rows."""
    check_weights(weight)
    total = np.zeros(data.choosers.rows, np.int64)
    np.add.at(total, data.chooser[rows], weight)
    group = np.where(total > 0, 0, NONE).astype(np.int32)
    return Load(group, 1, bucket, max(1, buckets), total)
