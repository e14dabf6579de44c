"""Rows and the values that they choose, fetched each for themselves, and sums over both that are not written down.

A query that ``relational.apart`` takes apart has no candidate rows here: its groups are pairs of a group of rows and
one of values, and what it asks of them are sums of products, or whether anything is there.  Where conditions or numbers
are of both sides, rows and values have *classes*, of which some go together: each class of values sees the rows with
weights of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mgmt.compiler.encoding.aggregates import GroupedRows
from mgmt.compiler.encoding.answers import Statements
from mgmt.compiler.encoding.columns import (
    Choices,
    Column,
    Constants,
    GridOptions,
    Numbers,
    RelationData,
    Truths,
    take,
)
from mgmt.compiler.encoding.evaluate import Evaluator, Lazily, Rows
from mgmt.compiler.relational import apart
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    AggregateFunction,
    Cell,
    Comparison,
    Conjunction,
    Expression,
    Fetched,
)
from mgmt.optimization.columns import TRUE, Integers, Linears, Lists, filled, group_numbers, integers
from mgmt.optimization.products import FactoredProblem, Grid, Side
from mgmt.state.schema import quote

_SUMS = {AggregateFunction.COUNT, AggregateFunction.SUM}


@dataclass(frozen=True, slots=True, eq=False)
class Half:
    """The rows, or the values: which row or value of the choice each is (-1: none), columns by slot, and classes.

    ``around`` is the row around a subquery that each is for, where this side has these rows.
    """

    members: Integers
    columns: Mapping[int, Constants]
    classes: Integers
    around: Integers | None

    def __len__(self) -> int:
        return len(self.members)


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """The pairs of a class of rows and one of values that go together, and what is computed of both, by slot."""

    rows: Integers
    values: Integers
    columns: Mapping[int, Constants]


@dataclass(frozen=True, slots=True, eq=False)
class _Weights:
    """The weight of each row, of each value, and of each two classes that go together; 0 where one does not count."""

    rows: Integers
    values: Integers
    classes: Integers


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """The group of each row and of each value, and the pairs of these that are groups of the query."""

    rows: Integers
    values: Integers
    row_groups: Integers
    value_groups: Integers
    counts: tuple[int, int]

    def __len__(self) -> int:
        return len(self.row_groups)


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """What a query that is taken apart is over."""

    evaluator: Evaluator
    problem: FactoredProblem
    grid: Grid
    rows: Half
    values: Half
    classes: Classes | None
    flagged: Grid | None
    """The same choices where a flag holds, and none elsewhere."""

    # ---- constants ----------------------------------------------------------------------------------

    def column(self, slot: int) -> tuple[int, Constants]:
        """A fetched column, and whether it is one of the rows (0), of the values (1) or of classes (2)."""
        for place, columns in enumerate((self.rows.columns, self.values.columns)):
            if slot in columns:
                return place, columns[slot]
        assert self.classes is not None
        return 2, self.classes.columns[slot]

    def _everywhere(self) -> _Weights:
        classes = 0 if self.classes is None else len(self.classes.rows)
        return _Weights(filled(len(self.rows), 1), filled(len(self.values), 1), filled(classes, 1))

    def _times(self, weights: _Weights, slot: int, factors: Callable[[Constants], Integers]) -> _Weights:
        place, column = self.column(slot)
        parts = [weights.rows, weights.values, weights.classes]
        parts[place] = parts[place] * factors(column)
        return _Weights(*parts)

    # ---- groups -------------------------------------------------------------------------------------

    def grouped(self, keys: Sequence[int], around: int | None = None) -> _Groups:
        """``around``: how many rows are around a subquery, each of which is a group."""
        rows, row_count = self._numbered(self.rows, keys, around)
        values, value_count = self._numbered(self.values, keys, around)
        if around is not None or not keys:
            row_count, value_count = max(row_count, 1), max(value_count, 1)
        if self.classes is None or around is not None or not keys:
            pairs = np.arange(row_count * value_count)
        else:
            pairs = self._together(rows, values, value_count, self._everywhere())
        width = max(1, value_count)
        return _Groups(rows, values, pairs // width, pairs % width, (row_count, value_count))

    def alone(self, keys: Sequence[int], demand: Expression) -> CellGroups | None:
        """The groups of rows and of values of which at most one cell each holds, where that is what is demanded."""
        if self.classes is not None or not self._is_at_most_one(demand):
            return None
        rows, row_count = self._numbered(self.rows, keys, None)
        values, value_count = self._numbered(self.values, keys, None)
        sides = (
            _side(self.rows.members, filled(len(rows), 1), rows, row_count),
            _side(self.values.members, filled(len(values), 1), values, value_count),
        )
        if any((side.weights != 1).any() for side in sides):
            return None
        return CellGroups(*sides, _first(rows, row_count), _first(values, value_count))

    def _is_at_most_one(self, demand: Expression) -> bool:
        if not isinstance(demand, Comparison):
            return False
        count, bound = demand.children
        plain = isinstance(count, Aggregate) and count.function is AggregateFunction.COUNT
        if not plain or count.children or not isinstance(bound, Fetched):
            return False
        column = self.column(bound.slot)[1]
        most = {"<=": 1, "<": 2}.get(demand.operator)
        return most is not None and not column.null.any() and bool((column.cells == most).all())

    def _numbered(self, half: Half, keys: Sequence[int], around: int | None) -> tuple[Integers, int]:
        """The group of each row or value by the keys on its side, and how many there are."""
        if half.around is not None and around is not None:
            return half.around, around
        own = [half.columns[slot].numbers for slot in keys if slot in half.columns]
        first, number = group_numbers(*own, filled(len(half), 0))
        return number, len(first)

    def _together(self, rows: Integers, values: Integers, count: int, weights: _Weights) -> Integers:
        """The pairs of groups that have classes which go together, as ``row group * count + value group``."""
        spread = self._spread(rows, weights)
        return np.unique(spread.pairs(values, self.values.classes, count)[2])

    def _spread(self, groups: Integers, weights: _Weights) -> _Spread:
        """The rows once for each class of values that they go with."""
        assert self.classes is not None
        kept = np.flatnonzero(weights.classes)
        by_class = Lists.grouped(self.classes.rows[kept], kept, 1 + int(self.rows.classes.max(initial=-1)))
        self.problem.foresee(int(by_class.lengths[self.rows.classes].sum()))
        places, starts = by_class.places(self.rows.classes)
        rows = np.repeat(np.arange(len(self.rows)), np.diff(starts))
        pair = by_class.items[places]
        first, number = group_numbers(groups[rows], self.classes.values[pair])
        return _Spread(
            self.rows.members[rows],
            weights.rows[rows] * weights.classes[pair],
            number,
            groups[rows][first],
            self.classes.values[pair][first],
        )

    def _sums(self, groups: _Groups, weights: _Weights, *, flagged: bool = False) -> Linears:
        """For each group the sum of its cells, times their weights; ``flagged``: of those of flagged rows."""
        grid = self.flagged if flagged and self.flagged is not None else self.grid
        members, counts = self.values.members, groups.counts
        if self.classes is None:
            rows = _side(self.rows.members, weights.rows, groups.rows, counts[0])
            values = _side(members, weights.values, groups.values, counts[1])
            return self.problem.new_sums(grid, rows, values, groups.row_groups, groups.value_groups)
        spread = self._spread(groups.rows, weights)
        first, number = group_numbers(groups.values, self.values.classes)
        one, other, keys = spread.pairs(groups.values[first], self.values.classes[first], counts[1])
        known = groups.row_groups * counts[1] + groups.value_groups
        order = np.argsort(known)
        rows = _side(spread.members, spread.weights, spread.groups, len(spread.of))
        values = _side(members, weights.values, number, len(first))
        found = self.problem.new_sums(grid, rows, values, one, other)
        return found.summed(order[np.searchsorted(known[order], keys)], len(groups))

    # ---- what is asked ------------------------------------------------------------------------------

    def rows_of(self, groups: _Groups, fetched: int, template: Rows) -> Rows:
        """The groups as rows: what is not aggregated is that of their first row and their first value."""
        firsts = [
            _first(numbers, count)[places]
            for numbers, count, places in (
                (groups.rows, groups.counts[0], groups.row_groups),
                (groups.values, groups.counts[1], groups.value_groups),
            )
        ]

        def column(slot: int) -> Constants:
            place, found = self.column(slot)
            return found if place == 2 else take(found, firsts[place])

        cache: dict[int, Column] = {}

        def aggregate(expression: Aggregate) -> Column:
            if id(expression) not in cache:
                cache[id(expression)] = self._aggregate(groups, expression, template)
            return cache[id(expression)]

        return replace(template, count=len(groups), fetched=Lazily(fetched, column), aggregates=aggregate)

    def _aggregate(self, groups: _Groups, aggregate: Aggregate, template: Rows) -> Column:
        weights = self._everywhere()
        operands = aggregate.condition.operands if isinstance(aggregate.condition, Conjunction) else ()
        conditions = [each for each in operands if not isinstance(each, Cell)]
        for condition in conditions:
            weights = self._times(weights, _slot(condition), _holds)
        operand = aggregate.operand
        if aggregate.function in _SUMS:
            if operand is not None:
                is_sum = aggregate.function is AggregateFunction.SUM
                weights = self._times(
                    weights,
                    _slot(operand),
                    lambda column: column.whole(operand) if is_sum else _known(column),
                )
            return Numbers.plain(self._sums(groups, weights, flagged=len(conditions) < len(operands)))
        assert operand is not None
        return self._of_the_different(groups, weights, aggregate, _slot(operand), template)

    def _of_the_different(
        self, groups: _Groups, weights: _Weights, aggregate: Aggregate, slot: int, template: Rows
    ) -> Column:
        """What is the same however often a value is there: over the different ones, each there where a cell holds."""
        place, column = self.column(slot)
        own = (groups.values, groups.value_groups) if place else (groups.rows, groups.row_groups)
        first, number = group_numbers(own[0], column.numbers)
        finer = Lists.grouped(own[0][first], np.arange(len(first)), groups.counts[place])
        places, starts = finer.places(own[1])
        owners, told = np.repeat(np.arange(len(groups)), np.diff(starts)), finer.items[places]
        if place:
            counts = groups.counts[0], len(first)
            split = _Groups(groups.rows, number, groups.row_groups[owners], told, counts)
        else:
            counts = len(first), groups.counts[1]
            split = _Groups(number, groups.values, told, groups.value_groups[owners], counts)
        exists = self.problem.at_most(self._sums(split, weights), 0) ^ 1
        value = take(column, first[told])
        rows = replace(template, count=len(split), fetched=Lazily(slot + 1, lambda _: value))
        grouped = GroupedRows(self.evaluator, rows, exists, owners, len(groups))
        return grouped.aggregate(replace(aggregate, condition=None))

    def occupied(self, groups: _Groups) -> Integers:
        """In each group the literal "a cell holds"."""
        return self.problem.at_most(self._sums(groups, self._everywhere()), 0) ^ 1

    def total(self, slot: int, expression: Expression) -> Linears:
        """The sum of a column over all cells that hold."""
        weights = self._times(self._everywhere(), slot, lambda column: column.whole(expression))
        return self._sums(self.grouped(()), weights)

    def forbidden(self, slot: int) -> Iterator[tuple[Integers, Integers]]:
        """Rows and values of which no cell may hold, as the column is false there: all of these with all of those."""
        weights = self._times(self._everywhere(), slot, _is_false)
        rows, values = (
            np.flatnonzero((half.members >= 0) & (own > 0))
            for half, own in ((self.rows, weights.rows), (self.values, weights.values))
        )
        if self.classes is None:
            yield rows, values
            return
        kept = np.flatnonzero(weights.classes > 0)
        sides = ((self.classes.rows[kept], rows, self.rows), (self.classes.values[kept], values, self.values))
        fewer = int(len(np.unique(sides[1][0])) < len(np.unique(sides[0][0])))
        (own, here, half), (others, there, other) = sides[fewer], sides[1 - fewer]
        for number in np.unique(own).tolist():
            found = (
                here[half.classes[here] == number],
                there[np.isin(other.classes[there], others[own == number])],
            )
            yield found if not fewer else found[::-1]


@dataclass(frozen=True, slots=True, eq=False)
class CellGroups:
    """Groups of rows and of values, each with each, and the first row or value of each."""

    rows: Side
    values: Side
    first_row: Integers
    first_value: Integers


@dataclass(frozen=True, slots=True, eq=False)
class _Spread:
    """Rows in groups of one class of values each: ``of`` is the group of the query that each is part of."""

    members: Integers
    weights: Integers
    groups: Integers
    of: Integers
    classes: Integers

    def pairs(self, values: Integers, classes: Integers, count: int) -> tuple[Integers, Integers, Integers]:
        """The groups of rows and of values of one class, and ``row group * count + value group`` of each."""
        size = 1 + max(int(self.classes.max(initial=-1)), int(classes.max(initial=-1)))
        by_class = Lists.grouped(classes, np.arange(len(classes)), size)
        places, starts = by_class.places(self.classes)
        one, other = np.repeat(np.arange(len(self.of)), np.diff(starts)), by_class.items[places]
        return one, other, self.of[one] * count + values[other]


def _side(members: Integers, weights: Integers, groups: Integers, count: int) -> Side:
    kept = (members >= 0) & (weights != 0)
    return Side.of(members[kept], weights[kept], groups[kept], count)


def _first(numbers: Integers, count: int) -> Integers:
    """The first place of each number; -1 where there is none."""
    found = filled(count, -1)
    found[numbers[::-1]] = np.arange(len(numbers))[::-1]
    return found


def _slot(expression: Expression) -> int:
    assert isinstance(expression, Fetched)
    return expression.slot


def _known(column: Constants) -> Integers:
    return integers(~column.null)


def _holds(column: Constants) -> Integers:
    return integers((column.cells != 0) & ~column.null)


def _is_false(column: Constants) -> Integers:
    return integers((column.cells == 0) & ~column.null)


class Separator:
    """Fetches what queries that are taken apart are over."""

    def __init__(
        self,
        statements: Statements,
        evaluator: Evaluator,
        problem: FactoredProblem,
        relations: Mapping[str, RelationData],
    ) -> None:
        self._statements = statements
        self._evaluator = evaluator
        self._problem = problem
        self._relations = relations

    def fetch(self, query: apart.Apart, relation: str, around: str = "") -> Product | None:
        """``relation``: that of the rows that choose; None where not all of them are there or theirs is no grid.

        None, too, where a flag is none beside these choices.
        """
        data = self._relations[relation.lower()]
        choices = data.columns[query.choice.column.lower()]
        if not isinstance(choices, Choices) or not isinstance(choices.options, GridOptions):
            return None
        if (data.exists != TRUE).any():
            return None
        grid, flagged = choices.options.grid, None
        if query.flag is not None:
            flags = data.columns[query.flag.column.lower()]
            flagged = (
                self._problem.flagged(grid, choices.index, flags.true) if isinstance(flags, Truths) else None
            )
            if flagged is None:
                return None
        ids, rows, row_classes = self._half(query.rows, around)
        _, values, value_classes = self._half(query.values, around)
        if len(rows) and len(values):
            members = np.append(choices.index, -1)[data.places(ids)]
            rows = replace(rows, members=members)
            keys = self._evaluator.values.codes(values.columns[query.key])
            values = replace(values, members=choices.options.places(keys))
        classes = self._classes(query, row_classes, value_classes) if query.has_classes else None
        grid = flagged if flagged is not None and query.all_flagged else grid
        return Product(self._evaluator, self._problem, grid, rows, values, classes, flagged)

    def _half(self, side: apart.Side, around: str) -> tuple[Constants, Half, list[Constants]]:
        """The numbers of the rows that choose, one side, and the columns of its classes, one row for each."""
        answer = self._statements.ask(side.sql(around))
        count, before = answer.count, answer.columns[: len(side.before)]
        columns = answer.columns[len(side.before) :]
        told = columns[len(side.slots) : len(side.slots) + len(side.classes)]
        first, classes = group_numbers(*(column.numbers for column in told), filled(count, 0))
        half = Half(
            filled(count, -1),
            dict(zip(side.slots, columns, strict=False)),
            classes,
            before[-1].cells if side.around else None,
        )
        ids = before[0] if before else Constants.of(filled(0, 0))
        return ids, half, [take(column, first) for column in told]

    def _classes(self, query: apart.Apart, rows: Sequence[Constants], values: Sequence[Constants]) -> Classes:
        tables = []
        for side, columns in ((query.rows, rows), (query.values, values)):
            names = [(f"c{place}", kind) for place, (_, kind) in enumerate(side.classes)]
            count = len(columns[0]) if columns else 1
            tables.append(self._statements.new_table("classes", names, columns, count))
        one, other, *found = self._statements.ask(query.class_sql(*map(quote, tables))).columns
        return Classes(one.cells, other.cells, dict(zip(query.mixed, found, strict=True)))
