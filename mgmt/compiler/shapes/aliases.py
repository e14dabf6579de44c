"""Which sources an expression names, and the same expression over other sources.

What it is not: it looks at no relation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from mgmt.language.bound_queries.expressions import Cell, DatabasePart, Expression


def aliases_of(tree: exp.Expr) -> set[str]:
    """The qualifiers of the columns in a tree, those of its subqueries' own tables left out."""
    return {column.table.lower() for column in outer_columns(tree)}


def outer_columns(tree: exp.Expr) -> list[exp.Column]:
    found = []
    for column in tree.find_all(exp.Column):
        node: exp.Expr | None = column
        inner = isinstance(column.this, exp.Star)
        while node is not None and node is not tree and not inner:
            node = node.parent
            inner = isinstance(node, exp.Select) and column.table.lower() in _own(node)
        if not inner:
            found.append(column)
    return found


def _own(select: exp.Select) -> set[str]:
    """Aliases that a subquery's FROM defines."""
    tables = [select.args["from_"].this] if select.args.get("from_") else []
    tables.extend(join.this for join in select.args.get("joins") or ())
    return {table.alias_or_name.lower() for table in tables}


def realiased(part: Expression, names: Mapping[str, str]) -> Expression:
    """An expression over other sources: those of these aliases become those."""
    if isinstance(part, Cell):
        return replace(part, source=names.get(part.source.lower(), part.source))
    if isinstance(part, DatabasePart):
        holder = exp.Paren(this=part.tree.copy())
        for column in holder.find_all(exp.Column):
            if column.table.lower() in names:
                column.set("table", exp.to_identifier(names[column.table.lower()], quoted=True))
        return replace(part, tree=holder.this)
    return part.with_children(lambda child: realiased(child, names))
