"""Subqueries that a whole query stands for, and minima of the groups that a query is over.

SELECT (SELECT max(cpu) FROM load) - (SELECT min(cpu) FROM load) AS range MINIMIZE range
    is SELECT max(cpu) - min(cpu) FROM load MINIMIZE ...
SELECT * FROM app WHERE name = 'a' MINIMIZE (SELECT max(cpu) FROM load)
    is as much, times the number of rows
SELECT 1 CHECK NOT EXISTS (SELECT 1 FROM load WHERE cpu > capacity)
    is SELECT 1 FROM load WHERE cpu > capacity CHECK FALSE
SELECT * FROM load CHECK cpu <= 10 + (SELECT min(other.cpu) FROM load AS other WHERE other.rack = load.rack)
    compares each group with the least of its family (a window function), and so does
SELECT * FROM load JOIN least ON least.rack = load.rack CHECK load.cpu <= 10 + least.cpu
    where ``least`` is SELECT rack, min(cpu) AS cpu FROM load GROUP BY rack
SELECT * FROM load AS a, load AS b CHECK a.cpu - b.cpu <= 10
    compares each group with the least of all, and MINIMIZE max(abs(a.cpu - b.cpu)) is max(cpu) - min(cpu)
SELECT app, max(pods) AS most FROM spread GROUP BY app, of which the MINIMIZE max(most)
    is MINIMIZE max(pods) of the spread
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from mgmt.compiler.assignments.normalization.block import outer_columns, realiased, replaced
from mgmt.compiler.assignments.normalization.expressions import WindowMinimum
from mgmt.compiler.assignments.normalization.select import Item, Select, Statement
from mgmt.compiler.assignments.normalization.views import joins_of, substituted
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import (
    TURNED,
    Aggregate,
    AggregateFunction,
    Arithmetic,
    Cell,
    Comparison,
    DatabasePart,
    Expression,
    Extreme,
    Negation,
    SubqueryKind,
    has_aggregate,
    signature,
)
from mgmt.language.bound_queries.queries import BoundQuery, Subquery
from mgmt.language.names.scopes import Source
from mgmt.state.schema import SqlType

_OF_THEMSELVES = {AggregateFunction.MINIMUM, AggregateFunction.MAXIMUM, AggregateFunction.SUM}
"""Of groups of groups they are what they are of all."""


def hoisted(query: BoundQuery, views: Mapping[str, BoundQuery]) -> BoundQuery:
    """The query that means the same without these subqueries; the same one where there are none."""
    if query.demand is None:
        return query
    if not query.sources:
        return _without_source(query, views)
    if len(query.sources) == 2:
        return _joined_minima(query, views) or _compared_groups(query, views) or query
    if len(query.sources) == 1 and query.keys == () and query.demand.is_objective:
        return _of_inner_groups(query, views)
    groups = views.get(query.sources[0].relation.name.lower())
    if len(query.sources) > 1 or query.keys is not None or query.predicates or not (groups and groups.keys):
        return query
    return _demanding(query, _with_minima(query.demand.expression, query, views))


def without_constants_around(query: BoundQuery) -> tuple[BoundQuery, Select | None]:
    """A query over constants whose demand speaks of none of them as one without a FROM, and how many rows it has.

    The same query, and None, where it is something else.
    """
    demand = query.demand
    if demand is None or query.keys is not None or not query.sources:
        return query, None
    parts = list(demand.expression.walk())
    if any(source.relation.symbolic for source in query.sources) or any(
        one.by_solver for one in query.predicates
    ):
        return query, None
    if not any(isinstance(part, Subquery) for part in parts) or any(map(_is_of_around, parts)):
        return query, None
    if any(on is not None for _, on in joins_of(query)):
        return query, None
    counting = Statement()
    for predicate in query.predicates:
        counting.require(predicate.tree)
    items = [Item(source.alias.lower(), source.relation, None) for source in query.sources]
    return replace(query, sources=(), predicates=()), counting.select("count(*)", items)


def _is_of_around(part: Expression) -> bool:
    if isinstance(part, Subquery):
        return bool(part.names or part.parameters or part.outer_cells)
    return isinstance(part, Cell) or (isinstance(part, DatabasePart) and bool(outer_columns(part.tree)))


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


def _compared_groups(query: BoundQuery, views: Mapping[str, BoundQuery]) -> BoundQuery | None:
    """What compares each group of a view with each other one as what compares it with the least; None: it is none."""
    one, other = query.sources
    view = views.get(one.relation.name.lower())
    if view is None or not view.keys or query.having is not None:
        return None
    if _meaning(one.relation.name, views) != _meaning(other.relation.name, views):
        return None
    pairs = _Pairs.of(query, view)
    demand = query.demand
    if pairs is None or demand is None:
        return None
    table = exp.Table(this=exp.to_identifier(one.relation.name), alias=exp.to_identifier(one.alias))
    alone = replace(query, sources=(one,), skeleton=exp.Select(from_=exp.From(this=table)), predicates=())
    expression = demand.expression
    if demand.is_objective:
        greatest = isinstance(expression, Aggregate) and expression.function is AggregateFunction.MAXIMUM
        if query.keys != () or not isinstance(expression, Aggregate) or not greatest:
            return None
        difference = None if expression.operand is None else pairs.difference(expression.operand)
        if difference is None or pairs.equal or expression.condition is not None:
            return None
        highest = replace(expression, operand=difference)
        lowest = replace(highest, function=AggregateFunction.MINIMUM)
        return _demanding(alone, Arithmetic(highest.type, highest.position, highest, lowest, "-"))
    if query.keys is not None or not isinstance(expression, Comparison):
        return None
    for left, right, operator in (
        (expression.left, expression.right, expression.operator),
        (expression.right, expression.left, TURNED[expression.operator]),
    ):
        bounded = pairs.bounded(left, right) if operator in {"<", "<="} else None
        if bounded is None:
            continue
        load, most = bounded
        least = WindowMinimum(
            load.type,
            load.position,
            Arithmetic(load.type, load.position, load, most, "+"),
            tuple(filter(None, (_column(one, name, load) for name in pairs.equal))),
        )
        return _demanding(alone, replace(expression, left=load, right=least, operator=operator))
    return None


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of groups of one view: all, or all of different groups, of those that are equal in some columns."""

    one: str
    other: str
    equal: tuple[str, ...]
    different: bool
    ordered: bool
    """Each pair is there in one order alone."""

    @classmethod
    def of(cls, query: BoundQuery, view: BoundQuery) -> _Pairs | None:
        """None where the pairs are others."""
        one, other = (source.alias.lower() for source in query.sources)
        keys = {_plain_column(key.tree) for key in view.keys or ()}
        own = {output.name.lower() for output in view.outputs if _plain_column(output.tree) in keys}
        equal: list[tuple[str, type[exp.Expr]]] = []
        told: list[tuple[str, type[exp.Expr]]] = []
        for predicate in query.predicates:
            tree = predicate.tree.unalias().unnest()
            if not isinstance(tree, (exp.EQ, exp.NEQ, exp.LT, exp.GT)):
                return None
            names = dict(filter(None, (_plain_column(tree.this), _plain_column(tree.expression))))
            if set(names) != {one, other} or names[one] != names[other] or names[one] not in own:
                return None
            (equal if isinstance(tree, exp.EQ) else told).append((names[one], type(tree)))
        if len(own) < len(keys) or len(told) > 1 or (told and len(equal) + 1 < len(keys)):
            return None
        ordered = bool(told) and told[0][1] is not exp.NEQ
        return cls(one, other, tuple(name for name, _ in equal), bool(told), ordered)

    def difference(self, part: Expression) -> Expression | None:
        """What of one group is less what of the other is the part, or its absolute value; None: it is no difference."""
        symmetric = isinstance(part, Extreme) and part.greatest and _is_absolute(part)
        inside = part.children[0] if symmetric else part
        if (self.ordered and not symmetric) or not isinstance(inside, Arithmetic) or inside.operator != "-":
            return None
        return self._same(inside.left, inside.right)

    def _same(self, left: Expression, right: Expression) -> Expression | None:
        """What both are of their groups, as of the first."""
        sources = [_sources_of(part) for part in (left, right)]
        if sources == [{self.other}, {self.one}]:
            left, right = right, left
        elif sources != [{self.one}, {self.other}]:
            return None
        return left if signature(left) == signature(realiased(right, {self.other: self.one})) else None

    def bounded(self, left: Expression, right: Expression) -> tuple[Expression, Expression] | None:
        """What of each group is at most how much above that of others, where ``left <= right``; None: it is not so."""
        difference, most = self.difference(left), right
        if difference is None and isinstance(right, Arithmetic) and right.operator == "+":
            difference, most = (None if self.ordered else self._same(left, right.left)), right.right
        if difference is None or _sources_of(most) or has_aggregate(most):
            return None
        return (difference, most) if not self.different or (_whole_number(most) or 0) > 0 else None


