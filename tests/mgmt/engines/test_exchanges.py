"""Exchanges: what comes keeps everything, is better, and never at the cost of the tiers before."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random

import pytest

from mgmt.optimization.assignment import Assignment, Indices, LoadCost
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines.construction import greedy
from mgmt.optimization.engines.incumbent import Incumbent
from mgmt.optimization.engines.local_search.exchanges import Search, exchanged, peaks_of, repaired
from mgmt.optimization.engines.local_search.neighbourhoods import nearby
from mgmt.optimization.engines.lower_bounds.closed_form import peak_bounds
from mgmt.optimization.engines.model.cells import all_candidates, cells_of
from mgmt.optimization.engines.model.cost_functions import UnsuitableError
from mgmt.optimization.engines.model.equivalence import equivalence_classes
from mgmt.optimization.engines.presolve.normal_form import with_one_load_each
from tests.mgmt.engines.random_assignments import Maker, brute_force, indices
from tests.mgmt.engines.test_conditions import ConditionMaker


def never() -> Deadline:
    return Deadline.after(3600)


def floors_for(assignment: Assignment, tier: int) -> list[int]:
    classes = equivalence_classes(assignment)
    cells = cells_of(classes, *all_candidates(classes))
    peaks = peaks_of(assignment, tier)
    return [] if peaks is None else peak_bounds(cells, peaks)


def brought(assignment: Assignment, start: Indices, tier: int, seed: int) -> list[Indices]:
    classes = equivalence_classes(assignment)
    return list(exchanged(classes, start, tier, floors_for(assignment, tier), deadline=never(), seed=seed))


def some_choice(assignment: Assignment, seed: int) -> Indices | None:
    """One that keeps everything; None where there is none."""
    every = list(product(range(-1, assignment.values), repeat=assignment.rows))
    for values in Random(seed).sample(every, len(every)):
        choice = indices(list(values))
        if not any(assignment.broken(choice)):
            return choice
    return None


@pytest.mark.parametrize("maker", [Maker, ConditionMaker])
def test_each_choice_keeps_everything_and_is_better_than_the_one_before(maker: type[Maker]) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(60):
        made = maker(seed)
        assignment = with_one_load_each(
            made.with_conditions() if isinstance(made, ConditionMaker) else made.assignment()
        )
        start = some_choice(assignment, seed)
        if start is None:
            continue
        expected = brute_force(assignment)
        assert expected is not None
        for tier in range(len(assignment.tiers)):
            worth = assignment.worth(start)[: tier + 1]
            for choice in brought(assignment, start, tier, seed):
                assert not list(assignment.broken(choice)), f"seed {seed}"
                assert assignment.worth(choice)[: tier + 1] < worth, f"seed {seed}"
                worth = assignment.worth(choice)[: tier + 1]
                outcomes["better"] += 1
            if tier == 0:
                outcomes["best" if worth == expected[:1] else "off"] += 1
    assert outcomes["better"] >= 20
    assert outcomes["best"] >= 5 * outcomes["off"], outcomes


def test_the_loads_and_costs_it_keeps_are_those_of_the_choice() -> None:
    stepped = 0
    for seed in range(150):
        assignment = with_one_load_each(Maker(seed).assignment())
        classes = equivalence_classes(assignment)
        start = some_choice(assignment, seed)
        tier = len(assignment.tiers) - 1
        if start is None or any(
            isinstance(cost, LoadCost) and cost.peak for own in assignment.tiers for cost in own.costs
        ):
            continue
        try:
            search = Search(classes, start, tier, (), never(), seed)
        except UnsuitableError:
            continue
        sums, before = assignment.worth(start), search.total()
        for _ in range(30):
            search.step()
            worth, total = assignment.worth(search.choice), search.total()
            assert [new - old for new, old in zip(worth, sums, strict=True)] == list(total[1:]), (
                f"seed {seed}"
            )
            assert total[:-1] <= before[:-1], f"seed {seed}: worse in what comes first"
            assert total[0] == 0
            assert not list(assignment.broken(search.choice)), f"seed {seed}"
            stepped += 1
    assert stepped >= 1000


@pytest.mark.parametrize("maker", [Maker, ConditionMaker])
def test_what_keeps_everything_is_found_from_a_choice_that_does_not(maker: type[Maker]) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(110):
        made = maker(seed)
        assignment = with_one_load_each(
            made.with_conditions() if isinstance(made, ConditionMaker) else made.assignment()
        )
        if brute_force(assignment) is None or not assignment.limits:
            continue
        found = repaired(equivalence_classes(assignment), deadline=never(), seed=seed)
        assert found is None or not list(assignment.broken(found)), f"seed {seed}"
        outcomes["none" if found is None else "found"] += 1
    assert outcomes["found"] >= 30
    assert outcomes["none"] <= 2, outcomes


def test_neighbourhoods_give_better_choices_that_keep_everything() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(60):
        assignment = with_one_load_each(ConditionMaker(seed, most_rows=6).with_conditions())
        classes = equivalence_classes(assignment)
        start = greedy(classes)
        if start is None or any(assignment.broken(start)):
            continue
        cells = cells_of(classes, *all_candidates(classes))
        expected, worth = brute_force(assignment), assignment.worth(start)
        known_bounds: list[int | None] = [None] * len(worth)
        best = Incumbent(assignment, known_bounds)
        best.offer(start, "greedy")
        for choice in nearby(cells, best, deadline=never(), seed=seed, workers=1):
            best.offer(choice, "large neighbourhoods")
            assert not list(assignment.broken(choice)), f"seed {seed}"
            assert assignment.worth(choice) < worth
            worth = assignment.worth(choice)
        outcomes["best" if worth == expected else "off"] += 1
    assert outcomes["best"] >= 10
    assert not outcomes["off"], "small ones are decided anew as a whole in the end"
