"""Every engine stops soon after its deadline, whichever of its steps is slow, with what it has or with nothing.

What is slow takes some seconds of a clock that stands still else, but for a tick each time it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

from mgmt.errors import SolveTimeout
from mgmt.optimization.assignment import Assignment, Limit, Load, LoadCost, RowCost, Tier
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines import UnsuitableError, engine_choice, flow, independent_parts, solve_in_parts
from mgmt.optimization.engines.delta_evaluation.partial_solution import PartialSolution
from mgmt.optimization.engines.flow import decode, network, solver
from mgmt.optimization.engines.integer_programming import cp_sat, highs, linear_relaxation
from mgmt.optimization.engines.local_search.ejection import _Room
from mgmt.optimization.engines.local_search.exchanges import Search
from mgmt.optimization.engines.lower_bounds import closed_form
from mgmt.optimization.engines.model.equivalence import EquivalenceClasses
from mgmt.optimization.engines.presolve.candidates import Criteria
from mgmt.optimization.engines.selection import selected_placement
from mgmt.optimization.engines.selection.selected_placement import solve_selection
from mgmt.optimization.load_functions import LoadNumber, Positive
from tests.mgmt.engines.random_replicas import replicas
from tests.mgmt.engines.test_selection import primaries

BUDGET = 10.0
STEP = 3.0
TICK = 0.02
AFTERWARDS = 3
"""Steps that may end after the deadline: the one that it falls into, and what tells whether there is an answer."""

STEPS: dict[str, tuple[Any, str]] = {
    "candidates": (Criteria, "of"),
    "cells": (EquivalenceClasses, "costs"),
    "bounds": (closed_form, "_floor"),
    "greedy, first fit": (PartialSolution, "room"),
    "exchanges": (Search, "step"),
    "going back": (Search, "_exchange"),
    "ejections": (_Room, "options"),
    "flow": (solver._Graph, "ask"),
    "building a network": (flow, "NetworkBuilder"),
    "telling copies apart": (decode._Swaps, "_settle"),
    "potentials": (network, "potentials"),
    "count model": (engine_choice, "CountModel"),
    "GLOP": (linear_relaxation, "ask"),
    "HiGHS": (highs, "ask"),
    "CP-SAT": (cp_sat, "ask"),
    "parts": (independent_parts, "_solve"),
}


class Clock:
    def __init__(self) -> None:
        self.now, self.steps = 1000.0, 0

    def __call__(self) -> float:
        self.now += TICK
        return self.now

    def slow(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            self.now += STEP
            self.steps += 1
            return function(*arguments, **named)

        return step


def packed(rows: int, values: int, *, tight: float, required: bool = True, opens: bool = False) -> Assignment:
    """Rows of different weights on values with room, a peak or a price for using a value, and prices of moves."""
    random = np.random.default_rng(0)
    weight = random.integers(1, 10, rows).astype(np.int64)
    everyone, host = np.zeros(rows, np.int32), np.arange(values, dtype=np.int32)
    load = Load(everyone, 1, host, values, weight)
    room = np.full((1, values), max(int(weight.sum() / values * tight), int(weight.max())), np.int64)
    apart = Load(
        np.arange(rows, dtype=np.int32) // 2, (rows + 1) // 2, host // 2, int(values + 1) // 2, weight * 0 + 1
    )
    zero, one = np.zeros((1, 1), np.int64), np.ones((1, 1), np.int64)
    paid = LoadNumber(0) - Positive(LoadNumber(0) - 1) if opens else LoadNumber(0)
    prices = random.integers(0, 9, (1, values)).astype(np.int64)
    unplaced = np.full(1, 0 if required else 50, np.int64)
    costs = (
        LoadCost("load", 1, (load,), paid, not opens),
        RowCost("moves", 1, everyone, prices, unplaced, weight * 0 + 3),
    )
    return Assignment(
        values,
        everyone,
        np.ones((1, values), np.bool_),
        np.full(rows, required),
        random.integers(0, values, rows).astype(np.int32),
        (Limit("room", load, zero, room), Limit("apart", apart, zero, one)),
        tuple(Tier(number, (cost,)) for number, cost in enumerate(costs if required else costs[::-1], 1)),
    )


def assignments() -> Iterator[Assignment]:
    yield packed(12, 6, tight=1.3)
    yield packed(12, 6, tight=1.2, opens=True)
    yield packed(12, 6, tight=0.7, required=False)
    alone = packed(3, 12, tight=4.0)
    yield replace(alone, limits=alone.limits[:1])
    for seed in range(8):
        copies = replicas(Random(seed), rows=9, values=5)
        yield copies
        peak = packed(9, 5, tight=2.0).tiers[0]
        yield replace(copies, tiers=(*copies.tiers, replace(peak, number=9)))


@pytest.mark.parametrize("step", STEPS)
def test_engines_end_soon_after_the_deadline_whatever_is_slow(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name, value in (
        (engine_choice, "_ALWAYS", 0),
        (independent_parts, "_ALWAYS", 0),
        (engine_choice, "_FEW_CELLS", 0),
        (engine_choice, "_MOST_FOR_CP_SAT", 60),
        (solver, "ALWAYS", 0),
        (network, "ALWAYS", 0),
        (flow, "ALWAYS", 0),
    ):
        monkeypatch.setattr(owner, name, value)
    monkeypatch.setattr(cp_sat, "ask", partial(_soon, cp_sat.ask))
    clock = Clock()
    monkeypatch.setattr(*STEPS[step], clock.slow(getattr(*STEPS[step])))
    for assignment in assignments():
        began = clock.now
        try:
            found = solve_in_parts(assignment, deadline=Deadline.after(BUDGET, clock), seed=0)
        except (SolveTimeout, UnsuitableError):
            found = None
        if found is not None and found.choice is not None:
            assert not list(assignment.broken(found.choice))
        assert clock.now <= began + BUDGET + AFTERWARDS * STEP
    assert clock.steps, "it is asked for"


def _soon(ask: Callable[..., Any], *arguments: Any, seconds: float, **named: Any) -> Any:
    """The solver knows no clock but its own."""
    return ask(*arguments, seconds=min(seconds, 0.05), **named)


def test_flags_beside_places_end_soon_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(selected_placement, "solve", clock.slow(selected_placement.solve))
    for seed in range(20):
        places = replicas(Random(seed), rows=5, values=3)
        segment = np.arange(5, dtype=np.int32) // 3
        selection = primaries(places, segment, np.zeros(5, np.bool_), 0)
        began, clock.steps = clock.now, 0
        with suppress(SolveTimeout, UnsuitableError):
            solve_selection(places, selection, deadline=Deadline.after(BUDGET, clock), seed=0)
        assert clock.now <= began + BUDGET + AFTERWARDS * STEP
        assert clock.steps
