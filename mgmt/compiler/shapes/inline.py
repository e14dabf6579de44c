"""One query of a constraint and all the views it uses: views are put in place of their names.

What comes out speaks of base tables and of views that the database computes alone.  A view that groups becomes the
grouping of the whole; what else is joined to it belongs to its groups.

What it is not: it decides nothing about shapes (see ``recognise``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from mgmt.compiler.relational.split import SplitQuery
from mgmt.compiler.shapes.aliases import aliases_of, outer_columns
from mgmt.compiler.shapes.flat_query import FlatQuery
from mgmt.compiler.shapes.least import minima_in
from mgmt.compiler.shapes.left_join import missing_columns, require_strict
from mgmt.compiler.shapes.regrouping import of_each_group, regrouped
from mgmt.compiler.shapes.slots import Constant
from mgmt.compiler.shapes.statements import Item, Statement
from mgmt.compiler.shapes.vectors import OtherShape
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    AggregateFunction,
    Cell,
    Comparison,
    DatabasePart,
    Expression,
    MembershipQuery,
    has_aggregate,
    has_variable,
)
from mgmt.language.bound_queries.queries import BoundQuery, PushedView, Subquery, UnionView
from mgmt.source_text import Position
from mgmt.state.schema import SqlType

_NOWHERE = Position("", 1, 1)


@dataclass(slots=True)
class Views:
    """The views of a program by lower-case name, and which relations the database has without the solver."""

    queries: dict[str, BoundQuery] = field(default_factory=dict)
    unavailable: set[str] = field(default_factory=set)
    unions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Unions over variables, with the names of their parts."""

    @classmethod
    def of(cls, program: Iterable[PushedView | SplitQuery]) -> Views:
        views = cls()
        for step in program:
            if isinstance(step, UnionView):
                views.unions[step.name.lower()] = tuple(part.name.lower() for part in step.parts)
                views.unavailable.add(step.name.lower())
            elif isinstance(step, PushedView):
                if any(table.name.lower() in views.unavailable for table in step.tree.find_all(exp.Table)):
                    views.unavailable.add(step.name.lower())
            elif step.bound.demand is None:
                views.queries[step.name.lower()] = step.bound
                views.unavailable.add(step.name.lower())
        return views

    def flatten(self, query: BoundQuery) -> FlatQuery:
        """Put the views in.  OtherShape where that would need more than substitution."""
        items: list[Item] = []
        predicates: list[Expression] = []
        substitution: dict[str, Mapping[str, Expression]] = {}
        grouped: FlatQuery | None = None
        counting: tuple[str | None, tuple[str, ...]] = (None, ())
        minima = minima_in(query, self.queries)
        for alias, on in joins_of(query):
            if minima is not None and alias == minima.alias:
                continue
            relation = next(s.relation for s in query.sources if s.alias.lower() == alias)
            view = self.queries.get(relation.name.lower())
            if self._is_left_join(relation.name.lower()):
                pairs, alone = (self.queries[name] for name in self.unions[relation.name.lower()])
                require_strict(query, alias, missing_columns(alone))
                counting = self._groups(query, alias, self.flatten(alone))
                view = pairs
            if view is None:
                items.append(Item(alias, relation, on))
                continue
            if on is not None:
                raise OtherShape("an outer join with a view over variables")
            inner = renamed(self.flatten(view), alias)
            substitution[alias] = inner.outputs
            if inner.keys is None:
                items.extend(inner.items)
                predicates.extend(inner.predicates)
            elif grouped is not None:
                raise OtherShape("two grouped views in one query")
            else:
                grouped = inner
        wheres = query.predicates
        if minima is not None:
            if grouped is None or grouped.group_gates or grouped.one_row_per_group:
                raise OtherShape("groups of groups")
            groups = substitution[minima.groups]
            substitution[minima.alias] = minima.outputs(
                groups, lambda operand: _substituted(operand, {minima.inner: groups})
            )
            wheres = ()  # they say which groups are of one family, no more
        if any(item.on is not None and _refers(item.on, substitution) for item in items):
            raise OtherShape("an outer join on columns of a view over variables")
        predicates.extend(_substituted(predicate.expression, substitution) for predicate in wheres)
        flat = FlatQuery(
            tuple(items),
            tuple(predicates),
            query.keys
            and tuple(_constant(_substituted(key, substitution), "GROUP BY it") for key in query.keys),
            () if query.having is None else (_substituted(query.having.expression, substitution),),
            query.strict_groups,
            False,
            {o.name.lower(): _substituted(o.expression, substitution) for o in query.outputs},
            None if query.demand is None else _substituted(query.demand.expression, substitution),
            groups_sql=counting[0],
            groups_from=counting[1],
        )
        for table in self._tables(flat):
            if table.lower() in self.unavailable:
                raise OtherShape(f"a subquery over {table}, which is computed from variables")
        return flat if grouped is None else _over_groups(flat, grouped)

    def _is_left_join(self, name: str) -> bool:
        """Whether a relation is the union that a LEFT JOIN in which the solver has a say was made."""
        parts = self.unions.get(name, ())
        return "__join_" in name and len(parts) == 2 and all(part in self.queries for part in parts)

    def _groups(self, query: BoundQuery, alias: str, alone: FlatQuery) -> tuple[str, tuple[str, ...]]:
        """A statement that counts the groups of a LEFT JOIN's rows, with and without a partner, and what it reads."""
        statement = Statement()
        around = {alias: alone.outputs}
        wheres = [_substituted(predicate.expression, around) for predicate in query.predicates]
        for part in (*alone.predicates, *wheres):
            if isinstance(part, DatabasePart):
                statement.require(part.tree)
        for key in query.keys or ():
            statement.slot(_constant(_substituted(key, around), "GROUP BY it").tree)
        rows = statement.sql(None, alone.items, distinct=True)
        return f"SELECT count(*) FROM ({rows})", statement.relations(alone.items)

    def _tables(self, flat: FlatQuery) -> Iterable[str]:
        yield from (item.relation.name for item in flat.items)
        parts = [*flat.predicates, *(flat.keys or ()), *flat.group_gates, *flat.outputs.values()]
        for part in (*parts, *([flat.demand] if flat.demand is not None else [])):
            for node in part.walk():
                if isinstance(node, (DatabasePart, MembershipQuery)):
                    yield from (table.name for table in node.tree.find_all(exp.Table))


