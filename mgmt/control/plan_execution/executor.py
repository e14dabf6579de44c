"""The executor: starts, polls and cancels the steps of a wave on an engine, as ``step_scheduling`` says.

Each step is started under a fence made from the *latest* observation, for earlier steps move the layout on.
A wave may be cancelled at any await; what then still runs in the engine is remembered, so that the next plan
takes it over where it wants the same and cancels it where it does not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import trio

from datastore_adapter.interface import (
    NO_CAUSE,
    Adapter,
    AdapterError,
    Cancelled,
    Cause,
    Failed,
    Fence,
    FencedError,
    Observation,
    Running,
    Step,
    StepGraph,
    StepStatus,
    Unreachable,
)
from mgmt.control.events import ControlEvents
from mgmt.control.settings import ControlSettings
from mgmt.control.step_scheduling import (
    Outcome,
    Progress,
    StepScheduler,
    StepState,
    is_transfer,
    same_effect,
)

Observe = Callable[[], Awaitable[Observation | Unreachable]]


@dataclass(frozen=True, slots=True)
class WaveResult:
    done: bool
    error: str
    failed: tuple[tuple[Step, str], ...] = ()
    """Steps that failed for good, each with what it said."""


class Executor:
    """Runs one wave at a time."""

    def __init__(
        self,
        adapter: Adapter,
        observe: Observe,
        settings: ControlSettings,
        events: ControlEvents,
        clock: Callable[[], float],
        cause: Callable[[str], Cause] = lambda why: NO_CAUSE,
    ) -> None:
        """``cause``: what the engine is to note beside a change that is made for a reason."""
        self._cause = cause
        self._adapter = adapter
        self._observe = observe
        self._settings = settings
        self._events = events
        self._clock = clock
        self._started: list[Step] = []  # in the engine, as far as we know
        self._scheduler: StepScheduler | None = None
        self.transfer_rate = 0.0
        """Bytes/s of the last transfer that told its rate."""
        self.steps_done = 0
        self.steps_failed = 0

    @property
    def progress(self) -> Progress | None:
        """Of the wave that runs now."""
        return None if self._scheduler is None else self._scheduler.progress()

    async def run(
        self,
        graph: StepGraph,
        observation: Observation,
        view_epoch: int,
        plan_id: str,
        poll_interval: float | None = None,
    ) -> WaveResult:
        """Carry the steps out.  Raises :class:`FencedError` when another controller took over.

        ``poll_interval``: seconds between looks at running steps, if not as set.
        """
        interval = self._settings.poll_interval if poll_interval is None else poll_interval
        scheduler = self._scheduler = StepScheduler(graph, self._settings.limits)
        try:
            await self._drop_moot(graph)
            latest: Observation | None = observation
            while scheduler.outcome is Outcome.RUNNING:
                if await self._poll(scheduler):
                    latest = None
                startable = scheduler.startable(self._clock())
                if startable and latest is None:
                    answer = await self._observe()
                    latest = answer if isinstance(answer, Observation) else None
                if latest is not None:
                    for step in map(self._throttled, startable):
                        cause = self._cause(step.description)
                        fence = Fence(view_epoch, latest.layout_epoch, plan_id, step.number, cause)
                        await self._start(scheduler, step, latest, fence)
                if scheduler.outcome is Outcome.RUNNING:
                    await trio.sleep(interval)
            return WaveResult(scheduler.outcome is Outcome.DONE, scheduler.error, scheduler.failures)
        finally:
            self._scheduler = None

    def _throttled(self, step: Step) -> Step:
        if not is_transfer(step):
            return step
        return replace(step, bytes_per_second=self._settings.limits.bytes_per_transfer)

    async def _start(
        self, scheduler: StepScheduler, step: Step, observation: Observation, fence: Fence
    ) -> None:
        refusal = self._adapter.precheck(step, observation)
        if refusal is not None:
            reason = f"{refusal.code}: {refusal.message}"
            self._tell(scheduler.refused(step.number, reason, self._clock()), step, reason)
            return
        for other in tuple(self._started):
            if other != step and same_effect(other, step):
                await self._cancel(other)  # of an earlier plan: two must not do one thing at a time
        # Remembered before the call: cancelled half-way, it may have started all the same.
        self._forget(step)
        self._started.append(step)
        try:
            await self._adapter.start(step, fence)
        except FencedError:
            raise
        except AdapterError as error:
            self._forget(step)
            self._tell(scheduler.refused(step.number, str(error), self._clock()), step, str(error))
            return
        scheduler.started(step.number, self._clock())
        self._events.add("step-started", step.description, **_step_data(step, fence))

    async def _poll(self, scheduler: StepScheduler) -> bool:
        """Ask for every running step; says whether any ended."""
        ended = False
        stalled = {step.number for step in scheduler.stalled(self._clock())}
        for step in scheduler.running:
            if step.number in stalled:
                await self._cancel(step)
                status: StepStatus = Failed("stalled", "no progress for too long", retryable=True)
            else:
                status = await self._status(step)
            if isinstance(status, Running) and is_transfer(step) and status.rate > 0:
                self.transfer_rate = status.rate
            state = scheduler.record(step.number, status, self._clock())
            if state is StepState.RUNNING:
                continue
            ended = True
            self._forget(step)
            reason = f"{status.code}: {status.message}" if isinstance(status, Failed) else _word(status)
            self._tell(state, step, reason)
        return ended

    async def _status(self, step: Step) -> StepStatus:
        try:
            return await self._adapter.poll(step)
        except FencedError:
            raise
        except AdapterError as error:
            return Failed("poll", str(error), retryable=True)

    def _tell(self, state: StepState, step: Step, reason: str) -> None:
        if state is StepState.DONE:
            self.steps_done += 1
            self._events.add("step-done", step.description, **_step_data(step))
        elif state is StepState.FAILED:
            self.steps_failed += 1
            self._events.add("step-failed", f"{step.description}: {reason}", **_step_data(step))
        else:
            self._events.add("step-retry", f"{step.description}: {reason}", **_step_data(step))

    def _forget(self, step: Step) -> None:
        self._started = [other for other in self._started if not same_effect(other, step)]

    async def _drop_moot(self, graph: StepGraph) -> None:
        """Cancel what an earlier plan left running and this one does not want."""
        for step in tuple(self._started):
            if not any(same_effect(step, wanted) for wanted in graph.steps):
                await self._cancel(step)

    async def cancel_layout_changes(self) -> None:
        """Cancel steps of an interrupted wave that change the layout; transfers may still be wanted."""
        for step in tuple(self._started):
            if not is_transfer(step):
                await self._cancel(step)

    async def cancel_all(self) -> None:
        """Cancel everything this controller started and does not know to have ended."""
        for step in tuple(self._started):
            await self._cancel(step)

    async def _cancel(self, step: Step) -> None:
        self._events.add("step-cancelled", step.description, **_step_data(step))
        try:
            await self._adapter.cancel(step)
        except AdapterError as error:
            # The fence, not this call, keeps a deposed step from doing harm.
            self._events.add("trouble", f"cannot cancel {step.description}: {error}")
        self._forget(step)


def _word(status: StepStatus) -> str:
    return "cancelled" if isinstance(status, Cancelled) else "forgotten by the engine"


def _step_data(step: Step, fence: Fence | None = None) -> dict[str, object]:
    data: dict[str, object] = {
        "step": step.number,
        "kind": step.kind,
        "segment": step.segment,
        "from": step.source,
        "to": step.destination,
    }
    if fence is not None:
        data["plan_id"] = fence.plan_id
        data["layout_epoch"] = fence.layout_epoch
    return data
