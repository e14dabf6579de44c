"""The solver in a process of its own: started when something is to be solved, kept for a while, then ended.

So the agent never holds the policy compiler and the solver, twice its own size, and a solve whose answer nobody wants
any more is ended and not waited for.  Whatever the process does (die, fall silent, answer nonsense), a call ends with
an outcome or, after one more try with a new process, with ``SolverUnavailableError``.  It reads the agent's requests
from a pipe and ends when that does, so it cannot outlive the agent.

What is solved, and how, is not known here: see ``mgmt.solving.solver_worker``.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio
from msgspec import structs

import mgmt
from mgmt.errors import SolverUnavailableError
from mgmt.placement.intent import PolicyChoice
from mgmt.placement.placement_rows import PlacementState
from mgmt.solving import solver_worker
from mgmt.solving.placement_questions import Explanation, Question
from mgmt.solving.placement_solver import SolveOutcome
from mgmt.solving.policy_listing import PolicyEntry
from mgmt.solving.solver_messages import Answer, FrameReader, Request, SolverProtocolError, decode, encode

log = logging.getLogger("rota")

COMMAND: Sequence[str] = (sys.executable, "-P", "-m", solver_worker.__name__)
"""``-P``: what lies in the working directory is not imported."""
ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class SolverLimits:
    """Times are seconds."""

    idle: float = 60.0
    """A process without work for so long is ended.  Longer: later solves start at once, at the price of its memory."""
    grace: float = 0.5
    """How long a solve that nobody wants may go on before its process is ended: most are done by then, and a new
    process takes longer than that to load."""
    loading: float = 60.0
    """What loading and compiling may take before the process counts as stuck; on a busy host it takes seconds."""
    overrun: float = 4.0
    """A solve may take so many times its budget beyond that: encoding and checking are not in the budget."""
    ending: float = 2.0
    """How long a process may take to end when its input is closed, before it is killed."""


class _ChildFailedError(Exception):
    """This process is of no use any more; another may be."""


class _Child:
    """One solver process and the pipe to it."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._requests, self._answers = process.stdin, process.stdout
        self._frames = FrameReader()
        self._number = 0
        self._awaited = 0  # number of the last answer that has come
        self.prepared: PolicyChoice | None = None
        self.solving = False  # whether a solve has been sent and not been answered
        self._asking = False  # it is a question, which solves too
        self.cut_short = False  # in the middle of a request: what follows would be read as its end
        self.used = trio.current_time()

    @property
    def busy(self) -> bool:
        """Whether an answer is outstanding."""
        return self._awaited < self._number

    async def send(self, request: Request, patience: float) -> None:
        """Hand a request over.  Raises :class:`_ChildFailedError`."""
        self._number += 1
        frame = encode(structs.replace(request, number=self._number))
        self.solving = request.state is not None
        self._asking = request.question is not None
        self.cut_short = True
        try:
            with trio.fail_after(patience):
                await self._requests.send_all(frame)
            self.cut_short = False
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise _ChildFailedError("ended") from error
        except trio.TooSlowError as error:
            raise _ChildFailedError(f"did not read for {patience:g} s") from error

    async def receive(self, patience: float) -> Answer:
        """The answer to the last request.  Raises :class:`_ChildFailedError`.  May be cancelled and called again."""
        try:
            with trio.fail_after(patience):
                while (body := self._frames.next()) is None:
                    data = await self._answers.receive_some()
                    if not data:
                        raise _ChildFailedError("ended")
                    self._frames.feed(bytes(data))
                answer = decode(body, Answer)
        except trio.TooSlowError as error:
            raise _ChildFailedError(f"was silent for {patience:g} s") from error
        except SolverProtocolError as error:
            raise _ChildFailedError(f"answered nonsense ({error})") from error
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise _ChildFailedError("ended") from error
        kinds = (answer.outcome is not None, answer.explanation is not None)
        if answer.number != self._number or kinds != (self.solving and not self._asking, self._asking):
            raise _ChildFailedError("answered what was not asked")
        self._awaited, self.solving, self.used = self._number, False, trio.current_time()
        return answer

    async def end(self, patience: float) -> None:
        """End it: by itself within ``patience`` seconds, or else killed."""
        with trio.CancelScope(shield=True):
            await self._requests.aclose()
            with trio.move_on_after(patience):
                await self.process.wait()
            if self.process.returncode is None:
                self.process.kill()
                await self.process.wait()
            await self._answers.aclose()


