"""Required moves: which copies the policies do not let stay where they are, as distinct from moves for balance.

The loop itself knows the rules that every store has (hosts that are gone, drained or full, racks); this is for all the
others, which only the policies know.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from mgmt.placement.placement_rows import PlacementState

if TYPE_CHECKING:
    from mgmt.compiler.model import Model
    from mgmt.solution import Delta, Solution

_LONGEST = 1.0
"""Seconds for looking at copies one by one; what was not looked at counts as not must_leave."""


@dataclass(frozen=True, slots=True)
class RequiredMoves:
    """What the policies say of the placement as it stands, beside the one that is to take its place."""

    breaks_rules: bool
    """Whether it satisfies not all hard constraints; so where copies are missing."""
    must_leave: tuple[tuple[str, str], ...] = ()
    """(segment, host) of each copy that cannot stay on its host while everything else is as it is to be.

    None where all of them together can: they move for balance.  Hosts that are gone or drained are not looked at.
    """


def required_moves(model: Model, solution: Solution, state: PlacementState) -> RequiredMoves:
    """Look at what stands, beside the solution that is to take its place."""
    if not solution.deltas:
        return RequiredMoves(breaks_rules=False)
    usable = {row.name for row in state.hosts if row.alive and not row.drained}
    moved = [
        delta
        for delta in solution.deltas
        if (delta.table, delta.column) == ("replica", "host") and delta.old in usable
    ]
    missing = any(delta.old is None for delta in solution.deltas)
    with model.database.snapshot() as snapshot:

        def may_stay(deltas: Sequence[Delta]) -> bool:
            return not model.oracle.examine(snapshot, solution.without(deltas)).violations

        if not missing and may_stay(solution.deltas):
            return RequiredMoves(breaks_rules=False)
        # Where nothing else changes, that was just asked.
        if not moved or (len(moved) < len(solution.deltas) and may_stay(moved)):
            return RequiredMoves(breaks_rules=True)
        deadline = time.monotonic() + _LONGEST
        in_time = takewhile(lambda _: time.monotonic() <= deadline, moved)
        reverted = (solution.without([delta]) for delta in in_time)
        verdicts = model.oracle.examine_each(snapshot, reverted, objectives=False)
        # The verdicts first: asked for one too many, they put the snapshot back as it was.
        must_leave = tuple(
            (str(delta.primary_key[0]), str(delta.old))
            for verdict, delta in zip(verdicts, moved, strict=False)
            if verdict.violations
        )
    return RequiredMoves(breaks_rules=True, must_leave=must_leave)
