"""Framed streams and services: the handshake, the bounds, the errors; over in-memory streams."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from membership.address import Address
from membership.settings import Settings
from membership.transport import (
    ForeignClusterError,
    FrameStream,
    FrameTooLargeError,
    NotRotaError,
    OtherMemberError,
    PeerBusyError,
    PeerUnreachableError,
    Services,
    StreamBrokenError,
    StreamClosedError,
    UnknownServiceError,
    WrongVersionError,
    open_service,
    services,
)
from membership.wire.frames import (
    UNKNOWN_CLUSTER,
    Envelope,
    StreamStatus,
    Wanted,
    encode_opening,
    frame_prefix,
)

SERVER = Address("10.0.0.1", 7946)
CLIENT = Address("10.0.0.2", 7946)
CLUSTER = bytes(range(16))
FOREIGN = bytes(range(1, 17))


MEMBER, OTHER = b"m" * 16, b"o" * 16


class Server:
    """Services behind in-memory streams instead of a listening socket."""

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        cluster_id: bytes = CLUSTER,
        connections: int = 8,
        settings: Settings | None = None,
    ) -> None:
        self.counters: Counter[str] = Counter()
        self.services = Services(
            lambda: Envelope(SERVER, cluster_id),
            incarnation=lambda: MEMBER,
            counters=self.counters,
            frame_limit=1000,
            settings=settings or Settings(connections=connections),
        )
        self._nursery = nursery

    async def connect(self, address: Address) -> trio.abc.Stream:
        client, server = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self.services.serve, server)
        return client


@asynccontextmanager
async def serving(**options: object) -> AsyncIterator[Server]:
    async with trio.open_nursery() as nursery:
        yield Server(nursery, **options)  # type: ignore[arg-type]  # passed through as written in the tests
        nursery.cancel_scope.cancel()


async def echo(stream: FrameStream) -> None:
    async for frame in stream:
        await stream.send(frame)


async def work(stream: FrameStream) -> None:
    """Take a request, and work on it for ever."""
    await stream.receive()
    await trio.sleep_forever()


def pair(**options: int) -> tuple[FrameStream, FrameStream]:
    left, right = trio.testing.memory_stream_pair()
    return (
        FrameStream(left, service="test", peer=SERVER, **options),  # type: ignore[arg-type]
        FrameStream(right, service="test", **options),  # type: ignore[arg-type]
    )


async def test_frames_arrive_whole_and_in_order() -> None:
    left, right = pair()
    payloads = [b"", b"one", bytes(100_000), b"last"]

    async def send() -> None:
        for payload in payloads:
            await left.send(payload)
        await left.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        assert [frame async for frame in right] == payloads
    with pytest.raises(StreamClosedError, match="closed the stream"):
        await right.receive()


async def test_senders_that_wait_behind_a_slow_write_share_the_next_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    writes: list[int] = []
    left, right = trio.testing.memory_stream_pair()

    class Slow(trio.abc.Stream):
        async def send_all(self, data: bytes | bytearray | memoryview) -> None:
            writes.append(len(data))
            await trio.sleep(1)
            await left.send_all(data)

        async def wait_send_all_might_not_block(self) -> None:
            await left.wait_send_all_might_not_block()

        async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
            return await left.receive_some(max_bytes)

        async def aclose(self) -> None:
            await left.aclose()

    sender, receiver = FrameStream(Slow(), service="test"), FrameStream(right, service="test")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.send, b"000")
        await trio.testing.wait_all_tasks_blocked()
        for number in range(1, 100):
            nursery.start_soon(sender.send, b"%03d" % number)
        received = [await receiver.receive() for _ in range(100)]
    assert sorted(received) == [b"%03d" % number for number in range(100)]
    assert len(writes) == 2


class Counted(trio.abc.Stream):
    """A stream that keeps what is written to it."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        await trio.lowlevel.checkpoint()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.sleep_forever()
        raise AssertionError

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_posted_frames_of_one_moment_leave_together_but_for_those_withdrawn(
    nursery: trio.Nursery,
) -> None:
    wire = Counted()
    stream = FrameStream(wire, service="test")
    nursery.start_soon(stream.carry)
    stream.pending = 3
    frames = [b"first", bytes(bytearray(b"given up")), b"second"]
    for frame in frames:
        stream.post(frame)
    stream.withdraw(frames[1])
    stream.withdraw(b"not there")
    await trio.testing.wait_all_tasks_blocked()
    assert wire.writes == [frame_prefix(5) + b"first" + frame_prefix(6) + b"second"]
    stream.post(b"third")
    await stream.flush()
    assert wire.writes[1:] == [frame_prefix(5) + b"third"]


