"""Parts of a log, read under load and written into an empty one, are the same log."""

from __future__ import annotations

from functools import partial

import pytest

from datastore_adapter import LogClient, ReplicatedDict
from datastore_adapter.log.client.copying import LogPart, Pointers, decode_part, encode_part
from datastore_adapter.log.errors import NotCopiedError, ProtocolError, TrimmedError
from datastore_adapter.log.maps.settings import MapSettings
from datastore_adapter.log.messages import JUNK
from tests.datastore_adapter.harness import Harness
from tests.datastore_adapter.test_client import take_token


def harness(hosts: int = 3, segments: int = 3, *, seed: int = 0) -> Harness:
    made = Harness(hosts, segments=segments, seed=seed)
    made.loop.run(made.settle(made.adapter()))
    return made


async def parts_of(client: LogClient, max_bytes: int = 1 << 12) -> list[LogPart]:
    """All up to the tail of now."""
    _, end = await client.cut()
    parts: list[LogPart] = []
    position = 0
    while position < end:
        part = await client.read_part(position, end, max_bytes)
        parts.append(part)
        position = part.next
    return parts


async def records(client: LogClient, begin: int, end: int) -> list[tuple[int, str, bytes] | None]:
    found = await client.read_all(range(begin, end))
    return [None if record is None else (record.address, record.stream, record.payload) for record in found]


async def written(client: LogClient) -> None:
    """Streams, a map with snapshots, holes, a trimmed beginning, a record as large as may be."""
    shared = ReplicatedDict(client, "m", MapSettings(snapshot_bytes=2000))
    for number in range(40):
        await client.append("red", b"early %d" % number)
    await client.trim(17)
    for number in range(30):
        await client.append("red" if number % 3 else "green", bytes([number]) * number)
        await shared.set(f"k{number % 7}", bytes([number]) * 40)
    replication = await client._replication()
    await replication.take_tokens(("red", 3), ("blue", 2))  # and their writer dies
    await client.append("red", bytes(1 << 20))
    await client.append("blue", b"last")


@pytest.mark.parametrize("segments", [1, 4])
def test_a_copy_is_equal_record_by_record_and_goes_on_as_the_original(segments: int) -> None:
    source, target = harness(), harness(1, segments)
    original, copy = source.client(), target.client()
    source.loop.run(written(original))
    tail = source.loop.run(original.tail())
    parts = source.loop.run(parts_of(original))
    begin = parts[0].trimmed_below
    assert begin >= 17
    assert len(parts) > 3, "one page must not hold the log"

    async def restore() -> None:
        pointers = Pointers()
        for part in parts:
            await copy.write_part(decode_part(encode_part(pointers.renewed(part))))
        await copy.write_part(parts[-1])  # its answer was lost, and it was sent again

    target.loop.run(restore())
    assert target.loop.run(copy.tail()) == tail
    assert target.loop.run(records(copy, begin, tail)) == source.loop.run(records(original, begin, tail))
    with pytest.raises(TrimmedError):
        target.loop.run(copy.read(begin - 1))

    async def uses(client: LogClient) -> tuple[list[list[tuple[int, bytes]]], dict[str, bytes], int]:
        latest = [await client.latest(stream, 100) for stream in ("red", "green", "blue", "none")]
        walked = [record async for record in client.stream("red", begin)]
        shared = ReplicatedDict(client, "m")
        await shared.set("new", b"value")
        return (
            [[(r.address, r.payload) for r in found] for found in (*latest, walked)],
            await shared.items(),
            await client.append("red", b"more"),
        )

    assert target.loop.run(uses(copy)) == source.loop.run(uses(original))


def test_what_was_given_out_in_vain_before_the_epoch_ended_is_a_hole_of_it() -> None:
    source = harness(4)
    client = source.client()

    async def story() -> None:
        for number in range(3):
            await client.append("s", b"%d" % number)
        assert await take_token(source, "s") == 3
        _, end = await client.cut()
        source.crash(source.document.layout.sequencers[0])
        await source.settle(source.adapter())
        part = await client.read_part(0, end)
        assert (part.next, list(part.entries)) == (4, [0, 1, 2])
        assert await client.append("s", b"later") == 4, "what is not in it has its place behind it"

    source.loop.run(story())


