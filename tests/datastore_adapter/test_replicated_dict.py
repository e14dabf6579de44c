"""The replicated map on a cluster: what it answers, its limits, its snapshots, and a crash at every step of them."""

from __future__ import annotations

import pytest

from datastore_adapter import (
    ExtentAwayError,
    InvalidEntryError,
    LogError,
    LogSettingsError,
    LogUnavailableError,
    MapFullError,
    MapSettings,
    OutcomeUnknownError,
    ReplicatedDict,
    Retention,
    SnapshotDamagedError,
    TrimmedError,
    UnwrittenError,
)
from datastore_adapter.log.client.retention import RETENTION_STREAM
from datastore_adapter.log.maps.records import Manifest, encode
from datastore_adapter.log.messages import Request, Trim
from tests.datastore_adapter.harness import Harness, records_of
from tests.datastore_adapter.test_client import settled

SMALL = MapSettings(snapshot_bytes=1500, chunk_bytes=64)


@pytest.fixture
def harness() -> Harness:
    return settled(Harness(4, segments=3))


def open_map(
    harness: Harness, client: str = "client", name: str = "m", settings: MapSettings | None = None
) -> ReplicatedDict:
    return ReplicatedDict(harness.client(client), name, settings)


def trimmed_below(harness: Harness) -> int:
    return min(
        (
            store.trimmed_below
            for name in harness.live
            for store in harness.cluster.node(name).log_unit.stores.values()
        ),
        default=0,
    )


def test_what_one_writes_all_read(harness: Harness) -> None:
    async def story() -> None:
        one, other = open_map(harness, "one"), open_map(harness, "other")
        assert await one.get("k") is None
        await one.set("k", b"\x00\xff")
        await other.set("a", b"")
        assert await other.get("k") == b"\x00\xff"
        assert await one.items() == {"a": b"", "k": b"\x00\xff"}
        assert list(await one.items()) == ["a", "k"]
        assert await other.length() == 2
        assert await other.delete("k")
        assert not await one.delete("k")
        assert await one.get("k") is None
        assert await open_map(harness, name="another").items() == {}

    harness.loop.run(story())


def test_compare_and_set(harness: Harness) -> None:
    async def story() -> None:
        one, other = open_map(harness, "one"), open_map(harness, "other")
        assert await one.compare_and_set("k", None, b"1")
        assert not await other.compare_and_set("k", None, b"2")
        assert await other.compare_and_set("k", b"1", b"2")
        assert not await one.compare_and_set("k", b"1", None)
        assert await one.compare_and_set("k", b"2", None)
        assert await one.compare_and_set("k", None, None)  # it is absent, and stays so
        assert await other.items() == {}

    harness.loop.run(story())


def test_limits(harness: Harness) -> None:
    async def story() -> None:
        small = open_map(harness, settings=MapSettings(max_key=4, max_value=10, max_bytes=20))
        for key, value in (("", b""), ("äää", b""), ("k", b"x" * 11), ("\udcff", b"")):
            with pytest.raises(InvalidEntryError):
                await small.set(key, value)
        with pytest.raises(InvalidEntryError):
            await small.compare_and_set("k", b"x" * 11, None)
        await small.set("a", b"x" * 10)
        with pytest.raises(MapFullError, match="larger than 20 bytes"):
            await small.set("b", b"x" * 10)
        await small.set("b", b"x" * 8)
        assert await small.delete("a")
        assert await small.items() == {"b": b"x" * 8}
        assert small.statistics()["bytes"] == 9

    harness.loop.run(story())
    for name in ("", "a/b", "x" * 65):
        with pytest.raises(InvalidEntryError):
            open_map(harness, name=name)
    with pytest.raises(LogSettingsError, match="chunk_bytes"):
        MapSettings(chunk_bytes=0)


def test_many_readers_share_a_look_at_the_tail(harness: Harness) -> None:
    async def story() -> None:
        shared = open_map(harness)
        await shared.set("k", b"v")
        asked: list[Request] = []
        harness.on_request = lambda source, destination, request: asked.append(request)
        assert await harness.runtime.gather([lambda: shared.get("k")] * 50) == [b"v"] * 50
        assert len(asked) <= 2 * 4  # two rounds: the sequencer and three layout servers each

    harness.loop.run(story())


