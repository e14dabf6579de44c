"""Scheduling of the steps of one wave: which may start now, what a failure means, and when all is over.

A pure state machine over a :class:`StepGraph` with explicit time; ``executor`` beside it starts and polls the
steps.  A step starts once, unless it failed in a way that is worth another try (with growing back-off) or a
restarted engine forgot it.  After the first failure that is final nothing new is started; what runs ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from datastore_adapter.interface import (
    Cancelled,
    Done,
    Failed,
    Pending,
    Running,
    Step,
    StepGraph,
    StepStatus,
)


@dataclass(frozen=True, slots=True)
class ExecutionLimits:
    """Bounds on what runs at once and how long it is tried."""

    transfers: int = 8
    """Data transfers in the whole cluster at once.  More: faster, and less left for clients."""
    transfers_per_host: int = 2
    """Data transfers that one host may send, and as many that it may receive, at once."""
    attempts: int = 8
    """Tries of one step before it counts as failed for good."""
    first_backoff: float = 0.1
    """Seconds before the second try; doubled for each further one."""
    longest_backoff: float = 5.0
    """Upper bound of the doubling, in seconds."""
    stall: float = 30.0
    """Seconds without any progress after which a running step is cancelled and tried again."""
    bytes_per_second: float = 0.0
    """Bytes/s that all transfers together may use; 0: unlimited.  Each carries its even share, this / ``transfers``, so
    fewer at a time use less.  Lower spares the clients; a lost host is then repaired later.  An engine that cannot
    throttle says so (``Capabilities.throttles_transfer``), and it has no effect there."""

    @property
    def bytes_per_transfer(self) -> float:
        """The share of one transfer, in bytes/s; 0: unlimited."""
        return self.bytes_per_second / self.transfers


class StepState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Outcome(StrEnum):
    """How the wave stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True)
class _Progress:
    state: StepState = StepState.WAITING
    attempts: int = 0
    not_before: float = 0.0
    bytes_done: int = 0
    error: str = ""
    last_done: int = -1
    moved_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    """For status displays."""

    steps: int
    steps_done: int
    bytes: int
    bytes_done: int

    def to_json(self) -> dict[str, int]:
        return {
            "steps": self.steps,
            "steps_done": self.steps_done,
            "bytes": self.bytes,
            "bytes_done": self.bytes_done,
        }


