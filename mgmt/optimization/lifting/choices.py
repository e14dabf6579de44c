"""The choices of a problem: which of its literals says of which row that it takes which value.

The cells of a column are a grid, rows by values, so that numbers of variables tell which they are: none is written
down.  A flag beside a choice (which of the copies leads) is a choice, too, of one value or none.  Literals that say of
a row both that it has a value and that its flag holds are cells themselves: those of a row that has the value where the
flag holds, and none where it does not.  So flags are choices that *follow* others, and what depends on a row and its
flag is a sum over the cells of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mgmt.optimization.assignment import NONE, Indices, Mask
from mgmt.optimization.columns import Integers, Lists, filled, group_numbers, integers
from mgmt.optimization.dense_ranks import alike_rows, firsts
from mgmt.optimization.products import FactoredProblem


@dataclass(frozen=True, slots=True, eq=False)
class ChoiceColumn:
    """Rows that choose among the same values: of the cells of a row exactly one holds, or none if it is not required.

    The literal of a cell is that its variable is 1.  Where variables are the same for all values of a row, that one of
    the row's cells holds.
    """

    values: Integers
    """Their numbers among the values of all columns, in the order of the cells."""
    first: int
    """The variable of the first row's cell of the first value."""
    steps: tuple[int, int]
    """From the variable of a cell to that of the next row's, and of the next value's."""
    none: Integers
    """Of each row the variable that says that it has no value; empty where none does."""
    required: bool
    """Whether rows must have values."""
    current: Indices
    """Today's value of each row, or NONE."""

    def __len__(self) -> int:
        return len(self.current)

    def variables(self, rows: Integers, places: Integers) -> Integers:
        """Of the cells of these rows with the values at these places."""
        return self.first + rows * self.steps[0] + places * self.steps[1]

    @property
    def is_grid(self) -> bool:
        """Whether its cells are those of a grid of a problem."""
        return len(self.values) > 0 and self.steps == (len(self.values), 1)

    @property
    def is_flag(self) -> bool:
        """Whether rows have one value, or else none."""
        return len(self.values) == 1 and not self.required and not len(self.none)


class ChoiceCells:
    """The choices of all rows, column by column, and the values of all columns."""

    def __init__(self, values: int, columns: Iterable[ChoiceColumn]) -> None:
        """``values`` is how many there are, of all columns together."""
        self.values = values
        self.columns = tuple(columns)
        self.starts = np.cumsum([0, *map(len, self.columns)])
        """The first row of each column."""

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def column(self) -> Integers:
        """(R,) the column that each row is of; rows of a column are one after the other."""
        return np.repeat(np.arange(len(self.columns)), np.diff(self.starts))

    def _of_rows(self, told: Iterable[int]) -> Integers:
        return np.fromiter(told, np.int64, len(self.columns))[self.column]

    @cached_property
    def required_columns(self) -> Mask:
        """By column whether its rows must have values."""
        return np.array([column.required for column in self.columns], np.bool_)

    @cached_property
    def required(self) -> Mask:
        """(R,) whether a row must have a value."""
        return self.required_columns[self.column]

    @cached_property
    def current(self) -> Indices:
        """(R,) today's value, or NONE."""
        found = np.concatenate([filled(0, 0), *(column.current for column in self.columns)])
        return found.astype(np.int32)

    @cached_property
    def domain_sizes(self) -> Integers:
        """(R,) how many values each row may have."""
        return self._of_rows(len(column.values) for column in self.columns)

    @cached_property
    def domains(self) -> Mask:
        """By column which values its rows may have."""
        found = np.zeros((len(self.columns), self.values), np.bool_)
        for number, column in enumerate(self.columns):
            found[number, column.values] = True
        return found

    @cached_property
    def may_have(self) -> Mask:
        """The same, and behind the values whether rows may have none."""
        return np.append(self.domains, ~self.required_columns[:, None], axis=1)

    def of_domains(self, rows: Integers) -> Lists:
        """The values that these rows may have, in order."""
        lists = Lists.of([np.flatnonzero(domain).tolist() for domain in self.domains])
        return lists.take(self.column[rows])

    def may_be_outside(self, rows: Mask, values: Mask) -> bool:
        """Whether any of these rows may have none of these values."""
        columns = np.unique(self.column[rows])
        optional = any(not self.columns[column].required for column in columns.tolist())
        return optional or bool(self.domains[columns][:, ~values].any())

    def held(self, choice: Indices) -> tuple[dict[int, Integers], Integers, Integers]:
        """A choice as the places of values by the first cell of each grid, and other variables with what they are."""
        grids: dict[int, Integers] = {}
        told: list[tuple[Integers, Mask]] = []
        for column, begin in zip(self.columns, self.starts.tolist(), strict=False):
            mine = choice[begin : begin + len(column)]
            place = filled(self.values + 1, NONE)  # the last: of no value
            place[column.values] = np.arange(len(column.values))
            taken, rows = place[mine], np.arange(len(column))
            if column.is_grid:
                grids[column.first] = taken
            elif not column.steps[1]:
                told.append((column.variables(rows, 0 * rows), taken >= 0))
            else:
                each = range(len(column.values))
                told += [(column.variables(rows, filled(len(rows), at)), taken == at) for at in each]
            if len(column.none):
                told.append((column.none, mine == NONE))
        variables = np.concatenate([filled(0, 0), *(one for one, _ in told)])
        return grids, variables, np.concatenate([filled(0, 0), *(holds for _, holds in told)])


