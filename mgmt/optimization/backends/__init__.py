"""Backends: what can solve a :class:`mgmt.optimization.problem.Problem`.

A backend is asked for one objective at a time; tiers, budgets and explanations are the caller's
(``mgmt.optimization.general.lexicographic``, ``mgmt.optimization.infeasibility.problem_core``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from mgmt.optimization.columns import Integers, Linear
from mgmt.optimization.problem import Problem, Tag

__all__ = ["Answer", "AnswerStatus", "Backend", "Session"]


class AnswerStatus(StrEnum):
    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"  # the time ended first


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """``values`` per variable when a solution was found; ``bound`` on the objective when there was one."""

    status: AnswerStatus
    values: Integers | None = None
    bound: int | None = None


class Session(Protocol):
    """One problem loaded into a solver."""

    def minimize(
        self, objective: Linear | None, hint: Mapping[int, int], seconds: float, seed: int, workers: int
    ) -> Answer:
        """The least value of the objective; any solution when it is None."""
        ...

    def strengthen(self) -> None:
        """From now on spend more on bounds: the easy way did not prove the optimum."""
        ...

    def copy(self) -> Session:
        """The same, of which is demanded what is demanded of this one so far."""
        ...

    def require_all(self, literals: Iterable[int]) -> None:
        """From now on all of these hold."""
        ...

    def require_at_most(self, linear: Linear, bound: int) -> None:
        """From now on ``linear <= bound``."""
        ...


class Backend(Protocol):
    """A solver."""

    name: str

    def load(self, problem: Problem) -> Session:
        """Load a problem.  What is minimised is of variables in its rows and objectives."""
        ...

    def clashing_rows(self, problem: Problem, seconds: float, seed: int) -> tuple[Tag, ...]:
        """Some rows that clash; empty when none could be singled out in time."""
        ...
