"""Foreign clients on keys of some slots, in a process of their own, and how long each of their requests took.

One thread for the `valkey` package's cluster client and one for the `redis` package's.  Each has every second key to
itself, writes and reads random ones of them, a pause after each request, and knows what it must read.  What counts as
an error is what a client raises to its caller after its own retries, or an answer that is not what was written.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from bench.percentile import percentile
from chaos.slots.clients import CLIENTS, connect

PAUSE: Final = 0.001
VALUE_SIZE: Final = 64
READY: Final = b"ready\n"


def keys_in(first: int, last: int) -> Iterator[str]:
    """Keys of these slots, without end."""
    from valkey.crc import key_slot

    names = (f"moved:{number}" for number in itertools.count())
    return (name for name in names if first <= key_slot(name.encode()) <= last)


def value_of(key: str, number: int) -> str:
    """What the ``number``-th write of a key writes; 0: what it was filled with."""
    return f"{number} of {key}".ljust(VALUE_SIZE, ".")


@dataclass(frozen=True, slots=True)
class Span:
    """What the clients met between two moments."""

    requests: int
    errors: int
    p50: float
    """Seconds."""
    p99: float
    worst: float


@dataclass(frozen=True, slots=True)
class Report:
    """Of all clients, from begin to end.  Times are of the system's monotonic clock."""

    ended_at: Sequence[float]
    seconds: Sequence[float]
    """Of each request, in the order of ``ended_at``."""
    failed_at: Sequence[float]
    last_error: str

    def between(self, began: float, ended: float) -> Span:
        """Requests that were under way then."""
        taken = sorted(
            seconds
            for end, seconds in zip(self.ended_at, self.seconds, strict=True)
            if began <= end and end - seconds <= ended
        )
        errors = sum(began <= at <= ended for at in self.failed_at)
        if not taken:
            return Span(0, errors, 0.0, 0.0, 0.0)
        return Span(len(taken), errors, percentile(taken, 50), percentile(taken, 99), taken[-1])


class Traffic:
    """The process; made by :meth:`open`, which returns when its clients are connected."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, addresses: Sequence[str], slots: tuple[int, int], keys: int
    ) -> AsyncIterator[Traffic]:
        """``keys``: so many of these slots, which have been filled."""
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "bench.slots.traffic"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            request = {"addresses": list(addresses), "slots": slots, "keys": keys}
            await process.stdin.send_all(json.dumps(request).encode() + b"\n")
            if await process.stdout.receive_some(len(READY)) != READY:
                raise RuntimeError("the clients' process ended early")
            yield cls(process)
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()
                await process.stdin.aclose()
                await process.stdout.aclose()

    async def stop(self) -> Report:
        """Each client ends after the request it is at."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        await self._process.stdin.aclose()
        answer = b""
        async for chunk in self._process.stdout:
            answer += chunk
        return Report(**json.loads(answer))


# in the process


@dataclass
class _Client:
    package: str
    keys: Sequence[str]
    stopping: threading.Event
    requests: list[tuple[float, float]] = field(default_factory=list)
    failed_at: list[float] = field(default_factory=list)
    last_error: str = ""

    def run(self, client: Any) -> None:
        chance = random.Random(self.package)
        number = dict.fromkeys(self.keys, 0)
        unsure: set[str] = set()
        while not self.stopping.is_set():
            key, is_read = chance.choice(self.keys), chance.random() < 0.5
            began = time.monotonic()
            try:
                if is_read:
                    found = client.get(key)
                    if found != value_of(key, number[key]) and key not in unsure:
                        self._failed(f"{key} is {found!r}, not {value_of(key, number[key])!r}")
                else:
                    client.set(key, value_of(key, number[key] + 1))
                    number[key] += 1
                    unsure.discard(key)
            except Exception as error:
                # Whatever a client throws at its caller is an error of its caller's request.
                self._failed(f"{type(error).__name__}: {error}")
                if not is_read:
                    unsure.add(key)  # it may have been written all the same
            ended = time.monotonic()
            self.requests.append((ended, ended - began))
            self.stopping.wait(PAUSE)
        client.close()

    def _failed(self, text: str) -> None:
        self.failed_at.append(time.monotonic())
        self.last_error = text


def main() -> None:
    """Read what to do, say "ready", and tell what was met when the input ends."""
    request = json.loads(sys.stdin.readline())
    keys = list(itertools.islice(keys_in(*request["slots"]), request["keys"]))
    stopping = threading.Event()
    clients = [_Client(package, keys[index::2], stopping) for index, package in enumerate(CLIENTS)]
    threads = [
        threading.Thread(target=client.run, args=(connect(client.package, request["addresses"]),))
        for client in clients
    ]
    for thread in threads:
        thread.start()
    print(READY.decode(), end="", flush=True)
    sys.stdin.read()
    stopping.set()
    for thread in threads:
        thread.join()
    requests = sorted(itertools.chain.from_iterable(client.requests for client in clients))
    report = {
        "ended_at": [round(ended, 6) for ended, _ in requests],
        "seconds": [round(seconds, 6) for _, seconds in requests],
        "failed_at": sorted(at for client in clients for at in client.failed_at),
        "last_error": next((client.last_error for client in clients if client.last_error), ""),
    }
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
