"""Serving the HTTP interface on trio: a thin cover over hypercorn that reports the port it got."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import trio
from hypercorn.config import Config
from hypercorn.trio import serve as hypercorn_serve

from agent.errors import AgentError, first_error
from membership import Address


async def serve(
    application: Any, address: Address, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled; ``started`` gets the bound address.  Raises :class:`AgentError` when it is taken."""
    config = Config()
    config.bind = [str(address)]
    config.accesslog = None
    config.errorlog = None
    config.graceful_timeout = 0.5
    config.h11_max_incomplete_size = 64 * 1024

    try:
        async with trio.open_nursery() as nursery:
            bound: list[str] = await nursery.start(hypercorn_serve, application, config)
            parts = urlsplit(bound[0])
            task_status.started(Address(parts.hostname or address.host, parts.port or address.port))
    except (OSError, BaseExceptionGroup) as error:
        cause = first_error(error)
        if not isinstance(cause, OSError):
            raise
        raise AgentError(
            f"api: cannot serve HTTP at {address}: {cause.strerror}; give another address with --api HOST:PORT"
        ) from error
