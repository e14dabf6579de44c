"""What the number of an objective counts, for people: the rows of a table, or the unit that a column is named after."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from mgmt.language.bound_queries.queries import BoundQuery
from mgmt.state.schema import without_prefix

_SAME_UNIT = (exp.Sum, exp.Max, exp.Min)
"""What is in the unit of its argument."""


def unit_of(query: BoundQuery, views: Mapping[str, BoundQuery]) -> str:
    """``rows of task`` or ``memory``; nothing where the number is of a formula, whose unit nobody can tell."""
    if query.demand is None or query.demand.tail.soft:
        return ""
    return _unit(query.demand.tree, query, f"{query.name}__", views)


def _unit(tree: exp.Expr, query: BoundQuery, made: str, views: Mapping[str, BoundQuery]) -> str:
    """Of a number over the rows of a query.  Views that begin with ``made`` nobody has written or named."""
    tree = tree.unalias().unnest()
    while isinstance(tree, (*_SAME_UNIT, exp.Coalesce, exp.Filter)):
        tree = tree.this.unnest()
    if isinstance(tree, exp.Count) and isinstance(tree.this, exp.Star):
        names = [source.relation.name for source in query.sources[:1]]
        return "".join(f"rows of {name}" for name in names if not name.startswith(made))
    if not isinstance(tree, exp.Column):
        return ""
    for source in query.sources:
        is_of_it = tree.table.lower() in {"", source.alias.lower()} and source.relation.find(tree.name)
        if is_of_it and source.relation.name.startswith(made):
            view = views.get(source.relation.name)
            outputs = () if view is None else view.outputs
            same = (each.tree for each in outputs if each.name.lower() == tree.name.lower())
            return "".join(_unit(each, view, made, views) for each in same if view is not None)
    return without_prefix(tree.name)
