"""The general road: a boolean per cell and value, over any policies the compiler can encode.

What it is not: the fast road (see ``columnar``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mgmt.compiler.columns import Choice
from mgmt.compiler.decided import Assignments, Decided, Impossible, delta_of
from mgmt.compiler.encoder import Encoder, Encoding
from mgmt.compiler.oracle import Verdict
from mgmt.compiler.roads import ColumnName, Step
from mgmt.language.names.catalog import Catalog
from mgmt.optimization.backends import Backend
from mgmt.optimization.checking import value_of
from mgmt.optimization.optimize import Optimum, TierResult, optimize, tier_objectives
from mgmt.solution import PrimaryKey, Value
from mgmt.state.database import Snapshot


@dataclass(slots=True)
class GeneralPart:
    """What is encoded cell by cell."""

    encoding: Encoding
    backend: Backend
    encode_seconds: float

    @classmethod
    def encode(
        cls,
        snapshot: Snapshot,
        program: Sequence[Step],
        catalog: Catalog,
        columns: frozenset[ColumnName] | None,
        backend: Backend,
    ) -> GeneralPart:
        """Encode a program; ``columns``: those it decides, None for all."""
        started = time.perf_counter()
        with snapshot.scratch():
            encoding = Encoder(snapshot).encode(program, catalog, columns)
        return cls(encoding, backend, time.perf_counter() - started)

    def current(self, assignments: Assignments) -> bool:
        """Put today's values in; whether every cell has one that needs one."""
        complete = True
        for cell in self.encoding.cells:
            assignments[cell.table.name, cell.column.name][cell.primary_key] = cell.current
            complete = complete and (cell.current is not None or cell.column.nullable)
        return complete

    def solve(
        self,
        present: Verdict | None,
        *,
        budget: float,
        seed: int,
        workers: int,
        first: Mapping[tuple[str, str], Mapping[PrimaryKey, Value]] | None = None,
    ) -> Decided | Impossible:
        """Decide the cells.  ``present`` is what the database says of today's values, if they are complete.

        ``first``: a plan to start from, else that is today's.
        """
        started = time.perf_counter()
        encoding = self.encoding
        optimum = self._settled(present)
        if optimum is None:
            optimum = optimize(
                encoding.problem,
                self.backend,
                _hint(encoding, first),
                choices=[cell.cell.literals for cell in encoding.cells if isinstance(cell.cell, Choice)],
                budget=budget,
                seed=seed,
                workers=workers,
            )
            if optimum.values is None:
                return Impossible()
        return self._decided(optimum, time.perf_counter() - started)

    def _settled(self, present: Verdict | None) -> Optimum | None:
        """The state as it stands, if it breaks nothing and meets a bound that nothing can beat."""
        if present is None or present.violations:
            return None
        problem = self.encoding.problem
        values = dict.fromkeys(tier_objectives(problem), 0)
        for objective in problem.objectives:
            sign = -1 if objective.maximize else 1
            values[objective.tier] += sign * objective.weight * present.objectives[objective.name]
        settled = problem.fixed()
        results = []
        for tier, linear in tier_objectives(problem).items():
            if values[tier] != problem.lower_bound(linear, settled):
                return None
            results.append(TierResult(tier, values[tier], values[tier], True))
        return Optimum((), tuple(results), 0)

    def _decided(self, optimum: Optimum, seconds: float) -> Decided:
        encoding = self.encoding
        assignments: Assignments = {}
        deltas = []
        claims: dict[str, int] = {}
        for cell in encoding.cells:
            value = cell.decode(optimum.values) if optimum.values else cell.current
            assignments.setdefault((cell.table.name, cell.column.name), {})[cell.primary_key] = value
            if value != cell.current:
                deltas.append(delta_of(cell.table, cell.column, cell.primary_key, cell.current, value))
        if optimum.values:
            claims = {o.name: value_of(o.linear, optimum.values) for o in encoding.problem.objectives}
        statistics = {
            "backend": self.backend.name if optimum.solver_calls else "none: the state meets every bound",
            "solver_calls": optimum.solver_calls,
            "variables": len(encoding.problem.lower) - 1,
            "candidate_rows": encoding.fetched_rows,
            "encode_seconds": self.encode_seconds,
            "solve_seconds": seconds,
            "tier_seconds": {result.tier: round(result.seconds, 3) for result in optimum.tiers},
        }
        names = tuple(objective.name for objective in encoding.problem.objectives)
        return Decided("cells", assignments, tuple(deltas), optimum.tiers, claims, names, statistics)


def _hint(
    encoding: Encoding, first: Mapping[tuple[str, str], Mapping[PrimaryKey, Value]] | None
) -> dict[int, int]:
    """The values for the solver to start from: those of a first plan, or today's."""
    hint: dict[int, int] = {}
    for cell in encoding.cells:
        value = cell.current
        if first is not None:
            value = first[cell.table.name, cell.column.name][cell.primary_key]
        if value is not None or cell.column.nullable:
            hint.update(cell.hint(value))
    return hint
