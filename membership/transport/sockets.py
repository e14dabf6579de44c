"""The endpoint on real sockets: one UDP socket and one TCP listener on the same port.

Datagrams are non-blocking. Draining all that has arrived at each wake-up costs about a fifth of a task switch per
datagram. Sending never waits; what the system cannot take now is lost, which the protocol above survives.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import socket
from collections import Counter
from typing import Final

import trio

from membership.address import Address
from membership.transport.endpoint import Accept
from membership.transport.errors import BindError
from membership.transport.resolve import DestinationCache, is_loopback
from membership.transport.services import connect_tcp
from membership.transport.streams import keep_alive
from membership.wire.frames import DATAGRAM_LIMIT

_RECEIVE_BUFFER: Final = 4 * 1024 * 1024
"""Bytes asked of the system, which grants what it allows; a seed's bootstrap comes in bursts."""

_BACKLOG: Final = 512
_PORT_ATTEMPTS: Final = 16

_SYSTEM_IS_FULL: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_ACCEPT_PAUSE: Final = 0.1
"""Seconds until the next attempt after one of these: the listener stays readable, and there is nothing to wait on."""
_EPISODE: Final = 60.0
"""Seconds without a failure to accept after which the next one is worth a line in the log again."""

log = logging.getLogger("membership")


class SocketNetwork:
    """The network of the operating system."""

    async def bind(self, listen: Address, counters: Counter[str]) -> SocketEndpoint:
        """An endpoint at `listen`; a host name is resolved to one address. Raises BindError."""
        try:
            found = await trio.socket.getaddrinfo(
                listen.host, listen.port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
            )
        except OSError as error:
            raise BindError(
                f"cannot listen at {listen}: the host cannot be resolved ({error.strerror})"
            ) from None
        family, _, _, _, where = found[0]
        for attempt in range(_PORT_ATTEMPTS):
            try:
                return SocketEndpoint(*_bind_pair(family, str(where[0]), listen.port), counters)
            except OSError as error:
                # A free UDP port may be a taken TCP port; with port 0 another one can be drawn.
                if listen.port != 0 or attempt == _PORT_ATTEMPTS - 1:
                    raise BindError(f"cannot listen at {listen}: {_advice(error)}") from None
        raise AssertionError("unreachable")


def _advice(error: OSError) -> str:
    text = error.strerror or str(error)
    if "in use" in text:
        return f"{text}; stop the process that has it, or choose another port"
    if "assign" in text:
        return f"{text}; give an address of this machine"
    return text


def _bind_pair(family: int, host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """A UDP socket and a listening TCP socket on one port. Raises OSError."""
    with contextlib.ExitStack() as undo:
        datagrams = undo.enter_context(socket.socket(family, socket.SOCK_DGRAM))
        listener = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
        for each in (datagrams, listener):
            each.setblocking(False)
            if family == socket.AF_INET6:
                # [::] serves IPv4 too, whatever the system's default says.
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        datagrams.bind((host, port))
        listener.bind((host, datagrams.getsockname()[1]))
        listener.listen(_BACKLOG)
        undo.pop_all()
    return datagrams, listener


class SocketEndpoint:
    """See `Endpoint`."""

    def __init__(self, datagrams: socket.socket, listener: socket.socket, counters: Counter[str]) -> None:
        host, port = datagrams.getsockname()[:2]
        self.address = Address(host, port)
        self.exposed = not is_loopback(host)
        self._datagrams = datagrams
        self._listener = listener
        self._counters = counters
        self._accept_failed_at = -math.inf
        self._destinations = DestinationCache(datagrams.family, counters)

    def send(self, datagram: bytes, destination: Address) -> bool:
        """Send, or drop when the system's buffer is full or it refuses the destination."""
        where = self._destinations.lookup(destination)
        if where is None:
            self._counters["datagrams_unresolved"] += 1
            return False
        try:
            self._datagrams.sendto(datagram, where)
        except BlockingIOError:
            self._counters["datagrams_congested"] += 1
            return False
        except OSError:
            # ICMP errors of earlier datagrams and unreachable networks surface here: loss like any other.
            self._counters["datagrams_unsendable"] += 1
            return False
        return True

    def receive(self) -> bytes | None:
        """The next datagram that has arrived."""
        while True:
            try:
                return self._datagrams.recv(DATAGRAM_LIMIT + 1)
            except BlockingIOError:
                return None
            except OSError:
                if self._datagrams.fileno() == -1:
                    return None
                self._counters["icmp_errors"] += 1

    def fileno(self) -> int | None:
        """The descriptor of the datagram socket; None when it is closed."""
        descriptor = self._datagrams.fileno()
        return None if descriptor == -1 else descriptor

    async def wait_readable(self) -> None:
        """Wait for the socket. Returns at once, for ever, when it was closed."""
        try:
            await trio.lowlevel.wait_readable(self._datagrams)
        except (trio.ClosedResourceError, ValueError, OSError):
            await trio.lowlevel.checkpoint()

    async def connect(self, destination: Address) -> trio.abc.Stream:
        """A TCP connection."""
        return await connect_tcp(destination)

    async def run(self, accept: Accept) -> None:
        """Serve the listener and the resolver of destinations; nothing if it was closed before this began."""
        if self._listener.fileno() == -1:
            return

        async def accepted(stream: trio.SocketStream) -> None:
            with contextlib.suppress(OSError):  # the peer may be gone already
                keep_alive(stream)
            await accept(stream)

        listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._listener))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._destinations.run)
                while True:
                    nursery.start_soon(accepted, await self._accept(listener))
        finally:
            self.close()

    async def _accept(self, listener: trio.SocketListener) -> trio.SocketStream:
        """The next connection; what the system lacks to accept it is waited for."""
        while True:
            try:
                return await listener.accept()
            except trio.ClosedResourceError:
                # Who closes the sockets may have cancelled this task as well, which then is what ends it.
                await trio.lowlevel.checkpoint()
                raise
            except OSError as error:
                if error.errno not in _SYSTEM_IS_FULL:
                    raise
                self._counters["accepts_failed"] += 1
                now = trio.current_time()
                if now - self._accept_failed_at > _EPISODE:
                    log.warning(
                        "%s: cannot accept connections: %s; they wait, and further failures are only counted",
                        self.address, error.strerror,
                    )  # fmt: skip
                self._accept_failed_at = now
            await trio.sleep(_ACCEPT_PAUSE)

    def close(self) -> None:
        """Close both sockets; whoever waits on them wakes."""
        for each in (self._datagrams, self._listener):
            if each.fileno() != -1:
                trio.lowlevel.notify_closing(each)
                each.close()
