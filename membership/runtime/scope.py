"""The block of code for which a process takes part: its tasks, its end, and what comes out of it.

What it is: what `join` and `serve_ensemble` have in common once their parts are built.
What it is not: the parts, nor what waits for them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import trio

from membership.runtime.change_feed import ClusterState


@asynccontextmanager
async def run_block(
    state: ClusterState,
    parts: Iterable[Callable[[], Awaitable[None]]],
    farewell: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[None]:
    """Run the parts beside the block; after it, unless it is cancelled, say farewell, and end them.

    An exception of the block comes out as it was. A part that fails ends the block, and `state` tells who waits.
    """
    # A nursery would wrap whatever the block raises into a group; it is kept and raised as it was.
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            for part in parts:
                nursery.start_soon(_run, part, state)
            try:
                yield
            except BaseException as error:
                if _has_cancelled(error):
                    raise
                failure = error
            if farewell is not None:
                await farewell()
            nursery.cancel_scope.cancel()
    finally:
        state.end()
    if failure is not None:
        raise failure


async def _run(part: Callable[[], Awaitable[None]], state: ClusterState) -> None:
    """Run a part that must never fail; if it does, everybody who asks is told."""
    try:
        await part()
    except Exception as error:
        state.end(error)
        raise


def _has_cancelled(error: BaseException) -> bool:
    """Cancellation must reach the nursery it belongs to, alone or among other errors."""
    if isinstance(error, BaseExceptionGroup):
        return any(_has_cancelled(inner) for inner in error.exceptions)
    return isinstance(error, trio.Cancelled | GeneratorExit)
