"""The choices of a problem: which of its literals says of which row that it takes which value.

A flag beside a choice (which of the copies leads) is a choice, too, of one value or none.  Literals that say of a row
both that it has a value and that its flag holds are cells themselves: those of a row that has the value where the flag
holds, and none where it does not.  So flags are choices that *follow* others, and what depends on a row and its flag is
a sum over the cells of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mgmt.optimization.assignment import NONE, Indices, Mask
from mgmt.optimization.columns import Integers, Lists, filled, group_numbers
from mgmt.optimization.problem import Problem
from mgmt.optimization.products import FactoredProblem

_NO_CELL = -1


@dataclass(frozen=True, slots=True, eq=False)
class ChoiceCells:
    """R rows choose among V values; of the cells of a row exactly one holds, or none where it is not required.

    Rows may be of several variable columns, and values of several domains: what may be chosen is what there is a cell
    of.  A literal of "no value" is a cell of the value NONE.  Several cells of a row may be of one variable, which says
    that one of them holds.
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
    column: Integers
    """(R,) the column that each row is of; rows of a column are one after the other."""

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
        holds = filled(int(self.variable.max(initial=0)) + 1, 0)
        holds[self.variable[choice[self.row] == self.value]] = 1
        return holds[self.variable]

    def domain_sizes(self) -> Integers:
        """(R,) how many values each row may have."""
        found: Integers = np.bincount(self.row[self.placed], minlength=self.rows)
        return found

    def with_none(self) -> Integers:
        """(R,) the variable that says that a row has no value; -1 where there is none."""
        found = filled(self.rows, -1)
        found[self.row[~self.placed]] = self.variable[~self.placed]
        return found


# ---- flags beside choices ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class FollowingRows:
    """Choices with flags among them as rows that follow others."""

    cells: ChoiceCells
    """A cell of a row that follows is one for each value, all of the one variable."""
    leader: Integers
    """(R,) the row that each follows, or NONE."""
    literals: Integers
    """Literals that say both of a row and its flag, and never the negation of one."""
    keys: Integers
    """Of each of these the cell that it is, ``row * values + value``."""

    @property
    def any(self) -> bool:
        return bool((self.leader != NONE).any())

    def choosing(self, rows: Integers) -> Integers:
        """The rows that these follow; themselves where they follow none."""
        leader = self.leader[rows]
        return np.where(leader == NONE, rows, leader)


def following_rows(problem: Problem, cells: ChoiceCells) -> FollowingRows:
    """Flags that some literal speaks of together with the choice beside them, in another column of as many rows."""
    row, value = _of_variables(problem, cells)
    one, other, targets = _conjunctions_of_two(problem)
    flag = _is_flag(cells)
    pairs = [filled(0, 0)] * 3
    for left, right in ((one, other), (other, one)):
        mine = (left & 1 == 0) & (row[left >> 1] != NONE) & (row[right >> 1] != NONE)
        mine[mine] = flag[row[left[mine] >> 1]] & cells.required[row[right[mine] >> 1]]
        found = row[left[mine] >> 1], right[mine], targets[mine]
        pairs = [np.concatenate(both) for both in zip(pairs, found, strict=True)]
    flags, literals, targets = pairs
    leader = _leaders(cells, flag, flags, row[literals >> 1])
    known = (leader[flags] == row[literals >> 1]) & (literals & 1 == 0) & (targets & 1 == 0)
    keys = flags[known] * cells.values + value[literals[known] >> 1]
    return FollowingRows(_widened(cells, leader), leader, targets[known], keys)


def _of_variables(problem: Problem, cells: ChoiceCells) -> tuple[Integers, Integers]:
    """The row and the value that each variable is a cell of, or NONE."""
    row, value = filled(problem.variables, NONE), filled(problem.variables, NONE)
    placed = cells.placed
    row[cells.variable[placed]] = cells.row[placed]
    value[cells.variable[placed]] = cells.value[placed]
    return row, value


def _conjunctions_of_two(problem: Problem) -> tuple[Integers, Integers, Integers]:
    """The two literals of each, and its own."""
    parts = [[filled(0, 0)] * 3]
    for block in problem.conjunctions:
        two = np.flatnonzero(block.literals.lengths == 2)
        first = block.literals.starts[two]
        parts.append([block.literals.items[first], block.literals.items[first + 1], block.targets[two]])
    flagged = problem.flagged_grids if isinstance(problem, FactoredProblem) else []
    parts += [[each.parts.items[::2], each.parts.items[1::2], each.cells] for each in flagged]
    one, other, targets = (np.concatenate(some) for some in zip(*parts, strict=True))
    return one, other, targets


def _is_flag(cells: ChoiceCells) -> Mask:
    """(R,) which rows have a single cell, or else no value."""
    found: Mask = (np.bincount(cells.row, minlength=cells.rows) == 1) & ~cells.required
    return found


def _leaders(cells: ChoiceCells, flag: Mask, flags: Integers, rows: Integers) -> Integers:
    """(R,) what each row follows: a column of flags the one that most is said of together with it, row by row."""
    leader = filled(cells.rows, NONE)
    columns = Lists.grouped(cells.column, np.arange(cells.rows), int(cells.column.max(initial=NONE)) + 1)
    place = np.arange(cells.rows) - columns.starts[:-1][cells.column]
    lengths = columns.lengths[cells.column]
    beside = (place[flags] == place[rows]) & (lengths[flags] == lengths[rows])
    first, pair = group_numbers(cells.column[flags[beside]], cells.column[rows[beside]])
    for number in np.argsort(-np.bincount(pair, minlength=len(first)), kind="stable").tolist():
        one, other = (columns.row(int(cells.column[side[beside][first[number]]])) for side in (flags, rows))
        if not bool((leader[one] != NONE).any()):
            follows = flag[one] & cells.required[other]
            leader[one[follows]] = other[follows]
    return leader


def _widened(cells: ChoiceCells, leader: Integers) -> ChoiceCells:
    """With a cell for each value that the row may have which is followed."""
    if not bool((leader != NONE).any()):
        return cells
    follows = np.flatnonzero(leader != NONE)
    of_row = Lists.grouped(cells.row, np.arange(len(cells.row)), cells.rows).take(leader[follows])
    own = filled(cells.rows, _NO_CELL)
    own[cells.row] = cells.variable
    kept = leader[cells.row] == NONE
    beside, flags = of_row.items, follows[of_row.owners]
    flagged = (leader != NONE) & (cells.current != NONE)
    current = np.where(flagged, cells.current[leader], np.where(leader != NONE, NONE, cells.current))
    return replace(
        cells,
        row=np.concatenate((cells.row[kept], flags)),
        value=np.concatenate((cells.value[kept], cells.value[beside])),
        variable=np.concatenate((cells.variable[kept], own[flags])),
        current=current.astype(np.int32),
    )
