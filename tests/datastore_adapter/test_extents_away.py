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
from tests.datastore_adapter.test_storm import Storm, weather
from tests.datastore_adapter.world import STREAMS, World, told_by

PAIR = ("n4", "n5")
"""Both replicas of two of the six segments; neither is the sequencer or a layout server."""


def away(world: World) -> list[Extent]:
    return [extent for _, extent in world.document.layout.away()]


def addresses_away(world: World) -> list[int]:
    layout = world.document.layout
    return [
        address
        for address in sorted(world.acknowledged)
        if layout.segment_of(address).extent_of(address).state is ExtentState.AWAY
    ]


async def written(world: World, count: int = 60) -> LogAdapter:
    """Six hosts, six segments of two copies, and some records."""
    adapter = world.adapter()
    await world.settle(adapter)
    await world.write(count)
    return adapter


async def written_and_without_pair(world: World) -> LogAdapter:
    """Then two hosts die that are all there is of some extents, and the log has settled without them."""
    adapter = await written(world)
    world.crash(*PAIR)
    await world.settle(adapter)
    return adapter


def pairs(seed: int = 0) -> World:
    return World(6, segments=6, copies=2, seed=seed)


async def refused(client: LogClient, address: int) -> ExtentAwayError:
    with pytest.raises(ExtentAwayError) as caught:
        await client.read(address)
    return caught.value


def test_the_rest_goes_on_and_all_is_readable_when_the_hosts_return() -> None:
    world = pairs()

    async def story() -> None:
        adapter = await written(world)
        client = world.client()
        world.crash(*PAIR)
        observation = await world.settle(adapter)
        lost = addresses_away(world)
        assert len(lost) == 20, "two of six segments"
        assert {away.hosts for segment in observation.segments for away in segment.away} == {PAIR}
        error = await refused(client, lost[0])
        assert error.hosts == PAIR
        assert "n4, n5" in str(error)
        assert "start one of them" in str(error)
        for address in sorted(set(world.acknowledged) - set(lost)):
            assert await client.read(address) is not None
        await world.write(60, client)
        assert addresses_away(world) == lost, "new records go elsewhere"
        world.restart(*PAIR)
        await world.settle(adapter)
        assert not away(world)
        await world.check_everything()
        world.assert_tidy()

    world.loop.run(story())


def test_it_is_readable_as_soon_as_one_host_is_back_and_that_has_everything() -> None:
    """Before any controller has looked, from the tail; and with one of the two, once a controller has."""
    world = pairs()

    async def story() -> None:
        adapter = await written_and_without_pair(world)
        lost = addresses_away(world)
        world.restart("n5")
        assert world.document.layout.segment_of(lost[0]).extent_of(lost[0]).tail == "n5"
        assert await world.client().read(lost[0]) is not None
        await world.settle(adapter)
        assert not away(world)
        world.restart("n4")
        await world.settle(adapter)
        await world.check_everything()
        world.assert_tidy()

    world.loop.run(story())


def test_what_was_not_settled_holds_settled_below_down() -> None:
    world = pairs()

    async def story() -> None:
        adapter = await written(world)
        world.crash("n3")
        await world.settle(adapter)
        base = world.document.layout.base
        await world.write(30)
        world.crash(*PAIR)
        await world.settle(adapter)
        await world.write(30)
        world.restart("n3")
        world.drained.add("n1")
        await world.settle(adapter)
        layout = world.document.layout
        assert layout.base > base
        assert layout.settled_below == min(
            max(extent.start, base) for extent in away(world) if (extent.end or 0) > base
        )
        world.restart(*PAIR)
        world.drained.clear()
        await world.settle(adapter)
        assert world.document.layout.settled_below == world.document.layout.base
        await world.check_everything()

    world.loop.run(story())


def test_a_stream_is_not_read_across_what_is_away_and_misses_nothing_afterwards() -> None:
    """Pointers of records that were written meanwhile jump over the extent: they are not followed there."""
    world = pairs()

    async def story() -> None:
        adapter = await written_and_without_pair(world)
        await world.write(30)
        client = world.client()
        newest = await client.latest("red", 5)
        assert [record.stream for record in newest] == ["red"] * 5
        with pytest.raises(ExtentAwayError):
            await client.latest("red", 25)
        with pytest.raises(ExtentAwayError):
            [record async for record in client.stream("red", 0)]
        tail = world.document.layout.base
        assert len([record async for record in client.stream("red", tail)]) == 10
        world.restart(*PAIR)
        await world.settle(adapter)
        for stream in STREAMS:
            assert len(await client.latest(stream, 100)) == 30
        await world.check_everything()

    world.loop.run(story())


