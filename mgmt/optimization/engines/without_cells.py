"""Many rows among many values: a flow that leaves some tiers out, then exchanges, and no array over rows and values.

Written out, 10 000 rows of different amounts and 1000 values would be ten million cells.  A choice to begin with is
the optimum of the tiers that are a network; exchanges improve it in the first tier that no bound proves.

What it is not: it proves only what bounds in closed form prove.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mgmt.optimization.assignment import Assignment, Indices, Placement
from mgmt.optimization.engines import flow
from mgmt.optimization.engines.bounds import wide_floor, wide_peak_floors
from mgmt.optimization.engines.exchanges import exchanged, peaks_of, repaired
from mgmt.optimization.engines.fixing import telling
from mgmt.optimization.engines.kinds import Kinds

_UNKNOWN = -(2**62)


def without_cells(
    kinds: Kinds, known: tuple[Indices, tuple[int, ...]] | None, *, deadline: float, seed: int
) -> Placement | None:
    """The best found, with bounds; None where there is none to begin with.

    ``known`` is a choice, and bounds of the first tiers.
    """
    assignment = kinds.assignment
    few = replace(assignment, limits=tuple(telling(assignment.limits)))  # no more than what says something
    narrow = replace(kinds, assignment=few)
    floors = [wide_floor(kinds, number) for number in range(len(assignment.tiers))]
    if known is not None:
        floors[: len(known[1])] = known[1]
    begun = [known[0]] if known is not None else [assignment.current, *_by_flow(few, deadline)]
    kept = [choice for choice in begun if not any(assignment.broken(choice))]
    best = min(kept, key=assignment.worth, default=None)
    if best is None:
        best = repaired(narrow, deadline=deadline, seed=seed)
    if best is None:
        return None
    worth = assignment.worth(best)
    open_tiers = [at for at, (own, floor) in enumerate(zip(worth, floors, strict=True)) if own != floor]
    if open_tiers:
        tier = open_tiers[0]
        peaks = peaks_of(assignment, tier)
        lowest: Sequence[int] = () if peaks is None else wide_peak_floors(kinds, peaks)
        for choice in exchanged(narrow, best, tier, lowest, deadline=deadline, seed=seed):
            best = choice
        worth = assignment.worth(best)
    bounds = tuple(
        _UNKNOWN if floor is None else min(floor, own) for floor, own in zip(floors, worth, strict=True)
    )
    return Placement(best, worth, bounds, "exchanges; bounds in closed form")


def _by_flow(assignment: Assignment, deadline: float) -> Iterator[Indices]:
    """The best by those tiers that are a network, if the limits are one."""
    tiers = [tier for number, tier in enumerate(assignment.tiers) if peaks_of(assignment, number) is None]
    try:
        found = flow.solve(replace(assignment, tiers=tuple(tiers)), None, flow.Patience(deadline))
    except (flow.NotAFlowError, flow.LateFlowError):
        return
    if found.choice is not None:
        yield found.choice
