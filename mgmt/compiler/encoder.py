"""Encode: from one snapshot and the split queries to the solver-neutral model.

Queries are evaluated in order over the tables' variable cells (``mgmt.compiler.cells``); each constraint's rows are
demanded under their gates, each objective is summed.

What it is not: it decides nothing (see ``mgmt.optimization.backends``), and it does not talk SQL beyond fetching.
"""

from __future__ import annotations

import math
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mgmt.compiler.aggregates import GroupedRows, group_rows
from mgmt.compiler.cell_logic import value_clauses
from mgmt.compiler.cells import TableEncoder, VariableCell, check_size
from mgmt.compiler.columns import Choice, Column, Constants, RelationData, take
from mgmt.compiler.evaluate import Evaluator, Rows
from mgmt.compiler.pushed import pushed_sql
from mgmt.compiler.quantities import quantities_of
from mgmt.compiler.split import SplitQuery
from mgmt.compiler.subqueries import SubqueryEncoder, rows_at
from mgmt.compiler.unions import unite
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
)
from mgmt.language.bound_queries.queries import PushedView, UnionView
from mgmt.language.names.catalog import Catalog
from mgmt.language.pushdown.engine_errors import refusals_at
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.optimization.problem import FALSE, TRUE, Objective, Problem, Tag, add, scale
from mgmt.optimization.structure import tighten
from mgmt.state.database import Snapshot
from mgmt.state.schema import TEXTUAL, SqlType


@dataclass(frozen=True, slots=True)
class StepFigures:
    """What one query cost: rows fetched from the database, and seconds of wall time."""

    fetched_rows: int
    seconds: float


@dataclass(slots=True)
class Encoding:
    """A snapshot, encoded."""

    problem: Problem
    cells: list[VariableCell]
    # constraint -> row -> the constants of that row, for explanations
    rows: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    fetched_rows: int = 0
    steps: dict[str, StepFigures] = field(default_factory=dict)


_MANY_ROWS = 100_000
_SECONDS_A_ROW = 1e-6
"""A candidate takes more than that, whatever is asked of it."""


