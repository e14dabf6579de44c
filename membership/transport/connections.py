"""Which accepted connections a process keeps when it has no room for more.

A bounded table. The connection that has been silent longest makes room for a new one, beginning with the address that
holds the most; so silent connections, however many, keep nobody out. Strangers go before those that have shaken hands,
and nobody is closed while its request is worked on. Time-outs, which end silent connections anyway, are elsewhere
(`services`, `streams`).
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar

import trio

from membership.transport.streams import FrameStream

OPENINGS_SHARE: Final = 8
"""One place in so many is kept for those that have not shaken hands yet, so that a newcomer always gets in that far."""

_IPV4_IN_IPV6: Final = bytes(10) + b"\xff\xff"


class Evictable(Protocol):
    """What a table of connections needs of one."""

    @property
    def host(self) -> str:
        """The address that it came from; "" for what has none, and is bounded in all only."""

    @property
    def idle_since(self) -> float | None:
        """Since when it waits for its peer; None while a request is worked on."""

    def give_way(self) -> None:
        """Close it in favour of another."""


C = TypeVar("C", bound=Evictable)


class ConnectionTable(Generic[C]):
    """At most `limit` connections, and `host_limit` of one address; for any protocol.

    Where there are as many, an idle one gives way to a newcomer and is counted as `evicted`; where none is idle the
    newcomer is turned away.
    """

    def __init__(self, limit: int, host_limit: int, counters: Counter[str], evicted: str) -> None:
        self._limit = limit
        self._host_limit = host_limit
        self._counters = counters
        self._evicted = evicted
        self._open: dict[C, None] = {}
        self._hosts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[C]:
        return iter(tuple(self._open))

    def has_room(self, host: str) -> bool:
        """Whether a connection from `host` may come in, if need be in place of an idle one."""
        return not self._is_full(host) or self._to_evict(host) is not None

    def admit(self, connection: C) -> bool:
        """Take it in, if need be in place of an idle one; False if there is no room."""
        if self._is_full(connection.host):
            idle = self._to_evict(connection.host)
            if idle is None:
                return False
            self._counters[self._evicted] += 1
            self.remove(idle)
            idle.give_way()
        self._open[connection] = None
        self._hosts[connection.host] += 1
        return True

    def remove(self, connection: C) -> None:
        """It has ended.  May be said again."""
        if connection in self._open:
            del self._open[connection]
            self._hosts[connection.host] -= 1
            if not self._hosts[connection.host]:
                del self._hosts[connection.host]

    def _is_full(self, host: str) -> bool:
        return len(self._open) >= self._limit or self._at_host_limit(host)

    def _at_host_limit(self, host: str) -> bool:
        return bool(host) and self._hosts[host] >= self._host_limit

    def _to_evict(self, host: str) -> C | None:
        """Whoever waits for its peer longest, of the address that holds the most, which is not less than `host` has."""
        hosts, only_own = self._hosts, self._at_host_limit(host)
        candidates = [
            (-hosts[each.host], since, each)
            for each in self._open
            if (since := each.idle_since) is not None
            and hosts[each.host] >= hosts[host]
            and (each.host == host or not only_own)
        ]
        return min(candidates, key=lambda candidate: candidate[:2])[2] if candidates else None


class Connection:
    """One accepted connection. `scope` ends it; `stream` is there once it has shaken hands."""

    __slots__ = ("host", "scope", "stream")

    def __init__(self, host: str) -> None:
        self.host = host
        self.scope = trio.CancelScope()
        self.stream: FrameStream | None = None

    @property
    def idle_since(self) -> float | None:
        return None if self.stream is None else self.stream.waits_since

    def give_way(self) -> None:
        if self.stream is not None:
            self.stream.give_way()


class Connections:
    """Those of one listener. `limit`: in all; fewer than that have shaken hands, and one address has at most three
    quarters of those."""

    def __init__(self, limit: int, counters: Counter[str]) -> None:
        established = max(1, limit - max(1, limit // OPENINGS_SHARE))
        self._limit = limit
        self._counters = counters
        self._opening: dict[Connection, None] = {}
        self._established: ConnectionTable[Connection] = ConnectionTable(
            established, max(1, established * 3 // 4), counters, "streams_closed_for_others"
        )

    def __len__(self) -> int:
        return len(self._opening) + len(self._established)

    def admit(self, host: str) -> Connection:
        """A new connection from `host` ("": unknown), which has not shaken hands yet; the oldest such gives way."""
        if len(self) >= self._limit and self._opening:
            hosts = Counter(each.host for each in self._opening)
            hosts[host] += 1
            most = max(hosts[each.host] for each in self._opening)
            oldest = next(each for each in self._opening if hosts[each.host] == most)
            self._counters["streams_dropped_flood"] += 1
            del self._opening[oldest]
            oldest.scope.cancel()
        connection = Connection(host)
        self._opening[connection] = None
        return connection

    def has_room(self, host: str) -> bool:
        """Whether a connection from `host` may become established, if need be in place of an idle one."""
        return self._established.has_room(host)

    def establish(self, connection: Connection, stream: FrameStream) -> bool:
        """`connection` has shaken hands; False if there is no room."""
        connection.stream = stream
        if not self._established.admit(connection):
            return False
        self._opening.pop(connection, None)
        return True

    def remove(self, connection: Connection) -> None:
        """It has ended."""
        self._opening.pop(connection, None)
        self._established.remove(connection)


def remote_host(stream: trio.abc.Stream) -> str:
    """What counts as one remote address: an IPv4 address, the /64 of an IPv6 address; "" for what has none.

    A /64 is what one host or customer is given; it could take another address of it for each connection.
    """
    if not isinstance(stream, trio.SocketStream):
        return ""
    try:
        host = str(stream.socket.getpeername()[0])
    except OSError:
        return ""  # it is gone already
    if ":" not in host:
        return host
    packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    if packed.startswith(_IPV4_IN_IPV6):
        return socket.inet_ntop(socket.AF_INET, packed[-4:])
    return socket.inet_ntop(socket.AF_INET6, packed[:8] + bytes(8))
