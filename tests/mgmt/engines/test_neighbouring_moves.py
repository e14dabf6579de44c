"""Rows near to those that move: a change that is one by itself keeps the limits and costs the loads nothing."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np

from mgmt.optimization.assignment import Assignment, Indices, LoadCost
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines.engine_choice import solve
from mgmt.optimization.engines.selection.neighbouring_moves import neighbouring_moves
from tests.mgmt.engines.test_flow import Cluster


def load_costs(places: Assignment, choice: Indices) -> list[int]:
    costs = (cost for tier in places.tiers for cost in tier.costs if isinstance(cost, LoadCost))
    return [cost.of(choice) for cost in costs]


def test_a_row_may_move_in_place_of_one_of_its_group() -> None:
    seen: Counter[str] = Counter()
    for seed in range(12):
        random = Random(seed)
        racks = [random.randint(3, 5) for _ in range(random.randint(3, 5))]
        cluster = Cluster(racks, random.randint(30, 60))
        before = solve(cluster.assignment(), deadline=Deadline.after(20), seed=0).choice
        assert before is not None
        cluster.rack = np.append(cluster.rack, random.sample(range(len(racks)), 2)).astype(np.int32)
        cluster.usable = np.ones(len(cluster.rack), np.bool_)
        places = cluster.assignment(before)
        choice = solve(places, deadline=Deadline.after(20), seed=0).choice
        assert choice is not None
        near = neighbouring_moves(places, choice)
        pairs = set(zip(near.row.tolist(), near.value.tolist(), strict=True))
        moved = np.flatnonzero(choice != before).tolist()
        assert {(row, int(choice[row])) for row in moved} <= pairs
        for row in moved:
            for other in range(row // 3 * 3, row // 3 * 3 + 3):
                if other in moved:
                    continue
                changed = choice.copy()
                changed[row], changed[other] = before[row], choice[row]
                kept = not any(places.broken(changed))
                good = kept and load_costs(places, changed) == load_costs(places, choice)
                alone = sum(one // 3 == row // 3 for one in moved) == 1
                if alone:  # with several moves of a segment others stay than those that were looked at
                    assert ((other, int(choice[row])) in pairs) == good, f"seed {seed}"
                    seen["good" if good else "dearer" if kept else "broken"] += 1
    assert min(seen[what] for what in ("good", "dearer", "broken")) >= 5, seen
