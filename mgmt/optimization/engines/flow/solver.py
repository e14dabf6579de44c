"""A cheapest flow within bounds: OR-tools' min-cost flow, on as few arcs and nodes as say the same.

Arcs without room are left out.  A node that has one way out, wide enough for whatever comes, is only passed: its ways
in lead to where that one goes.  Likewise a node that has one way in.  Of several ways between two nodes the cheapest
does if it is wide enough.  The solver scales costs by the number of nodes, so fewer of them help twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import Amounts, Mask
from mgmt.optimization.deadline import NEVER, Deadline
from mgmt.optimization.engines.flow.counts import NotAFlowError


def cheapest_flow(
    tails: Amounts,
    heads: Amounts,
    lower: Amounts,
    upper: Amounts,
    cost: Amounts,
    supply: Amounts,
    deadline: Deadline = NEVER,
) -> Amounts | None:
    """(arcs,) a cheapest flow; None if there is none.  Arcs must not lead around in circles.

    Raises LateFlowError where the deadline is too near for it.
    """
    rest = supply.copy()
    forced = np.flatnonzero(lower)
    np.subtract.at(rest, tails[forced], lower[forced])
    np.add.at(rest, heads[forced], lower[forced])
    used = np.flatnonzero(upper > lower)
    whole = _Graph(tails[used], heads[used], (upper - lower)[used], cost[used], rest)
    shorter, first = whole.passed(ways_out=True)
    shortest, second = shorter.passed(ways_out=False)
    some = np.flatnonzero(shortest.needed())
    check_time(len(some), deadline)
    found = shortest.only(some).ask()
    if found is None:
        return None
    carried = np.zeros(len(shortest.tails), np.int64)
    carried[some] = found
    flow: NDArray[np.int64] = lower.copy()
    flow[used] += whole.carried(first, shorter.carried(second, carried, ways_out=False), ways_out=True)
    return flow


@dataclass(frozen=True, slots=True, eq=False)
class _Graph:
    tails: Amounts
    heads: Amounts
    room: Amounts
    cost: Amounts
    supply: Amounts

    def only(self, arcs: Amounts) -> _Graph:
        return _Graph(self.tails[arcs], self.heads[arcs], self.room[arcs], self.cost[arcs], self.supply)

    def _wide(self) -> Mask:
        """(arcs,) whether as much fits in as can come to it; so it would if there were no limit on what comes."""
        comes = np.bincount(self.heads, self.room, len(self.supply)) + np.maximum(self.supply, 0)
        return np.asarray(self.room >= comes[self.tails])

    def passed(self, *, ways_out: bool) -> tuple[_Graph, Mask]:
        """Without the arcs that are the only way out of (or into) a node, and which arcs these are."""
        near, far = (self.tails, self.heads) if ways_out else (self.heads, self.tails)
        nodes = len(self.supply)
        through = ((np.bincount(near, minlength=nodes) == 1) & (self.supply == 0))[near] & self._wide()
        goal, toll = np.arange(nodes), np.zeros(nodes, np.int64)
        goal[near[through]], toll[near[through]] = far[through], self.cost[through]
        while True:
            further = goal[goal]
            if np.array_equal(further, goal):
                break
            toll, goal = toll + toll[goal], further
        kept = ~through
        ends, cost = goal[far[kept]], self.cost[kept] + toll[far[kept]]
        tails, heads = (near[kept], ends) if ways_out else (ends, near[kept])
        return _Graph(tails, heads, self.room[kept], cost, self.supply), through

    def carried(self, through: Mask, kept: Amounts, *, ways_out: bool) -> Amounts:
        """The flow on all arcs from that on those that ``passed`` kept: what comes to a passed node goes on."""
        near, far = (self.tails, self.heads) if ways_out else (self.heads, self.tails)
        flow = np.zeros(len(near), np.int64)
        flow[~through] = kept
        nodes = near[through]
        while True:
            total = np.zeros(len(self.supply), np.int64)
            np.add.at(total, far, flow)
            if np.array_equal(flow[through], total[nodes]):
                return flow
            flow[through] = total[nodes]

    def needed(self) -> Mask:
        """(arcs,) false for arcs beside a cheaper one between the same nodes that is wide enough alone."""
        wide = self._wide()
        pair = self.tails * len(self.supply) + self.heads
        order = np.lexsort([self.cost, ~wide, pair])
        first = np.append(True, np.diff(pair[order]) != 0)[: len(order)]
        # In its group, the first is a wide one if there is any, and the cheapest of these.
        best = order[first][np.cumsum(first) - 1]
        needed = np.ones(len(order), np.bool_)
        needed[order] = (best == order) | ~wide[best] | (self.cost[order] < self.cost[best])
        return needed

    def ask(self) -> Amounts | None:
        from ortools.graph.python import min_cost_flow  # loaded where it is needed: it is not small

        used = self.supply != 0
        used[self.tails] = used[self.heads] = True
        number, nodes = np.cumsum(used) - 1, np.flatnonzero(used)
        solver = min_cost_flow.SimpleMinCostFlow()
        solver.add_arcs_with_capacity_and_unit_cost(
            number[self.tails].astype(np.int32), number[self.heads].astype(np.int32), self.room, self.cost
        )
        solver.set_nodes_supplies(np.arange(len(nodes), dtype=np.int32), self.supply[nodes])
        status = solver.solve()
        if status == solver.INFEASIBLE:
            return None
        if status != solver.OPTIMAL:
            raise NotAFlowError(f"the flow solver says {status.name}")
        if not len(self.tails):
            return np.zeros(0, np.int64)
        return np.asarray(solver.flows(np.arange(len(self.tails), dtype=np.int32)), np.int64)


ARCS_PER_SECOND = 1_000_000
"""What the solver gets through; measured are 0.9 to 4 million on networks of copies and racks."""
ALWAYS = 20_000
"""So few arcs are never too many: they take some milliseconds, and one answer late is better than none."""


class LateFlowError(NotAFlowError):
    """It is a network, but its flow would take longer than there is time."""


def check_time(arcs: int, deadline: Deadline) -> None:
    """LateFlowError where there is no time for a flow on so many arcs."""
    if arcs > max(ALWAYS, ARCS_PER_SECOND * deadline.left):
        raise LateFlowError(f"a network of {arcs} arcs takes longer than the time that is left")
