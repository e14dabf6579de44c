"""How each demand is formulated: by choices in whole columns where it has that shape, else by a constraint model.

Variable columns that share a demand (or a UNIQUE) are one part.  A part of one column whose demands all have a
known shape is an assignment problem; all other parts are one constraint model together.  Demands without variables are
nobody's: they hold or do not.

What it is not: it sees no data; a part may still prove to be of another shape when its columns are fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from mgmt.compiler.assignments.normalization.aggregates import with_common_gate
from mgmt.compiler.assignments.normalization.block import QueryBlock
from mgmt.compiler.assignments.normalization.hoisting import hoisted, without_constants_around
from mgmt.compiler.assignments.normalization.select import Select
from mgmt.compiler.assignments.normalization.unnesting import unnested, unnested_aggregate
from mgmt.compiler.assignments.normalization.views import Views, joins_of
from mgmt.compiler.assignments.pairwise.pairing import Pairing, pairing_of
from mgmt.compiler.assignments.recognition.flags import flagged_only
from mgmt.compiler.assignments.recognition.shape import Shape, candidates_sql, shape_of, variables_of
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.compiler.encoding.integer_variables import quantities_of
from mgmt.compiler.relational.dependencies import below_views
from mgmt.compiler.relational.memo import Memo
from mgmt.compiler.relational.split import SplitQuery
from mgmt.language.bound_queries.expressions import Cell, Computed
from mgmt.language.bound_queries.queries import BoundQuery, PushedView, Subquery
from mgmt.language.names.catalog import Catalog
from mgmt.language.pushdown.column_types import EngineTypes
from mgmt.state.schema import Schema, SqlType
from mgmt.state.snapshot import Cells

ColumnName = tuple[str, str]
"""(table, variable column), in lower case."""
Step = PushedView | SplitQuery


@dataclass(frozen=True, slots=True)
class Formulation:
    """Where one demand goes, and why."""

    demand: SplitQuery
    columns: frozenset[ColumnName]
    """The variable columns it speaks of; none: it is constant."""
    shapes: tuple[Shape | Pairing, ...]
    """What it is in columns: one or several, which together demand the same; none if it is of no shape."""
    why: str
    """The reason it has no shape; empty if it has one."""
    candidates: tuple[str, ...] = ()
    """Statements for the database: if one of them has no row, the demand has none and demands nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class FlaggedChoice:
    """A boolean column beside a choice in the same rows, and the demands on it as demands on flagged rows."""

    table: str
    place: str
    flag: str
    shapes: Mapping[str, Shape]
    reasons: Mapping[str, str]
    """Why a demand has no such shape."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Variable columns that no demand connects with any other."""

    columns: frozenset[ColumnName]
    formulations: tuple[Formulation, ...]
    flagged: FlaggedChoice | None = None
    quantities: frozenset[ColumnName] = frozenset()
    """Those of the columns that are numbers, not lists of values."""

    @property
    def may_be_columnar(self) -> bool:
        """Whether it is one column (or one and a flag), whose demands have a shape or may prove to be of no rows."""
        if self.quantities:
            return False
        if self.flagged is not None:
            return True
        return len(self.columns) == 1 and all(each.shapes or each.candidates for each in self.formulations)

    @property
    def is_choice(self) -> bool:
        """Whether it is one column of values to choose from, whatever is demanded of it."""
        return len(self.columns) == 1 and not self.quantities and self.flagged is None

    @property
    def why(self) -> str:
        """Why it is not columnar; empty if it is."""
        if len(self.columns) > 1:
            return "several variable columns depend on each other"
        for table, column in sorted(self.quantities):
            return f"{table}.{column} is a number"
        return next((f"{each.demand.name}: {each.why}" for each in self.formulations if not each.shapes), "")


@dataclass(frozen=True, slots=True)
class Partition:
    """The parts of a program, and how each of its demands is formulated."""

    parts: tuple[Part, ...]
    constants: tuple[Formulation, ...]
    available: tuple[PushedView, ...]
    """The views that the database can make without the solver, in order."""
    divisible: bool
    """Whether some parts can be a constraint model and the others not."""
    below: Mapping[str, frozenset[Cells]]
    """What is below each of the database's views, by names in lower case."""


