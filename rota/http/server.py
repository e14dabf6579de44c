"""Serving the HTTP interface on trio: HTTP/1.1 by hypercorn, over TCP with or without TLS, and over a Unix socket.

What is added to hypercorn are bounds: of connections, of the time that a handshake, a request's head and a reader who
does not read may take; and that the certificate can be replaced while it runs.  HTTP/2 and WebSockets are not offered:
they would bring queues of their own.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import socket
import stat
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final

import h11
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from membership import Address
from membership.transport.connections import ConnectionTable, remote_host
from rota.access.access import Access, Peer
from rota.errors import AgentError

log = logging.getLogger("rota")

CONNECTIONS: Final = 256
"""Over TCP, in all.  Those of the Unix socket are counted apart: an operator at the host gets in whatever comes."""
CONNECTIONS_OF_HOST: Final = 64
"""Of one address (of an IPv6 host, its /64); on loopback all have the same, and may have them all."""
SOCKET_CONNECTIONS: Final = 64
HANDSHAKE_PATIENCE: Final = 10.0
"""Seconds for TLS to begin."""
HEAD_PATIENCE: Final = 10.0
"""Seconds for the head of a request, and until the next one."""
SEND_PATIENCE: Final = 30.0
"""Seconds in which a reader must take `SENT_AT_ONCE` bytes."""
SENT_AT_ONCE: Final = 1 << 16
CLOSE_PATIENCE: Final = 2.0
LARGEST_HEAD: Final = 32 * 1024
QUEUED_CHUNKS: Final = 2
"""Of a body, 64 KiB each, while nobody reads it."""
BACKLOG: Final = 512


@dataclass(frozen=True, slots=True)
class UnixSocket:
    """``group``: whose members may use it, beside the agent's own user."""

    path: Path
    group: str = ""

    @classmethod
    def of(cls, path: Path | None, group: str) -> UnixSocket | None:
        """None where no path is given."""
        return None if path is None else cls(path, group)


async def reload_access(access: Access) -> None:
    """Take over what the files of tokens and the certificate say now; what is no good changes nothing."""
    try:
        await trio.to_thread.run_sync(access.reload)
    except AgentError as error:
        log.warning("api: tokens and certificate stay as they were: %s", error)


