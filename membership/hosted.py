"""Membership for a host that is not trio: what the facades for asyncio and for threads have in common.

What it is: the trio side of both. `HostedMembership` is a task that holds a `join` open until the host lets
go of it; `Call` is one trio function run on the host's behalf, which the host may wait for or cancel.
What it is not: a way to wait outside of trio; each facade brings its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, NoReturn, TypeAlias, TypeVar

import trio

from membership.change import MembershipEndedError
from membership.cluster import Cluster

T = TypeVar("T")

Join: TypeAlias = Callable[[], AbstractAsyncContextManager[Cluster]]
"""`membership.join` with its arguments."""


class Call(Generic[T]):
    """One call of a trio function. Everything but `result` happens in the thread that runs trio."""

    def __init__(self, function: Callable[[], Awaitable[T]], finished: Callable[[], object]) -> None:
        """`finished` is called when there is a result; it must not raise."""
        self._function = function
        self._finished = finished
        self._scope = trio.CancelScope()
        self._result: Callable[[], T] | None = None

    async def run(self) -> None:
        """Run the function; never raises, but for a cancellation from outside."""
        try:
            with self._scope:
                value = await self._function()
                self._result = lambda: value
        except trio.Cancelled:
            raise
        except BaseException as error:
            self._result = _raising(error)
        finally:
            self._finished()

    def fail(self, error: BaseException) -> None:
        """Do not run it: this is its result."""
        self._result = _raising(error)
        self._finished()

    def cancel(self) -> None:
        """Give it up; `finished` is still called, soon."""
        self._scope.cancel()

    def result(self) -> T:
        """What the function returned or raised. Raises MembershipEndedError if it was cut short."""
        if self._result is None:
            raise MembershipEndedError("the membership ended before the call did: its outcome is not known")
        return self._result()


def _raising(error: BaseException) -> Callable[[], NoReturn]:
    def result() -> NoReturn:
        raise error

    return result


class HostedMembership:
    """A `join` that stays open until `leave` or `vanish`. `run` it in a task of its own."""

    def __init__(self, join: Join, entered: Callable[[], object]) -> None:
        """`entered` is called in trio's thread once this process is a member and `cluster` is set."""
        self.cluster: Cluster | None = None
        self._join = join
        self._entered = entered
        self._over = trio.Event()
        self._scope = trio.CancelScope()
        self._calls: trio.Nursery | None = None

    async def run(self) -> None:
        """Join, stay, and go. Raises what `join` raises."""
        with self._scope:
            async with self._join() as cluster, trio.open_nursery() as calls:
                self.cluster, self._calls = cluster, calls
                self._entered()
                try:
                    await self._over.wait()
                finally:
                    self._calls = None
                    calls.cancel_scope.cancel()

    def start(self, call: Call[T]) -> None:
        """Run `call` as long as the membership lasts; afterwards it has finished, in one way or other."""
        if self._calls is None:
            call.fail(MembershipEndedError("the block of this cluster is over: join again"))
        else:
            self._calls.start_soon(call.run)

    def leave(self) -> None:
        """End as a trio block ends: leave gracefully, in bounded time."""
        self._over.set()

    def vanish(self) -> None:
        """End as a cancelled trio block ends: without a word."""
        self._scope.cancel()
