"""Extents none of whose hosts is there: the rest of the log goes on, and nothing is lost when they come back."""

from __future__ import annotations

import pytest

from datastore_adapter import LogAdapter, LogClient, ReplicatedDict
from datastore_adapter.interface import Failed, Fence, Observation
from datastore_adapter.log.errors import (
    ExtentAwayError,
    LayoutError,
    LogUnavailableError,
    OutcomeUnknownError,
    RecordLostError,
)
from datastore_adapter.log.layout.document import Extent, ExtentState
from tests.budget import budgeted
from tests.datastore_adapter.harness import STREAMS, Harness, told_by
from tests.datastore_adapter.test_storm import Storm, weather

PAIR = ("n4", "n5")
"""Both replicas of two of the six segments; neither is the sequencer or a layout server."""


def away(harness: Harness) -> list[Extent]:
    return [extent for _, extent in harness.document.layout.away()]


def addresses_away(harness: Harness) -> list[int]:
    layout = harness.document.layout
    return [
        address
        for address in sorted(harness.acknowledged)
        if layout.segment_of(address).extent_of(address).state is ExtentState.AWAY
    ]


async def written(harness: Harness, count: int = 60) -> LogAdapter:
    """Six hosts, six segments of two copies, and some records."""
    adapter = harness.adapter()
    await harness.settle(adapter)
    await harness.write(count)
    return adapter


async def written_and_without_pair(harness: Harness) -> LogAdapter:
    """Then two hosts die that are all there is of some extents, and the log has settled without them."""
    adapter = await written(harness)
    harness.crash(*PAIR)
    await harness.settle(adapter)
    return adapter


def pairs(seed: int = 0) -> Harness:
    return Harness(6, segments=6, copies=2, seed=seed)


async def refused(client: LogClient, address: int) -> ExtentAwayError:
    with pytest.raises(ExtentAwayError) as caught:
        await client.read(address)
    return caught.value


def test_the_rest_goes_on_and_all_is_readable_when_the_hosts_return() -> None:
    harness = pairs()

    async def story() -> None:
        adapter = await written(harness)
        client = harness.client()
        harness.crash(*PAIR)
        observation = await harness.settle(adapter)
        lost = addresses_away(harness)
        assert len(lost) == 20, "two of six segments"
        assert {away.hosts for segment in observation.segments for away in segment.away} == {PAIR}
        error = await refused(client, lost[0])
        assert error.hosts == PAIR
        assert "n4, n5" in str(error)
        assert "start one of them" in str(error)
        for address in sorted(set(harness.acknowledged) - set(lost)):
            assert await client.read(address) is not None
        await harness.write(60, client)
        assert addresses_away(harness) == lost, "new records go elsewhere"
        harness.restart(*PAIR)
        await harness.settle(adapter)
        assert not away(harness)
        await harness.check_everything()
        harness.assert_tidy()

    harness.loop.run(story())


def test_it_is_readable_as_soon_as_one_host_is_back_and_that_has_everything() -> None:
    """Before any controller has looked, from the tail; and with one of the two, once a controller has."""
    harness = pairs()

    async def story() -> None:
        adapter = await written_and_without_pair(harness)
        lost = addresses_away(harness)
        harness.restart("n5")
        assert harness.document.layout.segment_of(lost[0]).extent_of(lost[0]).tail == "n5"
        assert await harness.client().read(lost[0]) is not None
        await harness.settle(adapter)
        assert not away(harness)
        harness.restart("n4")
        await harness.settle(adapter)
        await harness.check_everything()
        harness.assert_tidy()

    harness.loop.run(story())


def test_what_was_not_settled_holds_settled_below_down() -> None:
    harness = pairs()

    async def story() -> None:
        adapter = await written(harness)
        harness.crash("n3")
        await harness.settle(adapter)
        base = harness.document.layout.base
        await harness.write(30)
        harness.crash(*PAIR)
        await harness.settle(adapter)
        await harness.write(30)
        harness.restart("n3")
        harness.drained.add("n1")
        await harness.settle(adapter)
        layout = harness.document.layout
        assert layout.base > base
        assert layout.settled_below == min(
            max(extent.start, base) for extent in away(harness) if (extent.end or 0) > base
        )
        harness.restart(*PAIR)
        harness.drained.clear()
        await harness.settle(adapter)
        assert harness.document.layout.settled_below == harness.document.layout.base
        await harness.check_everything()

    harness.loop.run(story())


