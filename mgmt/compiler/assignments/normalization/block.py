"""A query block: a query without views over variables, and which sources its expressions name.

``views`` makes blocks, and the other modules here rewrite them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from sqlglot import exp

from mgmt.compiler.assignments.normalization.select import Item, Select
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import Cell, DatabasePart, Expression
from mgmt.language.bound_queries.queries import Output, Predicate, Subquery

_Part = TypeVar("_Part", Output, Predicate)


@dataclass(frozen=True, slots=True)
class QueryBlock:
    """A query without views over variables.

    ``predicates`` hold of rows, ``group_gates`` of groups.  ``keys`` is None when nothing is grouped.  ``nested``:
    the demand aggregates over groups, so that aggregates stand inside aggregates.
    """

    items: tuple[Item, ...]
    predicates: tuple[Expression, ...]
    keys: tuple[DatabasePart, ...] | None
    group_gates: tuple[Expression, ...]
    strict: bool
    nested: bool
    outputs: Mapping[str, Expression]
    demand: Expression | None
    one_row_per_group: tuple[str, ...] = ()
    """Aliases of what is joined to the groups of a view."""
    groups: Select | None = None
    """How many groups there have to be, if each row of some sources has to be one."""


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
        return replace(part, tree=realiased_tree(part.tree, names))
    if isinstance(part, Subquery):
        return _realiased_around(part, names)
    return part.with_children(lambda child: realiased(child, names))


def realiased_tree(tree: exp.Expr, names: Mapping[str, str]) -> exp.Expr:
    holder = exp.Paren(this=tree.copy())
    for column in outer_columns(holder):
        if column.table.lower() in names:
            column.set("table", exp.to_identifier(names[column.table.lower()], quoted=True))
    found: exp.Expr = holder.this
    return found


def _realiased_around(subquery: Subquery, names: Mapping[str, str]) -> Subquery:
    """A subquery with other aliases around it; those of its own sources stay, and hide ones of the same name."""
    query = subquery.query
    if {source.alias.lower() for source in query.sources} & set(names):
        raise NotAnAssignment("a subquery with aliases of the query around it")

    def inside(one: _Part) -> _Part:
        return replace(one, tree=realiased_tree(one.tree, names), expression=realiased(one.expression, names))

    found = subquery.with_children(lambda child: realiased(child, names))
    assert isinstance(found, Subquery)
    around = tuple((names.get(alias, alias), column) for alias, column in subquery.names)
    predicates, outputs = tuple(map(inside, query.predicates)), tuple(map(inside, query.outputs))
    return replace(found, names=around, query=replace(query, predicates=predicates, outputs=outputs))


def replaced(part: Expression, others: Mapping[int, Expression]) -> Expression:
    """An expression with others in place of some of its nodes, by their ids."""
    return others.get(id(part)) or part.with_children(lambda child: replaced(child, others))