class CellVariables:
    """Which cell each variable of a problem is."""

    def __init__(self, problem: FactoredProblem, cells: ChoiceCells, flagged: Mapping[int, int]) -> None:
        """``flagged``: by the first cell of a grid of flagged choices the column of the flags."""
        self._problem = problem
        rows, tables, starts, size = [filled(0, 0)], [filled(0, 0)], [filled(0, 0)], 0
        own = {column.first: number for number, column in enumerate(cells.columns) if column.is_grid}
        for grid in problem.grids:
            number = {**own, **flagged}.get(grid.first) if grid.values else None
            if number is None:
                rows.append(filled(grid.rows, NONE))
                starts.append(filled(grid.rows, 0))
                continue
            rows.append(cells.starts[number] + np.arange(grid.rows))
            starts.append(filled(grid.rows, size))
            tables.append(cells.columns[number].values)
            size += len(tables[-1])
        self._grid_rows, self._starts, self._tables = map(np.concatenate, (rows, starts, tables))
        count = problem.variables - problem.grid_cells
        self._rows, self._values = filled(count, NONE), filled(count, NONE)
        for begin, column in zip(cells.starts.tolist(), cells.columns, strict=False):
            if column.is_grid or (not column.steps[1] and len(column.values) != 1):
                continue
            row, place = np.arange(len(column))[:, None], np.arange(len(column.values))[None, :]
            variables = column.variables(row, place) - problem.grid_cells
            self._rows[variables], self._values[variables] = begin + row, column.values[place]

    def of(self, variables: Integers) -> tuple[Integers, Integers]:
        """Their rows and values, NONE for what is no cell."""
        count = self._problem.grid_cells
        others = np.maximum(variables - count, 0)
        row, value = self._rows[others], self._values[others]
        inside = (variables > 0) & (variables <= count)
        if inside.any():
            grid_row, place = self._problem.grid_places.rows_and_places(variables[inside])
            row[inside] = self._grid_rows[grid_row]
            value[inside] = self._value_at(grid_row, place)
        return row, value

    def _value_at(self, grid_row: Integers, place: Integers) -> Integers:
        known = self._grid_rows[grid_row] != NONE
        table = np.append(self._tables, NONE)
        return table[np.where(known, self._starts[grid_row] + place, -1)]


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
    rows: Integers
    """Of each of these, the row of the cell that it is."""
    values: Integers
    """And its value."""
    flagged: Mapping[int, int]
    """By the first cell of a grid all of whose cells say both, the column of the flags."""

    @property
    def any(self) -> bool:
        return bool((self.leader != NONE).any())

    def choosing(self, rows: Integers) -> Integers:
        """The rows that these follow; themselves where they follow none."""
        leader = self.leader[rows]
        return np.where(leader == NONE, rows, leader)


def following_rows(problem: FactoredProblem, cells: ChoiceCells) -> FollowingRows:
    """Flags that some literal speaks of together with the choice beside them, in another column of as many rows."""
    known = CellVariables(problem, cells, {})
    one, other, targets = _conjunctions_of_two(problem)
    rows = [known.of(literals >> 1)[0] for literals in (one, other)]
    flag = np.array([column.is_flag for column in cells.columns], np.bool_)
    required = cells.required_columns
    pairs = [filled(0, 0)] * 3
    for left, right, (own, beside) in ((one, other, rows), (other, one, rows[::-1])):
        mine = (left & 1 == 0) & (own != NONE) & (beside != NONE)
        mine[mine] = flag[cells.column[own[mine]]] & required[cells.column[beside[mine]]]
        some = own[mine], right[mine], targets[mine]
        pairs = [np.concatenate(both) for both in zip(pairs, some, strict=True)]
    flags, literals, targets = pairs
    row, value = known.of(literals >> 1)
    grids = _flagged_columns(problem, cells, known)
    leaders = _leaders(cells, flags, row, grids)
    leader = _leading_rows(cells, leaders)
    same = (leader[flags] == row) & (literals & 1 == 0) & (targets & 1 == 0)
    flagged = {first: one for first, (one, other) in grids.items() if leaders[one] == other}
    return FollowingRows(_widened(cells, leaders), leader, targets[same], flags[same], value[same], flagged)


