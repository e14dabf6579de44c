"""Sums over products of rows and values (``optimization.products``) as terms of their own, with nothing written out.

A sum is such a term where it is of rank one and says more than its cells would one by one: several rows, each by a
weight of its own, with each of some values.  Its term is the sum divided by what the weights have in common; sums that
are equal are one term.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mgmt.optimization.columns import Integers, Linears, Lists, Mask, filled, group_numbers, joined
from mgmt.optimization.lifting.sums.factors import Factors
from mgmt.optimization.problem import Problem
from mgmt.optimization.products import CellRows, FactoredProblem, Grid, Side, Sums

_FEW_ROWS = 2
"""Of two rows a bound is one on a pair: what is known of other pairs goes with it."""


@dataclass(frozen=True, slots=True, eq=False)
class GridPlaces:
    """Which of the rows and values of all choices those of each grid are, by the grid's first cell."""

    rows: dict[int, Integers]
    values: dict[int, Integers]

    def knows(self, grid: Grid) -> bool:
        """Whether its cells are cells of choices: those of flags that follow another choice are not."""
        return grid.first in self.rows

    def sides(self, block: Sums | CellRows) -> tuple[Side, Side]:
        """Rows and values of a block by those numbers, in order."""
        first = block.grid.first
        if not self.knows(block.grid):
            return block.rows, block.values
        return _renumbered(block.rows, self.rows[first]), _renumbered(block.values, self.values[first])


def grid_places(problem: Problem, keys: Integers, width: int, values: int) -> GridPlaces:
    """``keys``: of each variable that is a cell, ``row * values + value`` of all choices; more for any other one."""
    grids = problem.grids if isinstance(problem, FactoredProblem) else []
    of_rows, of_values = {}, {}
    for grid in grids:
        if grid.rows and grid.values:
            table = keys[grid.first : grid.first + grid.rows * grid.values].reshape(grid.rows, grid.values)
            if bool((table >= width).any()):
                continue
            of_rows[grid.first], of_values[grid.first] = table[:, 0] // values, table[0] % values
        else:
            of_rows[grid.first], of_values[grid.first] = filled(grid.rows, 0), filled(grid.values, 0)
    return GridPlaces(of_rows, of_values)


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

    def __len__(self) -> int:
        return len(self.divisors)

    @classmethod
    def of(cls, problem: Problem, places: GridPlaces) -> ProductTerms:
        blocks = tuple(problem.sums) if isinstance(problem, FactoredProblem) else ()
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
        return cls(blocks, factors, divisor, factors.whole, first[number])

    def written_out(self, sums: Integers) -> Iterator[tuple[Integers, Linears]]:
        """Of some of the sums their terms over the variables of cells: which of those asked for, and they."""
        for block in self.blocks:
            start = -1 - block.first
            mine = np.flatnonzero((sums >= start) & (sums < start + len(block)))
            if len(mine):
                found = block.written_out(sums[mine] - start)
                shares = np.repeat(self.divisors[sums[mine]], found.terms.lengths)
                yield mine, Linears(found.constants, found.terms, found.coefficients // shares)


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
