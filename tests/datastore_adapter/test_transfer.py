"""State transfer: chunks with checksums, resumable, from whoever has a sound copy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from datastore_adapter import LogAdapter, LogSettings, ReplicaUnavailableError
from datastore_adapter.interface import Fence, Observation, ReplicaState, Running, Step
from datastore_adapter.log.adapter.lowering import CLOSE, COPY
from datastore_adapter.log.client.replication import Replication
from datastore_adapter.log.layout.striping import addresses_in
from datastore_adapter.log.log_unit.segment_store import AddressState
from datastore_adapter.log.messages import Done, Entry, ReadChunk, Request, TakeTokens, Write, WriteChunk
from datastore_adapter.log.reconfiguration.transfer import Progress, Transfer
from tests.datastore_adapter.harness import Harness

SMALL_CHUNKS = LogSettings(call_timeout=0.3, chunk_bytes=300, backoff_limit=0.1)


class Moved:
    """A harness in which n1 died and the new layout is open: only the copies and the close are left."""

    def __init__(self, records: int = 120, settings: LogSettings = SMALL_CHUNKS) -> None:
        self.harness = Harness(4, segments=2, settings=settings)
        self.records = records
        self.chunks: list[tuple[str, str, Request]] = []
        self.harness.on_request = self._count

    def _count(self, source: str, destination: str, request: Request) -> None:
        if isinstance(request, ReadChunk | WriteChunk):
            self.chunks.append((source, destination, request))

    def written(self) -> int:
        return sum(len(request.entries) for _, _, request in self.chunks if isinstance(request, WriteChunk))

    async def open(self) -> tuple[LogAdapter, list[Step]]:
        harness = self.harness
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(self.records)
        harness.crash("n1")
        adapter.set_hosts(harness.view_epoch, harness.cluster.addresses)
        observation = await adapter.observe()
        assert isinstance(observation, Observation)
        first, *rest = adapter.lower(observation, harness.target(observation)).steps
        await self.run(adapter, first)
        return adapter, [step for step in rest if step.kind == COPY]

    async def run(self, adapter: LogAdapter, step: Step) -> None:
        await adapter.start(step, Fence(self.harness.view_epoch, 0, "plan", step.number))
        while isinstance(await adapter.poll(step), Running):
            await self.harness.runtime.sleep(0.005)

    async def finish(self, adapter: LogAdapter) -> None:
        await self.harness.settle(adapter)
        await self.harness.check_everything()
        self.harness.assert_tidy()


def test_a_copy_is_not_named_before_it_is_complete_and_close_asks() -> None:
    moved = Moved()

    async def story() -> None:
        adapter, copies = await moved.open()
        observation = await adapter.observe()
        assert isinstance(observation, Observation)
        syncing = [
            replica
            for segment in observation.segments
            for replica in segment.replicas
            if replica.state is ReplicaState.SYNCING
        ]
        assert [(replica.segment, replica.host) for replica in syncing] == [
            (step.segment, step.destination) for step in copies
        ]
        assert all(replica.lag > 0 for replica in syncing)
        graph = adapter.lower(observation, moved.harness.target(observation))
        (close,) = [step for step in graph.steps if step.kind == CLOSE]
        await moved.run(adapter, close)  # against the order
        status = await adapter.poll(close)
        assert "copy it" in getattr(status, "message", "")
        await moved.finish(adapter)

    moved.harness.loop.run(story())


def test_an_interrupted_copy_goes_on_where_it_was() -> None:
    moved = Moved()

    async def story() -> None:
        adapter, copies = await moved.open()
        total = sum(60 for _ in copies)
        step = copies[0]
        await adapter.start(step, Fence(moved.harness.view_epoch, 0, "plan", step.number))
        while moved.written() < 20:
            await moved.harness.runtime.sleep(0.001)
        status = await adapter.poll(step)
        assert isinstance(status, Running)
        await adapter.cancel(step)
        await moved.harness.runtime.sleep(0.1)
        before = moved.written()
        assert before < 60
        await moved.finish(moved.harness.adapter("another"))
        assert moved.written() <= total + 8, "only the chunk in flight is copied twice"

    moved.harness.loop.run(story())


def test_the_source_dies_and_another_takes_over() -> None:
    moved = Moved()

    async def story() -> None:
        adapter, copies = await moved.open()
        step = copies[0]
        source = step.source
        assert source is not None
        task = moved.harness.loop.start(moved.run(adapter, step))
        while moved.written() < 10:
            await moved.harness.runtime.sleep(0.001)
        moved.harness.cluster.crash(source)  # not noticed by the membership yet
        while not task.ended:
            await moved.harness.runtime.sleep(0.01)
        sources = {destination for _, destination, request in moved.chunks if isinstance(request, ReadChunk)}
        assert len(sources) > 1
        moved.harness.cluster.restart(source)
        await moved.finish(adapter)

    moved.harness.loop.run(story())


def test_the_destination_restarts_in_between() -> None:
    moved = Moved()

    async def story() -> None:
        adapter, copies = await moved.open()
        step = copies[0]
        task = moved.harness.loop.start(moved.run(adapter, step))
        while moved.written() < 10:
            await moved.harness.runtime.sleep(0.001)
        moved.harness.cluster.crash(step.destination or "")
        moved.harness.cluster.restart(step.destination or "")
        while not task.ended:
            await moved.harness.runtime.sleep(0.01)
        await moved.finish(adapter)

    moved.harness.loop.run(story())


def test_a_damaged_source_is_gone_around_and_mended() -> None:
    moved = Moved()

    async def story() -> None:
        adapter, copies = await moved.open()
        step = copies[0]
        disk = moved.harness.cluster.hosts[step.source or ""].storage
        (path,) = (path for path in disk.files() if f"/unit/{step.segment}/" in path)
        disk.flip_bit(path, disk.size(path) // 2, 4)
        await moved.run(adapter, step)
        unit = moved.harness.cluster.node(step.destination or "").log_unit
        store = unit.stores[step.segment or ""]
        stripe = moved.harness.document.layout.stripe_of(step.segment or "", 0)
        assert stripe is not None
        for address in addresses_in(0, moved.records, stripe):
            assert store.state(address) is AddressState.WRITTEN
        await moved.finish(adapter)

    moved.harness.loop.run(story())


@pytest.mark.parametrize("caps", [(2000.0, 0.0), (0.0, 2000.0), (8000.0, 2000.0), (2000.0, 8000.0)])
def test_of_two_rate_limits_the_lower_is_kept(caps: tuple[float, float]) -> None:
    """This process's own, and the one that the plan gives the step; measured in virtual time, after every chunk."""
    own, of_the_step = caps
    settings = LogSettings(call_timeout=0.3, chunk_bytes=1000, transfer_bytes_per_second=own)
    moved = Moved(settings=settings)

    async def story() -> None:
        adapter, copies = await moved.open()
        began = moved.harness.loop.now
        arrived: list[tuple[float, int]] = []

        def count(source: str, destination: str, request: Request) -> None:
            if isinstance(request, WriteChunk):
                arrived.append((moved.harness.loop.now, sum(len(e.payload) + 64 for _, e in request.entries)))

        moved.harness.on_request = count
        await moved.run(adapter, replace(copies[0], bytes_per_second=of_the_step))
        assert len(arrived) > 3
        sent = 0
        for when, size in arrived:
            assert when - began >= sent / 2000, "what was sent before has paid for its time"
            sent += size
        slack = 0.05 * len(arrived)  # questions and answers
        assert sent / 2000 <= moved.harness.loop.now - began <= sent / 2000 + slack

    moved.harness.loop.run(story())


