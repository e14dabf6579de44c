"""No other page of the operator's browser may use an agent: by a name of its own, from afar, or by a form."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from rota.access.access import Access
from rota.http.api import build_application
from rota.http.guard import CONTENT_SECURITY_POLICY, refusal
from tests.rota.test_api import FakeNode

HERE = {"host": "127.0.0.1:7947"}
JSON = {**HERE, "content-type": "application/json"}
BROWSER = {**HERE, "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}


def code(method: str, path: str, headers: dict[str, str]) -> str | None:
    refused = refusal(method, path, headers)
    return None if refused is None else refused.code


class TestTheNameItIsAskedUnder:
    @pytest.mark.parametrize(
        "host", ["127.0.0.1:7947", "127.0.0.1", "localhost:9000", "LOCALHOST", "127.1.2.3:1", "[::1]:7947"]
    )
    def test_this_machine_by_any_of_its_own_names(self, host: str) -> None:
        assert code("GET", "/v1/status", {"host": host}) is None

    @pytest.mark.parametrize(
        "host",
        [
            "evil.example:7947", "127.0.0.1.evil.example", "localhost.evil.example:7947", "10.0.0.5:7947", "0.0.0.0",
            "", "user@127.0.0.1", "127.0.0.1:x", "127.0.0.1/evil", "127.0.0.1#", "[::1", "127.0.0.1, evil.example",
            "127.1", "0x7f.0.0.1",
        ],
    )  # fmt: skip
    def test_any_other_name_may_be_a_page_whose_name_was_rebound(self, host: str) -> None:
        assert code("GET", "/v1/status", {"host": host}) == "wrong_host"
        assert code("GET", "/", {"host": host}) == "wrong_host"

    def test_no_name_at_all(self) -> None:
        assert code("GET", "/v1/status", {}) == "wrong_host"


class TestWhereItComesFrom:
    def test_the_console_itself(self) -> None:
        assert code("GET", "/v1/status", BROWSER) is None
        assert code("POST", "/v1/drain", {**BROWSER, **JSON, "origin": "http://127.0.0.1:7947"}) is None

    @pytest.mark.parametrize(
        "origin",
        [
            "https://evil.example",
            "null",
            "http://127.0.0.1:3000",
            "http://localhost:7947",
            "https://127.0.0.1:7947",
        ],
    )
    @pytest.mark.parametrize("method", ["GET", "POST"])
    def test_another_page(self, method: str, origin: str) -> None:
        assert code(method, "/v1/drain", {**JSON, "origin": origin}) == "foreign_origin"

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    def test_what_a_browser_says_without_an_origin(self, site: str) -> None:
        """An image, a script or an event stream of another page: no answer it could read, but work it could cause."""
        headers = {**HERE, "sec-fetch-site": site, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
        assert code("GET", "/v1/plan", headers) == "foreign_origin"
        assert code("GET", "/", headers) == "foreign_origin"

    def test_a_link_to_the_console_opens_it_and_nothing_else(self) -> None:
        link = {
            **HERE,
            "sec-fetch-site": "cross-site",
            "sec-fetch-mode": "navigate",
            "sec-fetch-dest": "document",
        }
        assert code("GET", "/", link) is None
        assert code("GET", "/v1/plan", link) == "foreign_origin"
        assert code("GET", "/", {**link, "sec-fetch-dest": "iframe"}) == "foreign_origin"
        assert code("POST", "/", {**link, "content-type": "application/json"}) == "foreign_origin"


class TestWhatAFormCouldSend:
    @pytest.mark.parametrize(
        "kind",
        [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"],
    )
    def test_is_refused(self, kind: str | None) -> None:
        headers = HERE if kind is None else {**HERE, "content-type": kind}
        assert code("POST", "/v1/leave", headers) == "content_type"
        assert code("DELETE", "/v1/leave", headers) == "content_type"

    @pytest.mark.parametrize(
        "kind", ["application/json", "Application/JSON; charset=utf-8", "application/octet-stream"]
    )
    def test_what_needs_a_preflight_is_not(self, kind: str) -> None:
        assert code("POST", "/v1/leave", {**HERE, "content-type": kind}) is None


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=build_application(FakeNode()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7947") as client:
        yield client


@pytest.mark.parametrize(
    "path", ["/", "/v1/status", "/v1/nothing", "/console/main.js", "/console/nothing", "/healthz"]
)
async def test_every_answer_has_the_headers(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers["cache-control"] == ("no-cache" if path == "/console/main.js" else "no-store")


def test_the_policy_allows_nothing_from_elsewhere_and_nothing_inline() -> None:
    directives = dict(part.strip().split(" ", 1) for part in CONTENT_SECURITY_POLICY.split(";"))
    assert directives["default-src"] == directives["frame-ancestors"] == "'none'"
    assert directives["script-src"] == directives["style-src"] == directives["connect-src"] == "'self'"
    assert directives["img-src"] == "'self' data:"
    assert "unsafe" not in CONTENT_SECURITY_POLICY


async def test_what_is_refused_never_reaches_the_node(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/leave", content=b"{}", headers={"content-type": "text/plain"})
    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]
    rebound = await client.get("/v1/status", headers={"host": "evil.example:7947"})
    assert (rebound.status_code, rebound.json()["code"]) == (421, "wrong_host")
    assert rebound.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    preflight = await client.options(
        "/v1/drain", headers={"origin": "https://evil.example", "access-control-request-method": "POST"}
    )
    assert preflight.status_code == 403
    assert not [name for name in preflight.headers if name.startswith("access-control")]


async def test_a_header_said_twice_is_no_way_around(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/status", headers=[("host", "127.0.0.1:7947"), ("host", "evil.example")])
    assert answer.status_code == 421


async def test_the_guard_leaves_other_protocols_alone() -> None:
    """Lifespan messages have no headers."""
    from rota.http.guard import HttpGuard

    seen: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    async def nothing(*_: Any) -> Any:
        raise AssertionError("not called")

    await HttpGuard(inner, Access())({"type": "lifespan"}, nothing, nothing)
    assert seen == ["lifespan"]
