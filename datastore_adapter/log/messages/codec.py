"""The encoding of what the log's processes say to each other, and of what stands at an address.

Frames, and entries as they lie on disk.  A frame has a number, by which a reply finds its request, and says who it is
for or from; version 0.1 sends it without that, and does not look at it.  Everything is checked as it is decoded.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, TypeVar, cast, get_args

import msgspec

from datastore_adapter.log.errors import ProtocolError
from datastore_adapter.log.messages import (
    Count,
    Entry,
    HostIdentity,
    RecordId,
    Reply,
    Request,
    UnknownRequest,
)

T = TypeVar("T")

_REQUEST_TAGS: Final = frozenset(kind.__struct_config__.tag for kind in get_args(Request))

FRAME_LIMIT: Final = 48 << 20
"""Bytes, the largest frame that is decoded: a document, or a chunk of the largest records."""


class _EntryHead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The beginning of an `Entry`."""

    record_id: RecordId


class RequestFrame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    number: Count
    request: Request
    to: HostIdentity | None = None
    """None: whoever gets it."""


class ReplyFrame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    number: Count
    reply: Reply
    by: HostIdentity | None = None
    """None: a host of version 0.1."""


class _Numbered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A frame of whatever version."""

    number: Count
    message: tuple[Any, ...]
    to: HostIdentity | None = None


_encoder = msgspec.msgpack.Encoder()
_request_decoder = msgspec.msgpack.Decoder(RequestFrame)
_numbered_decoder = msgspec.msgpack.Decoder(_Numbered)
_reply_decoder = msgspec.msgpack.Decoder(ReplyFrame)
_entry_decoder = msgspec.msgpack.Decoder(Entry)
_entry_head_decoder = msgspec.msgpack.Decoder(_EntryHead)


def encode_request(number: int, request: Request, to: HostIdentity | None = None) -> bytes:
    return _encoder.encode(RequestFrame(number, request, to))


def encode_reply(number: int, reply: Reply, by: HostIdentity | None = None) -> bytes:
    return _encoder.encode(ReplyFrame(number, reply, by))


def decode_request(frame: bytes) -> RequestFrame:
    """Raises ProtocolError on anything that is no request; one of a later version is an `UnknownRequest`."""
    try:
        return _decode(_request_decoder, frame)
    except ProtocolError:
        unknown = _unknown(frame)
        if unknown is None:
            raise
        return unknown


def _unknown(frame: bytes) -> RequestFrame | None:
    """The frame of a request of a kind that is unknown here; None: it is none."""
    try:
        numbered = _decode(_numbered_decoder, frame)
    except ProtocolError:
        return None
    kind = numbered.message[0] if numbered.message else None
    if type(kind) is not int or kind in _REQUEST_TAGS:
        return None
    return RequestFrame(numbered.number, cast(Request, UnknownRequest(kind)), numbered.to)


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
    return _decode(_entry_head_decoder, data).record_id


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
