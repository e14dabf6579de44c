"""Asking every server what it knows, apart from the product: what `find_violations` looks at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from chaos.slots.checker import Answer
from datastore_adapter.slots.errors import MalformedReplyError
from datastore_adapter.slots.state.nodes_table import parse_nodes
from datastore_adapter.slots.state.server_info import parse_info

PATIENCE: Final = 5.0
"""Seconds after which a server counts as silent.  It takes a thousandth; the machine may be busy."""


def inspect(servers: Mapping[str, str], password: str) -> tuple[Answer, ...]:
    """`servers`: ``host:port`` of each -> the name of its host."""
    return tuple(_ask(address, host, password) for address, host in servers.items())


def _ask(address: str, host: str, password: str) -> Answer:
    import valkey
    from valkey.connection import Connection

    where, _, port = address.rpartition(":")
    make: Any = Connection  # it has no types
    connection = make(
        host=where,
        port=int(port),
        password=password,
        socket_timeout=PATIENCE,
        socket_connect_timeout=PATIENCE,
    )
    try:
        connection.connect()
        connection.send_command("CLUSTER", "NODES")
        table = parse_nodes(connection.read_response())
        connection.send_command("INFO")
        replication = parse_info(connection.read_response())
    except (valkey.ValkeyError, OSError, MalformedReplyError) as error:
        return Answer(address, host, None, why=f"{type(error).__name__}: {error}")
    finally:
        connection.disconnect()
    return Answer(address, host, table, replication.link_up and not replication.is_syncing)
