"""Demands that compare the choices of two rows: never the same, always the same, or at a cost.

    SELECT a.name FROM pod AS a JOIN pod AS b ON a.app = b.app AND a.name < b.name
    CHECK a.controllable__node <> b.controllable__node

What is compared is the choice itself, or one attribute of it (``x.zone <> y.zone``, where x and y are joined to the
two choices).  Which pairs of rows there are is one statement for the database.  How they are compared is read off the
check and its conditions by evaluating both for every pair, as if the two were the same, were not, or were missing:
so the spelling does not matter.  Pairs that must differ are covered by cliques, each a load of which a value takes
one; pairs that must agree are joined to components.  An objective over pairs is a cost of the loads of cliques, of
sets of rows that are paired with the same others, or the square of a load.

A check that needs the attributes themselves (``x.price <= y.price + 2``) is evaluated for every pair of kinds of
values: of rows that are paired, none has a kind where another one has a kind that may not stand beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from mgmt.compiler.assignments.columns.candidates import (
    Choosers,
    Places,
    classes,
    each_once,
    places_in,
)
from mgmt.compiler.assignments.columns.fetch import Columns, Table
from mgmt.compiler.assignments.columns.vectors import Leaves, Mask, Vector, evaluate
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
from mgmt.optimization.assignment import (
    NONE,
    Amounts,
    Colocation,
    Condition,
    Either,
    Limit,
    Load,
    LoadCost,
    Occupancy,
)
from mgmt.optimization.bucket_functions import Uniform
from mgmt.state.database import Snapshot
from mgmt.state.schema import SqlType, quote

_MOST_PAIRS = 200_000
"""More are not put together to cliques one by one."""
_MOST_PRICES = 256
_MOST_PLACES = 1_000_000
"""Of all groups of an objective, by values: each is in arrays."""
_MOST_VALUE_KINDS = 64
"""Each is a condition of its own."""
_MOST_PAIR_KINDS = 16
_MOST_SETS = 200
"""Of rows that are paired with the same others."""
_MOST_LEADERS = 16
"""Of one row."""
Rows = tuple[NDArray[np.int32], int]
"""(rows,) the group of each row or NONE, and how many groups there are."""
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


@dataclass(frozen=True, slots=True)
class _Case:
    """How the values of two rows may stand to each other; None: that of the attributes is unknown."""

    same: bool | None
    missing: tuple[bool, bool] = (False, False)


_SAME, _DIFFERENT, _UNKNOWN = _Case(True), _Case(False), _Case(None)


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


# ---- data ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Paired:
    """What a demand on pairs comes to."""

    limits: tuple[Limit, ...] = ()
    conditions: tuple[Condition, ...] = ()
    impossible: bool = False
    """A pair fails whatever is chosen."""
    costs: tuple[LoadCost, ...] = ()
    constant: int = 0
    """What an objective costs whatever is chosen, weight and sign included."""


def paired(
    pairing: Pairing, choosers: Choosers, columns: Columns, snapshot: Snapshot, limits: Sequence[Limit] = ()
) -> Paired:
    """The limits and conditions of a demand on pairs.  NotAnAssignment when its rows need more.

    ``limits`` of others may keep rows apart as well, so that larger cliques are found.
    """
    table = columns.table(snapshot, *pairing.pairs)
    if not table.rows:
        return Paired()
    if table.rows > _MOST_PAIRS:
        raise NotAnAssignment(f"{table.rows} pairs of rows")
    if pairing.of_kinds:
        return _beside(pairing, table, choosers, columns, snapshot)
    bucket, buckets, complete = _buckets(pairing, choosers, columns, snapshot)
    first, second = (choosers.places_of_rows(column.values) for column in table.columns[:2])
    cases = _Cases(pairing, choosers.nullable, table.columns[2:], table.rows, columns)
    found = _Finder(pairing.name, choosers, bucket, buckets, complete)
    demand = pairing.bound.demand
    assert demand is not None
    if demand.is_objective:
        return _priced(pairing, cases, first, second, found)
    apart, together = cases.broken(_SAME), cases.broken(_DIFFERENT)
    if not complete and bool(cases.broken(_UNKNOWN).any()):
        raise NotAnAssignment("a check on pairs that fails where an attribute is NULL")
    alone = [cases.broken(_Case(None, missing)) for missing in ((True, False), (False, True))]
    if bool((apart & together).any()) and not found.optional:
        return Paired(impossible=True)
    if bool(cases.broken(_Case(None, (True, True))).any() | (apart & together).any()):
        raise NotAnAssignment("a check on pairs of rows that some must be without a value")
    if bool(together.any()) and not complete and not all(pairing.joined):
        raise NotAnAssignment("rows that are together where one of them is in what the other is joined to")
    if bool(((alone[0] | alone[1]) & ~together).any()):
        raise NotAnAssignment("a check on pairs of rows that only asks whether there are values")
    found.require_apart(first[apart], second[apart], _kept_apart(limits, bucket))
    follows = [second[alone[0]], first[alone[1]]], [first[alone[0]], second[alone[1]]]
    found.require_colocation(*(np.concatenate(each) for each in follows))
    both = together & ~alone[0] & ~alone[1]
    found.require_together(first[both], second[both])
    return Paired(tuple(found.limits), tuple(found.conditions), found.impossible)


def _beside(
    pairing: Pairing, table: Table, choosers: Choosers, columns: Columns, snapshot: Snapshot
) -> Paired:
    """Which kinds of values may not stand beside each other, as conditions on how many rows have them."""
    assert pairing.values is not None
    if not all(pairing.joined):
        raise NotAnAssignment("a choice beside what another leads to")
    values = columns.table(snapshot, *pairing.values)
    places = places_in(choosers.codes, values.columns[0])
    known = np.flatnonzero(places >= 0)
    if not each_once(places[known]):
        raise NotAnAssignment("a choice that leads to several rows")
    kinds = classes([column.take(known) for column in values.columns[1:]], len(known))
    if kinds.count > _MOST_VALUE_KINDS:
        raise NotAnAssignment(f"{kinds.count} kinds of values beside each other")
    kind = np.full(choosers.values, NONE, np.int32)
    kind[places[known]] = kinds.of
    of_kinds = [column.take(known).take(kinds.examples) for column in values.columns[1:]]
    pairs = classes(table.columns[2:], table.rows)
    if pairs.count > _MOST_PAIR_KINDS:
        raise NotAnAssignment(f"{pairs.count} kinds of pairs")
    first, second = (choosers.places_of_rows(column.values) for column in table.columns[:2])
    finder = _Beside(pairing.name, choosers, kind)
    for number, example in enumerate(pairs.examples.tolist()):
        slots = [column.take(np.array([example])) for column in table.columns[2:]]
        refused = _refused(pairing, slots, of_kinds, kinds.count, columns)
        some = pairs.of == number
        if refused.any():
            finder.require(first[some], second[some], refused)
    return Paired(tuple(finder.limits), tuple(finder.conditions))


def _refused(
    pairing: Pairing, slots: Sequence[Vector], kinds: Sequence[Vector], count: int, columns: Columns
) -> Mask:
    """(kinds, kinds): whether a pair of rows breaks the check where the first has the one and the second the other."""

    def leaf(expression: Expression) -> Vector:
        if isinstance(expression, RowColumn):
            return slots[expression.slot].reshaped(1, 1)
        if isinstance(expression, Attribute):
            shape = (-1, 1) if expression.row == 0 else (1, -1)
            return kinds[expression.slot].reshaped(*shape)
        if isinstance(expression, Missing):
            return Vector(np.zeros((1, 1), np.int64))
        if isinstance(expression, Constant):
            return Vector(np.array([[expression.number]], np.int64))
        raise NotAnAssignment(f"{type(expression).__name__} over two choices")

    def no_members(expression: object) -> Sequence[object]:
        raise NotAnAssignment("IN over two choices")

    leaves = Leaves(leaf, no_members, columns.interner)
    broken = evaluate(pairing.each, leaves).false
    for condition in pairing.conditions:
        broken = broken & evaluate(condition, leaves).true
    return np.asarray(np.broadcast_to(broken, (count, count)))


class _Beside:
    """Makes conditions of which kinds of values may not stand beside each other."""

    def __init__(self, name: str, choosers: Choosers, kind: NDArray[np.int32]) -> None:
        self._name, self._rows, self._kind = name, choosers.rows, kind
        self.limits: list[Limit] = []
        self.conditions: list[Condition] = []

    def require(self, first: Places, second: Places, refused: Mask) -> None:
        """No pair of these rows has two kinds that are ``refused``, (kinds, kinds)."""
        if bool((first == second).any()):
            raise NotAnAssignment("a row beside itself")
        if bool(np.isin(second * self._rows + first, first * self._rows + second).all()):
            refused = refused | refused.T  # each pair is there in both orders
        if not np.array_equal(refused, refused.T):
            for one, other in _bicliques(first, second, self._rows):
                self._refuse(one, other, refused, np.zeros(len(refused), np.bool_))
            return
        alone: Mask = refused.diagonal().copy()
        if not refused[np.ix_(alone, alone)].all():
            raise NotAnAssignment("kinds of values of which some may not be there twice")
        for clique in _cliques(first, second, self._rows, ()):
            self._refuse(clique, clique, refused, alone)
            if alone.any():
                self.limits.append(self._at_most(clique, alone, 1))

    def _refuse(self, one: Rows, other: Rows, refused: Mask, alone: Mask) -> None:
        """Where rows have a kind, no others have one that may not stand beside it."""
        for beside in np.unique(refused[refused.any(axis=1)], axis=0):
            having = (refused | ~beside).all(axis=1) & ~alone
            if having.any():
                sides = (self._at_most(one, having, 0), self._at_most(other, beside, 0))
                self.conditions.append(Either(self._name, sides))

    def _at_most(self, rows: Rows, kinds: Mask, number: int) -> Limit:
        group, groups = rows
        bucket = np.where(np.append(kinds, False)[self._kind], 0, NONE).astype(np.int32)
        load = Load(group, groups, bucket, 1, (group != NONE).astype(np.int64))
        return Limit(self._name, load, np.zeros((1, 1), np.int64), np.full((1, 1), number, np.int64))


def _bicliques(first: Places, second: Places, rows: int) -> Iterator[tuple[Rows, Rows]]:
    """Sets of rows on both sides that cover all pairs: for each, (rows,) 0 or NONE of the first and of the second."""
    beside: dict[int, set[int]] = {}
    for one, other in zip(first.tolist(), second.tolist(), strict=True):
        beside.setdefault(one, set()).add(other)
    same: dict[frozenset[int], list[int]] = {}
    for row, others_of_row in beside.items():
        same.setdefault(frozenset(others_of_row), []).append(row)
    if len(same) > _MOST_SETS:
        raise NotAnAssignment(f"{len(same)} sets of rows beside others")
    for others, ones in same.items():
        sides = []
        for members in (ones, list(others)):
            group = np.full(rows, NONE, np.int32)
            group[members] = 0
            sides.append((group, 1))
        yield sides[0], sides[1]


def _priced(pairing: Pairing, cases: _Cases, first: Places, second: Places, finder: _Finder) -> Paired:
    """What pairs cost that are in one bucket beyond what they cost apart."""
    demand = pairing.bound.demand
    assert demand is not None
    apart = cases.worth(_DIFFERENT)
    others = [_Case(None, missing) for missing in ((True, False), (False, True), (True, True))]
    others = [case for case in others if cases.may_be(case)] + ([] if finder.complete else [_UNKNOWN])
    if any(bool((cases.worth(case) != apart).any()) for case in others):
        raise NotAnAssignment("an objective over pairs that looks at whether there are values")
    if any(pairing.joined) and finder.optional and bool(apart.any()):
        raise NotAnAssignment("an objective over pairs that are not there where a row leads to nothing")
    more = cases.worth(_SAME) - apart
    sign = -1 if demand.maximize else 1
    costs = finder.costs(first, second, sign * more, demand.tail.weight)
    return Paired(costs=tuple(costs), constant=sign * demand.tail.weight * int(apart.sum()))


def _buckets(
    pairing: Pairing, choosers: Choosers, columns: Columns, snapshot: Snapshot
) -> tuple[NDArray[np.int32], int, bool]:
    """(V,) the attribute of each value or NONE, how many there are, and whether every value has one."""
    if pairing.values is None:
        return np.arange(choosers.values, dtype=np.int32), choosers.values, True
    table = columns.table(snapshot, *pairing.values)
    bucket = np.full(choosers.values, NONE, np.int32)
    places = places_in(choosers.codes, table.columns[0])
    known = places >= 0
    if len(np.unique(places[known])) < int(known.sum()):
        raise NotAnAssignment("a choice that leads to several rows")
    attribute = table.columns[-1]
    kinds = np.unique(attribute.values, return_inverse=True)[1].astype(np.int32)
    inside = known & ~attribute.nulls
    bucket[places[inside]] = kinds[inside]
    return bucket, int(kinds.max(initial=-1)) + 1, bool((bucket != NONE).all())


class _Cases:
    """Evaluates the check and its conditions for every pair."""

    def __init__(
        self, pairing: Pairing, nullable: bool, slots: Sequence[Vector], rows: int, columns: Columns
    ) -> None:
        self._pairing, self._nullable = pairing, nullable
        self._slots, self._rows, self._columns = slots, rows, columns

    def broken(self, case: _Case) -> Mask:
        """(pairs,) where the conditions hold and the check does not; nowhere in a case that cannot be."""
        if not self.may_be(case):
            return np.zeros(self._rows, np.bool_)
        held, each = self._evaluated(case)
        return np.asarray(held & each.false)

    def worth(self, case: _Case) -> NDArray[np.int64]:
        """(pairs,) what they add to an objective; NotAnAssignment for what may be NULL or text."""
        held, each = self._evaluated(case)
        if each.codes or bool((held & each.nulls).any()):
            raise NotAnAssignment("an objective over pairs that may be NULL")
        return np.where(held, each.values, 0)

    def may_be(self, case: _Case) -> bool:
        """Whether rows without these values are looked at."""
        gone = zip(case.missing, self._pairing.joined, strict=True)
        return not any(missing and (joined or not self._nullable) for missing, joined in gone)

    def _evaluated(self, case: _Case) -> tuple[Mask, Vector]:
        """(pairs,) where the conditions hold, and what each pair is."""
        pairing = self._pairing

        def leaf(expression: Expression) -> Vector:
            if isinstance(expression, RowColumn):
                return self._slots[expression.slot]
            if isinstance(expression, Missing):
                return Vector(np.array(case.missing[expression.row], np.int64))
            if isinstance(expression, Same):
                return _same(expression, case)
            if isinstance(expression, Constant):
                return Vector(np.array(expression.number, np.int64))
            raise NotAnAssignment(f"{type(expression).__name__} over two choices")

        def no_members(expression: object) -> Sequence[object]:
            raise NotAnAssignment("IN over two choices")

        leaves = Leaves(leaf, no_members, self._columns.interner)
        held: Mask = np.ones(self._rows, np.bool_)
        for condition in pairing.conditions:
            held = held & evaluate(condition, leaves).true
        each = evaluate(pairing.each, leaves)
        null = None if each.null is None else np.broadcast_to(each.null, (self._rows,))
        return held, Vector(np.broadcast_to(each.values, (self._rows,)), null, each.codes)


def _same(expression: Same, case: _Case) -> Vector:
    if any(case.missing):
        if expression.null_safe:
            return Vector(np.array(all(case.missing), np.int64))
        return Vector(np.zeros((), np.int64), np.ones((), np.bool_))
    if case.same is None:
        if expression.null_safe:
            raise NotAnAssignment("IS DISTINCT FROM between attributes that may be NULL")
        return Vector(np.zeros((), np.int64), np.ones((), np.bool_))
    return Vector(np.array(case.same, np.int64))


class _Finder:
    """Makes limits and conditions of pairs."""

    def __init__(
        self, name: str, choosers: Choosers, bucket: NDArray[np.int32], buckets: int, complete: bool
    ) -> None:
        self._name, self._choosers, self.complete = name, choosers, complete
        self._bucket, self._buckets = bucket, max(1, buckets)
        self._is_choice = complete and buckets == choosers.values
        self.optional = choosers.nullable or not complete
        """Whether a row may be in no bucket."""
        self.limits: list[Limit] = []
        self.conditions: list[Condition] = []
        self.impossible = False

    def _load(self, group: NDArray[np.int32], groups: int) -> Load:
        return Load(group, groups, self._bucket, self._buckets, (group != NONE).astype(np.int64))

    def require_apart(self, first: Places, second: Places, known: Sequence[NDArray[np.int32]]) -> None:
        """These have different attributes: every one takes at most one row of a clique."""
        if bool((first == second).any()):
            if self.optional:
                raise NotAnAssignment("a row that must differ from itself")
            self.impossible = True
            return
        for group, groups in _cliques(first, second, self._choosers.rows, known):
            self.limits.append(
                Limit(
                    self._name,
                    self._load(group, groups),
                    np.zeros((1, 1), np.int64),
                    np.ones((1, 1), np.int64),
                )
            )

    def costs(
        self, first: Places, second: Places, more: NDArray[np.int64], weight: int
    ) -> Iterator[LoadCost]:
        """What pairs cost that have the same attribute: by what each costs, in cliques that share no pair.

        A row costs what its pair with itself does, in any bucket.
        """
        rows = self._choosers.rows
        own = np.zeros(rows, np.int64)
        itself = first == second
        np.add.at(own, first[itself], more[itself])
        first, second, more = first[~itself], second[~itself], more[~itself]
        low, high = np.minimum(first, second).astype(np.int64), np.maximum(first, second)
        pairs, of = np.unique(low * rows + high, return_inverse=True)
        total = np.zeros(len(pairs), np.int64)
        np.add.at(total, of.reshape(-1), more)
        size = _square_of(own, pairs // rows, pairs % rows, total)
        if size is not None:
            group = np.where(size > 0, 0, NONE).astype(np.int32)
            load = Load(group, 1, self._bucket, self._buckets, size)
            yield LoadCost(self._name, weight, (load,), _Square(1 if own.max() > 0 else -1), False)
            return
        prices = np.unique(total[total != 0])
        if len(prices) > _MOST_PRICES:
            raise NotAnAssignment(f"pairs with {len(prices)} different costs")
        places = 0
        for price in prices.tolist():
            one, other = pairs[total == price] // rows, pairs[total == price] % rows
            for times, group, groups in self._counted(one, other):
                places += groups * self._buckets
                if places > _MOST_PLACES:
                    raise NotAnAssignment(f"pairs of {len(prices)} prices among {self._buckets} values")
                load = self._load(group, groups)
                yield LoadCost(self._name, weight, (load,), _OfPairs(times * price), False)
        for sign in (1, -1):
            amount = np.maximum(sign * own, 0)
            if amount.any():
                group = np.where(amount > 0, 0, NONE).astype(np.int32)
                load = Load(group, 1, self._bucket, self._buckets, amount)
                yield LoadCost(self._name, weight, (load,), _Times(sign), False)

    def _counted(self, one: Places, other: Places) -> Iterator[tuple[int, NDArray[np.int32], int]]:
        """Groups of rows whose pairs, so many times each, are all these pairs and no others.

        Cliques, or where these are too many what rows that are paired with the same others come to: the pairs between
        two such sets are those of both together, less those inside each.
        """
        rows = self._choosers.rows
        cliques = list(_cliques(one, other, rows, (), apart=True))
        if sum(groups for _, groups in cliques) * self._buckets <= _MOST_PLACES:
            yield from ((1, group, groups) for group, groups in cliques)
            return
        for members, number in zip(*_twins(one, other), strict=True):
            group = np.full(rows, NONE, np.int32)
            group[list(members)] = 0
            yield number, group, 1

    def require_colocation(self, follower: Places, leader: Places) -> None:
        """Each is where the other is, or has no value."""
        if not len(follower):
            return
        if not self._is_choice:
            raise NotAnAssignment("a row that follows an attribute of another")
        # One condition has one leader for each row: the second leaders are another condition, and so on.
        pairs = np.unique(np.stack((follower, leader))[:, follower != leader], axis=1)
        rank = np.arange(pairs.shape[1]) - np.searchsorted(pairs[0], pairs[0])
        if int(rank.max(initial=0)) >= _MOST_LEADERS:
            raise NotAnAssignment(f"rows that follow more than {_MOST_LEADERS} others")
        for number in range(int(rank.max(initial=-1)) + 1):
            found = np.full(self._choosers.rows, NONE, np.int32)
            found[pairs[0, rank == number]] = pairs[1, rank == number]
            self.conditions.append(Colocation(self._name, found))

    def require_together(self, first: Places, second: Places) -> None:
        """These have the same attribute, as far as they have values."""
        rows = self._choosers.rows
        group, groups = _components(first, second, rows)
        if not groups:
            return
        if self.optional and not _all_complete(first, second, group, groups):
            # Two that are together with a third need not be if this one has no value: of each clique by itself.
            for clique, cliques in _cliques(first[first != second], second[first != second], rows, ()):
                zero = np.zeros(cliques, np.int64)
                self.conditions.append(Occupancy(self._name, self._load(clique, cliques), zero, zero + 1))
            return
        if self._is_choice and not self.optional:
            leader = np.full(groups, rows, np.int64)
            np.minimum.at(leader, group[group != NONE], np.flatnonzero(group != NONE))
            found = np.where(group != NONE, leader[group], NONE).astype(np.int32)
            found[leader] = NONE
            self.conditions.append(Colocation(self._name, found))
            return
        zero = np.zeros(groups, np.int64)
        self.conditions.append(Occupancy(self._name, self._load(group, groups), zero, zero + 1))


def _kept_apart(limits: Sequence[Limit], bucket: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """(rows,) groups in which no two rows have the same attribute, by limits of one on that or on more."""
    found = []
    for limit in limits:
        load = limit.load
        pairs = np.unique(np.stack((bucket, load.bucket))[:, bucket != NONE], axis=1)
        coarser = pairs.shape[1] == len(np.unique(pairs[0])) and not bool((pairs[1] == NONE).any())
        if coarser and int(np.max(limit.upper, initial=0)) <= 1:
            found.append(np.where(load.weight > 0, load.group, NONE).astype(np.int32))
    return found


def _components(first: Places, second: Places, rows: int) -> tuple[NDArray[np.int32], int]:
    """(rows,) the component of each row that pairs connect with another, or NONE, and how many there are."""
    apart = first != second
    first, second = first[apart], second[apart]
    label = np.arange(rows)
    while True:
        least = np.minimum(label[first], label[second])
        before = label.copy()
        np.minimum.at(label, first, least)
        np.minimum.at(label, second, least)
        label = label[label]
        if bool((label == before).all()):
            break
    group = np.full(rows, NONE, np.int32)
    inside = np.unique(np.concatenate((first, second)))
    group[inside] = np.unique(label[inside], return_inverse=True)[1]
    return group, int(group.max(initial=-1)) + 1


def _all_complete(first: Places, second: Places, group: NDArray[np.int32], groups: int) -> bool:
    """Whether in every component all rows are paired with all others."""
    sizes = np.bincount(group[group != NONE], minlength=groups)
    low, high = np.minimum(first, second), np.maximum(first, second)
    pairs = np.unique(low[low != high].astype(np.int64) * len(group) + high[low != high])
    return len(pairs) == int((sizes * (sizes - 1) // 2).sum())


@dataclass(frozen=True, slots=True)
class _OfPairs(Uniform):
    """``price`` times the number of pairs that so many rows are."""

    price: int

    def __call__(self, loads: tuple[Amounts, ...]) -> Amounts:
        (number,) = loads
        return self.price * (number * (number - 1) // 2)


def _square_of(own: Amounts, first: Places, second: Places, cost: Amounts) -> Amounts | None:
    """(rows,) sizes of which the square of what is in a bucket is what all pairs there cost, or less that; or None."""
    size = np.sqrt(np.abs(own).astype(np.float64)).round().astype(np.int64)
    number = int(np.count_nonzero(size))
    sign = 1 if bool((own >= 0).all()) else -1
    whole = bool((sign * size * size == own).all()) and len(cost) == number * (number - 1) // 2
    return size if number and whole and bool((cost == 2 * sign * size[first] * size[second]).all()) else None


@dataclass(frozen=True, slots=True)
class _Square(Uniform):
    factor: int

    def __call__(self, loads: tuple[Amounts, ...]) -> Amounts:
        (amount,) = loads
        return self.factor * amount * amount


@dataclass(frozen=True, slots=True)
class _Times(Uniform):
    factor: int

    def __call__(self, loads: tuple[Amounts, ...]) -> Amounts:
        (amount,) = loads
        return self.factor * amount


def _cliques(
    first: Places, second: Places, rows: int, known: Sequence[NDArray[np.int32]], *, apart: bool = False
) -> Iterator[tuple[NDArray[np.int32], int]]:
    """Groups of rows that cover all pairs: (rows,) the clique of each row or NONE, and how many there are.

    ``apart``: no pair is in two of them.  ``known``: groups of rows that may be in a clique anyhow.
    """
    group, groups = _components(first, second, rows)
    if not groups:
        return
    if _all_complete(first, second, group, groups):
        yield group, groups
        return
    layers: list[NDArray[np.int32]] = []
    for clique in _cover(first, second, known, apart):
        members = list(clique)
        for layer in layers:
            if bool((layer[members] == NONE).all()):
                break
        else:
            layer = np.full(rows, NONE, np.int32)
            layers.append(layer)
        layer[members] = int(layer.max()) + 1
    for layer in layers:
        yield layer, int(layer.max()) + 1


def _twins(first: Places, second: Places) -> tuple[list[frozenset[int]], list[int]]:
    """Sets of rows, and how often to count the pairs in each, so that in the end these pairs are counted once."""
    near: dict[int, set[int]] = {}
    for one, other in zip(first.tolist(), second.tolist(), strict=True):
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    of: dict[int, frozenset[int]] = {}
    for closed in (True, False):  # twins that are paired with each other first
        same: dict[frozenset[int], list[int]] = {}
        for row in near.keys() - of.keys():
            same.setdefault(frozenset(near[row] | {row} if closed else near[row]), []).append(row)
        of |= {
            row: frozenset(twins) for twins in same.values() if len(twins) > 1 or not closed for row in twins
        }
    counted: dict[frozenset[int], int] = {}
    for twins in sorted(set(of.values()), key=min):
        row = min(twins)
        beside = {of[other] for other in near[row]} - {twins}
        inside = any(other in near[row] for other in twins)
        counted[twins] = counted.get(twins, 0) + inside - len(beside)
        for others in sorted(beside, key=min):
            if min(twins) < min(others):
                counted[twins | others] = counted.get(twins | others, 0) + 1
    kept = {members: times for members, times in counted.items() if times and len(members) > 1}
    return list(kept), list(kept.values())


def _cover(
    first: Places, second: Places, known: Sequence[NDArray[np.int32]], apart: bool
) -> Iterator[Iterable[int]]:
    """Cliques that together have every pair, large ones first found where a pair begins them."""
    near: dict[int, set[int]] = {}
    for one, other in zip(first.tolist(), second.tolist(), strict=True):
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    open_pairs = {row: set(others) for row, others in near.items()}
    for group in known:
        members: dict[int, set[int]] = {}
        for row in near:
            if group[row] != NONE:
                members.setdefault(int(group[row]), set()).add(row)
        for some in members.values():
            for row in some:
                near[row] |= some - {row}
    for row in sorted(near):
        while open_pairs[row]:
            clique = [row]
            common, fresh = set((open_pairs if apart else near)[row]), set(open_pairs[row])
            while common:
                # Pairs that no clique has yet come first.
                chosen = min(fresh & common or common)
                if not fresh & common and len(clique) > 1 and not open_pairs[chosen] & set(clique):
                    break
                clique.append(chosen)
                common &= (open_pairs if apart else near)[chosen]
                fresh |= open_pairs[chosen]
            for one in clique:
                open_pairs[one] -= set(clique)
            yield clique
