"""Have servers know of each other what gossip would tell them in the course of seconds.

A server tells whom it follows and which slots it believes its primary to hold with every message, and is answered by whoever
knows better.  But it sends a message to one other a second, and to each once in half the node timeout.  One that it is
told to meet gets a message at once, also if it knows it already.
Source: Redis Cluster specification, "Heartbeat and gossip messages", "Update messages".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import trio

from datastore_adapter.slots.cluster_state import ClusterState, Member, Report
from datastore_adapter.slots.errors import StepFailedError
from datastore_adapter.slots.hands import Hands, address_of

BY_ITSELF: Final = 0.1
"""Seconds in which news of a change mostly arrives without being helped."""
AGAIN: Final = 1.0


Ignorance = Mapping[str, Sequence[Report]]
"""By node id of a server those that do not know what it is."""


async def spread(
    hands: Hands,
    ignorance: Callable[[ClusterState], Ignorance],
    timeout: float,
    patience: float = BY_ITSELF,
) -> None:
    """Until nobody is ignorant, or is told.  Raises StepFailedError."""
    began = trio.current_time()
    told_at = began + patience - AGAIN
    while True:
        state = await hands.state()
        ignorant = {node_id: reports for node_id, reports in ignorance(state).items() if reports}
        if not ignorant:
            return
        now = trio.current_time()
        if now >= began + timeout:
            node_id, reports = next(iter(ignorant.items()))
            raise StepFailedError(
                "slow", f"{reports[0].address} does not know yet what {state.members[node_id].address} is"
            )
        if now >= told_at + AGAIN:
            told_at = now
            for node_id, reports in ignorant.items():
                await _meet(hands, state.members[node_id], reports)
        await trio.sleep(hands.settings.poll_interval)


async def _meet(hands: Hands, member: Member, others: Sequence[Report]) -> None:
    """Have the member send a message to the others."""
    commands = [
        ("CLUSTER", "MEET", *await hands.cluster.endpoint(other.address), other.table.me.bus_port)
        for other in others
    ]
    await hands.commands(address_of(member), commands)


def not_knowing_whom_it_follows(state: ClusterState, node_id: str, primary_id: str) -> list[Report]:
    """Servers that could vote for the replica, and would not, because they do not know of whom it is one."""
    return [
        report
        for report in state.reports
        if report.node_id != node_id
        and report.table.me.is_primary
        and (node_id not in report.table.nodes or report.table.nodes[node_id].primary_id != primary_id)
    ]


def not_agreeing(state: ClusterState) -> Ignorance:
    """Whoever sees a server that answers otherwise than that one sees itself."""
    return {
        report.node_id: [
            other
            for other in state.reports
            if (record := other.table.nodes.get(report.node_id)) is None
            or (record.slots, record.primary_id) != (report.table.me.slots, report.table.me.primary_id)
        ]
        for report in state.reports
    }
