"""CHECKs that are no limits on single loads: alternatives, how many values a group uses, how many rows move.

What a row adds may depend on its group here (pods of one group count per host, those of another per zone), so each
group of rows is looked at by itself.

What it is not: single comparisons of loads (see ``limits``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from mgmt.compiler.shapes.amounts import (
    Amount,
    Groups,
    LinearForm,
    amount_of,
    buckets_of,
    check_weights,
    constants_at,
    linear_form,
    loads_of,
)
from mgmt.compiler.shapes.frames import Classes, Frame, Places
from mgmt.compiler.shapes.slots import Chosen, RowSlot, ValueSlot
from mgmt.compiler.shapes.vectors import Integers, Mask, OtherShape, Vector
from mgmt.language.expressions import TURNED, Aggregate, AggregateFunction, Comparison, Expression
from mgmt.optimization.assignment import NONE, UNLIMITED, Either, Indices, Limit, Load, MoveLimit, Occupancy

_MOST_KINDS = 100
"""Each is a condition, too."""
_MOST_GROUPS = 2_000
"""Each is a condition of its own."""


def alternatives_of(
    frame: Frame, groups: Groups, parts: Sequence[Expression], live: Mask
) -> Iterator[Either]:
    """An OR of comparisons of loads, for each group of rows by itself.  OtherShape when it is none."""
    check_groups(frame, groups)
    sides = []
    amounts: dict[int, Amount] = {}
    for part in parts:
        if not isinstance(part, Comparison) or part.null_safe or part.operator == "<>":
            raise OtherShape(f"OR with {type(part).__name__} over aggregates")
        left, right = linear_form(frame, part.left), linear_form(frame, part.right)
        if left is None or right is None:
            raise OtherShape("OR with a comparison that is not linear in the aggregates")
        sides.append((left.plus(right.scaled(-1)), part.operator))
        for _, aggregate in (*left.aggregates, *right.aggregates):
            amounts[id(aggregate)] = amount_of(frame, aggregate)
    live = np.broadcast_to(live, groups.shape)
    for group, rows in members(groups):
        if not live[group].any():
            continue
        limits = [_limit(frame, groups, form, operator, amounts, group, rows) for form, operator in sides]
        first = limits[0]
        limits[0] = replace(
            first,
            lower=np.where(live[group : group + 1], first.lower, 0),
            upper=np.where(live[group : group + 1], first.upper, UNLIMITED),
        )
        yield Either(frame.shape.name, tuple(limits))


def one_of(
    frame: Frame, groups: Groups, form: LinearForm, operator: str, live: Mask
) -> Iterator[Either] | None:
    """At least one row of each group where it counts, whatever counts for other rows; None for anything else."""
    if len(form.aggregates) != 1 or groups.values.count != 1 or operator not in {">", ">="}:
        return None
    ((factor, aggregate),) = form.aggregates
    rest = constants_at(frame, groups, LinearForm((), form.rest))
    amount = amount_of(frame, aggregate)
    least = np.broadcast_to(-rest.values + (operator == ">"), groups.shape)
    wanted = np.broadcast_to(live if rest.null is None else live & ~rest.null, groups.shape)[:, 0]
    if factor != 1 or bool((amount.amount < 0).any()) or bool((least[wanted] != 1).any()):
        return None
    return _ones(frame, groups, amount, wanted)


def _ones(frame: Frame, groups: Groups, amount: Amount, wanted: Mask) -> Iterator[Either]:
    check_groups(frame, groups)
    one = np.ones((1, 1), np.int64)
    for group, rows in members(groups):
        if not wanted[group]:
            continue
        kinds = amount.grid.rows.of[rows]
        limits = []
        for kind in np.unique(kinds).tolist():
            counts = (amount.amount[kind] > 0)[amount.grid.values.of]
            bucket = buckets_of(frame, np.zeros(frame.values, np.intp), counts)
            load = _load(frame, np.ones(int((kinds == kind).sum()), np.int64), rows[kinds == kind], bucket, 1)
            limits.append(Limit(frame.shape.name, load, one, one * UNLIMITED))
        yield Either(frame.shape.name, tuple(limits))


def occupancy_of(
    frame: Frame, groups: Groups, check: Comparison, live: Mask
) -> Iterator[Occupancy | Either] | None:
    """A comparison of ``count(DISTINCT value)`` with a constant; None when the check is something else."""
    aggregate, operator, other = _aggregate_first(check)
    if not isinstance(aggregate, Aggregate) or aggregate.function is not AggregateFunction.COUNT_DISTINCT:
        return None
    form = linear_form(frame, other)
    if form is None or form.aggregates or operator == "<>" or check.null_safe:
        raise OtherShape("count(DISTINCT ...) compared with what is no constant of the group")
    if isinstance(aggregate.operand, RowSlot):
        return _exclusive(frame, groups, aggregate, constants_at(frame, groups, form), operator, live)
    if groups.values.count != 1:
        raise OtherShape("count(DISTINCT ...) within groups of values")
    if frame.shape.strict:
        raise OtherShape("STRICT GROUPS here")
    return _occupancies(frame, groups, aggregate, constants_at(frame, groups, form), operator, live)


def _exclusive(
    frame: Frame, groups: Groups, aggregate: Aggregate, bound: Vector, operator: str, live: Mask
) -> Iterator[Either]:
    """At most one constant of rows in each group: rows that have it, or rows that have another one, are none.

    So a host is for the pods of one app alone.
    """
    check_groups(frame, groups)
    least, most = _range(operator, np.broadcast_to(bound.values, groups.shape))
    live = np.broadcast_to(live if bound.null is None else live & ~bound.null, groups.shape)
    if not bool((live & (least <= 0) & (most == 1)).all()):
        raise OtherShape("count(DISTINCT ...) of what rows are, but not at most one")
    assert isinstance(aggregate.operand, RowSlot)
    own = frame.row_column(aggregate.operand.slot)
    amount = amount_of(frame, replace(aggregate, function=AggregateFunction.COUNT))
    nothing, zero = np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int64)
    for _, rows in members(groups):
        weight, counts = amount.separated(rows)
        bucket = buckets_of(frame, groups.values.of, counts)
        kinds = np.unique(own.values[rows[weight > 0]])
        if len(kinds) > _MOST_KINDS:
            raise OtherShape(f"groups of one of {len(kinds)} kinds of rows")
        for kind in kinds.tolist() if len(kinds) > 1 else ():
            mine = own.values[rows] == kind
            loads = [_load(frame, weight * side, rows, bucket, groups.values.count) for side in (mine, ~mine)]
            limits = tuple(Limit(frame.shape.name, load, nothing, zero) for load in loads)
            yield Either(frame.shape.name, limits)


def _occupancies(
    frame: Frame, groups: Groups, aggregate: Aggregate, bound: Vector, operator: str, live: Mask
) -> Iterator[Occupancy]:
    column = frame.column_of_choice(aggregate.operand)
    if column is None:
        raise OtherShape("distinct values of something else than the choice")
    amount = amount_of(frame, replace(aggregate, function=AggregateFunction.COUNT))
    _, examples, kinds = np.unique(column.values, return_index=True, return_inverse=True)
    values = Classes(kinds.astype(np.intp).reshape(-1), examples)
    live = live if bound.null is None else live & ~bound.null
    live = np.broadcast_to(live, groups.shape)[:, 0]
    lower, upper = _range(operator, np.broadcast_to(bound.values, groups.shape)[:, 0])
    lower = np.where(live, np.maximum(lower, 0), 0)
    upper = np.where(live, np.minimum(upper, values.count), values.count)
    name = frame.shape.name
    try:
        weight, counts = amount.separated()
        (part,) = loads_of(frame, replace(groups, values=values), weight, counts, split=False)
    except OtherShape:
        check_groups(frame, groups)
    else:
        yield Occupancy(name, part.load, lower, upper)
        return
    for group, rows in members(groups):
        if live[group]:
            weight, counts = amount.separated(rows)
            load = _load(frame, weight, rows, buckets_of(frame, values.of, counts), values.count)
            yield Occupancy(name, load, lower[group : group + 1], upper[group : group + 1])


def move_limit_of(frame: Frame, groups: Groups, check: Comparison, live: Mask) -> list[MoveLimit] | None:
    """``count(*) <= constant`` of the rows that leave their value of today; None when the check is something else."""
    aggregate, operator, other = _aggregate_first(check)
    if not isinstance(aggregate, Aggregate) or aggregate.function is not AggregateFunction.COUNT:
        return None
    if aggregate.operand is not None or operator not in {"<=", "<"} or groups.values.count != 1:
        return None
    moving = moving_rows(frame, aggregate)
    form = linear_form(frame, other)
    if moving is None or form is None or form.aggregates:
        return None
    check_groups(frame, groups)
    bound = constants_at(frame, groups, form)
    live = live if bound.null is None else live & ~bound.null
    live = np.broadcast_to(live, groups.shape)[:, 0]
    upper = np.broadcast_to(bound.values, groups.shape)[:, 0] - (operator == "<")
    choosers = frame.choosers
    found = []
    for group, rows in members(groups):
        chosen = frame.chooser[rows[moving[rows]]]
        if len(np.unique(chosen)) < len(chosen):
            raise OtherShape("rows that count several times when they move")
        gone = int((choosers.current[chosen] < 0).sum())
        if not live[group] or int(upper[group]) >= len(chosen):
            continue
        member = np.full(choosers.rows, NONE, np.int32)
        member[chosen] = 0
        found.append(MoveLimit(frame.shape.name, member, upper[group : group + 1] - gone))
    return found


def _aggregate_first(check: Comparison) -> tuple[Expression, str, Expression]:
    """The sides of a comparison and what is between them, turned so that an aggregate by itself is on the left."""
    if isinstance(check.right, Aggregate):
        return check.right, TURNED[check.operator], check.left
    return check.left, check.operator, check.right


def moving_rows(frame: Frame, aggregate: Aggregate) -> Mask | None:
    """(rows,) those an aggregate looks at when, and only when, they do not keep today's value; None if it is not so."""
    conditions = [*frame.shape.gates, *([aggregate.condition] if aggregate.condition is not None else [])]
    moves = [condition for condition in conditions if _is_move(frame, condition)]
    if len(moves) != 1 or frame.shape.values_sql is not None or frame.shape.pair_gates:
        return None
    (move,) = moves
    assert isinstance(move, Comparison)
    if frame.choosers.nullable and not move.null_safe:
        return None  # without a value it is unknown whether the row moves, and that does not count
    others = [condition for condition in conditions if condition is not move]
    if any(isinstance(node, (Chosen, ValueSlot)) for part in others for node in part.walk()):
        return None
    grid = frame.grid(*others)
    present = grid.holds(others)[:, 0][grid.rows.of]
    today = frame.choosers.has_current[frame.chooser]
    if move.null_safe and bool((present & ~today).any()):
        return None  # what has no value today leaves nothing
    return np.asarray(present & today)


