"""View merging: one query of a constraint and all the views it uses, with the views in place of their names.

What comes out speaks of base tables and of views that the database computes alone.  A view that groups becomes the
grouping of the whole; what else is joined to it belongs to its groups.

A LEFT JOIN in which the solver has a say is a union of the pairs and of rows with NULL in place of a partner
(``mgmt.language.normalization.outer_joins``).  Under GROUP BY, where only what it finds counts, it is the inner join,
if every group is there:

    FROM host LEFT JOIN pod ON pod.controllable__host = host.name GROUP BY host.name, host.cpu
    CHECK coalesce(sum(pod.cpu), 0) <= host.cpu

``count(*)`` counts a row without a partner, so that goes cell by cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from mgmt.compiler.assignments.normalization.block import (
    QueryBlock,
    aliases_of,
    outer_columns,
    realiased,
    realiased_tree,
)
from mgmt.compiler.assignments.normalization.expressions import Constant, WindowMinimum
from mgmt.compiler.assignments.normalization.regrouping import of_each_group, regrouped
from mgmt.compiler.assignments.normalization.select import Item, Select, Statement
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.compiler.relational.split import SplitQuery
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    AggregateFunction,
    Arithmetic,
    Cell,
    Comparison,
    DatabasePart,
    Expression,
    MembershipQuery,
    has_aggregate,
    has_variable,
)
from mgmt.language.bound_queries.queries import BoundQuery, Output, PushedView, UnionView
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

    def flatten(self, query: BoundQuery) -> QueryBlock:
        """Put the views in.  NotAnAssignment where that would need more than substitution."""
        items: list[Item] = []
        predicates: list[Expression] = []
        substitution: dict[str, Mapping[str, Expression]] = {}
        grouped: QueryBlock | None = None
        counting: Select | None = None
        for alias, on in joins_of(query):
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
                raise NotAnAssignment("an outer join with a view over variables")
            inner = renamed(self.flatten(view), alias)
            substitution[alias] = inner.outputs
            if inner.keys is None:
                items.extend(inner.items)
                predicates.extend(inner.predicates)
            elif grouped is not None:
                raise NotAnAssignment("two grouped views in one query")
            else:
                grouped = inner
        demand = () if query.demand is None else query.demand.expression.walk()
        if any(isinstance(node, WindowMinimum) for node in demand) and (
            grouped is None or grouped.group_gates or grouped.one_row_per_group
        ):
            raise NotAnAssignment("groups of groups")
        if any(item.on is not None and _refers(item.on, substitution) for item in items):
            raise NotAnAssignment("an outer join on columns of a view over variables")
        predicates.extend(substituted(predicate.expression, substitution) for predicate in query.predicates)
        flat = QueryBlock(
            tuple(items),
            tuple(predicates),
            None
            if query.keys is None
            else tuple(_constant(substituted(key, substitution), "GROUP BY it") for key in query.keys),
            () if query.having is None else (substituted(query.having.expression, substitution),),
            query.strict_groups,
            False,
            {o.name.lower(): substituted(o.expression, substitution) for o in query.outputs},
            None if query.demand is None else substituted(query.demand.expression, substitution),
            groups=counting,
        )
        for table in self._tables(flat):
            if table.lower() in self.unavailable:
                raise NotAnAssignment(f"a subquery over {table}, which is computed from variables")
        return flat if grouped is None else _over_groups(flat, grouped)

    def _is_left_join(self, name: str) -> bool:
        """Whether a relation is the union that a LEFT JOIN in which the solver has a say was made."""
        parts = self.unions.get(name, ())
        return "__join_" in name and len(parts) == 2 and all(part in self.queries for part in parts)

    def _groups(self, query: BoundQuery, alias: str, alone: QueryBlock) -> Select:
        """A statement that counts the groups of a LEFT JOIN's rows, with and without a partner."""
        statement = Statement()
        around = {alias: alone.outputs}
        wheres = [substituted(predicate.expression, around) for predicate in query.predicates]
        for part in (*alone.predicates, *wheres):
            if isinstance(part, DatabasePart):
                statement.require(part.tree)
        for key in query.keys or ():
            statement.slot(_constant(substituted(key, around), "GROUP BY it").tree)
        rows = statement.select(None, alone.items, distinct=True)
        return rows._replace(sql=f"SELECT count(*) FROM ({rows.sql})")

    def _tables(self, flat: QueryBlock) -> Iterable[str]:
        yield from (item.relation.name for item in flat.items)
        parts = [*flat.predicates, *(flat.keys or ()), *flat.group_gates, *flat.outputs.values()]
        for part in (*parts, *([flat.demand] if flat.demand is not None else [])):
            for node in part.walk():
                if isinstance(node, (DatabasePart, MembershipQuery)):
                    yield from (table.name for table in node.tree.find_all(exp.Table))


def _over_groups(outer: QueryBlock, inner: QueryBlock) -> QueryBlock:
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
        raise NotAnAssignment("groups of groups")
    rows = list(inner.predicates)
    gates = list(inner.group_gates)
    for predicate in outer.predicates:
        if has_aggregate(predicate):
            gates.append(predicate)
        elif has_variable(predicate):
            raise NotAnAssignment("a condition on variables over a grouped view")
        else:
            rows.append(predicate)
    extras = tuple(item.alias for item in outer.items)
    if any(item.on is not None for item in outer.items):
        raise NotAnAssignment("an outer join over a grouped view")
    return replace(
        outer,
        items=(*inner.items, *outer.items),
        predicates=tuple(rows),
        keys=inner.keys,
        group_gates=tuple(gates),
        nested=outer.keys is not None,
        one_row_per_group=(*inner.one_row_per_group, *extras),
    )


