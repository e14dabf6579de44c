"""Everybody's power fails, again and again, while four clients write: real agent processes, and a disk of this machine.

SIGKILL for all agents at once, all of them started again where they were, and every write acknowledged so far read
back, each time.  Processes that are killed leave the system's cache behind; a disk that forgets what it was not told
to keep is what the simulator's storage does in the tests of the log.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from bench.result import Result
from chaos.checkers.read_back import ReadBack
from rota.local.cluster import ClusterPlan, open_local_cluster
from rota.local.workload import Workload

PATIENCE: Final = 120.0
"""Seconds for each part; after that it counts as not having happened."""
WRITES: Final = 50
"""Acknowledged to each writer after a cut, at least."""
UNDER_WAY: Final = 5
"""Of these after the last look at what is there, so that each writes when the power fails."""
WRITERS: Final = 4


@dataclass(frozen=True, slots=True)
class Cut:
    """One power cut.  Seconds from the start of the agents."""

    together_seconds: float
    """All agents in one view."""
    first_append_seconds: float
    epoch: int
    """Of the view they came back in."""
    outcome: ReadBack


def power_loss(
    cuts: int, nodes: int, racks: int, directory: Path | None = None, *, quiet: bool = False
) -> Result:
    """`cuts` in a row on one cluster."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    done = trio.run(_cuts, cuts, nodes, racks, directory, quiet)
    outcomes = [cut.outcome for cut in done]
    lost = sum(outcome.lost for outcome in outcomes)
    unreadable = sum(outcome.unreadable for outcome in outcomes)
    together = [cut.together_seconds for cut in done]
    appended = [cut.first_append_seconds for cut in done]
    epochs = [cut.epoch for cut in done]
    figures = {
        "cuts": len(done),
        "nodes": nodes,
        "acknowledged_writes": outcomes[-1].acknowledged,
        "reads_back": sum(outcome.acknowledged for outcome in outcomes),
        "lost_writes": lost,
        "unreadable_writes": unreadable,
        "epochs_only_grow": epochs == sorted(set(epochs)),
        "together_seconds": round(statistics.median(together), 3),
        "worst_together_seconds": round(max(together), 3),
        "first_append_seconds": round(statistics.median(appended), 3),
        "worst_first_append_seconds": round(max(appended), 3),
    }
    rows = [(key.replace("_", " "), str(value), "") for key, value in figures.items()]
    return Result(
        figures,
        rows,
        "none; asked for: nothing lost in 50 cuts in a row",
        ok=not lost and not unreadable and figures["epochs_only_grow"] is True and len(done) == cuts,
        remarks=[
            f"seconds since the agents were started again; data in {directory or tempfile.gettempdir()}"
        ],
    )


async def _cuts(cuts: int, nodes: int, racks: int, directory: Path | None, quiet: bool) -> list[Cut]:
    done: list[Cut] = []
    with tempfile.TemporaryDirectory(prefix="rota-power-loss-", dir=directory) as place:
        async with open_local_cluster(ClusterPlan(Path(place), nodes=nodes, racks=racks)) as cluster:
            await cluster.wait_until_settled(timeout=PATIENCE, what="a placement")
            addresses = [agent.address for agent in cluster.live()]
            async with AsyncExitStack() as stack:
                workloads = [
                    await stack.enter_async_context(Workload.open(addresses)) for _ in range(WRITERS)
                ]
                await _write_on(workloads)
                for number in range(cuts):
                    await _write_on(workloads, UNDER_WAY)
                    await cluster.kill_all()
                    began = time.monotonic()
                    await cluster.start()
                    answers = await cluster.wait_together(PATIENCE)
                    together = time.monotonic() - began
                    await _write_on(workloads)
                    appended = max(each.longest_pause_ended_after(began)[1] for each in workloads) - began
                    outcome = await _read_back(workloads)
                    epoch = max(answer["epoch"] for answer in answers.values())
                    done.append(Cut(together, appended, epoch, outcome))
                    if not quiet:
                        print(
                            f"cut {number + 1}: together after {together:.2f} s, first append after {appended:.2f} s, "
                            f"{outcome.acknowledged} read back, {outcome.lost} lost, {outcome.unreadable} unreadable",
                            flush=True,
                        )
                    if outcome.lost:
                        break
    return done


async def _write_on(workloads: list[Workload], count: int = WRITES) -> None:
    """Until each has so many more that are acknowledged."""
    async with trio.open_nursery() as nursery:
        for workload in workloads:
            nursery.start_soon(workload.more, count, PATIENCE)


async def _read_back(workloads: list[Workload]) -> ReadBack:
    """Nothing is written meanwhile, or there would be more and more to read."""
    with ExitStack() as held:
        for workload in workloads:
            held.enter_context(workload.held())
        outcomes = [await workload.read_back() for workload in workloads]
    return ReadBack(
        sum(outcome.acknowledged for outcome in outcomes),
        sum(outcome.lost for outcome in outcomes),
        sum(outcome.unreadable for outcome in outcomes),
    )
