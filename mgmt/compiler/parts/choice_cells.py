"""The choices of an encoding as cells: rows of all its variable columns among the values of all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgmt.compiler.encoding.columns import Choices, Constants, Truths
from mgmt.compiler.encoding.tables import VariableColumn
from mgmt.optimization.assignment import NONE
from mgmt.optimization.columns import FALSE, Integers, filled
from mgmt.optimization.lifting import ChoiceCells
from mgmt.solution import Value

_TRUE, _FALSE = 0, 1
"""The values of truths."""


def cells_of(columns: Sequence[VariableColumn]) -> ChoiceCells | None:
    """None where a column is of numbers, which no choice is between values."""
    rows: list[Integers] = []
    values: list[Integers] = []
    variables: list[Integers] = []
    required, current = [], []
    first = 0
    for column in columns:
        count, cells = len(column), column.cells
        if isinstance(cells, Choices):
            options = cells.options
            free = np.flatnonzero(options.null != FALSE)
            rows += [first + options.codes.owners, first + free]
            values += [2 + options.codes.items, filled(len(free), NONE)]
            variables += [options.literals >> 1, options.null[free] >> 1]
            required.append(options.null == FALSE)
            current.append(np.where((codes := _codes(column)) >= 0, 2 + codes, NONE))
        elif isinstance(cells, Truths):
            # Without NULL what is not true is false: no value of its own.
            nullable = bool((cells.false != cells.true ^ 1).any())
            each = first + np.arange(count)
            rows += [each, each] if nullable else [each]
            values += [filled(count, _TRUE), filled(count, _FALSE)] if nullable else [filled(count, _TRUE)]
            variables += [cells.true >> 1, cells.false >> 1] if nullable else [cells.true >> 1]
            required.append(np.zeros(count, np.bool_))
            flags = [NONE if value is None else _TRUE if value else _FALSE for value in column.current]
            known = np.array(flags, np.int64)
            current.append(known if nullable else np.where(known == _TRUE, _TRUE, NONE))
        else:
            return None
        first += count
    value = np.concatenate([filled(0, 0), *values])
    used = np.unique(value[value >= 0])
    today = np.concatenate([filled(0, 0), *current])
    return ChoiceCells(
        first,
        len(used),
        np.concatenate([filled(0, 0), *rows]),
        _places(used, value),
        np.concatenate([filled(0, 0), *variables]),
        np.concatenate([np.zeros(0, np.bool_), *required]),
        _places(used, today).astype(np.int32),
        np.repeat(np.arange(len(columns)), list(map(len, columns))),
    )


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
