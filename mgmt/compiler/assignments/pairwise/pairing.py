"""What a demand on pairs of rows asks: which pairs there are, and how their choices must stand to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from mgmt.compiler.assignments.normalization.block import QueryBlock, aliases_of, realiased_tree
from mgmt.compiler.assignments.normalization.expressions import Constant, RowColumn
from mgmt.compiler.assignments.normalization.select import Item, Select, Statement
from mgmt.compiler.assignments.recognition.lookup_joins import column_of
from mgmt.compiler.assignments.recognition.shape import seen_inside
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    AggregateFunction,
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
    Negation,
    NullTest,
)
from mgmt.language.bound_queries.queries import BoundQuery
from mgmt.language.names.catalog import Catalog
from mgmt.language.pushdown.column_types import EngineTypes
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.state.schema import SqlType, quote

_KNOWN = (Arithmetic, Case, Coalesce, Comparison, Conjunction, Disjunction, Extreme, Negation, NullTest)
_VALUE = "value"
"""The alias of what a choice leads to, the same for both choices."""


@dataclass(frozen=True, slots=True, eq=False)
class Same(Expression):
    """Whether the attributes of the two choices are equal."""

    null_safe: bool


@dataclass(frozen=True, slots=True, eq=False)
class Missing(Expression):
    """Whether the first (0) or the second (1) row has no value."""

    row: int


@dataclass(frozen=True, slots=True, eq=False)
class Attribute(Expression):
    """What the choice of the first (0) or the second (1) row leads to: a column of the values' statement."""

    row: int
    slot: int


@dataclass(frozen=True, slots=True)
class Pairing:
    """One demand on pairs of rows.  ``pairs`` returns the numbers of both, and then the row slots."""

    bound: BoundQuery
    pairs: Select
    values: Select | None
    """The value looked up and its attribute; None: the choices themselves are compared, whatever they are."""
    conditions: tuple[Expression, ...]
    each: Expression
    """What is demanded of each pair, or what it is worth to an objective."""
    joined: tuple[bool, bool]
    """Whether the first and the second choice lead to something: a row without a value is then in no pair."""
    of_kinds: bool = False
    """Whether the check speaks of the attributes themselves, which are the slots of ``values`` then."""

    @property
    def name(self) -> str:
        return self.bound.name


def pairing_of(bound: BoundQuery, flat: QueryBlock, catalog: Catalog, engine: EngineTypes) -> Pairing | None:
    """The demand on pairs that a flat query is; None when it does not speak of two choices of one column."""
    cells = {
        (cell.source.lower(), cell.column.lower())
        for part in (*flat.predicates, *([flat.demand] if flat.demand is not None else []))
        for cell in part.walk()
        if isinstance(cell, Cell)
    }
    relations = {item.alias: item.relation.name.lower() for item in flat.items}
    columns = {(relations[source], column) for source, column in cells}
    if len(cells) != 2 or len(columns) != 1 or flat.demand is None or bound.demand is None:
        return None
    flat = _of_each_pair(flat, bound.demand.is_objective)
    if flat.keys is not None or flat.group_gates or flat.demand is None:
        return None
    if any(item.on is not None for item in flat.items):
        raise NotAnAssignment("an outer join beside two choices")
    ((_, column),) = columns
    order = [item.alias for item in flat.items]
    sources = sorted((source for source, _ in cells), key=order.index)
    try:
        return _Recogniser(bound, flat, catalog, engine, sources, column).pairing()
    except NotAnAssignment as reason:
        if bound.demand.is_objective:
            raise
        try:
            return _Recogniser(bound, flat, catalog, engine, sources, column, of_kinds=True).pairing()
        except NotAnAssignment:
            raise reason from None


