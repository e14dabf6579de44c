"""A two-way stream of frames over TCP, or over any trio stream.

Frames are bounded in size, time and memory. Many tasks may send, one receives. Errors are typed. Matching requests and
answers, and reconnecting, are up to whoever opens the stream.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NoReturn, Protocol

import trio

from membership.address import Address
from membership.transport.errors import FrameTooLargeError, StreamBrokenError, StreamClosedError, StreamError
from membership.transport.frame_memory import FrameMemory, frame_memory
from membership.wire.frames import (
    FRAME_LENGTH_SIZE,
    STREAM_FRAME_LIMIT,
    UNKNOWN_CLUSTER,
    DropReason,
    FrameError,
    frame_length,
    frame_prefix,
    is_last_frame,
)
from membership.wire.protection import PLAIN_FRAMES, FrameSeal

_READ_SIZE: Final = 64 * 1024
_WITHOUT_END: Final = contextlib.nullcontext()

FRAME_TIMEOUT: Final = 30.0
"""Seconds, default: what a frame may take from its first byte to its last, and a write until the peer has taken it."""

_LAST_WORD_TIMEOUT: Final = 1.0
"""Seconds in which a closing side tries to say that it closes; a peer that does not read gets a cut."""


class LinkState(Protocol):
    """Tells a stream whether fault injection lets frames through at the moment."""

    def sending_blocked(self, peer: Address) -> bool:
        """True while nothing may go to `peer`."""

    def receiving_blocked(self, peer: Address) -> bool:
        """True while nothing may come from `peer`."""


class FrameStream:
    """Frames of bytes, in order, both ways.

    `send` may be called by many tasks at a time; frames that wait behind a slow write leave in one
    write.  `post` never waits, but needs a task that runs `carry`.  `receive` is for one task at a time.  Use it as
    an async context manager, or call `aclose`.
    """

    peer: Address | None
    """The address the other side advertises; None for a client that is not a member."""
    cluster_id: bytes
    """The cluster the other side belongs to; UNKNOWN_CLUSTER (zeros) when it belongs to none."""
    service: str
    """The service this stream was opened for."""
    pending: int
    """Requests under way while their handler receives already; it counts them itself, as does a client with many at a
    time. A stream with any is in use, and never idle. A handler that does not receive while it works has nothing to
    count."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        *,
        service: str,
        peer: Address | None = None,
        cluster_id: bytes = UNKNOWN_CLUSTER,
        frame_limit: int = STREAM_FRAME_LIMIT,
        seal: FrameSeal = PLAIN_FRAMES,
        links: LinkState | None = None,
        received: bytes = b"",
        counters: Counter[str] | None = None,
        idle_timeout: float = math.inf,
        frame_timeout: float = FRAME_TIMEOUT,
        memory: FrameMemory | None = None,
    ) -> None:
        """`idle_timeout`: seconds without a frame or a request in progress after which this side closes the stream."""
        self.peer = peer
        self.cluster_id = cluster_id
        self.service = service
        self.frame_limit = frame_limit
        self.pending = 0
        self._stream = stream
        self._seal = seal
        self._links = links
        self._counters = counters if counters is not None else Counter()
        self._idle_timeout = idle_timeout
        self._frame_timeout = frame_timeout
        # Without an account: whoever opens a stream trusts the other side with its answers.
        self._memory = memory if memory is not None else FrameMemory(sys.maxsize)
        self._buffer = bytearray(received)
        self._frame_began = math.inf
        self._active_at = trio.current_time()
        self._reading: trio.CancelScope | None = None
        self._sending: trio.CancelScope | None = None
        self._gives_way = False
        self._successor: FrameStream | None = None
        """The stream of this connection in another event loop, `_loop` there."""
        self._loop: trio.lowlevel.TrioToken | None = None
        self._waiting: list[bytes] = []
        self._rest = b""
        """Of a write that the system has taken only a part of."""
        self._left = trio.Event()
        """There is something for `carry`."""
        self._writing = trio.StrictFIFOLock()
        self._closed: Callable[[], StreamClosedError | StreamBrokenError] | None = None

    def hand_over(self) -> Callable[[], FrameStream]:
        """Give the connection to another event loop: what to call there, once, for its stream.

        Only of a TCP connection, and to a loop with the same clock.  Nothing may be sent or received here any more;
        where connections are counted this stream stands for the other, and closes with it.
        """
        ours = self._stream
        assert isinstance(ours, trio.SocketStream), "only what the system knows can change its loop"
        home = trio.lowlevel.current_trio_token()
        self._closed = lambda: StreamClosedError("another event loop has this stream")

        def take() -> FrameStream:
            connection = socket.socket(fileno=os.dup(ours.socket.fileno()))
            home.run_sync_soon(ours.socket.close)
            stream = trio.SocketStream(trio.socket.from_stdlib_socket(connection))
            self._successor = successor = FrameStream(
                stream,
                service=self.service,
                peer=self.peer,
                cluster_id=self.cluster_id,
                frame_limit=self.frame_limit,
                seal=self._seal,
                links=self._links,
                received=bytes(self._buffer),
                counters=self._counters,
                idle_timeout=self._idle_timeout,
                frame_timeout=self._frame_timeout,
                memory=frame_memory(),
            )
            successor._loop = trio.lowlevel.current_trio_token()
            return successor

        return take

    @property
    def waits_since(self) -> float | None:
        """Since when this side has waited for the peer to send or take bytes (trio's clock); None while it has not."""
        if self._successor is not None:
            return self._successor.waits_since
        waits = self._sending is not None or (self._reading is not None and not self.pending)
        return self._active_at if waits else None

    def give_way(self) -> None:
        """Close the stream, which waits for its peer, in favour of others. Whoever uses it gets a StreamError."""
        if self._successor is not None and self._successor._loop is not None:
            self._successor._loop.run_sync_soon(self._successor.give_way)
            return
        self._gives_way = True
        for scope in (self._sending, self._reading):
            if scope is not None:
                scope.cancel()

    async def send(self, payload: bytes) -> None:
        """Send one frame; returns when it, and all before it, were handed to the system.

        Raises FrameTooLargeError (nothing was sent), StreamClosedError or StreamBrokenError, also when the peer takes
        no more for too long.  Cancelling a send that has begun breaks the stream, since half a frame may be on its way.
        """
        self._enqueue(payload)
        try:
            await self._writing.acquire()
        except BaseException:
            self.withdraw(payload)
            raise
        try:
            await self._flush()
        finally:
            self._writing.release()

    def post(self, payload: bytes) -> None:
        """Send one frame without waiting: at once while no other request is `pending`, else with others by `carry`.

        Raises as `send`, what goes wrong later is raised by `carry`.
        """
        self._enqueue(payload)
        if self.pending <= 1 and not self._writing.locked():
            self._push()
        if self._waiting or self._rest:
            self._left.set()

    async def carry(self) -> NoReturn:
        """Send what is posted and did not leave at once.  Raises StreamClosedError or StreamBrokenError."""
        while True:
            await self._left.wait()
            self._left = trio.Event()
            await self.flush()

    async def flush(self) -> None:
        """Return when all that was posted was handed to the system.  Raises as `send`."""
        if self._waiting or self._rest or self._writing.locked():
            async with self._writing:
                await self._flush()

    def withdraw(self, payload: bytes) -> None:
        """Do not send this frame, if it has not begun to leave: whoever posted it has given up."""
        for index, candidate in enumerate(self._waiting):
            if candidate is payload:
                del self._waiting[index]
                return

    def _enqueue(self, payload: bytes) -> None:
        if len(payload) > self.frame_limit:
            raise FrameTooLargeError(
                f"frame of {len(payload)} bytes; at most {self.frame_limit} on this stream"
            )
        self._check_open()
        self._waiting.append(payload)

    def _push(self) -> None:
        """Hand to the system what it takes at once; errors are left to who sends the rest."""
        if not isinstance(self._stream, trio.SocketStream) or self._is_blocked():
            return
        try:
            self._rest = data = self._taken()
            self._rest = data[os.write(self._stream.socket.fileno(), data) :]
        except (OSError, FrameError):
            return
        self._active_at = trio.current_time()

    def _is_blocked(self) -> bool:
        return self._links is not None and self.peer is not None and self._links.sending_blocked(self.peer)

    def _taken(self) -> bytes:
        """All that waits, as it goes on the wire.  Sealed here and not earlier: the seal counts the frames in the order
        in which they leave."""
        data = b"".join((self._rest, *self._encoded(self._waiting)))
        self._waiting, self._rest = [], b""
        return data

    async def _flush(self) -> None:
        """Write all that waits in one go (perhaps nothing: an earlier writer took it along)."""
        self._check_open()
        while self._waiting or self._rest:
            await self._write_waiting()

    async def _write_waiting(self) -> None:
        if self._is_blocked():
            raise await self._broken(f"the link to {self.peer} is blocked by fault injection")
        self._active_at = now = trio.current_time()
        try:
            data = self._taken()
            with trio.CancelScope(deadline=now + self._frame_timeout) as self._sending:
                await self._stream.send_all(data)
        except FrameError as error:
            raise await self._broken(f"the stream to {self._peer_text()} cannot go on: {error}") from error
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise await self._broken(f"the connection to {self._peer_text()} failed while sending") from error
        except trio.Cancelled:
            await self._broken("a send was cancelled half-way")
            raise
        finally:
            sending, self._sending = self._sending, None
        if sending is not None and sending.cancelled_caught:
            self._counters["streams_dropped_stalled"] += 1
            raise await self._broken(f"{self._peer_text()} does not take what is sent to it")
        self._active_at = trio.current_time()

    def _encoded(self, payloads: list[bytes]) -> Iterator[bytes]:
        for payload in payloads:
            prefix = frame_prefix(len(payload) + self._seal.overhead)
            yield prefix
            yield self._seal.seal(payload, prefix)

    async def receive(self) -> bytes:
        """The next frame.

        Raises StreamClosedError at a clean end or when the stream was idle for too long, StreamBrokenError when
        the connection failed, ended within a frame or takes too long for one, FrameTooLargeError when the
        peer announces more than `frame_limit`.  Cancelling it loses nothing.
        """
        self._memory.release(self)
        while True:
            self._check_open()
            try:
                frame = self._next_buffered()
            except FrameError as error:
                raise await self._refused(error) from error
            if frame is not None:
                break
            await self._fill()
        self._frame_began = math.inf
        self._memory.hand_over(self, len(frame) if len(frame) > _READ_SIZE else 0)
        if self._links is not None and self.peer is not None and self._links.receiving_blocked(self.peer):
            raise await self._broken(f"the link from {self.peer} is blocked by fault injection")
        return frame

    def _next_buffered(self) -> bytes | None:
        """The next frame, if all of it is here.  Raises FrameError."""
        buffer = self._buffer
        if len(buffer) < FRAME_LENGTH_SIZE:
            return None
        prefix = bytes(buffer[:FRAME_LENGTH_SIZE])
        end = FRAME_LENGTH_SIZE + frame_length(
            prefix, self.frame_limit + self._seal.overhead, marked=self._seal.sealed
        )
        if len(buffer) < end:
            return None
        sealed = bytes(memoryview(buffer)[FRAME_LENGTH_SIZE:end])
        del buffer[:end]
        frame = self._seal.open(sealed, prefix)
        if self._seal.sealed and is_last_frame(prefix):
            self._close_as_ended()
        return frame

    async def _refused(self, error: FrameError) -> StreamError:
        """End the stream for what the peer sent; the error to raise."""
        if error.reason is DropReason.TOO_LARGE:
            await self._broken(str(error))
            return FrameTooLargeError(f"{self._peer_text()} announced a {error}")
        self._counters[f"frames_dropped_{error.reason}"] += 1
        return await self._broken(f"a frame of {self._peer_text()} was refused: {error}")

    async def _fill(self) -> None:
        """Wait for more bytes, if need be first for memory to keep them in."""
        self._active_at = now = trio.current_time()
        deadline = now + self._idle_timeout
        if self._buffer:
            self._frame_began = min(self._frame_began, now)
            deadline = self._frame_began + self._frame_timeout
        data = b""
        try:
            with trio.CancelScope(deadline=deadline) if deadline < math.inf else _WITHOUT_END as scope:
                if self._buffer:
                    await self._memory.hold(self, len(self._buffer))
                    self._check_open()
                self._reading = scope
                data = await self._some()
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise await self._broken(f"the connection to {self._peer_text()} failed") from error
        finally:
            self._reading = None
        if scope is not None and scope.cancelled_caught:
            await self._waited_long()
            return
        if not data:
            if self._buffer:
                raise await self._broken(f"{self._peer_text()} ended the stream within a frame")
            if self._seal.sealed:
                raise await self._broken(f"the stream of {self._peer_text()} was cut off before its end")
            self._close_as_ended()
        self._buffer += data

    async def _some(self) -> bytes:
        """At least one byte, or none at the end."""
        if not isinstance(self._stream, trio.SocketStream):
            return bytes(await self._stream.receive_some(_READ_SIZE))
        # Read when there is something: the stream's own way tries first and fails, through eight layers.
        connection = self._stream.socket
        while True:
            await trio.lowlevel.wait_readable(connection)
            with contextlib.suppress(BlockingIOError):
                return os.read(connection.fileno(), _READ_SIZE)

    async def _waited_long(self) -> None:
        """Close a stream that is idle or stalls within a frame; not one whose requests are being answered."""
        if self._buffer:
            self._counters["streams_dropped_stalled"] += 1
            raise await self._broken(f"{self._peer_text()} did not finish a frame")
        in_use = self.pending or self._sending or trio.current_time() < self._active_at + self._idle_timeout
        if in_use and not self._gives_way:
            return
        if not self._gives_way:
            self._counters["streams_closed_idle"] += 1
        await self.aclose()

    async def give_up_frame(self) -> None:
        """Break the stream, because its unfinished frame takes memory that others need."""
        self._counters["frames_dropped_no_memory"] += 1
        await self._broken("too many bytes of unfinished frames were held; retry later")

    def _close_as_ended(self) -> None:
        self._memory.release(self)
        self._closed = self._closed or (lambda: StreamClosedError(f"{self._peer_text()} closed the stream"))
        self._check_open()

    def __aiter__(self) -> FrameStream:
        return self

    async def __anext__(self) -> bytes:
        """The next frame; the iteration ends where the peer closes the stream cleanly."""
        try:
            return await self.receive()
        except StreamClosedError:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Close; whoever still sends or receives gets StreamClosedError.  May be called twice."""
        if self._seal.sealed and self._closed is None:
            self._closed = lambda: StreamClosedError("this side closed the stream")
            await self._say_last_word()
        self._closed = self._closed or (lambda: StreamClosedError("this side closed the stream"))
        self._memory.release(self)
        self._waiting, self._rest = [], b""
        await self._stream.aclose()

    async def _say_last_word(self) -> None:
        """Mark the end under the seal, so that the peer can tell it from a cut."""
        if self._writing.locked() or self._rest:
            return  # half a frame is on its way and will stay half: it is a cut
        self._writing.acquire_nowait()
        try:
            prefix = frame_prefix(self._seal.overhead, last=True)
            with trio.move_on_after(_LAST_WORD_TIMEOUT):
                await self._stream.send_all(prefix + self._seal.seal(b"", prefix))
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError, FrameError):
            pass  # the peer is gone, or the key is: nothing to tell
        except BaseException:
            await trio.aclose_forcefully(self._stream)
            raise
        finally:
            self._writing.release()

    async def __aenter__(self) -> FrameStream:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed()

    async def _broken(self, text: str) -> StreamClosedError | StreamBrokenError:
        """Close for good; the error to raise (StreamClosedError when this side had closed already)."""
        self._closed = self._closed or (lambda: StreamBrokenError(text))
        self._memory.release(self)
        self._waiting, self._rest = [], b""
        await trio.aclose_forcefully(self._stream)
        return self._closed()

    def _peer_text(self) -> str:
        return str(self.peer) if self.peer is not None else "the client"


def keep_alive(stream: trio.SocketStream) -> None:
    """Let the system notice a peer that vanished without a word within about 15 seconds."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # Linux; elsewhere the system's own idle time applies
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 3)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
