"""Intervals: what INTERVAL '1 month 2 days', make_interval and their multiples add to a date.

An interval is months, days and microseconds, for neither has a month one length in days nor, where clocks are put
forward, a day one in hours; so it is in PostgreSQL.  There are no columns of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from sqlglot import exp

from mgmt.errors import UnsupportedConstructError
from mgmt.source import SourceText
from mgmt.tokens import position_of

_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 10**3,
    "second": 10**6,
    "minute": 60 * 10**6,
    "hour": 3600 * 10**6,
}
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200}
_SHORT = {"sec": "second", "min": "minute", "hr": "hour", "mon": "month"}
_PIECE = re.compile(r"\s*(?:([+-]?\d+)\s*([a-zA-Z]+)|([+-]?)(\d+):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?)\s*")
_HINT = "write it as in INTERVAL '1 year 2 months 3 days 4 hours', in whole numbers"


class Interval(NamedTuple):
    """Three trees of whole numbers."""

    months: exp.Expr
    days: exp.Expr
    microseconds: exp.Expr

    def each(self, change: Callable[[exp.Expr], exp.Expr]) -> Interval:
        return Interval(*(part if _is_zero(part) else change(part) for part in self))

    def negated(self) -> Interval:
        return self.each(lambda part: exp.Neg(this=exp.Paren(this=part)))

    def plus(self, other: Interval) -> Interval:
        return Interval(*map(_sum, self, other))


def is_interval(node: exp.Expr) -> bool:
    """Whether a tree is an interval, or a sum or multiple of such."""
    if isinstance(node, (exp.Paren, exp.Neg)):
        return is_interval(node.this)
    if isinstance(node, (exp.Mul, exp.Add, exp.Sub)):
        sides = is_interval(node.this), is_interval(node.expression)
        return any(sides) if isinstance(node, exp.Mul) else all(sides)
    return isinstance(node, (exp.Interval, exp.MakeInterval))


def read_interval(node: exp.Expr, text: SourceText) -> Interval:
    """What such a tree adds."""
    if isinstance(node, exp.Paren):
        return read_interval(node.this, text)
    if isinstance(node, exp.Neg):
        return read_interval(node.this, text).negated()
    if isinstance(node, exp.Mul):
        one, factor = (node.this, node.expression) if is_interval(node.this) else (node.expression, node.this)
        return read_interval(one, text).each(
            lambda part: exp.Mul(this=exp.Paren(this=factor.copy()), expression=exp.Paren(this=part))
        )
    if isinstance(node, (exp.Add, exp.Sub)):
        left, right = read_interval(node.this, text), read_interval(node.expression, text)
        return left.plus(right.negated() if isinstance(node, exp.Sub) else right)
    if isinstance(node, exp.MakeInterval):
        return _made(node, text)
    return _written(node, text)


def _written(node: exp.Expr, text: SourceText) -> Interval:
    written, unit = node.this, node.args.get("unit")
    said = written.name if isinstance(written, exp.Literal) else ""
    if isinstance(unit, exp.Var):
        said = f"{said} {unit.name}"
    found, place = Interval(*map(exp.Literal.number, (0, 0, 0))), 0
    while place < len(said) and (piece := _PIECE.match(said, place)) is not None:
        part = _clock(piece) if piece[4] else _counted(int(piece[1]), piece[2])
        if part is None:
            break
        found, place = found.plus(part), piece.end()
    if not said or place < len(said):
        raise _unread(node, f"the interval {said!r}", text)
    return found


def _counted(number: int, unit: str) -> Interval | None:
    unit = unit.lower()
    unit = unit if unit in _MONTHS or unit == "century" else unit.removesuffix("s")
    unit = {"centurie": "century"}.get(unit, _SHORT.get(unit, unit))
    counts = (_MONTHS.get(unit, 0), _DAYS.get(unit, 0), _MICROSECONDS.get(unit, 0))
    return Interval(*(_number(number * count) for count in counts)) if any(counts) else None


def _clock(piece: re.Match[str]) -> Interval:
    seconds = 3600 * int(piece[4]) + 60 * int(piece[5]) + int(piece[6] or 0)
    count = seconds * 10**6 + int((piece[7] or "").ljust(6, "0"))
    return Interval(_number(0), _number(0), _number(-count if piece[3] == "-" else count))


def _made(node: exp.MakeInterval, text: SourceText) -> Interval:
    """make_interval(days => 3, hours => size)."""
    found = Interval(*map(exp.Literal.number, (0, 0, 0)))
    for unit, given in node.args.items():
        if given is None:
            continue
        part = _counted(1, unit)
        if part is None or not isinstance(given, exp.Kwarg):
            raise _unread(node, "make_interval", text)
        factor = given.expression
        found = found.plus(
            part.each(lambda one, factor=factor: exp.Mul(this=exp.Paren(this=factor.copy()), expression=one))  # type: ignore[misc]
        )
    return found


def _sum(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    if _is_zero(left) or _is_zero(right):
        return right if _is_zero(left) else left
    if isinstance(left, exp.Literal) and isinstance(right, exp.Literal):
        return _number(int(left.this) + int(right.this))
    return exp.Add(this=exp.Paren(this=left), expression=exp.Paren(this=right))


def _number(value: int) -> exp.Expr:
    return exp.Literal.number(value)


def _is_zero(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and str(node.this) == "0"


def _unread(node: exp.Expr, what: str, text: SourceText) -> UnsupportedConstructError:
    return UnsupportedConstructError(
        f"cannot be encoded: {what}", position=position_of(node, text), hint=_HINT
    )
