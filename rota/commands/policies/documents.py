"""What the ``rota policy`` commands answer with ``--json``: documents of plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgmt.errors import CoreMember, InfeasibleError, Relaxation
    from mgmt.explaining.policies.compilation_report import CompilationReport
    from mgmt.explaining.policies.lint import Finding
    from mgmt.explaining.policies.policy_tests import PolicyTestReport
    from mgmt.explaining.solutions.decision_log import LoggedMove
    from mgmt.explaining.solutions.difference import Difference, ObjectiveChange
    from mgmt.explaining.solutions.headroom import Headroom
    from mgmt.explaining.solutions.what_if import WhatIf
    from mgmt.explaining.solutions.why import Verdict
    from mgmt.solution import Solution
    from mgmt.solving.policy_listing import PolicyEntry


def solution_document(solution: Solution, log: Sequence[LoggedMove] = ()) -> dict[str, Any]:
    causes = {(move.delta.table, move.delta.primary_key, move.delta.variable): move for move in log}
    deltas = []
    for delta in solution.deltas:
        entry: dict[str, Any] = {
            "table": delta.table,
            "primary_key": list(delta.primary_key),
            "column": delta.column,
            "variable": delta.variable,
            "old": delta.old,
            "new": delta.new,
        }
        move = causes.get((delta.table, delta.primary_key, delta.variable))
        if move is not None:
            entry["cause"] = str(move.cause)
            entry["without"] = [objective_document(change) for change in move.without]
            entry["required_by"] = [member.constraint for member in move.core]
        deltas.append(entry)
    return {
        "status": str(solution.status),
        "version": solution.version,
        "gap": solution.gap,
        "seconds": solution.seconds,
        "objectives": [
            {
                "name": objective.name,
                "tier": objective.tier,
                "sense": objective.sense,
                "weight": objective.weight,
                "before": objective.before,
                "after": objective.after,
                "bound": objective.bound,
                "proven": objective.proven,
                "unit": objective.unit,
            }
            for objective in solution.objectives
        ],
        "deltas": deltas,
        "held": solution.held,
        "unassigned": [
            {
                "table": unassigned.table,
                "variable": unassigned.variable,
                "rows": unassigned.rows,
                "of": unassigned.of,
                "satisfied": dict(unassigned.satisfied),
                "hint": unassigned.hint,
            }
            for unassigned in solution.unassigned
        ],
        "moment": None if solution.moment is None else solution.moment.isoformat(),
        "statistics": dict(solution.statistics),
    }


def infeasible_document(error: InfeasibleError) -> dict[str, Any]:
    return {
        "status": "infeasible",
        "core": [core_document(member) for member in error.core],
        "minimal": error.minimal,
        "relaxations": [relaxation_document(relaxation) for relaxation in error.relaxations],
    }


def core_document(member: CoreMember) -> dict[str, Any]:
    return {
        "constraint": member.constraint,
        "position": None if member.position is None else str(member.position),
        "rows": [dict(row) for row in member.rows],
        "count": member.count,
        "clash": member.clash,
        "reason": member.reason,
    }


def relaxation_document(relaxation: Relaxation) -> dict[str, Any]:
    return {
        "text": relaxation.text,
        "statements": list(relaxation.statements),
        "waivers": [
            {
                "constraint": waiver.constraint,
                "clause": waiver.clause,
                "condition": waiver.condition,
                "rows": [dict(row) for row in waiver.rows],
            }
            for waiver in relaxation.waivers
        ],
    }


def objective_document(change: ObjectiveChange) -> dict[str, Any]:
    return {
        "name": change.name,
        "tier": change.tier,
        "sense": change.sense,
        "one": change.one,
        "other": change.other,
        "worse_by": change.worse_by,
        "unit": change.unit,
    }


def difference_document(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    return {
        "decisions": [
            {
                "table": change.decision.table,
                "primary_key": list(change.decision.primary_key),
                "variable": change.decision.variable,
                "one": change.one,
                "other": change.other,
            }
            for change in difference.decisions
        ],
        "objectives": [objective_document(change) for change in difference.objectives],
        "only_one": list(difference.only_one),
        "only_other": list(difference.only_other),
        "decisive_tier": difference.decisive_tier,
    }


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    return {
        "text": str(verdict),
        "table": verdict.decision.table,
        "primary_key": list(verdict.decision.primary_key),
        "variable": verdict.decision.variable,
        "chosen": verdict.chosen,
        "before": verdict.before,
        "other": verdict.other,
        "possible": verdict.possible,
        "proven": verdict.proven,
        "core": [core_document(member) for member in verdict.core],
        "relaxations": [relaxation_document(relaxation) for relaxation in verdict.relaxations],
        "difference": difference_document(verdict.difference),
    }


def comparison_document(
    one: Solution | InfeasibleError, other: Solution | InfeasibleError, difference: Difference | None
) -> dict[str, Any]:
    """Two kept plans."""
    return {
        "one": _outcome_document(one),
        "other": _outcome_document(other),
        "difference": difference_document(difference),
    }


def what_if_document(answer: WhatIf) -> dict[str, Any]:
    return {
        "text": str(answer),
        "before": _outcome_document(answer.before),
        "after": _outcome_document(answer.after),
        "difference": difference_document(answer.difference),
    }


def _outcome_document(outcome: Solution | InfeasibleError) -> dict[str, Any]:
    from mgmt.solution import Solution

    return solution_document(outcome) if isinstance(outcome, Solution) else infeasible_document(outcome)


def headroom_document(answer: Headroom) -> dict[str, Any]:
    return {
        "table": answer.table,
        "primary_key": list(answer.primary_key),
        "count": answer.count,
        "exact": answer.exact,
        "core": [core_document(member) for member in answer.core],
    }


def finding_document(finding: Finding) -> dict[str, Any]:
    return {
        "rule": str(finding.rule),
        "warning": finding.is_warning,
        "message": finding.message,
        "position": None if finding.position is None else str(finding.position),
        "hint": finding.hint,
    }


def entry_document(entry: PolicyEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "kind": entry.kind,
        "tier": entry.tier,
        "weight": entry.weight,
        "where": entry.where,
        "meaning": entry.meaning,
    }


def report_document(report: PolicyTestReport) -> dict[str, Any]:
    return {
        "passed": report.passed,
        "tests": [
            {
                "name": result.test.name,
                "position": str(result.test.position),
                "passed": result.passed,
                "failures": [str(failure) for failure in result.failures],
                "seconds": result.seconds,
            }
            for result in report.results
        ],
        "coverage": report.coverage,
        "covered": dict(report.covered),
    }


def explanation_document(explanation: CompilationReport) -> dict[str, Any]:
    from dataclasses import asdict

    document = asdict(explanation)
    for query, stage in zip(document["queries"], explanation.queries, strict=True):
        query["position"] = str(stage.position)
    return document
