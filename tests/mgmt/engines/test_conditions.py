"""Constraints that are no limits on single loads: the engines against trying every choice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from mgmt.optimization.assignment import (
    NONE,
    Assignment,
    Condition,
    Either,
    Limit,
    Load,
    MoveLimit,
    Occupancy,
)
from mgmt.optimization.engines import solve
from tests.mgmt.engines.random_assignments import Maker, brute_force, indices


class ConditionMaker(Maker):
    """A random assignment with conditions."""

    def with_conditions(self) -> Assignment:
        plain = self.assignment()
        number = self.random.randint(1, 2)
        return replace(plain, conditions=tuple(self.condition(f"condition {n}") for n in range(number)))

    def condition(self, name: str) -> Condition:
        random = self.random
        kind = random.randrange(3)
        if kind == 0:
            groups = random.randint(1, 2)
            group = indices([random.randint(-1, groups - 1) for _ in range(self.rows)])
            return MoveLimit(name, group, np.array([random.randint(0, 2) for _ in range(groups)], np.int64))
        load = self.load()
        if kind == 1:
            upper = np.array([random.randint(0, load.buckets) for _ in range(load.groups)], np.int64)
            return Occupancy(name, load, np.minimum(upper, random.choice((0, 0, 1))), upper)
        other = Load(
            load.group,
            load.groups,
            load.bucket,
            load.buckets,
            np.array([random.choice((0, 1)) for _ in range(self.rows)], np.int64),
        )
        return Either(name, (self.limit("one", [load]), self.limit("other", [other])))


def test_the_answer_is_what_enumeration_finds() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(120):
        assignment = ConditionMaker(seed).with_conditions()
        expected = brute_force(assignment)
        placement = solve(assignment, seconds=60, seed=seed)
        if expected is None:
            assert placement.choice is None, f"seed {seed}: a choice where none keeps the conditions"
            outcomes["infeasible"] += 1
            continue
        assert placement.choice is not None, f"seed {seed}: called infeasible, but {expected} can be reached"
        assert not list(assignment.broken(placement.choice)), f"seed {seed}"
        assert placement.worth == placement.bounds == expected, f"seed {seed}: {placement.engine}"
        outcomes["bound" if brute_force(replace(assignment, conditions=())) != expected else "free"] += 1
    assert outcomes["infeasible"] >= 20
    assert outcomes["bound"] >= 10, "the conditions make hardly any difference"


def rows(number: int, values: int) -> Load:
    weight = np.ones(number, np.int64)
    return Load(np.zeros(number, np.int32), 1, np.arange(values, dtype=np.int32), values, weight)


def test_what_breaks_a_condition_is_named() -> None:
    load = rows(2, 3)
    none, one = np.array([[0]]), np.array([[1]])
    everywhere = np.array([[9]])
    plain = Assignment(
        3,
        np.zeros(2, np.int32),
        np.ones((1, 3), np.bool_),
        np.ones(2, np.bool_),
        indices([0, NONE]),
        (),
        (),
        (
            Either("empty or two", (Limit("e", load, none, none), Limit("t", load, one + one, everywhere))),
            Occupancy("in one place", load, np.array([0]), np.array([1])),
            MoveLimit("nobody moves", indices([0, 0]), np.array([0])),
        ),
    )
    assert list(plain.broken(indices([0, 0]))) == []
    assert list(plain.broken(indices([1, 1]))) == ["nobody moves"]
    assert list(plain.broken(indices([0, 1]))) == ["empty or two", "in one place"]
