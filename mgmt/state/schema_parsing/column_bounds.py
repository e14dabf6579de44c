"""Bounds of an integer column that its table's CHECKs imply, and the values between them as SQL.

Seen are comparisons of the column with whole numbers, BETWEEN and IN, alone or joined by AND; whatever else a CHECK
says bounds nothing here and is upheld all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp

FEW_VALUES = 64
"""So many of one variable are always a list: each is a choice of its own."""
MOST_VALUES = 10_000
"""So many can be one, where values must be told apart; of more, the variable is a number."""
LARGEST = 2**62
"""What the solver can take, either way of 0."""

_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}


def bounds(column: str, checks: Sequence[exp.Expr]) -> tuple[int | None, int | None]:
    """The least and the greatest value that the checks allow; None where they leave it open."""
    low: int | None = None
    high: int | None = None
    for check in checks:
        for least, greatest in _limits(column, check):
            if least is not None:
                low = least if low is None else max(low, least)
            if greatest is not None:
                high = greatest if high is None else min(high, greatest)
    return low, high


def range_sql(low: int, high: int) -> str:
    """All whole numbers of a range, as ``value``."""
    return f"SELECT value FROM range({low}, {high + 1}) AS r (value)"


def _limits(column: str, check: exp.Expr) -> Iterator[tuple[int | None, int | None]]:
    check = check.unnest() if isinstance(check, exp.Paren) else check
    if isinstance(check, exp.And):
        yield from _limits(column, check.this)
        yield from _limits(column, check.expression)
    elif isinstance(check, exp.Between) and _is(check.this, column):
        yield _number(check.args["low"]), _number(check.args["high"])
    elif isinstance(check, exp.In) and _is(check.this, column) and check.expressions:
        yield _span(_number(choice) for choice in check.expressions)
    elif type(check) in _FLIPPED:
        yield _compared(column, type(check), check.this, check.expression)
        yield _compared(column, _FLIPPED[type(check)], check.expression, check.this)


def _compared(
    column: str, operator: type[exp.Expr], left: exp.Expr, right: exp.Expr
) -> tuple[int | None, int | None]:
    number = _number(right)
    if number is None or not _is(left, column):
        return None, None
    lows: dict[type[exp.Expr], int] = {exp.GT: number + 1, exp.GTE: number, exp.EQ: number}
    highs: dict[type[exp.Expr], int] = {exp.LT: number - 1, exp.LTE: number, exp.EQ: number}
    return lows.get(operator), highs.get(operator)


def _span(numbers: Iterable[int | None]) -> tuple[int | None, int | None]:
    known = list(numbers)
    found = [number for number in known if number is not None]
    return (min(found), max(found)) if len(found) == len(known) else (None, None)


def _is(node: exp.Expr, column: str) -> bool:
    node = node.unnest() if isinstance(node, exp.Paren) else node
    return isinstance(node, exp.Column) and node.name.lower() == column.lower()


def _number(node: exp.Expr) -> int | None:
    node = node.unnest() if isinstance(node, exp.Paren) else node
    if isinstance(node, exp.Neg):
        inner = _number(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdecimal():
        return int(node.this)
    return None
