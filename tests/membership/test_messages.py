"""The codec: every message survives it, and no bytes whatever raise anything but DecodeError."""

from __future__ import annotations

import contextlib
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from membership.protocol import messages as wire
from membership.protocol.view.cut import Cut, Removal, Update
from membership.protocol.view.member import Member
from membership.protocol.view.removal_history import RemovedMember


class EarlierConfiguration(msgspec.Struct, array_like=True, tag=8):
    """A FullConfiguration before there were proposed views."""

    sender: bytes
    epoch: int
    configuration_id: bytes
    body: bytes
    faulty: tuple[RemovedMember, ...] = ()


class EarlierColdStart(msgspec.Struct, array_like=True, tag=54):
    """A ColdStart before there were proposed views."""

    sender: Member
    candidate: bool
    turn: int
    follows: bytes
    follows_turn: int
    asking: bool
    remembers: int = -1
    is_copy: bool = False


HEADER = (b"s" * 16, 7, b"c" * 16)
SHORT_HEADER = (HEADER[0][:8], HEADER[1], HEADER[2][:8])


def examples(lab) -> list[wire.Message]:
    member = lab.member(1, metadata={"rack": "r1"})
    digest = wire.Digest(5, 6, 7)
    alerts = (
        wire.Alert(wire.AlertKind.REMOVE, 3, 0b101, 4),
        wire.Alert(wire.AlertKind.JOIN, -1, 0b1, 0, member),
        wire.Alert(wire.AlertKind.UPDATE, -1, 0b1, 0, member),
        wire.Alert(wire.AlertKind.EVICT, 3, 0b101, 4),
    )
    cut = Cut.of([member], [Removal(b"r" * 16, left=True)], [Update(b"u" * 16, (("rack", "r2"),))])
    entry = wire.ObserverEntry("10.0.0.1", 7946, 0b11)
    return [
        wire.JoinRequest(member, 3),
        wire.ObserversAssigned(*HEADER, b"k" * 16, member.incarnation, (entry,)),
        wire.JoinDeferred("later"),
        wire.JoinDenied(*HEADER, member.incarnation, "no"),
        wire.ObserveJoin(member, 7, b"c" * 16),
        wire.JoinObserved(*HEADER, member.incarnation),
        wire.FullConfiguration(*HEADER, b"body", (RemovedMember("n1", "10.0.0.1", 7946, 2, False),)),
        wire.Probe(*SHORT_HEADER, 9, digest),
        wire.ProbeAcknowledged(*SHORT_HEADER, 9, None),
        wire.QuorumAlarm(*SHORT_HEADER, 9, None),
        wire.NotMember(member.incarnation, b"c" * 8, 9),
        wire.Gossip(*SHORT_HEADER, digest, alerts, ((b"v" * 16, b"\x01\x02"),)),
        wire.PullCut(*HEADER, b"v" * 16),
        wire.CutBody(*HEADER, cut),
        wire.Prepare(*HEADER, 2, 0),
        wire.Promised(*HEADER, 2, 0, 1, 0, b"v" * 16),
        wire.Accept(*HEADER, 2, 0, b"v" * 16),
        wire.Accepted(*HEADER, 2, 0),
        wire.Rejected(*HEADER, 3, 1),
        wire.Decided(*HEADER, b"v" * 16, 9),
        wire.CatchUpRequest(*HEADER),
        wire.DecidedChain(*HEADER, (cut,)),
        wire.EvictedNotice(member.incarnation, 8),
        wire.LeaveRequest(*HEADER),
        wire.UpdateRequest(*HEADER, member),
        wire.EvictRequest(*HEADER, member.incarnation),
        wire.Unanswered(*SHORT_HEADER, 3),
        wire.IndirectProbe(*HEADER, 3, 17),
        wire.IndirectAnswer(*HEADER, 3, 17, True),
        wire.StreamProbe(*HEADER, 17),
        wire.StreamProbeAcknowledged(*HEADER, 17),
        wire.EnsembleJoin(member),
        wire.EnsembleMembers(member.incarnation, b"k" * 16, True, (member,)),
        wire.EnsembleReport(*HEADER, alerts),
        wire.EnsembleQuestion(*HEADER, (3, 4)),
        wire.EnsembleGreeting(member, (member,), 7, b"c" * 16, digest, (5,)),
        wire.EnsembleAlerts(*HEADER, alerts),
        wire.EnsembleVote(*HEADER, cut),
        wire.EnsemblePromise(*HEADER, 2, 0, 1, 0, cut),
        wire.EnsembleAccept(*HEADER, 2, 0, cut),
        wire.RecoveryRequest(*HEADER, b"y" * 16, (member.incarnation,), False),
        wire.RecoveryAnswer(*HEADER, b"y" * 16, "no"),
        wire.ColdStart(member, True, 1, b"f" * 16, 2, False),
    ]


