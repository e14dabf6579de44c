"""Each problem in one run: its policies, in several spellings, through rota, and the expert's model in CP-SAT.

All have the same budget of seconds, everything from rows to an answer included, and as many workers.  All plans go
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

from bench.policies.experts import clusters, placing, plants, puzzles, schedules, supply, timetables
from bench.policies.experts.problem import BrokenRuleError, Handwritten, Instance, Plan, Problem
from bench.result import Result, Table
from mgmt.compiler.model import Model
from mgmt.errors import PolicyError
from mgmt.optimization.backends.cp_sat_solver import new_solver
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
    clusters.LICENCES,
    clusters.LATENCY,
    clusters.LEADERS,
    clusters.HEADROOM,
    clusters.REPLICAS,
    puzzles.QUEENS,
    puzzles.FREQUENCIES,
    puzzles.SEATING,
    puzzles.COLOURS,
    puzzles.LEAGUE,
    schedules.JOBS,
    schedules.PROJECTS,
    schedules.BERTHS,
    schedules.LINE,
    plants.CUTTING,
    plants.LOTS,
    plants.LORRIES,
    plants.STATIONS,
    plants.PROPOSALS,
    plants.TOURS,
)
WORKERS: Final = 2
WORSE: Final = 0.01
"""By how much of the expert's objective rota's may be worse."""
WEAKER: Final = 0.05
"""By how much of the expert's bound rota's may be weaker."""
APART: Final = 0.02
"""By how much of the best spelling's objective another one's may be worse."""
SOON: Final = 2.0
"""Seconds within which there is a first answer."""
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


def experts(
    chosen: Collection[str],
    budget: float,
    seed: int,
    size: float = 1.0,
    *,
    spellings: Collection[str] = (),
    workers: int = WORKERS,
) -> Result:
    """Compare these problems in these spellings, or all."""
    found, ok = {}, True
    for problem in PROBLEMS:
        if not chosen or problem.name in chosen:
            found[problem.name] = _compare(problem, budget, seed, size, spellings, workers)
            ok = ok and not found[problem.name]["contradiction"]
    answers = [
        (f"{name}, {spelling}", each)
        for name, figures in found.items()
        for spelling, each in figures["spellings"].items()
    ]
    met = sum(all(each[verdict] for verdict in _VERDICTS) for _, each in answers)
    figures = {
        "budget": budget,
        "workers": workers,
        "seed": seed,
        "size": size,
        "problems": found,
        "met": met,
        "of": len(answers),
    }
    remarks = [f"{name}: {each['status']}" for name, each in answers if each["values"] is None]
    remarks += [f"{name}: {each['contradiction']}" for name, each in found.items() if each["contradiction"]]
    return Result(
        figures,
        [("spellings in which rota keeps up with the expert", f"{met} of {len(answers)}", f"{len(answers)}")],
        f"asked of rota: objectives at most {WORSE:.0%} worse than the expert's and {APART:.0%} worse than another "
        f"spelling's, bounds at most {WEAKER:.0%} weaker, a first answer within {SOON:g} s",
        others=[Table(_COLUMNS, [row for name, each in found.items() for row in _rows(name, each)])],
        ok=ok,
        remarks=remarks,
    )


_VERDICTS = ("objective_ok", "bound_ok", "sibling_ok", "soon_ok")
_COLUMNS = ("problem", "by", "objective", "bound", "seconds", "status", "engine", "misses")


def _rows(name: str, figures: dict[str, Any]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for by, answer in {"expert": figures["expert"], **figures["spellings"]}.items():
        missed = [verdict.removesuffix("_ok") for verdict in _VERDICTS if not answer.get(verdict, True)]
        rows.append(
            (
                "" if rows else name,
                by,
                _shown(answer["values"]),
                _shown(answer["bounds"]),
                f"{answer['seconds']:.1f}",
                answer["status"].split(":")[0],
                answer["engine"],
                ", ".join(missed),
            )
        )
    return rows


def _shown(numbers: Sequence[int | None] | None) -> str:
    return ", ".join("-" if number is None else str(number) for number in numbers or ()) or "-"


def _compare(
    problem: Problem, budget: float, seed: int, size: float, spellings: Collection[str], workers: int
) -> dict[str, Any]:
    instance = problem.instance(Random(f"{problem.name} {seed}"), size)
    expert, plan = _by_expert(instance, budget, seed, workers)
    broken = _broken("the expert", instance, expert, plan)
    answers, soon = {}, {}
    for name, policies in problem.policies:
        if spellings and name not in spellings:
            continue
        answers[name], plan = _by_rota(problem, policies, instance, budget, seed, workers)
        broken += _broken(name, instance, answers[name], plan)
        broken += _contradictions(answers[name], expert)
        soon[name] = answers[name].values is not None and (
            min(budget, answers[name].seconds) <= SOON
            or _by_rota(problem, policies, instance, SOON, seed, workers)[1] is not None
        )
    return {
        "about": problem.about,
        "expert": asdict(expert),
        "spellings": {
            name: {
                **asdict(answer),
                "objective_ok": objective_ok(answer, expert),
                "bound_ok": bound_ok(answer, expert),
                "sibling_ok": all(objective_ok(answer, other, APART) for other in answers.values()),
                "soon_ok": soon[name],
            }
            for name, answer in answers.items()
        },
        "contradiction": "; ".join(broken),
    }


def _broken(name: str, instance: Instance, answer: Answer, plan: Plan | None) -> list[str]:
    """What a plan's check says against it."""
    if plan is None:
        return []
    try:
        counted = list(instance.check(plan))
    except BrokenRuleError as error:
        return [f"the plan of {name} breaks a rule: {error}"]
    return [] if counted == answer.values else [f"{name} says {answer.values}, counted are {counted}"]


