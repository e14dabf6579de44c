"""Why a part that is an assignment problem has no solution: in whole columns, as it was solved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sqlglot
from sqlglot import exp

from mgmt.compiler.assignments.normalization.expressions import RowColumn, ValueColumn
from mgmt.compiler.assignments.recognition.lookup_joins import Lookup
from mgmt.compiler.assignments.recognition.shape import Shape
from mgmt.compiler.infeasibility.clashes import core_member
from mgmt.compiler.parts.assignment import ColumnarPart
from mgmt.errors import CoreMember
from mgmt.language.bound_queries.expressions import Comparison, has_aggregate
from mgmt.language.bound_queries.queries import BoundQuery
from mgmt.optimization.assignment import Mask, Skew
from mgmt.optimization.general.deadline import Deadline
from mgmt.optimization.infeasibility import elastic
from mgmt.optimization.infeasibility.assignment_core import Clashing, find_clash, least_gives
from mgmt.optimization.infeasibility.closed_form import blocked_alone, shortfall
from mgmt.optimization.infeasibility.constraint_instances import Ban, ConstraintSet, Give, Instance
from mgmt.optimization.infeasibility.count_problem import TooLargeError
from mgmt.optimization.infeasibility.limit_overflow import overflow
from mgmt.optimization.problem import Tag
from mgmt.state.database import Snapshot
from mgmt.state.schema import SqlType

_MOST_COUNTED = 200  # constraints of a core; with more, the least that they must give is not found in time
_MOST_WITH_REASONS = 2_000  # rows that choose; beyond, a reason is left out rather than waited for
_MOST_DESCRIBED = 20_000  # rows that choose; of more only those of the core can be spoken of


@dataclass(slots=True)
class ColumnarClash:
    """What clashes in one part; rows are described when they are first spoken of."""

    constraints: ConstraintSet
    clashing: Clashing
    describe: _Describer
    core: tuple[str, ...]
    names: tuple[str, ...]
    alone: bool
    """Whether nothing but this part is to be decided, and nothing but what was looked at says how."""
    part: ColumnarPart
    whole: bool
    """Whether the part is all there is to decide."""
    rows: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    _numbers: dict[tuple[Instance, int], int] = field(default_factory=dict)

    @property
    def certain(self) -> bool:
        return self.alone

    @property
    def minimal(self) -> bool:
        return self.clashing.minimal

    def members(self, queries: Mapping[str, BoundQuery]) -> list[CoreMember]:
        """The members of the core."""
        found = []
        alone = blocked_alone(self.constraints, self.clashing.instances)
        for name in self.core:
            mine = [instance for instance in self.clashing.instances if instance.constraint == name]
            numbers = dict.fromkeys(
                self._number(instance, row) for instance in mine for row in self._rows_of(instance, alone)
            )
            described = [self.rows[name][number] for number in numbers]
            missing = shortfall(self.constraints, self.clashing.instances, mine)
            found.append(core_member(name, queries.get(name), described, missing))
        return found

    def gives_reasons(self, queries: Mapping[str, BoundQuery]) -> bool:
        """Whether every member of the core that has a REASON can say it of its rows."""
        for member in self.members(queries):
            asked = queries[member.constraint].demand
            if asked is not None and asked.tail.reason is not None and not member.reason:
                return False
        return True

    def missing(self, name: str) -> int:
        """By how much the rows of a constraint in the core need more than they allow; 0 where that cannot be said."""
        mine = [instance for instance in self.clashing.instances if instance.constraint == name]
        short = shortfall(self.constraints, self.clashing.instances, mine)
        return 0 if short is None else short[0] - short[1]

    def slack(self, names: set[str], deadline: Deadline, *, whole: bool) -> elastic.Slack | None:
        found = self._counted(names, deadline, whole=whole)
        return found or self._overflow(names, deadline.part(1 / 2), whole=whole)

    def _overflow(self, names: set[str], deadline: Deadline, *, whole: bool) -> elastic.Slack | None:
        """Not the least, but found where there is too much for all buckets together."""
        built = self.part.built
        found = overflow(built.assignment, names, deadline=deadline)
        if found is None or not found.above:
            return None
        gives = []
        for place, group, bucket, above in found.above:
            instance = Instance(built.assignment.limits[place].name, place, group, bucket)
            gives.extend(self._given(Give(instance, waived=True) if whole else Give(instance, above)))
        cells = self.part.cells(found.choice)
        column = (built.table.name, built.column.name)
        return elastic.Slack(tuple(gives), False, {column: cells} if self.whole else None)

    def _counted(self, names: set[str], deadline: Deadline, *, whole: bool) -> elastic.Slack | None:
        if len(self.clashing.instances) > _MOST_COUNTED:
            return None
        try:
            gives = least_gives(
                self.constraints, frozenset(names), self.clashing.instances, whole=whole, deadline=deadline
            )
        except TooLargeError:
            return None
        if gives is None:
            return None
        return elastic.Slack(tuple(found for give in gives for found in self._given(give)), True)

    def _given(self, give: Give) -> list[elastic.Give]:
        name = give.instance.constraint
        if give.rows:
            return [
                elastic.Give(Tag(name, self._number(give.instance, row)), waived=True) for row in give.rows
            ]
        above, below = give.above, give.below
        if self.describe.turned(name):
            above, below = below, above
        return [elastic.Give(Tag(name, self._number(give.instance, -1)), above, below, give.waived)]

    def _rows_of(self, instance: Instance, alone: Mask) -> list[int]:
        """The choosing rows an instance is told by: of a ban's those that clash by themselves, or else each of them."""
        if not instance.is_ban:
            return [-1]
        mine = self.constraints.bans[instance.source].row_class == instance.group
        return np.flatnonzero(mine & alone if (mine & alone).any() else mine).tolist()

    def _number(self, instance: Instance, row: int) -> int:
        """The number of a row of a constraint; it is described now if it was not spoken of before."""
        key = (instance, row)
        if key not in self._numbers:
            rows = self.rows.setdefault(instance.constraint, [])
            rows.append(self.describe.row(instance, row))
            self._numbers[key] = len(rows) - 1
        return self._numbers[key]


