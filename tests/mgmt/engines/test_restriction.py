"""An assignment over a few of its values: the same limits and the same worth for every choice of them."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

from mgmt.optimization.assignment import NONE, Assignment, Load, LoadCost, Tier
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines.engine_choice import by_cells
from mgmt.optimization.engines.model.equivalence import equivalence_classes
from mgmt.optimization.engines.presolve.value_restriction import restricted
from mgmt.optimization.load_functions import tree_of
from tests.mgmt.engines.random_assignments import Maker
from tests.mgmt.engines.test_candidates import pods
from tests.mgmt.engines.test_conditions import ConditionMaker
from tests.mgmt.engines.test_parts import never


@pytest.mark.parametrize("conditions", [False, True])
def test_every_choice_keeps_and_costs_what_it_did(conditions: bool) -> None:
    seen: Counter[str] = Counter()
    for seed in range(150):
        maker = (ConditionMaker if conditions else Maker)(seed, most_rows=3, most_values=6)
        assignment = maker.with_conditions() if isinstance(maker, ConditionMaker) else maker.assignment()
        today = assignment.current[assignment.current >= 0]
        drawn = np.array(
            [value for value in range(assignment.values) if maker.random.random() < 0.4], np.int32
        )
        values = np.unique(np.concatenate((today, drawn))).astype(np.int32)
        if not len(values):
            continue
        few = restricted(equivalence_classes(assignment), values).assignment
        for places in product(range(-1, len(values)), repeat=assignment.rows):
            choice = np.array(places, np.int32)
            whole = np.append(values, NONE)[choice].astype(np.int32)
            broken = any(assignment.broken(whole))
            assert any(few.broken(choice)) == broken, f"seed {seed}: {places}"
            assert few.worth(choice) == assignment.worth(whole), f"seed {seed}: {places}"
            seen["broken" if broken else "kept"] += 1
        pairs = zip(few.limits, assignment.limits, strict=True)
        seen["fewer buckets"] += any(limit.load.buckets < old.load.buckets for limit, old in pairs)
    assert min(seen[what] for what in ("broken", "kept", "fewer buckets")) > 20, seen


def test_a_function_of_some_buckets_is_that_of_all() -> None:
    for seed in range(60):
        maker = Maker(seed)
        buckets = maker.random.randint(2, 8)
        load = Load(
            np.zeros(1, np.int32), 1, np.arange(buckets, dtype=np.int32), buckets, np.ones(1, np.int64)
        )
        function = tree_of(LoadCost("cost", 1, (load,), maker.function(1, buckets), False))
        some = np.array(maker.random.sample(range(buckets), maker.random.randint(1, buckets)), np.int32)
        loads = np.array([[maker.random.randint(0, 9) for _ in range(buckets)] for _ in range(2)], np.int64)
        whole = np.broadcast_to(function((loads,)), loads.shape)
        part = function.of_buckets(some, buckets)
        assert np.broadcast_to(part((loads[:, some],)), (2, len(some))).tolist() == whole[:, some].tolist()
        again = part.of_buckets(np.array([0], np.int32), len(some))
        assert int(np.broadcast_to(again((loads[:1, some[:1]],)), (1, 1))[0, 0]) == int(whole[0, some[0]])
        sort = function.sorts(buckets)
        for value in (0, 3):
            even = np.broadcast_to(function((np.full((1, buckets), value),)), (1, buckets))[0]
            assert all(len(set(even[sort == one].tolist())) == 1 for one in set(sort.tolist()))


def test_an_answer_among_few_candidates_names_the_values_of_the_whole() -> None:
    for peak in (False, True):
        assignment = pods(5, 200, peak=peak)
        found = by_cells(assignment, [], deadline=never(), seed=0, workers=1)
        assert found.choice is not None
        assert found.proven
        assert found.worth == assignment.worth(found.choice)
        cost = assignment.tiers[0].costs[0]
        prices = cost.cost((np.zeros((1, 200), np.int64),))[0] if isinstance(cost, LoadCost) else cost.cost[0]
        cheapest = np.sort(prices)
        assert found.worth == (
            int(cheapest[-1] if peak else 2 * cheapest[0] + 2 * cheapest[1] + cheapest[2]),
        )


def test_a_cost_that_no_candidate_pays_is_a_constant() -> None:
    """The two values that the row may have are in no bucket of the load that is paid for."""
    bucket = np.array([NONE, NONE, 0, NONE, NONE, NONE], np.int32)
    load = Load(np.zeros(1, np.int32), 1, bucket, 1, np.ones(1, np.int64))
    price = LoadCost("price", 1, (load,), lambda loads: 5 + loads[0] * loads[0], peak=False)
    assignment = Assignment(
        6,
        np.zeros(1, np.int32),
        np.array([[True, True, False, False, False, False]]),
        np.ones(1, np.bool_),
        np.array([NONE], np.int32),
        (),
        (Tier(1, (price,)),),
    )
    found = by_cells(assignment, [], deadline=Deadline.after(3600), seed=0, workers=1)
    assert found.worth == found.bounds == (5,)
