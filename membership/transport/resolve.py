"""Names to addresses: seeds, and the destinations of datagrams. Nothing else in this package asks the resolver.

Seeds are resolved again at every try, since a name may stand for other hosts tomorrow. Destinations are cached, since a
datagram cannot wait.
"""

from __future__ import annotations

import ipaddress
import socket
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import trio

from membership.address import Address

SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]
"""What `socket.sendto` wants: for IPv4 (host, port), for IPv6 also flow and scope."""

NAME_LIFETIME: Final = 30.0
"""Seconds after which a destination's name is resolved again."""

_CACHE_BOUND: Final = 16384
_QUEUE_BOUND: Final = 256


class Resolution(NamedTuple):
    """Where seeds are now, and one line for each that could not be resolved."""

    addresses: tuple[Address, ...]
    problems: tuple[str, ...]


async def resolve_seeds(seeds: Sequence[Address]) -> Resolution:
    """Every address the seeds stand for at present, each once, in the order of the seeds."""
    addresses: dict[Address, None] = {}
    problems: list[str] = []
    for seed in seeds:
        if is_numeric(seed.host):
            addresses[seed] = None
            continue
        try:
            found = await trio.socket.getaddrinfo(seed.host, seed.port, type=socket.SOCK_DGRAM)
        except OSError as error:
            problems.append(f"seed {seed} cannot be resolved: {error.strerror or error}")
            continue
        for _, _, _, _, where in found:
            addresses[Address(str(where[0]), seed.port)] = None
    return Resolution(tuple(addresses), tuple(problems))


def is_numeric(host: str) -> bool:
    """True for an IP address, False for a name."""
    return _parse(host) is not None


def is_loopback(host: str) -> bool:
    """True when only this machine can reach `host`, an IP address."""
    parsed = _parse(host)
    return parsed is not None and parsed.is_loopback


def is_wildcard(host: str) -> bool:
    """True for the addresses that mean "all of this machine" when listening, such as 0.0.0.0."""
    parsed = _parse(host)
    return parsed is not None and parsed.is_unspecified


@lru_cache(maxsize=4096)
def _parse(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


class DestinationCache:
    """Socket addresses for datagrams: numeric hosts at once, names as soon as they are resolved.

    `run` must be running for names to be resolved. A name's datagrams are dropped until then, which the
    protocol survives as it survives loss.
    """

    def __init__(self, family: socket.AddressFamily, counters: Counter[str]) -> None:
        """`family`: of the socket that sends. An IPv6 socket reaches IPv4 hosts through mapped addresses."""
        self._family = family
        self._counters = counters
        self._numeric_known: dict[Address, SocketAddress] = {}
        self._known: dict[Address, tuple[SocketAddress, float]] = {}
        self._asked: dict[Address, None] = {}
        self._send, self._receive = trio.open_memory_channel[Address](_QUEUE_BOUND)

    def lookup(self, destination: Address) -> SocketAddress | None:
        """Where to send to, or None when that is not known (yet)."""
        where = self._numeric_known.get(destination)
        if where is not None:
            return where
        known = self._known.get(destination)
        if known is None:
            return self._lookup_unknown(destination)
        if known[1] < trio.current_time():
            self._ask(destination)
        return known[0]

    def _lookup_unknown(self, destination: Address) -> SocketAddress | None:
        parsed = _parse(destination.host)
        if parsed is None:
            self._ask(destination)
            return None
        where = self._numeric(parsed, destination.port)
        if where is None:
            self._counters["datagrams_unreachable_family"] += 1
            return None
        if len(self._numeric_known) >= _CACHE_BOUND:
            self._numeric_known.clear()
        self._numeric_known[destination] = where
        return where

    def _numeric(
        self, host: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int
    ) -> SocketAddress | None:
        if self._family == socket.AF_INET:
            return (str(host), port) if host.version == 4 else None
        return (str(host) if host.version == 6 else f"::ffff:{host}", port, 0, 0)

    def _remember(self, destination: Address, where: SocketAddress, until: float) -> None:
        if len(self._known) >= _CACHE_BOUND:
            self._known.clear()
        self._known[destination] = (where, until)

    def _ask(self, destination: Address) -> None:
        if destination in self._asked:
            return
        try:
            self._send.send_nowait(destination)
        except trio.WouldBlock:
            self._counters["names_not_asked"] += 1
        else:
            self._asked[destination] = None

    async def run(self) -> None:
        """Resolve the names that `lookup` met; runs until cancelled."""
        async for destination in self._receive:
            where: SocketAddress | None = None
            try:
                found = await trio.socket.getaddrinfo(
                    destination.host,
                    destination.port,
                    family=self._family,
                    type=socket.SOCK_DGRAM,
                    flags=socket.AI_V4MAPPED if self._family == socket.AF_INET6 else 0,
                )
                resolved = _parse(str(found[0][4][0]))
                where = None if resolved is None else self._numeric(resolved, destination.port)
            except OSError:
                self._counters["names_not_resolved"] += 1
            del self._asked[destination]
            if where is not None:
                self._remember(destination, where, trio.current_time() + NAME_LIFETIME)
