"""A rule solved in whole columns and cell by cell: both must find the same."""

from __future__ import annotations

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError
from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.state.database import Database
from tests.mgmt.support import solution_value

PLACED = """
CREATE CONSTRAINT placed AS SELECT id FROM task WHERE variable__host IS NULL MINIMIZE count(*) TIER 1;
CREATE CONSTRAINT room AS SELECT host.name FROM task JOIN host ON task.variable__host = host.name
  GROUP BY host.name CHECK count(*) <= 2;
CREATE CONSTRAINT size AS SELECT id FROM task JOIN host ON task.variable__host = host.name
  MINIMIZE sum(host.size * (1 + task.kind)) TIER 2;
"""


def compared(rows: Database, rule: str, case: str) -> tuple[set[str], bool]:
    """The roads that were gone, none where there is no solution, and whether the rule makes a difference."""
    fast = Model.build(rows, rule + PLACED)
    slow = Model.build(rows, rule + PLACED, backend=CpSatBackend())
    try:
        expected = solution_value(slow, slow.solve(budget=60))
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            fast.solve(budget=60)
        return set(), True
    solution = fast.solve(budget=60)
    assert solution_value(fast, solution) == expected, case
    free = Model.build(rows, PLACED)
    roads = set(solution.statistics["roads"])  # type: ignore[call-overload]
    return roads, solution_value(free, free.solve(budget=60)) != expected
