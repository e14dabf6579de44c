"""The client: exactly once for its caller, holes, damage, time-outs, streams."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Coroutine

import pytest

from datastore_adapter import (
    InvalidStreamError,
    LogClient,
    LogSettings,
    LogUnavailableError,
    NoLayoutError,
    OutcomeUnknownError,
    PayloadTooLargeError,
    Record,
    RecordLostError,
    TrimmedError,
    UnwrittenError,
)
from datastore_adapter.log.client.layout_cache import LayoutCache
from datastore_adapter.log.errors import LogError
from datastore_adapter.log.messages import JUNK, Entry, FetchDocument, Request, TakeTokens, Tokens, Write
from tests.datastore_adapter.world import World, records_of


def settled(world: World) -> World:
    world.loop.run(world.settle(world.adapter()))
    return world


@pytest.fixture
def world() -> World:
    return settled(World(4, segments=3))


async def take_token(world: World, stream: str = "red") -> int:
    """A token that its writer never uses: a hole."""
    layout = world.document.layout
    reply = await world.runtime.call(
        f"{layout.sequencers[0]}:1", TakeTokens(layout.data_epoch, ((stream, 1),)), 1.0
    )
    assert isinstance(reply, Tokens)
    return reply.first


def chain_of(world: World, address: int) -> tuple[str, tuple[str, ...]]:
    segment = world.document.layout.segment_of(address)
    return segment.key, segment.extent_of(address).chain


def damage(world: World, host: str, address: int, payload: bytes) -> None:
    """Flip a bit of the payload on one host's disk."""
    key, _ = chain_of(world, address)
    storage = world.cluster.hosts[host].storage
    for name in storage.names(f"unit/{key}/"):
        position = storage.read(name, 0, storage.size(name)).find(payload)
        if position >= 0:
            storage.flip_bit(name, position, 0)
            return
    raise AssertionError(f"{host} does not hold {payload!r}")


def test_what_is_appended_can_be_read_by_address_and_by_stream(world: World) -> None:
    async def story() -> None:
        client = world.client()
        addresses = [await client.append("red", bytes([number])) for number in range(5)]
        assert addresses == [0, 1, 2, 3, 4]
        assert await client.tail() == 5
        assert await client.read(3) == Record(3, "red", b"\x03", (2, 1, 0))
        await client.append("green", b"other")
        found = [record.payload async for record in client.stream("red", start=2)]
        assert found == [b"\x02", b"\x03", b"\x04"]
        assert [record.address for record in await client.latest("red", 2)] == [4, 3]
        assert [record async for record in client.stream("unknown")] == []
        assert await client.latest("unknown", 3) == []
        for address in (6, 999, -1):
            with pytest.raises(UnwrittenError):
                await client.read(address)
        assert client.statistics()["appends"] == 6

    world.loop.run(story())


def test_bad_input_is_refused_at_once(world: World) -> None:
    async def story() -> None:
        client = LogClient(world.runtime, ["n0:1"], LogSettings(max_payload=10))
        with pytest.raises(PayloadTooLargeError, match="at most 10 fit"):
            await client.append("red", b"x" * 11)
        for name in ("", "x" * 256):
            with pytest.raises(InvalidStreamError):
                await client.append(name, b"x")

    world.loop.run(story())
    with pytest.raises(NoLayoutError, match="at least one agent"):
        LogClient(world.runtime, [])


def test_before_there_is_a_layout() -> None:
    world = World(2)

    async def story() -> None:
        with pytest.raises(NoLayoutError, match="no agent knows a layout"):
            await LogClient(world.runtime, ["n1:1"]).append("red", b"x", timeout=1.0)
        with pytest.raises(LogUnavailableError):
            await LogClient(world.runtime, ["n0:1"]).read(0, timeout=1.0)
        with pytest.raises(NoLayoutError, match="no agent answered at nobody:1"):
            await LogClient(world.runtime, ["nobody:1"]).tail(timeout=1.0)

    world.loop.run(story())


