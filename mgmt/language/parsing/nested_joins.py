"""Nested joins: joins in parentheses, written one after the other where that means the same.

It does for those that FROM begins with, and for inner joins of inner joins.
"""

from __future__ import annotations

from sqlglot import exp

from mgmt.source_text import SourceText
from mgmt.sql.trees import unsupported


def write_out_join_parentheses(tree: exp.Expr, text: SourceText) -> None:
    """Change every SELECT below a node.  UnsupportedConstructError for what an outer join keeps together."""
    for select in list(tree.find_all(exp.Select)):
        first = select.args.get("from_")
        if first is None:
            continue
        joins: list[exp.Join] = []
        first.set("this", _opened(first.this, joins))
        for join in select.args.get("joins") or ():
            inside: list[exp.Join] = []
            item = _opened(join.this, inside)
            join.set("this", item)
            if inside and not all(_is_inner(one) for one in (join, *inside)):
                raise unsupported(
                    item,
                    text,
                    "a parenthesised join beside an outer join",
                    "define a CREATE VIEW of what stands in the parentheses, and join that",
                )
            condition = join.args.get("on")
            if inside and condition is not None:
                join.set("on", None)
                join.set("kind", "CROSS")
                last = inside[-1]
                own = last.args.get("on")
                last.set("on", condition if own is None else exp.and_(own, condition, copy=False))
            joins += [join, *inside]
        select.set("joins", joins)


def _opened(item: exp.Expr, joins: list[exp.Join]) -> exp.Expr:
    """What stands first in parentheses; what is joined to it goes to ``joins``."""
    if not isinstance(item, exp.Subquery) or not isinstance(item.this, (exp.Table, exp.Subquery)):
        return item
    inner = item.this
    if item.alias and (item.args.get("joins") or inner.args.get("joins") or inner.alias):
        return item
    found = _opened(inner, joins)
    if item.alias:
        found.set("alias", item.args["alias"])
    if isinstance(inner, exp.Table):
        joins += inner.args.get("joins") or ()
        inner.set("joins", None)
    joins += item.args.get("joins") or ()
    return found


def _is_inner(join: exp.Join) -> bool:
    return not join.args.get("side") and not join.args.get("method") and not join.args.get("using")
