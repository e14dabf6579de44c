"""The solver-neutral model: every defined value against a brute-force twin, and its parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random

import pytest

from mgmt.errors import OverflowError  # noqa: A004 - the published name
from mgmt.optimization.backends import AnswerStatus
from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.optimization.backends.liveness import without_unused
from mgmt.optimization.columns import FALSE, LIMIT, TRUE, Linear, Linears, Lists, integers
from mgmt.optimization.general.deadline import Deadline
from mgmt.optimization.general.evaluation import value_of
from mgmt.optimization.general.lexicographic import optimize
from mgmt.optimization.infeasibility.problem_core import restricted
from mgmt.optimization.problem import (
    LinearRows,
    Objective,
    OperationKind,
    Operations,
    Problem,
    Relation,
    Rows,
    Source,
    Tag,
    add,
    scale,
)
from mgmt.optimization.structure import tighten


def allowed(problem: Problem, values: tuple[int, ...]) -> bool:
    """Whether an assignment satisfies everything, checked one by one."""

    def operate(kind: OperationKind, operands: list[int]) -> int:
        if kind is OperationKind.MAXIMUM:
            return max(operands)
        if kind is OperationKind.PRODUCT:
            return operands[0] * operands[1]
        quotient = truncate(operands[0], operands[1])
        return quotient if kind is OperationKind.QUOTIENT else operands[0] - operands[1] * quotient

    def satisfied(block: Rows, row: int) -> bool:
        if isinstance(block, LinearRows):
            return block.lower[row] <= value_of(block.linears.row(row), values) <= block.upper[row]
        number = sum(holds(literal, values) for literal in block.literals.row(row).tolist())
        return (
            number <= 1
            if block.relation is Relation.AT_MOST_ONE
            else number == 1
            if block.relation is (Relation.EXACTLY_ONE)
            else number >= 1
        )

    def defined(block: Operations, row: int) -> bool:
        places = range(block.starts[row], block.starts[row + 1])
        operands = [value_of(block.operands.row(place), values) for place in places]
        return values[block.targets[row]] == operate(block.kind, operands)

    return (
        all(
            not holds(condition, values) or satisfied(block, row)
            for block in problem.rows
            for row, condition in enumerate(block.enforcement.tolist())
        )
        and all(
            holds(target, values)
            == all(holds(literal, values) for literal in block.literals.row(row).tolist())
            for block in problem.conjunctions
            for row, target in enumerate(block.targets.tolist())
        )
        and all(defined(block, row) for block in problem.operations for row in range(len(block.targets)))
    )


def truncate(dividend: int, divisor: int) -> int:
    """Toward zero, without a fraction in between."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def every(problem: Problem) -> Iterator[tuple[int, ...]]:
    bounds = zip(problem.lower.tolist(), problem.upper.tolist(), strict=True)
    ranges = [range(low, high + 1) for low, high in bounds]
    return (values for values in product(*ranges) if allowed(problem, values))


