"""Sums over the cells of choices that are not written down: rows in groups times values in groups.

A *cell* is the variable that says of a row that it takes a value.  Where a query joins rows with the values that they
choose, and nothing else joins them, each of its sums is over the cells of some rows with some values, and the weight of
a cell is one number of the row times one of the value.  Such a sum is a number of its own: it stands in linear
expressions as a variable does, under a number below 0, and costs what its rows and its values take, not their product.

What it is not: what the cells are, written out, is ``general.expansion``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from mgmt.optimization.columns import (
    FALSE,
    LIMIT,
    Integers,
    Linears,
    Lists,
    filled,
    integers,
    stacked,
    too_large,
)
from mgmt.optimization.problem import Definitions, Problem, Thresholds, in_order

_UNKNOWN = -1


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The choices of ``rows`` rows among the same ``values`` values: a cell for each, row by row from ``first``.

    Of the cells of a row and its literal of NULL exactly one holds.
    """

    first: int
    rows: int
    values: int
    null: Integers

    def literals(self, rows: Integers, values: Integers) -> Integers:
        """Of the cells of these rows with these values."""
        return 2 * (self.first + rows * self.values + values)

    @property
    def cells(self) -> Integers:
        """The literals of all cells, row by row."""
        return self.literals(np.arange(self.rows)[:, None], np.arange(self.values)[None, :]).ravel()

    @property
    def all_literals(self) -> Lists:
        """Of each row all of which exactly one holds."""
        nullable = np.flatnonzero(self.null != FALSE)
        owners = np.concatenate((np.repeat(np.arange(self.rows), self.values), nullable))
        return Lists.grouped(owners, np.concatenate((self.cells, self.null[nullable])), self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class FlaggedGrid:
    """The choices of ``base`` where the flags of the rows hold, and none where they do not: the cells of ``grid``."""

    base: Grid
    grid: Grid

    @property
    def flags(self) -> Integers:
        return self.grid.null ^ 1

    @property
    def cells(self) -> Integers:
        """The literals of all its cells, row by row; each holds where that of ``base`` does and the row's flag."""
        return self.grid.cells

    @property
    def parts(self) -> Lists:
        """Of each cell that of ``base``, and the flag."""
        return Lists.side_by_side(self.base.cells, np.repeat(self.flags, self.grid.values))


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """Rows, or values, in groups: in order and none twice in a group, each with its weight there."""

    members: Lists
    weights: Integers

    @classmethod
    def of(cls, members: Integers, weights: Integers, groups: Integers, count: int) -> Side:
        """``count`` groups, the weights of what is several times in one added up."""
        found = Linears.single(members).scaled(weights).summed(groups, count)
        return cls(found.terms, found.coefficients)

    @classmethod
    def alone(cls, members: Integers) -> Side:
        """Each in a group of its own."""
        count = len(members)
        return cls(Lists(np.arange(count + 1), members), filled(count, 1))

    def __len__(self) -> int:
        return len(self.members)

    def take(self, groups: Integers) -> Side:
        """Some of the groups."""
        places, starts = self.members.places(groups)
        return Side(Lists(starts, self.members.items[places]), self.weights[places])

    def totals(self, weights: Integers) -> Integers:
        """The sums of these, one for each member, by group."""
        found = filled(len(self), 0)
        np.add.at(found, self.members.owners, weights)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """The numbers ``first``, ``first - 1``, ...: for each pair of a group of rows and one of values the sum of cells.

    A cell counts with the weight of its row times that of its value.
    """

    first: int
    grid: Grid
    rows: Side
    values: Side
    row_groups: Integers
    value_groups: Integers

    def __len__(self) -> int:
        return len(self.row_groups)

    @property
    def numbers(self) -> Integers:
        return self.first - np.arange(len(self))

    @property
    def sizes(self) -> Integers:
        """How many cells each is over."""
        return self.rows.members.lengths[self.row_groups] * self.values.members.lengths[self.value_groups]

    def written_out(self, places: Integers) -> Linears:
        """Some of them as sums of cells, the cells of each in order."""
        rows, starts = self.rows.members.places(self.row_groups[places])
        owners = np.repeat(np.arange(len(places)), np.diff(starts))
        values, starts = self.values.members.places(self.value_groups[places][owners])
        rows = np.repeat(rows, np.diff(starts))
        cells = self.grid.literals(self.rows.members.items[rows], self.values.members.items[values]) >> 1
        weights = self.rows.weights[rows] * self.values.weights[values]
        lengths = np.bincount(np.repeat(owners, np.diff(starts)), minlength=len(places))
        terms = Lists(np.concatenate(([0], np.cumsum(lengths))), cells)
        return Linears(filled(len(places), 0), terms, weights)

    def worth(self, chosen: Integers) -> Integers:
        """What each comes to if each row of the grid takes this value, or none (-1)."""
        known, totals = _there(self.rows, self.values, chosen, self.grid.values)
        wanted = self.row_groups * len(self.values) + self.value_groups
        place = np.searchsorted(known, wanted)
        there = np.append(known, -1)[place] == wanted
        found: Integers = np.where(there, np.append(totals, 0)[place], 0)
        return found

    def ranges(self) -> tuple[Integers, Integers]:
        """Each row takes one value at most.  OverflowError beyond 64 bits."""
        above, below = np.maximum(self.rows.weights, 0), np.minimum(self.rows.weights, 0)
        least, most = filled(len(self.values), 0), filled(len(self.values), 0)
        np.minimum.at(least, self.values.members.owners, self.values.weights)
        np.maximum.at(most, self.values.members.owners, self.values.weights)
        gains = [self.rows.totals(part)[self.row_groups] for part in (above, below)]
        ends = [end[self.value_groups] for end in (least, most)]
        reach = np.abs(np.array(gains, np.float64)).sum(0) * np.abs(np.array(ends, np.float64)).max(0)
        if len(reach) and reach.max() > LIMIT:
            raise too_large(int(reach.max()))
        return gains[0] * ends[0] + gains[1] * ends[1], gains[0] * ends[1] + gains[1] * ends[0]


def _there(rows: Side, values: Side, chosen: Integers, width: int) -> tuple[Integers, Integers]:
    """``row group * value groups + value group`` of those that some row's choice is in, in order, and their sums."""
    value = chosen[rows.members.items]
    placed = np.flatnonzero(value >= 0)
    of_value = Lists.grouped(values.members.items, np.arange(len(values.members.items)), width)
    places, starts = of_value.places(value[placed])
    entry, places = np.repeat(placed, np.diff(starts)), of_value.items[places]
    keys = rows.members.owners[entry] * len(values) + values.members.owners[places]
    known, number = np.unique(keys, return_inverse=True)
    totals = filled(len(known), 0)
    np.add.at(totals, number, rows.weights[entry] * values.weights[places])
    return known, totals


@dataclass(frozen=True, slots=True, eq=False)
class CellRows:
    """Of the cells of every group of rows with every group of values at most one holds, or none.

    That of a group of rows and one of values is demanded by the row ``row_tags + value_tags`` of a constraint.
    """

    grid: Grid
    rows: Side
    values: Side
    none: bool
    constraint: str
    row_tags: Integers
    value_tags: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Occupied:
    """Each target literal holds exactly when the sum of this number, of no negative weight, is above 0."""

    targets: Integers
    numbers: Integers


def _chosen(grid: Grid, values: Integers) -> Integers:
    """The place of the value that each row takes, or -1."""
    held = values[grid.first : grid.first + grid.rows * grid.values].reshape(grid.rows, grid.values)
    if not held.size:
        return filled(grid.rows, -1)
    return np.where(held.any(1), held.argmax(1), -1)


@dataclass(frozen=True, slots=True, eq=False)
class GridPlaces:
    """Where among the variables the cells of grids are, one grid after the other."""

    firsts: Integers
    values: Integers
    rows_before: Integers
    """How many rows the grids before each have."""

    @classmethod
    def of(cls, grids: Sequence[Grid]) -> GridPlaces:
        some = [grid for grid in grids if grid.rows and grid.values]
        rows = np.cumsum([0, *(grid.rows for grid in grids)])
        before = [
            before for grid, before in zip(grids, rows.tolist(), strict=False) if grid.rows and grid.values
        ]
        return cls(
            integers([grid.first for grid in some]),
            integers([grid.values for grid in some]),
            integers(before),
        )

    def rows_and_places(self, cells: Integers) -> tuple[Integers, Integers]:
        """Of each of these variables, all of them cells, the row among those of all grids, and the value's place."""
        if len(self.firsts) == 1:
            row, place = np.divmod(cells - self.firsts[0], self.values[0])
            return row + self.rows_before[0], place
        grid = np.searchsorted(self.firsts, cells, side="right") - 1
        row, place = np.divmod(cells - self.firsts[grid], self.values[grid])
        return row + self.rows_before[grid], place


@dataclass(frozen=True, slots=True, eq=False)
class FactoredValues:
    """What the variables of a factored problem and its sums are: of each choice the value, of all others numbers.

    It is indexed by variables as an array of them all would be.
    """

    problem: FactoredProblem
    chosen: Integers
    """By row, of one grid after the other: the place of the value that it takes, or -1."""
    others: Integers
    """Of the constant, of the variables after the cells, and from the end of sums."""

    @classmethod
    def of(cls, problem: FactoredProblem, values: Integers) -> FactoredValues:
        """Of the values of all variables, or more: those of sums follow."""
        chosen = np.concatenate([filled(0, 0), *(_chosen(grid, values) for grid in problem.grids)])
        plain = np.append(values[:1], values[1 + problem.grid_cells : problem.variables])
        return cls(problem, chosen, plain).with_sums()

    def with_sums(self) -> FactoredValues:
        sums = [block.worth(self.choice(block.grid)) for block in self.problem.sums]
        return replace(self, others=np.append(self.others, np.concatenate([filled(0, 0), *sums])[::-1]))

    def choice(self, grid: Grid) -> Integers:
        """The place of the value that each row takes, or -1."""
        grids = self.problem.grids
        wanted = grid.first, grid.rows, grid.values
        number = next(n for n, each in enumerate(grids) if (each.first, each.rows, each.values) == wanted)
        begin = sum(each.rows for each in grids[:number])
        return self.chosen[begin : begin + grid.rows]

    def __getitem__(self, variables: Integers) -> Integers:
        cells = self.problem.grid_cells
        found = self.others[np.where(variables < 0, variables, np.maximum(variables - cells, 0))]
        inside = (variables > 0) & (variables <= cells)
        if inside.any():
            rows, places = self.problem.grid_places.rows_and_places(variables[inside])
            found[inside] = self.chosen[rows] == places
        return found

    def whole(self) -> Integers:
        """Of all variables, the cells one by one."""
        return self[np.arange(self.problem.variables)]


_GROWING = (
    *("rows", "redundant", "operations", "conjunctions", "gates", "thresholds", "totals", "equalities"),
    *("written_sums", "objectives", "choices", "grids", "flagged_grids", "sums", "cell_rows", "occupied"),
)
"""What is in lists."""


@dataclass(frozen=True, slots=True, eq=False)
class Size:
    """How much of a problem there was at some moment."""

    lists: tuple[int, ...]
    variables: int
    grid_cells: int
    sums: int
    cells: int
    zeros: int


@dataclass(frozen=True, slots=True, eq=False)
class Addition:
    """What a problem grew by from one moment to another."""

    blocks: dict[str, list[Any]]
    """By the name of the list that they are in."""
    variables: int
    grid_cells: int
    limits: tuple[Integers, Integers]
    """Of the variables that are no cells."""
    sum_limits: tuple[Integers, Integers]
    cells: int
    zeros: dict[int, int]
    pairs: tuple[Integers, Integers]
    """All of them at the end, as the next."""
    above_zero: Integers

    @property
    def numbering(self) -> tuple[object, ...]:
        """What the numbers of what comes after it depend on."""
        rows, sums = len(self.blocks.get("rows", ())), len(self.sum_limits[0])
        return self.variables, self.grid_cells, rows, sums, self.zeros, self.pairs, self.above_zero


@dataclass(slots=True)
class FactoredProblem(Problem):
    """A problem with choices whose cells are not written down.

    The cells come before all other variables; sums are numbered downwards from -1.
    """

    grids: list[Grid] = field(default_factory=list)
    flagged_grids: list[FlaggedGrid] = field(default_factory=list)
    """Some of them again: choices beside flags."""
    sums: list[Sums] = field(default_factory=list)
    cell_rows: list[tuple[int, CellRows]] = field(default_factory=list)
    """Each with the number of blocks of other rows that came before it."""
    occupied: list[Occupied] = field(default_factory=list)
    _cells: int = 0
    _sum_count: int = 0
    _sum_lower: list[Integers] = field(default_factory=list)
    _sum_upper: list[Integers] = field(default_factory=list)
    _above_zero: Integers = field(default_factory=lambda: filled(0, _UNKNOWN))
    """Of each sum the literal under which it is above 0, where somebody asked."""
    _places: GridPlaces | None = None

    # ---- cells and sums -----------------------------------------------------------------------------

    def new_grids(self, sizes: Sequence[tuple[int, int, bool]]) -> list[Grid]:
        """Choices of so many rows among so many values, nullable or not; before any other variable."""
        assert self._count == 1
        found = []
        for rows, values, _ in sizes:
            found.append(Grid(1 + self._cells, rows, values, filled(rows, FALSE)))
            self._cells += rows * values
        self._count += self._cells
        self.grids = [
            replace(grid, null=self.new_literals(grid.rows)) if nullable else grid
            for grid, (_, _, nullable) in zip(found, sizes, strict=True)
        ]
        return self.grids

    def flag(self, base: Grid, grid: Grid, flags: Integers) -> None:
        """One of the grids becomes the choices of another one in the rows where these literals hold."""
        flagged = FlaggedGrid(base, replace(grid, null=flags ^ 1))
        self.grids[self.grids.index(grid)] = flagged.grid
        self.flagged_grids.append(flagged)

    def flagged(self, base: Grid, rows: Integers, flags: Integers) -> Grid | None:
        """The grid of these choices where these literals hold, one for each row."""
        for each in self.flagged_grids:
            if each.base is base and bool((each.flags[rows] == flags)[rows >= 0].all()):
                return each.grid
        return None

    def new_sums(
        self, grid: Grid, rows: Side, values: Side, row_groups: Integers, value_groups: Integers
    ) -> Linears:
        """The sums of these pairs of groups, one in each row."""
        made = Sums(-1 - self._sum_count, grid, rows, values, row_groups, value_groups)
        low, high = made.ranges()
        self.grow(len(rows.weights) + len(values.weights) + 2 * len(made))
        self.sums.append(made)
        self._sum_lower.append(low)
        self._sum_upper.append(high)
        self._sum_count += len(made)
        return Linears.single(made.numbers)

    def require_cells(self, block: CellRows) -> None:
        """Demand what it says."""
        if not len(block.rows.weights) or not len(block.values.weights):
            return
        self.grow(len(block.rows.weights) + len(block.values.weights))
        self.cell_rows.append((len(self.rows), block))

    def above_zero(self, numbers: Integers) -> Integers:
        """In each row a literal that holds exactly when this sum, of no negative weight, is above 0."""
        missing = self._sum_count - len(self._above_zero)
        if missing:
            self._above_zero = np.concatenate((self._above_zero, filled(missing, _UNKNOWN)))
        places = -1 - numbers
        new = np.unique(places[self._above_zero[places] == _UNKNOWN])
        if len(new):
            self._above_zero = self._above_zero.copy()  # whoever has seen it has what it was
        for block in self.sums:
            own = new[(new < -block.first - 1 + len(block)) & (new >= -block.first - 1)]
            local = own + block.first + 1
            alone = block.sizes[local] == 1
            cells = block.written_out(local[alone]).terms.items
            self._above_zero[own[alone]] = 2 * cells
            several = own[~alone]
            if len(several):
                targets = self.new_literals(len(several))
                self._above_zero[several] = targets
                self.grow(2 * len(several))
                self.occupied.append(Occupied(targets, -1 - several))
        return self._above_zero[places]

    def one_of_cells(self, cells: Lists) -> Integers:
        """In each row a literal that holds exactly when one of these cells does, all of one row of a grid."""
        found, first = filled(len(cells), FALSE), cells.items[cells.starts[:-1]]
        for grid in self.grids:
            mine = np.flatnonzero((first >= grid.first) & (first < grid.first + grid.rows * grid.values))
            some = cells.take(mine)
            rows = (first[mine] - grid.first) // grid.values
            values = Side.of(
                (some.items - grid.first) % grid.values, filled(len(some.items), 1), some.owners, len(mine)
            )
            each = np.arange(len(mine))
            found[mine] = self.above_zero(
                self.new_sums(grid, Side.alone(rows), values, each, each).terms.items
            )
        return found

    @property
    def constraint_names(self) -> tuple[str, ...]:
        """Names of the constraints that demand anything, in order of first appearance."""
        names: list[str] = []
        pending = list(self.cell_rows)
        for number, block in enumerate(self.rows):
            while pending and pending[0][0] <= number:
                names.append(pending.pop(0)[1].constraint)
            names += [] if block.source is None else [block.source.constraint]
        return tuple(dict.fromkeys((*names, *(block.constraint for _, block in pending))))

    # ---- what is known of the variables -------------------------------------------------------------

    @property
    def grid_cells(self) -> int:
        """How many cells the grids have: they are the variables from 1 on."""
        return self._cells

    @property
    def grid_places(self) -> GridPlaces:
        if self._places is None:
            self._places = GridPlaces.of(self.grids)
        return self._places

    @property
    def lower(self) -> Integers:
        """Of each variable, the cells among them."""
        return self.bounds(np.arange(self.variables))[0]

    @property
    def upper(self) -> Integers:
        return self.bounds(np.arange(self.variables))[1]

    def bounds(self, variables: Integers) -> tuple[Integers, Integers]:
        """The least and the greatest value of each of these variables and sums."""
        low, high = filled(len(variables), 0), filled(len(variables), 1)
        others = (variables == 0) | (variables > self._cells)
        places = np.maximum(variables[others] - self._cells, 0)
        low[others], high[others] = (limits[places] for limits in self._limits())
        sums = variables < 0
        if sums.any():
            places = -1 - variables[sums]
            low[sums], high[sums] = (limits[places] for limits in self._sum_limits())
        return low, high

    def choice_of(self, variables: Integers) -> Integers:
        """The number of the choice that each of these is a cell of; -1 for others."""
        found, begin = filled(len(variables), -1), 0
        for grid in self.grids:
            place = variables - grid.first
            mine = (place >= 0) & (place < grid.rows * grid.values)
            found[mine] = begin + place[mine] // grid.values
            begin += grid.rows
        return found

    def choice_literals(self, choices: Integers) -> Lists:
        """The cells of each of these choices, and its literal of NULL."""
        owners, items, begin = [filled(0, 0)], [filled(0, 0)], 0
        for grid in self.grids:
            mine = np.flatnonzero((choices >= begin) & (choices < begin + grid.rows))
            rows = choices[mine] - begin
            items += [grid.literals(rows[:, None], np.arange(grid.values)[None, :]).ravel(), grid.null[rows]]
            owners += [np.repeat(mine, grid.values), mine]
            begin += grid.rows
        whose, literals = np.concatenate(owners), np.concatenate(items)
        kept = literals != FALSE
        return Lists.grouped(whose[kept], literals[kept], len(choices))

    # ---- how it grows -------------------------------------------------------------------------------

    @property
    def size(self) -> Size:
        lengths = tuple([len(getattr(self, name)) for name in _GROWING])
        return Size(lengths, self._count, self._cells, self._sum_count, self.cells, len(self._zeros))

    def since(self, size: Size) -> Addition:
        """What it has grown by."""
        blocks = {
            name: items
            for name, first in zip(_GROWING, size.lists, strict=True)
            if (items := getattr(self, name)[first:])
        }
        plain = size.variables - size.grid_cells
        lower, upper = (limits[plain:] for limits in self._limits())
        low, high = (limits[size.sums :] for limits in self._sum_limits())
        return Addition(
            blocks,
            self._count - size.variables,
            self._cells - size.grid_cells,
            (lower, upper),
            (low, high),
            self.cells - size.cells,
            dict(islice(self._zeros.items(), size.zeros, None)),
            self._pairs,
            self._above_zero,
        )

    def cut(self, size: Size) -> None:
        """Take away what it has grown by, but for what is found by the numbers of that."""
        for name, first in zip(_GROWING, size.lists, strict=True):
            del getattr(self, name)[first:]
        plain = size.variables - size.grid_cells
        lower, upper = self._limits()
        self._lower, self._upper = [lower[:plain]], [upper[:plain]]
        low, high = self._sum_limits()
        self._sum_lower, self._sum_upper = [low[: size.sums]], [high[: size.sums]]
        self._count, self._cells, self._sum_count = size.variables, size.grid_cells, size.sums
        self.cells = size.cells

    def add(self, addition: Addition) -> None:
        """Grow by what another problem, of this size and numbering, has grown by."""
        self.grow(addition.cells)
        for name, items in addition.blocks.items():
            getattr(self, name).extend(items)
        for mine, limits in zip((self._lower, self._upper), addition.limits, strict=True):
            mine.append(limits)
        for mine, limits in zip((self._sum_lower, self._sum_upper), addition.sum_limits, strict=True):
            mine.append(limits)
        self._count += addition.variables
        self._cells += addition.grid_cells
        self._sum_count += len(addition.sum_limits[0])
        self._zeros.update(addition.zeros)
        self._pairs, self._above_zero = addition.pairs, addition.above_zero

    def _sum_limits(self) -> tuple[Integers, Integers]:
        if len(self._sum_lower) != 1:
            self._sum_lower = [np.concatenate([filled(0, 0), *self._sum_lower])]
            self._sum_upper = [np.concatenate([filled(0, 0), *self._sum_upper])]
        return self._sum_lower[0], self._sum_upper[0]

    # ---- what follows -------------------------------------------------------------------------------

    @property
    def definitions(self) -> list[Definitions]:
        """What defines variables, each block after those that it speaks of."""
        there = [
            Thresholds(block.targets, Linears.single(block.numbers).scaled(-1).plus(1))
            for block in self.occupied
        ]
        return in_order([*self.defining_blocks, *there])

    def least_of(self, linears: Linears) -> Integers:
        """The least that each may be, as far as ranges and demands of one literal tell."""
        low, high = self._settled_bounds(linears.terms.items)
        ends = np.where(linears.coefficients > 0, low, high)
        found = linears.constants.copy()
        np.add.at(found, linears.terms.owners, linears.coefficients * ends)
        return found

    def _settled_bounds(self, variables: Integers) -> tuple[Integers, Integers]:
        low, high = self.bounds(variables)
        literals = self.settled_literals()
        for holds in (0, 1):
            known = np.isin(variables, literals[literals & 1 == 1 - holds] >> 1)
            low[known] = high[known] = holds
        return low, high

    def flag_choices(self, chosen: Integers, others: Integers) -> None:
        """Fill in what flagged rows choose, given what all others do, and their flags (see FactoredValues)."""
        begins = np.cumsum([0, *(grid.rows for grid in self.grids)]).tolist()
        for each in self.flagged_grids:
            own, base = begins[self.grids.index(each.grid)], begins[self.grids.index(each.base)]
            flags = others[(each.flags >> 1) - self._cells] ^ (each.flags & 1)
            taken = chosen[base : base + each.base.rows]
            chosen[own : own + each.grid.rows] = np.where(flags == 1, taken, -1)

    def cells_hold(self, values: FactoredValues) -> bool:
        """Whether every block of demands on cells holds."""
        for _, block in self.cell_rows:
            _, totals = _there(block.rows, block.values, values.choice(block.grid), block.grid.values)
            if bool((totals > (0 if block.none else 1)).any()):
                return False
        return True

    def written_out(self, linears: Linears) -> Linears:
        """The same without sums over cells of one row, and variables that stand for expressions."""
        for block in self.sums:
            single = block.rows.members.lengths[block.row_groups] == 1
            numbers = linears.terms.items
            places = block.first - numbers
            mine = (places >= 0) & (places < len(block))
            mine[mine] = single[places[mine]]
            if mine.any():
                rows, factors = linears.terms.owners[mine], linears.coefficients[mine]
                inside = block.written_out(places[mine]).scaled(factors)
                kept = Linears(linears.constants, linears.terms.keep(~mine), linears.coefficients[~mine])
                both = stacked([kept, inside])
                linears = both.summed(np.append(np.arange(len(kept)), rows), len(kept))
        return Problem.written_out(self, linears)

    def _thresholds(self, linears: Linears, bounds: Integers) -> Integers:
        """A sum of no negative weight that is 0 at most says that nobody is there."""
        first = np.minimum(linears.terms.starts[:-1], len(linears.terms.items) - 1)
        numbers, factors = linears.terms.items[first], linears.coefficients[first]
        empty = (linears.terms.lengths == 1) & (numbers < 0) & (factors > 0)
        rest = bounds - linears.constants
        empty &= (rest >= 0) & (rest < factors)
        empty[empty] = self.bounds(numbers[empty])[0] == 0
        found = filled(len(linears), FALSE)
        found[empty] = self.above_zero(numbers[empty]) ^ 1
        others = np.flatnonzero(~empty)
        found[others] = Problem._thresholds(self, linears.take(others), bounds[others])
        return found
