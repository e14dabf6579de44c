"""Constraints that are no limits on single loads: the engines against trying every choice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np

from mgmt.optimization.assignment import (
    NONE,
    UNLIMITED,
    Assignment,
    Budget,
    Colocation,
    Condition,
    Either,
    Indices,
    Limit,
    Load,
    MoveLimit,
    Occupancy,
    Skew,
)
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines import solve
from mgmt.optimization.engines.construction import greedy
from mgmt.optimization.engines.delta_evaluation.partial_solution import PartialSolution
from mgmt.optimization.engines.integer_programming.condition_rows import rows_together
from mgmt.optimization.engines.model.equivalence import equivalence_classes
from mgmt.optimization.engines.presolve.normal_form import with_limits
from tests.mgmt.engines.random_assignments import Maker, brute_force, indices
from tests.mgmt.engines.test_against_brute_force import check, cp_sat_alone


class ConditionMaker(Maker):
    """A random assignment with conditions."""

    def with_conditions(self) -> Assignment:
        plain = self.assignment()
        number = self.random.randint(1, 2)
        return replace(plain, conditions=tuple(self.condition(f"condition {n}") for n in range(number)))

    def condition(self, name: str) -> Condition:
        random = self.random
        class_ = random.randrange(6)
        if class_ == 0:
            groups = random.randint(1, 2)
            group = indices([random.randint(-1, groups - 1) for _ in range(self.rows)])
            return MoveLimit(name, group, np.array([random.randint(0, 2) for _ in range(groups)], np.int64))
        if class_ == 4:
            leader = [random.choice((NONE, NONE, *range(self.rows))) for _ in range(self.rows)]
            return Colocation(name, indices([NONE if one == row else one for row, one in enumerate(leader)]))
        load = self.load()
        if class_ == 3:
            return self.skew(name, load)
        if class_ == 5:
            return self.budget(name, load)
        if class_ == 1:
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

    def budget(self, name: str, load: Load) -> Budget:
        """Of one load, or of that and another one of the same groups."""
        random = self.random
        some = indices([random.randrange(load.buckets) for _ in load.bucket])
        loads = (load, replace(load, bucket=some))[: random.randint(1, 2)]
        prices = tuple(
            np.array([random.randint(-1, 3) for _ in range(load.buckets)], np.int64) for _ in loads
        )
        lower = np.array([random.choice((-int(UNLIMITED), -2, 0, 2)) for _ in range(load.groups)], np.int64)
        upper = np.array([random.choice((int(UNLIMITED), 2, 4, 6)) for _ in range(load.groups)], np.int64)
        return Budget(name, loads, prices, lower, upper)

    def skew(self, name: str, load: Load) -> Skew:
        """Of the rows of the first group, or of all that are in any."""
        random, group = self.random, load.group
        group = np.where(group == 0, 0, NONE) if random.random() < 0.5 else np.minimum(group, 0)
        base = [random.choice((0, 0, 1, 3, int(UNLIMITED))) for _ in range(load.buckets)]
        above = [
            -int(UNLIMITED)
            if random.random() < 0.1
            else (0 if one == UNLIMITED else one) - random.randint(-1, 2)
            for one in base
        ]
        excused = [random.choice((-1, 0, 0, 1)) for _ in base]
        alone = replace(load, group=group.astype(np.int32), groups=1)
        return Skew(name, alone, np.array(base), np.array(above), np.array(excused))


def test_the_answer_is_what_enumeration_finds() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(120):
        assignment = ConditionMaker(seed).with_conditions()
        expected = brute_force(assignment)
        placement = solve(assignment, deadline=Deadline.after(60), seed=seed)
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


def test_rows_that_are_all_there_or_not_at_all_in_one_place_at_most() -> None:
    """Gangs: what CP-SAT is told of a place in use (all of a gang is there) drops no choice."""
    together = 0
    for seed in range(40):
        maker = Maker(seed)
        plain, random = maker.assignment(), maker.random
        load = replace(maker.load(), weight=np.ones(maker.rows, np.int64))
        conditions: list[Condition] = [
            Occupancy("one place", load, np.zeros(load.groups, np.int64), np.ones(load.groups, np.int64))
        ]
        for group in range(load.groups):
            rows = load.group == group
            if not rows.any() or random.random() < 0.2:
                continue
            member = np.where(rows, 0, NONE).astype(np.int32)
            anywhere = np.where(load.bucket == NONE, NONE, 0).astype(np.int32)
            whole = Load(member, 1, anywhere, 1, np.where(rows, 1, 0).astype(np.int64))
            zero = np.zeros((1, 1), np.int64)
            sides = (
                Limit("none", whole, zero, zero),
                Limit("all", whole, zero + rows.sum(), zero + UNLIMITED),
            )
            conditions.append(Either("all or none", sides if random.random() < 0.5 else sides[::-1]))
        together += len(rows_together(conditions))
        check(cp_sat_alone, replace(plain, conditions=tuple(conditions)), seed)
    assert together >= 20


def breaks(assignment: Assignment, before: Indices, after: Indices) -> bool:
    """Whether what is kept before is not any more, lower bounds and limits on moves left aside."""
    for limit in assignment.limits:
        if bool(
            ((limit.load.of(after) > limit.upper) & (limit.load.of(before) != limit.load.of(after))).any()
        ):
            return True
    for condition in assignment.conditions:
        if isinstance(condition, Either):
            held = [
                np.logical_or.reduce([~limit.broken(choice) for limit in condition.limits])
                for choice in (before, after)
            ]
            if bool((held[0] & ~held[1]).any()):
                return True
        elif isinstance(condition, Occupancy):
            used = [(condition.load.of(choice) > 0).sum(axis=1) for choice in (before, after)]
            if bool(((used[1] > condition.upper) & (used[1] > used[0])).any()):
                return True
        elif isinstance(condition, Budget):
            paid = [
                sum(
                    load.of(choice) @ price
                    for load, price in zip(condition.loads, condition.prices, strict=True)
                )
                for choice in (before, after)
            ]
            if bool(((paid[1] > condition.upper) & (paid[1] > paid[0])).any()):
                return True
        elif isinstance(condition, Colocation):
            if not condition.holds(after, after):
                return True
        elif isinstance(condition, Skew):
            loads = [condition.load.of(choice)[0] for choice in (before, after)]
            for bucket in np.flatnonzero(loads[0] != loads[1]).tolist():
                reached = int(loads[1][bucket])
                least = int((loads[1] + condition.base).min())
                if reached > condition.excused[bucket] and reached + condition.above[bucket] > least:
                    return True
    return False


def test_the_ledger_says_where_one_row_more_keeps_the_conditions() -> None:
    outcomes: Counter[bool] = Counter()
    for seed in range(150):
        maker = ConditionMaker(seed, most_rows=7)
        assignment = maker.with_conditions()
        classes = equivalence_classes(assignment)
        partial = PartialSolution(classes)
        choice = np.full(assignment.rows, NONE, np.int32)
        for row in maker.random.sample(range(assignment.rows), assignment.rows):
            class_ = int(classes.of_row[row])
            room = partial.room(class_)
            for value in range(assignment.values):
                after = choice.copy()
                after[row] = value
                allowed = bool(assignment.allowed[assignment.row_class[row], value])
                assert room[value] == (allowed and not breaks(assignment, choice, after)), f"seed {seed}"
                outcomes[allowed and not room[value]] += 1
            value = maker.random.randrange(-1, assignment.values)
            if value >= 0 and room[value]:
                choice[row] = value
                partial.add(class_, value)
    assert outcomes[True] >= 100
    assert outcomes[False] >= 100


def test_greedy_keeps_together_what_must_be_together() -> None:
    """Three groups of four rows, each in one of three halls of two rooms; rooms hold two rows of any group."""
    number = 12
    group = (np.arange(number) // 4).astype(np.int32)
    ones = np.ones(number, np.int64)
    hall = Load(group, 3, (np.arange(6) // 2).astype(np.int32), 3, ones)
    zero = np.array([[0]])
    two = Limit("two", rows(number, 6), zero, np.array([[2]]))
    assignment = Assignment(
        6,
        np.zeros(number, np.int32),
        np.ones((1, 6), np.bool_),
        np.ones(number, np.bool_),
        np.full(number, NONE, np.int32),
        (two,),
        (),
        (Occupancy("one hall", hall, np.zeros(3, np.int64), np.ones(3, np.int64)),),
    )
    choice = greedy(equivalence_classes(assignment))
    assert choice is not None
    assert not list(assignment.broken(choice))


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
            Skew("even", load, np.array([0, 2, 1]), np.array([-1, 1, 0]), np.array([-1, -1, 0])),
        ),
    )
    assert list(plain.broken(indices([0, 0]))) == []
    assert list(plain.broken(indices([1, 1]))) == ["nobody moves", "even"]
    assert list(plain.broken(indices([0, 1]))) == ["empty or two", "in one place", "even"]


def test_how_many_buckets_are_used_is_a_limit_where_that_says_the_same() -> None:
    """Each choice keeps both or neither, and of conditions there are fewer."""
    fewer = 0
    for seed in range(200):
        maker = ConditionMaker(seed)
        plain = replace(maker.assignment(), limits=(), tiers=())
        loads = [maker.load() for _ in range(maker.random.choice((1, 2)))]
        loads += [
            replace(loads[0], group=np.where(loads[0].group < 0, 0, NONE).astype(np.int32), groups=1)
        ]  # of the other rows
        conditions = tuple(
            Occupancy(
                "used",
                load,
                np.array([maker.random.randint(0, 3) for _ in range(load.groups)]),
                np.array([maker.random.choice((1, 9, int(UNLIMITED))) for _ in range(load.groups)]),
            )
            for load in loads
        )
        assignment = replace(plain, conditions=conditions)
        told = with_limits(assignment)
        fewer += bool(told.limits)
        for values in product(range(-1, assignment.values), repeat=assignment.rows):
            choice = indices(list(values))
            assert any(assignment.broken(choice)) == any(told.broken(choice)), f"seed {seed}"
    assert fewer >= 20
