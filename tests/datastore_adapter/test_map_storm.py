"""The replicated map in random weather: whatever its clients were told has one order that explains it.

Hosts crash in the middle of any request, controllers and the map's own clients die at any moment, packets are lost,
snapshots are written and the log is trimmed behind them all the time; another application writes into the same log.
"""

from __future__ import annotations

import pytest

from chaos.checkers.history import Kind, Operation
from chaos.checkers.linearizability import contradictions
from chaos.store.clients import drawn, recorded
from datastore_adapter import MapSettings, ReplicatedDict
from datastore_adapter.log.runtime.virtual_loop import Task
from tests.budget import budgeted
from tests.datastore_adapter.test_storm import Storm

KEYS = ("a", "b", "c")
SETTINGS = MapSettings(snapshot_bytes=3000, chunk_bytes=40)


class MapStorm(Storm):
    """A storm over a map: the clients' record of it, and the judgement."""

    def __init__(self, seed: int, **kind: float) -> None:
        super().__init__(seed, **kind)  # type: ignore[arg-type]  # numbers for numbers
        self.history: list[Operation] = []
        self.snapshots = 0
        self.users: list[Task] = []
        self._values = 0

    async def _use(self, name: str) -> None:
        """One client of the map until it dies."""
        shared = ReplicatedDict(self.harness.client(name), "m", SETTINGS)
        try:
            while self.raging:
                await self._operate(name, shared)
                await self.harness.runtime.sleep(self.rng.uniform(0.0, 0.05))
        finally:
            self.snapshots += shared.statistics().get("snapshots", 0)

    async def _operate(self, name: str, shared: ReplicatedDict) -> None:
        now = self.harness.runtime.now
        self._values += 1
        recent = [operation.value for operation in self.history[-6:]]
        called = drawn(self.rng, name, self.rng.choice(KEYS), b"%d" % self._values, recent, now())
        await recorded(self.history, called, shared, now)

    async def _users(self) -> None:
        """Clients that die at any moment, each followed by another that knows nothing."""
        number = 0
        users = self.users
        while self.raging:
            while len(users) < 3:
                number += 1
                users.append(self.harness.loop.start(self._use(f"user{number}")))
            await self.harness.runtime.sleep(self.rng.uniform(0.1, 1.5))
            gone = users.pop(self.rng.randrange(len(users)))
            gone.cancel()

    async def story(self, seconds: float) -> None:
        harness = self.harness
        await harness.settle(harness.adapter())
        self.raging = True
        others = harness.start_writers(1, pause=0.1)
        weather = [
            harness.loop.start(task()) for task in (self._users, self._revive, self._control, self._rain)
        ]
        await harness.runtime.sleep(seconds)
        self.raging = False
        await self._ended(weather)
        harness.cluster.heal()
        for name in sorted(set(harness.cluster.hosts) - set(harness.live)):
            harness.restart(name)
        await harness.settle(harness.adapter("last controller"))
        await harness.runtime.sleep(0.5)
        await harness.settle(harness.adapter("one more controller"))  # after what dead ones left under way
        await self._ended(self.users)
        await harness.stop_writers(others)
        await self._judge()

    async def _ended(self, tasks: list[Task]) -> None:
        for task in tasks:
            while not task.ended:
                await self.harness.runtime.sleep(0.05)
            if task.error is not None:
                raise task.error

    async def _judge(self) -> None:
        """The end is read by two that know nothing, one of them after another snapshot."""
        harness = self.harness
        one, two = (ReplicatedDict(harness.client(f"judge{n}"), "m", SETTINGS) for n in (1, 2))
        began = harness.runtime.now()
        found = await one.items()
        await one.snapshot()
        assert await two.items() == found
        for key in KEYS:
            self.history.append(
                Operation("judge", key, Kind.READ, found.get(key), began, harness.runtime.now())
            )
        assert contradictions(self.history) == []
        log = harness.client("checker")
        for address, expected in harness.acknowledged.items():  # the other application's
            record = await log.read(address)
            assert record is not None
            assert (record.stream, record.payload) == expected


def weather(seed: int, seconds: float = 5.0, **kind: float) -> MapStorm:
    storm = MapStorm(seed, **kind)
    storm.harness.loop.run(storm.story(seconds), timeout=900)
    answered = [operation for operation in storm.history if not operation.is_open]
    assert {operation.kind for operation in answered} == set(Kind)
    assert storm.crashes > 0
    return storm


@pytest.mark.parametrize("seed", budgeted(range(3), 1, in_test=1))
def test_the_map_is_linearizable_in_a_storm(seed: int) -> None:
    assert weather(seed).snapshots > 0


def test_and_with_packet_loss() -> None:
    weather(100, loss=0.1)


@pytest.mark.parametrize("seed", budgeted(range(20), 5))
def test_the_map_is_linearizable_in_many_storms(seed: int) -> None:
    weather(1000 + seed, seconds=8.0, loss=0.1 * (seed % 2), crash_rate=0.001 * (1 + seed % 5))
