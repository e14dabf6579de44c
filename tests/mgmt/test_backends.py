"""The backend of the constraint model, and the text for MiniZinc: against a twin."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import product
from random import Random

import numpy as np
import pytest

from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.optimization.columns import TRUE, Linear, Lists, integers
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.general.lexicographic import _Search, optimize, tier_objectives
from mgmt.optimization.general.minizinc import minizinc
from mgmt.optimization.problem import LinearRows, LiteralRows, Objective, Problem, Relation
from tests.budget import budgeted
from tests.mgmt.test_problem import (
    allowed,
    every,
    lexicographic,
    maximum,
    one,
    random_problem,
    tagged,
    truncate,
)


def assignments(problem: Problem) -> Iterator[tuple[int, ...]]:
    """All of them, also those whose defined values are wrong."""
    bounds = zip(problem.lower.tolist(), problem.upper.tolist(), strict=True)
    ranges = [range(low, high + 1) for low, high in bounds]
    return product(*ranges)


def linear_problem(seed: int) -> Problem:
    """A random problem with rows and cardinalities under conditions, and nothing that is not linear."""
    random = Random(seed)
    problem = Problem()
    literals = problem.new_literals(random.randint(2, 4)).tolist()
    (number,) = problem.new_variables([-2], [3]).tolist()
    for row in range(random.randint(2, 6)):
        chosen = [literal ^ random.randint(0, 1) for literal in literals]
        condition = random.choice((TRUE, *chosen))
        source = tagged(random.choice("xy"), row)
        when = integers([condition])
        if random.random() < 0.4:
            relation = random.choice((Relation.EXACTLY_ONE, Relation.AT_MOST_ONE))
            problem.rows.append(LiteralRows(relation, Lists.of([chosen[1:]]), when, source))
        else:
            variables = (number, *(literal // 2 for literal in literals))
            linear = Linear(random.randint(-2, 2), variables, tuple(random.randint(-3, 3) for _ in variables))
            lower = random.randint(-4, 3)
            upper = lower + random.randint(0, 4)
            problem.rows.append(LinearRows(one(linear), integers([lower]), integers([upper]), when, source))
    linear = Linear(1, (number, literals[0] // 2), (random.choice((-1, 2)), 3))
    problem.objectives.append(Objective("first", linear, random.random() < 0.5, 1, 1))
    problem.objectives.append(Objective("then", Linear(0, (literals[1] // 2,), (1,)), True, 2, 2))
    return problem


def test_the_optimum_is_found_tier_by_tier() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(60):
        problem = linear_problem(seed)
        best = min((lexicographic(problem, values) for values in every(problem)), default=None)
        found = optimize(problem, CpSatBackend(), {}, deadline=Deadline.after(60), seed=seed, workers=1)
        if best is None:
            assert found.values is None, f"seed {seed}"
            outcomes["infeasible"] += 1
            continue
        assert found.values is not None, f"seed {seed}"
        assert lexicographic(problem, tuple(found.values.tolist())) == best, f"seed {seed}"
        assert all(tier.proven and tier.bound == tier.value for tier in found.tiers), f"seed {seed}"
        outcomes["solved"] += 1
    assert outcomes["infeasible"] >= 5
    assert outcomes["solved"] >= 20


def test_the_same_seed_gives_the_same_answer() -> None:
    for seed in range(5):
        found = [
            optimize(linear_problem(seed), CpSatBackend(), {}, deadline=Deadline.after(60), seed=7, workers=1)
            for _ in range(2)
        ]
        assert np.array_equal(found[0].values, found[1].values)  # type: ignore[arg-type]


# ---- MiniZinc ---------------------------------------------------------------------------------------


def evaluate(text: str, values: tuple[int, ...]) -> object:
    """An expression of the text, with the variables' values."""
    names = {f"x{variable}": value for variable, value in enumerate(values)}
    if found := re.fullmatch(r"(\w+) = \((.*)\) (div|mod) \((.*)\)", text):
        target, dividend, sign, divisor = found.groups()
        one, other = (int(str(evaluate(part, values))) for part in (dividend, divisor))
        quotient = truncate(one, other)
        return names[target] == (quotient if sign == "div" else one - other * quotient)
    text = re.sub(r"(?<![<>])=", "==", text)
    return eval(text, {"__builtins__": {}, "max": max, "min": min}, names)


def satisfied(text: str, values: tuple[int, ...]) -> bool:
    for line in text.splitlines():
        if line.startswith("constraint "):
            demand = line.removeprefix("constraint ").split(";")[0]
            condition, arrow, rest = demand.partition(" -> ")
            if arrow and not evaluate(condition, values):
                continue
            if not evaluate(rest if arrow else demand, values):
                return False
    return True


