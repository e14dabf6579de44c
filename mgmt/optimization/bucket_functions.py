"""Cost functions of loads asked for some buckets alone.

What a bucket costs depends on its own load, so a function over thousands of buckets can be asked for a few of them; one
that tells buckets apart by little (a square of the load by nothing at all) can be asked for one of each sort.  Whatever
knows how implements :class:`Bucketwise`; of other functions every bucket is a sort of its own, and all are asked.

What it is not: it knows neither what the functions mean nor which buckets matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np

from mgmt.optimization.assignment import Amounts, CostFunction, Indices, LoadCost


@runtime_checkable
class Bucketwise(Protocol):
    """A cost function that can be had for some buckets alone."""

    def __call__(self, loads: tuple[Amounts, ...]) -> Amounts:
        """As ``LoadCost.cost``."""

    def of_buckets(self, buckets: Indices, number: int) -> CostFunction:
        """The function over these of its ``number`` buckets, in this order."""

    def sorts(self, number: int) -> Indices:
        """(number,) what sort each bucket is of: those of one sort cost alike under equal loads."""


class Uniform:
    """A cost function that is the same for every bucket."""

    __slots__ = ()

    def of_buckets(self, buckets: Indices, number: int) -> Self:
        return self

    def sorts(self, number: int) -> Indices:
        return np.zeros(number, np.int32)


def of_buckets(function: CostFunction, buckets: Indices, number: int) -> CostFunction:
    """A function over ``number`` buckets as one over some of them, in this order."""
    if isinstance(function, Bucketwise):
        return function.of_buckets(buckets, number)
    return _Within(function, buckets, number)


def sorts_of(function: CostFunction, number: int) -> Indices:
    """(number,) what sort each of a function's buckets is of."""
    return function.sorts(number) if isinstance(function, Bucketwise) else np.arange(number, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class _Within:
    """A function that has to be asked for all its buckets."""

    function: CostFunction
    buckets: Indices
    number: int

    def __call__(self, loads: tuple[Amounts, ...]) -> Amounts:
        whole = []
        for load in loads:
            spread = np.zeros((*load.shape[:-1], self.number), np.int64)
            spread[..., self.buckets] = load
            whole.append(spread)
        costs = np.broadcast_to(self.function(tuple(whole)), whole[0].shape)
        return np.asarray(costs[..., self.buckets])

    def of_buckets(self, buckets: Indices, number: int) -> CostFunction:
        del number
        return _Within(self.function, self.buckets[buckets], self.number)

    def sorts(self, number: int) -> Indices:
        del number
        return sorts_of(self.function, self.number)[self.buckets]


@dataclass(frozen=True, slots=True, eq=False)
class Greatest:
    """The greatest of several functions: each with the number of its first load, and how many it has from there on."""

    functions: tuple[tuple[CostFunction, int, int], ...]

    def __call__(self, loads: tuple[Amounts, ...]) -> Amounts:
        found = [function(loads[at : at + width]) for function, at, width in self.functions]
        return np.asarray(np.maximum.reduce(np.broadcast_arrays(*found)))

    def of_buckets(self, buckets: Indices, number: int) -> Greatest:
        return Greatest(
            tuple(
                (of_buckets(function, buckets, number), at, width) for function, at, width in self.functions
            )
        )

    def sorts(self, number: int) -> Indices:
        told = [sorts_of(function, number) for function, _, _ in self.functions]
        return np.unique(np.stack(told), axis=1, return_inverse=True)[1].reshape(-1).astype(np.int32)


def parts_of(cost: LoadCost) -> tuple[LoadCost, ...]:
    """The peaks of which a cost is the greatest; itself where it is not made of several."""
    if not cost.peak or not isinstance(cost.cost, Greatest):
        return (cost,)
    return tuple(
        LoadCost(cost.name, cost.weight, cost.loads[at : at + width], function, True)
        for function, at, width in cost.cost.functions
    )
