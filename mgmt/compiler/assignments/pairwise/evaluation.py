"""Evaluates the check of pairs, and its conditions, in each way that two choices may stand to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mgmt.compiler.assignments.columns.fetch import Columns
from mgmt.compiler.assignments.columns.vectors import Leaves, Mask, Vector, evaluate
from mgmt.compiler.assignments.normalization.expressions import Constant, RowColumn
from mgmt.compiler.assignments.pairwise.pairing import Attribute, Missing, Pairing, Same
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import Expression


@dataclass(frozen=True, slots=True)
class Case:
    """How the values of two rows may stand to each other; None: that of the attributes is unknown."""

    same: bool | None
    missing: tuple[bool, bool] = (False, False)


SAME, DIFFERENT, UNKNOWN = Case(True), Case(False), Case(None)


class Cases:
    """Evaluates the check and its conditions for every pair."""

    def __init__(
        self, pairing: Pairing, nullable: bool, slots: Sequence[Vector], rows: int, columns: Columns
    ) -> None:
        self._pairing, self._nullable = pairing, nullable
        self._slots, self._rows, self._columns = slots, rows, columns

    def broken(self, case: Case) -> Mask:
        """(pairs,) where the conditions hold and the check does not; nowhere in a case that cannot be."""
        if not self.may_be(case):
            return np.zeros(self._rows, np.bool_)
        held, each = self._evaluated(case)
        return np.asarray(held & each.false)

    def worth(self, case: Case) -> NDArray[np.int64]:
        """(pairs,) what they add to an objective; NotAnAssignment for what may be NULL or text."""
        held, each = self._evaluated(case)
        if each.codes or bool((held & each.nulls).any()):
            raise NotAnAssignment("an objective over pairs that may be NULL")
        return np.where(held, each.values, 0)

    def may_be(self, case: Case) -> bool:
        """Whether rows without these values are looked at."""
        gone = zip(case.missing, self._pairing.joined, strict=True)
        return not any(missing and (joined or not self._nullable) for missing, joined in gone)

    def _evaluated(self, case: Case) -> tuple[Mask, Vector]:
        """(pairs,) where the conditions hold, and what each pair is."""

        def standing(expression: Expression) -> Vector | None:
            if isinstance(expression, Missing):
                return Vector(np.array(case.missing[expression.row], np.int64))
            return _same(expression, case) if isinstance(expression, Same) else None

        held, each = _told(self._pairing, self._slots, standing, self._columns)
        null = None if each.null is None else np.broadcast_to(each.null, (self._rows,))
        values = np.broadcast_to(each.values, (self._rows,))
        return np.broadcast_to(held, (self._rows,)), Vector(values, null, each.codes)


def _same(expression: Same, case: Case) -> Vector:
    if any(case.missing):
        if expression.null_safe:
            return Vector(np.array(all(case.missing), np.int64))
        return Vector(np.zeros((), np.int64), np.ones((), np.bool_))
    if case.same is None:
        if expression.null_safe:
            raise NotAnAssignment("IS DISTINCT FROM between attributes that may be NULL")
        return Vector(np.zeros((), np.int64), np.ones((), np.bool_))
    return Vector(np.array(case.same, np.int64))


def refused_kinds(
    pairing: Pairing, slots: Sequence[Vector], kinds: Sequence[Vector], count: int, columns: Columns
) -> Mask:
    """(kinds, kinds): whether a pair of rows breaks the check where the first has the one and the second the other."""

    def standing(expression: Expression) -> Vector | None:
        if isinstance(expression, Attribute):
            shape = (-1, 1) if expression.row == 0 else (1, -1)
            return kinds[expression.slot].reshaped(*shape)
        return Vector(np.zeros((1, 1), np.int64)) if isinstance(expression, Missing) else None

    held, each = _told(pairing, [slot.reshaped(1, 1) for slot in slots], standing, columns)
    return np.asarray(np.broadcast_to(held & each.false, (count, count)))


def _told(
    pairing: Pairing,
    slots: Sequence[Vector],
    standing: Callable[[Expression], Vector | None],
    columns: Columns,
) -> tuple[Mask, Vector]:
    """Where the conditions hold, and what each pair is; ``standing`` evaluates what the two choices come to."""

    def leaf(expression: Expression) -> Vector:
        if isinstance(expression, RowColumn):
            return slots[expression.slot]
        if isinstance(expression, Constant):
            return Vector(np.array(expression.number, np.int64))
        found = standing(expression)
        if found is None:
            raise NotAnAssignment(f"{type(expression).__name__} over two choices")
        return found

    def no_members(expression: object) -> Sequence[object]:
        raise NotAnAssignment("IN over two choices")

    leaves = Leaves(leaf, no_members, columns.interner)
    held: Mask = np.ones((), np.bool_)
    for condition in pairing.conditions:
        held = held & evaluate(condition, leaves).true
    return held, evaluate(pairing.each, leaves)
