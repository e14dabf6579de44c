"""Lexicographic optimisation: tier by tier, within a time budget, with a proof where there is one.

A tier whose value already equals a bound that no solution can beat is proven without asking the solver; that is
the common case of a cluster in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace

from mgmt.errors import SolveTimeout
from mgmt.optimization.backends import Answer, AnswerStatus, Backend
from mgmt.optimization.columns import Integers, Linear, Linears, Lists, filled, stacked
from mgmt.optimization.contradictions import contradicted
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.general.evaluation import hold, value_of
from mgmt.optimization.problem import Problem, add, least, scale
from mgmt.optimization.products import FactoredValues
from mgmt.optimization.structure import tighten

_LEAST_SECONDS = 0.05
_SECONDS_PER_CELL = 3e-6
"""That it takes to write a model for a solver: 2.3 us on a machine that does nothing else."""
# Of a tier's time, before the solver is told to spend more on bounds: while there is no solution yet, and
# once there is one (then at most so many seconds).
_SEARCH_SHARE = 0.7
_EASY_SHARE = 0.35
_EASY_SECONDS = 1.0
_EASY_SECONDS_PER_CELL = 1e-3
"""More for a first solution.  A small model takes longer where CP-SAT narrows amounts down one by one; told to spend
more on bounds it does not."""
_NEARBY_SHARE = 0.25  # of the time left, for the first solution


@dataclass(frozen=True, slots=True)
class TierResult:
    """One tier: its value and bound as a number to minimise."""

    tier: int
    value: int
    bound: int | None  # None where nothing is known
    proven: bool
    seconds: float = 0.0  # wall time in the solver; 0 when it was not asked

    def plus(self, other: TierResult) -> TierResult:
        """The same tier of two parts together."""
        return TierResult(
            self.tier,
            self.value + other.value,
            None if self.bound is None or other.bound is None else self.bound + other.bound,
            self.proven and other.proven,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """The best solution found.  ``values`` is None when the problem is infeasible."""

    values: Integers | FactoredValues | None
    tiers: tuple[TierResult, ...]
    solver_calls: int


def better(one: Optimum, other: Optimum) -> Optimum:
    """The better of two solutions, the first of two as good, with the bounds of both as far as these hold."""
    kept, dropped = one, other
    if [result.value for result in other.tiers] < [result.value for result in one.tiers]:
        kept, dropped = other, one
    results = list(kept.tiers)
    for place, (mine, theirs) in enumerate(zip(kept.tiers, dropped.tiers, strict=True)):
        bounds = [result.bound for result in (mine, theirs) if result.bound is not None]
        bound = max(bounds, default=None)
        results[place] = replace(mine, bound=bound, proven=mine.proven or mine.value == bound)
        if theirs.value != mine.value:
            break  # what is bounded from here on is another thing
    return Optimum(kept.values, tuple(results), one.solver_calls + other.solver_calls)


def tier_sums(problem: Problem) -> dict[int, Linears]:
    """The same as ``tier_objectives`` tells, each in a column of one row.  OverflowError beyond 64 bits."""
    tiers: dict[int, list[Linears]] = {}
    for objective in sorted(problem.objectives, key=lambda objective: objective.tier):
        factor = -objective.weight if objective.maximize else objective.weight
        tiers.setdefault(objective.tier, []).append(Linears.of(objective.linear).scaled(factor))
    return {tier: stacked(parts).summed(filled(len(parts), 0), 1) for tier, parts in tiers.items()}


def tier_objectives(problem: Problem) -> dict[int, Linear]:
    """Per tier, the most important first, the weighted sum to minimise."""
    tiers: dict[int, Linear] = {}
    for objective in sorted(problem.objectives, key=lambda objective: objective.tier):
        signed = scale(objective.linear, -objective.weight if objective.maximize else objective.weight)
        tiers[objective.tier] = add(tiers[objective.tier], signed) if objective.tier in tiers else signed
    return tiers


def optimize(
    problem: Problem,
    backend: Backend,
    hint: Mapping[int, int],
    *,
    choices: Lists | None = None,
    deadline: Deadline,
    seed: int,
    workers: int,
) -> Optimum:
    """The lexicographic optimum, or the best found until the deadline.

    ``choices`` are groups of literals of which exactly one holds; neighbourhoods are made by keeping some.
    Raises SolveTimeout when not even one solution was found in time.
    """
    if problem.cells * _SECONDS_PER_CELL > deadline.left:
        raise SolveTimeout(
            f"{problem.cells} cells are not written for a solver in the {deadline.left:.2g} s left"
        )
    if choices is not None:
        tighten(problem, choices)
    tiers = tier_objectives(problem) or {1: Linear(0)}
    search = _Search(problem, backend, dict(hint), choices, seed, workers)
    search.start(tiers, deadline)
    found = search.run(tiers, deadline)
    if found is None:
        return Optimum(None, (), search.calls)
    return Optimum(found, tuple(search.results), search.calls)


class _Search:
    """Optimises tier by tier."""

    def __init__(
        self,
        problem: Problem,
        backend: Backend,
        hint: dict[int, int],
        choices: Lists | None,
        seed: int,
        workers: int,
    ) -> None:
        self._problem = problem
        self._backend = backend
        self._session = backend.load(problem)
        self._hint = hint
        self._choices = choices
        self._settled = problem.fixed()
        self._seed = seed
        self._workers = workers
        self._values: Integers | None = None
        self._strong = False
        self.results: list[TierResult] = []
        self.calls = 0

    def start(self, tiers: Mapping[int, Linear], deadline: Deadline) -> None:
        """Look for a first solution near today's: only what cannot stay is decided anew.

        Small, so quick; often the optimum already, and then the tiers need only a proof.
        """
        staying = self._chosen(self._hint)
        if not staying or deadline.left < _LEAST_SECONDS:
            return
        nearby = copy(self)
        nearby._session, nearby._hint, nearby._choices = self._session.copy(), dict(self._hint), None
        nearby.results, nearby.calls = [], 0
        nearby._session.require_all(staying)
        try:
            found = nearby.run(tiers, deadline.part(_NEARBY_SHARE))
        except SolveTimeout:
            found = None
        self.calls += nearby.calls
        if found is not None:
            self._values = found
            self._hint = dict(enumerate(found.tolist()))

    def run(self, tiers: Mapping[int, Linear], deadline: Deadline) -> Integers | None:
        """The values found; None when there are none.  SolveTimeout when time ran out before any."""
        for number, (tier, objective) in enumerate(tiers.items()):
            floor = least(objective, self._settled)
            if number and self._values is not None and value_of(objective, self._values) > floor:
                self._improve_nearby(objective, deadline)
            if self._values is not None and value_of(objective, self._values) == floor:
                self.results.append(TierResult(tier, floor, floor, True))
                self._session.require_at_most(objective, floor)
                continue
            # Later tiers need time too, and usually less; the last one may use all that is left.
            share = deadline if number == len(tiers) - 1 else deadline.part(1 / 2)
            if not self._improve(tier, objective, floor, share, deadline):
                return None
        return self._values

    def _chosen(self, hint: Mapping[int, int]) -> list[int]:
        """The literals of the choices that hold under a hint and can hold at all."""
        if self._choices is None:
            return []
        values = filled(self._problem.variables, -1)
        values[list(hint)] = list(hint.values())
        literals = self._choices.items
        literals = literals[hold(literals, values) & (values[literals >> 1] >= 0)]
        found: list[int] = literals[hold(literals, self._settled[1]) | (literals & 1 == 1)].tolist()
        return found

    def _improve_nearby(self, objective: Linear, deadline: Deadline) -> None:
        """Minimise a tier while all choices stay as they are and the earlier ones get no worse."""
        staying = self._chosen(self._hint)
        if not staying or deadline.left < _LEAST_SECONDS or self._values is None:
            return
        nearby = self._session.copy()
        nearby.require_all(staying)
        self.calls += 1
        seconds = max(deadline.part(_NEARBY_SHARE).left, _LEAST_SECONDS)
        answer = nearby.minimize(objective, self._hint, seconds, self._seed, self._workers)
        self._accept(objective, answer)

    def _improve(self, tier: int, objective: Linear, floor: int, share: Deadline, deadline: Deadline) -> bool:
        """Minimise one tier; False when there is no solution."""
        seconds, began = share.left, share.clock()
        if self._values is not None and seconds < _LEAST_SECONDS:
            value = value_of(objective, self._values)
            self.results.append(TierResult(tier, value, floor, False))
            self._session.require_at_most(objective, value)
            return True
        easy = min(seconds * _EASY_SHARE, _EASY_SECONDS)
        if self._values is None:
            most = _EASY_SECONDS + _EASY_SECONDS_PER_CELL * self._problem.cells
            easy = min(seconds * _SEARCH_SHARE, most)
        answer = self._ask(objective, seconds if self._strong else easy)
        self._accept(objective, answer)
        if answer.status in {AnswerStatus.FEASIBLE, AnswerStatus.UNKNOWN} and not self._strong:
            self._strong = True
            self._session.strengthen()
            if share.left >= _LEAST_SECONDS:
                answer = self._ask(objective, share.left)
        if answer.values is None and answer.status is not AnswerStatus.INFEASIBLE and self._values is None:
            # Half the budget was not enough to find anything: spend the rest on any solution at all.
            answer = replace(self._ask(None, deadline.left), bound=None)
            if answer.status is AnswerStatus.OPTIMAL:
                answer = replace(answer, status=AnswerStatus.FEASIBLE)
        if answer.status is AnswerStatus.INFEASIBLE:
            if self._values is None:
                return False
            contradicted(f"{self._backend.name}: infeasible, though a solution is known")
            answer = Answer(AnswerStatus.UNKNOWN)
        self._accept(objective, answer)
        if self._values is None:
            raise SolveTimeout("no solution was found in the time given")
        value = value_of(objective, self._values)
        bound = max(floor, answer.bound) if answer.bound is not None else floor
        proven = answer.status is AnswerStatus.OPTIMAL or value == bound
        took = share.clock() - began
        self.results.append(TierResult(tier, value, value if proven else bound, proven, took))
        self._session.require_at_most(objective, value)
        return True

    def _accept(self, objective: Linear, answer: Answer) -> None:
        """Take a better solution.  One just as good does not replace the one at hand, good in later tiers."""
        if answer.values is not None and (
            self._values is None or value_of(objective, answer.values) < value_of(objective, self._values)
        ):
            self._values = answer.values
            self._hint = dict(enumerate(answer.values.tolist()))

    def _ask(self, objective: Linear | None, seconds: float) -> Answer:
        self.calls += 1
        seconds = max(seconds, _LEAST_SECONDS)
        return self._session.minimize(objective, self._hint, seconds, self._seed, self._workers)
