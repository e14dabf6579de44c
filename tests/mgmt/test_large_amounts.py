"""Amounts of 2^20 to 2^60: every backend and setting against each other and against trying every choice.

Solvers have lost solutions where sums leave 32 bits, and called the rest optimal, or a clash.  A version of ortools may
be taken when `make test-sweep` passes here, and not before.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from random import Random

import numpy as np
import pytest

from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError
from mgmt.errors import OverflowError as BeyondSixtyFourBits
from mgmt.optimization import cp_sat_solver
from mgmt.optimization.backends.cp_sat import CpSatBackend, CpSatSession
from mgmt.optimization.cp_sat_solver import Effort
from mgmt.optimization.engines.integer_programming import cp_sat as counts_in_cp_sat
from mgmt.optimization.engines.model.cost_functions import UnsuitableError
from mgmt.optimization.general.lexicographic import optimize
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


def check_model(seed: int) -> str:
    made = AmountsProblem(Random(seed))
    expected = made.best()
    outcomes = set()
    for backend, workers in SETTINGS:
        try:
            found = optimize(
                made.problem, backend, {}, choices=made.choices, budget=UNHURRIED, seed=seed, workers=workers
            )
        except BeyondSixtyFourBits:
            outcomes.add("refused")
            continue
        outcomes.add("infeasible" if expected is None else "solved")
        values = None if found.values is None else tuple(tier.value for tier in found.tiers)
        assert values == expected, f"seed {seed}, {backend.name}, {workers} workers"
        assert all(tier.proven for tier in found.tiers), f"seed {seed}"
    (outcome,) = outcomes
    return outcome


@pytest.mark.usefixtures("asked_once")
@pytest.mark.parametrize("chunk", budgeted(range(100), 2))
def test_every_setting_finds_the_optimum_of_a_model(chunk: int) -> None:
    outcomes = Counter(check_model(seed) for seed in range(50 * chunk, 50 * chunk + 50))
    assert outcomes["solved"] >= 20
    assert outcomes["infeasible"] >= 5
    assert outcomes["refused"] <= 10


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
@pytest.mark.parametrize("chunk", budgeted(range(80), 2))
def test_every_engine_finds_the_optimum_of_an_assignment(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if chunk % 2:
        monkeypatch.setattr(counts_in_cp_sat, "_LIGHT_BELOW_SECONDS", inf)
    outcomes: Counter[str] = Counter()
    for seed in range(50 * chunk, 50 * chunk + 50):
        for engine in (table, without_flow, cp_sat_alone, mixed_integer_alone):
            try:
                outcomes[check_assignment(engine, seed)] += 1
            except UnsuitableError:
                outcomes["refused"] += 1
    assert outcomes["solved"] >= 40
    assert outcomes["infeasible"] >= 10


def check_policies(names: tuple[str, ...], models: list[Model], seed: int) -> str:
    """What policies ask for, in columns and cell by cell; the models share a database."""
    data = AmountsData(Random(seed))
    models[0].database.replace_rows(data.rows())
    says = data.of_every_choice(names)
    rules = {name: holds for name, holds in says.items() if holds.dtype == np.bool_}
    kept = np.logical_and.reduce(list(rules.values()))
    costs = np.stack([costs for name, costs in says.items() if name not in rules], 1)[kept]
    for model in models:
        if not kept.any():
            with pytest.raises(InfeasibleError) as caught:
                model.solve(UNHURRIED, seed)
            clash = [rules[name] for name in caught.value.constraints]
            assert not np.logical_and.reduce(clash).any(), f"seed {seed}: {caught.value} is no clash"
            for number in range(len(clash)):
                others = clash[:number] + clash[number + 1 :]
                assert np.logical_and.reduce(others or [np.True_]).any(), f"seed {seed}: {caught.value}"
            continue
        solution = model.solve(UNHURRIED, seed)
        reached = [-o.after if o.sense == "maximize" else o.after for o in solution.objectives]
        assert reached == min(costs.tolist()), f"seed {seed}: {names}"
        assert solution.status is not SolveStatus.FEASIBLE, f"seed {seed}: right, and not proven"
        assert not solution.statistics["solver_errors"], f"seed {seed}"
    return "solved" if kept.any() else "infeasible"


@pytest.mark.parametrize("chunk", budgeted(range(20), 1))
def test_policies_over_amounts_are_solved_or_clash(chunk: int) -> None:
    outcomes: Counter[str] = Counter()
    for names in POLICIES:
        state, text = database(SCHEMA), policies_of(names)
        models = [Model.build(state, text), Model.build(state, text, backend=CpSatBackend())]
        outcomes.update(check_policies(names, models, seed) for seed in range(10 * chunk, 10 * chunk + 10))
    assert outcomes["solved"] >= 15
    assert outcomes["infeasible"] >= 3
