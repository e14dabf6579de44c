"""An assignment part by part: rows that no limit, condition or cost of several rows connects have nothing in common.

What the parts cost is added up tier by tier, and so are their bounds: all parts reach what bounds the whole in a tier
exactly where each reaches its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgmt.errors import SolveTimeout
from mgmt.optimization.assignment import NONE, UNKNOWN, Assignment, Placement
from mgmt.optimization.columns import Integers, components
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines.engine_choice import solve
from mgmt.optimization.engines.incumbent import Incumbent
from mgmt.optimization.engines.model.cost_functions import UnsuitableError
from mgmt.optimization.engines.presolve.row_restriction import joint_rows, of_rows
from mgmt.optimization.engines.selection.flags import Flags

_FEW_CELLS = 4_000
"""Rows times values: so few are decided together where flags beside choices are not proven to be the best."""

_ALWAYS = 50_000
"""The same, of parts that are decided even when the time has ended."""


def solve_in_parts(assignment: Assignment, *, deadline: Deadline, seed: int, workers: int = 1) -> Placement:
    """As ``solve``, each part with the engines that are for it, within its share of the time that is left."""
    parts = _parts(assignment)
    tiers = {tier.number: place for place, tier in enumerate(assignment.tiers)}
    worth = [tier.constant for tier in assignment.tiers]
    bounds, choice = worth.copy(), np.full(assignment.rows, NONE, np.int32)
    engines: list[str] = []
    notes: list[str] = []
    variables = late_cells = 0
    for number, rows in enumerate(parts):
        part = of_rows(assignment, rows, idle=number == 0)
        share = deadline.part(1 / (len(parts) - number))
        late_cells += part.rows * part.values * deadline.passed
        late = deadline.if_more(late_cells, _ALWAYS).passed
        found = _as_today(part) if late else _solve(part, deadline=share, seed=seed, workers=workers)
        if found.choice is None:
            return found
        choice[rows] = found.choice
        for tier, value, bound in zip(part.tiers, found.worth, found.bounds, strict=True):
            place = tiers[tier.number]
            worth[place] += value
            bounds[place] = UNKNOWN if UNKNOWN in (bounds[place], bound) else bounds[place] + bound
        engines += [found.engine] if found.engine not in engines else []
        notes += found.notes
        variables = max(variables, found.solver_variables)
    return Placement(choice, tuple(worth), tuple(bounds), "; ".join(engines), tuple(notes), variables)


def _parts(assignment: Assignment) -> Sequence[Integers]:
    """The rows of each, the smaller ones first; rows that are connected with none are one together."""
    one, other = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for mask in joint_rows(assignment):
        rows = np.flatnonzero(mask)
        one.append(rows[:-1])
        other.append(rows[1:])
    component = components(np.concatenate(one), np.concatenate(other), assignment.rows)
    found = [
        np.flatnonzero(component == number) for number in range(NONE, int(component.max(initial=NONE)) + 1)
    ]
    return sorted((rows for rows in found if len(rows)), key=len)


def _as_today(part: Assignment) -> Placement:
    """Today's choice, if it keeps everything; for what there is no time left for.  Raises SolveTimeout if not."""
    best = Incumbent(part, [None] * len(part.tiers))
    best.begin(None)
    return best.placement("nothing, in the time given")


def _solve(part: Assignment, *, deadline: Deadline, seed: int, workers: int) -> Placement:
    flags, found = Flags.of(part), None
    if flags is not None:
        try:
            found = flags.solve(deadline=deadline, seed=seed, workers=workers)
        except UnsuitableError:
            found = None
        if found is not None and (found.proven or part.rows * part.values > _FEW_CELLS):
            return found
    try:
        whole = solve(part, deadline=deadline, seed=seed, workers=workers)
    except (SolveTimeout, UnsuitableError):
        if found is None:
            raise
        return found
    return whole if found is None or whole.proven or whole.worth <= found.worth else found
