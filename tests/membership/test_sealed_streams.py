"""Streams under keys: who is let in, and that no byte can be changed, repeated, moved or cut off unnoticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from membership import Key, KeyRing
from membership.address import Address
from membership.transport import (
    FrameStream,
    KeyMismatchError,
    PeerUnreachableError,
    Services,
    StreamBrokenError,
    StreamClosedError,
    open_service,
)
from membership.wire.frames import Envelope
from membership.wire.protection import UNPROTECTED, Protection
from membership.wire.sealing import SealedProtection

SERVER = Address("10.0.0.1", 7946)
CLIENT = Address("10.0.0.2", 7946)
CLUSTER = bytes(range(16))
OLD, NEW, STRANGE = (Key.of(bytes([number]) * 32) for number in (1, 2, 3))


def sealed(*keys: Key) -> SealedProtection:
    return SealedProtection(KeyRing(keys or [OLD]))


class Wire:
    """Connections to one server whose bytes a test can record and change."""

    def __init__(self, nursery: trio.Nursery, protection: Protection) -> None:
        self.counters: Counter[str] = Counter()
        self.services = Services(
            lambda: Envelope(SERVER, CLUSTER, protection.sealed),
            counters=self.counters,
            protection=protection,
        )
        self.received: list[bytes] = []
        self.to_server = bytearray()
        self.to_client = bytearray()
        self.services.register("echo", self._echo)
        self._nursery = nursery
        self.handled = 0

    async def _echo(self, stream: FrameStream) -> None:
        self.handled += 1
        async for frame in stream:
            self.received.append(frame)
            await stream.send(frame)

    async def connect(self, address: Address = SERVER) -> trio.abc.Stream:
        client, server = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._serve, server)
        return Recorder(client, self)

    async def _serve(self, stream: trio.abc.Stream) -> None:
        await self.services.serve(stream)

    async def open(self, protection: Protection, **options: Any) -> FrameStream:
        return await open_service(
            SERVER,
            "echo",
            cluster_id=CLUSTER,
            sender=CLIENT,
            protection=protection,
            connect=self.connect,
            **options,
        )

    async def settle(self) -> None:
        await trio.testing.wait_all_tasks_blocked()


class Recorder(trio.abc.Stream):
    """A stream that keeps what goes over it."""

    def __init__(self, inner: trio.abc.Stream, wire: Wire) -> None:
        self._inner = inner
        self._wire = wire

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._wire.to_server += data
        await self._inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data = await self._inner.receive_some(max_bytes)
        self._wire.to_client += data
        return data

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def serving(protection: Protection | None = None) -> AsyncIterator[Wire]:
    async with trio.open_nursery() as nursery:
        yield Wire(nursery, protection if protection is not None else sealed())
        nursery.cancel_scope.cancel()


async def test_frames_travel_both_ways_and_nobody_reads_them() -> None:
    async with serving() as wire:
        async with await wire.open(sealed()) as stream:
            for payload in (b"something to hide", b"", bytes(100_000)):
                await stream.send(payload)
                assert await stream.receive() == payload
        assert b"something to hide" not in bytes(wire.to_server + wire.to_client)
        await wire.settle()
        assert wire.counters["streams_accepted"] == 1
        assert not any("broken" in name or "dropped" in name for name in wire.counters)


async def test_a_clean_end_is_told_from_a_cut() -> None:
    """Without the sealed mark of the end, closing the connection is no end (a truncation attack)."""
    left, right = trio.testing.memory_stream_pair()
    client, server = sealed().hellos(SERVER)[0], sealed().accept(sealed().hellos(SERVER)[0].hello)
    frames, confirmation = client.complete(b"opening", b"answer", server.answer(b"opening", b"answer"))
    seal = server.confirm(confirmation)
    sender = FrameStream(left, service="test", seal=frames)
    receiver = FrameStream(right, service="test", seal=seal)
    await sender.send(b"one")
    await sender.aclose()
    assert await receiver.receive() == b"one"
    with pytest.raises(StreamClosedError):
        await receiver.receive()

    async with serving() as wire:
        stream = await wire.open(sealed())
        await stream.send(b"half the story")
        await stream.receive()
        await trio.aclose_forcefully(stream._stream)
        await wire.settle()
        assert wire.received == [b"half the story"]
        assert wire.counters["streams_broken"] == 1


async def test_any_installed_key_opens_the_door() -> None:
    async with serving(sealed(NEW, OLD)) as wire:
        for key in (OLD, NEW):
            async with await wire.open(sealed(key)) as stream:
                await stream.send(b"x")
                assert await stream.receive() == b"x"


@pytest.mark.parametrize(
    ("server", "client", "text", "counter"),
    [
        (sealed(OLD), sealed(STRANGE), "does not hold the key", "streams_dropped_unknown_key"),
        (sealed(OLD), UNPROTECTED, "accepts only what is encrypted", "streams_dropped_not_encrypted"),
        (UNPROTECTED, sealed(OLD), "does not hold the key", "streams_dropped_encrypted"),
    ],
)
async def test_who_has_no_common_key_is_told_so(
    server: Protection, client: Protection, text: str, counter: str
) -> None:
    async with serving(server) as wire:
        with pytest.raises(KeyMismatchError, match=text):
            await wire.open(client)
        await wire.settle()
        assert wire.counters[counter] == 1
        assert wire.handled == 0


async def test_a_recorded_stream_cannot_be_replayed() -> None:
    async with serving() as wire:
        async with await wire.open(sealed()) as stream:
            await stream.send(b"drop everything")
            await stream.receive()
        await wire.settle()
        replayed = await wire.connect()
        await replayed.send_all(bytes(wire.to_server))
        await wire.settle()
        assert wire.received == [b"drop everything"]
        assert wire.handled == 1
        assert wire.counters["streams_dropped_forged"] == 1


async def test_a_server_without_the_key_cannot_pretend() -> None:
    """It knows the key's id from the hello, but cannot prove the key."""
    impostor = SealedProtection(KeyRing([Key(STRANGE.secret, OLD.id_bytes)]))
    async with serving(impostor) as wire:
        with pytest.raises(KeyMismatchError, match="seal does not hold"):
            await wire.open(sealed(OLD))
        assert wire.handled == 0


