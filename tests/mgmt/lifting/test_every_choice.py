"""What is lifted allows and costs what the problem does: over every choice of tiny random problems."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from mgmt.optimization.assignment import NONE, Colocation, Indices
from mgmt.optimization.general.evaluation import worth
from mgmt.optimization.general.lexicographic import tier_objectives
from mgmt.optimization.lifting import Lifted, lift
from tests.budget import budgeted
from tests.mgmt.lifting.random_problems import ProblemMaker


def check(seed: int, *, flagged: bool = False) -> str:
    """The problem and the assignment agree on every choice, as far as nothing was left out."""
    made = ProblemMaker(seed, flagged=flagged)
    lifted = lift(made.problem, made.cells)
    assignment = lifted.assignment
    named = {objective.name for objective in made.problem.objectives}
    demands_whole = all(each.name in named for each in lifted.left_out)
    tiers = list(tier_objectives(made.problem).values())
    for choice, values in made.choices():
        choice = as_lifted(choice, lifted)
        keeps = not lifted.impossible and not any(assignment.broken(choice))
        if values is None:
            assert not (keeps and demands_whole), f"seed {seed}: {choice} is allowed, and breaks a demand"
            continue
        assert keeps, f"seed {seed}: {choice} keeps every demand, and is not allowed"
        costs = tuple(worth(linear, values) for linear in tiers[: lifted.whole_tiers])
        assert assignment.worth(choice)[: lifted.whole_tiers] == costs, f"seed {seed}: {choice}"
    return "in part" if lifted.left_out else "whole"


def as_lifted(choice: Indices, lifted: Lifted) -> Indices:
    """A flag that follows a choice has the value of that, or none."""
    for condition in lifted.assignment.conditions:
        if isinstance(condition, Colocation):
            follows = (condition.leader != NONE) & (choice != NONE)
            choice = np.where(follows, choice[condition.leader], choice)
    return choice


@pytest.mark.parametrize("chunk", budgeted(range(500), 4, in_test=1))
def test_the_assignment_is_the_problem_choice_by_choice(chunk: int) -> None:
    outcomes = Counter(check(seed) for seed in range(20 * chunk, 20 * chunk + 20))
    assert outcomes["whole"] >= 5, outcomes


@pytest.mark.parametrize("chunk", budgeted(range(500), 4, in_test=1))
def test_so_it_is_with_flags_beside_the_choices(chunk: int) -> None:
    outcomes = Counter(check(seed, flagged=True) for seed in range(20 * chunk, 20 * chunk + 20))
    assert outcomes["whole"] >= 5, outcomes