def holds(literal: int, values: tuple[int, ...]) -> bool:
    return (values[literal // 2] == 1) != bool(literal & 1)


def tagged(constraint: str, row: int) -> Source:
    return Source(constraint, integers([row]))


def one(linear: Linear) -> Linears:
    """A column of one row."""
    return Linears.of(linear)


def literal_value(literal: int) -> Linear:
    return Linears.literals(integers([literal])).row(0)


def conjunction(problem: Problem, literals: Sequence[int]) -> int:
    return int(problem.conjunction_of(Lists.of([literals]))[0])


def disjunction(problem: Problem, literals: Sequence[int]) -> int:
    return int(problem.disjunction_of(Lists.of([literals]))[0])


def maximum(problem: Problem, operands: Sequence[Linear]) -> Linear:
    return problem.maximum(Linears.of(*operands), integers([0] * len(operands)), 1).row(0)


def gated(problem: Problem, linear: Linear, literal: int) -> Linear:
    return problem.gated(one(linear), integers([literal])).row(0)


NO_CHOICES = Lists.of([])


def satisfies(block: LinearRows, values: tuple[int, ...]) -> bool:
    found = [value_of(block.linears.row(row), values) for row in range(len(block.lower))]
    return bool((block.lower <= found).all() and (block.upper >= found).all())


def small_problem() -> tuple[Problem, list[int], Linear, Linear]:
    """Three literals and two sums over a few variables."""
    problem = Problem()
    literals = problem.new_literals(3).tolist()
    (number,) = problem.new_variables([-2], [3]).tolist()
    first = Linear(1, (literals[0] // 2, number), (2, -1))
    other = Linear(-1, (literals[1] // 2, literals[2] // 2), (3, -2))
    return problem, literals, first, other


def plans_of_small(problem: Problem) -> list[tuple[int, ...]]:
    """Of a `small_problem` with what was defined since, which follows from its 48 plans and excludes none."""
    plans = list(every(problem))
    assert len(plans) == 48
    return plans


def test_conjunction_and_disjunction() -> None:
    problem, (a, b, c), _, _ = small_problem()
    both, either = conjunction(problem, (a, b ^ 1)), disjunction(problem, (b, c))
    assert conjunction(problem, (b ^ 1, a)) == both, "made once"
    for values in every(problem):
        assert holds(both, values) == (holds(a, values) and not holds(b, values))
        assert holds(either, values) == (holds(b, values) or holds(c, values))
    assert conjunction(problem, ()) == TRUE
    assert conjunction(problem, (a, FALSE)) == FALSE
    assert conjunction(problem, (a, a ^ 1)) == FALSE
    assert disjunction(problem, (a, a ^ 1)) == TRUE
    assert conjunction(problem, (a, TRUE)) == a


@pytest.mark.parametrize("bound", range(-6, 7))
def test_thresholds(bound: int) -> None:
    problem, _, single, other = small_problem()
    both = Linears.of(single, add(other, single))
    first, second = problem.at_most(both, bound).tolist()
    seen = 0
    for values in every(problem):
        seen += 1
        assert holds(first, values) == (value_of(single, values) <= bound)
        assert holds(second, values) == (value_of(other, values) + value_of(single, values) <= bound)
    assert seen == 48, "a definition leaves every assignment possible, once"


def test_gated_values() -> None:
    problem, (a, _, _), single, other = small_problem()
    parts = [gated(problem, part, a) for part in (single, other, Linear(7))] + [gated(problem, single, a ^ 1)]
    for values in every(problem):
        on = holds(a, values)
        found = [value_of(part, values) for part in parts]
        expected = [value_of(single, values), value_of(other, values), 7]
        assert found == [*([e if on else 0 for e in expected]), 0 if on else expected[0]]
    assert gated(problem, single, TRUE) == single
    assert gated(problem, single, FALSE) == Linear(0)


def test_maximum() -> None:
    problem, _, single, other = small_problem()
    top = maximum(problem, [single, other, Linear(0)])
    for values in plans_of_small(problem):
        assert value_of(top, values) == max(value_of(single, values), value_of(other, values), 0)


@pytest.mark.parametrize("whole", [True, False])
def test_the_greatest_of_all_differences_is_one_of_each_side(whole: bool) -> None:
    """Less variables to be the greatest of: 2 n for n (n - 1)."""
    problem = Problem()
    numbers = [Linear(0, (one,), (1,)) for one in problem.new_variables([0, 0, 1], [2, 1, 3]).tolist()]
    pairs = [pair for place, pair in enumerate(product(numbers, numbers)) if whole or place != 1]
    top = maximum(problem, [add(one, scale(other, -1)) for one, other in pairs])
    assert len(problem.operations) == (2 if whole else 1)
    for values in every(problem):
        told = [value_of(one, values) - value_of(other, values) for one, other in pairs]
        assert value_of(top, values) == max(told)


def test_product() -> None:
    problem, _, single, other = small_problem()
    times = problem.product(one(single), one(other)).row(0)
    for values in plans_of_small(problem):
        assert value_of(times, values) == value_of(single, values) * value_of(other, values)


def test_quotient_and_remainder() -> None:
    problem, _, single, _ = small_problem()
    twice, divisors = Linears.of(single, single), integers([2, -2])
    quotients, remainders = problem.quotient(twice, divisors), problem.remainder(twice, divisors)
    for values, (row, divisor) in product(plans_of_small(problem), enumerate((2, -2))):
        a = value_of(single, values)
        assert value_of(quotients.row(row), values) == int(a / divisor)
        assert value_of(remainders.row(row), values) == a - divisor * int(a / divisor)


def test_ranges_are_exact_and_bounded() -> None:
    problem, _, single, _ = small_problem()
    found = [value_of(single, values) for values in every(problem)]
    low, high = problem.ranges(Linears.of(single))
    assert (low[0], high[0]) == (min(found), max(found))
    with pytest.raises(OverflowError):
        problem.ranges(Linears.of(single).scaled(LIMIT))
    with pytest.raises(OverflowError):
        problem.new_variables([0], [LIMIT + 1])


def random_problem(random: Random) -> Problem:
    """A few groups of variables with random demands and two tiers of objectives."""
    problem = Problem()
    groups = []
    for _ in range(random.randint(1, 3)):
        literals = problem.new_literals(random.randint(1, 3)).tolist()
        (number,) = problem.new_variables([-1], [random.randint(0, 2)]).tolist()
        groups.append((literals, number))
        for row in range(random.randint(0, 3)):
            source = tagged(random.choice("xy"), row)
            chosen = [literal ^ random.randint(0, 1) for literal in literals]
            linear = add(Linear(0, (number,), (1,)), *map(literal_value, chosen))
            kind = random.randrange(4)
            if kind == 0:
                problem.require_any(Lists.of([chosen]), source)
            elif kind == 1:
                problem.require_one(Lists.of([chosen]), source, exactly=random.random() < 0.5)
            elif kind == 2:
                problem.require_range(one(linear), random.randint(-2, 1), random.randint(0, 3), source)
            else:
                top = one(maximum(problem, [linear, Linear(1)]))
                problem.require_range(top, None, 2, source, when=integers(chosen[:1]))
    for number in range(random.randint(0, 3)):
        terms = {v: random.randint(-2, 2) for literals, n in groups for v in (literals[0] // 2, n)}
        linear = Linear(random.randint(-1, 1), tuple(terms), tuple(terms.values()))
        problem.objectives.append(
            Objective(
                f"o{number}", add(linear), random.random() < 0.5, random.randint(1, 2), random.randint(1, 2)
            )
        )
    return problem


def lexicographic(problem: Problem, values: tuple[int, ...]) -> tuple[int, ...]:
    tiers: dict[int, int] = {}
    for objective in problem.objectives:
        sign = -1 if objective.maximize else 1
        value = sign * objective.weight * value_of(objective.linear, values)
        tiers[objective.tier] = tiers.get(objective.tier, 0) + value
    return tuple(tiers[tier] for tier in sorted(tiers))


@pytest.mark.parametrize("chunk", range(4))
def test_tiers_against_enumeration(chunk: int) -> None:
    for seed in range(25):
        problem = random_problem(Random(1000 * chunk + seed))
        best = min((lexicographic(problem, values) for values in every(problem)), default=None)
        hint = dict(enumerate(problem.lower.tolist()))
        found = optimize(problem, CpSatBackend(), hint, deadline=Deadline.after(20), seed=seed, workers=1)
        if best is None:
            assert found.values is None
            continue
        assert found.values is not None
        values = tuple(found.values.tolist())
        assert allowed(without_unused(problem), values)
        assert lexicographic(problem, values) == best
        if problem.objectives:
            assert tuple(tier.value for tier in found.tiers) == best
        assert all(tier.proven and tier.bound == tier.value for tier in found.tiers)


def test_redundant_rows_exclude_nothing() -> None:
    problem = Problem()
    choice = problem.new_literals(3)
    problem.require_one(Lists.of([choice]), exactly=True)
    (condition,) = problem.new_literals(1).tolist()
    problem.conjunction(choice, integers([condition] * 3))
    conjunction(problem, (int(choice[0]) ^ 1, condition))
    assert tighten(problem, Lists.of([choice])) == 2
    solutions = list(every(problem))
    assert len(solutions) == 6
    for values in solutions:
        assert all(satisfies(block, values) for block in problem.redundant)


def test_a_capacity_is_nothing_where_nothing_is_used() -> None:
    problem = Problem()
    placed = problem.new_literals(4).tolist()
    load = add(*(scale(literal_value(literal), 2 + place) for place, literal in enumerate(placed)))
    used = disjunction(problem, placed)
    problem.require_range(one(load), None, 6, tagged("capacity", 0))
    assert tighten(problem, NO_CHOICES) == 1
    (block,) = problem.redundant
    assert block.upper.tolist() == [0]
    assert block.linears.row(0) == add(load, scale(literal_value(used), -6))
    assert all(value_of(block.linears.row(0), values) <= 0 for values in every(problem))


@pytest.mark.parametrize("shown", [2, 3])
@pytest.mark.parametrize("low", [-1, 0])
def test_a_number_is_what_it_is_with_all_values_of_a_choice_together(shown: int, low: int) -> None:
    problem = Problem()
    choice = problem.new_literals(3)
    problem.require_one(Lists.of([choice]), exactly=True)
    number = Linears.single(problem.new_variables([low], [2]))
    problem.gated(number.take(integers([0] * shown)), choice[:shown])
    assert tighten(problem, Lists.of([choice])) == int(shown == 3 or low == 0)
    solutions = list(every(problem))
    assert len(solutions) == 3 * (3 - low)
    assert all(satisfies(block, values) for block in problem.redundant for values in solutions)


def test_what_follows_from_all_constraints_is_not_demanded_without_one() -> None:
    problem = Problem()
    *placed, used = problem.new_literals(4).tolist()
    total = add(*map(literal_value, placed))
    problem.require_range(one(total), None, 2, tagged("capacity", 0))
    for literal in placed:
        problem.require_any(Lists.of([(literal ^ 1, used)]), tagged("only where open", 0))
    assert tighten(problem, NO_CHOICES) == 1
    (block,) = problem.redundant
    assert block.linears.row(0) == add(total, scale(literal_value(used), -2))
    for constraints, most in (({"capacity", "only where open"}, 0), ({"capacity"}, 2)):
        session = CpSatBackend().load(restricted(problem, constraints=constraints))
        session.strengthen()
        session.require_all([used ^ 1])
        answer = session.minimize(scale(total, -1), {}, 5, 0, 1)
        assert answer.values is not None
        assert value_of(total, answer.values) == most


def test_dropping_a_constraint_keeps_the_others_and_the_definitions() -> None:
    problem = Problem()
    a, b = problem.new_literals(2).tolist()
    both = conjunction(problem, (a, b))
    problem.require_any(Lists.of([(both,)]), tagged("both", 0))
    problem.require_any(Lists.of([(a ^ 1,)]), tagged("not a", 0))
    backend = CpSatBackend()
    assert problem.constraint_names == ("both", "not a")

    def status(*without: str) -> AnswerStatus:
        kept = set(problem.constraint_names) - set(without)
        return backend.load(restricted(problem, constraints=kept)).minimize(None, {}, 5, 0, 1).status

    assert status() is AnswerStatus.INFEASIBLE
    assert status("both") is status("not a") is AnswerStatus.OPTIMAL
    rows = backend.clashing_rows(problem, 5, 0)
    assert set(rows) == {Tag("both", 0), Tag("not a", 0)}
