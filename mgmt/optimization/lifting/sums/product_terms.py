"""Sums over products of rows and values (``optimization.products``) as terms of their own, with nothing written out.

A sum is such a term where it is of rank one and says more than its cells would one by one: several rows, each by a
weight of its own, with each of some values.  Its term is the sum divided by what the weights have in common; sums that
are equal are one term.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from mgmt.optimization.columns import Integers, Linears, Lists, Mask, filled, group_numbers, joined
from mgmt.optimization.lifting.choices import ChoiceCells
from mgmt.optimization.lifting.sums.factors import Factors
from mgmt.optimization.products import CellRows, FactoredProblem, Grid, Side, Sums

_FEW_ROWS = 2
"""Of two rows a bound is one on a pair: what is known of other pairs goes with it."""


@dataclass(frozen=True, slots=True, eq=False)
class GridSides:
    """Which of the rows and values of all choices those of each grid are, by the grid's first cell."""

    rows: dict[int, int]
    """The first of them."""
    values: dict[int, Integers]

    @classmethod
    def of(cls, problem: FactoredProblem, cells: ChoiceCells, flagged: Mapping[int, int]) -> GridSides:
        own = {column.first: number for number, column in enumerate(cells.columns) if column.is_grid}
        columns = {**own, **flagged}
        known = [grid.first for grid in problem.grids if grid.values and grid.first in columns]
        return cls(
            {first: int(cells.starts[columns[first]]) for first in known},
            {first: cells.columns[columns[first]].values for first in known},
        )

    def knows(self, grid: Grid) -> bool:
        """Whether its cells are cells of choices: those of flags that follow another choice are not."""
        return grid.first in self.rows or not grid.rows or not grid.values

    def sides(self, block: Sums | CellRows) -> tuple[Side, Side]:
        """Rows and values of a block by those numbers, in order."""
        first = block.grid.first
        if first not in self.rows or not block.grid.rows or not block.grid.values:
            return block.rows, block.values
        rows = block.rows.members
        moved = Side(Lists(rows.starts, self.rows[first] + rows.items), block.rows.weights)
        return moved, _renumbered(block.values, self.values[first])


@dataclass(frozen=True, slots=True, eq=False)
class ProductTerms:
    """Of each sum of a problem, in order of number: whether it is a term, of which rows and values, divided by what.

    ``same`` is the first sum that is equal, of a problem's sums by their places.
    """

    blocks: tuple[Sums, ...]
    factors: Factors
    divisors: Integers
    is_term: Mask
    same: Integers
    sizes: Integers
    """How many terms each is of where it is written out."""

    def __len__(self) -> int:
        return len(self.divisors)

    @classmethod
    def of(cls, problem: FactoredProblem, places: GridSides) -> ProductTerms:
        blocks = tuple(problem.sums)
        rows, values, divisors = [], [], []
        row_kind, value_kind, plain = [filled(0, 0)], [filled(0, 0)], [np.zeros(0, np.bool_)]
        first_rows = first_values = 0
        for block in blocks:
            one, other = places.sides(block)
            common = _common_divisors(one)
            fits = (one.members.lengths > _FEW_ROWS) & ~one.members.any(one.weights < 0)
            fits &= places.knows(block.grid)
            plain.append(fits[block.row_groups] & _is_plain(other, block.grid)[block.value_groups])
            divisors.append(common[block.row_groups])
            rows.append(Side(one.members, one.weights // np.repeat(common, one.members.lengths)))
            values.append(other)
            row_kind.append(first_rows + block.row_groups)
            value_kind.append(first_values + block.value_groups)
            first_rows, first_values = first_rows + len(one), first_values + len(other)
        factors = Factors(
            joined([side.members for side in rows]),
            np.concatenate([filled(0, 0), *(side.weights for side in rows)]),
            joined([side.members for side in values]),
            np.concatenate(row_kind),
            np.concatenate(value_kind),
            np.concatenate(plain),
        ).with_equal_kinds()
        # Kinds of values do not tell what values weigh: a sum that is no term is only itself.
        apart = np.where(factors.whole, -1, np.arange(len(factors)))
        first, number = group_numbers(factors.row_kind, factors.value_kind, apart)
        divisor = np.concatenate([filled(0, 1), *divisors])
        sizes = np.concatenate([filled(0, 0), *map(_written_sizes, blocks)])
        return cls(blocks, factors, divisor, factors.whole, first[number], sizes)

    def sides(self, number: int, places: GridSides) -> tuple[Side, Side] | None:
        """The rows and the values of one of the sums, divided by its divisor; None if it is no product of choices.

        None, too, where it says only whether rows have any value.
        """
        block = next(each for each in self.blocks if number < len(each) - 1 - each.first)
        place = number + 1 + block.first
        if not places.knows(block.grid) or bool(_of_every_value(block)[place]):
            return None
        one, other = places.sides(block)
        rows = one.take(block.row_groups[[place]])
        return replace(rows, weights=rows.weights // self.divisors[number]), other.take(
            block.value_groups[[place]]
        )

    def written_out(self, sums: Integers) -> Iterator[tuple[Integers, Linears]]:
        """Of some of the sums their terms over variables: which of those asked for, and they."""
        for block in self.blocks:
            start = -1 - block.first
            mine = np.flatnonzero((sums >= start) & (sums < start + len(block)))
            every = _of_every_value(block)[sums[mine] - start]
            for some, write in ((mine[~every], Sums.written_out), (mine[every], _placed)):
                if len(some):
                    found = write(block, sums[some] - start)
                    divisors = self.divisors[sums[some]]
                    shares = found.coefficients // np.repeat(divisors, found.terms.lengths)
                    yield some, Linears(found.constants // divisors, found.terms, shares)


def _written_sizes(block: Sums) -> Integers:
    return np.where(_of_every_value(block), block.rows.members.lengths[block.row_groups], block.sizes)


def _of_every_value(block: Sums) -> Mask:
    """Which sums have all values of a row by the same weight: they say whether the row has any."""
    values = block.values
    lengths, first = values.members.lengths, np.append(values.weights, 0)[values.members.starts[:-1]]
    alike = ~values.members.any(values.weights != first[values.members.owners])
    found: Mask = (alike & (lengths == block.grid.values) & (lengths > 0))[block.value_groups]
    return found


def _placed(block: Sums, places: Integers) -> Linears:
    """Some such sums over the literals that say that a row has no value."""
    rows, starts = block.rows.members.places(block.row_groups[places])
    owners = np.repeat(np.arange(len(places)), np.diff(starts))
    first = block.values.weights[block.values.members.starts[block.value_groups[places]]]
    literals = block.grid.null[block.rows.members.items[rows]] ^ 1
    each = Linears.literals(literals, block.rows.weights[rows] * first[owners])
    return each.summed(owners, len(places))


def _renumbered(side: Side, places: Integers) -> Side:
    members, owners = places[side.members.items], side.members.owners
    order = np.lexsort((members, owners))
    return Side(Lists(side.members.starts, members[order]), side.weights[order])


def _common_divisors(side: Side) -> Integers:
    found = filled(len(side), 1)
    some = np.flatnonzero(side.members.lengths)
    if len(some):
        found[some] = np.gcd.reduceat(np.abs(side.weights), side.members.starts[:-1][some])
    return found


def _is_plain(side: Side, grid: Grid) -> Mask:
    """Which groups of values count each once, and are not all that there are."""
    sizes = side.members.lengths
    found: Mask = ~side.members.any(side.weights != 1) & (sizes > 0) & (sizes < grid.values)
    return found
