"""HotOS 2019: 400 pods on 50 empty nodes, so that the fullest node is as empty as can be.

The objective is the highest cpu plus the highest memory of any node; selectors and anti-affinity are hard.  What is
timed is the solve by the engines alone, from arrays to a choice with its bound.  The same pods go through the pack
``kubernetes`` too, from SQL to the oracle's check, with that pack's objectives.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import numpy as np

from bench.policies import workloads
from bench.policies.amounts import Amounts
from bench.policies.packs import PackBench
from bench.result import Result
from mgmt.optimization.assignment import NONE, Assignment, Indices, Limit, Load, LoadCost, Tier
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines import solve
from mgmt.optimization.load_functions import LoadNumber


def assignment_of(tables: workloads.Tables) -> Assignment:
    """``workloads.many_pods`` as an assignment: pods choose nodes."""
    pods, nodes = tables["pod"], tables["node"]
    apps = [str(row["name"]) for row in tables["template"]]
    number = {app: index for index, app in enumerate(apps)}
    app = np.array([number[str(pod["template"])] for pod in pods], np.int32)
    zone = [str(row["value"]) for row in tables["node_label"]]
    allowed = np.ones((len(apps), len(nodes)), np.bool_)
    for selector in tables["node_selector"]:
        allowed[number[str(selector["template"])]] = [one == selector["value"] for one in zone]
    apart = [number[str(affinity["template"])] for affinity in tables["affinity"]]
    group_of_app = np.full(len(apps), NONE, np.int32)
    group_of_app[apart] = np.arange(len(apart))
    loads = {
        name: _load(nodes, np.array([pod[name] for pod in pods], np.int64)) for name in ("cpu", "memory")
    }
    together = _load(nodes, np.ones(len(pods), np.int64), group_of_app[app], max(1, len(apart)))
    capacity = {name: np.array([[node[name] for node in nodes]], np.int64) for name in loads}
    none = np.zeros((1, 1), np.int64)
    return Assignment(
        len(nodes),
        app,
        allowed,
        np.ones(len(pods), np.bool_),
        np.full(len(pods), NONE, np.int32),
        (
            *(Limit(name, loads[name], none, capacity[name]) for name in loads),
            Limit("apart", together, none, none + 1),
        ),
        (
            Tier(
                1,
                tuple(
                    LoadCost(f"highest {name}", 1, (load,), LoadNumber(0), peak=True)
                    for name, load in loads.items()
                ),
            ),
        ),
    )


def _load(nodes: Sequence[object], weight: np.ndarray, group: Indices | None = None, groups: int = 1) -> Load:
    everyone = np.zeros(len(weight), np.int32)
    node = np.arange(len(nodes), dtype=np.int32)
    return Load(everyone if group is None else group, groups, node, len(nodes), weight)


def many_pods(seeds: Sequence[int], budget: float, amounts: Amounts = Amounts.UNITS) -> Result:
    """One solve for each seed."""
    gaps, seconds, cpu_seconds, proven = [], [], [], 0
    bench, through_pack = PackBench("kubernetes"), []
    for seed in seeds:
        through_pack.append(bench.solve(workloads.many_pods(seed, amounts=amounts), budget, seed))
        assignment = assignment_of(workloads.many_pods(seed, amounts=amounts))
        wall, cpu = time.perf_counter(), time.process_time()
        placement = solve(assignment, deadline=Deadline.after(budget), seed=seed)
        seconds.append(time.perf_counter() - wall)
        cpu_seconds.append(time.process_time() - cpu)
        assert placement.choice is not None
        assert not list(assignment.broken(placement.choice))
        gaps.append((placement.worth[0] - placement.bounds[0]) / placement.worth[0])
        proven += placement.proven
    figures = {
        "status": "optimal" if proven == len(gaps) else "feasible",
        "gap": round(max(gaps), 5),
        "seconds": round(statistics.median(seconds), 3),
        "cpu_seconds": round(statistics.median(cpu_seconds), 3),
        "gap_median": round(statistics.median(gaps), 5),
        "runs": len(gaps),
        "proven": proven,
        "pack_proven": sum(run.proven for run in through_pack),
        "pack_seconds": round(statistics.median(run.seconds for run in through_pack), 3),
    }
    return Result(
        figures,
        (
            ("proven optimal", f"{proven} of {len(gaps)}", "1 of 1"),
            ("gap, worst", f"{max(gaps):.2%}", "0"),
            ("wall seconds", f"{statistics.median(seconds):.2f}", "35 (near-optimal: 15)"),
            ("cpu seconds", f"{statistics.median(cpu_seconds):.2f}", ""),
            ("the pack kubernetes: proven", f"{figures['pack_proven']} of {len(gaps)}", ""),
            ("the pack kubernetes: wall seconds", f"{figures['pack_seconds']:.2f}", ""),
        ),
        "Weave, HotOS 2019; the Kubernetes scheduler took 80 s there",
        remarks=(
            "The gap is proven: no placement is better than the bound.  The pack has objectives of its own: all pods"
            " placed, then on nodes of which little is requested.",
        ),
    )