async def test_a_post_that_fails_ends_who_carries_it() -> None:
    left, right = pair()
    await right.aclose()
    left.post(b"nobody takes this")
    with pytest.raises(StreamBrokenError, match="failed while sending"):
        await left.carry()
    with pytest.raises(StreamBrokenError):
        left.post(b"nor this")
    with pytest.raises(FrameTooLargeError):
        pair(frame_limit=10)[0].post(bytes(11))


async def test_a_frame_above_the_limit_is_refused_by_the_sender_and_leaves_the_stream_usable() -> None:
    left, right = pair(frame_limit=10)
    with pytest.raises(FrameTooLargeError, match="at most 10"):
        await left.send(bytes(11))
    await left.send(bytes(10))
    assert await right.receive() == bytes(10)


async def test_an_announced_frame_above_the_limit_is_refused_before_it_is_read() -> None:
    raw, end = trio.testing.memory_stream_pair()
    stream = FrameStream(end, service="test", frame_limit=1000)
    await raw.send_all(frame_prefix(2**32 - 1))
    with pytest.raises(FrameTooLargeError, match="4294967295"):
        await stream.receive()
    with pytest.raises(StreamBrokenError):
        await stream.receive()


async def test_an_end_within_a_frame_is_a_broken_stream() -> None:
    raw, end = trio.testing.memory_stream_pair()
    stream = FrameStream(end, service="test")
    await raw.send_all(frame_prefix(10) + b"half")
    await raw.aclose()
    with pytest.raises(StreamBrokenError, match="within a frame"):
        await stream.receive()


async def test_a_cancelled_receive_loses_nothing() -> None:
    raw, end = trio.testing.memory_stream_pair()
    stream = FrameStream(end, service="test")
    await raw.send_all(frame_prefix(4) + b"ab")
    with trio.move_on_after(0.1):
        await stream.receive()
    await raw.send_all(b"cd")
    assert await stream.receive() == b"abcd"


async def test_a_send_cancelled_half_way_breaks_the_stream() -> None:
    left, _ = trio.testing.lockstep_stream_pair()
    stream = FrameStream(left, service="test")
    with trio.move_on_after(0.01) as scope:
        await stream.send(b"nobody reads this")
    assert scope.cancelled_caught
    with pytest.raises(StreamBrokenError, match="cancelled half-way"):
        await stream.send(b"more")


async def test_a_send_cancelled_while_it_waits_its_turn_is_taken_back() -> None:
    left, right = trio.testing.lockstep_stream_pair()
    sender, receiver = FrameStream(left, service="test"), FrameStream(right, service="test")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.send, b"first")
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0.01):
            await sender.send(b"taken back")
        nursery.start_soon(sender.send, b"second")
        assert [await receiver.receive(), await receiver.receive()] == [b"first", b"second"]


async def test_closing_wakes_whoever_receives() -> None:
    left, _ = pair()
    async with trio.open_nursery() as nursery:

        async def receive() -> None:
            with pytest.raises(StreamClosedError, match="this side"):
                await left.receive()

        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        await left.aclose()


