"""Whether servers that somebody else runs can be managed: asked once, when their agent starts, and nothing is changed.

A server that does not answer is no reason to refuse: it may be started later, and the adapter says what it misses.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from datastore_adapter.slots.errors import (
    AccessError,
    CommandRefusedError,
    ServerUnreachableError,
    SlotsError,
)
from datastore_adapter.slots.servers import Servers
from datastore_adapter.slots.settings import EngineAccess, SlotsSettings
from datastore_adapter.slots.state.server_info import ServerInfo, parse_info
from rota.errors import SettingsError

log = logging.getLogger("rota")

OLDEST: Final = (7, 0)


async def inspect(addresses: Sequence[str], access: EngineAccess) -> None:
    """Raises :class:`SettingsError` naming the server, what is wrong with it, and what to do."""
    servers = Servers(access, SlotsSettings())
    try:
        for address in addresses:
            try:
                _check(address, parse_info(await servers.call(address, "INFO")))
            except ServerUnreachableError as error:
                log.warning("engine: %s; it is looked for again and again", error)
            except (AccessError, CommandRefusedError) as error:
                raise SettingsError(f"engine: {error}") from error
            except SlotsError as error:
                raise SettingsError(f"engine: {address}: {error}; is it a Valkey or Redis server?") from error
    finally:
        servers.close()


def _check(address: str, info: ServerInfo) -> None:
    if info.version < OLDEST:
        raise SettingsError(
            f"engine: {address} is {info.software} {'.'.join(map(str, info.version))}, and rota needs "
            f"{'.'.join(map(str, OLDEST))} or later; upgrade it first"
        )
    if not info.is_cluster:
        raise SettingsError(
            f"engine: {address} is no server of a cluster (cluster-enabled is no); name one that is, or have agents "
            "run servers with --store"
        )
