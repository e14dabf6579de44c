"""Subqueries that a whole query stands for, and minima of the groups that a query is over.

SELECT (SELECT max(cpu) FROM load) - (SELECT min(cpu) FROM load) AS range MINIMIZE range
    is SELECT max(cpu) - min(cpu) FROM load MINIMIZE ...
SELECT 1 CHECK NOT EXISTS (SELECT 1 FROM load WHERE cpu > capacity)
    is SELECT 1 FROM load WHERE cpu > capacity CHECK FALSE
SELECT * FROM load CHECK cpu <= 10 + (SELECT min(other.cpu) FROM load AS other WHERE other.rack = load.rack)
    compares each group with the least of its family (a window function), and so does
SELECT * FROM load JOIN least ON least.rack = load.rack CHECK load.cpu <= 10 + least.cpu
    where ``least`` is SELECT rack, min(cpu) AS cpu FROM load GROUP BY rack
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from mgmt.compiler.assignments.normalization.block import realiased, replaced
from mgmt.compiler.assignments.normalization.expressions import WindowMinimum
from mgmt.compiler.assignments.normalization.views import substituted
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    AggregateFunction,
    DatabasePart,
    Expression,
    Negation,
    SubqueryKind,
    signature,
)
from mgmt.language.bound_queries.queries import BoundQuery, Subquery
from mgmt.language.names.scopes import Source
from mgmt.state.schema import SqlType


def hoisted(query: BoundQuery, views: Mapping[str, BoundQuery]) -> BoundQuery:
    """The query that means the same without these subqueries; the same one where there are none."""
    if query.demand is None:
        return query
    if not query.sources:
        return _without_source(query, views)
    if len(query.sources) == 2:
        return _joined_minima(query, views) or query
    groups = views.get(query.sources[0].relation.name.lower())
    if len(query.sources) > 1 or query.keys is not None or query.predicates or not (groups and groups.keys):
        return query
    return _demanding(query, _with_minima(query.demand.expression, query, views))


def _without_source(query: BoundQuery, views: Mapping[str, BoundQuery]) -> BoundQuery:
    """A query of one row, as the one that its subqueries are of."""
    assert query.demand is not None
    demand = query.demand.expression
    if query.predicates or query.keys is not None:
        return query
    if isinstance(demand, Negation) and isinstance(demand.operand, Subquery):
        subquery = demand.operand
        if subquery.kind is not SubqueryKind.EXISTS or query.demand.is_objective:
            return query
        never = DatabasePart(SqlType.BOOLEAN, demand.position, exp.false())
        return _demanding(replace(subquery.query, demand=query.demand, name=query.name), never)
    found = [node for node in demand.walk() if isinstance(node, Subquery)]
    if any(one.kind is not SubqueryKind.VALUE or one.query.keys != () for one in found):
        return query
    if len({_rows_of(one.query, views) for one in found}) > 1:
        return query
    selected = {id(one): one.query.outputs[0].expression for one in found}
    inner = replace(found[0].query, demand=query.demand, name=query.name)
    return _demanding(inner, replaced(demand, selected))


def _demanding(query: BoundQuery, expression: Expression) -> BoundQuery:
    assert query.demand is not None
    return replace(query, demand=replace(query.demand, expression=expression))


def _rows_of(query: BoundQuery, views: Mapping[str, BoundQuery]) -> tuple[object, ...]:
    """The same for queries of the same rows, whatever they select."""
    sources = tuple((source.alias.lower(), _meaning(source.relation.name, views)) for source in query.sources)
    conditions = tuple(signature(part.expression) for part in query.predicates)
    having = None if query.having is None else signature(query.having.expression)
    keys = None if query.keys is None else tuple(map(signature, query.keys))
    return sources, conditions, keys, having, query.strict_groups


def _meaning(relation: str, views: Mapping[str, BoundQuery]) -> object:
    """The same for relations that have the same rows: a derived table that is written twice is one."""
    view = views.get(relation.lower())
    if view is None:
        return relation.lower()
    selected = tuple((output.name.lower(), signature(output.expression)) for output in view.outputs)
    return _rows_of(view, views), selected


def _with_minima(part: Expression, query: BoundQuery, views: Mapping[str, BoundQuery]) -> Expression:
    """The expression with the least of a family in place of a subquery that selects it."""
    if isinstance(part, Subquery):
        return _least(part, query, views) or part
    return part.with_children(lambda child: _with_minima(child, query, views))


def _least(part: Subquery, query: BoundQuery, views: Mapping[str, BoundQuery]) -> WindowMinimum | None:
    """A subquery that selects the least of the groups that are equal in some columns."""
    (groups,) = query.sources
    inner = part.query
    if part.kind is not SubqueryKind.VALUE or inner.keys != () or inner.having is not None:
        return None
    if len(inner.sources) != 1:
        return None
    if _meaning(inner.sources[0].relation.name, views) != _meaning(groups.relation.name, views):
        return None
    own, outer = inner.sources[0].alias.lower(), groups.alias.lower()
    keys = []
    for predicate in inner.predicates:
        names = _equal_columns(predicate.tree)
        if set(names) != {own, outer} or names[own] != names[outer]:
            return None
        keys.append(names[outer])
    return _least_of(inner.outputs[0].expression, own, groups, keys)


def _joined_minima(query: BoundQuery, views: Mapping[str, BoundQuery]) -> BoundQuery | None:
    """A CHECK of groups that joins a view of minima of theirs, by all its keys and nothing else; None: it is none."""
    assert query.demand is not None
    if query.demand.is_objective or query.keys is not None:
        return None
    for one, groups in (query.sources, query.sources[::-1]):
        view = views.get(one.relation.name.lower())
        if view is None or len(view.sources) != 1:
            continue
        if view.sources[0].relation.name.lower() != groups.relation.name.lower():
            continue
        columns = _columns_of_minima(view, groups)
        if columns is not None and _joined_by_keys(query, view, one.alias.lower(), groups):
            around = {one.alias.lower(): columns}
            table = exp.Table(
                this=exp.to_identifier(groups.relation.name), alias=exp.to_identifier(groups.alias)
            )
            return replace(
                _demanding(query, substituted(query.demand.expression, around)),
                sources=(groups,),
                skeleton=exp.Select(from_=exp.From(this=table)),
                predicates=(),
                outputs=tuple(
                    replace(one, expression=substituted(one.expression, around)) for one in query.outputs
                ),
            )
    return None


def _columns_of_minima(view: BoundQuery, groups: Source) -> dict[str, Expression] | None:
    """What the columns of a view of minima are beside the groups it is of; None if it is something else."""
    if not view.keys or view.predicates or view.having is not None or view.strict_groups:
        return None
    keys = [_plain_column(key.tree) for key in view.keys]
    found: dict[str, Expression] = {}
    for output in view.outputs:
        key = _plain_column(output.tree)
        names = [one[1] for one in keys if one is not None]
        own = view.sources[0].alias.lower()
        part = (
            _column(groups, key[1], output.expression)
            if key is not None and key in keys
            else _least_of(output.expression, own, groups, names)
        )
        if part is None or len(names) < len(keys):
            return None
        found[output.name.lower()] = part
    return found


def _joined_by_keys(query: BoundQuery, view: BoundQuery, alias: str, groups: Source) -> bool:
    selected = {output.name.lower(): _plain_column(output.tree) for output in view.outputs}
    joined = set()
    for predicate in query.predicates:
        names = _equal_columns(predicate.tree)
        if set(names) != {alias, groups.alias.lower()}:
            return False
        key = selected.get(names[alias])
        if key is None or key[1] != names[groups.alias.lower()]:
            return False
        joined.add(key)
    return joined == {_plain_column(key.tree) for key in view.keys or ()}


def _least_of(part: Expression, own: str, groups: Source, keys: Sequence[str]) -> WindowMinimum | None:
    """A minimum over the groups, here ``own``, that are equal in these columns; None if it is something else."""
    if not isinstance(part, Aggregate) or part.function is not AggregateFunction.MINIMUM:
        return None
    columns = tuple(found for name in keys if (found := _column(groups, name, part)) is not None)
    if part.operand is None or part.condition is not None or len(columns) < len(keys):
        return None
    return WindowMinimum(
        part.type, part.position, realiased(part.operand, {own: groups.alias.lower()}), columns
    )


def _column(groups: Source, name: str, like: Expression) -> DatabasePart | None:
    """A constant of groups."""
    column = groups.relation.find(name)
    if column is None or column.symbolic:
        return None
    alias = exp.to_identifier(groups.alias.lower(), quoted=True)
    return DatabasePart(
        column.type, like.position, exp.column(exp.to_identifier(name, quoted=True), table=alias)
    )


def _equal_columns(tree: exp.Expr) -> dict[str, str]:
    """Alias and name of the plain columns that a condition says are equal."""
    tree = tree.unalias().unnest()
    sides = [_plain_column(tree.this), _plain_column(tree.expression)] if isinstance(tree, exp.EQ) else []
    return dict(side for side in sides if side is not None)


def _plain_column(tree: exp.Expr) -> tuple[str, str] | None:
    """Alias and name of a plain column."""
    tree = tree.unalias()
    return (tree.table.lower(), tree.name.lower()) if isinstance(tree, exp.Column) else None
