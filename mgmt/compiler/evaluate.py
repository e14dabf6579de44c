"""Evaluate bound expressions, a column at a time, into cells over the solver-neutral model.

The logic is SQL's: three-valued, NULL in arithmetic gives NULL, a comparison with NULL is UNKNOWN.  Constants
fold away, so that what is certain before the solve costs no variable.

What it is not: it demands nothing (see ``mgmt.compiler.encoder``); aggregates are ``mgmt.compiler.aggregates``,
what is done with single truths ``mgmt.compiler.cell_logic``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mgmt.compiler.cell_logic import KNOWN_FALSE, KNOWN_TRUE, CellLogic
from mgmt.compiler.columns import (
    NULL_NUMBER,
    UNKNOWN,
    Choice,
    Choices,
    Column,
    Constants,
    Number,
    Numbers,
    Options,
    Truth,
    Truths,
)
from mgmt.compiler.division import divide
from mgmt.errors import TypeMismatchError
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    Arithmetic,
    Case,
    Cell,
    Coalesce,
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    Extreme,
    Fetched,
    MembershipQuery,
    Negation,
    NullTest,
)
from mgmt.language.bound_queries.queries import Subquery
from mgmt.optimization.problem import FALSE, TRUE, Linear, Problem, add, scale
from mgmt.state.schema import TEXTUAL, SqlType


@dataclass(frozen=True, slots=True)
class Rows:
    """What an expression is evaluated over: so many rows, fetched columns, cells of symbolic sources."""

    count: int
    fetched: Sequence[Column]
    cells: Callable[[str, str], Column]
    aggregates: Callable[[Aggregate], Column]
    members: Callable[[MembershipQuery], Sequence[Any]]
    subqueries: Callable[[Expression, Rows], Column]


class Evaluator:
    """Evaluates expressions over one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._logic = CellLogic(problem)

    def column(self, expression: Expression, rows: Rows) -> Column:
        """The value of an expression in every row."""
        if isinstance(expression, Fetched):
            return rows.fetched[expression.slot]
        if isinstance(expression, Cell):
            return rows.cells(expression.source, expression.column)
        if isinstance(expression, Aggregate):
            return rows.aggregates(expression)
        if isinstance(expression, (Arithmetic, Extreme)):
            return self._arithmetic(expression, rows)
        if isinstance(expression, Case):
            return self._case(expression, rows)
        if isinstance(expression, Coalesce):
            return self._coalesce(expression, rows)
        if isinstance(expression, Subquery):
            return rows.subqueries(expression, rows)
        return Truths(self.truths(expression, rows))

    # ---- truths -------------------------------------------------------------------------------------

    def truths(self, expression: Expression, rows: Rows) -> list[Truth]:
        """A condition in every row."""
        if isinstance(expression, Conjunction):
            parts = [self.truths(part, rows) for part in expression.operands]
            return [self._logic.both(cells) for cells in zip(*parts, strict=True)]
        if isinstance(expression, Disjunction):
            parts = [self.truths(part, rows) for part in expression.operands]
            return [self._logic.either(cells) for cells in zip(*parts, strict=True)] or [KNOWN_FALSE] * (
                rows.count if not parts else 0
            )
        if isinstance(expression, Negation):
            return [Truth(cell.false, cell.true) for cell in self.truths(expression.operand, rows)]
        if isinstance(expression, NullTest):
            nulls = self.nulls(self.column(expression.operand, rows))
            return [Truth(null, null ^ 1) for null in nulls]
        if isinstance(expression, Comparison):
            return self._comparison(expression, rows)
        if isinstance(expression, MembershipQuery):
            return self._membership(expression, rows)
        return self.as_truths(self.column(expression, rows), expression)

    def as_truths(self, column: Column, expression: Expression) -> list[Truth]:
        """Any column as conditions: numbers are true when they are not 0."""
        if isinstance(column, Truths):
            return list(column.cells)
        if isinstance(column, Constants):
            return [_constant_truth(value, expression) for value in column.cells]
        zero = Number(Linear(0), FALSE)
        return [self._logic.compare_numbers(cell, zero, "<>") for cell in self.as_numbers(column, expression)]

    def _comparison(self, expression: Comparison, rows: Rows) -> list[Truth]:
        left, right = self.column(expression.left, rows), self.column(expression.right, rows)
        return self.compare_columns(left, right, expression)

    def both(self, cells: Sequence[Truth]) -> Truth:
        """AND of single cells."""
        return cells[0] if len(cells) == 1 else self._logic.both(cells)

    def compare_columns(self, left: Column, right: Column, expression: Comparison) -> list[Truth]:
        """Two columns cell by cell, as a comparison of this operator and these types."""
        plain = [
            self._logic.compare(one, other, expression)
            for one, other in self._aligned(left, right, expression)
        ]
        if not expression.null_safe:
            return plain
        found = []
        pairs = zip(plain, self.nulls(left), self.nulls(right), strict=True)
        for cell, left_null, right_null in pairs:
            same = cell.true if expression.operator == "=" else cell.false
            same = self.problem.disjunction((same, self.problem.conjunction((left_null, right_null))))
            found.append(Truth(same, same ^ 1) if expression.operator == "=" else Truth(same ^ 1, same))
        return found

    def _aligned(self, left: Column, right: Column, expression: Comparison) -> list[tuple[Any, Any]]:
        """Pairs of cells of the same kind, as far as their meaning allows."""
        choice_like = (Choices, Constants)
        equality = expression.operator in {"=", "<>"}
        text = bool(TEXTUAL & {expression.left.type, expression.right.type})
        if isinstance(left, choice_like) and isinstance(right, choice_like) and (equality or text):
            return list(zip(left.cells, right.cells, strict=True))
        if equality and {expression.left.type, expression.right.type} == {SqlType.BOOLEAN}:
            truths = self.as_truths(left, expression.left), self.as_truths(right, expression.right)
            return list(zip(*truths, strict=True))
        return list(
            zip(self.as_numbers(left, expression.left), self.as_numbers(right, expression.right), strict=True)
        )

    def _membership(self, expression: MembershipQuery, rows: Rows) -> list[Truth]:
        members = list(rows.members(expression))
        column = self.column(expression.operand, rows)
        if isinstance(column, Choices):
            found = []
            for cell in column.cells:
                tests = [self._logic.is_member(cell, member) for member in members]
                found.append(self._logic.either(tests) if tests else KNOWN_FALSE)
            return found
        numbers = self.as_numbers(column, expression.operand)
        constants = self.as_numbers(Constants(members), expression)
        return [
            self._logic.either([self._logic.compare_numbers(number, constant, "=") for constant in constants])
            if members
            else KNOWN_FALSE
            for number in numbers
        ]

    # ---- numbers ------------------------------------------------------------------------------------

    def numbers(self, expression: Expression, rows: Rows) -> list[Number]:
        """A number in every row."""
        return self.as_numbers(self.column(expression, rows), expression)

    def as_numbers(self, column: Column, expression: Expression) -> list[Number]:
        """Any column as exact integers; conditions are 0 and 1.  TypeMismatchError for text and reals."""
        if isinstance(column, Numbers):
            return list(column.cells)
        if isinstance(column, Constants):
            return [_constant_number(value, expression) for value in column.cells]
        if isinstance(column, Truths):
            return [self._truth_number(cell) for cell in column.cells]
        # A choice stands in as many rows as it has partners, and is a term for each of its values.
        known = {id(cell): cell for cell in column.cells}
        numbers = {key: self._choice_number(cell, expression) for key, cell in known.items()}
        return [numbers[id(cell)] for cell in column.cells]

    def _truth_number(self, cell: Truth) -> Number:
        null = (
            self.problem.conjunction((cell.true ^ 1, cell.false ^ 1))
            if cell.true ^ 1 != cell.false
            else FALSE
        )
        return Number(self.problem.literal_value(cell.true), null)

    def _choice_number(self, cell: Choice | Options | None, expression: Expression) -> Number:
        if cell is None:
            return NULL_NUMBER
        terms = []
        for value in cell.values:
            constant = _constant_number(value, expression).value.constant
            terms.append(scale(self.problem.literal_value(cell.literal(value)), constant))
        return Number(add(*terms), cell.null)

    def _arithmetic(self, expression: Arithmetic | Extreme, rows: Rows) -> Numbers:
        operands = [self.numbers(child, rows) for child in expression.children]
        found = []
        for cells in zip(*operands, strict=True):
            null = self.problem.disjunction(cell.null for cell in cells)
            values = [cell.value for cell in cells]
            if null == TRUE:
                found.append(NULL_NUMBER)
            elif isinstance(expression, Extreme):
                found.append(Number(self._extreme(values, expression.greatest), null))
            else:
                found.append(self._operate(values[0], values[1], null, expression))
        return Numbers(found)

    def _extreme(self, values: Sequence[Linear], greatest: bool) -> Linear:
        if greatest:
            return self.problem.maximum(values)
        return scale(self.problem.maximum([scale(value, -1) for value in values]), -1)

    def _operate(self, left: Linear, right: Linear, null: int, expression: Arithmetic) -> Number:
        problem, operator = self.problem, expression.operator
        if operator == "+":
            return Number(add(left, right), null)
        if operator == "-":
            return Number(add(left, scale(right, -1)), null)
        if operator == "*":
            return Number(problem.product(left, right), null)
        if right.variables:
            quotient, remainder, zero = divide(problem, left, right)
            null = problem.disjunction((null, zero))
            return Number(quotient if operator == "/" else remainder, null)
        if right.constant == 0:
            return NULL_NUMBER
        if operator == "/":
            return Number(problem.quotient(left, right.constant), null)
        return Number(problem.remainder(left, right.constant), null)

    # ---- CASE and COALESCE --------------------------------------------------------------------------

    def _case(self, expression: Case, rows: Rows) -> Column:
        conditions = [self.truths(condition, rows) for condition in expression.conditions]
        selectors: list[list[int]] = []
        for row in range(rows.count):
            earlier: list[int] = []
            selected = []
            for condition in conditions:
                selected.append(self.problem.conjunction((condition[row].true, *earlier)))
                earlier.append(condition[row].true ^ 1)
            selected.append(self.problem.conjunction(earlier))
            selectors.append(selected)
        return self._select(expression, (*expression.values, expression.default), selectors, rows)

    def _coalesce(self, expression: Coalesce, rows: Rows) -> Column:
        nulls = [self.nulls(self.column(part, rows)) for part in expression.operands]
        selectors = []
        for row in range(rows.count):
            earlier: list[int] = []
            selected = []
            for column in nulls:
                selected.append(self.problem.conjunction((column[row] ^ 1, *earlier)))
                earlier.append(column[row])
            selectors.append(selected)
        return self._select(expression, expression.operands, selectors, rows)

    def _select(
        self,
        expression: Expression,
        values: Sequence[Expression],
        selectors: list[list[int]],
        rows: Rows,
    ) -> Column:
        """In each row the value whose selector holds (at most one does); NULL when none does."""
        columns = [self.column(value, rows) for value in values]
        # The columns one after the other: value v of row r stands at v * count + r.
        together = self.concatenate(columns, expression)
        places = [[number * rows.count + row for number in range(len(values))] for row in range(rows.count)]
        return self.choose(together, places, selectors, expression)

    def concatenate(self, columns: Sequence[Column], expression: Expression) -> Column:
        """The cells of several columns as one column of a kind that holds them all."""
        if all(isinstance(column, Constants) for column in columns):
            return Constants([cell for column in columns for cell in column.cells])
        if expression.type is SqlType.BOOLEAN:
            return Truths([cell for column in columns for cell in self.as_truths(column, expression)])
        if all(isinstance(column, (Constants, Choices)) for column in columns):
            return Choices([_as_options(cell) for column in columns for cell in column.cells])
        return Numbers([cell for column in columns for cell in self.as_numbers(column, expression)])

    def choose(
        self,
        column: Column,
        places: Sequence[Sequence[int]],
        selectors: Sequence[Sequence[int]],
        expression: Expression,
    ) -> Column:
        """For each result the cell, out of those at its places, whose selector holds; at most one does."""
        problem = self.problem
        pairs = [
            [(place, s) for place, s in zip(which, chosen, strict=True) if s != FALSE]
            for which, chosen in zip(places, selectors, strict=True)
        ]
        if isinstance(column, Truths) or expression.type is SqlType.BOOLEAN:
            truths = self.as_truths(column, expression)
            return Truths([self._choose_truth([(truths[p], s) for p, s in some]) for some in pairs])
        if expression.type in TEXTUAL or _is_textual(column):
            cells = [_as_options(cell) for cell in column.cells]
            return Choices([self._choose_option([(cells[p], s) for p, s in some]) for some in pairs])
        numbers = self.as_numbers(column, expression)
        found = []
        for some in pairs:
            value = add(*(problem.gated(numbers[place].value, s) for place, s in some))
            present = problem.disjunction(
                problem.conjunction((s, numbers[place].null ^ 1)) for place, s in some
            )
            found.append(Number(value, present ^ 1))
        return Numbers(found)

    def _choose_truth(self, some: Sequence[tuple[Truth, int]]) -> Truth:
        problem = self.problem
        return Truth(
            problem.disjunction(problem.conjunction((s, truth.true)) for truth, s in some),
            problem.disjunction(problem.conjunction((s, truth.false)) for truth, s in some),
        )

    def _choose_option(self, some: Sequence[tuple[Choice | Options | None, int]]) -> Options:
        problem = self.problem
        parts: dict[Any, list[int]] = {}
        for cell, selector in some:
            for value in () if cell is None else cell.values:
                assert cell is not None
                parts.setdefault(value, []).append(problem.conjunction((selector, cell.literal(value))))
        places = {value: problem.disjunction(literals) for value, literals in parts.items()}
        places = {value: literal for value, literal in places.items() if literal != FALSE}
        return Options(places, problem.conjunction(literal ^ 1 for literal in places.values()))

    def nulls(self, column: Column) -> list[int]:
        """A literal for "is NULL" in every row."""
        if isinstance(column, Constants):
            return [TRUE if value is None else FALSE for value in column.cells]
        if isinstance(column, Choices):
            return [TRUE if cell is None else cell.null for cell in column.cells]
        if isinstance(column, Truths):
            return [self._truth_number(cell).null for cell in column.cells]
        return [cell.null for cell in column.cells]


def _is_textual(column: Column) -> bool:
    if isinstance(column, Constants):
        return any(isinstance(cell, str) for cell in column.cells)
    if isinstance(column, Choices):
        return any(
            isinstance(value, str) for cell in column.cells if cell is not None for value in cell.values
        )
    return False


def _as_options(cell: Any) -> Choice | Options | None:
    """A cell of a column of choices; a constant is one that is always the same."""
    if cell is None or isinstance(cell, (Choice, Options)):
        return cell
    return Options({cell: TRUE}, FALSE)


def _constant_truth(value: Any, expression: Expression) -> Truth:
    if value is None:
        return UNKNOWN
    return KNOWN_TRUE if _constant_number(value, expression).value.constant else KNOWN_FALSE


def _constant_number(value: Any, expression: Expression) -> Number:
    if value is None:
        return NULL_NUMBER
    if isinstance(value, bool):
        value = int(value)
    if not isinstance(value, int):
        raise TypeMismatchError(
            f"expected a whole number, found {value!r}",
            position=expression.position,
            hint="the solver computes with exact integers; scale or cast it",
        )
    return Number(Linear(value), FALSE)
