"""Slots change hands on real servers: shards come and go, and what runs is met, called back and taken up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import trio

from datastore_adapter.interface import Cancelled, Done, Placement, Running
from datastore_adapter.slots.state.slot_ranges import SLOTS
from tests.slots.controllers import Controller, chains_of, placement, story
from tests.slots.servers import Fleet, Options, running

pytestmark = pytest.mark.engine

TWO = {"s00": [(0, 8191)], "s01": [(8192, SLOTS - 1)]}
THREE = {"s00": [(0, 7891)], "s01": [(8192, 16083)], "s02": [(7892, 8191), (16084, SLOTS - 1)]}
"""Not a third each: where slots go one by one, 5000 there and back take a minute."""


@pytest.fixture
def fleet(engine: str) -> Iterator[Fleet]:
    with running(engine, {"n0": 2, "n1": 2, "n2": 2}, Options(node_timeout=5.0)) as servers:
        yield servers


async def planned(controller: Controller, target: Placement, slots: dict[str, Any], before: Any) -> None:
    """As the control loop agrees on it: the intent, the plan, and what stood before it."""
    plan = {
        "segments": {key: list(chain) for key, chain in target.segments.items()},
        "slots": slots,
        "previous": {"slots": before},
    }
    observation = await controller.observed()
    intent = {"segments": sorted(slots), "slots": slots, "plan": plan}
    await controller.adapter.set_intent(observation.layout_epoch, intent, controller.fence(observation))


def test_a_shard_comes_and_goes_with_its_slots_and_its_replica(fleet: Fleet) -> None:
    """An emptied primary would keep its replica for ever: both leave in the same plan, and are free again."""
    controller = Controller(fleet)

    async def main() -> None:
        two = placement({"s00": "n0 n1", "s01": "n1 n2"}, TWO)
        await controller.reach(two, segments=["s00", "s01"], slots=TWO)
        data = fleet.fill(2000)
        three = placement({"s00": "n0 n1", "s01": "n1 n2", "s02": "n2 n0"}, THREE)
        await planned(controller, three, THREE, TWO)
        await controller.carry_out(controller.adapter.lower(await controller.observed(), three))
        observation = await controller.observed()
        assert chains_of(observation) == {"s00": "n0 n1", "s01": "n1 n2", "s02": "n2 n0"}
        assert {each.key: list(each.slots) for each in observation.segments} == THREE
        assert controller.adapter.lower(observation, three).steps == ()
        assert fleet.lost(data) == []

        await planned(controller, two, TWO, THREE)
        observation = await controller.observed()
        assert [each.key for each in observation.segments if each.retired] == ["s02"]
        *moves, replica_leaves, primary_leaves = controller.adapter.lower(observation, two).steps
        for step in moves:
            assert await controller.run(step) == Done()
        # Whoever takes over here still sees it, with nothing in it, for the plan before names its slots no more.
        for step in (replica_leaves, primary_leaves):
            assert await controller.run(step) == Done()
        observation = await controller.observed()
        assert {each.key: list(each.slots) for each in observation.segments} == TWO
        assert fleet.open_slots() == []
        await trio.to_thread.run_sync(fleet.wait_until_served)
        assert fleet.lost(data) == []

    story(controller, main)


def test_a_move_is_met_called_back_and_taken_up(fleet: Fleet) -> None:
    controller = Controller(fleet)

    async def main() -> None:
        await controller.reach(placement({"s00": "n0", "s01": "n1"}, TWO), slots=TWO)
        data = fleet.fill(20_000)
        further = {"s00": [(0, 5191)], "s01": [(5192, SLOTS - 1)]}
        target = placement({"s00": "n0", "s01": "n1"}, further)
        await controller.agree(target, slots=TWO)
        observation = await controller.observed()
        (step,) = controller.adapter.lower(observation, target).steps
        await controller.adapter.start(step, controller.fence(observation))
        await trio.sleep(0.05)
        assert isinstance(await controller.adapter.poll(step), Running)
        await controller.adapter.cancel(step)
        assert await controller.adapter.poll(step) == Cancelled()
        await trio.sleep(0.5)
        await controller.repair()
        held = await trio.to_thread.run_sync(lambda: (fleet.wait_until_served(), fleet.lost(data))[1])
        assert held == [], "every key is where clients look for it"
        assert fleet.open_slots() == []
        await controller.carry_out(controller.adapter.lower(await controller.observed(), target))
        assert {each.key: list(each.slots) for each in (await controller.observed()).segments} == further
        assert fleet.lost(data) == []

    story(controller, main)


def test_what_a_controller_before_began_is_taken_up(fleet: Fleet) -> None:
    """By another process, which knows only what it sees."""
    first = Controller(fleet)
    second = Controller(fleet, first.layout_adapter, view_epoch=2)

    async def main() -> None:
        await first.reach(placement({"s00": "n0", "s01": "n1"}, TWO), slots=TWO)
        data = fleet.fill(20_000)
        target = placement({"s00": "n0", "s01": "n1"}, {"s00": [(0, 5191)], "s01": [(5192, SLOTS - 1)]})
        await first.agree(target, slots=TWO)
        observation = await first.observed()
        (step,) = first.adapter.lower(observation, target).steps
        await first.adapter.start(step, first.fence(observation))
        await trio.sleep(0.05)
        first.adapter.close()  # it is no more, and calls nothing back
        await second.repair()
        await second.carry_out(second.adapter.lower(await second.observed(), target))
        assert second.adapter.lower(await second.observed(), target).steps == ()
        assert fleet.lost(data) == []
        second.adapter.close()

    story(first, main)