async def serve(
    application: Any,
    address: Address,
    access: Access | None = None,
    unix_socket: UnixSocket | None = None,
    *,
    or_any_port: bool = False,
    task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; ``started`` gets the bound address.  Raises :class:`AgentError` when one is taken.

    ``or_any_port``: where somebody has the port, take another.
    """
    access = access or Access()
    server = _Server(application, access)
    with _bound(address, or_any_port) as tcp, _bound_unix(unix_socket) as unix:
        here = tcp.getsockname()
        shared = access.tls is None  # then this is loopback, where everybody has one address
        tables = {tcp: server.table(CONNECTIONS, CONNECTIONS if shared else CONNECTIONS_OF_HOST)}
        if unix is not None:
            tables[unix] = server.table(SOCKET_CONNECTIONS, SOCKET_CONNECTIONS)
        access.connections = tuple(tables.values())
        async with trio.open_nursery() as nursery:
            for sock, table in tables.items():
                listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
                nursery.start_soon(trio.serve_listeners, server.handler(table), [listener])
            task_status.started(Address(here[0], here[1]))
            try:
                await trio.sleep_forever()
            finally:
                # Whoever does not read what is sent must not hold up the end.
                for table in tables.values():
                    for connection in table:
                        connection.give_way()


def _bound(address: Address, or_any_port: bool) -> socket.socket:
    try:
        try:
            return _listening(address)
        except OSError as error:
            if not or_any_port or error.errno != errno.EADDRINUSE:
                raise
            return _listening(Address(address.host, 0))
    except OSError as error:
        raise AgentError(
            f"api: cannot serve HTTP at {address}: {error.strerror}; give another address with --api HOST:PORT"
        ) from error


def _listening(address: Address) -> socket.socket:
    """Raises OSError."""
    sock = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


@contextmanager
def _bound_unix(unix: UnixSocket | None) -> Iterator[socket.socket | None]:
    """The socket at its path, which has its mode from the first moment on, and goes with the agent."""
    if unix is None:
        yield None
        return
    path = unix.path
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            _check_free(path)
            sock.setblocking(False)
            sock.bind(str(temporary))
            temporary.chmod(0o660 if unix.group else 0o600)
            if unix.group:
                shutil.chown(temporary, group=unix.group)
            sock.listen(BACKLOG)
            temporary.rename(path)
        except (OSError, LookupError) as error:
            temporary.unlink(missing_ok=True)
            reason = getattr(error, "strerror", None) or str(error)
            raise AgentError(f"api_socket: {path}: {reason}; give another path with --api-socket") from error
        try:
            yield sock
        finally:
            path.unlink(missing_ok=True)


def _check_free(path: Path) -> None:
    """What an agent left behind is replaced; what somebody answers at, or is no socket, is not.  Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(0, "there is a file that is no socket")
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(ConnectionRefusedError):
            probe.connect(str(path))
            raise FileExistsError(0, "another process answers there")


class _Server:
    """What all connections share."""

    def __init__(self, application: Any, access: Access) -> None:
        self.application = ASGIWrapper(application)
        self.access = access
        self.context = WorkerContext(None)
        self.config = Config()
        self.config.accesslog = self.config.errorlog = None
        self.config.include_server_header = False
        self.config.keep_alive_timeout = HEAD_PATIENCE
        self.config.h11_max_incomplete_size = LARGEST_HEAD

    def table(self, limit: int, host_limit: int) -> ConnectionTable[_Connection]:
        return ConnectionTable(limit, host_limit, self.access.counters, "http.connections_closed_for_others")

    def handler(self, table: ConnectionTable[_Connection]) -> Callable[[trio.SocketStream], Any]:
        async def handle(stream: trio.SocketStream) -> None:
            try:
                connection = _Connection(self, stream)
                self.access.counters["http.connections"] += 1
                if not table.admit(connection):
                    self.access.counters["http.connections_refused"] += 1
                    return
                try:
                    with connection.scope:
                        await connection.run()
                finally:
                    table.remove(connection)
                    connection.forget()
            except Exception:
                # A defect of one connection is no reason to stop answering the others.
                self.access.counters["http.connections_failed"] += 1
                log.exception("an HTTP connection failed unexpectedly")
            finally:
                stream.socket.close()

        return handle


class _Connection(TCPServer):
    """One connection: TLS, if there is any, then HTTP/1.1."""

    def __init__(self, server: _Server, stream: trio.SocketStream) -> None:
        self.scope = trio.CancelScope()
        self._accepted_at = trio.current_time()
        self.host = "" if stream.socket.family == socket.AF_UNIX else remote_host(stream)
        self._server = server
        self._transport = stream
        # The stream is not one of trio's, but has what hypercorn uses of those.
        bounded: Any = _Bounded(stream, None, self.give_way)
        super().__init__(server.application, server.config, server.context, {}, bounded)
        self.stream: Any = bounded

    @property
    def idle_since(self) -> float | None:
        """When it was accepted: also who has not asked for anything yet is idle, and the oldest gives way."""
        protocol = getattr(self, "protocol", None)
        is_busy = protocol is not None and protocol.stream is not None
        return None if is_busy else self._accepted_at

    def give_way(self) -> None:
        """Close it at once."""
        self.scope.cancel()
        self._transport.socket.close()  # also what hypercorn sends in a shield

    def forget(self) -> None:
        """Let go of all that knows this connection.  Thousands that know themselves by each other would wait for a
        full collection, which stops the agent for as long as it takes, and the others' probes wait."""
        vars(self).clear()

    async def run(self) -> None:
        access = self._server.access
        is_tcp = self._transport.socket.family != socket.AF_UNIX
        has_tls = is_tcp and access.tls is not None
        try:
            if has_tls:
                self.stream = _Bounded(self._transport, access.tls, self.give_way)
                if not await self.stream.shake_hands():
                    access.counters["http.handshakes_failed"] += 1
                    return
            async with _Tasks() as tasks:
                self._task_group = tasks
                client, here = self._ends() if is_tcp else (None, None)
                state = ConnectionState({} if is_tcp else {"peer": _user_of(self._transport)})
                self.protocol: Any = _Protocol(
                    self.app,
                    self.config,
                    self.context,
                    tasks,
                    state,
                    has_tls,
                    client,
                    here,
                    self.protocol_send,
                )
                self.protocol.counters = access.counters
                await self.idle_task.restart(tasks, self._idle_timeout)
                await self._read_data()
                await self.idle_task.stop()  # or one whose client is gone would be held until it ends
        except OSError:
            pass  # it is gone already
        finally:
            await self._close()

    def _ends(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """The client's and this agent's address.  Raises OSError when the client is gone."""
        (client, client_port), (here, port) = (
            name()[:2] for name in (self._transport.socket.getpeername, self._transport.socket.getsockname)
        )
        return (client, client_port), (here, port)


class _Protocol(H11Protocol):
    """HTTP/1.1, and no way out of it."""

    counters: Counter[str]

    async def _check_protocol(self, event: h11.Request) -> None:
        """HTTP/2 is not taken up."""

    async def _create_stream(self, request: h11.Request) -> None:
        """An ``Upgrade`` is not even seen."""
        headers = [(name, value) for name, value in request.headers.raw_items() if name.lower() != b"upgrade"]
        await super()._create_stream(
            h11.Request(
                method=request.method,
                headers=headers,
                target=request.target,
                http_version=request.http_version,
            )
        )

    async def _send_error_response(self, status_code: int) -> None:
        self.counters[f"http.refused_{status_code}"] += 1
        await super()._send_error_response(status_code)


class _Tasks(TaskGroup):
    """What runs for one connection; a request is fed by a queue that nobody waits at in vain."""

    async def spawn_app(self, app: Any, config: Config, scope: Any, send: Any) -> Any:
        feed = _Feed()

        async def fed(scope: Any, _receive: Any, send: Any, *more: Any) -> None:
            try:
                await app(scope, feed.receive, send, *more)
            finally:
                feed.end()

        wrapped: Any = fed
        await super().spawn_app(wrapped, config, scope, send)
        return feed.put


class _Feed:
    """What has come of a request's body.  hypercorn's own queue has whoever fills it wait for ever when the
    application answers without reading; here what nobody wants is thrown away."""

    def __init__(self) -> None:
        self._put, self._get = trio.open_memory_channel[Any](QUEUED_CHUNKS)

    async def put(self, message: Any) -> None:
        if message["type"] == "http.disconnect":
            self._put.close()
            return
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._put.send(message)

    async def receive(self) -> Any:
        try:
            return await self._get.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            return {"type": "http.disconnect"}

    def end(self) -> None:
        """The application has answered."""
        self._get.close()


class _Bounded:
    """A stream, with or without TLS, on which nothing takes for ever that waits for the peer."""

    def __init__(
        self, transport: trio.SocketStream, tls: SSLContext | None, abort: Callable[[], None]
    ) -> None:
        self._abort = abort
        self._stream: trio.SocketStream | trio.SSLStream[trio.SocketStream] = transport
        self._tls = None
        if tls is not None:
            self._tls = trio.SSLStream(transport, tls, server_side=True, https_compatible=True)
            self._stream = self._tls

    async def shake_hands(self) -> bool:
        if self._tls is not None:
            with trio.move_on_after(HANDSHAKE_PATIENCE), contextlib.suppress(trio.BrokenResourceError):
                await self._tls.do_handshake()
                return True
        return False

    async def receive_some(self, most: int) -> bytes:
        return bytes(await self._stream.receive_some(most))

    async def send_all(self, data: bytes) -> None:
        for start in range(0, len(data), SENT_AT_ONCE):
            with trio.move_on_after(SEND_PATIENCE) as patience:
                try:
                    await self._stream.send_all(data[start : start + SENT_AT_ONCE])
                except trio.BusyResourceError as error:
                    # It is being closed because what the peer sends makes no sense.
                    raise trio.BrokenResourceError("nothing can be sent any more") from error
            if patience.cancelled_caught:
                self._abort()
                raise trio.BrokenResourceError("the reader does not read")

    async def send_eof(self) -> None:
        if isinstance(self._stream, trio.SocketStream):
            await self._stream.send_eof()

    async def aclose(self) -> None:
        with trio.move_on_after(CLOSE_PATIENCE):
            await self._stream.aclose()


def _user_of(stream: trio.SocketStream) -> Peer:
    """Whose process is at the other end of a Unix socket, by the system's word."""
    raw = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", raw)
    return Peer("the Unix socket", _user_name(user))


def _user_name(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
