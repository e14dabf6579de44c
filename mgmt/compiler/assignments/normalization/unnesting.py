"""Subqueries of a CHECK as joins, groups and lookups, wherever that means the same.

    WHERE EXISTS (SELECT 1 FROM pod AS b WHERE b.app = a.app AND b.host = a.host) CHECK FALSE
        as much as a join of a with b: what must hold for all rows that are found may be said of each
    CHECK (SELECT sum(cpu) FROM pod WHERE pod.host = host.name) <= host.cpu
        as much as GROUP BY host.name, if each host is a group
    FROM host WHERE EXISTS (SELECT 1 FROM pod WHERE pod.host = host.name) CHECK count(*) <= 5
        as much as CHECK count(DISTINCT pod.host) <= 5
    CHECK host IN (SELECT host FROM allowed WHERE allowed.app = pod.app)
        a lookup by row and value, where nothing inside is decided by the solver

A check passes unless it is FALSE, so where a scalar subquery is NULL the comparison with it passes, as does a row that
a join does not find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product

from sqlglot import exp

from mgmt.compiler.assignments.normalization.aggregates import gated
from mgmt.compiler.assignments.normalization.block import QueryBlock, aliases_of, realiased, replaced
from mgmt.compiler.assignments.normalization.expressions import Constant, Unknown
from mgmt.compiler.assignments.normalization.regrouping import regrouped
from mgmt.compiler.assignments.normalization.select import Item, Statement, may_be_null
from mgmt.compiler.assignments.normalization.self_correlation import (
    OwnGroups,
    asks_of_choices,
    compared_sides,
)
from mgmt.compiler.assignments.normalization.views import Views, renamed
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    AggregateFunction,
    Arithmetic,
    Cell,
    Comparison,
    Conjunction,
    DatabasePart,
    Disjunction,
    Expression,
    Negation,
    NullTest,
    SubqueryKind,
    signature,
)
from mgmt.language.bound_queries.queries import BoundQuery, Output, Predicate, Subquery
from mgmt.language.names.catalog import Catalog
from mgmt.language.names.scopes import Source
from mgmt.state.schema import SqlType

_PREFIX = "subquery"


@dataclass(frozen=True, slots=True, eq=False)
class SemiJoin(Expression):
    """Whether a subquery of constants finds anything for these keys, which its ``columns`` are to be equal to."""

    keys: tuple[Expression, ...]
    columns: tuple[exp.Expr, ...]
    items: tuple[Item, ...]
    conditions: tuple[exp.Expr, ...]

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.keys

    def with_children(self, change: Callable[[Expression], Expression]) -> Expression:
        return replace(self, keys=tuple(map(change, self.keys)))


def unnested(flat: QueryBlock, views: Views, catalog: Catalog) -> list[QueryBlock]:
    """A CHECK of rows as one or several without subqueries; the same query where there are none."""
    parts = [*flat.predicates, *([flat.demand] if flat.demand is not None else [])]
    if flat.demand is None or not any(_subqueries(part) for part in parts):
        return [flat]
    if flat.keys:
        return [looked_up(flat, views)]
    if flat.keys is not None:
        found = unnested_aggregate(flat, views, catalog)
        return [_over_all(found) if found.nested else found]
    demands = flat.demand.operands if isinstance(flat.demand, Conjunction) else (flat.demand,)
    return [_Unnesting(flat, views, catalog).query(demand) for demand in demands]


def unnested_aggregate(flat: QueryBlock, views: Views, catalog: Catalog) -> QueryBlock:
    """The same of an objective over rows, or of what is asked of all of them together."""
    found = looked_up(flat, views)
    parts = [*found.predicates, *([found.demand] if found.demand is not None else [])]
    if found.keys or found.demand is None or not any(_subqueries(part) for part in parts):
        return found
    return _Unnesting(found, views, catalog).aggregate()


def _over_all(found: QueryBlock) -> QueryBlock:
    """A check of all groups together as one of rows: how many there are in which something is found."""
    around = replace(
        found, items=(), predicates=(), keys=(), group_gates=(), nested=False, outputs={}, groups=None
    )
    return regrouped(around, replace(found, nested=False, outputs={}, demand=None))


def looked_up(flat: QueryBlock, views: Views) -> QueryBlock:
    """A query with subqueries of constants as lookups."""
    demand = None if flat.demand is None else _looked_up(flat.demand, views)
    return replace(flat, predicates=tuple(_looked_up(part, views) for part in flat.predicates), demand=demand)


def _subqueries(part: Expression) -> list[Subquery]:
    return [node for node in part.walk() if isinstance(node, Subquery)]


@dataclass(slots=True)
class _Unnesting:
    """One check; used once."""

    flat: QueryBlock
    views: Views
    catalog: Catalog
    items: list[Item] = field(default_factory=list)
    predicates: list[Expression] = field(default_factory=list)
    groups: bool = False
    """Whether the rows around are groups now."""
    joins: bool = False
    """Whether rows that a subquery finds were joined."""
    number: int = 0

    def query(self, demand: Expression) -> QueryBlock:
        """The check without its subqueries, as far as they can go."""
        flat = self.flat
        gates: list[Expression] = []
        predicates: list[Expression] = []
        for predicate in flat.predicates:
            if any(one.kind is SubqueryKind.VALUE for one in _subqueries(predicate)):
                gates.append(predicate)
            else:
                predicates.extend(self._found(predicate))
        check = self._refuted(gated(gates, demand))
        if not _only_compared(check):
            raise NotAnAssignment("a scalar subquery that is more than compared")
        asked = self._asked_of_choices(check, predicates)
        if asked is not None:
            return asked
        (around,) = self._scalars_replaced([check])
        return self._around(predicates, (), around)

    def aggregate(self) -> QueryBlock:
        """The query with what subqueries find as conditions of groups, and what they select as their aggregates."""
        flat = self.flat
        assert flat.demand is not None
        gates: list[Expression] = []
        predicates: list[Expression] = []
        for predicate in flat.predicates:
            part = _counted(_looked_up(predicate, self.views))
            (gates if _subqueries(part) else predicates).append(part)
        demand = _counted_in_filters(_looked_up(flat.demand, self.views))
        *gates, demand = self._scalars_replaced([*gates, demand])
        if not self.groups and (gates or not _is_sum(flat)):
            raise NotAnAssignment("a scalar subquery that is not summed up")
        return self._around(predicates, gates, demand)

    def _around(
        self, predicates: Sequence[Expression], gates: Sequence[Expression], around: Expression
    ) -> QueryBlock:
        """The query with what was joined; its rows are groups where that was aggregated."""
        flat = self.flat
        if not self.groups:
            return replace(
                flat,
                items=(*flat.items, *self.items),
                predicates=(*predicates, *self.predicates),
                demand=around,
            )
        if self.joins or any(not isinstance(part, DatabasePart) for part in predicates):
            raise NotAnAssignment("rows of choices with a subquery over choices")
        if flat.group_gates:
            raise NotAnAssignment("HAVING around a subquery over choices")
        counting = Statement()
        for predicate in predicates:
            assert isinstance(predicate, DatabasePart)
            counting.require(predicate.tree)
        return replace(
            flat,
            items=(*flat.items, *self.items),
            predicates=(*predicates, *self.predicates),
            keys=tuple(self._keys(around)),
            group_gates=tuple(gates),
            nested=flat.keys is not None,
            demand=around,
            groups=counting.select("count(*)", flat.items),
        )

    def _keys(self, demand: Expression) -> Iterable[DatabasePart]:
        for item in self.flat.items:
            names = item.relation.key or tuple(column.name for column in item.relation.columns)
            for name in names:
                column = item.relation.find(name)
                if column is None or column.symbolic:
                    raise NotAnAssignment("rows without a constant key around a subquery")
                source = exp.to_identifier(item.alias, quoted=True)
                tree = exp.column(exp.to_identifier(name, quoted=True), table=source)
                yield DatabasePart(column.type, demand.position, tree)

    # ---- what finds rows ----------------------------------------------------------------------------

    def _found(self, predicate: Expression) -> Iterable[Expression]:
        """What is left of a condition: of one that something is found, what it is found by."""
        if isinstance(predicate, Subquery) and predicate.kind in {SubqueryKind.EXISTS, SubqueryKind.ANY}:
            compared = self._joined(predicate)
            return [] if compared is None else [compared]
        return [_looked_up(predicate, self.views)]

    def _refuted(self, check: Expression) -> Expression:
        """The check, with what nothing may be found by in place of a subquery that must find nothing."""
        if isinstance(check, Disjunction):
            return check.with_children(self._refuted)
        if isinstance(check, Negation) and isinstance(check.operand, Subquery):
            subquery = check.operand
            if subquery.kind is SubqueryKind.EXISTS:
                self._joined(subquery)
                return DatabasePart(SqlType.BOOLEAN, check.position, exp.false())
            if subquery.kind is SubqueryKind.ANY:
                compared = self._joined(subquery)
                assert compared is not None
                return Negation(SqlType.BOOLEAN, check.position, compared)
        if isinstance(check, Subquery) and check.kind is SubqueryKind.ALL:
            compared = self._joined(check)
            assert compared is not None
            return compared
        return _counted(_looked_up(check, self.views), self.flat.items)

    def _joined(self, subquery: Subquery) -> Expression | None:
        """Join what a subquery selects; what its operands are compared with, None for EXISTS."""
        inner = self._inside(subquery)
        if inner.keys is not None:
            raise NotAnAssignment("a subquery over groups")
        self.items.extend(inner.items)
        self.predicates.extend(inner.predicates)
        self.joins = True
        if subquery.kind is SubqueryKind.EXISTS:
            return None
        outputs = list(inner.outputs.values())
        compared = tuple(
            Comparison(SqlType.BOOLEAN, subquery.position, operand, output, subquery.operator)
            for operand, output in zip(subquery.operands, outputs, strict=True)
        )
        if len(compared) == 1:
            return compared[0]
        if subquery.operator != "=":
            raise NotAnAssignment("rows compared with a subquery")
        return Conjunction(SqlType.BOOLEAN, subquery.position, compared)

    def _inside(self, subquery: Subquery) -> QueryBlock:
        known = {item.alias for item in self.flat.items}
        if not {alias for alias, _ in subquery.names} <= known:
            raise NotAnAssignment("a subquery that refers to a view around it")
        self.number += 1
        return renamed(self.views.flatten(subquery.query), f"{_PREFIX} {self.number}")

    # ---- what finds one value -----------------------------------------------------------------------

    def _asked_of_choices(self, check: Expression, predicates: Sequence[Expression]) -> QueryBlock | None:
        """The check of groups, where rows that choose ask what is where they are."""
        scalars = [one for one in _subqueries(check) if one.kind is SubqueryKind.VALUE]
        inner = [self._inside(scalar) for scalar in scalars]
        if not asks_of_choices(self.flat, [*predicates, *(part for one in inner for part in one.predicates)]):
            return None
        if not any(one.keys == () for one in inner) or self.joins:
            return None
        groups = OwnGroups.of(self.flat, predicates, inner, self.catalog)
        outputs = {id(scalar): groups.output(found) for scalar, found in zip(scalars, inner, strict=True)}
        return groups.query(replaced(check, outputs))

    def _scalars_replaced(self, parts: Sequence[Expression]) -> list[Expression]:
        scalars = [one for part in parts for one in _subqueries(part) if one.kind is SubqueryKind.VALUE]
        if not scalars:
            return list(parts)
        inner = [self._inside(scalar) for scalar in scalars]
        grouped = [one.keys is not None for one in inner]
        if any(grouped) and (not all(grouped) or any(one.keys for one in inner)):
            raise NotAnAssignment("a scalar subquery over groups beside another")
        if any(grouped) and len({_signature(one) for one in inner}) > 1:
            raise NotAnAssignment("several scalar subqueries over different rows")
        if not all(scalar.single for scalar in scalars):
            raise NotAnAssignment("a scalar subquery that may find several rows")
        self.groups = any(grouped)
        outputs: dict[int, Expression] = {}
        for number, (scalar, found) in enumerate(zip(scalars, inner, strict=True), 1):
            (output,) = found.outputs.values()
            if number == 1 or not self.groups:
                self.items.extend(found.items)
                self.predicates.extend(found.predicates)
            elif self.groups:
                pairs = zip(found.items, inner[0].items, strict=True)
                output = realiased(output, {own.alias: first.alias for own, first in pairs})
            outputs[id(scalar)] = output
        return [replaced(part, outputs) for part in parts]


def _counted(part: Expression, around: Sequence[Item] | None = None) -> Expression:
    """EXISTS of rows that the solver decides on as a count of them, and so IN where UNKNOWN is as good as FALSE.

    That is so in a condition; in a check, whose sources are those ``around``, where nothing compared is ever NULL.
    """
    if not isinstance(part, Subquery):
        return part.with_children(lambda child: _counted(child, around)) if _subqueries(part) else part
    is_in = (part.kind, part.operator, part.query.keys) == (SubqueryKind.ANY, "=", None)
    if is_in and (around is None or _never_null(part, around)):
        equal = [
            Comparison(SqlType.BOOLEAN, part.position, operand, output.expression, "=")
            for operand, output in zip(part.operands, part.query.outputs, strict=True)
        ]
        predicates = (*part.query.predicates, *(Predicate(exp.true(), one, True) for one in equal))
        part = replace(part, kind=SubqueryKind.EXISTS, query=replace(part.query, predicates=predicates))
    if part.kind is not SubqueryKind.EXISTS:
        return part
    kind, position = SqlType.INTEGER, part.position
    count = Output(
        "count", exp.Count(this=exp.Star()), Aggregate(kind, position, AggregateFunction.COUNT, None, None)
    )
    query = replace(part.query, keys=(), outputs=(count,))
    number = replace(part, type=kind, kind=SubqueryKind.VALUE, query=query, single=True)
    return Comparison(SqlType.BOOLEAN, position, number, Constant(kind, position, 1), ">=")


def _counted_in_filters(part: Expression) -> Expression:
    """The same in the conditions of aggregates."""
    if isinstance(part, Aggregate) and part.condition is not None:
        return replace(part, condition=_counted(part.condition))
    return part.with_children(_counted_in_filters) if _subqueries(part) else part


def _never_null(part: Subquery, around: Sequence[Item]) -> bool:
    """Whether IN compares constants none of which can be NULL."""
    inside = [Item(source.alias.lower(), source.relation, None) for source in part.query.sources]
    compared = (*part.operands, *(output.expression for output in part.query.outputs))
    return not any(
        not isinstance(one, DatabasePart) or may_be_null(one.tree, (*inside, *around)) for one in compared
    )


def _is_sum(flat: QueryBlock) -> bool:
    """Whether an objective is a sum of numbers, to which what is NULL adds nothing."""
    demand = flat.demand
    if flat.keys == () and isinstance(demand, Aggregate):
        plain = demand.function is AggregateFunction.SUM and demand.condition is None
        return plain and demand.operand is not None and _is_number(demand.operand)
    return flat.keys is None and demand is not None and _is_number(demand)


def _signature(flat: QueryBlock) -> tuple[object, ...]:
    """The same for queries of the same rows, whatever they select."""
    items = tuple((_own_name(item.alias), item.relation.name.lower()) for item in flat.items)
    if any(item.on is not None for item in flat.items) or flat.group_gates:
        raise NotAnAssignment("an outer join or HAVING in a scalar subquery")
    names = {item.alias: _own_name(item.alias) for item in flat.items}
    return items, tuple(signature(realiased(part, names)) for part in flat.predicates)


def _own_name(alias: str) -> str:
    """What a source is called in its subquery."""
    return alias.partition(".")[2]


def _only_compared(check: Expression) -> bool:
    """Whether scalar subqueries stand in comparisons alone, none of which is joined with others by AND."""
    if isinstance(check, (Disjunction, Negation)):
        return all(map(_only_compared, check.children))
    if not any(one.kind is SubqueryKind.VALUE for one in _subqueries(check)):
        return True
    return isinstance(check, Comparison) and not check.null_safe and all(map(_is_number, check.children))


def _is_number(part: Expression) -> bool:
    if isinstance(part, Arithmetic):
        return all(map(_is_number, part.children))
    return isinstance(part, Subquery) or not _subqueries(part)


# ---- lookups ------------------------------------------------------------------------------------------------


def _looked_up(part: Expression, views: Views) -> Expression:
    """An expression with subqueries of constants as lookups."""
    if not isinstance(part, Subquery):
        return part.with_children(lambda child: _looked_up(child, views)) if _subqueries(part) else part
    if part.kind is SubqueryKind.EXISTS:
        return _found(part, views) or part
    if (part.kind, part.operator) == (SubqueryKind.ANY, "="):
        return _member(part, views) or part
    if (part.kind, part.operator) == (SubqueryKind.ALL, "<>"):
        member = _member(part, views)
        return part if member is None else Negation(SqlType.BOOLEAN, part.position, member)
    return part


def looked_up_inside(part: DatabasePart, catalog: Catalog) -> Expression | None:
    """EXISTS or IN of constants that are told by rows and by values, as a lookup; None when it is something else."""
    tree = part.tree.unalias().unnest()
    if isinstance(tree, exp.Not):
        inner = looked_up_inside(replace(part, tree=tree.this), catalog)
        return None if inner is None else Negation(SqlType.BOOLEAN, part.position, inner)
    query = (
        tree.args.get("query")
        if isinstance(tree, exp.In)
        else tree.this
        if isinstance(tree, exp.Exists)
        else None
    )
    select = query.unnest() if isinstance(query, exp.Expr) else None
    subquery = _of_one_table(part, select, catalog) if isinstance(select, exp.Select) else None
    if subquery is None:
        return None
    if isinstance(tree, exp.In):
        compared = tree.this.expressions if isinstance(tree.this, exp.Tuple) else [tree.this]
        operands = tuple(DatabasePart(SqlType.UNKNOWN, part.position, one) for one in compared)
        subquery = replace(subquery, kind=SubqueryKind.ANY, operands=operands)
    found = _looked_up(subquery, Views())
    return None if isinstance(found, Subquery) else found


def _of_one_table(part: DatabasePart, select: exp.Select, catalog: Catalog) -> Subquery | None:
    """EXISTS of a SELECT of one table with no more than conditions."""
    item = select.args["from_"].this if select.args.get("from_") else None
    relation = catalog.find(item.name) if isinstance(item, exp.Table) else None
    plain = {name for name, given in select.args.items() if given} <= {
        "expressions",
        "from_",
        "where",
        "kind",
    }
    if item is None or relation is None or relation.symbolic or not plain:
        return None
    where = select.args.get("where")
    conditions: list[exp.Expr] = []
    if where is not None:
        conditions = list(where.this.flatten()) if isinstance(where.this, exp.And) else [where.this]

    def constant(tree: exp.Expr) -> DatabasePart:
        return DatabasePart(SqlType.UNKNOWN, part.position, tree)

    query = BoundQuery(
        "subquery",
        part.position,
        (Source(item.alias_or_name.lower(), relation),),
        exp.Select(from_=select.args["from_"].copy()),
        tuple(Predicate(one, constant(one), False) for one in conditions),
        None,
        None,
        tuple(Output(str(at), one, constant(one.unalias())) for at, one in enumerate(select.expressions)),
        None,
        False,
    )
    return Subquery(SqlType.BOOLEAN, part.position, SubqueryKind.EXISTS, "=", (), (), (), (), query, False)


def _member(part: Subquery, views: Views) -> Expression | None:
    """IN: TRUE where it is found, else UNKNOWN where NULL stands for whatever a row would differ in."""
    found = _found(part, views)
    if found is None:
        return None
    kind, position, width = SqlType.BOOLEAN, part.position, len(part.operands)
    outputs = found.columns[:width]
    ways = [
        ("equal", "null here", "null there") if may_be_null(one, found.items) else ("equal", "null here")
        for one in outputs
    ]
    unknown: list[Expression] = []
    for way in islice(product(*ways), 1, None):
        equal = [at for at in range(width) if way[at] == "equal"]
        there = [
            exp.Is(this=outputs[at].copy(), expression=exp.null())
            for at in range(width)
            if way[at] == "null there"
        ]
        row = replace(
            found,
            keys=(*(found.keys[at] for at in equal), *found.keys[width:]),
            columns=(*(found.columns[at] for at in equal), *found.columns[width:]),
            conditions=(*found.conditions, *there),
        )
        here = (NullTest(kind, position, part.operands[at]) for at in range(width) if way[at] == "null here")
        unknown.append(Conjunction(kind, position, (row, *here)))
    maybe = Conjunction(
        kind, position, (Disjunction(kind, position, tuple(unknown)), Unknown(kind, position))
    )
    return Disjunction(kind, position, (found, maybe))


def _found(part: Subquery, views: Views) -> SemiJoin | None:
    """Whether a subquery of constants finds anything; None when the solver has a say in it."""
    inner = renamed(views.flatten(part.query), f"{_PREFIX} found")
    own = {item.alias for item in inner.items}
    if inner.keys is not None or any(item.on is not None for item in inner.items):
        return None
    keys: list[Expression] = list(part.operands)
    columns: list[exp.Expr] = []
    for _, output in zip(part.operands, inner.outputs.values(), strict=False):
        if not isinstance(output, DatabasePart):
            return None
        columns.append(output.tree.unalias())
    conditions: list[exp.Expr] = []
    for predicate in inner.predicates:
        if isinstance(predicate, DatabasePart) and aliases_of(predicate.tree) <= own:
            conditions.append(predicate.tree)
            continue
        pair = _equal(predicate, own)
        if pair is None:
            return None
        columns.append(pair[0])
        keys.append(pair[1])
    return SemiJoin(
        SqlType.BOOLEAN, part.position, tuple(keys), tuple(columns), inner.items, tuple(conditions)
    )


def _equal(predicate: Expression, own: set[str]) -> tuple[exp.Expr, Expression] | None:
    """What of the subquery is equal to what around it."""
    for inner, outer in compared_sides(predicate, "="):
        if isinstance(inner, DatabasePart) and aliases_of(inner.tree) <= own and _is_outside(outer, own):
            return inner.tree.unalias(), outer
    return None


def _is_outside(part: Expression, own: set[str]) -> bool:
    if isinstance(part, Cell):
        return part.source.lower() not in own
    return isinstance(part, DatabasePart) and not aliases_of(part.tree) & own
