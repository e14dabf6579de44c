"""A problem as an assignment, as far as that goes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgmt.optimization.assignment import Assignment, Colocation, Cost, Tier
from mgmt.optimization.deadline import NEVER, Deadline
from mgmt.optimization.lifting.choices import ChoiceCells, following_rows
from mgmt.optimization.lifting.costs import CostLifter
from mgmt.optimization.lifting.demands import Demands, LeftOut
from mgmt.optimization.lifting.refusal import NotLiftedError
from mgmt.optimization.lifting.sums.cell_sums import CellSums
from mgmt.optimization.products import FactoredProblem


@dataclass(frozen=True, slots=True, eq=False)
class Lifted:
    """An assignment that every solution of the problem is a choice of."""

    cells: ChoiceCells
    """Those that the assignment is about: of flags beside choices as many as these have."""
    assignment: Assignment
    impossible: tuple[str, ...]
    """Constraints that fail whatever is chosen."""
    allowing: frozenset[str]
    """Constraints that say which values rows may have."""
    left_out: tuple[LeftOut, ...]
    """What else the problem demands, or minimises."""
    whole_tiers: int
    """How many of the first tiers are whole: what bounds them bounds the problem's."""


def lift(problem: FactoredProblem, cells: ChoiceCells, deadline: Deadline = NEVER) -> Lifted:
    """The assignment in a problem, with what does not fit into one left out.  Raises TimeoutError at the deadline."""
    sums = CellSums(problem, following_rows(problem, cells), deadline)
    demands = _demands(problem, sums)
    tiers, partial, left_out = _tiers(problem, sums)
    assignment = assignment_of(demands, tiers)
    whole = next((at for at, tier in enumerate(tiers) if tier.number in partial), len(tiers))
    left_out = [*demands.left_out, *left_out]
    impossible = tuple(demands.impossible)
    return Lifted(demands.cells, assignment, impossible, demands.allowing, tuple(left_out), whole)


def demands_of(problem: FactoredProblem, cells: ChoiceCells, deadline: Deadline) -> Demands:
    """What a problem demands, without objectives.  Raises TimeoutError at the deadline."""
    return _demands(problem, CellSums(problem, following_rows(problem, cells), deadline))


def _demands(problem: FactoredProblem, sums: CellSums) -> Demands:
    demands = Demands(sums)
    for _, cell_rows in problem.cell_rows:
        demands.add_cells(cell_rows)
    for block in problem.rows:
        if not block.spells_out:  # definitions are, and what choices say anyway
            demands.add(block)
    demands.finish()
    return demands


def assignment_of(demands: Demands, tiers: tuple[Tier, ...] = ()) -> Assignment:
    """The assignment with these demands."""
    row_class, table = demands.allowed.classes()
    conditions = tuple(demands.conditions)
    if demands.following.any:
        conditions += (Colocation("flags of other values", demands.following.leader.astype(np.int32)),)
    return Assignment(
        demands.cells.values,
        row_class.astype(np.int32),
        table,
        demands.required,
        demands.cells.current,
        tuple(demands.limits),
        tiers,
        conditions,
    )


def _tiers(problem: FactoredProblem, sums: CellSums) -> tuple[tuple[Tier, ...], set[int], list[LeftOut]]:
    """The tiers, the numbers of those that something is missing in, and what."""
    lifter = CostLifter(sums)
    costs: dict[int, list[Cost]] = {}
    constants: dict[int, int] = {}
    partial: set[int] = set()
    left_out: list[LeftOut] = []
    for objective in sorted(problem.objectives, key=lambda objective: objective.tier):
        mine = costs.setdefault(objective.tier, [])
        try:
            found = lifter.costs_of(objective)
        except NotLiftedError as reason:
            left_out.append(LeftOut(objective.name, str(reason)))
            partial.add(objective.tier)
            continue
        mine.extend(found.costs)
        constants[objective.tier] = constants.get(objective.tier, 0) + found.constant
    tiers = tuple(Tier(number, tuple(some), constants.get(number, 0)) for number, some in costs.items())
    return tiers, partial, left_out
