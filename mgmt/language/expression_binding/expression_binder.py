"""Binds the expressions of a SELECT: names to columns, operators and aggregates to typed nodes.

An expression free of variables and aggregates is bound only as far as needed to resolve its columns; the
database computes it.  What contains a variable becomes nodes of ``mgmt.language.bound_queries.expressions``; what
cannot be encoded is an UnsupportedConstructError, never dropped.  Types are SQL's, as far as the solver must know them;
UNKNOWN goes with everything, for the database will say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from sqlglot import exp

from mgmt.errors import (
    DataError,
    OverflowError,  # noqa: A004 - the published name
    StatementTimeoutError,
    TypeMismatchError,
    UnknownFunctionError,
    UnsupportedConstructError,
)
from mgmt.language.bound_queries.expressions import (
    VALUES_OF,
    Aggregate,
    AggregateFunction,
    Arithmetic,
    Case,
    Cell,
    Coalesce,
    Comparison,
    Computed,
    Conjunction,
    DatabasePart,
    Disjunction,
    Expression,
    Extreme,
    MembershipQuery,
    Negation,
    NullTest,
    SubqueryKind,
    has_aggregate,
    has_variable,
    signature,
)
from mgmt.language.expression_binding.name_resolution import Resolver, spelled
from mgmt.language.expression_binding.subquery_binder import SubqueryBinder
from mgmt.language.expression_binding.whole_numbers import compared
from mgmt.language.names.scopes import candidates
from mgmt.language.pushdown.aggregates import is_database_aggregate, is_ours
from mgmt.language.pushdown.column_types import RefusedStatementError
from mgmt.language.pushdown.engine_errors import error_of
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.state.schema import TEMPORAL, TEXTUAL, SqlType

NUMERIC = {SqlType.INTEGER, SqlType.BOOLEAN, SqlType.REAL, SqlType.UNKNOWN}


def go_together(types: Iterable[SqlType]) -> bool:
    """Whether values of these types can stand side by side: numbers with numbers, texts with texts and dates."""
    known = set(types) - {SqlType.UNKNOWN}
    return not known & TEXTUAL or known <= TEXTUAL


def as_number(node: exp.Expr) -> None:
    """Put 0 or 1 in the place of a condition: DuckDB does not compute with TRUE and FALSE, the solver does."""
    inner = node.copy()
    inner.meta.update(node.meta)
    kind = exp.DataType.build("BIGINT", dialect="duckdb")
    node.replace(exp.Cast(this=exp.Paren(this=inner), to=kind))


AGGREGATES: dict[type[exp.Expr], AggregateFunction] = {
    exp.Count: AggregateFunction.COUNT,
    exp.Sum: AggregateFunction.SUM,
    exp.Min: AggregateFunction.MINIMUM,
    exp.Max: AggregateFunction.MAXIMUM,
}
COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "=",
    exp.NullSafeNEQ: "<>",
}
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "/",
    exp.Mod: "%",
}


_PLAIN = (
    *(exp.Paren, exp.Alias, exp.Column, exp.Literal, exp.Boolean, exp.Null, exp.Anonymous),
    *(exp.And, exp.Or, exp.Not),
)
_TEMPORAL = {exp.DType.DATE, exp.DType.TIMESTAMP}
_WHOLE = {exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT}


class ExpressionBinder(Resolver):
    """Binds the expressions of one SELECT.  ``outer`` are the scopes of the SELECTs around it, inner first."""

    @cached_property
    def subqueries(self) -> SubqueryBinder:
        """What binds the subqueries in them."""
        return SubqueryBinder(self)

    def bind(self, node: exp.Expr) -> Expression:
        """The typed expression of a tree; columns in the tree are qualified in place."""
        handler = self._handler(node)
        if handler is None:
            return self.bind_for_database_alone(node)
        if not _is_plain(node) and self._is_free(node):
            try:
                return self.bind_for_database_alone(node)
            except TypeMismatchError:
                if type(node) not in _ARITHMETIC:  # conditions are numbers here
                    raise
        try:
            bound = handler(node)
        except UnsupportedConstructError:
            found = self._computed(node)  # not the solver's, but perhaps the engine's
            if found is None:
                raise
            return found
        if isinstance(bound, DatabasePart) or has_variable(bound) or has_aggregate(bound):
            return bound
        return DatabasePart(bound.type, bound.position, node)  # nothing for the solver: keep the SQL

    def _is_free(self, node: exp.Expr) -> bool:
        """Whether the engine alone computes it: it has no variable, no aggregate and no subquery."""
        if id(node) not in self._free:
            for part in reversed(list(node.walk())):
                below = all(self._free[id(child)][1] for child in part.iter_expressions())
                self._free[id(part)] = (part, below and not self._is_for_solver(part))
        return self._free[id(node)][1]

    def _is_for_solver(self, node: exp.Expr) -> bool:
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            found = (candidates(scope, node.name, node.table) for scope in self.scopes)
            nearest = next((columns for columns in found if columns), [])
            return any(column.symbolic for _, column in nearest)
        return is_ours(node) or isinstance(
            node, (exp.AggFunc, exp.Filter, exp.Query, exp.Exists, exp.Star, exp.Window)
        )

    # ---- nodes --------------------------------------------------------------------------------------

    def _handler(self, node: exp.Expr) -> Callable[[exp.Expr], Expression] | None:
        for kinds, handler in self._handlers():
            if isinstance(node, kinds):
                return handler
        return None

    def _handlers(self) -> Sequence[tuple[tuple[type[exp.Expr], ...], Callable[[exp.Expr], Expression]]]:
        return (
            ((exp.Paren, exp.Alias), lambda node: self.bind(node.this)),
            ((exp.Column,), self.column),
            ((exp.Literal, exp.Boolean, exp.Null), self._literal),
            (tuple(COMPARISONS), self._comparison),
            ((exp.And, exp.Or), self._logical),
            ((exp.Not,), self._negation),
            (tuple(_ARITHMETIC), self._arithmetic),
            ((exp.Neg,), self._minus),
            ((exp.Between,), self._between),
            ((exp.In,), self._membership),
            ((exp.Is,), self._is),
            ((exp.Case,), self._case),
            ((exp.If,), self._if),
            ((exp.Coalesce,), self._coalesce),
            ((exp.Nullif,), self._nullif),
            ((exp.Greatest, exp.Least), self._extreme),
            ((exp.Abs,), self._absolute),
            ((exp.Cast,), self._cast),
            (tuple(AGGREGATES), self._aggregate),
            ((exp.Filter,), self._filtered),
            ((exp.Anonymous,), self._function),
            ((exp.Subquery,), lambda node: self.subqueries.bind(node, node.this, SubqueryKind.VALUE)),
            ((exp.Exists,), lambda node: self.subqueries.bind(node, node.this, SubqueryKind.EXISTS)),
        )

    def _literal(self, node: exp.Expr) -> Expression:
        if isinstance(node, exp.Boolean):
            kind = SqlType.BOOLEAN
        elif isinstance(node, exp.Literal):
            number = SqlType.INTEGER if node.this.isdecimal() else SqlType.REAL
            kind = SqlType.TEXT if node.is_string else number
        else:
            kind = SqlType.UNKNOWN
        return DatabasePart(kind, self.position(node), node)

    def _comparison(self, node: exp.Expr) -> Expression:
        operator = COMPARISONS[type(node)]
        null_safe = isinstance(node, (exp.NullSafeEQ, exp.NullSafeNEQ))
        if isinstance(node.expression, (exp.Any, exp.All)):
            kind = SubqueryKind.ANY if isinstance(node.expression, exp.Any) else SubqueryKind.ALL
            return self.subqueries.bind(node, node.expression.this, kind, operator, self._operands(node.this))
        if isinstance(node.this, exp.Tuple) and isinstance(node.expression, exp.Tuple):
            return self._compare_tuples(node, node.this, node.expression, operator, null_safe)
        left, right = self.bind(node.this), self.bind(node.expression)
        self.check_comparable(left, right, operator, node)
        if {left.type, right.type} == {SqlType.BOOLEAN, SqlType.INTEGER}:
            as_number(node.this if left.type is SqlType.BOOLEAN else node.expression)
        if _needs_the_engine((left, right), operator):
            return self._computed(node) or self.bind_for_database_alone(node)
        return compared(self.position(node), left, right, operator, null_safe)

    def _operands(self, node: exp.Expr) -> list[Expression]:
        """The columns of a row tuple, or the one value."""
        return [self.bind(part) for part in (node.expressions if isinstance(node, exp.Tuple) else [node])]

    def _compare_tuples(
        self, node: exp.Expr, left: exp.Tuple, right: exp.Tuple, operator: str, null_safe: bool
    ) -> Expression:
        position = self.position(node)
        if len(left.expressions) != len(right.expressions):
            raise TypeMismatchError(
                "row tuples of different lengths are compared",
                position=position,
                hint=f"{len(left.expressions)} values stand on the left, {len(right.expressions)} on the right",
            )
        tests: list[Expression] = []
        for one, other in zip(self._operands(left), self._operands(right), strict=True):
            self.check_comparable(one, other, operator, node)
            tests.append(Comparison(SqlType.BOOLEAN, position, one, other, "=", null_safe))
        same = Conjunction(SqlType.BOOLEAN, position, tuple(tests))
        if operator not in {"=", "<>"}:
            self.refuse_variables(node, [same], f"{operator} on row tuples", "compare column by column")
        return same if operator == "=" else Negation(SqlType.BOOLEAN, position, same)

    def _logical(self, node: exp.Expr) -> Expression:
        parts = tuple(self._truth(part) for part in node.flatten())
        kind = Conjunction if isinstance(node, exp.And) else Disjunction
        return kind(SqlType.BOOLEAN, self.position(node), parts)

    def _negation(self, node: exp.Expr) -> Expression:
        return Negation(SqlType.BOOLEAN, self.position(node), self._truth(node.this))

    def _truth(self, node: exp.Expr) -> Expression:
        bound = self.bind(node)
        self.require_truth(bound)
        return bound

    def _arithmetic(self, node: exp.Expr) -> Expression:
        operator = _ARITHMETIC[type(node)]
        if self._is_of_dates(node) and (found := self._computed(node)) is not None:
            return found
        left, right = self._number(node.this), self._number(node.expression)
        kind = SqlType.REAL if SqlType.REAL in {left.type, right.type} else SqlType.INTEGER
        bound = Arithmetic(kind, self.position(node), left, right, operator)
        if kind is SqlType.REAL:
            self.refuse_variables(
                node, (left, right), "arithmetic on reals with variables is not exact", "use integers"
            )
        return bound

    def _number(self, node: exp.Expr) -> Expression:
        bound = self.bind(node)
        if bound.type not in NUMERIC:
            raise TypeMismatchError(
                f"expected a number, found {bound.type}",
                position=bound.position,
                hint="join texts with ||, and make a number of a text with CAST(... AS BIGINT)",
            )
        if bound.type is SqlType.BOOLEAN:
            as_number(node)
        return bound

    def _cast(self, node: exp.Expr) -> Expression:
        """To a whole number, of what is one or a condition; of variables no other can be encoded."""
        assert isinstance(node, exp.Cast)
        if node.to.this not in _WHOLE:
            return self.bind_for_database_alone(node)
        operand = self.bind(node.this)
        if operand.type not in {SqlType.BOOLEAN, SqlType.INTEGER}:
            return self.bind_for_database_alone(node)
        zero = DatabasePart(SqlType.INTEGER, operand.position, exp.Literal.number(0))
        return Arithmetic(SqlType.INTEGER, self.position(node), zero, operand, "+")

    def _minus(self, node: exp.Expr) -> Expression:
        operand = self._number(node.this)
        zero = DatabasePart(SqlType.INTEGER, operand.position, exp.Literal.number(0))
        return Arithmetic(operand.type, self.position(node), zero, operand, "-")

    def _between(self, node: exp.Expr) -> Expression:
        operand, low, high = self.bind(node.this), self.bind(node.args["low"]), self.bind(node.args["high"])
        position = self.position(node)
        for bound in (low, high):
            self.check_comparable(operand, bound, "BETWEEN", node)
        if _needs_the_engine((operand, low, high), "<="):
            return self._computed(node) or self.bind_for_database_alone(node)
        if node.args.get("symmetric"):
            self.refuse_variables(
                node,
                (operand, low, high),
                "BETWEEN SYMMETRIC of what the solver decides",
                "write BETWEEN least(a, b) AND greatest(a, b)",
            )
        return Conjunction(
            SqlType.BOOLEAN,
            position,
            (
                compared(position, operand, low, ">="),
                compared(position, operand, high, "<="),
            ),
        )

    def _membership(self, node: exp.Expr) -> Expression:
        position = self.position(node)
        query = node.args.get("query")
        if query is not None:
            operands = self._operands(node.this)
            if len(operands) == 1 and self._is_constant_list(query):
                (operand,) = operands
                self.subqueries.check_width(node, query.unnest(), SubqueryKind.ANY, operands)
                if not has_variable(operand) and not has_aggregate(operand):
                    return DatabasePart(SqlType.BOOLEAN, position, node)
                return MembershipQuery(SqlType.BOOLEAN, position, operand, query.unnest())
            return self.subqueries.bind(node, query, SubqueryKind.ANY, "=", operands)
        if isinstance(node.this, exp.Tuple):
            choices_of_rows = [choice for choice in node.expressions if isinstance(choice, exp.Tuple)]
            if len(choices_of_rows) < len(node.expressions):
                raise TypeMismatchError(
                    "a row tuple is compared with a single value",
                    position=position,
                    hint="list row tuples: (a, b) IN ((1, 2), (3, 4))",
                )
            rows = tuple(
                self._compare_tuples(node, node.this, choice, "=", False) for choice in choices_of_rows
            )
            return Disjunction(SqlType.BOOLEAN, position, rows)
        operand = self.bind(node.this)
        choices = [self.bind(choice) for choice in node.expressions]
        for choice in choices:
            self.check_comparable(operand, choice, "IN", node)
        tests = tuple(compared(position, operand, choice, "=") for choice in choices)
        return Disjunction(SqlType.BOOLEAN, position, tests)

    def _is(self, node: exp.Expr) -> Expression:
        position = self.position(node)
        operand = self.bind(node.this)
        target = node.expression
        if isinstance(target, exp.Null):
            bound: Expression = NullTest(SqlType.BOOLEAN, position, operand)
        elif isinstance(target, exp.Boolean):
            self.require_truth(operand)
            wanted = DatabasePart(SqlType.BOOLEAN, position, target)
            bound = Comparison(SqlType.BOOLEAN, position, operand, wanted, "=", True)
        else:
            raise self.unsupported(node, "IS takes NULL, TRUE or FALSE", "use IS NOT DISTINCT FROM")
        return Negation(SqlType.BOOLEAN, position, bound) if node.args.get("negate") else bound

    def _case(self, node: exp.Expr) -> Expression:
        subject = node.this
        conditions: list[Expression] = []
        values: list[Expression] = []
        for branch in node.args["ifs"]:
            if subject is None:
                conditions.append(self._truth(branch.this))
            else:
                left, right = self.bind(subject), self.bind(branch.this)
                self.check_comparable(left, right, "CASE", node)
                position = self.position(branch)
                conditions.append(Comparison(SqlType.BOOLEAN, position, left, right, "="))
            values.append(self.bind(branch.args["true"]))
        return self._finish_case(node, conditions, values, node.args.get("default"))

    def _if(self, node: exp.Expr) -> Expression:
        condition = self._truth(node.this)
        return self._finish_case(node, [condition], [self.bind(node.args["true"])], node.args.get("false"))

    def _finish_case(
        self,
        node: exp.Expr,
        conditions: list[Expression],
        values: list[Expression],
        default: exp.Expr | None,
    ) -> Expression:
        position = self.position(node)
        last = DatabasePart(SqlType.UNKNOWN, position, exp.null()) if default is None else self.bind(default)
        kind = self.common_type(node, [*values, last])
        return Case(kind, position, tuple(conditions), tuple(values), last)

    def _coalesce(self, node: exp.Expr) -> Expression:
        parts = tuple(self.bind(part) for part in (node.this, *node.expressions))
        kind = self.common_type(node, parts)
        return Coalesce(kind, self.position(node), parts)

    def _nullif(self, node: exp.Expr) -> Expression:
        left, right = self.bind(node.this), self.bind(node.expression)
        self.check_comparable(left, right, "NULLIF", node)
        position = self.position(node)
        same = Comparison(SqlType.BOOLEAN, position, left, right, "=")
        return Case(
            left.type, position, (same,), (DatabasePart(SqlType.UNKNOWN, position, exp.null()),), left
        )

    def _extreme(self, node: exp.Expr) -> Expression:
        parts = tuple(self.bind(part) for part in (node.this, *node.expressions))
        if any(part.type in TEXTUAL for part in parts):
            self.refuse_variables(node, parts, "the greatest of texts", "compare them with CASE")
            return DatabasePart(self.common_type(node, parts), self.position(node), node)
        return Extreme(
            self.common_type(node, parts), self.position(node), parts, isinstance(node, exp.Greatest)
        )

    def _absolute(self, node: exp.Expr) -> Expression:
        operand = self._number(node.this)
        zero = DatabasePart(SqlType.INTEGER, operand.position, exp.Literal.number(0))
        negative = Arithmetic(operand.type, operand.position, zero, operand, "-")
        return Extreme(operand.type, self.position(node), (operand, negative), True)

    def _function(self, node: exp.Expr) -> Expression:
        if is_ours(node):
            return self._our_aggregate(node)
        if not self.is_callable(node):
            raise self.unknown_function(str(node.this).lower(), node)
        return self.bind_for_database_alone(node)

    # ---- what only the database computes ------------------------------------------------------------

    def _is_constant_list(self, query: exp.Expr) -> bool:
        """Whether the database can list the members once, whatever the row."""
        try:
            return not self.scan_subquery(query.unnest())
        except UnsupportedConstructError:
            return False

    def bind_for_database_alone(self, node: exp.Expr) -> Expression:
        """A node the compiler does not know: of variables, the engine computes it at each of their values."""
        found = self._computed(node)
        if found is not None:
            return found
        self.scan(node)
        return DatabasePart(self.type_of(node), self.position(node), node)

    def _computed(self, node: exp.Expr) -> Expression | None:
        """What the engine computes of columns, of which the solver decides some; None of anything else."""
        whole = list(node.walk())
        leaves = [part for part in whole if isinstance(part, exp.Column)]
        if not any(map(self._is_for_solver, leaves)) or any(
            self._is_for_solver(part) for part in whole if not isinstance(part, exp.Column)
        ):
            return None
        for part in whole:
            if isinstance(part, exp.Anonymous) and not self.is_callable(part):
                raise self.unknown_function(str(part.this), part)
        operands = tuple(map(self.bind, leaves))
        kind = self.type_of(node)
        if kind is SqlType.REAL:
            raise self.unsupported(
                node, "a fraction that the solver decides", "use integers, such as CAST(... * 100 AS BIGINT)"
            )
        holder = exp.Paren(this=node.copy())
        for number, leaf in enumerate(part for part in list(holder.walk()) if isinstance(part, exp.Column)):
            leaf.replace(exp.column(f"p{number}", table=VALUES_OF, quoted=True))
        return Computed(kind, self.position(node), operands, holder)

    def _is_of_dates(self, node: exp.Expr) -> bool:
        """Whether arithmetic has a date or an interval in it."""
        if node.find(exp.Query, exp.Star) is not None:
            return False
        written = (part.to.this for part in node.find_all(exp.Cast))
        if node.find(exp.Interval) is not None or any(kind in _TEMPORAL for kind in written):
            return True
        return any(self.column(column).type in TEMPORAL for column in node.find_all(exp.Column))

    # ---- aggregates ---------------------------------------------------------------------------------

    def _aggregate(self, node: exp.Expr, condition: Expression | None = None) -> Expression:
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
        operand = self._aggregated(node, argument)
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

    def _our_aggregate(self, node: exp.Expr, condition: Expression | None = None) -> Expression:
        """One of the language's own aggregates."""
        name = str(node.this).lower()
        function = AggregateFunction(name)
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
        operand = self._aggregated(node, argument)
        if function in {AggregateFunction.ANY, AggregateFunction.ALL}:
            self.require_truth(operand)
        if function is AggregateFunction.INCREASING:
            self._require_number(function, operand)
        return Aggregate(SqlType.BOOLEAN, position, function, operand, condition, order, descending)

    def _filtered(self, node: exp.Expr) -> Expression:
        """An aggregate with FILTER (WHERE ...)."""
        ours = is_ours(node.this)
        if self.of_database and is_database_aggregate(node):
            return self.bind_for_database_alone(node)
        if type(node.this) not in AGGREGATES and not ours:
            raise self.unsupported(node, "FILTER on this function", "filter an aggregate")
        condition = self.bind(node.expression.this)
        self.require_truth(condition)
        if has_aggregate(condition):
            raise self.unsupported(node, "an aggregate in FILTER", "compute it in a CREATE VIEW of its own")
        return self._our_aggregate(node.this, condition) if ours else self._aggregate(node.this, condition)

    def _aggregated(self, node: exp.Expr, argument: exp.Expr) -> Expression:
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
        self, node: exp.Expr, argument: exp.Expr
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

    # ---- types --------------------------------------------------------------------------------------

    def type_of(self, node: exp.Expr) -> SqlType:
        """What the engine says that a tree, whose columns are qualified, is."""
        if isinstance(node, (exp.Interval, exp.Star)):
            return SqlType.UNKNOWN
        sources = {s.alias: s.relation.name for scope in reversed(self.scopes) for s in scope.values()}
        try:
            return self.engine.type_of(to_sql(node), sources)
        except RefusedStatementError as error:
            if node.find(exp.AggFunc, exp.Window) is not None:  # it needs the groups around it
                return SqlType.UNKNOWN
            raise error_of(error, spelled(node), self.position(node)) from error
        except (DataError, OverflowError, StatementTimeoutError) as error:
            error.move(self.position(node))
            raise

    def check_comparable(self, left: Expression, right: Expression, operator: str, node: exp.Expr) -> None:
        """TypeMismatchError for text beside what is none."""
        if not go_together({left.type, right.type}):
            raise TypeMismatchError(
                f"{operator} compares {left.type} with {right.type}",
                position=self.position(node),
                hint="compare values of one type, or make one of the other: CAST(... AS TEXT)",
            )

    def require_truth(self, bound: Expression) -> None:
        """TypeMismatchError unless the expression is a condition."""
        if bound.type not in {SqlType.BOOLEAN, SqlType.UNKNOWN}:
            raise TypeMismatchError(
                f"expected a condition, found {bound.type}",
                position=bound.position,
                hint="compare it with something",
            )

    def common_type(self, node: exp.Expr, parts: Sequence[Expression]) -> SqlType:
        """The type that all the parts have or can be given; TypeMismatchError when there is none."""
        types = {part.type for part in parts} - {SqlType.UNKNOWN}
        if not types:
            return SqlType.UNKNOWN
        if len(types) == 1:
            return next(iter(types))
        if types <= TEXTUAL:
            return SqlType.TEXT if SqlType.TEXT in types else SqlType.TIMESTAMP
        if not go_together(types):
            raise TypeMismatchError(
                f"{' and '.join(sorted(types))} in one expression",
                position=self.position(node),
                hint="its values must be of one type: CAST(... AS TEXT) makes texts of the others",
            )
        return SqlType.REAL if SqlType.REAL in types else SqlType.INTEGER

    def refuse_variables(self, node: exp.Expr, parts: Sequence[Expression], what: str, hint: str) -> None:
        """UnsupportedConstructError unless the database can compute all the parts."""
        if any(has_variable(part) for part in parts):
            raise self.unsupported(node, what, hint)


def _needs_the_engine(compared: Sequence[Expression], operator: str) -> bool:
    """Whether the engine is asked how texts and dates compare: those of two types, or of an order beside one cell."""
    cells = {signature(node) for part in compared for node in part.walk() if isinstance(node, Cell)}
    kinds = {part.type for part in compared}
    if operator in {"=", "<>"}:
        return bool(cells) and kinds == TEMPORAL
    return bool(cells) and bool(kinds & TEXTUAL) and (len(kinds) > 1 or len(cells) == 1)


def _is_plain(node: exp.Expr) -> bool:
    """Whether a node is of so few parts that the engine need not be asked what it is."""
    if isinstance(node, (*COMPARISONS, exp.Between, exp.In)):
        return all(
            isinstance(part, (exp.Column, exp.Literal, exp.Boolean)) for part in node.iter_expressions()
        )
    return isinstance(node, _PLAIN)
