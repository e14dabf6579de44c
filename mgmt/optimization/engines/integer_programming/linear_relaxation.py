"""The linear relaxation of the count model: a bound for each tier, and fractional counts to round.

GLOP solves it through OR-tools' MathOpt messages, with few columns at a time: those whose reduced cost is negative come
in until there is none.  The bound is computed from the dual values over all columns with roundoff on the safe side,
never read off the solver's objective; so it holds however good or bad these values are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import Amounts, Mask
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines.integer_programming.count_model import CountModel
from mgmt.optimization.engines.integer_programming.count_terms import Row, Sum
from mgmt.optimization.engines.model.cells import Cells

Reals = NDArray[np.float64]

_ROUNDOFF = 1e-9
_LARGEST = 2.0**50
"""Numbers beyond it are not what they say once they are floating-point numbers."""
_SIFTED_ABOVE = 4_000
_FIRST = 8
_MORE = 8
"""Columns per row of a class that the first program has besides those of a choice, and that may come in at a time."""
_LEAST_SECONDS = 0.01
_SLACK = 1e-6
# Shares of the objective: gaps of the bound at which columns stop coming in, at once or when it moves no more.
_NEAR = 5e-5
_NEAR_ENOUGH = 1e-3
_SETTLED = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Relaxed:
    """``counts`` are fractional, of the cells; None when the relaxation, and so the model, has no solution."""

    counts: Reals | None
    bound: int | None
    reduced: Reals
    """(cells,) reduced costs: by how much ``least`` rises with one row in the cell."""
    least: float
    """What no solution costs less than, with the same dual values."""

    def most_promising(self, cells: Cells, per_row: int) -> Mask:
        """(cells,) those with counts, and of each class those of least reduced cost, so many for each row."""
        assert self.counts is not None
        return _first_per_class(cells.class_, self.reduced, per_row * cells.classes.count) | (self.counts > 0)

    def may_beat(self, worth: int) -> Mask:
        """(cells,) all that a solution of lower costs may have (reduced-cost fixing)."""
        return np.asarray(self.reduced <= worth - 1 - self.least + _SLACK * (1 + abs(worth)))


class Relaxation:
    """A count model as a linear program; elements and maxima are relaxed to the rows that they imply."""

    def __init__(self, model: CountModel) -> None:
        self._model = model
        self.largest = 0
        """Columns of the largest program that was solved."""

    def minimize(self, objective: Sum, start: Amounts | None, deadline: Deadline) -> Relaxed | None:
        """The relaxed minimum with its bound; None when the time ended first, or numbers are too large.

        ``start`` is the counts of a choice that keeps the limits.
        """
        program = Program(self._model, objective)
        if program.largest > _LARGEST:
            return None
        reduced, least = np.zeros(0), -np.inf
        if program.contradicts_itself:
            return Relaxed(None, None, reduced, least)
        number = len(self._model.cells)
        active = np.ones(program.columns, np.bool_)
        if start is not None and number > _SIFTED_ABOVE:
            active[:number] = program.cheapest(_FIRST) | (start > 0)
        bound: int | None = None
        counts: Reals | None = None
        values: list[float] = []
        while deadline.left > _LEAST_SECONDS:
            self.largest = max(self.largest, int(active.sum()))
            answer = program.solve(active, deadline)
            if answer is None:
                break
            if answer.values is None:
                return Relaxed(None, None, reduced, least) if bool(active.all()) else None
            counts = answer.values[:number]
            reduced = program.reduced(answer.duals)
            least = program.least(answer.duals, reduced)
            bound = ceil(least) if bound is None else max(bound, ceil(least))
            coming = program.coming(reduced, active)
            values.append(answer.value)
            if not bool(coming.any()) or _close(bound, values):
                break
            active |= coming
        return None if counts is None else Relaxed(counts, bound, reduced[:number], least)


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    values: Reals | None
    """None when there is no solution."""
    duals: Reals
    value: float


class Program:
    """The arrays of a linear program, and its solver's messages."""

    def __init__(self, model: CountModel, objective: Sum) -> None:
        self._model = model
        self._constant = objective.constant
        rows = model.rows
        self.columns = len(model.lower)
        sizes = np.fromiter((len(row.variables) for row in rows), np.int64, len(rows))
        self._row = np.repeat(np.arange(len(rows)), sizes)
        self._column, self._factor = _flat(rows, int(sizes.sum()))
        order = np.lexsort((self._column, self._row))
        self._row, self._column, self._factor = self._row[order], self._column[order], self._factor[order]
        self._low = np.array([-np.inf if row.lower is None else row.lower for row in rows], np.float64)
        self._high = np.array([np.inf if row.upper is None else row.upper for row in rows], np.float64)
        self._lower = np.array(model.lower, np.float64)
        self._upper = np.array(model.upper, np.float64)
        self._cost = np.zeros(self.columns)
        np.add.at(
            self._cost, np.array(objective.variables, np.int64), np.array(objective.factors, np.float64)
        )

    @property
    def largest(self) -> float:
        """The largest number there is."""
        parts = (self._factor, self._low, self._high, self._lower, self._upper, self._cost)
        return max(float(np.abs(part[np.isfinite(part)]).max(initial=0)) for part in parts)

    @property
    def contradicts_itself(self) -> bool:
        """Whether a row asks for more than it allows; solvers take that for a mistake."""
        return bool((self._low > self._high).any())

    def cheapest(self, per_row: int) -> Mask:
        """(cells,) of each class the cheapest cells, so many for each of its rows."""
        cells = self._model.cells
        wanted = per_row * cells.classes.count
        return _first_per_class(cells.class_, self._cost[: len(cells)], wanted)

    def coming(self, reduced: Reals, active: Mask) -> Mask:
        """(columns,) columns that would lower the objective, the best of each class."""
        cells = self._model.cells
        number = len(cells)
        scale = _ROUNDOFF * (1 + float(np.abs(self._cost).max(initial=0)))
        negative = (reduced < -scale) & ~active
        coming = np.zeros(self.columns, np.bool_)
        offered = np.where(negative[:number], reduced[:number], np.inf)
        coming[:number] = (
            _first_per_class(cells.class_, offered, _MORE * cells.classes.count) & negative[:number]
        )
        return coming

    def reduced(self, duals: Reals) -> Reals:
        """(columns,) what each column costs beside what the rows pay for it."""
        return np.asarray(self._cost - self._paid(duals))

    def least(self, duals: Reals, reduced: Reals) -> float:
        """What no solution goes below, by these prices of the rows, whatever they are."""
        total, roundoff = self._lowest(duals, reduced)
        return total - roundoff + self._constant

    def solve(
        self, active: Mask, deadline: Deadline, *, elastic: bool = False, slack: float = 0.0
    ) -> _Answer | None:
        """Solve with some of the columns; None when the time ended first.

        ``elastic``: how little the rows can be missed by, at no other cost.  ``slack``: what any may be missed by.
        """
        from ortools.math_opt import parameters_pb2, result_pb2

        message = self.message(active, elastic=elastic, slack=slack)
        result = ask(
            message, parameters_pb2.SOLVER_TYPE_GLOP, deadline, parameters_pb2.SolveParametersProto()
        )
        reason = result.termination.reason
        if reason == result_pb2.TERMINATION_REASON_INFEASIBLE:
            # What the solver says is believed with prices that prove it.
            missed = self.solve(active, deadline, elastic=True)
            if missed is not None and self._impossible(missed.duals):
                return _Answer(None, np.zeros(0), 0.0)
            # Else it was roundoff, of weights that are far apart; the bound is reckoned over the rows as they are.
            if slack or deadline.left <= _LEAST_SECONDS:
                return None
            return self.solve(active, deadline, slack=_SLACK)
        if not result.solutions or reason != result_pb2.TERMINATION_REASON_OPTIMAL:
            return None
        solution = result.solutions[0]
        if not solution.HasField("primal_solution"):
            return None
        primal = solution.primal_solution
        duals = self._priced(dense(solution.dual_solution.dual_values, len(self._low)))
        values = dense(primal.variable_values, self.columns + (2 * len(self._low) if elastic else 0))
        return _Answer(values, duals, float(primal.objective_value) + self._constant)

    def _impossible(self, duals: Reals) -> bool:
        """Whether prices prove that nothing keeps all rows: even at no cost a solution would cost something."""
        total, roundoff = self._lowest(duals, -self._paid(duals))
        return total > 10 * roundoff

    def _paid(self, duals: Reals) -> Reals:
        """(columns,) what the rows pay for each column."""
        weights = np.asarray(self._factor * duals[self._row], np.float64)
        return np.bincount(self._column, weights, minlength=self.columns).astype(np.float64)

    def _lowest(self, duals: Reals, reduced: Reals) -> tuple[float, float]:
        """What no solution goes below by these prices, and what the reckoning may be off."""
        with np.errstate(invalid="ignore"):
            of_rows = np.where(duals > 0, duals * self._low, np.where(duals < 0, duals * self._high, 0.0))
        of_columns = np.where(reduced > 0, reduced * self._lower, reduced * self._upper)
        size = float(np.abs(of_rows).sum() + np.abs(of_columns).sum())
        return float(of_rows.sum() + of_columns.sum()), _ROUNDOFF * (size + 1)

    def _priced(self, duals: Reals) -> Reals:
        """(rows,) dual values; a price on a side that has no bound proves nothing and is none."""
        duals = duals.copy()
        duals[(duals > 0) & ~np.isfinite(self._low)] = 0.0
        duals[(duals < 0) & ~np.isfinite(self._high)] = 0.0
        return duals

    def message(
        self, active: Mask, *, elastic: bool = False, slack: float = 0.0, integer: bool = False
    ) -> Any:
        """The program of some columns, as MathOpt is given it."""
        from ortools.math_opt import model_pb2

        message = model_pb2.ModelProto()
        columns = np.flatnonzero(active)
        message.variables.ids.extend(columns.tolist())
        message.variables.lower_bounds.extend(self._lower[columns].tolist())
        message.variables.upper_bounds.extend(self._upper[columns].tolist())
        message.variables.integers.extend([integer] * len(columns))
        rows = len(self._low)
        if elastic:
            message.variables.ids.extend(range(self.columns, self.columns + 2 * rows))
            message.variables.lower_bounds.extend([0.0] * (2 * rows))
            message.variables.upper_bounds.extend([float("inf")] * (2 * rows))
            message.variables.integers.extend([False] * (2 * rows))
            message.objective.linear_coefficients.ids.extend(range(self.columns, self.columns + 2 * rows))
            message.objective.linear_coefficients.values.extend([1.0] * (2 * rows))
        paying = columns[(self._cost[columns] != 0) & (not elastic)]
        message.objective.linear_coefficients.ids.extend(paying.tolist())
        message.objective.linear_coefficients.values.extend(self._cost[paying].tolist())
        message.linear_constraints.ids.extend(range(len(self._low)))
        message.linear_constraints.lower_bounds.extend((self._low - slack).tolist())
        message.linear_constraints.upper_bounds.extend((self._high + slack).tolist())
        used = active[self._column] & (self._factor != 0)
        row, column, factor = self._row[used], self._column[used], self._factor[used]
        if elastic:
            # Of each row one column more to add, and one to take away.
            row = np.concatenate((row, np.arange(rows), np.arange(rows)))
            column = np.concatenate((column, self.columns + np.arange(2 * rows)))
            factor = np.concatenate((factor, np.ones(rows), -np.ones(rows)))
            order = np.lexsort((column, row))
            row, column, factor = row[order], column[order], factor[order]
        matrix = message.linear_constraint_matrix
        matrix.row_ids.extend(row.tolist())
        matrix.column_ids.extend(column.tolist())
        matrix.coefficients.extend(factor.tolist())
        return message


