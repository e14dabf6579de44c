"""The interface for asyncio: the same as `membership.join`, awaited in an asyncio event loop.

    async with membership.aio.join("10.0.0.5:7946", seeds=["10.0.0.1:7946"]) as cluster:
        async for change in cluster.changes():
            ...

trio runs as a guest of the running loop, in its thread, from the first block until the last one has ended; all
blocks of a loop share it. Callables given to `join` (`services`, `on_listening`, ...) are called by trio.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

import trio

import membership.cluster
import membership.ensemble_service
from membership.protocol.core.suspicions import Suspicions
from membership.protocol.view.configuration import Configuration
from membership.runtime.change_feed import Change, ClusterState, MembershipEndedError, Subscription
from membership.runtime.event_loops.portal import Block, Call, Portal
from membership.surface import ClusterSurface, EnsembleSurface, Surface, timed_out

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
F = TypeVar("F")

_Trio = membership.cluster.Cluster


async def _settle(future: asyncio.Future[None], give_up: Callable[[], None]) -> None:
    """Wait for `future`, whatever happens; when cancelled, call `give_up` and be cancelled afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
            give_up()
    if cancelled is not None:
        raise cancelled


def _forward(
    method: Callable[Concatenate[_Trio, P], Awaitable[T]],
) -> Callable[Concatenate[Cluster, P], Coroutine[Any, Any, T]]:
    """The trio method of the same name, awaited in asyncio."""

    @functools.wraps(method)
    async def forwarded(self: Cluster, /, *args: P.args, **options: P.kwargs) -> T:
        return await self._call(lambda: method(self._cluster, *args, **options))

    return forwarded


class _AsyncioSurface(Surface):
    """What waits, in an asyncio task."""

    def changes(self) -> ChangeFeed:
        """As `membership.Cluster.changes`."""
        return ChangeFeed(self._state)

    async def wait_for(
        self, condition: Callable[[Configuration], bool], timeout: float | None = None
    ) -> Configuration:
        """As `membership.Cluster.wait_for`."""
        try:
            async with asyncio.timeout(timeout):
                async for change in self.changes():
                    if condition(change.view):
                        return change.view
        except TimeoutError:
            assert timeout is not None
            raise timed_out(timeout, self._state.view) from None
        raise MembershipEndedError("this process is no member any more; no further view will come")


class Cluster(_AsyncioSurface, ClusterSurface):
    """This process's membership. Made by `join`; valid within its block, in its event loop."""

    def __init__(self, hosted: Portal[_Trio]) -> None:
        super().__init__(hosted.inside._driver)
        self._hosted = hosted
        self._cluster = hosted.inside

    leave = _forward(_Trio.leave)
    set_metadata = _forward(_Trio.set_metadata)
    evict = _forward(_Trio.evict)
    edge_failed = _forward(_Trio.edge_failed)
    recover = _forward(_Trio.recover)

    def suspicions(self) -> Suspicions | None:
        """As `membership.Cluster.suspicions`."""
        return self._cluster.suspicions()

    def statistics(self) -> dict[str, int]:
        """As `membership.Cluster.statistics`."""
        return self._cluster.statistics()

    async def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call = Call(function, lambda: finished.set_result(None))
        self._hosted.start(call)
        await _settle(finished, call.cancel)
        return call.result()


class Ensemble(_AsyncioSurface, EnsembleSurface):
    """This process's part in an ensemble. Made by `serve_ensemble`; valid within its block, in its event loop."""

    def __init__(self, hosted: Portal[membership.ensemble_service.Ensemble]) -> None:
        inside = hosted.inside
        super().__init__(inside._voter, inside.transport, inside._published)
        self._ensemble = inside

    def statistics(self) -> dict[str, int]:
        """As `membership.Ensemble.statistics`."""
        return self._ensemble.statistics()


class ChangeFeed(Subscription):
    """One subscriber's changes: an asynchronous iterator, as `membership.ChangeFeed`. For one task at a time."""

    def __init__(self, state: ClusterState) -> None:
        self._news = asyncio.Event()
        super().__init__(state)

    def wake(self) -> None:
        """As in `Subscription`."""
        self._news.set()

    def __aiter__(self) -> ChangeFeed:
        return self

    async def __anext__(self) -> Change:
        """The next change, as soon as there is one. Raises MembershipEndedError after a failure."""
        await asyncio.sleep(0)  # others get their turn even if there is always a change
        while (change := self.take()) is None:
            if self.ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return change