class Encoder:
    """Encodes one snapshot.  Leaves the snapshot with the views it defined."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._problem = Problem(watch=self._stop_what_grows)
        self._evaluator = Evaluator(self._problem)
        self._relations: dict[str, RelationData] = {}
        self._encoding = Encoding(self._problem, [])
        self._subqueries = SubqueryEncoder(
            snapshot, self._evaluator, self._relations, self._members, self._stop_before
        )

    def encode(
        self,
        program: Sequence[PushedView | SplitQuery],
        catalog: Catalog,
        columns: Container[tuple[str, str]] | None = None,
    ) -> Encoding:
        """Run the whole program: tables first, then each view and constraint in order.

        ``columns``: only these (table, variable column), in lower case, are decided; None: all of them.
        """
        numbers = quantities_of(program, catalog)
        tables = TableEncoder(self._snapshot, catalog, self._problem, columns, numbers)
        tables.encode()
        self._encoding.cells.extend(tables.cells)
        self._relations.update(tables.relations)
        for step in program:
            before, started = self._encoding.fetched_rows, time.perf_counter()
            with refusals_at(step.name, step.position):
                self._encode(step)
            fetched, spent = self._encoding.fetched_rows - before, time.perf_counter() - started
            self._encoding.steps[step.name] = StepFigures(fetched, spent)
        choices = [cell.cell for cell in self._encoding.cells if isinstance(cell.cell, Choice)]
        tighten(self._problem, [choice.literals for choice in choices])
        self._problem.watch = None
        return self._encoding

    def _stop_what_grows(self, rows: int = 0) -> None:
        """One statement may be more than the budget, or than can be solved; ``rows``: candidates still to come."""
        check_size(self._problem.cells, self._snapshot.memory)
        limit = self._snapshot.limit
        left = math.inf if limit is None else limit.deadline - time.monotonic()
        if limit is not None and left < rows * _SECONDS_A_ROW:
            what = "it is not" if left < 0 else f"its {rows} candidate rows would not be"
            raise SolveTimeout(
                f"{what} encoded after {limit.seconds:g} s, the budget of the solve",
                hint="compare fewer rows: join by keys, filter earlier, or group in a view; or raise the budget",
            )

    def _stop_before(self, rows: int) -> None:
        """So many candidates may be more than there is time for."""
        if rows >= _MANY_ROWS:
            self._stop_what_grows(rows)

    def _encode(self, step: PushedView | SplitQuery) -> None:
        if isinstance(step, UnionView):
            self._define_union(step)
        elif isinstance(step, PushedView):
            self._snapshot.define_view(step.name, pushed_sql(step))
        else:
            self._encode_query(step)

    # ---- queries ------------------------------------------------------------------------------------

    def _encode_query(self, query: SplitQuery) -> None:
        fetched = self._snapshot.rows(query.sql)
        self._stop_before(len(fetched))
        self._encoding.fetched_rows += len(fetched)
        check_size(self._problem.cells + len(fetched), self._snapshot.memory)  # each row is at least one
        rows, exists = self._candidates(query, fetched)
        if query.bound.demand is not None and not fetched:
            self._encoding.rows[query.name] = []
            if query.bound.demand.is_objective:
                self._add_objective(query, [])
            return
        if query.keys is None:
            kept = [row for row in range(rows.count) if exists[row] != FALSE]
            # In a view they stay: what groups its rows counts candidates that cannot exist, too.
            if len(kept) < rows.count and query.bound.demand is not None:
                rows, exists = self._restrict(query, fetched, kept, exists)
            scope = _Scope(rows, exists, None)
        else:
            scope = self._group(query, rows, exists, fetched)
        if query.bound.demand is None:
            self._define_view(query, scope)
        else:
            self._demand(query, scope)

    def _candidates(self, query: SplitQuery, fetched: Sequence[tuple[Any, ...]]) -> tuple[Rows, list[int]]:
        """The variable-free part's rows, and the literal under which each exists."""
        width = len(query.symbolic_sources)
        places: dict[str, list[int]] = {}
        relations: dict[str, RelationData] = {}
        for number, alias in enumerate(query.symbolic_sources):
            source = next(source for source in query.bound.sources if source.alias == alias)
            relation = self._relations[source.relation.name.lower()]
            relations[alias] = relation
            places[alias] = [-1 if row[number] is None else relation.places[row[number]] for row in fetched]
        columns: list[Column] = [
            Constants([row[width + slot] for row in fetched]) for slot in range(query.fetched)
        ]
        cache: dict[tuple[str, str], Column] = {}

        def cells(alias: str, name: str) -> Column:
            key = (alias, name.lower())
            if key not in cache:
                cache[key] = take(relations[alias].columns[name.lower()], places[alias])
            return cache[key]

        rows = Rows(len(fetched), columns, cells, _no_aggregate, self._members, self._subqueries.column)
        conditions: list[list[int]] = [
            [TRUE if place < 0 else relations[alias].exists[place] for place in places[alias]]
            for alias in query.symbolic_sources
        ]
        conditions.extend([cell.true for cell in self._evaluator.truths(gate, rows)] for gate in query.gates)
        if not conditions:
            return rows, [TRUE] * len(fetched)
        return rows, [self._problem.conjunction(parts) for parts in zip(*conditions, strict=True)]

    def _restrict(
        self, query: SplitQuery, fetched: Sequence[tuple[Any, ...]], kept: list[int], exists: list[int]
    ) -> tuple[Rows, list[int]]:
        rows, _ = self._candidates(query, [fetched[row] for row in kept])
        return rows, [exists[row] for row in kept]

    def _group(
        self, query: SplitQuery, rows: Rows, exists: list[int], fetched: Sequence[tuple[Any, ...]]
    ) -> _Scope:
        """The possible groups, each with its candidate rows.  Without GROUP BY there is always one group."""
        assert query.keys is not None
        offset = len(query.symbolic_sources)
        groups: dict[tuple[Any, ...], list[int]] = {}
        if not query.keys:
            groups[()] = []
        for row, values in enumerate(fetched):
            groups.setdefault(tuple(values[offset + slot] for slot in query.keys), []).append(row)
        members = list(groups.values())
        grouped, groups_as_rows = group_rows(self._evaluator, rows, exists, members)
        literals = [TRUE] * len(members)
        if query.bound.strict_groups:
            literals = [self._problem.disjunction(exists[row] for row in group) for group in members]
        if query.having is not None:
            truths = self._evaluator.truths(query.having, groups_as_rows)
            literals = [
                self._problem.conjunction((literal, truth.true))
                for literal, truth in zip(literals, truths, strict=True)
            ]
        return _Scope(groups_as_rows, literals, grouped)

    def _members(self, expression: MembershipQuery) -> list[Any]:
        return [row[0] for row in self._snapshot.rows(to_sql(expression.tree))]

    def _define_view(self, query: SplitQuery, scope: _Scope) -> None:
        """Keep the symbolic columns here, and give the constant ones to the database as a table."""
        symbolic: dict[str, Column] = {}
        constants: list[tuple[str, SqlType]] = []
        cells: list[Sequence[Any]] = []
        for name, expression in query.outputs:
            column = self._evaluator.column(expression, scope.rows)
            if isinstance(expression, Fetched) and isinstance(column, Constants):
                constants.append((name, expression.type))
                cells.append(column.cells)
            else:
                symbolic[name.lower()] = column
        rows = list(zip(*cells, strict=True)) if cells else [()] * scope.rows.count
        self._store_view(query.name, constants, rows, symbolic, scope.exists)

    def _define_union(self, view: UnionView) -> None:
        union = unite(view, self._snapshot, self._relations, self._evaluator)
        self._store_view(view.name, union.constants, union.rows, union.symbolic, union.exists)

    def _store_view(
        self,
        name: str,
        constants: Sequence[tuple[str, SqlType]],
        rows: Sequence[Sequence[Any]],
        symbolic: Mapping[str, Column],
        exists: Sequence[int],
    ) -> None:
        self._snapshot.define_table(name, constants, rows)
        places = {place: place for place in range(len(exists))}
        self._relations[name.lower()] = RelationData(symbolic, exists, places)

    # ---- demands ------------------------------------------------------------------------------------

    def _demand(self, query: SplitQuery, scope: _Scope) -> None:
        assert query.bound.demand is not None
        assert query.demand is not None
        names = [name for name, _ in query.outputs]
        columns = [self._evaluator.column(expression, scope.rows) for _, expression in query.outputs]
        self._encoding.rows[query.name] = [
            dict(zip(names, (column.cells[row] for column in columns), strict=True))
            for row in range(scope.rows.count)
        ]
        try:
            self._post(query, query.demand, scope)
        except PolicyError as error:
            if isinstance(error, OverflowError) and error.row is None:
                error.row = self._overflowing_row(query, query.demand, scope)
            if error.position is None:
                told = "" if not isinstance(error, OverflowError) or not error.row else f", of {error.row}"
                error.message = f"{query.name}: {error.message}{told}"
                error.move(query.bound.demand.tail.position)
            raise

    def _post(self, query: SplitQuery, demand: Expression, scope: _Scope) -> None:
        assert query.bound.demand is not None
        if query.bound.demand.is_objective:
            self._add_objective(query, self._objective_parts(demand, scope))
        else:
            self._require(demand, scope, query.name)

    def _overflowing_row(
        self, query: SplitQuery, demand: Expression, scope: _Scope
    ) -> Mapping[str, Any] | None:
        """The first row that leaves 64 bits by itself; None where only all together do."""
        for row, constants in enumerate(self._encoding.rows[query.name]):
            try:
                self._post(query, demand, _Scope(rows_at(scope.rows, [row]), [scope.exists[row]], None))
            except OverflowError:
                return constants
        return None

    def _objective_parts(self, expression: Expression, scope: _Scope) -> list[Any]:
        numbers = self._evaluator.numbers(expression, scope.rows)
        return [
            self._problem.gated(number.value, self._problem.conjunction((exists, number.null ^ 1)))
            for number, exists in zip(numbers, scope.exists, strict=True)
        ]

    def _add_objective(self, query: SplitQuery, parts: list[Any]) -> None:
        demand = query.bound.demand
        assert demand is not None
        tail = demand.tail
        total = add(*parts)
        self._problem.range_of(scale(total, tail.weight))  # refuses what leaves 64 bits
        self._problem.objectives.append(Objective(query.name, total, demand.maximize, tail.tier, tail.weight))

    def _require(self, expression: Expression, scope: _Scope, name: str) -> None:
        """The condition is not false in any row that exists: TRUE and UNKNOWN pass, as in SQL."""
        problem = self._problem
        if isinstance(expression, Conjunction):
            for part in expression.operands:
                self._require(part, scope, name)
        elif isinstance(expression, Comparison) and (pairs := self._pairs_of_choices(expression, scope)):
            # Value by value: a literal for "they are the same" or a sum of the values tells a solver less.
            for row, (one, other) in enumerate(pairs):
                for clause in value_clauses(one, other, expression.operator):
                    problem.require_any((scope.exists[row] ^ 1, *clause), Tag(name, row))
        elif isinstance(expression, Comparison) and self._is_numeric(expression):
            self._require_comparison(expression, scope, name)
        elif isinstance(expression, Disjunction):
            parts = [self._evaluator.truths(part, scope.rows) for part in expression.operands]
            for row, exists in enumerate(scope.exists):
                literals = [exists ^ 1, *(part[row].false ^ 1 for part in parts)]
                problem.require_any(literals, Tag(name, row))
        elif self._is_all_different(expression) and scope.grouped is not None:
            assert isinstance(expression, Aggregate)
            for row, values in enumerate(scope.grouped.values_of(expression)):
                for literals in values.values():
                    problem.require_at_most_one(literals, Tag(name, row), when=scope.exists[row])
        else:
            truths = self._evaluator.truths(expression, scope.rows)
            for row, (truth, exists) in enumerate(zip(truths, scope.exists, strict=True)):
                problem.require_any((exists ^ 1, truth.false ^ 1), Tag(name, row))

    def _pairs_of_choices(self, expression: Comparison, scope: _Scope) -> list[tuple[Choice, Choice]] | None:
        """The variables over domains that are to be equal, or different, in each row; None for anything else."""
        sides = [side for side in expression.children if isinstance(side, Cell)]
        if len(sides) < 2 or expression.null_safe or expression.operator not in {"=", "<>"}:
            return None
        columns = [self._evaluator.column(side, scope.rows).cells for side in sides]
        pairs = zip(*columns, strict=True)
        found = [(a, b) for a, b in pairs if isinstance(a, Choice) and isinstance(b, Choice)]
        return found if len(found) == scope.rows.count else None

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
        for row, exists in enumerate(scope.exists):
            one, other = left[row], right[row]
            when = problem.conjunction((exists, one.null ^ 1, other.null ^ 1))
            if when == FALSE:
                continue
            difference = add(one.value, scale(other.value, -1))
            tag = Tag(name, row)
            if operator == "<>":
                equal = problem.conjunction(
                    (problem.at_most(difference, 0), problem.at_most(difference, -1) ^ 1)
                )
                problem.require_any((when ^ 1, equal ^ 1), tag)
                continue
            lower = {"=": 0, ">=": 0, ">": 1}.get(operator)
            upper = {"=": 0, "<=": 0, "<": -1}.get(operator)
            problem.require_range(difference, lower, upper, tag, when=when)


@dataclass(frozen=True, slots=True)
class _Scope:
    """Rows (or groups), the literal under which each exists, and the grouping they came from."""

    rows: Rows
    exists: Sequence[int]
    grouped: GroupedRows | None


def _no_aggregate(expression: Aggregate) -> Column:
    raise AssertionError(f"an aggregate outside a group at {expression.position}")