@pytest.mark.parametrize("seed", budgeted(range(16), 4, in_test=4))
def test_the_minizinc_text_means_the_problem(seed: int) -> None:
    problem = random_problem(Random(seed)) if seed % 2 else linear_problem(seed)
    if not seed % 4:
        (number,) = problem.new_variables([-3], [3]).tolist()
        problem.quotient(one(Linear(1, (number,), (1,))), integers([2]))
        problem.remainder(one(Linear(0, (number,), (1,))), integers([-2]))
        problem.product(one(Linear(0, (number,), (1,))), one(Linear(1, (number,), (2,))))
    text = minizinc(problem)
    for variable in range(1, problem.variables):
        assert f"var {problem.lower[variable]}..{problem.upper[variable]}: x{variable};" in text
    objective = re.search(r"^solve minimize (.*);$", text, re.MULTILINE)
    assert bool(objective) == bool(problem.objectives)
    for number, values in enumerate(assignments(problem)):
        if number > 3_000:
            break
        holds = allowed(problem, values)
        assert satisfied(text, values) == holds
        if holds and objective:
            assert evaluate(objective.group(1), values) == lexicographic(problem, values)[0]


def test_the_minizinc_text_of_a_small_problem() -> None:
    problem = Problem()
    on, off = problem.new_literals(2).tolist()
    (number,) = problem.new_variables([-1], [5]).tolist()
    problem.require_any(Lists.of([(on, off ^ 1)]), tagged("either", 3))
    problem.require_one(Lists.of([(on, off)]), tagged("one", 0), exactly=True, when=integers([on]))
    problem.require_range(one(Linear(2, (number,), (-3,))), 0, 4, tagged("range", 1))
    top = maximum(problem, [Linear(0, (number,), (1,)), Linear(1)])
    problem.objectives.append(Objective("size", top, False, 1, 1))
    problem.objectives.append(Objective("switch", Linear(0, (1,), (1,)), True, 2, 3))
    assert minizinc(problem, tier=2, reached={1: 2}) == (
        "var 0..1: x1;\n"
        "var 0..1: x2;\n"
        "var -1..5: x3;\n"
        "var 1..5: x4;\n"
        "constraint x1 + (1 - x2) >= 1; % either, row 3\n"
        "constraint x1 = 1 -> x1 + x2 = 1; % one, row 0\n"
        "constraint -3 * x3 + 2 >= 0; % range, row 1\n"
        "constraint -3 * x3 + 2 <= 4; % range, row 1\n"
        "constraint x4 = max([x3, 1]);\n"
        "constraint x4 <= 2; % tier 1\n"
        "solve minimize -3 * x1;\n"
    )


def test_a_maximum_is_written_of_single_variables() -> None:
    """Of sums presolve lists every value, however long that takes: 500 booleans times large amounts did not end."""
    problem = Problem()
    literals = problem.new_literals(6)
    sums = [
        Linear(1, tuple((literals[part] >> 1).tolist()), (7, 11, 10**9)) for part in (slice(3), slice(3, 6))
    ]
    problem.objectives.append(Objective("least", maximum(problem, sums), False, 1, 1))
    problem.require_any(Lists.of([literals[:3].tolist()]), tagged("some", 0))
    written = CpSatBackend().load(problem)._model.proto.constraints
    operands = [expression for constraint in written for expression in constraint.lin_max.exprs]
    assert {len(expression.vars) for expression in operands} == {1}
    found = optimize(problem, CpSatBackend(), {}, deadline=Deadline.after(60), seed=0, workers=1)
    assert [tier.value for tier in found.tiers] == [8]


def test_a_tier_without_time_is_kept_by_those_after_it() -> None:
    """It is not asked about, and what a solution has there already is not given away."""
    problem = Problem()
    given, kept, last = problem.new_variables([1, 0, 0], [9, 10, 10]).tolist()
    (literal,) = problem.new_literals(1).tolist()
    problem.require_range(one(Linear(0, (kept, last), (1, 1))), 10, None, tagged("room", 0))
    there = integers([literal])
    problem.require_range(one(Linear(0, (kept,), (1,))), 3, None, tagged("some", 0), when=there)
    for tier, variable in enumerate((given, kept, last), 1):
        problem.objectives.append(Objective(f"o{tier}", Linear(0, (variable,), (1,)), False, tier, 1))
    tiers = tier_objectives(problem)
    search = _Search(problem, CpSatBackend(), {}, Lists.of([[literal]]), 0, 1)
    known = {0: 1, given: 1, kept: 3, last: 7, literal >> 1: 1}
    search._values, search._hint = np.array([known[at] for at in range(problem.variables)]), known
    found = search.run(tiers, Deadline(0.08, lambda: 0.0))  # too little for half of it to be asked in
    assert found is not None
    assert [tier.value for tier in search.results] == [int(found[at]) for at in (given, kept, last)]
