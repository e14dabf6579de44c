"""A backup of three agents that take 2000 appends a second, restored into three new ones: equal record by record."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from datastore_adapter import LogClient, LogSettings, MapSettings, ReplicatedDict, TrioRuntime
from membership import Address, FrameStream
from membership.transport import open_service
from rota.client.api_client import ApiClient
from rota.client.backup import back_up, restore
from rota.client.backup_file import parts_of
from rota.local.cluster import ClusterPlan, LocalCluster, open_local_cluster

pytestmark = [pytest.mark.sweep("minutes of writing to real agents"), pytest.mark.socket]

RATE = 2000
STREAMS = 7


@asynccontextmanager
async def settled(directory: Path) -> AsyncIterator[LocalCluster]:
    async with open_local_cluster(ClusterPlan(directory, nodes=3, segments=6)) as cluster:
        await cluster.wait_together(60)
        await cluster.wait_until_settled(timeout=60, what="a placement", size=3)
        yield cluster


async def client_of(cluster: LocalCluster, nursery: trio.Nursery) -> LogClient:
    cluster_id = bytes.fromhex((await cluster.agents["n1"].get("/v1/status"))["cluster_id"])

    async def connect(address: str) -> FrameStream:
        return await open_service(Address.parse(address), "log", cluster_id=cluster_id)

    addresses = [str(agent.address) for agent in cluster.live()]
    return LogClient(TrioRuntime(nursery, open_stream=connect), addresses, LogSettings.local())


class Load:
    """So many appends a second, and changes of a map that is written out again and again."""

    def __init__(self, client: LogClient) -> None:
        self._client = client
        self._random = random.Random(0)
        self.map = ReplicatedDict(client, "m", MapSettings(snapshot_bytes=100_000))
        self.confirmed: dict[int, tuple[str, bytes]] = {}
        self.values: dict[str, list[bytes]] = {}
        """Of the map, by key, in order."""

    async def _append(self, number: int) -> None:
        stream, payload = f"s{number % STREAMS}", self._random.randbytes(256)
        self.confirmed[await self._client.append(stream, payload)] = (stream, payload)

    async def run(self) -> None:
        began, begun = trio.current_time(), 0
        async with trio.open_nursery() as nursery:
            while True:
                due = int((trio.current_time() - began) * RATE)
                for number in range(begun, due):
                    nursery.start_soon(self._append, number)
                begun = due
                key, value = f"k{begun % 50}", self._random.randbytes(500)
                await self.map.set(key, value)
                self.values.setdefault(key, []).append(value)
                await trio.sleep(0.01)


def records_of(path: Path) -> dict[int, tuple[str, bytes]]:
    return {
        address: (entry.stream, entry.payload)
        for part in parts_of(path)
        for address, entry in part.entries.items()
    }


@pytest.mark.timeout(600)
async def test_equal_up_to_its_address(tmp_path: Path) -> None:
    first, second = tmp_path / "first.backup", tmp_path / "second.backup"
    async with settled(tmp_path / "a") as cluster, trio.open_nursery() as nursery:
        load = Load(await client_of(cluster, nursery))
        nursery.start_soon(load.run)
        await trio.sleep(20)
        before, began = dict(load.confirmed), trio.current_time()
        values = {key: len(each) - 1 for key, each in load.values.items()}
        api = ApiClient(str(cluster.agents["n2"].api), timeout=90.0)
        taken = await trio.to_thread.run_sync(partial(back_up, api, first))
        seconds = trio.current_time() - began
        assert len(load.confirmed) - len(before) > 0.8 * RATE * seconds, "the writers went on"
        assert {status["epoch"] for status in (await cluster.statuses()).values()} == {1}
        nursery.cancel_scope.cancel()
    found = records_of(first)
    assert {
        a: record for a, record in before.items() if a >= taken.end.trimmed_below
    }.items() <= found.items()
    assert max(found) < taken.end.address

    async with settled(tmp_path / "b") as cluster, trio.open_nursery() as nursery:
        api = ApiClient(str(cluster.agents["n3"].api), timeout=90.0)
        await trio.to_thread.run_sync(partial(restore, api, first))
        again = await trio.to_thread.run_sync(partial(back_up, api, second))
        assert (again.end.address, again.end.trimmed_below) == (taken.end.address, taken.end.trimmed_below)
        kept = {address: record for address, record in found.items() if address >= taken.end.trimmed_below}
        assert records_of(second) == kept
        copy = ReplicatedDict(await client_of(cluster, nursery), "m")
        items = await copy.items()
        for key, latest in values.items():
            assert items[key] in load.values[key][latest:], "no older one"
        nursery.cancel_scope.cancel()