def test_nobody_is_asked_twice_for_the_layout(world: World) -> None:
    """Seeds are addresses, hosts of the layout names: they were once asked as both."""
    seeds = [f"n{index}:1" for index in range(4)]
    layouts = LayoutCache(world.runtime, LogSettings.local(), seeds, Counter())
    world.loop.run(layouts.current())
    world.loop.run(world.runtime.sleep(1.0))  # the first answer was enough: the other questions arrive
    asked: list[str] = []
    before = world.cluster.on_request

    def look(source: str, destination: str, request: Request) -> None:
        before(source, destination, request)
        if isinstance(request, FetchDocument):
            asked.append(destination)

    world.cluster.on_request = look
    for _ in range(2):  # only the layout servers, and every host
        asked.clear()
        world.loop.run(layouts.fetch())
        assert sorted(asked) == ["n0", "n1", "n2", "n3"]


def errors_left_after(world: World, action: Callable[[], object]) -> list[object]:
    """Errors of the log that only the garbage collector would find."""
    gc.collect()
    gc.disable()
    try:
        action()
        world.loop.run(world.runtime.sleep(5.0))  # the time-outs of what was answered pass
        return [error for error in gc.get_objects() if isinstance(error, LogError)]
    finally:
        gc.enable()


def test_a_retry_leaves_nothing_to_the_garbage_collector(world: World) -> None:
    """An error that is still held by the frame it passed through leads back to itself, with all that frame knows."""
    client = world.client("app")
    _, chain = chain_of(world, world.loop.run(client.append("red", b"1")) + 1)
    away = next(host for host in chain if host != world.document.layout.sequencer)
    world.crash(away)
    world.loop.schedule(1.0, lambda: world.restart(away))
    assert errors_left_after(world, lambda: world.loop.run(client.append("red", b"2"))) == []
    assert client.statistics()["retries"] > 3


def test_reads_and_questions_that_fail_leave_nothing_either(world: World) -> None:
    client = world.client("app")
    address = world.loop.run(client.append("red", b"1"))
    _, chain = chain_of(world, address)
    sequencer = world.document.layout.sequencer

    async def fails(call: Coroutine[object, object, object]) -> None:
        try:
            await call
        except LogUnavailableError:
            return
        raise AssertionError("it did not fail")

    assert sequencer is not None
    for hosts, calls in (
        (
            chain,
            (
                lambda: client.read(address, timeout=1.0),
                lambda: client.read_all([address, address], timeout=1.0),
                lambda: client.find("red", 0, address + 1, timeout=1.0),
                lambda: client.names(0, address + 1, timeout=1.0),
            ),
        ),
        ((sequencer,), (lambda: client.tail(timeout=1.0), lambda: client.latest("red", 1, timeout=1.0))),
    ):
        world.crash(*hosts)
        for call in calls:
            assert errors_left_after(world, lambda call=call: world.loop.run(fails(call()))) == []  # type: ignore[misc]
        world.restart(*hosts)


def test_any_agent_is_a_seed_also_one_that_knows_an_old_layout(world: World) -> None:
    async def story() -> None:
        await world.write(5)
        world.cluster.isolate("n3", ["controller", "client"])
        world.crash("n1")
        world.view_epoch += 1
        adapter = world.adapter()
        addresses = {name: address for name, address in world.cluster.addresses.items() if name != "n3"}
        adapter.set_hosts(world.view_epoch, addresses)
        client = LogClient(world.cluster.runtime("outsider"), ["n3:1"], world.cluster.settings)
        assert (await client.read(0)) is not None

    world.loop.run(story())


def test_a_hole_is_filled_after_its_writer_had_time(world: World) -> None:
    async def story() -> None:
        client = world.client()
        await client.append("red", b"before")
        hole = await take_token(world)
        await client.append("red", b"after")
        began = world.loop.now
        assert await client.read(hole) is None
        assert world.loop.now - began >= world.cluster.settings.hole_timeout
        assert [record.payload async for record in client.stream("red")] == [b"before", b"after"]
        assert [record.payload for record in await client.latest("red", 9)] == [b"after", b"before"]
        key, chain = chain_of(world, hole)
        for host in chain:
            assert world.cluster.node(host).log_unit.stores[key].read(hole) == JUNK
        assert client.statistics()["holes_filled"] == 1

    world.loop.run(story())


