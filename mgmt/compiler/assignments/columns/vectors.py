"""Expressions over whole columns, with SQL's meaning: numpy integers beside a mask of NULLs.

Text and values of any other kind are codes of an :class:`Interner`; only = and <> are asked of them.  Columns
broadcast against each other, so a condition on rows and values is one array operation over both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import (
    Arithmetic,
    Case,
    Coalesce,
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    Extreme,
    MembershipQuery,
    Negation,
    NullTest,
)

Integers: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
LARGEST = 2**62
"""Beyond this nothing is computed here, so that no sum of two values wraps round."""
MOST_CELLS = 2**25
"""Of one grid or matrix; more would take hundreds of megabytes."""


_COMPARISONS = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """One column.  ``null`` is None where nothing is NULL; ``codes``: the values are an interner's."""

    values: Integers
    null: Mask | None = None
    codes: bool = False

    def take(self, places: NDArray[np.intp]) -> Vector:
        """The cells at these places of a flat column."""
        null = None if self.null is None else self.null[places]
        return Vector(self.values[places], null, self.codes)

    def reshaped(self, *shape: int) -> Vector:
        null = None if self.null is None else self.null.reshape(shape)
        return Vector(self.values.reshape(shape), null, self.codes)

    def same(self, other: Vector) -> bool:
        """Whether all cells of two flat columns are the same."""
        return (
            self.codes == other.codes
            and np.array_equal(self.values, other.values)
            and (self.null is other.null or np.array_equal(self.nulls, other.nulls))
        )

    @property
    def nulls(self) -> Mask:
        return np.zeros(self.values.shape, np.bool_) if self.null is None else self.null

    @property
    def true(self) -> Mask:
        """Where, as a condition, it holds."""
        held: Mask = self.values != 0
        return held if self.null is None else held & ~self.null

    @property
    def false(self) -> Mask:
        """Where, as a condition, it does not hold and is not UNKNOWN either."""
        failed: Mask = self.values == 0
        return failed if self.null is None else failed & ~self.null


class Interner:
    """Gives texts numbers, the same one for the same text for as long as it lives."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._codes)

    def vector(self, cells: Sequence[Any]) -> Vector:
        """A column of what the database returned.  NotAnAssignment for reals, blobs and mixtures."""
        if not len(cells):
            return Vector(np.zeros(0, np.int64))
        if type(cells[0]) is int:
            try:
                whole = np.array(cells, np.int64)
            except (TypeError, ValueError):  # a NULL or a text further on
                return self._with_nulls_or_texts(cells)
            except OverflowError as error:
                raise NotAnAssignment("values that are no 64-bit integers") from error
            if int(whole.max()) > LARGEST or int(whole.min()) < -LARGEST:
                raise NotAnAssignment("values too large to add up safely")
            return Vector(whole)
        return self._with_nulls_or_texts(cells)

    def _with_nulls_or_texts(self, cells: Sequence[Any]) -> Vector:
        kinds = set(map(type, cells))
        null = None
        if type(None) in kinds:
            null = np.fromiter((cell is None for cell in cells), np.bool_, len(cells))
            kinds.discard(type(None))
        if kinds <= {int, bool}:
            numbers: Iterable[int] = (0 if cell is None else int(cell) for cell in cells)
            vector = self.vector(list(numbers)) if kinds else Vector(np.zeros(len(cells), np.int64))
            return Vector(vector.values, null)
        if kinds != {str}:
            raise NotAnAssignment(f"a column of {' and '.join(sorted(kind.__name__ for kind in kinds))}")
        codes = self._codes
        found = np.fromiter(
            (0 if cell is None else codes.setdefault(cell, len(codes)) for cell in cells),
            np.int64,
            len(cells),
        )
        return Vector(found, null, True)


def whole_numbers(cells: NDArray[Any]) -> Vector:
    """A column of the engine's numbers or conditions.  NotAnAssignment for reals."""
    if cells.dtype.kind not in "iub":
        raise NotAnAssignment("a column of float")
    null = None
    if isinstance(cells, np.ma.MaskedArray):
        null = np.ma.getmaskarray(cells)
        cells = cells.filled(0)
    whole = cells.astype(np.int64)
    if len(whole) and (int(whole.max()) > LARGEST or int(whole.min()) < -LARGEST):
        raise NotAnAssignment("values too large to add up safely")
    return Vector(whole, null)


@dataclass(frozen=True, slots=True)
class Leaves:
    """Where the columns of an expression come from.  ``leaf`` knows every node that is not below."""

    leaf: Callable[[Expression], Vector]
    members: Callable[[MembershipQuery], Sequence[Any]]
    interner: Interner


def evaluate(expression: Expression, leaves: Leaves) -> Vector:
    """The value of an expression, for all rows at once."""
    if isinstance(expression, (Conjunction, Disjunction)):
        return _connect(expression, leaves)
    if isinstance(expression, Negation):
        operand = evaluate(expression.operand, leaves)
        return Vector((operand.values == 0).astype(np.int64), operand.null)
    if isinstance(expression, NullTest):
        return Vector(evaluate(expression.operand, leaves).nulls.astype(np.int64))
    if isinstance(expression, Comparison):
        return _compare(expression, evaluate(expression.left, leaves), evaluate(expression.right, leaves))
    if isinstance(expression, MembershipQuery):
        return _member(evaluate(expression.operand, leaves), leaves.members(expression), leaves.interner)
    if isinstance(expression, Arithmetic):
        return _calculate(expression, evaluate(expression.left, leaves), evaluate(expression.right, leaves))
    if isinstance(expression, Extreme):
        return _extreme([evaluate(part, leaves) for part in expression.operands], expression.greatest)
    if isinstance(expression, Case):
        return _case(expression, leaves)
    if isinstance(expression, Coalesce):
        return _coalesce([evaluate(part, leaves) for part in expression.operands])
    return leaves.leaf(expression)


