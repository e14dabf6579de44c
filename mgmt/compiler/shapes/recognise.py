"""Recognise rows that choose values: one table's variable column, and what constants surround it.

The sources of a flat query are told apart: those beside the choosing table (the rows), and those that its choice
leads to (the values: ``JOIN host ON replica.controllable__host = host.name``).  Neither side is joined with the
other here: each is one statement for the database, and what compares both is left to arrays.

What it is not: it sees no data; whether amounts are separable or bounds are met is found out by ``build``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from mgmt.compiler.shapes.inline import FlatQuery, Item, aliases_of
from mgmt.compiler.shapes.statements import Statement
from mgmt.compiler.shapes.vectors import OtherShape
from mgmt.compiler.split import to_sql
from mgmt.errors import PolicyError
from mgmt.language.binder import ExpressionBinder
from mgmt.language.bound import BoundQuery
from mgmt.language.catalog import Catalog, Relation
from mgmt.language.expressions import (
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
from mgmt.language.scoping import Source
from mgmt.source import SourceText
from mgmt.state.schema import quote

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
_KNOWN_TOO = (Negation, NullTest)


@dataclass(frozen=True, slots=True, eq=False)
class RowSlot(Expression):
    """A column of the rows' statement."""

    slot: int


@dataclass(frozen=True, slots=True, eq=False)
class ValueSlot(Expression):
    """A column of the values' statement."""

    slot: int


@dataclass(frozen=True, slots=True, eq=False)
class ScalarSlot(Expression):
    """A column of the statement that has one row."""

    slot: int


@dataclass(frozen=True, slots=True, eq=False)
class Chosen(Expression):
    """The value that the row chooses."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One demand over the choices of one variable column.

    ``rows_sql`` returns the choosing row's number and then the row slots; ``values_sql`` the value looked up and
    then the value slots (None: the values of the domain stand alone); ``scalars_sql`` one row of scalar slots.
    """

    bound: BoundQuery
    table: str
    column: str
    rows_sql: str
    values_sql: str | None
    scalars_sql: str | None
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
    rows_from: tuple[str, ...] = ()
    """The tables and views that ``rows_sql`` names, in lower case; likewise the next two."""
    values_from: tuple[str, ...] = ()
    scalars_from: tuple[str, ...] = ()
    values_whole: tuple[str, str] | None = None
    """The relation, and its alias, if ``values_sql`` takes every row of one, each for itself."""

    @property
    def name(self) -> str:
        return self.bound.name


def variables_of(flat: FlatQuery) -> set[tuple[str, str, str]]:
    """(alias, table, column) of the variable columns a query speaks of, in lower case."""
    relations = {item.alias: item.relation for item in flat.items}
    parts = [*flat.predicates, *flat.group_gates, *([flat.demand] if flat.demand is not None else [])]
    return {
        (node.source.lower(), relations[node.source.lower()].name.lower(), node.column.lower())
        for part in parts
        for node in part.walk()
        if isinstance(node, Cell)
    }


def candidates_sql(flat: FlatQuery) -> str:
    """A statement that has a row if the query has a candidate."""
    side = Statement()
    for predicate in flat.predicates:
        if isinstance(predicate, DatabasePart):
            side.require(predicate.tree)
    return side.sql("1", flat.items) + " LIMIT 1"


