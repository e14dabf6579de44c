"""Subqueries that a whole query stands for, and minima of the groups that a query is over.

    SELECT (SELECT max(cpu) FROM load) - (SELECT min(cpu) FROM load) AS range MINIMIZE range
        is SELECT max(cpu) - min(cpu) FROM load MINIMIZE ...
    SELECT 1 CHECK NOT EXISTS (SELECT 1 FROM load WHERE cpu > capacity)
        is SELECT 1 FROM load WHERE cpu > capacity CHECK FALSE
    SELECT * FROM load CHECK cpu <= 10 + (SELECT min(other.cpu) FROM load AS other WHERE other.rack = load.rack)
        compares each group with the least of its family (see ``least``)

What it is not: subqueries about single rows of the query around them are ``unnesting``'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from mgmt.compiler.shapes.aliases import realiased
from mgmt.compiler.shapes.least import Least, equal_columns
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
from mgmt.state.schema import SqlType


def hoisted(query: BoundQuery, views: Mapping[str, BoundQuery]) -> BoundQuery:
    """The query that means the same without these subqueries; the same one where there are none."""
    if query.demand is None or not any(isinstance(node, Subquery) for node in query.demand.expression.walk()):
        return query
    if not query.sources:
        return _without_source(query, views)
    groups = views.get(query.sources[0].relation.name.lower())
    if (
        len(query.sources) > 1
        or query.keys is not None
        or query.predicates
        or groups is None
        or not groups.keys
    ):
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
    return _demanding(inner, _replaced(demand, selected))


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


def _replaced(part: Expression, selected: Mapping[int, Expression]) -> Expression:
    return selected.get(id(part)) or part.with_children(lambda child: _replaced(child, selected))


def _with_minima(part: Expression, query: BoundQuery, views: Mapping[str, BoundQuery]) -> Expression:
    """The expression with the least of a family in place of a subquery that selects it."""
    if isinstance(part, Subquery):
        return _least(part, query, views) or part
    return part.with_children(lambda child: _with_minima(child, query, views))


def _least(part: Subquery, query: BoundQuery, views: Mapping[str, BoundQuery]) -> Least | None:
    (groups,) = query.sources
    inner = part.query
    if part.kind is not SubqueryKind.VALUE or inner.keys != () or inner.having is not None:
        return None
    if len(inner.sources) != 1:
        return None
    if _meaning(inner.sources[0].relation.name, views) != _meaning(groups.relation.name, views):
        return None
    output = inner.outputs[0].expression
    if not isinstance(output, Aggregate) or output.function is not AggregateFunction.MINIMUM:
        return None
    if output.operand is None or output.condition is not None:
        return None
    own, outer = inner.sources[0].alias.lower(), groups.alias.lower()
    keys: list[Expression] = []
    for predicate in inner.predicates:
        names = equal_columns(predicate.tree)
        if set(names) != {own, outer} or names[own] != names[outer]:
            return None
        key = exp.column(
            exp.to_identifier(names[outer], quoted=True), table=exp.to_identifier(outer, quoted=True)
        )
        column = groups.relation.find(names[outer])
        if column is None or column.symbolic:
            return None
        keys.append(DatabasePart(column.type, part.position, key))
    return Least(part.type, part.position, realiased(output.operand, {own: outer}), tuple(keys))
