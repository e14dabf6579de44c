"""Replay windows: a datagram that was accepted once is not accepted again.

Each sending session has a sliding bitmap of its own datagram counter (the newest is bit 0), in a bounded table.
Datagrams may overtake each other by up to `WINDOW`; what is older counts as a replay. Note a counter only after its
datagram proved authentic, or anybody could push the window forward.
Source: RFC 6479 (the anti-replay window of IPsec without bit shifting); a Python integer shifts fast enough.
"""

from collections import OrderedDict
from typing import Final

WINDOW: Final = 4096
"""Counters of one session that are remembered. A session numbers its datagrams to all receivers in one row, so
that a receiver of few of them still tolerates the delay in which its peer sends this many."""

SESSIONS: Final = 32768
"""Sessions remembered, the least recently heard forgotten first: about 6 MB for 10 000 members, 26 MB at most."""

_ALL: Final = (1 << WINDOW) - 1


class ReplayWindow:
    """The counters of one session that have been accepted, of the last `WINDOW` up to the highest."""

    __slots__ = ("_highest", "_seen")

    def __init__(self) -> None:
        self._highest = -1
        self._seen = 0

    def is_replay(self, counter: int) -> bool:
        """Whether this counter was noted before, or is too old to tell."""
        behind = self._highest - counter
        if behind < 0:
            return False
        return behind >= WINDOW or bool(self._seen >> behind & 1)

    def note(self, counter: int) -> None:
        """This counter's datagram was authentic and is accepted."""
        ahead = counter - self._highest
        if ahead <= -WINDOW:
            return  # older than what is remembered: a replay in any case
        if ahead <= 0:
            self._seen |= 1 << -ahead
        elif ahead >= WINDOW:
            self._highest, self._seen = counter, 1
        else:
            self._highest, self._seen = counter, (self._seen << ahead | 1) & _ALL


class ReplayGuard:
    """The windows of all sessions heard, bounded."""

    def __init__(self, sessions: int = SESSIONS) -> None:
        self._bound = sessions
        self._windows: OrderedDict[bytes, ReplayWindow] = OrderedDict()
        self.forgotten = 0
        """Sessions that were forgotten for others. Replays of these could pass; the protocol must cope."""

    def __len__(self) -> int:
        return len(self._windows)

    def is_replay(self, session: bytes, counter: int) -> bool:
        """Whether a datagram with this counter was accepted from this session, or is too old to tell."""
        window = self._windows.get(session)
        return window is not None and window.is_replay(counter)

    def note(self, session: bytes, counter: int) -> None:
        """Remember an authentic datagram."""
        window = self._windows.get(session)
        if window is None:
            if len(self._windows) >= self._bound:
                self._windows.popitem(last=False)
                self.forgotten += 1
            window = self._windows[session] = ReplayWindow()
        else:
            self._windows.move_to_end(session)
        window.note(counter)
