"""Which copies the policies do not let stay where they are, whatever it costs: what sets a repair apart from balance.

The loop itself knows the rules that every store has (hosts that are gone, drained or full, racks); this is for all the
others, which only the policies know.

What it is not: it plans nothing; see ``mgmt.placement.moves``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mgmt.placement.state import PlacementState

if TYPE_CHECKING:
    from mgmt.compiler.model import Model
    from mgmt.solution import Delta, Solution

_LONGEST = 0.3
"""Seconds for looking at copies one by one; what was not looked at counts as not demanded."""


def breaks_rules_today(model: Model, solution: Solution) -> bool:
    """Whether the placement as it stands satisfies not all hard constraints; True where copies are missing."""
    if any(delta.old is None for delta in solution.deltas):
        return True
    today = {place: dict(values) for place, values in solution.assignments.items()}
    for delta in solution.deltas:
        today[_place(delta)][delta.primary_key] = delta.old
    return not model.accepts(today)


def demanded(model: Model, solution: Solution, state: PlacementState) -> tuple[tuple[str, str], ...]:
    """(segment, host) of each copy that cannot stay on its host while everything else is as it is to be."""
    usable = {row.name for row in state.hosts if row.alive and not row.drained}
    deadline = time.monotonic() + _LONGEST
    found = []
    for delta in solution.deltas:
        if delta.table != "replica" or delta.column != "host" or delta.old not in usable:
            continue  # another table, or what the loop knows by itself
        if time.monotonic() > deadline:
            break
        place = _place(delta)
        kept = {**solution.assignments[place], delta.primary_key: delta.old}
        if not model.accepts({**solution.assignments, place: kept}):
            found.append((str(delta.primary_key[0]), str(delta.old)))
    return tuple(found)


def _place(delta: Delta) -> tuple[str, str]:
    return delta.table, delta.variable or delta.column