async def test_a_service_is_one_handler_call_per_stream() -> None:
    async with serving() as server:
        server.services.register("echo", echo)
        async with await open_service(
            SERVER, "echo", cluster_id=CLUSTER, sender=CLIENT, connect=server.connect
        ) as stream:
            assert stream.cluster_id == CLUSTER
            await stream.send(b"hello")
            assert await stream.receive() == b"hello"


async def test_the_handler_learns_who_called() -> None:
    callers = []

    async def handler(stream: FrameStream) -> None:
        callers.append((stream.peer, stream.cluster_id, stream.service))

    async with serving() as server:
        server.services.register("who", handler)
        await open_service(SERVER, "who", cluster_id=CLUSTER, sender=CLIENT, connect=server.connect)
        await open_service(SERVER, "who", connect=server.connect)
        await trio.testing.wait_all_tasks_blocked()
    assert callers == [(CLIENT, CLUSTER, "who"), (None, UNKNOWN_CLUSTER, "who")]


async def test_a_client_without_a_cluster_learns_the_cluster_from_the_answer() -> None:
    async with serving() as server:
        server.services.register("echo", echo)
        async with await open_service(SERVER, "echo", connect=server.connect) as stream:
            assert stream.cluster_id == CLUSTER


async def test_a_server_without_a_cluster_accepts_a_client_that_has_one() -> None:
    async with serving(cluster_id=UNKNOWN_CLUSTER) as server:
        server.services.register("echo", echo)
        async with await open_service(SERVER, "echo", cluster_id=CLUSTER, connect=server.connect) as stream:
            assert stream.cluster_id == UNKNOWN_CLUSTER


async def test_refusals_name_their_reason() -> None:
    async with serving(connections=1) as server:
        with pytest.raises(UnknownServiceError, match=r"10\.0\.0\.1:7946 does not offer the service 'log'"):
            await open_service(SERVER, "log", connect=server.connect)
        server.services.register("log", echo)
        with pytest.raises(ForeignClusterError, match=CLUSTER.hex()):
            await open_service(SERVER, "log", cluster_id=FOREIGN, connect=server.connect)
        server.services.register("work", work)
        async with await open_service(SERVER, "work", connect=server.connect) as stream:
            await stream.send(b"a request")
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(PeerBusyError):
                await open_service(SERVER, "log", connect=server.connect)
    assert server.counters["streams_refused_unknown_service"] == 1
    assert server.counters["streams_refused_foreign_cluster"] == 1
    assert server.counters["streams_refused_busy"] == 1


async def test_a_service_name_is_registered_once() -> None:
    async with serving() as server:
        server.services.register("log", echo)
        with pytest.raises(ValueError, match="registered already"):
            server.services.register("log", echo)
        server.services.unregister("log")
        server.services.register("log", echo)


async def test_a_stream_for_another_member_is_refused_before_its_service_is_looked_for() -> None:
    async with serving() as server:
        server.services.register("echo", echo)
        for service in ("echo", "what it does not offer"):
            with pytest.raises(OtherMemberError, match="another process answers at"):
                await open_service(
                    SERVER, service, incarnation=OTHER, cluster_id=CLUSTER, connect=server.connect
                )
        assert server.counters["streams_refused_other_member"] == 2
        assert not server.counters["streams_refused_unknown_service"]
        async with await open_service(
            SERVER, "echo", incarnation=MEMBER, cluster_id=CLUSTER, connect=server.connect
        ) as stream:
            await stream.send(b"here")
            assert await stream.receive() == b"here"
            assert stream.service == "echo"


