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
from datastore_adapter.log.errors import LogError, LogUnavailableError, MisdirectedError
from datastore_adapter.log.layout.document import EpochDocument, Layout, encode_document
from datastore_adapter.log.messages import (
    Entry,
    FetchDocument,
    GetStatus,
    HostIdentity,
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
from datastore_adapter.log.messages.codec import decode_reply, decode_request, encode_reply, encode_request
from datastore_adapter.log.runtime.runtime import Peer, whoever_at
from membership.transport import FrameStream, StreamClosedError
from membership.transport import PeerUnreachableError as TransportUnreachableError

FAST = LogSettings(in_flight=4, in_flight_bytes=2000)


def streams(*, lockstep: bool = False) -> tuple[FrameStream, FrameStream]:
    """Both ends of a stream in memory; `lockstep`: nothing leaves before the other side takes it."""
    make = trio.testing.lockstep_stream_pair if lockstep else trio.testing.memory_stream_pair
    near, far = make()
    return FrameStream(near, service="log"), FrameStream(far, service="log")


class Peers:
    """Answers streams opened to any address with `answer(stream)`; counts the openings."""

    def __init__(self, nursery: trio.Nursery, answer: Callable[..., object]) -> None:
        self._nursery = nursery
        self._answer = answer
        self.opened: list[str] = []

    async def open(self, address: str) -> FrameStream:
        self.opened.append(address)
        if address == "nobody:1":
            raise TransportUnreachableError("nobody:1 cannot be reached: connection refused")
        near, far = streams()
        self._nursery.start_soon(self._answer, far)
        await trio.lowlevel.checkpoint()
        return near


async def echo_epochs(stream: FrameStream) -> None:
    """Answers each read with its epoch, the later ones first; never answers epoch 99; dies of epoch 66."""
    waiting: list[tuple[int, int]] = []
    try:
        while True:
            frame = decode_request(await stream.receive())
            assert isinstance(frame.request, Read)
            if frame.request.epoch == 66:
                await stream.aclose()
                return
            if frame.request.epoch == 77:
                await stream.send(b"\xc1 garbage")
                continue
            if frame.request.epoch != 99:
                waiting.append((frame.number, frame.request.epoch))
            if len(waiting) == 2 or frame.request.epoch == 1:
                while waiting:
                    number, epoch = waiting.pop()
                    await stream.send(encode_reply(number, Installed(epoch)))
    except StreamClosedError:
        await stream.aclose()


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
    """A server whose streams are in memory."""

    def __init__(self, server: LogServer, nursery: trio.Nursery) -> None:
        self.server = server
        self._nursery = nursery

    def connect(self) -> FrameStream:
        near, far = streams()
        self._nursery.start_soon(self.server.serve, far)
        return near

    async def ask(self, *requests: object) -> list[object]:
        async with trio.open_nursery() as nursery:
            near, far = streams()
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
    stream = served.connect()
    for address in range(200):
        entry = Entry(address.to_bytes(16, "big"), "red", (), b"x" * 100)
        await stream.send(encode_request(address, Write(1, "s00", address, entry)))
    for _ in range(200):
        await stream.receive()
    status, unasked = await served.ask(GetStatus(counters=True), GetStatus())
    assert isinstance(status, StatusReply)
    assert isinstance(unasked, StatusReply)
    assert unasked.counters == {}
    assert status.segments[0].records == 200
    assert 1 <= status.counters["log_unit.commits"] < 150
    await stream.aclose()
    nursery.cancel_scope.cancel()


async def test_a_peer_that_does_not_read_its_replies_is_not_read_from(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    server = await LogServer.open("n0", tmp_path, nursery, FAST)
    near, far = streams(lockstep=True)
    nursery.start_soon(server.serve, far)
    sent = 0

    async def ask() -> None:
        nonlocal sent
        while True:
            await near.send(encode_request(sent, FetchDocument()))
            sent += 1

    nursery.start_soon(ask)
    await trio.sleep(0.3)
    assert 0 < sent <= FAST.in_flight + 3
    for _ in range(sent + 10):  # reading on releases it
        await near.receive()
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


async def test_who_asks_when_the_process_is_ending_is_told_so() -> None:
    async with trio.open_nursery() as nursery:
        runtime = TrioRuntime(nursery)
    with pytest.raises(LogUnavailableError, match="this process is ending"):
        await runtime.call("10.0.0.1:1", GetStatus(), 1)
    with pytest.raises(LogUnavailableError, match="this process is ending"):
        runtime.spawn(trio.sleep_forever)


async def test_whoever_is_at_the_address_of_another_refuses_what_is_for_that(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    server = await LogServer.open("n1", tmp_path, nursery)
    served = Served(server, nursery)

    async def connect(address: str) -> FrameStream:
        await trio.lowlevel.checkpoint()
        return served.connect()

    runtime = TrioRuntime(nursery, open_stream=connect)
    me = HostIdentity("n1", server.identity.disk)
    for peer in (Peer("n1:1", me), Peer("n1:1", HostIdentity("n1")), whoever_at("n1:1"), "n1:1"):
        assert isinstance(await runtime.call(peer, GetStatus(), 5.0), StatusReply)
    for meant, text in (("n0", "n1 is at n1:1 now, and not n0"), ("n1", "without the disk it had")):
        with pytest.raises(MisdirectedError, match=text):
            await runtime.call(Peer("n1:1", HostIdentity(meant, b"another disk")), Seal(7), 5.0)
    assert server.statistics()["server.misdirected"] == 2
    status = await runtime.call("n1:1", GetStatus(), 5.0)
    assert isinstance(status, StatusReply)
    assert status.sealed_epoch == -1
    nursery.cancel_scope.cancel()


async def test_an_answer_of_version_0_1_does_not_say_whose_it_is(nursery: trio.Nursery) -> None:
    peers = Peers(nursery, echo_epochs)
    runtime = TrioRuntime(nursery, open_stream=peers.open)
    peer = Peer("peer:1", HostIdentity("n0", b"disk"))
    assert await runtime.call(peer, Read(1, "s00", 0), 2.0) == Installed(1)
