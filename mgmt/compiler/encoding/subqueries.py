"""Encode subqueries in which the solver has a say: for every row around them, the rows they may have.

The database joins the variable-free part of the subquery with the constants it uses of the rows around it; the
solver's predicates decide which of the rows exist.  A subquery that uses nothing but constants of its surroundings is
encoded once for each combination of these.

What it is not: it binds nothing (see ``mgmt.language.expression_binding.subquery_binder``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mgmt.compiler.encoding.aggregates import group_rows, rows_at, spread_over_values
from mgmt.compiler.encoding.answers import Statements
from mgmt.compiler.encoding.columns import Choices, Column, Constants, Truths, take
from mgmt.compiler.encoding.evaluate import Evaluator, Rows, known
from mgmt.compiler.encoding.products import Separator
from mgmt.compiler.encoding.sources import Sources, no_aggregate, no_cell
from mgmt.compiler.relational.apart import Apart
from mgmt.compiler.relational.split import AROUND, SplitSubquery
from mgmt.errors import UnsupportedConstructError
from mgmt.language.bound_queries.expressions import (
    Cell,
    Comparison,
    Expression,
    MembershipQuery,
    SubqueryKind,
)
from mgmt.optimization.columns import FALSE, TRUE, Integers, Lists, filled, group_numbers
from mgmt.state.schema import SqlType, quote


@dataclass(frozen=True, slots=True, eq=False)
class _Fetched:
    """The rows that a subquery may have: whose they are, and columns of the database's."""

    owners: Integers
    columns: Sequence[Constants]