def partition_of(
    program: Sequence[Step], catalog: Catalog, engine: EngineTypes, known: Memo[SplitQuery, Formulation]
) -> Partition:
    """Find the formulation of every demand; ``known``: those of before, of a program with the same views."""
    views = Views.of(program)
    found = [
        known.of(step, lambda step: _formulation(step, views, catalog, engine))
        for step in program
        if isinstance(step, SplitQuery) and step.bound.demand is not None
    ]
    available = tuple(
        step
        for step in program
        if isinstance(step, PushedView) and step.name.lower() not in views.unavailable
    )
    numbers = quantities_of(program, catalog)
    parts = tuple(
        replace(
            part, quantities=part.columns & numbers, flagged=_flagged_choice(part, views, catalog, engine)
        )
        for part in _parts(found, catalog.schema)
    )
    pushed = [step for step in program if isinstance(step, PushedView)]
    divisible = len(available) == len(pushed) and not any(map(_has_subquery, program))
    return Partition(
        parts,
        tuple(each for each in found if not each.columns),
        available,
        divisible,
        below_views(available, catalog.schema),
    )


def _has_subquery(step: Step) -> bool:
    if isinstance(step, PushedView):
        return False
    parts = [*step.gates, *step.computed, *(expression for _, expression in step.outputs)]
    parts.extend(part for part in (step.having, step.demand) if part is not None)
    return any(isinstance(node, Subquery) for part in parts for node in part.walk())


def _formulation(
    step: SplitQuery,
    views: Views,
    catalog: Catalog,
    engine: EngineTypes,
) -> Formulation:
    columns = _columns_below(step, views)
    if not columns:
        return Formulation(step, columns, (), "no variable in it")
    beyond = _beyond_columns(step, views)
    if beyond:
        return Formulation(step, columns, (), beyond)
    try:
        alone, around = without_constants_around(step.bound)
        flats = _normalized(alone, views, catalog)
        columns = frozenset(name[1:] for _, one in flats for name in variables_of(one)) or columns
        shapes = [
            pairing_of(bound, one, catalog, engine) or shape_of(bound, one, catalog, engine)
            for bound, one in flats
        ]
        if around is not None:
            shapes = [_times(shape, around) for shape in shapes]
    except NotAnAssignment as reason:
        return Formulation(step, columns, (), str(reason), tuple(_candidates(step.bound, views)))
    return Formulation(step, columns, tuple(shapes), "")


def _times(shape: Shape | Pairing, around: Select) -> Shape:
    """A demand of each row of constants."""
    if isinstance(shape, Pairing) or shape.groups is not None:
        raise NotAnAssignment("rows of constants around a subquery over pairs or groups")
    otherwise = None if shape.otherwise is None else _times(shape.otherwise, around)
    return replace(shape, around=around, otherwise=otherwise)


def _normalized(bound: BoundQuery, views: Views, catalog: Catalog) -> list[tuple[BoundQuery, QueryBlock]]:
    """A demand as one or several on query blocks, each beside the query that it is of."""
    flat = with_common_gate(views.flatten(hoisted(bound, views.queries)))
    if bound.demand is not None and bound.demand.is_objective:
        return [(bound, unnested_aggregate(flat, views, catalog))]
    return [(bound, one) for one in unnested(flat, views, catalog)]


def _flagged_choice(part: Part, views: Views, catalog: Catalog, engine: EngineTypes) -> FlaggedChoice | None:
    """Two columns of one table of which one is a flag, if the demands on it can be put so."""
    tables = {table for table, _ in part.columns}
    if len(part.columns) != 2 or len(tables) != 1:
        return None
    (table,) = tables
    columns = [catalog.schema.table(table).column(column) for _, column in sorted(part.columns)]
    flags = [column for column in columns if column.type is SqlType.BOOLEAN and not column.nullable]
    if len(flags) != 1:
        return None
    (flag,) = flags
    place = next(column for column in columns if column is not flag)
    names = (place.name.lower(), flag.name.lower())
    shapes: dict[str, Shape] = {}
    reasons: dict[str, str] = {}
    for each in part.formulations:
        bound = each.demand.bound
        if (table, names[1]) in each.columns:
            try:
                flat = flagged_only(views.flatten(bound), *names)
                shapes[each.demand.name] = shape_of(bound, flat, catalog, engine)
            except NotAnAssignment as reason:
                reasons[each.demand.name] = str(reason)
    return FlaggedChoice(table, *names, shapes, reasons)