def columnar_clash(
    snapshot: Snapshot, part: ColumnarPart, *, alone: bool, deadline: Deadline
) -> ColumnarClash | None:
    """The clash of a part that is impossible; None where it cannot be told from its columns, or not in time.

    ``alone``: the part is all there is to decide.  To be called while the views that the part reads are defined in the
    snapshot.
    """
    built = part.built
    constraints = ConstraintSet(
        np.zeros(built.choosers.rows, np.intp),
        np.append(np.ones(built.choosers.values, np.bool_), built.choosers.nullable)[None, :],
        built.assignment.limits,
        tuple(Ban(name, ban.row_class, ban.forbidden) for name, ban in built.bans),
        tuple(one for one in built.assignment.conditions if isinstance(one, Skew)),
    )
    if built.impossible:
        return None  # it fails whatever is chosen; which of its groups does is not in the columns
    try:
        clashing = find_clash(constraints, deadline=deadline)
    except (TooLargeError, TimeoutError):
        return None
    if clashing is None:
        return None
    core = tuple(dict.fromkeys(instance.constraint for instance in clashing.instances))
    shapes = built.shapes
    if any(name not in shapes for name in core) or deadline.passed:
        return None  # UNIQUE of a table is no query with rows to show
    rules = {limit.name for limit in constraints.limits} | {ban.name for ban in constraints.bans}
    rules |= {skew.name for skew in constraints.skews}
    names = tuple(name for name in shapes if name in rules) if constraints.rows <= _MOST_DESCRIBED else core
    describer = _Describer(part, constraints, {name: _ShapeRows.of(snapshot, shapes[name]) for name in names})
    if any(one.is_skew and describer.groups_are_rows(one.constraint) for one in clashing.instances):
        return None  # which of its groups it is, is in the rows cell by cell
    # Other conditions were not looked at; they are no part of the core, but of what helps.
    certain = alone and len(constraints.skews) == len(built.assignment.conditions)
    clash = ColumnarClash(constraints, clashing, describer, core, names, certain, part, alone)
    if constraints.rows <= _MOST_WITH_REASONS and not clash.gives_reasons({n: shapes[n].bound for n in core}):
        return None  # a REASON names columns that only the rows cell by cell have
    return clash


@dataclass(slots=True)
class _ShapeRows:
    """The constants of a shape's rows and values, to name groups and buckets by."""

    shape: Shape
    row_names: list[str]
    value_names: list[str]
    rows: dict[int, tuple[Any, ...]]
    values: dict[Any, tuple[Any, ...]]
    finds: tuple[_Finds, ...]

    repeated: bool
    """Whether rows that choose are there several times."""

    @classmethod
    def of(cls, snapshot: Snapshot, shape: Shape) -> _ShapeRows:
        fetched = snapshot.rows(shape.rows.sql)
        rows = {row[0]: row[1:] for row in reversed(fetched)}
        values: dict[Any, tuple[Any, ...]] = {}
        if shape.values is not None:
            values = {row[0]: row[1:] for row in reversed(snapshot.rows(shape.values.sql))}
        row_names = _names(shape, shape.rows.sql)[1:]
        value_names = [] if shape.values is None else _names(shape, shape.values.sql)[1:]
        finds = tuple(_Finds.of(snapshot, shape, lookup) for lookup in shape.lookups)
        outputs = {output.name for output in shape.bound.outputs}
        for one in finds:
            for key, name in zip(one.lookup.keys, one.names, strict=False):
                # A column that is equal to the one selected is called as that is.
                names = row_names if isinstance(key, RowColumn) else value_names
                if isinstance(key, (RowColumn, ValueColumn)) and name in outputs - {names[key.slot]}:
                    names[key.slot] = name
        return cls(shape, row_names, value_names, rows, values, finds, len(rows) < len(fetched))


