"""Whether replicas follow a server that was at an address before: an empty one there would empty them.

A host that comes back without its disk starts empty servers at the ports that its servers had.  A replica fetches its
data from the address of its primary, whoever answers there, and takes the emptiness for what it has to have; that of
Redis 7 does so within a second.  So an empty server is not started while another one says that somebody follows its
address: until the shard has another primary, or an operator has the replicas follow one.

Silence is no answer: a server that starts again, loads its data or has another password may be such a replica.  Only
one that is empty itself follows nobody, which its agent says: it may well wait for this one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain
from typing import Final

import trio

from datastore_adapter.slots.errors import SlotsError
from datastore_adapter.slots.servers import Servers
from datastore_adapter.slots.state.nodes_table import NodesTable, parse_nodes
from datastore_adapter.slots.state.slot_ranges import SLOTS, count, normalized

log = logging.getLogger("rota")

LONG_SILENCE: Final = 5
"""Looks in which somebody was silent, until that is told: servers that start together answer soon."""


def followers(tables: Iterable[NodesTable], address: str) -> list[str]:
    """Addresses of the servers that follow one at this address, as any of these tables says.

    One that does not answer counts as long as the slots may be its alone: it may come back.
    """
    found = set()
    for table in tables:
        there = {node_id for node_id, record in table.nodes.items() if record.address == address}
        elsewhere = [record.slots for node_id, record in table.nodes.items() if node_id not in there]
        is_led = count(normalized(chain.from_iterable(elsewhere))) == SLOTS
        found |= {
            record.address
            for record in table.nodes.values()
            if record.primary_id in there and not (record.is_suspect and is_led)
        }
    return sorted(found - {address})


class Predecessors:
    """What the servers of the cluster's other hosts say of those that were at the addresses of this one's."""

    def __init__(
        self,
        servers: Servers,
        others: Callable[[], Sequence[str]],
        is_empty: Callable[[str], Awaitable[bool]],
        on_event: Callable[[str, str], None],
    ) -> None:
        """``others``: addresses of the servers of the other hosts in the view; ``is_empty``: whether the agent of one
        says that it has never begun, or not since its disk was lost."""
        self._servers = servers
        self._others = others
        self._is_empty = is_empty
        self._on_event = on_event
        self._told: set[tuple[str, str]] = set()
        self._silences: Counter[str] = Counter()

    async def may_start(self, address: str) -> bool:
        """Whether an empty server may be started there now."""
        tables, silent = await self._ask_all()
        if replicas := followers(tables, address):
            self._tell(
                address,
                "followed",
                f"{', '.join(replicas)} still followed the server that was at {address}, and an empty one would "
                "empty them: it is started when their shard has another primary",
            )
        elif silent:
            self._silences[address] += 1
            if self._silences[address] >= LONG_SILENCE:
                self._tell(
                    address,
                    "silence",
                    f"{', '.join(silent)} may follow the server that was at {address}, and an empty one would empty "
                    "them: it is started when they answer, or when their hosts have left the view",
                )
        else:
            return True
        return False

    def _tell(self, address: str, reason: str, text: str) -> None:
        if (address, reason) not in self._told:
            self._told.add((address, reason))
            self._on_event("server-waits", text)

    async def _ask_all(self) -> tuple[list[NodesTable], list[str]]:
        """What they know, and who may know something and says nothing."""
        tables: list[NodesTable] = []
        silent: list[str] = []

        async def ask(other: str) -> None:
            try:
                tables.append(parse_nodes(await self._servers.call(other, "CLUSTER", "NODES")))
            except SlotsError as error:
                log.debug("engine: %s", error)
                if not await self._is_empty(other):
                    silent.append(other)

        async with trio.open_nursery() as nursery:
            for other in self._others():
                nursery.start_soon(ask, other)
        return tables, sorted(silent)
