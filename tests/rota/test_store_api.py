"""What an agent answers about streams and maps, over a simulated cluster and as the OpenAPI document says."""

from __future__ import annotations

import base64
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from datastore_adapter.log.log_unit.unit import LogUnit, Outcome
from datastore_adapter.log.messages import CountStreams
from rota.agent import node_api
from rota.agent.node_api import NodeApi
from rota.errors import ApiError
from rota.services import store_api
from rota.services.asking_members import KEPT
from rota.services.event_log import EventLog
from rota.services.former_members import FormerMembers
from rota.services.host_monitor import HostMonitor
from rota.services.key_service import KeyService
from rota.services.store_api import MAPS_AT_ONCE, NAMES_TIMEOUT, SIZES_KEPT, SIZES_TIMEOUT, StoreApi
from rota.services.store_tags import counts_streams
from tests.datastore_adapter.harness import Harness
from tests.rota.description import Description


@pytest.fixture
def harness() -> Harness:
    harness = Harness(3, segments=2)
    harness.loop.run(harness.settle(harness.adapter()))
    return harness


def base(value: bytes) -> str:
    return base64.b64encode(value).decode()


def test_a_map_by_one_request_after_the_other(harness: Harness, description: Description) -> None:
    async def story() -> None:
        store, other = StoreApi(harness.client()), StoreApi(harness.client("other"))

        async def ask(**request: Any) -> Any:
            answer = await store.change("m", request)
            description.check_answer("POST", "/v1/map/m", answer)
            return answer

        assert (await ask(action="get", key="k"))["done"] is False
        await ask(action="set", key="k", value=base(b"\xff\x00"))
        found = await other.change("m", {"action": "get", "key": "k"})
        assert found["entry"] == {"key": "k", "text": "\ufffd\x00", "hex": "ff00", "bytes": 2}
        assert (await ask(action="replace", key="k", expected=base(b"x"), value=base(b"y")))["done"] is False
        assert (await ask(action="replace", key="k", expected=base(b"\xff\x00"), value=base(b"")))["done"]
        assert (await ask(action="replace", key="new", expected=None, value=base(b"n")))["done"]
        entries = await other.entries("m", 1)
        description.check_answer("GET", "/v1/map/m", entries)
        assert (entries["keys"], [entry["hex"] for entry in entries["entries"]]) == (2, [""])
        assert (await ask(action="delete", key="k"))["done"]
        assert (await ask(action="delete", key="k"))["done"] is False
        for number in range(MAPS_AT_ONCE + 1):  # the first is forgotten here, not there
            await store.entries(f"map{number}", 1)
        assert (await store.entries("m", 9))["keys"] == 1

    harness.loop.run(story())


def test_the_streams_and_maps_there_are(harness: Harness, description: Description) -> None:
    async def story() -> None:
        store = StoreApi(harness.client())
        assert await store.streams() == {"streams": [], "maps": [], "left_off": 0}
        await store.append("greetings", b"hello")
        await store.change("m", {"action": "set", "key": "k", "value": base(b"v")})
        (named,) = (await store.streams(only_names=True))["streams"]
        assert named == {"name": "greetings", "records": None, "bytes": None}
        assert (await store.streams())["streams"] == [], "one answer for all who ask within that time"
        await harness.runtime.sleep(SIZES_KEPT)
        found = await store.streams()
        description.check_answer("GET", "/v1/streams", found)
        (stream,), (of_map,) = found["streams"], found["maps"]
        assert (stream["name"], stream["records"], of_map["name"], of_map["records"]) == (
            "greetings",
            1,
            "m",
            1,
        )
        assert 5 < (stream["bytes"] or 0) < 200

    harness.loop.run(story())


