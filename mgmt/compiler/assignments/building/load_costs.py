"""Expressions over the aggregates of a group as functions of its loads, with SQL's meaning.

What no aggregate is part of is a constant of each group.  A condition is a number, 0 or 1; NULL is a condition beside
the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from mgmt.compiler.assignments.building.contributions import Groups
from mgmt.compiler.assignments.columns.candidates import Candidates
from mgmt.compiler.assignments.columns.vectors import Integers, Vector, evaluate
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    Arithmetic,
    Case,
    Coalesce,
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    Extreme,
    Negation,
    NullTest,
    has_aggregate,
)
from mgmt.optimization.load_functions import LoadFunction, LoadNumber, Positive, Quotient, constant, greatest


@dataclass(frozen=True, slots=True)
class Value:
    """A number, or 0 or 1 for a condition, and where it is NULL; None: nowhere."""

    number: LoadFunction
    null: LoadFunction | None = None

    @property
    def true(self) -> LoadFunction:
        return self.number if self.null is None else self.number * (1 - self.null)

    @property
    def false(self) -> LoadFunction:
        number = 1 - self.number
        return number if self.null is None else number * (1 - self.null)


@dataclass(frozen=True, slots=True)
class Translation:
    """Makes functions of expressions over the groups of an objective."""

    data: Candidates
    groups: Groups
    places: Mapping[int, int | Integers]
    """Of each aggregate, by its identity: the number of its load, or what it is in each group whatever is chosen."""

    def cost(self, each: Expression, gates: Sequence[Expression], sign: int, *, peak: bool) -> LoadFunction:
        """What each group costs: nothing where it is not there, or what it would cost is NULL."""
        found = self.value(each)
        if peak and found.null is not None:
            none = np.zeros(self.groups.shape, np.int64)
            if bool(found.null((none,) * (1 + max(found.null.loads, default=0))).any()):
                raise NotAnAssignment("the greatest of values that may be NULL")
        live: list[LoadFunction] = [] if self.groups.exists.all() else [constant(self.groups.exists)]
        live += [self.value(gate).true for gate in gates]
        if found.null is not None:
            live.append(1 - found.null)
        return reduce(lambda cost, condition: condition * cost, live, found.number * sign)

    def value(self, expression: Expression) -> Value:
        """One expression."""
        if isinstance(expression, Aggregate):
            place = self.places[id(expression)]
            return Value(LoadNumber(place) if isinstance(place, int) else constant(place))
        if not has_aggregate(expression):
            return self._constant(expression)
        if isinstance(expression, Conjunction):
            return _all([self.value(part) for part in expression.operands])
        if isinstance(expression, Disjunction):
            return _negated(_all([_negated(self.value(part)) for part in expression.operands]))
        if isinstance(expression, Negation):
            return _negated(self.value(expression.operand))
        if isinstance(expression, NullTest):
            return Value(self.value(expression.operand).null or constant(0))
        if isinstance(expression, Comparison):
            return _compared(expression, self.value(expression.left), self.value(expression.right))
        if isinstance(expression, Arithmetic):
            return _calculated(expression, self.value(expression.left), self.value(expression.right))
        if isinstance(expression, Extreme):
            parts = [self.value(part) for part in expression.operands]
            sign = 1 if expression.greatest else -1
            return Value(greatest(*(part.number * sign for part in parts)) * sign, _either_null(*parts))
        if isinstance(expression, Case):
            conditions = [self.value(condition).true for condition in expression.conditions]
            values = [self.value(value) for value in (*expression.values, expression.default)]
            return _first(conditions, values)
        if isinstance(expression, Coalesce):
            parts = [self.value(part) for part in expression.operands]
            return _first([1 - (part.null or constant(0)) for part in parts[:-1]], parts)
        raise NotAnAssignment("a look-up of what is counted or summed")

    def _constant(self, expression: Expression) -> Value:
        def nothing(node: Aggregate) -> Vector:
            raise AssertionError(node)

        rows, values = self.groups.rows.examples, self.groups.values.examples
        found = evaluate(expression, self.data.leaves(rows, values, nothing))
        if found.codes:
            raise NotAnAssignment("text beside what is counted or summed")
        return Value(constant(found.values), None if found.null is None else constant(found.null))


def _either_null(*parts: Value) -> LoadFunction | None:
    nulls = [part.null for part in parts if part.null is not None]
    return greatest(*nulls) if len(nulls) > 1 else next(iter(nulls), None)


def _negated(value: Value) -> Value:
    return Value(1 - value.number, value.null)


def _all(parts: Sequence[Value]) -> Value:
    """AND: false where one is, whatever the others are."""
    true = reduce(lambda one, other: one * other, [part.true for part in parts])
    if all(part.null is None for part in parts):
        return Value(true)
    return Value(true, 1 - true - greatest(*(part.false for part in parts)))


def _compared(expression: Comparison, left: Value, right: Value) -> Value:
    less, more = Positive(right.number - left.number), Positive(left.number - right.number)
    held = {
        "=": 1 - less - more,
        "<>": less + more,
        "<": less,
        "<=": 1 - more,
        ">": more,
        ">=": 1 - less,
    }[expression.operator]
    null = _either_null(left, right)
    if not expression.null_safe or null is None:
        return Value(held, null)
    one, other = left.null or constant(0), right.null or constant(0)
    same = (1 - less - more) * (1 - one) * (1 - other) + one * other
    return Value(same if expression.operator == "=" else 1 - same)


def _calculated(expression: Arithmetic, left: Value, right: Value) -> Value:
    operator, null = expression.operator, _either_null(left, right)
    if operator == "+":
        return Value(left.number + right.number, null)
    if operator == "-":
        return Value(left.number - right.number, null)
    if operator == "*":
        return Value(left.number * right.number, null)
    zero = 1 - Positive(right.number) - Positive(-right.number)
    if right.number.loads or bool(zero(()).any()):
        null = zero if null is None else greatest(null, zero)
    quotient = Quotient(left.number, right.number)
    return Value(quotient if operator == "/" else left.number - right.number * quotient, null)


def _first(conditions: Sequence[LoadFunction], values: Sequence[Value]) -> Value:
    """The value of the first condition that holds; the last one where none does."""
    left: LoadFunction = constant(1)
    numbers, nulls = [], []
    for condition, value in zip((*conditions, constant(1)), values, strict=True):
        here, left = left * condition, left * (1 - condition)
        numbers.append(here * value.number)
        if value.null is not None:
            nulls.append(here * value.null)
    add = lambda one, other: one + other  # noqa: E731
    return Value(reduce(add, numbers), reduce(add, nulls) if nulls else None)