def test_many_holes_in_a_row_are_filled_at_once(world: World) -> None:
    async def story() -> None:
        client = world.client()
        await client.append("red", b"before")
        for _ in range(60):
            await take_token(world)
        await client.append("red", b"after")
        began = world.loop.now
        assert [record.payload async for record in client.stream("red")] == [b"before", b"after"]
        assert world.loop.now - began < 3.0
        assert client.statistics()["holes_filled"] == 60

    world.loop.run(story())


def test_a_slow_writer_whose_address_was_filled_takes_another(world: World) -> None:
    async def story() -> None:
        stopped = []

        def hook(source: str, destination: str, request: Request) -> None:
            if source == "slow" and (records := records_of(request)) and not stopped:
                stopped.extend(records)
                world.cluster.isolate("slow", world.cluster.hosts)

        world.on_request = hook
        # The head holds the address already when the slow writer comes: somebody filled the hole.
        slow = world.loop.start(world.append(world.client("slow"), "red", b"late"))
        await world.runtime.sleep(0.5)
        world.on_request = lambda source, destination, request: None
        client = world.client("reader")
        filled = await client.read(stopped[0])
        world.cluster.heal()
        while not slow.ended:
            await world.runtime.sleep(0.05)
        assert slow.error is None
        (address,) = world.acknowledged
        # Either the reader completed the record that the head had, or it filled the hole.
        assert (address == stopped[0]) == (filled is not None)
        await world.check_everything()

    world.loop.run(story())


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_replica_that_is_away_for_a_moment_delays_but_does_not_double(world: World, position: int) -> None:
    async def story() -> None:
        _, chain = chain_of(world, 0)
        world.cluster.isolate("client", [chain[position]])
        task = world.loop.start(world.append(world.client(), "red", b"once"))
        await world.runtime.sleep(3.0)
        assert not task.ended
        world.cluster.heal()
        while not task.ended:
            await world.runtime.sleep(0.05)
        assert task.error is None
        await world.check_everything()

    world.loop.run(story())


def test_an_append_that_times_out_says_that_it_does_not_know(world: World) -> None:
    async def story() -> None:
        _, chain = chain_of(world, 0)
        world.cluster.isolate("client", [chain[-1]])
        world.attempted.add(b"perhaps")
        with pytest.raises(OutcomeUnknownError, match="may be in the log"):
            await world.client().append("red", b"perhaps", timeout=2.0)
        world.cluster.heal()
        world.cluster.isolate("client", [world.document.layout.sequencers[0]])
        with pytest.raises(LogUnavailableError):  # no address was taken: certainly not in the log
            await world.client().append("red", b"never", timeout=2.0)
        world.cluster.heal()
        await world.check_everything()

    world.loop.run(story())


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_flipped_bit_is_read_elsewhere_and_mended(world: World, position: int) -> None:
    async def story() -> None:
        client = world.client()
        payload = b"a payload that can be found"
        address = await client.append("red", payload)
        key, chain = chain_of(world, address)
        host = chain[position]
        damage(world, host, address, payload)
        record = await client.read(address)
        assert record is not None
        assert record.payload == payload
        unit = world.cluster.node(host).log_unit
        if position == len(chain) - 1:  # only the tail is read
            entry = unit.stores[key].read(address)
            assert entry is not None
            assert entry.payload == payload
            assert unit.counters["corrupt"] >= 1
            assert unit.counters["repaired"] == 1

    world.loop.run(story())


def test_when_every_copy_is_damaged_nothing_wrong_is_served(world: World) -> None:
    async def story() -> None:
        client = world.client()
        payload = b"a payload that can be found"
        address = await client.append("red", payload)
        for host in chain_of(world, address)[1]:
            damage(world, host, address, payload)
        with pytest.raises(RecordLostError, match="restore a backup"):
            await client.read(address)

    world.loop.run(story())


def test_a_damaged_head_in_the_middle_of_an_append_loses_nothing(world: World) -> None:
    async def story() -> None:
        payload = b"a payload that can be found"

        def hook(source: str, destination: str, request: Request) -> None:
            for address, entry in records_of(request).items():
                _, chain = chain_of(world, address)
                if entry.payload == payload and destination == chain[1] and not broken:
                    broken.append(destination)
                    damage(world, chain[0], address, payload)

        broken: list[str] = []
        world.on_request = hook
        world.attempted.add(payload)
        address = await world.client().append("red", payload)
        assert broken
        world.acknowledged[address] = ("red", payload)
        record = await world.client().read(address)
        assert record is not None
        assert record.payload == payload

    world.loop.run(story())


