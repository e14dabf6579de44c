"""Agents that run servers: one password for all, a server that ends, an agent that is killed, and comes back."""

from __future__ import annotations

import os
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from valkey import Valkey

from chaos.slots.clients import connect
from rota.errors import ApiError
from rota.local.cluster import ClusterPlan, LocalCluster, is_settled, open_local_cluster
from tests.rota.test_engine_servers import runs
from tests.slots.conftest import engine  # noqa: F401 - a fixture

pytestmark = [pytest.mark.engine, pytest.mark.socket]


async def settled(cluster: LocalCluster) -> None:
    await cluster.wait_until(
        lambda answers: len(answers) == cluster.plan.nodes and any(map(is_settled, answers.values())),
        timeout=60,
        what="a complete placement",
    )


async def servers_of(cluster: LocalCluster, name: str) -> list[str]:
    status: dict[str, Any] = await cluster.agents[name].get("/v1/status")
    assert status["engine"]["running"] == len(status["engine"]["servers"])
    return list(status["engine"]["servers"])


def pid_of(address: str, password: str) -> int:
    host, _, port = address.rpartition(":")
    with Valkey(host, int(port), password=password) as client:
        return int(client.info("server")["process_id"])


@pytest.mark.parametrize(
    "engine",
    ["valkey", pytest.param("redis", marks=pytest.mark.sweep("the same with the other program"))],
    indirect=True,
)
async def test_servers_live_and_die_with_their_agent(engine: str, tmp_path: Path) -> None:  # noqa: F811
    # Longer than 5 s: nine processes, of which one is killed with its host, found out, and started again.
    async with open_local_cluster(ClusterPlan(tmp_path, nodes=3, store=engine)) as cluster:
        await settled(cluster)
        files = [tmp_path / name / "engine" / "password" for name in cluster.agents]
        password = cluster.password_file.read_text().strip()
        assert {file.read_text().strip() for file in files} == {password}
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}

        with pytest.raises(ApiError, match=r"in Valkey or Redis, not in the log: .* their own backups"):
            await cluster.agents["n1"].get("/v1/backup")

        ours = await servers_of(cluster, "n1")
        client = await trio.to_thread.run_sync(connect, "redis", ours, password)
        for number in range(100):
            client.set(f"key:{number}", number)

        os.kill(pid_of(ours[0], password), signal.SIGKILL)
        await cluster.wait_until(
            lambda answers: answers["n1"]["engine"]["restarts"] == 1, timeout=20, what="the server again"
        )
        told = await cluster.agents["n1"].get("/v1/events", local=1)
        assert {"server-ended", "server-started"} <= {event["kind"] for event in told["events"]}
        await settled(cluster)

        theirs = await servers_of(cluster, "n3")
        pids = [pid_of(address, password) for address in theirs]
        cluster.kill("n3")
        await cluster.wait_until(
            lambda answers: all(answer["size"] == 2 for answer in answers.values()),
            timeout=30,
            what="the removal of n3",
        )
        assert not any(map(runs, pids)), "its servers are gone with it"
        (tmp_path / "n3" / "engine" / "password").write_text("made before anybody heard of it\n")
        await cluster.start_one("n3")
        await settled(cluster)
        assert await servers_of(cluster, "n3") == theirs
        assert {file.read_text().strip() for file in files} == {password}
        assert all(client.get(f"key:{number}") == str(number) for number in range(100))
        client.close()
        await cluster.stop()


@pytest.mark.parametrize("store", ["redis", "log"])
async def test_a_host_with_another_store_is_told_so(store: str, tmp_path: Path) -> None:
    async with open_local_cluster(ClusterPlan(tmp_path, nodes=1, store="valkey")) as cluster:
        seed = cluster.agents["n1"].address
        arguments = ["--listen", "127.0.0.1:0", "--api", "127.0.0.1:0", "--name", "n2", "--preset", "local"]
        arguments += ["--seed", str(seed), "--data-dir", str(tmp_path / "n2"), "--store", store]
        other = await trio.run_process(
            [sys.executable, "-m", "rota", "agent", *arguments], capture_stderr=True, check=False
        )
        assert other.returncode == 1
        assert f"store: this host is for {store}, and n1 for valkey" in other.stderr.decode()