def test_without_a_limit_nothing_waits() -> None:
    moved = Moved()

    async def story() -> None:
        adapter, copies = await moved.open()
        began = moved.harness.loop.now
        await moved.run(adapter, copies[0])
        assert moved.harness.loop.now - began < 1.0

    moved.harness.loop.run(story())


def test_progress_is_told_in_order_and_ends_complete() -> None:
    moved = Moved()
    told: list[Progress] = []

    async def story() -> None:
        _, copies = await moved.open()
        document = moved.harness.document
        replication = Replication(moved.harness.runtime, SMALL_CHUNKS, document)
        segment = document.layout.segment(copies[0].segment or "")
        assert segment is not None
        transfer = Transfer(moved.harness.runtime, SMALL_CHUNKS, replication, told.append)
        await transfer.run(segment, copies[0].destination or "")
        with pytest.raises(ReplicaUnavailableError, match="not in the open chain"):
            await Transfer(moved.harness.runtime, SMALL_CHUNKS, replication).run(segment, "n1")

    moved.harness.loop.run(story())
    assert len(told) > 5
    assert [progress.records for progress in told] == sorted(progress.records for progress in told)
    assert told[-1].records == told[-1].total == 60


def test_data_goes_from_host_to_host_and_not_by_way_of_the_controller() -> None:
    moved = Moved()

    async def story() -> None:
        adapter, copies = await moved.open()
        await moved.run(adapter, copies[0])
        source, destination = copies[0].source, copies[0].destination
        assert {(a, b) for a, b, request in moved.chunks if isinstance(request, ReadChunk)} == {
            (destination, source)
        }
        assert {(a, b) for a, b, request in moved.chunks if isinstance(request, WriteChunk)} == {
            (destination, destination)
        }
        await moved.finish(adapter)

    moved.harness.loop.run(story())


