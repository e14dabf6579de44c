"""Packets to fuzz with: a valid message of every type, and ways to spoil them.

Samples made from the types' own description, so that a new message type is covered by itself, with values that mean
something to a given view; and mutators of bytes and of structure.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from membership.protocol import messages as wire
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut, Removal
from membership.protocol.view.member import SHORT_BYTES, Member

NEST = 60
"""Levels of a nested bomb at most in a value; raw bombs go far deeper."""

_EXTREMES: tuple[Any, ...] = (
    0, 1, -1, 2**31 - 1, 2**31, 2**62 - 1, 2**62, 2**63, 2**64 - 1, -(2**63), None, True, 1.5, float("nan"),
    float("inf"), "", "x" * 300, "\x00", b"", bytes(16), b"\xff" * 16, bytes(17), [], [[]], {}, {"a": [1]},
)  # fmt: skip
_BYTES = bytes.fromhex("00017f808f909fa0bfc0c1c4c6c7c9cacbcccfd3d4d9dbdcdddedfe0ff")
_BOMBS = (b"\x91", b"\x81\xa1a", b"\xdd\x00\x00\x00\x01", b"\x92\x0c")
_GREEDY = (
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xdc\xff\xff",
)


class Samples:
    """Valid messages in a view, as some member of it would send them to another."""

    def __init__(self, view: Configuration, stranger: Member) -> None:
        self._view = view
        self._stranger = stranger

    def all(self, receiver: int) -> list[wire.Message]:
        """At least one message of every type, for the member with this index (or the stranger, a joiner)."""
        return [self._shaped(kind) for kind in wire.MESSAGE_TYPES] + self._meaningful(receiver)

    def _shaped(self, kind: type[wire.Message]) -> wire.Message:
        message = _value_of(msgspec.inspect.type_info(kind))
        if isinstance(message, wire.MemberMessage):
            sender = self._view.members[1]
            header = {
                # Some messages name both by their first bytes only, as many as the sample has.
                "sender": sender.incarnation[: len(message.sender)],
                "epoch": self._view.epoch,
                "configuration_id": self._view.id[: len(message.configuration_id)],
            }
            message = msgspec.structs.replace(message, **header)
        assert isinstance(message, wire.Message)
        return message

    def _meaningful(self, receiver: int) -> list[wire.Message]:
        view, stranger = self._view, self._stranger
        header = (view.members[1].incarnation, view.epoch, view.id)
        short_header = (header[0][:SHORT_BYTES], view.epoch, view.short_id)
        me = view.members[receiver].incarnation
        every_ring = (1 << len(view.subjects_of(view.members[0]))) - 1
        accusation = wire.Alert(wire.AlertKind.REMOVE, 3, every_ring)
        leaving = wire.Alert(wire.AlertKind.LEAVE, 2, 0b101)
        joining = wire.Alert(wire.AlertKind.JOIN, -1, every_ring, 3, stranger)
        removal = Cut.of([stranger], [Removal(view.members[3].incarnation)])
        later = view.apply(removal)
        everybody = b"\xff" * ((len(view) + 7) // 8)
        return [
            wire.Gossip(*short_header, wire.Digest(5, 10, 1), (accusation, leaving)),
            wire.Gossip(*short_header, wire.Digest(), (joining,), ((removal.hash, b"\x06"),)),
            wire.Gossip(*short_header, wire.Digest(1, 2, 3), (), ((removal.hash, everybody),)),
            wire.Decided(*header, removal.hash, view.epoch + 1),
            wire.CutBody(*header, removal),
            wire.DecidedChain(*header, (removal, Cut.of([], [Removal(view.members[4].incarnation)]))),
            wire.FullConfiguration(header[0], later.epoch, later.id, later.encoded()),
            wire.FullConfiguration(*header, view.encoded()),
            wire.Prepare(*header, 2, 1),
            wire.Promised(*header, 2, receiver, 1, 0, removal.hash),
            wire.Accept(*header, 2, 1, removal.hash),
            wire.EvictedNotice(me, view.epoch + 1),
            wire.JoinRequest(stranger),
            wire.ObserveJoin(stranger, view.epoch, view.id),
            wire.NotMember(me, view.short_id, 1),
            wire.ObserversAssigned(
                *header, view.cluster_id, stranger.incarnation, (wire.ObserverEntry("10.0.0.1", 1, 3),)
            ),
            wire.JoinDenied(*header, stranger.incarnation, "no"),
        ]


def _value_of(kind: msgspec.inspect.Type) -> Any:
    """A small valid value of a type as msgspec describes it."""
    match kind:
        case msgspec.inspect.StructType():
            return kind.cls(**{field.name: _value_of(field.type) for field in kind.fields})
        case msgspec.inspect.IntType():
            return max(1, kind.ge or 0)
        case msgspec.inspect.BoolType():
            return True
        case msgspec.inspect.FloatType():
            return 1.0
        case msgspec.inspect.StrType():
            return "x" * max(1, kind.min_length or 0)
        case msgspec.inspect.BytesType():
            return b"\x01" * max(1, kind.min_length or 0)
        case msgspec.inspect.EnumType():
            return next(iter(kind.cls))
        case msgspec.inspect.TupleType():
            return tuple(_value_of(item) for item in kind.item_types)
        case msgspec.inspect.VarTupleType():
            return (_value_of(kind.item_type),)
        case msgspec.inspect.UnionType():
            return _value_of(kind.types[0])
    raise NotImplementedError(f"no sample for {kind}")


# Spoiling them.


def spoil_value(payload: bytes, rng: random.Random, known: tuple[bytes, ...] = ()) -> bytes:
    """Decode, replace some parts, encode again: the shape stays MessagePack, and often a message.

    `known`: identifiers that mean something to the receiver; they take each other's place.
    """
    try:
        value = msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return spoil_bytes(payload, rng)
    spoil = _spoiled if rng.random() < 0.3 else _changed
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        value = spoil(value, rng, 0, known)
    try:
        return msgspec.msgpack.encode(value)
    except (TypeError, OverflowError, RecursionError):
        return payload


def _changed(value: Any, rng: random.Random, depth: int, known: tuple[bytes, ...]) -> Any:
    """Another value of the same type: what comes out is still a message, but says something else."""
    if isinstance(value, list) and value and depth < NEST:
        changed = list(value)
        index = rng.randrange(1 if depth == 0 else 0, len(changed)) if len(changed) > 1 else 0
        if isinstance(changed[index], list) and changed[index] and rng.random() < 0.1:
            changed[index] = changed[index] * rng.choice((0, 2, 30))
        else:
            changed[index] = _changed(changed[index], rng, depth + 1, known)
        return changed
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice(
            (0, 1, 2, 3, 7, 1023, 1 << 20, (1 << 31) - 1, (1 << 62) - 1, value + 1, max(0, value - 1))
        )
    if isinstance(value, bytes):
        if len(value) in (8, 16) and known:
            return rng.choice(known)[: len(value)]
        if len(value) > 40 and rng.random() < 0.8:  # a configuration, which is MessagePack itself
            return spoil_value(value, rng, known)
        return rng.randbytes(rng.choice((0, 1, 2, 16, 100)))
    if isinstance(value, str):
        return rng.choice(("", "n1", "n99", "10.0.0.1", "x" * 255, "\u00e9\u4e2d", value + "x"))
    return value


def _spoiled(value: Any, rng: random.Random, depth: int, known: tuple[bytes, ...]) -> Any:
    """A value that is not of the type asked for, or not of its size."""
    if isinstance(value, list) and value and depth < NEST and rng.random() < 0.85:
        changed = list(value)
        index = rng.randrange(len(changed))
        match rng.randrange(12):
            case 0:
                del changed[index]
            case 1:
                changed.insert(index, rng.choice(_EXTREMES))
            case 2:
                changed[index : index + 1] = [changed[index]] * rng.choice((2, 70, 300))
            case _:
                changed[index] = _spoiled(changed[index], rng, depth + 1, known)
        return changed
    if isinstance(value, bool) or value is None:
        return rng.choice(_EXTREMES)
    if isinstance(value, int) and rng.random() < 0.7:
        return max(-(2**63), min(2**64 - 1, value + rng.choice((-1, 1, 2, 7, -100, 1 << 20, 1 << 40))))
    if isinstance(value, bytes | str) and value and rng.random() < 0.6:
        cut = rng.randrange(len(value))
        return rng.choice((value[:cut], value[cut:], value * 2, value * 40))
    return rng.choice(_EXTREMES)


def spoil_bytes(data: bytes, rng: random.Random, other: bytes = b"") -> bytes:
    """Flip bits, cut, splice, repeat, lie about lengths, nest: what is left need not be MessagePack at all."""
    spoiled = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        where = rng.randrange(len(spoiled) + 1)
        match rng.randrange(9):
            case 0 if where < len(spoiled):
                spoiled[where] ^= 1 << rng.randrange(8)
            case 1 if where < len(spoiled):
                spoiled[where] = rng.choice(_BYTES)
            case 2:
                del spoiled[where:]
            case 3:
                del spoiled[where : where + rng.randrange(1, 9)]
            case 4:
                spoiled[where:where] = rng.randbytes(rng.randrange(1, 20))
            case 5 if other:
                spoiled[where:] = other[rng.randrange(len(other)) :]
            case 6:
                end = where + rng.randrange(1, 40)
                spoiled[where:where] = spoiled[where:end] * rng.choice((1, 2, 20))
            case 7:
                spoiled[where:where] = rng.choice(_GREEDY)
            case 8:
                spoiled[where:where] = rng.choice(_BOMBS) * rng.choice((10, 200, 1500))
        if len(spoiled) > 10_000:
            del spoiled[9_000:]
    return bytes(spoiled)
