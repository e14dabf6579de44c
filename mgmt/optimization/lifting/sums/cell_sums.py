"""Expressions over the cells of choices: what depends on one row alone, however it is written, is a sum over its cells.

Cells are numbered ``row * stride + value``; the last number of each row stands for all of its cells together, and is 1
where the row has any value.  What depends on a row and on another one that follows it is a sum over the cells of both.
What depends on several rows in another way than by a sum stays an *atom*: the variable of the problem, with what
defines it; atoms are numbered after the cells.  A sum over products of rows and values is a term of its own
(``product_terms``) where it stands alone, numbered after the atoms; beside anything else it is written out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mgmt.optimization.assignment import NONE
from mgmt.optimization.columns import Integers, Linears, Lists, Mask, filled, group_numbers, integers, stacked
from mgmt.optimization.deadline import NEVER, Deadline
from mgmt.optimization.general.operators import Defined, Operator, defined, operate
from mgmt.optimization.lifting.choices import CellVariables, ChoiceColumn, FollowingRows
from mgmt.optimization.lifting.refusal import NotLiftedError
from mgmt.optimization.lifting.sums.factors import Factors, factors_of, joined_factors
from mgmt.optimization.lifting.sums.product_terms import GridSides, ProductTerms
from mgmt.optimization.products import FactoredProblem

_UNDEFINED = -1
MOST_TERMS = 4_000_000
"""Of expressions in which sums are written out."""


@dataclass(frozen=True, slots=True, eq=False)
class Atoms:
    """Variables and what defines them: the operator, and operands over cells and other atoms."""

    operator: Operator
    terms: Integers
    """The number of each as a term."""
    operands: Lists
    """The places of each one's operands among ``linears``."""
    linears: Linears


