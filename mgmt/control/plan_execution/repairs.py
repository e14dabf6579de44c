"""Repairs that go before any plan: a lost primary is replaced, what is half done is finished.

It goes before every decision, waits for no solver, and is watched closely.  A step of one segment that cannot be done
is a question to the operators: it stands in the status, the segment is left as it is, and everything else goes on.  It
is tried again when the engine shows something else of that segment, and now and then.  A step that is about no segment
has to be done before the loop goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from datastore_adapter.interface import Adapter, Observation, Step, StepGraph
from mgmt.control.plan_execution.executor import Executor
from mgmt.control.settings import ControlSettings


class RepairOutcome(Enum):
    NOTHING = "nothing"  # nothing to repair, or only what operators were asked about
    ACTED = "acted"  # look again at once
    RETRY = "retry"  # the loop cannot go on yet


@dataclass(frozen=True, slots=True)
class _Question:
    text: str
    seen: object
    """What was seen of the segment, and by whom."""
    attempts: int
    again_at: float


_Identity = tuple[str, str | None, str | None, str | None]


class Repairs:
    """Of one controller."""

    def __init__(
        self, adapter: Adapter, executor: Executor, settings: ControlSettings, clock: Callable[[], float]
    ) -> None:
        self._adapter = adapter
        self._executor = executor
        self._settings = settings
        self._clock = clock
        self._questions: dict[_Identity, _Question] = {}

    @property
    def questions(self) -> Mapping[str, str]:
        """By segment what its operators have to see to."""
        return {segment: question.text for (_, segment, _, _), question in self._questions.items() if segment}

    async def run(
        self,
        view_epoch: int,
        observation: Observation,
        plan_id: str,
        acting: Callable[[], None],
    ) -> RepairOutcome:
        """``acting`` is called when the engine is about to be changed.  Raises what :meth:`Executor.run` does."""
        graph = await self._adapter.repair(observation)
        self._forget_others(view_epoch, observation, graph)
        graph = self._without_questions(graph)
        if not graph.steps:
            return RepairOutcome.NOTHING
        acting()
        interval = self._settings.repair_poll_interval
        result = await self._executor.run(graph, observation, view_epoch, plan_id, interval)
        for step, error in result.failed:
            self._ask(step, error, _seen(view_epoch, observation, step))
        answered = all(step.segment is not None for step, _ in result.failed)
        return RepairOutcome.ACTED if answered else RepairOutcome.RETRY

    def _ask(self, step: Step, error: str, seen: object) -> None:
        if step.segment is None:
            return
        before = self._questions.get(_identity(step))
        attempts = 1 if before is None else before.attempts + 1
        wait = min(self._settings.first_backoff * 2.0**attempts, self._settings.longest_question)
        text = f"{step.description}: {error}"
        self._questions[_identity(step)] = _Question(text, seen, attempts, self._clock() + wait)

    def _forget_others(self, view_epoch: int, observation: Observation, graph: StepGraph) -> None:
        """Only what is still to be done, and looks the way it did, is still a question."""
        seen = {_identity(step): _seen(view_epoch, observation, step) for step in graph.steps}
        self._questions = {
            identity: question
            for identity, question in self._questions.items()
            if identity in seen and seen[identity] == question.seen
        }

    def _without_questions(self, graph: StepGraph) -> StepGraph:
        now, dropped = self._clock(), set[int]()
        for step in graph.steps:
            question = self._questions.get(_identity(step))
            if (question is not None and now < question.again_at) or step.after & dropped:
                dropped.add(step.number)
        return StepGraph(tuple(step for step in graph.steps if step.number not in dropped))


def _identity(step: Step) -> _Identity:
    return step.kind, step.segment, step.source, step.destination


def _seen(view_epoch: int, observation: Observation, step: Step) -> object:
    copies = tuple(
        (copy.host, copy.position, copy.state)
        for segment in observation.segments
        if segment.key == step.segment
        for copy in segment.replicas
    )
    return view_epoch, copies