def test_every_message_survives_the_codec(lab) -> None:
    messages = examples(lab)
    union = {
        kind for kind in vars(wire).values() if isinstance(kind, type) and issubclass(kind, wire.Message)
    }
    assert union - {wire.Message, wire.MemberMessage, wire.ShortMessage} == set(wire.MESSAGE_TYPES)
    assert {type(message) for message in messages} == set(wire.MESSAGE_TYPES)
    for message in messages:
        assert wire.decode(wire.encode(message)) == message


def test_frequent_messages_are_small(lab) -> None:
    """A probe is sent ten times a second by every member."""
    sizes = {type(message).__name__: len(wire.encode(message)) for message in examples(lab)}
    assert sizes["ProbeAcknowledged"] <= 28
    assert sizes["Probe"] <= 50, "with a digest, while there is news"
    empty = wire.Gossip(*SHORT_HEADER, wire.Digest((1 << 32) - 1, 100, 100))
    assert len(wire.encode(empty)) <= 34, "twenty times a second while there is news"
    assert max(sizes.values()) < 300


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x90",
        msgspec.msgpack.encode([99]),
        msgspec.msgpack.encode([1]),
        msgspec.msgpack.encode({"type": 1}),
        msgspec.msgpack.encode([9, b"short", 0, b"c" * 16, 1, [0, 0, 0]]),
        msgspec.msgpack.encode([9, b"s" * 16, -1, b"c" * 16, 1, [0, 0, 0]]),
        msgspec.msgpack.encode([9, b"s" * 16, 1 << 63, b"c" * 16, 1, [0, 0, 0]]),
        msgspec.msgpack.encode([12, b"s" * 16, 0, b"c" * 16, [0, 0, 0], [], [[b"v" * 16, bytes(1 << 15)]]]),
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xffx",
    ],
)
def test_what_is_not_a_message_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(wire.DecodeError):
        wire.decode(data)


@given(st.binary(max_size=200))
def test_random_bytes_are_a_decode_error_or_a_message(data: bytes) -> None:
    with contextlib.suppress(wire.DecodeError):
        wire.decode(data)


def test_mutated_messages_are_a_decode_error_or_a_message(lab) -> None:
    rng = random.Random(1)
    originals = [wire.encode(message) for message in examples(lab)]
    survived = 0
    for _ in range(5000):
        data = bytearray(rng.choice(originals))
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        try:
            wire.decode(bytes(data))
            survived += 1
        except wire.DecodeError:
            pass
    assert 0 < survived < 5000


def test_only_messages_of_strangers_may_lack_the_cluster_id() -> None:
    strangers = {wire.JoinRequest, wire.JoinDeferred, wire.ColdStart, wire.NotMember}
    assert set(wire.ANONYMOUS_MESSAGES) == strangers | {wire.EnsembleJoin, wire.EnsembleGreeting}


def test_agents_of_the_version_before_proposed_views_understand_and_are_understood(lab) -> None:
    """The simulator's clusters are all of one version."""
    whole = wire.FullConfiguration(*HEADER, b"body", proposed=True)
    earlier = msgspec.msgpack.decode(wire.encode(whole), type=EarlierConfiguration)
    assert earlier == EarlierConfiguration(*HEADER, b"body")
    assert wire.decode(msgspec.msgpack.encode(earlier)) == wire.FullConfiguration(*HEADER, b"body")
    known = (lab.member(1), True, 3, b"f" * 16, 4, True, 17, False)
    start = wire.ColdStart(*known, accepted=(b"p" * 16,))
    older = msgspec.msgpack.decode(wire.encode(start), type=EarlierColdStart)
    assert older == EarlierColdStart(*known)
    assert wire.decode(msgspec.msgpack.encode(older)) == wire.ColdStart(*known)
