"""The data of one shape: its rows, its values, and grids of classes of both to evaluate expressions over.

Rows (and values) that an expression cannot tell apart are one class, so that a condition on 50 rows and 10 000
values is evaluated over the few kinds of rows and values that there are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgmt.compiler.assignments.columns.fetch import Columns
from mgmt.compiler.assignments.columns.vectors import MOST_CELLS, Integers, Leaves, Mask, Vector, evaluate
from mgmt.compiler.assignments.normalization.expressions import (
    Chosen,
    Constant,
    LookupColumn,
    RowColumn,
    ScalarColumn,
    Unknown,
    ValueColumn,
)
from mgmt.compiler.assignments.recognition.shape import Shape
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    AggregateFunction,
    Comparison,
    Expression,
    MembershipQuery,
)
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.state.database import Snapshot
from mgmt.state.schema import SqlType

Places = NDArray[np.intp]
_NUMBERS = (AggregateFunction.COUNT, AggregateFunction.COUNT_DISTINCT, AggregateFunction.SUM)
"""Over no rows they are 0."""
_MOST_SLICES = 256
"""Each is looked at by itself."""


@dataclass(frozen=True, slots=True, eq=False)
class Choosers:
    """The rows of the choosing table, in the order of their primary key, and what they choose from."""

    numbers: Integers
    """(R,) row numbers of the database."""
    keys: Sequence[tuple[Any, ...]]
    """(R,) primary keys."""
    current: NDArray[np.int32]
    """(R,) the place of today's value in the domain, or -1."""
    today: Sequence[Any]
    """(R,) today's values, as the database has them."""
    has_current: Mask
    """(R,) whether there is a value today, also one outside the domain."""
    domain: Sequence[Any]
    codes: Vector
    """(V,) the domain as a column."""
    nullable: bool

    @property
    def rows(self) -> int:
        return len(self.numbers)

    @property
    def values(self) -> int:
        return len(self.domain)

    def places_of_rows(self, numbers: Integers) -> Places:
        """Where the rows of these numbers stand."""
        order = np.argsort(self.numbers, kind="stable")
        return order[np.searchsorted(self.numbers, numbers, sorter=order)]


def places_in(codes: Vector, cells: Vector) -> Places:
    """The place of each cell among ``codes`` (distinct, without NULL), or -1."""
    if cells.codes != codes.codes and cells.values.size and codes.values.size and not cells.nulls.all():
        raise NotAnAssignment("a choice compared with values of another kind")
    if not codes.values.size or (cells.null is not None and cells.null.all()):
        return np.full(cells.values.shape, -1, np.intp)
    order = np.argsort(codes.values, kind="stable")
    found = np.minimum(np.searchsorted(codes.values, cells.values, sorter=order), len(order) - 1)
    places = order[found]
    known = (codes.values[places] == cells.values) & ~cells.nulls
    return np.where(known, places, -1)


def each_once(places: Places) -> bool:
    """Whether no place is there twice; -1 must not be among them."""
    return not len(places) or int(np.bincount(places).max()) == 1


def at_places(columns: NDArray[Any], places: Places, width: int, combine: np.ufunc) -> NDArray[Any]:
    """(K, width): the columns of (K, n) at their places; those of one place combined, 0 where there is none."""
    found = np.zeros((len(columns), width), columns.dtype)
    if not len(places):
        return found
    if each_once(places):
        found[:, places] = columns
        return found
    order = np.argsort(places, kind="stable")
    distinct, starts = np.unique(places[order], return_index=True)
    found[:, distinct] = combine.reduceat(columns[:, order], starts, axis=1)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """Which class each row (or value) is in, and one example of each class."""

    of: Places
    examples: Places

    @property
    def count(self) -> int:
        return len(self.examples)


