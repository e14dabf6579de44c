"""Streams on a cluster: from an address, to the tail and beyond, over holes, trims and deposed sequencers."""

from __future__ import annotations

import pytest

from datastore_adapter import LogUnavailableError, OutcomeUnknownError, TrimmedError, UnwrittenError
from datastore_adapter.log.messages import Request, Trim
from datastore_adapter.log.sequencer.back_pointers import StreamTail
from tests.datastore_adapter.harness import Harness, records_of
from tests.datastore_adapter.test_client import settled, take_token


@pytest.fixture
def harness() -> Harness:
    return settled(Harness(4, segments=3))


def test_a_stream_is_followed_while_it_grows(harness: Harness) -> None:
    async def story() -> None:
        seen: list[bytes] = []

        async def follow() -> None:
            async for record in harness.client("follower").stream("red", follow=True):
                seen.append(record.payload)  # noqa: PERF401 - others look at it meanwhile

        follower = harness.loop.start(follow())
        client = harness.client()
        for number in range(5):
            await client.append("red", bytes([number]))
            await client.append("green", b"other")
            await harness.runtime.sleep(0.3)
            assert seen == [bytes([n]) for n in range(number + 1)]
        follower.cancel()

    harness.loop.run(story())


def test_more_holes_in_a_row_than_pointers_hide_nothing(harness: Harness) -> None:
    async def story() -> None:
        client = harness.client()
        written = [await client.append("red", b"before") for _ in range(3)]
        reader = client.reader("red")
        assert [record.address async for record in reader.advance()] == written
        more = [await client.append("red", b"more") for _ in range(3)]
        for _ in range(harness.cluster.settings.back_pointers + 1):
            await take_token(harness)
        assert [record.address for record in await client.latest("red", 4)] == [*more[::-1], written[-1]]
        assert [record.address async for record in reader.advance()] == more
        assert [record async for record in reader.advance()] == []

    harness.loop.run(story())


def test_an_address_that_died_with_its_sequencer_hides_nothing_when_it_is_given_again(
    harness: Harness,
) -> None:
    """Found by `rota chaos run storm --disks any`, seed 4: a map lacked a write that was acknowledged."""

    async def story() -> None:
        client = harness.client()
        reader = client.reader("red")
        written = [await client.append("red", b"before") for _ in range(3)]
        assert [record.address async for record in reader.advance()] == written
        given = await take_token(harness, "green")
        assert [record async for record in reader.advance()] == []
        harness.crash(harness.document.layout.sequencers[0])
        await harness.settle(harness.adapter())
        assert await client.append("red", b"after") == given
        assert [record.payload async for record in reader.advance()] == [b"after"]

    harness.loop.run(story())


