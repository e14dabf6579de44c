"""The interface for threads: the same as `membership.join`, with calls that block.

    with membership.blocking.join("10.0.0.5:7946", seeds=["10.0.0.1:7946"]) as cluster:
        for change in cluster.changes():
            ...

A `Cluster` may be used from any number of threads. trio runs in one thread per block, which ends with the block.
Callables given to `join` (`services`, `on_listening`, ...) are called in trio's thread.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

import trio

import membership.cluster
import membership.ensemble_service
from membership.errors import MembershipError
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


class WrongThreadError(MembershipError, RuntimeError):
    """A blocking call was made in the thread that would have to answer it: by a service's handler or another
    callable given to `join`. Hand it to a thread of your own, or use trio there."""


def _forward(
    method: Callable[Concatenate[_Trio, P], Awaitable[T]],
) -> Callable[Concatenate[Cluster, P], T]:
    """The trio method of the same name, blocking."""

    @functools.wraps(method)
    def forwarded(self: Cluster, /, *args: P.args, **options: P.kwargs) -> T:
        return self._call(lambda: method(self._cluster, *args, **options))

    return forwarded


class _BlockingSurface(Surface):
    """What waits, in any thread but that of trio."""

    _hosted: Portal[Any]
    _thread: _TrioThread

    def changes(self) -> ChangeFeed:
        """As `membership.Cluster.changes`."""
        return ChangeFeed(self._state)

    def wait_for(
        self, condition: Callable[[Configuration], bool], timeout: float | None = None
    ) -> Configuration:
        """As `membership.Cluster.wait_for`."""
        until = None if timeout is None else time.monotonic() + timeout
        feed = self.changes()
        while True:
            change = feed.next_within(None if until is None else until - time.monotonic())
            if change is not None and condition(change.view):
                return change.view
            if change is None and feed.ended:
                raise MembershipEndedError("this process is no member any more; no further view will come")
            if timeout is not None and until is not None and time.monotonic() >= until:
                raise timed_out(timeout, self._state.view)

    def statistics(self) -> dict[str, int]:
        """As `membership.Cluster.statistics`."""

        async def statistics() -> dict[str, int]:
            counters: dict[str, int] = self._hosted.inside.statistics()
            return counters

        return self._call(statistics)

    def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        finished = threading.Event()
        call = Call(function, finished.set)
        self._thread.soon(lambda: self._hosted.start(call))
        try:
            finished.wait()
        except BaseException:  # a KeyboardInterrupt, most likely: nobody waits for the call any more
            self._thread.soon(call.cancel)
            raise
        return call.result()


class Cluster(_BlockingSurface, ClusterSurface):
    """This process's membership. Made by `join`; valid within its block, in any thread."""

    def __init__(self, hosted: Portal[_Trio], thread: _TrioThread) -> None:
        super().__init__(hosted.inside._driver)
        self._hosted = hosted
        self._thread = thread
        self._cluster = hosted.inside

    leave = _forward(_Trio.leave)
    set_metadata = _forward(_Trio.set_metadata)
    evict = _forward(_Trio.evict)
    edge_failed = _forward(_Trio.edge_failed)
    recover = _forward(_Trio.recover)

    def suspicions(self) -> Suspicions | None:
        """As `membership.Cluster.suspicions`."""

        async def suspicions() -> Suspicions | None:
            return self._cluster.suspicions()

        return self._call(suspicions)


class Ensemble(_BlockingSurface, EnsembleSurface):
    """This process's part in an ensemble. Made by `serve_ensemble`; valid within its block, in any thread."""

    def __init__(self, hosted: Portal[membership.ensemble_service.Ensemble], thread: _TrioThread) -> None:
        inside = hosted.inside
        super().__init__(inside._voter, inside.transport, inside._published)
        self._hosted = hosted
        self._thread = thread


class ChangeFeed(Subscription):
    """One subscriber's changes: an iterator, as `membership.ChangeFeed`. For one thread at a time."""

    def __init__(self, state: ClusterState) -> None:
        self._news = threading.Event()
        super().__init__(state)

    def wake(self) -> None:
        """As in `Subscription`."""
        self._news.set()

    def __iter__(self) -> Iterator[Change]:
        return self

    def __next__(self) -> Change:
        """The next change, as soon as there is one. Raises MembershipEndedError after a failure."""
        change = self.next_within(None)
        if change is None:
            raise StopIteration
        return change

    def next_within(self, seconds: float | None) -> Change | None:
        """The next change, or None when there is none in time or there will be none any more (`ended`)."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            self._news.clear()
            change = self.take()
            if change is not None or self.ended:
                return change
            if not self._news.wait(None if until is None else max(0.0, until - time.monotonic())):
                return None


class _TrioThread:
    """Runs one call in trio, in a thread of its own."""

    def __init__(self, call: Call[None]) -> None:
        self._call = call
        self._token: trio.lowlevel.TrioToken | None = None
        self._started = threading.Event()
        self._over = threading.Event()
        # Should the block be abandoned, as when the interpreter exits in the middle of it, this process
        # vanishes from the cluster instead of hanging.
        self._thread = threading.Thread(target=self._run, name="membership", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # a defect of trio: whoever waits must hear of it
            self._call.fail(error)
        finally:
            self._started.set()
            self._over.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._started.set()
        await self._call.run()

    def soon(self, function: Callable[[], object]) -> None:
        """Call `function` in trio's thread. Raises MembershipEndedError when that has ended."""
        self._started.wait()
        if threading.current_thread() is self._thread:
            raise WrongThreadError("this is the thread that runs the membership: it must not wait for itself")
        try:
            if self._token is None:
                raise trio.RunFinishedError
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            raise MembershipEndedError("the block is over: begin another one") from None

    def end(self, function: Callable[[], object]) -> None:
        """Call `function`, which must make the call end, and wait for that."""
        with contextlib.suppress(MembershipEndedError):
            self.soon(function)
        self._over.wait()  # in Python 3.11 an interrupted Thread.join takes the thread for ended
        self._thread.join()


@contextmanager
def _enter(block: Block[S], surface: Callable[[Portal[S], _TrioThread], F]) -> Iterator[F]:
    ready = threading.Event()
    hosted = Portal(block, ready.set)
    call = Call(hosted.run, ready.set)
    thread = _TrioThread(call)
    try:
        ready.wait()
        if hosted.entered:
            yield surface(hosted, thread)
    finally:
        try:
            thread.end(hosted.leave if hosted.entered else hosted.vanish)
        except BaseException:  # interrupted again: do not insist on a graceful leave
            thread.end(hosted.vanish)
            raise
        call.result()


def _facade(
    block: Callable[P, AbstractAsyncContextManager[S]], surface: Callable[[Portal[S], _TrioThread], F]
) -> Callable[P, AbstractContextManager[F]]:
    @functools.wraps(block)
    def facade(*args: P.args, **options: P.kwargs) -> AbstractContextManager[F]:
        return _enter(lambda: block(*args, **options), surface)

    return facade


__all__ = ["ChangeFeed", "Cluster", "Ensemble", "WrongThreadError", "join", "serve_ensemble"]

join = _facade(membership.cluster.join, Cluster)
"""`membership.join` for threads, with the same arguments and errors. Every way out of the block leaves
gracefully, in bounded time; a second KeyboardInterrupt meanwhile makes the process vanish at once."""

serve_ensemble = _facade(membership.ensemble_service.serve_ensemble, Ensemble)
"""`membership.serve_ensemble` for threads, with the same arguments and errors."""


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