async def test_an_agent_of_an_earlier_version_is_asked_again_without_the_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes the whole for a service's name."""
    monkeypatch.setattr(services, "decode_service", lambda name: Wanted(name.decode()))
    async with serving() as server:
        server.services.register("echo", echo)
        async with await open_service(
            SERVER,
            "echo",
            incarnation=OTHER,
            cluster_id=CLUSTER,
            connect=server.connect,
            early_frames=[b"once"],
        ) as stream:
            assert await stream.receive() == b"once"
        with pytest.raises(UnknownServiceError, match="'nothing'"):
            await open_service(
                SERVER, "nothing", incarnation=OTHER, cluster_id=CLUSTER, connect=server.connect
            )


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", NotRotaError),
        (b"-ERR unknown command\r\n", NotRotaError),
        (b"", NotRotaError),
        (b"rot", NotRotaError),
        (b"rota\x02" + bytes(30), WrongVersionError),
        (Envelope(SERVER, FOREIGN).encode() + bytes([StreamStatus.OK]), ForeignClusterError),
        (Envelope(SERVER, CLUSTER).encode() + bytes([99]), NotRotaError),
    ],
)
async def test_whatever_else_answers_is_named(answer: bytes, error: type[Exception]) -> None:
    async def connect(address: Address) -> trio.abc.Stream:
        client, server = trio.testing.memory_stream_pair()
        await server.send_all(answer)
        await server.send_eof()
        return client

    with pytest.raises(error, match=r"10\.0\.0\.1:7946"):
        await open_service(SERVER, "log", cluster_id=CLUSTER, connect=connect)


async def test_a_peer_that_accepts_and_is_silent_is_unreachable(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def connect(address: Address) -> trio.abc.Stream:
        return trio.testing.memory_stream_pair()[0]

    with pytest.raises(PeerUnreachableError, match="says nothing within 3 s"):
        await open_service(SERVER, "log", connect=connect, timeout=3)
    assert trio.current_time() == pytest.approx(3, abs=0.1)


async def test_a_refused_connection_is_unreachable() -> None:
    async def connect(address: Address) -> trio.abc.Stream:
        raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(PeerUnreachableError, match="Connection refused"):
        await open_service(SERVER, "log", connect=connect)


@pytest.mark.parametrize(
    ("sent", "counter"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "streams_dropped_not_rota"),
        (b"\x16\x03\x01", "streams_dropped_not_rota"),
        (b"rota\x07" + bytes(40), "streams_dropped_wrong_version"),
        (b"rota\x01\xff" + bytes(40), "streams_dropped_malformed"),
        (Envelope(CLIENT, CLUSTER).encode() + b"\xff" + b"x" * 255, "streams_dropped_malformed"),
        (Envelope(CLIENT, CLUSTER).encode() + b"\x03l\xffg", "streams_dropped_malformed"),
    ],
)
async def test_hostile_openings_are_counted_and_closed(sent: bytes, counter: str) -> None:
    async with serving() as server:
        stream = await server.connect(SERVER)
        await stream.send_all(sent)
        with trio.fail_after(1):
            while await stream.receive_some():
                pass
        assert server.counters == {counter: 1}


