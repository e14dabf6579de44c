"""Trio in a simulation's time: nothing waits for real, and the order is the seed's."""

from __future__ import annotations

import math

import pytest
import trio

from chaos.store.guest_run import GuestRun


class World:
    def __init__(self, seed: int = 0) -> None:
        self.now = 0.0
        self.guest = GuestRun(lambda: self.now, seed)

    def run(self, until: float) -> None:
        while self.guest.wake_at <= until:
            self.now = max(self.now, self.guest.wake_at)
            self.guest.go_on()
        self.now = until


def test_tasks_sleep_in_the_simulation_s_time() -> None:
    cluster = World()
    log: list[tuple[float, str]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await trio.sleep(seconds)
        log.append((trio.current_time(), name))

    cluster.guest.start_soon(sleeper, "week", 604_800.0)
    cluster.guest.start_soon(sleeper, "hour", 3600.0)
    cluster.run(4000.0)
    assert log == [(3600.0, "hour")]
    assert cluster.guest.wake_at == 604_800.0
    cluster.run(1e6)
    assert log[1:] == [(604_800.0, "week")]
    assert cluster.guest.wake_at == math.inf
    cluster.guest.close()


def test_what_happens_outside_goes_on_when_it_is_told() -> None:
    cluster = World()
    event = trio.Event()
    seen: list[float] = []

    async def waiter() -> None:
        await event.wait()
        seen.append(trio.current_time())

    cluster.guest.start_soon(waiter)
    cluster.run(5.0)
    event.set()
    cluster.guest.has_work = True
    cluster.run(5.0)
    assert seen == [5.0]
    cluster.guest.close()


def order_of(seed: int) -> list[int]:
    cluster = World(seed)
    order: list[int] = []

    async def one(number: int) -> None:
        await trio.sleep(1)
        order.append(number)

    for number in range(20):
        cluster.guest.start_soon(one, number)
    cluster.run(2.0)
    cluster.guest.close()
    return order


def test_the_same_seed_gives_the_same_order() -> None:
    assert order_of(1) == order_of(1)
    assert order_of(1) != order_of(2)


def test_an_error_nobody_handles_ends_the_run() -> None:
    cluster = World()

    async def fail() -> None:
        raise ValueError("no")

    cluster.guest.start_soon(fail)
    with pytest.raises(ExceptionGroup):
        cluster.run(1.0)
    cluster.guest.close()
