"""Schedules and choices that are found in the rows: CP-SAT, told of them, against trying every value."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest

from mgmt.optimization.backends import AnswerStatus
from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.optimization.backends.structures.running_sums import with_running_sums
from mgmt.optimization.backends.structures.schedules import schedules_of
from mgmt.optimization.columns import Integers, Linear, Linears, Lists, difference, filled, integers, sum_of
from mgmt.optimization.problem import NO_BOUND, LinearRows, Objective, Problem, Source
from mgmt.optimization.structure import tighten


def _minimum(problem: Problem, linear: Linear) -> int | None:
    problem.objectives.append(Objective("cost", linear, False, 1, 1))
    answer = CpSatBackend().load(problem).minimize(linear, {}, 20.0, 0, 1)
    if answer.status is AnswerStatus.INFEASIBLE:
        return None
    assert answer.status is AnswerStatus.OPTIMAL
    return answer.bound


def _weighted(variables: Integers, weights: list[int]) -> Linear:
    return Linears.single(variables).scaled(integers(weights)).summed(filled(len(variables), 0), 1).row(0)


@pytest.mark.parametrize("seed", range(8))
def test_what_must_not_overlap_where_two_choices_are_the_same(seed: int) -> None:
    draw = Random(seed)
    lengths = [draw.randint(1, 3) for _ in range(4)]
    weights = [draw.randint(1, 5) for _ in lengths]
    places, latest, optional = 2, draw.randint(3, 5), draw.random() < 0.7
    problem = Problem()
    start = problem.new_variables(filled(4, 0), filled(4, latest))
    at = problem.new_literals(4 * places).reshape(4, places)
    problem.require_choices(Lists(np.arange(5) * places, at.ravel()))
    for one, other in ((a, b) for a in range(4) for b in range(a)):
        pair = [Linears.single(start[[each]]) for each in (one, other)]
        before = problem.at_most(difference(*pair), -lengths[one])
        after = problem.at_most(difference(pair[1], pair[0]), -lengths[other])
        clause = [before, after]
        if optional:
            same = problem.new_literals(1)
            for place in range(places):
                both = at[one, place], at[other, place]
                problem.require_any(Lists.of([[int(same[0]), int(both[0]) ^ 1, int(both[1]) ^ 1]]))
                problem.require_any(Lists.of([[int(same[0]) ^ 1, int(both[0]) ^ 1, int(both[1])]]))
            clause.append(same ^ 1)
        source = Source("apart", integers([0]))
        # Either as a clause, or as a conjunction of what must not be.
        if draw.random() < 0.5:
            problem.require_any(Lists.side_by_side(*clause), source)
        else:
            bad = problem.conjunction(*(literal ^ 1 for literal in clause))
            problem.require_any(Lists.side_by_side(bad ^ 1), source)
    cliques = schedules_of(problem).apart
    assert sorted(map(len, cliques)) == [4] * (places if optional else 1)

    def fits(starts: tuple[int, ...], where: tuple[int, ...]) -> bool:
        return all(
            where[a] != where[b] or starts[a] + lengths[a] <= starts[b] or starts[b] + lengths[b] <= starts[a]
            for a in range(4)
            for b in range(a)
        )

    every = product(range(latest + 1), repeat=4)
    wheres = [*product(range(places), repeat=4)] if optional else [(0, 0, 0, 0)]
    costs = [
        sum(w * s for w, s in zip(weights, starts, strict=True))
        for starts in every
        if any(fits(starts, where) for where in wheres)
    ]
    assert _minimum(problem, _weighted(start, weights)) == min(costs, default=None)


@pytest.mark.parametrize("seed", range(8))
def test_capacities_that_are_shared_while_it_lasts(seed: int) -> None:
    draw = Random(seed)
    lengths = [draw.randint(1, 4) for _ in range(4)]
    amounts = [draw.randint(1, 3) for _ in lengths]
    weights = [draw.randint(1, 5) for _ in lengths]
    room, latest = draw.randint(3, 5), 6
    hours = range(latest + draw.choice((1, 6)))  # what comes after the last of them is not bounded
    problem = Problem()
    start = problem.new_variables(filled(4, 0), filled(4, latest))
    for hour in hours:
        begun = problem.at_most(Linears.single(start), hour)
        over = problem.at_most(Linears.single(start).plus(integers(lengths)), hour)
        lasting = problem.conjunction(begun, over ^ 1)
        total = Linears.literals(lasting, integers(amounts)).summed(filled(4, 0), 1)
        problem.require_range(total, None, room, Source("room", integers([hour])))
    found = schedules_of(problem).shared
    assert all(len(each.tasks) == 4 and each.capacity == room for each in found)
    assert found or sum(amounts) <= room or min(lengths) == 1 or latest < max(lengths) + 1

    def fits(starts: tuple[int, ...]) -> bool:
        return all(
            sum(a for a, s, n in zip(amounts, starts, lengths, strict=True) if s <= hour < s + n) <= room
            for hour in hours
        )

    costs = [
        sum(w * s for w, s in zip(weights, starts, strict=True))
        for starts in product(range(latest + 1), repeat=4)
        if fits(starts)
    ]
    assert _minimum(problem, _weighted(start, weights)) == min(costs, default=None)


@pytest.mark.parametrize("seed", range(12))
def test_equal_numbers_of_choices_and_their_distances(seed: int) -> None:
    draw = Random(seed)
    values = [draw.sample(range(-3, 6), 4), draw.sample(range(-3, 6), 4)]
    shift, gap = draw.randint(-2, 2), draw.randint(0, 4)
    problem = Problem()
    literals = problem.new_literals(8).reshape(2, 4)
    problem.require_choices(Lists(np.arange(3) * 4, literals.ravel()))
    numbers = [
        problem.named(Linears.literals(row, integers(some)).summed(filled(4, 0), 1))
        for row, some in zip(literals, values, strict=True)
    ]
    apart = difference(*numbers)
    absolute = problem.maximum(Linears.of(apart.row(0), apart.scaled(-1).row(0)), integers([0, 0]), 1)
    told = {
        "shifted": problem.equals(apart, shift),
        "alone": problem.equals(numbers[0], shift),
        "distance": problem.equals(absolute, gap),
        "near": problem.at_most(absolute, gap),
        "far": problem.at_most(absolute.scaled(-1), -gap),
    }
    meant = {
        "shifted": lambda a, b: a - b == shift,
        "alone": lambda a, b: a == shift,
        "distance": lambda a, b: abs(a - b) == gap,
        "near": lambda a, b: abs(a - b) <= gap,
        "far": lambda a, b: abs(a - b) >= gap,
    }
    told_of = {int(literal[0]) >> 1 for literal in told.values()}  # what nothing refers to is not written
    problem.objectives.append(Objective("told", Linear(0, tuple(told_of), (1,) * len(told_of)), False, 1, 1))
    for (one, a), (other, b) in product(enumerate(values[0]), enumerate(values[1])):
        session = CpSatBackend().load(problem)
        session.require_all([int(literals[0, one]), int(literals[1, other])])
        answer = session.minimize(None, {}, 20.0, 0, 1)
        assert answer.values is not None
        for name, literal in told.items():
            number = int(literal[0])
            held = (answer.values[number >> 1] == 1) != (number & 1 == 1)
            assert held == meant[name](a, b), name


@pytest.mark.parametrize("seed", range(8))
def test_sums_that_go_on_from_each_other(seed: int) -> None:
    draw = Random(seed)
    count, most = 4, 3
    demand = [draw.randint(1, 2) for _ in range(count)]
    setup, store = [draw.randint(1, 9) for _ in demand], draw.randint(1, 3)
    room = draw.randint(2, most)
    problem = Problem()
    made = problem.new_variables(filled(count, 0), filled(count, most))
    for last in range(1, count + 1):
        total = Linears.single(made[:last]).summed(filled(last, 0), 1)
        problem.require_range(total, sum(demand[:last]), None, Source("enough", integers([last])))
    for variable in made.tolist():
        if draw.random() < 0.7:
            problem.require_range(
                Linears.single(integers([variable])), None, room, Source("room", integers([0]))
            )
    limits = [room if any(b.upper[0] == room for b in _bounds(problem, v)) else most for v in made.tolist()]
    runs = problem.at_most(Linears.single(made), 0) ^ 1
    costs = Linears.literals(runs, integers(setup)).summed(filled(count, 0), 1)
    stored = Linears.single(made).scaled(integers([store * (count - place) for place in range(count)]))
    cost = sum_of(costs, stored.summed(filled(count, 0), 1)).row(0)
    tighten(problem, Lists.of([]))
    assert with_running_sums(problem).variables == problem.variables + count - 1

    def worth(amounts: tuple[int, ...]) -> int:
        return sum(
            (amount > 0) * setup[place] + store * (count - place) * amount
            for place, amount in enumerate(amounts)
        )

    every = product(*(range(limit + 1) for limit in limits))
    fits = (
        amounts for amounts in every if all(sum(amounts[:n]) >= sum(demand[:n]) for n in range(1, count + 1))
    )
    assert _minimum(problem, cost) == min(map(worth, fits), default=None)


def _bounds(problem: Problem, variable: int) -> list[LinearRows]:
    """The rows about one variable alone that always hold."""
    linear = (block for block in problem.rows if isinstance(block, LinearRows) and block.source is not None)
    return [
        block
        for block in linear
        if block.linears.terms.items.tolist() == [variable] and block.upper[0] < NO_BOUND
    ]


def _apart(problem: Problem, *literals: Integers) -> None:
    problem.require_any(Lists.side_by_side(*literals), Source("apart", integers([0])))


def test_what_must_not_overlap_where_starts_are_quotients() -> None:
    problem = Problem()
    times = problem.new_variables([0, 0], [20, 20])
    one, other = (problem.quotient(Linears.single(times[[each]]), integers([2])) for each in (0, 1))
    _apart(problem, problem.at_most(difference(one, other), -3), problem.at_most(difference(other, one), -3))
    assert _minimum(problem, _weighted(times, [1, 1])) == 6


def test_what_must_not_overlap_where_numbers_are_small() -> None:
    problem = Problem()
    numbers = problem.new_variables([0] * 4, [20] * 4)
    one, other, u, w = (Linears.single(numbers[[each]]) for each in range(4))
    small = [problem.at_most(each.scaled(2), 5) ^ 1 for each in (u, w)]
    orders = problem.at_most(difference(one, other), -3), problem.at_most(difference(other, one), -3)
    _apart(problem, *orders, *small)
    assert _minimum(problem, _weighted(numbers, [2, 2, 3, 3])) == 6


def test_a_decision_that_only_implies_an_order_is_taken_all_the_same() -> None:
    problem = Problem()
    times = problem.new_variables([0, 0], [20, 20])
    modes = problem.new_literals(2)
    one, other = (Linears.single(times[[each]]) for each in (0, 1))
    for mode, order in zip(modes, (difference(one, other), difference(other, one)), strict=True):
        problem.require_range(order, None, -3, Source("order", integers([0])), when=integers([mode]))
    _apart(problem, modes[[0]], modes[[1]])
    assert _minimum(problem, _weighted(np.concatenate((times, modes >> 1)), [1, 1, 100, 100])) == 103
