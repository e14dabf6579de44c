"""A partial solution: a choice being made row by row, with its loads, limits, conditions and costs.

It answers, for one row of a kind and all values at once, where there is room and what each tier would cost more.
Costs that a row adds to in several places at once are left out of these prices (a choice's worth never comes from
here); everything else is exact.

What it is not: it decides nothing; constructive heuristics do.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from mgmt.optimization.assignment import NONE, Amounts, Indices, Load, LoadCost, Mask
from mgmt.optimization.engines.delta_evaluation.condition_states import (
    ConditionState,
    OccupancyState,
    state_of,
)
from mgmt.optimization.engines.delta_evaluation.states import CostState, LimitState, LoadState, at_values
from mgmt.optimization.engines.model.cost_functions import Affine, UnsuitableError
from mgmt.optimization.engines.model.equivalence import Kinds


@dataclass(frozen=True, slots=True, eq=False)
class _Concerning:
    """What a row of a kind adds to, and may break."""

    loads: list[LoadState]
    capacities: list[LimitState]
    """Limits that the rows there are could exceed."""
    demands: list[LimitState]
    """Limits that want something."""
    conditions: list[ConditionState]
    costs: list[tuple[int, CostState]]
    """With the place of the tier."""


class PartialSolution:
    """Starts with none placed.

    There may be thousands of conditions, of which one row touches few: what concerns a kind is looked up once.
    """

    def __init__(self, kinds: Kinds) -> None:
        self.kinds = kinds
        assignment = kinds.assignment
        self._loads: dict[Load, LoadState] = {}
        self._limits = [LimitState.of(limit, self._of(limit.load)) for limit in assignment.limits]
        states = (state_of(one, assignment.values, self._of) for one in assignment.conditions)
        self._conditions = [state for state in states if state is not None]
        self._costs: list[tuple[int, CostState]] = []
        for number, tier in enumerate(assignment.tiers):
            for cost in tier.costs:
                if isinstance(cost, LoadCost) and cost.weight:
                    with suppress(UnsuitableError):
                        state = CostState.of(kinds, cost, [self._of(load) for load in cost.loads], 1)
                        self._costs.append((number, state))
        every = list(self._loads.values())
        self._touched: Mask = np.array([load.group[:-1] != NONE for load in every], np.bool_)
        """(loads, K)"""
        self._of_kind: dict[int, _Concerning] = {}

    def _of(self, load: Load) -> LoadState:
        if load not in self._loads:
            self._loads[load] = LoadState.of(load, self.kinds.row)
        return self._loads[load]

    def _concerning(self, kind: int) -> _Concerning:
        if kind not in self._of_kind:
            every = list(self._loads.values())
            loads = [every[at] for at in np.flatnonzero(self._touched[:, kind]).tolist()] if every else []
            touched = set(map(id, loads))
            limits = [limit for limit in self._limits if id(limit.load) in touched]
            self._of_kind[kind] = _Concerning(
                loads,
                [limit for limit in limits if limit.caps],
                [limit for limit in limits if limit.wants],
                [one for one in self._conditions if any(id(load) in touched for load in one.loads)],
                [one for one in self._costs if one[1].group[kind] != NONE],
            )
        return self._of_kind[kind]

    def room(self, kind: int) -> Mask:
        """(V,) where a row of a kind is allowed and keeps the upper limits and the conditions."""
        fits = self.kinds.allowed(kind).copy()
        about = self._concerning(kind)
        for limit in about.capacities:
            load = limit.load
            fits &= at_values(limit.free(load.group[kind]) >= load.weight[kind], load.bucket, True)
        for condition in about.conditions:
            keeps = condition.room(kind)
            if keeps is not None:
                fits &= keeps
        return fits

    def together(self, kind: int, rows: int, room: Mask) -> Mask | None:
        """(V,) where so many rows of a kind can be, if these must not be far from each other.

        ``room`` is where one has room.  None: nothing keeps them together, or where they are is settled.
        """
        found: Mask | None = None
        fits: Amounts | None = None
        for condition in self._concerning(kind).conditions:
            if isinstance(condition, OccupancyState):
                fits = self._fits(kind, room) if fits is None else fits
                keeps = condition.together(kind, fits, rows)
                if keeps is not None:
                    found = keeps if found is None else found & keeps
        return found

    def _fits(self, kind: int, room: Mask) -> Amounts:
        """(V,) how many rows of a kind the upper limits leave room for at each value."""
        most = int(self.kinds.count[kind])
        fits = np.where(room, most, 0)
        for limit in self._concerning(kind).capacities:
            load = limit.load
            free = np.maximum(limit.free(load.group[kind]), 0) // load.weight[kind]
            fits = np.minimum(fits, at_values(free, load.bucket, most))
        return fits

    def wanted(self, kind: int) -> Amounts | None:
        """(V,) how much of what lower limits still want a row of a kind would bring; None if nothing is wanted."""
        total: Amounts | None = None
        for limit in self._concerning(kind).demands:
            load = limit.load
            missing = np.clip(limit.missing(load.group[kind]), 0, load.weight[kind])
            brings = at_values(missing, load.bucket, 0)
            total = brings if total is None else total + brings
        return total

    def missing(self) -> int:
        """How much lower limits want still, in all."""
        return sum(
            int(np.maximum(limit.lower - limit.load.total, 0).sum()) for limit in self._limits if limit.wants
        )

    def prices(self, kind: int) -> tuple[Amounts, Amounts]:
        """(T, V) what loads cost more with a row of a kind; (V,) what its place then comes to under peaks.

        What the row itself pays is not in it.
        """
        values = self.kinds.assignment.values
        more = np.zeros((len(self.kinds.assignment.tiers), values), np.int64)
        height = np.zeros(values, np.int64)
        for tier, state in self._concerning(kind).costs:
            after, bucket, weight = state.with_row(kind), state.loads[0].bucket, state.cost.weight
            if state.cost.peak:
                more[tier] += at_values(weight * np.maximum(after - state.top, 0), bucket, 0)
                height += at_values(abs(weight) * after, bucket, 0)
            else:
                more[tier] += at_values(weight * (after - state.of_group(kind)), bucket, 0)
        return more, height

    def heights(self) -> list[tuple[Load, float]]:
        """The loads that peaks are over, and about how much of the mean height one unit of each is."""
        found = []
        for _, state in self._costs:
            if state.cost.peak and isinstance(state.shape, Affine):
                for load, slope in zip(state.cost.loads, state.shape.slopes, strict=True):
                    total = float((self.kinds.weight(load) * self.kinds.count).sum())
                    if total and bool(slope.any()):
                        found.append((load, 1 / total))
        return found

    def counts(self, kind: int, value: int) -> bool:
        """Whether a row of a kind at a value makes any difference to others."""
        if self.kinds.assignment.conditions:
            return True
        return value >= 0 and any(load.bucket[value] >= 0 for load in self._concerning(kind).loads)

    def add(self, kind: int, value: int, rows: int = 1) -> None:
        """Place so many rows of a kind (or take them away, when negative)."""
        if value < 0:
            return
        about = self._concerning(kind)
        for load in about.loads:
            place = load.place(kind, value)
            if place != NONE:
                load.total[place] += rows * load.weight[kind]
        for _, cost in about.costs:
            bucket = cost.loads[0].bucket[value]
            if bucket >= 0:
                cost.update(np.array([cost.group[kind] * cost.loads[0].buckets + bucket]))

    def add_all(self, kind: Indices, value: Indices, count: Amounts) -> None:
        """Place rows of many kinds."""
        placed = np.flatnonzero((value >= 0) & (count != 0))
        kind, value, count = kind[placed], value[placed], count[placed]
        for load in self._loads.values():
            place = load.places(kind, value)
            inside = place < len(load.total) - 1
            np.add.at(load.total, place[inside], (load.weight[kind] * count)[inside])
        for _, cost in self._costs:
            cost.update_all()
