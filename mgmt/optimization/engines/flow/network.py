"""A network of arcs with costs in tiers, and its lexicographically cheapest flow (OR-tools' min-cost flow).

The tiers become one cost by exact weights where these fit into the solver's 64 bits; where they do not, the first
ones are solved alone.  What a later tier may still change is then known from linear duality: with the potentials of
one cheapest flow, an arc of positive reduced cost is empty and one of negative reduced cost full in *every* cheapest
flow, and any flow that keeps to this is cheapest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgmt.optimization.assignment import Amounts, Mask
from mgmt.optimization.deadline import NEVER, Deadline
from mgmt.optimization.engines.flow.arc_pricing import (
    LARGEST_COST,
    LIGHT,
    cheapest_on_few,
    potentials,
    residual,
)
from mgmt.optimization.engines.flow.components import components_of
from mgmt.optimization.engines.flow.counts import NotAFlowError
from mgmt.optimization.engines.flow.solver import ALWAYS


@dataclass(frozen=True, slots=True, eq=False)
class _Arcs:
    """What does not change while flows are looked for."""

    tails: Amounts
    heads: Amounts
    costs: Amounts
    """(tiers, arcs)"""
    spare: Mask
    supply: Amounts


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """A cheapest flow, and what it was found within."""

    arcs: _Arcs
    lower: Amounts
    upper: Amounts
    cost: Amounts
    """(arcs,) of the last tiers together."""
    flow: Amounts


class Network:
    """Built by appending arcs; nodes are numbers."""

    def __init__(self, tiers: int) -> None:
        self.tiers = tiers
        self.arcs = 0
        self.depth = 1
        """No path has more arcs."""
        self.sparing = False
        """Whether spare arcs are to carry nothing that others carry as cheaply, however few they are."""
        self._found: _Found | None = None
        self._deadline = NEVER
        self._tails: list[Amounts] = []
        self._heads: list[Amounts] = []
        self._lower: list[Amounts] = []
        self._upper: list[Amounts] = []
        self._costs: list[Amounts] = []
        self._spare: list[Mask] = []

    def add(
        self,
        tails: Amounts,
        heads: Amounts,
        upper: Amounts,
        lower: Amounts | None = None,
        costs: Amounts | None = None,
        spare: Mask | None = None,
    ) -> slice:
        """Add arcs; ``costs`` is (tiers, arcs), ``spare`` are most likely of no use.  Returns their places."""
        number = len(tails)
        self._tails.append(tails)
        self._heads.append(heads)
        self._upper.append(upper)
        self._lower.append(np.zeros(number, np.int64) if lower is None else lower)
        self._costs.append(np.zeros((self.tiers, number), np.int64) if costs is None else costs)
        self._spare.append(np.zeros(number, np.bool_) if spare is None else spare)
        self.arcs += number
        return slice(self.arcs - number, self.arcs)

    @property
    def heads(self) -> Amounts:
        return np.concatenate(self._heads)

    @property
    def _late(self) -> Deadline:
        return self._deadline.if_more(self.arcs, ALWAYS)

    def cost_of(self, flow: Amounts) -> Amounts:
        """(tiers,) what a flow costs."""
        return np.concatenate(self._costs, axis=1) @ flow

    def cheapest(self, supply: Amounts, deadline: Deadline = NEVER) -> Amounts | None:
        """The flow on each arc; None if there is none.

        Raises NotAFlowError when a cost is too large, LateFlowError where the deadline is too near.
        """
        self._deadline = deadline
        total = int(supply[supply > 0].sum())
        lower = np.concatenate(self._lower)
        upper = np.minimum(np.concatenate(self._upper), total)
        if bool((lower > upper).any()):
            return None
        arcs = _Arcs(
            np.concatenate(self._tails),
            np.concatenate(self._heads),
            np.concatenate(self._costs, axis=1),
            np.concatenate(self._spare),
            supply,
        )
        return self._cheapest_from(0, arcs, lower, upper, trial=False)

    def extremes(self) -> tuple[Amounts, Amounts]:
        """(arcs,) no cheapest flow has less on an arc, or more; of use once ``cheapest`` has found one.

        Where the second is 0, none uses the arc.
        """
        assert self._found is not None
        arcs, flow = self._found.arcs, self._found.flow
        tails, heads, nodes = arcs.tails, arcs.heads, len(arcs.supply)
        lower, upper = _only_cheapest(
            tails, heads, self._found.lower, self._found.upper, self._found.cost, flow, nodes, self._late
        )
        return _unsettled(tails, heads, lower, upper, flow, nodes)

    def _cheapest_from(
        self, first: int, arcs: _Arcs, lower: Amounts, upper: Amounts, *, trial: bool
    ) -> Amounts | None:
        """The cheapest flow by the tiers from ``first`` on, within bounds that the tiers before have left.

        ``trial``: one that needs spare arcs may be overlooked.
        """
        tails, heads, costs, supply = arcs.tails, arcs.heads, arcs.costs, arcs.supply
        total = int(supply[supply > 0].sum())
        ranges = self._ranges(costs[first:], upper - lower, total)
        last = self._block(costs, upper - lower, first, ranges, len(supply))
        if first < self.tiers - 1 and bool(costs[first].any()):
            # Often a tier can be had at no more than each arc's own least: then no flow is needed to know it.
            least, most = np.where(costs[first] < 0, upper, lower), np.where(costs[first] > 0, lower, upper)
            flow = self._cheapest_from(first + 1, arcs, least, most, trial=first > 0)
            if flow is not None:
                return flow
        cost = self._combined(costs[first:last], ranges[: last - first])
        light = self._combined(costs[first:last], [min(reach, LIGHT) for reach in ranges[: last - first]])
        flow = cheapest_on_few(
            tails,
            heads,
            lower,
            upper,
            cost,
            supply,
            arcs.spare & (lower == 0),
            deadline=self._deadline,
            trial=trial,
            sparing=self.sparing,
            light=light,
        )
        if flow is None:
            return None
        if last >= self.tiers:
            self._found = _Found(arcs, lower, upper, cost, flow)
            return flow
        lower, upper = _only_cheapest(tails, heads, lower, upper, cost, flow, len(supply), self._late)
        return self._cheapest_from(last, arcs, lower, upper, trial=False)

    def _ranges(self, costs: Amounts, free: Amounts, total: int) -> list[int]:
        """Per tier, how far the costs of two flows may be apart."""
        ranges = []
        for cost in costs:
            if not bool(cost.any()):
                ranges.append(0)
                continue
            size = np.where(free > 0, np.abs(cost), 0)
            along = 2 * total * self.depth * int(size.max(initial=0))
            # In floating point first: the sum may not fit.
            summed = float((size.astype(np.float64) * free).sum())
            ranges.append(min(along, int((size * free).sum()) if summed < 2**62 else along))
        return ranges

    def _combined(self, costs: Amounts, ranges: list[int]) -> Amounts:
        """One cost for several tiers, by weights under which no lower tier is given up for a higher one."""
        combined: Amounts = np.zeros(costs.shape[1], np.int64)
        weight = 1
        for cost, reach in zip(costs[::-1], ranges[::-1], strict=True):
            if weight > 1 or bool(cost.any()):
                combined = combined + cost * weight
            weight *= reach + 1
        return combined

    def _block(self, costs: Amounts, free: Amounts, first: int, ranges: list[int], nodes: int) -> int:
        """The end of the tiers from ``first`` whose weighted sum the solver can take; ``ranges`` are of these."""
        sizes = [
            int(np.abs(cost[free > 0]).max(initial=0)) if bool(cost.any()) else 0 for cost in costs[first:]
        ]
        for last in range(self.tiers, first, -1):
            weight, largest, number = 1, 0, last - first
            for size, reach in zip(sizes[:number][::-1], ranges[:number][::-1], strict=True):
                largest += weight * size
                weight *= reach + 1
            if largest * (nodes + 1) * 4 < LARGEST_COST:
                return last
        if first < self.tiers:
            raise NotAFlowError("costs are too large for the flow solver")
        return self.tiers


def _only_cheapest(
    tails: Amounts,
    heads: Amounts,
    lower: Amounts,
    upper: Amounts,
    cost: Amounts,
    flow: Amounts,
    nodes: int,
    deadline: Deadline,
) -> tuple[Amounts, Amounts]:
    """The bounds narrowed to the flows that cost as little as this one."""
    from_nodes, to_nodes, ahead, back = residual(tails, heads, lower, upper, flow)
    lengths = np.concatenate([cost[ahead], -cost[back]])
    potential = potentials(from_nodes, to_nodes, lengths, np.zeros(nodes, np.int64), deadline)
    reduced = cost + potential[tails] - potential[heads]
    return np.where(reduced < 0, upper, lower), np.where(reduced > 0, lower, upper)


def _unsettled(
    tails: Amounts, heads: Amounts, lower: Amounts, upper: Amounts, flow: Amounts, nodes: int
) -> tuple[Amounts, Amounts]:
    """The bounds narrowed to this flow where no flow within them has another one on the arc."""
    from_nodes, to_nodes, _, _ = residual(tails, heads, lower, upper, flow)
    component = components_of(from_nodes, to_nodes, nodes)
    settled = component[tails] != component[heads]
    return np.where(settled, flow, lower), np.where(settled, flow, upper)
