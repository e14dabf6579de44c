"""Names: seeds are resolved at every try, destinations from a cache that never waits."""

from __future__ import annotations

import socket
from collections import Counter
from typing import Any

import pytest
import trio
import trio.testing

from membership.address import Address
from membership.transport.resolve import (
    NAME_LIFETIME,
    DestinationCache,
    is_loopback,
    is_numeric,
    is_wildcard,
    resolve_seeds,
)


class Names:
    """A resolver that answers from a dict."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **hosts: list[str]) -> None:
        self.hosts = {name.replace("_", "."): addresses for name, addresses in hosts.items()}
        self.asked: list[str] = []
        monkeypatch.setattr(trio.socket, "getaddrinfo", self._getaddrinfo)

    async def _getaddrinfo(self, host: str, port: int, **options: Any) -> list[Any]:
        await trio.lowlevel.checkpoint()
        self.asked.append(host)
        if host not in self.hosts:
            raise socket.gaierror(-2, "Name or service not known")
        return [(2, 2, 17, "", (address, port)) for address in self.hosts[host]]


async def test_a_seed_may_stand_for_many_hosts_each_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, seeds_example=["10.0.0.1", "10.0.0.2", "fd00::1"])
    resolution = await resolve_seeds(
        [Address("10.0.0.2", 7946), Address("seeds.example", 7946), Address("gone.example", 7946)]
    )
    assert resolution.addresses == (
        Address("10.0.0.2", 7946),
        Address("10.0.0.1", 7946),
        Address("fd00::1", 7946),
    )
    assert resolution.problems == ("seed gone.example:7946 cannot be resolved: Name or service not known",)


async def test_numeric_destinations_are_known_at_once() -> None:
    four = DestinationCache(socket.AF_INET, Counter())
    six = DestinationCache(socket.AF_INET6, Counter())
    assert four.lookup(Address("10.0.0.1", 1)) == ("10.0.0.1", 1)
    assert four.lookup(Address("fd00::1", 1)) is None
    assert six.lookup(Address("fd00::1", 1)) == ("fd00::1", 1, 0, 0)
    assert six.lookup(Address("10.0.0.1", 1)) == ("::ffff:10.0.0.1", 1, 0, 0)


async def test_a_name_is_resolved_in_the_background_and_again_when_it_is_old(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    names = Names(monkeypatch, node_example=["10.0.0.1"])
    cache = DestinationCache(socket.AF_INET, Counter())
    node = Address("node.example", 7946)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cache.run)
        for _ in range(3):
            assert cache.lookup(node) is None
        await trio.testing.wait_all_tasks_blocked()
        assert cache.lookup(node) == ("10.0.0.1", 7946)
        assert names.asked == ["node.example"]
        names.hosts["node.example"] = ["10.0.0.2"]
        await trio.sleep(NAME_LIFETIME + 1)
        assert cache.lookup(node) == ("10.0.0.1", 7946)  # the old one serves until the new one is known
        await trio.testing.wait_all_tasks_blocked()
        assert cache.lookup(node) == ("10.0.0.2", 7946)
        nursery.cancel_scope.cancel()


async def test_names_that_do_not_resolve_are_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch)
    counters: Counter[str] = Counter()
    cache = DestinationCache(socket.AF_INET, counters)
    for number in range(300):
        assert cache.lookup(Address(f"host-{number}.example", 1)) is None
    assert counters["names_not_asked"] == 300 - 256
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cache.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert counters["names_not_resolved"] == 256


async def test_the_cache_is_bounded() -> None:
    cache = DestinationCache(socket.AF_INET, Counter())
    for number in range(40_000):
        assert cache.lookup(Address("10.0.0.1", number)) is not None
    assert len(cache._known) <= 16384


def test_kinds_of_hosts() -> None:
    assert is_numeric("10.0.0.1")
    assert is_numeric("::1")
    assert not is_numeric("localhost")
    assert is_loopback("127.8.0.1")
    assert is_loopback("::1")
    assert not is_loopback("10.0.0.1")
    assert not is_loopback("localhost")
    assert is_wildcard("0.0.0.0")
    assert is_wildcard("::")
    assert not is_wildcard("10.0.0.1")
