"""Aggregates over possible groups: which rows are in a group is up to the solver.

COUNT and SUM over a group in which no row exists are 0, so that an empty host is a group like any other;
MIN and MAX over none are NULL.  NULL operands are skipped, as in SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgmt.compiler.columns import Choices, Column, Constants, Number, Numbers, Truth, Truths, take
from mgmt.compiler.evaluate import Evaluator, Rows
from mgmt.errors import UnsupportedConstructError
from mgmt.language.bound_queries.expressions import Aggregate, AggregateFunction
from mgmt.optimization.problem import FALSE, TRUE, Linear, add, scale

_MOST_NUMBERS = 1_000  # values of a computed number that are told apart, each by a literal


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
        if function in {AggregateFunction.ANY, AggregateFunction.ALL}:
            truths = self._evaluator.truths(aggregate.operand or aggregate, self._rows)
            wanted = function is AggregateFunction.ANY
            return Truths([self._quantify(truths, present, group, wanted) for group in self._groups])
        if function is AggregateFunction.INCREASING:
            return Truths(self._increasing(aggregate, present))
        if function is AggregateFunction.ALL_EQUAL:
            return Truths(self._all_equal(aggregate, present))
        if function in {AggregateFunction.COUNT_DISTINCT, AggregateFunction.ALL_DIFFERENT}:
            column = self._evaluator.column(aggregate.operand or aggregate, self._rows)
            by_value = [self._by_value(aggregate, column, present, group) for group in self._groups]
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

    def _quantify(
        self, truths: Sequence[Truth], present: Sequence[int], group: Sequence[int], wanted: bool
    ) -> Truth:
        """any (``wanted``) or all; UNKNOWN is skipped."""
        cells = ((present[row], truths[row].true if wanted else truths[row].false) for row in group)
        found = self._problem.disjunction(self._problem.conjunction(pair) for pair in cells)
        return Truth(found, found ^ 1) if wanted else Truth(found ^ 1, found)

    def _all_equal(self, aggregate: Aggregate, present: list[int]) -> list[Truth]:
        column = self._evaluator.column(aggregate.operand or aggregate, self._rows)
        problem = self._problem
        found = []
        if isinstance(column, Numbers):
            conjunction = problem.conjunction
            there = [conjunction((p, n.null ^ 1)) for p, n in zip(present, column.cells, strict=True)]
            for group in self._groups:
                most = self._extreme(column.cells, there, group, 1)
                least = self._extreme(column.cells, there, group, -1)
                same = problem.at_most(add(most.value, scale(least.value, -1)), 0)
                found.append(problem.disjunction((same, most.null)))
        else:
            for group in self._groups:
                values = self._by_value(aggregate, column, present, group).values()
                used = [problem.literal_value(problem.disjunction(literals)) for literals in values]
                found.append(problem.at_most(add(*used), 1))
        return [Truth(literal, literal ^ 1) for literal in found]

    def _increasing(self, aggregate: Aggregate, present: list[int]) -> list[Truth]:
        """No row has a greater value than one whose keys come after its own; equal keys are in no order."""
        problem = self._problem
        numbers, there = self._operands(aggregate, present)
        keys = [self._evaluator.column(part, self._rows).cells for part in aggregate.order]
        found = []
        for group in self._groups:
            steps = _steps([row for row in group if there[row] != FALSE], keys, aggregate.descending)
            certain = all(there[row] == TRUE for step in steps for row in step)
            tests = []
            for place, step in enumerate(steps):
                later = steps[place + 1 : place + 2] if certain else steps[place + 1 :]
                for one in step:
                    for other in (row for rows in later for row in rows):
                        difference = add(numbers[one].value, scale(numbers[other].value, -1))
                        holds = problem.at_most(difference, 0)
                        tests.append(problem.disjunction((there[one] ^ 1, there[other] ^ 1, holds)))
            literal = problem.conjunction(tests)
            found.append(Truth(literal, literal ^ 1))
        return found

    def values_of(self, aggregate: Aggregate) -> list[dict[Any, list[int]]]:
        """Per group and value the literals of the rows that have it (for all_different)."""
        present = self._present(aggregate)
        column = self._evaluator.column(aggregate.operand or aggregate, self._rows)
        return [self._by_value(aggregate, column, present, group) for group in self._groups]

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

    def _by_value(
        self, aggregate: Aggregate, column: Column, present: Sequence[int], group: Sequence[int]
    ) -> dict[Any, list[int]]:
        """Per value the literals of the rows of a group that are there and have it."""
        found: dict[Any, list[int]] = {}
        for row in group:
            if present[row] == FALSE:
                continue
            for value, literal in self._values(aggregate, column, row):
                both = self._problem.conjunction((present[row], literal))
                if both != FALSE:
                    found.setdefault(value, []).append(both)
        return found

    def _values(self, aggregate: Aggregate, column: Column, row: int) -> list[tuple[Any, int]]:
        """The values a cell may have, each with the literal "it has it"; NULL has none."""
        if isinstance(column, Constants):
            value = column.cells[row]
            return [] if value is None else [(value, TRUE)]
        if isinstance(column, Choices):
            cell = column.cells[row]
            return [] if cell is None else [(value, cell.literal(value)) for value in cell.values]
        if isinstance(column, Truths):
            truth = column.cells[row]
            return [(1, truth.true), (0, truth.false)]
        return self._numbers_one_by_one(aggregate, column.cells[row])

    def _numbers_one_by_one(self, aggregate: Aggregate, cell: Number) -> list[tuple[Any, int]]:
        low, high = self._problem.range_of(cell.value)
        if high - low >= _MOST_NUMBERS:
            raise UnsupportedConstructError(
                f"cannot be encoded: {aggregate.function} of a number between {low} and {high}",
                position=aggregate.position,
                hint=f"at most {_MOST_NUMBERS} values are told apart: bound it closer, or divide",
            )
        at_most, conjunction = self._problem.at_most, self._problem.conjunction
        return [
            (
                value,
                conjunction((at_most(cell.value, value), at_most(cell.value, value - 1) ^ 1, cell.null ^ 1)),
            )
            for value in range(low, high + 1)
        ]

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


def _steps(rows: Sequence[int], keys: Sequence[Sequence[Any]], descending: Sequence[bool]) -> list[list[int]]:
    """The rows in the order of their keys (NULL first), those of equal keys together."""
    ordered = list(rows)
    for cells, backwards in reversed(list(zip(keys, descending, strict=True))):
        known = sorted(
            (row for row in ordered if cells[row] is not None), key=cells.__getitem__, reverse=backwards
        )
        ordered = [row for row in ordered if cells[row] is None] + known
    steps: dict[tuple[Any, ...], list[int]] = {}
    for row in ordered:
        steps.setdefault(tuple(cells[row] for cells in keys), []).append(row)
    return list(steps.values())


def group_rows(
    evaluator: Evaluator, rows: Rows, exists: Sequence[int], members: Sequence[Sequence[int]]
) -> tuple[GroupedRows, Rows]:
    """The groups of these rows as rows: what is not aggregated is that of their first row, if they have one."""
    grouped = GroupedRows(evaluator, rows, exists, members)
    first = [group[0] if group else -1 for group in members]
    cache: dict[int, Column] = {}

    def aggregate(expression: Aggregate) -> Column:
        if id(expression) not in cache:
            cache[id(expression)] = grouped.aggregate(expression)
        return cache[id(expression)]

    found = Rows(
        len(members),
        [take(column, first) for column in rows.fetched],
        lambda alias, name: take(rows.cells(alias, name), first),
        aggregate,
        rows.members,
        rows.subqueries,
    )
    return grouped, found
