"""A network of arcs with costs in tiers, and its lexicographically cheapest flow (OR-tools' min-cost flow).

The tiers become one cost by exact weights where these fit into the solver's 64 bits; where they do not, the first
ones are solved alone.  What a later tier may still change is then known from linear duality: with the potentials of
one cheapest flow, an arc of positive reduced cost is empty and one of negative reduced cost full in *every* cheapest
flow, and any flow that keeps to this is cheapest.
"""

from __future__ import annotations

import numpy as np

from mgmt.optimization.assignment import Amounts, Mask
from mgmt.optimization.engines.flow.components import components_of
from mgmt.optimization.engines.flow.counts import NotAFlowError
from mgmt.optimization.engines.flow.solver import cheapest_flow

# The solver multiplies costs by the number of nodes; room is left for sums along a path.
_LARGEST_COST = 2**60


class Network:
    """Built by appending arcs; nodes are numbers."""

    def __init__(self, tiers: int) -> None:
        self.tiers = tiers
        self.arcs = 0
        self.depth = 1
        """No path has more arcs."""
        self.narrowing = False
        """Whether ``cheapest`` also finds ``least`` and ``most``."""
        self.least: Amounts = np.zeros(0, np.int64)
        """(arcs,) no cheapest flow has less on an arc."""
        self.most: Amounts = np.zeros(0, np.int64)
        """(arcs,) no cheapest flow has more on an arc; where it is 0, none uses it."""
        self._tails: list[Amounts] = []
        self._heads: list[Amounts] = []
        self._lower: list[Amounts] = []
        self._upper: list[Amounts] = []
        self._costs: list[Amounts] = []

    def add(
        self,
        tails: Amounts,
        heads: Amounts,
        upper: Amounts,
        lower: Amounts | None = None,
        costs: Amounts | None = None,
    ) -> slice:
        """Add arcs; ``costs`` is (tiers, arcs).  Returns their places."""
        number = len(tails)
        self._tails.append(tails)
        self._heads.append(heads)
        self._upper.append(upper)
        self._lower.append(np.zeros(number, np.int64) if lower is None else lower)
        self._costs.append(np.zeros((self.tiers, number), np.int64) if costs is None else costs)
        self.arcs += number
        return slice(self.arcs - number, self.arcs)

    @property
    def heads(self) -> Amounts:
        return np.concatenate(self._heads)

    def cost_of(self, flow: Amounts) -> Amounts:
        """(tiers,) what a flow costs."""
        return np.concatenate(self._costs, axis=1) @ flow

    def cheapest(self, supply: Amounts) -> Amounts | None:
        """The flow on each arc; None if there is none.  Raises NotAFlowError when a cost is too large."""
        tails, heads = np.concatenate(self._tails), np.concatenate(self._heads)
        total = int(supply[supply > 0].sum())
        lower = np.concatenate(self._lower)
        upper = np.minimum(np.concatenate(self._upper), total)
        costs = np.concatenate(self._costs, axis=1)
        if bool((lower > upper).any()):
            return None
        return self._cheapest_from(0, tails, heads, lower, upper, costs, supply)

    def _cheapest_from(
        self,
        first: int,
        tails: Amounts,
        heads: Amounts,
        lower: Amounts,
        upper: Amounts,
        costs: Amounts,
        supply: Amounts,
    ) -> Amounts | None:
        """The cheapest flow by the tiers from ``first`` on, within bounds that the tiers before have left."""
        total = int(supply[supply > 0].sum())
        last = self._block(costs, upper - lower, first, total, len(supply))
        if first < self.tiers - 1 and bool(costs[first].any()):
            # Often a tier can be had at no more than each arc's own least: then no flow is needed to know it.
            least, most = np.where(costs[first] < 0, upper, lower), np.where(costs[first] > 0, lower, upper)
            flow = self._cheapest_from(first + 1, tails, heads, least, most, costs, supply)
            if flow is not None:
                return flow
        cost = self._combined(costs[first:last], upper - lower, total)
        flow = cheapest_flow(tails, heads, lower, upper, cost, supply)
        if flow is None or (last >= self.tiers and not self.narrowing):
            return flow
        lower, upper = _only_cheapest(tails, heads, lower, upper, cost, flow, len(supply))
        if last >= self.tiers:
            self.least, self.most = _unsettled(tails, heads, lower, upper, flow, len(supply))
            return flow
        return self._cheapest_from(last, tails, heads, lower, upper, costs, supply)

    def _ranges(self, costs: Amounts, free: Amounts, total: int) -> list[int]:
        """Per tier, how far the costs of two flows may be apart."""
        ranges = []
        for cost in costs:
            size = np.where(free > 0, np.abs(cost), 0)
            along = 2 * total * self.depth * int(size.max(initial=0))
            # In floating point first: the sum may not fit.
            summed = float((size.astype(np.float64) * free).sum())
            ranges.append(min(along, int((size * free).sum()) if summed < 2**62 else along))
        return ranges

    def _combined(self, costs: Amounts, free: Amounts, total: int) -> Amounts:
        """One cost for several tiers, by weights under which no lower tier is given up for a higher one."""
        combined: Amounts = np.zeros(costs.shape[1], np.int64)
        weight = 1
        for cost, reach in zip(costs[::-1], self._ranges(costs, free, total)[::-1], strict=True):
            if weight > 1 or bool(cost.any()):
                combined = combined + cost * weight
            weight *= reach + 1
        return combined

    def _block(self, costs: Amounts, free: Amounts, first: int, total: int, nodes: int) -> int:
        """The end of the tiers from ``first`` whose weighted sum the solver can take."""
        ranges = self._ranges(costs, free, total)
        sizes = [int(np.abs(cost[free > 0]).max(initial=0)) for cost in costs]
        for last in range(self.tiers, first, -1):
            weight, largest = 1, 0
            for size, reach in zip(sizes[first:last][::-1], ranges[first:last][::-1], strict=True):
                largest += weight * size
                weight *= reach + 1
            if largest * (nodes + 1) * 4 < _LARGEST_COST:
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
) -> tuple[Amounts, Amounts]:
    """The bounds narrowed to the flows that cost as little as this one."""
    from_nodes, to_nodes, ahead, back = _residual(tails, heads, lower, upper, flow)
    lengths = np.concatenate([cost[ahead], -cost[back]])
    potential = np.zeros(nodes, np.int64)
    while True:  # shortest ways in the residual network, which has no negative cycle
        before = potential.copy()
        np.minimum.at(potential, to_nodes, before[from_nodes] + lengths)
        if np.array_equal(before, potential):
            break
    reduced = cost + potential[tails] - potential[heads]
    return np.where(reduced < 0, upper, lower), np.where(reduced > 0, lower, upper)


def _unsettled(
    tails: Amounts, heads: Amounts, lower: Amounts, upper: Amounts, flow: Amounts, nodes: int
) -> tuple[Amounts, Amounts]:
    """The bounds narrowed to this flow where no flow within them has another one on the arc."""
    from_nodes, to_nodes, _, _ = _residual(tails, heads, lower, upper, flow)
    component = components_of(from_nodes, to_nodes, nodes)
    settled = component[tails] != component[heads]
    return np.where(settled, flow, lower), np.where(settled, flow, upper)


def _residual(
    tails: Amounts, heads: Amounts, lower: Amounts, upper: Amounts, flow: Amounts
) -> tuple[Amounts, Amounts, Mask, Mask]:
    """Where a flow can be more, and back where it can be less: from which nodes to which, and on which arcs."""
    ahead, back = flow < upper, flow > lower
    from_nodes = np.concatenate([tails[ahead], heads[back]])
    return from_nodes, np.concatenate([heads[ahead], tails[back]]), ahead, back
