"""Real agents under the fault vocabulary, one fault after the other, in the timing of one machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from chaos import InvariantViolation, NotRunnableError, faults
from chaos.processes.agents import AgentCluster
from chaos.processes.loopback import LoopbackLinks

pytestmark = pytest.mark.socket

LIMIT = 60.0
"""Seconds that anything may take; it takes two or three."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[AgentCluster]:
    with (
        closing(LoopbackLinks()) as links,
        closing(
            AgentCluster(4, links, backend="process", seed=1, loss=0.0, preset="local", logs=tmp_path)
        ) as made,
    ):
        made.start(0.2)
        assert made.run(LIMIT, stop=lambda: standing(made, 4))
        yield made


def standing(cluster: AgentCluster, size: int) -> bool:
    return cluster.latest is not None and len(cluster.latest) == size and cluster.converged()


def wait(cluster: AgentCluster, stop: Callable[[], bool]) -> None:
    assert cluster.run(cluster.now + LIMIT, stop=stop), "\n".join(cluster.trace)


def incarnation(cluster: AgentCluster, name: str) -> bytes | None:
    member = None if cluster.latest is None else cluster.latest.member(name)
    return None if member is None else member.incarnation


def came_back(cluster: AgentCluster, name: str, before: bytes | None) -> Callable[[], bool]:
    return lambda: standing(cluster, 4) and incarnation(cluster, name) != before


def test_hosts_go_and_come_back(cluster: AgentCluster) -> None:
    cluster.begin_record(1.0)
    before = incarnation(cluster, "n1")
    cluster.apply(faults.Restart(("n1",)))
    wait(cluster, came_back(cluster, "n1", before))

    # Started again while it is still leaving: the new process waits for the old one's end.
    before = incarnation(cluster, "n2")
    cluster.apply(faults.Leave(("n2",)))
    cluster.apply(faults.Start(("n2",)))
    wait(cluster, came_back(cluster, "n2", before))

    before = incarnation(cluster, "n3")
    cluster.apply(faults.Pause(("n3",)))
    wait(cluster, lambda: len(cluster.latest or ()) == 3 and cluster.agreed())
    cluster.apply(faults.Resume(("n3",)))
    wait(cluster, came_back(cluster, "n3", before))

    # The founder too: it comes back as a joiner.
    before = incarnation(cluster, "n0")
    cluster.apply(faults.Partition((("n0",),)))
    wait(cluster, lambda: len(cluster.latest or ()) == 3 and cluster.agreed())
    wait(cluster, lambda: any(notice.host == "n0" and notice.lost for notice in cluster.quorum_notices))
    cluster.apply(faults.Heal())
    wait(cluster, came_back(cluster, "n0", before))

    views = cluster.views
    assert [view.epoch for view in views] == list(range(views[0].epoch, views[-1].epoch + 1))
    assert cluster.cpu_seconds > 0
    assert len(cluster.sizes) > 0

    with pytest.raises(NotRunnableError, match="can not be done to real agents"):
        cluster.apply(faults.Delay(1.0, ("n1",)))


def test_an_agent_that_ends_by_itself_breaks_the_run_and_nothing_is_left(cluster: AgentCluster) -> None:
    pids = [agent.pid for agent in cluster._agents.values()]
    os.kill(pids[2], signal.SIGKILL)  # behind the run's back
    with pytest.raises(InvariantViolation, match="agent n2 ended by itself"):
        cluster.run(cluster.now + LIMIT)
    cluster.apply(faults.Pause(("n1",)))
    cluster.close()
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()
