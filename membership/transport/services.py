"""Services: many protocols behind one TCP port, told apart by the stream's opening.

What it is: the handshake on both sides.  `open_service` is the client's; `Services` accepts, names the
refusals, bounds the number of connections, and hands each stream to the handler registered for it.
What it is not: the listening socket itself (`membership.transport.sockets`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from socket import AF_INET, AF_INET6, SOCK_STREAM
from typing import Final, TypeAlias

import trio

from membership.address import Address
from membership.frames import (
    FIXED_LENGTH,
    STREAM_FRAME_LIMIT,
    UNKNOWN_CLUSTER,
    UNPROTECTED,
    DropReason,
    Envelope,
    FrameError,
    Protection,
    StreamStatus,
    check_cluster,
    check_magic,
    decode_envelope,
    decode_service,
    encode_opening,
    envelope_length,
)
from membership.resolve import is_numeric
from membership.transport.errors import (
    ForeignClusterError,
    NotRotaError,
    PeerBusyError,
    PeerUnreachableError,
    StreamClosedError,
    StreamError,
    TransportError,
    UnknownServiceError,
    WrongVersionError,
)
from membership.transport.streams import FrameStream, LinkState, encode_frame, keep_alive

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[FrameStream], Awaitable[None]]
Connect: TypeAlias = Callable[[Address], Awaitable[trio.abc.Stream]]

CONNECT_TIMEOUT: Final = 5.0
"""Seconds, default: connecting and shaking hands together."""

OPENING_TIMEOUT: Final = 5.0
"""Seconds a client may take to say what it wants before its connection is dropped."""

CONNECTION_LIMIT: Final = 1024
"""Accepted connections at a time, default; about 10 kB each.  Further ones are told BUSY."""

_REFUSALS: Final[dict[DropReason, type[TransportError]]] = {
    DropReason.WRONG_VERSION: WrongVersionError,
    DropReason.FOREIGN_CLUSTER: ForeignClusterError,
}


async def connect_tcp(address: Address) -> trio.abc.Stream:
    """A TCP connection; host names are resolved.  Raises OSError."""
    if is_numeric(address.host):
        stream = await _connect_numeric(address)
    else:
        stream = await trio.open_tcp_stream(address.host, address.port)
    keep_alive(stream)
    return stream


async def _connect_numeric(address: Address) -> trio.SocketStream:
    # Half the cost of open_tcp_stream, which races the addresses that a name may stand for.
    connection = trio.socket.socket(AF_INET6 if ":" in address.host else AF_INET, SOCK_STREAM)
    try:
        await connection.connect(tuple(address))
    except BaseException:
        connection.close()
        raise
    return trio.SocketStream(connection)


async def open_service(
    address: Address,
    service: str,
    *,
    cluster_id: bytes | None = None,
    sender: Address | None = None,
    timeout: float = CONNECT_TIMEOUT,
    frame_limit: int = STREAM_FRAME_LIMIT,
    protection: Protection = UNPROTECTED,
    connect: Connect = connect_tcp,
    links: LinkState | None = None,
    early_frames: Sequence[bytes] = (),
) -> FrameStream:
    """Open a stream to `service` at `address`.

    `cluster_id`: the cluster the caller belongs to (16 bytes); None when it does not know, in which
    case the stream's `cluster_id` tells it the peer's.  `sender`: the caller's own advertised address,
    None for a client that is no member.  `timeout`: seconds for connection and handshake together.
    `early_frames` go with the opening, which saves a round trip; a peer that refuses drops them.
    Raises PeerUnreachableError, NotRotaError, WrongVersionError, ForeignClusterError,
    UnknownServiceError or PeerBusyError.
    """
    opening = encode_opening(Envelope(sender, cluster_id or UNKNOWN_CLUSTER), service)
    opening += b"".join(encode_frame(frame, protection) for frame in early_frames)
    stream: trio.abc.Stream | None = None
    try:
        with trio.fail_after(timeout):
            stream = await connect(address)
            await stream.send_all(opening)
            envelope, status, rest = await _read_answer(stream)
        check_cluster(envelope.cluster_id, cluster_id)
        _check_status(status, address, service)
    except BaseException as error:
        if stream is not None:
            await trio.aclose_forcefully(stream)
        if isinstance(error, FrameError):
            refusal = _REFUSALS.get(error.reason, NotRotaError)
            raise refusal(f"{address} {error}") from None
        if isinstance(error, trio.TooSlowError):
            waiting = "accepts connections but says nothing" if stream is not None else "does not answer"
            raise PeerUnreachableError(f"{address} {waiting} within {timeout:g} s") from None
        if isinstance(error, trio.BrokenResourceError):
            raise NotRotaError(f"{address} closed the connection before answering") from None
        if isinstance(error, OSError):
            raise PeerUnreachableError(f"{address} cannot be reached: {_system_text(error)}") from None
        raise
    return FrameStream(
        stream,
        service=service,
        peer=address,
        cluster_id=envelope.cluster_id,
        frame_limit=frame_limit,
        protection=protection,
        links=links,
        received=rest,
    )


def _system_text(error: OSError) -> str:
    """The system's own words, without Python's wrapping."""
    # trio gathers one error per address a name resolved to, and chains the group below its own.
    cause: BaseException | None = error.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    cause = cause if isinstance(cause, OSError) else error
    return cause.strerror or str(cause)


def _check_status(status: int, address: Address, service: str) -> None:
    if status == StreamStatus.UNKNOWN_SERVICE:
        raise UnknownServiceError(f"{address} does not offer the service {service!r} at the moment")
    if status == StreamStatus.FOREIGN_CLUSTER:
        raise ForeignClusterError(f"{address} belongs to another cluster; check the seeds and the cluster id")
    if status == StreamStatus.BUSY:
        raise PeerBusyError(f"{address} holds as many connections as it allows; retry later")
    if status != StreamStatus.OK:
        raise NotRotaError(f"{address} answered with status {status}, which is not rota's protocol")


async def _read_answer(stream: trio.abc.Stream) -> tuple[Envelope, int, bytes]:
    envelope, buffer = await _read_envelope(stream)
    await _read_until(stream, buffer, 1)
    return envelope, buffer[0], bytes(buffer[1:])


async def _read_envelope(stream: trio.abc.Stream) -> tuple[Envelope, bytearray]:
    """The envelope a stream starts with, and what was read beyond it.  Raises FrameError."""
    buffer = bytearray()
    await _read_until(stream, buffer, FIXED_LENGTH)
    length = envelope_length(buffer)
    await _read_until(stream, buffer, length)
    envelope = decode_envelope(bytes(buffer[:length]))
    del buffer[:length]
    return envelope, buffer


async def _read_until(stream: trio.abc.Stream, buffer: bytearray, length: int) -> None:
    """Read until `buffer` holds `length` bytes; judge the magic as soon as it can be."""
    while len(buffer) < length:
        data = await stream.receive_some(4096)
        if not data:
            raise trio.BrokenResourceError("ended within the opening")
        first = not buffer
        buffer += data
        if first and length == FIXED_LENGTH:
            check_magic(buffer)


class Services:
    """The accepting side: which services there are, and one handler call per stream."""

    def __init__(
        self,
        own: Callable[[], Envelope],
        *,
        counters: Counter[str],
        connection_limit: int = CONNECTION_LIMIT,
        frame_limit: int = STREAM_FRAME_LIMIT,
        protection: Protection = UNPROTECTED,
        links: LinkState | None = None,
    ) -> None:
        """`own`: this process's envelope as it is now (the cluster id becomes known late)."""
        self._own = own
        self._counters = counters
        self._connection_limit = connection_limit
        self._frame_limit = frame_limit
        self._protection = protection
        self._links = links
        self._handlers: dict[str, Handler] = {}
        self._connections = 0

    def register(self, service: str, handler: Handler) -> None:
        """Offer `service` from now on: every stream opened for it is one call of `handler`.

        The stream is closed when the handler returns.  Raises ValueError when the name is taken.
        """
        encode_opening(Envelope(None, UNKNOWN_CLUSTER), service)  # refuses a name that cannot be sent
        if service in self._handlers:
            raise ValueError(f"the service {service!r} is registered already; unregister it first")
        self._handlers[service] = handler

    def unregister(self, service: str) -> None:
        """Stop offering `service`; streams that are open stay."""
        self._handlers.pop(service, None)

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Shake hands on an accepted connection, then run the service's handler to its end."""
        if self._connections >= 2 * self._connection_limit:
            # Even saying BUSY costs memory for as long as the client keeps us waiting.
            self._counters["streams_dropped_flood"] += 1
            await trio.aclose_forcefully(stream)
            return
        self._connections += 1
        try:
            async with stream:
                opened = await self._shake_hands(stream)
                if opened is not None:
                    handler, frames = opened
                    await self._run(handler, frames)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            self._counters["streams_broken"] += 1
        finally:
            self._connections -= 1

    async def _shake_hands(self, stream: trio.abc.Stream) -> tuple[Handler, FrameStream] | None:
        try:
            with trio.fail_after(OPENING_TIMEOUT):
                envelope, buffer = await _read_envelope(stream)
                await _read_until(stream, buffer, 1)
                end = 1 + buffer[0]
                await _read_until(stream, buffer, end)
                service = decode_service(bytes(buffer[1:end]))
                status = self._status(envelope, service)
                await stream.send_all(self._own().encode() + bytes([status]))
        except FrameError as error:
            self._counters[f"streams_dropped_{error.reason}"] += 1
            if error.reason is DropReason.WRONG_VERSION:
                await stream.send_all(self._own().encode() + bytes([StreamStatus.OK]))  # shows our version
            return None
        except trio.TooSlowError:
            self._counters["streams_dropped_silent"] += 1
            return None
        if status is not StreamStatus.OK:
            self._counters[f"streams_refused_{status.name.lower()}"] += 1
            return None
        self._counters["streams_accepted"] += 1
        frames = FrameStream(
            stream,
            service=service,
            peer=envelope.sender,
            cluster_id=envelope.cluster_id,
            frame_limit=self._frame_limit,
            protection=self._protection,
            links=self._links,
            received=bytes(buffer[end:]),
        )
        return self._handlers[service], frames

    def _status(self, envelope: Envelope, service: str) -> StreamStatus:
        try:
            check_cluster(envelope.cluster_id, self._own().cluster_id)
        except FrameError:
            return StreamStatus.FOREIGN_CLUSTER
        if service not in self._handlers:
            return StreamStatus.UNKNOWN_SERVICE
        if self._connections > self._connection_limit:
            return StreamStatus.BUSY
        return StreamStatus.OK

    async def _run(self, handler: Handler, frames: FrameStream) -> None:
        """A handler's failure ends its stream, never the process."""
        try:
            async with frames:
                await handler(frames)
        except StreamClosedError:
            pass  # the client has what it wanted
        except StreamError:
            self._counters["streams_broken"] += 1
        except Exception:
            self._counters["handler_failures"] += 1
            log.exception("the handler of service %r failed; its stream was closed", frames.service)
