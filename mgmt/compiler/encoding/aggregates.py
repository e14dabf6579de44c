"""Aggregates over possible groups: which rows are in a group is up to the solver.

COUNT and SUM over a group in which no row exists are 0, so that an empty host is a group like any other;
MIN, MAX, ANY and ALL over none are NULL.  NULL operands are skipped, as in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mgmt.compiler.encoding.columns import Choices, Column, Constants, GridOptions, Numbers, Truths, take
from mgmt.compiler.encoding.evaluate import Evaluator, Lazily, Rows, known
from mgmt.language.bound_queries.expressions import Aggregate, AggregateFunction, Cell, Expression
from mgmt.optimization.columns import (
    FALSE,
    TRUE,
    Integers,
    Linears,
    Lists,
    difference,
    filled,
    group_numbers,
    others,
)
from mgmt.optimization.products import Grid, Side


@dataclass(frozen=True, slots=True, eq=False)
class ByValue:
    """The rows of groups by the values that they may have: for each group and value, the literals of its rows."""

    groups: Integers
    literals: Lists


@dataclass(frozen=True, slots=True, eq=False)
class GroupedRows:
    """The rows of one query, with the literals "it exists" and the group of each, of ``count`` groups."""

    evaluator: Evaluator
    rows: Rows
    exists: Integers
    owners: Integers
    count: int

    def aggregate(self, aggregate: Aggregate) -> Column:
        """One cell for each group."""
        function = aggregate.function
        if function in {AggregateFunction.ANY, AggregateFunction.ALL}:
            return self._quantify(aggregate)
        if function is AggregateFunction.INCREASING:
            return known(self._increasing(aggregate))
        if function is AggregateFunction.ALL_EQUAL:
            return known(self._all_equal(aggregate))
        if function is AggregateFunction.ALL_DIFFERENT:
            values = self.by_value(aggregate)
            counts = Linears.literals(values.literals.items)
            fits = self._at_most(counts.summed(values.literals.owners, len(values.literals)), 1)
            return known(self._all(fits, values.groups))
        if function is AggregateFunction.COUNT_DISTINCT and (cells := self.cells(aggregate)) is not None:
            return self._values_used(*cells)
        if function is AggregateFunction.COUNT_DISTINCT:
            values = self.by_value(aggregate)
            used = self.evaluator.problem.disjunction_of(values.literals)
            return Numbers.plain(Linears.literals(used).summed(values.groups, self.count))
        if function is AggregateFunction.COUNT:
            return Numbers.plain(Linears.literals(self._counted(aggregate)).summed(self.owners, self.count))
        numbers, present = self._operands(aggregate)
        if function is AggregateFunction.SUM:
            parts = self.evaluator.problem.gated(_in_rows(numbers), present)
            total = parts.summed(self.owners, self.count)
            self.evaluator.problem.ranges(total)  # refuses what leaves 64 bits
            return Numbers.plain(total)
        return self._extreme(numbers, present, 1 if function is AggregateFunction.MAXIMUM else -1)

    def cells(self, aggregate: Aggregate) -> tuple[Grid, Side, Side] | None:
        """The choices in each group and their values, where all rows are there and none is twice in one."""
        column = self.evaluator.column(aggregate.operand or aggregate, self.rows)
        plain = (
            isinstance(column, Choices) and aggregate.condition is None and bool((self.exists == TRUE).all())
        )
        if not plain or not isinstance(column, Choices) or not isinstance(column.options, GridOptions):
            return None
        grid, there = column.options.grid, np.flatnonzero(column.index >= 0)
        rows = Side.of(column.index[there], filled(len(there), 1), self.owners[there], self.count)
        return (grid, rows, Side.alone(np.arange(grid.values))) if (rows.weights == 1).all() else None

    def _values_used(self, grid: Grid, rows: Side, values: Side) -> Numbers:
        pairs = np.arange(self.count * len(values))
        groups = pairs // max(1, len(values))
        sums = self.evaluator.problem.new_sums(grid, rows, values, groups, pairs % max(1, len(values)))
        used = Linears.literals(self.evaluator.problem.at_most(sums, 0) ^ 1)
        return Numbers.plain(used.summed(groups, self.count))

    # ---- which rows count ---------------------------------------------------------------------------

    def _present(self, aggregate: Aggregate) -> Integers:
        if aggregate.condition is None:
            return self.exists
        kept = self.evaluator.truths(aggregate.condition, self.rows)
        return self.evaluator.problem.conjunction(self.exists, kept.true)

    def _counted(self, aggregate: Aggregate) -> Integers:
        present = self._present(aggregate)
        if aggregate.operand is None:
            return present
        nulls = self.evaluator.nulls(self.evaluator.column(aggregate.operand, self.rows))
        return self.evaluator.problem.conjunction(present, nulls ^ 1)

    def _operands(self, aggregate: Aggregate) -> tuple[Numbers, Integers]:
        """The operand in every row, and whether the row is there with a value that is not NULL."""
        assert aggregate.operand is not None
        numbers = self.evaluator.numbers(aggregate.operand, self.rows)
        present = self.evaluator.problem.conjunction(self._present(aggregate), numbers.nulls ^ 1)
        return numbers, present

    # ---- truths -------------------------------------------------------------------------------------

    def _quantify(self, aggregate: Aggregate) -> Truths:
        """any or all; UNKNOWN is skipped, and of nothing else it is UNKNOWN."""
        truths = self.evaluator.truths(aggregate.operand or aggregate, self.rows)
        problem, present = self.evaluator.problem, self._present(aggregate)
        true = self._any(problem.conjunction(present, truths.true), self.owners)
        false = self._any(problem.conjunction(present, truths.false), self.owners)
        if aggregate.function is AggregateFunction.ANY:
            return Truths(true, problem.conjunction(true ^ 1, false))
        return Truths(problem.conjunction(true, false ^ 1), false)

    def _any(self, literals: Integers, groups: Integers) -> Integers:
        return self.evaluator.problem.disjunction_of(Lists.grouped(groups, literals, self.count))

    def _all(self, literals: Integers, groups: Integers) -> Integers:
        return self.evaluator.problem.conjunction_of(Lists.grouped(groups, literals, self.count))

    def _at_most(self, linears: Linears, bound: int) -> Integers:
        return self.evaluator.problem.at_most(linears, bound)

    def _all_equal(self, aggregate: Aggregate) -> Integers:
        column = self.evaluator.column(aggregate.operand or aggregate, self.rows)
        problem = self.evaluator.problem
        if isinstance(column, Numbers):
            there = problem.conjunction(self._present(aggregate), column.nulls ^ 1)
            most, least = self._extreme(column, there, 1), self._extreme(column, there, -1)
            same = self._at_most(difference(most.linears, least.linears), 0)
            return problem.disjunction(same, most.null)
        values = self.by_value(aggregate)
        used = Linears.literals(problem.disjunction_of(values.literals))
        return self._at_most(used.summed(values.groups, self.count), 1)

    def _increasing(self, aggregate: Aggregate) -> Integers:
        """No row has a greater value than one whose keys come after its own; equal keys are in no order."""
        problem = self.evaluator.problem
        numbers, there = self._operands(aggregate)
        ranks = self._ranks(aggregate)
        rows = np.flatnonzero(there != FALSE)
        # Where all rows are there for sure, one step after the other is enough.
        uncertain = np.zeros(self.count, np.bool_)
        uncertain[self.owners[rows[there[rows] != TRUE]]] = True
        order = rows[np.lexsort((ranks[rows], self.owners[rows]))]
        groups = Lists.grouped(self.owners[order], order, self.count)
        first, step = group_numbers(self.owners[order], ranks[order])
        one, other = [], []
        steps = np.diff(np.append(first, len(order)))
        for distance in range(1, int(groups.lengths.max(initial=0))):
            if not uncertain.any() and distance >= 2 * int(steps.max(initial=1)):
                break
            early, late = np.arange(len(order) - distance), np.arange(distance, len(order))
            apart = step[late] - step[early]
            wanted = (self.owners[order[early]] == self.owners[order[late]]) & (apart > 0)
            wanted &= (apart == 1) | uncertain[self.owners[order[early]]]
            one.append(order[early[wanted]])
            other.append(order[late[wanted]])
        before = np.concatenate([filled(0, 0), *one])
        after = np.concatenate([filled(0, 0), *other])
        linears = _in_rows(numbers)
        holds = self._at_most(difference(linears.take(before), linears.take(after)), 0)
        tests = problem.disjunction(there[before] ^ 1, there[after] ^ 1, holds)
        return self._all(tests, self.owners[before])

    def _ranks(self, aggregate: Aggregate) -> Integers:
        """Numbers that are in the order of the rows' keys (NULL first), and the same for equal keys."""
        keys = []
        for part, descending in zip(aggregate.order, aggregate.descending, strict=True):
            column = self.evaluator.column(part, self.rows)
            assert isinstance(column, Constants)
            rank = filled(len(column), -1)
            values = column.cells[~column.null]
            _, rank[~column.null] = np.unique(values, return_inverse=True)
            keys.append(np.where(column.null, -1, rank.max(initial=0) - rank) if descending else rank)
        return group_numbers(*keys)[1] if keys else filled(len(self.owners), 0)

    # ---- numbers ------------------------------------------------------------------------------------

    def _extreme(self, numbers: Numbers, present: Integers, sign: int) -> Numbers:
        problem = self.evaluator.problem
        rows = np.flatnonzero(present != FALSE)
        null = self._any(present, self.owners) ^ 1
        linears = _in_rows(numbers).take(rows)
        present, owners = present[rows], self.owners[rows]
        # Rows of one group and one known value are there or not together.
        constant = linears.is_constant
        same = np.where(constant, linears.constants, np.arange(len(rows)))
        first, number = group_numbers(owners, constant.astype(np.int64), same)
        linears, owners = linears.take(first).scaled(sign), owners[first]
        present = problem.disjunction_of(Lists.grouped(number, present, len(first)))
        floor = filled(self.count, 2**62)
        np.minimum.at(floor, owners, problem.ranges(linears)[0])
        # A row that is not there counts as the least value any row can have.
        least = floor[owners]
        raised = problem.gated(linears.plus(-least), present).plus(least)
        empty = others(self.count, owners)
        found = problem.maximum(
            Linears(
                np.concatenate((raised.constants, filled(len(empty), 0))),
                Lists(
                    np.append(raised.terms.starts, filled(len(empty), raised.terms.starts[-1])),
                    raised.terms.items,
                ),
                raised.coefficients,
            ),
            np.concatenate((owners, empty)),
            self.count,
        )
        return Numbers.plain(found.scaled(sign), null)

    # ---- values -------------------------------------------------------------------------------------

    def by_value(self, aggregate: Aggregate) -> ByValue:
        """Per group and value the literals of the rows that are there and have it."""
        present = self._present(aggregate)
        rows = np.flatnonzero(present != FALSE)
        column = take(self.evaluator.column(aggregate.operand or aggregate, self.rows), rows)
        places, codes, literals = self.evaluator.values_of(column, aggregate)
        literals = self.evaluator.problem.conjunction(present[rows][places], literals)
        kept = np.flatnonzero(literals != FALSE)
        groups, codes, literals = self.owners[rows][places[kept]], codes[kept], literals[kept]
        first, number = group_numbers(groups, codes)
        return ByValue(groups[first], Lists.grouped(number, literals, len(first)))


