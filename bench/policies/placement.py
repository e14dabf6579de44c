"""The datastore pack at size: a host or a rack is lost, or hosts join, and copies and primaries are placed again.

Each run is a whole solve through SQL: snapshot, columns, flows, and the oracle's check of the answer.  Building the
model and the first placement are not counted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from bench.result import Result
from mgmt.compiler.model import Model
from mgmt.language.policy_packs import load_pack
from mgmt.solution import Solution, SolveStatus
from mgmt.state.database import Database

COPIES: Final = 3
JOINING: Final = 10
EVENTS: Final = ("host-loss", "rack-loss", "add-hosts")

# Of the prototype on this design: CPU seconds of the flow alone, and moves, at these sizes.
_PROTOTYPE: Mapping[tuple[int, int, int, str], tuple[int, float]] = {
    (1000, 100, 5, "host-loss"): (30, 0.010),
    (1000, 100, 5, "rack-loss"): (600, 0.011),
    (1000, 100, 5, "add-hosts"): (270, 0.015),
    (10_000, 1000, 20, "host-loss"): (30, 0.17),
    (10_000, 1000, 20, "rack-loss"): (1500, 0.18),
    (10_000, 1000, 20, "add-hosts"): (290, 0.25),
}


class Cluster:
    """A settled cluster in a state database, with the model that settled it."""

    def __init__(self, segments: int, hosts: int, racks: int, *, unequal_racks: bool = False) -> None:
        pack = load_pack("datastore")
        self.database = Database()
        self.database.load_schema(pack.schema)
        rack_of = _racks(hosts, racks, unequal_racks)
        self._racks = racks
        self._insert_hosts([(f"h{n:05}", f"r{rack_of[n]:03}") for n in range(hosts)])
        keys = [f"s{n:06}" for n in range(segments)]
        self.database.insert(
            "segment", [{"key": key, "bytes": 10**9, "replication_factor": COPIES} for key in keys]
        )
        self.database.insert(
            "replica",
            [
                {"segment": key, "slot": slot, "host": None, "is_primary": False}
                for key in keys
                for slot in range(COPIES)
            ],
        )
        self.model = Model.build(self.database, pack)

    def settle(self, budget: float) -> None:
        """Place everything, and let it be so."""
        self.database.apply(self.model.solve(budget))

    def happen(self, event: str) -> int:
        """Let it happen; returns how many copies have lost their host."""
        if event == "add-hosts":
            self._insert_hosts([(f"new{n}", f"r{n % self._racks:03}") for n in range(JOINING)])
            return 0
        lost = "name = (SELECT min(name) FROM host)" if event == "host-loss" else "rack = 'r001'"
        self.database.execute(f"UPDATE host SET alive = FALSE WHERE {lost}")
        rows = self.database.execute(
            "SELECT count(*) FROM replica JOIN host ON replica.host = host.name WHERE NOT host.alive"
        )
        return int(str(rows[0][0]))

    def _insert_hosts(self, hosts: list[tuple[str, str]]) -> None:
        flags = dict.fromkeys(("drained", "layout_server", "sequencer"), False)
        self.database.insert(
            "host",
            [
                {"name": name, "rack": rack, "zone": "z", "capacity_bytes": 10**15, "alive": True, **flags}
                for name, rack in hosts
            ],
        )


def _racks(hosts: int, racks: int, unequal: bool) -> list[int]:
    """The rack of each host; unequal: the largest has three times the hosts of the smallest."""
    if not unequal:
        return [number % racks for number in range(hosts)]
    share = np.cumsum(np.linspace(3, 1, racks))
    found: list[int] = np.searchsorted(share / share[-1], (np.arange(hosts) + 0.5) / hosts).tolist()
    return found


def placement(
    segments: int, hosts: int, racks: int, event: str, *, unequal_racks: bool, runs: int, budget: float
) -> Result:
    """Solve after an event, several times over the same state."""
    cluster = Cluster(segments, hosts, racks, unequal_racks=unequal_racks)
    cluster.settle(60 + budget)
    lost = cluster.happen(event)
    walls, cpus = [], []
    for number in range(runs):
        wall, cpu = time.perf_counter(), time.process_time()
        solution = cluster.model.solve(budget, seed=number)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    figures = _figures(solution, lost)
    figures |= {"seconds": statistics.median(walls), "cpu_seconds": statistics.median(cpus)}
    return _result(figures, (segments, hosts, racks, event), unequal_racks, solution)


def _figures(solution: Solution, lost: int) -> dict[str, Any]:
    objectives = {objective.name: objective for objective in solution.objectives}
    moves = objectives["fewest_moves"]
    copies = ("balance_replicas", "fewest_moves", "even_replicas")
    return {
        "status": str(solution.status),
        "gap": solution.gap,
        "moves": moves.after,
        "lower_bound": lost if moves.bound is None else moves.bound,
        "lost_copies": lost,
        "copies_proven": all(objectives[name].proven for name in copies),
        "primary_changes": objectives["fewest_primary_changes"].after,
        "new_primaries_on_new_copies": objectives["primaries_on_existing_copies"].after,
        "objectives": {
            name: {"value": objective.after, "proven": objective.proven}
            for name, objective in objectives.items()
        },
        "encode_seconds": solution.statistics["encode_seconds"],
        "solve_seconds": solution.statistics["solve_seconds"],
        "verify_seconds": solution.statistics["verify_seconds"],
    }


def _result(
    figures: dict[str, Any], size: tuple[int, int, int, str], unequal: bool, solution: Solution
) -> Result:
    moves, cpu = _PROTOTYPE.get(size, (None, None)) if not unequal else (None, None)
    rows = [
        ("status", figures["status"], "-"),
        ("copies proven", "yes" if figures["copies_proven"] else "no", "-"),
        ("moves", str(figures["moves"]), "-" if moves is None else str(moves)),
        ("lower bound", str(figures["lower_bound"]), "-"),
        ("primary changes", str(figures["primary_changes"]), "-"),
        ("seconds, end to end", f"{figures['seconds']:.2f}", "-"),
        ("CPU seconds, end to end", f"{figures['cpu_seconds']:.2f}", "-"),
        ("of which the search", f"{figures['solve_seconds']:.2f}", "-" if cpu is None else f"{cpu} (CPU)"),
    ]
    return Result(
        figures,
        rows,
        "a prototype of the two flows on bare arrays, no SQL; CP-SAT on booleans found nothing within 12 CPU s",
        ok=solution.status is not SolveStatus.FEASIBLE or bool(figures["copies_proven"]),
        remarks=("lower bound: of the moves, proven by the solve; copies: balance, moves, evenness",),
    )
