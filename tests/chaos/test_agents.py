"""Real agents under the fault vocabulary, one fault after the other, in the timing of one machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos import InvariantViolation, NotRunnableError, faults
from chaos.processes.agents import AgentWorld
from chaos.processes.loopback import LoopbackLinks

pytestmark = pytest.mark.socket

LIMIT = 60.0
"""Seconds that anything may take; it takes two or three."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AgentWorld]:
    made = AgentWorld(4, LoopbackLinks(), backend="process", seed=1, loss=0.0, preset="local", logs=tmp_path)
    try:
        made.start(0.2)
        assert made.run(LIMIT, stop=lambda: standing(made, 4))
        yield made
    finally:
        made.close()


def standing(world: AgentWorld, size: int) -> bool:
    return world.latest is not None and len(world.latest) == size and world.converged()


def wait(world: AgentWorld, stop: Callable[[], bool]) -> None:
    assert world.run(world.now + LIMIT, stop=stop), "\n".join(world.trace)


def incarnation(world: AgentWorld, name: str) -> bytes | None:
    member = None if world.latest is None else world.latest.member(name)
    return None if member is None else member.incarnation


def came_back(world: AgentWorld, name: str, before: bytes | None) -> Callable[[], bool]:
    return lambda: standing(world, 4) and incarnation(world, name) != before


def test_hosts_go_and_come_back(world: AgentWorld) -> None:
    world.begin_record(1.0)
    before = incarnation(world, "n1")
    world.apply(faults.Restart(("n1",)))
    wait(world, came_back(world, "n1", before))

    # Started again while it is still leaving: the new process waits for the old one's end.
    before = incarnation(world, "n2")
    world.apply(faults.Leave(("n2",)))
    world.apply(faults.Start(("n2",)))
    wait(world, came_back(world, "n2", before))

    before = incarnation(world, "n3")
    world.apply(faults.Pause(("n3",)))
    wait(world, lambda: len(world.latest or ()) == 3 and world.agreed())
    world.apply(faults.Resume(("n3",)))
    wait(world, came_back(world, "n3", before))

    # The founder too: it comes back as a joiner.
    before = incarnation(world, "n0")
    world.apply(faults.Partition((("n0",),)))
    wait(world, lambda: len(world.latest or ()) == 3 and world.agreed())
    wait(world, lambda: any(notice.host == "n0" and notice.lost for notice in world.quorum_notices))
    world.apply(faults.Heal())
    wait(world, came_back(world, "n0", before))

    views = world.views
    assert [view.epoch for view in views] == list(range(views[0].epoch, views[-1].epoch + 1))
    assert world.cpu_seconds > 0
    assert len(world.sizes) > 0

    with pytest.raises(NotRunnableError, match="can not be done to real agents"):
        world.apply(faults.Delay(1.0, ("n1",)))


def test_an_agent_that_ends_by_itself_breaks_the_run_and_nothing_is_left(world: AgentWorld) -> None:
    pids = [agent.pid for agent in world._agents.values()]
    os.kill(pids[2], signal.SIGKILL)  # behind the run's back
    with pytest.raises(InvariantViolation, match="agent n2 ended by itself"):
        world.run(world.now + LIMIT)
    world.apply(faults.Pause(("n1",)))
    world.close()
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()
