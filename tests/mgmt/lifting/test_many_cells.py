"""Choices of which every cell written down would be more than fit into any memory."""

from __future__ import annotations

import numpy as np
import pytest

from mgmt.optimization.assignment import NONE
from mgmt.optimization.columns import Linears, Lists, filled, integers
from mgmt.optimization.general.operators import completed, holds
from mgmt.optimization.lifting import ChoiceCells, ChoiceColumn, lift
from mgmt.optimization.problem import Objective, Source
from mgmt.optimization.products import CellRows, FactoredProblem, Side

_ROWS, _VALUES = 20_000, 100_000


@pytest.fixture
def problem() -> FactoredProblem:
    """Each four rows are apart, values hold so much, a row is pinned, others move at a price."""
    found = FactoredProblem()
    (grid,) = found.new_grids([(_ROWS, _VALUES, True)])
    rows, values = np.arange(_ROWS), np.arange(_VALUES)
    groups = Side.of(rows, filled(_ROWS, 1), rows // 4, _ROWS // 4)
    buckets = Side.of(values, filled(_VALUES, 1), values // 10, _VALUES // 10)
    tags = np.arange(len(groups)) * len(buckets), np.arange(len(buckets))
    found.require_cells(CellRows(grid, groups, buckets, False, "apart", *tags))
    everyone = Side.of(rows, 1 + rows % 3, filled(_ROWS, 0), 1)
    loads = found.new_sums(grid, everyone, Side.alone(values), filled(_VALUES, 0), values)
    found.require_range(loads, None, 5, Source("capacity", values))
    found.require_any(
        Lists.side_by_side(grid.literals(integers([7]), integers([70]))), Source("pin", integers([0]))
    )
    found.require_any(Lists.side_by_side(grid.null ^ 1), Source("placed", rows))
    stays = Linears.literals(grid.literals(rows, rows) ^ 1).summed(filled(_ROWS, 0), 1)
    prices = Side.of(values, values, filled(_VALUES, 0), 1)
    worth = found.new_sums(grid, everyone, prices, integers([0]), integers([0]))
    found.objectives.append(Objective("moves", stays.row(0), False, 1, 1))
    found.objectives.append(Objective("price", worth.row(0), False, 2, 1))
    return found


def choices(problem: FactoredProblem) -> ChoiceCells:
    (grid,) = problem.grids
    today = np.arange(_ROWS, dtype=np.int32)
    return ChoiceCells(
        _VALUES, [ChoiceColumn(np.arange(_VALUES), grid.first, (_VALUES, 1), grid.null >> 1, False, today)]
    )


def test_they_are_lifted_with_none_written_down(problem: FactoredProblem) -> None:
    lifted = lift(problem, choices(problem))
    assert (lifted.left_out, lifted.impossible, lifted.whole_tiers) == ((), (), 2)
    assignment = lifted.assignment
    assert {limit.name: (limit.load.groups, limit.load.buckets) for limit in assignment.limits} == {
        "apart": (_ROWS // 4, _VALUES // 10),
        "capacity": (1, _VALUES),
    }
    assert assignment.required.all()
    assert [assignment.allowed[one].sum() for one in assignment.row_class[[6, 7]]] == [_VALUES, 1]


@pytest.mark.parametrize(("row", "value"), [(3, NONE), (5, 41), (7, 71), (8, 10)])
def test_what_they_come_to_is_told_by_what_was_chosen(problem: FactoredProblem, row: int, value: int) -> None:
    """Each of these breaks one demand: somebody is not placed, not apart, not pinned, or there is no room."""
    cells = choices(problem)
    choice = (10 * np.arange(_ROWS) % _VALUES).astype(np.int32)
    values = completed(problem, *cells.held(choice))
    assert values is not None
    assert holds(problem, values)
    choice[row] = value
    values = completed(problem, *cells.held(choice))
    assert values is not None
    assert not holds(problem, values)
