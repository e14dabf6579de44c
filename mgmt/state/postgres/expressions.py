"""Translate expressions from SQL as SQLite reads it to PostgreSQL with the same values.

What differs: conditions (see ``typed``), some operators (see ``arithmetic``), the sum of integers (an integer there,
a numeric here), casts that round, and names, which are the same in any case there.

What it is not: it knows no statement (see ``statements``), and no syntax, which is sqlglot's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

from sqlglot import exp

from mgmt.state.exact_integers import unguarded
from mgmt.state.postgres.arithmetic import arithmetic, atom, extreme, rounded, shift
from mgmt.state.postgres.functions import (
    BITS,
    LIKE_THEIR_OPERAND,
    MANY_ROWS,
    NEVER_THE_SAME,
    ORDERED_SETS,
    REALS,
    SMALL_OPERANDS,
    TYPES,
)
from mgmt.state.postgres.node_parts import affirmed, refuse_unknown_parts
from mgmt.state.postgres.own_functions import is_own_function, own_function
from mgmt.state.postgres.text_limits import no_longer_than_texts
from mgmt.state.postgres.typed import (
    NATIVE,
    Typed,
    by_code_point,
    cast,
    common_type,
    condition,
    identifier,
    number,
    small_integer,
    text,
    unify,
)
from mgmt.state.schema import TEMPORAL, SqlType
from mgmt.state.store import RefusedStatementError

# The columns of a relation, by lower-case name, in order; without a type where every value is a bare NULL.
ColumnType = SqlType | None
Columns = Mapping[str, ColumnType]
ROW_NUMBER = "_rowid_"

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_ORDERED = (exp.LT, exp.LTE, exp.GT, exp.GTE)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod)
_BITS = (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor)
_SHIFTS = (exp.BitwiseLeftShift, exp.BitwiseRightShift)
_INTEGER_TYPES = {exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT}
_TEXT_TYPES = {exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR, exp.DType.NCHAR, exp.DType.NVARCHAR}
_REAL_TYPES = {exp.DType.FLOAT, exp.DType.DOUBLE, exp.DType.DECIMAL}


class ExpressionTranslator(ABC):
    """Translates the expressions of one statement.  ``_scopes`` are those of the SELECTs around, inner last."""

    def __init__(self) -> None:
        self._scopes: list[dict[str, Columns]] = []
        self._outputs: list[dict[str, ColumnType]] = []

    @abstractmethod
    def query(self, tree: exp.Expr) -> tuple[exp.Expr, list[tuple[str, ColumnType]]]:
        """A translated SELECT or set operation, and its columns."""

    def condition(self, node: exp.Expr) -> exp.Expr:
        """An expression where a condition is wanted."""
        return condition(self.value(node))

    def value(self, node: exp.Expr) -> Typed:
        """An expression and its type."""
        node = unguarded(node) or node  # the server looks for overflows by itself
        if isinstance(node, exp.Anonymous) and is_own_function(node):
            return own_function(node, self.value)
        without_not = affirmed(node)
        if without_not is not None:
            return _truth(exp.Not(this=atom(self.condition(without_not))))
        for kinds, handler in self._handlers():
            if isinstance(node, kinds):
                refuse_unknown_parts(node)
                return handler(node)
        return self._generic(node)

    # ---- leaves -------------------------------------------------------------------------------------

    def _handlers(self) -> Iterator[tuple[tuple[type[exp.Expr], ...], Callable[..., Typed]]]:
        yield (exp.Column,), self._column
        yield (exp.Literal,), self._literal
        yield (exp.Boolean,), lambda node: Typed(node.copy(), SqlType.BOOLEAN)
        yield (exp.Null,), lambda node: Typed(exp.null(), SqlType.UNKNOWN)
        yield (exp.Placeholder,), self._placeholder
        yield (exp.Paren,), self._parenthesis
        yield (exp.Alias,), lambda node: self.value(node.this)
        yield _COMPARISONS, self._comparison
        yield (exp.And, exp.Or), self._connective
        yield (exp.Not,), lambda node: _truth(exp.Not(this=self.condition(node.this)))
        yield (exp.Is,), self._is
        yield (exp.Between,), self._between
        yield (exp.In,), self._in
        yield (exp.Like,), self._like
        yield (exp.Exists,), lambda node: _truth(exp.Exists(this=self.query(node.this)[0]))
        yield (exp.Subquery,), self._subquery
        yield (exp.Neg,), self._minus
        yield (*_ARITHMETIC, *_BITS), lambda node: arithmetic(type(node), *self._sides(node))
        yield _SHIFTS, lambda node: shift(type(node), *self._sides(node))
        yield (exp.DPipe,), self._concatenation
        yield (exp.Case,), self._case
        yield (exp.If,), self._if
        yield (exp.Coalesce,), self._coalesce
        yield (exp.Nullif,), self._nullif
        yield (
            (exp.Greatest, exp.Least),
            lambda node: extreme(type(node), [self.value(part) for part in (node.this, *node.expressions)]),
        )
        yield (exp.Abs,), self._absolute
        yield (exp.Round,), self._round
        yield (exp.Sign,), self._sign
        yield (exp.Cast,), self._cast
        yield (exp.Filter, exp.Window), self._aggregate
        yield (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, *REALS, *BITS, *ORDERED_SETS), self._aggregate

    def _column(self, node: exp.Column) -> Typed:
        name = node.name.lower()
        table = node.table.lower()
        for scope in reversed(self._scopes):
            for alias, columns in scope.items():
                if table in {"", alias} and (name in columns or (table and name == ROW_NUMBER)):
                    column = exp.column(identifier(name), table=identifier(alias))
                    return self._typed_column(column, columns.get(name, SqlType.INTEGER))
        for outputs in reversed(self._outputs):
            if not table and name in outputs:
                return self._typed_column(exp.column(identifier(name)), outputs[name])
        column = exp.column(identifier(name), table=identifier(table) if table else None)
        return Typed(column, SqlType.UNKNOWN)  # PostgreSQL says that there is none

    def _typed_column(self, column: exp.Expr, kind: ColumnType) -> Typed:
        # PostgreSQL would call a bare NULL a text as soon as it is a column.
        return Typed(exp.null(), SqlType.UNKNOWN) if kind is None else Typed(column, kind)

    def _literal(self, node: exp.Literal) -> Typed:
        if node.is_string:
            return Typed(node.copy(), SqlType.TEXT)
        if node.this.isdecimal() and int(node.this) < 2**63:
            return Typed(cast(node.copy(), "bigint"), SqlType.INTEGER)
        return Typed(cast(node.copy(), "double precision"), SqlType.REAL)

    def _placeholder(self, node: exp.Placeholder) -> Typed:
        # Named p1, p2, ... by the statement translator.
        return Typed(exp.Parameter(this=exp.Literal.number(node.name[1:])), SqlType.UNKNOWN)

    def _parenthesis(self, node: exp.Paren) -> Typed:
        inner = self.value(node.this)
        if inner.is_null or inner.is_parameter:
            return inner
        return Typed(exp.Paren(this=inner.tree), inner.type)

    # ---- conditions ---------------------------------------------------------------------------------

    def _comparison(self, node: exp.Binary) -> Typed:
        right = node.expression
        if isinstance(right, (exp.Any, exp.All)) and isinstance(right.this, exp.Query):
            left, query = self._beside_query(self.value(node.this), right.this.unnest())
            return _truth(type(node)(this=left.tree, expression=type(right)(this=query)))
        if isinstance(right, exp.Boolean) and isinstance(node, (exp.NullSafeEQ, exp.NullSafeNEQ)):
            test = exp.Is(this=atom(self.condition(node.this)), expression=right.copy())
            return _truth(exp.Not(this=test) if isinstance(node, exp.NullSafeNEQ) else test)
        sides = unify([self.value(node.this), self.value(right)])
        by_letters = isinstance(node, _ORDERED) and sides[1].type not in TEMPORAL
        left_tree = by_code_point(sides[0]) if by_letters else sides[0].tree
        return _truth(type(node)(this=atom(left_tree), expression=atom(sides[1].tree)))

    def _connective(self, node: exp.Connector) -> Typed:
        parts = [atom(self.condition(part)) for part in node.flatten()]
        tree = parts[0]
        for part in parts[1:]:
            tree = type(node)(this=tree, expression=part)
        return _truth(exp.Paren(this=tree))

    def _is(self, node: exp.Is) -> Typed:
        target = node.expression
        if isinstance(target, exp.Null):
            return _truth(exp.Is(this=atom(self.value(node.this).tree), expression=exp.null()))
        return _truth(exp.Is(this=atom(self.condition(node.this)), expression=target.copy()))

    def _between(self, node: exp.Between) -> Typed:
        this, low, high = unify(
            [self.value(part) for part in (node.this, node.args["low"], node.args["high"])]
        )
        between = exp.Between(this=atom(by_code_point(this)), low=low.tree, high=high.tree)
        return _truth(exp.Paren(this=between))

    def _in(self, node: exp.In) -> Typed:
        query = node.args.get("query")
        if query is None:
            this, *choices = unify([self.value(part) for part in (node.this, *node.expressions)])
            if not choices:
                return _truth(exp.false())  # SQLite takes an empty list
            return _truth(exp.In(this=atom(this.tree), expressions=[choice.tree for choice in choices]))
        this, translated = self._beside_query(self.value(node.this), query.unnest())
        return _truth(exp.In(this=atom(this.tree), query=exp.Subquery(this=translated)))

    def _beside_query(self, value: Typed, query: exp.Expr) -> tuple[Typed, exp.Expr]:
        """A value and the subquery it is compared with, of types that go together."""
        tree, columns = self.query(query)
        if len(columns) != 1:
            return value, tree
        beside = Typed(exp.column(exp.Identifier(this="c", quoted=True)), columns[0][1] or SqlType.UNKNOWN)
        unified = unify([value, beside])
        if unified[1] is beside:
            return unified[0], tree
        alias = exp.TableAlias(
            this=exp.Identifier(this="q", quoted=True), columns=[exp.Identifier(this="c", quoted=True)]
        )
        return unified[0], exp.Select(
            expressions=[unified[1].tree], from_=exp.From(this=exp.Subquery(this=tree, alias=alias))
        )

    def _like(self, node: exp.Like) -> Typed:
        return _truth(
            exp.Like(this=text(self.value(node.this)), expression=text(self.value(node.expression)))
        )

    def _subquery(self, node: exp.Subquery) -> Typed:
        tree, columns = self.query(node.this)
        return Typed(exp.Subquery(this=tree), (columns[0][1] if columns else None) or SqlType.UNKNOWN)

    # ---- numbers and texts --------------------------------------------------------------------------

    def _minus(self, node: exp.Neg) -> Typed:
        operand = node.this
        if isinstance(operand, exp.Literal) and operand.this == str(2**63):
            return Typed(cast(exp.Literal.string(f"-{operand.this}"), "bigint"), SqlType.INTEGER)
        value = number(self.value(operand))
        return Typed(exp.Paren(this=exp.Neg(this=atom(value.tree))), value.type)

    def _sides(self, node: exp.Binary) -> tuple[Typed, Typed]:
        return self.value(node.this), self.value(node.expression)

    def _concatenation(self, node: exp.DPipe) -> Typed:
        left, right = text(self.value(node.this)), text(self.value(node.expression))
        return Typed(
            exp.Paren(this=exp.DPipe(this=atom(left), expression=atom(right), safe=True)), SqlType.TEXT
        )

    def _absolute(self, node: exp.Abs) -> Typed:
        value = number(self.value(node.this))
        return Typed(exp.Abs(this=value.tree), value.type)

    def _sign(self, node: exp.Sign) -> Typed:
        real = cast(number(self.value(node.this)).tree, "double precision")
        return Typed(cast(exp.Sign(this=real), "bigint"), SqlType.INTEGER)

    def _round(self, node: exp.Round) -> Typed:
        decimals = node.args.get("decimals")
        return rounded(self.value(node.this), None if decimals is None else self.value(decimals))

    def _cast(self, node: exp.Cast) -> Typed:
        value = self.value(node.this)
        target = node.to.this
        if target in _TEXT_TYPES:
            return Typed(text(value), SqlType.TEXT)
        if target in _INTEGER_TYPES:
            tree = number(value).tree
            if value.type in {SqlType.REAL, SqlType.UNKNOWN}:
                tree = exp.Anonymous(this="trunc", expressions=[cast(tree, "double precision")])
            return Typed(cast(tree, "bigint"), SqlType.INTEGER)
        if target in _REAL_TYPES:
            return Typed(cast(number(value).tree, "double precision"), SqlType.REAL)
        if target is exp.DType.BOOLEAN:
            return Typed(condition(value), SqlType.BOOLEAN)
        return Typed(exp.Cast(this=value.tree, to=node.to.copy()), SqlType.UNKNOWN)

    # ---- choices ------------------------------------------------------------------------------------

    def _case(self, node: exp.Case) -> Typed:
        branches = node.args["ifs"]
        tests = [branch.this for branch in branches]
        if node.this is None:
            conditions = [self.condition(test) for test in tests]
        else:
            conditions = []
            for test in tests:
                sides = unify([self.value(node.this), self.value(test)])
                conditions.append(exp.EQ(this=atom(sides[0].tree), expression=atom(sides[1].tree)))
        return self._choose(conditions, [b.args["true"] for b in branches], node.args.get("default"))

    def _if(self, node: exp.If) -> Typed:
        return self._choose([self.condition(node.this)], [node.args["true"]], node.args.get("false"))

    def _choose(
        self, conditions: Sequence[exp.Expr], values: Sequence[exp.Expr], default: exp.Expr | None
    ) -> Typed:
        found = unify([self.value(value) for value in (*values, exp.null() if default is None else default)])
        if all(value.is_null for value in found):
            return found[0]  # PostgreSQL would call it a text
        branches = [
            exp.If(this=test, true=value.tree) for test, value in zip(conditions, found[:-1], strict=True)
        ]
        return Typed(exp.Case(ifs=branches, default=found[-1].tree), common_type(found))

    def _coalesce(self, node: exp.Coalesce) -> Typed:
        values = unify([self.value(part) for part in (node.this, *node.expressions)])
        if all(value.is_null for value in values):
            return values[0]
        tree = exp.Coalesce(this=values[0].tree, expressions=[value.tree for value in values[1:]])
        return Typed(tree, common_type(values))

    def _nullif(self, node: exp.Nullif) -> Typed:
        left, right = unify([self.value(node.this), self.value(node.expression)])
        if left.is_null:
            return left
        return Typed(exp.Nullif(this=left.tree, expression=right.tree), left.type)

    # ---- aggregates and functions -------------------------------------------------------------------

    def _aggregate(self, node: exp.Expr) -> Typed:
        """An aggregate or a window function with all that is written after it."""
        tree, kind, wider = self._bare_aggregate(node)
        return Typed(cast(tree, NATIVE[kind]) if wider else tree, kind)

    def _bare_aggregate(self, node: exp.Expr) -> tuple[exp.Expr, SqlType, bool]:
        """The tree, its type, and whether the whole must be cast back to it."""
        if isinstance(node, exp.Filter):
            tree, kind, narrow = self._bare_aggregate(node.this)
            where = exp.Where(this=self.condition(node.expression.this))
            return exp.Filter(this=tree, expression=where), kind, narrow
        if isinstance(node, exp.Window):
            tree, kind, narrow = self._bare_aggregate(node.this)
            return self.window(node, tree), kind, narrow
        operand = node.this
        if isinstance(node, exp.Count):
            if isinstance(operand, exp.Distinct):
                values = [self.value(part).tree for part in operand.expressions]
                return exp.Count(this=exp.Distinct(expressions=values)), SqlType.INTEGER, False
            counted = (
                exp.Star() if operand is None or isinstance(operand, exp.Star) else self.value(operand).tree
            )
            return exp.Count(this=counted), SqlType.INTEGER, False
        if isinstance(node, ORDERED_SETS):
            return self._ordered_set(node)
        if isinstance(node, (*REALS, *BITS)):
            numbers = {name: number(self.value(part)).tree for name, part in node.args.items() if part}
            real = isinstance(node, REALS)
            return type(node)(**numbers), SqlType.REAL if real else SqlType.INTEGER, real
        if not isinstance(node, (exp.Sum, exp.Avg, exp.Min, exp.Max)):
            value = self._generic(node)
            return value.tree, value.type, False
        distinct = isinstance(operand, exp.Distinct)
        value = number(self.value(operand.expressions[0] if distinct else operand))
        inner = cast(value.tree, "double precision") if isinstance(node, exp.Avg) else by_code_point(value)
        tree = type(node)(this=exp.Distinct(expressions=[inner]) if distinct else inner)
        if isinstance(node, exp.Avg):
            return tree, SqlType.REAL, False
        if isinstance(node, exp.Sum):
            return tree, value.type, value.type is not SqlType.REAL
        return tree, value.type, False

    def _ordered_set(self, node: exp.Expr) -> tuple[exp.Expr, SqlType, bool]:
        """percentile_cont(x, fraction) and its like, WITHIN GROUP (ORDER BY x)."""
        value = number(self.value(node.this))
        if isinstance(node, exp.Mode):
            order = exp.Order(expressions=[exp.Ordered(this=by_code_point(value))])
            return exp.WithinGroup(this=exp.Mode(), expression=order), value.type, False
        fraction = cast(number(self.value(node.expression)).tree, "double precision")
        if isinstance(node, exp.PercentileDisc):
            return exp.PercentileDisc(this=by_code_point(value), expression=fraction), value.type, False
        of_reals = cast(value.tree, "double precision")
        return exp.PercentileCont(this=of_reals, expression=fraction), SqlType.REAL, False

    @abstractmethod
    def window(self, node: exp.Window, inner: exp.Expr) -> exp.Expr:
        """The OVER clause around a translated function."""

    def _operand(self, node: exp.Expr, name: str, value: Typed, small: Sequence[str]) -> exp.Expr:
        """An operand of a function as PostgreSQL takes it."""
        if name in small:
            tree = small_integer(value)
            return no_longer_than_texts(tree) if isinstance(node, (exp.Repeat, exp.Pad)) else tree
        if isinstance(node, LIKE_THEIR_OPERAND) and (value.is_null or isinstance(value.tree, exp.Literal)):
            return cast(text(value), "text")  # which PostgreSQL would give no type
        return by_code_point(value) if isinstance(node, (exp.Lower, exp.Upper)) else value.tree

    def _generic(self, node: exp.Expr) -> Typed:
        """Any other node: its operands are translated, its type is guessed from a list."""
        if isinstance(node, NEVER_THE_SAME):
            raise RefusedStatementError(f"{node.key.upper()} is another one each time")
        if isinstance(node, MANY_ROWS):
            raise RefusedStatementError(f"{node.key.upper()} makes many rows of one")
        small = next((names for kind, names in SMALL_OPERANDS.items() if isinstance(node, kind)), ())
        changed: dict[str, object] = {}
        for name, argument in node.args.items():
            if isinstance(argument, exp.Query) and not isinstance(argument, exp.Subquery):
                changed[name] = self.query(argument)[0]
            elif isinstance(argument, exp.Expr) and not isinstance(
                argument, (exp.DataType, exp.Identifier, exp.Var)
            ):
                value = self.value(argument)
                changed[name] = self._operand(node, name, value, small)
            elif isinstance(argument, list):
                values = [self.value(part) if isinstance(part, exp.Expr) else part for part in argument]
                changed[name] = [
                    (small_integer(v) if name in small else v.tree) if isinstance(v, Typed) else v
                    for v in values
                ]
            else:
                changed[name] = argument.copy() if isinstance(argument, exp.Expr) else argument
        if isinstance(node, exp.GroupConcat):  # of texts alone there
            ordered = changed["this"]
            if isinstance(ordered, exp.Order):
                ordered.set("this", text(self.value(node.this.this)))
            elif not isinstance(node.this, exp.Distinct):
                changed["this"] = text(self.value(node.this))
        kind = next((found for one, found in TYPES.items() if isinstance(node, one)), None)
        if kind is None and isinstance(node, exp.Predicate):
            kind = SqlType.BOOLEAN
        if kind is None and isinstance(node, LIKE_THEIR_OPERAND):
            kind = self.value(node.this).type
        return Typed(type(node)(**changed), kind or SqlType.UNKNOWN)


def _truth(tree: exp.Expr) -> Typed:
    return Typed(tree, SqlType.BOOLEAN)
