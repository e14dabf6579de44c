"""The CP-SAT backend (OR-tools).

The model is written through ``CpModel.proto`` with lists, which costs a fraction of the Python modelling calls.
CP-SAT is imported on first use: it brings pandas, half a second that an agent which never solves must not pay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from itertools import chain, pairwise
from typing import Any

import numpy as np

from mgmt.optimization.backends import Answer
from mgmt.optimization.backends.cp_sat_solver import Effort, ask
from mgmt.optimization.backends.liveness import without_unused
from mgmt.optimization.backends.structures.running_sums import with_running_sums
from mgmt.optimization.backends.structures.schedules import Schedules, Task, schedules_of
from mgmt.optimization.columns import (
    TRUE,
    Integers,
    Linear,
    Linears,
    Lists,
    difference,
    filled,
    integers,
    stacked,
)
from mgmt.optimization.problem import (
    NO_BOUND,
    LinearRows,
    LiteralRows,
    OperationKind,
    Operations,
    Problem,
    Relation,
    Source,
    Tag,
)

_LIGHT_ABOVE = 2_000
"""Variables of which a first solution is found sooner without most of presolve, which brings bounds."""


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

        self._model = cp_model.CpModel()
        self._proto: Any = self._model.proto
        self._constraints: Any = self._proto.constraints
        schedules = Schedules() if assume_rows else schedules_of(problem)
        self._values = problem.variables
        if not assume_rows:
            problem = with_running_sums(without_unused(problem))
        self._problem = problem
        self._strong = False
        self._redundant = False
        self._assumed: dict[Tag, int] | None = {} if assume_rows else None
        self._write_variables(problem.lower, problem.upper)
        self._write_definitions()
        for block in problem.rows:
            self._write_rows(block)
        self._write_schedules(schedules)
        if problem.variables <= _LIGHT_ABOVE:
            self._write_redundant()

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
        reply = ask(self._model, self._effort, seconds=seconds, seed=seed, workers=workers)
        values = None if reply.values is None else reply.values[: self._values]
        bound = None if objective is None or reply.bound is None else reply.bound + objective.constant
        return Answer(reply.status, values, bound)

    def strengthen(self) -> None:
        self._strong = True
        self._write_redundant()

    def _write_redundant(self) -> None:
        if not self._redundant:
            self._redundant = True
            for block in self._problem.redundant:
                self._write_rows(block)

    def copy(self) -> CpSatSession:
        found = copy(self)
        found._model = self._model.clone()
        found._proto = found._model.proto
        found._constraints = found._proto.constraints
        return found

    def require_all(self, literals: Iterable[int]) -> None:
        for literal in literals:
            self._constraints.add().bool_or.literals.append(_reference(literal))

    def require_at_most(self, linear: Linear, bound: int) -> None:
        part = self._constraints.add().linear
        part.vars.extend(list(linear.variables))
        part.coeffs.extend(list(linear.coefficients))
        part.domain.extend([-NO_BOUND - 1, bound - linear.constant])

    def core(self, seconds: float, seed: int) -> tuple[Tag, ...]:
        """Tags whose demands cannot all hold, if that is proven in time."""
        assert self._assumed is not None
        self._proto.assumptions.extend(list(self._assumed.values()))
        found = set(ask(self._model, Effort.CORE, seconds=seconds, seed=seed).core)
        return tuple(tag for tag, variable in self._assumed.items() if variable in found)

    # ---- writing the model --------------------------------------------------------------------------

    def _write_variables(self, lower: Integers, upper: Integers) -> int:
        """Returns the first of them."""
        first = len(self._proto.variables)
        add = self._proto.variables.add
        for limits in np.stack((lower, upper), 1).tolist():
            add().domain.extend(limits)
        return first

    def _write_definitions(self) -> None:
        add = self._constraints.add
        for block in self._problem.conjunctions:
            for target, literals in zip(block.targets.tolist(), _references(block.literals), strict=True):
                every = add()
                every.enforcement_literal.append(_reference(target))
                every.bool_and.literals.extend(literals)
                add().bool_or.literals.extend([_reference(target), *(-literal - 1 for literal in literals)])
        for operations in self._problem.operations:
            self._write_operations(operations)

    def _write_operations(self, block: Operations) -> None:
        # A maximum takes sums, too, but presolve lists the values of each and looks at no clock meanwhile: with 500
        # booleans times large amounts it does not end.
        operands = self._named(block.operands)
        terms = _rows(operands.terms), _rows(Lists(operands.terms.starts, operands.coefficients))
        expressions = list(zip(operands.constants.tolist(), *terms, strict=True))
        bounds = block.starts.tolist()
        for target, first, last in zip(block.targets.tolist(), bounds[:-1], bounds[1:], strict=True):
            constraint = self._constraints.add()
            if block.kind is OperationKind.MAXIMUM:
                part = constraint.lin_max
            elif block.kind is OperationKind.PRODUCT:
                part = constraint.int_prod
            elif block.kind is OperationKind.QUOTIENT:
                part = constraint.int_div
            else:
                part = constraint.int_mod
            part.target.vars.append(target)
            part.target.coeffs.append(1)
            for constant, variables, coefficients in expressions[first:last]:
                expression = part.exprs.add()
                expression.vars.extend(variables)
                expression.coeffs.extend(coefficients)
                expression.offset = constant

    def _write_schedules(self, schedules: Schedules) -> None:
        """What follows from other rows, in the words that propagate best."""
        intervals: dict[Task, int] = {}
        for task in (*chain(*schedules.apart), *chain(*(each.tasks for each in schedules.shared))):
            if task not in intervals:
                self._write_interval(task)
                intervals[task] = len(self._constraints) - 1
        for tasks in schedules.apart:
            self._constraints.add().no_overlap.intervals.extend([intervals[task] for task in tasks])
        for shared in schedules.shared:
            part = self._constraints.add().cumulative
            part.intervals.extend([intervals[task] for task in shared.tasks])
            part.capacity.offset = shared.capacity
            for amount in shared.amounts:
                part.demands.add().offset = amount

    def _write_interval(self, task: Task) -> None:
        length = None if task.until == NO_BOUND else self._write_lengths(task)
        constraint = self._constraints.add()
        if task.present != TRUE:
            constraint.enforcement_literal.append(_reference(task.present))
        interval = constraint.interval
        interval.start.vars.append(task.start)
        interval.start.coeffs.append(1)
        if length is None:
            interval.end.vars.append(task.start)
            interval.end.coeffs.append(1)
            interval.size.offset = interval.end.offset = task.length
        else:
            for part, variable in zip((interval.size, interval.end), length, strict=True):
                part.vars.append(variable)
                part.coeffs.append(1)

    def _write_lengths(self, task: Task) -> tuple[int, int]:
        """Variables: how long it lasts, ending at some time at the latest, and its end."""
        start = task.start
        earliest, latest = int(self._problem.lower[start]), int(self._problem.upper[start])
        lower = integers([min(task.length, task.until - latest), min(earliest + task.length, task.until)])
        size = self._write_variables(lower, integers([task.length, task.until]))
        part = self._constraints.add().lin_max
        part.target.vars.append(size)
        part.target.coeffs.append(-1)
        part.exprs.add().offset = -task.length
        late = part.exprs.add()
        late.vars.append(start)
        late.coeffs.append(1)
        late.offset = -task.until
        total = self._constraints.add().linear
        total.vars.extend([start, size, size + 1])
        total.coeffs.extend([1, 1, -1])
        total.domain.extend([0, 0])
        return size, size + 1

    def _named(self, linears: Linears) -> Linears:
        """The same values, each of one variable at most."""
        long = np.flatnonzero(linears.terms.lengths > 1)
        if not len(long):
            return linears
        some = linears.take(long)
        first = self._write_variables(*self._problem.ranges(some))
        single = Linears.single(np.arange(first, first + len(long)))
        zero = filled(len(long), 0)
        rest = LinearRows(difference(some, single), zero, zero, filled(len(long), TRUE), None)
        self._write_rows(rest)
        others = linears.take(np.flatnonzero(linears.terms.lengths <= 1))
        order = np.argsort(np.concatenate((np.flatnonzero(linears.terms.lengths <= 1), long)))
        return stacked([others, single]).take(order)

    def _write_rows(self, block: LiteralRows | LinearRows) -> None:
        if (
            isinstance(block, LiteralRows)
            and block.relation is Relation.AT_LEAST_ONE
            and self._assumed is None
        ):
            block = self._without_implications(block)
        enforcement = self._enforcement(block.source, block.enforcement)
        if isinstance(block, LinearRows):
            self._write_linear(block, enforcement)
            return
        add = self._constraints.add
        name = _PARTS[block.relation]
        for literals, when in zip(_references(block.literals), enforcement, strict=True):
            constraint = add()
            part = constraint.bool_or if not literals else getattr(constraint, name)
            part.literals.extend(literals)
            if when:
                constraint.enforcement_literal.extend(when)

    def _without_implications(self, block: LiteralRows) -> LiteralRows:
        """Write the rows of two literals, those of one first literal together; returns the others."""
        of_two = (block.literals.lengths == 2) & (block.enforcement == TRUE)
        pairs = block.literals.take(np.flatnonzero(of_two)).items.reshape(-1, 2)
        first, number = np.unique(pairs[:, 0], return_inverse=True)
        implied = Lists.grouped(number, pairs[:, 1], len(first))
        add = self._constraints.add
        for literal, literals in zip((first ^ 1).tolist(), _references(implied), strict=True):
            constraint = add()
            constraint.enforcement_literal.append(_reference(literal))
            constraint.bool_and.literals.extend(literals)
        return block.take(np.flatnonzero(~of_two))

    def _write_linear(self, block: LinearRows, enforcement: list[list[int]]) -> None:
        terms, constants = block.linears.terms, block.linears.constants
        lower = np.where(block.lower == -NO_BOUND, -NO_BOUND, block.lower - constants)
        upper = np.where(block.upper == NO_BOUND, NO_BOUND, block.upper - constants)
        coefficients = _rows(Lists(terms.starts, block.linears.coefficients))
        domains = np.stack((lower, upper), 1).tolist()
        add = self._constraints.add
        for variables, factors, domain, when in zip(
            _rows(terms), coefficients, domains, enforcement, strict=True
        ):
            constraint = add()
            part = constraint.linear
            part.vars.extend(variables)
            part.coeffs.extend(factors)
            part.domain.extend(domain)
            if when:
                constraint.enforcement_literal.extend(when)

    def _enforcement(self, source: Source | None, literals: Integers) -> list[list[int]]:
        found = [[] if literal == TRUE else [_reference(literal)] for literal in literals.tolist()]
        if source is not None and self._assumed is not None:
            for when, row in zip(found, source.rows.tolist(), strict=True):
                tag = Tag(source.constraint, row)
                if tag not in self._assumed:
                    self._proto.variables.add().domain.extend([0, 1])
                    self._assumed[tag] = len(self._proto.variables) - 1
                when.append(self._assumed[tag])
        return found

    @property
    def _effort(self) -> Effort:
        if self._strong:
            return Effort.STRONG
        return Effort.LIGHT if self._problem.variables > _LIGHT_ABOVE else Effort.NORMAL


_PARTS = {
    Relation.AT_LEAST_ONE: "bool_or",
    Relation.AT_MOST_ONE: "at_most_one",
    Relation.EXACTLY_ONE: "exactly_one",
}


def _rows(lists: Lists) -> list[list[int]]:
    items, starts = lists.items.tolist(), lists.starts.tolist()
    return [items[first:last] for first, last in pairwise(starts)]


def _references(literals: Lists) -> list[list[int]]:
    """Literals as CP-SAT writes them: the variable, or minus it minus one."""
    variables = literals.items >> 1
    return _rows(Lists(literals.starts, np.where(literals.items & 1, -variables - 1, variables)))


def _reference(literal: int) -> int:
    variable, negated = divmod(literal, 2)
    return -variable - 1 if negated else variable
