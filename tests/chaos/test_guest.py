"""Trio in a simulation's time: nothing waits for real, and the order is the seed's."""

from __future__ import annotations

import math

import pytest
import trio

from chaos.store.guest_run import Guest


class World:
    def __init__(self, seed: int = 0) -> None:
        self.now = 0.0
        self.guest = Guest(lambda: self.now, seed)

    def run(self, until: float) -> None:
        while self.guest.wake_at <= until:
            self.now = max(self.now, self.guest.wake_at)
            self.guest.go_on()
        self.now = until


def test_tasks_sleep_in_the_simulation_s_time() -> None:
    world = World()
    log: list[tuple[float, str]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await trio.sleep(seconds)
        log.append((trio.current_time(), name))

    world.guest.start_soon(sleeper, "week", 604_800.0)
    world.guest.start_soon(sleeper, "hour", 3600.0)
    world.run(4000.0)
    assert log == [(3600.0, "hour")]
    assert world.guest.wake_at == 604_800.0
    world.run(1e6)
    assert log[1:] == [(604_800.0, "week")]
    assert world.guest.wake_at == math.inf
    world.guest.close()


def test_what_happens_outside_goes_on_when_it_is_told() -> None:
    world = World()
    event = trio.Event()
    seen: list[float] = []

    async def waiter() -> None:
        await event.wait()
        seen.append(trio.current_time())

    world.guest.start_soon(waiter)
    world.run(5.0)
    event.set()
    world.guest.stirred = True
    world.run(5.0)
    assert seen == [5.0]
    world.guest.close()


def order_of(seed: int) -> list[int]:
    world = World(seed)
    order: list[int] = []

    async def one(number: int) -> None:
        await trio.sleep(1)
        order.append(number)

    for number in range(20):
        world.guest.start_soon(one, number)
    world.run(2.0)
    world.guest.close()
    return order


def test_the_same_seed_gives_the_same_order() -> None:
    assert order_of(1) == order_of(1)
    assert order_of(1) != order_of(2)


def test_an_error_nobody_handles_ends_the_run() -> None:
    world = World()

    async def fail() -> None:
        raise ValueError("no")

    world.guest.start_soon(fail)
    with pytest.raises(ExceptionGroup):
        world.run(1.0)
    world.guest.close()
