"""The HTTP interface with tokens: who may ask for what, sessions of browsers, and what is told of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from rota.access.access import COOKIE, Access
from rota.access.roles import OPERATE, PUBLIC, READ
from rota.access.tokens import Token, digest_of, write_tokens
from rota.http.api import build_application
from rota.http.openapi import Operation
from tests.rota.test_api import FakeNode

URL = "https://127.0.0.1:7947"
ALICE, BOB = {"authorization": "Bearer rota_alice"}, {"authorization": "bearer rota_bob"}
JSON = {"content-type": "application/json"}
FROM_THE_CONSOLE = {"origin": URL, "sec-fetch-site": "same-origin"}


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
def access(tmp_path: Path) -> Access:
    file = tmp_path / "tokens"
    write_tokens(
        file, [Token("alice", OPERATE, digest_of("rota_alice")), Token("bob", READ, digest_of("rota_bob"))]
    )
    return Access(file)


@pytest.fixture
async def client(node: FakeNode, access: Access) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=build_application(node, access), client=("10.0.0.9", 1))
    async with httpx.AsyncClient(transport=transport, base_url=URL, headers=JSON) as client:
        yield client


OPERATIONS: list[Operation] = build_application(FakeNode()).state.operations


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: f"{each.method} {each.path}")
async def test_every_operation_asks_for_its_role(client: httpx.AsyncClient, operation: Operation) -> None:
    path = operation.path.replace("{before}", "1").replace("{after}", "2").replace("{", "").replace("}", "")

    async def status(headers: dict[str, str]) -> int:
        body = {"action": "get"} if operation.method == "POST" else None
        return (await client.request(operation.method, path, headers=headers, json=body)).status_code

    if operation.role == PUBLIC:
        assert await status({}) not in (403, 500)
        return
    assert await status({}) == 401
    assert await status({"authorization": "Bearer rota_eve"}) == 401
    assert await status({"authorization": "Basic YWxpY2U6eA=="}) == 401
    assert (await status(BOB) == 403) is (operation.role == OPERATE)
    assert await status(ALICE) not in (401, 403, 500)


def test_what_changes_something_needs_operate_but_for_what_only_asks() -> None:
    by_reading = {each.path for each in OPERATIONS if each.method == "POST" and each.role == READ}
    assert by_reading == {"/v1/why", "/v1/why-not", "/v1/what-if", "/v1/map/{name}"}
    public = {each.path for each in OPERATIONS if each.role == PUBLIC}
    assert public == {
        "/", "/console/{name}", "/console/{folder}/{name}", "/healthz", "/readyz", "/v1/login", "/v1/logout",
    }  # fmt: skip
    assert {each.path for each in OPERATIONS} >= {"/metrics", "/v1/openapi.json"}


async def test_the_refusal_names_what_is_missing(client: httpx.AsyncClient) -> None:
    nothing = await client.get("/v1/status")
    assert nothing.headers["www-authenticate"] == "Bearer"
    assert (nothing.json()["code"], "--token-file" in nothing.json()["error"]) == ("no_token", True)
    answer = await client.post("/v1/drain", json={"host": "n3"}, headers=BOB)
    assert answer.json()["error"] == "this needs the role operate; the token of bob has the role read"


async def test_who_may_read_gets_from_a_map_and_sets_nothing(client: httpx.AsyncClient) -> None:
    assert (
        await client.post("/v1/map/m", json={"action": "get", "key": "a"}, headers=BOB)
    ).status_code == 200
    for action in ("set", "delete", "replace", "", None, "GET"):
        answer = await client.post("/v1/map/m", json={"action": action, "key": "a"}, headers=BOB)
        assert answer.status_code == 403


async def test_who_asked_for_what_is_told_without_what_is_secret(
    client: httpx.AsyncClient, node: FakeNode
) -> None:
    asked = (await client.post("/v1/drain", json={"host": "n3"}, headers=ALICE)).json()
    assert asked["asked_by"] == "alice (operate) from 10.0.0.9", "for the history of the layout"
    await client.post("/v1/drain", json={"host": "n9"}, headers=ALICE)
    await client.post("/v1/leave", json={}, headers=BOB)
    await client.post("/v1/keys", json={"action": "install", "key": "SECRET"}, headers=ALICE)
    await client.post("/v1/login", json={"token": "rota_bob"})
    await client.post("/v1/login", json={"token": "SECRET"})
    await client.get("/v1/status", headers=ALICE)
    await client.post(
        "/v1/log/words", content=b"SECRET", headers={**ALICE, "content-type": "application/octet-stream"}
    )
    assert [text for _, text, _ in node.recorded] == [
        "drain host=n3 by alice (operate) from 10.0.0.9: done",
        "drain host=n9 by alice (operate) from 10.0.0.9: refused: no host n9",
        "leave by bob (read) from 10.0.0.9: refused: this needs the role operate; the token of bob has the role read",
        "keys action=install by alice (operate) from 10.0.0.9: done",
        "login by bob (read) from 10.0.0.9: done",
    ]
    assert "SECRET" not in str(node.recorded)


async def test_nobody_says_who_one_is_oneself(client: httpx.AsyncClient) -> None:
    answer = await client.post(
        "/v1/drain", json={"host": "n3", "asked_by": "bob", "asked_at": "n7"}, headers=ALICE
    )
    assert answer.json() == {"request": "drain", "host": "n3", "asked_by": "alice (operate) from 10.0.0.9"}


class TestSessions:
    @staticmethod
    async def log_in(client: httpx.AsyncClient, token: str = "rota_alice") -> httpx.Response:
        return await client.post("/v1/login", json={"token": token}, headers=FROM_THE_CONSOLE)

    async def test_the_cookie_is_for_this_host_alone_and_for_no_script(
        self, client: httpx.AsyncClient
    ) -> None:
        answer = await self.log_in(client)
        assert answer.json() == {"name": "alice", "role": "operate"}
        name, _, attributes = answer.headers["set-cookie"].partition("=")
        assert name == COOKIE == "__Host-rota"
        said = {part.strip().lower() for part in attributes.split(";")[1:]}
        assert said >= {"httponly", "secure", "samesite=strict", "path=/"}
        assert not any(part.startswith("domain") for part in said)
        assert "rota_alice" not in answer.headers["set-cookie"]

    async def test_a_session_has_its_tokens_role(self, client: httpx.AsyncClient) -> None:
        await self.log_in(client, " rota_bob\n")
        assert (await client.get("/v1/session")).json() == {"name": "bob", "role": "read"}
        assert (await client.post("/v1/pause", json={}, headers=FROM_THE_CONSOLE)).status_code == 403
        await self.log_in(client)
        assert (await client.post("/v1/pause", json={}, headers=FROM_THE_CONSOLE)).status_code == 200

    async def test_a_page_of_somebody_else_changes_nothing_with_it(self, client: httpx.AsyncClient) -> None:
        await self.log_in(client)
        for headers in ({}, {"origin": "https://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:7947"},
                        {**FROM_THE_CONSOLE, "sec-fetch-site": "same-site"}):  # fmt: skip
            assert (await client.post("/v1/pause", json={}, headers=headers)).json()[
                "code"
            ] == "foreign_origin"
        form = {**FROM_THE_CONSOLE, "content-type": "application/x-www-form-urlencoded"}
        assert (await client.post("/v1/pause", content=b"a=b", headers=form)).status_code == 415

    async def test_logging_out_ends_it(self, client: httpx.AsyncClient) -> None:
        await self.log_in(client)
        number = client.cookies[COOKIE]
        assert (await client.post("/v1/logout", json={}, headers=FROM_THE_CONSOLE)).status_code == 200
        assert COOKIE not in client.cookies
        answer = await client.get("/v1/status", headers={"cookie": f"{COOKIE}={number}"})
        assert (answer.status_code, answer.json()["code"]) == (401, "no_session")

    async def test_it_ends_with_its_token(self, client: httpx.AsyncClient, access: Access) -> None:
        await self.log_in(client)
        assert access.token_file is not None
        write_tokens(access.token_file, [])
        access.reload()
        assert (await client.get("/v1/status")).status_code == 401

    async def test_a_wrong_token_opens_none(self, client: httpx.AsyncClient) -> None:
        for token in ("", "rota_eve", "x" * 10_000):
            assert (await self.log_in(client, token)).status_code == 401
        assert not client.cookies


async def test_without_tokens_there_is_nothing_to_log_in_to() -> None:
    transport = httpx.ASGITransport(app=build_application(FakeNode()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=JSON) as client:
        assert (await client.get("/v1/session")).json() == {"name": None, "role": "operate"}
        assert (await client.post("/v1/login", json={"token": "x"})).status_code == 409


async def test_refusals_are_counted_by_status(client: httpx.AsyncClient) -> None:
    await client.get("/v1/nothing")
    await client.get("/v1/status")
    await client.get("/v1/status", headers={"host": "evil.example"})
    await client.post("/v1/pause", content=b"x" * 70_000, headers=ALICE | {"content-type": "text/plain"})
    await client.post("/v1/tags", content=b"x" * 70_000, headers=ALICE)
    counted = (await client.get("/v1/status", headers=ALICE)).json()["statistics"]
    refused = {
        name.removeprefix("http.refused_"): count
        for name, count in counted.items()
        if count and "refu" in name
    }
    assert refused == {"404": 1, "401": 1, "421": 1, "415": 1, "413": 1}
    assert counted["http.requests"] == 6


@pytest.mark.parametrize(
    "path",
    ["/console/..%2f..%2fetc%2fpasswd", "/console/%2e%2e/%2e%2e/etc/passwd", "/console/..\\main.js",
     "/console//main.js", "/console/main.js%00.html", "//etc/passwd", "/console/%252e%252e%252fmain.js",
     "/console/static/main.js"],
)  # fmt: skip
async def test_no_path_leads_out_of_the_console(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(httpx.URL(URL).copy_with(raw_path=path.encode()))
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_the_document_says_what_each_operation_needs(client: httpx.AsyncClient) -> None:
    document: dict[str, Any] = (await client.get("/v1/openapi.json", headers=BOB)).json()
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert document["components"]["securitySchemes"]["session"]["name"] == COOKIE
    assert document["paths"]["/v1/drain"]["post"]["x-role"] == "operate"
    assert document["paths"]["/v1/drain"]["post"]["security"] == [{"token": []}, {"session": []}]
    assert document["paths"]["/healthz"]["get"]["security"] == []
    assert all(isinstance(route, Route) for route in build_application(FakeNode()).routes)
