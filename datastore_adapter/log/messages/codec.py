"""The encoding of what the log's processes say to each other, and of what stands at an address.

Frames with a number by which a reply finds its request, and entries as they lie on disk.  Everything is checked as it
is decoded.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, TypeVar, cast, get_args

import msgspec

from datastore_adapter.log.errors import ProtocolError
from datastore_adapter.log.messages import Count, Entry, RecordId, Reply, Request, UnknownRequest

T = TypeVar("T")

_REQUEST_TAGS: Final = frozenset(kind.__struct_config__.tag for kind in get_args(Request))

FRAME_LIMIT: Final = 48 << 20
"""Bytes, the largest frame that is decoded: a document, or a chunk of the largest records."""


class _Identity(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The beginning of an `Entry`."""

    record_id: RecordId


class RequestFrame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    number: Count
    request: Request


class ReplyFrame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    number: Count
    reply: Reply


class _Numbered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A frame of whatever version."""

    number: Count
    message: tuple[Any, ...]


_encoder = msgspec.msgpack.Encoder()
_request_decoder = msgspec.msgpack.Decoder(RequestFrame)
_numbered_decoder = msgspec.msgpack.Decoder(_Numbered)
_reply_decoder = msgspec.msgpack.Decoder(ReplyFrame)
_entry_decoder = msgspec.msgpack.Decoder(Entry)
_identity_decoder = msgspec.msgpack.Decoder(_Identity)


def encode_request(number: int, request: Request) -> bytes:
    return _encoder.encode(RequestFrame(number, request))


def encode_reply(number: int, reply: Reply) -> bytes:
    return _encoder.encode(ReplyFrame(number, reply))


def decode_request(frame: bytes) -> RequestFrame:
    """Raises ProtocolError on anything that is no request; one of a later version is an `UnknownRequest`."""
    try:
        return _decode(_request_decoder, frame)
    except ProtocolError:
        number, kind = _kind_of(frame)
        if kind is None or kind in _REQUEST_TAGS:
            raise
        return RequestFrame(number, cast(Request, UnknownRequest(kind)))


def _kind_of(frame: bytes) -> tuple[int, int | None]:
    """The number and the kind of a request of whatever version; None: it is none."""
    try:
        numbered = _decode(_numbered_decoder, frame)
    except ProtocolError:
        return 0, None
    kind = numbered.message[0] if numbered.message else None
    return numbered.number, kind if type(kind) is int else None


def decode_reply(frame: bytes) -> ReplyFrame:
    """Raises ProtocolError on anything that is no reply."""
    return _decode(_reply_decoder, frame)


def encode_entry(entry: Entry) -> bytes:
    return _encoder.encode(entry)


def decode_entry(data: bytes) -> Entry:
    """Raises ProtocolError on anything that is no entry."""
    return _decode(_entry_decoder, data)


def decode_record_id(data: bytes) -> bytes:
    """The record id of an encoded entry, empty for junk; of the rest it reads no more than it must."""
    return _decode(_identity_decoder, data).record_id


def entries_checksum(entries: tuple[tuple[int, Entry], ...]) -> int:
    """CRC-32 over the entries of a chunk, so that both ends of a transfer compare what they hold."""
    return zlib.crc32(_encoder.encode(entries))


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    if len(data) > FRAME_LIMIT:
        raise ProtocolError(f"a frame of {len(data)} bytes; at most {FRAME_LIMIT} are read")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"not a message of the log: {error}") from None
