"""Soft constraints: the amount by which a CHECK is violated, as SQL.

Written as a tree before binding, so that the solver and the oracle both compute the very same text: a
difference for comparisons of numbers, the sum over the parts of an AND, else 0 or 1.  A part that is UNKNOWN
is not violated.
"""

from __future__ import annotations

from sqlglot import exp

from mgmt.language.bound_queries.expressions import TURNED
from mgmt.language.expression_binding.expression_binder import COMPARISONS, ExpressionBinder
from mgmt.language.expression_binding.whole_numbers import is_fraction, is_whole, rounded
from mgmt.state.schema import SqlType


def violation(check: exp.Expr, binder: ExpressionBinder) -> exp.Expr:
    """An expression that is 0 where the check passes, and grows with how far it is missed."""
    check = _without_not(check)
    if isinstance(check, exp.Between) and not check.args.get("symmetric"):
        value, low, high = check.this, check.args["low"], check.args["high"]
        check = exp.And(
            this=exp.GTE(this=value.copy(), expression=low.copy()),
            expression=exp.LTE(this=value.copy(), expression=high.copy()),
        )
    if isinstance(check, exp.And):
        left, right = violation(check.this, binder), violation(check.expression, binder)
        return exp.Add(this=exp.Paren(this=left), expression=exp.Paren(this=right))
    amount = _difference(check, binder)
    if amount is not None:
        zero = exp.Literal.number(0)
        return exp.Coalesce(this=exp.Greatest(this=amount, expressions=[zero]), expressions=[zero.copy()])
    return exp.Case(
        ifs=[exp.If(this=exp.Not(this=exp.Paren(this=check.copy())), true=exp.Literal.number(1))],
        default=exp.Literal.number(0),
    )


_OPPOSITES: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
    exp.NEQ: exp.EQ,
}


def _without_not(check: exp.Expr) -> exp.Expr:
    """The same condition with NOT put into its comparisons, where that can be; UNKNOWN stays UNKNOWN."""
    check = check.unnest() if isinstance(check, exp.Paren) else check
    if not isinstance(check, exp.Not):
        return check
    inner = _without_not(check.this)
    opposite = _OPPOSITES.get(type(inner))
    if opposite is not None and not isinstance(inner.expression, (exp.Any, exp.All)):
        return opposite(this=inner.this.copy(), expression=inner.expression.copy())
    if isinstance(inner, exp.Or):
        left, right = exp.Not(this=inner.this.copy()), exp.Not(this=inner.expression.copy())
        return exp.And(this=left, expression=right)
    return inner.this if isinstance(inner, exp.Not) else check


def _difference(check: exp.Expr, binder: ExpressionBinder) -> exp.Expr | None:
    if not isinstance(check, (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE)):
        return None
    sides = _in_whole_numbers(check, binder)
    if sides is None:
        return None
    left, right = (exp.Paren(this=side) for side in sides)
    if isinstance(check, (exp.GT, exp.GTE)):
        left, right = right, left
    difference = exp.Sub(this=left, expression=right)
    if isinstance(check, exp.EQ):
        return exp.Abs(this=difference)
    if isinstance(check, (exp.LT, exp.GT)):
        return exp.Add(this=difference, expression=exp.Literal.number(1))
    return difference


def _in_whole_numbers(check: exp.Expr, binder: ExpressionBinder) -> tuple[exp.Expr, exp.Expr] | None:
    """Copies of what is compared, a fraction as a whole number; None where there is no difference to be had."""
    left, right = binder.bind(check.this), binder.bind(check.expression)
    one, other = check.this.copy(), check.expression.copy()
    operator = COMPARISONS[type(check)]
    if operator != "=" and is_whole(left) and is_fraction(right):
        return one, rounded(other, operator)
    if operator != "=" and is_whole(right) and is_fraction(left):
        return rounded(one, TURNED[operator]), other
    return (one, other) if {left.type, right.type} == {SqlType.INTEGER} else None
