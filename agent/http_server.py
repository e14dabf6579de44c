"""Serving the HTTP interface on trio: a thin cover over hypercorn that reports the port it got."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import trio

from agent.errors import AgentError
from membership import Address


async def serve(
    application: Any, address: Address, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled; ``started`` gets the bound address.  Raises :class:`AgentError` when it is taken."""
    from hypercorn.config import Config
    from hypercorn.trio import serve as hypercorn_serve

    config = Config()
    config.bind = [str(address)]
    config.accesslog = None
    config.errorlog = None
    config.graceful_timeout = 0.5
    config.h11_max_incomplete_size = 64 * 1024

    async def report(nursery: trio.Nursery) -> None:
        bound: list[str] = await nursery.start(hypercorn_serve, application, config)
        parts = urlsplit(bound[0])
        task_status.started(Address(parts.hostname or address.host, parts.port or address.port))

    try:
        async with trio.open_nursery(strict_exception_groups=False) as nursery:
            await report(nursery)
    except OSError as error:
        raise AgentError(
            f"api: cannot serve HTTP at {address}: {error.strerror}; give another address with --api HOST:PORT"
        ) from error
