"""Tiny random assignments, and the twin that tries every choice."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

import numpy as np

from mgmt.optimization.assignment import (
    NONE,
    UNLIMITED,
    Assignment,
    Cost,
    CostFunction,
    Indices,
    Limit,
    Load,
    LoadCost,
    RowCost,
    Tier,
)
from mgmt.optimization.load_functions import LoadFunction, LoadNumber, constant, greatest


def kept_choices(assignment: Assignment) -> Iterator[Indices]:
    """Every choice that keeps all limits; those that no row may make by itself are not even written out."""
    open_to = [np.flatnonzero(allowed).tolist() for allowed in assignment.allowed]
    options = [
        open_to[row_class] if required else [NONE, *open_to[row_class]]
        for row_class, required in zip(assignment.row_class, assignment.required, strict=True)
    ]
    for values in product(*options):
        choice = np.array(values, np.int32)
        if not any(assignment.broken(choice)):
            yield choice


def brute_force(assignment: Assignment) -> tuple[int, ...] | None:
    """Per tier the cost of the best choice, or None when no choice keeps the limits."""
    return min(map(assignment.worth, kept_choices(assignment)), default=None)


def indices(values: list[int]) -> Indices:
    return np.array(values, np.int32)


class Maker:
    """One random assignment per seed."""

    def __init__(self, seed: int, *, most_rows: int = 5, most_values: int = 4) -> None:
        self.random = Random(seed)
        self.rows = self.random.randint(1, most_rows)
        self.values = self.random.randint(1, most_values)

    def assignment(self) -> Assignment:
        random, rows, values = self.random, self.rows, self.values
        classes = random.randint(1, 2)
        allowed = np.array([[random.random() < 0.85 for _ in range(values)] for _ in range(classes)])
        loads = [self.load() for _ in range(3)]
        limits = tuple(self.limit(f"limit {number}", loads) for number in range(random.randint(0, 3)))
        tiers = tuple(
            Tier(number, tuple(self.cost(loads) for _ in range(random.randint(1, 2))), random.randint(-3, 3))
            for number in range(1, random.randint(1, 3) + 1)
        )
        return Assignment(
            values,
            indices([random.randrange(classes) for _ in range(rows)]),
            allowed.reshape(classes, values),
            np.array([random.random() < 0.7 for _ in range(rows)]),
            indices([random.randint(-1, values - 1) for _ in range(rows)]),
            limits,
            tiers,
        )

    def load(self) -> Load:
        random = self.random
        groups = random.choice((1, 1, 1, 2))
        coarse = random.random() < 0.4
        buckets = 2 if coarse else self.values
        bucket = [random.randrange(2) for _ in range(self.values)] if coarse else list(range(self.values))
        if random.random() < 0.2:
            bucket[random.randrange(self.values)] = NONE
        weights = random.choice(((1,), (1,), (2, 4), (0, 1, 3)))
        return Load(
            indices([random.randint(-1 if groups > 1 else 0, groups - 1) for _ in range(self.rows)]),
            groups,
            indices(bucket),
            buckets,
            np.array([random.choice(weights) for _ in range(self.rows)], np.int64),
        )

    def limit(self, name: str, loads: list[Load]) -> Limit:
        random = self.random
        load = random.choice(loads)
        shape = random.choice(((1, 1), (1, load.buckets), (load.groups, load.buckets)))
        upper = np.array(
            [random.choice((1, 2, 3, 4, UNLIMITED)) for _ in range(shape[0] * shape[1])], np.int64
        )
        lower = np.array([random.choice((0, 0, 0, 0, 0, 1)) for _ in range(shape[0] * shape[1])], np.int64)
        return Limit(name, load, lower.reshape(shape), upper.reshape(shape))

    def cost(self, loads: list[Load]) -> Cost:
        random = self.random
        weight = random.choice((1, 1, 2, -1))
        if random.random() < 0.6:
            classes = random.randint(1, 2)
            cost = [[random.randint(-4, 9) for _ in range(self.values)] for _ in range(classes)]
            return RowCost(
                "rows",
                weight,
                indices([random.randrange(classes) for _ in range(self.rows)]),
                np.array(cost, np.int64),
                np.array([random.randint(0, 20) for _ in range(classes)], np.int64),
                np.array([random.choice((0, 1, 1, 3)) for _ in range(self.rows)], np.int64),
            )
        load = random.choice(loads)
        alike = [other for other in loads if (other.groups, other.buckets) == (load.groups, load.buckets)]
        used = (load,) if random.random() < 0.7 else (load, random.choice(alike))
        return LoadCost("loads", weight, used, self.function(len(used), load.buckets), random.random() < 0.5)

    def function(self, loads: int, buckets: int) -> CostFunction:
        random = self.random
        offset = np.array([random.randint(0, 5) for _ in range(buckets)], np.int64)
        one, other = LoadNumber(0), LoadNumber(loads - 1)
        told: tuple[LoadFunction, ...]
        if loads == 2:
            told = (one + 2 * other + offset, greatest(one, other + offset), one * other + offset)
        else:
            told = (
                one + offset,
                3 * one - offset,
                (one - offset) * (one - offset),
                greatest(one - offset, 0),
                -((one - offset) * (one - offset)),
                ((one + offset) * 2).over(3),
                constant(7),
            )
        function = random.choice(told)
        return function if int(offset.sum()) % 2 else function.__call__
