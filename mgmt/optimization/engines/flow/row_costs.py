"""What rows pay, in as few classes as can be.

A policy like "a primary on a copy that is new" prices every pair of today's value and another one: as many classes as
values.  All but one of the prices of such a class are the same, so it is a plain price and a discount for staying.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgmt.optimization.assignment import Amounts, Assignment, Indices, Mask, RowCost
from mgmt.optimization.dense_ranks import firsts, joint_ranks


@dataclass(frozen=True, slots=True, eq=False)
class Price:
    """One row cost, weight included."""

    tier: int
    """Its place among the tiers."""
    row_class: Indices
    cost: Amounts
    """(K, V)"""
    unplaced: Amounts
    """(K,)"""
    moved: Amounts
    """(R,) paid by rows that do not keep the value they have today; 0 for those that may do without any."""
    discount: Amounts
    """(R,) what a row does not pay that keeps its value."""


def prices_of(assignment: Assignment) -> tuple[Price, ...]:
    """The row costs of all tiers."""
    return tuple(
        _price(place, cost, assignment)
        for place, tier in enumerate(assignment.tiers)
        for cost in tier.costs
        if isinstance(cost, RowCost)
    )


def _price(place: int, cost: RowCost, assignment: Assignment) -> Price:
    # A row that must have a value and has none yet pays for that one move in any case.
    new = (assignment.current < 0) & ~assignment.required
    entry = np.where(new, cost.moved, 0)
    of_row, number = joint_ranks([cost.row_class, entry], assignment.rows)
    example = firsts(of_row, number)
    prices = cost.weight * (cost.cost[cost.row_class[example]] + entry[example, None])
    unplaced = cost.weight * cost.unplaced[cost.row_class[example]]
    discount = np.zeros(assignment.rows, np.int64)
    plain, base, own = _plain(prices, of_row, assignment.current)
    if bool(plain.any()):
        discount = np.where(plain[of_row], base[of_row] - own[of_row], 0)
        prices = np.where(plain[:, None], base[:, None], prices)
    # Classes that are plain now are told apart by two numbers; the few others stay as they are.
    apart = np.where(plain, -1, np.arange(len(plain)))
    of_class, number = joint_ranks([apart, np.where(plain, base, 0), unplaced], len(plain))
    first = firsts(of_class, number)
    return Price(
        place,
        of_class[of_row].astype(np.int32),
        np.ascontiguousarray(prices[first]),
        unplaced[first],
        np.where(new, 0, cost.weight * cost.moved),
        discount,
    )


def _plain(prices: Amounts, of_row: Amounts, current: Indices) -> tuple[Mask, Amounts, Amounts]:
    """Classes whose rows are at one value today, and pay alike for all others and no more for that one.

    With the price of the others, and of that one.
    """
    number, values = prices.shape
    lowest, highest = np.full(number, values, np.int64), np.full(number, -2, np.int64)
    np.minimum.at(lowest, of_row, current)
    np.maximum.at(highest, of_row, current)
    known = (lowest == highest) & (lowest >= 0)
    if values < 2 or not bool(known.any()):
        nothing = np.zeros(number, np.int64)
        return np.zeros(number, np.bool_), nothing, nothing
    every = np.arange(number)
    today = np.where(known, lowest, 0)
    base, own = prices[every, (today + 1) % values], prices[every, today]
    differs = prices != base[:, None]
    differs[every, today] = False
    return known & ~differs.any(axis=1) & (own < base), base, own
