"""One solution out of the decided parts: deltas, status, and the objectives with their bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mgmt.compiler.decisions import Assignments, Decided
from mgmt.compiler.partition import Step
from mgmt.compiler.relational.split import SplitQuery
from mgmt.compiler.results.units import unit_of
from mgmt.compiler.verification.oracle import Verdict
from mgmt.language.bound_queries.queries import Demand
from mgmt.optimization.general.lexicographic import TierResult
from mgmt.solution import Delta, ObjectiveValue, Solution, SolveStatus


def solution_of(
    version: int,
    program: Sequence[Step],
    decided: Sequence[Decided],
    assignments: Assignments,
    present: Verdict | None,
    verdict: Verdict,
    seconds: float,
    statistics: Mapping[str, Any],
) -> Solution:
    """What is handed out.  ``present`` is the database's word on today's values, ``verdict`` on the new ones."""
    objectives = _objectives(program)
    tiers = _tiers(objectives, decided, verdict)
    deltas = tuple(delta for part in decided for delta in part.deltas)
    unproven = [tier for _, tier in sorted(tiers.items()) if not tier.proven]
    if unproven:
        status = SolveStatus.FEASIBLE
    else:
        status = SolveStatus.OPTIMAL if deltas else SolveStatus.UNCHANGED
    gap = _gap(unproven[0]) if unproven else 0.0
    return Solution(
        status,
        version,
        deltas,
        _objective_values(program, tiers, present, verdict),
        assignments,
        gap,
        seconds,
        statistics,
        "; ".join(str(part.statistics["held"]) for part in decided if "held" in part.statistics),
    )


def doubted(solution: Solution, errors: Sequence[str]) -> Solution:
    """The solution with the errors of the solvers that it took in its statistics; with any, nothing of it is proven."""
    told = replace(solution, statistics={**solution.statistics, "solver_errors": tuple(errors)})
    if not errors:
        return told
    objectives = tuple(replace(objective, bound=None, proven=False) for objective in solution.objectives)
    return replace(told, status=SolveStatus.FEASIBLE, objectives=objectives, gap=1.0)


def proposed_solution(
    version: int,
    program: Sequence[Step],
    status: SolveStatus,
    deltas: tuple[Delta, ...],
    assignments: Assignments,
    verdict: Verdict,
) -> Solution:
    """Values that were not decided here, as a solution: its objectives have no bound, and no value of before."""
    objectives = tuple(
        replace(objective, bound=None, proven=status is not SolveStatus.FEASIBLE)
        for objective in _objective_values(program, _tiers(_objectives(program), (), verdict), None, verdict)
    )
    return Solution(status, version, deltas, objectives, assignments)


def _objectives(program: Sequence[Step]) -> list[tuple[str, Demand]]:
    return [
        (step.name, step.bound.demand)
        for step in program
        if isinstance(step, SplitQuery) and step.bound.demand is not None and step.bound.demand.is_objective
    ]


def today_instead(
    program: Sequence[Step],
    decided: Sequence[Decided],
    today: Assignments,
    present: Verdict,
    verdict: Verdict,
    least: float,
    why: str,
) -> Decided | None:
    """Today's values, if what was decided gains less than ``least`` in the first tier that differs.

    ``why`` is for people, should something be gained at all.
    """
    objectives = _objectives(program)
    found = _tiers(objectives, decided, verdict)
    values = dict.fromkeys(found, 0)
    for name, demand in objectives:
        sign = -1 if demand.maximize else 1
        values[demand.tail.tier] += sign * demand.tail.weight * present.objectives[name]
    gains = (values[tier] - found[tier].value for tier in sorted(found))
    gain = next((gain for gain in gains if gain), 0)
    if gain >= least:
        return None
    tiers = tuple(
        TierResult(tier, values[tier], result.bound, True, result.seconds) for tier, result in found.items()
    )
    names = tuple(name for name, _ in objectives)
    held = {"held": f"a plan that gains {gain} is held back {why}"} if gain else {}
    return Decided(today, (), tiers, {}, names, statistics=held)


def joint_statistics(decided: Sequence[Decided]) -> dict[str, Any]:
    """The parts' statistics in one: sums, and all their backends."""
    found: dict[str, Any] = {
        "backend": "; ".join(dict.fromkeys(str(part.statistics.get("backend")) for part in decided)),
        "tier_seconds": {},
        "left_out": tuple(each for part in decided for each in part.left_out),
        "parts": [dict(part.statistics) for part in decided],
    }
    for key in ("solver_calls", "variables", "candidate_rows"):
        found[key] = sum(int(str(part.statistics.get(key, 0))) for part in decided)
    for part in decided:
        tiers = part.statistics.get("tier_seconds", {})
        if isinstance(tiers, Mapping):
            found["tier_seconds"].update(tiers)
    return found


def _tiers(
    objectives: Sequence[tuple[str, Demand]], decided: Sequence[Decided], verdict: Verdict
) -> dict[int, TierResult]:
    """Per tier the parts' values and bounds together, and those of objectives that nobody decides."""
    found: dict[int, TierResult] = {}

    def add(result: TierResult) -> None:
        known = found.get(result.tier)
        found[result.tier] = result if known is None else known.plus(result)

    for part in decided:
        for result in part.tiers:
            add(result)
    known = {name for part in decided for name in part.objectives}
    for name, demand in objectives:
        if name not in known:
            value = (-1 if demand.maximize else 1) * demand.tail.weight * verdict.objectives[name]
            add(TierResult(demand.tail.tier, value, value, True))
    return found


def _gap(result: TierResult) -> float:
    return 1.0 if result.bound is None else abs(result.value - result.bound) / max(1, abs(result.value))


def _objective_values(
    program: Sequence[Step],
    tiers: Mapping[int, TierResult],
    present: Verdict | None,
    verdict: Verdict,
) -> tuple[ObjectiveValue, ...]:
    found = []
    objectives = _objectives(program)
    queries = {step.name: step.bound for step in program if isinstance(step, SplitQuery)}
    units = {name: unit_of(query, queries) for name, query in queries.items()}
    for name, demand in sorted(objectives, key=lambda entry: entry[1].tail.tier):
        tail = demand.tail
        result = tiers[tail.tier]
        alone = sum(other.tail.tier == tail.tier for _, other in objectives) == 1
        sign = -1 if demand.maximize else 1
        found.append(
            ObjectiveValue(
                name,
                "maximize" if demand.maximize else "minimize",
                tail.tier,
                tail.weight,
                present.objectives[name] if present else None,
                verdict.objectives[name],
                sign * result.bound // tail.weight if alone and result.bound is not None else None,
                result.proven,
                units[name],
            )
        )
    return tuple(found)