def _is_move(frame: Frame, condition: Expression) -> bool:
    if not isinstance(condition, Comparison) or condition.operator != "<>":
        return False
    sides = (condition.left, condition.right)
    return any(isinstance(side, Chosen) for side in sides) and any(
        isinstance(side, RowSlot) and side.slot in frame.shape.current_slots for side in sides
    )


# ---- one group of rows at a time ------------------------------------------------------------------------


def check_groups(frame: Frame, groups: Groups) -> None:
    if frame.shape.strict:
        raise OtherShape("STRICT GROUPS here")
    if groups.rows.count > _MOST_GROUPS:
        raise OtherShape(f"{groups.rows.count} groups with a condition each")


def members(groups: Groups) -> Iterator[tuple[int, Places]]:
    """Each group with its rows."""
    order = np.argsort(groups.rows.of, kind="stable")
    edges = np.searchsorted(groups.rows.of[order], np.arange(groups.rows.count + 1))
    for group in range(groups.rows.count):
        yield group, order[edges[group] : edges[group + 1]]


def combined(
    frame: Frame, form: LinearForm, amounts: dict[int, Amount], rows: Places
) -> tuple[Integers, Mask, int]:
    """What each of these rows adds to the aggregates of a form, (values,) where, and what is there in any case."""
    constant = 0
    weight = np.zeros(len(rows), np.int64)
    counts: Mask = np.zeros(frame.values, np.bool_)
    for factor, aggregate in form.aggregates:
        own, where = amounts[id(aggregate)].separated(rows)
        if not own.any() or not where.any():
            continue
        if frame.shape.values_sql is None and frame.choosers.nullable and bool(where[-1]):
            # What counts without a value is all there is, less what counts with one of the others.
            constant += factor * int(own.sum())
            factor, where = -factor, ~where
        if weight.any() and not bool((counts == where).all()):
            raise OtherShape("aggregates over different values in one comparison")
        counts = where
        weight = weight + factor * own
    return weight, counts, constant


