"""Recognise rows that choose values: one table's variable column, and what constants surround it.

The sources of a flat query are told apart: those beside the choosing table (the rows), and those that its choice
leads to (the values: ``JOIN host ON replica.controllable__host = host.name``).  Neither side is joined with the
other here: each is one statement for the database, and what compares both is left to arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from mgmt.compiler.assignments.normalization.block import QueryBlock, aliases_of
from mgmt.compiler.assignments.normalization.expressions import (
    Chosen,
    Constant,
    RowColumn,
    ScalarColumn,
    Unknown,
    ValueColumn,
    WindowMinimum,
)
from mgmt.compiler.assignments.normalization.row_and_value_sides import link_to_values, sides_of
from mgmt.compiler.assignments.normalization.select import Item, Select, Statement
from mgmt.compiler.assignments.normalization.unnesting import SemiJoin, looked_up_inside
from mgmt.compiler.assignments.recognition.lookup_joins import Lookup, LookupJoins, column_of
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.errors import PolicyError
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    Arithmetic,
    Case,
    Cell,
    Coalesce,
    Comparison,
    Conjunction,
    DatabasePart,
    Disjunction,
    Expression,
    Extreme,
    MembershipQuery,
    Negation,
    NullTest,
)
from mgmt.language.bound_queries.queries import BoundQuery
from mgmt.language.expression_binding.expression_binder import ExpressionBinder
from mgmt.language.expression_binding.functional_dependencies import fewest_keys
from mgmt.language.names.catalog import Catalog, Relation
from mgmt.language.names.scopes import Source
from mgmt.language.pushdown.column_types import EngineTypes
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.source_text import SourceText
from mgmt.state.schema import SqlType, quote

_KNOWN = (
    Aggregate,
    Arithmetic,
    Case,
    Coalesce,
    Comparison,
    Conjunction,
    Disjunction,
    Extreme,
    MembershipQuery,
)
_KNOWN_TOO = (Constant, WindowMinimum, Negation, NullTest, Unknown)


@dataclass(frozen=True, slots=True)
class Shape:
    """One demand over the choices of one variable column.

    ``rows`` returns the choosing row's number and then the row slots; ``values`` the value looked up and then the
    value slots (None: the values of the domain stand alone); ``scalars`` one row of scalar slots.
    """

    bound: BoundQuery
    table: str
    column: str
    rows: Select
    values: Select | None
    scalars: Select | None
    gates: tuple[Expression, ...]
    """Conditions on a row and its value that the solver decides."""
    pair_gates: tuple[Expression, ...]
    """Conditions on constants of both sides: they limit the possible groups."""
    row_keys: tuple[int, ...]
    value_keys: tuple[int, ...]
    grouped: bool
    group_gates: tuple[Expression, ...]
    strict: bool
    nested: bool
    unmixed: bool
    """Something is joined to the groups; no value may then be in two of them."""
    demand: Expression
    current_slots: frozenset[int]
    """Row slots that hold today's value of the choice."""
    lookups: tuple[Lookup, ...] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    """What columns, as the statements have them, are called in the demand's own rows."""
    groups: Select | None = None
    """How many groups there have to be; None: as many as have candidates."""
    around: Select | None = None
    """How many rows there are, of constants, each of which demands this; None: one."""
    otherwise: Shape | None = None
    """Another shape of the same demand, for data that this one is not for."""

    @property
    def name(self) -> str:
        return self.bound.name

    @property
    def selects(self) -> list[Select]:
        """What is fetched of rows and values."""
        values = [] if self.values is None else [self.values]
        return [self.rows, *values, *(lookup.select for lookup in self.lookups)]


