"""What depends on two rows each, as tables over what both have: one table for all pairs of the same structure.

Values that nothing tells apart are of one kind.  A table has a line for each kind of the first row's values and one,
the last, for none; a column for each of the second row's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import NONE
from mgmt.optimization.columns import Integers, Linears, Lists, Mask, filled, group_numbers, joined, stacked
from mgmt.optimization.dense_ranks import alike_rows
from mgmt.optimization.general.operators import Operator, operate
from mgmt.optimization.lifting.refusal import NotLiftedError
from mgmt.optimization.lifting.sums.cell_sums import CellSums

if TYPE_CHECKING:
    from mgmt.optimization.lifting.clauses import Clauses

_MOST_ENTRIES = 16_000_000
"""Of all tables together."""
_MOST_IN_SETS = 20_000_000


@dataclass(frozen=True, slots=True, eq=False)
class PairTables:
    """Of each of some pairs of rows its table."""

    left: Integers
    """The first row, which has the lower number."""
    right: Integers
    number: Integers
    """Which of the tables."""
    kind_of: Integers
    """(V,) the kind of each value."""
    tables: tuple[NDArray[np.int64], ...]
    """Of truths as 0 and 1."""


class PairFunctions:
    """Finds out which expressions depend on two rows, and what they come to."""

    def __init__(self, sums: CellSums) -> None:
        self._sums = sums
        count = len(sums.block)
        self._low, self._high = filled(count, NONE), filled(count, NONE)
        self._structure, self._structures = filled(count, 0), 0
        for block in sums.atoms:
            slots = sums.slots(block.terms)
            low, high = self._rows_of(block.linears, block.operands.owners, len(slots))
            self._low[slots], self._high[slots] = low, high
            pairs = np.flatnonzero(low != NONE)
            lists = block.operands.take(pairs)
            linears = block.linears.take(lists.items)
            first, number = self._alike(linears, lists.owners, high[pairs], [linears.constants])
            self._structure[slots[pairs]] = self._structures + number
            self._structures += len(first)

    def pairs_of(self, clauses: Clauses) -> Mask:
        """Which clauses are about two rows, in another way than by one bound on them."""
        low, _ = self._rows_of(clauses.linears, clauses.owners, len(clauses))
        return np.asarray(low != NONE)

    def broken(self, clauses: Clauses) -> PairTables:
        """What pairs break clauses, all of which are about two rows."""
        low, high = self._rows_of(clauses.linears, clauses.owners, len(clauses))
        marks = [clauses.linears.constants, clauses.lower, clauses.upper]
        first, number = self._alike(clauses.linears, clauses.owners, high, marks)
        examples = clauses.take(first)
        kinds = self._kinds(examples.linears)
        each = Lists.grouped(examples.owners, np.arange(len(examples.owners)), len(first))
        tables = []
        for place, clause in enumerate(first.tolist()):
            wrong = np.ones(kinds.shape, np.bool_)
            for bound in each.row(place).tolist():
                found = kinds.table(examples.linears.take(np.array([bound])), int(high[clause]))
                wrong &= (found < examples.lower[bound]) | (found > examples.upper[bound])
            tables.append(wrong.astype(np.int64))
        return PairTables(low, high, number, kinds.kind_of, tuple(tables))

    def values(self, atoms: Integers) -> PairTables:
        """What atoms come to.  NotLiftedError where one is not about two rows."""
        slots = self._sums.slots(atoms)
        low, high = self._low[slots], self._high[slots]
        if bool((low == NONE).any()):
            raise NotLiftedError("a cost of what is no sum over cells")
        first, number = group_numbers(self._structure[slots])
        single = Linears.single(atoms[first])
        kinds = self._kinds(single)
        tables = [
            kinds.table(single.take(np.array([at])), int(high[one])) for at, one in enumerate(first.tolist())
        ]
        return PairTables(low, high, number, kinds.kind_of, tuple(tables))

    def _rows_of(self, linears: Linears, owners: Integers, count: int) -> tuple[Integers, Integers]:
        """The two rows that each owner's expressions depend on; NONE where these are not two."""
        terms, owner = linears.terms.items, owners[linears.terms.owners]
        is_cell, slots = terms < self._sums.width, self._sums.slots(terms)
        row = self._sums.row_of(terms)
        low, high = np.where(is_cell, row, self._low[slots]), np.where(is_cell, row, self._high[slots])
        least, most = filled(count, 2**62), filled(count, NONE)
        np.minimum.at(least, owner, low)
        np.maximum.at(most, owner, high)
        two = least < most
        fits = (low == least[owner]) | (low == most[owner])
        fits &= ((high == least[owner]) | (high == most[owner])) & (low != NONE)
        two[owner[~fits]] = False
        return np.where(two, least, NONE), np.where(two, most, NONE)

    def _alike(
        self, linears: Linears, owners: Integers, high: Integers, marks: list[Integers]
    ) -> tuple[Integers, Integers]:
        """Numbers owners alike whose expressions are the same but for which two rows they are about."""
        count, sums = len(high), self._sums
        place = np.arange(len(owners)) - np.searchsorted(owners, owners)
        terms, of_term = linears.terms.items, linears.terms.owners
        is_cell, side = terms < sums.width, sums.row_of(terms) == high[owners[of_term]]
        cell = side * sums.stride + sums.value_of(terms)
        token = np.where(is_cell, cell, 2 * sums.stride + self._structure[sums.slots(terms)])
        whose = np.concatenate((*([owners] * len(marks)), owners[of_term]))
        where = np.concatenate((*([place] * len(marks)), place[of_term]))
        what = np.concatenate((*(filled(len(owners), -1 - at) for at in range(len(marks))), token))
        much = np.concatenate((*marks, linears.coefficients))
        order = np.lexsort((much, what, where, whose))
        starts = np.concatenate(([0], np.cumsum(np.bincount(whose, minlength=count))))
        return Lists(3 * starts, np.stack((where, what, much), 1)[order].ravel()).alike()

    def _kinds(self, linears: Linears) -> _Kinds:
        """Values by where these expressions, and what defines what is in them, speak of them."""
        sums, sets, inner = self._sums, [Lists.of([])], linears
        while len(inner.terms.items):
            terms = inner.terms.items
            single = (terms < sums.width) & ~sums.is_every(terms)
            cells = terms[single]
            of_linear, factors = inner.terms.owners[single], inner.coefficients[single]
            first, number = group_numbers(of_linear, sums.row_of(cells), factors)
            sets.append(Lists.grouped(number, sums.value_of(cells), len(first)).distinct())
            atoms = np.unique(terms[sums.is_atom(terms)])
            by_block = sums.block[sums.slots(atoms)]
            inner = stacked(
                [sums.operands(atoms[by_block == one])[0] for one in np.unique(by_block).tolist()]
            )
        kind_of, count = kinds_of_values(joined(sets), sums.cells.values)
        if len(linears) * (count + 1) ** 2 > _MOST_ENTRIES:
            raise NotLiftedError("pairs of rows with too many kinds of values")
        return _Kinds(sums, kind_of, count)