def test_the_log_is_freed_behind_snapshots_and_nothing_else_is(harness: Harness) -> None:
    async def story() -> None:
        client = harness.client()
        written = open_map(harness, settings=SMALL)
        for number in range(60):
            await written.set(f"key {number % 7}", b"%d" % number)
        await harness.runtime.sleep(1.0)
        assert written.statistics()["snapshots"] >= 4
        freed = trimmed_below(harness)
        assert freed > 60
        kept = await client.append("red", b"somebody else's")
        for number in range(60, 120):
            await written.set(f"key {number % 7}", b"%d" % number)
        await harness.runtime.sleep(1.0)
        assert await client.read(kept) is not None
        assert trimmed_below(harness) == kept
        fresh = open_map(harness, "fresh")
        assert await fresh.items() == await written.items()
        assert len(await fresh.items()) == 7
        assert await Retention(client).forget({"red": kept + 1}) > kept
        assert await open_map(harness, "another").items() == await written.items()
        assert [record async for record in client.stream("red")] == []

    harness.loop.run(story())


def test_a_map_that_sleeps_while_others_free_the_log_misses_nothing(harness: Harness) -> None:
    async def story() -> None:
        idle, busy = open_map(harness, name="idle"), open_map(harness, name="busy", settings=SMALL)
        untouched = open_map(harness, name="untouched")
        assert await untouched.items() == {}
        await idle.set("k", b"v")
        await idle.snapshot()
        for number in range(80):
            await busy.set("k", b"%d" % number)
        await harness.runtime.sleep(1.0)
        await idle.snapshot()
        await busy.snapshot()
        harness.crash(harness.document.layout.sequencers[0])  # the next one knows no pointers to what is gone
        await harness.settle(harness.adapter())
        for name, expected in (("idle", {"k": b"v"}), ("busy", {"k": b"79"}), ("untouched", {})):
            assert await open_map(harness, "fresh", name).items() == expected
        assert await untouched.items() == {}
        assert await idle.items() == {"k": b"v"}
        await untouched.set("now", b"it is")
        assert await open_map(harness, "fresh", "untouched").items() == {"now": b"it is"}

    harness.loop.run(story())


def test_who_fell_behind_a_snapshot_begins_with_it(harness: Harness) -> None:
    async def story() -> None:
        slow, busy = open_map(harness, "slow"), open_map(harness, "busy", settings=SMALL)
        await slow.set("mine", b"v")
        for number in range(60):
            await busy.set("k", b"%d" % number)
        await harness.runtime.sleep(1.0)
        assert await slow.items() == {"k": b"59", "mine": b"v"}
        assert slow.statistics()["loads"] == 2

    harness.loop.run(story())


def test_a_command_swallowed_by_a_snapshot_has_an_unknown_outcome(harness: Harness) -> None:
    async def story() -> None:
        slow, busy = open_map(harness, "slow"), open_map(harness, "busy")
        await busy.set("k", b"0")
        assert await slow.get("k") == b"0"
        stopped: list[Request] = []

        def hook(source: str, destination: str, request: Request) -> None:
            if source == "slow" and type(request).__name__ == "LastAddresses" and not stopped:
                stopped.append(request)
                harness.cluster.isolate("slow", harness.cluster.hosts)

        harness.on_request = hook
        task = harness.loop.start(slow.compare_and_set("k", b"0", b"1"))
        await harness.runtime.sleep(1.0)
        assert stopped
        assert await busy.get("k") == b"1"
        await busy.snapshot()
        harness.cluster.heal()
        while not task.ended:
            await harness.runtime.sleep(0.1)
        assert isinstance(task.error, OutcomeUnknownError)
        assert await slow.get("k") == b"1"

    harness.loop.run(story())


@pytest.mark.parametrize("part", ["the whole", "the trim"])
def test_a_crash_at_any_moment_of_a_snapshot_loses_nothing(part: str) -> None:
    """Whoever writes it is gone at its nth message, for every n; another goes on, and writes one as well."""
    ended_whole = False
    n = 0
    while not ended_whole:
        harness = settled(Harness(3, segments=2, seed=n))

        async def story(harness: Harness = harness, n: int = n) -> bool:
            first = open_map(harness, "first", settings=SMALL)
            for number in range(4):
                await first.set(f"key {number}", b"%d" % number * 30)
            await first.snapshot()
            await first.set("key 1", b"changed")
            await first.delete("key 2")
            seen = 0

            def hook(source: str, destination: str, request: Request) -> None:
                nonlocal seen
                if source == "first" and (part == "the whole" or seen or isinstance(request, Trim)):
                    seen += 1
                    if seen > n:
                        harness.cluster.isolate("first", harness.cluster.hosts)

            harness.on_request = hook
            task = harness.loop.start(first.snapshot())
            while not task.ended and seen <= n:
                await harness.runtime.sleep(0.001)
            task.cancel()
            whole = seen <= n
            expected = {"key 0": b"0" * 30, "key 1": b"changed", "key 3": b"3" * 30}
            second = open_map(harness, "second", settings=SMALL)
            assert await second.items() == expected
            await second.set("key 4", b"4")
            await second.snapshot()
            assert await open_map(harness, "third").items() == {**expected, "key 4": b"4"}
            assert trimmed_below(harness) > 0
            return whole

        ended_whole = harness.loop.run(story())
        n += 3 if part == "the whole" else 1
    assert n >= 4


