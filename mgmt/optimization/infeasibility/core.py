"""Why there is no solution: a minimal set of constraints that clash, down to their rows.

Constraints are dropped one by one, each time solving the rest without objectives (k constraints cost k cheap
solves); what cannot be dropped without the rest becoming satisfiable is the core.  Rows come from the solver's
own core over the surviving constraints, and are dropped one by one in the same way while they are few.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from mgmt.optimization.backends import AnswerStatus, Backend
from mgmt.optimization.infeasibility.minimal_core import minimal_core
from mgmt.optimization.problem import TRUE, Problem, Row, Tag, scale

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


def find_core(problem: Problem, backend: Backend, *, budget: float, seed: int) -> Core:
    """The core of an infeasible problem, found within about ``budget`` seconds."""
    deadline = time.monotonic() + budget

    def clashes(some: Problem) -> bool | None:
        answer = backend.load(some).minimize(None, {}, deadline - time.monotonic(), seed, 1)
        return None if answer.status is AnswerStatus.UNKNOWN else answer.status is AnswerStatus.INFEASIBLE

    names, minimal = minimal_core(
        problem.constraint_names,
        lambda some: clashes(restricted(problem, constraints=frozenset(some))),
        deadline,
    )
    kept = restricted(problem, constraints=frozenset(names))
    remaining = deadline - time.monotonic()
    if not names or remaining <= 0:
        return Core(tuple(names), minimal, (), False)
    tags = list(backend.clashing_rows(kept, remaining, seed))
    rows_minimal = False
    if 0 < len(tags) <= MOST_ROWS_TO_MINIMIZE:
        tags, rows_minimal = minimal_core(
            tags, lambda some: clashes(restricted(kept, rows=frozenset(some))), deadline
        )
    return Core(tuple(names), minimal, tuple(tags), rows_minimal)


def restricted(
    problem: Problem, *, constraints: Collection[str] | None = None, rows: Collection[Tag] | None = None
) -> Problem:
    """The problem with the demands of these constraints, or of these rows, alone.  Definitions stay."""

    def stays(tag: Tag | None) -> bool:
        if tag is None:
            return True
        return (constraints is None or tag.constraint in constraints) and (rows is None or tag in rows)

    return replace(
        problem,
        clauses=[part for part in problem.clauses if stays(part.tag)],
        cardinalities=[part for part in problem.cardinalities if stays(part.tag)],
        rows=[part for part in problem.rows if stays(part.tag)],
        redundant=[],
    )


def shortfall(
    problem: Problem, rows: Collection[Tag], choices: Sequence[Sequence[int]]
) -> tuple[int, int] | None:
    """What these linear rows must take at least, and what they allow, when the one exceeds the other.

    Of every choice one literal holds, so that it brings the least that any of its literals brings.  None where that
    bound alone is no proof, or where a row is not of the form "a sum is at most so much".
    """
    wanted = [_as_capacity(row) for row in problem.rows if row.tag in rows]
    brings: dict[int, int] = {}
    allowed = 0
    for row in wanted:
        if row is None or row.upper is None:
            return None
        allowed += row.upper - row.linear.constant
        for variable, factor in zip(row.linear.variables, row.linear.coefficients, strict=True):
            brings[variable] = brings.get(variable, 0) + factor
    settled = problem.fixed()
    needed = sum(
        min(
            (brings.get(literal // 2, 0) for literal in literals if settled.get(literal // 2, 1) == 1),
            default=0,
        )
        for literals in choices
        if not any(literal & 1 for literal in literals)
    )
    return (needed, allowed) if needed > allowed else None


def _as_capacity(row: Row) -> Row | None:
    """The row as "a sum of what is not negative is at most so much", if it can be read so."""
    if row.lower is not None and row.upper is None:
        row = replace(row, linear=scale(row.linear, -1), lower=None, upper=-row.lower)
    if row.enforcement != TRUE or row.lower is not None or min(row.linear.coefficients, default=0) < 0:
        return None
    return row
