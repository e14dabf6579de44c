"""The text that DuckDB is given: trees as SQL, with what is the policy language's own written out."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import UnsupportedError, exp

from mgmt.errors import UnsupportedConstructError
from mgmt.language.pushdown.aggregates import aggregate_sql, is_ours
from mgmt.sql.dialect import duckdb_sql

_ROWS = "rows compared"


def to_sql(tree: exp.Expr) -> str:
    """A tree in the engine's dialect.

    ``greatest`` and ``least`` skip NULLs there, and a row with a NULL in it equals no other; over what the solver
    decides they are NULL where an operand is, and rows are compared column by column.
    """
    if tree.find(exp.Anonymous, exp.Greatest, exp.Least, exp.Tuple) is None:
        return _generated(tree)
    holder = exp.Paren(this=tree.copy())
    for ours in reversed([node for node in holder.find_all(exp.Anonymous) if is_ours(node)]):
        outermost = ours.parent if isinstance(ours.parent, exp.Filter) else ours
        suffix = f" FILTER (WHERE {to_sql(outermost.expression.this)})" if outermost is not ours else ""
        outermost.replace(exp.Var(this=aggregate_sql(ours, suffix, to_sql)))
    for node in reversed(list(holder.find_all(exp.Greatest, exp.Least))):
        node.replace(_null_if_one_is(node))
    for row in reversed(list(holder.find_all(exp.Tuple))):
        compared = row.parent
        if isinstance(compared, (exp.In, exp.EQ, exp.NEQ)) and row.arg_key == "this":
            made = _by_columns(compared, row)
            if made is not None:
                compared.replace(exp.Paren(this=made))
    return _generated(holder.this)


def _by_columns(compared: exp.Expr, row: exp.Tuple) -> exp.Expr | None:
    """A comparison of rows as one of their columns; None for what is none."""
    query = compared.args.get("query")
    if query is not None:
        names = [f"c{place}" for place in range(len(row.expressions))]
        same = _equal(row, [exp.column(name, table=_ROWS, quoted=True) for name in names])
        unknown = exp.Is(this=exp.Paren(this=same.copy()), expression=exp.null())
        value = f"CASE WHEN bool_or({to_sql(same)}) THEN TRUE WHEN bool_or({to_sql(unknown)}) THEN NULL ELSE FALSE END"
        source = f'({to_sql(query.unnest())}) AS "{_ROWS}" ({", ".join(names)})'
        return exp.Var(this=f"(SELECT {value} FROM {source})")
    others = compared.expressions if isinstance(compared, exp.In) else [compared.expression]
    if not others or not all(isinstance(other, exp.Tuple) for other in others):
        return None
    found: exp.Expr = exp.or_(*(_equal(row, other.expressions) for other in others), copy=False)
    return exp.Not(this=exp.Paren(this=found)) if isinstance(compared, exp.NEQ) else found


def _equal(row: exp.Tuple, others: Sequence[exp.Expr]) -> exp.Expr:
    pairs = zip(row.expressions, others, strict=True)
    return exp.Paren(
        this=exp.and_(*(exp.EQ(this=a.copy(), expression=b.copy()) for a, b in pairs), copy=False)
    )


def _null_if_one_is(node: exp.Expr) -> exp.Expr:
    """CASE WHEN no operand IS NULL THEN greatest(...) END."""
    operands = [node.this, *node.expressions]
    may_be = [operand for operand in operands if not isinstance(operand, exp.Literal)]
    known = [exp.Not(this=exp.Is(this=exp.Paren(this=o.copy()), expression=exp.null())) for o in may_be]
    if not known:
        return node.copy()
    return exp.Paren(this=exp.Case(ifs=[exp.If(this=exp.and_(*known, copy=False), true=node.copy())]))


def _generated(tree: exp.Expr) -> str:
    """The text of a tree; what has no word there would be left out of it in silence."""
    try:
        return duckdb_sql(tree)
    except UnsupportedError as error:
        raise UnsupportedConstructError(f"cannot be encoded: {error}", hint="write it otherwise") from error
