"""The choices of an encoding as cells: rows of all its variable columns among the values of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mgmt.compiler.encoding.columns import Choices, Constants, GridOptions, Truths
from mgmt.compiler.encoding.tables import VariableColumn
from mgmt.optimization.assignment import NONE
from mgmt.optimization.columns import FALSE, Integers, filled, integers
from mgmt.optimization.lifting import ChoiceCells, ChoiceColumn
from mgmt.solution import Value

_TRUE, _FALSE = 0, 1
"""The values of truths."""


def cells_of(columns: Sequence[VariableColumn]) -> ChoiceCells | None:
    """None where a column is of numbers, which no choice is between values."""
    found = []
    for column in columns:
        cells = column.cells
        if isinstance(cells, Choices) and isinstance(cells.options, GridOptions):
            grid = cells.options.grid
            required = bool((grid.null == FALSE).all())
            none = filled(0, 0) if required else grid.null >> 1
            steps = grid.values, 1
            today = np.where((codes := _codes(column)) >= 0, 2 + codes, NONE).astype(np.int32)
            found.append(ChoiceColumn(2 + cells.options.in_grid, grid.first, steps, none, required, today))
        elif isinstance(cells, Truths):
            found.append(_of_truths(column, cells))
        else:
            return None
    used = np.unique(np.concatenate([filled(0, 0), *(column.values for column in found)]))
    numbered = (
        replace(
            column,
            values=np.searchsorted(used, column.values),
            current=_places(used, column.current.astype(np.int64)).astype(np.int32),
        )
        for column in found
    )
    return ChoiceCells(len(used), numbered)


def _of_truths(column: VariableColumn, cells: Truths) -> ChoiceColumn:
    """Without NULL what is not true is false: no value of its own."""
    count = len(column)
    nullable = bool((cells.false != cells.true ^ 1).any())
    flags = [NONE if value is None else _TRUE if value else _FALSE for value in column.current]
    today = np.array(flags, np.int64)
    first = int(cells.true[0] >> 1) if count else 0
    steps = 1, int(cells.false[0] >> 1) - first if nullable else 0
    values = integers([_TRUE, _FALSE] if nullable else [_TRUE])
    current = today if nullable else np.where(today == _TRUE, _TRUE, NONE)
    return ChoiceColumn(values, first, steps, filled(0, 0), False, current.astype(np.int32))


def _codes(column: VariableColumn) -> Integers:
    values: Sequence[Value] = column.current
    cells = np.empty(len(values), object)
    cells[:] = values
    return column.values.codes(Constants.of(cells))


def _places(used: Integers, values: Integers) -> Integers:
    """Where the values stand among those in use, or NONE."""
    if not len(used):
        return filled(len(values), NONE)
    place = np.minimum(np.searchsorted(used, values), len(used) - 1)
    return np.where(used[place] == values, place, NONE)
