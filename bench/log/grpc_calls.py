"""Unary gRPC calls over one connection, as cheap as they can be: for loads on servers that speak gRPC, etcd first.

Just enough of HTTP/2 for calls whose request fits one frame.  The headers of a request are the same bytes each time,
those of an answer are not looked into: an answer without a message is a refusal.  What there is to send leaves in one
write, what has come is read in one read, so that the client takes as little of the machine from the server as a
client can.  It knows no deadlines, no compression and no TLS.
Source: RFC 9113 (HTTP/2), RFC 7541 (HPACK, literal fields only); gRPC over HTTP/2, `PROTOCOL-HTTP2.md`.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_HEAD: Final = struct.Struct("!HBBBI")
_HEAD_BYTES: Final = 9
_OURS: Final = struct.pack("!HIHIHI", 1, 0, 2, 0, 4, (1 << 31) - 1)
"""Settings: no table of headers, nothing pushed, windows of streams without a bound that matters."""
_WINDOW: Final = (1 << 31) - (1 << 16)
_FIRST_WINDOW: Final = 65535


class CallFailedError(Exception):
    """The server refused a call, or the connection."""


class GrpcConnection:
    """One connection to ``host:port`` `address`; for one task at a time."""

    def __init__(self, address: str, timeout: float = 10.0) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self._socket = socket.create_connection((host, int(port)), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self._outgoing = [_PREFACE, _frame(_SETTINGS, 0, 0, _OURS), _window_update(_WINDOW)]
        self._stream = -1
        self._window = _FIRST_WINDOW
        """Bytes of requests that the server takes as yet."""
        self._answers: dict[int, bytes] = {}
        """By stream, the message that has come so far."""
        self._ended: deque[tuple[int, bytes]] = deque()

    def close(self) -> None:
        self._socket.close()

    def call(self, method: str, message: bytes) -> bytes:
        """One call of ``/service/method``; the answer's message."""
        self._begin(self._headers(method), message)
        for _, answer in self._finished():
            return answer
        raise AssertionError("unreachable")

    def load(
        self, method: str, message: Callable[[], bytes], in_flight: int, seconds: float
    ) -> tuple[list[float], float]:
        """Calls for some seconds, `in_flight` at a time; how long each took, and all."""
        headers = self._headers(method)
        began: dict[int, float] = {}
        latencies: list[float] = []
        start = time.perf_counter()
        for _ in range(in_flight):
            began[self._begin(headers, message())] = time.perf_counter()
        for stream, _ in self._finished():
            now = time.perf_counter()
            latencies.append(now - began.pop(stream))
            if now < start + seconds:
                began[self._begin(headers, message())] = now
            elif not began:
                break
        return latencies, time.perf_counter() - start

    def _headers(self, method: str) -> bytes:
        """Literal fields that are not to be kept, so that every request's are the same bytes."""
        path = b"\x04" + _text(method)
        authority = b"\x01" + _text(self.address)
        kind = b"\x0f\x10" + _text("application/grpc")
        return b"\x83\x86" + path + authority + kind + b"\x00" + _text("te") + _text("trailers")

    def _begin(self, headers: bytes, message: bytes) -> int:
        self._stream += 2
        body = b"\0" + len(message).to_bytes(4, "big") + message
        while self._window < len(body):
            self._receive()
        self._window -= len(body)
        self._outgoing.append(_frame(_HEADERS, _END_HEADERS, self._stream, headers))
        self._outgoing.append(_frame(_DATA, _END_STREAM, self._stream, body))
        return self._stream

    def _finished(self) -> Iterator[tuple[int, bytes]]:
        """Streams and their answers, as they come; what was begun meanwhile is sent before the next is waited for."""
        while True:
            while self._ended:
                yield self._ended.popleft()
            self._receive()

    def _receive(self) -> None:
        if self._outgoing:
            self._socket.sendall(b"".join(self._outgoing))
            self._outgoing.clear()
        data = self._socket.recv(1 << 18)
        if not data:
            raise CallFailedError(f"{self.address} closed the connection")
        self._buffer += data
        while len(self._buffer) >= _HEAD_BYTES:
            high, low, kind, flags, stream = _HEAD.unpack_from(self._buffer)
            end = _HEAD_BYTES + (high << 8 | low)
            if len(self._buffer) < end:
                break
            body = bytes(memoryview(self._buffer)[_HEAD_BYTES:end])
            del self._buffer[:end]
            self._take(kind, flags, stream, body)
            if kind in (_DATA, _HEADERS) and flags & _END_STREAM:
                self._ended.append((stream, self._answer(stream)))

    def _take(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == _DATA:
            self._answers[stream] = self._answers.get(stream, b"") + body
        elif kind == _SETTINGS and not flags & _ACK:
            self._outgoing.append(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._outgoing.append(_frame(_PING, _ACK, 0, body))
        elif kind == _WINDOW_UPDATE and stream == 0:
            self._window += int.from_bytes(body, "big")
        elif kind in (_RESET, _GOAWAY):
            raise CallFailedError(f"{self.address} ended a call: {body!r}")

    def _answer(self, stream: int) -> bytes:
        answer = self._answers.pop(stream, b"")
        if len(answer) < 5:
            raise CallFailedError(f"{self.address} refused a call")
        return answer[5:]


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return _HEAD.pack(len(body) >> 8, len(body) & 0xFF, kind, flags, stream) + body


def _window_update(size: int) -> bytes:
    return _frame(_WINDOW_UPDATE, 0, 0, size.to_bytes(4, "big"))


def _text(text: str) -> bytes:
    assert len(text) < 127, "longer ones have another length field"
    return bytes([len(text)]) + text.encode("ascii")