async def test_a_client_that_only_knows_the_keys_id_is_not_handled() -> None:
    async with serving() as wire:
        impostor = SealedProtection(KeyRing([Key(STRANGE.secret, OLD.id_bytes)]))
        with pytest.raises(KeyMismatchError):
            await wire.open(impostor)
        await wire.settle()
        assert wire.handled == 0


@pytest.mark.parametrize("position", [0, 3, 4, 10, -1])
async def test_a_changed_byte_breaks_the_stream(position: int) -> None:
    async with serving() as wire:
        stream = await wire.open(sealed())
        before = len(wire.to_server)
        await stream.send(b"first")
        await stream.receive()
        frame = bytearray(wire.to_server[before:])
        frame[position] ^= 0x80 if position == 0 else 1
        await stream._stream.send_all(bytes(frame) + bytes(1 << 17))
        await wire.settle()
        assert wire.received == [b"first"]
        with pytest.raises((StreamBrokenError, StreamClosedError)):
            await stream.receive()


async def test_a_repeated_frame_breaks_the_stream_and_is_counted() -> None:
    async with serving() as wire:
        stream = await wire.open(sealed())
        before = len(wire.to_server)
        await stream.send(b"pay once")
        await stream.receive()
        await stream._stream.send_all(bytes(wire.to_server[before:]))
        await wire.settle()
        assert wire.received == [b"pay once"]
        assert wire.counters["frames_dropped_forged"] == 1


async def test_frames_cannot_be_turned_round() -> None:
    """What the server said cannot be sent back to it as if the client had said it."""
    async with serving() as wire:
        stream = await wire.open(sealed())
        before = len(wire.to_client)
        await stream.send(b"echo")
        await stream.receive()
        await stream._stream.send_all(bytes(wire.to_client[before:]))
        await wire.settle()
        assert wire.received == [b"echo"]
        assert wire.counters["frames_dropped_forged"] == 1


async def test_a_stream_ends_when_its_key_is_removed() -> None:
    protection = sealed(NEW, OLD)
    async with serving(protection) as wire:
        stream = await wire.open(sealed(OLD))
        await stream.send(b"x")
        assert await stream.receive() == b"x"
        protection.ring.remove(OLD.id)
        await stream.send(b"y")
        with pytest.raises((StreamBrokenError, StreamClosedError)):
            await stream.receive()
        await wire.settle()
        assert wire.received == [b"x"]
        assert wire.counters["frames_dropped_removed_key"] == 1
        with pytest.raises(KeyMismatchError):
            await wire.open(sealed(OLD))
        assert wire.counters["streams_dropped_removed_key"] == 1


async def test_early_frames_follow_the_answer() -> None:
    async with serving() as wire, await wire.open(sealed(), early_frames=[b"one", b"two"]) as stream:
        assert [await stream.receive(), await stream.receive()] == [b"one", b"two"]


async def test_early_frames_that_nobody_takes_are_an_error(autojump_clock: trio.testing.MockClock) -> None:
    async def connect(address: Address) -> trio.abc.Stream:
        client, server = trio.testing.lockstep_stream_pair()

        async def accept() -> None:
            protection = sealed()
            opening = bytes(await server.receive_some())
            acceptance = protection.accept(opening[-protection.hello_length :])
            answer = Envelope(SERVER, CLUSTER, True).encode() + b"\x00"
            await server.send_all(answer + acceptance.answer(opening, answer))
            await server.receive_some()  # the confirmation, and then not another byte

        nursery.start_soon(accept)
        return client

    async with trio.open_nursery() as nursery:
        with pytest.raises(PeerUnreachableError, match="took nothing"):
            await open_service(
                SERVER, "echo", protection=sealed(), connect=connect, early_frames=[b"x"], timeout=3
            )


async def test_a_client_that_never_confirms_is_dropped(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as wire:
        stream = await wire.connect()
        opening = Envelope(CLIENT, CLUSTER, True).encode() + b"\x04echo" + sealed().hellos(SERVER)[0].hello
        await stream.send_all(opening)
        await trio.sleep(10)
        assert wire.counters["streams_dropped_silent"] == 1
        assert wire.handled == 0


async def test_closing_does_not_wait_for_a_peer_that_does_not_read(
    autojump_clock: trio.testing.MockClock,
) -> None:
    left, _ = trio.testing.lockstep_stream_pair()
    client, server = sealed().hellos(SERVER)[0], sealed().accept(sealed().hellos(SERVER)[0].hello)
    frames, _ = client.complete(b"opening", b"answer", server.answer(b"opening", b"answer"))
    start = trio.current_time()
    await FrameStream(left, service="test", seal=frames).aclose()
    assert trio.current_time() - start <= 1.0
