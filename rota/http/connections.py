"""Which HTTP connections an agent keeps when there are more than it has room for.

A connection on which no request is worked on, so also one that has not asked for anything yet, gives way to a
newcomer: the oldest of the address that holds the most.  So silent connections, however many, keep nobody out.
What is worked on is never closed for others; when there is nothing else, the newcomer is turned away.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol


class Connection(Protocol):
    """What the table needs of one."""

    @property
    def host(self) -> str:
        """The address that it came from; "" for what has none."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether a request is worked on."""
        ...

    def abort(self) -> None:
        """Close it at once."""
        ...


class Connections:
    """``limit`` in all, ``host_limit`` of one address."""

    def __init__(self, limit: int, host_limit: int, counters: Counter[str]) -> None:
        self._limit = limit
        self._host_limit = host_limit
        self._counters = counters
        self._open: dict[Connection, None] = {}
        self._hosts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection) -> bool:
        """Take it in, if need be in place of an idle one; False if there is no room."""
        self._counters["http.connections"] += 1
        own = self._hosts[connection.host]
        if own >= self._host_limit or len(self._open) >= self._limit:
            victim = self._victim(connection.host if own >= self._host_limit else None)
            if victim is None:
                self._counters["http.connections_refused"] += 1
                return False
            self._counters["http.connections_closed_for_others"] += 1
            self.remove(victim)
            victim.abort()
        self._open[connection] = None
        self._hosts[connection.host] += 1
        return True

    def remove(self, connection: Connection) -> None:
        """It has ended.  May be said again."""
        if connection in self._open:
            del self._open[connection]
            self._hosts[connection.host] -= 1
            if not self._hosts[connection.host]:
                del self._hosts[connection.host]

    def abort(self) -> None:
        """Close all."""
        for connection in tuple(self._open):
            self.remove(connection)
            connection.abort()

    def _victim(self, host: str | None) -> Connection | None:
        """The oldest idle one of ``host``, or of whichever has the most."""
        idle = [each for each in self._open if not each.is_busy and host in (None, each.host)]
        return max(idle, key=lambda each: self._hosts[each.host], default=None)
