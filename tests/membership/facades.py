"""The three facades under one description, so that one test body runs on each of them.

A body is written with `async` and `await`. On trio and asyncio these are the real ones; on threads every
awaited call blocks instead, so that a body runs from its beginning to its end without ever being suspended.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any

import trio

import membership
from membership import Settings

SETTINGS = Settings.local()
PATIENCE = 60.0
"""Seconds after which a wait fails; long, for machines that are busy with other things."""

Body = Callable[[], Coroutine[Any, Any, None]]


class Facade(ABC):
    """How a test runs its body, starts others beside it, and joins."""

    name: str
    cluster_class: type[Any]
    module_join: Callable[..., Any]

    module_serve_ensemble: Callable[..., Any]

    @abstractmethod
    def run(self, body: Body) -> None:
        """Run the body and whatever it started, to the end of all of them."""

    @abstractmethod
    def start(self, body: Body) -> None:
        """Run this beside the one who calls."""

    def join(self, *seeds: str, **options: Any) -> AbstractAsyncContextManager[Any]:
        """Be a member at some port of loopback."""
        listen = options.pop("listen", "127.0.0.1:0")
        manager = self.module_join(listen, seeds, **{"settings": SETTINGS, **options})
        assert isinstance(manager, AbstractAsyncContextManager)
        return manager

    def serve_ensemble(
        self, listen: str, members: list[str], **options: Any
    ) -> AbstractAsyncContextManager[Any]:
        """Be a voter."""
        manager = self.module_serve_ensemble(listen, members, **{"settings": SETTINGS, **options})
        assert isinstance(manager, AbstractAsyncContextManager)
        return manager

    def __str__(self) -> str:
        return self.name


class OnTrio(Facade):
    name = "trio"
    cluster_class = membership.Cluster
    module_join = staticmethod(membership.join)
    module_serve_ensemble = staticmethod(membership.serve_ensemble)

    def run(self, body: Body) -> None:
        async def main() -> None:
            with trio.fail_after(2 * PATIENCE):
                async with trio.open_nursery() as self._nursery:
                    await body()

        trio.run(main)

    def start(self, body: Body) -> None:
        self._nursery.start_soon(body)


class OnAsyncio(Facade):
    name = "asyncio"
    cluster_class = membership.aio.Cluster
    module_join = staticmethod(membership.aio.join)
    module_serve_ensemble = staticmethod(membership.aio.serve_ensemble)

    def run(self, body: Body) -> None:
        async def main() -> None:
            async with asyncio.timeout(2 * PATIENCE), asyncio.TaskGroup() as self._tasks:
                await body()
            assert not trio.lowlevel.in_trio_run(), "the guest outlives the blocks"

        asyncio.run(main(), debug=True)

    def start(self, body: Body) -> None:
        self._tasks.create_task(body())


class OnThreads(Facade):
    name = "threads"
    cluster_class = membership.blocking.Cluster
    module_join = staticmethod(membership.blocking.join)
    module_serve_ensemble = staticmethod(membership.blocking.serve_ensemble)

    def run(self, body: Body) -> None:
        self._failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        try:
            run_without_suspension(body())
        finally:
            for thread in self._threads:
                thread.join(2 * PATIENCE)
                assert not thread.is_alive()
        if self._failures:
            raise BaseExceptionGroup("threads", self._failures)
        assert not [each for each in threading.enumerate() if each.name == "membership"]

    def start(self, body: Body) -> None:
        def target() -> None:
            try:
                run_without_suspension(body())
            except BaseException as error:
                self._failures.append(error)

        self._threads.append(threading.Thread(target=target, daemon=True))
        self._threads[-1].start()

    def join(self, *seeds: str, **options: Any) -> AbstractAsyncContextManager[Any]:
        listen = options.pop("listen", "127.0.0.1:0")
        return _awaited_block(self.module_join(listen, seeds, **{"settings": SETTINGS, **options}))

    def serve_ensemble(
        self, listen: str, members: list[str], **options: Any
    ) -> AbstractAsyncContextManager[Any]:
        return _awaited_block(
            self.module_serve_ensemble(listen, members, **{"settings": SETTINGS, **options})
        )


def run_without_suspension(body: Coroutine[Any, Any, None]) -> None:
    try:
        body.send(None)
    except StopIteration:
        return
    raise AssertionError("a body on threads awaited something that really waits")


@asynccontextmanager
async def _awaited_block(manager: AbstractContextManager[Any]) -> AsyncIterator[Any]:
    with manager as cluster:
        yield Awaited(cluster)


class Awaited:
    """A blocking cluster, or ensemble, whose waiting methods are awaited."""

    def __init__(self, cluster: Any) -> None:
        self.blocking = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self.blocking, name)

    async def leave(self) -> bool:
        done: bool = self.blocking.leave()
        return done

    async def wait_for(self, *args: Any, **options: Any) -> Any:
        return self.blocking.wait_for(*args, **options)

    async def edge_failed(self, member: membership.Member) -> None:
        self.blocking.edge_failed(member)

    def changes(self) -> AwaitedFeed:
        return AwaitedFeed(self.blocking.changes())


class AwaitedFeed:
    def __init__(self, feed: membership.blocking.ChangeFeed) -> None:
        self._feed = feed

    def __aiter__(self) -> AwaitedFeed:
        return self

    async def __anext__(self) -> membership.Change:
        for change in self._feed:
            return change
        raise StopAsyncIteration


FACADES: tuple[Facade, ...] = (OnTrio(), OnAsyncio(), OnThreads())
