"""What a replicated map writes into the log, and its encoding.

Commands, the chunks of a snapshot and its manifest, as values that are checked on decoding.

A record that does not begin with our mark was put there by somebody else, and every replica leaves it out alike.
One of a later version is an error, because leaving it out would let replicas differ.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from datastore_adapter.log.errors import MapVersionError, ProtocolError

COMMAND_ID_LENGTH: Final = 12
MARK: Final = b"rM"
VERSION: Final = 1

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
CommandId: TypeAlias = Annotated[
    bytes, msgspec.Meta(min_length=COMMAND_ID_LENGTH, max_length=COMMAND_ID_LENGTH)
]


class Put(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Set a key, or delete it (None)."""

    id: CommandId
    key: str
    value: bytes | None
    limit: Natural
    """Bytes the map may hold afterwards.  It goes with the command so that all replicas decide alike."""


class Replace(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """Set or delete (None) a key if it holds what is expected (None: if it is not there)."""

    id: CommandId
    key: str
    expected: bytes | None
    value: bytes | None
    limit: Natural


class Chunk(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """A part of a snapshot."""

    entries: tuple[tuple[str, bytes], ...]


class Manifest(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """A snapshot that is whole: every chunk was in the log before this."""

    position: Natural
    """Every command below this address is in it."""
    written: Natural
    """What `MapState.written` was."""
    chunks: tuple[tuple[Natural, Natural], ...]
    """Address and CRC-32 of each chunk's payload, in order."""
    entries: Natural


Command: TypeAlias = Put | Replace
MapRecord: TypeAlias = Put | Replace | Chunk | Manifest

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[MapRecord] = msgspec.msgpack.Decoder(MapRecord)


def encode(record: MapRecord) -> bytes:
    return MARK + bytes([VERSION]) + _encoder.encode(record)


def decode(payload: bytes) -> MapRecord:
    """Raises ProtocolError on what is no record of a map, MapVersionError on one of a later version."""
    if not payload.startswith(MARK) or len(payload) <= len(MARK):
        raise ProtocolError("no record of a map")
    if payload[len(MARK)] > VERSION:
        raise MapVersionError(
            f"the map is written by version {payload[len(MARK)]} of its format, and this process knows {VERSION}; "
            "upgrade it"
        )
    try:
        return _decoder.decode(memoryview(payload)[len(MARK) + 1 :])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"no record of a map: {error}") from None
