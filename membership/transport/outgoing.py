"""One-way frames to many peers, without ever waiting for a slow one.

What it is: the sending half of the `membership` service. Whoever has a frame for a peer leaves it here;
workers, bounded in number, connect, deliver and close. A frame that cannot be delivered is dropped and
counted: the core asks again, as it does for lost datagrams.
What it is not: a pool of lasting connections; configurations are rare, and 0.5 ms per connection is
cheap beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio

from membership.address import Address
from membership.transport.errors import TransportError
from membership.transport.streams import FrameStream

Open: TypeAlias = Callable[[Address], Awaitable[FrameStream]]

WORKERS: Final = 32
"""Peers served at a time."""

FRAMES_PER_PEER: Final = 8
"""Frames that wait for one peer; the oldest gives way, since the newest configuration is the best."""

PEERS_WAITING: Final = 4096
"""Peers with frames waiting; further ones are dropped."""

DELIVERY_TIMEOUT: Final = 30.0
"""Seconds for all frames of one connection."""


class OutgoingFrames:
    """Queues per peer, and the workers that empty them."""

    def __init__(self, open_stream: Open, counters: Counter[str]) -> None:
        self._open = open_stream
        self._counters = counters
        self._waiting: dict[Address, list[bytes]] = {}
        self._ready, self._ready_receive = trio.open_memory_channel[Address](PEERS_WAITING)

    def put(self, destination: Address, frame: bytes) -> None:
        """Leave a frame for `destination`; never waits."""
        frames = self._waiting.get(destination)
        if frames is None:
            try:
                self._ready.send_nowait(destination)
            except trio.WouldBlock:
                self._counters["frames_dropped_crowded"] += 1
                return
            frames = self._waiting[destination] = []
        if len(frames) >= FRAMES_PER_PEER:
            frames.pop(0)
            self._counters["frames_dropped_slow_peer"] += 1
        frames.append(frame)

    async def run(self) -> None:
        """Deliver until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(WORKERS):
                nursery.start_soon(self._work)

    async def _work(self) -> None:
        async for destination in self._ready_receive:
            try:
                with trio.fail_after(DELIVERY_TIMEOUT):
                    await self._deliver(destination)
            except (TransportError, trio.TooSlowError):
                self._counters["frames_dropped_undelivered"] += len(self._waiting[destination])
            finally:
                self._waiting.pop(destination, None)

    async def _deliver(self, destination: Address) -> None:
        async with await self._open(destination) as stream:
            frames = self._waiting[destination]
            while frames:
                frame = frames.pop(0)
                try:
                    await stream.send(frame)
                except BaseException:
                    frames.insert(0, frame)  # not delivered: to be counted with the others
                    raise
                self._counters["frames_sent"] += 1
                self._counters["stream_bytes_sent"] += len(frame)
