"""Requests that nobody should send: good ones, mutated.

As a program, against an agent that runs: ``python -m tests.rota.hostile_http HOST PORT COUNT [CA [TOKEN]]``.
"""

from __future__ import annotations

import random
import re
import ssl
import sys
import time
from collections import Counter
from collections.abc import Iterator

import trio

PATIENCE = 15.0
WITHOUT_END = 1.0
"""Seconds for an answer over TLS, where it cannot be said that nothing more comes."""
GOOD = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/html\r\n\r\n",
    b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer TOKEN\r\n\r\n",
    b"GET /v1/events?after=3&local=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer TOKEN\r\n\r\n",
    b"GET /console/main.js HTTP/1.1\r\nHost: 127.0.0.1\r\nIf-None-Match: \"x\"\r\n\r\n",
    b"GET /v1/layout/diff/1/2 HTTP/1.1\r\nHost: localhost:80\r\nCookie: __Host-rota=abc; x=y\r\n\r\n",
    b"POST /v1/undrain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 14\r\n"
    b"Authorization: Bearer TOKEN\r\n\r\n{\"host\": \"n1\"}",
    b"POST /v1/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    b"\r\n10\r\n{\"token\": \"rota_\"\r\n1\r\n}\r\n0\r\n\r\n",
    b"POST /v1/log/words HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/octet-stream\r\nContent-Length: 5\r\n"
    b"Expect: 100-continue\r\n\r\nhello",
    b"POST /v1/map/m HTTP/1.1\r\nHost: [::1]:7947\r\nContent-Type: application/json\r\nContent-Length: 31\r\n"
    b"Authorization: Bearer TOKEN\r\n\r\n{\"action\": \"get\", \"key\": \"a\"}  ",
    b"GET /v1/map/m HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
)  # fmt: skip
SPLICED = (
    b"\r\n", b"\n", b"\r", b"\x00", b"\xff\xfe", b": ", b"%00", b"%2e%2e/", b"../", b"//", b"\\", b"?", b"#", b"\x80",
    b"Content-Length: 18446744073709551616\r\n", b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Host: evil.example\r\n", b"Origin: https://evil.example\r\n", b"Connection: close\r\n", b"X: " + b"a" * 70_000,
    b"ffffffffffffffff\r\n", b"[" * 5000, b"HTTP/1.1", b"\xf0\x9f\x92\xa9", b"Authorization: Basic eDp5\r\n",
)  # fmt: skip


def mutated(seed: int, token: bytes = b"rota_wrong") -> bytes:
    """One request, the same for the same seed."""
    rng = random.Random(seed)
    request = bytearray(rng.choice(GOOD).replace(b"TOKEN", token))
    for _ in range(rng.choice((0, 1, 1, 2, 4, 8))):
        at, until = sorted(rng.randrange(len(request) + 1) for _ in range(2))
        match rng.randrange(6):
            case 0 if request:
                request[at % len(request)] ^= 1 << rng.randrange(8)
            case 1:
                del request[at : min(until, at + 20)]
            case 2:
                request[at:at] = rng.choice(SPLICED)
            case 3:
                request[at:at] = request[at:until]
            case 4:
                del request[at:]
            case _:
                request += rng.choice(GOOD)
    return bytes(request)


async def ask(stream: trio.abc.Stream, request: bytes) -> str:
    """Send it and nothing more; the status of the first answer, ``closed``, or ``silent`` where it waits for more."""
    received = b""
    with trio.move_on_after(PATIENCE if isinstance(stream, trio.SocketStream) else WITHOUT_END) as limit:
        try:
            await stream.send_all(request)
            if isinstance(stream, trio.SocketStream):
                await stream.send_eof()
            while chunk := await stream.receive_some(65536):
                received += chunk[: 100 - len(received)]
                if len(received) >= 12 and not isinstance(stream, trio.SocketStream):
                    break  # it cannot be told that nothing more comes
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", received)
    return found[1].decode() if found else "silent" if limit.cancelled_caught else "closed"


async def attack(
    host: str, port: int, seeds: Iterator[int], tls: ssl.SSLContext | None, token: bytes
) -> Counter[str]:
    """Every mutant on a connection of its own, forty at a time; how they were answered."""
    seen: Counter[str] = Counter()

    async def one_after_another() -> None:
        for seed in seeds:
            stream: trio.abc.Stream = await trio.open_tcp_stream(host, port)
            if tls is not None:
                stream = trio.SSLStream(stream, tls, server_hostname=host, https_compatible=True)
            try:
                seen[await ask(stream, mutated(seed, token))] += 1
            finally:
                await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        for _ in range(40):
            nursery.start_soon(one_after_another)
    return seen


if __name__ == "__main__":
    host, port, count, *more = sys.argv[1:]
    context = ssl.create_default_context(cafile=more[0]) if more else None
    secret = more[1].encode() if len(more) > 1 else b"rota_wrong"
    began = time.monotonic()
    print(dict(trio.run(attack, host, int(port), iter(range(int(count))), context, secret)), flush=True)
    print(f"{time.monotonic() - began:.1f} s")
