"""CHECKs that compare what a group has with the least of its family: how far the buckets of a load may be apart.

All groups of a family are of the same rows, each of other values; so the family is one load, with a bucket per group.
What else the CHECK says by OR may excuse groups with little in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mgmt.compiler.assignments.building.conditions import check_groups, combined, members
from mgmt.compiler.assignments.building.contributions import (
    Groups,
    LinearForm,
    buckets_of,
    check_weights,
    constants_at,
    contribution_of,
    linear_form,
)
from mgmt.compiler.assignments.columns.candidates import Candidates, Places
from mgmt.compiler.assignments.columns.vectors import Integers, Mask
from mgmt.compiler.assignments.normalization.expressions import RowColumn, ValueColumn, WindowMinimum
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import Aggregate, AggregateFunction, Comparison, Expression
from mgmt.optimization.assignment import NONE, UNLIMITED, Indices, Load, Skew


def compares_with_least(check: Expression) -> bool:
    """Whether the least of a family is in it."""
    return any(isinstance(node, WindowMinimum) for node in check.walk())


def skews_of(data: Candidates, groups: Groups, parts: Sequence[Expression], live: Mask) -> Iterator[Skew]:
    """An OR (or just one part) of a comparison with the least of a family and others that excuse.

    NotAnAssignment when it is none.
    """
    check_groups(data, groups)
    measured = [part for part in parts if compares_with_least(part)]
    if len(measured) != 1:
        raise NotAnAssignment("OR of comparisons with the least of a family")
    own, least = _against_least(data, measured[0])
    lowest = linear_form(data, least.operand)
    if lowest is None:
        raise NotAnAssignment("the least of what is not linear in the aggregates")
    excuses = [_difference(data, part) for part in parts if part is not measured[0]]
    return _Builder(data, groups, own, lowest, excuses).skews(_families(data, groups, least), live)


@dataclass(frozen=True, slots=True)
class _Side:
    """A linear form and what is to be added to it; ``exact``: it is compared by ``=``."""

    form: LinearForm
    more: int = 0
    exact: bool = False


def _difference(data: Candidates, check: Expression) -> _Side:
    """A comparison, as what is to be at most 0."""
    if not isinstance(check, Comparison) or check.null_safe or check.operator == "<>":
        raise NotAnAssignment(f"{type(check).__name__} beside the least of a family")
    left, right = linear_form(data, check.left), linear_form(data, check.right)
    if left is None or right is None:
        raise NotAnAssignment("a comparison with the least of a family that is not linear in the aggregates")
    turned = check.operator in {">", ">="}
    form = right.plus(left.scaled(-1)) if turned else left.plus(right.scaled(-1))
    return _Side(form, int(check.operator in {"<", ">"}), check.operator == "=")


def _against_least(data: Candidates, check: Expression) -> tuple[_Side, WindowMinimum]:
    """What is to be at most the least of a family."""
    leasts: dict[int, WindowMinimum] = {}

    def with_stand_ins(expression: Expression) -> Expression:
        """Aggregates in place of what forms know nothing of."""
        if not isinstance(expression, WindowMinimum):
            return expression.with_children(with_stand_ins)
        operand, function = expression.operand, AggregateFunction.MINIMUM
        stand_in = Aggregate(expression.type, expression.position, function, operand, None)
        leasts[id(stand_in)] = expression
        return stand_in

    check = with_stand_ins(check)
    side = _difference(data, check)
    factors = [factor for factor, part in side.form.aggregates if id(part) in leasts]
    if side.exact or factors != [-1]:
        raise NotAnAssignment("the least of a family, but not as the most that something may be")
    others = tuple((factor, part) for factor, part in side.form.aggregates if id(part) not in leasts)
    return _Side(LinearForm(others, side.form.rest), side.more), next(iter(leasts.values()))


def _families(data: Candidates, groups: Groups, least: WindowMinimum) -> NDArray[np.int64]:
    """(groups, buckets) the family of each; NONE where a key is NULL, which the join finds no family for."""
    row_slots = [key.slot for key in least.keys if isinstance(key, RowColumn)]
    value_slots = [key.slot for key in least.keys if isinstance(key, ValueColumn)]
    if len(row_slots) + len(value_slots) < len(least.keys):
        raise NotAnAssignment("a family by what is neither of the rows nor of the values alone")
    of_rows = data.row_classes(row_slots).of[groups.rows.examples]
    of_values = data.value_classes(value_slots).of[groups.values.examples]
    family = of_rows.astype(np.int64)[:, None] * (int(of_values.max(initial=0)) + 1) + of_values[None, :]
    if least.of_groups:
        return family
    for slot in row_slots:
        family[data.row_column(slot).nulls[groups.rows.examples], :] = NONE
    for slot in value_slots:
        family[:, data.value_column(slot).nulls[groups.values.examples]] = NONE
    return family


@dataclass(slots=True, eq=False)
class _Family:
    """The groups of a family, one after another: which values count in each, and what is demanded there."""

    weight: Integers
    """(R,) what each row adds, which is the same in all groups that have any."""
    bucket: Indices
    """(V,)"""
    base: list[int] = field(default_factory=list)
    above: list[int] = field(default_factory=list)
    excused: list[int] = field(default_factory=list)

    def add_values(self, weight: Integers, bucket: Indices, places: Places) -> None:
        """The values that count in the groups at these places, which are added next."""
        if not weight.any():
            return
        if self.weight.any() and not np.array_equal(self.weight, weight):
            raise NotAnAssignment("a family of groups of different rows")
        self.weight = weight
        number = np.full(int(max(places.max(initial=0), bucket.max(initial=0))) + 2, NONE, np.int32)
        number[places] = len(self.base) + np.arange(len(places))
        found = number[bucket]  # the last entry is for what is in no bucket
        if bool(((found >= 0) & (self.bucket >= 0)).any()):
            raise NotAnAssignment("a value that counts in several groups of a family")
        self.bucket = np.where(found >= 0, found, self.bucket).astype(np.int32)

    def skew(self, name: str) -> Skew | None:
        """The condition; None if it cannot be broken."""
        base, above = np.array(self.base, np.int64), np.array(self.above, np.int64)
        if bool((above <= base.min() - self.weight.sum()).all()):
            return None
        if len(base) == 1 and above[0] <= base[0]:
            return None
        group = np.where(self.weight > 0, 0, NONE).astype(np.int32)
        load = Load(group, 1, self.bucket, len(base), self.weight)
        return Skew(name, load, base, above, np.array(self.excused, np.int64))


class _Builder:
    """Makes the conditions of one CHECK."""

    def __init__(
        self, data: Candidates, groups: Groups, own: _Side, lowest: LinearForm, excuses: Sequence[_Side]
    ) -> None:
        self._data, self._groups = data, groups
        self._own, self._excuses = own, excuses
        self._sides = [own, _Side(lowest), *excuses]
        self._amounts = {
            id(aggregate): contribution_of(data, aggregate)
            for side in self._sides
            for _, aggregate in side.form.aggregates
        }
        self._rest = [constants_at(data, groups, LinearForm((), side.form.rest)) for side in self._sides]

    def skews(self, family: NDArray[np.int64], live: Mask) -> Iterator[Skew]:
        """A condition per family; those groups are looked at that are ``live``, the least is of all."""
        data, groups = self._data, self._groups
        exists = np.broadcast_to(groups.exists, groups.shape) & (family != NONE)
        for number in (0, *range(2, len(self._sides))):
            live = live & ~self._rest[number].nulls
        live = np.broadcast_to(live, groups.shape)
        found: dict[int, _Family] = {}
        for group, rows in members(groups):
            weight, bucket, constants = self._group(group, rows)
            for one in np.unique(family[group][exists[group]]).tolist():
                places = np.flatnonzero(exists[group] & (family[group] == one))
                if one not in found:
                    nothing = np.zeros(data.choosers.rows, np.int64)
                    found[one] = _Family(nothing, np.full(data.choosers.values, NONE, np.int32))
                found[one].add_values(weight, bucket, places)
                self._demand(found[one], group, places, constants, live[group, places])
        for one in found.values():
            skew = one.skew(data.shape.name)
            if skew is not None:
                yield skew

    def _group(self, group: int, rows: Places) -> tuple[Integers, Indices, list[int]]:
        """(R,) what the rows of a group add, (V,) in which bucket, and per side what there is whatever is chosen."""
        data = self._data
        found = [combined(data, self._groups, side.form, self._amounts, rows) for side in self._sides]
        weight, counts, _ = found[0]
        for other, where, _ in found[1:]:
            if not np.array_equal(weight, other) or not np.array_equal(counts, where):
                raise NotAnAssignment("what a group has, compared with the least of something else")
        check_weights(weight)
        total = np.zeros(data.choosers.rows, np.int64)
        np.add.at(total, data.chooser[rows], weight)
        bucket = buckets_of(data, self._groups.values.of, counts)
        return total, bucket, [int(constant[0, 0]) for _, _, constant in found]

    def _demand(
        self, family: _Family, group: int, places: Places, constants: Sequence[int], live: Mask
    ) -> None:
        """Add the groups at these places to a family."""
        there = [
            np.broadcast_to(rest.values, self._groups.shape)[group, places] + constant + side.more
            for rest, constant, side in zip(self._rest, constants, self._sides, strict=True)
        ]
        unknown = np.broadcast_to(self._rest[1].nulls, self._groups.shape)[group, places]
        excused = np.full(len(places), -1, np.int64)
        for side, least in zip(self._excuses, there[2:], strict=True):
            if side.exact and bool((live & (least < 0)).any()):
                raise NotAnAssignment("groups excused with exactly so much in them")
            excused = np.maximum(excused, -least)
        family.base += np.where(unknown, UNLIMITED, there[1]).tolist()
        family.above += np.where(live, there[0], -UNLIMITED).tolist()
        family.excused += excused.tolist()
