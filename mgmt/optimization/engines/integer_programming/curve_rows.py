"""Curves of loads as rows over further whole numbers, operator by operator, so that no number of steps is too large.

A polynomial is linear in its load and the load's square; a quotient is between two rows; a comparison is a variable of
0 or 1.  Only products, quotients of either sign and greatest numbers that must be exact need more than rows; beside
each of these stand the rows that it implies, for linear relaxations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mgmt.optimization.assignment import Amounts
from mgmt.optimization.engines.integer_programming.count_terms import (
    Division,
    Maximum,
    Multiplication,
    Row,
    Sum,
    added,
    at_least,
    scaled,
)
from mgmt.optimization.engines.model.cost_functions import Curve, UnsuitableError
from mgmt.optimization.load_functions import (
    Greatest,
    LoadFunction,
    LoadNumber,
    Positive,
    Product,
    Quotient,
    Total,
)

_TANGENTS = 24
"""Evenly along a curve, and as many at distances that grow."""


@dataclass(slots=True)
class CurveRows:
    """What one curve comes to at each place, written down; the rows say nothing besides."""

    curve: Curve
    loads: Sequence[Mapping[int, int]]
    """Per load and place a variable, in steps; none where nothing is."""
    new_variable: Callable[[int, int], int]
    rows: list[Row] = field(default_factory=list)
    maxima: list[Maximum] = field(default_factory=list)
    multiplications: list[Multiplication] = field(default_factory=list)
    divisions: list[Division] = field(default_factory=list)
    _made: list[tuple[LoadFunction, int]] = field(default_factory=list)
    """What each new variable is, and at which place."""
    _terms: dict[int, dict[tuple[int, ...], list[int]] | None] = field(default_factory=dict)
    _ranges: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    _powers: dict[tuple[tuple[int, ...], int], int] = field(default_factory=dict)
    _products: dict[tuple[int, ...], LoadFunction] = field(default_factory=dict)

    def at(self, place: int, *, above: bool) -> Sum:
        """What a place costs; ``above``: at least that, no more."""
        return self._write(self.curve.function, place, above)

    def values(self, loads: tuple[Amounts, ...]) -> list[int]:
        """The new variables under these loads, (groups, buckets)."""
        known: dict[int, list[int]] = {}
        for node, _ in self._made:
            if id(node) not in known:
                known[id(node)] = np.broadcast_to(node(loads), loads[0].shape).reshape(-1).tolist()
        return [known[id(node)][place] for node, place in self._made]

    # ---- nodes --------------------------------------------------------------------------------------

    def _write(self, node: LoadFunction, place: int, above: bool) -> Sum:
        polynomial = self._polynomial(node, place)
        if polynomial is not None:
            return polynomial
        low, high = self._range(node, place)
        if low == high:
            return Sum(low, [], [])
        if isinstance(node, Total):
            return added([self._write(part, place, above) for part in node.terms])
        if isinstance(node, Product):
            return self._product(node, place, above)
        if isinstance(node, Quotient):
            return self._quotient(node, place, above)
        if isinstance(node, Positive):
            return self._positive(node, place)
        assert isinstance(node, Greatest)
        terms = [self._write(part, place, above) for part in node.terms]
        found = self._new(node, place)
        self.rows += [at_least(found, term, implied=not above) for term in terms]
        if not above:
            self.maxima.append(Maximum(found.variables[0], terms))
        return found

    def _polynomial(self, node: LoadFunction, place: int) -> Sum | None:
        """It as a sum over loads and their products, if it is one."""
        if id(node) not in self._terms:
            terms = self.curve.whole.of(node).terms
            self._terms[id(node)] = (
                None if terms is None else {loads: self._flat(factor) for loads, factor in terms.items()}
            )
        found = self._terms[id(node)]
        if found is None:
            return None
        sums = []
        for loads, factors in found.items():
            factor = factors[place]
            if not loads or not factor:
                sums.append(Sum(factor if not loads else 0, [], []))
            elif all(place in self.loads[number] for number in loads):
                variable = self.loads[loads[0]][place] if len(loads) == 1 else self._pairs(loads, place)
                sums.append(Sum(0, [variable], [factor]))
        return added(sums)

    def _pairs(self, loads: tuple[int, ...], place: int) -> int:
        """A variable for the product of two loads, or for the pairs that the steps of one make."""
        if (loads, place) in self._powers:
            return self._powers[loads, place]
        factors = [Sum(0, [self.loads[number][place]], [1]) for number in loads]
        one, most = (int(self.curve.reaches[number].most.reshape(-1)[place]) for number in loads)
        if loads[0] != loads[1]:
            target = self._variable(0, one * most, self._product_of(loads), place)
            self._enclose(Sum(0, [target], [1]), factors, ((0, one), (0, most)), implied=True)
            self.multiplications.append(Multiplication(Sum(0, [target], [1]), factors))
        else:
            target = self._variable(0, most * (most - 1) // 2, self._product_of(loads), place)
            pairs, twice = Sum(0, [target], [1]), Sum(0, [target], [2])
            self.multiplications.append(
                Multiplication(twice, [factors[0], added([factors[0], Sum(-1, [], [])])])
            )
            self.rows.append(at_least(scaled(factors[0], most - 1), twice, implied=True))
            for step in _tangent_points(most):
                line = added([scaled(factors[0], step), Sum(-step * (step + 1) // 2, [], [])])
                self.rows.append(at_least(pairs, line, implied=True))
        self._powers[loads, place] = target
        return target

    def _product_of(self, loads: tuple[int, ...]) -> LoadFunction:
        """The same as a function."""
        if loads not in self._products:
            one, other = (LoadNumber(number).over(self.curve.reaches[number].step) for number in loads)
            self._products[loads] = one * other if loads[0] != loads[1] else (one * (one - 1)).over(2)
        return self._products[loads]

    def _product(self, node: Product, place: int, above: bool) -> Sum:
        one, other = (self._range(part, place) for part in node.parts)
        for (low, high), part in ((one, node.other), (other, node.one)):
            if low == high:
                return scaled(self._write(part, place, above and low >= 0), low)
        factors = [self._write(part, place, False) for part in node.parts]
        found = self._new(node, place)
        told = (0, 1) in (one, other)  # with a factor of 0 or 1 the rows say it all
        self._enclose(found, factors, (one, other), implied=not told)
        if not told:
            self.multiplications.append(Multiplication(found, factors))
        return found

    def _enclose(
        self, product: Sum, factors: Sequence[Sum], ranges: Sequence[tuple[int, int]], *, implied: bool
    ) -> None:
        """The rows that a product keeps (McCormick 1976)."""
        (one, other), ((low, high), (least, most)) = factors, ranges
        for left, right, below in (
            (low, least, True),
            (high, most, True),
            (low, most, False),
            (high, least, False),
        ):
            plane = added([scaled(one, right), scaled(other, left), Sum(-left * right, [], [])])
            pair = (product, plane) if below else (plane, product)
            self.rows.append(at_least(*pair, implied=implied))

    def _quotient(self, node: Quotient, place: int, above: bool) -> Sum:
        divisor, largest = self._range(node.divisor, place)
        if divisor != largest:
            raise UnsuitableError("a quotient of two loads")
        low, high = self._range(node.dividend, place)
        dividend = self._write(node.dividend, place, above and divisor > 0)
        if divisor < 0:
            divisor, low, high, dividend = -divisor, -high, -low, scaled(dividend, -1)
        found = self._new(node, place)
        whole = scaled(found, divisor)
        mixed = low < 0 < high
        more = added([dividend, Sum(0 if high <= 0 else 1 - divisor, [], [])])
        less = added([dividend, Sum(0 if low >= 0 else divisor - 1, [], [])])
        self.rows.append(at_least(whole, more, implied=mixed))
        if mixed or not above:
            self.rows.append(at_least(less, whole, implied=mixed))
        if mixed:
            self.divisions.append(Division(found.variables[0], dividend, divisor))
        return found

    def _positive(self, node: Positive, place: int) -> Sum:
        low, high = self._range(node.number, place)
        number, found = self._write(node.number, place, False), self._new(node, place)
        self.rows.append(at_least(scaled(found, high), number))
        self.rows.append(at_least(number, added([scaled(found, 1 - low), Sum(low, [], [])])))
        return found

    # ---- variables ----------------------------------------------------------------------------------

    def _new(self, node: LoadFunction, place: int) -> Sum:
        return Sum(0, [self._variable(*self._range(node, place), node, place)], [1])

    def _variable(self, low: int, high: int, node: LoadFunction, place: int) -> int:
        self._made.append((node, place))
        return self.new_variable(low, high)

    def _range(self, node: LoadFunction, place: int) -> tuple[int, int]:
        if id(node) not in self._ranges:
            bend = self.curve.whole.of(node)
            self._ranges[id(node)] = self._flat(bend.low), self._flat(bend.high)
        low, high = self._ranges[id(node)]
        return low[place], high[place]

    def _flat(self, told: Amounts) -> list[int]:
        shape = (1, *self.curve.reaches[0].most.shape)
        flat: list[int] = np.broadcast_to(told, shape).reshape(-1).tolist()
        return flat


def _tangent_points(most: int) -> list[int]:
    """Steps at which a line touches a curve."""
    even = np.linspace(0, max(most - 1, 0), _TANGENTS)
    growing = np.geomspace(1, max(most, 1), _TANGENTS) - 1
    points: list[int] = np.unique(np.concatenate((even, growing)).astype(np.int64)).tolist()
    return points
