"""Places and marks together: one integer program over what the best places leave open.

Where limits say what the best places have in common (``Optima``) and their costs are no part of it, it is nearly a
network, and its linear relaxation nearly always whole.
"""

from __future__ import annotations

from mgmt.errors import SolveTimeout
from mgmt.optimization.assignment import Assignment, Indices, Optima, Placement
from mgmt.optimization.engines import cp_sat, mixed_integer
from mgmt.optimization.engines.cells import all_candidates, cells_of
from mgmt.optimization.engines.joint import joint_assignment, joint_choice
from mgmt.optimization.engines.kinds import kinds_of
from mgmt.optimization.engines.load_costs import UnsuitableError
from mgmt.optimization.engines.normal_form import with_one_load_each


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
            found = mixed_integer.solve(cells, hint=begun, floors=floors, deadline=deadline, seed=seed)
        except UnsuitableError:
            found = cp_sat.solve(cells, hint=begun, floors=floors, deadline=deadline, seed=seed, workers=1)
    except (SolveTimeout, UnsuitableError):
        return None
    return None if found.choice is None else found