# ---- the two sides ----------------------------------------------------------------------------------


def _by_rota(
    problem: Problem, policies: str, instance: Instance, budget: float, seed: int, workers: int
) -> tuple[Answer, Plan | None]:
    """From the rows to a plan.  A refusal is an answer too."""
    database = Database()
    started = time.perf_counter()
    try:
        database.load_schema(problem.schema)
        database.replace_rows(instance.tables)
        model = Model.build(database, policies)
        started = time.perf_counter()  # a model is built once, and solved as often as the state changes
        solution = model.solve(budget, seed, workers=workers)
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


def _by_expert(instance: Instance, budget: float, seed: int, workers: int) -> tuple[Answer, Plan | None]:
    """Tier by tier: each but the last may take half of the time that is left."""
    started = time.perf_counter()
    written = instance.expert()
    model, values, bounds = written.model, list[int](), list[int]()
    plan: Plan | None = None
    proven = True
    for number, tier in enumerate(written.tiers):
        left = started + budget - time.perf_counter()
        seconds = max(_LEAST_SECONDS, left if number == len(written.tiers) - 1 else left / 2)
        solver = new_solver(seconds, seed, workers)
        solver.parameters.interleave_search = False  # as it is for whoever writes such a model
        model.minimize(tier)
        status = solver.solve(model)
        if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
            return Answer(solver.status_name(status), round(time.perf_counter() - started, 3)), None
        proven = proven and status == cp_model.OPTIMAL
        values.append(_counted(instance, written.plan(solver), number, round(solver.objective_value)))
        bounds.append(math.ceil(solver.best_objective_bound - 1e-6))
        plan = written.plan(solver)
        _continue_from(written, solver, tier, values[-1])
    seconds = time.perf_counter() - started
    return Answer("optimal" if proven else "feasible", round(seconds, 3), values, bounds, "CP-SAT"), plan


def _counted(instance: Instance, plan: Plan, tier: int, said: int) -> int:
    """What a tier of a plan is worth, which may be less than a model says that bounds it from above."""
    try:
        return min(said, instance.check(plan)[tier])
    except BrokenRuleError:
        return said


def _continue_from(written: Handwritten, solver: cp_model.CpSolver, tier: Any, value: int) -> None:
    """The next tier begins with this solution, and keeps what it is worth."""
    written.model.add(tier <= value)
    written.model.proto.clear_solution_hint()
    hint = written.model.proto.solution_hint
    solution = list(solver.response_proto.solution)
    hint.vars.extend(list(range(len(solution))))
    hint.values.extend(solution)


# ---- the verdicts -----------------------------------------------------------------------------------


def objective_ok(rota: Answer, expert: Answer, worse: float = WORSE) -> bool:
    """Whether rota is better, or at most so much worse, in the first tier in which they differ."""
    if rota.values is None or expert.values is None:
        return expert.values is None
    for ours, theirs in zip(rota.values, expert.values, strict=True):
        if ours != theirs:
            return ours - theirs <= worse * abs(theirs)
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