def _in_rows(numbers: Numbers) -> Linears:
    """The expression of each row; 0 for NULL."""
    linears = numbers.linears
    if len(numbers.index) and numbers.index.min() < 0:
        zero = Linears(
            np.append(linears.constants, 0),
            Lists(np.append(linears.terms.starts, linears.terms.starts[-1]), linears.terms.items),
            linears.coefficients,
        )
        return zero.take(np.where(numbers.index < 0, len(linears), numbers.index))
    return linears.take(numbers.index)


def group_rows(
    evaluator: Evaluator, rows: Rows, exists: Integers, owners: Integers, count: int
) -> tuple[GroupedRows, Rows]:
    """The groups of these rows as rows: what is not aggregated is that of their first row, if they have one."""
    grouped = GroupedRows(evaluator, rows, exists, owners, count)
    first = filled(count, -1)
    first[owners[::-1]] = np.arange(len(owners))[::-1]
    cache: dict[int, Column] = {}

    def aggregate(expression: Aggregate) -> Column:
        if id(expression) not in cache:
            cache[id(expression)] = grouped.aggregate(expression)
        return cache[id(expression)]

    found = replace(
        rows,
        count=count,
        fetched=[take(column, first) for column in rows.fetched],
        cells=lambda alias, name: take(rows.cells(alias, name), first),
        aggregates=aggregate,
    )
    return grouped, found


