"""Clusters over real sockets on loopback, in real time: few, and short."""

from __future__ import annotations

import pytest
import trio

import membership
from membership import Cluster, Faults, Settings

SETTINGS = Settings.local()

pytestmark = pytest.mark.socket


class Members:
    """Members of one cluster, by number; the first founds it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.clusters: dict[int, Cluster] = {}
        self._scopes: dict[int, trio.CancelScope] = {}
        self._nursery = nursery
        self._changed = trio.Event()

    async def start(self, count: int, **options: object) -> None:
        """Start `count` members; returns when all see all."""
        seeds: list[str] = []
        with trio.fail_after(20):
            for number in range(count):
                self._nursery.start_soon(self._run, number, tuple(seeds), options)
                while not seeds:
                    await self._next_change()
                    seeds = [str(self.clusters[0].me.address)]
            await self.until_size(count)

    async def _run(self, number: int, seeds: tuple[str, ...], options: dict[str, object]) -> None:
        with trio.CancelScope() as self._scopes[number]:
            async with membership.join(
                "127.0.0.1:0",
                seeds,
                name=f"node-{number}",
                settings=SETTINGS,
                **options,  # type: ignore[arg-type]  # passed through as written in the tests
            ) as cluster:
                self.clusters[number] = cluster
                async for _ in cluster.changes():
                    self._changed.set()
                    self._changed = trio.Event()

    async def _next_change(self) -> None:
        await self._changed.wait()

    async def until_size(self, size: int) -> None:
        while not (
            len(self.clusters) >= size and all(len(c.view.members) == size for c in self.clusters.values())
        ):
            await self._next_change()

    def crash(self, number: int) -> None:
        """The member's sockets close without a word."""
        self._scopes[number].cancel()
        del self.clusters[number]


async def test_a_crash_among_eight_is_one_view_change() -> None:
    async with trio.open_nursery() as nursery:
        members = Members(nursery)
        await members.start(8)
        epoch = members.clusters[0].view.epoch
        members.crash(5)
        with trio.fail_after(
            10
        ):  # about 2 s on an idle machine; test_cluster states the bound in virtual time
            await members.until_size(7)
        assert {cluster.view.epoch for cluster in members.clusters.values()} == {epoch + 1}
        assert all(cluster.view.member("node-5") is None for cluster in members.clusters.values())
        nursery.cancel_scope.cancel()


async def test_a_fifth_of_the_datagrams_lost_flaps_nothing_and_a_leave_is_agreed() -> None:
    async with trio.open_nursery() as nursery:
        members = Members(nursery)
        await members.start(5, faults=Faults(egress_loss=0.2))
        epoch = members.clusters[0].view.epoch
        await trio.sleep(3)
        assert {cluster.view.epoch for cluster in members.clusters.values()} == {epoch}
        leaver = members.clusters.pop(4)
        assert await leaver.leave()
        with trio.fail_after(10):
            await members.until_size(4)
        nursery.cancel_scope.cancel()
