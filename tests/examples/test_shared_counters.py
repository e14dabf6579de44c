"""The counters of the example: nothing is counted twice or not at all, whoever counts at the same time."""

from __future__ import annotations

from datastore_adapter import ReplicatedDict
from tests.datastore_adapter.harness import Harness
from tests.examples.running import load

example = load("shared_counters")


def test_no_count_is_lost_although_a_host_is() -> None:
    cluster = Harness(4, segments=2)

    async def story() -> None:
        await cluster.settle(cluster.adapter())
        counters = [ReplicatedDict(cluster.client(f"client{n}"), "counters") for n in range(3)]
        tasks = [cluster.loop.start(example.add(each, "visits", 5)) for each in counters for _ in range(2)]
        await cluster.runtime.sleep(0.05)
        cluster.crash("n1")
        await cluster.settle(cluster.adapter())
        for task in tasks:
            while not task.ended:
                await cluster.runtime.sleep(0.05)
            assert task.error is None
        assert await counters[0].items() == {"visits": b"30"}

    cluster.loop.run(story())
