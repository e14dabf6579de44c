"""Pruned candidates: never another optimum, never a false infeasible, and few where the rule holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from mgmt.optimization.assignment import NONE, Assignment, Limit, Load, LoadCost, RowCost, Tier
from mgmt.optimization.engines.model.cells import all_candidates
from mgmt.optimization.engines.model.equivalence import equivalence_classes
from mgmt.optimization.engines.presolve.candidates import Candidates, candidates_of
from tests.mgmt.engines.random_assignments import Maker, brute_force
from tests.mgmt.engines.test_conditions import ConditionMaker


def pruned_to(assignment: Assignment, candidates: Candidates, of_row: np.ndarray) -> Assignment:
    """The assignment with each row allowed its candidates only."""
    allowed = np.zeros((int(of_row.max()) + 1, assignment.values), np.bool_)
    allowed[candidates.class_, candidates.value] = True
    return replace(assignment, row_class=of_row, allowed=allowed)


def check_pruning(seeds: range, make: Callable[[int], Assignment]) -> None:
    """The best of the candidates is the best of all, and in some there is something to prune."""
    outcomes: Counter[bool] = Counter()
    for seed in seeds:
        assignment = make(seed)
        classes = equivalence_classes(assignment)
        candidates = candidates_of(classes)
        pruned = pruned_to(assignment, candidates, classes.of_row)
        outcomes[len(candidates.value) < len(all_candidates(classes)[0])] += 1
        assert brute_force(pruned) == brute_force(assignment), f"seed {seed}: {candidates.note}"
    assert outcomes[True] >= 5, "nothing was pruned in nearly all of them"


@pytest.mark.parametrize("chunk", range(3))
def test_pruning_changes_no_optimum(chunk: int) -> None:
    seeds = range(1000 * chunk, 1000 * chunk + 60)
    check_pruning(seeds, lambda seed: Maker(seed, most_rows=3, most_values=7).assignment())


@pytest.mark.parametrize("chunk", range(2))
def test_nor_does_it_with_conditions(chunk: int) -> None:
    seeds = range(1000 * chunk, 1000 * chunk + 80)
    check_pruning(seeds, lambda seed: ConditionMaker(seed, most_rows=3, most_values=7).with_conditions())


def pods(rows: int, values: int, *, peak: bool = False, zones: int = 0) -> Assignment:
    """Rows of one kind that cost what their value costs, and one load with room for two everywhere."""
    everyone = np.zeros(rows, np.int32)
    weight = np.ones(rows, np.int64)
    load = Load(everyone, 1, np.arange(values, dtype=np.int32), values, weight)
    limits = [Limit("room", load, np.array([[0]]), np.array([[2]]))]
    if zones:
        zone = Load(everyone, 1, np.arange(values, dtype=np.int32) % zones, zones, weight)
        limits.append(Limit("spread", zone, np.array([[1]]), np.array([[rows]])))
    price = np.random.default_rng(0).integers(0, 1000, (1, values))
    cost = RowCost("price", 1, everyone, price, np.zeros(1, np.int64), np.zeros(rows, np.int64))
    height = LoadCost("height", 1, (load,), lambda loads: loads[0] * 10 + price[0], peak=True)
    return Assignment(
        values,
        everyone,
        np.ones((1, values), np.bool_),
        np.ones(rows, np.bool_),
        np.full(rows, NONE, np.int32),
        tuple(limits),
        (Tier(1, (height if peak else cost,)),),
    )


def test_as_many_values_as_rows_are_enough() -> None:
    assignment = pods(5, 200)
    candidates = candidates_of(equivalence_classes(assignment))
    cost = assignment.tiers[0].costs[0]
    assert isinstance(cost, RowCost)
    assert sorted(candidates.value.tolist()) == sorted(np.argsort(cost.cost[0], kind="stable")[:5].tolist())
    assert "5 of 200" in candidates.note


def test_also_for_a_peak_that_grows_with_the_load() -> None:
    assert len(candidates_of(equivalence_classes(pods(5, 200, peak=True))).value) == 5


def test_the_rule_is_kept_per_zone_where_limits_are_on_zones() -> None:
    candidates = candidates_of(equivalence_classes(pods(5, 200, zones=3)))
    assert np.bincount(candidates.value % 3).tolist() == [5, 5, 5]


def test_all_values_are_candidates_where_the_rule_says_nothing() -> None:
    candidates = candidates_of(equivalence_classes(pods(5, 12, zones=3)))
    assert len(candidates.value) == 12
    assert "every allowed value" in candidates.note