def test_what_is_appended_meanwhile_is_not_in_it_and_what_is_trimmed_is_told() -> None:
    source = harness()
    client = source.client()

    async def story() -> None:
        for number in range(50):
            await client.append("s", b"%d" % number)
        _, end = await client.cut()
        first = await client.read_part(0, end, 200)
        assert (first.start, first.trimmed_below) == (0, 0)
        assert 0 < first.next < end
        await client.append("s", b"later")
        await client.trim(end - 5)
        second = await client.read_part(first.next, end)
        assert (second.start, second.next, second.trimmed_below) == (end - 5, end, end - 5)
        assert list(second.entries) == list(range(end - 5, end))
        assert second.entries[end - 1].payload == b"49"
        await client.trim(end + 1)
        assert (await client.read_part(second.next - 1, end)).start == end + 1, "beyond what was asked for"

    source.loop.run(story())


def test_records_that_nobody_has_any_more_are_holes_of_the_copy_and_counted() -> None:
    source = harness()
    client = source.client()
    for number in range(12):
        source.loop.run(client.append("s", b"%d" % number))
    damage(source, 5, copies=3)
    damage(source, 7, copies=1)
    parts = source.loop.run(parts_of(client))
    assert [address for part in parts for address in part.lost] == [5]
    assert [address for part in parts for address in part.entries] == [a for a in range(12) if a != 5]


def damage(source: Harness, address: int, copies: int) -> None:
    """Bit rot on so many copies of the address."""
    stores = [s for host in source.cluster.hosts.values() for s in host.node.log_unit.stores.values()]
    for store in [store for store in stores if address in store.index][-copies:]:
        store.damaged.add(address)


def test_a_part_is_refused_where_something_else_stands() -> None:
    target = harness()
    client = target.client()
    source = harness(seed=1)
    original = source.client()
    for number in range(4):
        source.loop.run(original.append("s", b"%d" % number))
    (part,) = source.loop.run(parts_of(original))
    target.loop.run(client.append("s", b"mine"))
    with pytest.raises(NotCopiedError, match="address 0 holds something else"):
        target.loop.run(client.write_part(part))
    later = LogPart(100, 104, 0, {})
    with pytest.raises(NotCopiedError, match="this part begins at 100"):
        target.loop.run(client.write_part(later))


@pytest.mark.parametrize(
    "part",
    [
        LogPart(5, 4, 0, {}),
        LogPart(5, 9, 6, {}),
        LogPart(0, 1 << 20, 0, {}),
        LogPart(0, 4, 0, {4: JUNK}),
        LogPart(0, 4, 0, {2: JUNK, 1: JUNK}),
    ],
)
def test_what_is_no_part_is_refused(part: LogPart) -> None:
    with pytest.raises(ProtocolError, match="not a part of a log"):
        decode_part(encode_part(part))
    with pytest.raises(ProtocolError, match="not a part of a log"):
        decode_part(encode_part(part)[:-1])


def test_a_trimmed_log_without_records_is_copied_too() -> None:
    target = harness()
    client = target.client()
    target.loop.run(client.write_part(LogPart(70_000, 70_000, 70_000, {})))
    assert target.loop.run(client.append("s", b"first")) == 70_000
    with pytest.raises(TrimmedError):
        target.loop.run(client.read(69_999))
    target.cluster.crash("n0")
    target.loop.run(partial(target.settle, target.adapter())())
    assert target.loop.run(client.append("s", b"second")) == 70_001


@pytest.mark.parametrize("seed", [0, 1, 4])
def test_when_a_host_is_lost_the_copy_is_right_or_it_is_told(seed: int) -> None:
    """The head of a chain and the sequencer go while parts are written; the layout is changed, and the rest follows."""
    source, target = harness(seed=99), harness(5, seed=seed)
    original, copy = source.client(), target.client()
    for number in range(60):
        source.loop.run(original.append(f"s{number % 3}", bytes([number]) * 50))
    parts = source.loop.run(parts_of(original, 500))
    told: list[NotCopiedError] = []

    async def restore() -> None:
        try:
            for part in parts:
                await copy.write_part(part)
                await target.runtime.sleep(0.01)
        except NotCopiedError as error:
            told.append(error)

    async def story() -> None:
        task = target.loop.start(restore())
        await target.runtime.sleep(0.01 * seed + 0.003)
        target.crash(target.document.layout.sequencer or "n0")
        await target.settle(target.adapter())
        while not task.ended:
            await target.runtime.sleep(0.05)
        assert task.error is None

    target.loop.run(story())
    if told:
        assert "holds something else" in str(told[0])
    else:
        assert target.loop.run(records(copy, 0, 60)) == source.loop.run(records(original, 0, 60))
        assert target.loop.run(copy.tail()) == 60
