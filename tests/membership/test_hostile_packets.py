"""Hostile packets by the thousand: nothing escapes, nothing grows, and each is counted under its reason."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
from collections import Counter

import pytest
import trio
import trio.testing

from chaos.fuzzing.packet_fuzz import PacketFuzzer, fuzz_packets
from chaos.fuzzing.packets import Samples, spoil_bytes, spoil_value
from membership import Key, KeyRing
from membership.address import Address
from membership.protocol.messages import MESSAGE_TYPES, DecodeError, decode, encode
from membership.protocol.view.configuration import Configuration, ConfigurationError
from membership.protocol.view.cut import Cut, Removal
from membership.transport import FrameStream, Services
from membership.wire.frames import (
    DATAGRAM_LIMIT,
    DatagramCodec,
    Envelope,
    FrameError,
    encode_opening,
    frame_prefix,
)
from membership.wire.sealing import SealedProtection
from tests.budget import budgeted

SERVER, CLIENT = Address("10.0.0.1", 7946), Address("10.0.0.2", 7946)
CLUSTER = bytes(range(16))


@pytest.fixture
def view(lab) -> Configuration:  # type: ignore[no-untyped-def]
    configuration: Configuration = lab.configuration(8)
    return configuration


def test_the_samples_are_valid_and_of_every_type(lab, view: Configuration) -> None:  # type: ignore[no-untyped-def]
    samples = Samples(view, lab.member(99)).all(0)
    assert {type(message) for message in samples} == set(MESSAGE_TYPES)
    assert len(MESSAGE_TYPES) >= 23
    for message in samples:
        assert decode(encode(message)) == message


@pytest.mark.slow("twenty thousand packets")
@pytest.mark.parametrize("seed", [1, 2])
def test_twenty_thousand_packets(seed: int) -> None:
    """Seed 2 once found a cut that removes a member twice."""
    report = fuzz_packets(20_000, seed=seed)
    assert report.ok, report.text()
    assert report.packets == 20_000
    assert report.understood > 4_000
    for reason in ("datagrams_dropped_forged", "datagrams_dropped_not_rota", "messages_dropped_malformed"):
        assert report.dropped[reason] > 100
    for reason in ("sender_not_in_view", "rings_of_others", "ballot_of_others", "cut_unfit"):
        assert report.dropped[f"messages_dropped_{reason}"] > 0, reason


@pytest.mark.parametrize("seed", budgeted(range(3, 13), 1))
def test_a_million_packets(seed: int) -> None:
    """Issue 3: the decoder survives them without an exception that is not its own."""
    report = fuzz_packets(100_000, seed=seed)
    assert report.ok, report.text()


def test_a_cut_that_removes_a_member_twice_does_not_fit(view: Configuration) -> None:
    removal = Removal(view.members[3].incarnation)
    with pytest.raises(ConfigurationError, match="twice"):
        view.apply(Cut.of([], [removal, Removal(removal.incarnation, True)]))


def test_nobody_without_the_key_reaches_the_core() -> None:
    """Of everything that is spoiled on the way, nothing passes the seal."""
    ring = KeyRing([Key.of(b"k" * 32)])
    sender = DatagramCodec(CLIENT, CLUSTER, SealedProtection(ring))
    receiver = DatagramCodec(SERVER, CLUSTER, SealedProtection(ring))
    rng = random.Random(4)
    for number in range(5_000):
        datagram = sender.seal(b"payload %d" % number)
        spoiled = spoil_bytes(datagram, rng)
        if spoiled != datagram:
            with pytest.raises(FrameError):
                receiver.open(spoiled)


def test_decoding_allocates_within_a_small_multiple_of_the_packet(lab, view: Configuration) -> None:  # type: ignore[no-untyped-def]
    """Lengths that promise more than the packet holds must not be believed."""
    samples = [encode(message) for message in Samples(view, lab.member(99)).all(0)]
    rng = random.Random(5)
    codecs = [
        (DatagramCodec(CLIENT, CLUSTER), DatagramCodec(SERVER, CLUSTER)),
        (
            DatagramCodec(CLIENT, CLUSTER, SealedProtection(KeyRing([Key.of(b"k" * 32)]))),
            DatagramCodec(SERVER, CLUSTER, SealedProtection(KeyRing([Key.of(b"k" * 32)]))),
        ),
    ]
    worst = 0.0
    tracemalloc.start()
    try:
        for number in range(3_000):
            sample, other = rng.choice(samples), rng.choice(samples)
            payload = spoil_value(sample, rng) if number % 2 else spoil_bytes(sample, rng, other)
            sender, receiver = codecs[number % 2]
            datagram = sender.seal(payload)[: DATAGRAM_LIMIT + 1]
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            _receive(receiver, datagram)
            _, peak = tracemalloc.get_traced_memory()
            worst = max(worst, (peak - before - 20_000) / len(datagram))
    finally:
        tracemalloc.stop()
    assert worst < 32, f"{worst:.0f} bytes allocated for a byte received"


def _receive(codec: DatagramCodec, datagram: bytes) -> None:
    with contextlib.suppress(FrameError, DecodeError):
        decode(codec.open(datagram).payload)


@pytest.mark.parametrize(
    "promise", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"]
)
def test_a_promise_of_four_gigabytes_costs_nothing(promise: bytes) -> None:
    tracemalloc.start()
    try:
        for before in (b"", b"\x9c", b"\x96\x0c" + b"\xc4\x10" + bytes(16)):
            with pytest.raises(DecodeError):
                decode(before + promise + bytes(100))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_the_deepest_nesting_a_datagram_holds_is_refused() -> None:
    for bomb in (b"\x91", b"\x81\xa1a", b"\xdd\x00\x00\x00\x01"):
        with pytest.raises(DecodeError):
            decode(bomb * (DATAGRAM_LIMIT // len(bomb)))


@pytest.mark.parametrize("keys", [None, KeyRing([Key.of(b"k" * 32)])], ids=["plain", "sealed"])
async def test_spoiled_openings_and_frames_of_streams(
    keys: KeyRing | None, autojump_clock: trio.testing.MockClock
) -> None:
    protection = SealedProtection(keys) if keys is not None else None
    options = {} if protection is None else {"protection": protection}
    counters: Counter[str] = Counter()
    services = Services(
        lambda: Envelope(SERVER, CLUSTER, keys is not None), counters=counters, frame_limit=5000, **options
    )  # type: ignore[arg-type]  # the same keyword for every value
    heard: list[bytes] = []

    async def listen(stream: FrameStream) -> None:
        async for frame in stream:
            heard.append(frame)  # noqa: PERF401 - what was heard before the stream broke counts too

    services.register("listen", listen)
    rng = random.Random(6)
    hello = b"" if protection is None else protection.hellos(SERVER)[0].hello
    opening = encode_opening(Envelope(CLIENT, CLUSTER, keys is not None), "listen") + hello
    good = opening + frame_prefix(5) + b"hello"
    async with trio.open_nursery() as nursery:

        async def send(data: bytes) -> None:
            client, server = trio.testing.memory_stream_pair()
            nursery.start_soon(services.serve, server)
            await client.send_all(data)
            await client.aclose()

        for _ in range(1500):
            await send(spoil_bytes(good, rng, good))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert counters["handler_failures"] == 0
    assert len(services._connections) == 0
    assert all(len(frame) <= 5000 for frame in heard)
    if keys is not None:
        assert not heard
    assert sum(count for name, count in counters.items() if "dropped" in name) > 300


def test_the_same_seed_spoils_the_same_way() -> None:
    first, second = PacketFuzzer(7), PacketFuzzer(7)
    for _ in range(200):
        assert len(first.packet()[0]) == len(second.packet()[0])
