"""Membership of real members on real sockets: a crowd in a few processes of this machine.

Seconds are of the wall clock, and this machine's: everything runs on its cores at once. CPU seconds, of all
processes together, tell more on a machine that does other things too.
"""

from __future__ import annotations

import random
from typing import Any, Final

import trio

from bench.members.alerts import alerts_complete
from bench.members.processes import MemberProcesses, Usage, View, open_member_processes
from bench.members.run import Run
from membership.settings import Settings

SPREAD: Final = 1.0
"""Seconds within which all members start."""
STANDING: Final = 15.0
"""Seconds of quiet before the crash."""
WATCHED: Final = 5.0
"""Seconds the crowd is watched after the removal, for view changes that should not be."""


def bootstrap(nodes: int, processes: int, seed: int, spread: float = SPREAD) -> Run:
    """All members start within ``spread`` seconds."""
    return trio.run(_measure, nodes, processes, seed, spread, None)


def crash(nodes: int, processes: int, faulty: int, seed: int, spread: float = SPREAD) -> Run:
    """``faulty`` members' sockets close at once, without a word."""
    return trio.run(_measure, nodes, processes, seed, spread, faulty)


async def _measure(nodes: int, processes: int, seed: int, spread: float, faulty: int | None) -> Run:
    async with open_member_processes(nodes, processes, seed) as crowd:
        first, last = await crowd.start(spread)
        before = await crowd.usage()
        view = await crowd.until_all_at(nodes)
        usage = await crowd.usage()
        if faulty is None or view is None:
            installed = None if view is None else crowd.last_installation(view)
            return _bootstrap_run(crowd, seed, usage, first, last, installed)
        await trio.sleep(STANDING)
        before = await crowd.usage()
        crowd.alerts.clear()
        victims = random.Random(seed).sample(range(1, nodes), faulty)
        observers = await crowd.observers(victims)
        crashed = await crowd.kill(victims)
        after = await crowd.until_all_at(nodes - faulty, after=view.epoch)
        usage = await crowd.usage()
        settled = None if after is None else crowd.last_installation(after)
        await trio.sleep(WATCHED)
        alert = None
        if settled is not None:
            made = sorted(crowd.alerts, key=lambda each: each.seconds)
            alert = alerts_complete(observers, made, Settings().high_watermark)
        after_alerts = None if alert is None or settled is None else settled - alert.seconds
        return _crash_run(crowd, seed, faulty, before, usage, view, crashed, settled, after_alerts)


def _bootstrap_run(
    crowd: MemberProcesses, seed: int, usage: Usage, first: float, last: float, installed: float | None
) -> Run:
    counters = usage.counters
    return Run(
        seed=seed,
        nodes=crowd.nodes,
        ok=installed is not None,
        seconds=None if installed is None else installed - last,
        cpu_seconds=usage.cpu_seconds,
        unique_sizes=len(crowd.unique_sizes),
        messages_per_node=(counters["datagrams_sent"] + counters["frames_sent"]) / crowd.nodes,
        bytes_per_node=(counters["datagram_bytes_sent"] + counters["stream_bytes_sent"]) / crowd.nodes,
        max_rss=usage.max_rss,
        more={
            "processes": crowd.processes,
            "start_spread": round(last - first, 3),
            "sizes": crowd.unique_sizes,
            "longest_round": round(usage.longest_round, 3),
            "streams": counters["frames_sent"],
        },
    )


def _crash_run(
    crowd: MemberProcesses,
    seed: int,
    faulty: int,
    before: Usage,
    usage: Usage,
    view: View,
    crashed: float,
    settled: float | None,
    after_alerts: float | None,
) -> Run:
    survivors = crowd.nodes - faulty
    later = [each for each in crowd.views if each.epoch > view.epoch]
    counters = usage.counters - before.counters
    messages = counters["datagrams_sent"] + counters["frames_sent"] - counters["detection_datagrams"]
    sent = counters["datagram_bytes_sent"] + counters["stream_bytes_sent"] - counters["detection_bytes"]
    more: dict[str, Any] = {
        "processes": crowd.processes,
        "faulty": faulty,
        "view_changes": len({each.epoch for each in later}),
        "seconds_after_alerts": None if after_alerts is None else round(after_alerts, 3),
        "probes_per_node": round(counters["detection_datagrams"] / survivors, 1),
        "longest_round": round(usage.longest_round, 3),
    }
    return Run(
        seed=seed,
        nodes=crowd.nodes,
        ok=settled is not None,
        seconds=None if settled is None else settled - crashed,
        cpu_seconds=usage.cpu_seconds - before.cpu_seconds,
        unique_sizes=len({each.size for each in later} | {crowd.nodes}),
        messages_per_node=messages / survivors,
        bytes_per_node=sent / survivors,
        max_rss=usage.max_rss,
        more=more,
    )
