"""Code written for trio, run in a simulation's time: the control loops are, and they are run as they are.

Trio as a guest of the simulation's own loop. Its clock is the simulation's, it never waits for anything outside, and
whoever drives the simulation says when it goes on.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio
from outcome import Error, Outcome
from trio._core import _run as trio_scheduler


class _Clock(trio.abc.Clock):
    """The simulation's time. Asked how long to sleep, it notes until when, and nobody sleeps."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.wake_at = math.inf
        self.idle = False

    def start_clock(self) -> None:
        """It runs already."""

    def current_time(self) -> float:
        return self._now()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        # Trio asks when none of its tasks can go on.
        self.wake_at, self.idle = deadline, True
        return 0.0


class GuestRun:
    """A run of trio; `start_soon` tasks into it, and let it `go_on` when one of them may have something to do."""

    def __init__(self, now: Callable[[], float], seed: int) -> None:
        self._clock = _Clock(now)
        self._seed = seed
        self._ticks: deque[Callable[[], object]] = deque()
        self._outcome: Outcome[None] | None = None
        self._nursery: trio.Nursery | None = None
        self._ending = False
        self.has_work = True
        """Whether something was done to it from outside since it went on last."""
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._ticks.append,
            done_callback=self._done,
            clock=self._clock,
            host_uses_signal_set_wakeup_fd=True,
        )
        self.go_on()

    @property
    def wake_at(self) -> float:
        """When one of its tasks has something to do by itself, in seconds; infinite: not at all."""
        return -math.inf if self.has_work else self._clock.wake_at

    def start_soon(self, function: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Run this as a task of its own."""
        assert self._nursery is not None, "it has ended"
        self._nursery.start_soon(function, *arguments)
        self.has_work = True

    def go_on(self) -> None:
        """Let every task do what it can at this time."""
        self.has_work = False
        with _in_one_order(self._seed):
            self._clock.idle = False
            # Once nobody is left, trio itself has a few more things to do, and is idle in between.
            while self._outcome is None and (self._ending or not self._clock.idle):
                self._ticks.popleft()()
        self._seed += 1

    def close(self) -> None:
        """Cancel every task and end."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
            while self._outcome is None:
                self.go_on()

    async def _main(self) -> None:
        try:
            async with trio.open_nursery() as self._nursery:
                await trio.sleep_forever()
        finally:
            self._ending = True

    def _done(self, outcome: Outcome[None]) -> None:
        self._nursery = None
        self._outcome = outcome
        if isinstance(outcome, Error):
            raise outcome.error


@contextmanager
def _in_one_order(seed: int) -> Iterator[None]:
    """Trio shuffles the tasks that can go on; here by the seed, so that a run can be had again.

    It has no public way to say so: this is what pytest-trio and hypothesis do, too.
    """
    state = vars(trio_scheduler)
    before = state["_ALLOW_DETERMINISTIC_SCHEDULING"]
    state["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
    trio_scheduler._r.seed(seed)
    try:
        yield
    finally:
        state["_ALLOW_DETERMINISTIC_SCHEDULING"] = before
