"""What an objective makes of sums over cells, in many rows at once: trees of operators, with constants row by row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mgmt.optimization.assignment import NONE, Amounts, Indices
from mgmt.optimization.columns import Integers, truncated
from mgmt.optimization.dense_ranks import joint_ranks
from mgmt.optimization.general.operators import Operator


class RowFunction(ABC):
    """A number in each of some rows, out of sums in these rows."""

    @abstractmethod
    def at(self, amounts: Sequence[Amounts], rows: Integers) -> Amounts:
        """Its values where the sums come to these; ``rows`` are broadcastable to each of them."""

    @abstractmethod
    def constants(self) -> Iterator[Integers]:
        """What tells rows apart."""


@dataclass(frozen=True, slots=True, eq=False)
class Amount(RowFunction):
    """One of the sums."""

    number: int

    def at(self, amounts: Sequence[Amounts], rows: Integers) -> Amounts:
        del rows
        return amounts[self.number]

    def constants(self) -> Iterator[Integers]:
        yield from ()


@dataclass(frozen=True, slots=True, eq=False)
class Weighted(RowFunction):
    """A constant, and others by their factors."""

    constant: Integers
    parts: tuple[tuple[Integers, RowFunction], ...]

    def at(self, amounts: Sequence[Amounts], rows: Integers) -> Amounts:
        found = self.constant[rows]
        for factors, part in self.parts:
            found = found + factors[rows] * part.at(amounts, rows)
        return found

    def constants(self) -> Iterator[Integers]:
        yield self.constant
        for factors, part in self.parts:
            yield factors
            yield from part.constants()


@dataclass(frozen=True, slots=True, eq=False)
class Operated(RowFunction):
    """An operator over others."""

    operator: Operator
    parts: tuple[RowFunction, ...]

    def at(self, amounts: Sequence[Amounts], rows: Integers) -> Amounts:
        values = [part.at(amounts, rows) for part in self.parts]
        if self.operator is Operator.AT_MOST_ZERO:
            return (values[0] <= 0).astype(np.int64)
        if self.operator is Operator.MAXIMUM:
            return np.asarray(np.maximum.reduce(np.broadcast_arrays(*values)))
        one, other = values
        if self.operator is Operator.PRODUCT:
            return one * other
        quotient = truncated(one, other)
        return quotient if self.operator is Operator.QUOTIENT else one - other * quotient

    def constants(self) -> Iterator[Integers]:
        for part in self.parts:
            yield from part.constants()


@dataclass(frozen=True, slots=True, eq=False)
class PlacedFunction:
    """A cost function of loads: at each place that of a row, and the same number at places without one."""

    function: RowFunction
    row: Integers
    """(groups, buckets), or NONE."""
    otherwise: int

    def __call__(self, loads: tuple[Amounts, ...]) -> Amounts:
        there = self.row >= 0
        found = self.function.at(loads, np.maximum(self.row, 0))
        return found if there.all() else np.where(there, found, self.otherwise)

    def of_buckets(self, buckets: Indices, number: int) -> PlacedFunction:
        """See :class:`mgmt.optimization.bucket_functions.Bucketwise`."""
        del number
        return PlacedFunction(self.function, self.row[:, buckets], self.otherwise)

    def sorts(self, number: int) -> Indices:
        """See :class:`mgmt.optimization.bucket_functions.Bucketwise`."""
        told = [
            np.append(constants, 0)[group] for constants in self.function.constants() for group in self.row
        ]
        told += [(group == NONE).astype(np.int64) for group in self.row]
        return joint_ranks(told, number)[0].astype(np.int32)
