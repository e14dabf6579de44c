"""Cost functions of loads asked for some buckets alone.

What a bucket costs depends on its own load, so a function over thousands of buckets can be asked for a few of them; one
that tells buckets apart by little (a square of the load by nothing at all) can be asked for one of each sort.  Whatever
knows how implements :class:`Bucketwise`; of other functions every bucket is a sort of its own, and all are asked.

What it is not: it knows neither what the functions mean nor which buckets matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from mgmt.optimization.assignment import Amounts, CostFunction, Indices


@runtime_checkable
class Bucketwise(Protocol):
    """A cost function that can be had for some buckets alone."""

    def __call__(self, loads: tuple[Amounts, ...]) -> Amounts:
        """As ``LoadCost.cost``."""

    def of_buckets(self, buckets: Indices, number: int) -> CostFunction:
        """The function over these of its ``number`` buckets, in this order."""

    def sorts(self, number: int) -> Indices:
        """(number,) what sort each bucket is of: those of one sort cost alike under equal loads."""


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
