"""Services: many protocols behind one TCP port, told apart by the stream's opening.

The handshake on both sides. `open_service` is the client's. `Services` accepts, names the refusals, bounds connections
in number and time, and hands each stream to the handler registered for it.

An address says where, never who: whoever means a member names its incarnation, and another process that has its
address refuses before it looks at anything else.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from socket import AF_INET, AF_INET6, SOCK_STREAM, gaierror
from typing import Final, TypeAlias

import trio

from membership.address import Address
from membership.settings import Settings
from membership.transport.connections import Connection, Connections, remote_host
from membership.transport.drops import Drops
from membership.transport.errors import (
    ForeignClusterError,
    KeyMismatchError,
    NotRotaError,
    OtherMemberError,
    PeerBusyError,
    PeerUnreachableError,
    StreamClosedError,
    StreamError,
    TransportError,
    UnknownKeyError,
    UnknownServiceError,
    WrongVersionError,
)
from membership.transport.frame_memory import frame_memory
from membership.transport.resolve import is_numeric
from membership.transport.streams import FrameStream, LinkState, keep_alive
from membership.wire.frames import (
    FIXED_LENGTH,
    STREAM_FRAME_LIMIT,
    UNKNOWN_CLUSTER,
    DropReason,
    Envelope,
    FrameError,
    StreamStatus,
    Wanted,
    check_cluster,
    check_magic,
    check_sealed,
    decode_envelope,
    decode_service,
    encode_opening,
    envelope_length,
    frame_prefix,
)
from membership.wire.protection import UNPROTECTED, Protection, StreamAcceptance, StreamHello

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[FrameStream], Awaitable[None]]
Connect: TypeAlias = Callable[[Address], Awaitable[trio.abc.Stream]]

CONNECT_TIMEOUT: Final = 5.0
"""Seconds, default: connecting and shaking hands together."""

OPENING_TIMEOUT: Final = 5.0
"""Seconds a client may take to say what it wants before its connection is dropped."""

_DEFAULTS: Final = Settings()

_REFUSALS: Final[dict[DropReason, type[TransportError]]] = {
    DropReason.WRONG_VERSION: WrongVersionError,
    DropReason.FOREIGN_CLUSTER: ForeignClusterError,
    DropReason.NOT_ENCRYPTED: KeyMismatchError,
    DropReason.ENCRYPTED: KeyMismatchError,
    DropReason.UNKNOWN_KEY: KeyMismatchError,
    DropReason.FORGED: KeyMismatchError,
}

_KEY_STATUS: Final[dict[DropReason, StreamStatus]] = {
    DropReason.NOT_ENCRYPTED: StreamStatus.KEY_REQUIRED,
    DropReason.ENCRYPTED: StreamStatus.UNKNOWN_KEY,
    DropReason.UNKNOWN_KEY: StreamStatus.UNKNOWN_KEY,
    DropReason.REMOVED_KEY: StreamStatus.UNKNOWN_KEY,
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
    incarnation: bytes | None = None,
    cluster_id: bytes | None = None,
    sender: Address | None = None,
    timeout: float = CONNECT_TIMEOUT,
    frame_limit: int = STREAM_FRAME_LIMIT,
    protection: Protection = UNPROTECTED,
    connect: Connect = connect_tcp,
    links: LinkState | None = None,
    early_frames: Sequence[bytes] = (),
    counters: Counter[str] | None = None,
) -> FrameStream:
    """Open a stream to `service` at `address`.

    `incarnation`: of the member that is meant (16 bytes); another process at its address refuses, unless
    it is of a version that does not know of this.  `cluster_id`: the cluster the caller belongs to (16
    bytes); None when it does not know, in which case the stream's `cluster_id` tells it the peer's.
    `sender`: the caller's own advertised address, None for a client that is no member.  `timeout`: seconds
    for connection and handshake together.  `early_frames` go with the opening, which saves a round trip; a
    peer that refuses drops them.  With keys they follow the answer, since what goes before it could be
    replayed.
    Raises PeerUnreachableError, NotRotaError, WrongVersionError, ForeignClusterError, OtherMemberError,
    KeyMismatchError, UnknownServiceError or PeerBusyError.
    """
    envelope = Envelope(sender, cluster_id or UNKNOWN_CLUSTER, protection.sealed)
    begin = partial(
        _open,
        address,
        service,
        cluster_id=cluster_id,
        timeout=timeout,
        deadline=trio.current_time() + timeout,
        frame_limit=frame_limit,
        protection=protection,
        connect=connect,
        links=links,
        early_frames=early_frames,
        counters=counters,
    )
    if incarnation is not None:
        # An earlier version takes the whole for the name of a service that it does not have.
        with contextlib.suppress(UnknownServiceError):
            return await begin(encode_opening(envelope, service, incarnation))
    return await begin(encode_opening(envelope, service))


async def _open(
    address: Address,
    service: str,
    opening: bytes,
    *,
    cluster_id: bytes | None,
    timeout: float,
    deadline: float,
    frame_limit: int,
    protection: Protection,
    connect: Connect,
    links: LinkState | None,
    early_frames: Sequence[bytes],
    counters: Counter[str] | None,
) -> FrameStream:
    """Open a stream that begins with these bytes."""
    early = b"" if protection.sealed else b"".join(frame_prefix(len(f)) + f for f in early_frames)

    async def shake_hands(hello: StreamHello) -> FrameStream:
        stream: trio.abc.Stream | None = None
        try:
            with trio.fail_at(deadline):
                stream = await connect(address)
                await stream.send_all(opening + hello.hello + early)
                envelope, answer, buffer = await _read_answer(stream)
                check_cluster(envelope.cluster_id, cluster_id)
                _check_status(answer[-1], address, service)
                check_sealed(envelope, protection)
                await _read_until(stream, buffer, protection.answer_length)
                proof = bytes(buffer[: protection.answer_length])
                seal, confirmation = hello.complete(opening + hello.hello, answer, proof)
                if confirmation:
                    await stream.send_all(confirmation)
        except BaseException as error:
            if stream is not None:
                await trio.aclose_forcefully(stream)
            raise _opening_error(error, address, stream is not None, timeout) from None
        return FrameStream(
            stream,
            service=service,
            peer=address,
            cluster_id=envelope.cluster_id,
            frame_limit=frame_limit,
            seal=seal,
            links=links,
            received=bytes(buffer[protection.answer_length :]),
            counters=counters,
        )

    *others, last = protection.hellos(address)
    for hello in others:
        with contextlib.suppress(UnknownKeyError):  # the peer may hold another of this process's keys
            return await _send_early(await shake_hands(hello), protection, early_frames, deadline)
    return await _send_early(await shake_hands(last), protection, early_frames, deadline)


async def _send_early(
    stream: FrameStream, protection: Protection, early_frames: Sequence[bytes], deadline: float
) -> FrameStream:
    if protection.sealed:
        try:
            with trio.fail_at(deadline):
                for frame in early_frames:
                    await stream.send(frame)
        except (StreamError, trio.TooSlowError) as error:
            raise PeerUnreachableError(f"{stream.peer} accepted the stream and then took nothing") from error
    return stream


def _opening_error(error: BaseException, address: Address, connected: bool, timeout: float) -> BaseException:
    """What to raise when a stream could not be opened."""
    if isinstance(error, FrameError):
        return _REFUSALS.get(error.reason, NotRotaError)(f"{address} {error}")
    if isinstance(error, trio.TooSlowError):
        waiting = "accepts connections but says nothing" if connected else "does not answer"
        return PeerUnreachableError(f"{address} {waiting} within {timeout:g} s")
    if isinstance(error, trio.BrokenResourceError):
        return NotRotaError(f"{address} closed the connection before answering")
    if isinstance(error, OSError):
        return PeerUnreachableError(f"{address} cannot be reached: {_system_text(error)}")
    return error


def _system_text(error: OSError) -> str:
    """The system's own words, without Python's wrapping."""
    # trio gathers one error per address a name resolved to, and chains the group below its own.
    cause: BaseException | None = error.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    cause = cause if isinstance(cause, OSError) else error
    if cause.errno is not None and cause.errno in errno.errorcode and not isinstance(cause, gaierror):
        return os.strerror(cause.errno)
    return cause.strerror or str(cause)


def _check_status(status: int, address: Address, service: str) -> None:
    if status == StreamStatus.UNKNOWN_SERVICE:
        raise UnknownServiceError(f"{address} does not offer the service {service!r} at the moment")
    if status == StreamStatus.FOREIGN_CLUSTER:
        raise ForeignClusterError(f"{address} belongs to another cluster; check the seeds and the cluster id")
    if status == StreamStatus.OTHER_MEMBER:
        raise OtherMemberError(
            f"another process answers at {address} than the member that is meant; retry later"
        )
    if status == StreamStatus.KEY_REQUIRED:
        raise KeyMismatchError(f"{address} accepts only what is encrypted; give this process the key file")
    if status == StreamStatus.UNKNOWN_KEY:
        raise UnknownKeyError(
            f"{address} does not hold the key this process uses; compare the key files of both"
        )
    if status == StreamStatus.BUSY:
        raise PeerBusyError(f"{address} holds as many connections as it allows; retry later")
    if status != StreamStatus.OK:
        raise NotRotaError(f"{address} answered with status {status}, which is not rota's protocol")


async def _read_answer(stream: trio.abc.Stream) -> tuple[Envelope, bytes, bytearray]:
    """The peer's envelope, its bytes with the status at their end, and what was read beyond it."""
    buffer = bytearray()
    envelope, length = await _read_envelope(stream, buffer)
    await _read_until(stream, buffer, length + 1)
    head = bytes(buffer[: length + 1])
    del buffer[: length + 1]
    return envelope, head, buffer


