"""Build the assignment problem of one variable column from the shapes of the demands on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mgmt.compiler.assignments.building.contributions import whole_or_sliced
from mgmt.compiler.assignments.building.costs import costs_of, joined
from mgmt.compiler.assignments.building.limits import Ban, ban_of, joint, limits_of
from mgmt.compiler.assignments.columns.candidates import Candidates, Choosers, classes, places_in
from mgmt.compiler.assignments.columns.fetch import Columns
from mgmt.compiler.assignments.columns.vectors import Vector
from mgmt.compiler.assignments.pairwise.demands import paired
from mgmt.compiler.assignments.pairwise.pairing import Pairing
from mgmt.compiler.assignments.recognition.shape import Shape
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.compiler.relational.dependencies import UNKNOWN
from mgmt.compiler.relational.split import SplitQuery
from mgmt.language.names.catalog import Catalog, domain_sql
from mgmt.optimization.assignment import NONE, Amounts, Assignment, Condition, Cost, Limit, Load, Tier
from mgmt.state.database import Snapshot
from mgmt.state.schema import Column, SqlType, Table, quote, unique_name


@dataclass(slots=True)
class Built:
    """An assignment problem, and how its arrays read as rows and values of the database."""

    table: Table
    column: Column
    choosers: Choosers
    assignment: Assignment
    impossible: tuple[str, ...] = ()
    """Constraints that fail whatever is chosen."""
    objectives: dict[str, tuple[tuple[Cost, ...], int]] = field(default_factory=dict)
    """Per objective its costs and what it costs whatever is chosen, to be minimised, weights included."""
    bans: tuple[tuple[str, Ban], ...] = ()
    """What each constraint of single rows forbids; ``assignment`` has them joined."""
    shapes: dict[str, Shape] = field(default_factory=dict)
    """Per demand the shape that was taken in, where it was one."""


def _times(cost: Cost, number: int) -> Cost:
    return cost if number == 1 else replace(cost, weight=number * cost.weight)


class Builder:
    """Builds one assignment problem."""

    def __init__(
        self,
        table: Table,
        column: Column,
        catalog: Catalog,
        columns: Columns,
        snapshot: Snapshot,
        *,
        choosers: Choosers | None = None,
    ) -> None:
        self._table, self._column = table, column
        self._catalog, self._columns, self._snapshot = catalog, columns, snapshot
        self._bans: list[tuple[str, Ban]] = []
        self._limits: list[Limit] = []
        self._conditions: list[Condition] = []
        self._objectives: dict[str, tuple[tuple[Cost, ...], int]] = {}
        self._tiers: dict[int, list[Cost]] = {}
        self._constants: dict[int, int] = {}
        self._impossible: list[str] = []
        self._shapes: dict[str, Shape] = {}
        self._several: set[str] = set()
        self._pairings: list[Pairing] = []
        self.choosers = self._fetch_choosers() if choosers is None else choosers
        for unique in table.uniques:
            self._add_unique(unique)

    def add(self, shape: Shape | Pairing) -> None:
        """Take in one demand.  NotAnAssignment when the data do not let it be put in columns."""
        if isinstance(shape, Pairing):
            self._pairings.append(shape)
            return
        try:
            self._add(shape)
        except NotAnAssignment:
            if shape.otherwise is None:
                raise
            shape = shape.otherwise
            self._add(shape)
        if shape.name in self._shapes:
            self._several.add(shape.name)
        self._shapes[shape.name] = shape

    def _add(self, shape: Shape) -> None:
        demand = shape.bound.demand
        assert demand is not None
        data = Candidates(shape, self.choosers, self._columns, self._snapshot)
        around = self._around(shape)
        if demand.is_objective:
            if data.empty:
                data.require_groups(0)
            costs, constant = ((), 0) if data.empty else joined(whole_or_sliced(data, costs_of))
            costs, constant = [_times(cost, around) for cost in costs], around * constant
            self._add_costs(shape.name, demand.tail.tier, costs, constant)
            return
        if data.empty or not around:
            data.require_groups(0)
            return
        if shape.grouped:
            for found in whole_or_sliced(data, limits_of):
                self._limits.extend(found.limits)
                self._conditions.extend(found.conditions)
                self._bans.extend((shape.name, ban) for ban in found.bans)
                self._impossible.extend([shape.name] if found.impossible else [])
        else:
            ban = ban_of(data)
            if ban is not None:
                self._bans.append((shape.name, ban))

    def _around(self, shape: Shape) -> int:
        """How many rows demand what a shape does."""
        if shape.around is None:
            return 1
        return int(self._columns.table(self._snapshot, *shape.around).columns[0].values[0])

    def _add_pairs(self, pairing: Pairing, limits: Sequence[Limit]) -> None:
        """Take in a demand on pairs; ``limits``: of other demands, which may keep rows apart, too."""
        found = paired(pairing, self.choosers, self._columns, self._snapshot, limits)
        self._limits.extend(found.limits)
        self._conditions.extend(found.conditions)
        self._impossible.extend([pairing.name] if found.impossible else [])
        demand = pairing.bound.demand
        if demand is not None and demand.is_objective:
            self._add_costs(pairing.name, demand.tail.tier, found.costs, found.constant)

    def _add_costs(self, name: str, tier: int, costs: Sequence[Cost], constant: int) -> None:
        self._tiers.setdefault(tier, []).extend(costs)
        self._constants[tier] = self._constants.get(tier, 0) + constant
        before, known = self._objectives.get(name, ((), 0))
        self._objectives[name] = ((*before, *costs), known + constant)

    def add_nothing(self, step: SplitQuery) -> None:
        """Take in a demand that has no rows today."""
        demand = step.bound.demand
        if demand is not None and demand.is_objective:
            self._tiers.setdefault(demand.tail.tier, [])
            self._objectives[step.name] = ((), 0)

    def finish(self, refuse: Callable[[str, NotAnAssignment], None]) -> Built:
        """The whole; demands on pairs that prove to have no shape are refused, and left out where that returns."""
        limits = tuple(self._limits)
        for pairing in self._pairings:
            try:
                self._add_pairs(pairing, limits)
            except NotAnAssignment as reason:
                refuse(pairing.name, reason)
        choosers = self.choosers
        row_class, allowed, optional = joint(choosers, [ban for _, ban in self._bans])
        tiers = tuple(
            Tier(number, tuple(costs), self._constants.get(number, 0))
            for number, costs in sorted(self._tiers.items())
        )
        assignment = Assignment(
            choosers.values,
            row_class,
            allowed,
            ~optional[row_class] if len(row_class) else np.zeros(0, np.bool_),
            choosers.current,
            tuple(self._limits),
            tiers,
            tuple(self._conditions),
        )
        return Built(
            self._table,
            self._column,
            choosers,
            assignment,
            tuple(self._impossible),
            self._objectives,
            tuple(self._bans),
            {name: shape for name, shape in self._shapes.items() if name not in self._several},
        )

    # ---- what belongs to the table alone ------------------------------------------------------------

    def _fetch_choosers(self) -> Choosers:
        table, column = self._table, self._column
        if column.type is SqlType.REAL:
            raise NotAnAssignment("a choice of reals")
        sql = domain_sql(self._catalog, table.name, column.name)
        sql = f"SELECT value FROM ({sql}) WHERE value IS NOT NULL ORDER BY value"
        reads = () if column.references is None else (column.references[0].lower(),)
        reads = reads if column.domain is None else (UNKNOWN[0],)
        values = self._columns.table(self._snapshot, sql, reads)
        raw = self._columns.rows(self._snapshot, sql, reads)
        domain = self._columns.derived(("domain", sql), (values,), lambda: self._domain(raw))
        keys = ", ".join(map(quote, table.primary_key))
        sql = f"SELECT rowid, {quote(column.current or column.name)}, {keys} FROM {quote(table.name)} ORDER BY {keys}"
        rows = self._columns.rows(self._snapshot, sql, (table.name.lower(),))
        key = ("choosers", table.name, column.name, column.nullable)
        return self._columns.derived(key, (domain, rows), lambda: self._choosers(*domain, rows))

    def _domain(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Sequence[Any], Vector]:
        """The values to choose from, and the same as a column."""
        domain = list(dict.fromkeys(value for (value,) in rows))
        return domain, self._columns.interner.vector(domain)

    def _choosers(self, domain: Sequence[Any], codes: Vector, rows: Sequence[tuple[Any, ...]]) -> Choosers:
        column, interner = self._column, self._columns.interner
        if not rows:
            none = np.zeros(0, np.int64)
            return Choosers(
                none, (), none.astype(np.int32), (), none.astype(np.bool_), domain, codes, column.nullable
            )
        today = [row[1] for row in rows]
        current = interner.vector(today)
        if column.type is SqlType.BOOLEAN:
            today = [None if value is None else bool(value) for value in today]
        return Choosers(
            np.fromiter((row[0] for row in rows), np.int64, len(rows)),
            [row[2:] for row in rows],
            places_in(codes, current).astype(np.int32),
            today,
            ~current.nulls,
            domain,
            codes,
            column.nullable,
        )

    def _add_unique(self, unique: tuple[str, ...]) -> None:
        """UNIQUE over the choice: rows with the same other columns take different values."""
        lower = {name.lower() for name in unique}
        if self._column.name.lower() not in lower or not self.choosers.rows:
            return
        others = [name for name in unique if name.lower() != self._column.name.lower()]
        if any(self._table.column(name).is_variable for name in others):
            raise NotAnAssignment("UNIQUE over several choices")
        choosers = self.choosers
        group = np.zeros(choosers.rows, np.int32)
        groups = 1
        if others:
            names = ", ".join(map(quote, others))
            keys = ", ".join(map(quote, self._table.primary_key))
            rows = self._snapshot.rows(f"SELECT {names} FROM {quote(self._table.name)} ORDER BY {keys}")
            cells = [self._columns.interner.vector(column) for column in zip(*rows, strict=True)]
            same = classes(cells, choosers.rows)
            null = np.logical_or.reduce([cell.nulls for cell in cells])
            group = np.where(null, NONE, same.of).astype(np.int32)
            groups = same.count
        load = Load(
            group,
            groups,
            np.arange(choosers.values, dtype=np.int32),
            choosers.values,
            np.ones(choosers.rows, np.int64),
        )
        zero: Amounts = np.zeros((1, 1), np.int64)
        self._limits.append(Limit(unique_name(self._table, unique), load, zero, zero + 1))
