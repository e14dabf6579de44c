"""The controller ends before and after each command that changes something; the next one completes the plan."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from datastore_adapter.interface import Placement
from datastore_adapter.slots.servers import READING, Command, Servers, _name
from tests.budget import budgeted
from tests.slots.controllers import Controller, chains_of, placement, story
from tests.slots.servers import Fleet, Options, running

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow("real servers, a controller that ends at many points"),
    pytest.mark.timeout(1800),
]

KEYS = 50_000
HOSTS = [f"n{number}" for number in range(6)]
SLOTS = {"s00": [(0, 5460)], "s01": [(5461, 10921)], "s02": [(10922, 16383)]}
AT_HOME = placement({"s00": "n0 n1", "s01": "n2 n3", "s02": "n4 n5"}, SLOTS)
DRAINED = placement(
    # n0 is emptied of its primary, and some slots move, for these are the commands that can be left half done.
    {"s00": "n1 n2", "s01": "n2 n3", "s02": "n4 n5"},
    {"s00": [(0, 5450)], "s01": [(5451, 10921)], "s02": [(10922, 16383)]},
)
BACK = placement({"s00": "n0 n1", "s01": "n2 n3", "s02": "n4 n5"}, SLOTS)


class Mortal:
    """Ends the controller at its n-th command, before it is sent or when it has been answered."""

    def __init__(self, controller: Controller, at: int, *, before: bool) -> None:
        self.sent = 0
        self.has_ended = trio.Event()
        servers: Servers = controller.adapter._connections
        call_all = servers.call_all

        async def counted(
            address: str, commands: Sequence[Command], timeout: float | None = None
        ) -> list[Any]:
            changes = any(_name(command) not in READING for command in commands)
            if self.has_ended.is_set():
                await trio.sleep_forever()
            self.sent += changes
            ends = changes and self.sent == at
            if not (ends and before):
                answers = await call_all(address, commands, timeout)
            if ends:
                self.has_ended.set()
                await trio.sleep_forever()
            return answers

        servers.call_all = counted  # type: ignore[method-assign]


async def follow(controller: Controller, target: Placement) -> None:
    """As the control loop does: what is left half way first, then the plan, until nothing is left of it."""
    for _ in range(5):
        await controller.repair()
        graph = controller.adapter.lower(await controller.observed(), target)
        if not graph.steps:
            return
        await controller.carry_out(graph)
    raise AssertionError(f"the plan never ends: {graph.steps}")


async def dies(fleet: Fleet, first: Controller, target: Placement, at: int, *, before: bool) -> bool:
    """Whether the controller came so far; if not, it has completed the plan."""
    controller = Controller(fleet, first.layout_adapter, view_epoch=first.view_epoch + 1)
    mortal = Mortal(controller, at, before=before)

    async def until_it_ends() -> None:
        await mortal.has_ended.wait()
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(until_it_ends)
        await follow(controller, target)
        nursery.cancel_scope.cancel()
    controller.adapter.close()
    first.view_epoch += 1
    return mortal.has_ended.is_set()


@pytest.mark.sweep("at every point there is")
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_whenever_the_controller_ends_the_next_one_completes_the_drain(engine: str, before: bool) -> None:
    with running(engine, dict.fromkeys(HOSTS, 2), Options(node_timeout=5.0)) as fleet:
        first = Controller(fleet)

        async def completed(target: Placement, at: int) -> bool:
            """A controller that ends at this command, if it comes so far, and one that does not."""
            await agree(first, target)
            ended = await dies(fleet, first, target, at, before=before)
            first.view_epoch += 1
            successor = Controller(fleet, first.layout_adapter, view_epoch=first.view_epoch)
            await follow(successor, target)
            observation = await successor.observed()
            assert chains_of(observation) == in_order(target), f"ended at command {at}"
            assert {each.key: each.slots for each in observation.segments} == target.slots
            assert fleet.open_slots() == []
            await trio.to_thread.run_sync(fleet.wait_until_served)
            successor.adapter.close()
            return ended

        async def main() -> None:
            await first.reach(AT_HOME, segments=["s00", "s01", "s02"], slots=SLOTS)
            data = fleet.fill(KEYS)
            for at in itertools.count(1):
                ended = [await completed(target, at) for target in (DRAINED, BACK)]
                if not any(ended):
                    break
            assert fleet.lost(data) == []
            assert at > 10, "there were commands to end at"

        story(first, main)


@pytest.mark.parametrize("at", budgeted([8, 15, 11, 4, 13, 18], 2))
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_cluster_that_was_only_begun_is_made_by_the_next_one(engine: str, before: bool, at: int) -> None:
    """At these commands some have slots and nobody is known; some have met; replicas are missing."""
    target = placement({"s00": "n0 n1", "s01": "n1 n2", "s02": "n2 n0"}, SLOTS)
    with running(engine, dict.fromkeys(["n0", "n1", "n2"], 2), Options(node_timeout=5.0)) as fleet:
        first = Controller(fleet)

        async def main() -> None:
            await agree(first, target)
            assert await dies(fleet, first, target, at, before=before)
            successor = Controller(fleet, first.layout_adapter, view_epoch=first.view_epoch + 1)
            await follow(successor, target)
            observation = await successor.observed()
            assert chains_of(observation) == in_order(target)
            assert {each.key: each.slots for each in observation.segments} == target.slots
            successor.adapter.close()

        story(first, main)


def in_order(target: Placement) -> dict[str, str]:
    return {key: " ".join([chain[0], *sorted(chain[1:])]) for key, chain in target.segments.items()}


async def agree(controller: Controller, target: Placement) -> None:
    agreeing = Controller(controller.fleet, controller.layout_adapter, view_epoch=controller.view_epoch + 1)
    controller.view_epoch += 1
    slots = {key: [list(pair) for pair in ranges] for key, ranges in target.slots.items()}
    await agreeing.agree(target, segments=["s00", "s01", "s02"], slots=slots)
    agreeing.adapter.close()