def test_a_stream_is_not_read_across_what_is_away_and_misses_nothing_afterwards() -> None:
    """Pointers of records that were written meanwhile jump over the extent: they are not followed there."""
    harness = pairs()

    async def story() -> None:
        adapter = await written_and_without_pair(harness)
        await harness.write(30)
        client = harness.client()
        newest = await client.latest("red", 5)
        assert [record.stream for record in newest] == ["red"] * 5
        with pytest.raises(ExtentAwayError):
            await client.latest("red", 25)
        with pytest.raises(ExtentAwayError):
            [record async for record in client.stream("red", 0)]
        tail = harness.document.layout.base
        assert len([record async for record in client.stream("red", tail)]) == 10
        harness.restart(*PAIR)
        await harness.settle(adapter)
        for stream in STREAMS:
            assert len(await client.latest(stream, 100)) == 30
        await harness.check_everything()

    harness.loop.run(story())


def test_a_stream_is_read_exactly_up_to_what_is_away_from_either_side() -> None:
    """Forwards, and the newest of it: what does not reach into the gap is told, what does names the hosts."""
    harness = pairs()

    async def story() -> None:
        await written_and_without_pair(harness)
        await harness.write(30)
        layout, tail = harness.document.layout, max(harness.acknowledged) + 1
        gap = [
            address
            for address in range(tail)
            if layout.segment_of(address).extent_of(address).state is ExtentState.AWAY
        ]
        assert layout.away_within(0, tail) == (gap[0], gap[-1])
        assert layout.pointers_from > gap[-1]
        client = harness.client()
        for stream in STREAMS:
            of_stream = sorted(a for a, (name, _) in harness.acknowledged.items() if name == stream)
            above = [address for address in of_stream if address > gap[-1]][::-1]
            for count in range(1, len(above) + 1):
                newest = await client.latest(stream, count)
                assert [record.address for record in newest] == above[:count]
            with pytest.raises(ExtentAwayError, match="n4, n5"):
                await client.latest(stream, len(above) + 1)
            for start in (0, gap[0] - 1, gap[0], gap[0] + 1, gap[-1], gap[-1] + 1, tail):
                first = min((address for address in gap if address >= start), default=None)
                told, error = await told_by(client.stream(stream, start))
                until = tail if first is None else first
                assert [record.address for record in told] == [a for a in of_stream if start <= a < until]
                assert (None if error is None else error.hosts) == (None if first is None else PAIR)

    harness.loop.run(story())


