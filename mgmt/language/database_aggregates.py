"""Aggregates that the solver does not know: DuckDB computes them in views that read no variable.

What it is not: it binds nothing; what the solver knows is ``mgmt.language.aggregate_binder``.
"""

from __future__ import annotations

from sqlglot import exp

from mgmt.errors import UnsupportedConstructError
from mgmt.source import SourceText
from mgmt.tokens import position_of

_OF_BOTH = (exp.Count, exp.Sum, exp.Min, exp.Max)


def is_one(node: exp.Expr) -> bool:
    """Whether it is a call of one that the solver does not know, over the rows of a group."""
    call = _called(node)
    return isinstance(call, exp.AggFunc) and not isinstance(call, _OF_BOTH) and not is_over_a_window(node)


def is_over_a_window(node: exp.Expr) -> bool:
    """Whether it is not of a group, but has OVER."""
    around = node.parent.parent if isinstance(node.parent, exp.Filter) else node.parent
    return isinstance(around, exp.Window)


def unknown_to_the_solver(node: exp.Expr, text: SourceText) -> UnsupportedConstructError:
    """The error for an aggregate over what the solver decides, or in a demand."""
    call = _called(node)
    name = call.sql_name().lower() if isinstance(call, exp.Func) else call.key
    return UnsupportedConstructError(
        f"cannot be encoded: the aggregate {name} here",
        position=position_of(call, text),
        hint="the solver knows sum, count, min, max, any, all, all_different, all_equal and increasing; DuckDB computes"
        " any other in a CREATE VIEW that reads no variable",
    )


def _called(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Filter) else node
