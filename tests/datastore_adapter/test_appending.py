"""Appends that go together: fewer messages, one place each, and none pays for another's trouble."""

from __future__ import annotations

from collections import Counter

import pytest

from datastore_adapter import LogClient, LogSettings, LogUnavailableError
from datastore_adapter.log.messages import JUNK, Request, TakeTokens, Write, WriteBatch
from datastore_adapter.log.runtime.virtual_loop import Task
from tests.datastore_adapter.harness import Harness


def settled(harness: Harness) -> Harness:
    harness.loop.run(harness.settle(harness.adapter()))
    return harness


@pytest.fixture
def harness() -> Harness:
    return settled(Harness(4, segments=3))


class Requests:
    """Counts what the clients of the given name send, by kind."""

    def __init__(self, harness: Harness, name: str = "client") -> None:
        self.count: Counter[str] = Counter()
        self._name = name
        self.also = harness.on_request
        harness.on_request = self._look

    def _look(self, source: str, destination: str, request: Request) -> None:
        if source == self._name:
            self.count[type(request).__name__] += 1
        self.also(source, destination, request)


async def ended(harness: Harness, tasks: list[Task]) -> None:
    for task in tasks:
        while not task.ended:
            await harness.runtime.sleep(0.01)
        if task.error is not None:
            raise task.error


def start(harness: Harness, client: LogClient, count: int, stream: str = "red", first: int = 0) -> list[Task]:
    return [
        harness.loop.start(harness.append(client, stream, f"{stream} {number}".encode()))
        for number in range(first, first + count)
    ]


def test_appends_that_wait_together_share_messages(harness: Harness) -> None:
    async def story() -> None:
        client = harness.client()
        await harness.append(client, "red", b"first")
        requests = Requests(harness)
        await ended(harness, [*start(harness, client, 100), *start(harness, client, 100, "green")])
        # Three chains of three replicas; one batch begins with what is there, the others take what came meanwhile.
        batches = client.statistics()["batches"] - 1
        assert batches <= 4
        assert requests.count["TakeTokens"] == batches
        assert requests.count["WriteBatch"] <= 9 * batches
        assert requests.count["Write"] == 0
        assert sorted(harness.acknowledged) == list(range(201))
        await harness.check_everything()

    harness.loop.run(story())


def test_records_of_one_batch_point_to_each_other(harness: Harness) -> None:
    async def story() -> None:
        client = harness.client()
        await ended(harness, start(harness, client, 20))
        for address in range(20):
            record = await client.read(address)
            assert record is not None
            assert record.previous == tuple(range(address - 1, max(-1, address - 5), -1))

    harness.loop.run(story())


def test_batches_keep_their_bounds() -> None:
    settings = LogSettings(batch_records=10, batch_bytes=100, batches_in_flight=2)
    harness = settled(Harness(3, segments=3, settings=settings))

    async def story() -> None:
        client = harness.client()
        sizes: list[int] = []

        def look(source: str, destination: str, request: Request) -> None:
            if source == "client" and isinstance(request, TakeTokens):
                sizes.append(sum(count for _, count in request.streams))

        harness.on_request = look
        tasks = start(harness, client, 60)
        tasks += [
            harness.loop.start(harness.append(client, "red", bytes([number]) * 60)) for number in range(5)
        ]
        await ended(harness, tasks)
        assert sum(sizes) == 65
        assert max(sizes) == 10
        assert sizes[-5:] == [1] * 5  # two of 60 bytes are too many

    harness.loop.run(story())


def test_a_stream_too_many_costs_only_its_own_appends() -> None:
    harness = settled(Harness(3, segments=3, settings=LogSettings(max_streams=2, append_timeout=3.0)))

    async def story() -> None:
        client = harness.client()
        await harness.append(client, "red", b"first")
        await harness.append(client, "green", b"second")
        refused = harness.loop.start(client.append("blue", b"one stream too many"))
        await ended(harness, start(harness, client, 20))
        assert len(harness.acknowledged) == 22
        while not refused.ended:
            await harness.runtime.sleep(0.1)
        assert isinstance(refused.error, LogUnavailableError)
        assert "more than 2 streams" in str(refused.error)

    harness.loop.run(story())


def test_a_dead_replica_delays_only_what_goes_to_its_chains() -> None:
    harness = settled(Harness(6, segments=6, copies=2))

    async def story() -> None:
        client = harness.client()
        await harness.append(client, "red", b"first")
        layout = harness.document.layout
        victim = next(
            host for host in harness.live if host not in (*layout.sequencers, *layout.layout_servers)
        )
        hit = {index for index, segment in enumerate(layout.segments) if victim in segment.hosts()}
        assert 0 < len(hit) < 6
        harness.cluster.isolate(victim, ["client"])
        start(harness, client, 60)
        await harness.runtime.sleep(harness.cluster.settings.call_timeout / 4)
        start(harness, client, 60, "green")  # while the first batch is held up
        await harness.runtime.sleep(harness.cluster.settings.call_timeout / 4)
        assert {address for address in range(1, 121) if address % 6 not in hit} <= set(harness.acknowledged)
        harness.cluster.heal()

    harness.loop.run(story())


def test_writers_that_go_on_as_soon_as_they_can_stay_together() -> None:
    harness = settled(Harness(3, segments=3))

    async def story() -> None:
        client = harness.client()
        await harness.append(client, "red", b"first")
        requests = Requests(harness)

        async def write() -> None:
            for _ in range(10):
                await harness.append(client, "red", b"x")

        await ended(harness, [harness.loop.start(write()) for _ in range(12)])
        # Those of a batch whose chain is done first wait for the rest, rather than to go on in a small batch.
        assert requests.count["TakeTokens"] <= 12

    harness.loop.run(story())


@pytest.mark.parametrize("victim", ["sequencer", "head", "tail"])
def test_many_appends_outlive_the_loss_of_a_host(harness: Harness, victim: str) -> None:
    async def story() -> None:
        adapter = harness.adapter()
        client = harness.client()
        layout = harness.document.layout
        chain = layout.segments[1].open_extent.chain
        lost = {"sequencer": layout.sequencers[0], "head": chain[0], "tail": chain[-1]}[victim]

        def strike(source: str, destination: str, request: Request) -> None:
            if source == "client" and isinstance(request, WriteBatch) and lost in harness.live:
                harness.crash(lost)

        harness.on_request = strike
        tasks = start(harness, client, 200)
        await harness.runtime.sleep(0.1)
        await harness.settle(adapter)
        await ended(harness, tasks)
        assert len(harness.acknowledged) == 200
        await harness.settle(adapter)
        await harness.check_everything()

    harness.loop.run(story())


def test_who_lost_its_place_in_a_batch_goes_on_alone(harness: Harness) -> None:
    async def story() -> None:
        client = harness.client()
        await harness.append(client, "red", b"first")
        taken: list[int] = []

        def steal(source: str, destination: str, request: Request) -> None:
            """Somebody fills an address of the batch as a hole before the batch is written."""
            if source == "client" and isinstance(request, WriteBatch) and not taken:
                ((key, members), *_) = request.records
                address = members[0][0]
                taken.append(address)
                reader = harness.client("reader")
                epoch = harness.document.layout.data_epoch
                node = harness.cluster.node(harness.document.layout.segment_of(address).open_extent.head)
                node.log_unit.handle(Write(epoch, key, address, JUNK))
                harness.loop.start(reader.read(address))

        harness.on_request = steal
        await ended(harness, start(harness, client, 30))
        assert taken[0] not in harness.acknowledged
        assert len(harness.acknowledged) == 31
        await harness.check_everything()

    harness.loop.run(story())