class Recogniser:
    """Recognises one flat query; used once."""

    def __init__(
        self, bound: BoundQuery, flat: FlatQuery, catalog: Catalog, functions: frozenset[str]
    ) -> None:
        self._bound = bound
        self._flat = flat
        self._catalog = catalog
        self._functions = functions
        self._rows, self._values, self._scalars = Statement(), Statement(), Statement()
        self._current_slots: set[int] = set()
        variables = variables_of(flat)
        if len(variables) != 1:
            raise OtherShape("several choices in one demand")
        ((self._chooser, table, self._column),) = variables
        self._table = catalog.schema.table(table)

    def shape(self) -> Shape:
        """The shape, or OtherShape with the reason."""
        flat = self._flat
        lookup = self._lookup()
        self._sides = self._take_sides(lookup)
        self._check_outer_joins()
        gates, pair_gates = [], []
        for predicate in flat.predicates:
            if lookup is not None and predicate is lookup[0]:
                continue
            if isinstance(predicate, DatabasePart) and len(self._sides_of(predicate.tree)) < 2:
                self._side(predicate.tree, default=self._rows).require(predicate.tree)
            elif isinstance(predicate, DatabasePart):
                pair_gates.append(self._lower(predicate))
            else:
                gates.append(self._lower(predicate))
        row_keys, value_keys = self._keys()
        if flat.demand is None:
            raise OtherShape("no demand")
        demand = self._lower(flat.demand)
        group_gates = tuple(map(self._lower, flat.group_gates))
        joined = lookup is not None
        scalars = self._scalars.texts
        return Shape(
            self._bound,
            self._table.name,
            self._table.column(self._column).name,
            self._rows.sql(f"{quote(self._chooser)}._rowid_", self._items("row")),
            self._values.sql(to_sql(lookup[1]), self._items("value")) if lookup is not None else None,
            f"SELECT {', '.join(scalars)}" if scalars else None,
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
            self._rows.relations(self._items("row")),
            self._values.relations(self._items("value")),
            self._scalars.relations(()),
            self._values.whole(self._items("value")) if joined else None,
        )

    # ---- sides --------------------------------------------------------------------------------------

    def _lookup(self) -> tuple[Expression, exp.Expr] | None:
        """The predicate "choice = column of another source", and that column."""
        links = [aliases_of(p.tree) for p in self._flat.predicates if isinstance(p, DatabasePart)]
        outer = {item.alias for item in self._flat.items if item.on is not None}
        fallback = None
        for predicate in self._flat.predicates:
            if not isinstance(predicate, Comparison) or predicate.operator != "=" or predicate.null_safe:
                continue
            for one, other in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
                if not (isinstance(one, Cell) and isinstance(other, DatabasePart)):
                    continue
                aliases = aliases_of(other.tree)
                if len(aliases) != 1 or aliases & {self._chooser, *outer}:
                    continue
                found = (predicate, other.tree)
                if not any({self._chooser, *aliases} <= link for link in links):
                    return found
                fallback = fallback or found
        return fallback

    def _take_sides(self, lookup: tuple[Expression, exp.Expr] | None) -> dict[str, str]:
        sides = {self._chooser: "row"}
        if lookup is None:
            return {item.alias: "row" for item in self._flat.items}
        (target,) = aliases_of(lookup[1])
        sides[target] = "value"
        links = [aliases_of(p.tree) for p in self._flat.predicates if isinstance(p, DatabasePart)]
        links.extend({item.alias} | aliases_of(item.on) for item in self._flat.items if item.on is not None)
        waiting = [item.alias for item in self._flat.items if item.alias not in sides]
        with_value = self._tied_to(lookup[1])
        while waiting:
            alias, side = self._next_to_place(waiting, sides, links, with_value)
            sides[alias] = side
            waiting.remove(alias)
        return sides

    def _tied_to(self, column: exp.Expr) -> set[str]:
        """The sources with a column that is equal to this one: rows of theirs belong to one value each."""
        found: set[str] = set()
        for predicate in self._flat.predicates:
            if not isinstance(predicate, DatabasePart) or not isinstance(predicate.tree, exp.EQ):
                continue
            sides = (predicate.tree.this, predicate.tree.expression)
            for one, other in (sides, sides[::-1]):
                if to_sql(one) == to_sql(column):
                    found |= aliases_of(other)
        return found

    def _next_to_place(
        self, waiting: list[str], sides: dict[str, str], links: list[set[str]], with_value: set[str]
    ) -> tuple[str, str]:
        """What is tied to one side only comes first.

        What is tied to both goes with the values if it belongs to one of them, and else with the rows: there are
        fewer of them.  What is tied to the values by no more than a property of theirs waits whether it is tied to
        the rows, too; what is tied to none goes with the values.
        """
        tied = {
            alias: {
                sides[other] for link in links if alias in link for other in link - {alias} if other in sides
            }
            for alias in waiting
        }
        order = (
            [(alias, "row") for alias in waiting if tied[alias] == {"row"}]
            + [(alias, "value") for alias in waiting if tied[alias] and alias in with_value]
            + [(alias, "row") for alias in waiting if len(tied[alias]) == 2]
            + [(alias, "value") for alias in waiting if tied[alias]]
        )
        return order[0] if order else (waiting[0], "value")

    def _check_outer_joins(self) -> None:
        for item in self._flat.items:
            if item.on is None:
                continue
            if item.alias == self._chooser:
                raise OtherShape("rows that choose come from an outer join")
            if any(self._sides.get(alias) != self._sides[item.alias] for alias in aliases_of(item.on)):
                raise OtherShape("an outer join between rows and values")

    def _items(self, side: str) -> list[Item]:
        return [item for item in self._flat.items if self._sides[item.alias] == side]

    def _sides_of(self, tree: exp.Expr) -> set[str]:
        return {self._sides[alias] for alias in aliases_of(tree) if alias in self._sides}

    def _side(self, tree: exp.Expr, default: Statement) -> Statement:
        sides = self._sides_of(tree)
        if not sides:
            return default
        return self._rows if sides == {"row"} else self._values

    def _keys(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        rows: list[int] = []
        values: list[int] = []
        for key in self._flat.keys or ():
            sides = self._sides_of(key.tree)
            if len(sides) > 1:
                raise OtherShape("a group key over rows and values at once")
            if sides:
                slots, side = (rows, self._rows) if sides == {"row"} else (values, self._values)
                slots.append(side.slot(key.tree))
        for alias in self._flat.one_row_per_group:
            relation = next(item.relation for item in self._flat.items if item.alias == alias)
            names = relation.key or tuple(column.name for column in relation.columns)
            slots, side = (rows, self._rows) if self._sides[alias] == "row" else (values, self._values)
            slots.extend(
                side.slot(exp.column(exp.to_identifier(name, quoted=True), table=_identifier(alias)))
                for name in names
            )
        return tuple(dict.fromkeys(rows)), tuple(dict.fromkeys(values))

    # ---- expressions --------------------------------------------------------------------------------

    def _lower(self, expression: Expression) -> Expression:
        """The same expression over slots."""
        if isinstance(expression, Cell):
            return self._cell(expression)
        if isinstance(expression, DatabasePart):
            return self._constant(expression)
        if not isinstance(expression, _KNOWN) and not isinstance(expression, _KNOWN_TOO):
            raise OtherShape(f"{type(expression).__name__} over a choice")
        return expression.with_children(self._lower)

    def _cell(self, cell: Cell) -> Expression:
        if cell.source.lower() == self._chooser and cell.column.lower() == self._column:
            return Chosen(cell.type, cell.position)
        column = exp.column(exp.to_identifier(cell.column, quoted=True), table=_identifier(cell.source))
        return self._constant(DatabasePart(cell.type, cell.position, column))

    def _constant(self, part: DatabasePart) -> Expression:
        tree = part.tree.this if isinstance(part.tree, exp.Alias) else part.tree
        sides = self._sides_of(tree)
        if not sides:
            return ScalarSlot(part.type, part.position, self._scalars.slot(tree))
        if len(sides) > 1:
            return self._lower(self._rebound(part))
        if sides == {"value"}:
            return ValueSlot(part.type, part.position, self._values.slot(tree))
        slot = self._rows.slot(tree)
        if self._is_current(tree):
            self._current_slots.add(slot)
        return RowSlot(part.type, part.position, slot)

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
        """Constants of both sides: bound as if all of them were variables, so as to see inside."""
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
            for item in self._flat.items
        }
        binder = ExpressionBinder(self._catalog, scope, SourceText("", ""), self._functions)
        try:
            found = binder.bind(part.tree.copy())
        except PolicyError as error:
            raise OtherShape(f"{part.tree.sql()!r} compares rows with values") from error
        if isinstance(found, DatabasePart) and len(self._sides_of(found.tree)) > 1:
            raise OtherShape(f"{part.tree.sql()!r} compares rows with values")
        return found


def _identifier(alias: str) -> exp.Identifier:
    return exp.to_identifier(alias, quoted=True)
