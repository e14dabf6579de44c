"""Amounts of 2^20 to 2^60: every backend and setting against each other and against trying every choice.

Solvers have lost solutions where sums leave 32 bits, and called the rest optimal, or a clash.  A version of ortools may
be taken when `make test-sweep` passes here, and not before.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from ortools.sat.python import cp_model

from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError, SolveTimeout
from mgmt.errors import OverflowError as BeyondSixtyFourBits
from mgmt.optimization.backends import AnswerStatus, cp_sat_solver
from mgmt.optimization.backends.cp_sat import CpSatBackend, CpSatSession
from mgmt.optimization.backends.cp_sat_solver import Effort, Reply, ask
from mgmt.optimization.contradictions import contradictions
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines.integer_programming import cp_sat as counts_in_cp_sat
from mgmt.optimization.engines.model.cost_functions import UnsuitableError
from mgmt.optimization.general.lexicographic import Optimum, optimize
from mgmt.optimization.problem import Problem
from mgmt.solution import SolveStatus
from tests.budget import budgeted
from tests.mgmt.amounts_grammar import (
    POLICIES,
    SCHEMA,
    AmountsData,
    AmountsMaker,
    AmountsProblem,
    policies_of,
)
from tests.mgmt.engines.random_assignments import brute_force
from tests.mgmt.engines.test_against_brute_force import (
    Engine,
    check,
    cp_sat_alone,
    mixed_integer_alone,
    table,
    without_flow,
)
from tests.mgmt.support import UNHURRIED, database


class OneEffort(CpSatBackend):
    """Asks for everything in one way."""

    def __init__(self, effort: Effort) -> None:
        self._effort = effort

    def load(self, problem: Problem) -> CpSatSession:
        return type("OneEffortSession", (CpSatSession,), {"_effort": self._effort})(problem)


SETTINGS = [(OneEffort(effort), 1) for effort in Effort] + [(CpSatBackend(), 1), (CpSatBackend(), 2)]


@pytest.fixture
def asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second answer makes good what a first one gets wrong."""
    monkeypatch.setattr(cp_sat_solver, "_MOST_ASKED_TWICE", -1)


def left_or_right(amount: int) -> cp_model.CpModel:
    """Something of this amount is left or right; what that side has is it, and the other side has nothing."""
    model = cp_model.CpModel()
    placed, left = model.new_bool_var(""), model.new_bool_var("")
    for literal in (left, ~left):
        load = model.new_int_var(0, amount, "")
        model.add(amount * placed - load == 0).only_enforce_if(literal)
        model.add(load == 0).only_enforce_if(~literal)
    return model


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("effort", Effort)
@pytest.mark.parametrize("amount", [3_816_040_230, 76_409_005_936_408])
def test_a_side_may_have_all(amount: int, effort: Effort, workers: int, asked_once: None) -> None:
    """The loader's bound of conditional sums, which no model that was probed has, called this a clash."""
    found = ask(left_or_right(amount), effort, seconds=UNHURRIED, seed=0, workers=workers)
    assert found.status is AnswerStatus.OPTIMAL


def room_unless_open() -> cp_model.CpModel:
    """Four amounts, the first two not together; unless the first state holds, which costs 2, few of them fit."""
    model = cp_model.CpModel()
    states, placed = ([model.new_bool_var("") for _ in range(number)] for number in (3, 4))
    model.add_exactly_one(states)
    model.add_at_most_one(placed[:2])
    amounts = (1_151_246_897, 1_174_344_976, 1_244_895_291, 1_080_956_678, 1_231_377_251)
    load = sum(amount * one for amount, one in zip(amounts, (*placed, states[1]), strict=True))
    model.add(load <= 2_325_721_921).only_enforce_if(~states[0])
    gain = sum(worth * one for worth, one in zip((8, 9, 8, 3), placed, strict=True))
    model.maximize(gain - 2 * states[0])
    return model


@pytest.mark.parametrize("effort", Effort)
def test_a_condition_is_not_dropped(effort: Effort, asked_once: None) -> None:
    """google/or-tools 5293: without the condition the best is 8."""
    found = ask(room_unless_open(), effort, seconds=UNHURRIED, seed=0)
    assert (found.status, found.bound) == (AnswerStatus.OPTIMAL, -18)


MORE = (40, 26, 27, 6, 4, 23, 29, 23, 2, 38)
WEIGHTS = (3, 6, 6, 5, 6, 5, 8, 7, 4, 2)


