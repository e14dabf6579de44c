"""The solver as the control loop awaits it; here a worker thread, in an agent a process.

A solve is a pure, blocking call (``mgmt.solving.placement_solver``).  Whoever embeds the plane runs it in a thread; an
agent runs it in a process of its own, which costs the agent no memory and can be ended in the middle
(``mgmt.solving.solver_worker`` is that process, ``rota.agent.solver_process`` starts and watches it).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

import trio

from mgmt.placement.intent import PolicyChoice
from mgmt.placement.placement_rows import PlacementState
from mgmt.solving.placement_questions import Explanation, Question
from mgmt.solving.placement_solver import PlacementSolver, SolveOutcome
from mgmt.solving.policy_listing import PolicyEntry

_Result = TypeVar("_Result")


class AsyncSolver(Protocol):
    """Decides placements, one after the other; cancelling a call says that nobody wants its answer."""

    async def prepare(self, policies: PolicyChoice) -> None:
        """Load and compile ahead of need; quick if that is done already.  Errors wait for :meth:`solve`."""
        ...

    async def policies(self, policies: PolicyChoice) -> tuple[PolicyEntry, ...]:
        """The policies, for people; none if they cannot be read.  Raises as :meth:`solve`."""
        ...

    async def solve(
        self, state: PlacementState, policies: PolicyChoice, budget: float, seed: int
    ) -> SolveOutcome:
        """Solve within ``budget`` seconds, loading and compiling aside.

        Raises :class:`mgmt.errors.SolverUnavailableError` when no solver can be had.
        """
        ...

    async def explain(
        self, state: PlacementState, policies: PolicyChoice, question: Question, budget: float, seed: int
    ) -> Explanation:
        """Answer a question within ``budget`` seconds, as far as it is found by then.  Raises as :meth:`solve`."""
        ...


class RunBlocking(Protocol):
    """Runs a function that blocks, off the event loop."""

    async def __call__(self, function: Callable[[], _Result], /) -> _Result: ...


class WorkerThread:
    """One call at a time, in a thread; a caller that is cancelled leaves its call to end by itself.

    The calls have a time budget, so an abandoned one holds the next up by that much at most.
    """

    def __init__(self) -> None:
        self._limiter: trio.CapacityLimiter | None = None

    async def __call__(self, function: Callable[[], _Result], /) -> _Result:
        if self._limiter is None:
            self._limiter = trio.CapacityLimiter(1)
        return await trio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=self._limiter)


class ThreadSolver:
    """An :class:`AsyncSolver` in this process: simple, but a running solve cannot be ended."""

    def __init__(self, solver: PlacementSolver, run_blocking: RunBlocking | None = None) -> None:
        self._solver = solver
        self._run_blocking = run_blocking or WorkerThread()
        self._prepared: PolicyChoice | None = None

    async def prepare(self, policies: PolicyChoice) -> None:
        if self._prepared == policies:
            return
        self._prepared = policies
        await self._run_blocking(partial(self._solver.prepare, policies))

    async def policies(self, policies: PolicyChoice) -> tuple[PolicyEntry, ...]:
        return await self._run_blocking(partial(self._solver.policies, policies))

    async def solve(
        self, state: PlacementState, policies: PolicyChoice, budget: float, seed: int
    ) -> SolveOutcome:
        return await self._run_blocking(partial(self._solver.solve, state, policies, budget, seed))

    async def explain(
        self, state: PlacementState, policies: PolicyChoice, question: Question, budget: float, seed: int
    ) -> Explanation:
        return await self._run_blocking(
            partial(self._solver.explain, state, policies, question, budget, seed)
        )
