"""One case in a process of its own.

``python -m bench.policies.phrasings.case FAMILY SPELLING ...`` prints a JSON document.

A small case of the same spelling goes first, so that no module is loaded while the clock runs.  A process that does not
end by itself is ended by its own alarm: a solve that does not keep its budget is a finding, not a hang.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import resource
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from bench.policies.amounts import Amounts
from bench.policies.phrasings.answers import check
from bench.policies.phrasings.families import FAMILIES
from bench.policies.phrasings.family import Family
from bench.policies.phrasings.state import Tables, datastore_database, pods_database
from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError, PolicyError, SolveTimeout
from mgmt.language.policy_packs import Policy
from mgmt.solution import Solution
from mgmt.state.database import Database


@dataclass(frozen=True, slots=True)
class Size:
    """How large the case is: pods on nodes, or segments of three copies on hosts."""

    nodes: int
    pods: int
    segments: int
    hosts: int
    seed: int = 0
    amounts: Amounts = Amounts.UNITS
    """How large requests and capacities are."""


SMALL = Size(nodes=20, pods=5, segments=6, hosts=12)


def state_of(family: Family, size: Size) -> tuple[Database, Tables, tuple[Policy, ...]]:
    """The state, its rows for the check, and the policies that stand beside the family's."""
    if family.state == "pods":
        database, tables = pods_database(size.nodes, size.pods, size.seed, Amounts(size.amounts))
        return database, tables, ()
    database, tables, pack = datastore_database(size.segments, size.hosts, size.seed)
    return database, tables, (pack,)


def run_case(family: Family, spelling: str, size: Size, budget: float) -> dict[str, Any]:
    """Compile and solve once; what went wrong is a status."""
    database, tables, others = state_of(family, size)
    resting = _peak()
    wall, cpu = time.perf_counter(), time.process_time()
    built, solution = cpu, None
    outcome: dict[str, Any]
    try:
        model = Model.build(database, [*others, ("case.sql", family.policies(spelling))])
        built = time.process_time()
        solution = model.solve(budget)
    except SolveTimeout as error:
        outcome = {"status": "timeout", "error": _line(error)}
    except InfeasibleError as error:
        outcome = {"status": "infeasible", "error": _line(error)}
    except (PolicyError, MemoryError, RecursionError) as error:
        outcome = {"status": "refused", "error": f"{type(error).__name__}: {_line(error)}"}
    except Exception as error:  # a defect of one case must not end the others
        outcome = {"status": "failed", "error": f"{type(error).__name__}: {_line(error)}"}
    else:
        outcome = _outcome(solution)
    outcome |= {
        "seconds": round(time.perf_counter() - wall, 3),
        "compile_cpu_seconds": round(built - cpu, 3),
        "solve_cpu_seconds": round(time.process_time() - built, 3),
        "resting_mb": resting,
        "peak_mb": _peak(),
    }
    return outcome | (_checked(family, tables, solution) if solution else {})


def _outcome(solution: Solution) -> dict[str, Any]:
    return {
        "status": str(solution.status),
        "gap": solution.gap,
        "objectives": [
            {"name": o.name, "tier": o.tier, "value": o.after, "bound": o.bound, "proven": o.proven}
            for o in solution.objectives
        ],
        "variables": solution.statistics.get("variables"),
        "engine": _line(solution.statistics.get("backend", "")),
        "stages": {
            stage: round(float(solution.statistics[f"{stage}_seconds"]), 3)
            for stage in ("encode", "solve", "verify")
        },
    }


def _checked(family: Family, tables: Tables, solution: Solution) -> dict[str, Any]:
    place = ("pod", "variable__node") if family.state == "pods" else ("replica", "controllable__host")
    answer = check(family, tables, solution.assignments[place])
    return {key: value for key, value in asdict(answer).items() if value is not None}


def _line(error: object) -> str:
    return " ".join(str(error).split())[:300]


def _peak() -> int:
    """Megabytes that the process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _profiled(family: Family, spelling: str, size: Size, budget: float) -> dict[str, Any]:
    """The same under a profiler: the functions that took the most time themselves, and of ours with all they call."""
    profile = cProfile.Profile()
    found = profile.runcall(run_case, family, spelling, size, budget)
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]

    def named(function: tuple[str, int, str]) -> str:
        file, line, name = function
        return f"{'/'.join(file.split('/')[-2:])}:{line} {name}" if file != "~" else name

    def most(column: int, ours: bool) -> list[str]:
        rows = [(row[column], key) for key, row in stats.items() if not ours or "/mgmt/" in key[0]]
        return [f"{seconds:.2f} s {named(key)}" for seconds, key in sorted(rows, reverse=True)[:14]]

    return found | {"own_time": most(2, False), "with_callees": most(3, True)}


def main(arguments: list[str]) -> None:
    family_name, spelling, sizes, budget, limit, profile = arguments
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(limit))
    resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
    family = next(family for family in FAMILIES if family.name == family_name)
    with suppress(Exception):
        run_case(family, spelling, SMALL, 1.0)
    run = _profiled if profile == "profile" else run_case
    print(json.dumps(run(family, spelling, Size(**json.loads(sizes)), float(budget))))


if __name__ == "__main__":
    main(sys.argv[1:])
