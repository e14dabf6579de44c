"""The text of what the engine computes: trees as DuckDB reads them, with what is ours in them written out.

What it is not: it decides nothing about who computes what (see ``split``).
"""

from __future__ import annotations

from sqlglot import UnsupportedError, exp

from mgmt.dialect import duckdb_sql
from mgmt.errors import UnsupportedConstructError
from mgmt.language.our_aggregates import aggregate_sql, is_ours


def to_sql(tree: exp.Expr) -> str:
    """A tree in the engine's dialect.

    ``greatest`` and ``least`` skip NULLs there; over what the solver decides they are NULL where an operand is.
    """
    if tree.find(exp.Anonymous, exp.Greatest, exp.Least) is None:
        return _generated(tree)
    holder = exp.Paren(this=tree.copy())
    for ours in reversed([node for node in holder.find_all(exp.Anonymous) if is_ours(node)]):
        outermost = ours.parent if isinstance(ours.parent, exp.Filter) else ours
        suffix = f" FILTER (WHERE {to_sql(outermost.expression.this)})" if outermost is not ours else ""
        outermost.replace(exp.Var(this=aggregate_sql(ours, suffix, to_sql)))
    for node in reversed(list(holder.find_all(exp.Greatest, exp.Least))):
        node.replace(_null_if_one_is(node))
    return _generated(holder.this)


def _null_if_one_is(node: exp.Expr) -> exp.Expr:
    """CASE WHEN no operand IS NULL THEN greatest(...) END."""
    operands = [node.this, *node.expressions]
    known = [exp.Not(this=exp.Is(this=exp.Paren(this=o.copy()), expression=exp.null())) for o in operands]
    return exp.Paren(this=exp.Case(ifs=[exp.If(this=exp.and_(*known, copy=False), true=node.copy())]))


def _generated(tree: exp.Expr) -> str:
    """The text of a tree; what has no word there would be left out of it in silence."""
    try:
        return duckdb_sql(tree)
    except UnsupportedError as error:
        raise UnsupportedConstructError(f"cannot be encoded: {error}", hint="write it otherwise") from error
