"""Agents of a local cluster do not outlive whoever started them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

STARTER = """
import sys, json
from pathlib import Path
import trio
from rota.local.cluster import ClusterPlan, open_local_cluster

async def main():
    async with open_local_cluster(ClusterPlan(Path(sys.argv[1]), nodes=2, racks=2)) as cluster:
        print(json.dumps([agent.process.pid for agent in cluster.agents.values()]), flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


def runs(pid: int) -> bool:
    """Whether it is there and more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.socket
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at processes in /proc")
async def test_agents_end_when_the_process_that_started_them_is_killed(tmp_path: Path) -> None:
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", STARTER, str(tmp_path)], stdout=subprocess.PIPE, env=dict(os.environ)
    )
    assert process.stdout is not None
    with trio.fail_after(60):
        told = await process.stdout.receive_some()
    agents = json.loads(told)
    assert len(agents) == 2
    assert all(map(runs, agents))
    process.send_signal(signal.SIGKILL)
    await process.wait()
    with trio.fail_after(30):
        while any(map(runs, agents)):  # noqa: ASYNC110 - they are nobody's children any more
            await trio.sleep(0.05)
    assert "whoever started this agent is gone" in (tmp_path / "n1.log").read_text()
