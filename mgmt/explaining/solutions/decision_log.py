"""The decision log: for each move of a solution, whether a rule requires it, and which objective it serves.

Each move is taken back on its own.  If the rest then still satisfies the rules, what the objectives lose is what the
move is worth.  If it does not, the move may still be a choice that goes together with others: only when nothing
satisfies the rules without it is it required.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum

from mgmt.compiler.model import Model
from mgmt.compiler.verification.oracle import Verdict
from mgmt.errors import CoreMember, InfeasibleError, SolveTimeout
from mgmt.explaining.solutions.decisions import ASKED, Decision, required
from mgmt.explaining.solutions.difference import ObjectiveChange, objective_changes
from mgmt.solution import Delta, Solution


class Cause(StrEnum):
    REQUIRED = "required"  # nothing satisfies the rules without it
    OPTIONAL = "optional"  # it could be left out; the objectives are better with it
    NEUTRAL = "neutral"  # it could be left out at no cost
    UNDECIDED = "undecided"  # it goes together with others, and time ended before more was known


@dataclass(frozen=True, slots=True)
class LoggedMove:
    """One move and its cause.

    ``without`` is what objectives would be without it (``one`` with it, ``other`` without), ``core`` the rules that
    require it.
    """

    delta: Delta
    cause: Cause
    without: tuple[ObjectiveChange, ...] = ()
    core: tuple[CoreMember, ...] = ()

    def __str__(self) -> str:
        key = "/".join(map(str, self.delta.primary_key))
        old = "nothing" if self.delta.old is None else self.delta.old
        move = f"{self.delta.table} {key}: {self.delta.column} {old} -> {self.delta.new}"
        if self.cause is Cause.REQUIRED:
            names = ", ".join(member.constraint for member in self.core)
            return f"{move}, required by {names}" if names else f"{move}, required: it had no value"
        if self.cause is Cause.OPTIONAL:
            serves = [change for change in self.without if change.worse_by > 0]
            best = min(serves, key=lambda change: change.tier)
            return f"{move}, optional: {best.name} is better by {best.worse_by} with it"
        return f"{move}, {self.cause}"


def decision_log(
    model: Model, solution: Solution, *, budget: float = 5.0, seed: int = 0
) -> tuple[LoggedMove, ...]:
    """The causes of all moves of a solution of the present state, found in about ``budget`` seconds."""
    deadline = time.monotonic() + budget
    model = model.at(solution.moment)
    entries = []
    with model.database.snapshot() as snapshot:
        for delta in solution.deltas:
            table, variable = delta.place
            if delta.old is None and not model.database.schema.table(table).column(variable).nullable:
                entries.append(LoggedMove(delta, Cause.REQUIRED))
                continue
            verdict = model.oracle.examine(snapshot, solution.without([delta]))
            if verdict.violations:
                entries.append(_together(model, solution, delta, deadline - time.monotonic(), seed))
            else:
                entries.append(_alone(solution, delta, verdict))
    return tuple(entries)


def _alone(solution: Solution, delta: Delta, verdict: Verdict) -> LoggedMove:
    changes = tuple(
        ObjectiveChange(
            objective.name,
            objective.tier,
            objective.sense,
            objective.after,
            verdict.objectives[objective.name],
        )
        for objective in solution.objectives
        if verdict.objectives[objective.name] != objective.after
    )
    return LoggedMove(delta, _cause(changes), changes)


def _together(model: Model, solution: Solution, delta: Delta, seconds: float, seed: int) -> LoggedMove:
    if seconds <= 0:
        return LoggedMove(delta, Cause.UNDECIDED)
    table, variable = delta.place
    decision = Decision(table, delta.primary_key, variable)
    try:
        other = required(model, decision, delta.old).solve(seconds, seed)
    except InfeasibleError as error:
        core = tuple(member for member in error.core if member.constraint != ASKED)
        return LoggedMove(delta, Cause.REQUIRED, core=core)
    except SolveTimeout:
        return LoggedMove(delta, Cause.UNDECIDED)
    changes = objective_changes(solution.objectives, other.objectives)
    return LoggedMove(delta, _cause(changes), changes)


def _cause(changes: tuple[ObjectiveChange, ...]) -> Cause:
    return Cause.OPTIONAL if any(change.worse_by > 0 for change in changes) else Cause.NEUTRAL