def _is_absolute(part: Extreme) -> bool:
    """Whether it is the greatest of something and its negation."""
    inside, negated = part.operands if len(part.operands) == 2 else (part, part)
    return isinstance(negated, Arithmetic) and negated.operator == "-" and negated.right is inside


def _sources_of(part: Expression) -> set[str]:
    found: set[str] = set()
    for node in part.walk():
        if isinstance(node, Cell):
            found.add(node.source.lower())
        elif isinstance(node, DatabasePart):
            found |= {column.table.lower() for column in node.tree.find_all(exp.Column)}
    return found


def _of_inner_groups(query: BoundQuery, views: Mapping[str, BoundQuery]) -> BoundQuery:
    """The greatest of the greatest, the least of the least, or a sum of sums of groups, as that of what they are of."""
    assert query.demand is not None
    view = views.get(query.sources[0].relation.name.lower())
    if view is None or not view.keys or query.predicates or query.having or view.having or view.strict_groups:
        return query
    if not any(views.get(source.relation.name.lower()) for source in view.sources):
        return query
    alias = query.sources[0].alias.lower()
    columns = {alias: {output.name.lower(): output.expression for output in view.outputs}}
    refused = False

    def inner(part: Expression) -> Expression:
        nonlocal refused
        if not isinstance(part, Aggregate):
            return part.with_children(inner)
        found = None if part.operand is None else substituted(part.operand, columns)
        same = isinstance(found, Aggregate) and found.function is part.function and found.condition is None
        refused |= not same or part.condition is not None or part.function not in _OF_THEMSELVES
        return part if found is None else found

    try:
        demand = inner(query.demand.expression)
    except NotAnAssignment:
        return query
    return (
        query if refused else _demanding(replace(view, keys=(), name=query.name, demand=query.demand), demand)
    )


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


def _whole_number(part: Expression) -> int | None:
    """The number that a policy has there; None where it has something else."""
    tree = part.tree.unalias().unnest() if isinstance(part, DatabasePart) else None
    return int(tree.this) if isinstance(tree, exp.Literal) and tree.is_int else None
