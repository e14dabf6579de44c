"""The trio shells: calls matched by number, time-outs, reconnection, bounds, group commit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from datastore_adapter import (
    BootstrapRefusedError,
    CallTimeoutError,
    LogServer,
    LogSettings,
    PeerUnreachableError,
    ProtocolError,
    TrioRuntime,
)
from datastore_adapter.log.errors import LogError
from datastore_adapter.log.host.codec import decode_reply, decode_request, encode_reply, encode_request
from datastore_adapter.log.layout.document import EpochDocument, Layout, encode_document
from datastore_adapter.log.messages import (
    Entry,
    FetchDocument,
    GetStatus,
    Install,
    Installed,
    Join,
    NotReady,
    Read,
    Reply,
    Seal,
    StatusReply,
    TakeTokens,
    Write,
)
from membership.transport import PeerUnreachableError as TransportUnreachableError
from membership.transport import StreamClosedError

FAST = LogSettings(in_flight=4, in_flight_bytes=2000)


class Pipe:
    """One end of a stream of frames in memory."""

    pending = 0

    def __init__(
        self, outgoing: trio.MemorySendChannel[bytes], incoming: trio.MemoryReceiveChannel[bytes]
    ) -> None:
        self._outgoing = outgoing
        self._incoming = incoming

    async def send(self, payload: bytes) -> None:
        try:
            await self._outgoing.send(payload)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise StreamClosedError("the peer is gone") from None

    async def receive(self) -> bytes:
        try:
            return await self._incoming.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            raise StreamClosedError("the peer closed the stream") from None

    async def aclose(self) -> None:
        self._outgoing.close()
        self._incoming.close()
        await trio.lowlevel.checkpoint()


def pipes(capacity: int = 100) -> tuple[Pipe, Pipe]:
    one_in, one_out = trio.open_memory_channel[bytes](capacity)
    other_in, other_out = trio.open_memory_channel[bytes](capacity)
    return Pipe(one_in, other_out), Pipe(other_in, one_out)


class Peers:
    """Answers streams opened to any address with `answer(pipe)`; counts the openings."""

    def __init__(self, nursery: trio.Nursery, answer: Callable[..., object]) -> None:
        self._nursery = nursery
        self._answer = answer
        self.opened: list[str] = []

    async def open(self, address: str) -> Pipe:
        self.opened.append(address)
        if address == "nobody:1":
            raise TransportUnreachableError("nobody:1 cannot be reached: connection refused")
        near, far = pipes()
        self._nursery.start_soon(self._answer, far)
        await trio.lowlevel.checkpoint()
        return near


async def echo_epochs(pipe: Pipe) -> None:
    """Answers each read with its epoch, the later ones first; never answers epoch 99; dies of epoch 66."""
    waiting: list[tuple[int, int]] = []
    try:
        while True:
            frame = decode_request(await pipe.receive())
            assert isinstance(frame.request, Read)
            if frame.request.epoch == 66:
                await pipe.aclose()
                return
            if frame.request.epoch == 77:
                await pipe.send(b"\xc1 garbage")
                continue
            if frame.request.epoch != 99:
                waiting.append((frame.number, frame.request.epoch))
            if len(waiting) == 2 or frame.request.epoch == 1:
                while waiting:
                    number, epoch = waiting.pop()
                    await pipe.send(encode_reply(number, Installed(epoch)))
    except StreamClosedError:
        await pipe.aclose()


async def test_replies_find_their_calls_over_one_connection(nursery: trio.Nursery) -> None:
    peers = Peers(nursery, echo_epochs)
    runtime = TrioRuntime(nursery, open_stream=peers.open)
    calls = [partial(runtime.call, "peer:1", Read(epoch, "s00", 0), 5.0) for epoch in (10, 11, 12, 13)]
    assert await runtime.gather(calls) == [Installed(epoch) for epoch in (10, 11, 12, 13)]
    assert peers.opened == ["peer:1"]


async def test_no_answer_is_a_time_out_and_the_connection_stays(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    peers = Peers(nursery, echo_epochs)
    runtime = TrioRuntime(nursery, open_stream=peers.open)
    began = runtime.now()
    with pytest.raises(CallTimeoutError, match="within 2 s"):
        await runtime.call("peer:1", Read(99, "s00", 0), 2.0)
    assert runtime.now() - began == pytest.approx(2.0)
    assert await runtime.call("peer:1", Read(1, "s00", 0), 2.0) == Installed(1)
    assert peers.opened == ["peer:1"]
    await runtime.sleep(1.0)


async def test_a_broken_connection_fails_its_calls_and_is_opened_again(nursery: trio.Nursery) -> None:
    peers = Peers(nursery, echo_epochs)
    runtime = TrioRuntime(nursery, open_stream=peers.open)
    outcomes = await runtime.gather(
        [partial(runtime.call, "peer:1", Read(epoch, "s00", 0), 5.0) for epoch in (99, 66)]
    )
    assert [type(outcome) for outcome in outcomes] == [PeerUnreachableError, PeerUnreachableError]
    assert await runtime.call("peer:1", Read(1, "s00", 0), 5.0) == Installed(1)
    assert peers.opened == ["peer:1", "peer:1"]


async def test_garbage_from_a_peer_ends_the_connection(nursery: trio.Nursery) -> None:
    runtime = TrioRuntime(nursery, open_stream=Peers(nursery, echo_epochs).open)
    with pytest.raises(ProtocolError, match="peer:1: not a message"):
        await runtime.call("peer:1", Read(77, "s00", 0), 5.0)


async def test_nobody_there_is_told_at_once(nursery: trio.Nursery) -> None:
    runtime = TrioRuntime(nursery, open_stream=Peers(nursery, echo_epochs).open)
    with pytest.raises(PeerUnreachableError, match="connection refused"):
        await runtime.call("nobody:1", Read(1, "s00", 0), 5.0)
    with pytest.raises(PeerUnreachableError, match="is not an address"):
        await TrioRuntime(nursery).call("nonsense", Read(1, "s00", 0), 5.0)


async def test_enough_answers_end_a_gathering(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    runtime = TrioRuntime(nursery, open_stream=Peers(nursery, echo_epochs).open)
    calls = [partial(runtime.call, f"peer:{epoch}", Read(epoch, "s00", 0), 60.0) for epoch in (1, 99)]

    def enough(results: object) -> bool:
        assert isinstance(results, list)
        return any(isinstance(result, Installed) for result in results)

    assert await runtime.gather(calls, enough) == [Installed(1), None]
    assert await runtime.gather([]) == []


async def test_a_gathering_keeps_errors_of_the_log_and_raises_others(nursery: trio.Nursery) -> None:
    runtime = TrioRuntime(nursery, open_stream=Peers(nursery, echo_epochs).open)

    async def bad() -> Reply:
        raise LogError("kept")

    async def worse() -> Reply:
        raise ZeroDivisionError

    (kept,) = await runtime.gather([bad])
    assert isinstance(kept, LogError)
    with pytest.raises(ExceptionGroup):
        await runtime.gather([bad, worse])


async def test_a_spawned_task_can_be_cancelled(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    runtime = TrioRuntime(nursery)
    ended: list[float] = []

    async def work(seconds: float) -> None:
        await trio.sleep(seconds)
        ended.append(seconds)

    runtime.spawn(partial(work, 1.0))
    runtime.spawn(partial(work, 2.0)).cancel()
    await trio.sleep(3.0)
    assert ended == [1.0]


class Served:
    """A server whose streams are pipes."""

    def __init__(self, server: LogServer, nursery: trio.Nursery) -> None:
        self.server = server
        self._nursery = nursery

    def connect(self, capacity: int = 1000) -> Pipe:
        near, far = pipes(capacity)
        self._nursery.start_soon(self.server.serve, far)
        return near

    async def ask(self, *requests: object) -> list[object]:
        async with trio.open_nursery() as nursery:
            near, far = pipes()
            nursery.start_soon(self.server.serve, far)
            replies = []
            for number, request in enumerate(requests):
                await near.send(encode_request(number, request))  # type: ignore[arg-type]  # any request
                replies.append(decode_reply(await near.receive()).reply)
            await near.aclose()
        return replies


async def test_many_writes_share_a_commit(nursery: trio.Nursery, tmp_path: Path) -> None:
    server = await LogServer.open("n0", tmp_path, nursery)
    served = Served(server, nursery)
    told = EpochDocument(1, "id", Layout(layout_servers=("n1",)), {"n1": "n1:1"}, {"n1": b"disk"})
    assert await served.ask(Install(encode_document(told)), Seal(0), Join(0, "s00")) != []
    pipe = served.connect()
    for address in range(200):
        entry = Entry(address.to_bytes(16, "big"), "red", (), b"x" * 100)
        await pipe.send(encode_request(address, Write(1, "s00", address, entry)))
    for _ in range(200):
        await pipe.receive()
    status, unasked = await served.ask(GetStatus(counters=True), GetStatus())
    assert isinstance(status, StatusReply)
    assert isinstance(unasked, StatusReply)
    assert unasked.counters == {}
    assert status.segments[0].records == 200
    assert 1 <= status.counters["log_unit.commits"] < 150
    await pipe.aclose()
    nursery.cancel_scope.cancel()


async def test_a_peer_that_does_not_read_its_replies_is_not_read_from(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    server = await LogServer.open("n0", tmp_path, nursery, FAST)
    near_in, far_out = trio.open_memory_channel[bytes](0)
    far_in, near_out = trio.open_memory_channel[bytes](0)
    nursery.start_soon(server.serve, Pipe(far_in, far_out))
    sent = 0
    with trio.move_on_after(0.3):
        while True:
            await near_in.send(encode_request(sent, FetchDocument()))
            sent += 1
    assert sent <= FAST.in_flight + 3
    for _ in range(sent):  # reading on releases it
        await near_out.receive()
    nursery.cancel_scope.cancel()


async def test_roles_answer_idly_before_there_is_a_layout(nursery: trio.Nursery, tmp_path: Path) -> None:
    server = await LogServer.open("n0", tmp_path, nursery)
    token, status = await Served(server, nursery).ask(TakeTokens(1, (("red", 1),)), GetStatus())
    assert token == NotReady()
    assert isinstance(status, StatusReply)
    assert (status.document_epoch, status.sequencer_epoch, status.segments) == (-1, -1, ())
    assert server.document is None
    document = await server.found("id", "127.0.0.1:1")
    assert server.document == document
    assert await server.found("id", "127.0.0.1:2") == document
    with pytest.raises(BootstrapRefusedError):
        await server.found("another", "127.0.0.1:1")
    nursery.cancel_scope.cancel()
