"""A part that is an assignment problem, from the snapshot's columns to values.

What it is not: a constraint model (see ``constraint_model``); the shapes themselves (see ``assignments``).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mgmt.compiler.assignments.building.build import Builder, Built
from mgmt.compiler.assignments.columns.fetch import Columns
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.compiler.decisions import Assignments, Decided, Impossible, delta_of
from mgmt.compiler.partition import Formulation, Part
from mgmt.language.names.catalog import Catalog
from mgmt.optimization.assignment import NONE, Assignment, Cost, Indices, Placement, RowCost
from mgmt.optimization.engines import UnsuitableError, solve
from mgmt.optimization.general.lexicographic import TierResult
from mgmt.solution import PrimaryKey, Value
from mgmt.state.database import Snapshot
from mgmt.state.schema import SqlType


@dataclass(slots=True)
class ColumnarPart:
    """One variable column as an assignment problem."""

    part: Part
    built: Built
    encode_seconds: float
    fetched_rows: int

    @classmethod
    def encode(cls, snapshot: Snapshot, part: Part, catalog: Catalog, columns: Columns) -> ColumnarPart:
        """Fetch and build.  NotAnAssignment when the data are of another shape than the policies promised."""
        started = time.perf_counter()
        before = columns.fetched_rows
        if not part.may_be_columnar:
            raise NotAnAssignment(part.why)
        ((table_name, column_name),) = part.columns
        table = catalog.schema.table(table_name)
        column = table.column(column_name)
        builder = Builder(table, column, catalog, columns, snapshot)
        choosers = builder.choosers
        if choosers.rows and not choosers.values:
            raise NotAnAssignment("there is nothing to choose from")

        def refuse(name: str, reason: object) -> None:
            raise NotAnAssignment(f"{name}: {reason}")

        for each in part.formulations:
            if not each.shapes and each.candidates and not all(map(snapshot.rows, each.candidates)):
                builder.add_nothing(each.demand)
            elif not each.shapes:
                refuse(each.demand.name, each.why)
            try:
                for shape in each.shapes:
                    builder.add(shape)
            except NotAnAssignment as reason:
                refuse(each.demand.name, reason)
        built = builder.finish(refuse)
        seconds = time.perf_counter() - started
        return cls(part, built, seconds, columns.fetched_rows - before)

    def current(self, assignments: Assignments) -> bool:
        """Put today's values in; whether every cell has one that needs one."""
        built = self.built
        cells = dict(zip(built.choosers.keys, built.choosers.today, strict=True))
        assignments[built.table.name, built.column.name] = cells
        return built.choosers.nullable or bool(built.choosers.has_current.all())

    def objectives_today(self) -> dict[str, int] | None:
        """What the objectives are worth as things stand; None where values stand that may not be chosen at all."""
        choosers = self.built.choosers
        if bool((choosers.has_current & (choosers.current < 0)).any()):
            return None
        return claims_of(self.part.formulations, self.built, choosers.current)

    def solve(self, *, budget: float, seed: int, workers: int) -> Decided | Impossible:
        """Choose.  NotAnAssignment when no engine is for it."""
        started = time.perf_counter()
        built = self.built
        if built.impossible:
            return Impossible(built.impossible)
        settled = self._settled()
        if settled is not None:
            return self.decided(settled, time.perf_counter() - started)
        try:
            found = solve(built.assignment, seconds=budget, seed=seed, workers=workers)
        except UnsuitableError as reason:
            raise NotAnAssignment(f"no engine: {reason}") from reason
        if found.choice is None:
            return Impossible()
        return self.decided(found, time.perf_counter() - started)

    def _settled(self) -> Placement | None:
        """The state as it stands, if it breaks nothing and nobody could pay less."""
        assignment, choosers = self.built.assignment, self.built.choosers
        standing = assignment.current
        if bool((choosers.has_current & (standing < 0)).any()) or any(assignment.broken(standing)):
            return None
        least = []
        for tier in assignment.tiers:
            floor = tier.constant
            for cost in tier.costs:
                if not isinstance(cost, RowCost) or bool((cost.moved < 0).any()):
                    return None
                kinds = np.minimum(cost.cost.min(axis=1), cost.unplaced)
                floor += cost.weight * int(kinds[cost.row_class].sum())
            least.append(floor)
        worth = assignment.worth(standing)
        if worth != tuple(least):
            return None
        return Placement(standing, worth, worth, "none: the state meets every bound")

    def cells(self, choice: Indices) -> dict[PrimaryKey, Value]:
        """The value of each row under a choice."""
        domain = self._domain()
        return dict(zip(self.built.choosers.keys, [domain[place] for place in choice.tolist()], strict=True))

    def _domain(self) -> list[Value]:
        """What may be chosen; the last is to have no value."""
        domain: list[Value] = [*self.built.choosers.domain, None]
        if self.built.column.type is SqlType.BOOLEAN:
            return [None if value is None else bool(value) for value in domain]
        return domain

    def decided(self, found: Placement, seconds: float) -> Decided:
        """What an engine's placement means for the cells."""
        built = self.built
        choosers, assignment = built.choosers, built.assignment
        choice = found.choice
        assert choice is not None
        domain = self._domain()
        cells = self.cells(choice)
        changed = np.flatnonzero((choice != choosers.current) | ((choice == NONE) & choosers.has_current))
        deltas = tuple(
            delta_of(
                built.table,
                built.column,
                choosers.keys[row],
                choosers.today[row],
                domain[choice[row]],
            )
            for row in changed.tolist()
        )
        tiers = tuple(
            TierResult(tier.number, value, bound, value == bound)
            for tier, value, bound in zip(assignment.tiers, found.worth, found.bounds, strict=True)
        )
        claims = claims_of(self.part.formulations, built, choice)
        statistics = {
            "backend": found.engine,
            "solver_calls": int(found.solver_variables > 0),
            "variables": found.solver_variables,
            "candidate_rows": self.fetched_rows,
            "encode_seconds": self.encode_seconds,
            "solve_seconds": seconds,
            "notes": found.notes,
        }
        column = (built.table.name, built.column.name)
        return Decided("columns", {column: cells}, deltas, tiers, claims, tuple(claims), statistics)


def claims_of(formulations: Iterable[Formulation], built: Built, choice: Indices) -> dict[str, int]:
    """Per objective that was built in, the value that a choice gives it."""
    claims = {}
    for each in formulations:
        demand = each.demand.bound.demand
        if demand is not None and demand.is_objective and each.demand.name in built.objectives:
            costs, constant = built.objectives[each.demand.name]
            paid = constant + sum(_paid(cost, built.assignment, choice) for cost in costs)
            claims[each.demand.name] = (-paid if demand.maximize else paid) // demand.tail.weight
    return claims


def _paid(cost: Cost, assignment: Assignment, choice: Indices) -> int:
    return cost.of(choice, assignment.current) if isinstance(cost, RowCost) else cost.of(choice)
