"""Places and marks as one assignment: every value twice, once for rows that are marked there and once for the others.

No network any more, so it is for an integer program; but rows that have one place only in the best places, and one
mark, are settled, and what is left is small where few rows move.  Where limits say what the best places have in common
(``Optima``) and their costs are no part of it, it is nearly a network, and its linear relaxation nearly always whole.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mgmt.errors import SolveTimeout
from mgmt.optimization.assignment import (
    NONE,
    Amounts,
    Assignment,
    Cost,
    Indices,
    Limit,
    Load,
    LoadCost,
    Mask,
    Optima,
    Placement,
    RowCost,
    Tier,
)
from mgmt.optimization.engines.integer_programming import cp_sat, highs
from mgmt.optimization.engines.model.cells import all_candidates, cells_of
from mgmt.optimization.engines.model.cost_functions import UnsuitableError
from mgmt.optimization.engines.model.distinct import alike_rows, firsts
from mgmt.optimization.engines.model.equivalence import kinds_of
from mgmt.optimization.engines.presolve.normal_form import with_one_load_each


def joint_assignment(places: Assignment, marks: Assignment, place: Mask, mark: Mask) -> Assignment:
    """Value v is v unmarked, value V + v is v marked; ``place`` and ``mark`` (R, V) narrow what rows may have.

    All tiers of the places come before those of the marks.  Only limits, no conditions.
    """
    row_class, allowed = patterns(
        np.concatenate([place & ~marks.required[:, None], place & mark], axis=1, dtype=np.bool_)
    )
    limits = [Limit(limit.name, _anyhow(limit.load), limit.lower, limit.upper) for limit in places.limits]
    limits += [Limit(limit.name, _if_marked(limit.load), limit.lower, limit.upper) for limit in marks.limits]
    return Assignment(
        2 * places.values,
        row_class,
        allowed,
        places.required,
        np.full(places.rows, NONE, np.int32),
        tuple(limits),
        (
            *(_tier(tier, places, marked=False) for tier in places.tiers),
            *(_tier(tier, marks, marked=True) for tier in marks.tiers),
        ),
    )


def joint_choice(place: Indices, mark: Indices, values: int) -> Indices:
    """The joint choice of places and of marks."""
    return np.where(mark >= 0, place + values, place).astype(np.int32)


def apart(choice: Indices, values: int) -> tuple[Indices, Indices]:
    """The places and the marks of a joint choice."""
    place = np.where(choice >= 0, choice % values, NONE).astype(np.int32)
    return place, np.where(choice >= values, place, NONE).astype(np.int32)


def patterns(allowed: Mask) -> tuple[Indices, Mask]:
    """Rows that may have the same values as classes of rows: (R,) and (C, V)."""
    row_class, number = alike_rows(allowed)
    return row_class.astype(np.int32), allowed[firsts(row_class, number)]


def _anyhow(load: Load) -> Load:
    return replace(load, bucket=np.concatenate([load.bucket, load.bucket]))


def _if_marked(load: Load) -> Load:
    return replace(load, bucket=np.concatenate([np.full(len(load.bucket), NONE, np.int32), load.bucket]))


def _tier(tier: Tier, assignment: Assignment, *, marked: bool) -> Tier:
    costs: list[Cost] = []
    for cost in tier.costs:
        if isinstance(cost, LoadCost):
            costs.append(replace(cost, loads=tuple(map(_if_marked if marked else _anyhow, cost.loads))))
        else:
            costs.append(_row_cost(cost, assignment, marked=marked))
    return replace(tier, costs=tuple(costs))


def _row_cost(cost: RowCost, assignment: Assignment, *, marked: bool) -> RowCost:
    """With what a move costs in the price of each value: staying is no longer one value alone."""
    current = np.where(cost.moved != 0, assignment.current, NONE).astype(np.int64)
    keys = np.stack([cost.row_class.astype(np.int64), current, cost.moved])
    (classes, home, moved), row_class = np.unique(keys, axis=1, return_inverse=True)
    away = np.arange(assignment.values)[None] != home[:, None]
    price: Amounts = cost.cost[classes] + np.where(away, moved[:, None], 0)
    unplaced = cost.unplaced[classes] + np.where(home >= 0, moved, 0)
    plain = np.broadcast_to(unplaced[:, None], price.shape) if marked else price
    return RowCost(
        cost.name,
        cost.weight,
        np.reshape(row_class, -1).astype(np.int32),
        np.concatenate([plain, price], axis=1),
        unplaced,
        np.zeros(assignment.rows, np.int64),
    )


def at_once(
    places: Assignment,
    marks: Assignment,
    optima: Optima,
    *,
    hint: tuple[Indices, Indices] | None,
    floors: tuple[int, ...],
    deadline: float,
    seed: int,
) -> Placement | None:
    """The joint choice (see ``joint``) that is best among what ``optima`` leaves open, in places that cost as little.

    None if it is not found in time.

    ``hint``: places and marks to begin with, if any are known; ``floors``: known bounds for all tiers.
    """
    open_to, markable = optima.allowed[optima.row_class], marks.allowed[marks.row_class]
    joint = with_one_load_each(joint_assignment(places, marks, open_to, markable))
    kinds = kinds_of(joint)
    cells = cells_of(kinds, *all_candidates(kinds))
    begun = None if hint is None else joint_choice(*hint, places.values)
    try:
        try:
            found = highs.solve(cells, hint=begun, floors=floors, deadline=deadline, seed=seed)
        except UnsuitableError:
            found = cp_sat.solve(cells, hint=begun, floors=floors, deadline=deadline, seed=seed, workers=1)
    except (SolveTimeout, UnsuitableError):
        return None
    return None if found.choice is None else found
