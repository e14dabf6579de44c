"""A cheapest flow found on some of the arcs, and proven on all of them.

Most segments stay where they are, and the arcs by which they could go elsewhere are most of a network.  So these are
left out at first, all but a sample.  Prices of the nodes (a cheapest flow's potentials) tell whether one of them would
make the flow cheaper: if none would, it is cheapest on all the arcs; those that might are added, and it is asked again.
"""

from __future__ import annotations

import numpy as np

from mgmt.optimization.assignment import Amounts, Mask
from mgmt.optimization.engines.flow.solver import cheapest_flow

FEW = 60_000
"""Of so few spare arcs none is left out, unless they are to be spared."""
_ROUNDS = 3
_MANY = 0.2
"""Where so large a share of the spare arcs is missed, they are not spare."""
LARGEST_COST = 2**60
"""The solver multiplies costs by the number of nodes; room is left for sums along a path."""
FAR = 2**61
"""The potential of nodes that nothing reaches; beyond all others."""


def cheapest_on_few(
    tails: Amounts,
    heads: Amounts,
    lower: Amounts,
    upper: Amounts,
    cost: Amounts,
    supply: Amounts,
    spare: Mask,
    *,
    trial: bool,
    sparing: bool = False,
) -> Amounts | None:
    """(arcs,) a cheapest flow; None if there is none, or (``trial``) none without spare arcs.

    ``spare`` arcs have no lower bound; ``sparing``: they carry no more than they must, however few they are.
    """
    spare = spare & (upper > lower)
    dearer = _dearer(cost, spare, supply) if sparing else cost
    number = int(spare.sum())
    for _ in range(_ROUNDS if number > FEW or (sparing and number) else 0):
        used = np.flatnonzero(~spare)
        found = cheapest_flow(tails[used], heads[used], lower[used], upper[used], cost[used], supply)
        if found is None:
            if trial:
                return None
            break
        from_nodes, to_nodes, ahead, back = residual(
            tails[used], heads[used], lower[used], upper[used], found
        )
        lengths = np.concatenate([cost[used[ahead]], -cost[used[back]]])
        price = _prices(from_nodes, to_nodes, lengths, supply)
        missed = spare & (cost + price[tails] - price[heads] < 0)
        if not bool(missed.any()):
            flow = lower.copy()
            flow[used] = found
            return flow
        if sparing or int(missed.sum()) > _MANY * number:
            break
        spare &= ~missed
    return cheapest_flow(tails, heads, lower, upper, dearer, supply)


def _dearer(cost: Amounts, spare: Mask, supply: Amounts) -> Amounts:
    """Costs by which, of the cheapest flows, one is cheapest that has least on spare arcs, if 64 bits can say that."""
    total = int(supply[supply > 0].sum())
    if float(np.abs(cost).max(initial=0)) * (total + 1) * (len(supply) + 1) >= LARGEST_COST / 4:
        return cost
    return cost * (total + 1) + spare


def residual(
    tails: Amounts, heads: Amounts, lower: Amounts, upper: Amounts, flow: Amounts
) -> tuple[Amounts, Amounts, Mask, Mask]:
    """Where a flow can be more, and back where it can be less: from which nodes to which, and on which arcs."""
    ahead, back = flow < upper, flow > lower
    from_nodes = np.concatenate([tails[ahead], heads[back]])
    return from_nodes, np.concatenate([heads[ahead], tails[back]]), ahead, back


def _prices(from_nodes: Amounts, to_nodes: Amounts, lengths: Amounts, supply: Amounts) -> Amounts:
    """(nodes,) potentials that make most arcs that are left out dear: how far each node is from the sink.

    A node that nothing reaches from there, as where only spare arcs lead to, has the least that its ways out allow.
    """
    price = potentials(from_nodes, to_nodes, lengths, np.where(supply < 0, 0, FAR))
    apart = price > FAR // 2
    out = np.flatnonzero(apart[from_nodes])
    least = np.where(apart, -FAR, price)
    while True:
        before = least.copy()
        np.maximum.at(least, from_nodes[out], before[to_nodes[out]] - lengths[out])
        if np.array_equal(before, least):
            break
    price = np.where(apart, np.where(least > -FAR // 2, least, FAR), price)
    return potentials(from_nodes, to_nodes, lengths, price)


def potentials(from_nodes: Amounts, to_nodes: Amounts, lengths: Amounts, start: Amounts) -> Amounts:
    """(nodes,) the shortest ways to each node from where ``start`` says they begin; there is no negative cycle."""
    potential = start
    while True:
        before = potential.copy()
        np.minimum.at(potential, to_nodes, before[from_nodes] + lengths)
        if np.array_equal(before, potential):
            return potential
