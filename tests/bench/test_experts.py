"""Policies beside models by hand: at a small size both are optimal, and verdicts and checks tell what differs."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from ortools.sat.python import cp_model

from bench.__main__ import bench
from bench.policies.experts.comparison import PROBLEMS, Answer, bound_ok, experts, objective_ok
from bench.policies.experts.problem import BrokenRuleError, Problem
from mgmt.optimization.cp_sat_solver import new_solver

SLOW = {name: pytest.mark.slow("one to three seconds until it is proven") for name in ("fleets", "shares")}


@pytest.mark.parametrize(
    "name", [pytest.param(problem.name, marks=SLOW.get(problem.name, ())) for problem in PROBLEMS]
)
def test_policies_and_model_have_the_same_optimum(name: str) -> None:
    result = experts([name], budget=20.0, seed=0, size=0.1)
    assert result.ok
    sides = result.figures["problems"][name]
    assert sides["expert"]["status"] == "optimal"
    assert sides["rota"]["values"] == sides["rota"]["bounds"] == sides["expert"]["values"]
    assert result.figures["met"] == result.figures["of"] == 1


def test_the_command_writes_both_sides_and_the_verdicts() -> None:
    arguments = ["experts", "--only", "assignment", "--size", "0.1", "--budget", "20", "--json"]
    outcome = CliRunner().invoke(bench, arguments)
    assert outcome.exit_code == 0, outcome.output
    figures = json.loads(outcome.stdout)
    assert {"budget", "workers", "problems", "met", "of"} <= set(figures)
    problem = figures["problems"]["assignment"]
    assert problem["objective_ok"]
    assert problem["bound_ok"]
    for side in ("rota", "expert"):
        assert {"status", "values", "bounds", "seconds", "engine"} <= set(problem[side])


def test_an_unknown_problem_is_refused_with_the_known_ones() -> None:
    outcome = CliRunner().invoke(bench, ["experts", "--only", "nonsense"])
    assert outcome.exit_code == 2
    assert "gangs, exams" in outcome.output


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_a_plan_with_everything_in_one_place_and_nothing_open_breaks_a_rule(problem: Problem) -> None:
    instance = problem.instance(Random(0), 0.1)
    written = instance.expert()
    written.model.minimize(written.tiers[0])
    solver = new_solver(60, 0)
    assert solver.solve(written.model) in {cp_model.OPTIMAL, cp_model.FEASIBLE}
    plan: dict[tuple[str, str], Any] = dict(written.plan(solver))
    instance.check(plan)
    for column, cells in plan.items():
        first = next(value for value in cells.values() if value is not None)
        plan[column] = dict.fromkeys(cells, first if not isinstance(first, bool) else False)
    with pytest.raises(BrokenRuleError):
        instance.check(plan)


@pytest.mark.parametrize(
    ("ours", "theirs", "ok"),
    [
        ([101], [100], True),
        ([102], [100], False),
        ([90], [100], True),
        ([0, 9], [1, 0], True),
        ([0], [0], True),
    ],
)
def test_an_objective_may_be_a_hundredth_worse(ours: list[int], theirs: list[int], ok: bool) -> None:
    assert objective_ok(Answer("", 0, ours), Answer("", 0, theirs)) is ok


@pytest.mark.parametrize(
    ("values", "bounds", "ok"),
    [
        ([100, 7], [95, 7], True),
        ([100, 7], [94, 7], False),
        ([100, 7], [95, None], False),
        ([101, 7], [95, 0], True),
    ],
)
def test_a_bound_may_be_a_twentieth_weaker(values: list[int], bounds: list[int | None], ok: bool) -> None:
    assert bound_ok(Answer("", 0, values, bounds), Answer("", 0, [100, 7], [100, 7])) is ok


def test_no_answer_keeps_up_only_with_none() -> None:
    nothing, something = Answer("UNKNOWN", 0), Answer("optimal", 0, [1], [1])
    assert not objective_ok(nothing, something)
    assert not bound_ok(nothing, something)
    assert objective_ok(something, nothing)
