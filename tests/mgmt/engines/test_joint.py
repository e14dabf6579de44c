"""Places and flags as one assignment, and assignments of which a part is settled: worth and limits stay the same."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np

from mgmt.optimization.assignment import NONE, Assignment, Indices, LoadCost
from mgmt.optimization.engines.presolve.fixing import rest_of
from mgmt.optimization.engines.selection.joint_assignment import apart, joint_assignment, joint_choice
from mgmt.optimization.load_functions import tree_of
from tests.mgmt.engines.random_assignments import Maker
from tests.mgmt.engines.random_replicas import replicas
from tests.mgmt.engines.test_flow import Cluster
from tests.mgmt.engines.test_selection import primaries


def random_choice(random: Random, assignment: Assignment) -> Indices:
    return np.array([random.randint(NONE, assignment.values - 1) for _ in range(assignment.rows)], np.int32)


def test_a_joint_choice_costs_and_breaks_what_its_parts_do() -> None:
    kept = 0
    for seed in range(200):
        random = Random(seed)
        places = replicas(random, rows=4, values=3)
        segment = np.array([0, 0, 1, 1], np.int32)
        selection = primaries(places, segment, np.array([True, False, False, True]), random.randint(0, 1))
        every = np.ones((4, 3), np.bool_)
        open_to = places.allowed[places.row_class]
        joint = joint_assignment(places, selection, open_to, every)
        place = random_choice(random, places)
        selected_at = np.where([random.random() < 0.5 for _ in range(4)], place, NONE).astype(np.int32)
        choice = joint_choice(place, selected_at, places.values)
        assert all(np.array_equal(*pair) for pair in zip(apart(choice, 3), (place, selected_at), strict=True))
        assert joint.worth(choice) == places.worth(place) + selection.worth(selected_at), f"seed {seed}"
        broken = set(places.broken(place)) | set(selection.broken(selected_at))
        assert set(joint.broken(choice)) == broken, f"seed {seed}"
        kept += not broken
    assert kept >= 5


def test_what_is_left_of_an_assignment_costs_and_breaks_what_the_whole_does() -> None:
    kept = 0
    for seed in range(600):
        random = Random(seed)
        places = replicas(random, rows=5, values=3)
        whole = random_choice(random, places)
        there = np.array([random.random() < 0.5 for _ in range(5)]) & (whole >= 0)
        there &= places.allowed[places.row_class, np.maximum(whole, 0)]
        rest = rest_of(places, np.where(there, whole, NONE).astype(np.int32))
        assert rest.worth(whole[~there]) == places.worth(whole), f"seed {seed}"
        assert bool(list(rest.broken(whole[~there]))) == bool(list(places.broken(whole))), f"seed {seed}"
        kept += not list(places.broken(whole))
    assert kept >= 5


def test_limits_that_others_imply_are_left_out_of_what_is_left() -> None:
    """Copies in distinct racks are on distinct hosts, unless a rack may hold two of them."""
    broken = 0
    for per_rack in (1, 2):
        places = Cluster([2, 1, 2], 2, per_rack=per_rack).assignment()
        for seed in range(200):
            random = Random(seed)
            whole = random_choice(random, places)
            there = np.array([random.random() < 0.5 for _ in range(6)]) & (whole >= 0)
            rest = rest_of(places, np.where(there, whole, NONE).astype(np.int32))
            assert len(rest.limits) == per_rack
            assert bool(list(rest.broken(whole[~there]))) == bool(list(places.broken(whole))), f"seed {seed}"
            broken += bool(list(places.broken(whole)))
    assert 5 <= broken <= 395


def test_costs_of_what_is_left_are_told_bucket_by_bucket() -> None:
    """Buckets of one sort cost alike under equal loads, and some of them cost what they do among all."""
    seen: Counter[str] = Counter()
    for seed in range(300):
        maker = Maker(seed, most_rows=6, most_values=6)
        assignment = maker.assignment()
        whole = random_choice(maker.random, assignment)
        there = np.array([maker.random.random() < 0.5 for _ in range(assignment.rows)]) & (whole >= 0)
        rest = rest_of(assignment, np.where(there, whole, NONE).astype(np.int32))
        for cost in (cost for tier in rest.tiers for cost in tier.costs if isinstance(cost, LoadCost)):
            shape = (cost.loads[0].groups, cost.loads[0].buckets)
            loads = tuple(
                np.array(maker.random.choices(range(5), k=shape[0] * shape[1])).reshape(shape)
                for _ in cost.loads
            )
            paid = np.broadcast_to(cost.cost(loads), shape)
            some = np.array(maker.random.sample(range(shape[1]), maker.random.randint(1, shape[1])), np.int32)
            part = tree_of(cost).of_buckets(some, shape[1])(tuple(load[:, some] for load in loads))
            assert np.array_equal(np.broadcast_to(part, (shape[0], len(some))), paid[:, some]), f"seed {seed}"
            sort = tree_of(cost).sorts(shape[1])
            even = np.broadcast_to(cost.cost(tuple(np.full(shape, 2) for _ in loads)), shape)
            alike = [even[:, sort == one] for one in np.unique(sort)]
            assert all(bool((costs == costs[:, :1]).all()) for costs in alike), f"seed {seed}"
            seen["alike"] += len(alike) < shape[1]
            seen["apart"] += len(alike) > 1
    assert min(seen["alike"], seen["apart"]) >= 20, seen
