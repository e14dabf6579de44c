"""Why there is no solution: a minimal set of constraints that clash, with rows.

Constraints are dropped one by one, each time solving the rest without objectives (k constraints cost k cheap
solves); what cannot be dropped without the rest becoming satisfiable is the core.  Rows come from the solver's
own core over the surviving constraints.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from mgmt.errors import CoreMember, InfeasibleError
from mgmt.optimization.backends import AnswerStatus, Backend
from mgmt.optimization.problem import Problem
from mgmt.source import Position

_MOST_ROWS = 20  # per constraint; more would not be read


def explain(
    problem: Problem,
    backend: Backend,
    positions: Mapping[str, Position],
    rows: Mapping[str, list[Mapping[str, Any]]],
    *,
    budget: float,
    seed: int,
) -> InfeasibleError:
    """The error to raise for an infeasible problem, with its core found within about ``budget`` seconds."""
    deadline = time.monotonic() + budget
    names = list(problem.constraint_names)
    core = list(names)
    minimal = True
    for name in names:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            minimal = False
            break
        kept = [other for other in core if other != name]
        session = backend.load(problem, frozenset(names) - frozenset(kept))
        status = session.minimize(None, {}, remaining, seed, 1).status
        if status is AnswerStatus.INFEASIBLE:
            core = kept
        elif status is AnswerStatus.UNKNOWN:
            minimal = False
    found: dict[str, list[Mapping[str, Any]]] = {}
    remaining = deadline - time.monotonic()
    if core and remaining > 0:
        for tag in backend.clashing_rows(problem, frozenset(core), min(1.0, remaining), seed):
            known = rows.get(tag.constraint, [])
            if tag.row < len(known):
                found.setdefault(tag.constraint, []).append(known[tag.row])
    members = [
        CoreMember(name, positions.get(name), tuple(found.get(name, ())[:_MOST_ROWS])) for name in core
    ]
    return InfeasibleError(members, minimal=minimal)
