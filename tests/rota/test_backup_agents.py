"""`rota backup` of a real agent that is written to, and `rota restore` into another that is new."""

from __future__ import annotations

import base64
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from rota.client.api_client import ApiClient
from rota.client.backup_file import parts_of, verify
from rota.commands.command_line import main
from rota.local.cluster import AgentProcess, ClusterPlan, LocalCluster, open_local_cluster

pytestmark = [pytest.mark.demo, pytest.mark.socket]


async def started(cluster: LocalCluster) -> AgentProcess:
    await cluster.wait_until_settled(timeout=60, what="a placement", size=1)
    return cluster.agents["n1"]


async def rota(
    capsys: pytest.CaptureFixture[str], agent: AgentProcess, *arguments: object
) -> tuple[int, Any]:
    """A command's exit status and JSON."""
    given = [*map(str, arguments), "--json", "--api", f"http://{agent.api}"]
    status = 0
    try:
        await trio.to_thread.run_sync(main, given)
    except SystemExit as end:
        status = int(end.code or 0)
    return status, json.loads(capsys.readouterr().out)


def records_of(path: Path, end: int) -> dict[int, tuple[str, bytes]]:
    return {
        address: (entry.stream, entry.payload)
        for part in parts_of(path)
        for address, entry in part.entries.items()
        if address < end
    }


async def test_a_backup_and_its_restore(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first.backup", tmp_path / "second.backup"
    written: dict[int, tuple[str, bytes]] = {}

    async def append(agent: AgentProcess, stream: str, payload: bytes) -> None:
        ask = partial(ApiClient(str(agent.api)).post, f"/v1/log/{stream}", payload)
        address = (await trio.to_thread.run_sync(ask, abandon_on_cancel=True))["address"]
        written[address] = (stream, payload)

    async def go_on(agent: AgentProcess) -> None:
        while True:
            await append(agent, "load", b"more")

    async with open_local_cluster(
        ClusterPlan(tmp_path / "a", nodes=1, segments=3, replication_factor=1)
    ) as cluster:
        agent = await started(cluster)
        await append(agent, "large", bytes(1 << 20))
        for number in range(30):
            await append(agent, f"s{number % 3}", bytes([number]))
        value = base64.b64encode(b"v").decode()
        await agent.post("/v1/map/m", {"action": "set", "key": "k", "value": value})
        await agent.post("/v1/segments", {"count": 2})
        await agent.post("/v1/pin", {"segment": "s01", "host": "n1"})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(go_on, agent)
            before = dict(written)
            status, taken = await rota(capsys, agent, "backup", first)
            nursery.cancel_scope.cancel()
        assert status == 0
        backed_up = records_of(first, taken["address"])
        assert before.items() <= backed_up.items()
        assert {a: r for a, r in written.items() if a < taken["address"]}.items() <= backed_up.items()
        status, refused = await rota(capsys, agent, "restore", first)
        assert (status, refused["code"]) == (1, "not_empty")

    async with open_local_cluster(
        ClusterPlan(tmp_path / "b", nodes=1, segments=3, replication_factor=1)
    ) as cluster:
        agent = await started(cluster)
        status, restored = await rota(capsys, agent, "restore", first)
        assert (status, restored["records"], restored["intent"]) == (0, len(backed_up), True)
        await cluster.wait_until_settled(timeout=60, what="the intent", size=1)
        status, again = await rota(capsys, agent, "backup", second)
        assert again["address"] == taken["address"]
        assert records_of(second, again["address"]) == backed_up
        intent, had = verify(second).end.intent, verify(first).end.intent
        assert (intent["segments"], intent["pins"]) == (["s00", "s01"], [["s01", "n1"]])
        assert {**intent, "plan": None} == {**had, "plan": None}
        found = await agent.post("/v1/map/m", {"action": "get", "key": "k"})
        assert found["entry"]["text"] == "v"
        status, refused = await rota(capsys, agent, "restore", first, "--resume")
        assert (status, refused["code"]) == (1, "not_restoring"), "it is over, and nothing is put back twice"
        await append(agent, "s0", b"on it goes")
        assert max(written) >= taken["address"]
