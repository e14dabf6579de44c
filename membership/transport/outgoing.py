"""One-way frames to many peers, without ever waiting for a slow one.

The sending half of the `membership` service. A bounded number of tasks connect, deliver and close. A frame that cannot
be delivered is dropped and counted: the core asks again, as it does for lost datagrams. Connections are not kept:
configurations are rare, and 0.5 ms per connection is cheap beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import trio

from membership.address import Address
from membership.transport.errors import TransportError

Deliver: TypeAlias = Callable[[Address, Sequence[bytes]], Awaitable[None]]
"""Connects, hands the frames over, and returns once the peer has accepted them. Raises TransportError."""

DELIVERIES: Final = 32
"""Peers served at a time."""

FRAMES_PER_PEER: Final = 8
"""Frames that wait for one peer; the oldest gives way, since the newest configuration is the best."""

PEERS_WAITING: Final = 4096
"""Peers with frames waiting; further ones are dropped."""

DELIVERY_TIMEOUT: Final = 10.0
"""Seconds for one connection with all its frames."""


class OutgoingFrames:
    """Queues per peer, and the deliveries that empty them."""

    def __init__(self, deliver: Deliver, counters: Counter[str]) -> None:
        self._deliver = deliver
        self._counters = counters
        self._waiting: dict[Address, list[bytes]] = {}
        self._served: dict[Address, list[bytes]] = {}
        self._ready, self._ready_receive = trio.open_memory_channel[Address](PEERS_WAITING)

    def put(self, destination: Address, frame: bytes) -> None:
        """Leave a frame for `destination`; never waits. One that is on its way already is not sent twice."""
        frames = self._waiting.get(destination)
        if frame in self._served.get(destination, ()) or frame in (frames or ()):
            self._counters["frames_repeated"] += 1
            return
        if frames is None:
            # One delivery per peer at a time, or a stuck peer would take all places.
            if destination not in self._served and not self._enqueue(destination):
                self._counters["frames_dropped_crowded"] += 1
                return
            frames = self._waiting[destination] = []
        if len(frames) >= FRAMES_PER_PEER:
            frames.pop(0)
            self._counters["frames_dropped_slow_peer"] += 1
        frames.append(frame)

    def _enqueue(self, destination: Address) -> bool:
        try:
            self._ready.send_nowait(destination)
        except trio.WouldBlock:
            return False
        return True

    async def run(self) -> None:
        """Deliver until cancelled. Each delivery is a task; idle, there is only this one."""
        free = trio.Semaphore(DELIVERIES)
        async with trio.open_nursery() as nursery:
            async for destination in self._ready_receive:
                await free.acquire()
                nursery.start_soon(self._serve, destination, free)

    async def _serve(self, destination: Address, free: trio.Semaphore) -> None:
        frames = self._waiting.pop(destination)
        self._served[destination] = frames
        try:
            await self._deliver(destination, frames)
        except TransportError:
            self._counters["frames_dropped_undelivered"] += len(frames)
        else:
            self._counters["frames_sent"] += len(frames)
            self._counters["stream_bytes_sent"] += sum(map(len, frames))
        finally:
            del self._served[destination]
            free.release()
        if destination in self._waiting and not self._enqueue(destination):
            self._counters["frames_dropped_crowded"] += len(self._waiting.pop(destination))
