"""Which copies the policies do not let stay where they are, whatever it costs: what sets a repair apart from balance.

The loop itself knows the rules that every store has (hosts that are gone, drained or full, racks); this is for all the
others, which only the policies know.

What it is not: it plans nothing; see ``mgmt.placement.moves``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mgmt.placement.state import PlacementState

if TYPE_CHECKING:
    from mgmt.compiler.model import Model
    from mgmt.solution import Delta, PrimaryKey, Solution, Value

_LONGEST = 0.3
"""Seconds for looking at copies one by one; what was not looked at counts as not demanded."""


def breaks_rules_today(model: Model, solution: Solution) -> bool:
    """Whether the placement as it stands satisfies not all hard constraints; True where copies are missing."""
    if any(delta.old is None for delta in solution.deltas):
        return True
    return not model.accepts(_without(solution, solution.deltas))


def demanded(model: Model, solution: Solution, state: PlacementState) -> tuple[tuple[str, str], ...]:
    """(segment, host) of each copy that cannot stay on its host while everything else is as it is to be.

    None where all of them together can: they move for balance.
    """
    usable = {row.name for row in state.hosts if row.alive and not row.drained}
    moved = [
        delta
        for delta in solution.deltas
        if (delta.table, delta.column) == ("replica", "host") and delta.old in usable
    ]  # what the loop knows by itself is not asked about
    if not moved or model.accepts(_without(solution, moved)):
        return ()
    deadline = time.monotonic() + _LONGEST
    found = []
    for delta in moved:
        if time.monotonic() > deadline:
            break
        if not model.accepts(_without(solution, [delta])):
            found.append((str(delta.primary_key[0]), str(delta.old)))
    return tuple(found)


def _without(
    solution: Solution, deltas: Sequence[Delta]
) -> dict[tuple[str, str], Mapping[PrimaryKey, Value]]:
    """The values of the solution, but those of today in these places."""
    found = dict(solution.assignments)
    for place in {_place(delta) for delta in deltas}:
        today = {delta.primary_key: delta.old for delta in deltas if _place(delta) == place}
        found[place] = {**found[place], **today}
    return found


def _place(delta: Delta) -> tuple[str, str]:
    return delta.table, delta.variable or delta.column
