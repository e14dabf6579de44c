"""Sealed datagrams: what one seals another opens, once, and nothing else opens at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from membership import Key, KeyRing
from membership.address import Address
from membership.wire.frames import DatagramCodec, DropReason, FrameError
from membership.wire.sealing import _CIPHERS_KEPT, SealedProtection

A, B = Address("10.0.0.1", 7946), Address("10.0.0.2", 7946)
CLUSTER = bytes(range(16))
OLD, NEW, STRANGE = (Key.of(bytes([number]) * 32) for number in (1, 2, 3))


def codec(*keys: Key, sender: Address = A, cluster_id: bytes | None = CLUSTER) -> DatagramCodec:
    return DatagramCodec(sender, cluster_id, SealedProtection(KeyRing(keys or [OLD])))


def ring_of(codec: DatagramCodec) -> KeyRing:
    protection = codec._protection
    assert isinstance(protection, SealedProtection)
    return protection.ring


def reason_of(codec: DatagramCodec, datagram: bytes) -> DropReason:
    with pytest.raises(FrameError) as caught:
        codec.open(datagram)
    return caught.value.reason


@given(st.binary(max_size=1400))
def test_what_one_seals_another_opens_once(payload: bytes) -> None:
    sender, receiver = codec(), codec(sender=B)
    datagram = sender.seal(payload)
    assert receiver.open(datagram) == (A, CLUSTER, payload)
    assert reason_of(receiver, datagram) is DropReason.REPLAYED
    if len(payload) > 8:
        assert payload not in datagram


@given(st.data())
def test_no_changed_byte_passes(data: st.DataObject) -> None:
    datagram = bytearray(codec().seal(b"some payload"))
    position = data.draw(st.integers(0, len(datagram) - 1))
    datagram[position] ^= data.draw(st.integers(1, 255))
    receiver = codec(sender=B)
    assert reason_of(receiver, bytes(datagram)) in {
        DropReason.FORGED,
        DropReason.UNKNOWN_KEY,
        DropReason.NOT_ENCRYPTED,
        DropReason.NOT_ROTA,
        DropReason.WRONG_VERSION,
        DropReason.FOREIGN_CLUSTER,
        DropReason.MALFORMED,
    }
    assert not receiver._known


@given(st.integers(0, 90))
def test_no_shortened_datagram_passes(length: int) -> None:
    datagram = codec().seal(b"some payload")
    with pytest.raises(FrameError):
        codec(sender=B).open(datagram[: min(length, len(datagram) - 1)])


def test_an_envelope_cannot_be_put_around_the_payload_of_another() -> None:
    a, b = codec(), codec(sender=B)
    ours, theirs = a.seal(b"of a"), b.seal(b"of b")
    header = len(a._header)
    assert reason_of(codec(sender=Address("c", 1)), ours[:header] + theirs[header:]) is DropReason.FORGED


def test_a_forgery_leaves_no_trace() -> None:
    sender, receiver = codec(), codec(sender=B)
    good = sender.seal(b"x")
    forged = good[:-1] + bytes([good[-1] ^ 1])
    assert reason_of(receiver, forged) is DropReason.FORGED
    assert receiver.open(good).payload == b"x"


def test_order_does_not_matter() -> None:
    sender, receiver = codec(), codec(sender=B)
    datagrams = [sender.seal(b"%d" % number) for number in range(1500)]
    assert [receiver.open(datagram).payload for datagram in reversed(datagrams)] == [
        b"%d" % number for number in reversed(range(1500))
    ]


def test_a_restarted_sender_never_reuses_a_derived_key() -> None:
    first, second = codec(), codec()
    header = len(first._header)
    assert first.seal(b"same")[header + 4 : header + 20] != second.seal(b"same")[header + 4 : header + 20]
    receiver = codec(sender=B)
    assert receiver.open(first.seal(b"same")).payload == receiver.open(second.seal(b"same")).payload


def test_a_session_ends_before_its_counter_could(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("membership.wire.sealing.DATAGRAMS_PER_SESSION", 3)
    sender, receiver = codec(), codec(sender=B)
    header = len(sender._header)
    datagrams = [sender.seal(b"x") for _ in range(7)]
    assert len({datagram[header : header + 20] for datagram in datagrams}) == 3
    assert all(receiver.open(datagram).payload == b"x" for datagram in datagrams)


def test_what_comes_back_to_its_sender_is_refused() -> None:
    sender = codec()
    assert reason_of(sender, sender.seal(b"x")) is DropReason.REFLECTED


def without_keys() -> DatagramCodec:
    return DatagramCodec(A, CLUSTER)


@pytest.mark.parametrize(
    ("sender", "receiver", "reason"),
    [
        (without_keys, lambda: codec(sender=B), DropReason.NOT_ENCRYPTED),
        (codec, lambda: DatagramCodec(B, CLUSTER), DropReason.ENCRYPTED),
        (lambda: codec(STRANGE), lambda: codec(OLD, NEW, sender=B), DropReason.UNKNOWN_KEY),
        (lambda: codec(cluster_id=bytes(15) + b"x"), lambda: codec(sender=B), DropReason.FOREIGN_CLUSTER),
    ],
)
def test_each_refusal_has_its_reason(
    sender: Callable[[], DatagramCodec], receiver: Callable[[], DatagramCodec], reason: DropReason
) -> None:
    assert reason_of(receiver(), sender().seal(b"some payload")) is reason


def test_a_rotation_loses_nothing() -> None:
    """Install everywhere, use everywhere, remove everywhere; at every moment everybody opens what all seal."""
    codecs = [codec(sender=Address("10.0.0.1", port)) for port in range(1, 4)]

    def all_hear_all() -> None:
        for sender in codecs:
            datagram = sender.seal(b"hello")
            for receiver in codecs:
                if receiver is not sender:
                    assert receiver.open(datagram).payload == b"hello"

    under_old = codecs[0].seal(b"recorded")
    for step in (
        lambda ring: ring.install(NEW),
        lambda ring: ring.use(NEW.id),
        lambda ring: ring.remove(OLD.id),
    ):
        for each in codecs:
            step(ring_of(each))
            all_hear_all()
    assert reason_of(codecs[1], under_old) is DropReason.REMOVED_KEY


def test_a_key_that_comes_back_brings_no_replay_with_it() -> None:
    sender, receiver = codec(OLD), codec(OLD, NEW, sender=B)
    datagram = sender.seal(b"x")
    receiver.open(datagram)
    ring_of(receiver).use(NEW.id)
    ring_of(receiver).remove(OLD.id)
    ring_of(receiver).install(OLD)
    assert reason_of(receiver, datagram) is DropReason.REPLAYED


def test_many_senders_stay_within_the_bounds() -> None:
    receiver = codec(sender=B)
    protection = receiver._protection
    assert isinstance(protection, SealedProtection)
    first = codec()
    replay = first.seal(b"x")
    receiver.open(replay)
    for _ in range(_CIPHERS_KEPT + 10):
        receiver.open(codec().seal(b"x"))
    assert len(protection._ciphers) == _CIPHERS_KEPT
    assert reason_of(receiver, replay) is DropReason.REPLAYED  # windows are kept for longer than ciphers
    assert receiver.open(first.seal(b"y")).payload == b"y"