def classes(columns: Sequence[Vector], count: int) -> Classes:
    """Rows that all these columns agree on are one class; with no column there is one class of all."""
    keys: list[Integers] = []
    for column in columns:
        keys.append(column.values if column.null is None else np.where(column.null, 0, column.values))
        if column.null is not None:
            keys.append(column.null.astype(np.int64))
    return classes_of(keys, count)


def classes_of(keys: Sequence[NDArray[Any]], count: int) -> Classes:
    """The same for plain arrays."""
    found: Places | None = None
    examples = np.zeros(min(count, 1), np.intp)
    for key in keys:
        if not count or bool((key == key[0]).all()):
            continue
        if found is not None:
            _, codes = np.unique(key, return_inverse=True)
            key = found * (int(codes.max()) + 1) + codes
        _, examples, found = np.unique(key, return_index=True, return_inverse=True)
    return Classes(np.zeros(count, np.intp) if found is None else found, examples)


def _joined_slots(gate: Expression) -> Iterator[tuple[int, int]]:
    """The slots of a row and of a value that a condition says to be equal."""
    if isinstance(gate, Comparison) and gate.operator == "=" and not gate.null_safe:
        for one, other in ((gate.left, gate.right), (gate.right, gate.left)):
            if isinstance(one, RowColumn) and isinstance(other, ValueColumn):
                yield one.slot, other.slot


