"""What asks for the present time, in terms of ``mgmt.state.present_time``: the moment of the snapshot that is read.

These are PostgreSQL's words and functions, and SQLite's functions of dates of nothing or of 'now'.  CURRENT_DATE is its
day.  What is computed with it is ``dates``' business.

What it is not: what asks a clock while a statement runs is refused (see ``portable``), and so is a time without a day.
"""

from __future__ import annotations

from sqlglot import exp

from mgmt.language.tree_types import mark
from mgmt.state import dates
from mgmt.state.present_time import PRESENT
from mgmt.state.schema import SqlType

_MOMENTS = (exp.CurrentTimestamp, exp.CurrentDatetime, exp.Localtimestamp)
_FUNCTIONS = {"now", "statement_timestamp", "transaction_timestamp"}


def write_out_present_time(tree: exp.Expr) -> None:
    """Calls of ``PRESENT`` in place of what asks for the time inside of the tree."""
    for node in list(tree.find_all(*_MOMENTS, exp.CurrentDate, exp.Anonymous, exp.Date, exp.Datetime)):
        if isinstance(node, exp.CurrentDate):
            ten = exp.Literal.number(len("2026-11-23"))
            day = exp.Substring(this=_present(node), start=exp.Literal.number(1), length=ten)
            day.meta.update(node.meta)
            node.replace(mark(day, SqlType.DATE))
        elif isinstance(node, _MOMENTS) or _called(node) in _FUNCTIONS:
            node.replace(_present(node))
        elif isinstance(node, (exp.Date, exp.Datetime)):
            if node.this is None or _is_now(node.this):
                node.set("this", _present(node))
        elif isinstance(node, exp.Anonymous) and (name := _called(node)) in dates.OF_SQLITE:
            _give_present(node, after=int(name == "strftime"))


def _give_present(call: exp.Anonymous, after: int) -> None:
    """To a call that has 'now', or nothing, after so many operands."""
    operands = call.expressions
    if len(operands) == after or (len(operands) > after and _is_now(operands[after])):
        call.set("expressions", [*operands[:after], _present(call), *operands[after + 1 :]])


def _present(node: exp.Expr) -> exp.Expr:
    call = exp.Anonymous(this=PRESENT, expressions=[])
    call.meta.update(node.meta)
    return mark(call, SqlType.TIMESTAMP)


def _is_now(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_string and node.name.lower() == "now"


def _called(node: exp.Expr) -> str:
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
