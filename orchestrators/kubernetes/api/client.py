"""Requests to the API server over one pool of connections, on trio.

httpcore alone, beneath httpx: a binding takes half of httpx's processor time, and a scheduler makes thousands.  JSON
goes through msgspec.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

import httpcore
import msgspec
import trio

from orchestrators.kubernetes.api.credentials import Access
from orchestrators.kubernetes.errors import RequestError, UnreachableError

Json: TypeAlias = Mapping[str, Any]

CONNECTIONS: Final = 64
"""At most, watches included."""
PATIENCE: Final = 30.0
"""Seconds for a connection, and for an answer."""
UNAUTHORIZED: Final = 401
PATCHES: Final = {
    "merge": b"application/merge-patch+json",
    "strategic": b"application/strategic-merge-patch+json",
}

_encode, _decode = msgspec.json.encode, msgspec.json.decode
_TIMES = {"connect": PATIENCE, "read": PATIENCE, "write": PATIENCE, "pool": None}


class ApiClient:
    """Use as ``async with ApiClient(credentials.access) as client``.

    ``access`` is asked at the beginning, and again when the server no longer accepts what it said.  Requests raise
    UnreachableError when there is no answer, RequestError when the answer is no.
    """

    def __init__(self, access: Callable[[], Access]) -> None:
        self._ask = access
        self._access = access()
        self._pool = _pool(self._access)
        self._asking = trio.Lock()

    @property
    def namespace(self) -> str:
        """The one that the credentials belong to."""
        return self._access.namespace

    async def __aenter__(self) -> ApiClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            await self._pool.aclose()

    async def get(self, path: str, **parameters: str) -> dict[str, Any]:
        return await self._request("GET", _target(path, parameters))

    async def create(self, path: str, body: Json) -> dict[str, Any]:
        return await self._request("POST", path, body)

    async def replace(self, path: str, body: Json) -> dict[str, Any]:
        return await self._request("PUT", path, body)

    async def patch(self, path: str, body: Json, kind: str = "merge") -> dict[str, Any]:
        return await self._request("PATCH", path, body, PATCHES[kind])

    async def delete(self, path: str) -> dict[str, Any]:
        return await self._request("DELETE", path)

    async def _request(
        self, method: str, target: str, body: Json | None = None, content_type: bytes = b"application/json"
    ) -> dict[str, Any]:
        content = None if body is None else _encode(body)
        for last in (False, True):
            access = self._access
            headers = self._headers(access, content_type)
            try:
                response = await self._pool.request(
                    method, access.server + target, headers=headers, content=content,
                    extensions=_extensions(access, _TIMES),
                )  # fmt: skip
            except _NO_ANSWER as error:
                raise UnreachableError(_no_answer(access, error)) from error
            if response.status != UNAUTHORIZED or last:
                break
            await self._ask_again(access)
        return _answer(response.status, response.content)

    @asynccontextmanager
    async def lines(
        self, path: str, *, silence: float, **parameters: str
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """A watch: its answer, line by line.  A connection that is silent for so many seconds is given up."""
        access = self._access
        try:
            async with self._pool.stream(
                "GET",
                access.server + _target(path, parameters),
                headers=self._headers(access, b"application/json"),
                extensions=_extensions(access, {**_TIMES, "read": silence}),
            ) as response:
                if response.status == UNAUTHORIZED:
                    await self._ask_again(access)
                if response.status >= 400:
                    _answer(response.status, await response.aread())
                async with aclosing(_lines(response)) as lines:
                    yield lines
        except _NO_ANSWER as error:
            raise UnreachableError(_no_answer(access, error)) from error

    def _headers(self, access: Access, content_type: bytes) -> list[tuple[bytes, bytes]]:
        found = [
            (b"Accept", b"application/json"),
            (b"Content-Type", content_type),
            (b"User-Agent", b"rota"),
        ]
        return [*found, (b"Authorization", f"Bearer {access.token}".encode())] if access.token else found

    async def _ask_again(self, refused: Access) -> None:
        """Read the credentials again, unless somebody else has meanwhile."""
        async with self._asking:
            if self._access is refused:
                self._access = await trio.to_thread.run_sync(self._ask)
                former, self._pool = self._pool, _pool(self._access)
                await former.aclose()


_NO_ANSWER = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    ssl.SSLError,
)


def _pool(access: Access) -> httpcore.AsyncConnectionPool:
    sizes: dict[str, Any] = {"max_connections": CONNECTIONS, "max_keepalive_connections": CONNECTIONS}
    if access.proxy:
        return httpcore.AsyncHTTPProxy(access.proxy, ssl_context=access.tls, **sizes)
    return httpcore.AsyncConnectionPool(ssl_context=access.tls, **sizes)


def _extensions(access: Access, times: Mapping[str, float | None]) -> dict[str, Any]:
    found: dict[str, Any] = {"timeout": dict(times)}
    return {**found, "sni_hostname": access.server_name} if access.server_name else found


def _target(path: str, parameters: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(parameters)}" if parameters else path


def _no_answer(access: Access, error: Exception) -> str:
    return f"{access.server} does not answer: {str(error) or type(error).__name__}"


def _answer(status: int, content: bytes) -> dict[str, Any]:
    try:
        document = _decode(content) if content else {}
    except msgspec.DecodeError:
        document = {"message": content[:200].decode(errors="replace").strip()}
    if not isinstance(document, dict):
        document = {"message": "the answer is no object"}
        status = max(status, 502)
    if status >= 400:
        raise RequestError(status, str(document.get("reason", "")), str(document.get("message", "")))
    return document


async def _lines(response: httpcore.Response) -> AsyncGenerator[bytes]:
    begun = bytearray()
    chunks: Any = response.aiter_stream()
    async with aclosing(chunks):
        async for chunk in chunks:
            begun += chunk
            *whole, rest = begun.split(b"\n")
            begun = bytearray(rest)
            for line in whole:
                if line:
                    yield bytes(line)
