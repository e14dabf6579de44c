"""How many bytes of frames one process holds on behalf of its peers, all together.

It counts the frames of accepted streams that are being read, or that a handler has not finished with. At the bound, a
frame that makes no progress is given up and its stream with it; if all progress, the largest is. If the handlers hold
the bytes, reading waits for them. What a frame's length prefix announces costs nothing; only bytes that came count.
"""

from __future__ import annotations

from typing import Final, Protocol

import trio

from membership.wire.frames import STREAM_FRAME_LIMIT

FRAME_MEMORY: Final = STREAM_FRAME_LIMIT + (1 << 20)
"""Bytes, for all streams together: one frame of the largest size and some of the usual ones. More lets more large
frames come in side by side; strangers can make a process take this much."""

STALLED: Final = 1.0
"""Seconds without a byte after which a frame may be given up in favour of others."""


class Holder(Protocol):
    """What is needed of a `FrameStream`."""

    @property
    def waits_since(self) -> float | None:
        """Since when it has waited for its peer; None while it does not."""

    async def give_up_frame(self) -> None:
        """Break the stream, because its frame takes too much memory."""


class FrameMemory:
    """The account. All streams of one event loop share one, see `frame_memory`."""

    def __init__(self, limit: int = FRAME_MEMORY) -> None:
        self.limit = limit
        self._unfinished: dict[Holder, int] = {}
        self._handed_over: dict[Holder, int] = {}
        self._freed = trio.Event()

    @property
    def used(self) -> int:
        """Bytes held."""
        return sum(self._unfinished.values()) + sum(self._handed_over.values())

    def hand_over(self, stream: Holder, size: int) -> None:
        """The frame is complete, and is with the stream's handler now; 0: it is too small to be counted."""
        self.release(stream)
        if size:
            self._handed_over[stream] = size

    def release(self, stream: Holder) -> None:
        """The stream holds nothing any more."""
        held = self._unfinished.pop(stream, 0) + self._handed_over.pop(stream, 0)
        if held:
            freed, self._freed = self._freed, trio.Event()
            freed.set()

    async def hold(self, stream: Holder, size: int) -> None:
        """`stream` holds `size` bytes of an unfinished frame; returns when it may read on.

        The stream itself may be the one that is given up.
        """
        self._unfinished[stream] = size
        while stream in self._unfinished and self.used > self.limit:
            victim = self._victim()
            if victim is not None:
                self.release(victim)
                await victim.give_up_frame()
            elif self._handed_over:
                await self._freed.wait()
            else:
                return  # alone, with a frame limit above this one

    def _victim(self) -> Holder | None:
        now = trio.current_time()
        waiting = {stream: stream.waits_since for stream in self._unfinished}
        silent = {stream: since for stream, since in waiting.items() if since is not None}
        longest = min(silent, key=silent.__getitem__, default=None)
        if longest is not None and now - silent[longest] >= STALLED:
            return longest
        if len(self._unfinished) > 1 and sum(self._unfinished.values()) > self.limit:
            return max(self._unfinished, key=self._unfinished.__getitem__)
        return None


_shared: trio.lowlevel.RunVar[FrameMemory] = trio.lowlevel.RunVar("membership.frame_memory")


def frame_memory() -> FrameMemory:
    """The account of this event loop; an agent has two, of which one reads for the log alone."""
    try:
        return _shared.get()
    except LookupError:
        account = FrameMemory()
        _shared.set(account)
        return account
