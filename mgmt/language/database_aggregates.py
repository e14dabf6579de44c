"""Aggregates that the solver does not know and both databases do: for views that read no variable.

What it is not: it binds nothing; what the solver knows is ``mgmt.language.aggregate_binder``.
"""

from __future__ import annotations

from sqlglot import exp

from mgmt.errors import UnsupportedConstructError
from mgmt.source import SourceText
from mgmt.state.schema import SqlType
from mgmt.tokens import position_of

_TYPES: dict[type[exp.Expr], SqlType] = {
    exp.GroupConcat: SqlType.TEXT,
    **dict.fromkeys((exp.Avg, exp.Stddev, exp.StddevSamp, exp.StddevPop), SqlType.REAL),
    **dict.fromkeys((exp.Variance, exp.VariancePop, exp.CovarSamp, exp.CovarPop, exp.Corr), SqlType.REAL),
    **dict.fromkeys((exp.RegrSlope, exp.RegrIntercept, exp.RegrR2), SqlType.REAL),
    exp.PercentileCont: SqlType.REAL,
    **dict.fromkeys((exp.PercentileDisc, exp.Mode), SqlType.UNKNOWN),  # that of what they order
    **dict.fromkeys((exp.RegrCount, exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg), SqlType.INTEGER),
}
# Which PostgreSQL does not have over windows.
_OF_GROUPS_ALONE = (exp.PercentileCont, exp.PercentileDisc, exp.Mode)
# Which the solver knows too, but not inside of a function that only the database has.
_OF_BOTH = (exp.Count, exp.Sum, exp.Min, exp.Max)


def is_known(node: exp.Expr) -> bool:
    """Whether it is a call, perhaps with FILTER, of one that both databases have."""
    return type(_called(node)) in {*_TYPES, *_OF_BOTH}


def is_one(node: exp.Expr) -> bool:
    """Whether it is a call of one that the solver does not know, over the rows of a group."""
    return type(_called(node)) in _TYPES and not is_over_a_window(node)


def is_over_a_window(node: exp.Expr) -> bool:
    """Whether it is not of a group, but has OVER."""
    around = node.parent.parent if isinstance(node.parent, exp.Filter) else node.parent
    return isinstance(around, exp.Window) and not isinstance(_called(node), _OF_GROUPS_ALONE)


def type_of(node: exp.Expr) -> SqlType:
    """What it gives; UNKNOWN for anything else."""
    return _TYPES.get(type(_called(node)), SqlType.UNKNOWN)


def refuse_unordered(node: exp.Expr, text: SourceText) -> None:
    """A text of several is another one in another order; DISTINCT is one of a single operand in SQLite."""
    call = _called(node)
    if not isinstance(call, exp.GroupConcat):
        return
    if call.find(exp.Distinct) is not None:
        raise UnsupportedConstructError(
            "cannot be encoded: DISTINCT in string_agg",
            position=position_of(call, text),
            hint="select the DISTINCT rows in a view, and aggregate that",
        )
    if call.find(exp.Order) is None:
        raise UnsupportedConstructError(
            "cannot be encoded: string_agg in no order",
            position=position_of(call, text),
            hint="say in which: string_agg(x, ',' ORDER BY x)",
        )


def unknown_to_the_solver(node: exp.Expr, text: SourceText) -> UnsupportedConstructError:
    """The error for an aggregate over what the solver decides, or in a demand."""
    call = _called(node)
    name = call.sql_name().lower() if isinstance(call, exp.Func) else call.key
    name = "string_agg" if isinstance(call, exp.GroupConcat) else name
    return UnsupportedConstructError(
        f"cannot be encoded: the aggregate {name} here",
        position=position_of(call, text),
        hint="the solver knows sum, count, min, max, any, all, all_different, all_equal and increasing; avg,"
        " string_agg, stddev and their like the database computes in a CREATE VIEW that reads no variable",
    )


def _called(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Filter) else node
