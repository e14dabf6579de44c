"""The solver process: reads requests on standard input, solves them one by one, answers on standard output.

``python -P -m mgmt.solving.solver_worker [BYTES]``, which are the memory that it may take; started by an agent
(``rota.agent.solver_process``), useless to anybody else.  It holds what an agent need not hold: the policy compiler,
the embedded database and the solver.  It ends when its standard input does, in the middle of a solve too, so it never
outlives its agent.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from pathlib import Path

from mgmt.placement.intent import PolicyChoice
from mgmt.placement.placement_rows import PlacementState
from mgmt.solving.placement_questions import Explanation, Question
from mgmt.solving.placement_solver import PlacementSolver, PolicySolver, SolveOutcome, Undecided
from mgmt.solving.solver_messages import Answer, FrameReader, Request, SolverProtocolError, decode, encode

_CHUNK = 1 << 16
_FIRST_TO_GO = "700"
"""When memory runs out the kernel shall end this process and not its agent (0 to 1000)."""


class Worker:
    """Answers requests; loads and compiles policies when they are new."""

    def __init__(self, solver: PlacementSolver) -> None:
        self._solver = solver
        self._prepared: PolicyChoice | None = None

    def answer(self, request: Request) -> Answer:
        outcome: SolveOutcome | None = None
        if request.listing:
            return Answer(request.number, listing=self._solver.policies(request.policies))
        try:
            if self._prepared != request.policies:
                # Not out of the solve's budget: loading the solver takes a second.
                self._prepared = request.policies
                self._solver.prepare(request.policies)
            if request.state is not None and request.question is not None:
                return Answer(
                    request.number, explanation=self._explained(request, request.state, request.question)
                )
            if request.state is not None:
                outcome = self._solver.solve(request.state, request.policies, request.budget, request.seed)
        except Exception as error:  # noqa: BLE001, RUF100 - a defect is an answer too; memory errors are not
            if isinstance(error, MemoryError):
                raise
            if request.question is not None:
                return Answer(request.number, explanation=Explanation(error=_in_words(error)))
            if request.state is not None:
                outcome = Undecided(_in_words(error), 0.0)
        return Answer.of(request.number, outcome)

    def _explained(self, request: Request, state: PlacementState, question: Question) -> Explanation:
        return self._solver.explain(state, request.policies, question, request.budget, request.seed)


def _in_words(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):  # an extra of the package
        return f"the solver needs {error.name}, which is not installed: pip install 'rota[plane]'"
    return f"internal error of the solver: {type(error).__name__}: {error}"


def _read_requests(source: int, requests: queue.SimpleQueue[bytes]) -> None:
    """In a thread of its own: it also sees the end of the agent while a solve runs."""
    frames = FrameReader()
    try:
        while data := os.read(source, _CHUNK):
            frames.feed(data)
            while (body := frames.next()) is not None:
                requests.put(body)
    except (OSError, SolverProtocolError):
        os._exit(1)
    os._exit(0)


def _write(target: int, frame: bytes) -> None:
    view = memoryview(frame)
    while view:
        view = view[os.write(target, view) :]


def main() -> None:
    """Serve until standard input ends."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)
    # What a library prints must not get between the answers.
    answers = os.dup(1)
    os.dup2(2, 1)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(0, requests), daemon=True).start()
    worker = Worker(PolicySolver(*map(int, sys.argv[1:])))
    with contextlib.suppress(BrokenPipeError):
        while True:
            _write(answers, encode(worker.answer(decode(requests.get(), Request))))


if __name__ == "__main__":
    main()