def _over_groups(outer: FlatQuery, inner: FlatQuery) -> FlatQuery:
    """A query over a grouped view (and constants): one row per group and row of the constants."""
    if inner.strict:
        count = Aggregate(SqlType.INTEGER, _NOWHERE, AggregateFunction.COUNT, None, None)
        one = Constant(SqlType.INTEGER, _NOWHERE, 1)
        exists = Comparison(SqlType.BOOLEAN, _NOWHERE, count, one, ">=")
        inner = replace(inner, strict=False, group_gates=(*inner.group_gates, exists))
    if inner.nested and outer.keys is None and not outer.items and not outer.predicates and not inner.strict:
        return replace(
            inner, outputs=outer.outputs, demand=outer.demand
        )  # the one row of an aggregate of all
    is_check = outer.demand is not None and outer.demand.type is SqlType.BOOLEAN
    if outer.keys or (outer.keys == () and is_check):
        each = of_each_group(outer)
        return regrouped(outer, inner) if each is None else _over_groups(each, inner)
    if outer.strict or inner.strict or inner.nested or outer.group_gates:
        raise OtherShape("groups of groups")
    rows = list(inner.predicates)
    gates = list(inner.group_gates)
    for predicate in outer.predicates:
        if has_aggregate(predicate):
            gates.append(predicate)
        elif has_variable(predicate):
            raise OtherShape("a condition on variables over a grouped view")
        else:
            rows.append(predicate)
    extras = tuple(item.alias for item in outer.items)
    if any(item.on is not None for item in outer.items):
        raise OtherShape("an outer join over a grouped view")
    return replace(
        outer,
        items=(*inner.items, *outer.items),
        predicates=tuple(rows),
        keys=inner.keys,
        group_gates=tuple(gates),
        nested=outer.keys is not None,
        one_row_per_group=(*inner.one_row_per_group, *extras),
    )


def _renamed_around(
    subquery: Expression,
    names: Mapping[str, str],
    tree_of: Callable[[exp.Expr], exp.Expr],
    part_of: Callable[[Expression], Expression],
) -> Subquery:
    """A subquery with other aliases around it; those of its own sources stay, and hide ones of the same name."""
    assert isinstance(subquery, Subquery)
    query = subquery.query
    if {source.alias.lower() for source in query.sources} & set(names):
        raise OtherShape("a subquery with aliases of the query around it")
    predicates = tuple(
        replace(one, tree=tree_of(one.tree), expression=part_of(one.expression)) for one in query.predicates
    )
    outputs = tuple(
        replace(one, tree=tree_of(one.tree), expression=part_of(one.expression)) for one in query.outputs
    )
    around = tuple((names.get(alias, alias), column) for alias, column in subquery.names)
    return replace(subquery, names=around, query=replace(query, predicates=predicates, outputs=outputs))


