"""What strangers can take from a process: its connections, its memory, its file descriptors."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager

import pytest
import trio
import trio.testing

from membership.address import Address
from membership.settings import Settings
from membership.transport import (
    FrameStream,
    PeerBusyError,
    StreamBrokenError,
    StreamClosedError,
    Transport,
    file_descriptors,
    open_service,
)
from membership.transport.connections import Connections, remote_host
from membership.transport.file_descriptors import fit_connections, raise_descriptor_limit
from membership.transport.frame_memory import FrameMemory
from membership.wire.frames import Envelope, encode_opening, frame_prefix

CLUSTER = bytes(range(16))
LOOPBACK = Address("127.0.0.1", 0)
OPENING = encode_opening(Envelope(None, CLUSTER), "echo")


async def echo(stream: FrameStream) -> None:
    async for frame in stream:
        await stream.send(frame)


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Transport]:
    async with trio.open_nursery() as nursery:
        transport = await Transport.bind(LOOPBACK, cluster_id=CLUSTER, settings=settings)
        transport.register("echo", echo)
        nursery.start_soon(transport.run)
        yield transport
        nursery.cancel_scope.cancel()


def connect_from(host: str, to: Address) -> socket.socket:
    """A connection from another address of the loopback network."""
    return socket.create_connection((to.host, to.port), source_address=(host, 0))


async def is_served(transport: Transport, payload: bytes = b"served") -> None:
    with trio.fail_after(2):
        async with await open_service(transport.bound, "echo", cluster_id=CLUSTER) as stream:
            await stream.send(payload)
            assert await stream.receive() == payload


@pytest.mark.socket
@pytest.mark.parametrize("opening", [b"", OPENING[:-1], OPENING, OPENING + frame_prefix(1000) + b"x"])
@pytest.mark.parametrize("hosts", [["127.0.0.1"], ["127.0.0.2", "127.0.0.3"]])
async def test_silent_connections_keep_nobody_out(opening: bytes, hosts: list[str]) -> None:
    async with serving(Settings(connections=16)) as transport:
        with ExitStack() as stack:
            for number in range(64):
                silent = stack.enter_context(connect_from(hosts[number % len(hosts)], transport.bound))
                silent.sendall(opening)
            await is_served(transport)
            await is_served(transport)


@pytest.mark.socket
async def test_one_address_does_not_get_all_places_even_if_it_uses_them() -> None:
    release = trio.Event()

    async def work(stream: FrameStream) -> None:
        await stream.receive()
        await release.wait()

    async with serving(Settings(connections=16)) as transport:
        transport.register("work", work)
        busy = 0
        streams = []
        for _ in range(16):
            try:
                stream = await open_service(
                    transport.bound, "work", cluster_id=CLUSTER, early_frames=[b"a request"]
                )
            except PeerBusyError:
                busy += 1
            else:
                streams.append(stream)
                with trio.fail_after(2):
                    while transport.counters["streams_accepted"] < len(streams):
                        await trio.testing.wait_all_tasks_blocked(0.001)
        assert (len(streams), busy) == (10, 6)
        with connect_from("127.0.0.2", transport.bound) as other:
            other.settimeout(2)
            other.sendall(OPENING + frame_prefix(3) + b"abc")
            answer = await trio.to_thread.run_sync(other.recv, 1000)
            assert answer[-1:] != bytes([3])  # not told that there is no room
        release.set()
        for stream in streams:
            await stream.aclose()


def test_an_address_that_holds_little_is_not_pushed_out_by_one_that_holds_much() -> None:
    class Idle:
        def __init__(self, since: float) -> None:
            self.waits_since: float | None = since
            self.gone = False

        def give_way(self) -> None:
            self.gone = True

    connections = Connections(8, Counter())  # seven established, five of one address
    streams = {}
    for number, host in enumerate(["small", *["big"] * 5, "other", "big", "new"]):
        connection = connections.admit(host)
        streams[number] = Idle(since=number)
        assert connections.has_room(host)
        assert connections.establish(connection, streams[number])  # type: ignore[arg-type]  # what is used of one
    assert [number for number, stream in streams.items() if stream.gone] == [1, 2]


async def test_what_counts_as_one_address() -> None:
    assert remote_host(trio.testing.memory_stream_pair()[0]) == ""


@pytest.mark.socket
async def test_unfinished_frames_share_one_bound_and_a_large_one_gets_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("membership.transport.frame_memory.FRAME_MEMORY", 1)
    memory = FrameMemory(3 << 20)
    monkeypatch.setattr("membership.transport.services.frame_memory", lambda: memory)
    size = 2 << 20
    async with serving(Settings()) as transport:
        with ExitStack() as stack:
            for _ in range(24):
                silent = stack.enter_context(connect_from("127.0.0.2", transport.bound))
                await trio.to_thread.run_sync(silent.sendall, OPENING + frame_prefix(size) + bytes(size // 2))
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert memory.used <= memory.limit + (64 << 10)
            assert transport.counters["frames_dropped_no_memory"] >= 20
            with trio.fail_after(10):
                while (
                    True
                ):  # as clients do: the silent ones have to be silent for a moment before they give way
                    with contextlib.suppress(StreamBrokenError, StreamClosedError):
                        await is_served(transport, bytes(size))
                        break


async def test_a_frame_that_stalls_is_given_up_before_one_that_comes_in(
    autojump_clock: trio.testing.MockClock,
) -> None:
    memory = FrameMemory(1000)
    counters: Counter[str] = Counter()
    writers, streams = [], []
    for _ in range(3):
        left, right = trio.testing.memory_stream_pair()
        writers.append(left)
        streams.append(FrameStream(right, service="test", counters=counters, memory=memory))
    outcomes: list[str] = []

    async def receive(number: int) -> None:
        try:
            frame = await streams[number].receive()
            outcomes.append(f"{number} got {len(frame)}")
        except StreamBrokenError:
            outcomes.append(f"{number} broken")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive, 0)
        await writers[0].send_all(frame_prefix(5000) + bytes(100))
        await trio.sleep(2)
        nursery.start_soon(receive, 1)
        await writers[1].send_all(frame_prefix(900) + bytes(850))
        await trio.sleep(0.1)
        await writers[1].send_all(bytes(49))
        await trio.testing.wait_all_tasks_blocked()
        assert outcomes == ["0 broken"]
        nursery.start_soon(receive, 2)
        await writers[2].send_all(frame_prefix(900) + bytes(200))  # nobody stalls: the largest gives way
        await trio.testing.wait_all_tasks_blocked()
        assert outcomes == ["0 broken", "1 broken"]
        await writers[2].send_all(bytes(700))
    assert outcomes == ["0 broken", "1 broken", "2 got 900"]
    assert counters["frames_dropped_no_memory"] == 2
    assert memory.used == 0


async def test_what_a_handler_holds_is_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    size = 100_000
    memory = FrameMemory(size + size // 2)
    (a, to_a), (b, to_b) = trio.testing.memory_stream_pair(), trio.testing.memory_stream_pair()
    first, second = (FrameStream(end, service="test", memory=memory) for end in (to_a, to_b))
    await a.send_all(frame_prefix(size) + bytes(size))
    assert len(await first.receive()) == size
    async with trio.open_nursery() as nursery:

        async def work() -> None:
            await trio.sleep(10)
            with pytest.raises(StreamClosedError):
                await first.receive()  # done with the frame before

        nursery.start_soon(work)
        await b.send_all(frame_prefix(size) + bytes(size))
        assert len(await second.receive()) == size
        assert trio.current_time() == pytest.approx(10)
        await a.aclose()


@contextmanager
def soft_limit(soft: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_connections_are_fitted_to_the_descriptors(caplog: pytest.LogCaptureFixture) -> None:
    file_descriptors._told.clear()
    caplog.set_level(logging.INFO)
    with soft_limit(300):
        assert fit_connections(1024) == 150
        assert fit_connections(1024) == 150
        assert fit_connections(100) == 100
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300
        raise_descriptor_limit(200)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 400
        raise_descriptor_limit(20)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 400
    assert [record.getMessage()[:47] for record in caplog.records] == [
        "at most 150 connections at a time are accepted,"
    ]


@pytest.mark.socket
async def test_no_descriptor_left_is_one_line_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Settings(connections=8)) as transport:
        client = socket.socket()
        taken: list[int] = []
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        with client, soft_limit(highest + 20):
            try:
                while True:
                    taken.append(os.dup(client.fileno()))
            except OSError as error:
                reason = error.errno
            assert reason == errno.EMFILE
            client.connect(tuple(transport.bound))
            with trio.fail_after(5):
                while transport.counters["accepts_failed"] < 3:
                    await trio.testing.wait_all_tasks_blocked(0.05)
            for descriptor in taken:
                os.close(descriptor)
        await is_served(transport)
    lines = [record for record in caplog.records if "cannot accept" in record.getMessage()]
    assert len(lines) == 1
    assert all(record.exc_info is None for record in caplog.records)