def _joint_codes(rows: Sequence[Vector], values: Sequence[Vector]) -> tuple[Places, Places]:
    """A number for what each row and each value has in these columns, the same for the same; -1 beside a NULL."""
    count = len(rows[0].values)
    code = np.zeros(count + len(values[0].values), np.intp)
    null = np.zeros(len(code), np.bool_)
    for row, value in zip(rows, values, strict=True):
        if row.codes != value.codes:
            raise NotAnAssignment("text compared with a number")
        both = np.unique(np.concatenate((row.values, value.values)), return_inverse=True)[1]
        code = np.unique(code * (int(both.max(initial=0)) + 1) + both, return_inverse=True)[1]
        null |= np.concatenate((row.nulls, value.nulls))
    code = np.where(null, -1, code)
    return code[:count], code[count:]


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Rows' classes and values' classes, and how an expression is evaluated over all pairs of them."""

    rows: Classes
    values: Classes
    leaves: Leaves

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.count, self.values.count

    def evaluate(self, expression: Expression) -> Vector:
        """(row classes, value classes)."""
        found = evaluate(expression, self.leaves)
        null = None if found.null is None else np.broadcast_to(found.null, self.shape)
        return Vector(np.broadcast_to(found.values, self.shape), null, found.codes)

    def holds(self, conditions: Sequence[Expression]) -> Mask:
        """(row classes, value classes): where all of these are TRUE."""
        held = np.ones(self.shape, np.bool_)
        for condition in conditions:
            held &= self.evaluate(condition).true
        return held


class Candidates:
    """The columns of one shape.

    Candidates are the pairs of a row and a value; ``chooser`` says whose choice decides a row, ``place`` which
    choice makes a value the row's: its place in the domain, the number of values for "none", or -1 for nothing.
    """

    def __init__(self, shape: Shape, choosers: Choosers, columns: Columns, snapshot: Snapshot) -> None:
        self.shape = shape
        self.choosers = choosers
        self._columns = columns
        self._members: dict[str, list[Any]] = {}
        self._snapshot = snapshot
        rows = columns.table(snapshot, *shape.rows)
        self.rows = rows.rows
        self._row_slots = rows.columns[1:]
        self.chooser: Places = columns.derived(
            ("chooser", shape.rows),
            (*rows.columns[:1], choosers.numbers),
            lambda: choosers.places_of_rows(rows.columns[0].values) if rows.rows else np.zeros(0, np.intp),
        )
        if shape.values is None:
            self.values = choosers.values + choosers.nullable
            self.place: Places = np.arange(self.values)
            self._value_slots: tuple[Vector, ...] = ()
        else:
            values = columns.table(snapshot, *shape.values)
            self.values = values.rows
            self._value_slots = values.columns[1:]
            self.place = columns.derived(
                ("place", shape.values),
                (*values.columns[:1], choosers.codes),
                lambda: places_in(choosers.codes, values.columns[0]) if values.rows else np.zeros(0, np.intp),
            )
        self._scalars: tuple[Vector, ...] = ()
        if shape.scalars is not None:
            self._scalars = columns.table(snapshot, *shape.scalars).columns
        self.once_per_chooser = bool((np.bincount(self.chooser) <= 1).all())
        self._slice = -1

    def slices(self) -> list[Candidates]:
        """The candidates cut by what equal columns join rows with values: rows of one slice have no value of another.

        So a demand for a resource meets the capacity for that one alone.  Where nothing joins them, a slice is a group
        of values, which may share values with others.  NotAnAssignment when a group of the demand would be cut.
        """
        equal = [pair for gate in self.shape.pair_gates for pair in _joined_slots(gate)]
        if not equal:
            return self._groups_of_values()
        for row, value in equal:
            if row not in self.shape.row_keys and value not in self.shape.value_keys:
                raise NotAnAssignment("groups over what joins rows with values")
        told = [self._row_slots[row] for row, _ in equal], [self._value_slots[value] for _, value in equal]
        rows, values = _joint_codes(*told)
        common = np.intersect1d(rows[rows >= 0], values[values >= 0])
        if len(common) > _MOST_SLICES:
            raise NotAnAssignment(f"{len(common)} ways in which rows and values are joined")
        return [
            self._of(number, np.flatnonzero(rows == code), np.flatnonzero(values == code))
            for number, code in enumerate(common)
        ]

    def _groups_of_values(self) -> list[Candidates]:
        groups = self.value_classes(self.shape.value_keys)
        if not 1 < groups.count <= _MOST_SLICES:
            raise NotAnAssignment("nothing cuts the demand")
        every = np.arange(self.rows)
        return [self._of(group, every, np.flatnonzero(groups.of == group)) for group in range(groups.count)]

    @property
    def is_slice(self) -> bool:
        return self._slice >= 0

    def _of(self, number: int, rows: Places, values: Places) -> Candidates:
        """The candidates of these rows and values alone."""
        found = copy.copy(self)
        found.rows, found.values, found._slice = len(rows), len(values), number
        found._row_slots = tuple(column.take(rows) for column in self._row_slots)
        found._value_slots = tuple(column.take(values) for column in self._value_slots)
        found.chooser, found.place = self.chooser[rows], self.place[values]
        found.once_per_chooser = each_once(found.chooser)
        return found

    @property
    def has_every_value(self) -> bool:
        """Whether each row is there once, whatever it chooses (or not)."""
        if self.shape.values is None:
            return True
        wanted = np.arange(self.choosers.values)
        return not self.choosers.nullable and np.array_equal(np.sort(self.place), wanted)

    @property
    def empty(self) -> bool:
        """Whether there is no candidate at all, so that nothing is demanded."""
        return self.rows == 0 or self.values == 0

    def require_groups(self, number: int) -> None:
        """NotAnAssignment when there have to be more groups than have candidates: those that have none are not here.

        A check that they pass whatever they are demands nothing of them.
        """
        shape = self.shape
        if shape.groups is None or self._nothing_passes():
            return
        counted = self._columns.table(self._snapshot, *shape.groups)
        if int(counted.columns[0].values[0]) != number:
            raise NotAnAssignment("a subquery that some rows around it have no candidates for")

    def _nothing_passes(self) -> bool:
        """Whether a group without candidates passes the check, and nothing of the group is needed to tell."""
        shape = self.shape
        assert shape.bound.demand is not None
        if shape.bound.demand.is_objective or shape.group_gates:
            return False

        def empty(part: Expression) -> Expression:
            if not isinstance(part, Aggregate):
                return part.with_children(empty)
            if part.function not in _NUMBERS:
                raise NotAnAssignment(f"{part.function} of nothing")
            return Constant(SqlType.INTEGER, part.position, 0)

        try:
            check = empty(shape.demand)
            of_groups = any(isinstance(node, (RowColumn, ValueColumn, LookupColumn)) for node in check.walk())
            none = np.zeros(0, np.intp)
            return not of_groups and not bool(evaluate(check, self.leaves(none, none)).false.any())
        except NotAnAssignment:
            return False

    def row_column(self, slot: int) -> Vector:
        return self._row_slots[slot]

    def value_column(self, slot: int) -> Vector:
        return self._value_slots[slot]

    @property
    def chosen(self) -> Vector:
        """(values,) what the choice is where it makes a value the row's; codes of the domain."""
        codes = self.choosers.codes
        inside = (self.place >= 0) & (self.place < self.choosers.values)
        place = np.where(inside, self.place, 0)
        values = codes.values[place] if codes.values.size else np.zeros(len(place), np.int64)
        return Vector(values, None if inside.all() else ~inside, codes.codes)

    def row_classes(self, slots: Sequence[int]) -> Classes:
        """The rows that these slots do not tell apart."""
        told = [self._row_slots[slot] for slot in slots]
        key = ("row classes", self.shape.rows, tuple(slots), self._slice, self.rows)
        return self._columns.derived(key, told, lambda: classes(told, self.rows))

    def value_classes(self, slots: Sequence[int], *, chosen: bool = False) -> Classes:
        """The values that these slots, and if asked for the choice itself, do not tell apart."""
        told = [self._value_slots[slot] for slot in slots]
        key = ("value classes", self.shape.values, tuple(slots), chosen, self._slice, self.values)
        of_choice = (self.place, self.choosers.codes) if chosen else ()
        return self._columns.derived(
            key, (*told, *of_choice), lambda: classes([*told, self.chosen] if chosen else told, self.values)
        )

    def column_of_choice(self, expression: Expression | None) -> Vector | None:
        """(values,) what an expression is that is the choice, or a constant of the value; None: it is neither."""
        if isinstance(expression, Chosen):
            return self.chosen
        return self.value_column(expression.slot) if isinstance(expression, ValueColumn) else None

    def grid(self, *expressions: Expression, by_value: bool = False) -> Grid:
        """The grid of what these expressions can tell apart; ``by_value``: also every value from the others."""
        nodes = [node for expression in expressions for node in expression.walk()]
        row_slots = sorted({node.slot for node in nodes if isinstance(node, RowColumn)})
        value_slots = sorted({node.slot for node in nodes if isinstance(node, ValueColumn)})
        rows = self.row_classes(row_slots)
        if by_value:
            values = Classes(np.arange(self.values), np.arange(self.values))
        else:
            chosen = any(isinstance(node, Chosen) for node in nodes)
            values = self.value_classes(value_slots, chosen=chosen)
        if rows.count * values.count > MOST_CELLS:
            raise NotAnAssignment(f"{rows.count} kinds of rows by {values.count} kinds of values")
        return Grid(rows, values, self.leaves(rows.examples, values.examples))

    def leaves(
        self, rows: Places, values: Places, aggregate: Callable[[Aggregate], Vector] | None = None
    ) -> Leaves:
        """Expressions over these rows (down) and these values (across)."""

        def leaf(expression: Expression) -> Vector:
            if isinstance(expression, RowColumn):
                return self._row_slots[expression.slot].take(rows).reshaped(-1, 1)
            if isinstance(expression, ValueColumn):
                return self._value_slots[expression.slot].take(values).reshaped(1, -1)
            if isinstance(expression, ScalarColumn):
                return self._scalars[expression.slot].reshaped(1, 1)
            if isinstance(expression, Unknown):
                return Vector(np.zeros((1, 1), np.int64), np.ones((1, 1), np.bool_))
            if isinstance(expression, Constant):
                return Vector(np.array([[expression.number]], np.int64))
            if isinstance(expression, Chosen):
                return self.chosen.take(values).reshaped(1, -1)
            if isinstance(expression, LookupColumn):
                return self._found(expression, self.leaves(rows, values), (len(rows), len(values)))
            if isinstance(expression, Aggregate) and aggregate is not None:
                return aggregate(expression)
            raise NotAnAssignment(f"{type(expression).__name__} here")

        return Leaves(leaf, self._members_of, self._columns.interner)

    def _found(self, slot: LookupColumn, leaves: Leaves, shape: tuple[int, int]) -> Vector:
        """(rows, values) what an outer join finds."""
        lookup = self.shape.lookups[slot.lookup]
        table = self._columns.table(self._snapshot, *lookup.select)
        if not table.rows:
            return Vector(np.zeros(shape, np.int64), np.ones(shape, np.bool_))
        asked = [evaluate(key, leaves) for key in slot.keys]
        return looked_up(table.columns[: len(asked)], table.rows, asked, table.columns[slot.slot], shape)

    def _members_of(self, expression: MembershipQuery) -> Sequence[Any]:
        sql = to_sql(expression.tree)
        if sql not in self._members:
            self._members[sql] = [row[0] for row in self._snapshot.rows(sql)]
        return self._members[sql]


