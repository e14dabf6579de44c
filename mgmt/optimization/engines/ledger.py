"""The ledger: a choice being made or changed, row by row, with its loads kept.

It answers, for one row of a kind and all values at once, where there is room and what each tier would cost more.
Costs that a row adds to in several places at once are left out of these prices (a choice's worth never comes from
here); everything else is exact.

What it is not: it decides nothing; ``greedy`` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mgmt.optimization.assignment import NONE, Amounts, Indices, Limit, Load, LoadCost, Mask
from mgmt.optimization.engines.cells import bounds_of
from mgmt.optimization.engines.kept_conditions import KeptConditions, KeptOccupancy
from mgmt.optimization.engines.kinds import Kinds
from mgmt.optimization.engines.load_costs import Affine, Tabled, UnsuitableError, widest_shape

_MOST_PLACES = 200_000
"""A cost function that is not affine is asked for all places at a time, so only if they are so few."""


@dataclass(slots=True, eq=False)
class _LimitState:
    limit: Limit
    lower: Amounts
    upper: Amounts
    load: Amounts
    group: Indices
    weight: Amounts
    wants: bool
    """Whether there is a lower limit at all."""
    caps: bool


@dataclass(slots=True, eq=False)
class _CostState:
    """A cost over loads; each kind adds to one group of it."""

    cost: LoadCost
    tier: int
    shape: Affine | Tabled | None
    group: Indices
    weights: tuple[Amounts, ...]
    loads: tuple[Amounts, ...]
    costs: Amounts
    bucket: Indices = field(default_factory=lambda: np.zeros(0, np.int32))


class Ledger:
    """Loads under a choice of some rows; starts with none placed."""

    def __init__(self, kinds: Kinds) -> None:
        self.kinds = kinds
        self._limits = [_limit_state(kinds, limit) for limit in kinds.assignment.limits]
        self._costs = [
            state
            for number, tier in enumerate(kinds.assignment.tiers)
            for cost in tier.costs
            if isinstance(cost, LoadCost) and cost.weight
            for state in [_cost_state(kinds, number, cost)]
            if state is not None
        ]
        self._conditions = KeptConditions(kinds)

    def room(self, kind: int) -> Mask:
        """(V,) where a row of a kind is allowed and keeps the upper limits and the conditions."""
        fits = self.kinds.allowed(kind).copy()
        for state in self._limits:
            group, weight = state.group[kind], state.weight[kind]
            if group != NONE and state.caps:
                has_room = state.load[group] + weight <= state.upper[group]
                bucket = state.limit.load.bucket
                fits &= (bucket < 0) | has_room[bucket]
        for condition in self._conditions.breakable(kind):
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
        for condition in self._conditions.breakable(kind):
            if isinstance(condition, KeptOccupancy):
                fits = self._fits(kind, room) if fits is None else fits
                keeps = condition.together(kind, fits, rows)
                if keeps is not None:
                    found = keeps if found is None else found & keeps
        return found

    def _fits(self, kind: int, room: Mask) -> Amounts:
        """(V,) how many rows of a kind the upper limits leave room for at each value."""
        fits = np.where(room, self.kinds.count[kind], 0)
        for state in self._limits:
            group, weight = state.group[kind], state.weight[kind]
            if group != NONE and state.caps:
                bucket = state.limit.load.bucket
                free = np.maximum(state.upper[group] - state.load[group], 0) // weight
                fits = np.where(bucket < 0, fits, np.minimum(fits, free[bucket]))
        return fits

    def wanted(self, kind: int) -> Amounts | None:
        """(V,) how much of what lower limits still want a row of a kind would bring; None if nothing is wanted."""
        total: Amounts | None = None
        for state in self._limits:
            group, weight = state.group[kind], state.weight[kind]
            if group != NONE and state.wants:
                missing = np.clip(state.lower[group] - state.load[group], 0, weight)
                bucket = state.limit.load.bucket
                brings = np.where(bucket < 0, 0, missing[bucket])
                total = brings if total is None else total + brings
        return total

    def missing(self) -> int:
        """How much lower limits want still, in all."""
        return sum(
            int(np.maximum(state.lower - state.load, 0).sum()) for state in self._limits if state.wants
        )

    def prices(self, kind: int) -> tuple[Amounts, Amounts]:
        """(T, V) what loads cost more with a row of a kind; (V,) what its place then comes to under peaks.

        What the row itself pays is not in it.
        """
        values = self.kinds.assignment.values
        more = np.zeros((len(self.kinds.assignment.tiers), values), np.int64)
        height = np.zeros(values, np.int64)
        for state in self._costs:
            group = state.group[kind]
            if group == NONE:
                continue
            after = self._with_row(state, kind, group)
            place = np.maximum(state.bucket, 0)
            counted = state.bucket >= 0
            weight = state.cost.weight
            if state.cost.peak:
                rises = np.maximum(after - state.costs.max(), 0)
                more[state.tier] += np.where(counted, weight * rises[place], 0)
                height += np.where(counted, abs(weight) * after[place], 0)
            else:
                more[state.tier] += np.where(counted, weight * (after - state.costs[group])[place], 0)
        return more, height

    def heights(self) -> list[tuple[Load, float]]:
        """The loads that peaks are over, and about how much of the mean height one unit of each is."""
        found = []
        for state in self._costs:
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
        return value >= 0 and (
            any(state.group[kind] != NONE and state.limit.load.bucket[value] >= 0 for state in self._limits)
            or any(cost.group[kind] != NONE and cost.bucket[value] >= 0 for cost in self._costs)
        )

    def add(self, kind: int, value: int, rows: int = 1) -> None:
        """Place so many rows of a kind (or take them away, when negative)."""
        if value < 0:
            return
        for state in self._limits:
            bucket = state.limit.load.bucket[value]
            if state.group[kind] != NONE and bucket >= 0:
                state.load[state.group[kind], bucket] += rows * state.weight[kind]
        self._conditions.add(kind, value, rows)
        for cost in self._costs:
            if cost.group[kind] == NONE or cost.bucket[value] < 0:
                continue
            place = int(cost.group[kind]), int(cost.bucket[value])
            for load, weight in zip(cost.loads, cost.weights, strict=True):
                load[place] += rows * weight[kind]
            if isinstance(cost.shape, Affine):
                for reach, slope, weight in zip(
                    cost.shape.reaches, cost.shape.slopes, cost.weights, strict=True
                ):
                    cost.costs[place] += slope[place] * (rows * weight[kind] // reach.step)
            elif isinstance(cost.shape, Tabled):
                cost.costs[place] = self._table_at(cost, cost.shape, place)
            else:
                cost.costs = _ask(cost.cost, cost.loads)

    def add_all(self, kind: Indices, value: Indices, count: Amounts) -> None:
        """Place rows of many kinds."""
        placed = np.flatnonzero((value >= 0) & (count != 0))
        kind, value, count = kind[placed], value[placed], count[placed]
        self._conditions.add_all(kind, value, count)
        for state in self._limits:
            _add_to(state.load, state.group, state.limit.load.bucket, state.weight, kind, value, count)
        for cost in self._costs:
            for load, weight in zip(cost.loads, cost.weights, strict=True):
                _add_to(load, cost.group, cost.bucket, weight, kind, value, count)
            cost.costs = _ask(cost.cost, cost.loads)

    def _with_row(self, state: _CostState, kind: int, group: int) -> Amounts:
        """(buckets,) the costs of a group's places, each with a row of the kind added."""
        if isinstance(state.shape, Affine):
            after: Amounts = state.costs[group].copy()
            for reach, slope, weight in zip(
                state.shape.reaches, state.shape.slopes, state.weights, strict=True
            ):
                after += slope[group] * (int(weight[kind]) // reach.step)
            return after
        if isinstance(state.shape, Tabled):
            return self._from_table(state, state.shape, kind, group)
        loads: list[Amounts] = []
        for load, weight in zip(state.loads, state.weights, strict=True):
            more = load.copy()
            more[group] += weight[kind]
            loads.append(more)
        costs = _ask(state.cost, tuple(loads))
        return np.asarray(costs[group])

    def _table_at(self, state: _CostState, table: Tabled, place: tuple[int, int]) -> int:
        entry = sum(
            min(int(load[place]) // reach.step, int(reach.most[place])) * stride
            for load, reach, stride in zip(state.loads, table.reaches, table.strides, strict=True)
        )
        group, bucket = place
        return int(table.values[entry, group * state.costs.shape[1] + bucket])

    def _from_table(self, state: _CostState, table: Tabled, kind: int, group: int) -> Amounts:
        buckets = state.costs.shape[1]
        entry = np.zeros(buckets, np.int64)
        for load, weight, reach, stride in zip(
            state.loads, state.weights, table.reaches, table.strides, strict=True
        ):
            steps = (load[group] + weight[kind]) // reach.step
            # Beyond what a place can come to no row is put there; the entry only has to be one.
            entry += np.minimum(steps, reach.most[group]) * stride
        return np.asarray(table.values[entry, group * buckets + np.arange(buckets)])


def one_place(kinds: Kinds, loads: tuple[Load, ...]) -> Indices | None:
    """(K,) the group each kind is of in all loads, if the loads agree on that and on the buckets."""
    group = np.full(kinds.number, NONE, np.int32)
    for load in loads:
        if not np.array_equal(load.bucket, loads[0].bucket):
            return None
        own = kinds.group(load)
        if bool(((own != NONE) & (group != NONE) & (own != group)).any()):
            return None
        group = np.where(own != NONE, own, group).astype(np.int32)
    return group


def _limit_state(kinds: Kinds, limit: Limit) -> _LimitState:
    lower, upper = bounds_of(limit)
    load = limit.load
    group = kinds.group(load)
    total = int((kinds.weight(load) * kinds.count)[group != NONE].sum())
    return _LimitState(
        limit,
        lower,
        upper,
        np.zeros(lower.shape, np.int64),
        group,
        np.where(group != NONE, kinds.weight(load), 0),
        bool((lower > 0).any()),
        bool((upper < total).any()),
    )


def _cost_state(kinds: Kinds, tier: int, cost: LoadCost) -> _CostState | None:
    group = one_place(kinds, cost.loads)
    if group is None:
        return None
    shape: Affine | Tabled | None = None
    try:
        shape = widest_shape(kinds, cost)
    except UnsuitableError:
        shape = None
    first = cost.loads[0]
    if not isinstance(shape, Affine) and first.groups * first.buckets > _MOST_PLACES:
        return None
    loads = tuple(np.zeros((first.groups, first.buckets), np.int64) for _ in cost.loads)
    weights = tuple(np.where(kinds.group(load) != NONE, kinds.weight(load), 0) for load in cost.loads)
    return _CostState(cost, tier, shape, group, weights, loads, _ask(cost, loads), first.bucket)


def _ask(cost: LoadCost, loads: tuple[Amounts, ...]) -> Amounts:
    return np.array(np.broadcast_to(cost.cost(loads), loads[0].shape), np.int64)


def _add_to(
    total: Amounts,
    group: Indices,
    bucket: Indices,
    weight: Amounts,
    kind: Indices,
    value: Indices,
    count: Amounts,
) -> None:
    counted = (group[kind] != NONE) & (bucket[value] >= 0)
    kind, value, count = kind[counted], value[counted], count[counted]
    np.add.at(total, (group[kind], bucket[value]), weight[kind] * count)