def ask(message: Any, solver_type: int, deadline: Deadline, parameters: Any, start: Any = None) -> Any:
    """What a solver says of a program until the deadline; ``start``: parameters of the model, like a hint."""
    from ortools.math_opt import callback_pb2, model_parameters_pb2, parameters_pb2
    from ortools.math_opt.core.python import solver

    parameters.time_limit.FromMilliseconds(max(1, int(1000 * deadline.left)))
    return solver.solve(
        message,
        solver_type,
        parameters_pb2.SolverInitializerProto(),
        parameters,
        start or model_parameters_pb2.ModelSolveParametersProto(),
        None,
        callback_pb2.CallbackRegistrationProto(),
        None,
        None,
    )


def _close(bound: int, values: list[float]) -> bool:
    """Whether further columns are not worth their time: the bound is near the last value, and that has settled."""
    size = 1 + abs(values[-1])
    gap = values[-1] - bound
    settled = len(values) >= 3 and values[-3] - values[-1] <= _SETTLED * size
    return gap <= _NEAR * size or (settled and gap <= _NEAR_ENOUGH * size)


def _flat(rows: list[Row], size: int) -> tuple[Amounts, Reals]:
    columns = np.fromiter((number for row in rows for number in row.variables), np.int64, size)
    factors = np.fromiter((number for row in rows for number in row.factors), np.float64, size)
    return columns, factors


def dense(sparse: Any, size: int) -> Reals:
    values = np.zeros(size)
    values[np.array(sparse.ids, np.int64)] = np.array(sparse.values, np.float64)
    return values


def _first_per_class(class_: NDArray[np.int32], cost: Reals, wanted: Amounts) -> Mask:
    """(cells,) so many cells of each class, the cheapest."""
    order = np.lexsort((cost, class_))
    ordered = class_[order]
    first = np.searchsorted(ordered, np.arange(len(wanted)))
    rank = np.arange(len(ordered)) - first[ordered]
    taken = np.zeros(len(class_), np.bool_)
    taken[order] = rank < wanted[ordered]
    return taken