class _Guest:
    """The trio run of one event loop, shared by the clusters in it. Only one per thread is possible."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._users = 0
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._finish = trio.Event()

    @classmethod
    async def enter(cls) -> _Guest:
        """The loop's guest, begun if there is none. Pair with `leave`."""
        while trio.lowlevel.in_trio_run():
            guest = _GUEST.get(None)
            if guest is None:
                raise RuntimeError(
                    "this thread runs trio already, not begun by membership.aio: use membership.join in there"
                )
            if not guest._finish.is_set():
                break
            await asyncio.wait([guest._ended])  # the last user has just gone: begin a new one after it
        else:
            guest = cls()
            guest._start()
            _GUEST.set(guest)
        guest._users += 1
        return guest

    def _start(self) -> None:
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._loop.call_soon_threadsafe,
            run_sync_soon_not_threadsafe=self._loop.call_soon,
            done_callback=lambda _: self._ended.set_result(None),
            host_uses_signal_set_wakeup_fd=True,  # signals are the loop's business
        )

    async def _main(self) -> None:
        while not self._finish.is_set():
            try:
                await self._finish.wait()
            except KeyboardInterrupt:
                # Under a loop that leaves SIGINT alone, trio catches it while it has its turn: pass it on.
                self._loop.call_soon(_interrupt)

    async def leave(self) -> None:
        """The last to leave sees trio end."""
        self._users -= 1
        if self._users == 0:
            self._finish.set()
            await _settle(self._ended, lambda: None)


def _interrupt() -> None:
    raise KeyboardInterrupt


_GUEST: trio.lowlevel.RunVar[_Guest | None] = trio.lowlevel.RunVar("membership guest of asyncio", None)


@asynccontextmanager
async def _enter(block: Block[S], surface: Callable[[Portal[S]], F]) -> AsyncIterator[F]:
    guest = await _Guest.enter()
    try:
        async with _hosted(block, surface) as inside:
            yield inside
    finally:
        await guest.leave()


@asynccontextmanager
async def _hosted(block: Block[S], surface: Callable[[Portal[S]], F]) -> AsyncIterator[F]:
    loop = asyncio.get_running_loop()
    finished: asyncio.Future[None] = loop.create_future()
    entered: asyncio.Future[None] = loop.create_future()
    hosted = Portal(block, lambda: entered.set_result(None))
    call = Call(hosted.run, lambda: finished.set_result(None))
    trio.lowlevel.spawn_system_task(call.run, name="membership.aio")
    try:
        await asyncio.wait([entered, finished], return_when=asyncio.FIRST_COMPLETED)
        if entered.done():
            async with _interrupted_by(finished):
                yield surface(hosted)
    except asyncio.CancelledError:
        hosted.vanish()
        raise
    finally:
        hosted.leave()
        await _settle(finished, hosted.vanish)
        call.result()


@asynccontextmanager
async def _interrupted_by(finished: asyncio.Future[None]) -> AsyncIterator[None]:
    """Cancel the block when `finished` comes first; the cancellation ends with the block."""
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    interrupted = False

    def interrupt(_: object) -> None:
        nonlocal interrupted
        interrupted = True
        task.cancel("the membership has failed")

    finished.add_done_callback(interrupt)
    try:
        yield
    except asyncio.CancelledError:
        if not interrupted or task.uncancel() > before:
            raise
        interrupted = False
    finally:
        finished.remove_done_callback(interrupt)
        if interrupted and task.cancelling() > before:
            # The block ended by itself before the cancellation reached it: it must not hit anybody else.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            task.uncancel()


def _facade(
    block: Callable[P, AbstractAsyncContextManager[S]], surface: Callable[[Portal[S]], F]
) -> Callable[P, AbstractAsyncContextManager[F]]:
    @functools.wraps(block)
    def facade(*args: P.args, **options: P.kwargs) -> AbstractAsyncContextManager[F]:
        return _enter(lambda: block(*args, **options), surface)

    return facade


__all__ = ["ChangeFeed", "Cluster", "Ensemble", "join", "serve_ensemble"]

join = _facade(membership.cluster.join, Cluster)
"""`membership.join` for asyncio, with the same arguments and errors. Cancelling the block makes the process
vanish as a crash would; every other way out of it leaves gracefully, in bounded time."""

serve_ensemble = _facade(membership.ensemble_service.serve_ensemble, Ensemble)
"""`membership.serve_ensemble` for asyncio, with the same arguments and errors. Every vote is synced to disk in the
loop's thread."""


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
