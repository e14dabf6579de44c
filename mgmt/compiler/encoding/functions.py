"""Functions of what the solver decides: the database computes them at each value, a literal says when it is that one.

A function of several choices is computed at each combination of their values.

What it is not: arithmetic of numbers and comparisons, which the solver does itself (see ``evaluate``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mgmt.compiler.encoding.answers import Statements
from mgmt.compiler.encoding.columns import Choices, Column, Constants, Truths, objects, take
from mgmt.compiler.encoding.evaluate import Evaluator, Rows, take_truths
from mgmt.language.bound_queries.expressions import VALUES_OF, Computed
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.optimization.columns import FALSE, TRUE, Integers, Lists, filled, group_numbers
from mgmt.state.schema import SqlType, quote


class FunctionEncoder:
    """Computes functions over one problem; ``before`` is told of so many cells, and may raise."""

    def __init__(self, statements: Statements, evaluator: Evaluator, before: Callable[[int], None]) -> None:
        self._statements, self._evaluator, self._before = statements, evaluator, before
        self._problem = evaluator.problem

    def column(self, expression: Computed, rows: Rows) -> Column:
        """What a function of its operands is in every row."""
        evaluator = self._evaluator
        choices = [evaluator.as_choices(evaluator.column(one, rows), one) for one in expression.operands]
        first, number = group_numbers(*(each.index for each in choices), filled(rows.count, 0))
        owners, literals, codes = np.arange(len(first)), filled(len(first), TRUE), list[Integers]()
        for each in choices:
            options = each.options.with_null()
            index = each.index[first][owners]
            entries = options.take(np.where(index < 0, len(options) - 1, index))
            self._before(len(entries.literals))
            place = entries.codes.owners
            literals = self._problem.conjunction(literals[place], entries.literals)
            owners, codes = owners[place], [*(one[place] for one in codes), entries.codes.items]
        possible = np.flatnonzero(literals != FALSE)
        owners, literals = owners[possible], literals[possible]
        found = self._computed(expression, [one[possible] for one in codes])
        if expression.type is SqlType.BOOLEAN:
            return take_truths(self._truths(found, owners, literals, len(first)), number)
        values = evaluator.values.codes(found)
        known = np.flatnonzero(values >= 0)
        options = evaluator.options_of(owners[known], values[known], literals[known], len(first))
        return Choices(options, number)

    def _truths(self, found: Constants, owners: Integers, literals: Integers, count: int) -> Truths:
        holds = found.cells.astype(np.bool_)
        sides = []
        for wanted in (holds & ~found.null, ~holds & ~found.null):
            kept = np.flatnonzero(wanted)
            sides.append(self._problem.one_of(Lists.grouped(owners[kept], literals[kept], count)))
        if not found.null.any():
            sides[1] = sides[0] ^ 1
        return Truths(*sides)

    def _computed(self, expression: Computed, codes: list[Integers]) -> Constants:
        """The function at these values, each combination of them computed once."""
        first, number = group_numbers(*codes)
        cells = [self._evaluator.values.of(each[first]).values for each in codes]
        pairs = zip(expression.operands, cells, strict=True)
        columns = [objects(_of_type(values, one.type)) for one, values in pairs]
        types = [(f"p{place}", one.type) for place, one in enumerate(expression.operands)]
        table = self._statements.new_table("values of function", types, columns, len(first))
        alias = quote(VALUES_OF)
        sql = f"SELECT {to_sql(expression.tree)} FROM {quote(table)} AS {alias} ORDER BY {alias}.rowid"
        made = take(self._statements.ask(sql).columns[0], number)
        assert isinstance(made, Constants)
        return made


def _of_type(values: list[object], kind: SqlType) -> list[object]:
    if kind is SqlType.BOOLEAN:
        return [None if value is None else bool(value) for value in values]
    return values