def candidates_of(program: Sequence[Step]) -> dict[str, tuple[str, ...]]:
    """Per demand, statements over the available views: if one of them has no row, the demand has none either."""
    views = Views.of(program)
    steps = [step for step in program if isinstance(step, SplitQuery) and step.bound.demand is not None]
    return {step.name: tuple(_candidates(step.bound, views)) for step in steps}


def _candidates(query: BoundQuery, views: Views) -> list[str]:
    """Statements none of which is without rows unless the query is."""
    found: list[str] = []
    outer = {alias for alias, on in joins_of(query) if on is not None}
    for source in query.sources:
        view = views.queries.get(source.relation.name.lower())
        if view is not None and view.keys != () and source.alias.lower() not in outer:
            found.extend(_candidates(view, views))
    try:
        flat = views.flatten(query)
    except NotAnAssignment:
        return found
    return [candidates_sql(flat), *found]


def _queries_below(step: SplitQuery, views: Views) -> Iterator[BoundQuery]:
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


def _columns_below(step: SplitQuery, views: Views) -> frozenset[ColumnName]:
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


def _beyond_columns(step: SplitQuery, views: Views) -> str:
    """What only the constraint model can say; empty if there is nothing."""
    for query in _queries_below(step, views):
        if query.computed_keys:
            return "it groups by what the solver decides"
        nodes = [node for part in query.expressions for node in part.walk()]
        if any(isinstance(node, Computed) for node in nodes):
            return "a function of what the solver decides"
        if any(isinstance(node, Subquery) and (node.query.keys or node.query.having) for node in nodes):
            return "groups in a subquery"
    return ""


def _parts(formulations: Iterable[Formulation], schema: Schema) -> tuple[Part, ...]:
    groups: list[set[ColumnName]] = []
    for table in schema.tables:
        variable = {column.name.lower() for column in table.variables}
        groups.extend({(table.name.lower(), name)} for name in sorted(variable))
        groups.extend(
            {(table.name.lower(), name.lower()) for name in unique if name.lower() in variable}
            for unique in table.uniques
        )
    groups.extend(set(each.columns) for each in formulations)
    joined: list[set[ColumnName]] = []
    for group in groups:
        if not group:
            continue
        touching = [part for part in joined if part & group]
        joined = [part for part in joined if not part & group]
        joined.append(set().union(group, *touching))
    return tuple(
        Part(frozenset(part), tuple(each for each in formulations if each.columns and each.columns <= part))
        for part in joined
    )


def restricted(program: Sequence[Step], formulations: Iterable[Formulation]) -> tuple[Step, ...]:
    """A divisible program with no other demands than these, and of the views only the columns they need."""
    wanted = {each.demand.name for each in formulations}
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


def often_asked(partition: Partition, uses: Callable[[str], int]) -> frozenset[str]:
    """Views that take time and are asked by several statements; ``uses`` counts those of the oracle."""
    grouping: set[str] = set()
    found = []
    every = [shape for part in partition.parts for each in part.formulations for shape in each.shapes]
    selects = [select for shape in every if isinstance(shape, Shape) for select in shape.selects]
    for view in partition.available:
        below = {table.name.lower() for table in view.tree.find_all(exp.Table)}
        if not below & grouping and not view.tree.find(exp.Group, exp.Distinct, exp.AggFunc):
            continue
        name = view.name.lower()
        grouping.add(name)
        statements = {select for select in selects if name in select.reads}
        if uses(view.name) + len(statements) > 1:
            found.append(view.name)
    return frozenset(found)
