"""Dates in a schema: what CHECK, DEFAULT and DOMAIN may say of them.

Other programs write the same tables, so a schema is plain SQL in both databases: dates are written out and compared
with columns of their type.  Computing with them is for policies.

What it is not: the columns' own rule of what they hold is ``mgmt.state.schema``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from mgmt.errors import DataError, PolicyError, PolicySyntaxError, UnsupportedConstructError
from mgmt.source import SourceText
from mgmt.state import dates
from mgmt.state.schema import TEMPORAL, Column, SqlType
from mgmt.tokens import position_of

KINDS = {exp.DType.DATE: SqlType.DATE, exp.DType.TIMESTAMP: SqlType.TIMESTAMP}
_COMPUTING = (
    *(
        exp.Cast,
        exp.Interval,
        exp.Extract,
        exp.DateTrunc,
        exp.TimestampTrunc,
        exp.Date,
        exp.Datetime,
        exp.Time,
    ),
    *(
        exp.TimeToStr,
        exp.UnixToTime,
        exp.CurrentDate,
        exp.CurrentTimestamp,
        exp.CurrentTime,
        exp.Localtimestamp,
    ),
)
_COMPARING = (
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.Between,
    exp.In,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
)
_HARMLESS = (*_COMPARING, exp.Is, exp.Paren)


def write_out_dates(tree: exp.Expr, columns: Sequence[Column], source: SourceText) -> exp.Expr:
    """The tree with DATE '...' and TIMESTAMP '...' as texts.  UnsupportedConstructError where dates are computed."""
    holder = exp.Paren(this=tree.copy())
    kinds = {column.name.lower(): column.type for column in columns if column.type in TEMPORAL}
    for node in list(holder.find_all(exp.Cast)):
        kind = KINDS.get(node.to.this)
        if kind is not None and isinstance(node.this, exp.Literal) and node.this.is_string:
            node.replace(date_literal(node.this, kind, source))
    for computed in holder.find_all(*_COMPUTING):
        if not isinstance(computed, exp.Cast) or computed.to.this in exp.DataType.TEMPORAL_TYPES:
            raise _refusal(computed, source)
    for column in list(holder.find_all(exp.Column)):
        kind = kinds.get(column.name.lower())
        if kind is not None:
            _check_beside(column, kind, kinds, source)
    found: exp.Expr = holder.this
    return found


def date_literal(
    literal: exp.Expr,
    kind: SqlType,
    source: SourceText,
    made: Callable[[str, SqlType], str] = dates.stored,
) -> exp.Expr:
    """A text as dates are written: as a column keeps it, or as it is ``made`` one of this kind."""
    try:
        return exp.Literal.string(made(literal.name, kind))
    except DataError as error:
        raise PolicySyntaxError(
            error.message, position=position_of(literal, source), hint=error.hint
        ) from error


def _check_beside(column: exp.Column, kind: SqlType, kinds: dict[str, SqlType], source: SourceText) -> None:
    """A column of dates stands beside dates that are written out, and beside columns of its type."""
    around = column.parent
    if not isinstance(around, _HARMLESS):
        if isinstance(around, (exp.Binary, exp.Func)) and not isinstance(
            around, (exp.Coalesce, exp.Connector)
        ):
            raise _refusal(column, source)
        return
    for part in list(around.iter_expressions()):
        if isinstance(part, exp.Column):
            if kinds.get(part.name.lower()) is not kind:
                raise _refusal(part, source)
        elif isinstance(part, exp.Literal) and part.is_string:
            part.replace(date_literal(part, kind, source))
        elif not isinstance(part, (exp.Null, exp.Boolean)):
            raise _refusal(part, source)


def _refusal(node: exp.Expr, source: SourceText) -> PolicyError:
    return UnsupportedConstructError(
        "a schema only compares dates with columns of their type and with dates that are written out",
        position=position_of(node, source),
        hint="compute with dates in a policy, which may say as much of every row",
    )
