"""What an objective is to an assignment: costs of rows, and costs of loads.

Terms over cells are what rows pay; other terms are followed to the sums that they are made of.  Those of one structure
are one function of loads, place by place; a greatest of many is a peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mgmt.optimization.assignment import (
    NONE,
    Cost,
    Load,
    LoadCost,
    RowCost,
)
from mgmt.optimization.columns import Integers, Linears, Lists, Mask, filled, group_numbers, stacked
from mgmt.optimization.general.operators import Operator
from mgmt.optimization.lifting.functions import operated, placed, weighted
from mgmt.optimization.lifting.pairs.prices import PairPrices
from mgmt.optimization.lifting.pairs.tables import PairFunctions
from mgmt.optimization.lifting.refusal import NotLiftedError
from mgmt.optimization.lifting.sums.cell_sums import CellSums
from mgmt.optimization.lifting.sums.families import Family, families_of
from mgmt.optimization.lifting.sums.normal_form import reduced
from mgmt.optimization.load_functions import Greatest, LoadFunction, LoadNumber, Positive, greatest
from mgmt.optimization.problem import Objective

_MOST_PEAKS = 64
_MANY_CELLS = 10_000
"""Of a sum that is not written out."""
_WIDE = 3
"""A greatest of so many is a peak."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What an objective costs, to be minimised, and what it costs whatever is chosen."""

    costs: tuple[Cost, ...]
    constant: int