def _conjunctions_of_two(problem: FactoredProblem) -> tuple[Integers, Integers, Integers]:
    """The two literals of each, and its own."""
    parts = [[filled(0, 0)] * 3]
    for block in problem.conjunctions:
        two = np.flatnonzero(block.literals.lengths == 2)
        first = block.literals.starts[two]
        parts.append([block.literals.items[first], block.literals.items[first + 1], block.targets[two]])
    one, other, targets = (np.concatenate(some) for some in zip(*parts, strict=True))
    return one, other, targets


def _flagged_columns(
    problem: FactoredProblem, cells: ChoiceCells, known: CellVariables
) -> dict[int, tuple[int, int]]:
    """By the first cell of each grid of flagged choices: the columns of the flags and of the choices, row by row."""
    found = {}
    for each in problem.flagged_grids:
        if not each.grid.rows or not each.grid.values:
            continue
        rows, _ = known.of(each.flags >> 1)
        (base,), _ = known.of(integers([each.base.first]))
        if base == NONE or bool((rows == NONE).any()):
            continue
        own, other = (int(cells.column[row]) for row in (rows[0], base))
        whole = np.array_equal(rows, np.arange(*cells.starts[own : own + 2]))
        if whole and cells.columns[own].is_flag and cells.columns[other].required:
            found[each.grid.first] = own, other
    return found


def _leaders(
    cells: ChoiceCells, flags: Integers, rows: Integers, grids: Mapping[int, tuple[int, int]]
) -> list[int]:
    """Of each column the one that it follows, or NONE: the one that most is said of together with it, row by row."""
    place = np.arange(cells.rows) - cells.starts[cells.column]
    lengths = np.diff(cells.starts)
    one, other = cells.column[flags], cells.column[rows]
    beside = (place[flags] == place[rows]) & (lengths[one] == lengths[other])
    times = Counter(zip(one[beside].tolist(), other[beside].tolist(), strict=True))
    for own, base in grids.values():
        times[own, base] += len(cells.columns[own]) * len(cells.columns[base].values)
    found = [NONE] * len(cells.columns)
    for own, base in sorted(times, key=lambda pair: (-times[pair], pair)):
        if found[own] == NONE:
            found[own] = base
    return found


def _leading_rows(cells: ChoiceCells, leaders: Sequence[int]) -> Integers:
    found = filled(cells.rows, NONE)
    for own, base in enumerate(leaders):
        if base != NONE:
            rows = np.arange(len(cells.columns[own]))
            found[cells.starts[own] + rows] = cells.starts[base] + rows
    return found


def _widened(cells: ChoiceCells, leaders: Sequence[int]) -> ChoiceCells:
    """With a cell for each value that the row may have which is followed."""
    columns = []
    for column, number in zip(cells.columns, leaders, strict=True):
        if number != NONE:
            leader = cells.columns[number]
            current = np.where(column.current == NONE, NONE, leader.current)
            column = replace(column, values=leader.values, steps=(1, 0), current=current)
        columns.append(column)
    return ChoiceCells(cells.values, columns)


# ---- what rows may have -----------------------------------------------------------------------------


class AllowedValues:
    """Which values rows may have: rows in classes of those that are alike."""

    def __init__(self, row_class: Integers, table: Mask) -> None:
        self.row_class, self.table = row_class, table
        """``table``: by class."""

    @classmethod
    def of(cls, cells: ChoiceCells) -> AllowedValues:
        """What there are cells of."""
        return cls(cells.column, cells.domains)

    @classmethod
    def everything(cls, rows: int, values: int) -> AllowedValues:
        return cls(filled(rows, 0), np.ones((1, values), np.bool_))

    def keep(self, rows: Integers, number: Integers, tables: Mask) -> None:
        """These rows have, besides, only values of ``tables[number]``; a row may be there more than once."""
        if not len(rows):
            return
        first, place = group_numbers(rows)
        kinds = Lists.grouped(place, number, len(first)).distinct()
        example, kind = kinds.alike()
        patterns = np.stack([tables[kinds.row(one)].all(0) for one in example.tolist()])
        rows = rows[first]
        fresh, made = group_numbers(self.row_class[rows], kind)
        table = self.table[self.row_class[rows[fresh]]] & patterns[kind[fresh]]
        changed = self.row_class.copy()
        changed[rows] = len(self.table) + made
        used, changed = np.unique(changed, return_inverse=True)
        self.row_class, self.table = changed, np.concatenate((self.table, table))[used]

    def forbid(self, rows: Integers, values: Integers) -> None:
        """None of these rows has one of these values."""
        table = np.ones((1, self.table.shape[1]), np.bool_)
        table[0, values] = False
        self.keep(rows, filled(len(rows), 0), table)

    def classes(self) -> tuple[Integers, Mask]:
        """The class of each row, and what rows of each may have, no two classes alike."""
        rank, number = alike_rows(self.table)
        return rank[self.row_class], self.table[firsts(rank, number)]
