"""From the kill of a host to the first append after it: six real processes on this machine, ``local`` preset."""

from __future__ import annotations

import trio

from agent.demo import DemoOptions, run_demo
from bench.result import Result


def failover(kill: str) -> Result:
    """One run of the demo, its figures."""
    report = trio.run(run_demo, DemoOptions(kill=kill), True)
    figures = {
        "victim_roles": report.victim_roles,
        "detection_seconds": report.detection_seconds,
        "write_pause_seconds": report.longest_write_pause_seconds,
        "repair_seconds": report.repair_seconds,
        "acknowledged_writes": report.acknowledged_writes,
        "lost_writes": report.lost_writes,
    }
    rows = [(key.replace("_", " "), str(value), "") for key, value in figures.items()]
    return Result(
        figures, rows, "no published figure; the longest pause of one writer is from append to append"
    )
