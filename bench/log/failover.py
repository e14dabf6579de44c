"""From the kill of a host to the next append: real agent processes on this machine, a writer running.

For each kill a cluster of its own, and the time of each part of the way, as the agents' events and the writer tell
them: the view without the host, the plan, the new layout (read, sealed, decided, activated), the append. The time of
a repair is not in it; copies are made after writing goes on.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import trio

from bench.result import Result, Table
from rota.local.cluster import ClusterPlan, LocalCluster, open_local_cluster
from rota.local.fault_targets import choose_fault_target
from rota.local.workload import Workload

SETTLE_TIMEOUT: Final = 60.0
QUIET_WRITING: Final = 2.0
"""Seconds of undisturbed writing before a kill, at least, so that its pause stands out."""
ASKED: Final = {"first_append_seconds": 3.0, "reopen_seconds": 0.3}


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill.  Seconds; the parts follow each other."""

    detection_seconds: float
    """From the kill to the view without the host, at the controller then."""
    plan_seconds: float
    """To the beginning of the change of the layout: the engine looked at, solved, agreed."""
    look_seconds: float
    seal_seconds: float
    decide_seconds: float
    activate_seconds: float
    reopen_seconds: float
    """The four before together."""
    first_append_seconds: float
    """From the kill to the acknowledgement of the append that had to wait for all this."""
    repair_seconds: float
    """From the kill to all copies in place."""
    lost_writes: int
    """Acknowledged ones that are not there, are others, or cannot be read."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kill, and whose."""

    kill: str
    roles: list[str]
    times: Kill


def failover(
    kills: Sequence[str],
    runs: int,
    nodes: int = 6,
    racks: int = 3,
    preset: str = "local",
    directory: Path | None = None,
    quiet: float = QUIET_WRITING,
) -> Result:
    """`runs` kills of each of `kills` (see `rota.local.fault_targets`), each after `quiet` seconds of writing."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    cases = [
        trio.run(_case, kill, nodes, racks, preset, directory, quiet, number)
        for number in range(runs)
        for kill in kills
    ]
    names = [field.name for field in fields(Kill)]
    columns = {name: [getattr(case.times, name) for case in cases] for name in names}
    median = {name: round(statistics.median(values), 4) for name, values in columns.items()}
    worst = {name: round(max(values), 4) for name, values in columns.items()}
    median["lost_writes"] = sum(columns["lost_writes"])
    figures = {
        **median,
        "worst": worst,
        "asked": ASKED,
        "nodes": nodes,
        "preset": preset,
        "kills": [{"kill": case.kill, "roles": case.roles, **asdict(case.times)} for case in cases],
    }
    return Result(
        figures,
        [(_words(name), f"{median[name]:g} / {worst[name]:g}", _asked(name)) for name in names],
        "none; in the right column what was asked for",
        ok=median["lost_writes"] == 0,
        others=[_each(cases)],
        remarks=[
            f"{len(cases)} kills, medians / worst, seconds; {nodes} agents in {racks} racks, preset {preset}, "
            f"{quiet:g} s of writing before, data in {directory or tempfile.gettempdir()}; the parts follow each other"
        ],
    )


def _words(name: str) -> str:
    return name.replace("_seconds", "").replace("_", " ")


def _asked(name: str) -> str:
    return f"under {ASKED[name]:g}" if name in ASKED else ""


def _each(cases: Sequence[Case]) -> Table:
    columns = ("killed", "view", "plan", "reopen", "first append", "repair", "lost")
    rows = [
        (
            f"{case.kill} ({', '.join(case.roles)})",
            *(
                f"{seconds:.3f}"
                for seconds in (
                    case.times.detection_seconds,
                    case.times.plan_seconds,
                    case.times.reopen_seconds,
                    case.times.first_append_seconds,
                    case.times.repair_seconds,
                )
            ),
            str(case.times.lost_writes),
        )
        for case in cases
    ]
    return Table(columns, rows)


async def _case(
    kill: str, nodes: int, racks: int, preset: str, directory: Path | None, quiet: float, seed: int
) -> Case:
    with tempfile.TemporaryDirectory(prefix="rota-failover-", dir=directory) as place:
        plan = ClusterPlan(Path(place), nodes=nodes, racks=racks, preset=preset)
        async with open_local_cluster(plan) as cluster:
            await cluster.wait_together(SETTLE_TIMEOUT)
            await cluster.wait_until_settled(timeout=SETTLE_TIMEOUT, what="a complete placement", size=nodes)
            async with Workload.open([agent.address for agent in cluster.live()]) as workload:
                await trio.sleep(quiet)
                victim, roles = await choose_fault_target(cluster, kill, random.Random(seed))
                cluster.kill(victim)
                killed_at, killed = time.time(), time.monotonic()
                await cluster.wait_until_settled(
                    timeout=SETTLE_TIMEOUT, what=f"the repair after the kill of {victim}", size=nodes - 1
                )
                repair = time.monotonic() - killed
                workload.stop()
                outcome = await workload.verify()
                _, appended = workload.longest_pause_ended_after(killed)
            events = await _events(cluster, killed_at)
    view, reopened = _of_kind(events, "view"), _of_kind(events, "reopened")
    parts = reopened["data"]
    times = Kill(
        detection_seconds=view["time"] - killed_at,
        plan_seconds=reopened["time"] - parts["seconds"] - view["time"],
        look_seconds=parts["look"],
        seal_seconds=parts["seal"],
        decide_seconds=parts["decide"],
        activate_seconds=parts["activate"],
        reopen_seconds=parts["seconds"],
        first_append_seconds=appended - killed,
        repair_seconds=repair,
        lost_writes=outcome.lost + outcome.unreadable,
    )
    return Case(kill, roles, times)


async def _events(cluster: LocalCluster, since: float) -> list[dict[str, Any]]:
    """What the controller tells of the time after `since` (Unix seconds), oldest first."""
    statuses = await cluster.statuses()
    controller = next(status["controller"] for status in statuses.values())
    answer = await cluster.agents[controller].get("/v1/events", local=1)
    return [event for event in answer["events"] if event["time"] >= since]


def _of_kind(events: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The first."""
    return next(event for event in events if event["kind"] == kind)
