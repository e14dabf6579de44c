"""Bind aggregates: SQL's, and those of the policy language (any, all, all_different, all_equal, increasing).

What it is not: which rows a group has is for ``mgmt.compiler.aggregates``.
"""

from __future__ import annotations

from sqlglot import exp

from mgmt.errors import TypeMismatchError, UnknownFunctionError
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    AggregateFunction,
    DatabasePart,
    Expression,
    has_aggregate,
)
from mgmt.language.expression_binding.subquery_binder import SubqueryRules
from mgmt.language.expression_binding.type_rules import NUMERIC, as_number
from mgmt.language.pushdown import aggregates as database_aggregates
from mgmt.state.schema import TEXTUAL, SqlType

AGGREGATES: dict[type[exp.Expr], AggregateFunction] = {
    exp.Count: AggregateFunction.COUNT,
    exp.Sum: AggregateFunction.SUM,
    exp.Min: AggregateFunction.MINIMUM,
    exp.Max: AggregateFunction.MAXIMUM,
}
# Those that SQL does not have; all of them give a condition.
OURS = {
    "any": AggregateFunction.ANY,
    "all": AggregateFunction.ALL,
    "all_different": AggregateFunction.ALL_DIFFERENT,
    "all_equal": AggregateFunction.ALL_EQUAL,
    "increasing": AggregateFunction.INCREASING,
}


class AggregateRules(SubqueryRules):
    """Binds the aggregates of one SELECT."""

    def aggregate(self, node: exp.Expr, condition: Expression | None = None) -> Expression:
        """One of SQL's aggregates; ``condition`` is its FILTER."""
        function = AGGREGATES[type(node)]
        position = self.position(node)
        argument = node.this
        if isinstance(node, (exp.Min, exp.Max)) and node.expressions:
            raise UnknownFunctionError(
                "max and min take one argument", position=position, hint="use greatest or least"
            )
        if argument is None or isinstance(argument, exp.Star):
            return Aggregate(SqlType.INTEGER, position, function, None, condition)
        if isinstance(argument, exp.Distinct) and self.of_database and function is AggregateFunction.SUM:
            self.left_to_database.append(node)
            argument = argument.expressions[0]
        if isinstance(argument, exp.Distinct):
            if function is not AggregateFunction.COUNT or len(argument.expressions) != 1:
                raise self.unsupported(
                    node, "DISTINCT is only understood in count(DISTINCT column)", "define a view"
                )
            function, argument = AggregateFunction.COUNT_DISTINCT, argument.expressions[0]
        operand = self._operand(node, argument)
        kind = SqlType.INTEGER
        if function in {AggregateFunction.MINIMUM, AggregateFunction.MAXIMUM, AggregateFunction.SUM}:
            if function is not AggregateFunction.SUM and operand.type in TEXTUAL and self.of_database:
                kind = operand.type
                self.left_to_database.append(node)
            else:
                self._require_number(function, operand)
                if operand.type is SqlType.BOOLEAN:
                    as_number(argument)
                kind = SqlType.REAL if operand.type is SqlType.REAL else SqlType.INTEGER
        return Aggregate(kind, position, function, operand, condition)

    def our_aggregate(self, node: exp.Anonymous, condition: Expression | None = None) -> Expression:
        """One of the language's own aggregates."""
        name = str(node.this).lower()
        function = OURS[name]
        position = self.position(node)
        if len(node.expressions) != 1:
            raise TypeMismatchError(
                f"{name} takes one operand",
                position=position,
                hint="join conditions with AND; or use one call for each",
            )
        argument = node.expressions[0]
        order: tuple[Expression, ...] = ()
        descending: tuple[bool, ...] = ()
        if function is AggregateFunction.INCREASING:
            argument, order, descending = self._ordered(node, argument)
        operand = self._operand(node, argument)
        if function in {AggregateFunction.ANY, AggregateFunction.ALL}:
            self.require_truth(operand)
        if function is AggregateFunction.INCREASING:
            self._require_number(function, operand)
        return Aggregate(SqlType.BOOLEAN, position, function, operand, condition, order, descending)

    def filtered(self, node: exp.Expr) -> Expression:
        """An aggregate with FILTER (WHERE ...)."""
        ours = isinstance(node.this, exp.Anonymous) and str(node.this.this).lower() in OURS
        if self.of_database and database_aggregates.is_one(node):
            return self.bind_for_database_alone(node)
        if type(node.this) not in AGGREGATES and not ours:
            raise self.unsupported(node, "FILTER on this function", "filter an aggregate")
        condition = self.bind(node.expression.this)
        self.require_truth(condition)
        if has_aggregate(condition):
            raise self.unsupported(node, "an aggregate in FILTER", "compute it in a CREATE VIEW of its own")
        return self.our_aggregate(node.this, condition) if ours else self.aggregate(node.this, condition)

    def _operand(self, node: exp.Expr, argument: exp.Expr) -> Expression:
        operand = self.bind(argument)
        if has_aggregate(operand):
            raise self.unsupported(
                node, "an aggregate of an aggregate", "compute the inner one in a CREATE VIEW of its own"
            )
        return operand

    def _require_number(self, function: AggregateFunction, operand: Expression) -> None:
        if operand.type not in NUMERIC:
            raise TypeMismatchError(
                f"{function} takes numbers, found {operand.type}",
                position=operand.position,
                hint="count the rows, or give a number: a column of one, or CASE WHEN ... THEN 1 ELSE 0 END",
            )

    def _ordered(
        self, node: exp.Anonymous, argument: exp.Expr
    ) -> tuple[exp.Expr, tuple[Expression, ...], tuple[bool, ...]]:
        """The operand and what orders the rows: ORDER BY, or else the key of the only table."""
        if not isinstance(argument, exp.Order):
            sources = list(self.scopes[0].values())
            if len(sources) != 1 or not sources[0].relation.key:
                raise self.unsupported(
                    node,
                    "increasing over rows in no order",
                    "say which: increasing(x ORDER BY y)",
                )
            keys = [
                exp.Ordered(this=exp.column(name, table=sources[0].alias, quoted=True))
                for name in sources[0].relation.key
            ]
            argument = exp.Order(this=argument.copy(), expressions=keys)
            node.set("expressions", [argument])
        order: list[Expression] = []
        for part in argument.expressions:
            bound = self.bind(part.this)
            if not isinstance(bound, DatabasePart):
                raise self.unsupported(part, "an order that the solver decides", "order by constant columns")
            order.append(bound)
        descending = tuple(bool(part.args.get("desc")) for part in argument.expressions)
        return argument.this, tuple(order), descending
