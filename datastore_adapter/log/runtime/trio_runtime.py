"""The procedures' world in an agent: trio's clock and tasks, requests over the "log" service.

What it is: one connection per peer, shared by all calls to it, opened when it is first needed and again
after it broke or was idle; replies are matched by number.
What it is not: retrying.  A call either gets its reply or an error.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

import trio

from datastore_adapter.log.errors import (
    CallError,
    CallTimeoutError,
    LogError,
    PeerUnreachableError,
    ProtocolError,
)
from datastore_adapter.log.host.codec import decode_reply, encode_request
from datastore_adapter.log.messages import (
    Reply,
    Request,
)
from membership.address import Address, AddressError
from membership.transport import TransportError, open_service

SERVICE: Final = "log"
_NUMBERS: Final = 1 << 31
_QUEUE: Final = 1024
"""Requests that wait for a connection to write them; further callers wait."""
IDLE_TIMEOUT: Final = 30.0
"""Seconds without a call after which a connection is closed.  Half of what servers wait before they close it (see
`membership.Settings.idle_timeout`), so that no call meets a connection that the server is just closing."""

T = TypeVar("T")


class FrameStream(Protocol):
    """What is needed of `membership.transport.FrameStream`."""

    async def send(self, payload: bytes) -> None: ...

    async def receive(self) -> bytes: ...

    async def aclose(self) -> None: ...


Opener = Callable[[str], Awaitable[FrameStream]]


class TrioRuntime:
    """`runtime.Runtime` on trio.  Connections and spawned tasks live in `nursery`.

    `cluster_id`: 16 bytes, so that peers of another cluster refuse; None for a client that does not know.
    `open_stream`: how to reach an address, for tests.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        cluster_id: bytes | None = None,
        rng: random.Random | None = None,
        open_stream: Opener | None = None,
    ) -> None:
        self._nursery = nursery
        self._cluster_id = cluster_id
        self._random = rng or random.Random(random.SystemRandom().getrandbits(128))
        self._open_stream = open_stream or self._open_service
        self._connections: dict[str, _Connection] = {}

    @property
    def random(self) -> random.Random:
        return self._random

    def now(self) -> float:
        return trio.current_time()

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def call(self, address: str, request: Request, timeout: float) -> Reply:
        connection = self._connections.get(address)
        if connection is None or connection.failure is not None:
            connection = self._connections[address] = _Connection(address)
            self._nursery.start_soon(connection.run, self._open_stream)
        with trio.move_on_after(timeout):
            return await connection.call(request)
        raise CallTimeoutError(f"{address} did not answer within {timeout:g} s")

    async def gather(
        self,
        calls: Sequence[Callable[[], Awaitable[T]]],
        enough: Callable[[Sequence[T | LogError | None]], bool] | None = None,
    ) -> list[T | LogError | None]:
        results: list[T | LogError | None] = [None] * len(calls)

        async def run(index: int, call: Callable[[], Awaitable[T]]) -> None:
            try:
                results[index] = await call()
            except LogError as error:
                results[index] = error
            if enough is not None and enough(results):
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for index, call in enumerate(calls):
                nursery.start_soon(run, index, call)
        # The errors lead to the frames above, which must not lead to them.
        found = list(results)
        results.clear()
        return found

    def event(self) -> trio.Event:
        return trio.Event()

    def spawn(self, task: Callable[[], Awaitable[None]]) -> trio.CancelScope:
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await task()

        self._nursery.start_soon(run)
        return scope

    async def _open_service(self, address: str) -> FrameStream:
        return await open_service(Address.parse(address), SERVICE, cluster_id=self._cluster_id)


class _Slot:
    """Where one call waits for its reply."""

    __slots__ = ("event", "outcome")

    def __init__(self) -> None:
        self.event = trio.Event()
        self.outcome: Reply | CallError | None = None


class _Connection:
    """One stream to one peer, while it lasts."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._slots: dict[int, _Slot] = {}
        self._next = 0
        self._frames_in, self._frames_out = trio.open_memory_channel[bytes](_QUEUE)
        self.failure: CallError | None = None
        """Why it is of no more use; None while it is."""

    async def call(self, request: Request) -> Reply:
        number = self._next = (self._next + 1) % _NUMBERS
        slot = self._slots[number] = _Slot()
        try:
            try:
                await self._frames_in.send(encode_request(number, request))
            except trio.ClosedResourceError:
                raise PeerUnreachableError(
                    str(self.failure or f"the connection to {self._address} ended")
                ) from None
            await slot.event.wait()
        finally:
            self._slots.pop(number, None)
        if isinstance(slot.outcome, CallError):
            # Each caller its own: it collects the frames it passes through, and one that is shared keeps them all.
            raise type(slot.outcome)(*slot.outcome.args)
        assert slot.outcome is not None
        return slot.outcome

    async def run(self, open_stream: Opener) -> None:
        """Open the stream and carry requests and replies until it fails."""
        try:
            stream = await open_stream(self._address)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write, stream, nursery.cancel_scope)
                    nursery.start_soon(self._read, stream, nursery.cancel_scope)
            finally:
                with trio.move_on_after(1, shield=True):
                    await stream.aclose()
        except (TransportError, AddressError) as error:
            self._fail(PeerUnreachableError(str(error)))
        finally:
            self._fail(PeerUnreachableError(f"the connection to {self._address} ended"))

    async def _write(self, stream: FrameStream, scope: trio.CancelScope) -> None:
        try:
            async for frame in self._frames_out:
                await stream.send(frame)
        except TransportError as error:
            self._fail(PeerUnreachableError(str(error)))
            scope.cancel()

    async def _read(self, stream: FrameStream, scope: trio.CancelScope) -> None:
        try:
            while True:
                with trio.move_on_after(IDLE_TIMEOUT) as patience:
                    encoded = await stream.receive()
                if patience.cancelled_caught:
                    if self._slots:
                        continue
                    self._fail(PeerUnreachableError(f"the connection to {self._address} was idle"))
                    break
                frame = decode_reply(encoded)
                slot = self._slots.get(frame.number)
                if slot is not None:
                    slot.outcome = frame.reply
                    slot.event.set()
        except TransportError as error:
            self._fail(PeerUnreachableError(str(error)))
        except ProtocolError as error:
            self._fail(ProtocolError(f"{self._address}: {error}"))
        scope.cancel()

    def _fail(self, failure: CallError) -> None:
        if self.failure is not None:
            return
        self.failure = failure
        self._frames_in.close()
        for slot in self._slots.values():
            if slot.outcome is None:
                slot.outcome = failure
                slot.event.set()
