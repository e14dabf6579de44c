"""Cost functions of policies asked for some buckets alone: the same costs, and sorts of buckets that cost alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from random import Random

import numpy as np
import pytest

from mgmt.compiler.model import Model
from mgmt.optimization.assignment import LoadCost
from mgmt.optimization.lifting import lift
from mgmt.optimization.load_functions import tree_of
from mgmt.state.database import Snapshot
from tests.mgmt.assignments.assignment_grammar import OBJECTIVES, SCHEMA, VIEWS, AssignmentMaker
from tests.mgmt.support import database

UNEVEN = (
    "FROM loads MINIMIZE sum(tasks * tasks * coalesce(size, 2))",
    "FROM loads MINIMIZE sum(CASE WHEN place = 'h1' THEN tasks * tasks ELSE 3 * tasks END)",
    "FROM loads MINIMIZE sum(abs(tasks * coalesce(size, 2) - 3))",
)
"""What buckets cost by what else is known of them."""
POLICIES = (
    *((objective, 4) for objective in OBJECTIVES if "loads" in objective or "deviation" in objective),
    *((objective, 16) for objective in UNEVEN),
)
"""Each with so many random states."""
PLAIN = SCHEMA.replace("UNIQUE", "")


@cache
def compiled(objective: str) -> Model:
    """Once for the states of all seeds."""
    return Model.build(database(PLAIN), f"{VIEWS} CREATE CONSTRAINT c AS SELECT 1 AS one {objective};")


def load_costs(objective: str, seed: int) -> Iterator[LoadCost]:
    state = database(PLAIN, AssignmentMaker(seed).data())
    model = compiled(objective).revised(database=state)
    with state.snapshot() as snapshot:
        yield from load_costs_of(model, snapshot)


def load_costs_of(model: Model, snapshot: Snapshot) -> Iterator[LoadCost]:
    (part,) = model.encoded(snapshot)
    assert part.cells is not None
    for tier in lift(part.encoding.factored, part.cells).assignment.tiers:
        yield from (cost for cost in tier.costs if isinstance(cost, LoadCost))


@pytest.mark.slow("each policy with several random states")
def test_functions_of_policies_are_asked_for_some_buckets() -> None:
    seen: Counter[str] = Counter()
    for objective, seeds in POLICIES:
        for seed in range(seeds):
            random = Random(seed)
            for cost in load_costs(objective, seed):
                groups, buckets = cost.loads[0].groups, cost.loads[0].buckets
                loads = tuple(
                    np.array(
                        [[random.randint(0, 5) for _ in range(buckets)] for _ in range(groups)], np.int64
                    )
                    for _ in cost.loads
                )
                whole = np.broadcast_to(cost.cost(loads), loads[0].shape)
                some = np.array(random.sample(range(buckets), random.randint(1, buckets)), np.int32)
                part = tree_of(cost).of_buckets(some, buckets)(tuple(load[:, some] for load in loads))
                assert np.broadcast_to(part, (groups, len(some))).tolist() == whole[:, some].tolist(), (
                    objective
                )
                sort = tree_of(cost).sorts(buckets)
                even = tuple(np.repeat(load[:, :1], buckets, axis=1) for load in loads)
                paid = np.broadcast_to(cost.cost(even), loads[0].shape)
                for one in set(sort.tolist()):
                    assert (paid[:, sort == one] == paid[:, sort == one][:, :1]).all(), objective
                seen["several buckets"] += buckets > 1
                seen["of one sort"] += buckets > 1 and len(set(sort.tolist())) == 1
                seen["of several"] += len(set(sort.tolist())) > 1
    assert min(seen.values()) >= 5, seen


@pytest.mark.parametrize(("policy", "sorts"), [("count(*) * count(*)", 1), ("count(*) * (h.load + 1)", 2)])
def test_buckets_are_told_apart_by_what_the_policy_reads_of_them(policy: str, sorts: int) -> None:
    state = database(
        PLAIN,
        {
            "host": [{"name": f"h{n}", "up": 1, "load": n % 2} for n in range(6)],
            "task": [{"id": n, "app": None} for n in range(3)],
        },
    )
    text = (
        "CREATE CONSTRAINT c AS SELECT h.name FROM task t JOIN host h ON t.variable__host = h.name"
        f" GROUP BY h.name, h.load MINIMIZE {policy} * count(*);"
    )
    model = Model.build(state, text)
    with state.snapshot() as snapshot:
        (cost,) = load_costs_of(model, snapshot)
    assert len(set(tree_of(cost).sorts(6).tolist())) == sorts