def spread_over_values(
    evaluator: Evaluator, rows: Rows, exists: Integers, keys: Sequence[Expression]
) -> tuple[Rows, Integers, Integers]:
    """The rows once for each value that they may have of each key, which is a further column; and which row each is."""
    of = np.arange(rows.count)
    for key in keys:
        choices = evaluator.as_choices(evaluator.column(key, rows), key)
        options = choices.options.with_null()
        entries = options.take(np.where(choices.index < 0, len(options) - 1, choices.index))
        places = entries.codes.owners
        values = evaluator.values.of(entries.codes.items)
        exists = evaluator.problem.conjunction(exists[places], entries.literals)
        rows, of = rows_at(rows, places), of[places]
        rows = replace(rows, fetched=[*rows.fetched, values], cells=_known(rows.cells, key, values))
    return rows, exists, of


def _known(
    cells: Callable[[str, str], Column], key: Expression, values: Constants
) -> Callable[[str, str], Column]:
    """The same cells, those of the key being these."""

    def found(alias: str, name: str) -> Column:
        own = isinstance(key, Cell) and (alias.lower(), name.lower()) == (
            key.source.lower(),
            key.column.lower(),
        )
        return values if own else cells(alias, name)

    return found


def rows_at(rows: Rows, where: Integers) -> Rows:
    """Some of the rows."""
    return replace(
        rows,
        count=len(where),
        fetched=Lazily(len(rows.fetched), lambda slot: take(rows.fetched[slot], where)),
        cells=lambda alias, name: take(rows.cells(alias, name), where),
        aggregates=lambda expression: take(rows.aggregates(expression), where),
    )
