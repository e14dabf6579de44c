"""The HTTP interface against a fake node: routes, errors, bounds, the event stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from rota.errors import ApiError
from rota.http.api import build_application
from rota.http.endpoints import LARGEST_CHANGE
from rota.http.limits import LARGEST_RECORD

JSON = {"content-type": "application/json"}


class FakeNode:
    def __init__(self) -> None:
        self.ready = True
        self.leaves_answered = 0
        self.looks = 0
        self.appended: list[tuple[str, bytes]] = []
        self.recorded: list[tuple[str, str, dict[str, Any]]] = []

    async def look(self) -> None:
        self.looks += 1

    def status(self) -> dict[str, Any]:
        return {"name": "n1", "quorum": True, "epoch": 3, "size": 1, "statistics": {}}

    def members(self) -> dict[str, Any]:
        return {"epoch": 3, "members": []}

    def suspicions(self) -> dict[str, Any]:
        return {"suspects": []}

    async def views(self) -> dict[str, Any]:
        return {"members": {}}

    async def host(self, name: str) -> dict[str, Any]:
        return {"name": name}

    async def measured(self) -> dict[str, Any]:
        return {"members": {}}

    def local_events(self, after: int) -> list[dict[str, Any]]:
        return [{"number": number} for number in range(after + 1, 4)]

    async def events(self, after: int) -> dict[str, Any]:
        return {"agent": "n7", "events": self.local_events(after)}

    async def follow(self, after: int) -> AsyncIterator[dict[str, Any]]:
        for event in self.local_events(after):
            yield event

    def is_ready(self) -> bool:
        return self.ready

    async def control(self, request: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments.get("host") == "n9":
            raise ApiError("no host n9", code="unknown_host", status=404)
        return {"request": request, **arguments}

    async def keys(self, action: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"action": action, **arguments}

    async def operate(self, action: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments.get("host") == "n9":
            raise ApiError("no host n9", code="unknown_host", status=404)
        return {"action": action, **arguments}

    async def answered(self) -> None:
        self.leaves_answered += 1

    def record(self, kind: str, text: str, data: dict[str, Any]) -> None:
        self.recorded.append((kind, text, data))

    def store(self) -> FakeStore:
        return FakeStore(self.appended)


class FakeStore:
    def __init__(self, appended: list[tuple[str, bytes]]) -> None:
        self._appended = appended

    async def streams(self, *, only_names: bool = False) -> dict[str, Any]:
        return {"streams": sorted({stream for stream, _ in self._appended}), "maps": []}

    async def append(self, stream: str, payload: bytes) -> dict[str, Any]:
        self._appended.append((stream, payload))
        return {"address": 7}

    async def read(
        self, stream: str, address: int | None, limit: int, start: int | None = None, most: int | None = None
    ) -> dict[str, Any]:
        return {"stream": stream, "address": address, "limit": limit, "most": most}

    async def follow(self, stream: str, start: int | None) -> AsyncIterator[dict[str, Any]]:
        yield {"address": start}
        raise ApiError("trimmed", code="trimmed")

    async def entries(
        self, name: str, limit: int, most: int | None = None, after: str | None = None
    ) -> dict[str, Any]:
        return {"map": name, "limit": limit, "most": most, "after": after}

    async def change(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        return {"map": name, **request}

    async def cut(self) -> dict[str, Any]:
        return {"address": len(self._appended)}

    async def part(self, start: int, end: int) -> bytes:
        return bytes([start, end])

    async def check_empty(self) -> None:
        if self._appended:
            raise ApiError("there is something", code="not_empty", status=409)

    async def write_part(self, data: bytes) -> None:
        self._appended.append(("a part", data))


async def test_where_prometheus_finds_the_agents(client: httpx.AsyncClient, node: FakeNode) -> None:
    def member(name: str, http: str | None, host: str = "", **tags: str) -> dict[str, Any]:
        return {"name": name, "address": f"{host or name + '.example'}:7946", "http": http, "tags": tags}

    found = [
        member("n1", "http://127.0.0.1:7947", "127.0.0.1", rack="r1", owner="us"),
        member("n2", "https://0.0.0.0:7957"),
        member("n3", "https://[::1]:7967", "[::1]", rack="r2"),
        member("n4", None),
        member("n5", "http://127.0.0.1:7947"),  # elsewhere that is another agent's
        *(member("n6", text) for text in ("http://[x", "http://n6.example", "http://n6.example:x", "x", "")),
        member("n7", "http://10.0.0.7:7947", rack="r1"),
    ]
    node.members = lambda: {"epoch": 3, "members": found}  # type: ignore[method-assign]
    answer = await client.get("/v1/sd/prometheus")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == [
        {"targets": ["127.0.0.1:7947"], "labels": {"__scheme__": "http", "member": "n1", "rack": "r1"}},
        {"targets": ["n2.example:7957"], "labels": {"__scheme__": "https", "member": "n2"}},
        {"targets": ["[::1]:7967"], "labels": {"__scheme__": "https", "member": "n3", "rack": "r2"}},
        {"targets": ["10.0.0.7:7947"], "labels": {"__scheme__": "http", "member": "n7", "rack": "r1"}},
    ]


async def test_a_backup_in_parts_and_back(client: httpx.AsyncClient, node: FakeNode) -> None:
    part = await client.get("/v1/backup/part?start=3&end=9")
    assert (part.headers["content-type"], part.content) == ("application/octet-stream", b"\x03\x09")
    intent = {"version": 1, "policies": {"texts": [["mine", "-- " + "x" * (1 << 20)]]}}
    begun = await client.post("/v1/restore", json={"backup": "c0ffee", "resume": False})
    assert begun.json() == {"request": "restore", "backup": "c0ffee", "resume": False}
    sent = await client.post(
        "/v1/restore/part", content=part.content, headers={"content-type": "application/octet-stream"}
    )
    assert (sent.json(), node.appended) == ({}, [("a part", b"\x03\x09")])
    assert (await client.get("/v1/backup")).json() == {"address": 1}
    again = await client.post("/v1/restore", json={"backup": "c0ffee", "resume": False})
    assert (again.status_code, again.json()["code"]) == (409, "not_empty")
    assert (await client.post("/v1/restore", json={"backup": "c0ffee", "resume": True})).status_code == 200
    finished = await client.post("/v1/restore/finished", json={"backup": "c0ffee", "intent": intent})
    assert finished.json() == {"request": "restored", "backup": "c0ffee", "intent": intent}
    for path, length in (("/v1/restore/part", (32 << 20) + 1), ("/v1/restore/finished", (16 << 20) + 1)):
        answer = await client.post(path, content=b"x", headers={"content-length": str(length)})
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
async def client(node: FakeNode) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=build_application(node))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://127.0.0.1:7947", headers=JSON
    ) as client:
        yield client


async def test_reports(client: httpx.AsyncClient, node: FakeNode) -> None:
    status = (await client.get("/v1/status")).json()
    assert (status["name"], status["statistics"]["http.requests"]) == ("n1", 1)
    assert node.looks == 1
    assert (await client.get("/v1/members")).json()["epoch"] == 3
    assert (await client.get("/v1/events?after=2&local=1")).json() == {"events": [{"number": 3}]}
    assert (await client.get("/v1/events?after=2")).json() == {"agent": "n7", "events": [{"number": 3}]}
    assert "GET  /v1/status" in (await client.get("/")).text


async def test_event_stream(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/events", headers={"accept": "text/event-stream"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.count("data: ") == 3


async def test_readiness_is_a_status_code(client: httpx.AsyncClient, node: FakeNode) -> None:
    assert (await client.get("/readyz")).status_code == 200
    node.ready = False
    assert (await client.get("/readyz")).status_code == 503
    assert (await client.get("/healthz")).status_code == 200


async def test_requests_for_the_controller(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/plan")).json() == {"request": "plan"}
    assert (await client.post("/v1/drain", json={"host": "n3"})).json() == {"request": "drain", "host": "n3"}
    refused = await client.post("/v1/drain", json={"host": "n9"})
    assert refused.status_code == 404
    assert refused.json() == {"error": "no host n9", "code": "unknown_host"}


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b"{}", b'{"host": 3}'])
async def test_a_bad_body_is_refused_with_what_to_send(client: httpx.AsyncClient, body: bytes) -> None:
    answer = await client.post("/v1/drain", content=body)
    assert answer.status_code == 400
    assert '{"host": NAME}' in answer.json()["error"]


async def test_requests_about_keys(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/keys")).json() == {"action": "list"}
    body = {"action": "use", "id": "00c0ffee", "force": True}
    assert (await client.post("/v1/keys", json=body)).json() == body
    for bad in (b"", b"nonsense", b"[]", b"{}", b'{"action": 3}'):
        answer = await client.post("/v1/keys", content=bad)
        assert answer.status_code == 400
        assert "action" in answer.json()["error"]


async def test_log_round_trip_and_its_bound(client: httpx.AsyncClient, node: FakeNode) -> None:
    assert (await client.post("/v1/log/s", content=b"\x00hi")).json() == {"address": 7}
    assert node.appended == [("s", b"\x00hi")]
    assert (await client.get("/v1/log/s?address=4&limit=2&most=5")).json() == {
        "stream": "s",
        "address": 4,
        "limit": 2,
        "most": 5,
    }
    assert (await client.post("/v1/log/s", content=bytes(LARGEST_RECORD + 1))).status_code == 413
    assert (await client.get("/v1/log/s?address=-1")).status_code == 400


async def test_a_stream_is_followed_until_it_cannot_be(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/log/s?start=3", headers={"accept": "text/event-stream"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text == 'data: {"address": 3}\n\ndata: {"error": "trimmed", "code": "trimmed"}\n\n'


async def test_maps(client: httpx.AsyncClient) -> None:
    few = {"map": "m", "limit": 2, "most": 5, "after": "k"}
    assert (await client.get("/v1/map/m?limit=2&most=5&after=k")).json() == few
    request = {"action": "set", "key": "k", "value": "aa=="}
    assert (await client.post("/v1/map/m", json=request)).json() == {"map": "m", **request}
    assert (await client.post("/v1/map/m", content=b"[]")).status_code == 400
    assert (await client.post("/v1/map/m", content=bytes(LARGEST_CHANGE + 1))).status_code == 413


async def test_operations_on_the_membership(client: httpx.AsyncClient, node: FakeNode) -> None:
    evicted = await client.post("/v1/evict", json={"host": "n3"})
    assert evicted.json() == {"action": "evict", "host": "n3"}
    assert (await client.post("/v1/evict", json={"host": "n9"})).status_code == 404
    tagged = await client.post("/v1/tags", json={"set": {"rack": "r2"}})
    assert tagged.json() == {"action": "tags", "set": {"rack": "r2"}, "remove": []}
    recovered = await client.post("/v1/recover", json={"survivors": ["n1"]})
    assert recovered.json() == {"action": "recover", "survivors": ["n1"], "force": False}
    for path in ("/v1/evict", "/v1/tags", "/v1/recover"):
        for body in (b"nonsense", b"[]"):
            answer = await client.post(path, content=body)
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


async def test_the_answer_to_a_leave_goes_out_before_the_process_may_end(
    client: httpx.AsyncClient, node: FakeNode
) -> None:
    assert (await client.post("/v1/leave")).json() == {"action": "leave"}
    assert node.leaves_answered == 1


async def test_a_name_with_a_slash_in_it_is_a_host(client: httpx.AsyncClient) -> None:
    for name in ("n1", "a/b", "a%2Fb"):
        assert (await client.get(f"/v1/hosts/{name}")).json() == {"name": name.replace("%2F", "/")}
    assert (await client.get("/v1/plans/p4-a/b")).json() == {"request": "outcome", "plan_id": "p4-a/b"}


async def test_apply_is_bound_to_a_digest_and_refuses_anything_else(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/apply", json={})).json() == {"request": "apply"}
    shown = await client.post("/v1/apply/shown", json={"digest": "d1"})
    assert shown.json() == {"request": "apply-shown", "digest": "d1"}
    for path, body in (
        ("/v1/apply", {"digest": "d1"}),
        ("/v1/apply/shown", {"digests": "d1"}),
        ("/v1/apply/shown", {"digest": 1}),
        ("/v1/apply/shown", {}),
    ):
        refused = await client.post(path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (400, "bad_request")
