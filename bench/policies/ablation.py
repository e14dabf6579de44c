"""What each engine and heuristic earns: the benches' own assignments, solved anew with one of them left out.

A case is compiled and solved once through SQL, and what reaches the engines is kept.  Then it is solved again without
each part that the first solve asked, everything else the same.  What gets worse, in cost, in bound or in CPU seconds,
is what the part is for; a part that nothing is worse without has no case here.  Each case has a process of its own.
"""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

import numpy as np

from bench.policies import workloads
from bench.policies.experts.comparison import PROBLEMS
from bench.policies.many_pods import assignment_of
from bench.policies.packs import PackBench
from bench.policies.phrasings.case import Size, state_of
from bench.policies.phrasings.families import FAMILIES
from bench.policies.placement import EVENTS, Cluster
from bench.result import Result, Table
from mgmt.compiler.model import Model
from mgmt.errors import PolicyError
from mgmt.optimization.assignment import Pairs, Placement
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines import UnsuitableError, independent_parts, solve
from mgmt.optimization.engines.flow import NotAFlowError
from mgmt.optimization.engines.model.cells import all_candidates
from mgmt.optimization.engines.presolve.candidates import Candidates
from mgmt.optimization.engines.selection import flags
from mgmt.optimization.engines.selection.selected_placement import SelectedPlacement, solve_selection
from mgmt.state.database import Database

_ENGINES: Final = "mgmt.optimization.engines"
_NOTHING: Final = np.zeros(0, np.int32)
_LOWEST: Final = -(2**62)


def _gives(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _raises(error: Exception) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise error

    return refuse


def _same(first: Any, *_: Any, **__: Any) -> Any:
    return first


PARTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "flow": {"flow.solve": _raises(NotAFlowError("left out"))},
    "flow.arc_pricing": {"flow.arc_pricing._ROUNDS": 0},
    "flow.light_costs": {"flow.network.LIGHT": 2**62},
    "flow.components": {"flow.network.components_of": lambda tails, heads, nodes: np.zeros(nodes, np.int64)},
    "flow.discounts": {
        "flow.row_costs._plain": lambda prices, *_: (
            np.zeros(len(prices), np.bool_),
            np.zeros(len(prices), np.int64),
            np.zeros(len(prices), np.int64),
        )
    },
    "leading_tiers": {"engine_choice.solve_leading_tiers": _gives(None)},
    "with_limits": {"presolve.normal_form.with_limits": _same},
    "one load each": {
        "presolve.normal_form.with_one_load_each": _same,
        "selection.joint_assignment.with_one_load_each": _same,
    },
    "candidates": {
        "engine_choice.candidates_of": lambda classes, *_: Candidates(*all_candidates(classes), "all"),
    },
    "restriction": {"engine_choice._NARROW": 0.0},
    "without_cells": {"engine_choice._MOST_WRITTEN": 2**62},
    "greedy": {"engine_choice.greedy": _gives(None)},
    "first_fit": {"engine_choice.first_fit": _gives(())},
    "ejection": {"engine_choice.ejections": _gives(())},
    "exchanges": {"engine_choice.exchanged": _gives(())},
    "repaired": {"engine_choice.repaired": _gives(None)},
    "closed-form bounds": {
        "engine_choice.bounds_of": lambda cells, *_: [None] * len(cells.classes.assignment.tiers)
    },
    "bin_packing": {"lower_bounds.closed_form.opening_bound": _gives(_LOWEST)},
    "bounds._by_steps": {"lower_bounds.closed_form._by_steps": _gives(_LOWEST)},
    "bounds._alone": {"lower_bounds.closed_form._alone": lambda cells, *_: np.zeros(len(cells), np.int64)},
    "bounds._captive": {"lower_bounds.closed_form._captive": _gives([])},
    "bounds.wide": {"engine_choice.wide_bound": _gives(None)},
    "relaxation": {"engine_choice._Search.relax": _gives(True)},
    "rounding": {"engine_choice.rounded": _gives(None)},
    "narrow": {"engine_choice._Search.narrow": _gives(None)},
    "CP-SAT on all cells": {"engine_choice._MOST_FOR_CP_SAT": 0},
    "neighbourhoods": {"engine_choice.nearby": _gives(())},
    "neighbouring_moves": {
        "selection.selected_placement.neighbouring_moves": _gives(Pairs(_NOTHING, _NOTHING))
    },
    "given_places": {"selection.selected_placement._Search._among_placed": _gives(None)},
    "among_optima": {"selection.selected_placement._Search._among_optima": _gives(None)},
    "joint": {"selection.selected_placement._Search._jointly": _gives(None)},
    "highs": {"selection.joint_assignment.highs.solve": _raises(UnsuitableError("left out"))},
}
"""What is left out, and what stands in its place; names are below ``mgmt.optimization.engines``."""


