"""Whether replicas follow a server that was at an address before: an empty one there would empty them.

A host that comes back without its disk starts empty servers at the ports that its servers had.  A replica fetches its
data from the address of its primary, whoever answers there, and takes the emptiness for what it has to have; that of
Redis 7 does so within a second.  So an empty server is not started while another one says that somebody follows its
address: until the shard has another primary, or an operator has the replicas follow one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import trio

from datastore_adapter.slots.errors import SlotsError
from datastore_adapter.slots.servers import Servers
from datastore_adapter.slots.state.nodes_table import NodesTable, parse_nodes

log = logging.getLogger("rota")

LOOK_AGAIN: Final = 0.5
"""Seconds."""


def followers(tables: Iterable[NodesTable], address: str) -> list[str]:
    """Addresses of the servers that follow one at this address, as any of these tables says."""
    found = set()
    for table in tables:
        there = {node_id for node_id, record in table.nodes.items() if record.address == address}
        found |= {record.address for record in table.nodes.values() if record.primary_id in there}
    return sorted(found - {address})


async def until_nobody_follows(
    addresses: Sequence[str],
    others: Callable[[], Sequence[str]],
    servers: Servers,
    on_event: Callable[[str, str], None],
) -> None:
    """``addresses``: where empty servers are to be started; ``others``: those of the cluster's other hosts."""
    told: set[str] = set()
    while True:
        following = await _followed(addresses, [each for each in others() if each not in addresses], servers)
        if not following:
            return
        for address, replicas in following.items():
            if address not in told:
                told.add(address)
                on_event(
                    "server-waits",
                    f"{', '.join(replicas)} still followed the server that was at {address}, and an empty one would "
                    "empty them: it is started when their shard has another primary",
                )
        await trio.sleep(LOOK_AGAIN)


async def _followed(
    addresses: Sequence[str], others: Sequence[str], servers: Servers
) -> Mapping[str, Sequence[str]]:
    tables: list[NodesTable] = []

    async def ask(other: str) -> None:
        try:
            tables.append(parse_nodes(await servers.call(other, "CLUSTER", "NODES")))
        except SlotsError as error:
            log.debug("engine: %s", error)  # it may be about to start as well

    async with trio.open_nursery() as nursery:
        for other in others:
            nursery.start_soon(ask, other)
    return {address: replicas for address in addresses if (replicas := followers(tables, address))}
