"""The CP-SAT engine: the count model, tier by tier.

The model is written through ``CpModel.proto`` with lists, a fraction of what the modelling calls cost.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any

from mgmt.errors import OverflowError  # noqa: A004 - the published name
from mgmt.optimization.assignment import Indices, Placement
from mgmt.optimization.backends import AnswerStatus
from mgmt.optimization.backends.cp_sat_solver import Effort, ask
from mgmt.optimization.contradictions import contradicted
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines.integer_programming.count_model import CountModel
from mgmt.optimization.engines.integer_programming.count_terms import Row, Sum
from mgmt.optimization.engines.integer_programming.lexicographic import LEAST_SECONDS, minimize_tiers
from mgmt.optimization.engines.model.cells import Cells
from mgmt.optimization.engines.model.cost_functions import UnsuitableError

_INFINITY = 2**63 - 1
_LIGHT_ABOVE = 20_000
"""Variables above which presolve costs more than it brings."""
_LIGHT_BELOW_SECONDS = 1.0


def solve(
    cells: Cells,
    *,
    hint: Indices | None,
    known_bounds: Sequence[int | None],
    deadline: Deadline,
    seed: int,
    workers: int,
) -> Placement:
    """The best counts, tier by tier; see ``minimize_tiers``."""
    return minimize_tiers(
        _Solver(CountModel(cells), seed, workers), hint=hint, known_bounds=known_bounds, deadline=deadline
    )


class _Solver:
    """A count model in CP-SAT, written as far as it has grown."""

    name = "CP-SAT on counts"

    def __init__(self, model: CountModel, seed: int, workers: int) -> None:
        from ortools.sat.python import cp_model  # brings pandas: half a second that few processes must pay

        self.model = model
        self._cp = cp_model.CpModel()
        self._proto: Any = self._cp.proto
        self._seed = seed
        self._workers = workers
        self._written = [0] * 6

    @property
    def variables(self) -> int:
        return self._written[0]

    def minimize(
        self, objective: Sum, hint: Indices | None, deadline: Deadline
    ) -> tuple[Indices | None, bool, int | None]:
        """A choice, if one was found; False when there is none; a bound, if there is one."""
        self._write()
        seconds = max(LEAST_SECONDS, deadline.left)
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
        try:
            reply = ask(
                self._cp,
                self._effort(seconds),
                seconds=seconds,
                seed=self._seed,
                workers=self._workers,
            )
        except OverflowError as error:  # sums of the largest weights, most likely
            raise UnsuitableError(str(error)) from error
        if reply.status is AnswerStatus.INFEASIBLE:
            if counts is not None:
                contradicted(f"{self.name}: infeasible, though a solution is known")
            return None, counts is not None, None
        choice = None if reply.values is None else cells.choice(reply.values[: len(cells)])
        return choice, True, None if reply.bound is None else reply.bound + objective.constant

    def _effort(self, seconds: float) -> Effort:
        light = self.variables > _LIGHT_ABOVE or seconds < _LIGHT_BELOW_SECONDS
        return Effort.LIGHT if light else Effort.NORMAL

    def _write(self) -> None:
        """What the model has that is not written yet."""
        model, constraints = self.model, self._proto.constraints
        variables, rows, elements, maxima, multiplications, divisions = self._written
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
            _fill(part.target, Sum(0, [maximum.target], [1]))
            for term in maximum.terms:
                _fill(part.exprs.add(), term)
        for multiplication in model.multiplications[multiplications:]:
            part = constraints.add().int_prod
            _fill(part.target, multiplication.target)
            for factor in multiplication.factors:
                _fill(part.exprs.add(), factor)
        for division in model.divisions[divisions:]:
            part = constraints.add().int_div
            _fill(part.target, Sum(0, [division.target], [1]))
            _fill(part.exprs.add(), division.dividend)
            _fill(part.exprs.add(), Sum(division.divisor, [], []))
        parts: tuple[Sized, ...] = (model.lower, model.rows, model.elements, model.maxima)
        self._written = list(map(len, (*parts, model.multiplications, model.divisions)))

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


def _fill(expression: Any, term: Sum) -> None:
    """Write a sum into a message."""
    expression.vars.extend(term.variables)
    expression.coeffs.extend(term.factors)
    expression.offset = term.constant
