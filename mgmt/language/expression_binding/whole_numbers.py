"""Fractions that the database knows beside what the solver computes, which is whole numbers alone.

``sum(size) <= 0.8 * capacity`` is a bound on a whole number: it is compared with the whole number below the fraction,
or above it, whichever decides.
"""

from __future__ import annotations

from sqlglot import exp

from mgmt.language.bound_queries.expressions import (
    TURNED,
    Arithmetic,
    Comparison,
    Conjunction,
    DatabasePart,
    Expression,
    Negation,
    has_aggregate,
    has_variable,
)
from mgmt.source_text import Position
from mgmt.state.schema import SqlType

_MOST = 4 * 10**18
"""More than anything that is computed here comes to; infinity is as good."""


def compared(
    position: Position, left: Expression, right: Expression, operator: str, null_safe: bool = False
) -> Expression:
    """The comparison of two values, that of a whole number with a fraction as one of whole numbers."""
    if is_fraction(left) and is_whole(right):
        left, right, operator = right, left, TURNED[operator]
    if null_safe or not (is_fraction(right) and is_whole(left)):
        return Comparison(SqlType.BOOLEAN, position, left, right, operator, null_safe)
    if operator in {"=", "<>"}:
        sides = (_with_limit(position, left, right, ">="), _with_limit(position, left, right, "<="))
        same = Conjunction(SqlType.BOOLEAN, position, sides)
        return same if operator == "=" else Negation(SqlType.BOOLEAN, position, same)
    return _with_limit(position, left, right, operator)


def is_fraction(expression: Expression) -> bool:
    """Whether it may be one, and the database computes it."""
    return isinstance(expression, DatabasePart) and expression.type is SqlType.REAL


def rounded(tree: exp.Expr, operator: str) -> exp.Expr:
    """The whole number that is as good as a fraction to the right of ``operator``.  NaN is more than all others."""
    kind = exp.Floor if operator in {"<=", ">"} else exp.Ceil
    most, least = exp.Literal.number(_MOST), exp.Neg(this=exp.Literal.number(_MOST))
    below = exp.Least(this=kind(this=exp.Paren(this=tree.copy())), expressions=[most])
    within = exp.Greatest(this=below, expressions=[least])
    return exp.Cast(this=within, to=exp.DataType.build("BIGINT", dialect="duckdb"))


def is_whole(expression: Expression) -> bool:
    """Whether it is one that the solver computes, and no quotient: ``sum(size) / capacity <= 0.8`` is not meant so."""
    quotient = isinstance(expression, Arithmetic) and expression.operator == "/"
    decided = has_variable(expression) or has_aggregate(expression)
    return expression.type is SqlType.INTEGER and decided and not quotient


def _with_limit(position: Position, left: Expression, right: Expression, operator: str) -> Comparison:
    assert isinstance(right, DatabasePart)
    tree = rounded(right.tree.unalias(), operator)
    return Comparison(
        SqlType.BOOLEAN, position, left, DatabasePart(SqlType.INTEGER, right.position, tree), operator
    )
