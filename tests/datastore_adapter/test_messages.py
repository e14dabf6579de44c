"""The codec: what is sent arrives, and garbage is refused in words."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter import ProtocolError
from datastore_adapter.log.messages import (
    JUNK,
    Chunk,
    Entry,
    Found,
    Read,
    StatusReply,
    UnknownRequest,
    Write,
    WriteChunk,
    WrongEpoch,
)
from datastore_adapter.log.messages.codec import (
    FRAME_LIMIT,
    decode_entry,
    decode_reply,
    decode_request,
    encode_entry,
    encode_reply,
    encode_request,
    entries_checksum,
)

entries = st.builds(
    Entry,
    st.binary(max_size=16),
    st.text(max_size=20),
    st.lists(st.integers(0, 1 << 40), max_size=5).map(tuple),
    st.binary(max_size=50),
)


@given(st.integers(0, 1 << 31), entries)
def test_requests_and_replies_arrive(number: int, entry: Entry) -> None:
    request = decode_request(encode_request(number, Write(3, "s00", 7, entry)))
    assert (request.number, request.request) == (number, Write(3, "s00", 7, entry))
    reply = decode_reply(encode_reply(number, Found(entry)))
    assert (reply.number, reply.reply) == (number, Found(entry))
    assert decode_entry(encode_entry(entry)) == entry
    assert entry.is_junk == (entry.record_id == b"")
    chunk = ((1, entry), (4, JUNK))
    received = decode_reply(encode_reply(0, Chunk(chunk, entries_checksum(chunk), 9))).reply
    assert isinstance(received, Chunk)
    assert entries_checksum(received.entries) == received.checksum


def test_a_request_of_a_later_version_is_told_from_garbage() -> None:
    frame = decode_request(msgspec.msgpack.encode([7, [99, "whatever", {"it": b"has"}]]))
    assert (frame.number, frame.request) == (7, UnknownRequest(99))
    for garbage in ([7, [2, "wrong fields"]], [7, ["99"]], [7, []], [-1, [99]], [99]):
        with pytest.raises(ProtocolError):
            decode_request(msgspec.msgpack.encode(garbage))


@given(st.binary(max_size=300))
def test_garbage_is_refused(data: bytes) -> None:
    for decode in (decode_request, decode_reply, decode_entry):
        with contextlib.suppress(ProtocolError):
            decode(data)


@given(st.data())
def test_a_mutated_frame_is_refused_or_a_request(data: st.DataObject) -> None:
    entry = Entry(b"x" * 16, "red", (1, 2), b"payload")
    frame = bytearray(encode_request(7, WriteChunk(1, "s00", ((1, entry),), 5)))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        decode_request(bytes(frame))


@pytest.mark.parametrize(
    "request_", [Read(1, "../../etc", 0), Read(1, "", 0), Read(1, "s00", -1), Read(-2, "s00", 0)]
)
def test_values_out_of_range_are_refused_while_decoding(request_: Read) -> None:
    with pytest.raises(ProtocolError):
        decode_request(encode_request(0, request_))


def test_too_large_a_frame_is_refused_unread() -> None:
    with pytest.raises(ProtocolError, match="at most"):
        decode_request(bytes(FRAME_LIMIT + 1))


def test_a_status_travels() -> None:
    status = StatusReply("n1", 3, False, 2, (), -1, {"log_unit.Write": 5})
    assert decode_reply(encode_reply(1, status)).reply == status
    assert decode_reply(encode_reply(1, WrongEpoch(-1))).reply == WrongEpoch(-1)