class SolverProcess:
    """A ``mgmt.AsyncSolver``; made by :func:`open_solver_process`."""

    def __init__(self, nursery: trio.Nursery, limits: SolverLimits, command: Sequence[str]) -> None:
        self._nursery = nursery
        self._limits = limits
        self._command = command
        self._one_at_a_time = trio.Lock()
        self._child: _Child | None = None
        self._counts = {"started": 0, "failed": 0, "interrupted": 0, "idle_ended": 0}

    def status(self) -> dict[str, Any]:
        """For ``rota status``: the process, if there is one, and what became of others."""
        return {"pid": None if self._child is None else self._child.process.pid, **self._counts}

    async def prepare(self, policies: PolicyChoice) -> None:
        """See ``mgmt.AsyncSolver``."""
        await self._ask(Request(0, policies), self._limits.loading)

    async def policies(self, policies: PolicyChoice) -> tuple[PolicyEntry, ...]:
        """See ``mgmt.AsyncSolver``."""
        return (await self._ask(Request(0, policies, listing=True), self._limits.loading)).listing or ()

    async def solve(
        self, state: PlacementState, policies: PolicyChoice, budget: float, seed: int
    ) -> SolveOutcome:
        """See ``mgmt.AsyncSolver``.  Cancelled, it ends the process, unless that is done within the grace."""
        patience = self._limits.loading + (1 + self._limits.overrun) * budget
        outcome = (await self._ask(Request(0, policies, state, budget, seed), patience)).outcome
        assert outcome is not None
        return outcome

    async def explain(
        self, state: PlacementState, policies: PolicyChoice, question: Question, budget: float, seed: int
    ) -> Explanation:
        """See ``mgmt.AsyncSolver``."""
        patience = self._limits.loading + (1 + self._limits.overrun) * budget
        request = Request(0, policies, state, budget, seed, question=question)
        return (await self._ask(request, patience)).explanation or Explanation(error="no answer")

    async def _ask(self, request: Request, patience: float) -> Answer:
        async with self._one_at_a_time:
            reason = ""
            for _ in range(ATTEMPTS):
                try:
                    return await self._exchange(request, patience)
                except _ChildFailedError as error:
                    reason = str(error)
                    self._counts["failed"] += 1
                    log.warning("solver: the process %s; it is ended", reason)
                    await self._drop(patience=0)
            raise SolverUnavailableError(
                f"the solver process {reason}, and so did the one before; the agent's log says more"
            )

    async def _exchange(self, request: Request, patience: float) -> Answer:
        child = await self._free_child()
        if request.state is None and not request.listing and child.prepared == request.policies:
            child.used = trio.current_time()
            return Answer(0)
        if not request.listing:
            child.prepared = request.policies
        try:
            await child.send(request, self._limits.loading)
            return await child.receive(patience)
        except trio.Cancelled:
            self._nursery.start_soon(self._let_go, child)
            raise

    async def _free_child(self) -> _Child:
        """A process that waits for a request: the one there is when it is through, or else a new one."""
        child = self._child
        if child is not None and child.busy:
            await self._finish(child)
        if self._child is None:
            self._child = child = await self._start()
            self._nursery.start_soon(self._end_when_idle, child)
        assert self._child is not None
        return self._child

    async def _finish(self, child: _Child) -> None:
        """Have done with an answer nobody waits for: a solve has its grace, loading all the time it needs."""
        try:
            if not child.solving and not child.cut_short:
                await child.receive(self._limits.loading)
                return
            with trio.move_on_after(0 if child.cut_short else self._limits.grace):
                await child.receive(math.inf)
                return
        except _ChildFailedError as error:
            log.warning("solver: the process %s; it is ended", error)
            self._counts["failed"] += 1
        else:
            self._counts["interrupted"] += 1
        await self._drop(patience=0)

    async def _let_go(self, child: _Child) -> None:
        """After a cancelled call, see that its process is free again, or that there is a new one."""
        async with self._one_at_a_time:
            if self._child is not child or not child.busy:
                return
            policies = child.prepared
            await self._finish(child)
            if self._child is not None or policies is None:
                return
            # Somebody is about to ask anew: load while the situation is looked at.
            with contextlib.suppress(_ChildFailedError):
                await (await self._free_child()).send(Request(0, policies), self._limits.loading)

    async def _start(self) -> _Child:
        try:
            process = await trio.lowlevel.open_process(
                list(self._command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(_import_path())},
                # Signals from a terminal are the agent's business.
                start_new_session=True,
            )
        except OSError as error:
            raise _ChildFailedError(f"could not be started ({error.strerror})") from error
        self._counts["started"] += 1
        return _Child(process)

    async def _drop(self, patience: float) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.end(patience)

    async def _end_when_idle(self, child: _Child) -> None:
        while self._child is child:
            left = child.used + self._limits.idle - trio.current_time()
            if left > 0:
                await trio.sleep(left)
                continue
            async with self._one_at_a_time:
                if (
                    self._child is child
                    and not child.busy
                    and child.used + self._limits.idle <= trio.current_time()
                ):
                    self._counts["idle_ended"] += 1
                    await self._drop(self._limits.ending)

    async def close(self) -> None:
        """End the process, whatever it is at."""
        await self._drop(patience=0)


def _import_path() -> list[str]:
    """Where the process finds this very program: in the working directory it does not look."""
    return [str(Path(mgmt.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]


@asynccontextmanager
async def open_solver_process(
    limits: SolverLimits | None = None, command: Sequence[str] = COMMAND
) -> AsyncGenerator[SolverProcess, None]:
    """No process is started before one is needed; at the end there is none."""
    solver: SolverProcess | None = None
    try:
        async with trio.open_nursery() as nursery:
            solver = SolverProcess(nursery, limits or SolverLimits(), command)
            yield solver
            nursery.cancel_scope.cancel()
    finally:
        if solver is not None:
            await solver.close()