def _limit(
    frame: Frame,
    groups: Groups,
    form: LinearForm,
    operator: str,
    amounts: dict[int, Amount],
    group: int,
    rows: Places,
) -> Limit:
    """``form <operator> 0`` in the groups of these rows."""
    weight, counts, constant = combined(frame, form, amounts, rows)
    rest = constants_at(frame, groups, LinearForm((), form.rest))
    bound = -np.broadcast_to(rest.values, groups.shape)[group] - constant
    if bool((weight <= 0).all()) and bool((weight < 0).any()):
        weight, bound, operator = -weight, -bound, TURNED[operator]
    lower, upper = _range(operator, bound)
    if rest.null is not None:
        unknown = np.broadcast_to(rest.null, groups.shape)[group]
        lower, upper = np.where(unknown, 0, lower), np.where(unknown, UNLIMITED, upper)
    load = _load(frame, weight, rows, buckets_of(frame, groups.values.of, counts), groups.values.count)
    return Limit(frame.shape.name, load, np.maximum(lower, 0)[None], np.minimum(upper, UNLIMITED)[None])


def _range(operator: str, value: Integers) -> tuple[Integers, Integers]:
    """What is at least and at most allowed."""
    below, above = np.full_like(value, -UNLIMITED), np.full_like(value, UNLIMITED)
    lower = {"=": value, ">=": value, ">": value + 1}.get(operator, below)
    upper = {"=": value, "<=": value, "<": value - 1}.get(operator, above)
    return lower, upper


def _load(frame: Frame, weight: Integers, rows: Places, bucket: Indices, buckets: int) -> Load:
    """The load of one group of rows."""
    check_weights(weight)
    total = np.zeros(frame.choosers.rows, np.int64)
    np.add.at(total, frame.chooser[rows], weight)
    group = np.where(total > 0, 0, NONE).astype(np.int32)
    return Load(group, 1, bucket, max(1, buckets), total)
