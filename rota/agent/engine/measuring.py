"""What the servers of Valkey or Redis on this host do at present, for the agent's measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import trio

from datastore_adapter.slots.slots_adapter import SlotsAdapter


async def measure(adapter: SlotsAdapter, servers: Sequence[str]) -> Mapping[str, float | None]:
    """Operations per second, bytes of data, and what the slowest answer took; None where no server answers."""
    began = trio.current_time()
    infos = await adapter.infos(servers)
    seconds = trio.current_time() - began
    if not infos:
        return {"operations": None, "engine_bytes": None, "engine_seconds": None}
    return {
        "operations": sum(info.operations for info in infos),
        "engine_bytes": sum(info.memory for info in infos),
        "engine_seconds": seconds,
    }
