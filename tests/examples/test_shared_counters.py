"""The counters of the example: nothing is counted twice or not at all, whoever counts at the same time."""

from __future__ import annotations

from datastore_adapter import ReplicatedDict
from tests.datastore_adapter.world import World
from tests.examples.running import load

example = load("shared_counters")


def test_no_count_is_lost_although_a_host_is() -> None:
    world = World(4, segments=2)

    async def story() -> None:
        await world.settle(world.adapter())
        counters = [ReplicatedDict(world.client(f"client{n}"), "counters") for n in range(3)]
        tasks = [world.loop.start(example.add(each, "visits", 5)) for each in counters for _ in range(2)]
        await world.runtime.sleep(0.05)
        world.crash("n1")
        await world.settle(world.adapter())
        for task in tasks:
            while not task.ended:
                await world.runtime.sleep(0.05)
            assert task.error is None
        assert await counters[0].items() == {"visits": b"30"}

    world.loop.run(story())
