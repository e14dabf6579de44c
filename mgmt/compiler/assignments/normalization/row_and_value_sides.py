"""Which sources of a query stand beside the rows that choose, and which beside the values they choose."""

from __future__ import annotations

from typing import TypeAlias

from sqlglot import exp

from mgmt.compiler.assignments.normalization.block import QueryBlock, aliases_of
from mgmt.language.bound_queries.expressions import Cell, Comparison, DatabasePart, Expression
from mgmt.language.pushdown.sql_text import to_sql

Link: TypeAlias = tuple[Expression, exp.Expr]
"""The predicate "choice = column of another source", and that column."""


def link_to_values(flat: QueryBlock, chooser: str) -> Link | None:
    """The predicate "choice = column of another source", and that column."""
    links = [aliases_of(p.tree) for p in flat.predicates if isinstance(p, DatabasePart)]
    outer = {item.alias for item in flat.items if item.on is not None}
    fallback = None
    for predicate in flat.predicates:
        if not isinstance(predicate, Comparison) or predicate.operator != "=" or predicate.null_safe:
            continue
        for one, other in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
            if not (isinstance(one, Cell) and isinstance(other, DatabasePart)):
                continue
            aliases = aliases_of(other.tree)
            if len(aliases) != 1 or aliases & {chooser, *outer}:
                continue
            found = (predicate, other.tree)
            if not any({chooser, *aliases} <= link for link in links):
                return found
            fallback = fallback or found
    return fallback


def sides_of(flat: QueryBlock, chooser: str, link: Link | None, *, pairs: bool = False) -> dict[str, str]:
    """Per alias "row" or "value"; with ``pairs`` also "pair", where equal columns join it to both."""
    sides = {chooser: "row"}
    if link is None:
        return {item.alias: "row" for item in flat.items}
    (target,) = aliases_of(link[1])
    sides[target] = "value"
    links = [aliases_of(p.tree) for p in flat.predicates if isinstance(p, DatabasePart)]
    links.extend({item.alias} | aliases_of(item.on) for item in flat.items if item.on is not None)
    waiting = [item.alias for item in flat.items if item.alias not in sides]
    with_value = _tied_to(flat, link[1])
    while waiting:
        alias, side = _next_to_place(waiting, sides, links, with_value)
        tied = {sides[other] for link in links if alias in link for other in link - {alias} if other in sides}
        if pairs and tied == {"row", "value"} and alias not in with_value and is_looked_up(flat, alias):
            side = "pair"
        sides[alias] = side
        waiting.remove(alias)
    return sides


def _tied_to(flat: QueryBlock, column: exp.Expr) -> set[str]:
    """The sources with a column that is equal to this one: rows of theirs belong to one value each."""
    found: set[str] = set()
    for predicate in flat.predicates:
        if not isinstance(predicate, DatabasePart) or not isinstance(predicate.tree, exp.EQ):
            continue
        sides = (predicate.tree.this, predicate.tree.expression)
        for one, other in (sides, sides[::-1]):
            if to_sql(one) == to_sql(column):
                found |= aliases_of(other)
    return found


def is_looked_up(flat: QueryBlock, alias: str) -> bool:
    """Whether a source of an inner join is tied to others by nothing but columns that are equal to theirs."""
    if any(item.on is not None and alias in {item.alias} | aliases_of(item.on) for item in flat.items):
        return False
    for predicate in flat.predicates:
        if isinstance(predicate, DatabasePart):
            aliases = aliases_of(predicate.tree)
            if alias in aliases and len(aliases) > 1 and compared_column(predicate.tree, alias) is None:
                return False
    return True


def compared_column(tree: exp.Expr, alias: str) -> tuple[exp.Column, exp.Expr] | None:
    """A column of a source and what of other sources it is equal to, if the tree says that and no more."""
    tree = tree.unnest()
    if not isinstance(tree, exp.EQ):
        return None
    for own, other in ((tree.this, tree.expression), (tree.expression, tree.this)):
        column = own.unnest()
        if (
            isinstance(column, exp.Column)
            and column.table.lower() == alias
            and alias not in aliases_of(other)
        ):
            return column, other
    return None


def _next_to_place(
    waiting: list[str], sides: dict[str, str], links: list[set[str]], with_value: set[str]
) -> tuple[str, str]:
    """What is tied to one side only comes first.

    What is tied to both goes with the values if it belongs to one of them, and else with the rows: there are
    fewer of them (unless it is looked up for each pair, see ``sides_of``).  What is tied to the values by no more than
    a property of theirs waits whether it is tied to the rows, too; what is tied to none goes with the values.
    """
    tied = {
        alias: {sides[other] for link in links if alias in link for other in link - {alias} if other in sides}
        for alias in waiting
    }
    order = (
        [(alias, "row") for alias in waiting if tied[alias] == {"row"}]
        + [(alias, "value") for alias in waiting if tied[alias] and alias in with_value]
        + [(alias, "row") for alias in waiting if len(tied[alias]) == 2]
        + [(alias, "value") for alias in waiting if tied[alias]]
    )
    return order[0] if order else (waiting[0], "value")
