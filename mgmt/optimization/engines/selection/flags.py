"""Assignments in which some rows follow others, as a selection among placed rows: where nothing else is of both."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mgmt.optimization.assignment import NONE, Assignment, Colocation, Indices, Placement, RowCost
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines.presolve.row_restriction import joint_rows, of_rows, rows_of
from mgmt.optimization.engines.selection.selected_placement import solve_selection


@dataclass(frozen=True, slots=True, eq=False)
class Flags:
    """The places of rows and which of them are selected: those with a row that follows them, where that has a value."""

    places: Assignment
    selection: Assignment
    leader: Indices
    """(R,) of all rows which each follows, or NONE."""
    later: int
    """How many tiers of the places come after those of the selection."""

    @classmethod
    def of(cls, assignment: Assignment) -> Flags | None:
        """None where no row follows another, or where this is not all that is said of both together."""
        follow = [each for each in assignment.conditions if isinstance(each, Colocation)]
        if len(follow) != 1:
            return None
        rest = replace(
            assignment, conditions=tuple(each for each in assignment.conditions if each not in follow)
        )
        leader = follow[0].leader
        follows = leader != NONE
        leaders = leader[follows]
        if bool(follows[leaders].any()) or len(np.unique(leaders)) < len(leaders):
            return None
        if any(bool(follows[rows].any()) and not bool(follows[rows].all()) for rows in joint_rows(rest)):
            return None
        if any(bool(follows[rows_of(condition)].any()) for condition in rest.conditions):
            return None
        own = np.flatnonzero(~follows)
        follower = np.full(assignment.rows, NONE)
        follower[leaders] = np.flatnonzero(follows)
        places = of_rows(rest, own, idle=True)
        selection = _at_home(of_rows(rest, follower[own]), places)
        paid = [tier.number for tier in selection.tiers]
        low, high = min(paid, default=1), max(paid, default=0)
        if any(low <= tier.number <= high for tier in places.tiers):
            return None
        return cls(places, selection, leader, sum(tier.number > high >= low for tier in places.tiers))

    def solve(self, *, deadline: Deadline, seed: int, workers: int) -> Placement:
        """Both as one choice.  Raises UnsuitableError where nothing can be said of them together."""
        found = solve_selection(
            self.places, self.selection, deadline=deadline, seed=seed, workers=workers, later=self.later
        )
        if found is None:
            return Placement(None, (), (), "none: no places, or no flags among them")
        placed, selected = found.places, found.selection
        assert placed.choice is not None
        assert selected.choice is not None
        follows = self.leader != NONE
        choice = np.full(len(self.leader), NONE, np.int32)
        choice[~follows] = placed.choice
        choice[follows] = selected.choice[(np.cumsum(~follows) - 1)[self.leader[follows]]]
        numbers = [tier.number for tier in (*self.places.tiers, *self.selection.tiers)]
        worth, bounds = (
            tuple(value for _, value in sorted(zip(numbers, values, strict=True)))
            for values in (placed.worth + selected.worth, placed.bounds + selected.bounds)
        )
        return Placement(
            choice,
            worth,
            bounds,
            f"{placed.engine}; flags: {selected.engine}",
            (*placed.notes, *selected.notes),
            max(placed.solver_variables, selected.solver_variables),
        )


def _at_home(selection: Assignment, places: Assignment) -> Assignment:
    """With the values that rows have today as those of rows that are not selected, if nobody pays for leaving them.

    Where a price is for all values but these, rows are alike by that.
    """
    costs = [cost for tier in selection.tiers for cost in tier.costs if isinstance(cost, RowCost)]
    if any(bool(((cost.moved != 0) & (selection.current == NONE)).any()) for cost in costs):
        return selection
    return replace(selection, current=np.where(selection.current == NONE, places.current, selection.current))