def test_two_snapshots_at_the_same_time(harness: Harness) -> None:
    """A slow one of an older moment does not take the newer one's place."""

    async def story() -> None:
        slow, fast = open_map(harness, "slow", settings=SMALL), open_map(harness, "fast", settings=SMALL)
        for number in range(10):
            await slow.set(f"key {number}", b"old")
        harness.cluster.delay = (0.0002, 0.002)
        held: list[Request] = []

        def hook(source: str, destination: str, request: Request) -> None:
            if source == "slow" and records_of(request) and not held:
                held.append(request)
                harness.cluster.isolate("slow", harness.cluster.hosts)

        harness.on_request = hook
        task = harness.loop.start(slow.snapshot())
        await harness.runtime.sleep(1.0)
        assert held
        for number in range(10):
            await fast.set(f"key {number}", b"new")
        await fast.snapshot()
        harness.cluster.heal()
        while not task.ended:
            await harness.runtime.sleep(0.1)
        assert task.error is None or isinstance(task.error, LogError)
        await fast.set("last", b"one")
        expected = {**{f"key {number}": b"new" for number in range(10)}, "last": b"one"}
        assert await open_map(harness, "fresh").items() == expected

    harness.loop.run(story())


def test_a_snapshot_that_is_not_what_its_manifest_says_is_refused(harness: Harness) -> None:
    async def story() -> None:
        client = harness.client()
        address = await client.append("map/m/chunks", b"nothing of the kind")
        for chunks, entries in ((((address, 1),), 1), ((), 1)):
            await client.append("map/m/manifests", encode(Manifest(0, 0, chunks, entries)))
            with pytest.raises(SnapshotDamagedError):
                await open_map(harness).items()

    harness.loop.run(story())


def test_retention(harness: Harness) -> None:
    async def story() -> None:
        client, other = harness.client(), harness.client("other")
        for number in range(10):
            await client.append("red" if number % 2 else "green", bytes([number]))
        one, two = Retention(client), Retention(other)
        assert await one.forget({"red": 6}) == 0  # green needs everything
        assert await two.forget({"green": 3}) == 4
        marks = await one.marks()
        assert (marks["red"], marks["green"]) == (6, 3)
        assert await one.forget({"red": 2}) == 4  # marks never go back
        assert await one.forget({"green": 10}) == 7
        with pytest.raises(TrimmedError):
            await client.read(6)
        with pytest.raises(UnwrittenError):
            await one.forget({"red": 999})
        assert await one.forget({"red": 10}) == 14  # its newest record holds the whole table
        assert await Retention(client).marks() == await one.marks()
        assert [record.address for record in await client.latest(RETENTION_STREAM, 9)] == [14]

    harness.loop.run(story())


def test_a_slow_append_to_a_stream_unheard_of_is_not_trimmed_away(harness: Harness) -> None:
    """Holes are filled before the log is trimmed, so that nothing acknowledged later lies there."""

    async def story() -> None:
        stopped: list[str] = []

        def hook(source: str, destination: str, request: Request) -> None:
            if source == "slow" and type(request).__name__ == "Write" and not stopped:
                stopped.append(destination)
                harness.cluster.isolate("slow", harness.cluster.hosts)

        harness.on_request = hook
        task = harness.loop.start(harness.append(harness.client("slow"), "blue", b"late"))
        await harness.runtime.sleep(0.5)
        client = harness.client()
        for _ in range(10):
            await client.append("red", b"x")
        await Retention(client).forget({"red": 10})
        harness.cluster.heal()
        while not task.ended:
            await harness.runtime.sleep(0.1)
        assert task.error is None
        assert [record.payload async for record in client.stream("blue")] == [b"late"]

    harness.loop.run(story())


@pytest.mark.parametrize("kind", [LogUnavailableError, ExtentAwayError])
def test_a_command_that_was_appended_and_not_read_back_has_an_unknown_outcome(
    harness: Harness, kind: type[LogError]
) -> None:
    """Only what fails before the append has certainly not happened."""
    shared = open_map(harness)
    failure = ExtentAwayError("away", ("n1",)) if kind is ExtentAwayError else kind("gone")

    async def story() -> None:
        await shared.set("a", b"1")

        async def fails() -> None:
            raise failure

        shared._catch_up = fails  # type: ignore[method-assign]
        for change in (shared.set("a", b"2"), shared.delete("a"), shared.compare_and_set("a", b"1", b"3")):
            with pytest.raises(OutcomeUnknownError, match="is in the log at address") as raised:
                await change
            assert raised.value.__cause__ is failure
        with pytest.raises(kind):
            await shared.get("a")

    harness.loop.run(story())
