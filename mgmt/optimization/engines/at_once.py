"""Places and marks together: one integer program over what the best places leave open.

Where limits say what the best places have in common (``Optima``) and their costs are no part of it, it is nearly a
network, and its linear relaxation nearly always whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from mgmt.errors import SolveTimeout
from mgmt.optimization.assignment import Assignment, Indices, Optima
from mgmt.optimization.engines import cp_sat, mixed_integer
from mgmt.optimization.engines.cells import all_candidates, cells_of
from mgmt.optimization.engines.joint import joint_assignment, joint_choice
from mgmt.optimization.engines.kinds import kinds_of
from mgmt.optimization.engines.load_costs import UnsuitableError
from mgmt.optimization.engines.unified import unified


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """The joint choice (see ``joint``) that is best for the marks, and bounds for their tiers."""

    choice: Indices
    bounds: tuple[int, ...]
    engine: str
    variables: int


def at_once(
    places: Assignment,
    marks: Assignment,
    optima: Optima,
    *,
    hint: tuple[Indices, Indices] | None,
    floors: tuple[int, ...],
    deadline: float,
    seed: int,
) -> Joint | None:
    """The best of both among what ``optima`` leaves open, in places that cost as little; None if not found in time.

    ``hint``: places and marks to begin with, if any are known; ``floors``: known bounds for all tiers.
    """
    open_to, markable = optima.allowed[optima.row_class], marks.allowed[marks.row_class]
    joint = unified(joint_assignment(places, marks, open_to, markable))
    kinds = kinds_of(joint)
    cells = cells_of(kinds, *all_candidates(kinds))
    begun, engine = None if hint is None else joint_choice(*hint, places.values), "HiGHS"
    try:
        try:
            found = mixed_integer.solve(cells, hint=begun, floors=floors, deadline=deadline, seed=seed)
        except UnsuitableError:
            engine = "CP-SAT"
            found = cp_sat.solve(cells, hint=begun, floors=floors, deadline=deadline, seed=seed, workers=1)
    except (SolveTimeout, UnsuitableError):
        return None
    if found.choice is None:
        return None
    bounds = found.bounds[len(places.tiers) :]
    return Joint(found.choice, bounds, f"{engine} on places and marks at once", found.variables)
