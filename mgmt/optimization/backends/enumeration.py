"""The backend that tries everything: for tests, and for problems small enough to be sure about.

It has nothing in common with the solvers but the problem, so that an answer they share is right.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import prod

from mgmt.optimization.backends import Answer, AnswerStatus, UnsuitableProblemError
from mgmt.optimization.checking import broken, holds, result_of, value_of
from mgmt.optimization.problem import Linear, Problem, Tag

MOST_ASSIGNMENTS = 4_000_000


class EnumerationBackend:
    """Complete for everything a problem can say, if it says little."""

    name = "enumeration"

    def load(self, problem: Problem, without: frozenset[str] = frozenset()) -> EnumerationSession:
        """Raises UnsuitableProblemError when there are too many assignments."""
        return EnumerationSession(problem, without)

    def clashing_rows(
        self, problem: Problem, constraints: frozenset[str], seconds: float, seed: int
    ) -> tuple[Tag, ...]:
        """A minimal set of rows that clash: each is left out once, and stays out if the rest still clashes."""
        del seed
        deadline = time.monotonic() + seconds
        found = [part.tag for part in problem.clauses]
        found += [part.tag for part in problem.cardinalities]
        found += [part.tag for part in problem.rows]
        tags = dict.fromkeys(tag for tag in found if tag is not None and tag.constraint in constraints)
        clashes = [
            frozenset(tag for tag in broken(problem, values) if tag is None or tag in tags)
            for values in assignments(problem)
        ]
        if not all(clashes):
            return ()  # they do not clash
        kept = set(tags)
        for tag in tags:
            if time.monotonic() < deadline and all(clash & (kept - {tag} | {None}) for clash in clashes):
                kept.remove(tag)
        return tuple(tag for tag in tags if tag in kept)


class EnumerationSession:
    """One problem with all its assignments."""

    def __init__(self, problem: Problem, without: frozenset[str]) -> None:
        self._problem = problem
        self._without = without
        self._literals: list[int] = []
        self._bounds: list[tuple[Linear, int]] = []
        count_of(problem)  # refuses at once what is too much

    def minimize(
        self, objective: Linear | None, hint: Mapping[int, int], seconds: float, seed: int, workers: int
    ) -> Answer:
        del hint, seed, workers
        deadline = time.monotonic() + seconds
        best: tuple[int, ...] | None = None
        least = 0
        for number, values in enumerate(assignments(self._problem)):
            if number % 1024 == 0 and time.monotonic() > deadline:
                return Answer(AnswerStatus.UNKNOWN if best is None else AnswerStatus.FEASIBLE, best)
            value = 0 if objective is None else value_of(objective, values)
            if (best is None or value < least) and self._allows(values):
                best, least = values, value
                if objective is None:
                    break
        if best is None:
            return Answer(AnswerStatus.INFEASIBLE)
        return Answer(AnswerStatus.OPTIMAL, best, None if objective is None else least)

    def strengthen(self) -> None:
        """There is no bound to improve."""

    def require_all(self, literals: Iterable[int]) -> None:
        self._literals += literals

    def require_at_most(self, linear: Linear, bound: int) -> None:
        self._bounds.append((linear, bound))

    def _allows(self, values: tuple[int, ...]) -> bool:
        return (
            all(holds(literal, values) for literal in self._literals)
            and all(value_of(linear, values) <= bound for linear, bound in self._bounds)
            and all(
                tag is not None and tag.constraint in self._without for tag in broken(self._problem, values)
            )
        )


def count_of(problem: Problem) -> int:
    """How many assignments there are to try; UnsuitableProblemError when they are too many."""
    targets = {operation.target for operation in problem.operations}
    count = prod(
        upper - lower + 1
        for variable, (lower, upper) in enumerate(zip(problem.lower, problem.upper, strict=True))
        if variable not in targets
    )
    if count > MOST_ASSIGNMENTS:
        raise UnsuitableProblemError(f"{count} assignments are too many to try all of them")
    return count


def assignments(problem: Problem) -> Iterator[tuple[int, ...]]:
    """All assignments within the ranges; targets of operations are what the operations give."""
    count_of(problem)
    operations = {operation.target: operation for operation in problem.operations}
    free = [variable for variable in range(len(problem.lower)) if variable not in operations]
    ranges = [range(problem.lower[variable], problem.upper[variable] + 1) for variable in free]
    for chosen in product(*ranges):
        values = [0] * len(problem.lower)
        for variable, value in zip(free, chosen, strict=True):
            values[variable] = value
        # In the order they were made: an operation comes after what it is about.
        for operation in problem.operations:
            values[operation.target] = result_of(operation, values)
        yield tuple(values)