@pytest.mark.parametrize("given_again", [0, 1, 2])
def test_what_a_sequencer_told_is_not_followed_in_the_next_epoch(
    harness: Harness, given_again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by `rota chaos fuzz`, seed 1943: a map lacked a write that was acknowledged, and refused a replacement.

    Between the sequencer's answer and what is read by it another one gives its last addresses again.
    """

    async def story() -> None:
        client = harness.client()
        reader = client.reader("red")
        written = [await client.append("red", b"before") for _ in range(3)]
        assert [record.address async for record in reader.advance()] == written
        given = [await take_token(harness, stream) for stream in ("green", "red")]
        told = [await client.last_addresses("red") for _ in range(2)]
        harness.crash(harness.document.layout.sequencers[0])
        await harness.settle(harness.adapter())
        writer = harness.client("writer")
        for address, stream in list(zip(given, ("red", "green"), strict=True))[:given_again]:
            assert await writer.append(stream, b"after") == address

        async def told_before(stream: str, *, timeout: float | None = None) -> StreamTail:
            return told.pop()

        monkeypatch.setattr(client, "last_addresses", told_before)
        seen = [record.address async for record in reader.advance()]
        assert {record.address for record in await client.latest("red", 3)} >= set(written)
        monkeypatch.undo()
        seen += [record.address async for record in reader.advance()]
        assert seen == given[: min(given_again, 1)]
        assert [record.address for record in await client.latest("red", 4)] == [*seen, *written[::-1]]

    harness.loop.run(story())


def test_a_trim_ahead_of_a_reader_is_told(harness: Harness) -> None:
    async def story() -> None:
        client = harness.client()
        for number in range(12):
            await client.append("red", bytes([number]))
        reader = client.reader("red", 3)
        await client.trim(6)
        with pytest.raises(TrimmedError, match="at 6"):
            [record async for record in reader.advance()]
        assert [record.address async for record in client.stream("red", 6)] == list(range(6, 12))
        assert [record.address for record in await client.latest("red", 99)] == list(range(11, 5, -1))
        with pytest.raises(UnwrittenError, match="beyond the log's tail, 12"):
            await client.trim(13)
        assert await client.append("red", b"more") == 12

    harness.loop.run(story())


def test_a_trim_of_all_records_is_told_although_no_pointer_is_left(harness: Harness) -> None:
    async def story() -> None:
        client = harness.client()
        reader = client.reader("red", 0)
        await harness.write(12, client)
        await client.trim(12)
        harness.crash(harness.document.layout.sequencers[0])
        await harness.settle(harness.adapter())
        with pytest.raises(TrimmedError):
            [record async for record in reader.advance()]
        assert [record async for record in client.stream("red")] == []

    harness.loop.run(story())


def test_a_deposed_sequencer_does_not_tell_the_past(harness: Harness) -> None:
    """The reader and the sequencer it knows are cut off together while the others go on."""

    async def story() -> None:
        deposed = harness.document.layout.sequencers[0]
        cut_off = harness.client("reader")
        await harness.write(3, cut_off)
        assert await cut_off.tail() == 3
        harness.cut_off_with(deposed, "reader", ["controller", "observer", "writer"])
        await harness.settle(harness.adapter())
        await harness.write(3, harness.client("writer"))
        for ask in (cut_off.tail, lambda **kind: cut_off.last_addresses("red", **kind)):
            with pytest.raises(LogUnavailableError):
                await ask(timeout=2.0)
        harness.reunite()
        assert await cut_off.tail() == 6

    harness.loop.run(story())


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_record_trimmed_before_it_was_acknowledged_is_not_written_twice(
    harness: Harness, position: int
) -> None:
    """Its writer cannot know whether somebody read it meanwhile, unless nothing of it was ever written."""

    async def story() -> None:
        client, other = harness.client("slow"), harness.client("other")
        trimmed: list[str] = []

        def hook(source: str, destination: str, request: Request) -> None:
            if source != "slow" or not (records := records_of(request)) or trimmed:
                return
            (address,) = records
            layout = harness.document.layout
            if destination == layout.segment_of(address).open_extent.chain[position]:
                trimmed.append(destination)
                request_to_trim = Trim(layout.data_epoch, address + 1)
                for host in harness.cluster.hosts:
                    harness.cluster.node(host).handle(request_to_trim)

        harness.on_request = hook
        if position:
            with pytest.raises(OutcomeUnknownError, match="was trimmed"):
                await client.append("red", b"late")
        else:
            assert await client.append("red", b"late") == 1
        assert len([record async for record in other.stream("red")]) == (not position)

    harness.loop.run(story())


def test_a_hole_trimmed_on_a_part_of_its_chain_stops_no_new_epoch(harness: Harness) -> None:
    async def story() -> None:
        await harness.write(4)
        hole = await take_token(harness)
        await harness.write(4)
        segment = harness.document.layout.segment_of(hole)
        host = segment.open_extent.chain[1]
        harness.cluster.node(host).handle(Trim(harness.document.layout.data_epoch, hole + 1))
        harness.crash(next(name for name in harness.live if name not in segment.hosts()))
        await harness.settle(harness.adapter())
        assert harness.document.layout.settled_below >= hole
        await harness.write(1)

    harness.loop.run(story())


def test_a_record_that_is_just_being_written_is_not_waited_for_longer_than_it_takes(harness: Harness) -> None:
    async def story() -> None:
        reader, seen = harness.client("reader"), 0
        writers = harness.start_writers(4, pause=0.0)
        began = harness.loop.now
        while harness.loop.now - began < 1.0:
            seen += len(await reader.latest("red", 1))
        await harness.stop_writers(writers)
        assert reader.statistics().get("holes_filled", 0) == 0
        # A look and a read are some ten milliseconds; a hole's whole time would leave room for five.
        assert seen > 5 / harness.cluster.settings.hole_timeout

    harness.loop.run(story())
