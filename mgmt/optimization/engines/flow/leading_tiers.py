"""Where the first tiers are a network and later ones are not: what the best of the first have in common, and the rest.

A flow proves the first tiers, and says which values rows have in all choices that are as good.  Most often nearly all
rows have one: fewest moves leaves only those a choice that have to move.  What is left to the other engines is small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mgmt.optimization.assignment import NONE, Assignment, Indices, Optima, Placement
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines import flow
from mgmt.optimization.engines.presolve.fixing import rest_of, without_implied

_MOST_TRIED = 3
"""Numbers of first tiers that a flow is asked for."""

Rest = Callable[[Assignment, Indices, tuple[int, ...]], Placement]
"""Solves an assignment, given a choice to begin with and bounds of the first tiers."""


def solve_leading_tiers(assignment: Assignment, deadline: Deadline, solve_rest: Rest) -> Placement | None:
    """The best found, with bounds; None where not even the first tier is a network."""
    first = None if assignment.conditions else _first_tiers(assignment, deadline)
    if first is None or first.choice is None or first.optima is None or not first.proven:
        return first if first is not None and first.choice is None else None
    try:
        optima = first.optima()
    except TimeoutError:
        return None
    fixed = _settled(assignment, optima)
    free = fixed < 0
    restricted = replace(
        assignment,
        row_class=optima.row_class,
        allowed=optima.allowed,
        limits=(*without_implied(assignment.limits), *optima.limits),
    )
    note = (
        f"{len(first.bounds)} tiers by min-cost flow, which settles {int((~free).sum())} of {len(free)} rows"
    )
    found = solve_rest(rest_of(restricted, fixed), first.choice[free], first.bounds)
    if found.choice is None:
        return None  # cannot be: the flow's choice is one
    choice = fixed.copy()
    choice[free] = found.choice
    bounds = (*first.bounds, *found.bounds[len(first.bounds) :])
    return replace(
        found, choice=choice, worth=assignment.worth(choice), bounds=bounds, notes=(note, *found.notes)
    )


def _first_tiers(assignment: Assignment, deadline: Deadline) -> Placement | None:
    """The optimum of as many tiers as are a network."""
    most = len(assignment.tiers) - 1
    for number in range(most, max(0, most - _MOST_TRIED), -1):
        try:
            return flow.solve(replace(assignment, tiers=assignment.tiers[:number]), None, deadline)
        except flow.NotAFlowError:
            continue
        except flow.LateFlowError:
            return None
    return None


def _settled(assignment: Assignment, optima: Optima) -> Indices:
    """(R,) the value of each row that must have one and has only one in all optima, else NONE."""
    only = optima.allowed.sum(axis=1) == 1
    value = np.where(only, optima.allowed.argmax(axis=1), NONE)
    return np.where(assignment.required, value[optima.row_class], NONE).astype(np.int32)