def variables_of(flat: QueryBlock) -> set[tuple[str, str, str]]:
    """(alias, table, column) of the variable columns a query speaks of, in lower case."""
    relations = {item.alias: item.relation for item in flat.items}
    parts = [*flat.predicates, *flat.group_gates, *([flat.demand] if flat.demand is not None else [])]
    cells = [node for part in parts for node in part.walk() if isinstance(node, Cell)]
    if any(cell.source.lower() not in relations for cell in cells):
        raise NotAnAssignment("a subquery that reads what the solver decides of the rows around it")
    return {
        (cell.source.lower(), relations[cell.source.lower()].name.lower(), cell.column.lower())
        for cell in cells
    }


def candidates_sql(flat: QueryBlock) -> str:
    """A statement that has a row if the query has a candidate."""
    side = Statement()
    for predicate in flat.predicates:
        if isinstance(predicate, DatabasePart):
            side.require(predicate.tree)
    return side.select("1", flat.items).sql + " LIMIT 1"


def shape_of(bound: BoundQuery, flat: QueryBlock, catalog: Catalog, engine: EngineTypes) -> Shape:
    """The shape of a flat query, or NotAnAssignment with the reason.

    What equal columns join to rows and to values at once is looked up for each pair of them: a group is then of the
    rows that the join does not tell apart, however many values there are.  It takes one entry for each pair; for data
    where there are several the join is made with the rows, in the shape ``otherwise``.
    """
    outputs = {
        to_sql(part.tree.unalias().unnest()): name
        for name, part in flat.outputs.items()
        if isinstance(part, DatabasePart)
    }
    flat = replace(flat, outputs={})
    plain = Recogniser(bound, flat, catalog, engine)
    if not plain.may_look_up:
        return replace(plain.shape(), outputs=outputs)
    try:
        looked_up = Recogniser(bound, flat, catalog, engine, pairs=True).shape()
    except NotAnAssignment:
        return replace(plain.shape(), outputs=outputs)
    try:
        otherwise: Shape | None = replace(plain.shape(), outputs=outputs)
    except NotAnAssignment:
        otherwise = None
    return replace(looked_up, outputs=outputs, otherwise=otherwise)


def _require_aggregates(part: Expression, depth: int) -> None:
    """NotAnAssignment where a choice stands outside of so many aggregates: groups have loads here, and no choice."""
    if isinstance(part, Chosen) and depth > 0:
        raise NotAnAssignment("a choice of a whole group")
    for child in part.children:
        _require_aggregates(child, depth - isinstance(part, Aggregate))


