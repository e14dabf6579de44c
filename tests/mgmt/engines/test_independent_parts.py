"""Assignments of several parts, and of flags beside choices, against trying every choice."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from mgmt.optimization.assignment import NONE, Assignment, Colocation, RowCost, Tier
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines import solve_in_parts
from mgmt.optimization.engines.presolve.row_restriction import of_rows
from tests.mgmt.engines.random_assignments import brute_force
from tests.mgmt.engines.random_replicas import replicas
from tests.mgmt.engines.test_selection import primaries


def side_by_side(one: Assignment, other: Assignment) -> Assignment:
    """The rows of both, of the same values, with the demands and the tiers of both."""
    rows = one.rows + other.rows
    first = of_rows(one, np.append(np.arange(one.rows), np.full(other.rows, NONE)), idle=True)
    second = of_rows(other, np.append(np.full(one.rows, NONE), np.arange(other.rows)), idle=True)
    tiers: dict[int, Tier] = {}
    for tier in sorted((*first.tiers, *second.tiers), key=lambda tier: tier.number):
        known = tiers.setdefault(tier.number, Tier(tier.number, (), tier.number))
        tiers[tier.number] = replace(known, costs=known.costs + tier.costs)
    allowed = np.concatenate(
        (first.allowed[first.row_class][: one.rows], second.allowed[second.row_class][one.rows :])
    )
    return Assignment(
        one.values,
        np.arange(rows, dtype=np.int32),
        allowed,
        first.required | second.required,
        np.concatenate((one.current, other.current)),
        first.limits + second.limits,
        tuple(tiers.values()),
    )


def check(assignment: Assignment, seed: int) -> str:
    """The best choice is found, with bounds that no choice is below; by which engine."""
    expected = brute_force(assignment)
    found = solve_in_parts(assignment, deadline=Deadline.after(20), seed=0)
    if expected is None:
        assert found.choice is None, f"seed {seed}"
        return "none"
    assert found.choice is not None, f"seed {seed}"
    assert not list(assignment.broken(found.choice)), f"seed {seed}"
    assert assignment.worth(found.choice) == found.worth == expected, f"seed {seed}"
    assert found.bounds == found.worth, f"seed {seed}"
    return found.engine


def test_parts_are_solved_apart_and_added_up() -> None:
    engines = []
    for seed in range(40):
        random = Random(seed)
        parts = [replicas(random, rows=random.randint(1, 3), values=3, tiers=2) for _ in range(2)]
        engines.append(check(side_by_side(*parts), seed))
    assert engines.count("none") < 25


def flagged(seed: int) -> Assignment:
    """Copies and, after them, a row for each that follows it where it is the primary."""
    random = Random(seed)
    rows, values = random.randint(2, 3), random.randint(2, 3)
    places = replicas(random, rows=rows, values=values)
    places = replace(places, required=np.ones(rows, np.bool_))
    _, segment = np.unique(np.sort([random.randrange(2) for _ in range(rows)]), return_inverse=True)
    was = np.array([random.random() < 0.5 for _ in range(rows)])
    selection = primaries(places, segment.astype(np.int32), was, random.randint(0, 1))
    whole = side_by_side(places, selection)
    leader = np.concatenate((np.full(rows, NONE, np.int32), np.arange(rows, dtype=np.int32)))
    return replace(whole, conditions=(Colocation("flags", leader),))


def test_flags_are_the_best_among_the_best_places() -> None:
    engines = [check(flagged(seed), seed) for seed in range(40)]
    assert sum("flags: " in engine for engine in engines) >= 20


def test_flags_that_are_paid_for_among_the_tiers_of_places_are_decided_with_them() -> None:
    engines = []
    for seed in range(20):
        whole = flagged(seed)
        paid = np.array([[1, 0, 2][: whole.values]])
        where = np.where(np.arange(whole.rows) < whole.rows // 2, 0, 1).astype(np.int32)
        cost = np.concatenate((paid, 0 * paid))
        prices = RowCost("prices", 1, where, cost, cost[:, 0] * 0, np.zeros(whole.rows, np.int64))
        mixed = replace(
            whole, tiers=(*whole.tiers[:-1], Tier(16, (prices,)), replace(whole.tiers[-1], number=17))
        )
        engines.append(check(mixed, seed))
    assert sum(engine != "none" and "flags: " not in engine for engine in engines) >= 5
