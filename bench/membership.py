"""Membership on the simulator: the agents' own protocol objects in virtual time, one process, one core.

Published figures: *Stable and Consistent Membership at Scale with Rapid* (USENIX ATC 2018), Figure 5, Table 1 and
Table 2, on 100 virtual machines.  Seconds here are virtual, so they compare protocols, not machines; CPU seconds are
of this process for all members together.
"""

from __future__ import annotations

import resource
from typing import Any

import chaos
from bench.result import Result

PUBLISHED_BOOTSTRAP = {1000: ("30 s", "4"), 1500: ("40 s", "8"), 2000: ("54 s", "4")}
SOURCE = "Rapid, USENIX ATC 2018, 100 virtual machines"


def bootstrap(nodes: int, seed: int) -> Result:
    """All ``nodes`` processes start within one second."""
    report = chaos.run("bootstrap", nodes=nodes, seed=seed)
    seconds, sizes = PUBLISHED_BOOTSTRAP.get(nodes, ("", ""))
    figures = _figures(report)
    rows = [
        ("virtual seconds until all agree", f"{figures['seconds']}", seconds),
        ("unique sizes seen", str(figures["unique_sizes"]), sizes),
        ("CPU seconds, all members", f"{figures['cpu_seconds']:.2f}", ""),
        ("peak memory, MB", f"{figures['max_rss'] / 1e6:.0f}", ""),
    ]
    return Result(figures, rows, SOURCE)


def crash(nodes: int, faulty: int, seed: int) -> Result:
    """``faulty`` members stop at once; 30 virtual seconds are watched."""
    report = chaos.run("crash", nodes=nodes, faulty=faulty, seed=seed)
    figures = _figures(report)
    received = figures["bytes_per_node"]
    rows = [
        ("virtual seconds until removed by all", f"{figures['seconds']}", ""),
        ("view changes", str(len(report.views)), "1"),
        ("KB/s received per member, mean", f"{received['mean']:.2f}", "0.71"),
        ("KB/s received per member, p99", f"{received['p99']:.2f}", "3.66"),
        ("KB/s received per member, max", f"{received['max']:.2f}", "9.56"),
        ("CPU seconds, all members", f"{figures['cpu_seconds']:.2f}", ""),
    ]
    return Result(figures, rows, f"{SOURCE}, N = 1000")


def _figures(report: chaos.Report) -> dict[str, Any]:
    document = report.to_json()
    return {
        "nodes": report.nodes,
        "seconds": report.settle_seconds,
        "cpu_seconds": report.cpu_seconds,
        "unique_sizes": document["unique_sizes"],
        "bytes_per_node": document["bytes_per_node"],
        "max_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "ok": report.ok,
    }
