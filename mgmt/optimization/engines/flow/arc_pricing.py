"""A cheapest flow found on some of the arcs, and proven on all of them.

Most segments stay where they are, and the arcs by which they could go elsewhere are most of a network.  So these are
left out at first, all but a sample.  Prices of the nodes (a cheapest flow's potentials) tell whether one of them would
make the flow cheaper: if none would, it is cheapest on all the arcs; those that might are added, and it is asked again.
"""

from __future__ import annotations

import numpy as np

from mgmt.optimization.assignment import Amounts, Mask
from mgmt.optimization.deadline import NEVER, Deadline
from mgmt.optimization.engines.flow.solver import cheapest_flow

FEW = 60_000
"""Of so few spare arcs none is left out."""
_ROUNDS = 3
_MANY = 0.2
"""Where so large a share of the spare arcs is missed, they are not spare."""
LARGEST_COST = 2**60
"""The solver multiplies costs by the number of nodes; room is left for sums along a path."""
LIGHT = 8
"""What is paid for first weighs so many times as much as what is paid for next, by light costs."""
_SWEEPS = 60
"""So many are enough to know that a flow is cheapest, in networks as shallow as these."""
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
    deadline: Deadline = NEVER,
    trial: bool,
    sparing: bool = False,
    light: Amounts | None = None,
) -> Amounts | None:
    """(arcs,) a cheapest flow; None if there is none, or (``trial``) none without spare arcs.

    ``spare`` arcs have no lower bound; ``sparing``: none is left out, and they carry no more than they must.  By
    ``light`` costs, with smaller numbers, the cheapest flow is most likely the same; the solver is faster with them.
    """
    spare = spare & (upper > lower)
    light = cost if light is None or np.array_equal(light, cost) else light
    number = int(spare.sum())
    for _ in range(_ROUNDS if number > FEW and not sparing else 0):
        used = np.flatnonzero(~spare)
        some = tails[used], heads[used], lower[used], upper[used]
        for costs in (cost,) if light is cost else (light, cost):
            found = cheapest_flow(*some, costs[used], supply, deadline)
            price = None if found is None else _prices(*some, cost[used], found, supply)
            if found is None or price is not None:
                break
        if found is None or price is None:
            if trial:
                return None
            break
        missed = spare & (cost + price[tails] - price[heads] < 0)
        if not bool(missed.any()):
            flow = lower.copy()
            flow[used] = found
            return flow
        if int(missed.sum()) > _MANY * number:
            break
        spare &= ~missed
    if sparing:
        total = int(supply[supply > 0].sum())
        cost, light = _dearer(cost, spare, total, len(supply)), _dearer(light, spare, LIGHT, len(supply))
    return _cheapest(tails, heads, lower, upper, cost, supply, light, deadline)


def _cheapest(
    tails: Amounts,
    heads: Amounts,
    lower: Amounts,
    upper: Amounts,
    cost: Amounts,
    supply: Amounts,
    light: Amounts,
    deadline: Deadline,
) -> Amounts | None:
    if light is not cost:
        flow = cheapest_flow(tails, heads, lower, upper, light, supply, deadline)
        if flow is None:
            return None
        from_nodes, to_nodes, ahead, back = residual(tails, heads, lower, upper, flow)
        lengths = np.concatenate([cost[ahead], -cost[back]])
        if _fixed(from_nodes, to_nodes, lengths, np.zeros(len(supply), np.int64), _SWEEPS) is not None:
            return flow
    return cheapest_flow(tails, heads, lower, upper, cost, supply, deadline)


def _dearer(cost: Amounts, spare: Mask, weight: int, nodes: int) -> Amounts:
    """Costs that count what spare arcs carry besides, far below all else, if 64 bits can say that."""
    if float(np.abs(cost).max(initial=0)) * (weight + 1) * (nodes + 1) >= LARGEST_COST / 4:
        return cost
    return cost * (weight + 1) + spare


def residual(
    tails: Amounts, heads: Amounts, lower: Amounts, upper: Amounts, flow: Amounts
) -> tuple[Amounts, Amounts, Mask, Mask]:
    """Where a flow can be more, and back where it can be less: from which nodes to which, and on which arcs."""
    ahead, back = flow < upper, flow > lower
    from_nodes = np.concatenate([tails[ahead], heads[back]])
    return from_nodes, np.concatenate([heads[ahead], tails[back]]), ahead, back


def _prices(
    tails: Amounts,
    heads: Amounts,
    lower: Amounts,
    upper: Amounts,
    cost: Amounts,
    flow: Amounts,
    supply: Amounts,
) -> Amounts | None:
    """(nodes,) how far each node is from the sink; None where the flow does not seem to be cheapest."""
    from_nodes, to_nodes, ahead, back = residual(tails, heads, lower, upper, flow)
    lengths = np.concatenate([cost[ahead], -cost[back]])
    return _fixed(from_nodes, to_nodes, lengths, np.where(supply < 0, 0, FAR), _SWEEPS)


def potentials(
    from_nodes: Amounts, to_nodes: Amounts, lengths: Amounts, start: Amounts, deadline: Deadline
) -> Amounts:
    """(nodes,) the shortest ways to each node from where ``start`` says they begin; there is no negative cycle.

    Raises TimeoutError at the deadline.
    """
    found = _fixed(from_nodes, to_nodes, lengths, start, None, deadline)
    assert found is not None
    return found


def _fixed(
    from_nodes: Amounts,
    to_nodes: Amounts,
    lengths: Amounts,
    start: Amounts,
    sweeps: int | None,
    deadline: Deadline = NEVER,
) -> Amounts | None:
    """The same; None if that takes more sweeps, as it does wherever there is a negative cycle."""
    potential = start
    while sweeps is None or sweeps > 0:
        deadline.check()
        before = potential.copy()
        np.minimum.at(potential, to_nodes, before[from_nodes] + lengths)
        if np.array_equal(before, potential):
            return potential
        sweeps = None if sweeps is None else sweeps - 1
    return None
