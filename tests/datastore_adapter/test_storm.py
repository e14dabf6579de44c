"""Random weather: hosts crash in the middle of any request and come back, controllers die, packets are lost.

Whatever happens, once the sun is out again the cluster settles by itself, every acknowledged record is there
exactly once, all replicas are equal, and streams and back-pointers miss nothing.
"""

from __future__ import annotations

import random

import pytest

from datastore_adapter.log.messages import Request
from tests.budget import budgeted
from tests.datastore_adapter.harness import Harness


class Storm:
    """Faults over one harness, as they come."""

    def __init__(
        self,
        seed: int,
        *,
        hosts: int = 6,
        segments: int = 6,
        copies: int = 3,
        loss: float = 0.0,
        crash_rate: float = 0.002,
        pace: float = 1.0,
    ) -> None:
        """`pace`: the higher, the longer hosts are away, and controllers live."""
        self.harness = Harness(hosts, segments=segments, copies=copies, seed=seed)
        self.rng = random.Random(seed)
        self.loss = loss
        self.crash_rate = crash_rate
        self.pace = pace
        self.most_down = 2
        self.raging = False
        self.controllers = 0
        self.crashes = 0
        self.harness.on_request = self._strike
        self.harness.steady = False

    def _strike(self, source: str, destination: str, request: Request) -> None:
        if not self.raging or self.rng.random() >= self.crash_rate:
            return
        down = len(self.harness.cluster.hosts) - len(self.harness.live)
        if down < self.most_down and destination in self.harness.live:
            self.crashes += 1
            self.harness.crash(destination)

    async def _revive(self) -> None:
        while self.raging:
            await self.harness.runtime.sleep(self.pace * self.rng.uniform(0.1, 1.5))
            down = sorted(set(self.harness.cluster.hosts) - set(self.harness.live))
            if down:
                self.harness.restart(self.rng.choice(down))

    async def _control(self) -> None:
        """Controllers that die at any moment, each followed by another that knows nothing."""
        harness = self.harness
        while self.raging:
            self.controllers += 1
            adapter = harness.adapter(f"controller{self.controllers}")
            task = harness.loop.start(harness.settle(adapter))
            await harness.runtime.sleep(self.pace * self.rng.uniform(0.01, 1.0))
            task.cancel()

    async def _rain(self) -> None:
        while self.raging:
            await self.harness.runtime.sleep(self.rng.uniform(0.0, 0.5))
            self.harness.cluster.loss = self.rng.choice((0.0, self.loss))

    async def story(self, seconds: float) -> None:
        harness = self.harness
        await harness.settle(harness.adapter())
        writers = harness.start_writers(4, pause=0.01)
        self.raging = True
        weather = [harness.loop.start(task()) for task in (self._revive, self._control, self._rain)]
        await harness.runtime.sleep(seconds)
        self.raging = False
        for task in weather:
            while not task.ended:
                await harness.runtime.sleep(0.05)
        harness.cluster.heal()
        for name in sorted(set(harness.cluster.hosts) - set(harness.live)):
            harness.restart(name)
        await harness.settle(harness.adapter("last controller"))
        await harness.runtime.sleep(0.5)
        await harness.stop_writers(writers)
        await harness.settle(harness.adapter("checking controller"))
        await harness.check_everything()
        harness.assert_tidy()


def weather(seed: int, seconds: float = 5.0, **kind: float) -> Storm:
    storm = Storm(seed, **kind)  # type: ignore[arg-type]  # numbers for numbers
    storm.harness.loop.run(storm.story(seconds), timeout=900)
    assert storm.harness.acknowledged
    return storm


@pytest.mark.parametrize("seed", budgeted(range(4), 1, in_test=1))
def test_crashes_and_restarts(seed: int) -> None:
    assert weather(seed).crashes > 0


@pytest.mark.parametrize("seed", range(2))
def test_crashes_and_restarts_with_packet_loss(seed: int) -> None:
    weather(100 + seed, loss=0.1)


@pytest.mark.parametrize("seed", budgeted(range(60), 10))
def test_crashes_and_restarts_many_seeds(seed: int) -> None:
    weather(1000 + seed, seconds=8.0, loss=0.1 * (seed % 2), crash_rate=0.001 * (1 + seed % 5))


@pytest.mark.parametrize("seed", budgeted(range(20), 5))
def test_three_hosts_three_copies(seed: int) -> None:
    """No spare host: chains shrink and grow back."""
    weather(2000 + seed, hosts=3, segments=3, crash_rate=0.001)