class StepScheduler:
    """The state of one wave's steps.  Every method is pure but for this object's own state."""

    def __init__(self, graph: StepGraph, limits: ExecutionLimits) -> None:
        self._steps: Mapping[int, Step] = {step.number: step for step in graph.steps}
        self._limits = limits
        self._progress = {number: _Progress() for number in self._steps}

    @property
    def outcome(self) -> Outcome:
        states = [progress.state for progress in self._progress.values()]
        if all(state is StepState.DONE for state in states):
            return Outcome.DONE
        if StepState.FAILED in states and StepState.RUNNING not in states:
            return Outcome.FAILED
        return Outcome.RUNNING

    @property
    def error(self) -> str:
        """What the first step that failed for good said; empty while none did."""
        failed = (p.error for p in self._progress.values() if p.state is StepState.FAILED)
        return next(failed, "")

    @property
    def failures(self) -> tuple[tuple[Step, str], ...]:
        """The steps that failed for good, and why."""
        return tuple(
            (self._steps[n], p.error) for n, p in self._progress.items() if p.state is StepState.FAILED
        )

    @property
    def running(self) -> tuple[Step, ...]:
        return tuple(self._steps[n] for n, p in self._progress.items() if p.state is StepState.RUNNING)

    def state_of(self, number: int) -> StepState:
        return self._progress[number].state

    def startable(self, now: float) -> tuple[Step, ...]:
        """Steps to start now, in order: all before them done, their back-off over, within the limits."""
        if any(p.state is StepState.FAILED for p in self._progress.values()):
            return ()
        sending, receiving, transfers = self._transfers()
        chosen: list[Step] = []
        for number, step in self._steps.items():
            progress = self._progress[number]
            if progress.state is not StepState.WAITING or progress.not_before > now:
                continue
            if any(self._progress[before].state is not StepState.DONE for before in step.after):
                continue
            if is_transfer(step):
                busy = max(sending.get(step.source, 0), receiving.get(step.destination, 0))
                if transfers >= self._limits.transfers or busy >= self._limits.transfers_per_host:
                    continue
                transfers += 1
                sending[step.source] = sending.get(step.source, 0) + 1
                receiving[step.destination] = receiving.get(step.destination, 0) + 1
            chosen.append(step)
        return tuple(chosen)

    def _transfers(self) -> tuple[dict[str | None, int], dict[str | None, int], int]:
        sending: dict[str | None, int] = {}
        receiving: dict[str | None, int] = {}
        count = 0
        for step in self.running:
            if is_transfer(step):
                sending[step.source] = sending.get(step.source, 0) + 1
                receiving[step.destination] = receiving.get(step.destination, 0) + 1
                count += 1
        return sending, receiving, count

    def started(self, number: int, now: float) -> None:
        progress = self._progress[number]
        progress.state = StepState.RUNNING
        progress.attempts += 1
        progress.moved_at = now

    def stalled(self, now: float) -> tuple[Step, ...]:
        """Running steps that made no progress for too long: cancel them, and record that."""
        bound = self._limits.stall
        return tuple(step for step in self.running if now - self._progress[step.number].moved_at > bound)

    def record(self, number: int, status: StepStatus, now: float) -> StepState:
        """Take in what the engine says of a running step; returns the step's new state."""
        progress = self._progress[number]
        if progress.state is not StepState.RUNNING:
            return progress.state
        if isinstance(status, Done):
            progress.state = StepState.DONE
            progress.bytes_done = self._steps[number].bytes
        elif isinstance(status, Running):
            if status.done != progress.last_done:
                progress.last_done, progress.moved_at = status.done, now
            if status.unit == "bytes":
                progress.bytes_done = min(status.done, self._steps[number].bytes)
        elif isinstance(status, Failed):
            self._failed(progress, f"{status.code}: {status.message}", status.retryable, now)
        elif isinstance(status, Pending):
            self._failed(progress, "forgotten by the engine", True, now)
        elif isinstance(status, Cancelled):
            self._failed(progress, "cancelled", True, now)
        return progress.state

    def refused(self, number: int, reason: str, now: float) -> StepState:
        """The step must not, or could not, be started now: try again after a back-off."""
        progress = self._progress[number]
        progress.attempts += 1
        self._failed(progress, reason, True, now)
        return progress.state

    def _failed(self, progress: _Progress, error: str, retryable: bool, now: float) -> None:
        progress.error = error
        if not retryable or progress.attempts >= self._limits.attempts:
            progress.state = StepState.FAILED
            return
        progress.state = StepState.WAITING
        backoff = self._limits.first_backoff * 2.0 ** (progress.attempts - 1)
        progress.not_before = now + min(backoff, self._limits.longest_backoff)

    def progress(self) -> Progress:
        return Progress(
            steps=len(self._steps),
            steps_done=sum(p.state is StepState.DONE for p in self._progress.values()),
            bytes=sum(step.bytes for step in self._steps.values()),
            bytes_done=sum(p.bytes_done for p in self._progress.values()),
        )


def is_transfer(step: Step) -> bool:
    """Whether the step moves data to a host, rather than change the layout."""
    return step.destination is not None


def without_transfers(graph: StepGraph) -> StepGraph:
    """The steps that move no data and do not wait for one that does."""
    dropped: set[int] = set()
    for step in graph.steps:
        if is_transfer(step) or step.after & dropped:
            dropped.add(step.number)
    return StepGraph(tuple(step for step in graph.steps if step.number not in dropped))


def same_effect(one: Step, other: Step) -> bool:
    """Whether two steps, of different plans perhaps, do the same thing."""
    if (one.kind, one.segment, one.source, one.destination) != (
        other.kind,
        other.segment,
        other.source,
        other.destination,
    ):
        return False
    return is_transfer(one) or one.arguments == other.arguments
