"""A dry run: what the controller would do now, as a value; the answer to ``rota plan``.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from datastore_adapter.interface import StepGraph
from mgmt.control.hysteresis import BalanceHold
from mgmt.plans.duration_estimate import TransferSpeeds
from mgmt.plans.plan import Plan
from mgmt.plans.plan_report import plan_to_json, plan_to_text
from mgmt.solving.placement_solver import Infeasible, Solved, SolveOutcome, Undecided


@dataclass(frozen=True, slots=True)
class DryRun:
    """What the controller would do now.  Without a full placement, ``plan`` holds what availability needs."""

    plan: Plan
    steps: StepGraph
    outcome: SolveOutcome | None
    """None where ``plan`` is under way: it was decided before."""
    hosts_missing: int = 0
    paused: bool = False
    observing: bool = False
    """Nothing of it is done by the loop itself."""
    speeds: TransferSpeeds = field(default_factory=TransferSpeeds)
    held: BalanceHold | None = None
    """Why the loop does not carry out what of the plan is for balance alone."""
    relaxations: tuple[str, ...] = ()
    """Where no placement satisfies the rules: the smallest changes, each of which would help."""

    @property
    def feasible(self) -> bool:
        return self.outcome is None or isinstance(self.outcome, Solved)

    def to_json(self) -> dict[str, Any]:
        outcome = self.outcome
        return {
            **plan_to_json(self.plan, self.steps, self.speeds),
            "target": {segment: list(hosts) for segment, hosts in self.plan.target.segments.items()},
            "feasible": self.feasible,
            "clashing": list(outcome.policies) if isinstance(outcome, Infeasible) else [],
            "relaxations": list(self.relaxations),
            "hosts_missing": self.hosts_missing,
            "paused": self.paused,
            "observing": self.observing,
            "held": None if self.held is None else self.held.to_json(),
            "solve": solve_to_json(outcome),
            "text": self.text(),
        }

    def text(self) -> str:
        lines = ["agreed, and not done yet" if self.outcome is None else describe(self.outcome)]
        if self.relaxations:
            lines += ["any one of these helps:", *(f"  * {text}" for text in self.relaxations)]
        if self.hosts_missing:
            lines.append(f"the first placement waits for {self.hosts_missing} more hosts")
        if self.feasible or not self.plan.is_empty:
            lines.append(plan_to_text(self.plan, self.steps, self.speeds))
        elif isinstance(self.outcome, Infeasible):
            lines.append("nothing can be done about it until a host comes or a rule is relaxed")
        if self.observing:
            lines.append(
                "observing: nothing is changed until `rota apply` carries this out, "
                "or `rota resume` lets the loop go on"
            )
        if self.paused and not self.plan.is_empty:
            lines.append(
                "paused: `rota apply` carries this out all the same, `rota resume` lets the loop go on"
            )
        if self.held is not None:
            lines.append(f"held back: {self.held}; `rota apply` carries it out all the same")
        return "\n".join(lines)


def describe(outcome: SolveOutcome) -> str:
    """One line for people."""
    match outcome:
        case Solved():
            held = f"; {outcome.held}" if outcome.held else ""
            proof = "proven to be the best" if outcome.proven else "not proven to be the best in that time"
            return f"solved in {outcome.seconds:.2f} s, {proof}{held}"
        case Infeasible():
            return f"no placement satisfies {', '.join(outcome.details or outcome.policies)}"
        case Undecided():
            return outcome.reason


def solve_to_json(outcome: SolveOutcome | None) -> dict[str, Any] | None:
    """For status displays; None when nothing was solved yet."""
    if outcome is None:
        return None
    document: dict[str, Any] = {
        "status": outcome.status,
        "seconds": outcome.seconds,
        "text": describe(outcome),
    }
    if isinstance(outcome, Infeasible):
        rows = outcome.rows or ("",) * len(outcome.policies)
        document["clashing"] = [
            {"policy": policy, "rows": words} for policy, words in zip(outcome.policies, rows, strict=True)
        ]
    if isinstance(outcome, Solved):
        document["gap"] = outcome.gap
        document["objectives"] = [
            {
                "name": value.name,
                "tier": value.tier,
                "before": value.before,
                "after": value.after,
                "bound": value.bound,
            }
            for value in outcome.objectives
        ]
    return document