def _of_each_pair(flat: QueryBlock, is_objective: bool) -> QueryBlock:
    """An objective that is a sum over pairs, or counts them, as what each is worth; any other query as it is."""
    demand = flat.demand
    if not is_objective or flat.keys != () or not isinstance(demand, Aggregate):
        return flat
    if demand.function not in {AggregateFunction.SUM, AggregateFunction.COUNT}:
        raise NotAnAssignment(f"{demand.function} over pairs of choices")
    conditions = () if demand.condition is None else (demand.condition,)
    each: Expression = Constant(SqlType.INTEGER, demand.position, 1)
    if demand.function is AggregateFunction.SUM and demand.operand is not None:
        each = demand.operand
    elif demand.operand is not None:
        conditions = (*conditions, Negation(SqlType.BOOLEAN, demand.position, _null_test(demand.operand)))
    return replace(flat, keys=None, predicates=(*flat.predicates, *conditions), demand=each)


def _null_test(operand: Expression) -> NullTest:
    return NullTest(SqlType.BOOLEAN, operand.position, operand)


class _Recogniser:
    def __init__(
        self,
        bound: BoundQuery,
        flat: QueryBlock,
        catalog: Catalog,
        engine: EngineTypes,
        sources: Sequence[str],
        column: str,
        *,
        of_kinds: bool = False,
    ) -> None:
        self._of_kinds = of_kinds
        self._slots: dict[str, exp.Expr] = {}
        """By text the attributes that the check speaks of."""
        self._bound, self._flat, self._catalog, self._engine = bound, flat, catalog, engine
        self._sources, self._column = sources, column
        self._pairs = Statement()
        self._linked: dict[str, tuple[int, exp.Expr]] = {}
        """By alias of what a choice leads to: whose choice, and the column that is equal to it."""
        self._links: list[Expression] = []
        self._attributes: dict[str, exp.Expr | None] = {}
        """By text what is compared; None is the choice itself."""

    def pairing(self) -> Pairing:
        flat = self._flat
        assert flat.demand is not None
        self._find_links()
        conditions: list[Expression] = []
        of_values: list[list[exp.Expr]] = [[], []]
        for predicate in flat.predicates:
            if any(predicate is link for link in self._links):
                continue
            if isinstance(predicate, DatabasePart):
                aliases = aliases_of(predicate.tree)
                if not aliases & set(self._linked):
                    self._pairs.require(predicate.tree)
                    continue
                if len(aliases) == 1:
                    (alias,) = aliases
                    of_values[self._linked[alias][0]].append(_renamed(predicate.tree, alias))
                    continue
            conditions.append(self._lower(predicate))
        each = self._lower(flat.demand)
        first, second = (f"{quote(source)}.rowid" for source in self._sources)
        items = [item for item in flat.items if item.alias not in self._linked]
        linked = {side for side, _ in self._linked.values()}
        return Pairing(
            self._bound,
            self._pairs.select(f"{first}, {second}", items),
            self._values(of_values),
            tuple(conditions),
            each,
            (0 in linked, 1 in linked),
            self._of_kinds,
        )

    def _find_links(self) -> None:
        """What is joined to the choices: sources tied to one of them and to nothing else."""
        for predicate in self._flat.predicates:
            if not isinstance(predicate, Comparison) or predicate.operator != "=" or predicate.null_safe:
                continue
            for one, other in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
                if not isinstance(one, Cell) or not isinstance(other, DatabasePart):
                    continue
                aliases = aliases_of(other.tree)
                if len(aliases) == 1 and not aliases & set(self._sources):
                    (alias,) = aliases
                    self._linked.setdefault(alias, (self._sources.index(one.source.lower()), other.tree))
                    self._links.append(predicate)
        if len(self._links) > len(self._linked) or len({side for side, _ in self._linked.values()}) < len(
            self._linked
        ):
            raise NotAnAssignment("a choice that leads to several sources")

    def _values(self, conditions: Sequence[Sequence[exp.Expr]]) -> Select | None:
        """The statement of values and attributes, the same for both choices."""
        if len(self._attributes) > 1:
            raise NotAnAssignment("two attributes of the choices in one check")
        attribute = next(iter(self._attributes.values()), None)
        if not self._linked:
            return None
        found: set[Select] = set()
        for alias, (side, link) in self._linked.items():
            relation = next(item.relation for item in self._flat.items if item.alias == alias)
            statement = Statement()
            for condition in conditions[side]:
                statement.require(condition)
            statement.slot(_renamed(link, alias))
            for one in self._slots.values() if self._of_kinds else [] if attribute is None else [attribute]:
                statement.slot(one)
            found.add(statement.select(None, [Item(_VALUE, relation, None)]))
        if len(found) > 1 or ((attribute is not None or self._slots) and len(self._linked) < 2):
            raise NotAnAssignment("two choices that lead to different sources")
        return next(iter(found))

    # ---- expressions --------------------------------------------------------------------------------

    def _lower(self, expression: Expression) -> Expression:
        """The same over row slots, and over how the two choices stand to each other."""
        if isinstance(expression, Comparison) and not self._of_kinds:
            same = self._comparison(expression)
            if same is not None:
                return same
        if isinstance(expression, NullTest) and self._is_choice(expression.operand):
            assert isinstance(expression.operand, Cell)
            row = self._sources.index(expression.operand.source.lower())
            return Missing(expression.type, expression.position, row)
        if self._is_choice(expression):
            raise NotAnAssignment("a choice beside another that is not compared with it")
        if isinstance(expression, Cell):
            return self._lower(DatabasePart(expression.type, expression.position, column_of(expression)))
        if isinstance(expression, DatabasePart):
            tree = expression.tree.unalias()
            if not aliases_of(tree) & set(self._linked):
                return RowColumn(expression.type, expression.position, self._pairs.slot(tree))
            if isinstance(tree.unnest(), exp.Column):
                return self._attribute_itself(expression, tree.unnest())
            return self._lower(seen_inside(expression, self._flat, self._catalog, self._engine))
        if not isinstance(expression, (Constant, *_KNOWN)):
            raise NotAnAssignment(f"{type(expression).__name__} over two choices")
        return expression.with_children(self._lower)

    def _attribute_itself(self, part: DatabasePart, tree: exp.Expr) -> Attribute:
        if not self._of_kinds:
            raise NotAnAssignment("what one choice leads to beside another choice")
        (alias,) = aliases_of(tree)
        renamed = _renamed(tree, alias)
        if to_sql(renamed) == to_sql(_renamed(self._linked[alias][1], alias)):
            renamed = exp.Paren(
                this=renamed
            )  # a column of its own beside the one that is equal to the choice
        self._slots.setdefault(to_sql(renamed), renamed)
        slot = list(self._slots).index(to_sql(renamed))
        return Attribute(part.type, part.position, self._linked[alias][0], slot)

    def _is_choice(self, expression: Expression) -> bool:
        return (
            isinstance(expression, Cell)
            and expression.source.lower() in self._sources
            and expression.column.lower() == self._column
        )

    def _comparison(self, expression: Comparison) -> Expression | None:
        """Whether both choices, or attributes of them, are the same; None when something else is compared."""
        sides = [self._attribute(part) for part in (expression.left, expression.right)]
        if None in sides or expression.operator not in {"=", "<>"}:
            return None
        (one, text), (other, other_text) = (side for side in sides if side is not None)
        if one == other or text != other_text:
            raise NotAnAssignment("two choices compared by different attributes")
        same = Same(SqlType.BOOLEAN, expression.position, expression.null_safe)
        return same if expression.operator == "=" else Negation(SqlType.BOOLEAN, expression.position, same)

    def _attribute(self, part: Expression) -> tuple[int, str] | None:
        """Whose choice an expression is an attribute of, and which one; None when it is none."""
        if self._is_choice(part):
            assert isinstance(part, Cell)
            self._attributes[""] = None
            return self._sources.index(part.source.lower()), ""
        tree = column_of(part) if isinstance(part, Cell) else getattr(part, "tree", None)
        if not isinstance(tree, exp.Expr):
            return None
        aliases = aliases_of(tree)
        if len(aliases) != 1 or not aliases <= set(self._linked):
            return None
        (alias,) = aliases
        side, link = self._linked[alias]
        if to_sql(tree) == to_sql(link):
            self._attributes[""] = None
            return side, ""
        renamed = _renamed(tree, alias)
        self._attributes[to_sql(renamed)] = renamed
        return side, to_sql(renamed)


def _renamed(tree: exp.Expr, alias: str) -> exp.Expr:
    """A tree over one source as one over what either choice leads to."""
    return realiased_tree(tree.unalias(), {alias: _VALUE})