@dataclass(slots=True)
class _Finds:
    """What a shape's join with rows and values finds, by its keys."""

    lookup: Lookup
    names: list[str]
    entries: dict[tuple[Any, ...], tuple[Any, ...]]

    @classmethod
    def of(cls, snapshot: Snapshot, shape: Shape, lookup: Lookup) -> _Finds:
        number = len(lookup.keys)
        entries = {row[:number]: row[number:] for row in snapshot.rows(lookup.select.sql)}
        return cls(lookup, _names(shape, lookup.select.sql), entries)

    def described(
        self, row_cells: Sequence[Any], value_cells: Sequence[Any], bound: BoundQuery
    ) -> dict[str, Any]:
        """Of the entry for a row and a value, the columns that the constraint shows or compares with."""
        asked = []
        for key in self.lookup.keys:
            cells = row_cells if isinstance(key, RowColumn) else value_cells
            if not isinstance(key, (RowColumn, ValueColumn)) or key.slot >= len(cells):
                return {}
            asked.append(cells[key.slot])
        entry = self.entries.get(tuple(asked), ())
        outputs = {output.name for output in bound.outputs}
        names = self.names[len(self.lookup.keys) :]
        return {name: cell for name, cell in zip(names, entry, strict=False) if name in outputs}


class _Describer:
    def __init__(
        self, part: ColumnarPart, constraints: ConstraintSet, shapes: Mapping[str, _ShapeRows]
    ) -> None:
        self._part = part
        self._constraints = constraints
        self._shapes = shapes

    def turned(self, constraint: str) -> bool:
        """Whether what is loaded stands on the right of the check: a load above is then a left side below."""
        for node in self._shapes[constraint].shape.demand.walk():
            if isinstance(node, Comparison):
                return has_aggregate(node.right) and not has_aggregate(node.left)
        return False

    def groups_are_rows(self, constraint: str) -> bool:
        """Whether the groups of a constraint are told by the rows, of which several are of one choice."""
        return self._shapes[constraint].repeated

    def row(self, instance: Instance, chooser: int) -> Mapping[str, Any]:
        """The constants of one row of a constraint: of a group and bucket, or of a choosing row."""
        found = self._shapes[instance.constraint]
        choosers = self._part.built.choosers
        described: dict[str, Any] = {}
        row_cells: Sequence[Any] = ()
        value_cells: Sequence[Any] = ()
        if instance.is_ban:
            for name, value in zip(self._part.built.table.primary_key, choosers.keys[chooser], strict=True):
                described[_output_name(found.shape.bound, name)] = value
            return described
        load = self._constraints.load(instance)
        rows = (load.group == max(instance.group, 0)).nonzero()[0]
        values = (load.bucket == instance.bucket).nonzero()[0]
        if len(rows) and found.shape.row_keys:
            row_cells = found.rows.get(int(choosers.numbers[rows[0]]), ())
            for slot in found.shape.row_keys:
                if slot < len(row_cells):
                    described[found.row_names[slot]] = row_cells[slot]
        if len(values):
            value = choosers.domain[int(values[0])]
            value_cells = found.values.get(value, ())
            for slot in found.shape.value_keys:
                if slot < len(value_cells):
                    described[found.value_names[slot]] = value_cells[slot]
            for one in found.finds:
                described |= one.described(row_cells, value_cells, found.shape.bound)
            if not described:
                column = self._part.built.column
                described[column.current or column.name] = (
                    bool(value) if column.type is SqlType.BOOLEAN else value
                )
        return described


def _names(shape: Shape, sql: str) -> list[str]:
    """What the columns of a statement are called in the constraint."""
    tree = sqlglot.parse_one(sql, read="duckdb")
    return [_name(shape, item.unalias().unnest()) for item in tree.expressions]


def _name(shape: Shape, tree: exp.Expr) -> str:
    text: str = tree.sql(dialect="duckdb", identify=True)
    return shape.outputs.get(text, tree.name if isinstance(tree, exp.Column) else text)


def _output_name(bound: BoundQuery, column: str) -> str:
    """The output that is a column of this name, or the name itself."""
    for output in bound.outputs:
        tree = output.tree.unalias()
        if isinstance(tree, exp.Column) and tree.name.lower() == column.lower():
            return output.name
    return column
