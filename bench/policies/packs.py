"""The use cases of the papers on the policy packs: balancing machines, applications with affinities, preemption.

Each run is a whole solve through SQL: snapshot, encoding, search, and the oracle's check of the answer.  Building the
model is not counted; it is done once.  The states are ``bench.policies.workloads``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.policies import workloads
from bench.result import Result
from mgmt.compiler.model import Model
from mgmt.errors import SolveTimeout
from mgmt.language.policy_packs import load_pack
from mgmt.solution import Solution, SolveStatus
from mgmt.state.database import Database

_OSDI = "DCM, OSDI 2020, section 6, on the authors' machine"


@dataclass(frozen=True, slots=True)
class Solve:
    """One solve.  ``solution`` is None when time ended before there was any."""

    solution: Solution | None
    seconds: float
    cpu_seconds: float

    @property
    def proven(self) -> bool:
        return self.solution is not None and self.solution.status is not SolveStatus.FEASIBLE

    def after(self, objective: str) -> int:
        assert self.solution is not None
        return next(o.after for o in self.solution.objectives if o.name == objective)


class PackBench:
    """A compiled pack over a database that is filled anew for every run."""

    def __init__(self, name: str) -> None:
        pack = load_pack(name)
        self.database = Database()
        self.database.load_schema(pack.schema)
        self.model = Model.build(self.database, pack)

    def solve(self, tables: workloads.Tables, budget: float, seed: int) -> Solve:
        empty: workloads.Tables = {table.name: [] for table in self.database.schema.tables}
        self.database.replace_rows({**empty, **tables})
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            solution = self.model.solve(budget, seed)
        except SolveTimeout:
            solution = None
        return Solve(solution, time.perf_counter() - wall, time.process_time() - cpu)


def vm_balance(seeds: Sequence[int], budget: float) -> Result:
    """16 hosts, 524 machines, at most 20 migrations: how even it becomes."""
    bench = PackBench("vm_balance")
    runs = [bench.solve(workloads.virtual_machines(seed), budget, seed) for seed in seeds]
    ranges = [
        (run.after("lowest_utilisation") / 10**7, run.after("highest_utilisation") / 10**7)
        for run in runs
        if run.solution is not None
    ]
    widths = sorted(round(high - low, 1) for low, high in ranges)
    widest = max(ranges, key=lambda pair: pair[1] - pair[0], default=None)
    shown = "nothing found" if widest is None else f"{widest[0]:.1f}..{widest[1]:.1f} %"
    figures: dict[str, Any] = {
        "runs": len(runs),
        "solved": len(ranges),
        "spread_points": statistics.median(widths) if widths else None,
        "spread_points_worst": widths[-1] if widths else None,
        "migrations": max(
            (r.after("fewest_migrations") for r in runs if r.solution is not None), default=None
        ),
        "proven": sum(run.proven for run in runs),
        **_times(runs),
    }
    return Result(
        figures,
        [
            ("utilisation before", "39.0..85.0 %", "39..85 %"),
            (f"utilisation after, worst of {len(runs)}", shown, "52..67 %"),
            ("most migrations", str(figures["migrations"]), "20"),
            *_time_rows(runs, "1 s"),
        ],
        _OSDI,
        ok=len(ranges) == len(runs),
    )


def apps(seeds: Sequence[int], budget: float) -> Result:
    """30 applications of 10 pods with affinity and anti-affinity: in how many runs all are placed."""
    bench = PackBench("kubernetes")
    runs = [bench.solve(workloads.apps(seed), budget, seed) for seed in seeds]
    placed = [0 if run.solution is None else 300 - run.after("pods_left_out") for run in runs]
    whole = sum(number == 300 for number in placed)
    fewer = sum(number < 300 and _tier_proven(run, 1) for run, number in zip(runs, placed, strict=True))
    worst = min(placed) / 3
    figures: dict[str, Any] = {
        "runs": len(runs),
        "all_placed": whole,
        "proven_impossible": fewer,
        "open": len(runs) - whole - fewer,
        "worst_placed_percent": round(worst, 1),
        "proven": sum(run.proven for run in runs),
        **_times(runs),
    }
    return Result(
        figures,
        [
            ("runs with all pods placed", f"{whole} of {len(runs)}", "29 of 35"),
            ("runs where that is proven impossible", str(fewer), "-"),
            ("fewest pods placed", f"{worst:.0f} %", "93 %"),
            *_time_rows(runs, "-"),
        ],
        _OSDI,
        ok=whole + fewer == len(runs),
    )


def preemption(seeds: Sequence[int], budget: float) -> Result:
    """A full cluster of two lower priorities: who gives way to the pods of the highest one."""
    bench = PackBench("kubernetes")
    runs, waiting, middle, low = [], [], [], []
    for seed in seeds:
        run = bench.solve(workloads.preemption(seed), budget, seed)
        runs.append(run)
        if run.solution is None:
            continue
        places = run.solution.assignments["pod", "controllable__node"]
        rows = bench.database.execute("SELECT name, priority FROM pod")
        lost = [priority for name, priority in rows if places[name,] is None]
        waiting.append(lost.count(3))
        middle.append(lost.count(2))
        low.append(lost.count(1))
    figures: dict[str, Any] = {
        "runs": len(runs),
        "solved": len(waiting),
        "highest_left_out": max(waiting, default=None),
        "middle_displaced": max(middle, default=None),
        "lowest_displaced": max(low, default=None),
        "proven": sum(run.proven for run in runs),
        **_times(runs),
    }
    return Result(
        figures,
        [
            ("highest priority left out", str(figures["highest_left_out"]), "0"),
            ("middle priority displaced", str(figures["middle_displaced"]), "-"),
            ("lowest priority displaced (60 is the least)", str(figures["lowest_displaced"]), "-"),
            *_time_rows(runs, "50 s (Kubernetes 100 s)"),
        ],
        _OSDI,
        ok=len(waiting) == len(runs),
    )


def _tier_proven(run: Solve, tier: int) -> bool:
    return run.solution is not None and all(o.proven for o in run.solution.objectives if o.tier == tier)


def _times(runs: Sequence[Solve]) -> dict[str, float]:
    return {
        "seconds": round(statistics.median(run.seconds for run in runs), 3),
        "seconds_worst": round(max(run.seconds for run in runs), 3),
        "cpu_seconds": round(statistics.median(run.cpu_seconds for run in runs), 3),
    }


def _time_rows(runs: Sequence[Solve], published: str) -> list[tuple[str, str, str]]:
    times = _times(runs)
    return [
        ("runs whose answer is proven best", f"{sum(run.proven for run in runs)} of {len(runs)}", "-"),
        ("median s a run", f"{times['seconds']:.2f} (cpu {times['cpu_seconds']:.2f})", published),
        ("worst s", f"{times['seconds_worst']:.2f}", "-"),
    ]
