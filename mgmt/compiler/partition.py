"""Which variable columns a program's demands connect, and which views need no solver.

Variable columns that share a demand (or a UNIQUE) are one part.  Demands without variables are nobody's: they hold or
do not.

What it is not: it sees no data; how a part is solved, the matrix says (see ``mgmt.optimization.lifting``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from mgmt.compiler.encoding.integer_variables import quantities_of
from mgmt.compiler.relational.dependencies import below_views
from mgmt.compiler.relational.memo import Memo
from mgmt.compiler.relational.split import SplitQuery
from mgmt.language.bound_queries.expressions import Cell
from mgmt.language.bound_queries.queries import BoundQuery, PushedView, Subquery, UnionView
from mgmt.language.names.catalog import Catalog
from mgmt.state.schema import Schema
from mgmt.state.snapshot import Cells

ColumnName = tuple[str, str]
"""(table, variable column), in lower case."""
Step = PushedView | SplitQuery


@dataclass(frozen=True, slots=True)
class ColumnsOfDemand:
    """A constraint or an objective, and the variable columns that it speaks of; none: it is constant."""

    demand: SplitQuery
    columns: frozenset[ColumnName]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Variable columns that no demand connects with any other."""

    columns: frozenset[ColumnName]
    demands: tuple[ColumnsOfDemand, ...]
    quantities: frozenset[ColumnName]
    """Those of the columns that are numbers, not lists of values."""


@dataclass(frozen=True, slots=True)
class Partition:
    """The parts of a program."""

    parts: tuple[Part, ...]
    constants: tuple[ColumnsOfDemand, ...]
    available: tuple[PushedView, ...]
    """The views that the database can make without the solver, in order."""
    divisible: bool
    """Whether some parts can be encoded without the others."""
    below: Mapping[str, frozenset[Cells]]
    """What is below each of the database's views, by names in lower case."""


def partition_of(
    program: Sequence[Step], catalog: Catalog, known: Memo[SplitQuery, ColumnsOfDemand]
) -> Partition:
    """``known``: what demands speak of, of a program with the same views."""
    views = _Views.of(program)
    found = [
        known.of(step, lambda step: ColumnsOfDemand(step, _columns_below(step, views)))
        for step in program
        if isinstance(step, SplitQuery) and step.bound.demand is not None
    ]
    available = tuple(
        step
        for step in program
        if isinstance(step, PushedView) and step.name.lower() not in views.unavailable
    )
    return Partition(
        tuple(_parts(found, catalog.schema, quantities_of(program, catalog))),
        tuple(each for each in found if not each.columns),
        available,
        len(available) == sum(isinstance(step, PushedView) for step in program)
        and not any(map(_has_subquery, program)),
        below_views(available, catalog.schema),
    )


def _has_subquery(step: Step) -> bool:
    if isinstance(step, PushedView):
        return False
    parts = [*step.gates, *step.computed, *(expression for _, expression in step.outputs)]
    parts.extend(part for part in (step.having, step.demand) if part is not None)
    return any(isinstance(node, Subquery) for part in parts for node in part.walk())


@dataclass(frozen=True, slots=True)
class _Views:
    """The views of a program by lower-case name, and which relations the database does not have without the solver."""

    queries: dict[str, BoundQuery]
    unavailable: set[str]
    unions: dict[str, tuple[str, ...]]
    """Unions over variables, with the names of their parts."""

    @classmethod
    def of(cls, program: Iterable[Step]) -> _Views:
        views = cls({}, set(), {})
        for step in program:
            name = step.name.lower()
            if isinstance(step, UnionView):
                views.unions[name] = tuple(part.name.lower() for part in step.parts)
                views.unavailable.add(name)
            elif isinstance(step, PushedView):
                if any(table.name.lower() in views.unavailable for table in step.tree.find_all(exp.Table)):
                    views.unavailable.add(name)
            elif step.bound.demand is None:
                views.queries[name] = step.bound
                views.unavailable.add(name)
        return views


