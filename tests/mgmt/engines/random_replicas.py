"""Tiny random assignments as a datastore has them: copies of segments, racks of uneven size, counts and moves."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from mgmt.optimization.assignment import (
    NONE,
    Amounts,
    Assignment,
    Cost,
    Limit,
    Load,
    LoadCost,
    RowCost,
    Tier,
)


def amounts(*numbers: int) -> Amounts:
    return np.array(numbers, np.int64)


def distance(share: Amounts, tolerance: int, square: bool) -> Callable[[tuple[Amounts, ...]], Amounts]:
    """How far a load is from its share, beyond a tolerance."""

    def cost(loads: tuple[Amounts, ...]) -> Amounts:
        away = np.maximum(np.abs(loads[0] - share) - tolerance, 0)
        found: Amounts = away * away if square else away
        return found

    return cost


def replicas(
    random: Random, *, rows: int = 6, values: int = 4, per_rack: int | None = None, tiers: int | None = None
) -> Assignment:
    """Copies of a few segments, racks of uneven size, limits and costs as a datastore has them."""
    segments = random.randint(1, 3)
    segment = np.sort(np.array([random.randrange(segments) for _ in range(rows)], np.int32))
    racks = random.randint(1, values)
    rack = np.array([random.randrange(racks) for _ in range(values)], np.int32)
    classes = random.choice([1, 1, 2])
    allowed = np.array([[random.random() < 0.9 for _ in range(values)] for _ in range(classes)])
    row_class = np.array([segment_number % classes for segment_number in segment], np.int32)
    price_class = row_class
    optional = random.random() < 0.4
    required = np.array([not (optional and number % 2) for number in segment])
    current = np.array([random.randint(-1, values - 1) for _ in range(rows)], np.int32)
    if random.random() < 0.3:  # a value that is closed to newcomers
        closed = random.randrange(values)
        allowed = allowed[row_class].copy()
        row_class = np.arange(rows, dtype=np.int32)
        allowed[:, closed] &= current == closed
    if random.random() < 0.2:  # a row that is pinned
        allowed = allowed[row_class].copy()
        row_class = np.arange(rows, dtype=np.int32)
        allowed[0] = np.arange(values) == random.randrange(values)
    ones, all_rows = np.ones(rows, np.int64), np.zeros(rows, np.int32)
    host = np.arange(values, dtype=np.int32)
    weight = ones * random.choice([1, 3])
    by_segment_and_host = Load(segment, segments, host, values, weight)
    by_segment_and_rack = Load(segment, segments, rack, racks, ones)
    by_host = Load(all_rows, 1, host, values, weight)
    by_rack = Load(all_rows, 1, rack, racks, ones)
    limits = []
    unit = int(weight[0])
    if random.random() < 0.8:
        upper = amounts(unit * random.choice([1, 1, 2]))
        limits.append(Limit("distinct hosts", by_segment_and_host, amounts(0), upper))
    if random.random() < 0.7:
        upper = amounts(per_rack or random.choice([1, 2]))
        limits.append(Limit("racks", by_segment_and_rack, amounts(random.choice([0, 0, 0, 0, 1])), upper))
    if random.random() < 0.5:
        capacity = amounts(*(random.randint(1, rows) for _ in range(values))) * unit
        lowest = amounts(*(random.choice([0] * 9 + [1]) for _ in range(values))) * unit
        limits.append(Limit("capacity", by_host, lowest, capacity))
    if random.random() < 0.3:
        limits.append(Limit("rack capacity", by_rack, amounts(0), amounts(random.randint(rows // 2, rows))))
    if random.random() < 0.3:
        hot = np.where(segment == 0, 0, NONE).astype(np.int32)
        limits.append(Limit("hot apart", Load(hot, 1, host, values, ones), amounts(0), amounts(1)))
    moved = np.where((current >= 0) | required, random.randint(1, 3), 0) if random.random() < 0.3 else ones
    moved = np.where(current >= 0, moved, moved * random.randint(0, 1) * required)
    prices = np.array([[random.randint(0, 3) for _ in range(values)] for _ in range(classes)], np.int64)
    unplaced = np.full(classes, 5, np.int64)
    share = amounts(*(random.randint(0, 3) for _ in range(values)))[None] * unit
    pool: list[Cost] = [
        LoadCost(
            "balance", random.choice([1, 2]), (by_host,), distance(share, random.randint(0, 1), True), False
        ),
        LoadCost("even", 1, (by_host,), distance(share, 0, random.random() < 0.5), False),
        LoadCost("racks even", 1, (by_segment_and_rack,), distance(amounts(1), 0, True), False),
        RowCost("moves", 1, price_class, prices * 0, unplaced * 0, moved),
        RowCost("price", random.choice([1, 2]), price_class, prices, unplaced, ones * 0),
    ]
    random.shuffle(pool)
    number = random.randint(0, 4) if tiers is None else tiers
    chosen = [Tier(place + 1, (cost,), random.randint(-1, 1)) for place, cost in enumerate(pool[:number])]
    if chosen and random.random() < 0.3:
        chosen[0] = Tier(1, (chosen[0].costs[0], pool[number % len(pool)]), 0)
    return Assignment(values, row_class, allowed, required, current, tuple(limits), tuple(chosen))
