"""The transport: datagrams, one-way frames, services, faults; in memory, and a few on real sockets."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trio.testing

from membership.address import Address
from membership.transport import (
    Arrival,
    BindError,
    FrameStream,
    InMemoryNetwork,
    NotRotaError,
    PeerUnreachableError,
    StreamBrokenError,
    Transport,
)
from membership.transport.endpoint import Network
from membership.transport.faults import FaultInjector, Faults
from membership.transport.outgoing import FRAMES_PER_PEER, OutgoingFrames
from membership.wire.frames import DATAGRAM_LIMIT, UNKNOWN_CLUSTER, DatagramCodec
from tests.own_addresses import own_address

CLUSTER = bytes(range(16))
FOREIGN = bytes(range(1, 17))
A = Address("10.0.0.1", 7946)
B = Address("10.0.0.2", 7946)
LOOPBACK = Address("127.0.0.1", 0)


@asynccontextmanager
async def running(
    *listens: Address, network: Network | None = None, cluster_id: bytes | None = CLUSTER
) -> AsyncIterator[list[Transport]]:
    """Transports that run for the length of the block."""
    async with trio.open_nursery() as nursery:
        transports = [
            await Transport.bind(listen, network=network, cluster_id=cluster_id) for listen in listens
        ]
        for transport in transports:
            nursery.start_soon(transport.run)
        yield transports
        nursery.cancel_scope.cancel()


async def next_arrivals(transport: Transport) -> list[Arrival]:
    with trio.fail_after(5):
        while True:
            await transport.wait(float("inf"))
            if arrivals := transport.drain():
                return arrivals


async def echo(stream: FrameStream) -> None:
    async for frame in stream:
        await stream.send(frame)


async def test_a_datagram_reaches_every_destination() -> None:
    c = Address("10.0.0.3", 7946)
    async with running(A, B, c, network=InMemoryNetwork()) as (a, *others):
        a.send_datagram(b"hello", (B, c))
        for other in others:
            assert await next_arrivals(other) == [Arrival(A, CLUSTER, b"hello", False)]
        assert a.counters["datagrams_sent"] == 2


async def test_a_frame_reaches_its_destination_whatever_its_size() -> None:
    async with running(A, B, network=InMemoryNetwork()) as (a, b):
        a.send_frame(bytes(1_000_000), (B,))
        a.send_frame(b"second", (B,))
        received = await next_arrivals(b)
        while len(received) < 2:
            received += await next_arrivals(b)
        assert received == [
            Arrival(A, CLUSTER, bytes(1_000_000), True),
            Arrival(A, CLUSTER, b"second", True),
        ]


async def test_wait_ends_at_its_deadline_and_when_woken(autojump_clock: trio.testing.MockClock) -> None:
    async with running(A, network=InMemoryNetwork()) as (a,):
        start = trio.current_time()
        await a.wait(start + 5)
        assert trio.current_time() == start + 5
        async with trio.open_nursery() as nursery:
            nursery.start_soon(a.wait, float("inf"))
            await trio.testing.wait_all_tasks_blocked()
            a.wake()
        a.wake()
        await a.wait(float("inf"))  # woken beforehand


async def test_a_burst_is_drained_in_bounded_batches() -> None:
    async with running(A, B, network=InMemoryNetwork()) as (a, b):
        for _ in range(150):
            a.send_datagram(b"x", (B,))
        sizes = [len(await next_arrivals(b)) for _ in range(3)]
        assert sizes == [64, 64, 22]


async def test_hostile_datagrams_are_counted_and_the_good_one_among_them_arrives() -> None:
    network = InMemoryNetwork()
    async with running(B, network=network) as (b,):
        endpoint = network.endpoint(B)
        assert endpoint is not None
        for datagram in (
            b"",
            b"\x00" * 60,
            b"GET / HTTP/1.1\r\n\r\n",
            b"rota\x63" + bytes(60),
            bytes(DATAGRAM_LIMIT + 1),
            DatagramCodec(A, FOREIGN).seal(b"x"),
            DatagramCodec(A, CLUSTER).seal(b"good"),
        ):
            endpoint.deliver(datagram)
        assert await next_arrivals(b) == [Arrival(A, CLUSTER, b"good", False)]
        dropped = {name: count for name, count in b.counters.items() if "dropped" in name}
        assert dropped == {
            "datagrams_dropped_malformed": 1,
            "datagrams_dropped_not_rota": 2,
            "datagrams_dropped_wrong_version": 1,
            "datagrams_dropped_too_large": 1,
            "datagrams_dropped_foreign_cluster": 1,
        }


async def test_learning_the_cluster_is_told_to_peers() -> None:
    async with running(A, B, network=InMemoryNetwork(), cluster_id=None) as (a, b):
        a.send_datagram(b"x", (B,))
        assert (await next_arrivals(b))[0].cluster_id == UNKNOWN_CLUSTER
        a.cluster_id = CLUSTER
        a.send_datagram(b"x", (B,))
        a.send_frame(b"x", (B,))
        assert {arrival.cluster_id for arrival in await next_arrivals(b)} == {CLUSTER}


async def test_lost_datagrams_are_counted_and_frames_survive_the_loss() -> None:
    async with running(A, B, network=InMemoryNetwork()) as (a, b):
        a.fault_injector.faults = Faults(egress_loss=1.0)
        for _ in range(20):
            a.send_datagram(b"x", (B,))
        a.fault_injector.faults = Faults(egress_loss=0.4)
        a.send_frame(b"frame", (B,))
        assert await next_arrivals(b) == [Arrival(A, CLUSTER, b"frame", True)]
        assert a.counters["datagrams_lost_on_purpose"] == 20


async def test_delayed_datagrams_come_late_and_out_of_order(autojump_clock: trio.testing.MockClock) -> None:
    async with running(A, B, network=InMemoryNetwork()) as (a, b):
        a.fault_injector.faults = Faults(delay_min=1.0, delay_max=2.0)
        start = trio.current_time()
        for number in range(20):
            a.send_datagram(bytes([number]), (B,))
        assert b.drain() == []
        received: list[int] = []
        while len(received) < 20:
            await a.wait(trio.current_time() + 0.1)
            a.drain()  # what is late goes out
            received += [arrival.payload[0] for arrival in b.drain()]
            assert not received or trio.current_time() - start >= 1.0
        assert sorted(received) == list(range(20))
        assert received != sorted(received)
        assert trio.current_time() - start <= 2.2


async def test_a_blocked_peer_gets_nothing_and_its_streams_break() -> None:
    async with running(A, B, network=InMemoryNetwork()) as (a, b):
        b.register("echo", echo)
        stream = await a.open_service(B, "echo")
        await stream.send(b"x")
        assert await stream.receive() == b"x"
        a.fault_injector.block([B])
        a.send_datagram(b"lost", (B,))
        with pytest.raises(StreamBrokenError, match="fault injection"):
            await stream.send(b"x")
        with pytest.raises(PeerUnreachableError, match="fault injection"):
            await a.open_service(B, "echo")
        a.fault_injector.unblock([B])
        assert b.drain() == []
        async with await a.open_service(B, "echo") as stream:
            await stream.send(b"y")
            assert await stream.receive() == b"y"


async def test_a_peer_that_does_not_read_costs_nobody_else_anything(
    autojump_clock: trio.testing.MockClock,
) -> None:
    delivered: list[bytes] = []
    stuck = Address("10.0.0.9", 1)

    async def deliver(address: Address, frames: Sequence[bytes]) -> None:
        if address == stuck:
            await trio.sleep(10)
            raise PeerUnreachableError("out of time")
        delivered.extend(frames)

    counters: Counter[str] = Counter()
    outgoing = OutgoingFrames(deliver, counters)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outgoing.run)
        outgoing.put(stuck, b"under way")
        await trio.testing.wait_all_tasks_blocked()
        for number in range(FRAMES_PER_PEER + 5):
            outgoing.put(stuck, b"%d" % number)
        for number in range(100):
            outgoing.put(Address("10.0.0.8", number + 1), b"%d" % number)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(delivered) == sorted(b"%d" % number for number in range(100))
        assert counters["frames_dropped_slow_peer"] == 5
        await trio.sleep(11)
        assert counters["frames_dropped_undelivered"] == 1
        await trio.sleep(10)
        assert counters["frames_dropped_undelivered"] == 1 + FRAMES_PER_PEER
        nursery.cancel_scope.cancel()


async def test_frames_for_nobody_are_counted() -> None:
    async with running(A, network=InMemoryNetwork()) as (a,):
        a.send_frame(b"x", (B,))
        with trio.fail_after(5):
            while not a.counters["frames_dropped_undelivered"]:
                await trio.testing.wait_all_tasks_blocked()


async def test_an_address_in_use_is_refused() -> None:
    network = InMemoryNetwork()
    async with running(A, network=network):
        with pytest.raises(BindError, match=r"10\.0\.0\.1:7946"):
            await Transport.bind(A, network=network)
    async with running(A, network=network):
        pass  # given back by the first


async def test_an_advertised_address_replaces_the_bound_one() -> None:
    network = InMemoryNetwork()
    a = await Transport.bind(
        Address("0.0.0.0", 5000), network=network, advertise=Address("node.example", 0), cluster_id=CLUSTER
    )
    assert a.bound == Address("0.0.0.0", 5000)
    assert a.advertised == Address("node.example", 5000)
    b = await Transport.bind(B, network=network, cluster_id=CLUSTER)
    a.send_datagram(b"x", (B,))
    assert (await next_arrivals(b))[0].source == Address("node.example", 5000)


# Real sockets


@pytest.mark.socket
async def test_datagrams_frames_and_services_share_one_port() -> None:
    async with running(LOOPBACK, LOOPBACK) as (a, b):
        assert a.bound.port != b.bound.port
        a.send_datagram(b"datagram", (b.advertised,))
        assert await next_arrivals(b) == [Arrival(a.advertised, CLUSTER, b"datagram", False)]
        a.send_frame(bytes(300_000), (b.advertised,))
        assert await next_arrivals(b) == [Arrival(a.advertised, CLUSTER, bytes(300_000), True)]
        b.register("echo", echo)
        async with await a.open_service(b.advertised, "echo") as stream:
            await stream.send(b"hello")
            assert await stream.receive() == b"hello"


@pytest.mark.socket
async def test_host_names_are_resolved_for_datagrams_and_streams() -> None:
    async with running(LOOPBACK, LOOPBACK) as (a, b):
        named = Address("localhost", b.bound.port)
        a.send_datagram(b"lost while the name is being resolved", (named,))
        assert a.counters["datagrams_unresolved"] == 1
        with trio.fail_after(5):
            while not a.counters["datagrams_sent"]:
                await trio.sleep(0.01)
                a.send_datagram(b"x", (named,))
        assert (await next_arrivals(b))[0].payload == b"x"
        a.send_frame(b"y", (named,))
        assert (await next_arrivals(b))[0].payload == b"y"


@pytest.mark.socket
async def test_datagrams_to_nobody_and_to_nowhere_do_no_harm() -> None:
    async with running(LOOPBACK, LOOPBACK) as (a, b):
        nobody = Address("127.0.0.1", 1)
        other_family = Address("::1", 7946)
        no_such_name = Address("no-such-host.invalid", 7946)
        for _ in range(10):
            a.send_datagram(b"x", (nobody, other_family, no_such_name))
        a.send_datagram(bytes(70_000), (b.advertised,))
        a.send_datagram(b"after", (b.advertised,))
        assert [arrival.payload for arrival in await next_arrivals(b)] == [b"after"]
        assert a.counters["datagrams_unreachable_family"] == 10
        assert a.counters["datagrams_unsendable"] == 1


@pytest.mark.socket
async def test_a_taken_port_is_refused_with_advice() -> None:
    async with running(LOOPBACK) as (a,):
        with pytest.raises(BindError, match="in use; stop the process that has it"):
            await Transport.bind(a.bound)
    with pytest.raises(BindError, match="address of this machine"):
        await Transport.bind(Address("192.0.2.1", 0))
    with pytest.raises(BindError, match="cannot be resolved"):
        await Transport.bind(Address("no-such-host.invalid", 0))


@pytest.mark.socket
async def test_a_server_that_is_not_rota_is_named() -> None:
    async def http(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with running(LOOPBACK) as (a,), trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, http, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        with pytest.raises(NotRotaError, match=f"127.0.0.1:{port} speaks something that starts with b'HTTP'"):
            await a.open_service(Address("127.0.0.1", port), "log")
        nursery.cancel_scope.cancel()
    async with running(LOOPBACK) as (a,):
        with pytest.raises(PeerUnreachableError, match="refused"):
            await a.open_service(Address("127.0.0.1", 1), "log")


@pytest.mark.socket
async def test_ipv6_and_a_dual_stack_listener() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        async with running(Address("::", 0), LOOPBACK) as (dual, four):
            dual.send_datagram(b"to 4", (four.advertised,))
            assert (await next_arrivals(four))[0].payload == b"to 4"
            four.send_datagram(b"to 6", (Address("127.0.0.1", dual.bound.port),))
            assert (await next_arrivals(dual))[0].payload == b"to 6"
    except BindError as error:
        pytest.skip(str(error))


@pytest.mark.socket
async def test_closing_gives_the_port_back() -> None:
    address = own_address()
    for _ in range(2):
        async with running(address) as (a,):
            assert a.bound == address


async def test_an_injector_can_be_given_from_outside() -> None:
    injector = FaultInjector(seed=7)
    transport = await Transport.bind(A, network=InMemoryNetwork(), fault_injector=injector)
    assert transport.fault_injector is injector
