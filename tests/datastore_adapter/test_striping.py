"""Clusters whose number of segments changes while records are written: the log stays one, and nothing is lost."""

from __future__ import annotations

import random

import pytest

from datastore_adapter.interface import Observation
from datastore_adapter.log.errors import TrimmedError
from tests.datastore_adapter.world import World


@pytest.mark.parametrize("numbers", [(4, 7), (7, 4), (1, 6, 2)])
def test_the_number_of_segments_changes_under_load(numbers: tuple[int, ...]) -> None:
    world = World(5, segments=numbers[0], seed=sum(numbers))

    async def story() -> None:
        adapter = world.adapter()
        await world.settle(adapter)
        writers = world.start_writers(pause=0.005)
        for number in numbers[1:]:
            await world.runtime.sleep(0.3)
            world.segments = number
            await world.settle(adapter)
            layout = world.document.layout
            assert len(layout.all_stripings[-1].keys) == number
            assert len(layout.segments) == max(numbers[: 1 + numbers.index(number)])
        await world.runtime.sleep(0.3)
        await world.stop_writers(writers)
        await world.check_everything()
        world.assert_tidy()

    world.loop.run(story())
    assert not world.uncertain


def test_retired_segments_move_and_vanish_when_they_are_trimmed() -> None:
    world = World(6, segments=6, seed=2)

    async def story() -> None:
        adapter = world.adapter()
        await world.settle(adapter)
        await world.write(60)
        world.segments = 2
        await world.settle(adapter)
        retired = world.document.layout.segment("s05")
        assert retired is not None
        first = len(world.attempted)
        world.crash(retired.hosts()[0])  # its records are copied on like all others
        await world.settle(adapter)
        await world.write(20)
        await world.check_everything()
        world.assert_tidy()
        client = world.client()
        await client.trim(first + 5)
        await world.settle(adapter)
        layout = world.document.layout
        assert [segment.key for segment in layout.segments] == ["s00", "s01"]
        assert not any(
            set(host.log_unit.stores) - {"s00", "s01"} for host in map(world.cluster.node, world.live)
        )
        fresh = world.client("fresh")
        with pytest.raises(TrimmedError) as caught:
            await fresh.read(3)
        assert caught.value.below >= first
        found = [record.address async for record in fresh.stream("red")]
        assert found == [
            a for a, (stream, _) in sorted(world.acknowledged.items()) if stream == "red" and a >= first + 5
        ]
        world.segments = 6
        await world.settle(adapter)
        await world.write(20)
        observation = await adapter.observe()
        assert isinstance(observation, Observation)
        assert not any(segment.retired for segment in observation.segments)

    world.loop.run(story())


@pytest.mark.parametrize("seed", range(3))
def test_hosts_and_controllers_die_while_the_number_of_segments_changes(seed: int) -> None:
    world = World(6, segments=4, seed=seed)
    world.steady = False
    rng = random.Random(seed)

    async def story() -> None:
        await world.settle(world.adapter())
        writers = world.start_writers(pause=0.01)
        for round_ in range(6):
            world.segments = rng.randint(1, 8)
            task = world.loop.start(world.settle(world.adapter(f"controller {round_}")))
            await world.runtime.sleep(rng.uniform(0.0, 0.2))
            victim = rng.choice(world.live)
            world.crash(victim)
            await world.runtime.sleep(rng.uniform(0.0, 0.2))
            task.cancel()
            world.restart(victim)
        await world.settle(world.adapter("last controller"))
        await world.stop_writers(writers)
        await world.settle(world.adapter("checking controller"))
        await world.check_everything()
        world.assert_tidy()

    world.loop.run(story())
