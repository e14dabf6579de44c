"""Split: what the database computes, and what is left to the solver.

Each bound query becomes one SQL statement over its variable-free part (all joins on constants, all constant
predicates, every constant expression) and a list of solver expressions over the columns it returns.  The rows
of that statement are the candidates: their groups are the possible groups, and the solver's predicates decide
which of them exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from sqlglot import exp

from mgmt.compiler.relational.apart import Apart, Parts, apart
from mgmt.compiler.relational.lookups import Lookup, SubqueryWithLookups, with_lookups
from mgmt.compiler.relational.pushdown import standing_at
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    AggregateFunction,
    ComputedKey,
    DatabasePart,
    Expression,
    Fetched,
    SubqueryKind,
    negated,
)
from mgmt.language.bound_queries.queries import BoundQuery, Output, Subquery
from mgmt.language.names.catalog import Catalog
from mgmt.language.pushdown.column_types import EngineTypes
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.source_text import Position
from mgmt.state.schema import SqlType, quote


@dataclass(frozen=True, slots=True)
class SplitQuery:
    """One query, ready for data.

    ``sql`` returns first the row number of each source in ``symbolic_sources``, then the fetched columns.
    ``keys`` are slots of fetched columns, those of ``computed`` ones from the end.
    """

    bound: BoundQuery
    sql: str
    symbolic_sources: tuple[str, ...]
    gates: tuple[Expression, ...]
    keys: tuple[int, ...] | None
    having: Expression | None
    outputs: tuple[tuple[str, Expression], ...]
    demand: Expression | None
    fetched: int
    lookups: tuple[Lookup, ...] = ()
    """Sources that are attributes of choices, not rows of the statement."""
    computed: tuple[Expression, ...] = ()
    """What rows are grouped by that the solver decides; ``keys`` count them from the end."""
    apart: Apart | None = None
    """How its rows and the values that they choose are fetched each for themselves, where that is enough."""

    @property
    def name(self) -> str:
        return self.bound.name

    @property
    def position(self) -> Position:
        return self.bound.position


@dataclass(frozen=True, slots=True, eq=False)
class SplitSubquery(Subquery):
    """A subquery, ready for data.  Its SQL joins it with a table of the rows around it."""

    symbolic_sources: tuple[str, ...]
    gates: tuple[Expression, ...]
    keys: tuple[int, ...] | None
    computed: tuple[Expression, ...]
    having: Expression | None
    outputs: tuple[Expression, ...]
    fetched: int
    lookups: tuple[Lookup, ...]
    texts: tuple[str, ...]
    sources: str
    conditions: tuple[str, ...]
    apart: Apart | None

    def sql(self, table: str) -> str:
        """Returns the number of the row around it, that of each symbolic source's, and the columns.

        ``table`` has the columns ``p0``, ``p1``, ... for the parameters.
        """
        columns = [f"{quote(AROUND)}.rowid"]
        columns.extend(f"{quote(alias)}.rowid" for alias in self.symbolic_sources)
        columns.extend(self.texts)
        inner = f" CROSS JOIN {self.sources}" if self.sources else ""
        where = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        return f"SELECT {', '.join(columns)} FROM {table} AS {quote(AROUND)}{inner}{where}"


AROUND = "rows around"


class _Collector:
    """Gives each distinct constant expression a slot in the database's answer."""

    def __init__(self, rewrite: Callable[[exp.Expr], exp.Expr] = lambda tree: tree) -> None:
        self.texts: dict[str, int] = {}
        self.trees: list[exp.Expr] = []
        self._rewrite = rewrite

    def slot(self, tree: exp.Expr) -> int:
        rewritten = self._rewrite(tree)
        found = self.texts.setdefault(to_sql(rewritten), len(self.texts))
        if found == len(self.trees):
            self.trees.append(rewritten)
        return found

    def collect(self, expression: Expression) -> Expression:
        if isinstance(expression, Subquery):
            changed = expression.with_children(self.collect)
            assert isinstance(changed, Subquery)
            return _split_subquery(changed)
        if isinstance(expression, ComputedKey):
            return expression
        if isinstance(expression, DatabasePart):
            tree = expression.tree
            tree = tree.this if isinstance(tree, exp.Alias) else tree
            return Fetched(expression.type, expression.position, self.slot(tree))
        return expression.with_children(self.collect)


