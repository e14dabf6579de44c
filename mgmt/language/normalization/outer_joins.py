"""Outer joins on what the solver decides, as UNION ALL: the pairs, and the rows that have no partner.

``a LEFT JOIN b ON p`` is ``a JOIN b ON p`` and, with NULL for the columns of b, the rows of a for which
``NOT EXISTS (SELECT 1 FROM b WHERE p)``; RIGHT and FULL alike.  Both parts are encoded like any other SELECT.
Outer joins on constants stay joins, for the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from mgmt.language.expression_binding.functional_dependencies import dependencies_of_view
from mgmt.language.names.catalog import Catalog, Relation
from mgmt.language.names.scopes import Scope, Source


def label(alias: str, column: str) -> str:
    """How a column of a joined source is called in the view that replaces the join."""
    return f"{alias}.{column}"


def as_union(tree: exp.Select, index: int, left: Sequence[Source], right: Source) -> exp.Expr:
    """The join number ``index`` of a SELECT and all before it, as a UNION ALL with labelled columns."""
    joins = tree.args["joins"]
    join = joins[index]
    condition = join.args.get("on") or exp.true()
    before = [exp.From(this=tree.args["from_"].this.copy()), *(other.copy() for other in joins[:index])]
    joined = exp.From(this=join.this.copy())
    sources = [*left, right]
    side = str(join.args.get("side")).upper()
    pairs = _select(sources, (), [*_copies(before), exp.Join(this=join.this.copy(), on=condition.copy())])
    parts = [pairs]
    if side in {"LEFT", "FULL"}:
        alone = _select(sources, {right.alias}, _copies(before))
        parts.append(_without_partner(alone, [joined], condition))
    if side in {"RIGHT", "FULL"}:
        alone = _select(sources, {source.alias for source in left}, [joined.copy()])
        parts.append(_without_partner(alone, before, condition))
    union: exp.Expr = parts[0]
    for part in parts[1:]:
        union = exp.Union(this=union, distinct=False, expression=part)
    return union


def _copies(parts: Iterable[exp.Expr]) -> list[exp.Expr]:
    return [part.copy() for part in parts]


def _select(sources: Sequence[Source], missing: Iterable[str], parts: Sequence[exp.Expr]) -> exp.Select:
    """SELECT every column, NULL for those of the missing sources, from these parts."""
    absent = set(missing)
    outputs: list[exp.Expr] = []
    for source in sources:
        for column in source.relation.columns:
            value: exp.Expr = exp.null()
            if source.alias not in absent:
                value = exp.column(
                    exp.to_identifier(column.name, quoted=True),
                    table=exp.to_identifier(source.alias, quoted=True),
                )
            outputs.append(exp.alias_(value, label(source.alias, column.name), quoted=True))
    return exp.Select(expressions=outputs, from_=parts[0], joins=list(parts[1:]))


def _without_partner(alone: exp.Select, others: Sequence[exp.Expr], condition: exp.Expr) -> exp.Select:
    first, *rest = _copies(others)
    partner = exp.Select(
        expressions=[exp.Literal.number(1)],
        from_=first,
        joins=rest,
        where=exp.Where(this=condition.copy()),
    )
    alone.set("where", exp.Where(this=exp.Not(this=exp.Exists(this=partner))))
    return alone


def with_dependencies(catalog: Catalog, relation: Relation, sources: Sequence[Source]) -> Relation:
    """The view of a join, with what the keys of the joined tables settle."""
    names = {
        (source.alias.lower(), column.name.lower()): label(source.alias, column.name).lower()
        for source in sources
        for column in source.relation.columns
    }
    return replace(relation, dependencies=dependencies_of_view(sources, catalog.schema, names))


def redirect(
    trees: Iterable[exp.Expr],
    joined: Mapping[str, Source],
    alias: str,
    catalog: Catalog,
    resolve: Callable[[exp.Column], Source],
) -> None:
    """Make the columns of the joined sources columns of the view that replaces them.

    ``resolve`` says which source a column means, outside subqueries; inside one, its own tables come first.
    """
    for tree in trees:
        for column in list(tree.find_all(exp.Column)):
            if isinstance(column.this, exp.Star):
                continue
            inner = _tables_of_subqueries(column, tree)
            if inner:
                source = _meant_from_inside(column, inner, joined, catalog)
            else:
                source = resolve(column)
            if source is not None and joined.get(source.alias.lower()) is source:
                found = source.relation.find(column.name)
                assert found is not None
                column.this.set("this", label(source.alias, found.name))
                column.this.set("quoted", True)
                column.set("table", exp.to_identifier(alias, quoted=True))


def _tables_of_subqueries(column: exp.Column, tree: exp.Expr) -> list[exp.Table]:
    """The tables of the SELECTs between a column and the tree that holds it."""
    tables: list[exp.Table] = []
    select = column.find_ancestor(exp.Select)
    while select is not None and select is not tree and tree in _ancestors(select):
        items = [select.args["from_"].this] if select.args.get("from_") else []
        items += [join.this for join in select.args.get("joins") or ()]
        tables.extend(item for item in items if isinstance(item, exp.Table))
        select = select.find_ancestor(exp.Select)
    return tables


def _ancestors(node: exp.Expr) -> list[exp.Expr]:
    found = []
    parent = node.parent
    while parent is not None:
        found.append(parent)
        parent = parent.parent
    return found


def _meant_from_inside(
    column: exp.Column, inner: Sequence[exp.Table], joined: Scope, catalog: Catalog
) -> Source | None:
    for table in inner:
        if column.table:
            if table.alias_or_name.lower() == column.table.lower():
                return None
        else:
            relation = catalog.find(table.name)
            if relation is not None and relation.find(column.name):
                return None
    if column.table:
        return joined.get(column.table.lower())
    return next((source for source in joined.values() if source.relation.find(column.name)), None)
