"""Lexicographic optimisation: tier by tier, within a time budget, with a proof where there is one.

A tier whose value already equals a bound that no solution can beat is proven without asking the solver; that is
the common case of a cluster in order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mgmt.backends import AnswerStatus, Backend
from mgmt.errors import SolveTimeout
from mgmt.problem import Linear, Problem, add, scale

_LEAST_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class TierResult:
    """One tier: its value and bound as a number to minimise."""

    tier: int
    value: int
    bound: int
    proven: bool
    seconds: float = 0.0  # wall time in the solver; 0 when it was not asked


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best solution found.  ``values`` is None when the problem is infeasible."""

    values: Sequence[int] | None
    tiers: tuple[TierResult, ...]
    solver_calls: int


def tier_objectives(problem: Problem) -> dict[int, Linear]:
    """Per tier, the most important first, the weighted sum to minimise."""
    tiers: dict[int, Linear] = {}
    for objective in sorted(problem.objectives, key=lambda objective: objective.tier):
        signed = scale(objective.linear, -objective.weight if objective.maximize else objective.weight)
        tiers[objective.tier] = add(tiers.get(objective.tier, Linear(0)), signed)
    return tiers


def value_of(linear: Linear, values: Sequence[int]) -> int:
    """A linear expression under an assignment."""
    return linear.constant + sum(
        coefficient * values[variable]
        for variable, coefficient in zip(linear.variables, linear.coefficients, strict=True)
    )


def optimize(
    problem: Problem, backend: Backend, hint: Mapping[int, int], *, budget: float, seed: int, workers: int
) -> Optimum:
    """The lexicographic optimum, or the best found in ``budget`` seconds.

    Raises SolveTimeout when not even one solution was found in time.
    """
    deadline = time.monotonic() + budget
    session = backend.load(problem)
    tiers = tier_objectives(problem)
    values: Sequence[int] | None = None
    results: list[TierResult] = []
    calls = 0
    if not tiers:
        tiers = {1: Linear(0)}
    for number, (tier, objective) in enumerate(tiers.items()):
        floor = problem.lower_bound(objective)
        if values is not None and value_of(objective, values) == floor:
            results.append(TierResult(tier, floor, floor, True))
            session.require_at_most(objective, floor)
            continue
        remaining = deadline - time.monotonic()
        # Later tiers need time too, and usually less; the last one may use all that is left.
        seconds = remaining if number == len(tiers) - 1 else remaining / 2
        if values is not None and seconds < _LEAST_SECONDS:
            results.append(TierResult(tier, value_of(objective, values), floor, False))
            continue
        began = time.monotonic()
        answer = session.minimize(objective, hint, max(seconds, _LEAST_SECONDS), seed, workers)
        calls += 1
        if answer.status is AnswerStatus.INFEASIBLE:
            return Optimum(None, (), calls)
        if answer.values is not None:
            values = answer.values
            hint = dict(enumerate(values))
        if values is None:
            # Half the budget was not enough to find anything: spend the rest on any solution at all.
            answer = session.minimize(None, hint, deadline - time.monotonic(), seed, workers)
            calls += 1
            if answer.status is AnswerStatus.INFEASIBLE:
                return Optimum(None, (), calls)
            if answer.values is None:
                raise SolveTimeout(f"no solution was found in {budget:g} s")
            values = answer.values
            hint = dict(enumerate(values))
        value = value_of(objective, values)
        bound = max(floor, answer.bound) if answer.bound is not None else floor
        proven = answer.status is AnswerStatus.OPTIMAL or value == bound
        took = time.monotonic() - began
        results.append(TierResult(tier, value, value if proven else bound, proven, took))
        session.require_at_most(objective, value)
    return Optimum(values, tuple(results), calls)