@pytest.mark.parametrize("span", [1, 5, 4096])
def test_what_no_pointer_leads_to_is_searched_for_backwards(
    span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the hosts are back all of it is there, but pointers go on leading only to what came after."""
    monkeypatch.setattr("datastore_adapter.log.client.log_client.SEARCHED_FIRST", span)
    harness = pairs()

    async def story() -> None:
        adapter = await written_and_without_pair(harness)
        await harness.write(12)
        harness.restart(*PAIR)
        await harness.settle(adapter)
        client = harness.client()
        await client.tail()
        assert client.pointers_from > 50
        for stream in STREAMS:
            newest = sorted(
                (a for a, (name, _) in harness.acknowledged.items() if name == stream), reverse=True
            )
            for count in (1, 5, 9, 20, 60):
                records = await client.latest(stream, count)
                assert [record.address for record in records] == newest[:count]

    harness.loop.run(story())


def test_a_range_that_none_of_what_is_away_lies_in_is_read() -> None:
    """Between two addresses of a segment that is away there are five others."""
    harness = pairs()

    async def story() -> None:
        await written_and_without_pair(harness)
        client = harness.client()
        lost = addresses_away(harness)
        await client.append("red", b"so that the client knows the tail")
        first = next(address for address in lost if address + 1 not in lost)
        end = next(address for address in lost if address > first)
        found = await client.find("red", first + 1, end)
        assert found.complete_below == end
        assert await client.names(first + 1, end) <= set(STREAMS)
        with pytest.raises(ExtentAwayError):
            await client.find("red", first, end)
        with pytest.raises(ExtentAwayError):
            await client.names(first, end)

    harness.loop.run(story())


def test_the_log_waits_while_the_sequencer_is_away_as_well() -> None:
    """Nobody knows how far the chain was written, and somebody may go on writing there."""
    harness = pairs()
    harness.layout_servers = 5

    async def story() -> None:
        adapter = await written(harness)
        layout = harness.document.layout
        assert layout.sequencer == "n0"
        assert ("n0", "n1") in {segment.open_extent.chain for segment in layout.segments}
        harness.crash("n0", "n1")
        with pytest.raises(AssertionError, match="does not settle"):
            await harness.settle(adapter, limit=8.0)
        with pytest.raises((LogUnavailableError, OutcomeUnknownError)):
            await harness.client().append("red", b"not now", timeout=2.0)
        harness.restart("n1")
        await harness.settle(adapter)
        await harness.write(12)
        harness.restart("n0")
        await harness.settle(adapter)
        await harness.check_everything()

    harness.loop.run(story(), timeout=300)


@pytest.mark.parametrize("seed", range(3))
def test_an_unsealed_chain_that_is_only_cut_off_gives_no_address_twice(seed: int) -> None:
    """Both replicas of a segment, and a client, lose touch with the others: none of them is sealed."""
    harness = Harness(6, segments=6, copies=2, seed=seed)

    async def story() -> None:
        adapter = await written(harness)
        near, far = harness.client("near"), harness.client("far")
        await harness.write(6, far)
        others = (*harness.cluster.hosts, "controller", "near", "observer", "checker")
        island = {*PAIR, "far"}
        for name in sorted(island):
            harness.cluster.isolate(name, [other for other in others if other not in island])
        harness.cut_off.update(PAIR)
        harness.view_epoch += 1
        # What has its address already may still be written there.
        tasks = [
            harness.loop.start(harness.append(far, "red", f"far {index}".encode())) for index in range(12)
        ]
        await harness.settle(adapter)
        await harness.write(24, near)
        harness.reunite()
        await harness.settle(adapter)
        for task in tasks:
            while not task.ended:
                await harness.runtime.sleep(0.05)
        await harness.settle(adapter)
        await harness.check_everything()

    harness.loop.run(story(), timeout=300)


def test_hosts_that_come_back_without_their_data_are_not_believed() -> None:
    harness = pairs()
    harness.steady = False

    async def story() -> None:
        adapter = await written_and_without_pair(harness)
        lost = addresses_away(harness)
        for name in PAIR:
            harness.cluster.hosts[name].erase()
        harness.restart(*PAIR)
        harness.drained.update(("n1", "n2"))  # so that they become replicas again
        await harness.settle(adapter)
        client = harness.client()
        for address in lost:
            await refused(client, address)
        await harness.write(24)
        for address in sorted(set(harness.acknowledged) - set(lost)):
            assert await client.read(address) is not None

    harness.loop.run(story())


def test_a_host_that_cannot_be_sealed_takes_nothing_back_and_holds_nobody_up() -> None:
    """Its disk takes nothing: the step fails, and is not begun again at once, for each attempt stops writers."""
    harness = pairs()

    async def story() -> None:
        adapter = await written_and_without_pair(harness)
        harness.cluster.hosts["n5"].storage.capacity = 0
        harness.restart("n5")
        adapter.set_hosts(harness.view_epoch, harness.members)
        observation = await adapter.observe()
        assert isinstance(observation, Observation)
        assert observation.unfinished
        graph = await adapter.repair(observation)
        (status,) = await harness.execute(adapter, graph, observation)
        assert isinstance(status, Failed)
        assert "cannot be sealed" in status.message
        assert away(harness)
        await harness.write(12)
        harness.cluster.hosts["n5"].storage.capacity = None
        await harness.settle(adapter)
        assert not away(harness)

    harness.loop.run(story())


def fence(harness: Harness) -> Fence:
    return Fence(harness.view_epoch, harness.document.epoch, "", 0)


def test_what_an_operator_forgets_is_gone_and_the_rest_is_whole() -> None:
    harness = pairs()

    async def story() -> None:
        adapter = await written_and_without_pair(harness)
        lost = addresses_away(harness)
        client = harness.client()
        with pytest.raises(LayoutError, match="n1 is in the view"):
            await adapter.forget(("n1",), fence(harness))
        with pytest.raises(LayoutError, match="n77 holds nothing"):
            await adapter.forget(("n77",), fence(harness))
        await adapter.forget(PAIR[:1], fence(harness))
        await refused(client, lost[0])
        await adapter.forget(PAIR, fence(harness))
        await adapter.forget(PAIR, fence(harness))  # again: nothing more
        assert not away(harness)
        with pytest.raises(RecordLostError, match="n4, n5, which an operator declared lost"):
            await client.read(lost[0])
        for address in lost:
            del harness.acknowledged[address]
        for stream in STREAMS:
            found = [record.address async for record in client.stream(stream)]
            assert found == sorted(a for a, (name, _) in harness.acknowledged.items() if name == stream)
            assert [record.address for record in await client.latest(stream, 100)] == found[::-1]
        await harness.settle(adapter)
        layout = harness.document.layout
        assert layout.settled_below == layout.base or not any(
            extent.state is ExtentState.AWAY for segment in layout.segments for extent in segment.extents
        )
        harness.restart(*PAIR)
        await harness.settle(adapter)
        assert harness.document.layout.forgotten == ()
        with pytest.raises(RecordLostError):
            await client.read(lost[0])
        await harness.write(24)

    harness.loop.run(story())


def test_forgetting_lets_a_log_go_on_that_waits_for_its_sequencer() -> None:
    harness = pairs()
    harness.layout_servers = 5

    async def story() -> None:
        adapter = await written(harness)
        harness.crash("n0", "n1")
        with pytest.raises(AssertionError, match="does not settle"):
            await harness.settle(adapter, limit=8.0)
        await adapter.forget(("n0", "n1"), fence(harness))
        await harness.settle(adapter)
        forgotten = [
            extent
            for segment in harness.document.layout.segments
            for extent in segment.extents
            if extent.state is ExtentState.FORGOTTEN
        ]
        assert {extent.chain for extent in forgotten} == {("n0", "n1")}
        await harness.write(12)

    harness.loop.run(story(), timeout=300)


def test_every_copy_of_a_map_goes_without_what_was_forgotten() -> None:
    """One that had applied the lost commands would else show what nobody else can."""
    harness = pairs()

    async def story() -> None:
        adapter = await written(harness, 0)
        old, other = (ReplicatedDict(harness.client(name), "m") for name in ("old", "other"))
        for index in range(24):
            await old.set(f"k{index}", b"before")
        assert len(await old.items()) == 24
        harness.crash(*PAIR)
        await harness.settle(adapter)
        assert len(await old.items()) == 24, "it has seen everything, and need not read it again"
        with pytest.raises(ExtentAwayError):
            await other.items()
        await old.set("new", b"after")
        await adapter.forget(PAIR, fence(harness))
        left = await other.items()
        assert 0 < len(left) < 25
        assert await old.items() == left

    harness.loop.run(story())


@pytest.mark.slow("six storms")
def test_weather_with_few_copies() -> None:
    """Nothing is lost in any of them, and in some of them extents were away meanwhile."""
    ever_away = [seed for seed in range(3016, 3022) if was_anything_away(stormy(seed))]
    assert ever_away


def was_anything_away(storm: Storm) -> bool:
    return any(any(document.layout.away()) for document in storm.harness.invariants.documents.values())


@pytest.mark.parametrize("seed", budgeted(range(4000, 4060), 10))
def test_weather_with_few_copies_many_seeds(seed: int) -> None:
    stormy(seed)


def stormy(seed: int) -> Storm:
    """One or two copies, so that few hosts that crash take extents with them."""
    loss = 0.05 if seed % 3 == 0 else 0.0
    return weather(seed, seconds=12.0, hosts=7, copies=1 + seed % 2, crash_rate=0.01, pace=3.0, loss=loss)
