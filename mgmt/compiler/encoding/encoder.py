"""Encode: from one snapshot and the split queries to the solver-neutral model.

Queries are evaluated in order over the tables' variable columns (``tables``); each constraint's rows are demanded under
the literals by which they exist, each objective is summed.

What it is not: it decides nothing (see ``mgmt.optimization.backends``), and it does not talk SQL beyond fetching.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, overload

import numpy as np

from mgmt.compiler.encoding.aggregates import GroupedRows, group_rows, rows_at, spread_over_values
from mgmt.compiler.encoding.answers import KeptAnswers, Statements
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
from mgmt.compiler.encoding.evaluate import Evaluator, Rows
from mgmt.compiler.encoding.functions import FunctionEncoder
from mgmt.compiler.encoding.integer_variables import quantities_of
from mgmt.compiler.encoding.products import CellGroups, Product, Separator
from mgmt.compiler.encoding.replay import Journal, Replay, Step, added, alike, cut, grow
from mgmt.compiler.encoding.sources import Sources, no_aggregate, no_cell
from mgmt.compiler.encoding.subqueries import SubqueryEncoder
from mgmt.compiler.encoding.tables import TableEncoder, VariableColumn, check_size
from mgmt.compiler.relational.apart import Apart
from mgmt.compiler.relational.split import SplitQuery
from mgmt.errors import OverflowError, PolicyError, SolveTimeout  # noqa: A004 - the published name
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    AggregateFunction,
    Cell,
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    Fetched,
    MembershipQuery,
    Negation,
    negated,
)
from mgmt.language.bound_queries.queries import PushedView, UnionView
from mgmt.language.names.catalog import Catalog, Relation
from mgmt.language.pushdown.engine_errors import refusals_at
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.optimization.columns import (
    FALSE,
    TRUE,
    Integers,
    Linears,
    Lists,
    difference,
    filled,
    group_numbers,
)
from mgmt.optimization.general.deadline import Deadline
from mgmt.optimization.general.expansion import expanded
from mgmt.optimization.problem import Objective, Problem, Source
from mgmt.optimization.products import CellRows, FactoredProblem, Side
from mgmt.state.database import Snapshot
from mgmt.state.schema import TEXTUAL, SqlType, quote


@dataclass(frozen=True, slots=True)
class StepFigures:
    """What one query cost: rows fetched from the database, and seconds of wall time."""

    fetched_rows: int
    seconds: float


class ConstantRows(Sequence[Mapping[str, Any]]):
    """The rows of a constraint: what is constant in them, by name: a column, and where in it the cells of rows are."""

    def __init__(
        self, columns: Mapping[str, tuple[Constants, Callable[[Integers], Integers]]], count: int
    ) -> None:
        self._columns = columns
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, row: int) -> Mapping[str, Any]: ...

    @overload
    def __getitem__(self, row: slice) -> Sequence[Mapping[str, Any]]: ...

    def __getitem__(self, row: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        if isinstance(row, slice):
            return [self[place] for place in range(*row.indices(self._count))]
        return self.common(np.array([range(self._count)[row]]))

    def common(self, rows: Integers) -> Mapping[str, Any]:
        """What some rows, one at least, have in common."""
        found = {}
        for name, (column, where) in self._columns.items():
            cells = take(column, where(rows))
            if isinstance(cells, Constants):
                first, *others = cells.values
                if all(other == first for other in others):
                    found[name] = first
        return found


@dataclass
class Encoding:
    """A snapshot, encoded."""

    factored: FactoredProblem
    columns: list[VariableColumn]
    # constraint -> row -> the constants of that row, for explanations
    rows: dict[str, ConstantRows] = field(default_factory=dict)
    fetched_rows: int = 0
    steps: dict[str, StepFigures] = field(default_factory=dict)

    def written_out(self, deadline: Deadline) -> Problem:
        """The problem.  SolveTimeout when it would take longer."""
        stop = self.factored.watch

        def watch(cells: int) -> None:
            if stop is not None:
                stop(cells)
            if deadline.passed:
                raise SolveTimeout(f"{cells} cells, and more, were not written down for a solver in time")

        if stop is None:
            return self.problem
        self.factored.watch = watch
        try:
            return self.problem
        except PolicyError:
            self.factored.watch = stop
            raise

    @cached_property
    def problem(self) -> Problem:
        """With every cell written down."""
        cells = 0
        for column in self.columns:
            with refusals_at(f"{column.table.name}.{column.column.name}", column.column.position):
                cells += column.size
                self.factored.foresee(cells - self.factored.cells)
        found = expanded(self.factored)
        found.watch = self.factored.watch = None
        return found


_NEGATED = (Comparison, Conjunction, Disjunction, Negation)
"""What says the opposite by itself."""
_FEWER = 2
"""Times: so many fewer rows of a view are worth literals of their own."""
_MANY_ROWS = 100_000
_SECONDS_A_ROW = 3e-7
"""A candidate takes more than that, whatever is asked of it."""


_TABLES = ""
"""As the name of a step."""


class Relations(dict[str, RelationData]):
    """The symbolic sides of relations by lower-case name, each read through a journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal
        journal.sources["relation"] = self.get

    def __getitem__(self, name: str) -> RelationData:
        found: RelationData | None = self._journal.ask("relation", name)
        if found is None:
            raise KeyError(name)
        return found

    def columns_of(self, name: str) -> Mapping[str, Column]:
        return super().__getitem__(name.lower()).columns


