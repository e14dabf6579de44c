"""The power fails for all agents at once, while they are written to: they come back with every acknowledged write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from membership import Address
from rota.errors import LocalClusterError
from rota.local import cluster_file
from rota.local.cluster import ClusterPlan, is_settled, open_local_cluster
from rota.local.cluster_file import ClusterFile, Place
from rota.local.workload import Workload

NODES = 4
CUTS = 2
PATIENCE = 90.0


def settled(answers: dict[str, dict[str, Any]]) -> bool:
    return any(is_settled(answer) for answer in answers.values())


@pytest.mark.demo
@pytest.mark.socket
async def test_every_acknowledged_write_is_there_after_power_cuts(tmp_path: Path) -> None:
    async with open_local_cluster(ClusterPlan(tmp_path, nodes=NODES, racks=NODES, segments=3)) as cluster:
        await cluster.wait_until(settled, timeout=PATIENCE, what="a placement")
        drained = cluster.in_order()[-1].name
        await cluster.in_order()[0].post("/v1/drain", {"host": drained})
        async with Workload.open([agent.address for agent in cluster.live()]) as workload:
            epochs = [0]
            for _ in range(CUTS):
                await workload.more(20, PATIENCE)
                await cluster.kill_all()
                await cluster.start()
                answers = await cluster.wait_together(PATIENCE)
                epochs.append(max(answer["epoch"] for answer in answers.values()))
            await workload.more(20, PATIENCE)
            workload.stop()
            outcome = await workload.verify()
            layout = await cluster.in_order()[0].get("/v1/layout")
        assert (outcome.lost, outcome.unreadable) == (0, 0)
        assert epochs == sorted(set(epochs)), "fencing tokens only grow"
        assert layout["drained"] == [drained], "an acknowledged request survives as well"


def test_what_a_local_cluster_was_is_kept_in_its_folder(tmp_path: Path) -> None:
    assert cluster_file.load(tmp_path) is None
    places = {
        f"n{number}": Place(Address("127.0.0.1", number), Address("127.0.0.1", 100 + number))
        for number in (1, 2, 10)
    }
    ClusterFile(2, places).save(tmp_path)
    loaded = cluster_file.load(tmp_path)
    assert loaded == ClusterFile(2, places)
    assert list(loaded.places) == list(places)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"racks": 1}', '{"racks": 1, "agents": {"n1": {"address": "x"}}}']
)
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / cluster_file.FILE).write_text(text)
    with pytest.raises(LocalClusterError, match="unreadable"):
        cluster_file.load(tmp_path)
