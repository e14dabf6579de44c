"""Framed streams and services: the handshake, the bounds, the errors; over in-memory streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from membership.address import Address
from membership.frames import UNKNOWN_CLUSTER, Envelope, StreamStatus, encode_opening, frame_prefix
from membership.transport import (
    ForeignClusterError,
    FrameStream,
    FrameTooLargeError,
    NotRotaError,
    PeerBusyError,
    PeerUnreachableError,
    Services,
    StreamBrokenError,
    StreamClosedError,
    UnknownServiceError,
    WrongVersionError,
    open_service,
)

SERVER = Address("10.0.0.1", 7946)
CLIENT = Address("10.0.0.2", 7946)
CLUSTER = bytes(range(16))
FOREIGN = bytes(range(1, 17))


class Server:
    """Services behind in-memory streams instead of a listening socket."""

    def __init__(
        self, nursery: trio.Nursery, *, cluster_id: bytes = CLUSTER, connection_limit: int = 8
    ) -> None:
        self.counters: Counter[str] = Counter()
        self.services = Services(
            lambda: Envelope(SERVER, cluster_id),
            counters=self.counters,
            connection_limit=connection_limit,
            frame_limit=1000,
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
    async with serving(connection_limit=1) as server:
        with pytest.raises(UnknownServiceError, match=r"10\.0\.0\.1:7946 does not offer the service 'log'"):
            await open_service(SERVER, "log", connect=server.connect)
        server.services.register("log", echo)
        with pytest.raises(ForeignClusterError, match=CLUSTER.hex()):
            await open_service(SERVER, "log", cluster_id=FOREIGN, connect=server.connect)
        async with await open_service(SERVER, "log", connect=server.connect):
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


async def test_a_flood_of_connections_is_cut_off_without_a_word(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(connection_limit=2) as server:
        silent = [await server.connect(SERVER) for _ in range(10)]
        await trio.testing.wait_all_tasks_blocked()
        assert server.counters["streams_dropped_flood"] == 6
        for stream in silent[4:]:
            assert not await stream.receive_some()
