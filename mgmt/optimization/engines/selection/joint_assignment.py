"""Places and selection as one assignment: every value twice, for rows that are selected there and for the others.

No network any more, so it is for an integer program.  But rows that have one place only in the best places, and are
selected or not in all of them, are settled, and what is left is small where few rows move.  Where limits say what the
best places have in common (``Optima``) and their costs are no part of it, it is nearly a network, and its linear
relaxation nearly always whole.
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
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.dense_ranks import alike_rows, firsts
from mgmt.optimization.engines.integer_programming import cp_sat, highs
from mgmt.optimization.engines.model.cells import all_candidates, cells_of
from mgmt.optimization.engines.model.cost_functions import UnsuitableError
from mgmt.optimization.engines.model.equivalence import equivalence_classes
from mgmt.optimization.engines.presolve.normal_form import with_one_load_each


def joint_assignment(places: Assignment, selection: Assignment, place: Mask, selected_at: Mask) -> Assignment:
    """Value v is v and not selected, V + v is v and selected; the masks (R, V) say what rows may have.

    All tiers of the places come before those of the selection.  Only limits, no conditions.
    """
    row_class, allowed = patterns(
        np.concatenate([place & ~selection.required[:, None], place & selected_at], axis=1, dtype=np.bool_)
    )
    limits = [Limit(limit.name, _anyhow(limit.load), limit.lower, limit.upper) for limit in places.limits]
    limits += [
        Limit(limit.name, _if_selected(limit.load), limit.lower, limit.upper) for limit in selection.limits
    ]
    return Assignment(
        2 * places.values,
        row_class,
        allowed,
        places.required,
        np.full(places.rows, NONE, np.int32),
        tuple(limits),
        (
            *(_tier(tier, places, selected=False) for tier in places.tiers),
            *(_tier(tier, selection, selected=True) for tier in selection.tiers),
        ),
    )


def joint_choice(place: Indices, selected_at: Indices, values: int) -> Indices:
    """The joint choice of places and of selection."""
    return np.where(selected_at >= 0, place + values, place).astype(np.int32)


def apart(choice: Indices, values: int) -> tuple[Indices, Indices]:
    """The places and the selection of a joint choice."""
    place = np.where(choice >= 0, choice % values, NONE).astype(np.int32)
    return place, np.where(choice >= values, place, NONE).astype(np.int32)


def patterns(allowed: Mask) -> tuple[Indices, Mask]:
    """Rows that may have the same values as classes of rows: (R,) and (C, V)."""
    row_class, number = alike_rows(allowed)
    return row_class.astype(np.int32), allowed[firsts(row_class, number)]


def _anyhow(load: Load) -> Load:
    return replace(load, bucket=np.concatenate([load.bucket, load.bucket]))


def _if_selected(load: Load) -> Load:
    return replace(load, bucket=np.concatenate([np.full(len(load.bucket), NONE, np.int32), load.bucket]))


def _tier(tier: Tier, assignment: Assignment, *, selected: bool) -> Tier:
    costs: list[Cost] = []
    for cost in tier.costs:
        if isinstance(cost, LoadCost):
            costs.append(replace(cost, loads=tuple(map(_if_selected if selected else _anyhow, cost.loads))))
        else:
            costs.append(_row_cost(cost, assignment, selected=selected))
    return replace(tier, costs=tuple(costs))


def _row_cost(cost: RowCost, assignment: Assignment, *, selected: bool) -> RowCost:
    """With what a move costs in the price of each value: staying is no longer one value alone."""
    current = np.where(cost.moved != 0, assignment.current, NONE).astype(np.int64)
    keys = np.stack([cost.row_class.astype(np.int64), current, cost.moved])
    (classes, home, moved), row_class = np.unique(keys, axis=1, return_inverse=True)
    away = np.arange(assignment.values)[None] != home[:, None]
    price: Amounts = cost.cost[classes] + np.where(away, moved[:, None], 0)
    unplaced = cost.unplaced[classes] + np.where(home >= 0, moved, 0)
    plain = np.broadcast_to(unplaced[:, None], price.shape) if selected else price
    return RowCost(
        cost.name,
        cost.weight,
        np.reshape(row_class, -1).astype(np.int32),
        np.concatenate([plain, price], axis=1),
        unplaced,
        np.zeros(assignment.rows, np.int64),
    )


def solve_jointly(
    places: Assignment,
    selection: Assignment,
    optima: Optima,
    *,
    hint: tuple[Indices, Indices] | None,
    known_bounds: tuple[int, ...],
    deadline: Deadline,
    seed: int,
) -> Placement | None:
    """The joint choice (see ``joint``) that is best among what ``optima`` leaves open, in places that cost as little.

    None if it is not found in time.

    ``hint``: places and selection to begin with, if any are known; ``known_bounds`` are for all tiers.
    """
    open_to, selectable = optima.allowed[optima.row_class], selection.allowed[selection.row_class]
    joint = with_one_load_each(joint_assignment(places, selection, open_to, selectable))
    classes = equivalence_classes(joint)
    cells = cells_of(classes, *all_candidates(classes))
    begun = None if hint is None else joint_choice(*hint, places.values)
    try:
        try:
            found = highs.solve(cells, hint=begun, known_bounds=known_bounds, deadline=deadline, seed=seed)
        except UnsuitableError:
            found = cp_sat.solve(
                cells, hint=begun, known_bounds=known_bounds, deadline=deadline, seed=seed, workers=1
            )
    except (SolveTimeout, UnsuitableError):
        return None
    return None if found.choice is None else found
