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
from datastore_adapter.log.log_unit import answers
from datastore_adapter.log.log_unit.unit import LogUnit, Outcome
from datastore_adapter.log.messages import (
    JUNK,
    UNKNOWN,
    Entry,
    FetchDocument,
    Refused,
    Request,
    StreamCount,
    StreamCounts,
    TakeTokens,
    Tokens,
    Write,
)
from membership.files import read_file
from tests.datastore_adapter.harness import Harness, records_of


def settled(harness: Harness) -> Harness:
    harness.loop.run(harness.settle(harness.adapter()))
    return harness


@pytest.fixture
def harness() -> Harness:
    return settled(Harness(4, segments=3))


async def take_token(harness: Harness, stream: str = "red") -> int:
    """A token that its writer never uses: a hole."""
    layout = harness.document.layout
    reply = await harness.runtime.call(
        f"{layout.sequencers[0]}:1", TakeTokens(layout.data_epoch, ((stream, 1),)), 1.0
    )
    assert isinstance(reply, Tokens)
    return reply.first


def chain_of(harness: Harness, address: int) -> tuple[str, tuple[str, ...]]:
    segment = harness.document.layout.segment_of(address)
    return segment.key, segment.extent_of(address).chain


def damage(harness: Harness, host: str, address: int, payload: bytes) -> None:
    """Flip a bit of the payload on one host's disk."""
    key, _ = chain_of(harness, address)
    disk = harness.cluster.hosts[host].storage
    for path in disk.files():
        position = read_file(disk, path, 1 << 20).find(payload) if f"/unit/{key}/" in path else -1
        if position >= 0:
            disk.flip_bit(path, position)
            return
    raise AssertionError(f"{host} does not hold {payload!r}")


def test_what_is_appended_can_be_read_by_address_and_by_stream(harness: Harness) -> None:
    async def story() -> None:
        client = harness.client()
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

    harness.loop.run(story())


def test_bad_input_is_refused_at_once(harness: Harness) -> None:
    async def story() -> None:
        client = LogClient(harness.runtime, ["n0:1"], LogSettings(max_payload=10))
        with pytest.raises(PayloadTooLargeError, match="at most 10 fit"):
            await client.append("red", b"x" * 11)
        for name in ("", "x" * 256):
            with pytest.raises(InvalidStreamError):
                await client.append(name, b"x")

    harness.loop.run(story())
    with pytest.raises(NoLayoutError, match="at least one agent"):
        LogClient(harness.runtime, [])


def test_before_there_is_a_layout() -> None:
    harness = Harness(2)

    async def story() -> None:
        with pytest.raises(NoLayoutError, match="no agent knows a layout"):
            await LogClient(harness.runtime, ["n1:1"]).append("red", b"x", timeout=1.0)
        with pytest.raises(LogUnavailableError):
            await LogClient(harness.runtime, ["n0:1"]).read(0, timeout=1.0)
        with pytest.raises(NoLayoutError, match="no agent answered at nobody:1"):
            await LogClient(harness.runtime, ["nobody:1"]).tail(timeout=1.0)

    harness.loop.run(story())


def test_nobody_is_asked_twice_for_the_layout(harness: Harness) -> None:
    """Seeds are addresses, hosts of the layout names: they were once asked as both."""
    seeds = [f"n{index}:1" for index in range(4)]
    layouts = LayoutCache(harness.runtime, LogSettings.local(), seeds, Counter())
    harness.loop.run(layouts.current())
    harness.loop.run(harness.runtime.sleep(1.0))  # the first answer was enough: the other questions arrive
    asked: list[str] = []
    before = harness.cluster.on_request

    def look(source: str, destination: str, request: Request) -> None:
        before(source, destination, request)
        if isinstance(request, FetchDocument):
            asked.append(destination)

    harness.cluster.on_request = look
    for _ in range(2):  # only the layout servers, and every host
        asked.clear()
        harness.loop.run(layouts.fetch())
        assert sorted(asked) == ["n0", "n1", "n2", "n3"]


def errors_left_after(harness: Harness, action: Callable[[], object]) -> list[object]:
    """Errors of the log that only the garbage collector would find."""
    gc.freeze()  # what is there already is not looked at
    gc.disable()
    try:
        action()
        harness.loop.run(harness.runtime.sleep(5.0))  # the time-outs of what was answered pass
        return [error for error in gc.get_objects() if isinstance(error, LogError)]
    finally:
        gc.enable()
        gc.unfreeze()


