"""Two columns: where a row is and whether it is flagged, as two assignment problems.

What it is not: the assignment of one column (see ``assignment``); the demands on flags (see ``recognition.flags``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mgmt.compiler.assignments.building.build import Builder, Built
from mgmt.compiler.assignments.columns.fetch import Columns
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.compiler.decisions import Assignments, Decided, Impossible, delta_of
from mgmt.compiler.partition import Part
from mgmt.compiler.parts.assignment import ColumnarPart, claims_of
from mgmt.language.names.catalog import Catalog
from mgmt.optimization.assignment import NONE
from mgmt.optimization.engines import UnsuitableError
from mgmt.optimization.engines.selection.selected_placement import SelectedPlacement, solve_selection
from mgmt.optimization.general.lexicographic import TierResult
from mgmt.solution import Value
from mgmt.state.database import Snapshot
from mgmt.state.schema import Column, quote

_FEW_PAIRS = 2_000
"""Rows times values: so few, an answer that is not proven is left to the constraint model."""


@dataclass(slots=True)
class FlaggedPart:
    """Two variable columns of one table: a choice, and a boolean."""

    places: ColumnarPart
    flags: Built
    part: Part
    column: Column
    today: Sequence[Value]
    """Today's flags, in the order of the rows."""
    encode_seconds: float
    fetched_rows: int

    @classmethod
    def encode(cls, snapshot: Snapshot, part: Part, catalog: Catalog, columns: Columns) -> FlaggedPart:
        """Fetch and build.  NotAnAssignment when it is not of this shape."""
        started = time.perf_counter()
        before = columns.fetched_rows
        flagged = part.flagged
        if flagged is None:
            raise NotAnAssignment(part.why)
        table = catalog.schema.table(flagged.table)
        place, flag = table.column(flagged.place), table.column(flagged.flag)
        chosen = frozenset({(flagged.table, flagged.place)})
        alone = Part(chosen, tuple(each for each in part.formulations if each.columns == chosen))
        places = ColumnarPart.encode(snapshot, alone, catalog, columns)
        choosers = replace(places.built.choosers, nullable=True)
        builder = Builder(table, replace(place, nullable=True), catalog, columns, snapshot, choosers=choosers)
        for each in part.formulations:
            if each.columns == chosen:
                continue
            shape = flagged.shapes.get(each.demand.name)
            if shape is not None:
                builder.add(shape)
            elif all(snapshot.rows(sql) for sql in each.candidates):
                raise NotAnAssignment(f"{each.demand.name}: {flagged.reasons[each.demand.name]}")
            else:
                builder.add_nothing(each.demand)
        flags = builder.finish(_refuse)
        paid = [tier.number for tier in flags.assignment.tiers]
        low, high = min(paid, default=1), max(paid, default=0)
        if any(low <= tier.number <= high for tier in places.built.assignment.tiers):
            raise NotAnAssignment("flags are paid for in tiers among those of the places")
        keys = ", ".join(map(quote, table.primary_key))
        sql = f"SELECT {quote(flag.current or flag.name)} FROM {quote(table.name)} ORDER BY {keys}"
        today = [
            None if value is None else bool(value) for (value,) in columns.rows(snapshot, sql, (table.name,))
        ]
        seconds = time.perf_counter() - started
        return cls(places, flags, part, flag, today, seconds, columns.fetched_rows - before)

    def current(self, assignments: Assignments) -> bool:
        """Put today's values in; whether every cell has one that needs one."""
        complete = self.places.current(assignments)
        built = self.places.built
        assignments[built.table.name, self.column.name] = dict(
            zip(built.choosers.keys, self.today, strict=True)
        )
        return complete and None not in self.today

    def objectives_today(self) -> dict[str, int] | None:
        """What the objectives are worth as things stand; None where values stand that may not be chosen at all."""
        found = self.places.objectives_today()
        if found is None or None in self.today:
            return None
        flagged = np.array(self.today, np.bool_)
        standing = np.where(flagged, self.places.built.choosers.current, NONE).astype(np.int32)
        return {**found, **claims_of(self.part.formulations, self.flags, standing)}

    def solve(self, *, budget: float, seed: int, workers: int) -> Decided | Impossible:
        """Choose.  NotAnAssignment when no engine is for it, or a constraint model can do better."""
        started = time.perf_counter()
        places, flags = self.places.built, self.flags
        if places.impossible or flags.impossible:
            return Impossible((*places.impossible, *flags.impossible))
        try:
            first = min((tier.number for tier in flags.assignment.tiers), default=0)
            later = sum(tier.number > first > 0 for tier in places.assignment.tiers)
            found = solve_selection(
                places.assignment, flags.assignment, seconds=budget, seed=seed, workers=workers, later=later
            )
        except UnsuitableError as reason:
            raise NotAnAssignment(f"no engine: {reason}") from reason
        if found is None:
            return Impossible()
        if not found.proven and places.assignment.rows * places.assignment.values <= _FEW_PAIRS:
            raise NotAnAssignment("the best flags among the best places are not proven")
        return self._decided(found, time.perf_counter() - started)

    def _decided(self, found: SelectedPlacement, seconds: float) -> Decided:
        first = self.places.decided(found.places, seconds)
        built, chosen = self.places.built, found.selection.choice
        assert chosen is not None
        flagged = (chosen >= 0).tolist()
        keys = built.choosers.keys
        cells: Mapping[tuple[str, str], dict[tuple[Value, ...], Value]] = {
            (built.table.name, self.column.name): dict(zip(keys, flagged, strict=True))
        }
        was = np.array([bool(value) for value in self.today], np.bool_)
        unknown = np.array([value is None for value in self.today], np.bool_)
        changed = np.flatnonzero((was != np.array(flagged, np.bool_)) | unknown)
        deltas = tuple(
            delta_of(built.table, self.column, keys[row], self.today[row], flagged[row])
            for row in changed.tolist()
        )
        tiers = tuple(
            TierResult(tier.number, value, bound, value == bound)
            for tier, value, bound in zip(
                self.flags.assignment.tiers, found.selection.worth, found.selection.bounds, strict=True
            )
        )
        claims = claims_of(self.part.formulations, self.flags, chosen)
        statistics = {
            **first.statistics,
            "backend": f"{found.places.engine}; flags: {found.selection.engine}",
            "variables": max(found.places.solver_variables, found.selection.solver_variables),
            "solver_calls": int(found.places.solver_variables > 0)
            + int(found.selection.solver_variables > 0),
            "candidate_rows": self.fetched_rows,
            "encode_seconds": self.encode_seconds,
            "notes": (*found.places.notes, *found.selection.notes),
        }
        return Decided(
            first.formulation,
            {**first.assignments, **cells},
            (*first.deltas, *deltas),
            tuple(sorted((*first.tiers, *tiers), key=lambda tier: tier.tier)),
            {**first.claims, **claims},
            (*first.objectives, *claims),
            statistics,
        )


def _refuse(name: str, reason: NotAnAssignment) -> None:
    raise NotAnAssignment(f"{name}: {reason}")