@contextmanager
def _patched(replacements: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replacements]
    for owner, name, value in replacements:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def named(name: str) -> tuple[Any, str]:
    """The module or class that a dotted name is an attribute of."""
    *path, attribute = name.split(".")
    owner: Any = importlib.import_module(_ENGINES)
    for step in path:
        if not hasattr(owner, step):
            importlib.import_module(f"{owner.__name__}.{step}")
        owner = getattr(owner, step)
    return owner, attribute


@contextmanager
def _counted(calls: dict[str, int]) -> Iterator[None]:
    """Count the calls of what the parts replace."""

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any, **named: Any) -> Any:
            calls[name] += 1
            return function(*arguments, **named)

        return count

    names = {name for part in PARTS.values() for name in part}
    functions = {name: getattr(*named(name)) for name in names}
    with _patched([(*named(name), counting(name, one)) for name, one in functions.items() if callable(one)]):
        yield


# ---- cases ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Call:
    """What an engine was asked."""

    function: Callable[..., Placement | SelectedPlacement | None]
    assignments: tuple[Any, ...]
    named: Mapping[str, Any]

    def again(self, seconds: float) -> dict[str, Any]:
        named = {**self.named, "deadline": Deadline.after(seconds)}
        began = time.process_time()
        try:
            found = self.function(*self.assignments, **named)
        except PolicyError as error:
            answer: dict[str, Any] = {"cost": None, "bound": None, "status": type(error).__name__}
        except UnsuitableError as error:
            answer = {"cost": None, "bound": None, "status": f"unsuitable: {error}"}
        else:
            parts = [found.places, found.selection] if isinstance(found, SelectedPlacement) else [found]
            answer = {
                "cost": [one for part in parts if part for one in part.worth],
                "bound": [one for part in parts if part for one in part.bounds],
                "status": "; ".join(part.engine for part in parts if part),
            }
        return answer | {"cpu": time.process_time() - began}


def _phrasing(name: str, size: Size) -> Callable[[], tuple[Any, Any]]:
    def build() -> tuple[Any, Any]:
        family = next(family for family in FAMILIES if family.name == name)
        spelling = next(iter(family.listed or family.spellings))
        database, _, others = state_of(family, size)
        return database, Model.build(database, [*others, ("case.sql", family.policies(spelling))])

    return build


def _expert(number: int) -> Callable[[], tuple[Any, Any]]:
    def build() -> tuple[Any, Any]:
        problem = PROBLEMS[number]
        database = Database()
        database.load_schema(problem.schema)
        database.replace_rows(problem.instance(Random(f"{problem.name} 0"), 1.0).tables)
        return database, Model.build(database, problem.policies)

    return build


def _pack(name: str, tables: Callable[[], workloads.Tables]) -> Callable[[], tuple[Any, Any]]:
    def build() -> tuple[Any, Any]:
        bench = PackBench(name)
        empty: workloads.Tables = {table.name: [] for table in bench.database.schema.tables}
        bench.database.replace_rows({**empty, **tables()})
        return bench.database, bench.model

    return build


def _cluster(size: tuple[int, int, int], event: str, unequal: bool) -> Callable[[], tuple[Any, Any]]:
    def build() -> tuple[Any, Any]:
        cluster = Cluster(*size, unequal_racks=unequal)
        cluster.settle(120)
        cluster.happen(event)
        return cluster.database, cluster.model

    return build


def _many_pods(seed: int) -> Any:
    return assignment_of(workloads.many_pods(seed))


def cases() -> dict[str, Callable[[], Any]]:
    """All of them by name: each builds a database and its model."""
    found: dict[str, Callable[[], Any]] = {}
    for event in EVENTS:
        for name, size in {"small": (100, 12, 4), "": (1000, 100, 5), "large": (10_000, 1000, 20)}.items():
            for racks in ("equal", "unequal") if name != "large" else ("equal",):
                found[f"placement {name} {event}, {racks} racks"] = _cluster(size, event, racks == "unequal")
    for seed in range(3):
        found[f"vm-balance {seed}"] = _pack("vm_balance", partial(workloads.virtual_machines, seed))
        found[f"pods-400 {seed}"] = partial(_many_pods, seed)
        found[f"apps {seed}"] = _pack("kubernetes", partial(workloads.apps, seed))
        found[f"preemption {seed}"] = _pack("kubernetes", partial(workloads.preemption, seed))
    found["pods-400 pack"] = _pack("kubernetes", partial(workloads.many_pods, 0))
    for nodes in (1000, 10_000):
        found[f"policy-scale {nodes}"] = _pack(
            "kubernetes", partial(workloads.node_scaling, nodes, 50, 50, 0)
        )
    usual = Size(500, 50, 1000, 100)
    found |= {f"phrasings {family.name}": _phrasing(family.name, usual) for family in FAMILIES}
    large = Size(2000, 200, 10_000, 1000)
    found["phrasings pack_level_bytes, large"] = _phrasing("pack_level_bytes", large)
    found |= {f"experts {problem.name}": _expert(number) for number, problem in enumerate(PROBLEMS)}
    return found


