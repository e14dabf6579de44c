"""Envelopes: what is refused, for which reason, and that nothing else ever happens to hostile bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from membership.address import Address
from membership.wire.frames import (
    DATAGRAM_LIMIT,
    FIXED_LENGTH,
    PROTOCOL_VERSION,
    UNKNOWN_CLUSTER,
    DatagramCodec,
    DropReason,
    Envelope,
    FrameError,
    Wanted,
    decode_envelope,
    decode_service,
    encode_opening,
    frame_length,
    frame_prefix,
)

HERE = Address("10.0.0.1", 7946)
THERE = Address("node-2.example", 65535)
CLUSTER = bytes(range(16))
FOREIGN = bytes(range(1, 17))

hosts = st.one_of(
    st.ip_addresses().map(str), st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?", fullmatch=True)
)
addresses = st.builds(Address, hosts, st.integers(1, 65535))
cluster_ids = st.binary(min_size=16, max_size=16)


def reason_of(codec: DatagramCodec, datagram: bytes) -> DropReason:
    with pytest.raises(FrameError) as caught:
        codec.open(datagram)
    return caught.value.reason


@given(addresses, st.none() | cluster_ids, st.binary(max_size=1400))
def test_what_one_seals_another_opens(sender: Address, cluster_id: bytes | None, payload: bytes) -> None:
    opened = DatagramCodec(HERE).open(DatagramCodec(sender, cluster_id).seal(payload))
    assert opened == (sender, cluster_id or UNKNOWN_CLUSTER, payload)


@given(st.none() | addresses, cluster_ids)
def test_an_envelope_survives_the_round_trip(sender: Address | None, cluster_id: bytes) -> None:
    envelope = Envelope(sender, cluster_id)
    assert decode_envelope(envelope.encode()) == envelope


def test_the_envelope_is_as_documented() -> None:
    expected = b"rota" + b"\x01" + b"\x00" + (7946).to_bytes(2) + CLUSTER + b"\x08" + b"10.0.0.1" + b"hello"
    assert DatagramCodec(HERE, CLUSTER).seal(b"hello") == expected


def test_traffic_of_another_cluster_is_foreign() -> None:
    ours = DatagramCodec(HERE, CLUSTER)
    assert reason_of(ours, DatagramCodec(THERE, FOREIGN).seal(b"")) is DropReason.FOREIGN_CLUSTER
    assert ours.open(DatagramCodec(THERE, CLUSTER).seal(b"x")).payload == b"x"


def test_a_process_without_a_cluster_hears_all_and_is_heard_by_all() -> None:
    lonely = DatagramCodec(HERE)
    assert lonely.open(DatagramCodec(THERE, FOREIGN).seal(b"x")).cluster_id == FOREIGN
    assert DatagramCodec(THERE, CLUSTER).open(lonely.seal(b"x")).cluster_id == UNKNOWN_CLUSTER


def test_learning_the_cluster_changes_what_is_accepted_and_sent() -> None:
    codec = DatagramCodec(HERE)
    foreign = DatagramCodec(THERE, FOREIGN).seal(b"x")
    assert codec.open(foreign).payload == b"x"
    codec.cluster_id = CLUSTER
    assert reason_of(codec, foreign) is DropReason.FOREIGN_CLUSTER
    assert DatagramCodec(THERE).open(codec.seal(b"")).cluster_id == CLUSTER


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (b"", DropReason.MALFORMED),
        (b"GET / HTTP/1.1\r\n\r\n", DropReason.NOT_ROTA),
        (b"rota", DropReason.MALFORMED),
        (b"rota\x02" + bytes(100), DropReason.WRONG_VERSION),
        (b"rota\x01\x80" + (1).to_bytes(2) + CLUSTER + b"\x01a", DropReason.MALFORMED),
        (b"rota\x01\x00" + (1).to_bytes(2) + CLUSTER + b"\xff" + b"short", DropReason.MALFORMED),
        (b"rota\x01\x00" + (0).to_bytes(2) + CLUSTER + b"\x01a", DropReason.MALFORMED),
        (b"rota\x01\x00" + (1).to_bytes(2) + CLUSTER + b"\x00", DropReason.MALFORMED),
        (b"rota\x01\x00" + (1).to_bytes(2) + CLUSTER + b"\x02\xff\xfe", DropReason.MALFORMED),
        (b"rota\x01\x00" + (1).to_bytes(2) + CLUSTER + b"\x03a\nb", DropReason.MALFORMED),
        (bytes(DATAGRAM_LIMIT + 1), DropReason.TOO_LARGE),
    ],
)
def test_each_refusal_has_its_reason(datagram: bytes, reason: DropReason) -> None:
    assert reason_of(DatagramCodec(HERE, CLUSTER), datagram) is reason


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_and_nothing_else_happens(data: bytes) -> None:
    with pytest.raises(FrameError):
        DatagramCodec(HERE, CLUSTER).open(data)


@given(st.data())
def test_a_changed_envelope_is_refused_or_still_an_envelope(data: st.DataObject) -> None:
    datagram = bytearray(DatagramCodec(THERE, CLUSTER).seal(b"payload"))
    position = data.draw(st.integers(0, len(datagram) - 1))
    datagram[position] = data.draw(st.integers(0, 255))
    try:
        opened = DatagramCodec(HERE, CLUSTER).open(bytes(datagram))
    except FrameError:
        return
    assert opened.sender.host
    assert 1 <= opened.sender.port <= 65535


def test_strangers_cannot_make_a_codec_remember_without_bound() -> None:
    codec = DatagramCodec(HERE)
    for number in range(20_000):
        codec.open(DatagramCodec(Address(f"host-{number}", 1)).seal(b""))
    assert len(codec._known) <= 8192


def test_a_host_name_no_envelope_can_hold_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="longest"):
        DatagramCodec(Address("h" * 256, 1))


def test_an_opening_names_a_service_of_bounded_length() -> None:
    opening = encode_opening(Envelope(HERE, CLUSTER), "log")
    assert opening[:5] == b"rota" + bytes([PROTOCOL_VERSION])
    assert opening.endswith(b"\x03log")
    assert len(opening) == FIXED_LENGTH + len(HERE.host) + 4
    for name in ("", "x" * 65):
        with pytest.raises(ValueError, match="1 to 64"):
            encode_opening(Envelope(HERE, CLUSTER), name)
    for name_bytes in (b"", b"x" * 65, b"\xff"):
        with pytest.raises(FrameError):
            decode_service(name_bytes)


def test_an_opening_may_name_the_member_it_is_for() -> None:
    member = bytes(range(16))
    opening = encode_opening(Envelope(HERE, CLUSTER), "log", member)
    name = b"log@000102030405060708090a0b0c0d0e0f"
    assert opening.endswith(bytes([len(name)]) + name)
    assert decode_service(name) == Wanted("log", member)
    for plain in (b"log", b"log@", b"log@00", name[3:], name.upper()):
        assert decode_service(plain) == Wanted(plain.decode())
    with pytest.raises(ValueError, match="1 to 64"):
        encode_opening(Envelope(HERE, CLUSTER), "x" * 32, member)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_a_frame_above_the_limit_is_refused_by_its_prefix(length: int, limit: int) -> None:
    if length <= limit:
        assert frame_length(frame_prefix(length), limit) == length
    else:
        with pytest.raises(FrameError) as caught:
            frame_length(frame_prefix(length), limit)
        assert caught.value.reason is DropReason.TOO_LARGE
