"""Many members in one process on real sockets: one task that steps many drivers.

All datagram sockets hang on one epoll descriptor, the only thing the task waits for. Each wake-up drains every ready
socket, and all timers come from one heap. A thousand members cost little more than their datagrams; a task per
member would pay a task switch per datagram. Streams (whole configurations) stay with the tasks of each `Transport`.
Linux only.
"""

from __future__ import annotations

import heapq
import math
import select
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from membership.runtime.driver import Driver

_SOCKETS_PER_TURN: Final = 64
_TIMERS_PER_TURN: Final = 32
"""Members served before the streams' tasks have their turn. A stream needs several turns, and as long as it has not
delivered a member its view, that member costs everybody more work. Counted, not timed: on a busy machine the time
passes without any work done."""

_TIMERS_UNDER_LOAD: Final = 4
"""Timers per turn while datagrams wait unread. What a timer sends makes others answer: if both had the same share, a
machine without time to spare would send more and more and read less and less of it."""


class _Slot:
    """One member, and for when its next step is queued."""

    __slots__ = ("descriptor", "driver", "queued_for", "scope", "woken")

    def __init__(self, driver: Driver, descriptor: int) -> None:
        self.driver = driver
        self.descriptor = descriptor
        self.queued_for = math.inf
        self.woken = False
        self.scope = trio.CancelScope()

    @property
    def deadline(self) -> float:
        """When its next step is due."""
        return min(self.driver.deadline, self.driver.transport.deadline)


class SharedLoop:
    """Drives the drivers it is given with `start`, until its block ends or `kill`. See `open_shared_loop`."""

    def __init__(self, nursery: trio.Nursery, epoll: select.epoll) -> None:
        self._nursery = nursery
        self._epoll = epoll
        self._slots: dict[int, _Slot] = {}
        self._timers: list[tuple[float, int, _Slot]] = []
        self._count = 0
        self._woken: list[_Slot] = []
        self._scope: trio.CancelScope | None = None
        self.rounds = 0
        """Wake-ups so far."""
        self.longest_round = 0.0
        """Seconds one wake-up took at most: how late a timer may have been."""

    async def start(self, driver: Driver) -> None:
        """Let `driver` begin, and drive it from now on. Raises ValueError if its transport has no socket."""
        descriptor = driver.transport.fileno()
        if descriptor is None:
            raise ValueError("only members whose transport is on an open socket can share a loop")
        slot = _Slot(driver, descriptor)
        await driver.begin()
        driver.transport.on_wake = lambda: self._wake(slot)
        self._slots[descriptor] = slot
        self._epoll.register(descriptor, select.EPOLLIN)
        self._nursery.start_soon(self._accompany, slot)
        self._schedule(slot)

    def kill(self, driver: Driver) -> None:
        """Close the member's sockets at once, as the end of its process would: nobody is told. May be repeated."""
        descriptor = driver.transport.fileno()
        slot = None if descriptor is None else self._slots.pop(descriptor, None)
        if slot is not None:
            self._epoll.unregister(slot.descriptor)
            driver.transport.on_wake = None
            driver.transport.close()
            slot.scope.cancel()

    async def _accompany(self, slot: _Slot) -> None:
        """What a member needs beside its steps: its streams, and fresh seeds while it joins."""
        with slot.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(slot.driver.transport.run)
                nursery.start_soon(slot.driver.keep_seeds)

    def _wake(self, slot: _Slot) -> None:
        if not slot.woken:
            slot.woken = True
            self._woken.append(slot)
            if self._scope is not None:
                self._scope.cancel()

    def _schedule(self, slot: _Slot) -> None:
        """Queue the next step, unless an earlier one is queued, which will queue it then."""
        deadline = slot.deadline
        if deadline < slot.queued_for:
            slot.queued_for = deadline
            self._count += 1
            heapq.heappush(self._timers, (deadline, self._count, slot))
            if self._scope is not None:
                self._scope.deadline = min(self._scope.deadline, deadline)

    async def run(self) -> None:
        """Drive all members until cancelled."""
        while True:
            if self._woken:
                await trio.lowlevel.checkpoint()
            else:
                deadline = self._timers[0][0] if self._timers else math.inf
                with trio.CancelScope(deadline=deadline) as self._scope:
                    await trio.lowlevel.wait_readable(self._epoll.fileno())
                self._scope = None
            began = trio.current_time()
            read_all = self._serve_sockets()
            self._serve_woken()
            self._serve_timers(_TIMERS_PER_TURN if read_all else _TIMERS_UNDER_LOAD)
            self.rounds += 1
            self.longest_round = max(self.longest_round, trio.current_time() - began)

    def _serve_sockets(self) -> bool:
        """Whether nothing is left unread."""
        # Level-triggered, and the system's queue of ready sockets is fair: what is left comes up the next time.
        ready = self._epoll.poll(0, _SOCKETS_PER_TURN)
        for descriptor, _ in ready:
            slot = self._slots.get(descriptor)
            if slot is not None:
                self._step(slot)
        return len(ready) < _SOCKETS_PER_TURN

    def _serve_woken(self) -> None:
        woken, self._woken = self._woken, []
        for slot in woken:
            slot.woken = False
            self._step(slot)

    def _serve_timers(self, most: int) -> None:
        now = trio.current_time()
        while most and self._timers and self._timers[0][0] <= now:
            deadline, _, slot = heapq.heappop(self._timers)
            if slot.queued_for == deadline:  # else an earlier one took its place
                slot.queued_for = math.inf
                if slot.deadline <= now:
                    self._step(slot)
                    most -= 1
                else:
                    self._schedule(slot)  # what has arrived since has put it off

    def _step(self, slot: _Slot) -> None:
        if self._slots.get(slot.descriptor) is slot:
            slot.driver.step(trio.current_time())
            self._schedule(slot)


@asynccontextmanager
async def open_shared_loop() -> AsyncIterator[SharedLoop]:
    """A running loop; at the end of the block all its members vanish without a word."""
    with select.epoll() as epoll:
        async with trio.open_nursery() as nursery:
            loop = SharedLoop(nursery, epoll)
            nursery.start_soon(loop.run)
            yield loop
            nursery.cancel_scope.cancel()