def test_consoles_that_ask_at_once_ask_the_hosts_once(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they are told that it failed; who gives up waiting does not take the answer from the others."""
    client, asked = harness.client(), 0
    sizes = client.sizes

    async def counted(*, timeout: float | None = None) -> Any:
        nonlocal asked
        asked += 1
        return await sizes(timeout=timeout)

    monkeypatch.setattr(client, "sizes", counted)

    async def story() -> None:
        store = StoreApi(client)
        await store.append("s", b"1")
        first, *others = [harness.loop.start(store.streams()) for _ in range(6)]
        await harness.runtime.sleep(0)
        first.cancel()
        await harness.runtime.sleep(2 * SIZES_KEPT)
        assert [each.result["streams"][0]["records"] for each in others] == [1] * 5
        assert asked == 2
        harness.crash("n0", "n1", "n2")
        failed = [harness.loop.start(store.streams()) for _ in range(5)]
        await harness.runtime.sleep(60)
        assert {type(each.error) for each in failed} == {ApiError}
        assert asked == 3

    harness.loop.run(story())


def test_an_answer_is_bounded_by_bytes(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_api, "LARGEST_ANSWER", 30)

    async def story() -> None:
        client = harness.client()
        store = StoreApi(client)
        for number in range(9):
            await store.append("s", bytes([number]) * 10)
            await store.change("m", {"action": "set", "key": f"k{number}", "value": base(bytes(10))})
        latest, first = await store.read("s", None, 9), await store.read("s", None, 9, start=0)
        assert [[record["hex"][:2] for record in each["records"]] for each in (latest, first)] == [
            ["06", "07", "08"], ["00", "01", "02"],
        ]  # fmt: skip
        assert [each["more"] for each in (latest, first, await store.read("s", None, 3))] == [
            True,
            True,
            False,
        ]
        assert len((await store.entries("m", 9))["entries"]) == 3
        behind = await store.entries("m", 9, after="k2")
        assert ([entry["key"] for entry in behind["entries"]], behind["keys"]) == (["k3", "k4", "k5"], 9)
        assert len((await store.entries("m", 9, most=1))["entries"]) == 9

    harness.loop.run(story())


def test_an_answer_is_bounded_by_its_number_of_records(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_api, "LONGEST_LISTING", 3)

    async def story() -> None:
        store = StoreApi(harness.client())
        for number in range(4):
            await store.append("s", bytes([number]))
        for start in (None, 0):
            assert [(await store.read("s", None, limit, start))["more"] for limit in (2, 3, 4)] == [
                False,
                False,
                True,
            ]

    harness.loop.run(story())


def test_a_store_that_does_not_answer_keeps_no_console_waiting(harness: Harness) -> None:
    async def story() -> None:
        store = StoreApi(harness.client())
        await store.append("s", b"1")
        harness.crash("n0", "n1", "n2")
        began = harness.runtime.now()
        with pytest.raises(ApiError):
            await store.streams()
        assert harness.runtime.now() - began < 4 * SIZES_TIMEOUT
        began = harness.runtime.now()
        with pytest.raises(ApiError):
            await store.streams(only_names=True)
        assert harness.runtime.now() - began < 2 * NAMES_TIMEOUT
        with pytest.raises(ApiError):
            await store.append("s", b"2")
        with pytest.raises(ApiError, match="a stream's name"):
            await store.append("not a name", b"2")
        assert store.failed_appends == 1

    harness.loop.run(story())


def test_a_listing_is_bounded_and_says_so(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_api, "LONGEST_LISTING", 2)

    async def story() -> None:
        store = StoreApi(harness.client())
        for name in ("c", "a", "b"):
            await store.append(name, b"1")
        found = await store.streams()
        assert ([each["name"] for each in found["streams"]], found["left_off"]) == (["a", "b"], 1)

    harness.loop.run(story())


@pytest.mark.parametrize(
    ("tags", "is_asked"),
    [
        ({}, False),
        ({"rota": "0.1.3"}, False),
        ({"rota": "0.2.0"}, True),
        ({"rota": "0.10.0"}, True),
        ({"store": "no"}, True),
    ],
)
def test_a_host_of_version_0_1_is_not_asked_how_much_there_is(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, tags: dict[str, str], is_asked: bool
) -> None:
    """It would end the connection that it shares with appends."""
    asked: list[str] = []
    answer = LogUnit._stream_counts

    def counts(unit: LogUnit, request: CountStreams) -> Outcome:
        asked.append("sizes")
        return answer(unit, request)

    monkeypatch.setattr(LogUnit, "_stream_counts", counts)
    members = [SimpleNamespace(attributes=each) for each in ({"rota": "0.2.0"}, tags)]
    cluster: Any = SimpleNamespace(view=SimpleNamespace(members=members))

    async def story() -> None:
        store = StoreApi(harness.client(), partial(counts_streams, cluster))
        await store.append("s", b"1")
        assert [each["name"] for each in (await store.streams())["streams"]] == ["s"]

    harness.loop.run(story())
    assert bool(asked) == is_asked


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"action": "get"},
        {"action": "rename", "key": "k"},
        {"action": "get", "key": 3},
        {"action": "set", "key": "k"},
        {"action": "set", "key": "k", "value": "not base64!"},
        {"action": "set", "key": "k", "value": 3},
        {"action": "set", "key": "", "value": ""},
        {"action": "set", "key": "\udcff", "value": ""},
        {"action": "set", "key": "k", "value": base(bytes(1 << 19))},
    ],
)
def test_a_request_that_is_none_is_refused_as_such(harness: Harness, request_: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        harness.loop.run(StoreApi(harness.client()).change("m", request_))
    assert (refused.value.code, refused.value.status) == ("bad_request", 400)


def test_of_long_values_only_as_much_as_asked_for(harness: Harness) -> None:
    async def story() -> None:
        store = StoreApi(harness.client())
        value = (
            "aé".encode() * 1000
        )  # the third byte is the end of the first é, the fifth the middle of the next
        await store.append("s", value)
        await store.append("s", b"\xc3")
        await store.change("m", {"action": "set", "key": "k", "value": base(value)})
        for most, text in ((3, "aé"), (5, "aéa"), (0, ""), (5000, "aé" * 1000)):
            long, short = (await store.read("s", None, 2, most=most))["records"]
            (entry,) = (await store.entries("m", 1, most))["entries"]
            for shown in (long, entry):
                assert (shown["text"], shown["hex"], shown["bytes"]) == (text, value[:most].hex(), 3000)
            assert short["text"] == ("\ufffd" if most else "")  # whole, and no text

    harness.loop.run(story())


def test_streams(harness: Harness, description: Description) -> None:
    async def story() -> None:
        client = harness.client()
        store = StoreApi(client)
        for number in range(5):
            description.check_answer("POST", "/v1/log/s", await store.append("s", bytes([number])))
        read = await store.read("s", None, 2)
        description.check_answer("GET", "/v1/log/s", read)
        assert [record["address"] for record in read["records"]] == [3, 4]
        read = await store.read("s", None, 2, start=1)
        description.check_answer("GET", "/v1/log/s", read)
        assert [record["address"] for record in read["records"]] == [1, 2]
        assert (await store.read("s", None, 9, start=5))["records"] == []
        followed = []
        async for record in store.follow("s", 3):
            followed.append(record["hex"])
            if len(followed) == 2:
                await store.append("s", b"more")
            if len(followed) == 3:
                break
        assert followed == ["03", "04", b"more".hex()]
        await client.trim(4)
        for call, code in ((store.read("s", 1, 1), "trimmed"), (store.read("s", 99, 1), "unwritten")):
            with pytest.raises(ApiError) as refused:
                await call
            assert refused.value.code == code
        with pytest.raises(ApiError, match="trimmed"):
            [record async for record in store.follow("s", 0)]
        with pytest.raises(ApiError, match="a stream's name"):
            await store.append("map/m", b"no map is damaged from here")

    harness.loop.run(story())


def test_an_agent_that_ends_begins_no_request_and_says_so(tmp_path: Path) -> None:
    api = NodeApi(
        "n1", EventLog(), KeyService("n1", None), FormerMembers(tmp_path / "former"), HostMonitor(tmp_path)
    )
    api.is_ending = True
    with pytest.raises(ApiError, match="is ending") as refused:
        api.store()
    assert (refused.value.code, refused.value.status or 503) == ("ending", 503)


async def test_others_are_asked_once_by_several_and_who_is_controller_without_a_report(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def ask_member(
        cluster: Any, member: Any, service: str, request: str, arguments: Any
    ) -> dict[str, Any]:
        asked.append(f"{member.name}: {request}")
        return {"interval": 10.0, "end": None, "series": {}}

    class View(SimpleNamespace):
        def __len__(self) -> int:
            return len(self.members)

    monkeypatch.setattr(node_api, "ask_member", ask_member)
    api = NodeApi(
        "n1", EventLog(), KeyService("n1", None), FormerMembers(tmp_path / "f"), HostMonitor(tmp_path)
    )
    fakes: Any = api
    n2 = SimpleNamespace(name="n2")
    fakes.cluster = SimpleNamespace(view=View(members=[n2], id=b"v", member=lambda name: n2))
    fakes.controller = SimpleNamespace(leader="n2")
    assert await api.measured() == await api.measured()
    await trio.sleep(KEPT)
    assert list((await api.measured())["members"]) == ["n1", "n2"]
    await api.control("plan", {})
    assert asked == ["n2: measured", "n2: measured", "n2: plan"]