def test_a_stream_is_read_exactly_up_to_what_is_away_from_either_side() -> None:
    """Forwards, and the newest of it: what does not reach into the gap is told, what does names the hosts."""
    world = pairs()

    async def story() -> None:
        await written_and_without_pair(world)
        await world.write(30)
        layout, tail = world.document.layout, max(world.acknowledged) + 1
        gap = [
            address
            for address in range(tail)
            if layout.segment_of(address).extent_of(address).state is ExtentState.AWAY
        ]
        assert layout.away_within(0, tail) == (gap[0], gap[-1])
        assert layout.pointers_from > gap[-1]
        client = world.client()
        for stream in STREAMS:
            of_stream = sorted(a for a, (name, _) in world.acknowledged.items() if name == stream)
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

    world.loop.run(story())


@pytest.mark.parametrize("span", [1, 5, 4096])
def test_what_no_pointer_leads_to_is_searched_for_backwards(
    span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the hosts are back all of it is there, but pointers go on leading only to what came after."""
    monkeypatch.setattr("datastore_adapter.log.client.log_client.SEARCHED_FIRST", span)
    world = pairs()

    async def story() -> None:
        adapter = await written_and_without_pair(world)
        await world.write(12)
        world.restart(*PAIR)
        await world.settle(adapter)
        client = world.client()
        await client.tail()
        assert client.pointers_from > 50
        for stream in STREAMS:
            newest = sorted(
                (a for a, (name, _) in world.acknowledged.items() if name == stream), reverse=True
            )
            for count in (1, 5, 9, 20, 60):
                records = await client.latest(stream, count)
                assert [record.address for record in records] == newest[:count]

    world.loop.run(story())


def test_a_range_that_none_of_what_is_away_lies_in_is_read() -> None:
    """Between two addresses of a segment that is away there are five others."""
    world = pairs()

    async def story() -> None:
        await written_and_without_pair(world)
        client = world.client()
        lost = addresses_away(world)
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

    world.loop.run(story())


def test_the_log_waits_while_the_sequencer_is_away_as_well() -> None:
    """Nobody knows how far the chain was written, and somebody may go on writing there."""
    world = pairs()
    world.layout_servers = 5

    async def story() -> None:
        adapter = await written(world)
        layout = world.document.layout
        assert layout.sequencer == "n0"
        assert ("n0", "n1") in {segment.open_extent.chain for segment in layout.segments}
        world.crash("n0", "n1")
        with pytest.raises(AssertionError, match="does not settle"):
            await world.settle(adapter, limit=8.0)
        with pytest.raises((LogUnavailableError, OutcomeUnknownError)):
            await world.client().append("red", b"not now", timeout=2.0)
        world.restart("n1")
        await world.settle(adapter)
        await world.write(12)
        world.restart("n0")
        await world.settle(adapter)
        await world.check_everything()

    world.loop.run(story(), timeout=300)


@pytest.mark.parametrize("seed", range(3))
def test_an_unsealed_chain_that_is_only_cut_off_gives_no_address_twice(seed: int) -> None:
    """Both replicas of a segment, and a client, lose touch with the others: none of them is sealed."""
    world = World(6, segments=6, copies=2, seed=seed)

    async def story() -> None:
        adapter = await written(world)
        near, far = world.client("near"), world.client("far")
        await world.write(6, far)
        others = (*world.cluster.hosts, "controller", "near", "observer", "checker")
        island = {*PAIR, "far"}
        for name in sorted(island):
            world.cluster.isolate(name, [other for other in others if other not in island])
        world.cut_off.update(PAIR)
        world.view_epoch += 1
        # What has its address already may still be written there.
        tasks = [world.loop.start(world.append(far, "red", f"far {index}".encode())) for index in range(12)]
        await world.settle(adapter)
        await world.write(24, near)
        world.reunite()
        await world.settle(adapter)
        for task in tasks:
            while not task.ended:
                await world.runtime.sleep(0.05)
        await world.settle(adapter)
        await world.check_everything()

    world.loop.run(story(), timeout=300)


def test_hosts_that_come_back_without_their_data_are_not_believed() -> None:
    world = pairs()
    world.steady = False

    async def story() -> None:
        adapter = await written_and_without_pair(world)
        lost = addresses_away(world)
        for name in PAIR:
            world.cluster.hosts[name].erase()
        world.restart(*PAIR)
        world.drained.update(("n1", "n2"))  # so that they become replicas again
        await world.settle(adapter)
        client = world.client()
        for address in lost:
            await refused(client, address)
        await world.write(24)
        for address in sorted(set(world.acknowledged) - set(lost)):
            assert await client.read(address) is not None

    world.loop.run(story())


def test_a_host_that_cannot_be_sealed_takes_nothing_back_and_holds_nobody_up() -> None:
    """Its disk takes nothing: the step fails, and is not begun again at once, for each attempt stops writers."""
    world = pairs()

    async def story() -> None:
        adapter = await written_and_without_pair(world)
        world.cluster.hosts["n5"].storage.capacity = 0
        world.restart("n5")
        adapter.set_hosts(world.view_epoch, world.members)
        observation = await adapter.observe()
        assert isinstance(observation, Observation)
        assert observation.unfinished
        graph = await adapter.repair(observation)
        (status,) = await world.execute(adapter, graph, observation)
        assert isinstance(status, Failed)
        assert "cannot be sealed" in status.message
        assert away(world)
        await world.write(12)
        world.cluster.hosts["n5"].storage.capacity = None
        await world.settle(adapter)
        assert not away(world)

    world.loop.run(story())


def fence(world: World) -> Fence:
    return Fence(world.view_epoch, world.document.epoch, "", 0)


def test_what_an_operator_forgets_is_gone_and_the_rest_is_whole() -> None:
    world = pairs()

    async def story() -> None:
        adapter = await written_and_without_pair(world)
        lost = addresses_away(world)
        client = world.client()
        with pytest.raises(LayoutError, match="n1 is in the view"):
            await adapter.forget(("n1",), fence(world))
        with pytest.raises(LayoutError, match="n77 holds nothing"):
            await adapter.forget(("n77",), fence(world))
        await adapter.forget(PAIR[:1], fence(world))
        await refused(client, lost[0])
        await adapter.forget(PAIR, fence(world))
        await adapter.forget(PAIR, fence(world))  # again: nothing more
        assert not away(world)
        with pytest.raises(RecordLostError, match="n4, n5, which an operator declared lost"):
            await client.read(lost[0])
        for address in lost:
            del world.acknowledged[address]
        for stream in STREAMS:
            found = [record.address async for record in client.stream(stream)]
            assert found == sorted(a for a, (name, _) in world.acknowledged.items() if name == stream)
            assert [record.address for record in await client.latest(stream, 100)] == found[::-1]
        await world.settle(adapter)
        layout = world.document.layout
        assert layout.settled_below == layout.base or not any(
            extent.state is ExtentState.AWAY for segment in layout.segments for extent in segment.extents
        )
        world.restart(*PAIR)
        await world.settle(adapter)
        assert world.document.layout.forgotten == ()
        with pytest.raises(RecordLostError):
            await client.read(lost[0])
        await world.write(24)

    world.loop.run(story())


def test_forgetting_lets_a_log_go_on_that_waits_for_its_sequencer() -> None:
    world = pairs()
    world.layout_servers = 5

    async def story() -> None:
        adapter = await written(world)
        world.crash("n0", "n1")
        with pytest.raises(AssertionError, match="does not settle"):
            await world.settle(adapter, limit=8.0)
        await adapter.forget(("n0", "n1"), fence(world))
        await world.settle(adapter)
        forgotten = [
            extent
            for segment in world.document.layout.segments
            for extent in segment.extents
            if extent.state is ExtentState.FORGOTTEN
        ]
        assert {extent.chain for extent in forgotten} == {("n0", "n1")}
        await world.write(12)

    world.loop.run(story(), timeout=300)


def test_every_copy_of_a_map_goes_without_what_was_forgotten() -> None:
    """One that had applied the lost commands would else show what nobody else can."""
    world = pairs()

    async def story() -> None:
        adapter = await written(world, 0)
        old, other = (ReplicatedDict(world.client(name), "m") for name in ("old", "other"))
        for index in range(24):
            await old.set(f"k{index}", b"before")
        assert len(await old.items()) == 24
        world.crash(*PAIR)
        await world.settle(adapter)
        assert len(await old.items()) == 24, "it has seen everything, and need not read it again"
        with pytest.raises(ExtentAwayError):
            await other.items()
        await old.set("new", b"after")
        await adapter.forget(PAIR, fence(world))
        left = await other.items()
        assert 0 < len(left) < 25
        assert await old.items() == left

    world.loop.run(story())


def test_weather_with_few_copies() -> None:
    """Nothing is lost in any of them, and in some of them extents were away meanwhile."""
    ever_away = [seed for seed in range(3010, 3016) if was_anything_away(stormy(seed))]
    assert ever_away


def was_anything_away(storm: Storm) -> bool:
    return any(any(document.layout.away()) for document in storm.world.invariants.documents.values())


@pytest.mark.parametrize("seed", budgeted(range(4000, 4060), 10))
def test_weather_with_few_copies_many_seeds(seed: int) -> None:
    stormy(seed)


def stormy(seed: int) -> Storm:
    """One or two copies, so that few hosts that crash take extents with them."""
    loss = 0.05 if seed % 3 == 0 else 0.0
    return weather(seed, seconds=12.0, hosts=7, copies=1 + seed % 2, crash_rate=0.01, pace=3.0, loss=loss)
