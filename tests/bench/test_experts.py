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
from bench.policies.experts.problem import BrokenRuleError, Instance, Plan, Problem
from mgmt.optimization.backends.cp_sat_solver import new_solver

QUICK = {"stations", "proposals", "lots", "league"}
SLOW = pytest.mark.slow("one to three seconds until each spelling is proven")
REFUSED = {("tours", "subqueries")}


@pytest.mark.parametrize(
    "name", [pytest.param(each.name, marks=() if each.name in QUICK else SLOW) for each in PROBLEMS]
)
def test_all_spellings_and_the_model_have_the_same_optimum(name: str) -> None:
    result = experts([name], budget=60.0, seed=0, size=0.1)  # one of rooms takes 17 s
    assert result.ok, result.remarks
    figures = result.figures["problems"][name]
    assert figures["expert"]["status"] == "optimal"
    for spelling, answer in figures["spellings"].items():
        if (name, spelling) not in REFUSED:
            assert answer["values"] == answer["bounds"] == figures["expert"]["values"], spelling
            assert answer["objective_ok"], spelling
            assert answer["bound_ok"], spelling


def test_the_command_writes_both_sides_and_the_verdicts() -> None:
    arguments = ["experts", "--only", "assignment", "--size", "0.1", "--spelling", "views", "--json"]
    outcome = CliRunner().invoke(bench, arguments)
    assert outcome.exit_code == 0, outcome.output
    figures = json.loads(outcome.stdout)
    assert {"budget", "workers", "problems", "met", "of"} <= set(figures)
    problem = figures["problems"]["assignment"]
    views = problem["spellings"].pop("views")
    assert not problem["spellings"]
    assert all(views[verdict] for verdict in ("objective_ok", "bound_ok", "sibling_ok", "soon_ok"))
    for side in (views, problem["expert"]):
        assert {"status", "values", "bounds", "seconds", "engine"} <= set(side)


def test_an_unknown_problem_is_refused_with_the_known_ones() -> None:
    outcome = CliRunner().invoke(bench, ["experts", "--only", "nonsense"])
    assert outcome.exit_code == 2
    assert "gangs, exams" in outcome.output


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_a_plan_with_one_value_everywhere_breaks_a_rule(problem: Problem) -> None:
    instance = problem.instance(Random(0), 0.1)
    written = instance.expert()
    written.model.minimize(written.tiers[0])
    solver = new_solver(60, 0)
    assert solver.solve(written.model) in {cp_model.OPTIMAL, cp_model.FEASIBLE}
    plan: dict[tuple[str, str], Any] = dict(written.plan(solver))
    instance.check(plan)
    assert any(_is_broken(instance, plan, truth) for truth in (False, True))


def _is_broken(instance: Instance, plan: Plan, truth: bool) -> bool:
    """Whether a rule is, where all rows have the value of the first that has one, and all conditions this one."""
    same: dict[tuple[str, str], Any] = {}
    for column, cells in plan.items():
        first = next(value for value in cells.values() if value is not None)
        same[column] = dict.fromkeys(cells, truth if isinstance(first, bool) else first)
    try:
        instance.check(same)
    except BrokenRuleError:
        return True
    return False


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
