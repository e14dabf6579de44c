"""Runs a plan: agreed in the epoch document first, then wave by wave, each lowered from what stands then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from datastore_adapter.interface import Observation, Placement, StepGraph
from mgmt.control.decision import Situation
from mgmt.control.environment import Environment
from mgmt.control.events import ControlEvents
from mgmt.control.hysteresis import is_for_balance
from mgmt.control.plan_execution.executor import Executor
from mgmt.control.settings import ControlSettings
from mgmt.control.step_scheduling import Progress, without_transfers
from mgmt.errors import EngineUnreachableError
from mgmt.placement.hosts import HostView
from mgmt.placement.intent import Intent
from mgmt.plans.duration_estimate import TransferSpeeds
from mgmt.plans.plan import Plan, PlanKind
from mgmt.plans.plan_report import describe_move, summary

ENDED_KEPT = 64


class PlanProgress:
    """How far a plan is, over all its waves: for progress bars, never for decisions.

    ``now`` is seconds of one clock.  Bytes are what there is to copy as it was known at the beginning.
    """

    def __init__(self, plan: Plan, now: float) -> None:
        self._waves = len(plan.waves)
        self._wave = 0
        self._bytes = plan.bytes
        self._bytes_before = 0  # of the waves that are done
        self._wave_bytes = 0
        self._began = now

    def wave_begins(self, graph: StepGraph) -> None:
        self._bytes_before += self._wave_bytes
        self._wave_bytes = sum(step.bytes for step in graph.steps)
        self._wave += 1

    def report(self, steps: Progress | None, now: float) -> dict[str, Any]:
        """``steps``: those of the present wave, if it runs."""
        done = self._bytes_before + (0 if steps is None else steps.bytes_done)
        total = max(self._bytes, done)
        seconds = max(0.0, now - self._began)
        rate = done / seconds if seconds > 0 else 0.0
        return {
            "wave": self._wave,
            "waves": self._waves,
            "steps": 0 if steps is None else steps.steps,
            "steps_done": 0 if steps is None else steps.steps_done,
            "bytes": total,
            "bytes_done": done,
            "rate": rate,
            "eta": (total - done) / rate if rate > 0 else None,
        }


class PlanRunner:
    """One plan at a time, for one controller."""

    def __init__(
        self,
        me: str,
        environment: Environment,
        executor: Executor,
        settings: ControlSettings,
        events: ControlEvents,
        clock: Callable[[], float],
    ) -> None:
        self._me = me
        self._environment = environment
        self._executor = executor
        self._settings = settings
        self._events = events
        self._clock = clock
        self._progress: PlanProgress | None = None
        self._ended: dict[str, str] = {}  # what became of the last agreed plans, by id; "": done

    def steps(self, plan: Plan, observation: Observation, target: Placement) -> StepGraph:
        """What the engine has to do for this plan to reach ``target``."""
        graph = self._environment.lower(observation, target)
        return without_transfers(graph) if plan.kind is PlanKind.PAUSED else graph

    async def run(self, view: HostView, situation: Situation, plan: Plan) -> str:
        """Carry it out; returns what failed, or nothing."""
        data = event_data(plan)
        self._events.add(
            "plan", summary(plan), **data, lines=[describe_move(move) for move in plan.moves[:100]]
        )
        observation = situation.observation
        if plan.kind is PlanKind.SOLVED:
            intent = self.intent_with(situation, plan)
            await self._environment.agree(
                view, observation, intent, plan.plan_id, why=_reason(situation, plan)
            )
            observation = await self._observe_again()
        progress = self._progress = PlanProgress(plan, self._clock())
        try:
            error = await self._run_waves(view, plan, observation, progress)
        finally:
            self._progress = None
        self._ended[plan.agreed_as] = error
        while len(self._ended) > ENDED_KEPT:
            self._ended.pop(next(iter(self._ended)))
        return error

    def intent_with(self, situation: Situation, plan: Plan) -> Intent:
        """What is agreed before the first step of a plan that was just decided."""
        moved_at = (
            situation.now if is_for_balance(plan) and plan.previous is not None else situation.intent.moved_at
        )
        return replace(situation.intent.with_plan(plan.record(self._me)), moved_at=moved_at)

    async def _run_waves(
        self, view: HostView, plan: Plan, observation: Observation, progress: PlanProgress
    ) -> str:
        for wave in plan.waves:
            graph = self.steps(plan, observation, wave)
            progress.wave_begins(graph)
            if graph.steps:
                result = await self._executor.run(graph, observation, view.epoch, plan.plan_id)
                if not result.done:
                    return result.error
                observation = await self._observe_again()
        return ""

    async def _observe_again(self) -> Observation:
        answer = await self._environment.observe()
        if not isinstance(answer, Observation):
            raise EngineUnreachableError(f"the engine does not answer: {answer.reason}")
        return answer

    def progress(self) -> dict[str, Any] | None:
        """Of the plan that is carried out now, over all its waves."""
        if self._progress is None:
            return None
        return self._progress.report(self._executor.progress, self._clock())

    def speeds(self) -> TransferSpeeds:
        """What a plan's time is estimated by: the speed measured last, within what transfers may use."""
        limits = self._settings.limits
        rate = self._executor.transfer_rate or self._settings.assumed_rate
        if limits.bytes_per_transfer:
            rate = min(rate, limits.bytes_per_transfer)
        return TransferSpeeds(rate, limits.transfers, limits.transfers_per_host)

    def ended(self, plan_id: str) -> str | None:
        """What went wrong with an agreed plan that this controller brought to its end; None: it did not."""
        return self._ended.get(plan_id)


def _reason(situation: Situation, plan: Plan) -> str:
    """Why this plan, in a line for the history."""
    holders = {copy.host for segment in situation.observation.segments for copy in segment.replicas}
    lost = sorted(holders - situation.view.names)
    gone = f"{', '.join(lost[:8])} gone in view {situation.view.epoch}: " if lost else ""
    return gone + summary(plan)


def event_data(plan: Plan) -> dict[str, Any]:
    """Of a plan, for the data of events."""
    return {
        "plan_id": plan.plan_id,
        "agreed_as": plan.agreed_as,
        "moves": len(plan.moves),
        "required": plan.required_moves,
        "bytes": plan.bytes,
    }
