"""Appends that go together: fewer messages, one place each, and none pays for another's trouble."""

from __future__ import annotations

from collections import Counter

import pytest

from datastore_adapter import LogClient, LogSettings, LogUnavailableError
from datastore_adapter.log.messages import JUNK, Request, TakeTokens, Write, WriteBatch
from datastore_adapter.log.runtime.virtual_loop import Task
from tests.datastore_adapter.world import World


def settled(world: World) -> World:
    world.loop.run(world.settle(world.adapter()))
    return world


@pytest.fixture
def world() -> World:
    return settled(World(4, segments=3))


class Requests:
    """Counts what the clients of the given name send, by kind."""

    def __init__(self, world: World, name: str = "client") -> None:
        self.count: Counter[str] = Counter()
        self._name = name
        self.also = world.on_request
        world.on_request = self._look

    def _look(self, source: str, destination: str, request: Request) -> None:
        if source == self._name:
            self.count[type(request).__name__] += 1
        self.also(source, destination, request)


async def ended(world: World, tasks: list[Task]) -> None:
    for task in tasks:
        while not task.ended:
            await world.runtime.sleep(0.01)
        if task.error is not None:
            raise task.error


def start(world: World, client: LogClient, count: int, stream: str = "red", first: int = 0) -> list[Task]:
    return [
        world.loop.start(world.append(client, stream, f"{stream} {number}".encode()))
        for number in range(first, first + count)
    ]


def test_appends_that_wait_together_share_messages(world: World) -> None:
    async def story() -> None:
        client = world.client()
        await world.append(client, "red", b"first")
        requests = Requests(world)
        await ended(world, [*start(world, client, 100), *start(world, client, 100, "green")])
        # Three chains of three replicas; one batch begins with what is there, the others take what came meanwhile.
        batches = client.statistics()["batches"] - 1
        assert batches <= 4
        assert requests.count["TakeTokens"] == batches
        assert requests.count["WriteBatch"] <= 9 * batches
        assert requests.count["Write"] == 0
        assert sorted(world.acknowledged) == list(range(201))
        await world.check_everything()

    world.loop.run(story())


def test_records_of_one_batch_point_to_each_other(world: World) -> None:
    async def story() -> None:
        client = world.client()
        await ended(world, start(world, client, 20))
        for address in range(20):
            record = await client.read(address)
            assert record is not None
            assert record.previous == tuple(range(address - 1, max(-1, address - 5), -1))

    world.loop.run(story())


def test_batches_keep_their_bounds() -> None:
    settings = LogSettings(batch_records=10, batch_bytes=100, batches_in_flight=2)
    world = settled(World(3, segments=3, settings=settings))

    async def story() -> None:
        client = world.client()
        sizes: list[int] = []

        def look(source: str, destination: str, request: Request) -> None:
            if source == "client" and isinstance(request, TakeTokens):
                sizes.append(sum(count for _, count in request.streams))

        world.on_request = look
        tasks = start(world, client, 60)
        tasks += [world.loop.start(world.append(client, "red", bytes([number]) * 60)) for number in range(5)]
        await ended(world, tasks)
        assert sum(sizes) == 65
        assert max(sizes) == 10
        assert sizes[-5:] == [1] * 5  # two of 60 bytes are too many

    world.loop.run(story())


def test_a_stream_too_many_costs_only_its_own_appends() -> None:
    world = settled(World(3, segments=3, settings=LogSettings(max_streams=2, append_timeout=3.0)))

    async def story() -> None:
        client = world.client()
        await world.append(client, "red", b"first")
        await world.append(client, "green", b"second")
        refused = world.loop.start(client.append("blue", b"one stream too many"))
        await ended(world, start(world, client, 20))
        assert len(world.acknowledged) == 22
        while not refused.ended:
            await world.runtime.sleep(0.1)
        assert isinstance(refused.error, LogUnavailableError)
        assert "more than 2 streams" in str(refused.error)

    world.loop.run(story())


def test_a_dead_replica_delays_only_what_goes_to_its_chains() -> None:
    world = settled(World(6, segments=6, copies=2))

    async def story() -> None:
        client = world.client()
        await world.append(client, "red", b"first")
        layout = world.document.layout
        victim = next(host for host in world.live if host not in (*layout.sequencers, *layout.layout_servers))
        hit = {index for index, segment in enumerate(layout.segments) if victim in segment.hosts()}
        assert 0 < len(hit) < 6
        world.cluster.isolate(victim, ["client"])
        start(world, client, 60)
        await world.runtime.sleep(world.cluster.settings.call_timeout / 4)
        start(world, client, 60, "green")  # while the first batch is held up
        await world.runtime.sleep(world.cluster.settings.call_timeout / 4)
        assert {address for address in range(1, 121) if address % 6 not in hit} <= set(world.acknowledged)
        world.cluster.heal()

    world.loop.run(story())


def test_writers_that_go_on_as_soon_as_they_can_stay_together() -> None:
    world = settled(World(3, segments=3))

    async def story() -> None:
        client = world.client()
        await world.append(client, "red", b"first")
        requests = Requests(world)

        async def write() -> None:
            for _ in range(10):
                await world.append(client, "red", b"x")

        await ended(world, [world.loop.start(write()) for _ in range(12)])
        # Those of a batch whose chain is done first wait for the rest, rather than to go on in a small batch.
        assert requests.count["TakeTokens"] <= 12

    world.loop.run(story())


@pytest.mark.parametrize("victim", ["sequencer", "head", "tail"])
def test_many_appends_outlive_the_loss_of_a_host(world: World, victim: str) -> None:
    async def story() -> None:
        adapter = world.adapter()
        client = world.client()
        layout = world.document.layout
        chain = layout.segments[1].open_extent.chain
        lost = {"sequencer": layout.sequencers[0], "head": chain[0], "tail": chain[-1]}[victim]

        def strike(source: str, destination: str, request: Request) -> None:
            if source == "client" and isinstance(request, WriteBatch) and lost in world.live:
                world.crash(lost)

        world.on_request = strike
        tasks = start(world, client, 200)
        await world.runtime.sleep(0.1)
        await world.settle(adapter)
        await ended(world, tasks)
        assert len(world.acknowledged) == 200
        await world.settle(adapter)
        await world.check_everything()

    world.loop.run(story())


def test_who_lost_its_place_in_a_batch_goes_on_alone(world: World) -> None:
    async def story() -> None:
        client = world.client()
        await world.append(client, "red", b"first")
        taken: list[int] = []

        def steal(source: str, destination: str, request: Request) -> None:
            """Somebody fills an address of the batch as a hole before the batch is written."""
            if source == "client" and isinstance(request, WriteBatch) and not taken:
                ((key, members), *_) = request.records
                address = members[0][0]
                taken.append(address)
                reader = world.client("reader")
                epoch = world.document.layout.data_epoch
                node = world.cluster.node(world.document.layout.segment_of(address).open_extent.head)
                node.log_unit.handle(Write(epoch, key, address, JUNK))
                world.loop.start(reader.read(address))

        world.on_request = steal
        await ended(world, start(world, client, 30))
        assert taken[0] not in world.acknowledged
        assert len(world.acknowledged) == 31
        await world.check_everything()

    world.loop.run(story())
