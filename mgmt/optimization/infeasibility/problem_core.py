"""Why there is no solution: a minimal set of constraints that clash, down to their rows.

Constraints are dropped one by one, each time solving the rest without objectives (k constraints cost k cheap
solves); what cannot be dropped without the rest becoming satisfiable is the core.  Rows come from the solver's
own core over the surviving constraints, and are dropped one by one in the same way while they are few.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from mgmt.optimization.backends import AnswerStatus, Backend
from mgmt.optimization.columns import TRUE, Integers, Linears, Lists, Mask, filled, integers
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.infeasibility.deletion_filter import minimal_core
from mgmt.optimization.problem import NO_BOUND, LinearRows, LiteralRows, Problem, Source, Tag

MOST_ROWS_TO_MINIMIZE = 50
"""Each row costs a solve; more rows than this are read as a group anyway."""


@dataclass(frozen=True, slots=True)
class Core:
    """Constraints that clash, and those of their rows that do.

    Dropping any one constraint makes the rest satisfiable if ``minimal``; so does dropping any one row if
    ``rows_minimal``.  ``rows`` is empty when no rows could be singled out in time.
    """

    constraints: tuple[str, ...]
    minimal: bool
    rows: tuple[Tag, ...]
    rows_minimal: bool


def find_core(problem: Problem, backend: Backend, *, deadline: Deadline, seed: int) -> Core:
    """The core of an infeasible problem; whatever was found when the time ended."""

    def clashes(some: Problem) -> bool | None:
        answer = backend.load(some).minimize(None, {}, deadline.left, seed, 1)
        return None if answer.status is AnswerStatus.UNKNOWN else answer.status is AnswerStatus.INFEASIBLE

    names, minimal = minimal_core(
        problem.constraint_names,
        lambda some: clashes(restricted(problem, constraints=frozenset(some))),
        deadline,
    )
    kept = restricted(problem, constraints=frozenset(names))
    if not names or deadline.passed:
        return Core(tuple(names), minimal, (), False)
    tags = list(backend.clashing_rows(kept, deadline.left, seed))
    rows_minimal = False
    if tags and clashes(restricted(kept, rows=frozenset(tags))) is False:
        tags = []  # the solver's core is none
    if 0 < len(tags) <= MOST_ROWS_TO_MINIMIZE:
        tags, rows_minimal = minimal_core(
            tags, lambda some: clashes(restricted(kept, rows=frozenset(some))), deadline
        )
    return Core(tuple(names), minimal, tuple(tags), rows_minimal)


def restricted(
    problem: Problem, *, constraints: Collection[str] | None = None, rows: Collection[Tag] | None = None
) -> Problem:
    """The problem with the demands of these constraints, or of these rows, alone.  Definitions stay."""

    def keep(source: Source) -> Mask | bool:
        if constraints is not None and source.constraint not in constraints:
            return False
        if rows is None:
            return True
        wanted = [tag.row for tag in rows if tag.constraint == source.constraint]
        found: Mask = np.isin(source.rows, integers(wanted))
        return found

    return problem.restricted(keep)


def shortfall(problem: Problem, rows: Collection[Tag], choices: Lists) -> tuple[int, int] | None:
    """What these linear rows must take at least, and what they allow, when the one exceeds the other.

    Of every choice one literal holds, so that it brings the least that any of its literals brings.  None where that
    bound alone is no proof, or where a row is not of the form "a sum is at most so much".
    """
    brings = filled(problem.variables, 0)
    allowed = 0
    for block in restricted(problem, rows=rows).rows:
        if isinstance(block, LiteralRows) or block.source is None:
            continue
        capacities = _as_capacities(block)
        if capacities is None:
            return None
        linears, room = capacities
        allowed += sum(room.tolist())
        np.add.at(brings, linears.terms.items, linears.coefficients)
    _, upper = problem.fixed()
    variables = choices.items >> 1
    never = 2**62
    least = filled(len(choices), never)
    open_ = upper[variables] == 1
    np.minimum.at(least, choices.owners[open_], brings[variables[open_]])
    needed = sum(least[least < never].tolist())
    return (needed, allowed) if needed > allowed else None


def _as_capacities(block: LinearRows) -> tuple[Linears, Integers] | None:
    """The rows as "a sum of what is not negative is at most so much", if they can be read so."""
    sign = np.where((block.lower > -NO_BOUND) & (block.upper == NO_BOUND), -1, 1)
    linears = block.linears.scaled(sign)
    upper = np.where(sign < 0, -block.lower, block.upper)
    lower = np.where(sign < 0, -block.upper, block.lower)
    readable = (block.enforcement == TRUE) & (lower == -NO_BOUND) & (upper < NO_BOUND)
    if not readable.all() or (linears.coefficients < 0).any():
        return None
    return linears, upper - linears.constants
