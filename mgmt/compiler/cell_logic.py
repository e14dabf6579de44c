"""The logic of single cells, three-valued as in SQL: AND, OR, and one cell compared with another.

Whatever is certain before the solve folds away: two constants give a known truth and cost no variable.

What it is not: it sees single cells; columns and expressions are ``mgmt.compiler.evaluate``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mgmt.compiler.columns import UNKNOWN, Choice, Number, Options, Truth
from mgmt.errors import TypeMismatchError
from mgmt.language.bound_queries.expressions import Comparison
from mgmt.optimization.problem import FALSE, TRUE, Problem, add, scale

KNOWN_TRUE = Truth(TRUE, FALSE)
KNOWN_FALSE = Truth(FALSE, TRUE)


class CellLogic:
    """AND, OR and comparisons over one problem."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._same_choices: dict[tuple[int, int], int] = {}

    def both(self, cells: Sequence[Truth]) -> Truth:
        """AND."""
        return Truth(
            self._problem.conjunction(cell.true for cell in cells),
            self._problem.disjunction(cell.false for cell in cells),
        )

    def either(self, cells: Sequence[Truth]) -> Truth:
        """OR."""
        return Truth(
            self._problem.disjunction(cell.true for cell in cells),
            self._problem.conjunction(cell.false for cell in cells),
        )

    def compare(self, one: Any, other: Any, expression: Comparison) -> Truth:
        """Two cells of any kinds.  TypeMismatchError for text beside what is none."""
        operator = expression.operator
        if isinstance(one, Number) and isinstance(other, Number):
            return self.compare_numbers(one, other, operator)
        if isinstance(one, Truth) and isinstance(other, Truth):
            return self.compare_truths(one, other, operator)
        if one is None or other is None:
            return UNKNOWN
        if isinstance(one, (Choice, Options)) and isinstance(other, (Choice, Options)):
            same, null = self._same_value(one, other), self._problem.disjunction((one.null, other.null))
        elif isinstance(one, (Choice, Options)):
            same, null = one.literal(other), one.null
        elif isinstance(other, (Choice, Options)):
            same, null = other.literal(one), other.null
        else:
            return _compare_constants(one, other, expression)
        if null == FALSE:
            different = same ^ 1
        else:
            different = self._problem.conjunction((same ^ 1, null ^ 1))
        return Truth(same, different) if operator == "=" else Truth(different, same)

    def compare_truths(self, one: Truth, other: Truth, operator: str) -> Truth:
        """Two conditions, by = or <>."""
        conjunction, disjunction = self._problem.conjunction, self._problem.disjunction
        same = disjunction((conjunction((one.true, other.true)), conjunction((one.false, other.false))))
        different = disjunction((conjunction((one.true, other.false)), conjunction((one.false, other.true))))
        return Truth(same, different) if operator == "=" else Truth(different, same)

    def compare_numbers(self, one: Number, other: Number, operator: str) -> Truth:
        """Two exact integers, by any operator."""
        difference = add(one.value, scale(other.value, -1))
        at_most = self._problem.at_most
        if operator in {"<=", ">"}:
            holds = at_most(difference, 0)
        elif operator in {"<", ">="}:
            holds = at_most(difference, -1)
        else:
            holds = self._problem.conjunction((at_most(difference, 0), at_most(difference, -1) ^ 1))
        if operator in {">", ">=", "<>"}:
            holds ^= 1
        null = self._problem.disjunction((one.null, other.null))
        if null == FALSE:
            return Truth(holds, holds ^ 1)
        known = null ^ 1
        return Truth(self._problem.conjunction((holds, known)), self._problem.conjunction((holds ^ 1, known)))

    def _same_value(self, one: Choice | Options, other: Choice | Options) -> int:
        if isinstance(one, Choice) and isinstance(other, Choice):
            return self._same_choice(one, other)
        conjunction = self._problem.conjunction
        return self._problem.disjunction(
            conjunction((one.literal(value), other.literal(value))) for value in one.values
        )

    def _same_choice(self, one: Choice, other: Choice) -> int:
        """A literal that holds exactly when two variables have the same value."""
        if one.first == other.first:
            return one.null ^ 1
        key = (min(one.first, other.first), max(one.first, other.first))
        known = self._same_choices.get(key)
        if known is not None:
            return known
        same = self._problem.new_literal()
        for value in one.domain.values:
            mine, others = one.literal(value), other.literal(value)
            self._problem.require_any((same ^ 1, mine ^ 1, others))
            self._problem.require_any((same, mine ^ 1, others ^ 1))
        if one.null != FALSE:
            self._problem.require_any((same ^ 1, one.null ^ 1))
        self._same_choices[key] = same
        return same

    def is_member(self, cell: Choice | Options | None, member: Any) -> Truth:
        """Whether a variable takes this value."""
        if cell is None or member is None:
            return UNKNOWN
        same = cell.literal(member)
        return Truth(same, same ^ 1 if cell.null == FALSE else self._differs(cell, same))

    def _differs(self, cell: Choice | Options, same: int) -> int:
        return self._problem.conjunction((same ^ 1, cell.null ^ 1))


def value_clauses(one: Choice, other: Choice, operator: str) -> Iterator[tuple[int, ...]]:
    """What holds together exactly where ``one = other`` (or ``<>``) is not FALSE, without a literal for that."""
    for value in one.values:
        mine, others = one.literal(value), other.literal(value)
        yield (mine ^ 1, others ^ 1) if operator == "<>" else (mine ^ 1, others, other.null)
    for value in other.values if operator == "=" else ():
        yield one.literal(value), one.null, other.literal(value) ^ 1


def _compare_constants(one: Any, other: Any, expression: Comparison) -> Truth:
    operators: Mapping[str, Callable[[Any, Any], bool]] = {
        "=": lambda a, b: a == b,
        "<>": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }
    if isinstance(one, str) != isinstance(other, str):
        raise TypeMismatchError(
            f"{expression.operator} compares {one!r} with {other!r}",
            position=expression.position,
            hint="compare values of one type",
        )
    return KNOWN_TRUE if operators[expression.operator](one, other) else KNOWN_FALSE
