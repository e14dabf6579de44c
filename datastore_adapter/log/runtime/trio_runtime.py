"""The procedures' world in an agent: trio's clock and tasks, requests over the "log" service.

One connection per peer, shared by all calls to it, opened when it is first needed and again after it broke or was
idle; replies are matched by number.  It does not retry: a call either gets its reply or an error.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Final, NoReturn, Protocol, TypeVar

import trio

from datastore_adapter.log.errors import (
    CallError,
    CallTimeoutError,
    LogError,
    LogUnavailableError,
    PeerUnreachableError,
    ProtocolError,
)
from datastore_adapter.log.messages import (
    Reply,
    Request,
)
from datastore_adapter.log.messages.codec import decode_reply, encode_request
from datastore_adapter.log.runtime.runtime import Peer, answer_of, whoever_at
from membership.address import Address, AddressError
from membership.transport import TransportError, open_service

SERVICE: Final = "log"
_NUMBERS: Final = 1 << 31
IDLE_TIMEOUT: Final = 30.0
"""Seconds without a call after which a connection is closed.  Half of what servers wait before they close it (see
`membership.Settings.idle_timeout`), so that no call meets a connection that the server is just closing."""

T = TypeVar("T")


class FrameStream(Protocol):
    """What is needed of `membership.transport.FrameStream`."""

    pending: int

    def post(self, payload: bytes) -> None: ...

    def withdraw(self, payload: bytes) -> None: ...

    async def carry(self) -> NoReturn: ...

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

    async def call(self, peer: Peer | str, request: Request, timeout: float) -> Reply:
        """See `Runtime.call`; a bare address is whoever is there."""
        peer = whoever_at(peer) if isinstance(peer, str) else peer
        connection = self._connections.get(peer.address)
        if connection is None or connection.failure is not None:
            connection = _Connection(peer.address)
            self._start(connection.run, self._open_stream)
            self._connections[peer.address] = connection
        return await connection.call(peer, request, timeout)

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

        self._start(run)
        return scope

    def _start(self, task: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Raises LogUnavailableError when whoever runs this client has ended before those who use it."""
        try:
            self._nursery.start_soon(task, *arguments)
        except RuntimeError:  # the nursery is closed
            raise LogUnavailableError("the log is not asked any more: this process is ending") from None

    async def _open_service(self, address: str) -> FrameStream:
        return await open_service(Address.parse(address), SERVICE, cluster_id=self._cluster_id)


class _Call:
    """One call that waits for its reply."""

    __slots__ = ("deadline", "frame", "outcome", "peer", "seconds", "task")

    def __init__(self, peer: Peer, frame: bytes, now: float, seconds: float) -> None:
        self.peer = peer
        self.frame = frame
        self.seconds = seconds
        self.deadline = now + seconds
        self.task = trio.lowlevel.current_task()
        self.outcome: Reply | CallError | None = None

    def end(self, outcome: Reply | CallError) -> None:
        self.outcome = outcome
        trio.lowlevel.reschedule(self.task)


class _Connection:
    """One stream to one peer, while it lasts."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._calls: dict[int, _Call] = {}
        self._next = 0
        self._stream: FrameStream | None = None
        self._used_at = -inf
        self._alarm = trio.CancelScope()
        """Ends the sleep of `_watch`, not after the deadline of any call."""
        self.failure: CallError | None = None
        """Why it is of no more use; None while it is."""

    async def call(self, peer: Peer, request: Request, timeout: float) -> Reply:
        number = self._next = (self._next + 1) % _NUMBERS
        self._used_at = now = trio.current_time()
        call = _Call(peer, encode_request(number, request, peer.identity), now, timeout)
        self._calls[number] = call
        if call.deadline < self._alarm.deadline:
            self._alarm.deadline = call.deadline
        if self._stream is not None:
            self._post(self._stream, call)

        def give_up(_: object) -> trio.lowlevel.Abort:
            self._withdraw(number)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(give_up)
        outcome, call.outcome = call.outcome, None
        if isinstance(outcome, CallError):
            try:
                raise outcome
            finally:
                del outcome  # it leads back to this frame
        assert outcome is not None
        return outcome

    def _post(self, stream: FrameStream, call: _Call) -> None:
        stream.pending = len(self._calls)
        with suppress(TransportError):  # the stream has ended, as `_read` is about to see
            stream.post(call.frame)

    def _withdraw(self, number: int) -> _Call:
        call = self._calls.pop(number)
        if self._stream is not None:
            self._stream.withdraw(call.frame)
        return call

    async def run(self, open_stream: Opener) -> None:
        """Open the stream and carry requests and replies until it fails."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, nursery.cancel_scope)
                await self._work(open_stream, nursery)
                nursery.cancel_scope.cancel()
        finally:
            self._fail(PeerUnreachableError(f"the connection to {self._address} ended"))

    async def _work(self, open_stream: Opener, nursery: trio.Nursery) -> None:
        try:
            stream = await open_stream(self._address)
            try:
                self._stream = stream
                for call in self._calls.values():
                    self._post(stream, call)
                nursery.start_soon(self._carry, stream)
                await self._read(stream)
            finally:
                with trio.move_on_after(1, shield=True):
                    await stream.aclose()
        except (TransportError, AddressError) as error:
            self._fail(PeerUnreachableError(str(error)))
        except ProtocolError as error:
            self._fail(ProtocolError(f"{self._address}: {error}"))

    async def _carry(self, stream: FrameStream) -> None:
        with suppress(TransportError):  # `_read` meets it too
            await stream.carry()

    async def _read(self, stream: FrameStream) -> None:
        while True:
            frame = decode_reply(await stream.receive())
            call = self._calls.pop(frame.number, None)
            if call is not None:
                call.end(answer_of(call.peer, frame))

    async def _watch(self, scope: trio.CancelScope) -> None:
        """End each call that waits for too long, and the connection when it was idle for long."""
        while self._calls or trio.current_time() < self._used_at + IDLE_TIMEOUT:
            idle_at = self._used_at + IDLE_TIMEOUT
            deadline = min((call.deadline for call in self._calls.values()), default=idle_at)
            with trio.CancelScope(deadline=deadline) as self._alarm:
                await trio.sleep_forever()
            now = trio.current_time()
            for number in [number for number, call in self._calls.items() if call.deadline <= now]:
                call = self._withdraw(number)
                call.end(CallTimeoutError(f"{self._address} did not answer within {call.seconds:g} s"))
        self._fail(PeerUnreachableError(f"the connection to {self._address} was idle"))
        scope.cancel()

    def _fail(self, failure: CallError) -> None:
        if self.failure is not None:
            return
        self.failure = failure
        calls, self._calls = self._calls, {}
        for call in calls.values():
            # Each caller its own: it collects the frames it passes through, and one that is shared keeps them all.
            call.end(type(failure)(*failure.args))
