"""The mixed-integer engine: the count model, tier by tier, for HiGHS.

Where the model is nearly a network its linear relaxation is nearly whole, and HiGHS, which begins with that, is done
where CP-SAT has only begun to search.  HiGHS is the one inside OR-tools, asked through MathOpt's messages.

What it is not: it neither chooses candidates nor proves that the others are not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf, isfinite
from typing import Any

import numpy as np

from mgmt.optimization.assignment import Indices
from mgmt.optimization.engines.cells import Cells
from mgmt.optimization.engines.count_model import CountModel, Sum
from mgmt.optimization.engines.load_costs import UnsuitableError
from mgmt.optimization.engines.tier_by_tier import Found, minimize_tiers

_LARGEST = 2**30
"""With a tolerance of a millionth, a larger factor lets a variable that is nearly 0 undo a row."""
_ROUNDOFF = 1e-6


def solve(
    cells: Cells, *, hint: Indices | None, floors: Sequence[int | None], deadline: float, seed: int
) -> Found:
    """The best counts, tier by tier; see ``minimize_tiers``."""
    return minimize_tiers(_Solver(CountModel(cells), seed), hint=hint, floors=floors, deadline=deadline)


class _Solver:
    """A count model as a mixed-integer program, written anew for each tier."""

    def __init__(self, model: CountModel, seed: int) -> None:
        self.model = model
        self._seed = seed

    @property
    def variables(self) -> int:
        return len(self.model.lower)

    def minimize(
        self, objective: Sum, hint: Indices | None, seconds: float
    ) -> tuple[Indices | None, bool, int | None]:
        if not self.model.linear:
            raise UnsuitableError("a cost that is not convex is for no mixed-integer program")
        from ortools.math_opt import callback_pb2, parameters_pb2, result_pb2
        from ortools.math_opt.core.python import solver

        result = solver.solve(
            self._message(objective),
            parameters_pb2.SOLVER_TYPE_HIGHS,
            parameters_pb2.SolverInitializerProto(),
            self._parameters(seconds),
            self._started(hint),
            None,
            callback_pb2.CallbackRegistrationProto(),
            None,
            None,
        )
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

    def _parameters(self, seconds: float) -> Any:
        from ortools.math_opt import parameters_pb2

        parameters = parameters_pb2.SolveParametersProto()
        parameters.time_limit.FromMilliseconds(max(1, int(1000 * seconds)))
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
        sparse = result.solutions[0].primal_solution.variable_values
        values = np.zeros(self.variables)
        values[np.array(sparse.ids, np.int64)] = np.array(sparse.values, np.float64)
        cells = self.model.cells
        counts = np.rint(values[: len(cells)]).astype(np.int64)
        given = np.bincount(cells.kind, counts, cells.kinds.number).astype(np.int64)
        if not np.array_equal(given, cells.kinds.count):
            return None
        choice = cells.choice(counts)
        return None if any(cells.kinds.assignment.broken(choice)) else choice

    def _message(self, objective: Sum) -> Any:
        from ortools.math_opt import model_pb2

        rows, lower, upper = self.model.rows, self.model.lower, self.model.upper
        sizes = [len(row.variables) for row in rows]
        row = np.repeat(np.arange(len(rows)), sizes)
        column = np.fromiter((number for each in rows for number in each.variables), np.int64, len(row))
        factor = np.fromiter((number for each in rows for number in each.factors), np.float64, len(row))
        price = np.zeros(len(lower))
        np.add.at(price, np.array(objective.variables, np.int64), np.array(objective.factors, np.float64))
        numbers = (factor, price, np.array(lower, np.float64), np.array(upper, np.float64))
        if any(len(part) and float(np.abs(part).max()) > _LARGEST for part in numbers):
            raise UnsuitableError("numbers too large for floating point")
        message = model_pb2.ModelProto()
        message.variables.ids.extend(range(len(lower)))
        message.variables.lower_bounds.extend(map(float, lower))
        message.variables.upper_bounds.extend(map(float, upper))
        message.variables.integers.extend([True] * len(lower))
        paying = np.flatnonzero(price)
        message.objective.linear_coefficients.ids.extend(paying.tolist())
        message.objective.linear_coefficients.values.extend(price[paying].tolist())
        message.linear_constraints.ids.extend(range(len(rows)))
        message.linear_constraints.lower_bounds.extend(
            -inf if each.lower is None else float(each.lower) for each in rows
        )
        message.linear_constraints.upper_bounds.extend(
            inf if each.upper is None else float(each.upper) for each in rows
        )
        order = np.lexsort((column, row))
        matrix = message.linear_constraint_matrix
        matrix.row_ids.extend(row[order].tolist())
        matrix.column_ids.extend(column[order].tolist())
        matrix.coefficients.extend(factor[order].tolist())
        return message
