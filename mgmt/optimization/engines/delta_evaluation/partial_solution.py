"""A partial solution: a choice being made row by row, with its loads, limits, conditions and costs.

It answers, for one row of a class and all values at once, where there is room and what each tier would cost more.
Costs that a row adds to in several places at once are left out of these prices (a choice's worth never comes from
here); everything else is exact.
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
from mgmt.optimization.engines.model.equivalence import EquivalenceClasses


@dataclass(frozen=True, slots=True, eq=False)
class _Concerning:
    """What a row of a class adds to, and may break."""

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

    There may be thousands of conditions, of which one row touches few: what concerns a class is looked up once.
    """

    def __init__(self, classes: EquivalenceClasses) -> None:
        self.classes = classes
        assignment = classes.assignment
        self._loads: dict[Load, LoadState] = {}
        self._limits = [LimitState.of(limit, self._of(limit.load)) for limit in assignment.limits]
        states = (state_of(one, assignment.values, self._of) for one in assignment.conditions)
        self._conditions = [state for state in states if state is not None]
        self._costs: list[tuple[int, CostState]] = []
        for number, tier in enumerate(assignment.tiers):
            for cost in tier.costs:
                if isinstance(cost, LoadCost) and cost.weight:
                    with suppress(UnsuitableError):
                        state = CostState.of(classes, cost, [self._of(load) for load in cost.loads], 1)
                        self._costs.append((number, state))
        every = list(self._loads.values())
        self._touched: Mask = np.array([load.group[:-1] != NONE for load in every], np.bool_)
        """(loads, K)"""
        self._of_class: dict[int, _Concerning] = {}

    def _of(self, load: Load) -> LoadState:
        if load not in self._loads:
            self._loads[load] = LoadState.of(load, self.classes.representative)
        return self._loads[load]

    def _concerning(self, class_: int) -> _Concerning:
        if class_ not in self._of_class:
            every = list(self._loads.values())
            loads = [every[at] for at in np.flatnonzero(self._touched[:, class_]).tolist()] if every else []
            touched = set(map(id, loads))
            limits = [limit for limit in self._limits if id(limit.load) in touched]
            self._of_class[class_] = _Concerning(
                loads,
                [limit for limit in limits if limit.caps],
                [limit for limit in limits if limit.wants],
                [one for one in self._conditions if any(id(load) in touched for load in one.loads)],
                [one for one in self._costs if one[1].group[class_] != NONE],
            )
        return self._of_class[class_]

    def room(self, class_: int) -> Mask:
        """(V,) where a row of a class is allowed and keeps the upper limits and the conditions."""
        fits = self.classes.allowed(class_).copy()
        about = self._concerning(class_)
        for limit in about.capacities:
            load = limit.load
            fits &= at_values(limit.free(load.group[class_]) >= load.weight[class_], load.bucket, True)
        for condition in about.conditions:
            keeps = condition.room(class_)
            if keeps is not None:
                fits &= keeps
        return fits

    def together(self, class_: int, rows: int, room: Mask) -> Mask | None:
        """(V,) where so many rows of a class can be, if these must not be far from each other.

        ``room`` is where one has room.  None: nothing keeps them together, or where they are is settled.
        """
        found: Mask | None = None
        fits: Amounts | None = None
        for condition in self._concerning(class_).conditions:
            if isinstance(condition, OccupancyState):
                fits = self._fits(class_, room) if fits is None else fits
                keeps = condition.together(class_, fits, rows)
                if keeps is not None:
                    found = keeps if found is None else found & keeps
        return found

    def _fits(self, class_: int, room: Mask) -> Amounts:
        """(V,) how many rows of a class the upper limits leave room for at each value."""
        most = int(self.classes.count[class_])
        fits = np.where(room, most, 0)
        for limit in self._concerning(class_).capacities:
            load = limit.load
            free = np.maximum(limit.free(load.group[class_]), 0) // load.weight[class_]
            fits = np.minimum(fits, at_values(free, load.bucket, most))
        return fits

    def wanted(self, class_: int) -> Amounts | None:
        """(V,) how much of what lower limits still want a row of a class would bring; None if nothing is wanted."""
        total: Amounts | None = None
        for limit in self._concerning(class_).demands:
            load = limit.load
            missing = np.clip(limit.missing(load.group[class_]), 0, load.weight[class_])
            brings = at_values(missing, load.bucket, 0)
            total = brings if total is None else total + brings
        return total

    def missing(self) -> int:
        """How much lower limits want still, in all."""
        return sum(
            int(np.maximum(limit.lower - limit.load.total, 0).sum()) for limit in self._limits if limit.wants
        )

    def prices(self, class_: int) -> tuple[Amounts, Amounts]:
        """(T, V) what loads cost more with a row of a class; (V,) what its place then comes to under peaks.

        What the row itself pays is not in it.
        """
        values = self.classes.assignment.values
        more = np.zeros((len(self.classes.assignment.tiers), values), np.int64)
        height = np.zeros(values, np.int64)
        for tier, state in self._concerning(class_).costs:
            after, bucket, weight = state.with_row(class_), state.loads[0].bucket, state.cost.weight
            if state.cost.peak:
                more[tier] += at_values(weight * np.maximum(after - state.top, 0), bucket, 0)
                height += at_values(abs(weight) * after, bucket, 0)
            else:
                more[tier] += at_values(weight * (after - state.of_group(class_)), bucket, 0)
        return more, height

    def heights(self) -> list[tuple[Load, float]]:
        """The loads that peaks are over, and about how much of the mean height one unit of each is."""
        found = []
        for _, state in self._costs:
            if state.cost.peak and isinstance(state.shape, Affine):
                for load, slope in zip(state.cost.loads, state.shape.slopes, strict=True):
                    total = float((self.classes.weight(load) * self.classes.count).sum())
                    if total and bool(slope.any()):
                        found.append((load, 1 / total))
        return found

    def counts(self, class_: int, value: int) -> bool:
        """Whether a row of a class at a value makes any difference to others."""
        if self.classes.assignment.conditions:
            return True
        return value >= 0 and any(load.bucket[value] >= 0 for load in self._concerning(class_).loads)

    def add(self, class_: int, value: int, rows: int = 1) -> None:
        """Place so many rows of a class (or take them away, when negative)."""
        if value < 0:
            return
        about = self._concerning(class_)
        for load in about.loads:
            place = load.place(class_, value)
            if place != NONE:
                load.total[place] += rows * load.weight[class_]
        for _, cost in about.costs:
            bucket = cost.loads[0].bucket[value]
            if bucket >= 0:
                cost.update(np.array([cost.group[class_] * cost.loads[0].buckets + bucket]))

    def add_all(self, class_: Indices, value: Indices, count: Amounts) -> None:
        """Place rows of many classes."""
        placed = np.flatnonzero((value >= 0) & (count != 0))
        class_, value, count = class_[placed], value[placed], count[placed]
        for load in self._loads.values():
            place = load.places(class_, value)
            inside = place < len(load.total) - 1
            np.add.at(load.total, place[inside], (load.weight[class_] * count)[inside])
        for _, cost in self._costs:
            cost.update_all()