def split(bound: BoundQuery, catalog: Catalog, engine: EngineTypes) -> SplitQuery:
    """Separate one bound query."""
    with standing_at(bound.position):
        found = with_lookups(bound, catalog, engine)
        return replace(_split(found.query, apart_too=not found.lookups), bound=bound, lookups=found.lookups)


def _split(bound: BoundQuery, *, apart_too: bool) -> SplitQuery:
    collector = _Collector()
    gates = tuple(collector.collect(p.expression) for p in bound.predicates if p.by_solver)
    keys, computed = _keys(bound, collector)
    having = None if bound.having is None else collector.collect(bound.having.expression)
    demand = None if bound.demand is None else collector.collect(bound.demand.expression)
    wanted = bound.outputs
    if bound.demand is not None:
        # Only used to say which rows clash; what the solver decides is not needed for that.
        wanted = tuple(o for o in bound.outputs if isinstance(o.expression, DatabasePart))
        wanted = (*wanted, *_identity(bound, {output.name.lower() for output in wanted}))
    outputs = tuple((output.name, collector.collect(output.expression)) for output in wanted)
    forbids = _is_false(bound)
    if forbids and having is not None:  # what no group may be is demanded of none to be
        demand, having = negated(having), None
    symbolic = tuple(source.alias for source in bound.sources if source.relation.symbolic)
    parts = Parts(
        bound.sources,
        bound.skeleton,
        tuple(predicate.tree for predicate in bound.predicates if not predicate.by_solver),
        tuple(collector.trees),
        gates,
        keys,
        having,
        tuple(expression for _, expression in outputs),
        demand,
    )
    separated = apart(parts) if apart_too and not computed else None
    if forbids and keys is None and separated is None and len(gates) == 1:
        demand, gates = negated(gates[0]), ()
    return SplitQuery(
        bound,
        _database_sql(bound, symbolic, list(collector.texts)),
        symbolic,
        gates,
        keys,
        having,
        outputs,
        demand,
        len(collector.texts),
        computed=computed,
        apart=separated,
    )


def _is_false(bound: BoundQuery) -> bool:
    """Whether it demands what never holds: that there is no such row, or group."""
    demand = bound.demand
    return (
        demand is not None
        and not demand.is_objective
        and isinstance(demand.expression, DatabasePart)
        and isinstance(demand.expression.tree, exp.Boolean)
        and not demand.expression.tree.this
    )


def _keys(bound: BoundQuery, collector: _Collector) -> tuple[tuple[int, ...] | None, tuple[Expression, ...]]:
    """The places of the keys among the columns of the rows, and what is computed of them, which comes last."""
    if bound.keys is None:
        return None, ()
    places = tuple(
        key.place if isinstance(key, ComputedKey) else collector.slot(key.tree) for key in bound.keys
    )
    return places, tuple(collector.collect(key.operand) for key in bound.computed_keys)


def _identity(bound: BoundQuery, selected: set[str]) -> list[Output]:
    """What tells the rows of a constraint apart and is not selected: its group keys, or the keys of its tables."""
    parts: list[DatabasePart]
    if bound.keys is not None:
        parts = [key for key in bound.keys if isinstance(key, DatabasePart)]
    else:
        parts = []
        for source in bound.sources:
            for name in source.relation.key:
                column = source.relation.find(name)
                if column is not None and not column.symbolic:
                    tree = exp.column(name, source.alias, quoted=True)
                    parts.append(DatabasePart(column.type, bound.position, tree))
    known = {
        to_sql(output.expression.tree.unalias())
        for output in bound.outputs
        if isinstance(output.expression, DatabasePart)
    }
    found = []
    for part in parts:
        told: exp.Expr = bound.grouped_variables.get(part.tree) or part.tree
        name = told.name if isinstance(told, exp.Column) else told.sql()
        if name.lower() in selected and isinstance(told, exp.Column):
            name = f"{told.table}.{name}"
        if to_sql(part.tree) not in known and name.lower() not in selected:
            selected.add(name.lower())
            found.append(
                Output(name, exp.Alias(this=part.tree, alias=exp.to_identifier(name, quoted=True)), part)
            )
    return found


