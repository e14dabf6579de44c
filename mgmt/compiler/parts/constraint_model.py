"""A part as a constraint model: booleans for the values of choices, over any policies the compiler can encode.

What it is not: an assignment problem (see ``assignment``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mgmt.compiler.decisions import Assignments, Decided, Impossible, delta_of
from mgmt.compiler.encoding.encoder import Encoder, Encoding
from mgmt.compiler.encoding.tables import choices_of
from mgmt.compiler.partition import ColumnName, Step
from mgmt.compiler.verification.oracle import Verdict
from mgmt.language.names.catalog import Catalog
from mgmt.optimization.backends import Backend
from mgmt.optimization.general.evaluation import value_of
from mgmt.optimization.general.lexicographic import Optimum, TierResult, optimize, tier_objectives
from mgmt.optimization.problem import least
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
            _ = encoding.problem  # with every cell, while the budget and the memory are watched
        return cls(encoding, backend, time.perf_counter() - started)

    def current(self, assignments: Assignments) -> bool:
        """Put today's values in; whether every cell has one that needs one."""
        complete = True
        for column in self.encoding.columns:
            current = dict(zip(column.keys, column.current, strict=True))
            assignments[column.table.name, column.column.name].update(current)
            complete = complete and (column.column.nullable or None not in column.current)
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
        settled = self._settled(present)
        if settled is None:
            settled = optimum = optimize(
                encoding.problem,
                self.backend,
                _hint(encoding, first),
                choices=choices_of(encoding.columns),
                budget=budget,
                seed=seed,
                workers=workers,
            )
            if optimum.values is None:
                return Impossible()
        return self._decided(settled, time.perf_counter() - started)

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
            if values[tier] != least(linear, settled):
                return None
            results.append(TierResult(tier, values[tier], values[tier], True))
        return Optimum(None, tuple(results), 0)

    def _decided(self, optimum: Optimum, seconds: float) -> Decided:
        encoding = self.encoding
        assignments: Assignments = {}
        deltas = []
        claims: dict[str, int] = {}
        for column in encoding.columns:
            values = column.current if optimum.values is None else column.decode(optimum.values)
            assignments[column.table.name, column.column.name] = dict(zip(column.keys, values, strict=True))
            for key, old, new in zip(column.keys, column.current, values, strict=True):
                if old != new:
                    deltas.append(delta_of(column.table, column.column, key, old, new))
        if optimum.values is not None:
            claims = {o.name: value_of(o.linear, optimum.values) for o in encoding.problem.objectives}
        statistics = {
            "backend": self.backend.name if optimum.solver_calls else "none: the state meets every bound",
            "solver_calls": optimum.solver_calls,
            "variables": encoding.problem.variables - 1,
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
    for column in encoding.columns:
        values = column.current
        if first is not None:
            known = first[column.table.name, column.column.name]
            values = [known[key] for key in column.keys]
        hint.update(column.hint(values))
    return hint