def looked_up(
    keys: Sequence[Vector], entries: int, asked: Sequence[Vector], column: Vector, shape: tuple[int, int]
) -> Vector:
    """(rows, values): the column of the entry (of one or more) whose keys are what is asked for; NULL if there is none.

    Each of ``asked`` is a column over rows (n, 1) or over values (1, m), or one constant (1, 1).
    """
    rows, row_entries, rows_known = _lookup_codes(keys, asked, entries, axis=0, count=shape[0])
    values, value_entries, values_known = _lookup_codes(keys, asked, entries, axis=1, count=shape[1])
    usable = np.ones(entries, np.bool_)
    for key in keys:
        usable &= ~key.nulls
    places = np.flatnonzero(usable)
    width = int(max(values.max(initial=-1), value_entries.max(initial=-1))) + 1
    height = int(max(rows.max(initial=-1), row_entries.max(initial=-1))) + 1
    if max(height * width, shape[0] * shape[1]) > MOST_CELLS:
        raise NotAnAssignment("a join between too many kinds of rows and of values")
    entry: NDArray[np.intp] = np.full((height, width), -1, np.intp)
    entry[row_entries[places], value_entries[places]] = places
    if int((entry >= 0).sum()) < len(places):
        raise NotAnAssignment("a join between rows and values that finds several rows")
    found = entry[rows[:, None], values[None, :]]
    found = np.where(rows_known[:, None] & values_known[None, :], found, -1)
    at = np.maximum(found, 0)
    return Vector(column.values[at], (found < 0) | column.nulls[at], column.codes)


def _lookup_codes(
    keys: Sequence[Vector], asked: Sequence[Vector], entries: int, *, axis: int, count: int
) -> tuple[Integers, Integers, Mask]:
    """A number for what each row (or value) asks for and for what each entry has, and whether nothing asked is NULL."""
    joint = np.zeros(count + entries, np.int64)
    known = np.ones(count, np.bool_)
    for key, wanted in zip(keys, asked, strict=True):
        if min(wanted.values.shape) > 1:
            raise NotAnAssignment("a join by what takes rows and values to tell")
        if wanted.values.shape[1 - axis] != 1:
            continue  # it is asked by the other side
        if wanted.codes != key.codes and not wanted.nulls.all() and not key.nulls.all():
            raise NotAnAssignment("text compared with a number")
        own = np.broadcast_to(wanted.values.reshape(-1), (count,))
        known &= ~np.broadcast_to(wanted.nulls.reshape(-1), (count,))
        both = np.unique(np.concatenate((own, key.values)), return_inverse=True)[1]
        joint = np.unique(joint * (int(both.max(initial=0)) + 1) + both, return_inverse=True)[1]
    return joint[:count], joint[count:], known
