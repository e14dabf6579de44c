"""Which accepted connections a process keeps when it has no room for more.

A bounded table. The connection that has been silent longest makes room for a new one, beginning with the address that
holds the most; so silent connections, however many, keep nobody out. Strangers go before those that have shaken hands,
and nobody is closed while its request is worked on. Time-outs, which end silent connections anyway, are elsewhere
(`services`, `streams`).
"""

from __future__ import annotations

import socket
from collections import Counter
from typing import Final

import trio

from membership.transport.streams import FrameStream

OPENINGS_SHARE: Final = 8
"""One place in so many is kept for those that have not shaken hands yet, so that a newcomer always gets in that far."""

_IPV4_IN_IPV6: Final = bytes(10) + b"\xff\xff"


class Connection:
    """One accepted connection. `scope` ends it."""

    __slots__ = ("host", "scope")

    def __init__(self, host: str) -> None:
        self.host = host
        self.scope = trio.CancelScope()


class Connections:
    """The table. `limit`: connections in all; fewer than that have shaken hands, and one address has at most three
    quarters of those."""

    def __init__(self, limit: int, counters: Counter[str]) -> None:
        self._limit = limit
        self._established_limit = max(1, limit - max(1, limit // OPENINGS_SHARE))
        self._host_limit = max(1, self._established_limit * 3 // 4)
        self._counters = counters
        self._opening: dict[Connection, None] = {}
        self._established: dict[Connection, FrameStream] = {}

    def __len__(self) -> int:
        return len(self._opening) + len(self._established)

    def admit(self, host: str) -> Connection:
        """A new connection from `host` ("": unknown), which has not shaken hands yet; the oldest such gives way."""
        if len(self) >= self._limit and self._opening:
            hosts = Counter(each.host for each in self._opening)
            hosts[host] += 1
            most = max(hosts[each.host] for each in self._opening)
            victim = next(each for each in self._opening if hosts[each.host] == most)
            self._counters["streams_dropped_flood"] += 1
            del self._opening[victim]
            victim.scope.cancel()
        connection = Connection(host)
        self._opening[connection] = None
        return connection

    def has_room(self, host: str) -> bool:
        """Whether a connection from `host` may become established, if need be in place of an idle one."""
        return not self._is_full(host) or self._idle_victim(host) is not None

    def establish(self, connection: Connection, stream: FrameStream) -> bool:
        """`connection` has shaken hands; False if there is no room."""
        if self._is_full(connection.host):
            victim = self._idle_victim(connection.host)
            if victim is None:
                return False
            self._counters["streams_closed_for_others"] += 1
            self._established.pop(victim).give_way()
        self._opening.pop(connection, None)
        self._established[connection] = stream
        return True

    def remove(self, connection: Connection) -> None:
        """It has ended."""
        self._opening.pop(connection, None)
        self._established.pop(connection, None)

    def _is_full(self, host: str) -> bool:
        return len(self._established) >= self._established_limit or self._at_host_limit(host)

    def _at_host_limit(self, host: str) -> bool:
        return bool(host) and sum(each.host == host for each in self._established) >= self._host_limit

    def _idle_victim(self, host: str) -> Connection | None:
        """Whoever waits for its peer longest, of the address that holds the most, which is not less than `host` has."""
        hosts = Counter(each.host for each in self._established)
        only_own = self._at_host_limit(host)
        candidates = [
            (-hosts[each.host], since, each)
            for each, stream in self._established.items()
            if (since := stream.waits_since) is not None
            and hosts[each.host] >= hosts[host]
            and (each.host == host or not only_own)
        ]
        return min(candidates, key=lambda candidate: candidate[:2])[2] if candidates else None


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
