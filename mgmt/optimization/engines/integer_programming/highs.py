"""The mixed-integer engine: the count model, tier by tier, for HiGHS.

Where the model is nearly a network its linear relaxation is nearly whole, and HiGHS, which begins with that, is done
where CP-SAT has only begun to search.  HiGHS is the one inside OR-tools, asked through MathOpt's messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isfinite
from typing import Any

import numpy as np

from mgmt.optimization.assignment import Indices, Placement
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines.integer_programming.count_model import CountModel
from mgmt.optimization.engines.integer_programming.count_terms import Sum
from mgmt.optimization.engines.integer_programming.lexicographic import minimize_tiers
from mgmt.optimization.engines.integer_programming.linear_relaxation import Program, ask, dense
from mgmt.optimization.engines.model.cells import Cells
from mgmt.optimization.engines.model.cost_functions import UnsuitableError

_LARGEST = 2**30
"""With a tolerance of a millionth, a larger factor lets a variable that is nearly 0 undo a row."""
_ROUNDOFF = 1e-6


def solve(
    cells: Cells, *, hint: Indices | None, known_bounds: Sequence[int | None], deadline: Deadline, seed: int
) -> Placement:
    """The best counts, tier by tier; see ``minimize_tiers``."""
    return minimize_tiers(
        _Solver(CountModel(cells), seed), hint=hint, known_bounds=known_bounds, deadline=deadline
    )


class _Solver:
    """A count model as a mixed-integer program, written anew for each tier."""

    name = "HiGHS on counts"

    def __init__(self, model: CountModel, seed: int) -> None:
        self.model = model
        self._seed = seed

    @property
    def variables(self) -> int:
        return len(self.model.lower)

    def minimize(
        self, objective: Sum, hint: Indices | None, deadline: Deadline
    ) -> tuple[Indices | None, bool, int | None]:
        if not self.model.linear:
            raise UnsuitableError("a cost that is not convex is for no mixed-integer program")
        from ortools.math_opt import parameters_pb2, result_pb2

        program = Program(self.model, objective)
        if program.largest > _LARGEST:
            raise UnsuitableError("numbers too large for floating point")
        message = program.message(np.ones(self.variables, np.bool_), integer=True)
        start = self._started(hint)
        result = ask(message, parameters_pb2.SOLVER_TYPE_HIGHS, deadline, self._parameters(), start)
        reason = result.termination.reason
        if reason in {
            result_pb2.TERMINATION_REASON_INFEASIBLE,
            result_pb2.TERMINATION_REASON_INFEASIBLE_OR_UNBOUNDED,  # and every variable has a range
        }:
            return None, False, None
        lowest = result.termination.objective_bounds.dual_bound
        bound = None
        if isfinite(lowest):
            bound = ceil(lowest - _ROUNDOFF * (1 + abs(lowest))) + objective.constant
        return self._choice(result), True, bound

    def _parameters(self) -> Any:
        from ortools.math_opt import parameters_pb2

        parameters = parameters_pb2.SolveParametersProto()
        parameters.relative_gap_tolerance = 0.0
        parameters.absolute_gap_tolerance = 0.0
        parameters.random_seed = self._seed % 2**31
        return parameters

    def _started(self, hint: Indices | None) -> Any:
        from ortools.math_opt import model_parameters_pb2

        parameters = model_parameters_pb2.ModelSolveParametersProto()
        counts = None if hint is None else self.model.cells.counts(hint)
        if counts is not None:
            started = parameters.solution_hints.add().variable_values
            started.ids.extend(range(self.variables))
            started.values.extend(map(float, self.model.values(counts)))
        return parameters

    def _choice(self, result: Any) -> Indices | None:
        """The choice found, if it keeps the limits: the solver's numbers are whole up to a tolerance only."""
        if not result.solutions or not result.solutions[0].HasField("primal_solution"):
            return None
        values = dense(result.solutions[0].primal_solution.variable_values, self.variables)
        cells = self.model.cells
        counts = np.rint(values[: len(cells)]).astype(np.int64)
        given = np.bincount(cells.class_, counts, cells.classes.number).astype(np.int64)
        if not np.array_equal(given, cells.classes.count):
            return None
        choice = cells.choice(counts)
        return None if any(cells.classes.assignment.broken(choice)) else choice
