"""A rule solved by engines and by the constraint model: both must find the same."""

from __future__ import annotations

from functools import lru_cache

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError
from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.solution import Solution
from mgmt.source_text import SourceText
from mgmt.state.database import Database
from tests.mgmt.support import database, solution_value

PLACED = """
CREATE CONSTRAINT placed AS SELECT id FROM task WHERE variable__host IS NULL MINIMIZE count(*) TIER 1;
CREATE CONSTRAINT room AS SELECT host.name FROM task JOIN host ON task.variable__host = host.name
  GROUP BY host.name CHECK count(*) <= 2;
CREATE CONSTRAINT size AS SELECT id FROM task JOIN host ON task.variable__host = host.name
  MINIMIZE sum(host.size * (1 + task.kind)) TIER 2;
"""


@lru_cache(maxsize=8)
def _compiled(schema: tuple[SourceText, ...], policies: str, by_engines: bool) -> Model:
    """Compiled once for the states of all seeds."""
    (text,) = schema
    return Model.build(database(text.text), policies, backend=None if by_engines else CpSatBackend())


def compared(rows: Database, policies: str, case: str) -> Solution | None:
    """The answer, as good as the one of the constraint model alone; None where both find that there is none."""
    fast, slow = (
        _compiled(rows.schema_texts, policies, each).revised(database=rows) for each in (True, False)
    )
    try:
        expected = solution_value(slow, slow.solve(budget=60, clashes=False))
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            fast.solve(budget=60)
        return None
    solution = fast.solve(budget=60)
    assert solution_value(fast, solution) == expected, case
    return solution


def by_engines(solution: Solution | None) -> bool:
    """Whether engines decided every part wholly, or nothing was to be decided; also where there is no solution."""
    return solution is None or not solution.statistics["left_out"]


def makes_a_difference(rows: Database, solution: Solution | None) -> bool:
    """Whether the best is worth something else, or there is one, where only PLACED is asked."""
    if solution is None:
        return True
    free = _compiled(rows.schema_texts, PLACED, True).revised(database=rows)
    return solution_value(free, free.solve(budget=60)) != solution_value(free, solution)
