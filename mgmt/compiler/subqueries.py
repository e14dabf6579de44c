"""Encode subqueries in which the solver has a say: for every row around them, the rows they may have.

The database joins the variable-free part of the subquery with the constants it uses of the rows around it; the
solver's predicates decide which of the rows exist.  A subquery that uses nothing but constants of its surroundings is
encoded once for each combination of these.

What it is not: it binds nothing (see ``mgmt.language.expression_binding.subquery_binder``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mgmt.compiler.aggregates import group_rows
from mgmt.compiler.columns import Column, Constants, RelationData, Truth, Truths, take
from mgmt.compiler.evaluate import Evaluator, Rows
from mgmt.compiler.split import SplitSubquery
from mgmt.errors import UnsupportedConstructError
from mgmt.language.bound_queries.expressions import Comparison, Expression, MembershipQuery, SubqueryKind
from mgmt.optimization.problem import FALSE, TRUE
from mgmt.state.database import Snapshot
from mgmt.state.schema import SqlType, quote


class SubqueryEncoder:
    """Evaluates subqueries over one snapshot and problem."""

    def __init__(
        self,
        snapshot: Snapshot,
        evaluator: Evaluator,
        relations: Mapping[str, RelationData],
        members: Callable[[MembershipQuery], Sequence[Any]],
        before: Callable[[int], None],
    ) -> None:
        """``before`` is told of so many rows before they are looked at; it may raise."""
        self._snapshot = snapshot
        self._evaluator = evaluator
        self._problem = evaluator.problem
        self._relations = relations
        self._members = members
        self._before = before
        self._tables = 0

    def column(self, expression: Expression, outer: Rows) -> Column:
        """The value of a subquery in every row around it."""
        assert isinstance(expression, SplitSubquery)
        parameters = [self._evaluator.column(part, outer).cells for part in expression.parameters]
        keys = list(zip(*parameters, strict=True)) if parameters else [()] * outer.count
        numbers: dict[tuple[Any, ...], int] = {}
        places = [numbers.setdefault(key, len(numbers)) for key in keys]
        fetched: list[list[tuple[Any, ...]]] = [[] for _ in numbers]
        # Asked for no rows too, so that the database's complaints come when the model is built.
        for row in self._fetch(expression, list(numbers) or [(None,) * len(parameters)]):
            if numbers:
                fetched[row[0]].append(row)
        if expression.operands or expression.outer_cells:
            return self._evaluate(expression, outer, [fetched[place] for place in places])
        # Nothing but the parameters matters: once for each combination, in the row that has it first.
        first = {place: row for row, place in reversed(list(enumerate(places)))}
        where = [first[place] for place in range(len(numbers))]
        once = rows_at(outer, where)
        return take(self._evaluate(expression, once, fetched), places)

    def _fetch(self, expression: SplitSubquery, keys: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        self._tables += 1
        table = f"rows around subquery {self._tables}"
        parameters = expression.parameters
        columns = [(f"p{number}", parameter.type) for number, parameter in enumerate(parameters)]
        self._snapshot.define_table(table, columns, keys)
        return self._snapshot.rows(expression.sql(quote(table)))

    def _evaluate(
        self, expression: SplitSubquery, outer: Rows, fetched: Sequence[Sequence[tuple[Any, ...]]]
    ) -> Column:
        """``fetched`` are the rows that the subquery may have, per row around it."""
        self._before(sum(map(len, fetched)))
        owners = [place for place, rows in enumerate(fetched) for _ in rows]
        rows = self._inner_rows(expression, outer, owners, [row for some in fetched for row in some])
        exists = self._existence(expression, rows, [row for some in fetched for row in some])
        members: list[list[int]] = [[] for _ in range(outer.count)]
        for row, owner in enumerate(owners):
            members[owner].append(row)
        if expression.query.keys is not None:
            _, rows = group_rows(self._evaluator, rows, exists, members)
            exists = [TRUE] * outer.count
            owners = list(range(outer.count))
            members = [[place] for place in owners]
        if expression.kind is SubqueryKind.EXISTS:
            found = [self._problem.disjunction(exists[row] for row in some) for some in members]
            return Truths([Truth(literal, literal ^ 1) for literal in found])
        if expression.kind is SubqueryKind.VALUE:
            if not expression.single and any(
                sum(exists[row] != FALSE for row in some) > 1 for some in members
            ):
                raise UnsupportedConstructError(
                    "cannot be encoded: a subquery used as a value that may have several rows",
                    position=expression.position,
                    hint="aggregate it, as in (SELECT max(...) ...), or compare by the key of its table",
                )
            column = self._evaluator.column(expression.outputs[0], rows)
            return self._evaluator.choose(
                column, members, [[exists[row] for row in some] for some in members], expression
            )
        return Truths(self._quantify(expression, outer, rows, owners, members, exists))

    def _quantify(
        self,
        expression: SplitSubquery,
        outer: Rows,
        rows: Rows,
        owners: Sequence[int],
        members: Sequence[Sequence[int]],
        exists: Sequence[int],
    ) -> list[Truth]:
        """ANY and ALL, three-valued: a row that does not exist settles neither."""
        tests: list[list[Truth]] = []
        for operand, output in zip(expression.operands, expression.outputs, strict=True):
            comparison = Comparison(
                SqlType.BOOLEAN, expression.position, operand, output, expression.operator
            )
            left = take(self._evaluator.column(operand, outer), owners)
            right = self._evaluator.column(output, rows)
            tests.append(self._evaluator.compare_columns(left, right, comparison))
        truths = [self._evaluator.both(cells) for cells in zip(*tests, strict=True)]
        conjunction, disjunction = self._problem.conjunction, self._problem.disjunction
        found = []
        for some in members:
            holds = [(exists[row], truths[row]) for row in some]
            if expression.kind is SubqueryKind.ANY:
                found.append(
                    Truth(
                        disjunction(conjunction((there, cell.true)) for there, cell in holds),
                        conjunction(disjunction((there ^ 1, cell.false)) for there, cell in holds),
                    )
                )
            else:
                found.append(
                    Truth(
                        conjunction(disjunction((there ^ 1, cell.true)) for there, cell in holds),
                        disjunction(conjunction((there, cell.false)) for there, cell in holds),
                    )
                )
        return found

    def _inner_rows(
        self,
        expression: SplitSubquery,
        outer: Rows,
        owners: Sequence[int],
        fetched: Sequence[tuple[Any, ...]],
    ) -> Rows:
        width = 1 + len(expression.symbolic_sources)
        columns: list[Column] = [
            Constants([row[width + slot] for row in fetched]) for slot in range(expression.fetched)
        ]
        aliases = {source.alias.lower() for source in expression.query.sources}

        def cells(alias: str, name: str) -> Column:
            if alias.lower() not in aliases:
                return take(outer.cells(alias, name), owners)
            relation, places = self._places(expression, alias, fetched)
            return take(relation.columns[name.lower()], places)

        return Rows(len(fetched), columns, cells, _no_aggregate, self._members, self.column)

    def _places(
        self, expression: SplitSubquery, alias: str, fetched: Sequence[tuple[Any, ...]]
    ) -> tuple[RelationData, list[int]]:
        number = 1 + expression.symbolic_sources.index(alias)
        source = next(s for s in expression.query.sources if s.alias == alias)
        relation = self._relations[source.relation.name.lower()]
        return relation, [-1 if row[number] is None else relation.places[row[number]] for row in fetched]

    def _existence(
        self, expression: SplitSubquery, rows: Rows, fetched: Sequence[tuple[Any, ...]]
    ) -> list[int]:
        conditions: list[list[int]] = []
        for alias in expression.symbolic_sources:
            relation, places = self._places(expression, alias, fetched)
            conditions.append([TRUE if place < 0 else relation.exists[place] for place in places])
        conditions.extend(
            [cell.true for cell in self._evaluator.truths(gate, rows)] for gate in expression.gates
        )
        if not conditions:
            return [TRUE] * rows.count
        return [self._problem.conjunction(parts) for parts in zip(*conditions, strict=True)]


def rows_at(rows: Rows, where: Sequence[int]) -> Rows:
    """Some of the rows."""
    return replace(
        rows,
        count=len(where),
        fetched=[take(column, where) for column in rows.fetched],
        cells=lambda alias, name: take(rows.cells(alias, name), where),
        aggregates=lambda expression: take(rows.aggregates(expression), where),
    )


def _no_aggregate(expression: Expression) -> Column:
    raise AssertionError(f"an aggregate outside a group at {expression.position}")