def _either_null(*parts: Vector) -> Mask | None:
    masks = [part.null for part in parts if part.null is not None]
    if not masks:
        return None
    found = masks[0]
    for mask in masks[1:]:
        found = found | mask
    return found


def _connect(expression: Conjunction | Disjunction, leaves: Leaves) -> Vector:
    decisive = isinstance(expression, Disjunction)  # one such operand settles it, whatever the others are
    settled: Mask = np.zeros((), np.bool_)
    unknown: Mask = np.zeros((), np.bool_)
    for part in expression.operands:
        operand = evaluate(part, leaves)
        settled = settled | (operand.true if decisive else operand.false)
        if operand.null is not None:
            unknown = unknown | operand.null
    values = (settled if decisive else ~settled).astype(np.int64)
    null = unknown & ~settled
    return Vector(values, np.broadcast_to(null, values.shape) if null.any() else None)


def _compare(expression: Comparison, left: Vector, right: Vector) -> Vector:
    operator = expression.operator
    if left.codes != right.codes and not (_all_null(left) or _all_null(right)):
        raise NotAnAssignment("text compared with a number")
    if operator not in {"=", "<>"} and left.codes:
        raise NotAnAssignment(f"{operator} on text")
    held = compared(left, operator, right)
    if expression.null_safe and held.null is not None:
        same = np.where(held.null, left.nulls & right.nulls, (held.values != 0) == (operator == "="))
        return Vector((same == (operator == "=")).astype(np.int64))
    return held


def compared(left: Vector, operator: str, right: Vector) -> Vector:
    """Two columns of one kind compared."""
    held = _COMPARISONS[operator](left.values, right.values)
    null = _either_null(left, right)
    return Vector(held.astype(np.int64), None if null is None else np.broadcast_to(null, held.shape))


def _all_null(vector: Vector) -> bool:
    return vector.null is not None and bool(vector.null.all())


def _member(operand: Vector, members: Sequence[Any], interner: Interner) -> Vector:
    if not members:
        return Vector(np.zeros(operand.values.shape, np.int64))
    found = interner.vector(members)
    if found.codes != operand.codes and not (_all_null(operand) or _all_null(found)):
        raise NotAnAssignment("text compared with a number")
    inside = np.isin(operand.values, found.values[~found.nulls])
    null = operand.null
    if found.nulls.any():  # what is not in it might still be the NULL
        null = ~inside if null is None else null | ~inside
    return Vector(inside.astype(np.int64), null)


def _calculate(expression: Arithmetic, left: Vector, right: Vector) -> Vector:
    operator = expression.operator
    if left.codes or right.codes:
        raise NotAnAssignment("arithmetic on text")
    null = _either_null(left, right)
    if operator == "+":
        values = left.values + right.values
    elif operator == "-":
        values = left.values - right.values
    elif operator == "*":
        if _largest(left) * _largest(right) > LARGEST:
            raise NotAnAssignment("products beyond 62 bits")
        values = left.values * right.values
    else:
        zero = right.values == 0
        if zero.any():
            null = zero if null is None else null | zero
        divisor = np.where(zero, 1, right.values)
        quotient = np.abs(left.values) // np.abs(divisor)
        quotient = np.where((left.values < 0) == (divisor < 0), quotient, -quotient)
        values = quotient if operator == "/" else left.values - divisor * quotient
    result = Vector(values, None if null is None else np.broadcast_to(null, values.shape))
    if operator in {"+", "-"} and _largest(result) > LARGEST:  # each side is below, so it has not wrapped
        raise NotAnAssignment("sums beyond 62 bits")
    return result


def _largest(vector: Vector) -> int:
    if not vector.values.size:
        return 0
    return max(abs(int(vector.values.max())), abs(int(vector.values.min())))


def _same_kind(parts: Sequence[Vector]) -> bool:
    """Whether these are codes; NotAnAssignment when some are and some are not."""
    kinds = {part.codes for part in parts if not _all_null(part)}
    if len(kinds) > 1:
        raise NotAnAssignment("text beside numbers")
    return kinds == {True}


def _extreme(parts: Sequence[Vector], greatest: bool) -> Vector:
    if _same_kind(parts):
        raise NotAnAssignment("greatest or least of text")
    values = parts[0].values
    for part in parts[1:]:
        values = np.maximum(values, part.values) if greatest else np.minimum(values, part.values)
    null = _either_null(*parts)
    return Vector(values, None if null is None else np.broadcast_to(null, values.shape))


def _case(expression: Case, leaves: Leaves) -> Vector:
    conditions = [evaluate(condition, leaves).true for condition in expression.conditions]
    results = [evaluate(value, leaves) for value in expression.values]
    found = evaluate(expression.default, leaves)
    codes = _same_kind([*results, found])
    values, null = found.values, found.nulls
    for condition, result in zip(reversed(conditions), reversed(results), strict=True):
        values = np.where(condition, result.values, values)
        null = np.where(condition, result.nulls, null)
    return Vector(values, null if null.any() else None, codes)


def _coalesce(parts: Sequence[Vector]) -> Vector:
    codes = _same_kind(parts)
    values, null = parts[-1].values, parts[-1].nulls
    for part in reversed(parts[:-1]):
        values = np.where(part.nulls, values, part.values)
        null = part.nulls & null
    return Vector(values, null if null.any() else None, codes)