class SubqueryEncoder:
    """Evaluates subqueries over one problem."""

    def __init__(
        self,
        statements: Statements,
        evaluator: Evaluator,
        sources: Sources,
        separator: Separator,
        members: Callable[[MembershipQuery], Constants],
        before: Callable[[int], None],
    ) -> None:
        """``before`` is told of so many rows before they are looked at; it may raise."""
        self._statements = statements
        self._evaluator = evaluator
        self._problem = evaluator.problem
        self._sources = sources
        self._separator = separator
        self._members = members
        self._before = before

    def column(self, expression: Expression, outer: Rows) -> Column:
        """The value of a subquery in every row around it."""
        assert isinstance(expression, SplitSubquery)
        first, number, keys = self._combinations(expression, outer)
        if expression.apart is not None and outer.count:
            found = self._sums(expression, expression.apart, keys, len(first), outer)
            if found is not None:
                return take(found, number)
        fetched = self._fetch(expression, keys, max(1, len(first)))
        if not outer.count:
            fetched = _Fetched(filled(0, 0), [take(column, filled(0, 0)) for column in fetched.columns])
        if not expression.operands and not expression.outer_cells:
            # Nothing but the parameters matters: once for each combination, in the row that has it first.
            return take(self._evaluate(expression, rows_at(outer, first), fetched), number)
        return self._evaluate(expression, outer, self._spread(fetched, number, len(first)))

    def pairs(self, expression: Expression, outer: Rows) -> tuple[Integers, Choices, Choices] | None:
        """Where EXISTS or IN asks whether two choices are the same in any row: whose each is, and its choices."""
        if not isinstance(expression, SplitSubquery) or expression.query.keys is not None:
            return None
        gate = _same_choice(expression)
        if gate is None or expression.lookups or not outer.count:
            return None
        first, number, keys = self._combinations(expression, outer)
        fetched = self._spread(self._fetch(expression, keys, len(first)), number, len(first))
        rows, exists = self._inner_rows(replace(expression, gates=()), outer, fetched)
        left, right = (self._evaluator.column(side, rows) for side in gate)
        if not isinstance(left, Choices) or not isinstance(right, Choices) or (exists != TRUE).any():
            return None
        return fetched.owners, left, right

    def _combinations(
        self, expression: SplitSubquery, outer: Rows
    ) -> tuple[Integers, Integers, list[Constants]]:
        """The different parameters of the rows around: where each is first, each row's, and their columns.

        Asked for no rows too, so that the database's complaints come when the model is built.
        """
        parameters = [self._constants(part, outer) for part in expression.parameters]
        numbers = [parameter.numbers for parameter in parameters]
        first, number = group_numbers(*numbers, filled(outer.count, 0))
        keys: list[Constants] = []
        for parameter in parameters:
            key = take(parameter, first) if outer.count else Constants.repeated(None, 1)
            assert isinstance(key, Constants)
            keys.append(key)
        return first, number, keys

    def _spread(self, fetched: _Fetched, number: Integers, count: int) -> _Fetched:
        """What is found for each combination of parameters, for each row around that has these."""
        by_key = Lists.grouped(fetched.owners, np.arange(len(fetched.owners)), count)
        self._before(int(by_key.lengths[number].sum()))
        places, starts = by_key.places(number)
        rows = by_key.items[places]
        owners = np.repeat(np.arange(len(number)), np.diff(starts))
        return _Fetched(owners, [take(column, rows) for column in fetched.columns])

    def _sums(
        self, expression: SplitSubquery, apart: Apart, keys: list[Constants], count: int, outer: Rows
    ) -> Column | None:
        """What is summed over rows and the values that they choose, for each combination of parameters."""
        around = f"{quote(self._around(expression, keys, count))} AS {quote(AROUND)}"
        alias = apart.choice.source.lower()
        relation = next(s.relation.name for s in expression.query.sources if s.alias.lower() == alias)
        product = self._separator.fetch(apart, relation, around)
        if product is None:
            return None
        template = replace(rows_at(outer, filled(0, 0)), cells=no_cell)
        groups = product.grouped((), around=count)
        rows = product.rows_of(groups, expression.fetched, template)
        column = self._evaluator.column(apart.outputs[0], rows)
        if expression.kind is SubqueryKind.EXISTS:
            return known(self._evaluator.as_truths(column, expression).true)
        return self._evaluator.choose(column, np.arange(count), filled(count, TRUE), count, expression)

    def _constants(self, expression: Expression, outer: Rows) -> Constants:
        column = self._evaluator.column(expression, outer)
        assert isinstance(column, Constants)
        return column

    def _fetch(self, expression: SplitSubquery, keys: list[Constants], count: int) -> _Fetched:
        table = self._around(expression, keys, count)
        owners, *columns = self._statements.ask(expression.sql(quote(table))).columns
        return _Fetched(owners.cells, columns)

    def _around(self, expression: SplitSubquery, keys: list[Constants], count: int) -> str:
        """A table of the constants that it uses of the rows around it."""
        columns = [(f"p{number}", parameter.type) for number, parameter in enumerate(expression.parameters)]
        return self._statements.new_table("rows around subquery", columns, keys, count)

    def _evaluate(self, expression: SplitSubquery, outer: Rows, fetched: _Fetched) -> Column:
        owners, count = fetched.owners, outer.count
        self._before(len(owners))
        rows, exists = self._inner_rows(expression, outer, fetched)
        if expression.keys is not None:
            rows, exists, owners = self._grouped(expression, rows, exists, owners, count)
        if expression.kind is SubqueryKind.EXISTS:
            return known(self._problem.disjunction_of(Lists.grouped(owners, exists, count)))
        if expression.kind is SubqueryKind.VALUE:
            several = np.bincount(owners[exists != FALSE], minlength=count) > 1
            if not expression.single and several.any():
                raise UnsupportedConstructError(
                    "cannot be encoded: a subquery used as a value that may have several rows",
                    position=expression.position,
                    hint="aggregate it, as in (SELECT max(...) ...), or compare by the key of its table",
                )
            column = self._evaluator.column(expression.outputs[0], rows)
            return self._evaluator.choose(column, owners, exists, count, expression)
        return self._quantify(expression, outer, rows, owners, exists)

    def _grouped(
        self, expression: SplitSubquery, rows: Rows, exists: Integers, owners: Integers, count: int
    ) -> tuple[Rows, Integers, Integers]:
        """The groups with rows as rows, or the one of all rows, which is always there; and whose they are."""
        rows, exists, of = spread_over_values(self._evaluator, rows, exists, expression.computed)
        owners = owners[of]
        whose, group = np.arange(count), owners
        if expression.keys:
            numbers = [rows.fetched[slot].numbers for slot in expression.keys]
            first, group = group_numbers(owners, *numbers)
            whose = owners[first]
        _, groups = group_rows(self._evaluator, rows, exists, group, len(whose))
        there = filled(len(whose), TRUE)
        if expression.keys:
            there = self._problem.disjunction_of(Lists.grouped(group, exists, len(whose)))
        if expression.having is not None:
            there = self._problem.conjunction(there, self._evaluator.truths(expression.having, groups).true)
        return groups, there, whose

    def _quantify(
        self, expression: SplitSubquery, outer: Rows, rows: Rows, owners: Integers, exists: Integers
    ) -> Truths:
        """ANY and ALL, three-valued: a row that does not exist settles neither."""
        tests: list[Truths] = []
        for operand, output in zip(expression.operands, expression.outputs, strict=True):
            comparison = Comparison(
                SqlType.BOOLEAN, expression.position, operand, output, expression.operator
            )
            left = take(self._evaluator.column(operand, outer), owners)
            tests.append(self._evaluator.compare(left, self._evaluator.column(output, rows), comparison))
        truths = self._evaluator.both(tests)
        is_any = expression.kind is SubqueryKind.ANY
        settling, other = (truths.true, truths.false) if is_any else (truths.false, truths.true)

        def grouped(literals: Integers) -> Lists:
            return Lists.grouped(owners, literals, outer.count)

        settled = self._problem.disjunction_of(grouped(self._problem.conjunction(exists, settling)))
        every = self._problem.conjunction_of(grouped(self._problem.disjunction(exists ^ 1, other)))
        return Truths(settled, every) if is_any else Truths(every, settled)

    def _inner_rows(self, expression: SplitSubquery, outer: Rows, fetched: _Fetched) -> tuple[Rows, Integers]:
        """The rows that the subquery may have, and the literal under which each exists."""
        width = len(expression.symbolic_sources)
        columns = fetched.columns[width : width + expression.fetched]
        sources = self._sources.joined(expression.query.sources, expression.symbolic_sources, fetched.columns)

        def cells(alias: str, name: str) -> Column:
            found = sources.cells(alias, name, expression.lookups, cells)
            return take(outer.cells(alias, name), fetched.owners) if found is None else found

        asked = self._members, self.column, outer.functions
        rows = Rows(len(fetched.owners), columns, cells, no_aggregate, *asked)
        conditions = sources.conditions(expression.lookups, cells)
        conditions += [self._evaluator.truths(gate, rows).true for gate in expression.gates]
        return rows, self._problem.conjunction(filled(rows.count, TRUE), *conditions)


def _same_choice(expression: SplitSubquery) -> tuple[Cell, Cell] | None:
    """The cells that are to be the same in a row that is looked for, where that is all."""
    sides: tuple[Expression, ...] = ()
    if expression.kind is SubqueryKind.EXISTS and len(expression.gates) == 1:
        (gate,) = expression.gates
        if isinstance(gate, Comparison) and gate.operator == "=" and not gate.null_safe:
            sides = gate.children
    elif expression.kind is SubqueryKind.ANY and expression.operator == "=" and not expression.gates:
        sides = (*expression.operands, *expression.outputs)
    if len(sides) != 2:
        return None
    one, other = sides
    return (one, other) if isinstance(one, Cell) and isinstance(other, Cell) else None
