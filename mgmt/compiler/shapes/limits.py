"""CHECKs over groups: comparisons of one linear form of loads with what is constant in the group.

What it is not: CHECKs of single rows (see ``choices``), objectives (see ``costs``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from mgmt.compiler.shapes.amounts import (
    Amount,
    Groups,
    LinearForm,
    amount_of,
    at_groups,
    constants_at,
    group_totals,
    groups_of,
    linear_form,
    loads_of,
)
from mgmt.compiler.shapes.conditions import alternatives_of, move_limit_of, occupancy_of
from mgmt.compiler.shapes.frames import Frame
from mgmt.compiler.shapes.skews import compares_with_least, skews_of
from mgmt.compiler.shapes.vectors import LARGEST, Integers, Mask, OtherShape, Vector
from mgmt.language.expressions import (
    Aggregate,
    AggregateFunction,
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    has_aggregate,
)
from mgmt.optimization.assignment import UNLIMITED, Condition, Limit, Load


class Limiter:
    """Makes limits of one grouped CHECK."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._groups = groups_of(frame)
        self.limits: list[Limit] = []
        self.conditions: list[Condition] = []
        self.impossible = False
        """Some group's check fails whatever is chosen."""

    def run(self) -> None:
        """Fill ``limits``.  OtherShape when the check is none of these comparisons."""
        shape = self._frame.shape
        live: Mask = self._groups.exists
        for gate in shape.group_gates:
            if has_aggregate(gate):
                raise OtherShape("HAVING over choices")
            live = live & at_groups(self._frame, self._groups, gate).true
        self._require(shape.demand, live)

    def _require(self, check: Expression, live: Mask) -> None:
        """Demand a condition of the groups that are ``live``."""
        if not live.any():
            return
        if isinstance(check, Conjunction):
            for part in check.operands:
                self._require(part, live)
        elif not has_aggregate(check):
            if bool((live & at_groups(self._frame, self._groups, check).false).any()):
                self.impossible = True
        elif isinstance(check, Disjunction):
            open_parts = [part for part in check.operands if has_aggregate(part)]
            for part in check.operands:
                if not has_aggregate(part):
                    live = live & at_groups(self._frame, self._groups, part).false
            if any(map(compares_with_least, open_parts)):
                self.conditions.extend(skews_of(self._frame, self._groups, open_parts, live))
            elif len(open_parts) > 1:
                self.conditions.extend(alternatives_of(self._frame, self._groups, open_parts, live))
            else:
                self._require(open_parts[0], live)
        elif isinstance(check, Comparison) and compares_with_least(check):
            self.conditions.extend(skews_of(self._frame, self._groups, [check], live))
        elif isinstance(check, Comparison):
            special = self._condition(check, live)
            if special is None:
                self._compare(check, live)
            else:
                self.conditions.extend(special)
        elif isinstance(check, Aggregate) and check.function is AggregateFunction.ALL_DIFFERENT:
            self._all_different(check, live)
        else:
            raise OtherShape(f"CHECK of {type(check).__name__} over groups")

    def _condition(self, check: Comparison, live: Mask) -> Iterable[Condition] | None:
        """The conditions that a comparison is; None when it is a limit, or nothing of the kind."""
        moves = move_limit_of(self._frame, self._groups, check, live)
        return occupancy_of(self._frame, self._groups, check, live) if moves is None else moves

    def _compare(self, check: Comparison, live: Mask) -> None:
        if check.null_safe or check.operator == "<>":
            raise OtherShape(f"{check.operator} between aggregates")
        left, right = linear_form(self._frame, check.left), linear_form(self._frame, check.right)
        if left is None or right is None:
            raise OtherShape("a comparison that is not linear in the aggregates")
        weight, counts, constant = self._combined(left.plus(right.scaled(-1)))
        bound = constants_at(self._frame, self._groups, right.plus(left.scaled(-1)))
        wanted = Vector(bound.values - constant, bound.null)
        self._limit(weight, counts, check.operator, wanted, live)

    def _combined(self, form: LinearForm) -> tuple[Integers, Mask, Integers]:
        """(rows,) what a row adds, (values,) where, and (groups, 1) what there is whatever is chosen."""
        frame = self._frame
        constant = np.zeros((self._groups.rows.count, 1), np.int64)
        weight = np.zeros(frame.rows, np.int64)
        counts: Mask | None = None
        for factor, aggregate in form.aggregates:
            amount = amount_of(frame, aggregate)
            always = amount.constant()
            if always is not None:
                constant = constant + factor * group_totals(frame, self._groups, always)
                continue
            factor, own, where, added = self._term(factor, amount)
            constant = constant + added
            if counts is not None and not bool((counts == where).all()):
                raise OtherShape("aggregates over different values in one comparison")
            counts = where
            weight = weight + factor * own
        return weight, np.zeros(frame.values, np.bool_) if counts is None else counts, constant

    def _term(self, factor: int, amount: Amount) -> tuple[int, Integers, Mask, Integers]:
        """Factor, row amounts, where they count, and a constant; rows without a value turned round."""
        frame = self._frame
        own, where = amount.separated()
        constant = np.zeros((self._groups.rows.count, 1), np.int64)
        if abs(factor) * float(np.abs(own).sum(dtype=np.float64)) > LARGEST:
            raise OtherShape("sums beyond 62 bits")
        if frame.shape.values_sql is None and frame.choosers.nullable and bool(where[-1]):
            # What counts without a value is all there is, less what counts with one of the others.
            return -factor, own, ~where, factor * group_totals(frame, self._groups, own)
        return factor, own, where, constant

    def _limit(self, weight: Integers, counts: Mask, operator: str, wanted: Vector, live: Mask) -> None:
        """``sum of weights <operator> wanted`` in the live groups."""
        if bool((weight <= 0).all()) and bool((weight < 0).any()):
            weight, wanted = -weight, Vector(-wanted.values, wanted.null)
            operator = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)
        live = live if wanted.null is None else live & ~wanted.null
        value = wanted.values
        lower = {"=": value, ">=": value, ">": value + 1}.get(operator, -UNLIMITED)
        upper = {"=": value, "<=": value, "<": value - 1}.get(operator, UNLIMITED)
        lower = np.where(live, lower, -UNLIMITED)
        upper = np.where(live, upper, UNLIMITED)
        if self._frame.shape.strict and bool(((lower > 0) | (upper < 0)).any()):
            raise OtherShape("STRICT GROUPS with a check that an empty group fails")
        if not counts.any() or not weight.any():
            self.impossible |= bool(((lower > 0) | (upper < 0)).any())
            return
        self._add(weight, counts, lower, upper)

    def _add(self, weight: Integers, counts: Mask, lower: Integers, upper: Integers) -> None:
        name = self._frame.shape.name
        for part in loads_of(self._frame, self._groups, weight, counts, split=True):
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
        frame, operand = self._frame, check.operand
        if self._groups.values.count != 1 or frame.shape.strict:
            raise OtherShape("all_different within groups of values")
        if check.condition is not None or not bool(live.all()):
            raise OtherShape("all_different of some rows or groups")
        column = frame.column_of_choice(operand)
        if column is None:
            raise OtherShape("all_different of something else than the choice")
        counting = replace(check, function=AggregateFunction.COUNT, operand=operand)
        weight, counts = amount_of(frame, counting).separated()
        kinds = np.unique(column.values, return_inverse=True)[1]
        values = replace(self._groups.values, of=kinds, examples=np.unique(kinds, return_index=True)[1])
        groups = Groups(self._groups.rows, values, self._groups.exists)
        one = np.ones((1, 1), np.int64)
        for part in loads_of(frame, groups, weight, counts, split=True):
            self.limits.append(Limit(frame.shape.name, part.load, np.zeros((1, 1), np.int64), one))


def _most(load: Load) -> int:
    """The largest load that any choice could bring about in any group."""
    counted = load.group >= 0
    if not counted.any():
        return 0
    total = np.zeros(load.groups, np.int64)
    np.add.at(total, load.group[counted], load.weight[counted])
    return int(total.max())


def limits_of(frame: Frame) -> tuple[Sequence[Limit], Sequence[Condition], bool]:
    """The limits and conditions of a grouped CHECK, and whether it fails whatever is chosen."""
    limiter = Limiter(frame)
    limiter.run()
    return limiter.limits, limiter.conditions, limiter.impossible
