"""Operators on translated values whose meaning differs between SQLite and PostgreSQL.

Division by zero is NULL there and an error here; a shift goes by any distance there; scalar max and min with a
NULL are NULL there and ignore it here; halves are rounded away from zero there.

What it is not: it walks no tree (see ``expressions``).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from mgmt.state.postgres.typed import Typed, by_code_point, cast, common_type, number, small_integer, unify
from mgmt.state.schema import SqlType

_WIDTH = 64  # bits of an integer


def atom(tree: exp.Expr) -> exp.Expr:
    """In parentheses, unless it binds tightly by itself."""
    if isinstance(
        tree, (exp.Column, exp.Cast, exp.Paren, exp.Literal, exp.Func, exp.Subquery, exp.Parameter)
    ):
        return tree
    return exp.Paren(this=tree)


def arithmetic(operator: type[exp.Expr], left: Typed, right: Typed) -> Typed:
    """``+ - * / % & |`` of numbers; a division by zero is NULL."""
    left, right = number(left), number(right)
    divisor = atom(right.tree)
    if operator in {exp.Div, exp.IntDiv, exp.Mod}:
        divisor = exp.Nullif(this=right.tree, expression=exp.Literal.number(0))
        operator = exp.Mod if operator is exp.Mod else exp.Div
    if operator is exp.Mod and SqlType.REAL in {left.type, right.type}:
        exact = exp.Mod(this=cast(left.tree, "numeric"), expression=cast(divisor, "numeric"))
        return Typed(cast(exp.Paren(this=exact), "double precision"), SqlType.REAL)
    tree = operator(this=atom(left.tree), expression=divisor)
    if operator is exp.Div:
        tree.set("typed", True)  # integers stay integers, as they do in both databases
    kind = SqlType.REAL if SqlType.REAL in {left.type, right.type} else SqlType.INTEGER
    return Typed(exp.Paren(this=tree), kind)


def shift(operator: type[exp.Expr], shifted: Typed, distance: Typed) -> Typed:
    """``<<`` and ``>>`` by any distance: all bits leave, or a negative one shifts the other way."""
    value, by = atom(number(shifted).tree), atom(number(distance).tree)
    back = exp.Paren(this=exp.Neg(this=by.copy()))
    zero, farthest = exp.Literal.number(0), exp.Literal.number(_WIDTH - 1)

    def moved(kind: type[exp.Expr], steps: exp.Expr) -> exp.Expr:
        return kind(this=value.copy(), expression=cast(steps.copy(), "int"))

    if operator is exp.BitwiseLeftShift:
        gone: exp.Expr = zero
        other = moved(exp.BitwiseRightShift, exp.Least(this=back, expressions=[farthest]))
    else:
        gone = moved(exp.BitwiseRightShift, farthest)
        within = exp.LT(this=back.copy(), expression=exp.Literal.number(_WIDTH))
        returned = exp.If(this=within, true=moved(exp.BitwiseLeftShift, back))
        other = exp.Case(ifs=[returned], default=zero)
    branches = [
        exp.If(this=_any_null([value, by]), true=exp.null()),
        exp.If(this=exp.Between(this=by.copy(), low=zero, high=farthest), true=moved(operator, by)),
        exp.If(this=exp.GT(this=by.copy(), expression=farthest), true=gone),
    ]
    return Typed(exp.Case(ifs=branches, default=other), SqlType.INTEGER)


def extreme(operator: type[exp.Expr], operands: Sequence[Typed]) -> Typed:
    """Scalar max and min: NULL when an operand is."""
    values = [value if value.is_null else number(value) for value in unify(operands)]
    tree: exp.Expr = operator(
        this=by_code_point(values[0]), expressions=[value.tree for value in values[1:]], ignore_nulls=True
    )
    open_ones = [value.tree for value in values if not _is_literal(value.tree)]
    if open_ones:
        tree = exp.Case(ifs=[exp.If(this=_any_null(open_ones), true=exp.null())], default=tree)
    return Typed(tree, common_type(values))


def rounded(value: Typed, decimals: Typed | None) -> Typed:
    """``round``: halves away from zero, the result a real."""
    tree = exp.Round(this=cast(number(value).tree, "numeric"))
    if decimals is not None:
        tree.set("decimals", small_integer(decimals))
    return Typed(cast(tree, "double precision"), SqlType.REAL)


def _is_literal(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal)


def _any_null(trees: Sequence[exp.Expr]) -> exp.Expr:
    tests = [exp.Is(this=atom(tree.copy()), expression=exp.null()) for tree in trees]
    return exp.or_(*tests, copy=False)