@pytest.mark.parametrize("crash_again", [False, True])
def test_a_host_that_returns_copies_only_what_it_missed(crash_again: bool) -> None:
    """Three hosts, three copies: the one that returns has most of the data already."""
    harness = Harness(3, segments=2, settings=SMALL_CHUNKS)
    copied: list[int] = []
    crashed: list[str] = []

    def count(source: str, destination: str, request: Request) -> None:
        if isinstance(request, WriteChunk):
            copied.extend(address for address, _ in request.entries)
            if crash_again and not crashed and len(copied) >= 5:
                crashed.append(destination)
                harness.crash(destination)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(100)
        harness.crash("n1")
        await harness.settle(adapter)
        first_missed = await harness.client().tail()
        await harness.write(20)
        harness.restart("n1")
        harness.on_request = count
        if crash_again:
            task = harness.loop.start(harness.settle(adapter))
            while not crashed:
                await harness.runtime.sleep(0.001)
            harness.restart("n1")
            while not task.ended:
                await harness.runtime.sleep(0.01)
        await harness.settle(adapter)
        await harness.check_everything()
        harness.assert_tidy()
        assert set(range(first_missed, first_missed + 20)) <= set(copied)
        assert min(copied) >= first_missed, "what it had was not copied again"
        store = harness.cluster.node("n1").log_unit.stores["s00"]
        assert store.retained == ()

    harness.steady = False
    harness.loop.run(story())


def test_a_record_that_only_the_returning_host_has_is_not_kept() -> None:
    """It stood on the head alone when that died, and the others have settled its address without it."""
    harness = Harness(3, segments=1, settings=SMALL_CHUNKS)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(10)
        layout = harness.document.layout
        head = layout.segments[0].open_extent.head
        entry = Entry(b"x" * 16, "red", (), b"never acknowledged")
        address = await harness.client().tail()
        document = harness.document
        reply = await harness.runtime.call(
            document.address_of(head), Write(layout.data_epoch, "s00", address, entry), 1.0
        )
        assert isinstance(reply, Done)
        client = harness.client("writer")
        await harness.runtime.call(
            document.address_of(layout.sequencers[0]), TakeTokens(layout.data_epoch, (("red", 2),)), 1.0
        )
        harness.crash(head)
        await harness.settle(adapter)
        await harness.write(10, client)
        harness.restart(head)
        await harness.settle(adapter)
        await harness.check_everything()
        harness.assert_tidy()
        stores = [harness.cluster.node(name).log_unit.stores["s00"] for name in harness.live]
        for address in range(await client.tail()):
            assert len({store.read(address) for store in stores}) == 1

    harness.loop.run(story())
