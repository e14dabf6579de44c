"""Clusters of Valkey and Redis that somebody else made: nothing of them is changed until an operator says so."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from chaos.slots.clients import SlotsWorkload
from rota.local.cluster import ClusterPlan, LocalCluster, open_local_cluster
from tests.slots.conftest import engine  # noqa: F401 - a fixture
from tests.slots.servers import Fleet, Options, Server, running, wait_until

pytestmark = [pytest.mark.engine, pytest.mark.socket]

HOSTS = [f"n{number}" for number in range(1, 7)]


def create_by_the_engines_own_tool(fleet: Fleet) -> None:
    addresses = [server.address for server in fleet.servers]
    command = [
        "redis-cli",
        "--user",
        "rota",
        "-a",
        "of-the-test",
        "--no-auth-warning",
        "--cluster",
        "create",
        *addresses,
    ]
    done = subprocess.run(
        [*command, "--cluster-replicas", "1", "--cluster-yes"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    fleet.wait_until_served()
    wait_until(lambda: sum(bool(node.primary_id) for node in _nodes(fleet)) == 3, "it knows its replicas")


def in_unsafe_racks(fleet: Fleet) -> dict[str, Sequence[str]]:
    """Whose server is whose, such that both copies of a shard are in one rack: n1 and n4 are, and so on."""
    by_id = {server.node_id: server for server in fleet.servers}
    replicas = [(by_id[node.primary_id], by_id[node.node_id]) for node in _nodes(fleet) if node.primary_id]
    engines: dict[str, Sequence[str]] = {}
    for number, (primary, replica) in enumerate(replicas, 1):
        engines |= {f"n{number}": [_url(primary)], f"n{number + 3}": [_url(replica)]}
    return engines


def _nodes(fleet: Fleet) -> list[Any]:
    return list(fleet.servers[0].nodes().values())


def _url(server: Server) -> str:
    return f"redis://rota:of-the-test@{server.address}"


def shape(fleet: Fleet) -> set[tuple[object, ...]]:
    """Who holds which slots, and who follows whom."""
    return {(node.node_id, node.primary_id, tuple(node.slots)) for node in _nodes(fleet)}


async def settled(cluster: LocalCluster, phase: str) -> dict[str, Any]:
    answers = await cluster.wait_until(
        lambda answers: any(
            answer["control"]
            and answer["name"] == answer["controller"]
            and answer["control"]["phase"] == phase
            for answer in answers.values()
        ),
        timeout=60,
        what=f"phase {phase}",
    )
    return next(answer for answer in answers.values() if answer["name"] == answer["controller"])


@pytest.mark.parametrize(
    "engine",
    ["redis", pytest.param("valkey", marks=pytest.mark.sweep("the same with the other program"))],
    indirect=True,
)
async def test_a_cluster_is_adopted_looked_at_and_made_safe(
    engine: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    # Longer than 5 s: a cluster of twelve processes is made, moved under traffic, and checked key by key.
    with running(engine, HOSTS, Options(user="rota", password="of-the-test")) as fleet:
        create_by_the_engines_own_tool(fleet)
        before = shape(fleet)
        plan = ClusterPlan(tmp_path, engines=in_unsafe_racks(fleet))
        async with open_local_cluster(plan) as cluster:
            status = await settled(cluster, "observing")
            assert status["engine"]["name"] == "adopted"
            agent = cluster.agents["n1"]
            layout = await agent.get("/v1/layout")
            assert layout["rack_violations"] == 3
            dry_run = await agent.get("/v1/plan")
            assert dry_run["observing"]
            assert dry_run["violations"]["after"] == {"rack_violations": 0, "under_replicated": 0}
            assert len(dry_run["moves"]) == 3, "one copy of each shard, and no more"
            assert shape(fleet) == before, "nothing was changed yet"
            addresses = [server.address for server in fleet.servers]
            async with SlotsWorkload.open(addresses, "of-the-test", "rota") as workload:
                await agent.post("/v1/apply", {})
                await settled(cluster, "settled")
                workload.stop()
                outcome = await workload.verify()
            assert all(count > 20 for count in workload.acknowledged_by_client.values())
            assert (outcome.lost, outcome.unreadable) == (0, 0)
            assert workload.client_errors == 0, workload.last_error
            layout = await agent.get("/v1/layout")
            assert (layout["rack_violations"], layout["under_replicated"]) == (0, 0)
            assert not fleet.open_slots()
