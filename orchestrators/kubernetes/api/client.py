"""Requests to the API server, JSON in and out, and watches line by line."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

import h11
import msgspec
import trio

from orchestrators.kubernetes.api.connections import PATIENCE, Connection, Connections
from orchestrators.kubernetes.api.credentials import Access
from orchestrators.kubernetes.errors import CredentialsError, RequestError

Json: TypeAlias = Mapping[str, Any]

log = logging.getLogger("rota.kubernetes")

UNAUTHORIZED: Final = 401
FAILED: Final = 400
"""From here on a status says no."""
JSON: Final = b"application/json"
PATCHES: Final = {
    "merge": b"application/merge-patch+json",
    "strategic": b"application/strategic-merge-patch+json",
}


class ApiClient:
    """Use as ``async with ApiClient(credentials.access) as client``.

    ``access`` is asked at the beginning, and again when the server no longer accepts what it said.  Requests raise
    UnreachableError when there is no answer, RequestError when the answer is no.
    """

    def __init__(self, access: Callable[[], Access]) -> None:
        self._ask = access
        self._access = access()
        self._connections = Connections(self._access)
        self._asking = trio.Lock()

    async def __aenter__(self) -> ApiClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        with trio.CancelScope(shield=True):
            await self._connections.close()

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
        self, method: str, target: str, body: Json | None = None, content_type: bytes = JSON
    ) -> dict[str, Any]:
        content = b"" if body is None else msgspec.json.encode(body)
        for is_last in (False, True):  # with other credentials once
            access, connections = self._access, self._connections
            head = _head(access, connections, method, target, content_type, len(content))
            async with connections.one() as connection:
                with trio.fail_after(PATIENCE):
                    status = await connection.ask(head, content)
                parts = []
                while (chunk := await connection.chunk()) is not None:
                    parts.append(chunk)
            if status != UNAUTHORIZED or is_last or not await self._has_other_access(access):
                break
        return _answer(status, b"".join(parts))

    @asynccontextmanager
    async def lines(
        self, path: str, *, silence: float, **parameters: str
    ) -> AsyncGenerator[AsyncGenerator[bytes]]:
        """A watch: its answer, line by line.  A connection that is silent for so many seconds is given up."""
        access, connections = self._access, self._connections
        head = _head(access, connections, "GET", _target(path, parameters), JSON, 0)
        async with connections.one() as connection:
            with trio.fail_after(PATIENCE):
                status = await connection.ask(head, b"")
            if status < FAILED:
                async with aclosing(_lines(connection, silence)) as lines:
                    yield lines
                return
            content = await connection.chunk() or b""
        if status == UNAUTHORIZED:
            await self._has_other_access(access)
        _answer(status, content)

    async def _has_other_access(self, refused: Access) -> bool:
        """Read the credentials again, unless somebody else has meanwhile; whether they say anything new."""
        async with self._asking:
            if self._access is refused:
                try:
                    found = await trio.to_thread.run_sync(self._ask)
                except CredentialsError as error:
                    log.warning("%s", error)
                    return False
                if _said(found) == _said(refused):
                    return False
                former, self._access, self._connections = self._connections, found, Connections(found)
                await former.close()
            return True


def _said(access: Access) -> tuple[object, ...]:
    return access.server, access.token, access.certificate


def _head(
    access: Access, connections: Connections, method: str, target: str, content_type: bytes, length: int
) -> h11.Request:
    headers = [(b"Host", connections.host), (b"Accept", JSON), (b"User-Agent", b"rota")]
    if access.token:
        headers.append((b"Authorization", f"Bearer {access.token}".encode()))
    if length:
        headers += [(b"Content-Type", content_type), (b"Content-Length", str(length).encode())]
    return h11.Request(method=method, target=connections.prefix + target, headers=headers)


def _target(path: str, parameters: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(parameters)}" if parameters else path


def _answer(status: int, content: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(content) if content else {}
    except msgspec.DecodeError:
        document = {"message": content[:200].decode(errors="replace").strip()}
    if not isinstance(document, dict):
        document, status = {"message": "the answer is no object"}, max(status, 502)
    if status >= FAILED:
        raise RequestError(status, str(document.get("reason", "")), str(document.get("message", "")))
    return document


async def _lines(connection: Connection, silence: float) -> AsyncGenerator[bytes]:
    begun = bytearray()
    while (chunk := await connection.chunk(silence)) is not None:
        begun += chunk
        *whole, rest = begun.split(b"\n")
        begun = bytearray(rest)
        for line in whole:
            if line:
                yield bytes(line)
