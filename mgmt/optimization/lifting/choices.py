"""The choices of a problem: which of its literals says of which row that it takes which value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgmt.optimization.assignment import NONE, Indices, Mask
from mgmt.optimization.columns import Integers, filled


@dataclass(frozen=True, slots=True, eq=False)
class ChoiceCells:
    """R rows choose among V values; of the cells of a row exactly one holds, or none where it is not required.

    Rows may be of several variable columns, and values of several domains: what may be chosen is what there is a cell
    of.  A literal of "no value" is a cell of the value NONE.
    """

    rows: int
    values: int
    row: Integers
    """Of each cell."""
    value: Integers
    """Of each cell, or NONE."""
    variable: Integers
    """Of each cell: its literal is that this is 1."""
    required: Mask
    """(R,) whether a row must have a value."""
    current: Indices
    """(R,) today's value, or NONE."""

    @property
    def placed(self) -> Mask:
        """Which cells are of a value."""
        found: Mask = self.value != NONE
        return found

    def allowed(self) -> Mask:
        """(R, V) of which rows and values there are cells."""
        found = np.zeros((self.rows, self.values), np.bool_)
        placed = self.placed
        found[self.row[placed], self.value[placed]] = True
        return found

    def held(self, choice: Indices) -> Integers:
        """What the variables of the cells are under a choice."""
        found: Integers = (choice[self.row] == self.value).astype(np.int64)
        return found

    def domain_sizes(self) -> Integers:
        """(R,) how many values each row may have."""
        found: Integers = np.bincount(self.row[self.placed], minlength=self.rows)
        return found

    def with_none(self) -> Integers:
        """(R,) the variable that says that a row has no value; -1 where there is none."""
        found = filled(self.rows, -1)
        found[self.row[~self.placed]] = self.variable[~self.placed]
        return found
