"""All cases, one after the other, beside what is asked of them and what DCM published."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from bench.policies.phrasings.case import Size
from bench.policies.phrasings.families import FAMILIES
from bench.policies.phrasings.family import Family
from bench.result import Result, Table

SOLVED: Final = ("optimal", "unchanged", "feasible")
PROVEN: Final = ("optimal", "unchanged")
_PATIENCE: Final = 30
"""Seconds for a case beside three times its budget, the small case before it included."""
_SOURCE = "DCM, OSDI 2020, on the authors' machine"


def chosen(only: Sequence[str]) -> list[tuple[Family, str]]:
    """The cases that are meant by a family, by ``family/spelling``, or by ``listed``; without any all."""
    return [
        (family, spelling)
        for family in FAMILIES
        for spelling in family.spellings
        if not only
        or {family.name, f"{family.name}/{spelling}"} & set(only)
        or ("listed" in only and spelling in family.listed)
    ]


def phrasings(
    size: Size,
    budget: float,
    only: Sequence[str] = (),
    *,
    profile: bool = False,
    progress: Callable[[dict[str, Any]], None] = lambda case: None,
) -> Result:
    """Solve the cases, each in a process of its own."""
    cases = []
    for family, spelling in chosen(only):
        case: dict[str, Any] = {
            "family": family.name,
            "spelling": spelling,
            "listed": spelling in family.listed,
        }
        case |= run_apart(family, spelling, size, budget, profile)
        case |= _verdict(family, spelling, size, budget, case)
        progress(case)
        cases.append(case)
    families = list(compared(cases))
    figures: dict[str, Any] = {"size": asdict(size), "budget": budget, "cases": cases, "families": families}
    asked = [case for case in cases if case["met"] is not None]
    count = {status: sum(case["status"] == status for case in cases) for status in _statuses(cases)}
    unlike = [row["family"] for row in families if not row["equal"]]
    wrong = [_name(case) for case in cases if case.get("broken")]
    return Result(
        figures,
        (
            ("cases", str(len(cases)), "-"),
            *((status, str(number), "-") for status, number in count.items()),
            ("meet what is asked", f"{sum(case['met'] is True for case in asked)} of {len(asked)}", "-"),
            ("families whose plans are not equal", ", ".join(unlike) or "none", "-"),
            ("plans that break their rule by plain SQL", ", ".join(wrong) or "none", "-"),
        ),
        _SOURCE,
        others=(
            Table(
                (
                    "case",
                    "status",
                    "value",
                    "gap",
                    "solve CPU s",
                    "compile",
                    "MB",
                    "variables",
                    "asked",
                    "met",
                ),
                [_row(case) for case in cases],
            ),
        ),
        ok=bool(cases) and not unlike and not wrong,
        remarks=(
            "asked: CPU seconds of the solve, compiling aside, and the gap; *: asked for in this very spelling",
            *(f"{case['family']}/{case['spelling']}: {case['error']}" for case in cases if "error" in case),
        ),
    )


def run_apart(family: Family, spelling: str, size: Size, budget: float, profile: bool) -> dict[str, Any]:
    """The document of one case; where its process died, what of."""
    arguments = [json.dumps(asdict(size)), str(budget), str(int(3 * budget) + _PATIENCE)]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "bench.policies.phrasings.case",
            family.name,
            spelling,
            *arguments,
            "profile" if profile else "no",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    last = done.stderr.strip().splitlines()[-1:] or [f"ended by signal {-done.returncode}"]
    return {"status": "killed", "error": last[0], "seconds": None, "solve_cpu_seconds": None}


def _verdict(
    family: Family, spelling: str, size: Size, budget: float, case: dict[str, Any]
) -> dict[str, Any]:
    """What is asked of the case at this size, and whether it is met (None where nothing is asked)."""
    asked = family.asked_of.get(spelling, family.asked)
    extent = size.nodes if family.state == "pods" else size.segments
    seconds = asked.seconds(extent) if asked else None
    if asked is None or seconds is None:
        return {"asked_seconds": None, "asked_gap": None, "met": None}
    in_time = case["status"] in SOLVED and case["solve_cpu_seconds"] <= seconds * 1.1
    good = case["status"] in PROVEN or case.get("gap", 1.0) <= asked.gap
    if asked.or_budget:
        in_time = case["status"] in SOLVED
        good = good or (case["seconds"] or 0) >= 0.9 * budget
    good = good and case.get("value", 0) <= case.get("first_fit", case.get("value", 0))
    met = in_time and good and not case["broken"] if case["status"] in SOLVED else False
    return {"asked_seconds": seconds, "asked_gap": asked.gap, "met": met}


def compared(cases: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Of each family, whether the plans are equal: one optimum, nothing better than it, all feasible or none."""
    for family in FAMILIES:
        own = [case for case in cases if case["family"] == family.name]
        if not own:
            continue
        optima = {_optimum(case) for case in own if case["status"] in PROVEN}
        values = [case["value"] for case in own if case.get("value") is not None]
        beaten = bool(values) and bool(optima) and optima != {(min(values),)}
        feasible = {
            case["status"] != "infeasible" for case in own if case["status"] in (*SOLVED, "infeasible")
        }
        yield {
            "family": family.name,
            "rule": family.rule,
            "published": family.published,
            "solved": sum(case["status"] in SOLVED for case in own),
            "spellings": len(own),
            "optima": sorted(optima),
            "equal": len(optima) <= 1 and not beaten and len(feasible) <= 1,
        }


def _optimum(case: dict[str, Any]) -> tuple[int, ...]:
    """The value by plain SQL, else those of objectives alone in their tier: the optimum determines them."""
    if case.get("value") is not None:
        return (case["value"],)
    tiers = Counter(objective["tier"] for objective in case.get("objectives", ()))
    return tuple(o["value"] for o in case.get("objectives", ()) if tiers[o["tier"]] == 1)


def _statuses(cases: Sequence[dict[str, Any]]) -> list[str]:
    return sorted({case["status"] for case in cases})


def _name(case: dict[str, Any]) -> str:
    return f"{case['family']}/{case['spelling']}{'*' if case['listed'] else ''}"


def _row(case: dict[str, Any]) -> tuple[str, ...]:
    def shown(key: str, form: str = "") -> str:
        value = case.get(key)
        return "-" if value is None else format(value, form)

    asked = (
        "-" if case["asked_seconds"] is None else f"{case['asked_seconds']} s, gap {case['asked_gap']:.0%}"
    )
    met = {None: "-", True: "yes", False: "NO"}[case["met"]]
    return (
        _name(case),
        case["status"],
        shown("value"),
        shown("gap", ".1%"),
        shown("solve_cpu_seconds", ".2f"),
        shown("compile_cpu_seconds", ".2f"),
        shown("peak_mb"),
        shown("variables"),
        asked,
        met,
    )
