"""Min-cost flow for assignments with counts: exact for all tiers, whatever the size.

Units go from bundles of like rows through their branches (at most one copy per rack) into pools, where nobody knows
any more which bundle a unit came from, on to values and their counts, and into the sink.  A row that stays where it
is has an arc of its own, cheaper by what a move costs.

Where a limit sums amounts that differ (bytes), a count stands for it and the answer is checked; an answer that breaks
the limit is no answer (``NotAFlowError``), but "there is none" holds all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from mgmt.optimization.assignment import NONE, Assignment, Indices, Optima, Pairs, Placement
from mgmt.optimization.deadline import NEVER, Deadline
from mgmt.optimization.engines.flow.build import NetworkBuilder
from mgmt.optimization.engines.flow.counts import NotAFlowError
from mgmt.optimization.engines.flow.decode import choice_of
from mgmt.optimization.engines.flow.solver import ALWAYS, LateFlowError
from mgmt.optimization.engines.flow.structure import structure_of
from mgmt.optimization.engines.presolve.fixing import rest_of

__all__ = ["LateFlowError", "NotAFlowError", "solve"]

MOST_ARCS = 3_000_000


def solve(assignment: Assignment, preferred: Pairs | None = None, deadline: Deadline = NEVER) -> Placement:
    """The optimum, proven for every tier, or that there is none.

    ``preferred``: where rows move to if that costs no more than moving elsewhere.

    Raises NotAFlowError, with the reason, for what is not a network, LateFlowError where the deadline is too near.
    """
    try:
        return _solve_in_time(assignment, deadline, preferred)
    except LateFlowError:
        raise
    except NotAFlowError:
        fixed = _forced(assignment)
        if assignment.conditions or not bool((fixed >= 0).any()):
            raise
    rest = _solve_in_time(rest_of(assignment, fixed), deadline)
    if rest.choice is None:
        return rest
    choice = fixed.copy()
    choice[fixed < 0] = rest.choice
    optima = None if rest.optima is None else partial(_beside_fixed, rest.optima, fixed, assignment.values)
    return replace(rest, choice=choice, worth=assignment.worth(choice), optima=optima)


def _forced(assignment: Assignment) -> Indices:
    """(R,) the values of rows that have no other, like pinned ones, which no other row is like."""
    only = assignment.allowed.sum(axis=1) == 1
    value = np.where(only, assignment.allowed.argmax(axis=1), NONE)
    forced = np.where(assignment.required, value[assignment.row_class], NONE)
    return forced.astype(np.int32)


def _beside_fixed(rest: Callable[[], Optima], fixed: Indices, values: int) -> Optima:
    """The optima of the rows that are not fixed as those of all."""
    optima, free = rest(), fixed < 0
    row_class = len(optima.allowed) + fixed
    row_class[free] = optima.row_class
    allowed = np.concatenate([optima.allowed, np.eye(values, dtype=np.bool_)])
    limits = []
    for limit in optima.limits:
        group, weight = np.full(len(fixed), NONE, np.int32), np.zeros(len(fixed), np.int64)
        group[free], weight[free] = limit.load.group, limit.load.weight
        limits.append(replace(limit, load=replace(limit.load, group=group, weight=weight)))
    return Optima(row_class.astype(np.int32), allowed, tuple(limits))


def _solve_in_time(assignment: Assignment, deadline: Deadline, preferred: Pairs | None = None) -> Placement:
    try:
        return _solve(assignment, deadline, preferred)
    except TimeoutError as ended:
        raise LateFlowError("the time ended while a flow was looked for") from ended


def _solve(assignment: Assignment, deadline: Deadline, preferred: Pairs | None) -> Placement:
    if assignment.conditions:
        raise NotAFlowError(f"{assignment.conditions[0].name} is more than a limit")
    tiers = len(assignment.tiers)
    if not assignment.rows:
        worth = assignment.worth(np.zeros(0, np.int32))
        choice = None if any(assignment.broken(np.zeros(0, np.int32))) else np.zeros(0, np.int32)
        return Placement(choice, worth, worth, "no rows")
    structure = structure_of(assignment)
    if not structure.possible:
        return Placement(None, (), (), "counting", ("a limit that no choice can meet",))
    known_rows = 1
    expanded = False
    while True:
        built = NetworkBuilder(assignment, structure, tiers, known_rows, expanded, preferred)
        within = deadline.if_more(built.network.arcs, ALWAYS)
        flow = built.network.cheapest(built.supply, deadline) if built.possible else None
        notes = (
            f"{built.network.arcs} arcs, {structure.bundles} bundles, {len(structure.representative)} classes",
        )
        if flow is None:
            return Placement(None, (), (), "min-cost flow", notes)
        if bool(flow[built.beyond].any()):
            if known_rows > assignment.rows:
                raise NotAFlowError("costs that are not known for the loads of a cheapest flow")
            within.check()
            known_rows *= 4  # more rows in one place than costs were written out for
            continue
        choice = choice_of(assignment, structure, built.units(flow), within)
        if choice is not None:
            break
        if expanded or structure.bundles * assignment.values > MOST_ARCS:
            raise NotAFlowError("copies of one bundle could not be told apart within their racks")
        within.check()
        expanded = True
    broken = [] if structure.exact else list(assignment.broken(choice))
    if broken:
        raise NotAFlowError(f"{', '.join(broken)} would be broken: amounts differ from row to row")
    worth = assignment.worth(choice)
    bounds = built.worth(flow)
    return Placement(choice, worth, bounds, "min-cost flow", notes, optima=built.optima)
