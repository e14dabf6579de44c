"""A part as a constraint model: booleans for the values of choices, over any policies the compiler can encode.

Where choices are all that is decided, what is an assignment in the model goes to the engines for those; what is not
goes to the backend, from what the engines found.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from mgmt.compiler.decisions import Assignments, Decided, Impossible, delta_of
from mgmt.compiler.encoding.answers import KeptAnswers
from mgmt.compiler.encoding.columns import Choices
from mgmt.compiler.encoding.encoder import Encoder, Encoding
from mgmt.compiler.encoding.tables import choices_of
from mgmt.compiler.partition import ColumnName, Step
from mgmt.compiler.parts.choice_cells import cells_of
from mgmt.compiler.verification.oracle import Verdict
from mgmt.errors import OverflowError, SolveTimeout, UnsupportedConstructError  # noqa: A004 - the published name
from mgmt.language.names.catalog import Catalog
from mgmt.optimization.assignment import NONE
from mgmt.optimization.backends import Backend
from mgmt.optimization.contradictions import contradicted
from mgmt.optimization.general.deadline import Deadline
from mgmt.optimization.general.evaluation import worth
from mgmt.optimization.general.lexicographic import Optimum, TierResult, better, optimize, tier_sums
from mgmt.optimization.general.lifted_search import LiftedSearch, search
from mgmt.optimization.general.operators import completed, holds
from mgmt.optimization.lifting import ChoiceCells
from mgmt.optimization.products import FactoredValues
from mgmt.state.database import Snapshot


@dataclass(slots=True)
class GeneralPart:
    """What is encoded cell by cell."""

    encoding: Encoding
    backend: Backend
    encode_seconds: float
    cells: ChoiceCells | None
    """What the engines may choose; None where they are not asked."""
    _today: FactoredValues | None = None
    """The values of all variables as things stand, where somebody has asked for what that is worth."""

    @classmethod
    def encode(
        cls,
        snapshot: Snapshot,
        program: Sequence[Step],
        catalog: Catalog,
        columns: frozenset[ColumnName] | None,
        backend: Backend,
        *,
        lifts: bool = True,
        kept: KeptAnswers | None = None,
    ) -> GeneralPart:
        """Encode a program; ``columns``: those it decides, None for all.  Without ``lifts`` no engine is asked.

        ``kept``: what the database has answered before.
        """
        started = time.perf_counter()
        with snapshot.scratch():
            encoding = Encoder(snapshot, kept).encode(program, catalog, columns)
        cells = cells_of(encoding.columns) if lifts else None
        return cls(encoding, backend, time.perf_counter() - started, cells)

    def current(self, assignments: Assignments) -> bool:
        """Put today's values in; whether every cell has one that needs one."""
        complete = True
        for column in self.encoding.columns:
            current = dict(zip(column.keys, column.current, strict=True))
            assignments[column.table.name, column.column.name].update(current)
            complete = complete and (column.column.nullable or None not in column.current)
        return complete

    def objectives_today(self) -> dict[str, int] | None:
        """What the objectives are worth as things stand, with a value wherever one is needed; None: unknown to it."""
        cells, problem = self.cells, self.encoding.factored
        if cells is None or not self._may_be_chosen(cells):
            return None
        self._today = completed(problem, *cells.held(cells.current))
        if self._today is None:
            return None
        return {each.name: worth(each.linear, self._today) for each in problem.objectives}

    def _may_be_chosen(self, cells: ChoiceCells) -> bool:
        """Whether today's values are all among those to choose from."""
        first = 0
        for column in self.encoding.columns:
            places = cells.current[first : first + len(column)]
            if isinstance(column.cells, Choices):
                nulls = column.current.count(None)
                if int((places == NONE).sum()) > nulls:
                    return False
            first += len(column)
        return True

    def solve(
        self, present: Verdict | None, *, deadline: Deadline, seed: int, workers: int
    ) -> Decided | Impossible:
        """Decide the cells.  ``present`` is what the database says of today's values, if they are complete."""
        started = time.perf_counter()
        settled = self._settled(present)
        if settled is not None:
            return self._decided(settled, time.perf_counter() - started)
        found = None
        if self.cells is not None:
            found = search(self.encoding.factored, self.cells, deadline=deadline, seed=seed, workers=workers)
            if found.optimum is not None and found.optimum.values is None:
                return Impossible(found.impossible)
            if found.whole:
                assert found.optimum is not None
                return self._decided(found.optimum, time.perf_counter() - started, found)
        optimum = self._by_backend(found, deadline=deadline, seed=seed, workers=workers)
        if optimum.values is None:
            return Impossible()
        return self._decided(optimum, time.perf_counter() - started, found)

    def _by_backend(
        self, found: LiftedSearch | None, *, deadline: Deadline, seed: int, workers: int
    ) -> Optimum:
        """The backend's solution, from where the engines came, or theirs where that is no worse."""
        first = None if found is None else found.optimum
        try:
            written = self.encoding.written_out(deadline)
            optimum = optimize(
                written,
                self.backend,
                _hint(self.encoding, found),
                choices=choices_of(self.encoding.columns),
                deadline=deadline,
                seed=seed,
                workers=workers,
            )
        except (SolveTimeout, UnsupportedConstructError):  # the latter: too large to be written down
            if first is None:
                raise
            return first
        if first is None or first.values is None:
            return optimum
        if optimum.values is None:
            contradicted(f"{self.backend.name}: no solution, beside one of the engines that keeps every row")
            return first
        return better(first, optimum)

    def _settled(self, present: Verdict | None) -> Optimum | None:
        """The state as it stands, if it breaks nothing and meets a bound that nothing can beat."""
        if present is None or present.violations:
            return None
        problem = self.encoding.factored
        try:
            sums = tier_sums(problem)
        except OverflowError:
            return None
        values = dict.fromkeys(sums, 0)
        for objective in problem.objectives:
            sign = -1 if objective.maximize else 1
            values[objective.tier] += sign * objective.weight * present.objectives[objective.name]
        results = []
        for tier, linear in sums.items():
            if values[tier] != int(problem.least_of(linear)[0]):
                return None
            results.append(TierResult(tier, values[tier], values[tier], True))
        if self._today is not None and not holds(problem, self._today):
            return None
        return Optimum(None, tuple(results), 0)

    def _decided(self, optimum: Optimum, seconds: float, found: LiftedSearch | None = None) -> Decided:
        encoding = self.encoding
        factored, solved = encoding.factored, optimum.values
        if solved is not None and not isinstance(solved, FactoredValues):
            solved = FactoredValues.of(factored, solved)
        assignments: Assignments = {}
        deltas = []
        claims: dict[str, int] = {}
        for column in encoding.columns:
            values = column.current if solved is None else column.decode(solved)
            assignments[column.table.name, column.column.name] = dict(zip(column.keys, values, strict=True))
            for key, old, new in zip(column.keys, column.current, values, strict=True):
                if old != new:
                    deltas.append(delta_of(column.table, column.column, key, old, new))
        if solved is not None:
            claims = {each.name: worth(each.linear, solved) for each in factored.objectives}
        statistics = {
            "backend": self._backend_name(optimum, found),
            "solver_calls": optimum.solver_calls,
            "variables": factored.variables - 1,
            "candidate_rows": encoding.fetched_rows,
            "encode_seconds": self.encode_seconds,
            "solve_seconds": seconds,
            "tier_seconds": {result.tier: round(result.seconds, 3) for result in optimum.tiers},
        }
        if found is not None:
            statistics["notes"] = (*found.notes, *(f"not lifted: {each}" for each in found.left_out))
        names = tuple(objective.name for objective in factored.objectives)
        return Decided("cells", assignments, tuple(deltas), optimum.tiers, claims, names, statistics)

    def _backend_name(self, optimum: Optimum, found: LiftedSearch | None) -> str:
        if found is not None and optimum is found.optimum:
            return found.engine
        return self.backend.name if optimum.solver_calls else "none: the state meets every bound"


def _hint(encoding: Encoding, found: LiftedSearch | None) -> dict[int, int]:
    """What the engines found, or else today's values, for the solver to start from."""
    if found is not None and found.values is not None:
        return dict(enumerate(found.values.whole().tolist()))
    hint: dict[int, int] = {}
    for column in encoding.columns:
        hint.update(column.hint(column.current))
    return hint