class Encoder:
    """Encodes one snapshot.  Leaves the snapshot with the views it defined."""

    def __init__(self, snapshot: Snapshot, kept: KeptAnswers | None = None) -> None:
        """``kept``: what the same queries were answered before, and what will be kept of this."""
        self._snapshot = snapshot
        self._journal = Journal()
        self._statements = Statements(snapshot, kept, self._journal)
        self._problem = FactoredProblem(watch=self._stop_what_grows)
        self._evaluator = Evaluator(self._problem)
        self._relations = Relations(self._journal)
        self._sources = Sources(self._statements, self._evaluator, self._relations, self._journal)
        self._separator = Separator(self._statements, self._evaluator, self._problem, self._relations)
        self._encoding = Encoding(self._problem, [])
        self._replay = Replay() if kept is None else kept.replay
        self._before: dict[str, Step] = {}
        """The steps of an encoding before, as far as they are to be had."""
        self._steps: dict[str, Step] = {}
        self._subqueries = SubqueryEncoder(
            self._statements,
            self._evaluator,
            self._sources,
            self._separator,
            self._members,
            self._stop_before,
        )
        self._functions = FunctionEncoder(self._statements, self._evaluator, self._stop_before)

    def encode(
        self,
        program: Sequence[PushedView | SplitQuery],
        catalog: Catalog,
        columns: frozenset[tuple[str, str]] | None = None,
    ) -> Encoding:
        """Run the whole program: tables first, then each view and constraint in order.

        ``columns``: only these (table, variable column), in lower case, are decided; None: all of them.
        """
        numbers = quantities_of(program, catalog)
        flagged = {
            (
                _relation_of(step, step.apart.choice).lower(),
                step.apart.choice.column.lower(),
                flag.column.lower(),
            )
            for step in program
            if isinstance(step, SplitQuery)
            and step.apart is not None
            and (flag := step.apart.flag) is not None
        }
        tables = TableEncoder(
            self._statements, catalog, self._problem, self._evaluator.values, columns, numbers, flagged
        )
        self._before = self._replay.taken(program, columns)
        self._take_step(_TABLES, lambda: self._encode_tables(tables))
        self._bind_columns()
        for step in program:
            before, started = self._encoding.fetched_rows, time.perf_counter()
            with refusals_at(step.name, step.position):
                if isinstance(step, PushedView) and not isinstance(step, UnionView):
                    self._statements.define_view(step)
                else:
                    self._take_step(step.name, partial(self._encode, step))
            fetched, spent = self._encoding.fetched_rows - before, time.perf_counter() - started
            self._encoding.steps[step.name] = StepFigures(fetched, spent)
        self._replay.keep(program, columns, self._steps, self._problem.cells)
        return self._encoding

    def _encode_tables(self, tables: TableEncoder) -> None:
        tables.encode()
        self._encoding.columns.extend(tables.columns)
        self._relations.update(tables.relations)

    def _bind_columns(self) -> None:
        """Columns that were taken from an encoding before are of this one."""
        columns = self._encoding.columns
        for place, column in enumerate(columns):
            cells = self._relations.columns_of(column.table.name)[column.column.name.lower()]
            if isinstance(cells, Choices) and isinstance(cells.options, GridOptions):
                cells.options.problem = self._problem
            assert isinstance(cells, (Choices, Truths, Numbers))
            columns[place] = replace(column, cells=cells, values=self._evaluator.values)

    def _take_step(self, name: str, encode: Callable[[], None]) -> None:
        """Take a step from the encoding before where it would be the same; else encode it."""
        known = self._before.get(name)
        if known is not None and self._journal.is_told_again(known.told):
            self._take_over(known)
        else:
            known = self._encoded(known, encode)
        self._steps[name] = known

    def _encoded(self, known: Step | None, encode: Callable[[], None]) -> Step:
        """A step that is encoded; if it comes to what it did before, that is taken in its place."""
        problem, encoding, statements = self._problem, self._encoding, self._statements
        grown, aside = self._grown, (encoding.rows, encoding.columns)
        lengths, beside = [len(each) for each in grown], [len(each) for each in aside]
        size, tables, fetched = problem.size, statements.tables, encoding.fetched_rows
        self._journal.told = []
        encode()
        addition, (relations, looked_up, *values) = problem.since(size), added(grown, lengths)
        numbering = addition.numbering, list(looked_up), values, statements.tables - tables
        others = *added(aside, beside), encoding.fetched_rows - fetched
        made = Step(self._journal.told, (addition, [relations, looked_up, *values]), numbering, others)
        if known is not None and alike(known.made, made.made):
            made = replace(made, made=known.made)
            problem.cut(size)
            cut(grown, lengths)
            cut(aside, beside)
            statements.tables, encoding.fetched_rows = tables, fetched
            self._take_over(made)
        elif known is not None and not alike(known.numbering, numbering):
            self._before = {}
        return made

    def _take_over(self, step: Step) -> None:
        """Do what another encoding did in a step."""
        addition, more = step.made
        rows, columns, fetched = step.aside
        self._problem.add(addition)
        grow(self._grown, more)
        grow((self._encoding.rows, self._encoding.columns), (rows, columns))
        self._statements.tables += step.numbering[-1]
        self._encoding.fetched_rows += fetched

    @property
    def _grown(self) -> tuple[list[Any] | dict[Any, Any], ...]:
        """What a step adds to beside the problem."""
        return self._relations, self._sources.looked_up, *self._evaluator.values.grown

    def _stop_what_grows(self, cells: int, rows: int = 0) -> None:
        """One statement may be more than the budget, or than can be solved; ``rows``: candidates still to come."""
        check_size(cells, self._snapshot.memory)
        limit = self._snapshot.limit
        left = math.inf if limit is None else limit.deadline - time.monotonic()
        if limit is not None and left < rows * _SECONDS_A_ROW:
            what = "it is not" if left < 0 else f"its {rows} candidate rows would not be"
            raise SolveTimeout(
                f"{what} encoded after {limit.seconds:g} s, the budget of the solve",
                hint="compare fewer rows: join by keys, filter earlier, or group in a view; or raise the budget",
            )

    def _stop_before(self, rows: int) -> None:
        """So many candidates may be more than there is time or memory for: each is at least one cell."""
        if rows >= _MANY_ROWS:
            self._stop_what_grows(self._problem.cells + rows, rows)

    def _encode(self, step: PushedView | SplitQuery) -> None:
        if isinstance(step, UnionView):
            self._define_union(step)
        else:
            assert isinstance(step, SplitQuery)
            self._encode_query(step)

    # ---- queries ------------------------------------------------------------------------------------

    def _encode_query(self, query: SplitQuery) -> None:
        if query.apart is not None:
            product = self._separator.fetch(query.apart, _relation_of(query, query.apart.choice))
            if product is not None:
                self._encode_product(query, query.apart, product)
                return
        answer = self._statements.ask(query.sql)
        count, fetched = answer.count, answer.columns
        self._stop_before(count)
        self._encoding.fetched_rows += count
        demand = query.bound.demand
        if demand is not None and not count:
            self._encoding.rows[query.name] = ConstantRows({}, 0)
            if demand.is_objective:
                self._add_objective(query, Linears.constant([]))
            return
        rows, exists = self._candidates(query, count, fetched)
        if query.keys is None:
            # In a view they stay: what groups its rows counts candidates that cannot exist, too.
            if demand is not None and (exists == FALSE).any():
                kept = np.flatnonzero(exists != FALSE)
                rows, exists = rows_at(rows, kept), exists[kept]
            scope = _Scope(rows, exists, None)
        else:
            scope = self._group(query, rows, exists)
        if demand is None:
            self._define_view(query.name, query.outputs, scope)
        else:
            assert query.demand is not None
            self._demand(query, query.demand, scope)

    def _encode_product(self, query: SplitQuery, apart: Apart, product: Product) -> None:
        """The same without candidates: their groups are pairs of groups, or no cell of some pairs may hold."""
        self._encoding.fetched_rows += len(product.rows) + len(product.values)
        if query.keys is None:
            assert isinstance(query.demand, Fetched)
            with self._told(query):
                self._post_product(query, query.demand, product)
            return
        if apart.having is None and apart.demand is not None:
            alone = product.alone(query.keys, apart.demand)
            if alone is not None:
                self._post_alone(query, product, alone)
                return
        groups = product.grouped(query.keys)
        rows = product.rows_of(groups, query.fetched, self._rows(len(groups)))
        exists = filled(len(groups), TRUE)
        if query.bound.strict_groups and query.gates:
            exists = product.occupied(groups)
        if apart.having is not None:
            exists = self._problem.conjunction(exists, self._evaluator.truths(apart.having, rows).true)
        scope = _Scope(rows, exists, None)
        if query.bound.demand is None:
            names = (name for name, _ in query.outputs)
            self._define_view(query.name, list(zip(names, apart.outputs, strict=True)), scope)
        else:
            assert apart.demand is not None
            self._demand(query, apart.demand, scope)

    def _post_product(self, query: SplitQuery, demand: Fetched, product: Product) -> None:
        """What is demanded of every row, of which there is one for each row that chooses and each value."""
        width = max(1, len(product.values))
        self._tell_pairs(query, product, np.arange(len(product.rows)), np.arange(len(product.values)))
        assert query.bound.demand is not None
        if query.bound.demand.is_objective:
            self._add_objective(query, product.total(demand.slot, demand))
            return
        if not len(product.rows) or not len(product.values):
            return
        for rows, values in product.forbidden(demand.slot):
            if len(rows) and len(values):
                sides = Side.alone(product.rows.members[rows]), Side.alone(product.values.members[values])
                self._problem.require_cells(
                    CellRows(product.grid, *sides, True, query.name, rows * width, values)
                )

    def _post_alone(self, query: SplitQuery, product: Product, groups: CellGroups) -> None:
        """At most one cell of each group of rows with each group of values."""
        self._tell_pairs(query, product, groups.first_row, groups.first_value)
        several = np.flatnonzero(groups.rows.members.lengths > 1)
        tags = several * max(1, len(groups.values)), np.arange(len(groups.values))
        sides = groups.rows.take(several), groups.values
        self._problem.require_cells(CellRows(product.grid, *sides, False, query.name, *tags))

    def _tell_pairs(self, query: SplitQuery, product: Product, rows: Integers, values: Integers) -> None:
        """What is constant in the rows of a constraint, of which there is one for each of these rows and values."""
        width = max(1, len(values))

        def of_row(place: Integers) -> Integers:
            return rows[place // width]

        def of_value(place: Integers) -> Integers:
            return values[place % width]

        columns = {}
        for name, expression in query.outputs:
            if isinstance(expression, Fetched):
                side, column = product.column(expression.slot)
                if side < 2:
                    columns[name] = column, (of_row, of_value)[side]
        self._encoding.rows[query.name] = ConstantRows(columns, len(rows) * len(values))

    def _rows(self, count: int) -> Rows:
        """Rows of constants alone."""
        asked = self._members, self._subqueries.column, self._functions.column
        return Rows(count, (), no_cell, no_aggregate, *asked)

    def _candidates(
        self, query: SplitQuery, count: int, fetched: Sequence[Constants]
    ) -> tuple[Rows, Integers]:
        """The variable-free part's rows, and the literal under which each exists."""
        width = len(query.symbolic_sources)
        sources = self._sources.joined(query.bound.sources, query.symbolic_sources, fetched)
        columns = fetched[width : width + query.fetched]
        cache: dict[tuple[str, str], Column] = {}

        def cells(alias: str, name: str) -> Column:
            key = (alias, name.lower())
            if key not in cache:
                found = sources.cells(alias, name, query.lookups, cells)
                assert found is not None
                cache[key] = found
            return cache[key]

        asked = self._members, self._subqueries.column, self._functions.column
        rows = Rows(count, columns, cells, no_aggregate, *asked)
        conditions = sources.conditions(query.lookups, cells)
        conditions += [self._evaluator.truths(gate, rows).true for gate in query.gates]
        return rows, self._problem.conjunction(filled(count, TRUE), *conditions)

    def _group(self, query: SplitQuery, rows: Rows, exists: Integers) -> _Scope:
        """The possible groups, each with its candidate rows.  Without GROUP BY there is always one group."""
        assert query.keys is not None
        rows, exists, _ = spread_over_values(self._evaluator, rows, exists, query.computed)
        if query.keys:
            numbers = [rows.fetched[slot].numbers for slot in query.keys]
            first, owners = group_numbers(*numbers)
            rank = np.argsort(np.argsort(first))  # in the order in which the rows bring them
            owners, count = rank[owners], len(first)
        else:
            owners, count = filled(rows.count, 0), 1
        grouped, groups = group_rows(self._evaluator, rows, exists, owners, count)
        literals = filled(count, TRUE)
        if query.bound.strict_groups:
            literals = self._problem.disjunction_of(Lists.grouped(owners, exists, count))
        if query.having is not None:
            truths = self._evaluator.truths(query.having, groups)
            literals = self._problem.conjunction(literals, truths.true)
        return _Scope(groups, literals, grouped)

    def _members(self, expression: MembershipQuery) -> Constants:
        tree = expression.tree
        return self._statements.ask(to_sql(tree), lambda: tree).columns[0]

    def _define_view(self, view: str, outputs: Sequence[tuple[str, Expression]], scope: _Scope) -> None:
        """Keep the symbolic columns here, and give the constant ones to the database as a table."""
        symbolic: dict[str, Column] = {}
        constants: list[tuple[str, SqlType]] = []
        cells: list[Constants] = []
        for name, expression in outputs:
            column = self._evaluator.column(expression, scope.rows)
            if isinstance(expression, Fetched) and isinstance(column, Constants):
                constants.append((name, expression.type))
                cells.append(column)
            else:
                symbolic[name.lower()] = column
        exists = scope.exists
        if cells and not symbolic:
            first, exists = self._once_each(cells, exists)
            cells = [take(column, first) for column in cells]
        self._store_view(view, constants, cells, symbolic, exists)

    def _once_each(self, cells: Sequence[Constants], exists: Integers) -> tuple[Integers, Integers]:
        """Rows that look alike, of which one at most exists, as one: a row of each, and under which literal it exists.

        They are cells of one choice: whatever joins with the rows joins with fewer.
        """
        every = np.arange(len(exists))
        choice = self._problem.choice_of(exists >> 1)
        if not len(exists) or bool((exists & 1).any()) or bool((choice < 0).any()):
            return every, exists
        if len(np.unique(exists)) < len(exists):
            return every, exists  # some exist together
        first, number = group_numbers(choice, *(column.numbers for column in cells))
        if _FEWER * len(first) > len(exists):
            return every, exists
        order = np.argsort(first)
        of_group = Lists.grouped(np.argsort(order)[number], exists >> 1, len(first))
        return first[order], self._problem.one_of_cells(of_group)

    def _store_view(
        self,
        name: str,
        constants: Sequence[tuple[str, SqlType]],
        cells: Sequence[Constants],
        symbolic: Mapping[str, Column],
        exists: Integers,
    ) -> None:
        self._statements.define_table(name, constants, cells, len(exists))
        self._relations[name.lower()] = RelationData(symbolic, exists, np.arange(len(exists)))

    # ---- UNION ALL ----------------------------------------------------------------------------------

    def _define_union(self, view: UnionView) -> None:
        """The rows of its parts one after the other, each existing as it does there."""
        parts = [self._part(part) for part in view.parts]
        constants: list[tuple[str, SqlType]] = []
        cells: list[Constants] = []
        symbolic: dict[str, Column] = {}
        for place, column in enumerate(view.columns):
            expression = Expression(column.type, view.position)
            together = self._evaluator.concatenate([columns[place] for columns, _ in parts], expression)
            if isinstance(together, Constants) and not column.symbolic:
                constants.append((column.name, column.type))
                cells.append(together)
            else:
                symbolic[column.name.lower()] = together
        exists = np.concatenate([exists for _, exists in parts])
        self._store_view(view.name, constants, cells, symbolic, exists)

    def _part(self, part: Relation) -> tuple[list[Column], Integers]:
        """The columns of one part, in order, and which of its rows exist."""
        names = [column.name for column in part.columns if not column.symbolic]
        wanted = ", ".join([*(["rowid"] if part.symbolic else []), *map(quote, names)])
        answer = self._statements.ask(f"SELECT {wanted} FROM {quote(part.name)}")
        if not part.symbolic:
            return list(answer.columns), filled(answer.count, TRUE)
        relation = self._relations[part.name.lower()]
        order = np.argsort(relation.places(answer.columns[0]), kind="stable")
        constants = {
            name: take(column, order) for name, column in zip(names, answer.columns[1:], strict=True)
        }
        columns = [
            relation.columns[column.name.lower()] if column.symbolic else constants[column.name]
            for column in part.columns
        ]
        return columns, relation.exists

    # ---- demands ------------------------------------------------------------------------------------

    def _demand(self, query: SplitQuery, demand: Expression, scope: _Scope) -> None:
        constants = {
            name: self._evaluator.column(expression, scope.rows)
            for name, expression in query.outputs
            if isinstance(expression, Fetched)
        }
        self._encoding.rows[query.name] = ConstantRows(
            {name: (column, _itself) for name, column in constants.items() if isinstance(column, Constants)},
            scope.rows.count,
        )
        with self._told(query, lambda: self._overflowing_row(query, demand, scope)):
            self._post(query, demand, scope)

    @contextmanager
    def _told(
        self, query: SplitQuery, overflowing: Callable[[], Mapping[str, Any] | None] = lambda: None
    ) -> Iterator[None]:
        """An error in it says in which constraint it is and, if numbers are too large, in which row."""
        try:
            yield
        except PolicyError as error:
            if isinstance(error, OverflowError) and error.row is None:
                error.row = overflowing()
            if error.position is None:
                assert query.bound.demand is not None
                told = "" if not isinstance(error, OverflowError) or not error.row else f", of {error.row}"
                error.message = f"{query.name}: {error.message}{told}"
                error.move(query.bound.demand.tail.position)
            raise

    def _post(self, query: SplitQuery, demand: Expression, scope: _Scope) -> None:
        assert query.bound.demand is not None
        if query.bound.demand.is_objective:
            numbers = self._evaluator.numbers(demand, scope.rows)
            present = self._problem.conjunction(scope.exists, numbers.nulls ^ 1)
            there = np.flatnonzero(numbers.index >= 0)
            linears = numbers.linears.take(numbers.index[there])
            self._add_objective(query, self._problem.gated(linears, present[there]))
        else:
            self._require(demand, scope, query.name)

    def _overflowing_row(
        self, query: SplitQuery, demand: Expression, scope: _Scope
    ) -> Mapping[str, Any] | None:
        """The first row that leaves 64 bits by itself; None where only all together do."""
        for row, constants in enumerate(self._encoding.rows[query.name]):
            where = np.array([row])
            try:
                self._post(query, demand, _Scope(rows_at(scope.rows, where), scope.exists[where], None))
            except OverflowError:
                return constants
        return None

    def _add_objective(self, query: SplitQuery, parts: Linears) -> None:
        demand = query.bound.demand
        assert demand is not None
        tail = demand.tail
        total = parts.summed(filled(len(parts), 0), 1)
        self._problem.ranges(total.scaled(tail.weight))  # refuses what leaves 64 bits
        self._problem.objectives.append(
            Objective(query.name, total.row(0), demand.maximize, tail.tier, tail.weight)
        )

    def _require(self, expression: Expression, scope: _Scope, name: str) -> None:
        """The condition is not false in any row that exists: TRUE and UNKNOWN pass, as in SQL."""
        problem, exists = self._problem, scope.exists
        everywhere = Source(name, np.arange(scope.rows.count))
        if isinstance(expression, Conjunction):
            for part in expression.operands:
                self._require(part, scope, name)
        elif isinstance(expression, Negation) and isinstance(expression.operand, _NEGATED):
            self._require(negated(expression.operand), scope, name)
        elif isinstance(expression, Negation) and self._require_none(expression.operand, scope, name):
            pass
        elif isinstance(expression, Comparison) and (pairs := self._pairs_of_choices(expression, scope)):
            self._require_values(*pairs, expression.operator, exists, everywhere)
        elif isinstance(expression, Comparison) and self._is_numeric(expression):
            self._require_comparison(expression, scope, name)
        elif isinstance(expression, Disjunction):
            parts = [self._evaluator.truths(part, scope.rows) for part in expression.operands]
            problem.require_any(
                Lists.side_by_side(exists ^ 1, *(part.false ^ 1 for part in parts)), everywhere
            )
        elif isinstance(expression, (MembershipQuery, Negation)) and self._forbid_values(
            expression, scope, name
        ):
            pass
        elif self._is_all_different(expression) and scope.grouped is not None:
            assert isinstance(expression, Aggregate)
            cells = scope.grouped.cells(expression)
            if cells is not None and (exists == TRUE).all():
                grid, rows, values = cells
                told = np.flatnonzero(rows.members.lengths > 1)
                problem.require_cells(
                    CellRows(grid, rows.take(told), values, False, name, told, filled(len(values), 0))
                )
                return
            by_value = scope.grouped.by_value(expression)
            source = Source(name, by_value.groups)
            problem.require_one(by_value.literals, source, when=exists[by_value.groups])
        else:
            truths = self._evaluator.truths(expression, scope.rows)
            problem.require_any(Lists.side_by_side(exists ^ 1, truths.false ^ 1), everywhere)

    def _forbid_values(self, expression: Expression, scope: _Scope, name: str) -> bool:
        """Demand that choices are among constants, or not: of each row the others do not hold.  Whether that is all."""
        wanted = isinstance(expression, MembershipQuery)
        membership = expression if wanted or not isinstance(expression, Negation) else expression.operand
        if not isinstance(membership, MembershipQuery) or (scope.exists != TRUE).any():
            return False
        column = self._evaluator.column(membership.operand, scope.rows)
        members = self._members(membership)
        if not isinstance(column, Choices) or not isinstance(column.options, GridOptions) or not len(members):
            return False
        inside = np.zeros(column.options.grid.values, np.bool_)
        places = column.options.places(self._evaluator.values.codes(members))
        inside[places[places >= 0]] = True
        rows = np.flatnonzero(column.index >= 0)
        values = np.flatnonzero(~inside if wanted else inside)
        if (wanted and members.null.any()) or not len(rows) or not len(values):
            return True  # among others that nobody knows
        self._problem.require_cells(
            CellRows(
                column.options.grid,
                Side.alone(column.index[rows]),
                Side.of(values, filled(len(values), 1), filled(len(values), 0), 1),
                True,
                name,
                rows,
                filled(1, 0),
            )
        )
        return True

    def _pairs_of_choices(self, expression: Comparison, scope: _Scope) -> tuple[Choices, Choices] | None:
        """The choices that are to be equal, or different, in each row; None for anything else."""
        if expression.null_safe or expression.operator not in {"=", "<>"}:
            return None
        left, right = (self._evaluator.column(side, scope.rows) for side in expression.children)
        return (left, right) if isinstance(left, Choices) and isinstance(right, Choices) else None

    def _require_values(
        self, left: Choices, right: Choices, operator: str, exists: Integers, source: Source
    ) -> None:
        """Value by value: a literal for "they are the same" or a sum of the values tells a solver less."""
        there = np.flatnonzero((left.index >= 0) & (right.index >= 0) & (exists != FALSE))
        if operator == "<>" and self._require_apart(left, right, exists, there, source):
            return
        entries = left.options.take(left.index[there])
        row = there[entries.codes.owners]
        others = right.options.literal(right.index[row], entries.codes.items)
        clauses = [exists[row] ^ 1, entries.literals ^ 1]
        clauses += [others ^ 1] if operator == "<>" else [others, right.options.null[right.index[row]]]
        self._problem.require_any(Lists.side_by_side(*clauses), source.take(row))

    def _require_none(self, expression: Expression, scope: _Scope, name: str) -> bool:
        """Demand that a subquery finds no row where two choices are the same; whether that is what is asked of it."""
        found = self._subqueries.pairs(expression, scope.rows)
        if found is None:
            return False
        owners, left, right = found
        self._require_values(left, right, "<>", scope.exists[owners], Source(name, owners))
        return True

    def _require_apart(
        self, left: Choices, right: Choices, exists: Integers, there: Integers, source: Source
    ) -> bool:
        """Of two choices among the same values at most one has each; whether that can be said."""
        options = left.options
        pairs = np.stack((left.index[there], right.index[there]), 1)
        alike = isinstance(options, GridOptions) and options is right.options
        if not alike or (exists[there] != TRUE).any() or (pairs[:, 0] == pairs[:, 1]).any():
            return False
        assert isinstance(options, GridOptions)
        count = len(pairs)
        rows = Side(Lists(np.arange(count + 1) * 2, np.sort(pairs, axis=1).ravel()), filled(2 * count, 1))
        values = Side.alone(np.arange(options.grid.values))
        self._problem.require_cells(
            CellRows(
                options.grid,
                rows,
                values,
                False,
                source.constraint,
                source.rows[there],
                filled(len(values), 0),
            )
        )
        return True

    def _is_numeric(self, expression: Comparison) -> bool:
        kinds = {expression.left.type, expression.right.type}
        return SqlType.INTEGER in kinds and not kinds & TEXTUAL and not expression.null_safe

    def _is_all_different(self, expression: Expression) -> bool:
        return isinstance(expression, Aggregate) and expression.function is AggregateFunction.ALL_DIFFERENT

    def _require_comparison(self, expression: Comparison, scope: _Scope, name: str) -> None:
        """A comparison of numbers as one linear row each, without a literal of its own."""
        problem, operator = self._problem, expression.operator
        left = self._evaluator.numbers(expression.left, scope.rows)
        right = self._evaluator.numbers(expression.right, scope.rows)
        when = problem.conjunction(scope.exists, left.nulls ^ 1, right.nulls ^ 1)
        rows = np.flatnonzero(when != FALSE)
        if not len(rows):
            return
        (one, other), number = self._evaluator.combined(_at(left, rows), _at(right, rows))
        rest = difference(one.linears, other.linears)
        source = Source(name, rows)
        if operator == "<>":
            differs = self._evaluator.holds(rest, "<>")[number]
            problem.require_any(Lists.side_by_side(when[rows] ^ 1, differs), source)
            return
        lower = {"=": 0, ">=": 0, ">": 1}.get(operator)
        upper = {"=": 0, "<=": 0, "<": -1}.get(operator)
        problem.require_range(rest.take(number), lower, upper, source, when=when[rows])


def _relation_of(query: SplitQuery, cell: Cell) -> str:
    """The relation that a cell is of."""
    alias = cell.source.lower()
    return next(source.relation.name for source in query.bound.sources if source.alias.lower() == alias)


def _itself(rows: Integers) -> Integers:
    return rows


def _at(numbers: Numbers, rows: Integers) -> Numbers:
    return Numbers(numbers.linears, numbers.null, numbers.index[rows])


@dataclass(frozen=True, slots=True, eq=False)
class _Scope:
    """Rows (or groups), the literal under which each exists, and the grouping they came from."""

    rows: Rows
    exists: Integers
    grouped: GroupedRows | None