async def _read_envelope(stream: trio.abc.Stream, buffer: bytearray) -> tuple[Envelope, int]:
    """Read the envelope a stream starts with into `buffer`, and its length.  Raises FrameError."""
    await _read_until(stream, buffer, FIXED_LENGTH)
    length = envelope_length(buffer)
    await _read_until(stream, buffer, length)
    return decode_envelope(bytes(buffer[:length])), length


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
        incarnation: Callable[[], bytes | None] = lambda: None,
        counters: Counter[str],
        frame_limit: int = STREAM_FRAME_LIMIT,
        protection: Protection = UNPROTECTED,
        links: LinkState | None = None,
        settings: Settings = _DEFAULTS,
    ) -> None:
        """`own`: this process's envelope as it is now (the cluster id becomes known late).

        `incarnation`: which member this process is now, None for none.
        """
        self._own = own
        self._incarnation = incarnation
        self._counters = counters
        self._drops = Drops(counters, own().sender)
        self._settings = settings
        self._frame_limit = frame_limit
        self._protection = protection
        self._links = links
        self._handlers: dict[str, Handler] = {}
        self._connections = Connections(settings.connections, counters)

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
        connection = self._connections.admit(remote_host(stream))
        try:
            with connection.scope:
                async with stream:
                    opened = await self._shake_hands(stream, connection)
                    if opened is not None:
                        handler, frames = opened
                        await self._run(handler, frames)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            self._counters["streams_broken"] += 1
        finally:
            self._connections.remove(connection)

    async def _shake_hands(
        self, stream: trio.abc.Stream, connection: Connection
    ) -> tuple[Handler, FrameStream] | None:
        buffer = bytearray()
        try:
            with trio.fail_after(OPENING_TIMEOUT):
                opening, envelope, wanted = await self._read_opening(stream, buffer)
                status, acceptance = self._judge(envelope, wanted, opening, connection)
                answer = self._own().encode() + bytes([status])
                if acceptance is None:
                    await stream.send_all(answer)
                    self._counters[f"streams_refused_{status.name.lower()}"] += 1
                    return None
                handler = self._handlers[wanted.service]
                await stream.send_all(answer + acceptance.answer(opening, answer))
                length = self._protection.confirmation_length
                await _read_until(stream, buffer, length)
                seal = acceptance.confirm(bytes(buffer[:length]))
                del buffer[:length]
        except FrameError as error:
            self._drops.count("streams", error)
            if error.reason is DropReason.WRONG_VERSION:
                await stream.send_all(self._own().encode() + bytes([StreamStatus.OK]))  # shows our version
            elif error.reason in _KEY_STATUS:
                await stream.send_all(self._own().encode() + bytes([_KEY_STATUS[error.reason]]))
            return None
        except trio.TooSlowError:
            self._counters["streams_dropped_silent"] += 1
            return None
        frames = FrameStream(
            stream,
            service=wanted.service,
            peer=envelope.sender,
            cluster_id=envelope.cluster_id,
            frame_limit=self._frame_limit,
            seal=seal,
            links=self._links,
            received=bytes(buffer),
            counters=self._counters,
            idle_timeout=self._settings.idle_timeout,
            frame_timeout=self._settings.frame_timeout,
            memory=frame_memory(),
        )
        if not self._connections.establish(connection, frames):
            self._counters["streams_refused_busy"] += 1
            return None
        self._counters["streams_accepted"] += 1
        return handler, frames

    async def _read_opening(
        self, stream: trio.abc.Stream, buffer: bytearray
    ) -> tuple[bytes, Envelope, Wanted]:
        """All bytes of a client's opening, and what they say; `buffer` keeps what came after them."""
        envelope, length = await _read_envelope(stream, buffer)
        check_sealed(envelope, self._protection)
        await _read_until(stream, buffer, length + 1)
        end = length + 1 + buffer[length]
        await _read_until(stream, buffer, end + self._protection.hello_length)
        wanted = decode_service(bytes(buffer[length + 1 : end]))
        opening = bytes(buffer[: end + self._protection.hello_length])
        del buffer[: len(opening)]
        return opening, envelope, wanted

    def _judge(
        self, envelope: Envelope, wanted: Wanted, opening: bytes, connection: Connection
    ) -> tuple[StreamStatus, StreamAcceptance | None]:
        """The answer to an opening.  Raises FrameError when it is under a key that is not held here."""
        hello = opening[len(opening) - self._protection.hello_length :]
        acceptance = self._protection.accept(hello)
        status = self._status(envelope, wanted, connection)
        return status, acceptance if status is StreamStatus.OK else None

    def _status(self, envelope: Envelope, wanted: Wanted, connection: Connection) -> StreamStatus:
        try:
            check_cluster(envelope.cluster_id, self._own().cluster_id)
        except FrameError:
            return StreamStatus.FOREIGN_CLUSTER
        if wanted.incarnation not in (None, self._incarnation()):
            return StreamStatus.OTHER_MEMBER
        if wanted.service not in self._handlers:
            return StreamStatus.UNKNOWN_SERVICE
        if not self._connections.has_room(connection.host):
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
