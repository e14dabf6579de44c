"""Closed-form bounds of costs over loads: never above what trying every choice finds, and often equal to it."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

from mgmt.optimization.assignment import NONE, Assignment, CostFunction, Limit, Load, LoadCost, RowCost, Tier
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines import solve
from mgmt.optimization.engines.construction import first_fit
from mgmt.optimization.engines.engine_choice import may_be_feasible, without_cells
from mgmt.optimization.engines.lower_bounds.closed_form import bounds_of, wide_bound
from mgmt.optimization.engines.model.cells import all_candidates, cells_of
from mgmt.optimization.engines.model.equivalence import equivalence_classes
from tests.budget import budgeted
from tests.mgmt.engines.random_assignments import brute_force

FUNCTIONS: dict[str, tuple[tuple[CostFunction, bool], ...]] = {
    "squares": ((lambda x: x[0] * x[0], False),),
    "squared distance": ((lambda x: (x[0] - 3) ** 2, False),),
    "places in use": ((lambda x: np.minimum(x[0], 1), False),),
    "places in use, at their price": (
        (lambda x: np.where(x[0] > 0, 2 + np.arange(x[0].shape[-1]), 0), False),
    ),
    "range": ((lambda x: x[0], True), (lambda x: -x[0], True)),
    "range of unequal shares": (
        (lambda x: x[0] * 20 // (5 + 3 * np.arange(x[0].shape[-1])), True),
        (lambda x: -(x[0] * 20 // (5 + 3 * np.arange(x[0].shape[-1]))), True),
    ),
    "highest, and places in use": ((lambda x: x[0], True), (lambda x: np.minimum(x[0], 1), False)),
    "distance from a load": ((lambda x: np.abs(x[0] - 3), True),),
    "range of shares": ((lambda x: x[0] * 10 // 7, True), (lambda x: -(x[0] * 10 // 7), True)),
}


def loaded(name: str, seed: int) -> Assignment:
    """Rows of several weights under limits on them and on another resource, that pay for loads alone."""
    random = Random(seed)
    rows, values = random.randint(2, 5), random.randint(2, 4)
    coarse = random.random() < 0.3
    bucket = np.array([value // 2 if coarse else value for value in range(values)], np.int32)
    if random.random() < 0.2:
        bucket[-1] = NONE
    everyone = np.zeros(rows, np.int32)

    def load(weights: tuple[int, ...]) -> Load:
        return Load(everyone, 1, bucket, values, np.array(random.choices(weights, k=rows), np.int64))

    loads = [load(random.choice(((1, 2, 5), (2, 4), (1,), (0, 3)))), load((1, 2, 3))]
    limits = tuple(
        Limit("room", one, np.zeros((1, 1), np.int64), np.array([random.choices((4, 6, 9), k=values)]))
        for one in loads
        if random.random() < 0.8
    )
    costs = tuple(LoadCost(name, 1, (loads[0],), function, peak) for function, peak in FUNCTIONS[name])
    return Assignment(
        values,
        np.array(random.choices((0, 1), k=rows), np.int32),
        np.array([[random.random() < 0.9 for _ in range(values)] for _ in range(2)]),
        np.array([random.random() < 0.9 for _ in range(rows)]),
        np.full(rows, NONE, np.int32),
        limits,
        (Tier(1, costs, random.randint(-2, 2)),),
    )


def compare(name: str, seeds: range) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        assignment = loaded(name, seed)
        classes = equivalence_classes(assignment)
        cells = cells_of(classes, *all_candidates(classes))
        expected = brute_force(assignment)
        if expected is None or not may_be_feasible(cells):
            outcomes["infeasible"] += 1
            continue
        (floor,) = bounds_of(cells)
        assert floor is not None
        assert floor <= expected[0], f"seed {seed}"
        wide = wide_bound(classes, 0)
        assert wide is None or wide <= expected[0], f"seed {seed}"
        outcomes["met" if floor == expected[0] else "below"] += 1
    return outcomes


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_bound_is_below_every_choice_and_mostly_met(name: str) -> None:
    outcomes = compare(name, range(40))
    assert outcomes["met"] >= outcomes["below"], outcomes
    assert outcomes["met"] >= 10


def test_where_cells_come_in_larger_steps_than_all_rows_a_peak_is_bounded_in_the_steps_of_all() -> None:
    """The row of weight 5 has no room where it counts; the bound was above the optimum."""
    assert compare("range of shares", range(5493, 5494))["met"] == 1


@pytest.mark.parametrize("name", budgeted(list(FUNCTIONS), 1))
def test_many_more(name: str) -> None:
    compare(name, range(1000, 1100))


@pytest.mark.parametrize("seed", budgeted(range(3), 1, in_test=1))
def test_without_cells_the_highest_load_is_nearly_the_mean(seed: int) -> None:
    """As in a large cluster: copies apart, few moves; and what is found first is the bound of what is found then."""
    random = np.random.default_rng(seed)
    segments, hosts = 40, 8
    segment = np.repeat(np.arange(segments), 3).astype(np.int32)
    everyone, ones = np.zeros(len(segment), np.int32), np.ones(len(segment), np.int64)
    host = np.arange(hosts, dtype=np.int32)
    size = random.integers(50, 900, segments)[segment]
    current = (np.arange(len(segment)) % hosts).astype(np.int32)
    zero, nothing = np.zeros((1, 1), np.int64), np.zeros(1, np.int64)
    assignment = Assignment(
        hosts,
        everyone,
        np.ones((1, hosts), np.bool_),
        np.ones(len(segment), np.bool_),
        current,
        (Limit("apart", Load(segment, segments, host, hosts, ones), zero, zero + 1),),
        (
            Tier(1, (LoadCost("mb", 1, (Load(everyone, 1, host, hosts, size),), lambda x: x[0], True),)),
            Tier(2, (RowCost("moves", 1, everyone, np.zeros((1, hosts), np.int64), nothing, ones),)),
        ),
    )
    found = without_cells(equivalence_classes(assignment), [], deadline=Deadline.after(3600), seed=seed)
    assert found.choice is not None
    assert not list(assignment.broken(found.choice))
    assert found.worth == assignment.worth(found.choice)
    assert -(-int(size.sum()) // hosts) <= found.bounds[0] <= found.worth[0] <= 1.01 * found.bounds[0]
    assert found.bounds[1] == 0


def test_the_fewest_places_are_found_by_first_fit_and_proven() -> None:
    """Of places of two sizes the larger ones come first; rows of two halves fill them."""
    rows, values = 8, 12
    everyone, none = np.zeros(rows, np.int32), np.zeros((1, 1), np.int64)
    load = Load(
        everyone, 1, np.arange(values, dtype=np.int32), values, np.array([6, 4, 7, 3, 5, 5, 8, 2], np.int64)
    )
    room = np.where(np.arange(values) >= 8, 10, 8)[None].astype(np.int64)
    used = LoadCost("used", 1, (load,), lambda x: np.minimum(x[0], 1), False)
    assignment = Assignment(
        values,
        everyone,
        np.ones((1, values), np.bool_),
        np.ones(rows, np.bool_),
        np.full(rows, NONE, np.int32),
        (Limit("room", load, none, room),),
        (Tier(1, (used,)),),
    )
    found = first_fit(equivalence_classes(assignment), np.ones(values, np.int64))
    assert min(assignment.worth(choice) for choice in found) == (4,)
    found = solve(assignment, deadline=Deadline.after(3600), seed=0)
    assert found.worth == found.bounds == (4,)
    assert found.solver_variables == 0