def test_settled_addresses_are_served_by_any_replica_while_the_tail_is_away(world: World) -> None:
    async def story() -> None:
        adapter = world.adapter()
        await world.write(12)
        world.crash("n1")
        await world.settle(adapter)
        _, chain = chain_of(world, 0)
        assert world.document.layout.settled_below == 12
        world.cluster.crash(chain[-1])
        client = world.client()
        for address in range(12):
            record = await client.read(address, timeout=5.0)
            assert record is not None
            assert world.acknowledged[address] == (record.stream, record.payload)

    world.loop.run(story())


def test_trim(world: World) -> None:
    async def story() -> None:
        client = world.client()
        for number in range(12):
            await client.append("red", bytes([number]))
        await client.trim(6)
        with pytest.raises(TrimmedError, match="records begin at 6"):
            await client.read(5)
        assert [record.address async for record in client.stream("red")] == list(range(6, 12))
        assert await client.append("red", b"more") == 12

    world.loop.run(story())


def test_many_clients_get_different_addresses_without_gaps(world: World) -> None:
    async def story() -> None:
        tasks = [world.loop.start(world.write(20, world.client(f"client{index}"))) for index in range(5)]
        for task in tasks:
            while not task.ended:
                await world.runtime.sleep(0.01)
            assert task.error is None
        assert sorted(world.acknowledged) == list(range(100))
        await world.check_everything()

    world.loop.run(story())


def test_who_finds_the_address_filled_at_the_head_has_lost_it(world: World) -> None:
    async def story() -> None:
        taken = []
        await world.write(1)  # so that the next address has another head than the sequencer's host

        def hook(source: str, destination: str, request: Request) -> None:
            if source == "slow" and isinstance(request, TakeTokens) and not taken:
                taken.append(world.cluster.node(destination).sequencer.tail)
                head = chain_of(world, taken[0])[1][0]
                assert head != destination
                world.cluster.isolate("slow", [head])

        world.on_request = hook
        slow = world.loop.start(world.append(world.client("slow"), "red", b"late"))
        await world.runtime.sleep(0.1)
        await world.append(world.client("other"), "red", b"other")
        assert await world.client("reader").read(taken[0]) is None
        world.cluster.heal()
        while not slow.ended:
            await world.runtime.sleep(0.05)
        assert slow.error is None
        assert taken[0] not in world.acknowledged
        await world.check_everything()

    world.loop.run(story())


def test_what_the_tail_has_not_is_not_shown(world: World) -> None:
    """A record on the head alone may still be lost: it is completed first, or not shown at all."""

    async def story() -> None:
        client = world.client()
        await client.append("red", b"before")
        address = await take_token(world)
        key, chain = chain_of(world, address)
        partial = Entry(b"p" * 16, "red", (), b"partial")
        epoch = world.document.layout.data_epoch
        for host in chain[:-1]:
            await world.runtime.call(f"{host}:1", Write(epoch, key, address, partial), 1.0)
        world.cluster.isolate("client", [chain[-1]])
        with pytest.raises(LogUnavailableError):
            await client.read(address, timeout=2.0)
        world.cluster.heal()
        assert await client.read(address) == Record(address, "red", b"partial")
        for host in chain:
            assert world.cluster.node(host).log_unit.stores[key].read(address) == partial

    world.loop.run(story())


def test_a_record_found_down_the_chain_goes_before_junk_at_a_head_that_lost_it(world: World) -> None:
    async def story() -> None:
        client = world.client()
        payload = b"a payload that can be found"
        address = await take_token(world)
        key, chain = chain_of(world, address)
        record = Entry(b"r" * 16, "red", (), payload)
        epoch = world.document.layout.data_epoch
        for host, entry in zip(chain, (JUNK, record, record), strict=True):
            await world.runtime.call(f"{host}:1", Write(epoch, key, address, entry), 1.0)
        damage(world, chain[-1], address, payload)
        assert await client.read(address) == Record(address, "red", payload)
        for host in chain:
            assert world.cluster.node(host).log_unit.stores[key].read(address) == record

    world.loop.run(story())
