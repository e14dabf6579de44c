"""The CP-SAT engine: the count model, tier by tier.

The model is written through ``CpModel.proto`` with lists, a fraction of what the modelling calls cost.

What it is not: it neither chooses candidates nor proves that the others are not needed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgmt.errors import SolveTimeout
from mgmt.optimization.assignment import Indices
from mgmt.optimization.engines.cells import Cells
from mgmt.optimization.engines.count_model import CountModel, Row, Sum
from mgmt.optimization.engines.load_costs import UnsuitableError

_INFINITY = 2**63 - 1
_LIGHT_ABOVE = 20_000
"""Variables above which presolve costs more than it brings."""
_LIGHT_BELOW_SECONDS = 1.0
_LEAST_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Found:
    """``choice`` is None when no choice among the candidates keeps the limits; bounds are for the candidates."""

    choice: Indices | None
    worth: tuple[int, ...]
    bounds: tuple[int, ...]
    variables: int


def solve(
    cells: Cells,
    *,
    hint: Indices | None,
    floors: Sequence[int | None],
    deadline: float,
    seed: int,
    workers: int,
) -> Found:
    """The best counts, tier by tier, until ``deadline`` (``time.monotonic``).

    ``hint`` is a choice to begin with, one that keeps the limits; ``floors`` are known bounds per tier.  Raises
    SolveTimeout when neither a choice nor a proof that there is none was found in time, UnsuitableError when a cost
    cannot be modelled.
    """
    assignment = cells.kinds.assignment
    solver = _Solver(CountModel(cells), seed, workers)
    model = solver.model
    best, worth = hint, () if hint is None else assignment.worth(hint)
    bounds: list[int] = []
    tiers = len(assignment.tiers)
    for number in range(tiers or 1):
        objective = model.objective(number) if tiers else Sum(0, [], [])
        floor = floors[number] if tiers else None
        left = deadline - time.monotonic()
        # Later tiers need time too, and usually less; the last one may use all that is left.
        seconds = left if number >= tiers - 1 else left / 2
        met = best is not None and (not tiers or worth[number] == floor)
        if best is None or (not met and seconds > _LEAST_SECONDS):
            choice, feasible, bound = solver.minimize(objective, best, seconds)
            if not feasible:
                return Found(None, (), (), solver.variables)
            if choice is not None:
                reached = assignment.worth(choice)
                if tiers and bound is not None and bound > reached[number]:
                    raise UnsuitableError("a cost function is not what its values at many loads let expect")
                if best is None or reached < worth:
                    best, worth = choice, reached
            floor = bound if floor is None or (bound is not None and bound > floor) else floor
        if best is None:
            raise SolveTimeout("no placement was found in the time given")
        if tiers:
            bounds.append(min(worth[number], model.range_of(objective)[0] if floor is None else floor))
            model.require_at_most(objective, worth[number])
    return Found(best, worth, tuple(bounds), solver.variables)


class _Solver:
    """A count model in CP-SAT, written as far as it has grown."""

    def __init__(self, model: CountModel, seed: int, workers: int) -> None:
        from ortools.sat.python import cp_model  # brings pandas: half a second that few processes must pay

        self.model = model
        self._cp_model = cp_model
        self._cp = cp_model.CpModel()
        self._proto: Any = self._cp.proto
        self._seed = seed
        self._workers = workers
        self._written = [0, 0, 0, 0]

    @property
    def variables(self) -> int:
        return self._written[0]

    def minimize(
        self, objective: Sum, hint: Indices | None, seconds: float
    ) -> tuple[Indices | None, bool, int | None]:
        """A choice, if one was found; False when there is none; a bound, if there is one."""
        self._write()
        cells = self.model.cells
        proto = self._proto
        proto.clear_objective()
        proto.clear_solution_hint()
        if objective.variables:
            proto.objective.vars.extend(objective.variables)
            proto.objective.coeffs.extend(objective.factors)
        counts = None if hint is None else cells.counts(hint)
        if counts is not None:
            proto.solution_hint.vars.extend(list(range(self.variables)))
            proto.solution_hint.values.extend(self.model.values(counts))
        solver = self._cp_model.CpSolver()
        self._set(solver.parameters, seconds)
        status = solver.solve(self._cp)
        if status == self._cp_model.INFEASIBLE:
            return None, False, None
        if status == self._cp_model.MODEL_INVALID:
            # Sums of the largest weights beyond 64 bits, most likely.
            raise UnsuitableError(f"CP-SAT rejects the model: {self._cp.validate()}")
        found = status in {self._cp_model.OPTIMAL, self._cp_model.FEASIBLE}
        values = np.array(solver.response_proto.solution, np.int64) if found else np.zeros(0, np.int64)
        bound: int | None = None
        if status == self._cp_model.OPTIMAL:
            bound = objective.constant + sum(
                factor * int(values[variable])
                for variable, factor in zip(objective.variables, objective.factors, strict=True)
            )
        elif objective.variables:
            lowest = solver.response_proto.best_objective_bound
            # Beyond 2**53 a float is not the integer it stands for.
            bound = round(lowest) + objective.constant if abs(lowest) < 2**53 else None
        return (cells.choice(values[: len(cells)]) if found else None), True, bound

    def _set(self, parameters: Any, seconds: float) -> None:
        parameters.max_time_in_seconds = max(_LEAST_SECONDS, seconds)
        parameters.random_seed = self._seed % 2**31
        parameters.num_workers = self._workers
        if self._workers > 1:
            parameters.interleave_search = True  # the mode whose answer depends on the seed alone
        if self.variables > _LIGHT_ABOVE or seconds < _LIGHT_BELOW_SECONDS:
            parameters.cp_model_probing_level = 0
            parameters.symmetry_level = 0
            parameters.max_presolve_iterations = 1
            parameters.merge_at_most_one_work_limit = 0
            parameters.presolve_inclusion_work_limit = 0

    def _write(self) -> None:
        """What the model has that is not written yet."""
        model, constraints = self.model, self._proto.constraints
        variables, rows, elements, maxima = self._written
        add = self._proto.variables.add
        for lower, upper in zip(model.lower[variables:], model.upper[variables:], strict=True):
            add().domain.extend([lower, upper])
        for row in model.rows[rows:]:
            if not row.implied:
                self._linear(row)
        for element in model.elements[elements:]:
            part = constraints.add().element
            part.linear_index.vars.extend(list(element.variables))
            part.linear_index.coeffs.extend(list(element.strides))
            part.linear_target.vars.append(element.target)
            part.linear_target.coeffs.append(1)
            for value in element.values:
                part.exprs.add().offset = value
        for maximum in model.maxima[maxima:]:
            part = constraints.add().lin_max
            part.target.vars.append(maximum.target)
            part.target.coeffs.append(1)
            for term in maximum.terms:
                expression = part.exprs.add()
                expression.vars.extend(term.variables)
                expression.coeffs.extend(term.factors)
                expression.offset = term.constant
        self._written = [len(model.lower), len(model.rows), len(model.elements), len(model.maxima)]

    def _linear(self, row: Row) -> None:
        part = self._proto.constraints.add().linear
        part.vars.extend(list(row.variables))
        part.coeffs.extend(list(row.factors))
        part.domain.extend(
            [
                -_INFINITY - 1 if row.lower is None else row.lower,
                _INFINITY if row.upper is None else row.upper,
            ]
        )