def test_the_optimum_is_not_within_some_units(asked_once: None) -> None:
    """As floating-point numbers the best sum of four of these and one that is less by 28 are the same."""
    amounts = [2**55 + more for more in MORE]
    model = cp_model.CpModel()
    placed = [model.new_bool_var("") for _ in amounts]
    model.add(sum(placed) == 4)
    model.add(sum(weight * one for weight, one in zip(WEIGHTS, placed, strict=True)) <= 18)
    model.maximize(sum(amount * one for amount, one in zip(amounts, placed, strict=True)))
    found = ask(model, Effort.NORMAL, seconds=UNHURRIED, seed=0)
    best = max(
        sum(amounts[row] for row in chosen)
        for chosen in combinations(range(len(amounts)), 4)
        if sum(WEIGHTS[row] for row in chosen) <= 18
    )
    assert (found.status, found.bound) == (AnswerStatus.OPTIMAL, -best)
    assert found.values is not None
    assert sum(amount for amount, one in zip(amounts, found.values.tolist(), strict=True) if one) == best


CLASH = Reply(AnswerStatus.INFEASIBLE)
NOTHING_PLACED = Reply(AnswerStatus.OPTIMAL, np.array([0, 1, 0, 0, 0, 0, 0]), 0)


@pytest.mark.parametrize(
    ("liar", "lie", "told"),
    [
        (Effort.NORMAL, CLASH, "infeasible, and without presolve optimal at -18"),
        (Effort.NORMAL, NOTHING_PLACED, "optimal at 0, and without presolve optimal at -18"),
        (Effort.SECOND, CLASH, "optimal at -18, and without presolve infeasible"),
    ],
)
def test_answers_that_contradict_each_other_prove_nothing(
    liar: Effort, lie: Reply, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = cp_sat_solver._ask_once

    def answer(model: cp_model.CpModel, effort: Effort, *rest: Any) -> Reply:
        return lie if effort is liar else honest(model, effort, *rest)

    monkeypatch.setattr(cp_sat_solver, "_ask_once", answer)
    with contradictions() as errors:
        found = ask(room_unless_open(), Effort.NORMAL, seconds=UNHURRIED, seed=0)
    assert errors == [f"CP-SAT: {told}"]
    assert (found.status, found.bound) == (AnswerStatus.FEASIBLE, None)
    assert found.values is not None
    assert found.values[[0, 4, 5, 6]].all(), "the better of both"


@pytest.mark.parametrize("liar", [Effort.NORMAL, Effort.SECOND])
def test_what_solvers_contradict_each_other_in_is_no_proof_and_no_clash(
    liar: Effort, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = POLICIES[0]
    data, honest = AmountsData(Random(0)), cp_sat_solver._ask_once

    def answer(model: cp_model.CpModel, effort: Effort, *rest: Any) -> Reply:
        return CLASH if effort is liar else honest(model, effort, *rest)

    monkeypatch.setattr(cp_sat_solver, "_ask_once", answer)
    model = Model.build(database(SCHEMA, data.rows()), policies_of(names), backend=CpSatBackend())
    solution = model.solve(UNHURRIED)
    assert solution.statistics["solver_errors"]
    assert solution.status is SolveStatus.FEASIBLE
    assert not any(objective.proven for objective in solution.objectives)
    assert [objective.after for objective in solution.objectives] == data.best(names)


def test_sums_beyond_64_bits_are_refused() -> None:
    model = cp_model.CpModel()
    numbers = [model.new_int_var(0, 2**61, "") for _ in range(8)]
    model.add(sum(numbers) >= 1)
    with pytest.raises(BeyondSixtyFourBits, match="64-bit"):
        ask(model, Effort.NORMAL, seconds=UNHURRIED, seed=0)


def test_a_bound_is_exact_where_a_float_is_not() -> None:
    model = cp_model.CpModel()
    amount = 2**60 + 1
    model.minimize(amount * model.new_int_var(1, 2, ""))
    assert ask(model, Effort.NORMAL, seconds=UNHURRIED, seed=0).bound == amount


def test_solvers_are_made_in_one_place() -> None:
    root = Path(cp_sat_solver.__file__).parents[3]
    files = [
        file for package in ("mgmt", "bench", "rota", "chaos") for file in (root / package).rglob("*.py")
    ]
    makers = [file for file in files if "CpSolver()" in file.read_text("utf-8")]
    assert makers == [Path(cp_sat_solver.__file__)]


MOST_SECONDS = 8.0
"""For a model of a dozen variables, which takes some ms, unless CP-SAT narrows amounts down one by one, for hours."""


def check_model(seed: int) -> Counter[str]:
    """What comes of a model, and how many settings prove all of it or not."""
    made = AmountsProblem(Random(seed))
    expected = made.best()
    outcomes, proofs = set(), Counter[str]()
    for backend, workers in SETTINGS:
        where = f"seed {seed}, {backend.name}, {workers} workers"
        try:
            found = optimize(
                made.problem,
                backend,
                {},
                choices=made.choices,
                deadline=Deadline.after(MOST_SECONDS if isinstance(backend, OneEffort) else UNHURRIED),
                seed=seed,
                workers=workers,
            )
        except BeyondSixtyFourBits:
            outcomes.add("refused")
            continue
        except SolveTimeout:
            proven = False
        else:
            assert_not_contradicted(found, expected, where)
            proven = all(tier.proven for tier in found.tiers)
        outcomes.add("infeasible" if expected is None else "solved")
        proofs["proven" if proven else "unproven"] += 1
        assert proven or isinstance(backend, OneEffort), f"{where}: not proven by all efforts together"
    (outcome,) = outcomes
    return proofs + Counter([outcome])


def assert_not_contradicted(found: Optimum, expected: tuple[int, ...] | None, where: str) -> None:
    """Tier by tier, until one has a value that is not the best, which must not be called proven."""
    assert (found.values is None) == (expected is None), where
    for tier, best in zip(found.tiers, expected or (), strict=True):
        assert tier.bound is None or tier.bound <= best <= tier.value, where
        if tier.value != best:
            assert not tier.proven, where
            return


@pytest.mark.usefixtures("asked_once")
@pytest.mark.parametrize("chunk", budgeted(range(100), 2))
def test_every_setting_finds_the_optimum_of_a_model(chunk: int) -> None:
    outcomes = sum(map(check_model, range(50 * chunk, 50 * chunk + 50)), Counter[str]())
    assert outcomes["solved"] >= 20
    assert outcomes["infeasible"] >= 5
    assert outcomes["refused"] <= 10
    assert outcomes["unproven"] <= outcomes["proven"] / 20


def check_assignment(engine: Engine, seed: int) -> str:
    assignment = AmountsMaker(seed).assignment()
    if engine is not mixed_integer_alone:
        return check(engine, assignment, seed)
    expected, placement = brute_force(assignment), engine(assignment, seed)
    if placement.choice is None:
        assert expected is None, f"seed {seed}: called infeasible"
        return "infeasible"
    # Its floating-point numbers may leave something to be proven, never prove too much.
    assert placement.worth >= expected >= placement.bounds, f"seed {seed}"
    return "solved"


@pytest.mark.usefixtures("asked_once")
@pytest.mark.parametrize("chunk", budgeted(range(80), 1))
def test_every_engine_finds_the_optimum_of_an_assignment(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(50 * chunk, 50 * chunk + 50):
        monkeypatch.setattr(counts_in_cp_sat, "_LIGHT_BELOW_SECONDS", inf if seed % 2 else 0)
        for engine in (table, without_flow, cp_sat_alone, mixed_integer_alone):
            try:
                outcomes[check_assignment(engine, seed)] += 1
            except UnsuitableError:
                outcomes["refused"] += 1
    assert outcomes["solved"] >= 40
    assert outcomes["infeasible"] >= 10


def test_a_limit_wants_rows_where_no_value_is() -> None:
    """Flows placed the rows all the same."""
    assert check_assignment(table, 1348) == "infeasible"


def check_policies(names: tuple[str, ...], models: list[Model], seed: int) -> str:
    """What policies ask for, by engines and by the constraint model; the models share a database."""
    data = AmountsData(Random(seed))
    models[0].database.replace_rows(data.rows())
    best, says = data.best(names), data.of_every_choice(names)
    for model in models:
        if best is None:
            with pytest.raises(InfeasibleError) as caught:
                model.solve(UNHURRIED, seed)
            clash = [says[name] for name in caught.value.constraints]
            assert not np.logical_and.reduce(clash).any(), f"seed {seed}: {caught.value} is no clash"
            for number in range(len(clash)):
                others = clash[:number] + clash[number + 1 :]
                assert np.logical_and.reduce(others or [np.True_]).any(), f"seed {seed}: {caught.value}"
            continue
        solution = model.solve(UNHURRIED, seed)
        reached = [-o.after if o.sense == "maximize" else o.after for o in solution.objectives]
        assert reached == best, f"seed {seed}: {names}"
        assert solution.status is not SolveStatus.FEASIBLE, f"seed {seed}: right, and not proven"
        assert not solution.statistics["solver_errors"], f"seed {seed}"
    return "infeasible" if best is None else "solved"


def check_or_refused(names: tuple[str, ...], models: list[Model], seed: int) -> str:
    try:
        return check_policies(names, models, seed)
    except BeyondSixtyFourBits:
        return "refused"


@pytest.mark.parametrize("chunk", budgeted(range(20), 1))
def test_policies_over_amounts_are_solved_or_clash(chunk: int) -> None:
    outcomes: Counter[str] = Counter()
    for names in POLICIES:
        state, text = database(SCHEMA), policies_of(names)
        models = [Model.build(state, text), Model.build(state, text, backend=CpSatBackend())]
        outcomes.update(check_or_refused(names, models, seed) for seed in range(10 * chunk, 10 * chunk + 10))
    assert outcomes["solved"] >= 15
    assert outcomes["infeasible"] >= 3
    assert outcomes["refused"] <= 5