class CellSums:
    """The variables of a problem as sums over cells and atoms."""

    def __init__(
        self, problem: FactoredProblem, following: FollowingRows, deadline: Deadline = NEVER
    ) -> None:
        self.deadline = deadline
        """Whatever lifts with these sums raises TimeoutError when it has passed."""
        self.problem, self.following, self.cells = problem, following, following.cells
        cells = self.cells
        self.stride = cells.values + 1
        """How far the cells of two rows are apart."""
        self.width = cells.rows * self.stride
        """Cells are numbered below it, atoms from it on."""
        self.domain_sizes = cells.domain_sizes
        self._variables = CellVariables(problem, cells, following.flagged)
        # Of the constant, and of the variables after the cells of grids: what they are.
        count = problem.variables - problem.grid_cells
        others = np.arange(1 + problem.grid_cells, problem.variables)
        self._constants = filled(count, 0)
        self._terms = [np.append(0, self.width + others)]
        self._factors = [filled(count, 1)]
        self._first, self._length = np.arange(count), filled(count, 1)
        self._pooled = count
        self._known = np.zeros(count, np.bool_)
        self._add_cells(others)
        self.places = GridSides.of(problem, cells, following.flagged)
        self.products = ProductTerms.of(problem, self.places)
        self._add_products(np.append(0, others))
        number = len(self._constants)
        self.block, self.place = filled(number, _UNDEFINED), filled(number, 0)
        """Of each atom (by ``slots``), in which block of ``atoms`` it is defined, and where there."""
        self.atoms: list[Atoms] = []
        for each in defined(problem):
            deadline.check()
            self._define(each)

    def slots(self, terms: Integers) -> Integers:
        """Where what is known of these atoms and products stands; 0 for a cell of a grid that is of no choice."""
        return np.maximum(terms - self.width - self.problem.grid_cells, 0)

    # ---- what variables are -------------------------------------------------------------------------

    def _add_cells(self, others: Integers) -> None:
        row, value = self._variables.of(others)
        known = row != NONE
        self._terms[0][1:][known] = (row * self.stride + value)[known]
        self._set(integers([0]), Linears.constant([1]))
        for begin, column in zip(self.cells.starts.tolist(), self.cells.columns, strict=False):
            rows = np.arange(len(column))
            some = self._some_value(column, begin + rows)
            if not column.steps[1] and len(column.values) != 1:
                self._set(column.variables(rows, 0 * rows), some)
            if len(column.none):
                self._set(column.none, some.scaled(-1).plus(1))
        # Literals that are cells of rows which follow others.
        following = self.following
        places = (following.literals >> 1) - self.problem.grid_cells
        self._terms[0][places] = following.rows * self.stride + following.values
        self._known[places] = True

    def _some_value(self, column: ChoiceColumn, rows: Integers) -> Linears:
        """That rows of a column have any value."""
        if column.required or not len(column.values):
            return Linears.constant(filled(len(rows), int(column.required)))
        value = column.values[0] if len(column.values) == 1 else self.cells.values
        return Linears.single(rows * self.stride + value)

    def _add_products(self, others: Integers) -> None:
        """Sums are numbered from -1 downwards: the last of all are found under these numbers."""
        count = len(self.products)
        self._first_product = self.width + self.problem.variables
        self.lower, self.upper = self.problem.bounds(others)
        self.lower[0] = 0
        self._constants = np.append(self._constants, filled(count, 0))
        self._first = np.append(self._first, filled(count, 0))
        self._length = np.append(self._length, filled(count, 0))
        if not count:
            return
        low, high = self.problem.bounds(-1 - np.arange(count))
        self.lower = np.append(self.lower, (low // self.products.divisors)[::-1])
        self.upper = np.append(self.upper, (high // self.products.divisors)[::-1])
        terms = self._first_product + count - 1 - self.products.same
        each = Lists(np.arange(count + 1), terms)
        self._put(-1 - np.arange(count), Linears(filled(count, 0), each, self.products.divisors))

    def _set(self, variables: Integers, linears: Linears) -> None:
        self._put(np.maximum(variables - self.problem.grid_cells, 0), linears)

    def _put(self, places: Integers, linears: Linears) -> None:
        self._constants[places] = linears.constants
        self._first[places] = self._pooled + linears.terms.starts[:-1]
        self._length[places] = linears.terms.lengths
        self._terms.append(linears.terms.items)
        self._factors.append(linears.coefficients)
        self._pooled += len(linears.terms.items)

    def of(self, linears: Linears) -> Linears:
        """Expressions over variables as ones over cells and atoms, or one product."""
        return self.settled(self.replaced(linears))

    def replaced(self, linears: Linears) -> Linears:
        """What variables are in place of them, whatever products these are."""
        if len(self._terms) > 1:
            self._terms, self._factors = [np.concatenate(self._terms)], [np.concatenate(self._factors)]
        variables, count, grids = linears.terms.items, len(linears), self.problem.grid_cells
        cells = (variables > 0) & (variables <= grids)
        slots = np.where(variables < 0, variables, np.maximum(variables - grids, 0))
        lengths = np.where(cells, 1, self._length[slots])
        starts = np.concatenate(([0], np.cumsum(lengths)))
        places = np.repeat(np.where(cells, 0, self._first[slots]) - starts[:-1], lengths) + np.arange(
            starts[-1]
        )
        terms = self._terms[0][places]
        factors = np.repeat(linears.coefficients, lengths) * self._factors[0][places]
        constants = linears.constants.copy()
        np.add.at(constants, linears.terms.owners, linears.coefficients * self._constants[slots] * ~cells)
        if cells.any():
            row, value = self._variables.of(variables[cells])
            mine = starts[:-1][cells]
            terms[mine] = np.where(row == NONE, self.width + variables[cells], row * self.stride + value)
            factors[mine] = linears.coefficients[cells]
        found = Linears(constants, Lists(starts[linears.terms.starts], terms), factors)
        owners = found.terms.owners
        if bool(((owners[1:] > owners[:-1]) | (terms[1:] > terms[:-1])).all()):
            return found
        return found.summed(np.arange(count), count)

    def settled(self, linears: Linears) -> Linears:
        """The same with products written out that are no terms, or stand beside others."""
        products = linears.terms.items >= self._first_product
        if not products.any():
            return linears
        stays = self.products.is_term[self.sum_of(linears.terms.items[products])]
        products[products] = ~(stays & (linears.terms.lengths == 1)[linears.terms.owners[products]])
        return self._with_cells(linears, products)

    def written_out(self, linears: Linears) -> Linears:
        """The same with every product written out."""
        return self._with_cells(linears, linears.terms.items >= self._first_product)

    def _with_cells(self, linears: Linears, written: Mask) -> Linears:
        """With these terms, which are products, written out.  NotLiftedError where they are too large."""
        if not written.any():
            return linears
        owners, factors = linears.terms.owners[written], linears.coefficients[written]
        sums = self.sum_of(linears.terms.items[written])
        if int(self.products.sizes[sums].sum()) > MOST_TERMS:
            raise NotLiftedError("a sum over too many rows and values to be written out")
        parts = [Linears(linears.constants, linears.terms.keep(~written), linears.coefficients[~written])]
        whose = [np.arange(len(linears))]
        for mine, found in self.products.written_out(sums):
            parts.append(self.replaced(found).scaled(factors[mine]))
            whose.append(owners[mine])
        return stacked(parts).summed(np.concatenate(whose), len(linears))

    def cell_by_cell(self, linears: Linears, every: Mask) -> Linears:
        """With each cell of a row in place of these terms, which are all of them.  NotLiftedError for too many."""
        if not every.any():
            return linears
        rows, owners = self.row_of(linears.terms.items[every]), linears.terms.owners[every]
        if int(self.domain_sizes[rows].sum()) > MOST_TERMS:
            raise NotLiftedError("all values of too many rows")
        values = self.cells.of_domains(rows)
        cells = Lists(values.starts, rows[values.owners] * self.stride + values.items)
        each = Linears(filled(len(rows), 0), cells, filled(len(cells.items), 1))
        kept = Linears(linears.constants, linears.terms.keep(~every), linears.coefficients[~every])
        parts = stacked([kept, each.scaled(linears.coefficients[every])])
        return parts.summed(np.append(np.arange(len(linears)), owners), len(linears))

    def unmixed(self, linears: Linears, owners: Integers) -> Linears:
        """With no term for all cells of a row where others of the same owner are for single ones of that row."""
        every = self.is_every(linears.terms.items)
        if not every.any():
            return linears
        is_cell = linears.terms.items < self.width
        keys = owners[linears.terms.owners] * self.cells.rows + self.row_of(linears.terms.items)
        return self.cell_by_cell(linears, every & np.isin(keys, keys[is_cell & ~every]))

    def sum_of(self, products: Integers) -> Integers:
        """Which sum of the problem, by its place, each product is."""
        return self._first_product + len(self.products) - 1 - products

    def of_literals(self, literals: Integers) -> Linears:
        """Literals, as 0 and 1."""
        return self.of(Linears.literals(literals))

    # ---- definitions --------------------------------------------------------------------------------

    def _define(self, block: Defined) -> None:
        slots = block.variables - self.problem.grid_cells
        block = block.take(np.flatnonzero(~self._known[slots]))
        try:
            operands = self.of(block.operands)
        except NotLiftedError:  # too large: what is defined stays undefined
            return
        if block.operator is Operator.TOTAL:
            self._set(block.variables, operands)
            return
        owner_of_operand = np.repeat(np.arange(len(block)), np.diff(block.starts))
        owner = owner_of_operand[operands.terms.owners]
        row = self._choosing(operands.terms.items)
        own = operands.terms.items // self.stride
        follows = np.flatnonzero(own != row)
        atomic = np.zeros(len(block), np.bool_)
        atomic[owner[operands.terms.items >= self.width]] = True
        single = _alike(row, owner, len(block)) & _alike(own[follows], owner[follows], len(block)) & ~atomic
        alone, others = np.flatnonzero(single), np.flatnonzero(~single)
        everywhere = Lists(block.starts, np.arange(int(block.starts[-1])))
        if len(alone):
            of_alone = everywhere.take(alone)
            table = self.tabulated(block.operator, of_alone.starts, operands.take(of_alone.items))
            self._set(block.variables[alone], table)
        if len(others):
            slots = block.variables[others] - self.problem.grid_cells
            self.block[slots] = len(self.atoms)
            self.place[slots] = np.arange(len(others))
            kept = everywhere.take(others)
            lists = Lists(kept.starts, np.arange(len(kept.items)))
            terms = self.width + block.variables[others]
            self.atoms.append(Atoms(block.operator, terms, lists, operands.take(kept.items)))

    def _choosing(self, terms: Integers) -> Integers:
        """The row that each cell depends on, of which others follow; of atoms anything."""
        rows = np.minimum(terms, self.width - 1) // self.stride
        return self.following.choosing(rows) if self.following.any else rows

    def tabulated(self, operator: Operator, starts: Integers, operands: Linears) -> Linears:
        """What depends on one row each."""
        return self.told(lambda begins, values: operate(operator, begins, values), starts, operands)

    def told(
        self, tell: Callable[[Integers, Integers], Integers], starts: Integers, operands: Linears
    ) -> Linears:
        """What depends on one row each, asked for every value that is mentioned, for any other one, and for none.

        Any other value is told by the term for all cells of a row.  Where another row follows it each of these is asked
        once without the other one, and once with it.
        """
        count, every = len(starts) - 1, self.cells.values
        owner = np.repeat(np.arange(count), np.diff(starts))[operands.terms.owners]
        own, value = np.divmod(operands.terms.items, self.stride)
        chooses = self._choosing(operands.terms.items)
        follows, others = own != chooses, value == every
        first, number = group_numbers(owner, value)
        whose, row, kind = owner[first], chooses[first], value[first]
        follower = filled(count, _UNDEFINED)
        follower[owner[follows]] = own[follows]
        both = np.flatnonzero(follower[whose] != _UNDEFINED)
        # Each definition is asked once for each of these, once for each with the row that follows, and once for none.
        asked = np.concatenate((whose, whose[both], np.arange(count)))
        width = np.diff(starts)[asked]
        begins = np.concatenate(([0], np.cumsum(width)))
        operand = np.repeat(starts[:-1][asked] - begins[:-1], width) + np.arange(begins[-1])
        of_every = filled(len(operands), 0)
        with_follower = filled(len(operands), 0)
        np.add.at(
            of_every, operands.terms.owners[others & ~follows], operands.coefficients[others & ~follows]
        )
        np.add.at(
            with_follower, operands.terms.owners[others & follows], operands.coefficients[others & follows]
        )
        rank = np.repeat(np.arange(len(asked)), width)
        values_of = operands.constants[operand] + np.where(
            rank < len(first) + len(both), of_every[operand], 0
        )
        values_of += np.where(
            (rank >= len(first)) & (rank < len(first) + len(both)), with_follower[operand], 0
        )
        inside, factors = operands.terms.owners - starts[:-1][owner], operands.coefficients
        plain = ~follows & ~others
        values_of[begins[number[plain]] + inside[plain]] += factors[plain]
        place = filled(len(first), -1)
        place[both] = len(first) + np.arange(len(both))
        there = np.flatnonzero((place[number] >= 0) & ~others)
        np.add.at(values_of, begins[place[number[there]]] + inside[there], factors[there])
        told = tell(begins, values_of)
        alone, beside, otherwise = np.split(told, (len(first), len(first) + len(both)))
        beside = beside - alone[both]
        # What any other value tells is what every cell does; these tell what is different.
        usual, usual_beside = otherwise.copy(), filled(count, 0)
        is_other = kind == every
        usual[whose[is_other]] = alone[is_other]
        usual_beside[whose[both][is_other[both]]] = beside[is_other[both]]
        change = np.where(is_other, alone - otherwise[whose], alone - usual[whose])
        beside = np.where(is_other[both], beside, beside - usual_beside[whose[both]])
        settled = is_other & self.cells.required[row]
        constants = otherwise.copy()
        constants[whose[settled]] += change[settled]
        change[settled] = 0
        change = np.concatenate((change, beside))
        rows = np.concatenate((row, follower[whose[both]]))
        cells = rows * self.stride + np.concatenate((kind, kind[both]))
        whose = np.concatenate((whose, whose[both]))
        order = np.lexsort((cells, whose))
        kept = order[change[order] != 0]
        return Linears(constants, Lists.grouped(whose[kept], cells[kept], count), change[kept])

    # ---- what expressions are like ------------------------------------------------------------------

    def is_every(self, terms: Integers) -> Mask:
        """Which terms stand for all cells of a row."""
        found: Mask = (terms < self.width) & (terms % self.stride == self.cells.values)
        return found

    def is_atom(self, terms: Integers) -> Mask:
        """Which terms are neither cells nor products."""
        found: Mask = (terms >= self.width) & (terms < self._first_product)
        return found

    def atomic(self, linears: Linears) -> Mask:
        """Which expressions have atoms."""
        return linears.terms.any(self.is_atom(linears.terms.items))

    def is_product(self, linears: Linears) -> Mask:
        """Which expressions are a product."""
        return linears.terms.any(linears.terms.items >= self._first_product)

    def limits(self, terms: Integers) -> tuple[Integers, Integers]:
        """The least and the most of each term."""
        is_cell, slots = terms < self.width, self.slots(terms)
        return np.where(is_cell, 0, self.lower[slots]), np.where(is_cell, 1, self.upper[slots])

    def factors(self, linears: Linears) -> Factors:
        """The rows and values of sums over cells and of products, none of them empty and none with atoms."""
        product = self.is_product(linears)
        if not product.any():
            return self._factors_of(linears)
        sums = self.sum_of(linears.terms.items[linears.terms.starts[:-1][product]])
        told = self.products.factors.take(sums)
        if product.all():
            return told
        parts = told, self._factors_of(linears.take(np.flatnonzero(~product)))
        order = np.argsort(np.argsort(~product, kind="stable"), kind="stable")
        return joined_factors(parts).with_equal_kinds().take(order)

    def _factors_of(self, linears: Linears) -> Factors:
        """Of sums over cells alone."""
        every = self.is_every(linears.terms.items)
        if not every.any():
            return factors_of(linears, self.stride)
        beside = linears.terms.any(~every)[linears.terms.owners]
        found = factors_of(self.cell_by_cell(linears, every & beside), self.stride)
        # In place of the number for all values those that any of the rows may have.
        is_every = found.values.any(found.values.items == self.cells.values)
        columns = np.unique(self.cells.column[found.rows.items])
        values = np.flatnonzero(self.cells.domains[columns].any(0))
        sets = [values if all_ else found.values.row(kind) for kind, all_ in enumerate(is_every.tolist())]
        return replace(found, values=Lists.of([some.tolist() for some in sets])).with_equal_kinds()

    def is_defined(self, operator: Operator, terms: Integers) -> Mask:
        """Which terms are atoms of this operator."""
        blocks = self.block[self.slots(terms)]
        wanted = np.array([block.operator is operator for block in self.atoms] + [False], np.bool_)
        found: Mask = self.is_atom(terms) & wanted[blocks]
        return found

    def operands(self, terms: Integers) -> tuple[Linears, Integers]:
        """The operands of atoms, all of one operator: expressions, and of which of the atoms each is."""
        slots = self.slots(terms)
        found: list[Linears] = []
        owners: list[Integers] = []
        for number in np.unique(self.block[slots]).tolist():
            block = self.atoms[number]
            mine = np.flatnonzero(self.block[slots] == number)
            lists = block.operands.take(self.place[slots[mine]])
            found.append(block.linears.take(lists.items))
            owners.append(mine[lists.owners])
        owner = np.concatenate([filled(0, 0), *owners])
        order = np.argsort(owner, kind="stable")
        return stacked(found).take(order), owner[order]

    def operand_counts(self, atoms: Integers) -> Integers:
        """How many operands each of these atoms has, all of one operator."""
        slots, found = self.slots(atoms), filled(len(atoms), 0)
        for number in np.unique(self.block[slots]).tolist():
            mine = self.block[slots] == number
            found[mine] = self.atoms[number].operands.lengths[self.place[slots[mine]]]
        return found

    def row_of(self, cells: Integers) -> Integers:
        return cells // self.stride

    def value_of(self, cells: Integers) -> Integers:
        """Of all cells of a row together it is the number of values."""
        return cells % self.stride


def _alike(numbers: Integers, owners: Integers, count: int) -> Mask:
    """Of which owners all numbers are the same."""
    lowest, highest = filled(count, 2**62), filled(count, -1)
    np.minimum.at(lowest, owners, numbers)
    np.maximum.at(highest, owners, numbers)
    found: Mask = highest <= lowest
    return found