class Recogniser:
    """Recognises one query block; used once.  ``pairs``: inner joins with rows and values are looked up, too."""

    def __init__(
        self,
        bound: BoundQuery,
        flat: QueryBlock,
        catalog: Catalog,
        engine: EngineTypes,
        *,
        pairs: bool = False,
    ) -> None:
        self._bound = bound
        self._flat = flat
        self._catalog = catalog
        self._engine = engine
        self._rows, self._values, self._scalars = Statement(), Statement(), Statement()
        self._pairs = LookupJoins(bound, flat, self._lower)
        self._current_slots: set[int] = set()
        variables = variables_of(flat)
        if len(variables) != 1:
            raise NotAnAssignment("several choices in one demand")
        ((self._chooser, table, self._column),) = variables
        self._table = catalog.schema.table(table)
        self._link = link_to_values(flat, self._chooser)
        self._sides = sides_of(flat, self._chooser, self._link, pairs=pairs)

    @property
    def may_look_up(self) -> bool:
        """Whether there are inner joins that could be looked up."""
        return "pair" in sides_of(self._flat, self._chooser, self._link, pairs=True).values()

    def shape(self) -> Shape:
        """The shape, or NotAnAssignment with the reason."""
        flat, lookup = self._flat, self._link
        gates: list[Expression] = []
        pair_gates = [self._pairs.join(item) for item in self._items("pair") if item.on is None]
        self._check_outer_joins()
        for predicate in flat.predicates:
            if (lookup is not None and predicate is lookup[0]) or self._pairs.took(predicate):
                continue
            if isinstance(predicate, DatabasePart) and self._is_of_one_side(predicate.tree):
                self._side(predicate.tree, default=self._rows).require(predicate.tree)
            elif isinstance(predicate, DatabasePart):
                pair_gates.append(self._lower(predicate))
            else:
                gates.append(self._lower(predicate))
        row_keys, value_keys = self._keys()
        if flat.demand is None:
            raise NotAnAssignment("no demand")
        demand = self._lower(flat.demand)
        group_gates = tuple(map(self._lower, flat.group_gates))
        if flat.keys is not None:
            _require_aggregates(demand, 2 if flat.nested else 1)
            for gate in group_gates:
                _require_aggregates(gate, 1)
        joined = lookup is not None
        return Shape(
            self._bound,
            self._table.name,
            self._table.column(self._column).name,
            self._rows.select(f"{quote(self._chooser)}.rowid", self._items("row")),
            self._values.select(to_sql(lookup[1]), self._items("value")) if lookup is not None else None,
            self._scalars.select(None, ()) if self._scalars.texts else None,
            tuple(gates),
            tuple(pair_gates),
            row_keys,
            value_keys,
            flat.keys is not None,
            group_gates,
            flat.strict,
            flat.nested,
            joined and bool(flat.one_row_per_group),
            demand,
            frozenset(self._current_slots),
            tuple(self._pairs.lookups()),
            groups=flat.groups,
        )

    # ---- sides --------------------------------------------------------------------------------------

    def _check_outer_joins(self) -> None:
        for item in self._flat.items:
            if item.on is None:
                continue
            if item.alias == self._chooser:
                raise NotAnAssignment("rows that choose come from an outer join")
            others = {self._sides[alias] for alias in aliases_of(item.on) - {item.alias}}
            if others == {"row", "value"}:
                self._sides[item.alias] = "pair"
            elif others != {self._sides[item.alias]}:
                raise NotAnAssignment("an outer join between rows and values")
        for item in self._flat.items:
            if self._sides[item.alias] == "pair" and item.on is not None:
                self._pairs.join_outer(item, self._rebound(self._condition(item.on)))

    def _items(self, side: str) -> list[Item]:
        return [item for item in self._flat.items if self._sides[item.alias] == side]

    def _sides_of(self, tree: exp.Expr) -> set[str]:
        return {self._sides[alias] for alias in aliases_of(tree) if alias in self._sides}

    def _is_of_one_side(self, tree: exp.Expr) -> bool:
        sides = self._sides_of(tree)
        return len(sides) < 2 and "pair" not in sides

    def _side(self, tree: exp.Expr, default: Statement) -> Statement:
        sides = self._sides_of(tree)
        if not sides:
            return default
        return self._rows if sides == {"row"} else self._values

    def _keys(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        rows: list[int] = []
        values: list[int] = []
        found: list[str] = []  # what outer joins find is the same in a group if what they look for is
        scope = {item.alias: Source(item.alias, item.relation) for item in self._flat.items}
        fewest = fewest_keys(self._flat.keys or (), scope)
        for key in self._flat.keys or ():
            if key.type is SqlType.REAL and key not in fewest:
                continue  # columns are of whole numbers and texts, and it makes no more groups
            sides = self._sides_of(key.tree)
            equal = self._pairs.counterpart(key.tree)
            if equal is not None:
                (rows if isinstance(equal, RowColumn) else values).append(_slot(equal))
                continue
            if sides == {"pair"}:
                found.extend(aliases_of(key.tree))
                continue
            if len(sides) > 1:
                raise NotAnAssignment("a group key over rows and values at once")
            if sides:
                slots, side = (rows, self._rows) if sides == {"row"} else (values, self._values)
                slots.append(side.slot(key.tree))
        for alias in self._flat.one_row_per_group:
            if self._sides[alias] == "pair":
                raise NotAnAssignment("what is looked up for rows and values is joined to groups")
            relation = next(item.relation for item in self._flat.items if item.alias == alias)
            names = relation.key or tuple(column.name for column in relation.columns)
            slots, side = (rows, self._rows) if self._sides[alias] == "row" else (values, self._values)
            slots.extend(
                side.slot(exp.column(exp.to_identifier(name, quoted=True), table=_identifier(alias)))
                for name in names
            )
        for alias in found:
            for part in self._pairs.keys(alias):
                known = rows if isinstance(part, RowColumn) else values
                if not isinstance(part, (RowColumn, ValueColumn)) or part.slot not in known:
                    raise NotAnAssignment("a group key that a join between rows and values finds")
        return tuple(dict.fromkeys(rows)), tuple(dict.fromkeys(values))

    def _condition(self, tree: exp.Expr) -> DatabasePart:
        return DatabasePart(SqlType.BOOLEAN, self._bound.position, tree)

    # ---- expressions --------------------------------------------------------------------------------

    def _lower(self, expression: Expression) -> Expression:
        """The same expression over slots."""
        if isinstance(expression, Cell):
            return self._cell(expression)
        if isinstance(expression, DatabasePart):
            return self._constant(expression)
        if isinstance(expression, SemiJoin):
            return self._pairs.find(expression)
        if not isinstance(expression, _KNOWN) and not isinstance(expression, _KNOWN_TOO):
            raise NotAnAssignment("what only the database computes of a choice")
        return expression.with_children(self._lower)

    def _cell(self, cell: Cell) -> Expression:
        if cell.source.lower() == self._chooser and cell.column.lower() == self._column:
            return Chosen(cell.type, cell.position)
        return self._constant(DatabasePart(cell.type, cell.position, column_of(cell)))

    def _constant(self, part: DatabasePart) -> Expression:
        tree = part.tree.this if isinstance(part.tree, exp.Alias) else part.tree
        sides = self._sides_of(tree)
        if not sides:
            return ScalarColumn(part.type, part.position, self._scalars.slot(tree))
        equal = self._pairs.counterpart(tree)
        if equal is not None:
            return equal
        if sides == {"pair"} and isinstance(tree, exp.Column):
            return self._pairs.slot(tree, part)
        if len(sides) > 1 or sides == {"pair"}:
            found = looked_up_inside(part, self._catalog)
            return self._lower(self._rebound(part) if found is None else found)
        if sides == {"value"}:
            return ValueColumn(part.type, part.position, self._values.slot(tree))
        slot = self._rows.slot(tree)
        if self._is_current(tree):
            self._current_slots.add(slot)
        return RowColumn(part.type, part.position, slot)

    def _is_current(self, tree: exp.Expr) -> bool:
        tree = tree.unnest() if isinstance(tree, exp.Paren) else tree
        current = self._table.column(self._column).current
        return (
            isinstance(tree, exp.Column)
            and current is not None
            and tree.table.lower() == self._chooser
            and tree.name.lower() == current.lower()
        )

    def _rebound(self, part: DatabasePart) -> Expression:
        """Constants of both sides."""
        found = seen_inside(part, self._flat, self._catalog, self._engine)
        if isinstance(found, DatabasePart) and not self._is_of_one_side(found.tree):
            raise NotAnAssignment(f"{part.tree.sql()!r} compares rows with values")
        return found


def seen_inside(part: DatabasePart, flat: QueryBlock, catalog: Catalog, engine: EngineTypes) -> Expression:
    """A constant expression of a query as if all its columns were variables, so as to see inside."""
    scope = {
        item.alias: Source(
            item.alias,
            Relation(
                item.relation.name,
                tuple(
                    replace(column, symbolic=True, origin=("", column.name))
                    for column in item.relation.columns
                ),
            ),
        )
        for item in flat.items
    }
    binder = ExpressionBinder(catalog, scope, SourceText("", ""), engine)
    try:
        return binder.bind(part.tree.copy())
    except PolicyError as error:
        raise NotAnAssignment(f"{part.tree.sql()!r} compares rows with values") from error


def _slot(expression: Expression) -> int:
    assert isinstance(expression, (RowColumn, ValueColumn))
    return expression.slot


def _identifier(alias: str) -> exp.Identifier:
    return exp.to_identifier(alias, quoted=True)
