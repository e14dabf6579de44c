"""What is too much for some limits: a placement that keeps all else, with as little as can be found above these.

First as many rows as can be are placed within all limits, the heaviest first to count.  Those that are left go where
most of the others of them are, so that few buckets have to take more than they may.  That is not the least there is,
but it is found where exact counting (see ``assignment_core``) has too many cells to look at: in a cluster that is too
small as a whole.

What it is not: it proves nothing, and it only helps where a limit is too low from above.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from mgmt.errors import SolveTimeout
from mgmt.optimization.assignment import (
    NONE,
    UNLIMITED,
    Amounts,
    Assignment,
    Indices,
    LoadCost,
    RowCost,
    Tier,
)
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines import UnsuitableError, solve
from mgmt.optimization.engines.construction import complete
from mgmt.optimization.engines.model.equivalence import equivalence_classes
from mgmt.optimization.load_functions import LoadFunction, LoadNumber, Positive, greatest

_LEAST_SECONDS = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class Overflow:
    """A choice that keeps everything but some limits, and by how much it is above these."""

    choice: Indices
    above: tuple[tuple[int, int, int, int], ...]
    """Place of the limit among the limits, group, bucket, and how much is too much there."""


def overflow(assignment: Assignment, constraints: Collection[str], *, deadline: Deadline) -> Overflow | None:
    """A choice in which only limits of these constraints are exceeded; None when none is found."""
    loose = [place for place, limit in enumerate(assignment.limits) if limit.name in constraints]
    if not loose or deadline.left < _LEAST_SECONDS:
        return None
    placed = _most_placed(assignment, loose, deadline)
    if placed is None:
        return None
    rest = _with_costs_above(assignment, loose)
    classes, rows = equivalence_classes(rest), np.flatnonzero(placed != NONE)
    count = np.ones(len(rows), np.int64)
    try:
        choice = complete(classes, classes.of_row[rows], placed[rows], count, deadline)
    except TimeoutError:
        return None
    if choice is None or any(rest.broken(choice)):
        return None
    above = []
    for place in loose:
        limit = assignment.limits[place]
        load, (_, upper) = limit.load.of(choice), limit.bounds
        for group, bucket in np.argwhere(load > upper).tolist():
            above.append((place, group, bucket, int(load[group, bucket] - upper[group, bucket])))
    return Overflow(choice, tuple(above))


def _most_placed(assignment: Assignment, loose: list[int], deadline: Deadline) -> Indices | None:
    """A choice that keeps all limits and leaves out rows of little weight; None when there is none."""
    weight = np.maximum(sum(assignment.limits[place].load.weight for place in loose), 1)
    pays = np.where(assignment.required, weight, 0)
    prices, row_class = np.unique(pays, return_inverse=True)
    leaving_out = RowCost(
        "left out",
        1,
        row_class.astype(np.int32),
        np.zeros((len(prices), assignment.values), np.int64),
        prices.astype(np.int64),
        np.zeros(assignment.rows, np.int64),
    )
    fewer = replace(
        assignment, required=np.zeros(assignment.rows, np.bool_), tiers=(Tier(1, (leaving_out,)),)
    )
    try:
        return solve(fewer, deadline=deadline, seed=0).choice
    except (SolveTimeout, UnsuitableError):
        return None


def _with_costs_above(assignment: Assignment, loose: list[int]) -> Assignment:
    """What is above these limits is paid for: first for each place of which there is more, then for the amounts."""
    limits = [assignment.limits[place] for place in loose]
    tiers = []
    for number, places_alone in enumerate((True, False), 1):
        costs = [
            LoadCost(limit.name, 1, (limit.load,), _above(limit.bounds[1], places_alone=places_alone), False)
            for limit in limits
        ]
        tiers.append(Tier(number, tuple(costs)))
    others = tuple(limit for place, limit in enumerate(assignment.limits) if place not in loose)
    return replace(assignment, limits=others, tiers=tuple(tiers))


def _above(upper: Amounts, *, places_alone: bool) -> LoadFunction:
    """How much a load is above these, or only whether."""
    above = LoadNumber(0) - np.minimum(upper, UNLIMITED // 2)
    return Positive(above) if places_alone else greatest(above, 0)
