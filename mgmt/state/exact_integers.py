"""Whole numbers are exact in 64 bits; SQLite by itself would go on with reals, which are not, in silence.

The compiler writes arithmetic so that SQLite keeps what comes out whole and computes anything else once more, operator
by operator, with a function that is an error where whole numbers give none of 64 bits.  A cast to a whole number
neither stops at the largest one nor makes 0 of a text.  PostgreSQL looks by itself: there the operators are put back.

What it is not: sums look by themselves in both databases; the solver's numbers are ``mgmt.optimization.problem``'s.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import apsw
from sqlglot import exp

from mgmt.errors import DataError, OverflowError  # noqa: A004 - the published name

_LEAST, _MOST = -(2**63), 2**63 - 1
PREFIX = "rota_"
"""Of the functions that SQLite calls."""
_WHOLE = f"{PREFIX}whole"
_EXACTLY = f"{PREFIX}exactly"
_SIGNS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_KINDS = {sign: kind for kind, sign in _SIGNS.items()}
_EXACT = Context(prec=1000)
_DIGITS = 15
"""Of a real, when PostgreSQL makes a numeric of it."""
_OPERAND, _TO_WHOLE = "x", "w"
_MOST_OPERANDS = 100  # of one call
_ARITHMETIC = (*_SIGNS, exp.Neg, exp.IntDiv)
_INTEGER_TYPES = {exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT}
_REAL_TYPES = {exp.DType.FLOAT, exp.DType.DOUBLE, exp.DType.DECIMAL}
# What may take long is computed once; the others are cheaper than a call.
_DEAR = (exp.Query, exp.Var, exp.Window, exp.Anonymous, exp.Case)
_LARGEST_WRITTEN_TWICE = 40  # nodes
_NUMBER = re.compile(r"\s*([+-]?(?:\d+(\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)")
_WHOLE_NUMBER = re.compile(r"\s*[+-]?\d+\s*")


# ---- trees ----------------------------------------------------------------------------------------------


def guard(holder: exp.Expr) -> None:
    """Change all arithmetic on whole numbers below a node, and all casts to them."""
    # Inner ones first: an outer one takes them with it.
    nodes = [node for node in holder.find_all(*_ARITHMETIC, exp.Cast) if node is not holder]
    nodes.reverse()
    reals: dict[int, bool] = {}
    for node in nodes:
        reals[id(node)] = _is_real(node, reals)
    for node in nodes:
        if isinstance(node, exp.Cast):
            if node.to.this not in _INTEGER_TYPES:
                continue
            literal = node.this if isinstance(node.this, exp.Literal) else None
            if literal is None:
                node.replace(_either(node.this, _call(_WHOLE, node.this.copy())))
            elif literal.is_string or not literal.name.isdecimal():
                node.replace(_call(_WHOLE, node.this.copy()))
            continue
        around = _around(node)
        outermost = not isinstance(around, _ARITHMETIC) or reals.get(id(around), False)
        framed = outermost and node.find_ancestor(exp.WindowSpec) is not None
        if reals[id(node)]:
            if isinstance(node, exp.Mod):  # which would leave out what is behind the point
                node.replace(_exactly(node))
        elif outermost and not framed and not _cannot_leave(node):
            node.replace(_either(node, _exactly(node)))


def whole_in(check: exp.Expr, reals: frozenset[str]) -> str | None:
    """That the arithmetic of a CHECK has stayed whole, in SQL that needs no function of ours; None where it must.

    ``reals`` are the table's columns of reals, in lower case.  What a CASE may leave out is not asked for.
    """
    asked: dict[str, None] = {}
    nodes: list[exp.Expr] = list(check.find_all(*_ARITHMETIC))
    for node in nodes:
        outermost = not isinstance(_around(node), _ARITHMETIC)
        if (
            not outermost
            or _cannot_leave(node)
            or node.find_ancestor(exp.Case, exp.If, exp.Coalesce) is not None
        ):
            continue
        of_reals = any(column.name.lower() in reals for column in node.find_all(exp.Column))
        if not of_reals and not _is_real(node, {}):
            asked[f"typeof({node.sql(dialect='sqlite', comments=False)}) <> 'real'"] = None
    return " AND ".join(asked) or None


def is_outermost(node: exp.Expr) -> bool:
    """Whether it is arithmetic that is not an operand of other, or a cast to a whole number."""
    if isinstance(node, exp.Cast):
        return node.to.this in _INTEGER_TYPES
    return isinstance(node, _ARITHMETIC) and not isinstance(_around(node), _ARITHMETIC)


def unguarded(node: exp.Expr) -> exp.Expr | None:
    """What ``guard`` has made this of, for a database that looks by itself; None when it is not its work."""
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        if not isinstance(node.this, exp.Typeof) or not isinstance(default, exp.Anonymous):
            return None
        found: exp.Expr = node.args["ifs"][0].args["true"]
        name = str(default.this).lower()
        if name == _WHOLE:
            return _cast(found)
        return found if name == _EXACTLY else None
    name = str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
    if name == _WHOLE:
        return _cast(node.expressions[0])
    return _written_out(node) if name == _EXACTLY else None


def _written_out(call: exp.Expr) -> exp.Expr:
    """The operators of a call with its operands; no parentheses, for only the tree counts."""
    program, *operands = call.expressions
    waiting = iter(operands)
    stack: list[exp.Expr] = []
    for sign in program.name:
        if sign == _OPERAND:
            stack.append(next(waiting))
        else:
            right = stack.pop()
            stack.append(_KINDS[sign](this=stack.pop(), expression=right))
    return stack.pop()


def is_ours(name: str) -> bool:
    """Whether a function of this name is none that policies may call."""
    return name.startswith(PREFIX)


def _cast(tree: exp.Expr) -> exp.Expr:
    return exp.Cast(this=tree, to=exp.DataType.build("bigint", dialect="postgres"))


def _around(node: exp.Expr) -> exp.Expr | None:
    """The node above, without parentheses."""
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return parent


def _is_real(node: exp.Expr, known: dict[int, bool]) -> bool:
    """Whether it can be seen that it is a real, so that nothing of it is exact anyway; ``known``: of what is below."""
    while isinstance(node, exp.Paren):
        node = node.this
    if id(node) in known:
        return known[id(node)]
    if isinstance(node, exp.Literal):
        return not node.is_string and not node.this.isdecimal()
    if isinstance(node, exp.Cast):
        return node.to.this in _REAL_TYPES
    if isinstance(node, exp.Neg):
        return _is_real(node.this, known)
    if isinstance(node, _ARITHMETIC):
        return _is_real(node.this, known) or _is_real(node.expression, known)
    return isinstance(node, (exp.Avg, exp.Round))


def _cannot_leave(node: exp.Expr) -> bool:
    """Whether no operator of it can leave 64 bits."""
    if isinstance(node, exp.Paren):
        return _cannot_leave(node.this)
    if isinstance(node, exp.Neg):
        return isinstance(node.this, exp.Literal)
    if isinstance(node, exp.Mod):  # and yet reals have a remainder of their own
        return isinstance(node.this, exp.Literal) and isinstance(node.expression, exp.Literal)
    if isinstance(node, (exp.Div, exp.IntDiv)):
        return isinstance(node.expression, exp.Literal) and _cannot_leave(node.this)
    return not isinstance(node, _ARITHMETIC)


def _either(tree: exp.Expr, other: exp.Expr) -> exp.Expr:
    """What is whole as it is, and anything else by way of a call; the call alone where it is better made once."""
    if tree.find(*_DEAR) is not None or sum(1 for _ in tree.walk()) > _LARGEST_WRITTEN_TWICE:
        return other
    branch = exp.If(this=exp.Literal.string("integer"), true=exp.Paren(this=tree.copy()))
    return exp.Paren(this=exp.Case(this=exp.Typeof(this=tree.copy()), ifs=[branch], default=other))


def _exactly(node: exp.Expr) -> exp.Expr:
    """A tree of operators as one call: they stand behind their operands in a text, which are ``x`` there."""
    return _as_call(postfix(node))


_Postfix = tuple[str, list[exp.Expr]]


def _as_call(parts: _Postfix) -> exp.Anonymous:
    program, operands = parts
    return _call(_EXACTLY, exp.Literal.string(program), *operands)


def postfix(node: exp.Expr) -> _Postfix:
    """The operators of a tree behind their operands, which are ``x`` there, and these; of a cast the one operand."""
    if isinstance(node, exp.Cast):
        return _OPERAND + _TO_WHOLE, [node.this.copy()]
    # Down the left side without recursion: a long sum is deep there.
    outer: list[tuple[str, _Postfix]] = []
    while True:
        while isinstance(node, exp.Paren):
            node = node.this
        sign = _SIGNS.get(exp.Div if isinstance(node, exp.IntDiv) else type(node))
        if sign is None:
            break
        outer.append((sign, postfix(node.expression)))
        node = node.this
    if isinstance(node, exp.Neg) and not isinstance(node.this, exp.Literal):
        parts = _joined((_OPERAND, [exp.Literal.number(0)]), postfix(node.this), "-")
    else:
        parts = (_OPERAND, [node.copy()])
    for sign, right in reversed(outer):
        parts = _joined(parts, right, sign)
    return parts


def _joined(left: _Postfix, right: _Postfix, sign: str) -> _Postfix:
    if len(left[1]) + len(right[1]) > _MOST_OPERANDS:
        left = (_OPERAND, [_as_call(left)])
    if len(left[1]) + len(right[1]) > _MOST_OPERANDS:
        right = (_OPERAND, [_as_call(right)])
    return left[0] + right[0] + sign, [*left[1], *right[1]]


def _call(name: str, *operands: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(operands))


# ---- what SQLite calls ------------------------------------------------------------------------------------


def install(connection: apsw.Connection) -> None:
    """Let the connection run what ``guard`` makes."""
    connection.create_scalar_function(_EXACTLY, compute, -1, deterministic=True)
    connection.create_scalar_function(_WHOLE, _whole_number, 1, deterministic=True)


def _whole_number(*values: Any) -> int | None:
    """CAST (value AS BIGINT): what is behind the point is left out."""
    (value,) = values
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return _within(int(value), f"CAST ({value!r} AS BIGINT)")
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return _within(int(value), f"CAST ({value.strip()} AS BIGINT)")
    raise DataError(
        f"{value!r} is no whole number", hint="cast only what is one; leave the others out with CASE"
    )


def compute(*values: Any) -> int | float | None:
    """What operators written behind their operands come to."""
    program, *operands = values
    waiting = iter(operands)
    stack: list[Any] = []
    for sign in program:
        if sign == _OPERAND:
            stack.append(next(waiting))
        elif sign == _TO_WHOLE:
            stack.append(_whole_number(stack.pop()))
        else:
            right = stack.pop()
            stack.append(_operation(sign, stack.pop(), right))
    found: int | float | None = stack.pop()
    return found


def _operation(sign: str, left: Any, right: Any) -> int | float | None:
    left, right = _number(left), _number(right)
    if left is None or right is None:
        return None
    whole, real = _OPERATORS[sign]
    if isinstance(left, int) and isinstance(right, int):
        found = whole(left, right)
        return None if found is None else _within(found, f"{left} {sign} {right}")
    try:
        return real(float(left), float(right))
    except ArithmeticError:
        return math.inf if (left > 0) == (right > 0) else -math.inf


def fits(value: int) -> bool:
    """Whether it is one of 64 bits."""
    return _LEAST <= value <= _MOST


def _within(value: int, text: str) -> int:
    if not fits(value):
        raise leaves_64_bits(text)
    return value


def leaves_64_bits(text: str = "a number computed by the state database") -> OverflowError:
    """The error for an operation that does."""
    return OverflowError(f"{text} leaves 64 bits", hint="use smaller units")


def _number(value: Any) -> int | float | None:
    """A value where SQLite wants a number: of a text its beginning."""
    if value is None or isinstance(value, (int, float)):
        return value
    text = value if isinstance(value, str) else bytes(value).decode(errors="replace")
    match = _NUMBER.match(text)
    if match is None:
        return 0
    found = match[1]
    return int(found) if found.lstrip("+-").isdigit() else float(found)


def _quotient(left: int, right: int) -> int | None:
    if right == 0:
        return None
    size = abs(left) // abs(right)
    return size if (left < 0) == (right < 0) else -size


def _remainder(left: int, right: int) -> int | None:
    return None if right == 0 else int(math.copysign(1, left)) * (abs(left) % abs(right))


def _real_quotient(left: float, right: float) -> float | None:
    return None if right == 0 else left / right


def _real_remainder(left: float, right: float) -> float | None:
    if right == 0 or not (math.isfinite(left) and math.isfinite(right)):
        return None
    return (
        float(_EXACT.remainder(as_decimal(left), as_decimal(right))) + 0.0
    )  # numerics have no zero below it


def as_decimal(value: float) -> Decimal:
    """A real as PostgreSQL makes a numeric of it."""
    return Decimal(value) if isinstance(value, int) else Decimal(f"{value:.{_DIGITS}g}")


_OPERATORS: dict[str, tuple[Callable[[int, int], int | None], Callable[[float, float], float | None]]] = {
    "+": (operator.add, operator.add),
    "-": (operator.sub, operator.sub),
    "*": (operator.mul, operator.mul),
    "/": (_quotient, _real_quotient),
    "%": (_remainder, _real_remainder),
}
