"""Connections to the API server: HTTP/1.1 by h11 on trio, kept and used again.

Measured on 400 bindings over 32 connections: httpx takes 1.2 s of the processor and httpcore as much, this 0.2 s.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import h11
import trio

from orchestrators.kubernetes.api.credentials import Access
from orchestrators.kubernetes.errors import UnreachableError

CONNECTIONS: Final = 64
"""At most, watches included."""
PATIENCE: Final = 30.0
"""Seconds for a connection, and for the head of an answer."""
IDLE: Final = 60.0
"""Seconds for which an unused connection is kept; the server closes it after 90."""
CHUNK: Final = 1 << 16

Stream = trio.SSLStream[trio.SocketStream] | trio.SocketStream


class Connection:
    """One exchange after the other: ``ask``, then ``chunks`` to the end."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._state = h11.Connection(h11.CLIENT)
        self.used_at = trio.current_time()

    async def ask(self, request: h11.Request, body: bytes) -> int:
        """Send a request; the status of the answer."""
        send: Callable[..., Any] = self._state.send
        data = [send(request), send(h11.Data(data=body)) if body else b"", send(h11.EndOfMessage())]
        await self._stream.send_all(b"".join(data))
        while not isinstance(event := await self._next(), h11.Response):
            pass
        return event.status_code

    async def chunk(self, silence: float = PATIENCE) -> bytes | None:
        """More of the answer; None at its end.  Raises trio.TooSlowError after so many seconds without any."""
        with trio.fail_after(silence):
            event = await self._next()
        return bytes(event.data) if isinstance(event, h11.Data) else None

    async def _next(self) -> Any:
        while (event := self._state.next_event()) is h11.NEED_DATA:
            self._state.receive_data(bytes(await self._stream.receive_some(CHUNK)))
        if isinstance(event, h11.ConnectionClosed):
            raise h11.RemoteProtocolError("the connection was closed")
        return event

    def may_be_used_again(self) -> bool:
        """Whether the last exchange is over, and another one may begin."""
        if self._state.our_state is not h11.DONE or self._state.their_state is not h11.DONE:
            return False
        self._state.start_next_cycle()
        self.used_at = trio.current_time()
        return True

    async def close(self) -> None:
        await trio.aclose_forcefully(self._stream)


class Connections:
    """To one server, with its credentials."""

    def __init__(self, access: Access) -> None:
        parts = urlsplit(access.server)
        self.prefix = parts.path
        self._access = access
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if access.tls else 80)
        self.host = parts.netloc.encode()
        self._limit = trio.CapacityLimiter(CONNECTIONS)
        self._idle: list[Connection] = []

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[Connection]:
        """A connection for one exchange.  Raises UnreachableError, also for what goes wrong inside."""
        async with self._limit:
            connection: Connection | None = None
            again = False
            try:
                connection = await self._taken()
                yield connection
                again = connection.may_be_used_again()
            except (
                OSError,
                trio.BrokenResourceError,
                trio.TooSlowError,
                h11.ProtocolError,
                ssl.SSLError,
            ) as error:
                await self.close()  # the others lead to the same server
                what = str(error.__cause__ or error) or type(error).__name__
                raise UnreachableError(f"{self._access.server} does not answer: {what}") from error
            finally:
                if connection is not None:
                    if again:
                        self._idle.append(connection)
                    else:
                        await connection.close()

    async def _taken(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if trio.current_time() - connection.used_at < IDLE:
                return connection
            await connection.close()
        with trio.fail_after(PATIENCE):
            return Connection(await self._stream())

    async def _stream(self) -> Stream:
        stream = await trio.open_tcp_stream(self._host, self._port)
        if self._access.tls is None:
            return stream
        name = self._access.server_name or self._host
        secured = trio.SSLStream(stream, self._access.tls, server_hostname=name, https_compatible=True)
        try:
            await secured.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return secured

    async def close(self) -> None:
        """Those that are not in use."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()
