"""A problem solved by the engines for assignments, as far as it is one.

What does not lift is left out: then the engines' choice is a first solution, if it keeps what was left out as well, or
else a place to start from; what bounds the first tiers bounds those of the problem, and what proves that there is no
choice proves that there is no solution.
"""

from __future__ import annotations

from dataclasses import dataclass

from mgmt.errors import OverflowError, SolveTimeout  # noqa: A004 - the published name
from mgmt.optimization.assignment import Placement
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines import UnsuitableError, solve_in_parts
from mgmt.optimization.general.evaluation import worth
from mgmt.optimization.general.lexicographic import Optimum, TierResult
from mgmt.optimization.general.operators import completed, holds
from mgmt.optimization.lifting import ChoiceCells, LeftOut, Lifted, lift
from mgmt.optimization.products import FactoredProblem, FactoredValues

_ALWAYS = 50_000
"""Cells that are lifted even when the time has ended."""
_PARTIAL_SHARE = 0.25
"""Of the time, where something is left out: what goes on from there needs the rest."""


@dataclass(frozen=True, slots=True, eq=False)
class LiftedSearch:
    """What the engines found."""

    optimum: Optimum | None
    """A solution with bounds, or that there is none; None if they have no choice that is one."""
    values: FactoredValues | None
    """Of all variables under the best choice, whether or not it keeps what was left out."""
    left_out: tuple[LeftOut, ...]
    impossible: tuple[str, ...] = ()
    """Constraints that fail whatever is chosen, if that is why there is no solution."""
    engine: str = ""
    notes: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether nothing is left to be found but what the engines did not prove."""
        return self.optimum is not None and (
            not self.left_out or all(result.proven for result in self.optimum.tiers)
        )


def search(
    problem: FactoredProblem, cells: ChoiceCells, *, deadline: Deadline, seed: int, workers: int
) -> LiftedSearch:
    """Lift, and ask the engines, until about the deadline."""
    try:
        lifted = lift(problem, cells, deadline.if_more(cells.rows * cells.values, _ALWAYS))
    except OverflowError as reason:
        return LiftedSearch(None, None, (LeftOut("", str(reason)),))
    except TimeoutError:
        return LiftedSearch(None, None, (LeftOut("", "the time ended while it was lifted"),))
    if lifted.impossible:
        none = Optimum(None, (), 0)
        return LiftedSearch(none, None, lifted.left_out, lifted.impossible, "none: some rows cannot hold")
    share = _PARTIAL_SHARE if lifted.left_out else 1.0
    try:
        found = solve_in_parts(lifted.assignment, deadline=deadline.part(share), seed=seed, workers=workers)
    except (UnsuitableError, SolveTimeout, TimeoutError) as reason:
        why = str(reason) or "the time ended"
        return LiftedSearch(None, None, (*lifted.left_out, LeftOut("", f"no engine: {why}")))
    if found.choice is None:
        return LiftedSearch(Optimum(None, (), 0), None, lifted.left_out, (), found.engine, found.notes)
    values = completed(problem, *lifted.cells.held(found.choice))
    optimum = None
    if values is not None and holds(problem, values):
        optimum = Optimum(values, _tiers(problem, values, lifted, found), int(found.solver_variables > 0))
    return LiftedSearch(optimum, values, lifted.left_out, (), found.engine, found.notes)


def _tiers(
    problem: FactoredProblem, values: FactoredValues, lifted: Lifted, found: Placement
) -> tuple[TierResult, ...]:
    """The values, and the bounds of the tiers before the first that something was left out of."""
    results = []
    worths: dict[int, int] = {}
    for each in sorted(problem.objectives, key=lambda each: each.tier):
        paid = (-each.weight if each.maximize else each.weight) * worth(each.linear, values)
        worths[each.tier] = worths.get(each.tier, 0) + paid
    for place, (tier, value) in enumerate(worths.items()):
        bound = found.bounds[place] if place < lifted.whole_tiers else None
        results.append(TierResult(tier, value, bound, value == bound))
    return tuple(results)
