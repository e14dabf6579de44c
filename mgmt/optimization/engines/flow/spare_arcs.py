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
"""Of so few spare arcs none is left out."""
_ROUNDS = 3
_MANY = 0.2
"""Where so large a share of the spare arcs is missed, they are not spare."""
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
) -> Amounts | None:
    """(arcs,) a cheapest flow; None if there is none, or (``trial``) none without spare arcs.

    ``spare`` arcs have no lower bound.
    """
    spare = spare & (upper > lower)
    number = int(spare.sum())
    for _ in range(_ROUNDS if number > FEW else 0):
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
        price = np.where(supply < 0, 0, FAR)
        price = potentials(from_nodes, to_nodes, lengths, price)
        missed = spare & (cost + price[tails] - price[heads] < 0)
        if not bool(missed.any()):
            flow = lower.copy()
            flow[used] = found
            return flow
        if int(missed.sum()) > _MANY * number:
            break
        spare &= ~missed
    return cheapest_flow(tails, heads, lower, upper, cost, supply)


def residual(
    tails: Amounts, heads: Amounts, lower: Amounts, upper: Amounts, flow: Amounts
) -> tuple[Amounts, Amounts, Mask, Mask]:
    """Where a flow can be more, and back where it can be less: from which nodes to which, and on which arcs."""
    ahead, back = flow < upper, flow > lower
    from_nodes = np.concatenate([tails[ahead], heads[back]])
    return from_nodes, np.concatenate([heads[ahead], tails[back]]), ahead, back


def potentials(from_nodes: Amounts, to_nodes: Amounts, lengths: Amounts, start: Amounts) -> Amounts:
    """(nodes,) the shortest ways to each node from where ``start`` says they begin; there is no negative cycle."""
    potential = start
    while True:
        before = potential.copy()
        np.minimum.at(potential, to_nodes, before[from_nodes] + lengths)
        if np.array_equal(before, potential):
            return potential