def joins_of(query: BoundQuery) -> list[tuple[str, exp.Expr | None]]:
    """Alias and, for a LEFT JOIN, condition of each entry of FROM."""
    found: list[tuple[str, exp.Expr | None]] = []
    start = query.skeleton.args.get("from_")
    if start is not None:
        found.append((start.this.alias_or_name.lower(), None))
    for join in query.skeleton.args.get("joins") or ():
        side = str(join.args.get("side") or "").upper()
        if side not in {"", "LEFT"} or join.args.get("using"):
            raise NotAnAssignment(f"a {side} join")
        found.append((join.this.alias_or_name.lower(), join.args.get("on") if side else None))
    if len(found) != len(query.sources):
        raise NotAnAssignment("an unusual FROM")
    return found


def _refers(tree: exp.Expr, substitution: Mapping[str, object]) -> bool:
    return bool(aliases_of(tree) & set(substitution))


def _constant(expression: Expression, what: str) -> DatabasePart:
    if not isinstance(expression, DatabasePart):
        raise NotAnAssignment(f"a view's column over variables where only constants can stand: {what}")
    return expression


def substituted(expression: Expression, columns: Mapping[str, Mapping[str, Expression]]) -> Expression:
    """An expression with columns of inlined views replaced by what they stand for."""
    if not columns:
        return expression
    if isinstance(expression, Cell):
        view = columns.get(expression.source.lower())
        return expression if view is None else view[expression.column.lower()]
    if isinstance(expression, DatabasePart):
        return replace(expression, tree=_substituted_tree(expression.tree, columns))
    return expression.with_children(lambda child: substituted(child, columns))


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


def renamed(flat: QueryBlock, prefix: str) -> QueryBlock:
    """The same query with its aliases prefixed, so that they clash with nothing outside."""
    names = {item.alias: f"{prefix}.{item.alias}" for item in flat.items}

    def all_of(parts: Iterable[Expression]) -> tuple[Expression, ...]:
        return tuple(realiased(part, names) for part in parts)

    keys = flat.keys and tuple(replace(key, tree=realiased_tree(key.tree, names)) for key in flat.keys)
    return replace(
        flat,
        items=tuple(
            Item(
                names[item.alias], item.relation, None if item.on is None else realiased_tree(item.on, names)
            )
            for item in flat.items
        ),
        predicates=all_of(flat.predicates),
        keys=keys,
        group_gates=all_of(flat.group_gates),
        outputs={name: realiased(expression, names) for name, expression in flat.outputs.items()},
        one_row_per_group=tuple(names[alias] for alias in flat.one_row_per_group),
    )


_NOT_STRICT = (
    exp.Coalesce,
    exp.Case,
    exp.If,
    exp.Is,
    exp.And,
    exp.Or,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    exp.Anonymous,
)


def missing_columns(alone: BoundQuery) -> frozenset[str]:
    """The columns that are NULL in rows without a partner, in lower case."""
    return frozenset(output.name.lower() for output in alone.outputs if _is_null(output))


def _is_null(output: Output) -> bool:
    part = output.expression
    return isinstance(part, DatabasePart) and isinstance(part.tree.unalias().unnest(), exp.Null)


def require_strict(query: BoundQuery, alias: str, missing: frozenset[str]) -> None:
    """NotAnAssignment where rows without a partner would count in an aggregate, or be a condition."""
    if query.keys is None:
        raise NotAnAssignment("an outer join over choices that is not grouped")
    constants = [part.expression for part in query.predicates]
    if any(_names(part, alias, missing) for part in (*query.keys, *constants)):
        raise NotAnAssignment("an outer join over choices whose rows are told apart by what it finds")
    parts = query.expressions[len(query.predicates) :]
    for part in parts:
        for node in part.walk():
            if isinstance(node, Aggregate) and not (
                node.operand is not None and _is_strict(node.operand, alias, missing)
            ):
                raise NotAnAssignment("an aggregate that counts what an outer join does not find")


def _names(part: Expression, alias: str, missing: frozenset[str]) -> bool:
    return any(column in missing for node in part.walk() for column in _columns(node, alias))


def _columns(node: Expression, alias: str) -> Iterable[str]:
    if isinstance(node, Cell) and node.source.lower() == alias:
        yield node.column.lower()
    elif isinstance(node, DatabasePart):
        for column in node.tree.find_all(exp.Column):
            if column.table.lower() == alias:
                yield column.name.lower()


def _is_strict(operand: Expression, alias: str, missing: frozenset[str]) -> bool:
    """Whether it is NULL where the missing columns are."""
    if isinstance(operand, (Arithmetic, Comparison)):
        return any(_is_strict(child, alias, missing) for child in operand.children)
    if isinstance(operand, DatabasePart) and operand.tree.find(*_NOT_STRICT):
        return False
    return isinstance(operand, (Cell, DatabasePart)) and _names(operand, alias, missing)
