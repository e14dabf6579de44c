"""Each problem twice in one run: its policies through rota, and the expert's model in CP-SAT.

Both have the same budget of seconds, everything from rows to an answer included, and as many workers.  Both plans go
through the problem's check, and what one side proves must not contradict what the other found.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from random import Random
from typing import Any, Final

from ortools.sat.python import cp_model

from bench.policies.experts import placing, supply, timetables
from bench.policies.experts.problem import BrokenRuleError, Handwritten, Instance, Plan, Problem
from bench.result import Result, Table
from mgmt.compiler.model import Model
from mgmt.errors import PolicyError
from mgmt.optimization.cp_sat_solver import new_solver
from mgmt.solution import ObjectiveValue, Solution
from mgmt.state.database import Database

PROBLEMS: Final = (
    placing.GANGS,
    timetables.EXAMS,
    timetables.ROSTERS,
    timetables.ROOMS,
    supply.BROKERS,
    supply.FLEETS,
    supply.ASSIGNMENT,
    supply.FACILITIES,
    placing.PACKING,
    placing.CHATTY,
    placing.SHARES,
    placing.PREEMPTION,
)
WORKERS: Final = 2
WORSE: Final = 0.01
"""By how much of the expert's objective rota's may be worse."""
WEAKER: Final = 0.05
"""By how much of the expert's bound rota's may be weaker."""
_LEAST_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Answer:
    """One side's: a value and a bound for each tier, None where there is none."""

    status: str
    seconds: float
    values: Sequence[int] | None = None
    bounds: Sequence[int | None] = ()
    engine: str = ""
    encode_seconds: float = 0.0


def experts(chosen: Collection[str], budget: float, seed: int, size: float = 1.0) -> Result:
    """Compare these problems, or all."""
    found, ok = {}, True
    for problem in PROBLEMS:
        if not chosen or problem.name in chosen:
            found[problem.name] = _compare(problem, budget, seed, size)
            ok = ok and not found[problem.name]["contradiction"]
    met = sum(each["objective_ok"] and each["bound_ok"] for each in found.values())
    figures = {
        "budget": budget,
        "workers": WORKERS,
        "seed": seed,
        "size": size,
        "problems": found,
        "met": met,
        "of": len(found),
    }
    remarks = [
        f"{name}: {each['rota']['status']}" for name, each in found.items() if each["rota"]["values"] is None
    ]
    remarks += [f"{name}: {each['contradiction']}" for name, each in found.items() if each["contradiction"]]
    return Result(
        figures,
        [("problems where rota keeps up with the expert", f"{met} of {len(found)}", f"{len(found)}")],
        f"asked of rota: objectives at most {WORSE:.0%} worse than the expert's, bounds at most {WEAKER:.0%} weaker",
        others=[Table(_COLUMNS, [row for name, each in found.items() for row in _rows(name, each)])],
        ok=ok,
        remarks=remarks,
    )


_COLUMNS = ("problem", "by", "objective", "bound", "seconds", "status", "engine", "objective", "bound")


