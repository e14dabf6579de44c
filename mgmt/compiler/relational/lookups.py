"""Lookups: joins with what a variable chooses, by its key, as attributes of the choice.

``task AS a JOIN node AS x ON a.variable__node = x.name`` gives each task the one node that it is on, so that
``x.rack`` is an attribute of what it chooses.  Two tasks with their nodes then are a pair of tasks, not a row for each
two nodes that they may be on.

What it is not: one such join by itself stays what it is; there are as many rows as there are values to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from mgmt.errors import PolicyError
from mgmt.language.bound_queries.expressions import Cell, Comparison, DatabasePart, Expression, has_variable
from mgmt.language.bound_queries.queries import BoundQuery, Output, Predicate, Subquery
from mgmt.language.expression_binding.expression_binder import ExpressionBinder
from mgmt.language.names.catalog import Catalog
from mgmt.language.names.scopes import Scope, Source
from mgmt.language.pushdown.column_types import EngineTypes
from mgmt.source_text import Position, SourceText

_FEWEST = 2
"""Lookups in one query with its subqueries."""


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """The source ``alias`` is the row of a relation whose ``key`` has the value of a choice."""

    alias: str
    relation: str
    key: str
    choice: Cell


@dataclass(frozen=True, slots=True, eq=False)
class WithLookups:
    """A query without the sources that are looked up."""

    query: BoundQuery
    lookups: tuple[Lookup, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SubqueryWithLookups(Subquery):
    """The same of a subquery."""

    lookups: tuple[Lookup, ...]


def with_lookups(query: BoundQuery, catalog: Catalog, engine: EngineTypes) -> WithLookups:
    """The query with lookups where it joins with several of what variables choose; else as it is."""
    if query.computed_keys:
        return WithLookups(query, ())
    if sum(1 for _ in _all_lookups(query, catalog, ())) < _FEWEST:
        return WithLookups(query, ())
    try:
        return _Rewriter(catalog, engine, query.position).query(query, ())
    except PolicyError:  # the solver does not know what is asked of an attribute; the database does
        return WithLookups(query, ())


def _all_lookups(query: BoundQuery, catalog: Catalog, around: tuple[Scope, ...]) -> Iterator[Lookup]:
    scopes = ({source.alias.lower(): source for source in query.sources}, *around)
    yield from _lookups(query, catalog, scopes)
    for expression in query.expressions:
        for node in expression.walk():
            if isinstance(node, Subquery):
                yield from _all_lookups(node.query, catalog, scopes)


def _lookups(query: BoundQuery, catalog: Catalog, scopes: tuple[Scope, ...]) -> Iterator[Lookup]:
    """The sources of a query that can be looked up."""
    if any(join.args.get("side") for join in query.skeleton.args.get("joins") or ()):
        return
    fixed = [key.tree for key in query.keys or ()]
    if query.demand is None and len(scopes) == 1:  # a view, whose constant columns others read
        fixed += [output.tree for output in query.outputs if isinstance(output.expression, DatabasePart)]
    if query.demand is not None and query.demand.tail.reason is not None:
        return
    named = {column.table.lower() for tree in fixed for column in tree.find_all(exp.Column)}
    found: set[str] = set()
    for predicate in query.predicates:
        lookup = _lookup(predicate.expression, scopes, catalog)
        if lookup is not None and lookup.alias.lower() not in named | found:
            found.add(lookup.alias.lower())
            yield lookup


def _lookup(expression: Expression, scopes: tuple[Scope, ...], catalog: Catalog) -> Lookup | None:
    """What ``choice = source.key`` looks up, where the choice is one of values of a table."""
    if not isinstance(expression, Comparison) or expression.operator != "=" or expression.null_safe:
        return None
    sides = expression.left, expression.right
    for choice, part in (sides, sides[::-1]):
        if not isinstance(choice, Cell) or not isinstance(part, DatabasePart):
            continue
        tree = part.tree
        source = scopes[0].get(tree.table.lower()) if isinstance(tree, exp.Column) else None
        if source is None or source.relation.symbolic or choice.source.lower() == source.alias.lower():
            continue
        is_key = [name.lower() for name in source.relation.key] == [tree.name.lower()]
        if is_key and _is_choice(choice, scopes, catalog):
            return Lookup(source.alias, source.relation.name, tree.name, choice)
    return None


def _is_choice(cell: Cell, scopes: tuple[Scope, ...], catalog: Catalog) -> bool:
    """Whether it is a variable of a table that has its values from another."""
    source = next((scope[cell.source.lower()] for scope in scopes if cell.source.lower() in scope), None)
    column = None if source is None else source.relation.find(cell.column)
    if column is None or column.origin is None:
        return False
    table, name = column.origin
    return catalog.schema.table(table).column(name).references is not None


class _Binder(ExpressionBinder):
    """Binds what the database was to compute, now that parts of it are decided."""

    def __init__(
        self, catalog: Catalog, engine: EngineTypes, scopes: tuple[Scope, ...], position: Position
    ) -> None:
        super().__init__(catalog, scopes[0], SourceText("", ""), engine, scopes[1:])
        self._position = position

    def position(self, node: exp.Expr) -> Position:
        return self._position


class _Rewriter:
    """Puts lookups in the place of joins."""

    def __init__(self, catalog: Catalog, engine: EngineTypes, position: Position) -> None:
        self._catalog = catalog
        self._engine = engine
        self._position = position

    def query(self, query: BoundQuery, around: tuple[Scope, ...]) -> WithLookups:
        """A query with everything in it that is looked up; ``around``: the scopes of those around it, rewritten."""
        plain = ({source.alias.lower(): source for source in query.sources}, *around)
        lookups = {found.alias.lower(): found for found in _lookups(query, self._catalog, plain)}
        scope = {
            alias: _decided(source) if alias in lookups else source for alias, source in plain[0].items()
        }
        scopes = (scope, *around)
        change = self._change(scopes)
        predicates = []
        for predicate in query.predicates:
            found = _lookup(predicate.expression, plain, self._catalog)
            if found is not None and lookups.get(found.alias.lower()) is not None:
                known = lookups[found.alias.lower()]
                if (found.choice.source, found.choice.column) == (known.choice.source, known.choice.column):
                    continue
            expression = change(predicate.expression)
            predicates.append(Predicate(predicate.tree, expression, has_variable(expression)))
        outputs = [Output(one.name, one.tree, change(one.expression)) for one in query.outputs]
        having, demand = query.having, query.demand
        made = replace(
            query,
            sources=tuple(source for source in query.sources if source.alias.lower() not in lookups),
            skeleton=_without(query.skeleton, lookups.keys()),
            predicates=tuple(predicates),
            outputs=tuple(outputs),
            having=None if having is None else replace(having, expression=change(having.expression)),
            demand=None if demand is None else replace(demand, expression=change(demand.expression)),
        )
        return WithLookups(made, tuple(lookups.values()))

    def _change(self, scopes: tuple[Scope, ...]) -> Callable[[Expression], Expression]:
        binder = _Binder(self._catalog, self._engine, scopes, self._position)

        def change(expression: Expression) -> Expression:
            if isinstance(expression, DatabasePart):
                if not _mentions_decided(expression.tree, scopes):
                    return expression
                holder = exp.Paren(this=expression.tree.unalias().copy())
                return binder.bind(holder.this)
            if isinstance(expression, Subquery):
                return self._subquery(expression, scopes, change)
            return expression.with_children(change)

        return change

    def _subquery(
        self, subquery: Subquery, scopes: tuple[Scope, ...], change: Callable[[Expression], Expression]
    ) -> Subquery:
        found = self.query(subquery.query, scopes)
        parameters = [change(parameter) for parameter in subquery.parameters]
        pairs = list(zip(parameters, subquery.names, strict=True))
        kept = [(one, name) for one, name in pairs if not has_variable(one)]
        cells = [one for one, _ in pairs if has_variable(one)]
        return SubqueryWithLookups(
            subquery.type,
            subquery.position,
            subquery.kind,
            subquery.operator,
            tuple(map(change, subquery.operands)),
            tuple(one for one, _ in kept),
            tuple(name for _, name in kept),
            (*subquery.outer_cells, *cells),
            found.query,
            subquery.single,
            found.lookups,
        )


def _decided(source: Source) -> Source:
    """The source, its columns being attributes of a choice."""
    columns = tuple(replace(column, symbolic=True) for column in source.relation.columns)
    return Source(source.alias, replace(source.relation, columns=columns))


def _mentions_decided(tree: exp.Expr, scopes: tuple[Scope, ...]) -> bool:
    """Whether a column of it is looked up: such a source has no constant column."""
    for column in tree.find_all(exp.Column):
        source = next((s[column.table.lower()] for s in scopes if column.table.lower() in s), None)
        found = None if source is None else source.relation.find(column.name)
        if found is not None and found.symbolic:
            return True
    return False


def _without(skeleton: exp.Select, aliases: Container[str]) -> exp.Select:
    """FROM and joins without these."""
    found = skeleton.copy()
    items = [found.args["from_"].this] if found.args.get("from_") else []
    items += [join.this for join in found.args.get("joins") or ()]
    kept = [item for item in items if item.alias_or_name.lower() not in aliases]
    found.set("joins", [exp.Join(this=item) for item in kept[1:]])
    found.set("from_", exp.From(this=kept[0]) if kept else None)
    return found