def joins_of(query: BoundQuery) -> list[tuple[str, exp.Expr | None]]:
    """Alias and, for a LEFT JOIN, condition of each entry of FROM."""
    found: list[tuple[str, exp.Expr | None]] = []
    start = query.skeleton.args.get("from_")
    if start is not None:
        found.append((start.this.alias_or_name.lower(), None))
    for join in query.skeleton.args.get("joins") or ():
        side = str(join.args.get("side") or "").upper()
        if side not in {"", "LEFT"} or join.args.get("using"):
            raise OtherShape(f"a {side} join")
        found.append((join.this.alias_or_name.lower(), join.args.get("on") if side else None))
    if len(found) != len(query.sources):
        raise OtherShape("an unusual FROM")
    return found


def _refers(tree: exp.Expr, substitution: Mapping[str, object]) -> bool:
    return bool(aliases_of(tree) & set(substitution))


def _constant(expression: Expression, what: str) -> DatabasePart:
    if not isinstance(expression, DatabasePart):
        raise OtherShape(f"a view's column over variables where only constants can stand: {what}")
    return expression


def _substituted(expression: Expression, columns: Mapping[str, Mapping[str, Expression]]) -> Expression:
    """An expression with columns of inlined views replaced by what they stand for."""
    if not columns:
        return expression
    if isinstance(expression, Cell):
        view = columns.get(expression.source.lower())
        return expression if view is None else view[expression.column.lower()]
    if isinstance(expression, DatabasePart):
        return replace(expression, tree=_substituted_tree(expression.tree, columns))
    return expression.with_children(lambda child: _substituted(child, columns))


def _substituted_tree(tree: exp.Expr, columns: Mapping[str, Mapping[str, Expression]]) -> exp.Expr:
    if not aliases_of(tree) & set(columns):
        return tree
    holder = exp.Paren(this=tree.copy())
    for column in outer_columns(holder):
        view = columns.get(column.table.lower())
        if view is not None:
            meant = _constant(view[column.name.lower()], column.name).tree
            meant = meant.this if isinstance(meant, exp.Alias) else meant
            # A plain column stays one, so that what looks for equal columns finds it.
            column.replace(meant.copy() if isinstance(meant, exp.Column) else exp.Paren(this=meant.copy()))
    found: exp.Expr = holder.this
    return found


def renamed(flat: FlatQuery, prefix: str) -> FlatQuery:
    """The same query with its aliases prefixed, so that they clash with nothing outside."""
    names = {item.alias: f"{prefix}.{item.alias}" for item in flat.items}

    def tree_of(tree: exp.Expr) -> exp.Expr:
        holder = exp.Paren(this=tree.copy())
        for column in outer_columns(holder):
            if column.table.lower() in names:
                column.set("table", exp.to_identifier(names[column.table.lower()], quoted=True))
        found: exp.Expr = holder.this
        return found

    def part_of(expression: Expression) -> Expression:
        if isinstance(expression, Cell):
            return replace(expression, source=names.get(expression.source.lower(), expression.source))
        if isinstance(expression, DatabasePart):
            return replace(expression, tree=tree_of(expression.tree))
        if isinstance(expression, Subquery):
            return _renamed_around(expression.with_children(part_of), names, tree_of, part_of)
        return expression.with_children(part_of)

    def key_of(key: DatabasePart) -> DatabasePart:
        return replace(key, tree=tree_of(key.tree))

    return replace(
        flat,
        items=tuple(
            Item(names[item.alias], item.relation, None if item.on is None else tree_of(item.on))
            for item in flat.items
        ),
        predicates=tuple(map(part_of, flat.predicates)),
        keys=None if flat.keys is None else tuple(map(key_of, flat.keys)),
        group_gates=tuple(map(part_of, flat.group_gates)),
        outputs={name: part_of(expression) for name, expression in flat.outputs.items()},
        one_row_per_group=tuple(names[alias] for alias in flat.one_row_per_group),
    )