def _split_subquery(subquery: Subquery) -> SplitSubquery:
    query = subquery.query

    def rewrite(tree: exp.Expr) -> exp.Expr:
        return _in_terms_of_parameters(tree, subquery)

    collector = _Collector(rewrite)
    gates = tuple(collector.collect(p.expression) for p in query.predicates if p.by_solver)
    keys, computed = _keys(query, collector)
    having = None if query.having is None else collector.collect(query.having.expression)
    outputs = tuple(collector.collect(output.expression) for output in query.outputs)
    skeleton = rewrite(query.skeleton)
    assert isinstance(skeleton, exp.Select)
    parts: dict[str, Any] = {field.name: getattr(subquery, field.name) for field in fields(Subquery)}
    lookups = subquery.lookups if isinstance(subquery, SubqueryWithLookups) else ()
    conditions = tuple(rewrite(p.tree) for p in query.predicates if not p.by_solver)
    asked: tuple[Expression, ...] = outputs if query.keys == () else ()
    if subquery.kind is SubqueryKind.EXISTS and query.keys is None:  # whether there are any
        asked = (Aggregate(SqlType.INTEGER, subquery.position, AggregateFunction.COUNT, None, None),)
    plain = bool(asked) and having is None and not subquery.operands and not subquery.outer_cells
    around = Parts(
        query.sources,
        skeleton,
        conditions,
        tuple(collector.trees),
        gates,
        (),
        None,
        asked,
        None,
        around=AROUND,
        parameters=tuple(parameter.type for parameter in subquery.parameters),
    )
    return SplitSubquery(
        **parts,
        symbolic_sources=tuple(source.alias for source in query.sources if source.relation.symbolic),
        gates=gates,
        keys=keys,
        computed=computed,
        having=having,
        outputs=outputs,
        fetched=len(collector.texts),
        lookups=lookups,
        texts=tuple(collector.texts),
        sources=from_clause(replace(query, skeleton=skeleton))[len("FROM ") :],
        conditions=tuple(f"({to_sql(tree)})" for tree in conditions),
        apart=None if lookups or not plain else apart(around),
    )


def _in_terms_of_parameters(tree: exp.Expr, subquery: Subquery) -> exp.Expr:
    """The columns of the rows around a subquery as columns of the table of these rows."""
    holder = exp.Paren(this=tree.copy())
    for column in list(holder.find_all(exp.Column)):
        name = (column.table.lower(), column.name.lower())
        if name in subquery.names:
            number = subquery.names.index(name)
            column.replace(exp.column(f"p{number}", table=AROUND, quoted=True))
    found: exp.Expr = holder.this
    return found


def from_clause(bound: BoundQuery) -> str:
    """FROM and joins, without the conditions of inner joins."""
    text = to_sql(bound.skeleton)
    start = text.upper().find("FROM ")
    return text[start:] if start >= 0 else ""


def _database_sql(bound: BoundQuery, symbolic: Sequence[str], texts: list[str]) -> str:
    columns = [f"{quote(alias)}.rowid" for alias in symbolic]
    columns.extend(texts)
    conditions = [to_sql(p.tree) for p in bound.predicates if not p.by_solver]
    where = " WHERE " + " AND ".join(f"({c})" for c in conditions) if conditions else ""
    return f"SELECT {', '.join(columns) or '1'} {from_clause(bound)}{where}"
