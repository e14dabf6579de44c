"""The logically centralised mode on the simulator: an ensemble of voters, and all members, in virtual time.

Published figures: *Stable and Consistent Membership at Scale with Rapid* (USENIX ATC 2018), Figure 5 and Table 1,
Rapid-C with an ensemble of three, on 100 virtual machines.  The traffic is that of members and voters together.
"""

from __future__ import annotations

from typing import Final

import chaos
from bench.members.membership import PUBLISHED_BOOTSTRAP
from bench.result import Result

SOURCE: Final = "Rapid-C, USENIX ATC 2018, 100 virtual machines"
SECONDS: Final = {1000: "39", 1500: "64", 2000: "81"}
SIZES: Final = {1000: "9", 1500: "10", 2000: "7"}


def centralised(nodes: int, faulty: int, ensemble: int, seed: int) -> Result:
    """``nodes`` members start within a second; then, in a run of its own, ``faulty`` of them vanish together."""
    bootstrap = chaos.run("bootstrap", nodes=nodes, seed=seed, ensemble=ensemble)
    crash = chaos.run("crash", nodes=nodes, faulty=faulty, seed=seed, ensemble=ensemble)
    sizes = len(set(bootstrap.sizes))
    figures = {
        "nodes": nodes,
        "faulty": faulty,
        "ensemble": ensemble,
        "seconds": bootstrap.settle_seconds,
        "unique_sizes": sizes,
        "cpu_seconds": bootstrap.cpu_seconds,
        "crash_seconds": crash.settle_seconds,
        "crash_view_changes": len(crash.views),
        "crash_cpu_seconds": crash.cpu_seconds,
        "ok": bootstrap.ok and crash.ok,
    }
    rows = [
        (
            "bootstrap: virtual seconds until all agree",
            _text(bootstrap.settle_seconds),
            SECONDS.get(nodes, ""),
        ),
        ("bootstrap: unique sizes seen", str(sizes), SIZES.get(nodes, "")),
        ("bootstrap: CPU seconds, members and voters", f"{bootstrap.cpu_seconds:.2f}", ""),
        ("crash: virtual seconds until removed by all", _text(crash.settle_seconds), ""),
        ("crash: view changes", str(len(crash.views)), ""),
        ("crash: KB/s received per process, mean", f"{crash.received.mean:.2f}", ""),
        ("crash: CPU seconds of 30 virtual ones", f"{crash.cpu_seconds:.2f}", ""),
    ]
    return Result(figures, rows, SOURCE, (PUBLISHED_BOOTSTRAP,), bootstrap.ok and crash.ok)


def _text(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.2f}"
