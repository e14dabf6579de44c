"""The solver-neutral model: every defined value against a brute-force twin, and its parts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

import pytest

from mgmt.errors import OverflowError  # noqa: A004 - the published name
from mgmt.optimization.backends import AnswerStatus
from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.optimization.checking import value_of
from mgmt.optimization.infeasibility.core import restricted
from mgmt.optimization.optimize import optimize
from mgmt.optimization.problem import (
    FALSE,
    LIMIT,
    TRUE,
    Linear,
    Objective,
    OperationKind,
    Problem,
    Tag,
    add,
    scale,
    truncate,
)
from mgmt.optimization.structure import tighten


def allowed(problem: Problem, values: tuple[int, ...]) -> bool:
    """Whether an assignment satisfies everything, checked one by one."""

    def holds(literal: int) -> bool:
        return (values[literal // 2] == 1) != bool(literal & 1)

    def operate(kind: OperationKind, operands: list[int]) -> int:
        if kind is OperationKind.MAXIMUM:
            return max(operands)
        if kind is OperationKind.PRODUCT:
            return operands[0] * operands[1]
        quotient = truncate(operands[0], operands[1])
        return quotient if kind is OperationKind.QUOTIENT else operands[0] - operands[1] * quotient

    return (
        all(any(map(holds, clause.literals)) for clause in problem.clauses)
        and all(
            not holds(c.enforcement)
            or (sum(map(holds, c.literals)) == 1 if c.exactly else sum(map(holds, c.literals)) <= 1)
            for c in problem.cardinalities
        )
        and all(
            not holds(row.enforcement)
            or (
                (row.lower is None or value_of(row.linear, values) >= row.lower)
                and (row.upper is None or value_of(row.linear, values) <= row.upper)
            )
            for row in problem.rows
        )
        and all(
            values[o.target] == operate(o.kind, [value_of(operand, values) for operand in o.operands])
            for o in problem.operations
        )
    )


def every(problem: Problem) -> Iterator[tuple[int, ...]]:
    ranges = [range(low, high + 1) for low, high in zip(problem.lower, problem.upper, strict=True)]
    return (values for values in product(*ranges) if allowed(problem, values))


def holds(literal: int, values: tuple[int, ...]) -> bool:
    return (values[literal // 2] == 1) != bool(literal & 1)


def small_problem() -> tuple[Problem, list[int], Linear, Linear]:
    """Three literals and two sums over a few variables."""
    problem = Problem()
    literals = [problem.new_literal() for _ in range(3)]
    number = problem.new_variable(-2, 3)
    one = Linear(1, (literals[0] // 2, number), (2, -1))
    other = Linear(-1, (literals[1] // 2, literals[2] // 2), (3, -2))
    return problem, literals, one, other


def test_conjunction_and_disjunction() -> None:
    problem, (a, b, c), _, _ = small_problem()
    both, either = problem.conjunction((a, b ^ 1)), problem.disjunction((b, c))
    assert problem.conjunction((b ^ 1, a)) == both, "made once"
    for values in every(problem):
        assert holds(both, values) == (holds(a, values) and not holds(b, values))
        assert holds(either, values) == (holds(b, values) or holds(c, values))
    assert problem.conjunction(()) == TRUE
    assert problem.conjunction((a, FALSE)) == FALSE
    assert problem.conjunction((a, a ^ 1)) == FALSE
    assert problem.disjunction((a, a ^ 1)) == TRUE
    assert problem.conjunction((a, TRUE)) == a


@pytest.mark.parametrize("bound", range(-6, 7))
def test_thresholds(bound: int) -> None:
    problem, _, one, other = small_problem()
    first, second = problem.at_most(one, bound), problem.at_most(add(other, one), bound)
    seen = 0
    for values in every(problem):
        seen += 1
        assert holds(first, values) == (value_of(one, values) <= bound)
        assert holds(second, values) == (value_of(other, values) + value_of(one, values) <= bound)
    assert seen == 48, "a definition leaves every assignment possible, once"


def test_gated_values() -> None:
    problem, (a, _, _), one, other = small_problem()
    gated = [problem.gated(part, a) for part in (one, other, Linear(7))] + [problem.gated(one, a ^ 1)]
    for values in every(problem):
        on = holds(a, values)
        found = [value_of(part, values) for part in gated]
        expected = [value_of(one, values), value_of(other, values), 7]
        assert found == [*([e if on else 0 for e in expected]), 0 if on else expected[0]]
    assert problem.gated(one, TRUE) == one
    assert problem.gated(one, FALSE) == Linear(0)


def test_maximum_product_quotient_remainder() -> None:
    problem, _, one, other = small_problem()
    top = problem.maximum([one, other, Linear(0)])
    times = problem.product(one, other)
    parts = [(d, problem.quotient(one, d), problem.remainder(one, d)) for d in (2, -2)]
    seen = 0
    for values in every(problem):
        seen += 1
        a, b = value_of(one, values), value_of(other, values)
        assert value_of(top, values) == max(a, b, 0)
        assert value_of(times, values) == a * b
        for divisor, quotient, remainder in parts:
            assert value_of(quotient, values) == int(a / divisor)
            assert value_of(remainder, values) == a - divisor * int(a / divisor)
    assert seen == 48


def test_ranges_are_exact_and_bounded() -> None:
    problem, _, one, _ = small_problem()
    found = [value_of(one, values) for values in every(problem)]
    assert problem.range_of(one) == (min(found), max(found))
    with pytest.raises(OverflowError):
        problem.range_of(scale(one, LIMIT))
    with pytest.raises(OverflowError):
        problem.new_variable(0, LIMIT + 1)


def random_problem(random: Random) -> Problem:
    """A few groups of variables with random demands and two tiers of objectives."""
    problem = Problem()
    groups = []
    for _ in range(random.randint(1, 3)):
        literals = [problem.new_literal() for _ in range(random.randint(1, 3))]
        number = problem.new_variable(-1, random.randint(0, 2))
        groups.append((literals, number))
        for row in range(random.randint(0, 3)):
            tag = Tag(random.choice("xy"), row)
            chosen = [literal ^ random.randint(0, 1) for literal in literals]
            linear = add(Linear(0, (number,), (1,)), *(problem.literal_value(literal) for literal in chosen))
            kind = random.randrange(4)
            if kind == 0:
                problem.require_any(chosen, tag)
            elif kind == 1:
                problem.require_at_most_one(chosen, tag, exactly=random.random() < 0.5)
            elif kind == 2:
                problem.require_range(linear, random.randint(-2, 1), random.randint(0, 3), tag)
            else:
                problem.require_range(problem.maximum([linear, Linear(1)]), None, 2, tag, when=chosen[0])
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
        hint = {variable: problem.lower[variable] for variable in range(1, len(problem.lower))}
        found = optimize(problem, CpSatBackend(), hint, budget=20, seed=seed, workers=1)
        if best is None:
            assert found.values is None
            continue
        assert found.values is not None
        values = tuple(found.values)
        assert allowed(problem, values)
        assert lexicographic(problem, values) == best
        if problem.objectives:
            assert tuple(tier.value for tier in found.tiers) == best
        assert all(tier.proven and tier.bound == tier.value for tier in found.tiers)


def test_redundant_rows_exclude_nothing() -> None:
    problem = Problem()
    choice = tuple(problem.new_literal() for _ in range(3))
    problem.require_at_most_one(choice, exactly=True)
    condition = problem.new_literal()
    for literal in choice:
        problem.conjunction((literal, condition))
    problem.conjunction((choice[0] ^ 1, condition))
    assert tighten(problem, [choice]) == 2
    solutions = list(every(problem))
    assert len(solutions) == 6
    for values in solutions:
        for row in problem.redundant:
            value = value_of(row.linear, values)
            assert row.lower is None or value >= row.lower
            assert row.upper is None or value <= row.upper


def test_a_capacity_is_nothing_where_nothing_is_used() -> None:
    problem = Problem()
    placed = [problem.new_literal() for _ in range(4)]
    load = add(*(scale(problem.literal_value(literal), 2 + place) for place, literal in enumerate(placed)))
    used = problem.disjunction(placed)
    problem.require_range(load, None, 6, Tag("capacity", 0))
    assert tighten(problem, []) == 1
    (row,) = problem.redundant
    assert row.upper == 0
    assert row.linear == add(load, scale(problem.literal_value(used), -6))
    assert all(value_of(row.linear, values) <= 0 for values in every(problem))


@pytest.mark.parametrize("shown", [2, 3])
@pytest.mark.parametrize("low", [-1, 0])
def test_a_number_is_what_it_is_with_all_values_of_a_choice_together(shown: int, low: int) -> None:
    problem = Problem()
    choice = tuple(problem.new_literal() for _ in range(3))
    problem.require_at_most_one(choice, exactly=True)
    number = Linear(0, (problem.new_variable(low, 2),), (1,))
    for literal in choice[:shown]:
        problem.gated(number, literal)
    assert tighten(problem, [choice]) == int(shown == 3 or low == 0)
    solutions = list(every(problem))
    assert len(solutions) == 3 * (3 - low)
    for row in problem.redundant:
        for values in solutions:
            value = value_of(row.linear, values)
            assert row.upper is not None
            assert value <= row.upper
            assert row.lower is None or value >= row.lower


def test_what_follows_from_all_constraints_is_not_demanded_without_one() -> None:
    problem = Problem()
    placed, used = [problem.new_literal() for _ in range(3)], problem.new_literal()
    total = add(*map(problem.literal_value, placed))
    problem.require_range(total, None, 2, Tag("capacity", 0))
    for literal in placed:
        problem.require_any((literal ^ 1, used), Tag("only where open", 0))
    assert tighten(problem, []) == 1
    assert [row.linear for row in problem.redundant] == [add(total, scale(problem.literal_value(used), -2))]
    for constraints, most in (({"capacity", "only where open"}, 0), ({"capacity"}, 2)):
        session = CpSatBackend().load(restricted(problem, constraints=constraints))
        session.strengthen()
        session.require_all([used ^ 1])
        answer = session.minimize(scale(total, -1), {}, 5, 0, 1)
        assert answer.values is not None
        assert value_of(total, answer.values) == most


def test_dropping_a_constraint_keeps_the_others_and_the_definitions() -> None:
    problem = Problem()
    a, b = problem.new_literal(), problem.new_literal()
    both = problem.conjunction((a, b))
    problem.require_any((both,), Tag("both", 0))
    problem.require_any((a ^ 1,), Tag("not a", 0))
    backend = CpSatBackend()
    assert problem.constraint_names == ("both", "not a")

    def status(*without: str) -> AnswerStatus:
        kept = set(problem.constraint_names) - set(without)
        return backend.load(restricted(problem, constraints=kept)).minimize(None, {}, 5, 0, 1).status

    assert status() is AnswerStatus.INFEASIBLE
    assert status("both") is status("not a") is AnswerStatus.OPTIMAL
    rows = backend.clashing_rows(problem, 5, 0)
    assert set(rows) == {Tag("both", 0), Tag("not a", 0)}
