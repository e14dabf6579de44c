"""Peaks brought down by few moves: what comes keeps everything, gets better, and is near what enumeration finds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from random import Random

import numpy as np

from mgmt.optimization.assignment import Assignment, Indices, Limit, Load, LoadCost, MoveLimit, RowCost, Tier
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines import solve
from mgmt.optimization.engines.local_search.exchanges import exchanged
from mgmt.optimization.engines.model.equivalence import equivalence_classes


def machines(seed: int, rows: int, hosts: int, moves: int) -> Assignment:
    """Rows of uneven weight on hosts; the greatest and the least load, then the moves; few may move."""
    random = Random(seed)
    weight = np.array([random.randint(1, 20) for _ in range(rows)], np.int64)
    current = np.array([min(random.randrange(hosts), random.randrange(hosts)) for _ in range(rows)], np.int32)
    everyone = np.zeros(rows, np.int32)
    host = np.arange(hosts, dtype=np.int32)
    load = Load(everyone, 1, host, hosts, weight)
    pair = np.where(np.arange(rows) < 2, 0, -1).astype(np.int32)
    current[:2] = [0, 1]
    apart = Load(pair, 1, host, hosts, np.ones(rows, np.int64))
    zero = np.array([[0]])
    return Assignment(
        hosts,
        everyone,
        np.ones((1, hosts), np.bool_),
        np.ones(rows, np.bool_),
        current,
        (Limit("room", load, zero, zero + int(weight.sum())), Limit("apart", apart, zero, zero + 1)),
        (
            Tier(
                1,
                (
                    LoadCost("highest", 1, (load,), lambda loads: loads[0], True),
                    LoadCost("lowest", 1, (load,), lambda loads: -loads[0], True),
                ),
            ),
            Tier(2, (RowCost("moves", 1, everyone, np.zeros((1, hosts), np.int64), zero[0], everyone + 1),)),
        ),
        (MoveLimit("few", everyone, np.array([moves])),),
    )


def best_by_enumeration(assignment: Assignment, moves: int) -> tuple[int, ...]:
    found = [assignment.worth(assignment.current)]
    for number in range(1, moves + 1):
        for rows in combinations(range(assignment.rows), number):
            for values in product(range(assignment.values), repeat=number):
                choice: Indices = assignment.current.copy()
                choice[list(rows)] = values
                if not any(assignment.broken(choice)):
                    found.append(assignment.worth(choice))
    return min(found)


def few_moves(assignment: Assignment, seed: int) -> Iterator[Indices]:
    mean = sum(int(load) for load in assignment.limits[0].load.of(assignment.current)[0]) // assignment.values
    deadline = Deadline.after(60)
    return exchanged(
        equivalence_classes(assignment),
        assignment.current,
        0,
        [mean, -mean - 1],
        deadline=deadline,
        seed=seed,
    )


def test_every_choice_keeps_everything_and_is_better_than_the_one_before() -> None:
    near = 0
    for seed in range(8):
        assignment = machines(seed, 9, 3, 2)
        last = assignment.worth(assignment.current)
        for choice in few_moves(assignment, seed):
            assert list(assignment.broken(choice)) == []
            assert assignment.worth(choice) < last
            last = assignment.worth(choice)
        best = best_by_enumeration(assignment, 2)
        assert last >= best
        near += last == best
    assert near >= 6, "it misses the best of so few moves more often than it should"


def test_the_table_proves_the_best_on_small_ones() -> None:
    for seed in range(4):
        assignment = machines(seed, 7, 3, 2)
        placement = solve(assignment, deadline=Deadline.after(60), seed=seed)
        assert placement.worth == placement.bounds == best_by_enumeration(assignment, 2)


def test_a_large_cluster_becomes_even_with_few_moves() -> None:
    assignment = machines(1, 200, 8, 60)
    before = assignment.worth(assignment.current)[0]
    last = before
    for choice in few_moves(assignment, 0):
        last = assignment.worth(choice)[0]
        if last <= before // 4:
            break
    assert last <= before // 4
