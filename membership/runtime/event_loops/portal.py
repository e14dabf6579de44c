"""A portal into trio, for a host that is an asyncio loop or a thread: what `aio` and `blocking` have in common.

`Portal` is a trio task that holds a `join` or `serve_ensemble` open until the host lets go of it. `Call` is one trio
function run on the host's behalf, which the host may wait for or cancel.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, NoReturn, TypeAlias, TypeVar

import trio

from membership.runtime.change_feed import MembershipEndedError

T = TypeVar("T")
S = TypeVar("S")

Block: TypeAlias = Callable[[], AbstractAsyncContextManager[S]]
"""`membership.join` or `membership.serve_ensemble` with its arguments."""


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


class Portal(Generic[S]):
    """A `join` or `serve_ensemble` that stays open until `leave` or `vanish`. `run` it in a task of its own."""

    def __init__(self, block: Block[S], entered: Callable[[], object]) -> None:
        """`entered` is called in trio's thread once the block has begun."""
        self.entered = False
        self._block = block
        self._enter = entered
        self._inside: S | None = None
        self._over = trio.Event()
        self._scope = trio.CancelScope()
        self._calls: trio.Nursery | None = None

    @property
    def inside(self) -> S:
        """The `Cluster` or `Ensemble`, once it was entered."""
        assert self._inside is not None, "entered"
        return self._inside

    async def run(self) -> None:
        """Enter, stay, and go. Raises what the block raises."""
        with self._scope:
            async with self._block() as inside, trio.open_nursery() as calls:
                self._inside, self._calls = inside, calls
                self.entered = True
                self._enter()
                try:
                    await self._over.wait()
                finally:
                    self._calls = None
                    calls.cancel_scope.cancel()

    def start(self, call: Call[T]) -> None:
        """Run `call` as long as the block lasts; afterwards it has finished, in one way or other."""
        if self._calls is None:
            call.fail(MembershipEndedError("the block is over: begin another one"))
        else:
            self._calls.start_soon(call.run)

    def leave(self) -> None:
        """End as a trio block ends: leave gracefully, in bounded time."""
        self._over.set()

    def vanish(self) -> None:
        """End as a cancelled trio block ends: without a word."""
        self._scope.cancel()
