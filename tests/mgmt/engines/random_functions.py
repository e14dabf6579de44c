"""Random functions of loads, of the operators that there are."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np

from mgmt.optimization.assignment import Amounts, CostFunction
from mgmt.optimization.load_functions import LoadFunction, LoadNumber, Positive, constant, greatest
from tests.mgmt.engines.random_assignments import Maker


@dataclass(frozen=True)
class FunctionMaker:
    """Functions over groups and buckets whose constants are of about a size."""

    random: Random
    shape: tuple[int, int]
    size: int = 6

    def amounts(self, least: int, most: int) -> Amounts:
        groups, buckets = self.random.choice(((1, 1), (1, self.shape[1]), self.shape))
        return np.array([[self.random.randint(least, most) for _ in range(buckets)] for _ in range(groups)])

    def linear(self, loads: int) -> LoadFunction:
        load = LoadNumber(self.random.randrange(loads))
        return load * self.random.choice((1, 1, 2, -1, -3)) + self.amounts(-self.size, self.size)

    def function(self, depth: int, loads: int = 1) -> LoadFunction:
        random = self.random
        if depth == 0:
            return self.linear(loads) if random.random() < 0.9 else constant(self.amounts(-9, 9))
        one, other = (self.function(depth - 1, loads) for _ in range(2))
        made = (
            lambda: one + other,
            lambda: one * random.choice((2, -1, -2)),
            lambda: one * self.amounts(-2, 3),
            lambda: self.linear(loads) * self.linear(loads),
            lambda: one.over(self.amounts(1, 5)),
            lambda: one.over(self.amounts(-4, -1)),
            lambda: greatest(one, other),
            lambda: greatest(one, 0),
            lambda: Positive(one) * self.amounts(0, 9) + other,
            lambda: Positive(one) * (other - one) + one,
        )
        return random.choice(made)()


class CurveMaker(Maker):
    """Random assignments whose loads cost such functions."""

    def function(self, loads: int, buckets: int) -> CostFunction:
        return FunctionMaker(self.random, (1, buckets), 4).function(self.random.randint(1, 2), loads)
