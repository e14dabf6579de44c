"""How time and memory grow with the cells of a case, a cell being a row beside a value: no worse than linear is asked.

A ladder of sizes takes one of the two up and leaves the other; on each rung a case runs once, in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Final

from bench.policies.phrasings.case import Size
from bench.policies.phrasings.family import Family
from bench.policies.phrasings.report import SOLVED, chosen, run_apart
from bench.result import Result, Table

_LEAST_SECONDS: Final = 0.05
_LEAST_MB: Final = 10
"""Less than these is what any case takes, whatever its size."""
_USED_UP: Final = 0.9
"""A solve that takes this share of its budget is timed by that, not by its size."""
LISTED: Final = ("listed",)


@dataclass(frozen=True, slots=True)
class Ladder:
    """Sizes in ascending order, which differ in one thing."""

    name: str
    sizes: tuple[Size, ...]


def _pods(nodes: int, pods: int) -> Size:
    return Size(nodes, pods, segments=6, hosts=12)


def _pack(segments: int, hosts: int) -> Size:
    return Size(nodes=20, pods=5, segments=segments, hosts=hosts)


LADDERS: Final = {
    "pods": (
        Ladder("nodes", tuple(_pods(nodes, 50) for nodes in (500, 1000, 2000, 5000, 10_000))),
        Ladder("rows", tuple(_pods(500, pods) for pods in (50, 100, 200, 500, 1000))),
    ),
    "datastore": (
        Ladder("hosts", tuple(_pack(1000, hosts) for hosts in (100, 300, 1000))),
        Ladder("segments", tuple(_pack(segments, 100) for segments in (1000, 3000, 10_000))),
    ),
}


def cells(family: Family, size: Size) -> int:
    """Rows times values."""
    return size.nodes * size.pods if family.state == "pods" else 3 * size.segments * size.hosts


def growth(
    budget: float,
    only: Sequence[str] = LISTED,
    *,
    progress: Callable[[dict[str, Any]], None] = lambda rung: None,
    ladders: Mapping[str, tuple[Ladder, ...]] = LADDERS,
) -> Result:
    """Take the cases up their ladders."""
    rungs = []
    for family, spelling in chosen(only):
        for ladder in ladders[family.state]:
            for size in ladder.sizes:
                found = run_apart(family, spelling, size, budget, profile=False)
                rung = {
                    "case": f"{family.name}/{spelling}",
                    "ladder": ladder.name,
                    "size": asdict(size),
                    "cells": cells(family, size),
                    **found,
                }
                progress(rung)
                rungs.append(rung)
    grows = list(grown(rungs, budget))
    steep = [f"{one['case']} by {one['ladder']}" for one in grows if one["linear"] is False]
    unanswered = [f"{rung['case']} at {rung['cells']}" for rung in rungs if rung["status"] not in SOLVED]
    return Result(
        {"budget": budget, "rungs": rungs, "growth": grows},
        (
            ("cases and ladders", str(len(grows)), "-"),
            ("grow faster than cells", ", ".join(steep) or "none", "-"),
            ("have no answer", ", ".join(unanswered) or "none", "-"),
        ),
        "-",
        others=(
            Table(
                ("case", "by", "cells", "encode s", "solve CPU s", "MB more", "status", "gap"),
                [_row(rung) for rung in rungs],
            ),
            Table(
                ("case", "by", "cells", "time", "memory", "linear"),
                [
                    (
                        one["case"],
                        one["ladder"],
                        f"x {one['cells']:.0f}",
                        "budget" if one["time"] is None else f"x {one['time']:.1f}",
                        f"x {one['memory']:.1f}",
                        "yes" if one["linear"] else "NO",
                    )
                    for one in grows
                ],
            ),
        ),
        ok=bool(rungs) and not steep and not unanswered,
        remarks=(
            "x: largest beside smallest; what is under "
            f"{_LEAST_SECONDS} s and {_LEAST_MB} MB counts as that much; budget: the solve goes on until it ends",
        ),
    )


def grown(rungs: Sequence[dict[str, Any]], budget: float) -> Iterator[dict[str, Any]]:
    """Of each case and ladder by how much cells, time and memory grow from the smallest rung to the largest."""
    for (case, ladder), steps in groupby(rungs, key=lambda rung: (rung["case"], rung["ladder"])):
        solved = [rung for rung in steps if rung["status"] in SOLVED]
        if len(solved) < 2:
            continue
        first, last = solved[0], solved[-1]
        ratio = last["cells"] / first["cells"]
        held = any(rung["seconds"] >= _USED_UP * budget for rung in (first, last))
        time = None if held else _seconds(last) / _seconds(first)
        memory = _megabytes(last) / _megabytes(first)
        yield {
            "case": case,
            "ladder": ladder,
            "cells": ratio,
            "time": time,
            "memory": memory,
            "linear": (time or 0) <= ratio and memory <= ratio,
        }


def _seconds(rung: dict[str, Any]) -> float:
    return max(_LEAST_SECONDS, float(rung["solve_cpu_seconds"]))


def _megabytes(rung: dict[str, Any]) -> int:
    return int(max(_LEAST_MB, rung["peak_mb"] - rung["resting_mb"]))


def _row(rung: dict[str, Any]) -> tuple[str, ...]:
    solved = rung["status"] in SOLVED
    return (
        rung["case"],
        rung["ladder"],
        f"{rung['cells']:,}",
        f"{rung['stages']['encode']:.2f}" if solved else "-",
        f"{rung['solve_cpu_seconds']:.2f}" if solved else "-",
        str(rung["peak_mb"] - rung["resting_mb"]) if solved else "-",
        rung["status"],
        f"{rung['gap']:.1%}" if solved else "-",
    )
