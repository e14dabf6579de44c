"""Rows of worth take the places of lesser ones: what comes keeps everything and gets better."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from mgmt.optimization.assignment import NONE, Assignment, Either, Limit, Load, RowCost, Tier
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines.local_search.ejection import ejections
from mgmt.optimization.engines.model.equivalence import equivalence_classes
from tests.mgmt.engines.random_assignments import Maker, brute_force, indices


def pods(current: list[int], worth: list[int], room: int, nodes: int) -> Assignment:
    """Rows of weight 1, what each costs to leave out, and how many a node takes; moves are the second tier."""
    rows = len(current)
    everyone = np.zeros(rows, np.int32)
    class_ = np.arange(rows, dtype=np.int32)
    load = Load(everyone, 1, np.arange(nodes, dtype=np.int32), nodes, np.ones(rows, np.int64))
    nothing = np.zeros((rows, nodes), np.int64)
    none = np.zeros(rows, np.int64)
    zero = np.array([[0]])
    return Assignment(
        nodes,
        everyone,
        np.ones((1, nodes), np.bool_),
        np.zeros(rows, np.bool_),
        indices(current),
        (Limit("room", load, zero, zero + room),),
        (
            Tier(1, (RowCost("left out", 1, class_, nothing, np.array(worth, np.int64), none),)),
            Tier(2, (RowCost("moves", 1, class_, nothing, none, np.ones(rows, np.int64)),)),
        ),
    )


def last(assignment: Assignment) -> np.ndarray:
    found = assignment.current
    for choice in ejections(equivalence_classes(assignment), assignment.current, deadline=Deadline.after(60)):
        assert list(assignment.broken(choice)) == []
        assert assignment.worth(choice) < assignment.worth(found)
        found = choice
    return found


def test_the_cheapest_give_way_and_no_more_of_them_than_needed() -> None:
    assignment = pods([0, 0, 1, 1, NONE, NONE], [1, 4, 2, 3, 50, 40], 2, 2)
    found = last(assignment)
    assert [row for row, value in enumerate(found.tolist()) if value == NONE] == [0, 2]
    assert assignment.worth(found) == (3, 4), "two leave, and two come"


def test_what_is_worth_less_waits() -> None:
    assignment = pods([0, 0, NONE], [5, 6, 4], 2, 1)
    assert (
        list(ejections(equivalence_classes(assignment), assignment.current, deadline=Deadline.after(60)))
        == []
    )


def test_a_condition_that_forbids_the_cheapest_way_is_heeded() -> None:
    plain = pods([0, 1, NONE], [1, 2, 50], 1, 2)
    zero = np.array([[0]])
    new = Load(indices([NONE, NONE, 0]), 1, np.arange(2, dtype=np.int32), 2, np.array([0, 0, 1]))
    never_on_0 = Either(
        "not there", (Limit("n", new, zero, np.array([[0, 9]])), Limit("n", new, zero + 9, zero + 9))
    )
    found = last(replace(plain, conditions=(never_on_0,)))
    assert found.tolist() == [NONE, 0, 1], "the one that gave way takes the place of a lesser one in turn"


def test_it_never_goes_below_what_enumeration_finds() -> None:
    for seed in range(60):
        maker = Maker(seed)
        plain = maker.assignment()
        assignment = replace(plain, required=np.array([Random(seed).random() < 0.2] * plain.rows))
        best = brute_force(assignment)
        start = np.full(assignment.rows, NONE, np.int32)
        if best is None or any(assignment.broken(start)):
            continue
        for choice in ejections(equivalence_classes(assignment), start, deadline=Deadline.after(60)):
            assert list(assignment.broken(choice)) == []
            assert assignment.worth(choice) >= best
