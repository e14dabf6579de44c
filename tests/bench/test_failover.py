"""What the figures of `failover` are made of."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from bench.log.failover import failover
from datastore_adapter import LogClient, TrioRuntime
from rota.local.workload import Workload


async def test_the_pause_that_counts_is_the_longest_that_ended_after_the_kill() -> None:
    async with trio.open_nursery() as nursery:
        workload = Workload(LogClient(TrioRuntime(nursery), ["127.0.0.1:1"]))
    began = workload._begun_at
    workload._acknowledged_at = [began + seconds for seconds in (4.0, 4.5, 7.5, 7.6)]
    assert workload.longest_pause == pytest.approx(4.0)
    assert workload.longest_pause_ended_after(began + 5) == (pytest.approx(3.0), began + 7.5)
    assert workload.longest_pause_ended_after(began + 9) == (0.0, began + 9)


@pytest.mark.demo
@pytest.mark.socket
def test_a_kill_is_told_in_parts_that_follow_each_other(tmp_path: Path) -> None:
    figures = failover(["sequencer"], runs=1, nodes=4, racks=4, directory=tmp_path).figures
    (kill,) = figures["kills"]
    assert kill["lost_writes"] == 0
    parts = ("look_seconds", "seal_seconds", "decide_seconds", "activate_seconds")
    assert sum(kill[part] for part in parts) == pytest.approx(kill["reopen_seconds"])
    way = ("detection_seconds", "plan_seconds", "reopen_seconds")
    assert kill["first_append_seconds"] > sum(kill[part] for part in way) - 0.01
    assert figures["worst"]["first_append_seconds"] == pytest.approx(kill["first_append_seconds"], abs=1e-3)
    assert not list(tmp_path.iterdir())