def _rows(name: str, figures: dict[str, Any]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for side in ("rota", "expert"):
        answer = figures[side]
        verdicts = [figures["objective_ok"], figures["bound_ok"]] if side == "rota" else []
        rows.append(
            (
                name if side == "rota" else "",
                side,
                _shown(answer["values"]),
                _shown(answer["bounds"]),
                f"{answer['seconds']:.1f}",
                answer["status"].split(":")[0],
                answer["engine"],
                *("ok" if verdict else "misses" for verdict in verdicts),
            )
        )
    return rows


def _shown(numbers: Sequence[int | None] | None) -> str:
    return ", ".join("-" if number is None else str(number) for number in numbers or ()) or "-"


def _compare(problem: Problem, budget: float, seed: int, size: float) -> dict[str, Any]:
    instance = problem.instance(Random(f"{problem.name} {seed}"), size)
    broken = []
    answers = {}
    for name, (answer, plan) in {
        "rota": _by_rota(problem, instance, budget, seed),
        "expert": _by_expert(instance, budget, seed),
    }.items():
        answers[name] = answer
        if plan is not None:
            try:
                counted = list(instance.check(plan))
            except BrokenRuleError as error:
                broken.append(f"{name}'s plan breaks a rule: {error}")
            else:
                if counted != answer.values:
                    broken.append(f"{name} says {answer.values}, counted are {counted}")
    rota, expert = answers["rota"], answers["expert"]
    contradiction = "; ".join([*broken, *_contradictions(rota, expert)])
    return {
        "about": problem.about,
        "rota": asdict(rota),
        "expert": asdict(expert),
        "objective_ok": objective_ok(rota, expert),
        "bound_ok": bound_ok(rota, expert),
        "contradiction": contradiction,
    }


# ---- the two sides ----------------------------------------------------------------------------------


def _by_rota(problem: Problem, instance: Instance, budget: float, seed: int) -> tuple[Answer, Plan | None]:
    """From the rows to a plan.  A refusal is an answer too."""
    database = Database()
    started = time.perf_counter()
    try:
        database.load_schema(problem.schema)
        database.replace_rows(instance.tables)
        model = Model.build(database, problem.policies)
        started = time.perf_counter()  # a model is built once, and solved as often as the state changes
        solution = model.solve(budget, seed, workers=WORKERS)
    except PolicyError as error:
        what = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return Answer(what, round(time.perf_counter() - started, 3)), None
    finally:
        seconds = time.perf_counter() - started
        database.close()
    tiers = [
        list(each)
        for _, each in groupby(sorted(solution.objectives, key=lambda o: o.tier), key=lambda o: o.tier)
    ]
    answer = Answer(
        str(solution.status),
        round(seconds, 3),
        [sum(one.after * one.weight for one in tier) for tier in tiers],
        _bounds(solution, tiers),
        str(solution.statistics["backend"]),
        round(float(solution.statistics["encode_seconds"]), 3),
    )
    return answer, solution.assignments


def _bounds(solution: Solution, tiers: Sequence[Sequence[ObjectiveValue]]) -> list[int | None]:
    """A bound for each tier.  Objectives that share one have none of their own: there the gap says it."""
    bounds: list[int | None] = []
    gap: float | None = solution.gap
    for tier in tiers:
        value = sum(one.after * one.weight for one in tier)
        if all(one.proven for one in tier):
            bounds.append(value)
        elif len(tier) == 1 and tier[0].bound is not None:
            bounds.append(tier[0].bound * tier[0].weight)
            gap = None
        else:
            bounds.append(None if gap is None else value - round(gap * max(1, abs(value))))
            gap = None
    return bounds


def _by_expert(instance: Instance, budget: float, seed: int) -> tuple[Answer, Plan | None]:
    """Tier by tier: each but the last may take half of the time that is left."""
    started = time.perf_counter()
    written = instance.expert()
    model, values, bounds = written.model, list[int](), list[int]()
    plan: Plan | None = None
    proven = True
    for number, tier in enumerate(written.tiers):
        left = started + budget - time.perf_counter()
        seconds = max(_LEAST_SECONDS, left if number == len(written.tiers) - 1 else left / 2)
        solver = new_solver(seconds, seed, WORKERS)
        solver.parameters.interleave_search = False  # as it is for whoever writes such a model
        model.minimize(tier)
        status = solver.solve(model)
        if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
            return Answer(solver.status_name(status), round(time.perf_counter() - started, 3)), None
        proven = proven and status == cp_model.OPTIMAL
        values.append(round(solver.objective_value))
        bounds.append(math.ceil(solver.best_objective_bound - 1e-6))
        plan = written.plan(solver)
        _continue_from(written, solver, tier, values[-1])
    seconds = time.perf_counter() - started
    return Answer("optimal" if proven else "feasible", round(seconds, 3), values, bounds, "CP-SAT"), plan


def _continue_from(written: Handwritten, solver: cp_model.CpSolver, tier: Any, value: int) -> None:
    """The next tier begins with this solution, and keeps what it is worth."""
    written.model.add(tier <= value)
    written.model.proto.clear_solution_hint()
    hint = written.model.proto.solution_hint
    solution = list(solver.response_proto.solution)
    hint.vars.extend(list(range(len(solution))))
    hint.values.extend(solution)


# ---- the verdicts -----------------------------------------------------------------------------------


def objective_ok(rota: Answer, expert: Answer) -> bool:
    """Whether rota is better, or at most 1 % worse, in the first tier in which they differ."""
    if rota.values is None or expert.values is None:
        return expert.values is None
    for ours, theirs in zip(rota.values, expert.values, strict=True):
        if ours != theirs:
            return ours - theirs <= WORSE * abs(theirs)
    return True


def bound_ok(rota: Answer, expert: Answer) -> bool:
    """Whether rota's bounds are at most 5 % weaker, as far as both go on from the same values."""
    if rota.values is None or expert.values is None:
        return expert.values is None
    for place, theirs in enumerate(expert.bounds):
        ours = rota.bounds[place]
        if theirs is not None and (ours is None or theirs - ours > WEAKER * abs(theirs)):
            return False
        if rota.values[place] != expert.values[place]:
            break
    return True


def _contradictions(rota: Answer, expert: Answer) -> list[str]:
    """What one has proven and the other refuted."""
    if rota.values is None or expert.values is None:
        return []
    found = []
    for place, (ours, theirs) in enumerate(zip(rota.values, expert.values, strict=True)):
        for one, value, other, bound in (
            ("rota", ours, "the expert", expert.bounds[place]),
            ("the expert", theirs, "rota", rota.bounds[place]),
        ):
            if bound is not None and value < bound:
                found.append(f"{one} found {value}, {other} has proven {bound}")
        if ours != theirs:
            break
    return found
