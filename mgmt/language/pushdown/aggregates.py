"""Aggregates that only one side knows: the language's own, written as SQL; and DuckDB's, which no solver knows.

The language's own are any, all, all_different, all_equal and increasing; NULL is skipped.  Over no values any and all
are NULL, as SQL has it of bool_or and bool_and, and the others true.  Any other aggregate but count, sum, min and max
is DuckDB's: it computes them in views that read no variable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from mgmt.errors import UnsupportedConstructError
from mgmt.source_text import SourceText
from mgmt.sql.trees import unsupported

_OF_BOTH = (exp.Count, exp.Sum, exp.Min, exp.Max)


def is_database_aggregate(node: exp.Expr) -> bool:
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
    if isinstance(call, _OF_BOTH) and not isinstance(call.this, exp.Distinct) and not is_over_a_window(node):
        return unsupported(
            call,
            text,
            f"{name} inside something that the solver does not compute",
            "it computes +, -, *, /, %, abs, greatest, least, coalesce, nullif, CASE and comparisons",
        )
    hint = (
        "the solver knows sum, count, min, max, any, all, all_different, all_equal and increasing; DuckDB computes"
        " any other in a CREATE VIEW that reads no variable"
    )
    if isinstance(call, exp.Avg):
        hint = "write avg(x) <= 5 as sum(x) <= 5 * count(x)"
    return unsupported(call, text, f"the aggregate {name} here", hint)


def _called(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Filter) else node


# ---- the language's own ------------------------------------------------------------

# The operand, and the text of FILTER (WHERE ...) or nothing.
_Writer = Callable[[exp.Expr, str, Callable[[exp.Expr], str]], str]


def is_ours(node: exp.Expr) -> bool:
    """Whether it is a call of one of them."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in OUR_AGGREGATES


def aggregate_sql(node: exp.Expr, suffix: str, to_sql: Callable[[exp.Expr], str]) -> str:
    """SQL for a call, of the rows that ``suffix`` (FILTER (WHERE ...) or nothing) leaves."""
    return OUR_AGGREGATES[str(node.this).lower()](node.expressions[0], suffix, to_sql)


def _any(operand: exp.Expr, suffix: str, to_sql: Callable[[exp.Expr], str]) -> str:
    return f"(bool_or(CAST(({to_sql(operand)}) AS BOOLEAN)){suffix})"


def _all(operand: exp.Expr, suffix: str, to_sql: Callable[[exp.Expr], str]) -> str:
    return f"(bool_and(CAST(({to_sql(operand)}) AS BOOLEAN)){suffix})"


def _all_different(operand: exp.Expr, suffix: str, to_sql: Callable[[exp.Expr], str]) -> str:
    text = to_sql(operand)
    return f"(count({text}){suffix} = count(DISTINCT {text}){suffix})"


def _all_equal(operand: exp.Expr, suffix: str, to_sql: Callable[[exp.Expr], str]) -> str:
    return f"(count(DISTINCT {to_sql(operand)}){suffix} <= 1)"


def _increasing(operand: exp.Expr, suffix: str, to_sql: Callable[[exp.Expr], str]) -> str:
    """In the given order (with the operand last) the values stand as in their own order."""
    value = to_sql(operand.this)
    parts = []
    for part in operand.expressions:
        key = to_sql(part.this)
        direction = " DESC" if part.args.get("desc") else ""
        parts.append(f"({key}) IS NOT NULL, {key}{direction}")
    listed = f"string_agg(CAST({value} AS TEXT), ',' ORDER BY {{}}){suffix}"
    given, own = listed.format(", ".join([*parts, value])), listed.format(value)
    return f"coalesce({given} = {own}, TRUE)"


OUR_AGGREGATES: Mapping[str, _Writer] = {
    "any": _any,
    "all": _all,
    "all_different": _all_different,
    "all_equal": _all_equal,
    "increasing": _increasing,
}