class _Kinds:
    """Tables over kinds of values."""

    def __init__(self, sums: CellSums, kind_of: Integers, count: int) -> None:
        self._sums, self.kind_of, self._count = sums, kind_of, count
        self.shape = count + 1, count + 1

    def table(self, linear: Linears, high: int) -> NDArray[np.int64]:
        """What one expression comes to, ``high`` being the second row."""
        sums, terms = self._sums, linear.terms.items
        sides = np.zeros((2, self._count + 1), np.int64)
        cells = terms < sums.width
        for side, rows in enumerate((sums.row_of(terms) != high, sums.row_of(terms) == high)):
            every = sums.is_every(terms)
            sides[side, :-1] += linear.coefficients[rows & every].sum()
            own = rows & cells & ~every
            # Values of one kind are in the same places: one of them tells of all.
            kinds, first = np.unique(self.kind_of[sums.value_of(terms[own])], return_index=True)
            sides[side, kinds] += linear.coefficients[own][first]
        total: NDArray[np.int64] = int(linear.constants[0]) + sides[0][:, None] + sides[1][None, :]
        for atom, factor in zip(terms[~cells].tolist(), linear.coefficients[~cells].tolist(), strict=True):
            total += factor * self._of_atom(atom, high)
        return total

    def _of_atom(self, atom: int, high: int) -> NDArray[np.int64]:
        sums, term = self._sums, np.array([atom])
        operands, _ = sums.operands(term)
        operator = sums.atoms[int(sums.block[sums.slots(term)][0])].operator
        if operator is Operator.MATCH:
            return self._of_match(operands, high)
        if len(operands) * (self._count + 1) ** 2 > _MOST_ENTRIES:
            raise NotLiftedError("pairs of rows with too many kinds of values")
        tables = [self.table(operands.take(np.array([at])), high) for at in range(len(operands))]
        whole = np.stack(tables, -1)
        starts = np.arange(0, whole.size + 1, len(tables))
        return operate(operator, starts, whole.ravel()).reshape(self.shape)

    def _of_match(self, operands: Linears, high: int) -> NDArray[np.int64]:
        """Of each row never more than one operand is 1."""
        sums = self._sums
        operands = sums.cell_by_cell(operands, sums.is_every(operands.terms.items))
        terms, of_term = operands.terms.items, operands.terms.owners
        side = (sums.row_of(terms) == high).astype(np.int64)
        plain = not sums.atomic(operands).any() and bool((operands.coefficients == 1).all())
        if not plain or bool((operands.constants != 0).any()):
            raise NotLiftedError("matches of what is no choice")
        first, second = (operands.terms.any(side == number) for number in (0, 1))
        if bool((first & second).any()) or bool(
            ((first[::2] & first[1::2]) | (second[::2] & second[1::2])).any()
        ):
            raise NotLiftedError("matches of what is no choice")
        numbers = filled(2 * (self._count + 1), NONE).reshape(2, -1)
        numbers[side, self.kind_of[sums.value_of(terms)]] = of_term // 2
        own, other = numbers[0][:, None], numbers[1][None, :]
        return np.asarray((own == other) & (own != NONE), np.int64)


def kinds_of_values(sets: Lists, values: int) -> tuple[Integers, int]:
    """(V,) a number for each value, alike where they are in the same sets, and how many kinds there are."""
    first, _ = sets.alike()
    if len(first) * values > _MOST_IN_SETS:
        return np.arange(values), values
    sets = sets.take(first)
    inside = np.zeros((values, len(sets)), np.bool_)
    inside[sets.items, sets.owners] = True
    rank, count = alike_rows(inside)
    return rank.astype(np.int64), count
