"""A constraint that lets some of its rows go: the condition that tells them, and the query with it.

What it is not: it does not choose which rows (see ``relaxations``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from mgmt.errors import Waiver
from mgmt.language.bound import BoundQuery, Predicate
from mgmt.language.expressions import DatabasePart, Disjunction
from mgmt.source import SourceText
from mgmt.state.row_copies import literal
from mgmt.state.schema import SqlType
from mgmt.tokens import parse_tokens, tokenize


def with_waiver(query: BoundQuery, waiver: Waiver) -> BoundQuery:
    """The query with the condition of a waiver."""
    condition = _parsed(waiver.condition)
    part = DatabasePart(SqlType.BOOLEAN, query.position, condition)
    demand = query.demand
    if waiver.clause == "WHERE" or demand is None:
        return replace(query, predicates=(*query.predicates, Predicate(condition, part, False)))
    tree = exp.Or(this=exp.Paren(this=demand.tree.copy()), expression=exp.Paren(this=condition))
    either = Disjunction(SqlType.BOOLEAN, query.position, (demand.expression, part))
    return replace(query, demand=replace(demand, tree=tree, expression=either))


def condition_without(query: BoundQuery, rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """SQL over a constraint's sources that lets these rows go, and the clause it belongs to.

    Empty when the constraint has nothing to tell them by.  A group of what is joined by a choice (an application on a
    host) is let go in the CHECK: a WHERE over both sides would be harder to solve.
    """
    if query.keys == ():
        return "WHERE", ""  # one group of all rows
    trees: dict[str, exp.Expr] = {}
    for output in query.outputs:
        if isinstance(output.expression, DatabasePart):
            trees[output.name] = output.tree.unalias()
    for part in query.keys or ():
        if isinstance(part.tree, exp.Column):
            trees.setdefault(part.tree.name, part.tree)
    if query.keys is None:
        for source in query.sources:
            for name in source.relation.key:
                tree = exp.column(name, source.alias, quoted=True)
                trees.setdefault(f"{source.alias}.{name}", tree)
                trees.setdefault(name, tree)
    conditions = []
    aliases: set[str] = set()
    for row in rows:
        parts = [f"{to_text(trees[name])} {_equals(value)}" for name, value in row.items() if name in trees]
        aliases.update(
            column.table for name in row if name in trees for column in trees[name].find_all(exp.Column)
        )
        if not parts:
            return "WHERE", ""
        conditions.append("(" + " AND ".join(parts) + ")")
    distinct = list(dict.fromkeys(conditions))
    if query.keys is not None and len(aliases) > 1:
        return "CHECK", " OR ".join(distinct)
    return "WHERE", " AND ".join(f"NOT {condition}" for condition in distinct)


def to_text(tree: exp.Expr) -> str:
    text: str = tree.sql(dialect="postgres", comments=False)
    return text


def _equals(value: Any) -> str:
    return "IS NULL" if value is None else f"= {literal(value)}"


def _parsed(condition: str) -> exp.Expr:
    text = SourceText("relaxation", condition)
    return parse_tokens(tokenize(text), text)
