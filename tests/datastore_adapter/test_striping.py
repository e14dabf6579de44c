"""Clusters whose number of segments changes while records are written: the log stays one, and nothing is lost."""

from __future__ import annotations

import random

import pytest

from datastore_adapter.interface import Observation
from datastore_adapter.log.errors import TrimmedError
from tests.budget import budgeted
from tests.datastore_adapter.harness import Harness


@pytest.mark.parametrize("numbers", [(4, 7), (7, 4), (1, 6, 2)])
def test_the_number_of_segments_changes_under_load(numbers: tuple[int, ...]) -> None:
    harness = Harness(5, segments=numbers[0], seed=sum(numbers))

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        writers = harness.start_writers(pause=0.005)
        for number in numbers[1:]:
            await harness.runtime.sleep(0.3)
            harness.segments = number
            await harness.settle(adapter)
            layout = harness.document.layout
            assert len(layout.all_stripings[-1].keys) == number
            assert len(layout.segments) == max(numbers[: 1 + numbers.index(number)])
        await harness.runtime.sleep(0.3)
        await harness.stop_writers(writers)
        await harness.check_everything()
        harness.assert_tidy()

    harness.loop.run(story())
    assert not harness.uncertain


def test_retired_segments_move_and_vanish_when_they_are_trimmed() -> None:
    harness = Harness(6, segments=6, seed=2)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(60)
        harness.segments = 2
        await harness.settle(adapter)
        retired = harness.document.layout.segment("s05")
        assert retired is not None
        first = len(harness.attempted)
        harness.crash(retired.hosts()[0])  # its records are copied on like all others
        await harness.settle(adapter)
        await harness.write(20)
        await harness.check_everything()
        harness.assert_tidy()
        client = harness.client()
        await client.trim(first + 5)
        await harness.settle(adapter)
        layout = harness.document.layout
        assert [segment.key for segment in layout.segments] == ["s00", "s01"]
        assert not any(
            set(host.log_unit.stores) - {"s00", "s01"} for host in map(harness.cluster.node, harness.live)
        )
        fresh = harness.client("fresh")
        with pytest.raises(TrimmedError) as caught:
            await fresh.read(3)
        assert caught.value.below >= first
        found = [record.address async for record in fresh.stream("red")]
        assert found == [
            a for a, (stream, _) in sorted(harness.acknowledged.items()) if stream == "red" and a >= first + 5
        ]
        harness.segments = 6
        await harness.settle(adapter)
        await harness.write(20)
        observation = await adapter.observe()
        assert isinstance(observation, Observation)
        assert not any(segment.retired for segment in observation.segments)

    harness.loop.run(story())


@pytest.mark.parametrize("seed", budgeted(range(3), 1, in_test=1))
def test_hosts_and_controllers_die_while_the_number_of_segments_changes(seed: int) -> None:
    harness = Harness(6, segments=4, seed=seed)
    harness.steady = False
    rng = random.Random(seed)

    async def story() -> None:
        await harness.settle(harness.adapter())
        writers = harness.start_writers(pause=0.01)
        for round_ in range(6):
            harness.segments = rng.randint(1, 8)
            task = harness.loop.start(harness.settle(harness.adapter(f"controller {round_}")))
            await harness.runtime.sleep(rng.uniform(0.0, 0.2))
            victim = rng.choice(harness.live)
            harness.crash(victim)
            await harness.runtime.sleep(rng.uniform(0.0, 0.2))
            task.cancel()
            harness.restart(victim)
        await harness.settle(harness.adapter("last controller"))
        await harness.stop_writers(writers)
        await harness.settle(harness.adapter("checking controller"))
        await harness.check_everything()
        harness.assert_tidy()

    harness.loop.run(story())
