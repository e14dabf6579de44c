"""The folder of ``rota up --dir`` belongs to one ``rota up`` at a time."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from membership import Address
from rota.errors import LocalClusterError
from rota.local.cluster import ClusterPlan, open_local_cluster
from rota.local.up import _directory, _show


def test_a_second_one_is_refused_before_it_starts_anything(tmp_path: Path) -> None:
    """It would bring hosts back that are down, and take them away again when it fails."""
    place = tmp_path / "cluster"
    refused = pytest.raises(LocalClusterError, match="in use by another `rota up`")
    with _directory(place), refused, _directory(place):
        pytest.fail("it must not get so far")
    with _directory(place) as again:
        assert again == place


@pytest.mark.socket
async def test_where_somebody_has_the_wanted_port_the_agent_says_which_one_it_took(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = Address("127.0.0.1", taken.getsockname()[1])
        async with open_local_cluster(ClusterPlan(tmp_path, nodes=1, first_api=wanted)) as cluster:
            (agent,) = cluster.live()
            assert agent.api.host == wanted.host
            assert agent.api.port not in (0, wanted.port)
            assert (await agent.get("/v1/status"))["name"] == "n1"


@pytest.mark.socket
async def test_agents_come_back_at_addresses_that_nobody_else_can_claim(tmp_path: Path) -> None:
    async with open_local_cluster(ClusterPlan(tmp_path, nodes=1)) as cluster:
        places = cluster.places
        again = ClusterPlan(tmp_path, nodes=1, places=places)
        with pytest.raises(LocalClusterError, match="in use by another cluster on this machine"):
            async with open_local_cluster(again):
                pytest.fail("it runs twice")
    async with open_local_cluster(again) as cluster:
        assert cluster.places == places


@pytest.mark.socket
async def test_it_ends_with_its_last_agent(tmp_path: Path) -> None:
    async with open_local_cluster(ClusterPlan(tmp_path / "cluster", nodes=1)) as cluster:
        cluster.kill("n1")
        await cluster.agents["n1"].process.wait()
        with pytest.raises(LocalClusterError, match="all agents have ended; the log of n1 ends with"):
            await _show(cluster, live=False)
