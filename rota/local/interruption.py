"""Ctrl-C and SIGTERM as an orderly end of a command that runs processes."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def until_interrupted() -> AsyncIterator[None]:
    """Runs the body until it ends or SIGINT or SIGTERM comes; both cancel it, so that it can clean up."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

            nursery.start_soon(wait)
            yield
            nursery.cancel_scope.cancel()