def _queries_below(step: SplitQuery, views: _Views) -> Iterator[BoundQuery]:
    """A query, its subqueries, and the views below them."""
    waiting, seen = [step.bound], set[str]()

    def visit(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        for part in views.unions.get(name, ()):
            visit(part)
        if name in views.queries:
            waiting.append(views.queries[name])

    while waiting:
        query = waiting.pop()
        yield query
        for part in query.expressions:
            waiting.extend(node.query for node in part.walk() if isinstance(node, Subquery))
        for source in query.sources:
            visit(source.relation.name.lower())


def _columns_below(step: SplitQuery, views: _Views) -> frozenset[ColumnName]:
    """All variable columns that a query or a view below it mentions."""
    found: set[ColumnName] = set()
    for query in _queries_below(step, views):
        relations = {source.alias.lower(): source.relation.name.lower() for source in query.sources}
        for part in query.expressions:
            for node in part.walk():
                if isinstance(node, Cell) and node.source.lower() in relations:
                    name = relations[node.source.lower()]
                    if name not in views.unavailable:
                        found.add((name, node.column.lower()))
    return frozenset(found)


def candidates_of(program: Sequence[Step]) -> dict[str, tuple[str, ...]]:
    """Per demand, statements over the available views: if one of them has no row, the demand has none either."""
    views = _Views.of(program)
    steps = {step.name.lower(): step for step in program if isinstance(step, SplitQuery)}

    def statements(step: SplitQuery) -> Iterator[str]:
        names = [source.relation.name.lower() for source in step.bound.sources]
        if views.unavailable.isdisjoint(names):
            yield f"{step.sql} LIMIT 1"
        if any(join.args.get("side") for join in step.bound.skeleton.args.get("joins") or ()):
            return
        for name in names:
            # A view without keys has a row, whatever it is over.
            if name in views.queries and steps[name].keys != ():
                yield from statements(steps[name])

    return {step.name: tuple(statements(step)) for step in steps.values() if step.bound.demand is not None}


def _parts(
    demands: Sequence[ColumnsOfDemand], schema: Schema, numbers: frozenset[ColumnName]
) -> Iterator[Part]:
    groups: list[set[ColumnName]] = []
    for table in schema.tables:
        variable = {column.name.lower() for column in table.variables}
        groups.extend({(table.name.lower(), name)} for name in sorted(variable))
        groups.extend(
            {(table.name.lower(), name.lower()) for name in unique if name.lower() in variable}
            for unique in table.uniques
        )
    groups.extend(set(each.columns) for each in demands)
    joined: list[set[ColumnName]] = []
    for group in groups:
        if not group:
            continue
        touching = [part for part in joined if part & group]
        joined = [part for part in joined if not part & group]
        joined.append(set().union(group, *touching))
    for part in map(frozenset, joined):
        mine = tuple(each for each in demands if each.columns and each.columns <= part)
        yield Part(part, mine, part & numbers)


def restricted(program: Sequence[Step], demands: Iterable[ColumnsOfDemand]) -> tuple[Step, ...]:
    """A divisible program with no other demands than these, and of the views only the columns they need."""
    wanted = {each.demand.name for each in demands}
    needed: dict[str, set[str]] = {}
    kept: list[Step] = []
    for step in reversed(program):
        if isinstance(step, PushedView):
            kept.append(step)
        elif step.bound.demand is None and step.name.lower() in needed:
            names = needed[step.name.lower()]
            cut = replace(step, outputs=tuple(o for o in step.outputs if o[0].lower() in names))
            _note_needs(cut, needed)
            kept.append(cut)
        elif step.bound.demand is not None and step.name in wanted:
            _note_needs(step, needed)
            kept.append(step)
    return tuple(reversed(kept))


def _note_needs(step: SplitQuery, needed: dict[str, set[str]]) -> None:
    """Which columns of its sources a query uses: those it fetches, and those it decides on."""
    relations = {source.alias.lower(): source.relation.name.lower() for source in step.bound.sources}
    for name in relations.values():
        needed.setdefault(name, set())
    parts = [*step.gates, *step.computed, *(expression for _, expression in step.outputs)]
    parts.extend(part for part in (step.having, step.demand) if part is not None)
    for part in parts:
        for node in part.walk():
            if isinstance(node, Cell):
                needed[relations[node.source.lower()]].add(node.column.lower())
    # The statement for the database names its columns in full.
    for alias, name in relations.items():
        relation = next(s.relation for s in step.bound.sources if s.alias.lower() == alias)
        needed[name].update(column.name.lower() for column in relation.columns if not column.symbolic)


def often_asked(program: Sequence[Step], partition: Partition, uses: Callable[[str], int]) -> frozenset[str]:
    """Views that take time and are asked by several statements; ``uses`` counts those of the oracle."""
    grouping: set[str] = set()
    found = []
    read = [
        {source.relation.name.lower() for source in step.bound.sources}
        for step in program
        if isinstance(step, SplitQuery)
    ]
    for view in partition.available:
        below = {table.name.lower() for table in view.tree.find_all(exp.Table)}
        if not below & grouping and not view.tree.find(exp.Group, exp.Distinct, exp.AggFunc):
            continue
        name = view.name.lower()
        grouping.add(name)
        if uses(view.name) + sum(name in names for names in read) > 1:
            found.append(view.name)
    return frozenset(found)