def _recorded(built: Any, seconds: float) -> list[_Call]:
    """What the engines are asked in one solve."""
    if not isinstance(built, tuple):
        return [_Call(solve, (built,), {"seed": 0})]
    calls: list[_Call] = []

    def recording(function: Callable[..., Any], number: int) -> Callable[..., Any]:
        def record(*arguments: Any, **named: Any) -> Any:
            calls.append(_Call(function, arguments[:number], named))
            return function(*arguments, **named)

        return record

    kept = (
        (independent_parts, "solve", recording(solve, 1)),
        (flags, "solve_selection", recording(solve_selection, 2)),
    )
    with _patched(kept), suppress(PolicyError):
        built[1].solve(seconds)
    return calls


def _case(name: str, seconds: float, only: Sequence[str]) -> dict[str, Any]:
    """The answers with everything, and without each part that was asked."""
    calls = _recorded(cases()[name](), seconds)
    asked: dict[str, int] = defaultdict(int)
    with _counted(asked):
        whole = [call.again(seconds) for call in calls]
    whole = [_faster(call.again(seconds), first) for call, first in zip(calls, whole, strict=True)]
    without = {}
    for part, replacements in PARTS.items():
        if only and part not in only:
            continue
        reached = any(asked[one] or not callable(getattr(*named(one))) for one in replacements)
        if reached and calls:
            with _patched([(*named(one), value) for one, value in replacements.items()]):
                without[part] = [call.again(seconds) for call in calls]
    return {"whole": whole, "without": without}


def _faster(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return min(one, other, key=lambda answer: float(answer["cpu"]))


# ---- what is made of it -----------------------------------------------------------------------------------


def worse(whole: Sequence[dict[str, Any]], without: Sequence[dict[str, Any]]) -> str:
    """In words, what got worse; empty if nothing did."""
    told = []
    for before, after in zip(whole, without, strict=True):
        for what, sign in (("cost", 1), ("bound", -1)):
            if after[what] is None or before[what] is None:
                if before[what] != after[what]:
                    told.append(f"{what} {before[what]} for {after[what]}")
                break
            pairs = zip(before[what], after[what], strict=False)
            differ = next(((a, b) for a, b in pairs if a != b), None)
            if differ is not None and sign * (differ[1] - differ[0]) > 0:
                told.append(f"{what} {differ[0]} to {differ[1]}")
        if after["cpu"] > 1.25 * before["cpu"] + 0.02:
            told.append(f"{before['cpu']:.2f} to {after['cpu']:.2f} s")
    return ", ".join(told)


def ablation(
    wanted: Sequence[str], only: Sequence[str], budget: float, progress: Callable[[str], None]
) -> Result:
    """All cases whose names begin with one of ``wanted`` (or all), without each of the parts ``only`` (or all)."""
    found: dict[str, Any] = {}
    for name in cases():
        if not wanted or any(name.startswith(start) for start in wanted):
            arguments = [name, str(budget), json.dumps(list(only))]
            done = subprocess.run(
                [sys.executable, "-m", "bench.policies.ablation", *arguments],
                capture_output=True,
                text=True,
                check=False,
            )
            progress(name if done.returncode == 0 else f"{name}: {done.stderr.strip().splitlines()[-1:]}")
            if done.returncode == 0:
                found[name] = json.loads(done.stdout.splitlines()[-1])
    needed: dict[str, dict[str, str]] = {part: {} for part in PARTS if not only or part in only}
    for name, case in found.items():
        for part, answers in case["without"].items():
            told = worse(case["whole"], answers)
            if told:
                needed[part][name] = told
    rows = [
        (part, str(sum(part in case["without"] for case in found.values())), name, told)
        for part, by_case in needed.items()
        for name, told in (by_case or {"-": "nothing"}).items()
    ]
    return Result(
        {"cases": found, "needed": needed},
        [("parts with a case", f"{sum(map(bool, needed.values()))} of {len(needed)}", "all")],
        "an engine that no case needs goes",
        others=[Table(("without", "asked in", "case", "gets worse"), rows)],
    )


if __name__ == "__main__":
    signal.alarm(1800)
    print(json.dumps(_case(sys.argv[1], float(sys.argv[2]), json.loads(sys.argv[3]))))
