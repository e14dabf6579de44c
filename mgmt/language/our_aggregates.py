"""The aggregates that SQL does not have, as SQL: any, all, all_different, all_equal and increasing.

Without rows any is false and all others are true; NULL is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

# The operand, and the text of FILTER (WHERE ...) or nothing.
_Writer = Callable[[exp.Expr, str, Callable[[exp.Expr], str]], str]


def is_ours(node: exp.Expr) -> bool:
    """Whether it is a call of one of them."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in _OURS


def aggregate_sql(node: exp.Expr, suffix: str, to_sql: Callable[[exp.Expr], str]) -> str:
    """SQL for a call, of the rows that ``suffix`` (FILTER (WHERE ...) or nothing) leaves."""
    return _OURS[str(node.this).lower()](node.expressions[0], suffix, to_sql)


def _any(operand: exp.Expr, suffix: str, to_sql: Callable[[exp.Expr], str]) -> str:
    return f"(coalesce(max(CASE WHEN {to_sql(operand)} THEN 1 ELSE 0 END){suffix}, 0) = 1)"


def _all(operand: exp.Expr, suffix: str, to_sql: Callable[[exp.Expr], str]) -> str:
    return f"(coalesce(min(CASE WHEN NOT ({to_sql(operand)}) THEN 0 ELSE 1 END){suffix}, 1) = 1)"


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


_OURS: Mapping[str, _Writer] = {
    "any": _any,
    "all": _all,
    "all_different": _all_different,
    "all_equal": _all_equal,
    "increasing": _increasing,
}
