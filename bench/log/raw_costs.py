"""What the system itself takes for an fsync and for a message over loopback, with nothing of rota in between.

One process that appends blocks to a file and makes each durable, and two that pass bytes back and forth on a blocking
TCP socket; seconds on the clock and of CPU (of both processes, the system's share included).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ECHO: Final = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
expected, answer = int(sys.argv[2]), bytes(int(sys.argv[3]))
while True:
    left = expected
    while left:
        received = len(connection.recv(left))
        if not received:
            sys.exit()
        left -= received
    connection.sendall(answer)
"""


@dataclass(frozen=True, slots=True)
class RawCost:
    """Of one piece."""

    seconds: float
    cpu_seconds: float


def fsync_cost(count: int, size: int, directory: Path | None = None) -> RawCost:
    """`count` times: append `size` bytes to a file and make them durable."""
    block = os.urandom(size)
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        file.write(block)
        os.fsync(file.fileno())
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            file.write(block)
            os.fdatasync(file.fileno())
        return RawCost((time.perf_counter() - began) / count, (time.process_time() - cpu) / count)


def round_trip_cost(count: int, request: int, reply: int) -> RawCost:
    """`count` times: send `request` bytes to another process, which answers with `reply` bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        child = subprocess.Popen([sys.executable, "-c", _ECHO, str(port), str(request), str(reply)])
        connection, _ = server.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        message = bytes(request)
        _pass(connection, message, reply)
        before, began, cpu = cpu_seconds_of(child.pid), time.perf_counter(), time.process_time()
        for _ in range(count):
            _pass(connection, message, reply)
        seconds, own = time.perf_counter() - began, time.process_time() - cpu
        theirs = cpu_seconds_of(child.pid) - before
    child.wait()
    return RawCost(seconds / count, (own + theirs) / count)


def _pass(connection: socket.socket, message: bytes, reply: int) -> None:
    connection.sendall(message)
    left = reply
    while left:
        left -= len(connection.recv(left))


def cpu_seconds_of(pid: int) -> float:
    """CPU seconds a process has used so far, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