async def test_half_open_connections_are_dropped_in_time(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as server:
        silent = await server.connect(SERVER)
        half = await server.connect(SERVER)
        await half.send_all(encode_opening(Envelope(CLIENT, CLUSTER), "log")[:-1])
        assert not await silent.receive_some()
        assert not await half.receive_some()
        assert trio.current_time() == pytest.approx(5, abs=0.1)
        assert server.counters == {"streams_dropped_silent": 2}


async def test_a_handler_that_fails_costs_its_stream_only(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(stream: FrameStream) -> None:
        if await stream.receive() == b"crash":
            raise RuntimeError("a bug in the application")
        await stream.send(b"fine")

    async with serving() as server:
        server.services.register("fragile", handler)
        stream = await open_service(SERVER, "fragile", connect=server.connect)
        await stream.send(b"crash")
        with pytest.raises(StreamClosedError):
            await stream.receive()
        stream = await open_service(SERVER, "fragile", connect=server.connect)
        await stream.send(b"work")
        assert await stream.receive() == b"fine"
    assert server.counters["handler_failures"] == 1
    assert "the handler of service 'fragile' failed" in caplog.text


async def test_a_new_connection_takes_the_place_of_the_oldest_that_has_not_said_what_it_wants() -> None:
    async with serving(connections=4) as server:
        server.services.register("echo", echo)
        silent = [await server.connect(SERVER) for _ in range(10)]
        await trio.testing.wait_all_tasks_blocked()
        assert server.counters["streams_dropped_flood"] == 6
        for stream in silent[:6]:
            assert not await stream.receive_some()
        async with await open_service(SERVER, "echo", connect=server.connect) as newcomer:
            await newcomer.send(b"served")
            assert await newcomer.receive() == b"served"


async def test_an_idle_stream_gives_way_and_one_in_use_does_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(connections=4) as server:
        server.services.register("echo", echo)
        server.services.register("work", work)
        in_use = await open_service(SERVER, "work", connect=server.connect)
        await in_use.send(b"a request")
        idle = []
        for _ in range(4):
            await trio.sleep(1)
            idle.append(await open_service(SERVER, "echo", connect=server.connect))
        await trio.testing.wait_all_tasks_blocked()
        assert server.counters["streams_closed_for_others"] == 2
        for stream in idle[:2]:
            with pytest.raises(StreamClosedError):
                await stream.receive()
        await idle[2].send(b"here")
        assert await idle[2].receive() == b"here"
        with trio.move_on_after(1) as still_there:
            await in_use.receive()
        assert still_there.cancelled_caught


async def test_streams_are_closed_when_idle_and_broken_when_they_stall(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def answer_late(stream: FrameStream) -> None:
        """Receives while it works, as a handler of many requests at a time does."""
        async with trio.open_nursery() as nursery:
            async for frame in stream:
                stream.pending += 1
                nursery.start_soon(answer, stream, frame)

    async def answer(stream: FrameStream, frame: bytes) -> None:
        await trio.sleep(200)
        await stream.send(frame)
        stream.pending -= 1

    settings = Settings(idle_timeout=60, frame_timeout=30)
    async with serving(settings=settings) as server:
        server.services.register("late", answer_late)
        silent = await open_service(SERVER, "late", connect=server.connect)
        with pytest.raises(StreamClosedError):
            await silent.receive()
        assert trio.current_time() == pytest.approx(60, abs=1)

        waiting = await open_service(SERVER, "late", connect=server.connect)
        await waiting.send(b"long work")
        assert await waiting.receive() == b"long work"
        assert trio.current_time() == pytest.approx(260, abs=1)
        with pytest.raises(StreamClosedError):
            await waiting.receive()
        assert server.counters["streams_closed_idle"] == 2

        began = trio.current_time()
        raw = await server.connect(SERVER)
        await raw.send_all(encode_opening(Envelope(CLIENT, CLUSTER), "late") + frame_prefix(900) + b"x")
        with trio.move_on_after(1000):
            while await raw.receive_some():
                pass
        assert trio.current_time() - began == pytest.approx(30, abs=1)
        assert server.counters["streams_dropped_stalled"] == 1


async def test_a_trickle_does_not_keep_a_frame_open(autojump_clock: trio.testing.MockClock) -> None:
    left, right = trio.testing.memory_stream_pair()
    stream = FrameStream(right, service="test", frame_timeout=30)

    async def trickle() -> None:
        await left.send_all(frame_prefix(500))
        with contextlib.suppress(trio.BrokenResourceError):
            while True:
                await trio.sleep(1)
                await left.send_all(b"x")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trickle)
        with pytest.raises(StreamBrokenError, match="did not finish a frame"):
            await stream.receive()
    assert trio.current_time() == pytest.approx(30, abs=2)


async def test_a_peer_that_takes_nothing_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    left, _ = trio.testing.lockstep_stream_pair()
    stream = FrameStream(left, service="test", peer=SERVER, frame_timeout=30)
    with pytest.raises(StreamBrokenError, match="does not take what is sent"):
        await stream.send(b"x" * 1000)
    assert trio.current_time() == pytest.approx(30)
