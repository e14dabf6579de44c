"""The HiGHS backend: problems that are linear, as mixed-integer programs.

Demands under a condition get the smallest constant that makes their row idle without it.  What is not linear, or has
numbers that floating point can not tell apart from their neighbours, is refused with the reason.  Every solution is
rounded and checked in whole numbers before it is given out.

HiGHS is the one inside OR-tools, asked through MathOpt's messages: the package ``highspy`` brings a library of the
same name, and one process can load only one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, isfinite
from typing import Any

from mgmt.optimization.backends import Answer, AnswerStatus, UnsuitableProblemError
from mgmt.optimization.checking import broken, holds, value_of
from mgmt.optimization.problem import TRUE, Linear, Problem, Tag, add, scale

_LARGEST = 2**30
"""With a tolerance of a millionth, a larger factor lets a variable that is nearly 0 undo a row."""
_ROUNDOFF = 1e-6


class HighsBackend:
    """Complete for problems without products, quotients, remainders and maxima."""

    name = "HiGHS"

    def load(self, problem: Problem, without: frozenset[str] = frozenset()) -> HighsSession:
        """Raises UnsuitableProblemError when the problem is not linear or its numbers are too large."""
        return HighsSession(problem, without)

    def clashing_rows(
        self, problem: Problem, constraints: frozenset[str], seconds: float, seed: int
    ) -> tuple[Tag, ...]:
        """None: a mixed-integer program has no core."""
        del problem, constraints, seconds, seed
        return ()


class HighsSession:
    """One problem as a mixed-integer program."""

    def __init__(self, problem: Problem, without: frozenset[str]) -> None:
        if problem.operations:
            kinds = sorted({operation.kind.value for operation in problem.operations})
            raise UnsuitableProblemError(f"HiGHS takes linear problems only; this one has {', '.join(kinds)}")
        self._problem = problem
        self._without = without
        self._required: list[int] = []
        self._bounds: list[tuple[Linear, int]] = []
        self._rows: list[tuple[Linear, int | None, int | None]] = []
        self._redundant: list[tuple[Linear, int | None, int | None]] = []
        for linear, lower, upper in self._demands():
            self._add(self._rows, linear, lower, upper)

    def minimize(
        self, objective: Linear | None, hint: Mapping[int, int], seconds: float, seed: int, workers: int
    ) -> Answer:
        del workers  # one thread: the answer depends on the seed alone
        from ortools.math_opt import (
            callback_pb2,
            model_parameters_pb2,
            parameters_pb2,
            result_pb2,
        )
        from ortools.math_opt.core.python import solver

        if objective is not None:
            self._refuse_large(objective, None, None)
        parameters = parameters_pb2.SolveParametersProto()
        parameters.time_limit.FromMilliseconds(max(1, int(1000 * seconds)))
        parameters.relative_gap_tolerance = 0.0
        parameters.absolute_gap_tolerance = 0.0
        parameters.random_seed = seed % 2**31
        model_parameters = model_parameters_pb2.ModelSolveParametersProto()
        if hint:
            started = model_parameters.solution_hints.add()
            started.variable_values.ids.extend(sorted(hint))
            started.variable_values.values.extend(float(hint[variable]) for variable in sorted(hint))
        result = solver.solve(
            self._message(objective),
            parameters_pb2.SOLVER_TYPE_HIGHS,
            parameters_pb2.SolverInitializerProto(),
            parameters,
            model_parameters,
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
            return Answer(AnswerStatus.INFEASIBLE)
        values = self._values(result)
        bound = None
        if objective is not None:
            lowest = result.termination.objective_bounds.dual_bound
            if isfinite(lowest):
                bound = ceil(lowest - _ROUNDOFF * (1 + abs(lowest))) + objective.constant
        if values is None:
            return Answer(AnswerStatus.UNKNOWN, None, bound)
        if reason != result_pb2.TERMINATION_REASON_OPTIMAL:
            return Answer(AnswerStatus.FEASIBLE, values, bound)
        if objective is None:
            return Answer(AnswerStatus.OPTIMAL, values)
        value = value_of(objective, values)
        proven = bound is not None and bound >= value
        return Answer(AnswerStatus.OPTIMAL if proven else AnswerStatus.FEASIBLE, values, bound)

    def strengthen(self) -> None:
        """Add the rows that are of use to linear relaxations."""
        if not self._redundant and not self._without:
            for row in self._problem.redundant:
                self._add(self._redundant, row.linear, row.lower, row.upper)

    def require_all(self, literals: Iterable[int]) -> None:
        for literal in literals:
            self._required.append(literal)
            self._add(self._rows, self._problem.literal_value(literal), 1, None)

    def require_at_most(self, linear: Linear, bound: int) -> None:
        self._bounds.append((linear, bound))
        self._add(self._rows, linear, None, bound)

    def _demands(self) -> Iterator[tuple[Linear, int | None, int | None]]:
        """What the problem demands, as rows without conditions."""
        problem = self._problem
        number = problem.literal_value
        for clause in problem.clauses:
            if clause.tag is None or clause.tag.constraint not in self._without:
                yield add(*map(number, clause.literals)), 1, None
        for cardinality in problem.cardinalities:
            if cardinality.tag is None or cardinality.tag.constraint not in self._without:
                total = add(*map(number, cardinality.literals))
                yield from self._under(total, 1 if cardinality.exactly else None, 1, cardinality.enforcement)
        for row in problem.rows:
            if row.tag is None or row.tag.constraint not in self._without:
                yield from self._under(row.linear, row.lower, row.upper, row.enforcement)

    def _under(
        self, linear: Linear, lower: int | None, upper: int | None, condition: int
    ) -> Iterator[tuple[Linear, int | None, int | None]]:
        if condition == TRUE:
            yield linear, lower, upper
            return
        low, high = self._problem.range_of(linear)
        idle = self._problem.literal_value(condition ^ 1)
        if lower is not None and low < lower:
            yield add(linear, scale(idle, lower - low)), lower, None
        if upper is not None and high > upper:
            yield add(linear, scale(idle, upper - high)), None, upper

    def _add(
        self,
        rows: list[tuple[Linear, int | None, int | None]],
        linear: Linear,
        lower: int | None,
        upper: int | None,
    ) -> None:
        self._refuse_large(linear, lower, upper)
        rows.append((linear, lower, upper))

    def _refuse_large(self, linear: Linear, lower: int | None, upper: int | None) -> None:
        numbers = (*linear.coefficients, linear.constant, lower or 0, upper or 0)
        largest = max(map(abs, numbers))
        if largest > _LARGEST:
            raise UnsuitableProblemError(f"{largest} is too large a number for HiGHS to be exact")

    def _message(self, objective: Linear | None) -> Any:
        from ortools.math_opt import model_pb2

        problem = self._problem
        message = model_pb2.ModelProto()
        number = len(problem.lower)
        message.variables.ids.extend(range(number))
        message.variables.lower_bounds.extend(map(float, problem.lower))
        message.variables.upper_bounds.extend(map(float, problem.upper))
        message.variables.integers.extend([True] * number)
        if objective is not None:
            terms = _merged(objective)
            message.objective.linear_coefficients.ids.extend(terms)
            message.objective.linear_coefficients.values.extend(map(float, terms.values()))
        rows = [*self._rows, *self._redundant]
        message.linear_constraints.ids.extend(range(len(rows)))
        matrix = message.linear_constraint_matrix
        for index, (linear, lower, upper) in enumerate(rows):
            message.linear_constraints.lower_bounds.append(
                float("-inf") if lower is None else float(lower - linear.constant)
            )
            message.linear_constraints.upper_bounds.append(
                float("inf") if upper is None else float(upper - linear.constant)
            )
            terms = _merged(linear)
            matrix.row_ids.extend([index] * len(terms))
            matrix.column_ids.extend(terms)
            matrix.coefficients.extend(map(float, terms.values()))
        return message

    def _values(self, result: Any) -> Sequence[int] | None:
        """The solution in whole numbers, if there is one and it keeps everything."""
        for solution in result.solutions:
            if solution.HasField("primal_solution"):
                values = [0] * len(self._problem.lower)
                found = solution.primal_solution.variable_values
                for variable, value in zip(found.ids, found.values, strict=True):
                    values[variable] = round(value)
                if self._keeps(values):
                    return values
        return None

    def _keeps(self, values: Sequence[int]) -> bool:
        return (
            all(holds(literal, values) for literal in self._required)
            and all(value_of(linear, values) <= bound for linear, bound in self._bounds)
            and all(
                tag is not None and tag.constraint in self._without for tag in broken(self._problem, values)
            )
        )


def _merged(linear: Linear) -> dict[int, int]:
    """Coefficient by variable, in order, without those that are 0."""
    terms: dict[int, int] = {}
    for variable, coefficient in zip(linear.variables, linear.coefficients, strict=True):
        terms[variable] = terms.get(variable, 0) + coefficient
    return {variable: terms[variable] for variable in sorted(terms) if terms[variable]}
