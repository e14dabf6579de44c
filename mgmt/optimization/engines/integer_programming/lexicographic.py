"""A count model minimised tier by tier, whichever solver is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mgmt.errors import SolveTimeout
from mgmt.optimization.assignment import Indices, Placement
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines.integer_programming.count_model import CountModel
from mgmt.optimization.engines.integer_programming.count_terms import Sum
from mgmt.optimization.engines.model.cost_functions import UnsuitableError

LEAST_SECONDS = 0.02


class TierSolver(Protocol):
    """A solver that has been given a count model, and is told of what is added to it."""

    name: str
    """For people."""

    @property
    def model(self) -> CountModel: ...

    @property
    def variables(self) -> int:
        """How many it has been given."""

    def minimize(
        self, objective: Sum, hint: Indices | None, deadline: Deadline
    ) -> tuple[Indices | None, bool, int | None]:
        """A choice, if one was found; False when there is none; a bound, if there is one."""


def minimize_tiers(
    solver: TierSolver, *, hint: Indices | None, known_bounds: Sequence[int | None], deadline: Deadline
) -> Placement:
    """The best counts, tier by tier, until the deadline, with bounds for these candidates.

    ``hint`` is a choice to begin with, one that keeps the limits; ``known_bounds`` are per tier.  Raises
    SolveTimeout when neither a choice nor a proof that there is none was found in time, UnsuitableError when a cost
    cannot be modelled.
    """
    model = solver.model
    assignment = model.cells.classes.assignment
    best, worth = hint, () if hint is None else assignment.worth(hint)
    bounds: list[int] = []
    tiers = len(assignment.tiers)
    for number in range(tiers or 1):
        objective = model.objective(number) if tiers else Sum(0, [], [])
        floor = known_bounds[number] if tiers else None
        # Later tiers need time too, and usually less; the last one may use all that is left.
        share = deadline if number >= tiers - 1 else deadline.part(1 / 2)
        met = best is not None and (not tiers or worth[number] == floor)
        if best is None or (not met and share.left > LEAST_SECONDS):
            choice, feasible, bound = solver.minimize(objective, best, share)
            if not feasible:
                return Placement(None, (), (), solver.name, solver_variables=solver.variables)
            if choice is not None:
                reached = assignment.worth(choice)
                if tiers and bound is not None and bound > reached[number]:
                    raise UnsuitableError("a cost function is not what its values at many loads let expect")
                if best is None or reached < worth:
                    best, worth = choice, reached
            floor = bound if floor is None or (bound is not None and bound > floor) else floor
        if best is None:
            raise SolveTimeout("no placement was found in the time given")
        if tiers:
            bounds.append(min(worth[number], model.range_of(objective)[0] if floor is None else floor))
            model.require_at_most(objective, worth[number])
    return Placement(best, worth, tuple(bounds), solver.name, solver_variables=solver.variables)
