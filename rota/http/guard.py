"""Who may speak to the HTTP interface: the operator's own tools and the console, no other page of the browser.

On loopback the interface asks for no password, and elsewhere a browser adds the session's cookie by itself, so any web
page that the operator has open could try to reach it.  Three checks keep those out, on every request: the name it was
asked under (a page whose own name resolves to this agent's address comes under that name), where it came from (what
browsers say in ``Origin`` and ``Sec-Fetch-Site``), and for whatever changes something a content type that no page can
send elsewhere without asking first.

It is no authentication: that is ``rota.access``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.access.access import Access
from rota.access.host_names import LOOPBACK, HostNames

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
"""Of every answer."""
STRICT_TRANSPORT_SECONDS = 365 * 24 * 3600
READING = frozenset({"GET", "HEAD"})
CONTENT_TYPES = frozenset({"application/json", "application/octet-stream"})
"""Of requests that change something.  A page of another origin may send none of them without a preflight, which
nobody answers here."""


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    code: str
    text: str


def refusal(
    method: str, path: str, headers: Mapping[str, str], names: HostNames = LOOPBACK, scheme: str = "http"
) -> Refusal | None:
    """Why this request is not answered, or None.  ``headers`` with names in lower case."""
    host = headers.get("host", "")
    if not names.allows(host):
        text = f"this agent does not answer as {host[:80]!r}; ask for {names}"
        return Refusal(421, "wrong_host", text)
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"{scheme}://{host.lower()}":
        text = f"a page of {origin[:80]!r} may not use this agent; open the console at {scheme}://{host}/"
        return Refusal(403, "foreign_origin", text)
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not _opens_the_console(
        method, path, headers
    ):
        return Refusal(403, "foreign_origin", "another page may not use this agent; open the console instead")
    if method not in READING:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in CONTENT_TYPES:
            text = (
                f"send Content-Type: application/json (a record: application/octet-stream), not {kind[:80]!r}"
            )
            return Refusal(415, "content_type", text)
    return None


def _opens_the_console(method: str, path: str, headers: Mapping[str, str]) -> bool:
    """A link to the console, followed from anywhere: opened as a page of its own, not as part of another."""
    return (
        method == "GET"
        and path == "/"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


class HttpGuard:
    """Refuses what must not pass, counts what is refused, and gives every answer the headers above."""

    def __init__(self, application: ASGIApp, access: Access) -> None:
        self._application = application
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        counters = self._access.counters
        counters["http.requests"] += 1

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                _count(counters, message["status"])
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if scope["scheme"] == "https":
                    headers["strict-transport-security"] = f"max-age={STRICT_TRANSPORT_SECONDS}"
                headers.setdefault("cache-control", "no-store")
            await send(message)

        given: dict[str, str] = {}
        for raw_name, raw_value in scope["headers"]:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            # Said twice: neither can be trusted, and together they are no value that passes.
            given[name] = f"{given[name]}, {value}" if name in given else value
        refused = refusal(scope["method"], scope["path"], given, self._access.names, scope["scheme"])
        if refused is None:
            await self._application(scope, receive, send_guarded)
            return
        body = json.dumps({"error": refused.text, "code": refused.code}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send_guarded({"type": "http.response.start", "status": refused.status, "headers": headers})
        await send_guarded({"type": "http.response.body", "body": body})


def _count(counters: Counter[str], status: int) -> None:
    if 400 <= status < 500:
        counters[f"http.refused_{status}"] += 1
