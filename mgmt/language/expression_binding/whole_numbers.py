"""Fractions beside what the solver computes, which are whole numbers alone: all of it exact.

A fraction that the database knows is rounded to the side that decides the comparison; the decimals of literals beside
variables are multiplied away.
"""

from __future__ import annotations

import re
from decimal import Decimal

from sqlglot import exp

from mgmt.errors import TypeMismatchError
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

MOST_PLACES = 9
_PLAIN = re.compile(r"\d{1,18}(\.\d{1,9})?")


def compared(
    position: Position, left: Expression, right: Expression, operator: str, null_safe: bool = False
) -> Expression:
    """The comparison of two values; a whole number is compared with the whole numbers around a fraction instead."""
    if _is_fraction(left) and _is_whole(right):
        left, right, operator = right, left, TURNED[operator]
    if null_safe or not (_is_fraction(right) and _is_whole(left)):
        return Comparison(SqlType.BOOLEAN, position, left, right, operator, null_safe)
    if isinstance(left, Arithmetic) and left.operator == "/":
        raise TypeMismatchError(
            "a quotient of whole numbers is one itself, and is compared with a fraction",
            position=right.position,
            hint="multiply instead: sum(cpu) <= 0.8 * capacity",
        )
    below, above = _rounded(right, exp.Floor), _rounded(right, exp.Ceil)
    if operator in {"=", "<>"}:
        sides = (
            Comparison(SqlType.BOOLEAN, position, left, above, ">="),
            Comparison(SqlType.BOOLEAN, position, left, below, "<="),
        )
        same = Conjunction(SqlType.BOOLEAN, position, sides)
        return same if operator == "=" else Negation(SqlType.BOOLEAN, position, same)
    limit = below if operator in {"<=", ">"} else above
    return Comparison(SqlType.BOOLEAN, position, left, limit, operator)


def _is_fraction(expression: Expression) -> bool:
    return isinstance(expression, DatabasePart) and expression.type is SqlType.REAL


def _is_whole(expression: Expression) -> bool:
    """Whether it is one that the solver computes."""
    return expression.type is SqlType.INTEGER and (has_variable(expression) or has_aggregate(expression))


def _rounded(part: Expression, kind: type[exp.Expr]) -> DatabasePart:
    assert isinstance(part, DatabasePart)
    whole = exp.DataType.build("BIGINT", dialect="duckdb")
    tree = exp.Cast(this=kind(this=part.tree.unalias().copy()), to=whole)
    return DatabasePart(SqlType.INTEGER, part.position, tree)


def decimal_places(tree: exp.Expr) -> int:
    """By how many powers of ten a sum of products must be multiplied to have whole numbers for literals."""
    if isinstance(tree, (exp.Paren, exp.Neg)):
        return decimal_places(tree.this)
    if isinstance(tree, exp.Literal) and _PLAIN.fullmatch(tree.this):
        return len(tree.this.partition(".")[2])
    if isinstance(tree, exp.Mul):
        return decimal_places(tree.this) + decimal_places(tree.expression)
    if isinstance(tree, (exp.Add, exp.Sub)):
        return max(decimal_places(tree.this), decimal_places(tree.expression))
    return 0


def scaled(tree: exp.Expr, places: int) -> exp.Expr:
    """A copy of a sum of products, multiplied by this power of ten, at least that of :func:`decimal_places`."""
    if isinstance(tree, (exp.Paren, exp.Neg)):
        return type(tree)(this=scaled(tree.this, places))
    if isinstance(tree, exp.Literal) and _PLAIN.fullmatch(tree.this):
        return exp.Literal.number(int(Decimal(tree.this).scaleb(places)))
    if isinstance(tree, exp.Mul):
        first = decimal_places(tree.this)
        return exp.Mul(this=scaled(tree.this, first), expression=scaled(tree.expression, places - first))
    if isinstance(tree, (exp.Add, exp.Sub)):
        return type(tree)(this=scaled(tree.this, places), expression=scaled(tree.expression, places))
    factor = exp.Literal.number(10**places)
    return exp.Mul(this=exp.Paren(this=tree.copy()), expression=factor) if places else tree.copy()


def average_of(tree: exp.Expr) -> exp.Avg | None:
    """The call of ``avg`` that a tree is, with or without FILTER."""
    call = tree.unnest()
    call = call.this if isinstance(call, exp.Filter) else call
    return call if isinstance(call, exp.Avg) else None


def instead_of(average: exp.Avg, kind: type[exp.Expr], call: exp.Expr) -> exp.Expr:
    """Another aggregate of the same rows as a call of ``avg``, which may have a FILTER."""
    found = kind(this=average.this.copy())
    return (
        exp.Filter(this=found, expression=call.expression.copy()) if isinstance(call, exp.Filter) else found
    )