class CostLifter:
    """Lifts objectives."""

    def __init__(self, sums: CellSums) -> None:
        self._sums, self._cells = sums, sums.cells
        self._shapes = _shapes(sums)
        """By ``CellSums.slots``."""

    def costs_of(self, objective: Objective) -> Costs:
        """Raises NotLiftedError if it has no structure that loads have."""
        self._sums.deadline.check()
        factor = (-1 if objective.maximize else 1) * objective.weight
        whole = self._sums.replaced(Linears.of(objective.linear)).scaled(factor)
        paid, linear = self._paid_by_rows(objective.name, whole)
        linear = self._sums.written_out(linear)
        terms, factors = linear.terms.items, linear.coefficients
        is_cell = terms < self._sums.width
        found: list[Cost] = list(paid)
        constant = int(linear.constants[0])
        if is_cell.any():
            cost, idle = self._row_cost(objective.name, terms[is_cell], factors[is_cell])
            found.append(cost)
            constant += idle
        atoms, factors = terms[~is_cell], factors[~is_cell]
        shapes = self._shapes[self._sums.slots(atoms)]
        pairs = list[Mask]()
        for shape in np.unique(shapes).tolist():
            self._sums.deadline.check()
            some = shapes == shape
            try:
                found.extend(self._of_one_shape(objective.name, atoms[some], factors[some]))
            except NotLiftedError:
                pairs.append(some)
        if pairs:
            prices = PairPrices(self._cells)
            for some in pairs:
                prices.add(self._functions_of_pairs.values(atoms[some]), factors[some])
            found.extend(prices.costs(objective.name))
            constant += prices.constant
        return Costs(tuple(found), constant)

    @cached_property
    def _functions_of_pairs(self) -> PairFunctions:
        return PairFunctions(self._sums)

    # ---- costs of rows ------------------------------------------------------------------------------

    def _paid_by_rows(self, name: str, linear: Linears) -> tuple[list[RowCost], Linears]:
        """Sums over products of rows and values that are large, as costs of rows; and what is left."""
        sums, products = self._sums, self._sums.products
        terms = linear.terms.items
        large = sums.is_product(Linears.single(terms))
        large[large] = products.sizes[sums.sum_of(terms[large])] > _MANY_CELLS
        found = []
        for place in np.flatnonzero(large).tolist():
            sides = products.sides(int(sums.sum_of(terms[place])), sums.places)
            if sides is None:
                large[place] = False
                continue
            (rows, values), factor = sides, int(linear.coefficients[place])
            weight, price = filled(self._cells.rows, 0), filled(self._cells.values, 0)
            weight[rows.members.items], price[values.members.items] = rows.weights, factor * values.weights
            of_class, number = np.unique(weight, return_inverse=True)
            table = of_class[:, None] * price[None, :]
            none, unmoved = filled(len(of_class), 0), filled(self._cells.rows, 0)
            found.append(RowCost(name, 1, number.astype(np.int32), table, none, unmoved))
        rest = Linears(linear.constants, linear.terms.keep(~large), linear.coefficients[~large])
        return found, rest

    def _row_cost(self, name: str, terms: Integers, factors: Integers) -> tuple[RowCost, int]:
        cells = self._cells
        row, value = self._sums.row_of(terms), self._sums.value_of(terms)
        moved = filled(cells.rows, 0)
        if bool((cells.current[row] == value).all()) and bool((factors <= 0).all()):
            # Less for staying is more for leaving.
            moved[row] = -factors
            none = np.zeros((1, cells.values), np.int64)
            rows = np.zeros(cells.rows, np.int32)
            return RowCost(name, 1, rows, none, none[:, 0], moved), int(factors.sum())
        order = np.argsort(row, kind="stable")
        pairs = np.stack((value[order], factors[order]), 1).ravel()
        starts = 2 * np.concatenate(([0], np.cumsum(np.bincount(row, minlength=cells.rows))))
        first, number = Lists(starts.astype(np.int64), pairs).alike()
        table = np.zeros((len(first), cells.values), np.int64)
        kept, every = np.isin(row, first), self._sums.is_every(terms)
        table[number[row[kept & every]]] += factors[kept & every][:, None]
        table[number[row[kept & ~every]], value[kept & ~every]] += factors[kept & ~every]
        return RowCost(name, 1, number.astype(np.int32), table, filled(len(first), 0), moved), 0

    # ---- costs of loads -----------------------------------------------------------------------------

    def _of_one_shape(self, name: str, atoms: Integers, factors: Integers) -> list[LoadCost]:
        peaks = bool(self._sums.is_defined(Operator.MAXIMUM, atoms).all())
        wide = peaks and (len(atoms) == 1 or self._sums.operand_counts(atoms).max() >= _WIDE)
        if wide and not self._are_of_one_sum(atoms):
            if len(atoms) > _MOST_PEAKS:
                raise NotLiftedError("a greatest of each of many groups")
            pairs = zip(atoms.tolist(), factors.tolist(), strict=True)
            return [self._peak(name, atom, factor) for atom, factor in pairs]
        # A price that is the same for all is the objective's; it need not be in the function.
        weight = int(factors[0]) if factors[0] > 0 and bool((factors == factors[0]).all()) else 1
        each = np.arange(len(atoms) + 1)
        linears = Linears(filled(len(atoms), 0), Lists(each, atoms), factors // weight)
        return [
            LoadCost(name, weight, family.loads, self._placed(function, family, 0), False)
            for function, family in self._functions(linears)
        ]

    def _are_of_one_sum(self, atoms: Integers) -> bool:
        """Whether each is the greatest of functions of one sum, as of what it is above a bound and below another."""
        operands, owners = self._sums.operands(atoms)
        varied = np.flatnonzero(~operands.is_constant)
        _, number = operands.terms.alike()
        first, _ = group_numbers(owners[varied], number[varied])
        return int(np.bincount(owners[varied][first], minlength=1).max()) == 1

    def _functions(self, linears: Linears) -> list[tuple[LoadFunction, Family]]:
        """Expressions of one structure as a function of sums, and the families of these sums."""
        resolver = _Resolver(self._sums, self._shapes)
        function = resolver.resolved(linears)
        if not resolver.bases:
            raise NotLiftedError("a cost of no sum")
        factors = [self._sums.factors(base) for base in resolver.bases]
        return [(function, family) for family in families_of(factors, self._cells.rows, self._cells.values)]

    def _placed(self, function: LoadFunction, family: Family, otherwise: int) -> LoadFunction:
        row = np.full(family.shape, NONE, np.int64)
        row[family.group, family.bucket] = family.members
        return placed(function, row, otherwise)

    def _peak(self, name: str, atom: int, factor: int) -> LoadCost:
        if factor < 0:
            raise NotLiftedError("a greatest that is to be great")
        operands = self._flattened(np.array([atom]))
        lowest = int(self._sums.lower[self._sums.slots(np.array([atom]))[0]])
        constant = operands.is_constant
        if constant.any():
            lowest = max(lowest, int(operands.constants[constant].max()))
            operands = operands.take(np.flatnonzero(~constant))
        shapes = _shape_of(operands, self._sums, self._shapes)
        parts: list[tuple[LoadFunction, tuple[Load, ...]]] = []
        for shape in np.unique(shapes).tolist():
            for function, family in self._functions(operands.take(np.flatnonzero(shapes == shape))):
                parts.append((self._placed(function, family, lowest), family.loads))
        if constant.any():
            parts = [(greatest(function, lowest), loads) for function, loads in parts]
        return _joined_peak(name, factor, parts)

    def _flattened(self, atoms: Integers) -> Linears:
        """What a greatest is of, where that is greatests of others, too."""
        operands, _ = self._sums.operands(atoms)
        while True:
            terms = operands.terms
            first = np.append(terms.items, 0)[terms.starts[:-1]]
            inner = (terms.lengths == 1) & self._sums.is_defined(Operator.MAXIMUM, first)
            inner &= np.append(operands.coefficients, 0)[terms.starts[:-1]] > 0
            places = np.flatnonzero(inner)
            if not len(places):
                return operands
            below, owners = self._sums.operands(first[places])
            outer = operands.take(places)
            below = below.scaled(outer.coefficients[owners]).plus(outer.constants[owners])
            operands = stacked([operands.take(np.flatnonzero(~inner)), below])


def _joined_peak(name: str, weight: int, parts: Sequence[tuple[LoadFunction, tuple[Load, ...]]]) -> LoadCost:
    if len(parts) == 1:
        return LoadCost(name, weight, parts[0][1], parts[0][0], True)
    if len({(load.groups, load.buckets) for _, loads in parts for load in loads}) > 1:
        raise NotLiftedError("the greatest over values in different groups")
    terms: list[LoadFunction] = []
    every: list[Load] = []
    for function, loads in parts:
        first = len(every)

        def renumbered(leaf: LoadFunction, first: int = first) -> LoadFunction:
            return LoadNumber(first + leaf.number) if isinstance(leaf, LoadNumber) else leaf

        terms.append(function.mapped(renumbered))
        every.extend(loads)
    return LoadCost(name, weight, tuple(every), Greatest(tuple(terms)), True)


class _Resolver:
    """Follows expressions of one structure to the sums over cells that they are made of."""

    def __init__(self, sums: CellSums, shapes: Integers) -> None:
        self._sums, self._shapes = sums, shapes
        self.bases: list[Linears] = []

    def resolved(self, linears: Linears) -> LoadFunction:
        sums = self._sums
        linears = sums.unmixed(linears, np.arange(len(linears)))
        is_cell = ~sums.is_atom(linears.terms.items)
        parts: list[tuple[Integers, LoadFunction]] = []
        constants = linears.constants
        if is_cell.any():
            cells = Linears(
                filled(len(linears), 0), linears.terms.keep(is_cell), linears.coefficients[is_cell]
            )
            base = reduced(cells, sums)
            constants = constants + base.constants
            lengths = base.linears.terms.lengths
            if lengths.any() and not lengths.all():
                raise NotLiftedError("a sum of nothing beside sums of something")
            if lengths.any():
                parts.append((base.factors, LoadNumber(self._known(base.linears))))
        atoms = linears.terms.items[~is_cell]
        factors, owners = linears.coefficients[~is_cell], linears.terms.owners[~is_cell]
        order = np.lexsort((atoms, self._shapes[sums.slots(atoms)], owners))
        number = len(atoms) // max(1, len(linears))
        for place in range(number):
            some = order[place::number]
            parts.append((factors[some], self._operated(atoms[some])))
        return weighted(constants, parts)

    def _known(self, linears: Linears) -> int:
        for number, base in enumerate(self.bases):
            if (
                np.array_equal(base.terms.starts, linears.terms.starts)
                and np.array_equal(base.terms.items, linears.terms.items)
                and np.array_equal(base.coefficients, linears.coefficients)
            ):
                return number
        self.bases.append(linears)
        return len(self.bases) - 1

    def _operated(self, atoms: Integers) -> LoadFunction:
        sums = self._sums
        operators = {
            sums.atoms[block].operator if block >= 0 else None
            for block in np.unique(sums.block[sums.slots(atoms)]).tolist()
        }
        if len(operators) != 1 or operators & {None, Operator.MATCH}:
            raise NotLiftedError("a cost of what is no sum over cells")
        (operator,) = operators
        assert operator is not None
        operands, owners = sums.operands(atoms)
        if operator is Operator.AT_MOST_ZERO and not sums.atomic(operands).any():
            return self._at_most_zero(operands)
        number = len(owners) // len(atoms)
        if bool((np.bincount(owners, minlength=len(atoms)) != number).any()):
            raise NotLiftedError("greatests of different widths")
        columns = [operands.take(np.arange(place, len(operands), number)) for place in range(number)]
        if operator is Operator.MAXIMUM:
            columns = self._in_order(operands, number)
        return operated(operator, list(map(self.resolved, columns)), len(atoms))

    def _at_most_zero(self, operands: Linears) -> LoadFunction:
        """Whether sums are at most a bound, or at least one."""
        base = reduced(operands, self._sums)
        if not base.linears.terms.lengths.all():
            raise NotLiftedError("a sum of nothing beside sums of something")
        load, rising = LoadNumber(self._known(base.linears)), base.factors > 0
        size, one = np.abs(base.factors), filled(len(operands), 1)
        if rising.all():
            most = -base.constants // size
            return weighted(one, [(-one, Positive(weighted(-most, [(one, load)])))])
        if rising.any():
            raise NotLiftedError("sums that are at least a bound beside some that are at most one")
        least = -(-base.constants // size)
        return Positive(weighted(1 - least, [(one, load)]))

    def _in_order(self, operands: Linears, number: int) -> list[Linears]:
        """The operands of greatests, those of one structure side by side."""
        shapes = _shape_of(operands, self._sums, self._shapes)
        owners = np.arange(len(operands)) // number
        order = np.lexsort((np.arange(len(operands)), shapes, owners))
        columns = []
        for place in range(number):
            some = order[place::number]
            if len(np.unique(shapes[some])) > 1:
                raise NotLiftedError("greatests of different structure")
            columns.append(operands.take(some))
        return columns


# ---- structures -------------------------------------------------------------------------------------


def _shapes(sums: CellSums) -> Integers:
    """A number for the structure of every atom: the operator, and the structures of its operands."""
    found = filled(len(sums.block), 0)
    for block in sums.atoms:
        inner = _shape_of(block.linears, sums, found)[block.operands.items]
        place = np.arange(len(inner)) - np.repeat(block.operands.starts[:-1], block.operands.lengths)
        if block.operator is Operator.MAXIMUM:  # in any order
            place = np.zeros_like(place)
        mixed = _mixed(inner + place * 7919)
        total = filled(len(block.terms), 0)
        np.add.at(total, block.operands.owners, mixed)
        found[sums.slots(block.terms)] = _mixed(total + 31 * list(Operator).index(block.operator) + 17)
    return found


def _shape_of(linears: Linears, sums: CellSums, shapes: Integers) -> Integers:
    """The same for expressions: whether they have cells, and the structures of their atoms, in any order."""
    terms, owners = linears.terms.items, linears.terms.owners
    atomic = sums.is_atom(terms)
    found = linears.terms.any(~atomic).astype(np.int64)
    np.add.at(found, owners[atomic], _mixed(shapes[sums.slots(terms[atomic])]))
    return found


def _mixed(values: Integers) -> Integers:
    with np.errstate(over="ignore"):
        found = (values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
        found ^= found >> np.uint64(29)
        return (found * np.uint64(0x94D049BB133111EB)).view(np.int64)