def test_a_retry_leaves_nothing_to_the_garbage_collector(harness: Harness) -> None:
    """An error that is still held by the frame it passed through leads back to itself, with all that frame knows."""
    client = harness.client("app")
    _, chain = chain_of(harness, harness.loop.run(client.append("red", b"1")) + 1)
    away = next(host for host in chain if host != harness.document.layout.sequencer)
    harness.crash(away)
    harness.loop.schedule(1.0, lambda: harness.restart(away))
    assert errors_left_after(harness, lambda: harness.loop.run(client.append("red", b"2"))) == []
    assert client.statistics()["retries"] > 3


def test_reads_and_questions_that_fail_leave_nothing_either(harness: Harness) -> None:
    client = harness.client("app")
    address = harness.loop.run(client.append("red", b"1"))
    _, chain = chain_of(harness, address)
    sequencer = harness.document.layout.sequencer

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
        harness.crash(*hosts)
        for call in calls:
            assert errors_left_after(harness, lambda call=call: harness.loop.run(fails(call()))) == []  # type: ignore[misc]
        harness.restart(*hosts)


def test_how_much_there_is_of_each_stream(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every record counts once, on however many hosts and in however many extents it is; names come in pages."""
    monkeypatch.setattr(answers, "STREAM_PAGE", 2)
    counts = {"red": 9, "green": 4, "blue": 1, "a": 2, "z": 3}

    async def story() -> None:
        client = harness.client("app")
        assert await client.sizes() == {}
        for stream, count in counts.items():
            for number in range(count):
                await client.append(stream, b"x" * (100 if stream == "red" else 10) + bytes([number]))
        harness.crash("n3")  # new chains, and so new extents, with what was there before
        await harness.settle(harness.adapter())
        await client.append("red", b"y" * 100)
        sizes = await client.sizes()
        assert sizes is not None
        assert {stream: size.records for stream, size in sizes.items()} == {**counts, "red": 10}
        assert 100 < sizes["red"].bytes / 10 < 200
        assert 10 < sizes["green"].bytes / 4 < 100

    harness.loop.run(story())


@pytest.mark.parametrize("repeats", [True, False])
def test_a_host_that_never_ends_telling_of_its_streams_is_given_up(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, repeats: bool
) -> None:
    """Whether it repeats itself, or has too many."""
    pages = 0

    def counts(*_: object) -> Outcome:
        nonlocal pages
        pages += 1
        told = StreamCount(f"{pages:09}", 1, 1)
        return Outcome(StreamCounts((told, told) if repeats else (told,), more=True))

    async def story() -> None:
        client = harness.client("app")
        await client.append("red", b"1")
        monkeypatch.setattr(LogUnit, "_stream_counts", counts)
        began = client.runtime.now()
        with pytest.raises(LogUnavailableError, match="out of order" if repeats else "in time"):
            await client.sizes(timeout=2.0)
        assert client.runtime.now() - began < 6.0

    harness.loop.run(story())


def test_a_host_of_an_earlier_version_cannot_tell_how_much_there_is(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        client = harness.client("app")
        await client.append("red", b"1")
        refuse = Outcome(Refused(UNKNOWN, "requests of kind 36 are unknown here"))
        monkeypatch.setattr(LogUnit, "_stream_counts", lambda *_: refuse)
        assert await client.sizes() is None

    harness.loop.run(story())


def test_any_agent_is_a_seed_also_one_that_knows_an_old_layout(harness: Harness) -> None:
    async def story() -> None:
        await harness.write(5)
        harness.cluster.isolate("n3", ["controller", "client"])
        harness.crash("n1")
        harness.view_epoch += 1
        adapter = harness.adapter()
        addresses = {name: address for name, address in harness.cluster.addresses.items() if name != "n3"}
        adapter.set_hosts(harness.view_epoch, addresses)
        client = LogClient(harness.cluster.runtime("outsider"), ["n3:1"], harness.cluster.settings)
        assert (await client.read(0)) is not None

    harness.loop.run(story())


def test_a_hole_is_filled_after_its_writer_had_time(harness: Harness) -> None:
    async def story() -> None:
        client = harness.client()
        await client.append("red", b"before")
        hole = await take_token(harness)
        await client.append("red", b"after")
        began = harness.loop.now
        assert await client.read(hole) is None
        assert harness.loop.now - began >= harness.cluster.settings.hole_timeout
        assert [record.payload async for record in client.stream("red")] == [b"before", b"after"]
        assert [record.payload for record in await client.latest("red", 9)] == [b"after", b"before"]
        key, chain = chain_of(harness, hole)
        for host in chain:
            assert harness.cluster.node(host).log_unit.stores[key].read(hole) == JUNK
        assert client.statistics()["holes_filled"] == 1

    harness.loop.run(story())


def test_many_holes_in_a_row_are_filled_at_once(harness: Harness) -> None:
    async def story() -> None:
        client = harness.client()
        await client.append("red", b"before")
        for _ in range(60):
            await take_token(harness)
        await client.append("red", b"after")
        began = harness.loop.now
        assert [record.payload async for record in client.stream("red")] == [b"before", b"after"]
        assert harness.loop.now - began < 3.0
        assert client.statistics()["holes_filled"] == 60

    harness.loop.run(story())


def test_a_slow_writer_whose_address_was_filled_takes_another(harness: Harness) -> None:
    async def story() -> None:
        stopped = []

        def hook(source: str, destination: str, request: Request) -> None:
            if source == "slow" and (records := records_of(request)) and not stopped:
                stopped.extend(records)
                harness.cluster.isolate("slow", harness.cluster.hosts)

        harness.on_request = hook
        # The head holds the address already when the slow writer comes: somebody filled the hole.
        slow = harness.loop.start(harness.append(harness.client("slow"), "red", b"late"))
        await harness.runtime.sleep(0.5)
        harness.on_request = lambda source, destination, request: None
        client = harness.client("reader")
        filled = await client.read(stopped[0])
        harness.cluster.heal()
        while not slow.ended:
            await harness.runtime.sleep(0.05)
        assert slow.error is None
        (address,) = harness.acknowledged
        # Either the reader completed the record that the head had, or it filled the hole.
        assert (address == stopped[0]) == (filled is not None)
        await harness.check_everything()

    harness.loop.run(story())


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_replica_that_is_away_for_a_moment_delays_but_does_not_double(
    harness: Harness, position: int
) -> None:
    async def story() -> None:
        _, chain = chain_of(harness, 0)
        harness.cluster.isolate("client", [chain[position]])
        task = harness.loop.start(harness.append(harness.client(), "red", b"once"))
        await harness.runtime.sleep(3.0)
        assert not task.ended
        harness.cluster.heal()
        while not task.ended:
            await harness.runtime.sleep(0.05)
        assert task.error is None
        await harness.check_everything()

    harness.loop.run(story())


def test_an_append_that_times_out_says_that_it_does_not_know(harness: Harness) -> None:
    async def story() -> None:
        _, chain = chain_of(harness, 0)
        harness.cluster.isolate("client", [chain[-1]])
        harness.attempted.add(b"perhaps")
        with pytest.raises(OutcomeUnknownError, match="may be in the log"):
            await harness.client().append("red", b"perhaps", timeout=2.0)
        harness.cluster.heal()
        harness.cluster.isolate("client", [harness.document.layout.sequencers[0]])
        with pytest.raises(LogUnavailableError):  # no address was taken: certainly not in the log
            await harness.client().append("red", b"never", timeout=2.0)
        harness.cluster.heal()
        await harness.check_everything()

    harness.loop.run(story())


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_flipped_bit_is_read_elsewhere_and_mended(harness: Harness, position: int) -> None:
    async def story() -> None:
        client = harness.client()
        payload = b"a payload that can be found"
        address = await client.append("red", payload)
        key, chain = chain_of(harness, address)
        host = chain[position]
        damage(harness, host, address, payload)
        record = await client.read(address)
        assert record is not None
        assert record.payload == payload
        unit = harness.cluster.node(host).log_unit
        if position == len(chain) - 1:  # only the tail is read
            entry = unit.stores[key].read(address)
            assert entry is not None
            assert entry.payload == payload
            assert unit.counters["corrupt"] >= 1
            assert unit.counters["repaired"] == 1

    harness.loop.run(story())


def test_when_every_copy_is_damaged_nothing_wrong_is_served(harness: Harness) -> None:
    async def story() -> None:
        client = harness.client()
        payload = b"a payload that can be found"
        address = await client.append("red", payload)
        for host in chain_of(harness, address)[1]:
            damage(harness, host, address, payload)
        with pytest.raises(RecordLostError, match="restore a backup"):
            await client.read(address)

    harness.loop.run(story())


def test_a_damaged_head_in_the_middle_of_an_append_loses_nothing(harness: Harness) -> None:
    async def story() -> None:
        payload = b"a payload that can be found"

        def hook(source: str, destination: str, request: Request) -> None:
            for address, entry in records_of(request).items():
                _, chain = chain_of(harness, address)
                if entry.payload == payload and destination == chain[1] and not broken:
                    broken.append(destination)
                    damage(harness, chain[0], address, payload)

        broken: list[str] = []
        harness.on_request = hook
        harness.attempted.add(payload)
        address = await harness.client().append("red", payload)
        assert broken
        harness.acknowledged[address] = ("red", payload)
        record = await harness.client().read(address)
        assert record is not None
        assert record.payload == payload

    harness.loop.run(story())


def test_settled_addresses_are_served_by_any_replica_while_the_tail_is_away(harness: Harness) -> None:
    async def story() -> None:
        adapter = harness.adapter()
        await harness.write(12)
        harness.crash("n1")
        await harness.settle(adapter)
        _, chain = chain_of(harness, 0)
        assert harness.document.layout.settled_below == 12
        harness.cluster.crash(chain[-1])
        client = harness.client()
        for address in range(12):
            record = await client.read(address, timeout=5.0)
            assert record is not None
            assert harness.acknowledged[address] == (record.stream, record.payload)

    harness.loop.run(story())


def test_trim(harness: Harness) -> None:
    async def story() -> None:
        client = harness.client()
        for number in range(12):
            await client.append("red", bytes([number]))
        await client.trim(6)
        with pytest.raises(TrimmedError, match="records begin at 6"):
            await client.read(5)
        assert [record.address async for record in client.stream("red")] == list(range(6, 12))
        assert await client.append("red", b"more") == 12

    harness.loop.run(story())


def test_many_clients_get_different_addresses_without_gaps(harness: Harness) -> None:
    async def story() -> None:
        tasks = [
            harness.loop.start(harness.write(20, harness.client(f"client{index}"))) for index in range(5)
        ]
        for task in tasks:
            while not task.ended:
                await harness.runtime.sleep(0.01)
            assert task.error is None
        assert sorted(harness.acknowledged) == list(range(100))
        await harness.check_everything()

    harness.loop.run(story())


def test_who_finds_the_address_filled_at_the_head_has_lost_it(harness: Harness) -> None:
    async def story() -> None:
        taken = []
        await harness.write(1)  # so that the next address has another head than the sequencer's host

        def hook(source: str, destination: str, request: Request) -> None:
            if source == "slow" and isinstance(request, TakeTokens) and not taken:
                taken.append(harness.cluster.node(destination).sequencer.tail)
                head = chain_of(harness, taken[0])[1][0]
                assert head != destination
                harness.cluster.isolate("slow", [head])

        harness.on_request = hook
        slow = harness.loop.start(harness.append(harness.client("slow"), "red", b"late"))
        await harness.runtime.sleep(0.1)
        await harness.append(harness.client("other"), "red", b"other")
        assert await harness.client("reader").read(taken[0]) is None
        harness.cluster.heal()
        while not slow.ended:
            await harness.runtime.sleep(0.05)
        assert slow.error is None
        assert taken[0] not in harness.acknowledged
        await harness.check_everything()

    harness.loop.run(story())


def test_what_the_tail_has_not_is_not_shown(harness: Harness) -> None:
    """A record on the head alone may still be lost: it is completed first, or not shown at all."""

    async def story() -> None:
        client = harness.client()
        await client.append("red", b"before")
        address = await take_token(harness)
        key, chain = chain_of(harness, address)
        partial = Entry(b"p" * 16, "red", (), b"partial")
        epoch = harness.document.layout.data_epoch
        for host in chain[:-1]:
            await harness.runtime.call(f"{host}:1", Write(epoch, key, address, partial), 1.0)
        harness.cluster.isolate("client", [chain[-1]])
        with pytest.raises(LogUnavailableError):
            await client.read(address, timeout=2.0)
        harness.cluster.heal()
        assert await client.read(address) == Record(address, "red", b"partial")
        for host in chain:
            assert harness.cluster.node(host).log_unit.stores[key].read(address) == partial

    harness.loop.run(story())


def test_a_record_found_down_the_chain_goes_before_junk_at_a_head_that_lost_it(harness: Harness) -> None:
    async def story() -> None:
        client = harness.client()
        payload = b"a payload that can be found"
        address = await take_token(harness)
        key, chain = chain_of(harness, address)
        record = Entry(b"r" * 16, "red", (), payload)
        epoch = harness.document.layout.data_epoch
        for host, entry in zip(chain, (JUNK, record, record), strict=True):
            await harness.runtime.call(f"{host}:1", Write(epoch, key, address, entry), 1.0)
        damage(harness, chain[-1], address, payload)
        assert await client.read(address) == Record(address, "red", payload)
        for host in chain:
            assert harness.cluster.node(host).log_unit.stores[key].read(address) == record

    harness.loop.run(story())
