"""Have servers know of each other what gossip would tell them in the course of seconds.

A server tells whom it follows and which slots it believes its primary to hold with every message, and is answered by
whoever knows better.  But it sends a message to one other a second, and to each once in half the node timeout.  One
that it is told to meet gets a message at once, also if it knows it already.  That one then ends the connection it had
from the other before, which is made again within a tenth of a second; until then what is sent to it is lost, a request
for its vote too.  So this is for servers that begin, and for a shard without a primary; else gossip is waited for.
Source: Redis Cluster specification, "Heartbeat and gossip messages", "Update messages".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final

import trio

from datastore_adapter.slots.errors import StepFailedError
from datastore_adapter.slots.recipient import Recipient
from datastore_adapter.slots.state.cluster_state import ClusterState, Member, Report
from datastore_adapter.slots.state.slot_ranges import overlap
from datastore_adapter.slots.steps.step_context import StepContext, recipient_of

AGAIN: Final = 1.0
CONNECTING: Final = 0.3
"""Seconds after which a connection that was not made again counts as never ended."""


Ignorance = Mapping[str, Sequence[Report]]
"""By node id of a server those that do not know what it is."""


async def spread(
    context: StepContext,
    ignorance: Callable[[ClusterState], Ignorance],
    timeout: float,
    patience: float = inf,
) -> None:
    """Until nobody is ignorant, or is told after ``patience`` seconds.  Raises StepFailedError."""
    began = trio.current_time()
    told_at = began + patience - AGAIN
    met: dict[str, dict[str, int]] = defaultdict(dict)
    while True:
        state = await context.state()
        ignorant = {node_id: reports for node_id, reports in ignorance(state).items() if reports}
        if not ignorant:
            for node_id, others in met.items():
                await _until_connected(context, state.members[node_id], others)
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
                at = await _meet(context, state.members[node_id], reports)
                met[node_id] |= {report.node_id: at for report in reports}
        await trio.sleep(context.settings.poll_interval)


async def _meet(context: StepContext, member: Member, others: Sequence[Report]) -> int:
    """Have the member send a message to the others; returns when, in milliseconds by its own clock."""
    seconds, microseconds = await context.ask(recipient_of(member), "TIME")
    commands = [
        ("CLUSTER", "MEET", *await context.cluster.endpoint(other.address), other.table.me.bus_port)
        for other in await context.present(others)  # whoever is there is met
    ]
    await context.commands(recipient_of(member), commands)
    return int(seconds) * 1000 + int(microseconds) // 1000


async def _until_connected(context: StepContext, member: Member, since: Mapping[str, int]) -> None:
    """Until its connections to those that it was told to meet are new ones."""
    with trio.move_on_after(CONNECTING):
        while True:
            made = await _connections(context, recipient_of(member))
            if all(made.get(node_id, 0) >= at for node_id, at in since.items()):
                return
            await trio.sleep(context.settings.poll_interval)


async def _connections(context: StepContext, server: Recipient) -> dict[str, int]:
    """By node id when the connection to it was made, in milliseconds by the server's clock."""
    made: dict[str, int] = {}
    answer = await context.ask(server, "CLUSTER", "LINKS")
    for entry in answer if isinstance(answer, list) else ():
        fields = dict(zip(entry[::2], entry[1::2], strict=False))
        if fields.get(b"direction") == b"to":
            made[bytes(fields.get(b"node", b"")).decode()] = int(fields.get(b"create-time", 0))
    return made


def not_electing(state: ClusterState, node_id: str, primary_id: str) -> list[Report]:
    """Who would not vote for the replica of this primary, or not hand over to it.

    It runs for all slots that it believes its primary to have, and whoever has one of them votes against it; as does
    who has not heard yet of whom it is a replica.
    """
    own = state.members[node_id].report
    believed = () if own is None or primary_id not in own.table.nodes else own.table.nodes[primary_id].slots
    return [
        report
        for report in state.reports
        if report.node_id in {*state.owners, primary_id}
        and (
            node_id not in report.table.nodes
            or report.table.nodes[node_id].primary_id != primary_id
            or (report.node_id != primary_id and overlap(state.owners[report.node_id], believed))
        )
    ]


def is_elected(state: ClusterState, against: Sequence[Report]) -> bool:
    """Whether more than half of the primaries with slots would vote for it all the same."""
    voters = {report.node_id for report in state.reports} & state.owners.keys()
    return 2 * len(voters - {report.node_id for report in against}) > len(state.owners)


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
