"""Aggregates over possible groups: which rows are in a group is up to the solver.

COUNT and SUM over a group in which no row exists are 0, so that an empty host is a group like any other;
MIN and MAX over none are NULL.  NULL operands are skipped, as in SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgmt.compiler.columns import Choices, Column, Constants, Number, Numbers, Truth, Truths
from mgmt.compiler.evaluate import Evaluator, Rows
from mgmt.language.expressions import Aggregate, AggregateFunction
from mgmt.optimization.problem import FALSE, Linear, add, scale


class GroupedRows:
    """The rows of one query, sorted into groups: per group its rows, per row the literal "it exists"."""

    def __init__(
        self, evaluator: Evaluator, rows: Rows, exists: Sequence[int], groups: Sequence[Sequence[int]]
    ) -> None:
        self._evaluator = evaluator
        self._problem = evaluator.problem
        self._rows = rows
        self._exists = exists
        self._groups = groups

    def aggregate(self, aggregate: Aggregate) -> Column:
        """One cell for each group."""
        present = self._present(aggregate)
        function = aggregate.function
        if function in {AggregateFunction.COUNT_DISTINCT, AggregateFunction.ALL_DIFFERENT}:
            column = self._evaluator.column(aggregate.operand or aggregate, self._rows)
            by_value = [self._by_value(column, present, group) for group in self._groups]
            if function is AggregateFunction.ALL_DIFFERENT:
                return Truths([self._all_different(values) for values in by_value])
            return Numbers([self._count_distinct(values) for values in by_value])
        if aggregate.operand is None:
            return Numbers([self._count(present, group) for group in self._groups])
        numbers, present = self._operands(aggregate, present)
        if function is AggregateFunction.COUNT:
            return Numbers([self._count(present, group) for group in self._groups])
        if function is AggregateFunction.SUM:
            return Numbers([self._sum(numbers, present, group) for group in self._groups])
        sign = 1 if function is AggregateFunction.MAXIMUM else -1
        return Numbers([self._extreme(numbers, present, group, sign) for group in self._groups])

    def values_of(self, aggregate: Aggregate) -> list[dict[Any, list[int]]]:
        """Per group and value the literals of the rows that have it (for all_different)."""
        present = self._present(aggregate)
        column = self._evaluator.column(aggregate.operand or aggregate, self._rows)
        return [self._by_value(column, present, group) for group in self._groups]

    def _present(self, aggregate: Aggregate) -> list[int]:
        if aggregate.condition is None:
            return list(self._exists)
        kept = self._evaluator.truths(aggregate.condition, self._rows)
        pairs = zip(self._exists, kept, strict=True)
        return [self._problem.conjunction((exists, cell.true)) for exists, cell in pairs]

    def _operands(self, aggregate: Aggregate, present: list[int]) -> tuple[list[Number], list[int]]:
        """The operand in every row, and whether the row is there with a value that is not NULL."""
        assert aggregate.operand is not None
        if aggregate.function is AggregateFunction.COUNT:
            nulls = self._evaluator.nulls(self._evaluator.column(aggregate.operand, self._rows))
            numbers = [Number(Linear(0), null) for null in nulls]
        else:
            numbers = self._evaluator.numbers(aggregate.operand, self._rows)
        conjunction = self._problem.conjunction
        kept = [conjunction((p, n.null ^ 1)) for p, n in zip(present, numbers, strict=True)]
        return numbers, kept

    def _count(self, present: Sequence[int], group: Sequence[int]) -> Number:
        return Number(add(*(self._problem.literal_value(present[row]) for row in group)), FALSE)

    def _sum(self, numbers: Sequence[Number], present: Sequence[int], group: Sequence[int]) -> Number:
        parts = [self._problem.gated(numbers[row].value, present[row]) for row in group]
        total = add(*parts)
        self._problem.range_of(total)  # refuses what leaves 64 bits
        return Number(total, FALSE)

    def _extreme(
        self, numbers: Sequence[Number], present: Sequence[int], group: Sequence[int], sign: int
    ) -> Number:
        problem = self._problem
        rows = [row for row in group if present[row] != FALSE]
        null = problem.conjunction(present[row] ^ 1 for row in rows)
        if not rows:
            return Number(Linear(0), null)
        values = [scale(numbers[row].value, sign) for row in rows]
        floor = min(problem.range_of(value)[0] for value in values)
        # A row that is not there counts as the least value any row can have.
        raised = [
            add(problem.gated(add(value, Linear(-floor)), present[row]), Linear(floor))
            for row, value in zip(rows, values, strict=True)
        ]
        return Number(scale(problem.maximum(raised), sign), null)

    def _by_value(self, column: Column, present: Sequence[int], group: Sequence[int]) -> dict[Any, list[int]]:
        found: dict[Any, list[int]] = {}
        for row in group:
            if present[row] == FALSE:
                continue
            for value, literal in _values(column, row):
                both = self._problem.conjunction((present[row], literal))
                if both != FALSE:
                    found.setdefault(value, []).append(both)
        return found

    def _count_distinct(self, values: dict[Any, list[int]]) -> Number:
        problem = self._problem
        parts = [problem.literal_value(problem.disjunction(literals)) for literals in values.values()]
        return Number(add(*parts), FALSE)

    def _all_different(self, values: dict[Any, list[int]]) -> Truth:
        problem = self._problem
        tests = []
        for literals in values.values():
            total = add(*(problem.literal_value(literal) for literal in literals))
            tests.append(problem.at_most(total, 1))
        holds = problem.conjunction(tests)
        return Truth(holds, holds ^ 1)


def _values(column: Column, row: int) -> list[tuple[Any, int]]:
    """The values a cell may have, each with the literal "it has it"; NULL has none."""
    if isinstance(column, Constants):
        value = column.cells[row]
        return [] if value is None else [(value, 0)]
    if isinstance(column, Choices):
        cell = column.cells[row]
        return [] if cell is None else [(value, cell.literal(value)) for value in cell.domain.values]
    if isinstance(column, Truths):
        truth = column.cells[row]
        return [(1, truth.true), (0, truth.false)]
    raise AssertionError("the binder admits only constants and variables here")
