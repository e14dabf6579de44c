"""What the number of an objective counts, for people: the rows of a table, or the unit that a column is named after."""

from __future__ import annotations

from sqlglot import exp

from mgmt.language.bound_queries.queries import BoundQuery
from mgmt.state.schema import without_prefix

_SAME_UNIT = (exp.Sum, exp.Max, exp.Min)
"""What is in the unit of its argument."""


def unit_of(query: BoundQuery) -> str:
    """``rows of task`` or ``memory``; nothing where the number is of a formula, whose unit nobody can tell."""
    if query.demand is None or query.demand.tail.soft:
        return ""
    tree = query.demand.tree.unnest()
    if isinstance(tree, exp.Count) and isinstance(tree.this, exp.Star) and query.sources:
        return f"rows of {query.sources[0].relation.name}"
    while isinstance(tree, (*_SAME_UNIT, exp.Coalesce, exp.Filter)):
        tree = tree.this.unnest()
    return without_prefix(tree.name) if isinstance(tree, exp.Column) else ""
