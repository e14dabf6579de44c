"""The CP-SAT backend (OR-tools).

The model is written through ``CpModel.proto`` with lists, which costs a fraction of the Python modelling calls.
CP-SAT is imported on first use: it brings pandas, half a second that an agent which never solves must not pay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mgmt.optimization.backends import Answer, AnswerStatus
from mgmt.optimization.problem import TRUE, Linear, OperationKind, Problem, Tag

# The solver's notion of no bound.
_INFINITY = 2**63 - 1
_WORK_FOR_A_CORE = 2.0
"""In units that are about a second each."""


class CpSatBackend:
    """Complete for everything a problem can say."""

    name = "CP-SAT"

    def load(self, problem: Problem) -> CpSatSession:
        return CpSatSession(problem)

    def clashing_rows(self, problem: Problem, seconds: float, seed: int) -> tuple[Tag, ...]:
        """Rows from the solver's own core over one assumption per row; a superset of a minimal one."""
        return CpSatSession(problem, assume_rows=True).core(seconds, seed)


class CpSatSession:
    """One problem in CP-SAT."""

    def __init__(self, problem: Problem, *, assume_rows: bool = False) -> None:
        from ortools.sat.python import cp_model

        self._cp_model = cp_model
        self._model = cp_model.CpModel()
        self._proto: Any = self._model.proto
        self._problem = problem
        self._strong = False
        self._assumed: dict[Tag, int] | None = {} if assume_rows else None
        self._write_variables()
        self._write_operations()
        self._write_demands()

    # ---- the interface ------------------------------------------------------------------------------

    def minimize(
        self, objective: Linear | None, hint: Mapping[int, int], seconds: float, seed: int, workers: int
    ) -> Answer:
        proto = self._proto
        proto.clear_objective()
        proto.clear_solution_hint()
        if objective is not None:
            proto.objective.vars.extend(list(objective.variables))
            proto.objective.coeffs.extend(list(objective.coefficients))
        if hint:
            proto.solution_hint.vars.extend(list(hint))
            proto.solution_hint.values.extend(list(hint.values()))
        solver = self._solver(seconds, seed, workers)
        status = self._status(solver.solve(self._model))
        if status in {AnswerStatus.INFEASIBLE, AnswerStatus.UNKNOWN}:
            return Answer(status)
        values = list(solver.response_proto.solution)
        if objective is None:
            return Answer(status, values)
        bound = round(solver.best_objective_bound) + objective.constant
        return Answer(status, values, bound)

    def strengthen(self) -> None:
        if not self._strong:
            self._strong = True
            for row in self._problem.redundant:
                self._linear(row.linear, row.lower, row.upper, ())

    def require_all(self, literals: Iterable[int]) -> None:
        for literal in literals:
            self._clause((literal,), [])

    def require_at_most(self, linear: Linear, bound: int) -> None:
        self._linear(linear, None, bound, ())

    def core(self, seconds: float, seed: int) -> tuple[Tag, ...]:
        """Tags whose demands cannot all hold, if that is proven in time."""
        assert self._assumed is not None
        self._proto.assumptions.extend(list(self._assumed.values()))
        solver = self._solver(seconds, seed, 1)
        # Assumptions and presolve do not go together: feasible models end unknown with it.
        solver.parameters.cp_model_presolve = False
        solver.parameters.linearization_level = 2
        # By work, not by the clock: how far it comes does not depend on who else is on the machine.
        solver.parameters.max_deterministic_time = _WORK_FOR_A_CORE
        if self._status(solver.solve(self._model)) is not AnswerStatus.INFEASIBLE:
            return ()
        found = set(solver.sufficient_assumptions_for_infeasibility())
        return tuple(tag for tag, variable in self._assumed.items() if variable in found)

    # ---- writing the model --------------------------------------------------------------------------

    def _write_variables(self) -> None:
        add = self._proto.variables.add
        for lower, upper in zip(self._problem.lower, self._problem.upper, strict=True):
            add().domain.extend([lower, upper])

    def _write_operations(self) -> None:
        for operation in self._problem.operations:
            constraint = self._proto.constraints.add()
            kind = operation.kind
            if kind is OperationKind.MAXIMUM:
                part = constraint.lin_max
            elif kind is OperationKind.PRODUCT:
                part = constraint.int_prod
            elif kind is OperationKind.QUOTIENT:
                part = constraint.int_div
            else:
                part = constraint.int_mod
            part.target.vars.append(operation.target)
            part.target.coeffs.append(1)
            for operand in operation.operands:
                expression = part.exprs.add()
                # Only a maximum takes sums; the others take one variable each.
                if kind is not OperationKind.MAXIMUM and len(operand.variables) > 1:
                    operand = self._named(operand)
                expression.vars.extend(list(operand.variables))
                expression.coeffs.extend(list(operand.coefficients))
                expression.offset = operand.constant

    def _named(self, linear: Linear) -> Linear:
        """A variable equal to the sum."""
        low, high = self._problem.range_of(linear)
        self._proto.variables.add().domain.extend([low, high])
        variable = len(self._proto.variables) - 1
        difference = Linear(linear.constant, (*linear.variables, variable), (*linear.coefficients, -1))
        self._linear(difference, 0, 0, ())
        return Linear(0, (variable,), (1,))

    def _write_demands(self) -> None:
        problem = self._problem
        for clause in problem.clauses:
            self._clause(clause.literals, self._enforcement(clause.tag))
        for cardinality in problem.cardinalities:
            enforcement = self._enforcement(cardinality.tag, cardinality.enforcement)
            if not cardinality.literals:
                self._clause((), enforcement)
                continue
            constraint = self._proto.constraints.add()
            part = constraint.exactly_one if cardinality.exactly else constraint.at_most_one
            part.literals.extend([_reference(literal) for literal in cardinality.literals])
            constraint.enforcement_literal.extend(enforcement)
        for row in problem.rows:
            self._linear(row.linear, row.lower, row.upper, self._enforcement(row.tag, row.enforcement))

    def _enforcement(self, tag: Tag | None, literal: int = TRUE) -> list[int]:
        literals = [] if literal == TRUE else [_reference(literal)]
        if tag is not None and self._assumed is not None:
            if tag not in self._assumed:
                self._proto.variables.add().domain.extend([0, 1])
                self._assumed[tag] = len(self._proto.variables) - 1
            literals.append(self._assumed[tag])
        return literals

    def _clause(self, literals: Iterable[int], enforcement: list[int]) -> None:
        constraint = self._proto.constraints.add()
        constraint.bool_or.literals.extend([_reference(literal) for literal in literals])
        constraint.enforcement_literal.extend(enforcement)

    def _linear(
        self, linear: Linear, lower: int | None, upper: int | None, enforcement: Iterable[int]
    ) -> None:
        constraint = self._proto.constraints.add()
        part = constraint.linear
        part.vars.extend(list(linear.variables))
        part.coeffs.extend(list(linear.coefficients))
        part.domain.extend(
            [
                -_INFINITY - 1 if lower is None else lower - linear.constant,
                _INFINITY if upper is None else upper - linear.constant,
            ]
        )
        constraint.enforcement_literal.extend(list(enforcement))

    # ---- the solver ---------------------------------------------------------------------------------

    def _solver(self, seconds: float, seed: int, workers: int) -> Any:
        solver = self._cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = max(0.01, seconds)
        solver.parameters.random_seed = seed % 2**31
        solver.parameters.num_workers = workers
        if self._strong:
            solver.parameters.linearization_level = 2
            solver.parameters.symmetry_level = 0
        if workers > 1:
            solver.parameters.interleave_search = True  # the mode whose answer depends on the seed alone
        return solver

    def _status(self, status: Any) -> AnswerStatus:
        known = {
            self._cp_model.OPTIMAL: AnswerStatus.OPTIMAL,
            self._cp_model.FEASIBLE: AnswerStatus.FEASIBLE,
            self._cp_model.INFEASIBLE: AnswerStatus.INFEASIBLE,
            self._cp_model.UNKNOWN: AnswerStatus.UNKNOWN,
        }
        found = known.get(status)
        if found is None:
            raise AssertionError(f"the solver rejects the model: {self._model.validate()}")
        return found


def _reference(literal: int) -> int:
    """A literal as CP-SAT writes it: the variable, or minus it minus one."""
    variable, negated = divmod(literal, 2)
    return -variable - 1 if negated else variable
