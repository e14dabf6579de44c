"""Expressions over the cells of choices: what depends on one row alone, however it is written, is a sum over its cells.

Cells are numbered ``row * values + value``.  What depends on a row and on another one that follows it is a sum over the
cells of both.  What depends on several rows in another way than by a sum stays an *atom*: the variable of the problem,
with what defines it; atoms are numbered after the cells.  A sum over products of rows and values is a term of its own
(``product_terms``) where it stands alone, numbered after the atoms; beside anything else it is written out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mgmt.optimization.columns import Integers, Linears, Lists, Mask, filled, group_numbers, integers, stacked
from mgmt.optimization.general.operators import Defined, Operator, defined, operate
from mgmt.optimization.lifting.choices import FollowingRows
from mgmt.optimization.lifting.sums.factors import Factors, factors_of, joined_factors
from mgmt.optimization.lifting.sums.product_terms import ProductTerms, grid_places
from mgmt.optimization.problem import Problem

_UNDEFINED = -1


@dataclass(frozen=True, slots=True, eq=False)
class Atoms:
    """Variables and what defines them: the operator, and operands over cells and other atoms."""

    operator: Operator
    variables: Integers
    operands: Lists
    """The places of each one's operands among ``linears``."""
    linears: Linears


class CellSums:
    """The variables of a problem as sums over cells and atoms."""

    def __init__(self, problem: Problem, following: FollowingRows) -> None:
        self.problem, self.following, self.cells = problem, following, following.cells
        cells = self.cells
        self.width = cells.rows * cells.values
        """Cells are numbered below it, atoms from it on."""
        self.domain_sizes = cells.domain_sizes()
        self._constants = filled(problem.variables, 0)
        self._terms = [self.width + np.arange(problem.variables)]
        self._factors = [filled(problem.variables, 1)]
        self._first, self._length = np.arange(problem.variables), filled(problem.variables, 1)
        self._pooled = problem.variables
        self._known = np.zeros(problem.variables, np.bool_)
        self._add_cells()
        self._add_followed()
        self.places = grid_places(problem, self._terms[0], self.width, cells.values)
        self.products = ProductTerms.of(problem, self.places)
        self._add_products()
        number = len(self._constants)
        self.block, self.place = filled(number, _UNDEFINED), filled(number, 0)
        """Of each atom, in which block of ``atoms`` it is defined, and where there."""
        self.atoms: list[Atoms] = []
        for each in defined(problem):
            self._define(each)

    # ---- what variables are -------------------------------------------------------------------------

    def _add_cells(self) -> None:
        cells, placed = self.cells, self.cells.placed
        keys = cells.row[placed] * cells.values + cells.value[placed]
        first, number = group_numbers(cells.variable[placed])
        variables = cells.variable[placed][first]
        several = np.flatnonzero(np.bincount(number, minlength=len(first)) > 1)
        self._terms[0][variables] = keys[first]
        if len(several):
            of_variable = Lists.grouped(number, keys, len(first)).take(several)
            self._set(
                variables[several],
                Linears(filled(len(several), 0), of_variable, filled(len(of_variable.items), 1)),
            )
        self._set(integers([0]), Linears.constant([1]))
        free = cells.variable[~placed]
        if len(free):
            order = np.argsort(keys, kind="stable")
            of_row = Lists.grouped(keys[order] // max(1, cells.values), keys[order], cells.rows)
            rest = of_row.take(cells.row[~placed])
            self._set(free, Linears(filled(len(free), 1), rest, filled(len(rest.items), -1)))

    def _add_followed(self) -> None:
        """Literals that are cells of rows which follow others."""
        variables = self.following.literals >> 1
        self._terms[0][variables] = self.following.keys
        self._known[variables] = True

    def _add_products(self) -> None:
        """Sums are numbered from -1 downwards: the last of all are found under these numbers."""
        count, variables = len(self.products), self.problem.variables
        self._first_product = self.width + variables
        self.lower, self.upper = self.problem.bounds(np.arange(variables))
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
        self._set(-1 - np.arange(count), Linears(filled(count, 0), each, self.products.divisors))

    def _set(self, variables: Integers, linears: Linears) -> None:
        self._constants[variables] = linears.constants
        self._first[variables] = self._pooled + linears.terms.starts[:-1]
        self._length[variables] = linears.terms.lengths
        self._terms.append(linears.terms.items)
        self._factors.append(linears.coefficients)
        self._pooled += len(linears.terms.items)

    def of(self, linears: Linears) -> Linears:
        """Expressions over variables as ones over cells and atoms, or one product."""
        return self.settled(self._replaced(linears))

    def _replaced(self, linears: Linears) -> Linears:
        """What variables are in place of them."""
        if len(self._terms) > 1:
            self._terms, self._factors = [np.concatenate(self._terms)], [np.concatenate(self._factors)]
        variables, count = linears.terms.items, len(linears)
        lengths = self._length[variables]
        starts = np.concatenate(([0], np.cumsum(lengths)))
        places = np.repeat(self._first[variables] - starts[:-1], lengths) + np.arange(starts[-1])
        terms = self._terms[0][places]
        factors = np.repeat(linears.coefficients, lengths) * self._factors[0][places]
        constants = linears.constants.copy()
        np.add.at(constants, linears.terms.owners, linears.coefficients * self._constants[variables])
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
        stays = self.products.is_term[self._sum_of(linears.terms.items[products])]
        products[products] = ~(stays & (linears.terms.lengths == 1)[linears.terms.owners[products]])
        return self._with_cells(linears, products)

    def written_out(self, linears: Linears) -> Linears:
        """The same with every product written out."""
        return self._with_cells(linears, linears.terms.items >= self._first_product)

    def _with_cells(self, linears: Linears, written: Mask) -> Linears:
        """With these terms, which are products, written out."""
        if not written.any():
            return linears
        owners, factors = linears.terms.owners[written], linears.coefficients[written]
        parts = [Linears(linears.constants, linears.terms.keep(~written), linears.coefficients[~written])]
        whose = [np.arange(len(linears))]
        for mine, found in self.products.written_out(self._sum_of(linears.terms.items[written])):
            parts.append(self._replaced(found).scaled(factors[mine]))
            whose.append(owners[mine])
        return stacked(parts).summed(np.concatenate(whose), len(linears))

    def _sum_of(self, products: Integers) -> Integers:
        """Which sum of the problem, by its place, each product is."""
        return self._first_product + len(self.products) - 1 - products

    def of_literals(self, literals: Integers) -> Linears:
        """Literals, as 0 and 1."""
        return self.of(Linears.literals(literals))

    # ---- definitions --------------------------------------------------------------------------------

    def _define(self, block: Defined) -> None:
        block = block.take(np.flatnonzero(~self._known[block.variables]))
        operands = self.of(block.operands)
        if block.operator is Operator.TOTAL:
            self._set(block.variables, operands)
            return
        owner_of_operand = np.repeat(np.arange(len(block)), np.diff(block.starts))
        owner = owner_of_operand[operands.terms.owners]
        row = self._choosing(operands.terms.items)
        own = operands.terms.items // max(1, self.cells.values)
        follows = np.flatnonzero(own != row)
        atomic = np.zeros(len(block), np.bool_)
        atomic[owner[operands.terms.items >= self.width]] = True
        single = _alike(row, owner, len(block)) & _alike(own[follows], owner[follows], len(block)) & ~atomic
        alone, others = np.flatnonzero(single), np.flatnonzero(~single)
        everywhere = Lists(block.starts, np.arange(int(block.starts[-1])))
        if len(alone):
            of_alone = everywhere.take(alone)
            table = self._tabulated(block.operator, of_alone.starts, operands.take(of_alone.items))
            self._set(block.variables[alone], table)
        if len(others):
            self.block[block.variables[others]] = len(self.atoms)
            self.place[block.variables[others]] = np.arange(len(others))
            kept = everywhere.take(others)
            lists = Lists(kept.starts, np.arange(len(kept.items)))
            made = Atoms(block.operator, block.variables[others], lists, operands.take(kept.items))
            self.atoms.append(made)

    def _choosing(self, terms: Integers) -> Integers:
        """The row that each cell depends on, of which others follow; of atoms anything."""
        rows = np.minimum(terms, self.width - 1) // max(1, self.cells.values)
        return self.following.choosing(rows) if self.following.any else rows

    def _tabulated(self, operator: Operator, starts: Integers, operands: Linears) -> Linears:
        """What depends on one row each."""
        return self.told(lambda begins, values: operate(operator, begins, values), starts, operands)

    def told(
        self, tell: Callable[[Integers, Integers], Integers], starts: Integers, operands: Linears
    ) -> Linears:
        """What depends on one row each, asked for every value that is mentioned and for any other one.

        Where another row follows it each of these is asked once without the other one, and once with it.
        """
        count, values = len(starts) - 1, max(1, self.cells.values)
        owner = np.repeat(np.arange(count), np.diff(starts))[operands.terms.owners]
        value, chooses = operands.terms.items % values, self._choosing(operands.terms.items)
        follows = operands.terms.items // values != chooses
        first, number = group_numbers(owner, value)
        whose, row = owner[first], chooses[first]
        follower = filled(count, _UNDEFINED)
        follower[owner[follows]] = operands.terms.items[follows] // values
        both = np.flatnonzero(follower[whose] != _UNDEFINED)
        # Each definition is asked once for each of these, once for each with the row that follows, and once for none.
        asked = np.concatenate((whose, whose[both], np.arange(count)))
        width = np.diff(starts)[asked]
        begins = np.concatenate(([0], np.cumsum(width)))
        operand = np.repeat(starts[:-1][asked] - begins[:-1], width) + np.arange(begins[-1])
        values_of = operands.constants[operand].copy()
        inside, factors = operands.terms.owners - starts[:-1][owner], operands.coefficients
        values_of[begins[number[~follows]] + inside[~follows]] += factors[~follows]
        place = filled(len(first), -1)
        place[both] = len(first) + np.arange(len(both))
        there = np.flatnonzero(place[number] >= 0)
        np.add.at(values_of, begins[place[number[there]]] + inside[there], factors[there])
        told = tell(begins, values_of)
        alone, beside, otherwise = np.split(told, (len(first), len(first) + len(both)))
        change = np.concatenate((alone - otherwise[whose], beside - alone[both]))
        rows = np.concatenate((row, follower[whose[both]]))
        cells = rows * values + np.concatenate((value[first], value[first][both]))
        whose = np.concatenate((whose, whose[both]))
        order = np.lexsort((cells, whose))
        kept = order[change[order] != 0]
        return Linears(otherwise, Lists.grouped(whose[kept], cells[kept], count), change[kept])

    # ---- what expressions are like ------------------------------------------------------------------

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
        is_cell, others = terms < self.width, np.maximum(terms - self.width, 0)
        return np.where(is_cell, 0, self.lower[others]), np.where(is_cell, 1, self.upper[others])

    def factors(self, linears: Linears) -> Factors:
        """The rows and values of sums over cells and of products, none of them empty and none with atoms."""
        product = self.is_product(linears)
        if not product.any():
            return factors_of(linears, self.cells.values)
        sums = self._sum_of(linears.terms.items[linears.terms.starts[:-1][product]])
        told = self.products.factors.take(sums)
        if product.all():
            return told
        parts = told, factors_of(linears.take(np.flatnonzero(~product)), self.cells.values)
        order = np.argsort(np.argsort(~product, kind="stable"), kind="stable")
        return joined_factors(parts).with_equal_kinds().take(order)

    def is_defined(self, operator: Operator, terms: Integers) -> Mask:
        """Which terms are atoms of this operator."""
        blocks = self.block[np.maximum(terms - self.width, 0)]
        wanted = np.array([block.operator is operator for block in self.atoms] + [False], np.bool_)
        found: Mask = self.is_atom(terms) & wanted[blocks]
        return found

    def operands(self, terms: Integers) -> tuple[Linears, Integers]:
        """The operands of atoms, all of one operator: expressions, and of which of the atoms each is."""
        variables = terms - self.width
        found: list[Linears] = []
        owners: list[Integers] = []
        for number in np.unique(self.block[variables]).tolist():
            block = self.atoms[number]
            mine = np.flatnonzero(self.block[variables] == number)
            lists = block.operands.take(self.place[variables[mine]])
            found.append(block.linears.take(lists.items))
            owners.append(mine[lists.owners])
        owner = np.concatenate([filled(0, 0), *owners])
        order = np.argsort(owner, kind="stable")
        return stacked(found).take(order), owner[order]

    def row_of(self, cells: Integers) -> Integers:
        return cells // self.cells.values

    def value_of(self, cells: Integers) -> Integers:
        return cells % self.cells.values


def _alike(numbers: Integers, owners: Integers, count: int) -> Mask:
    """Of which owners all numbers are the same."""
    lowest, highest = filled(count, 2**62), filled(count, -1)
    np.minimum.at(lowest, owners, numbers)
    np.maximum.at(highest, owners, numbers)
    found: Mask = highest <= lowest
    return found
