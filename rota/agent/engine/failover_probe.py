"""When another server takes the writes of a shard: it is written to at its replicas, over and over, until one accepts.

A process of its own, for what is measured is some hundredths of a second, and clients in the same process that meet
errors keep each other waiting for longer than that.  It asks the servers themselves, so that what is measured is the
engine, and not how often a client tries again.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import trio

INTERVAL: Final = 0.003
SOCKET_TIMEOUT: Final = 1.0
LONGEST_LINE: Final = 100
"""Bytes that the process may say."""


class FailoverProbe:
    """Made by :meth:`open`, which returns when the process writes."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, replicas: Sequence[str], slots: Sequence[Sequence[int]], password: str = ""
    ) -> AsyncIterator[FailoverProbe]:
        """``replicas``: ``host:port`` of each; ``slots``: of the shard, ranges by first and last."""
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "rota.agent.engine.failover_probe"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdin is not None
            request = {"replicas": list(replicas), "slots": list(slots), "password": password}
            await process.stdin.send_all(json.dumps(request).encode())
            await process.stdin.aclose()
            probe = cls(process)
            await probe._line()
            yield probe
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()
                assert process.stdout is not None
                await process.stdout.aclose()

    async def accepted_at(self, timeout: float) -> float | None:
        """Unix seconds of the first write that was accepted; None if none is in time."""
        with trio.move_on_after(timeout):
            return float(await self._line())
        return None

    async def _line(self) -> str:
        assert self._process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            received = await self._process.stdout.receive_some(LONGEST_LINE)
            if not received:
                raise RuntimeError("the probe of the fail-over ended early")
            line += received
        return line.decode()


def _key_within(slots: Sequence[Sequence[int]]) -> str:
    from valkey.crc import key_slot

    names = (f"probe:{number}" for number in itertools.count())
    return next(
        name for name in names if any(first <= key_slot(name.encode()) <= last for first, last in slots)
    )


def main() -> None:
    """Read what to do, say "ready" at the first refusal, and the time when one accepts."""
    from valkey import Valkey, ValkeyError

    request = json.load(sys.stdin)
    key, password = _key_within(request["slots"]), request["password"] or None
    places = [address.rpartition(":") for address in request["replicas"]]
    servers: list[Any] = [
        Valkey(host.strip("[]"), int(port), password=password, socket_timeout=SOCKET_TIMEOUT)
        for host, _, port in places
    ]
    print("ready", flush=True)
    while True:
        for server in servers:
            with contextlib.suppress(ValkeyError):
                server.set(key, "probe")
                print(time.time(), flush=True)
                return
        time.sleep(INTERVAL)


if __name__ == "__main__":
    main()
