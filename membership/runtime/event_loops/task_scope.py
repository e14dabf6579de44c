"""The scope of a membership: the tasks that run beside an application's block, and end with it.

`join` and `serve_ensemble` both enter `run_scope` once their tasks are made.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import trio

from membership.runtime.change_feed import ClusterState


@asynccontextmanager
async def run_scope(
    state: ClusterState,
    tasks: Iterable[Callable[[], Awaitable[None]]],
    on_exit: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[None]:
    """Run the tasks beside the block; after it, unless it is cancelled, call `on_exit`, and end them.

    An exception of the block comes out as it was. A task that fails ends the block, and `state` tells who waits.
    """
    # A nursery would wrap whatever the block raises into a group; it is kept and raised as it was.
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            for part in tasks:
                nursery.start_soon(_run, part, state)
            try:
                yield
            except BaseException as error:
                if _has_cancelled(error):
                    raise
                failure = error
            if on_exit is not None:
                await on_exit()
            nursery.cancel_scope.cancel()
    finally:
        state.end()
    if failure is not None:
        raise failure


async def _run(part: Callable[[], Awaitable[None]], state: ClusterState) -> None:
    """Run a task that must never fail; if it does, everybody who asks is told."""
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
