"""Tasks in virtual time: an event loop with its own clock, for the simulated cluster of the log.

Coroutines that suspend themselves until somebody wakes them, and events in order of time.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any, TypeVar

T = TypeVar("T")


class DeadlockError(Exception):
    """Nothing is left to happen, and the task waited for has not ended."""


class Cancelled(BaseException):
    """Thrown into a cancelled task."""


class Wait:
    """Suspends the task until somebody resumes it with a value or an error."""

    __slots__ = ()

    def __await__(self) -> Generator[Wait, Any, Any]:
        return (yield self)


class Task:
    """One coroutine run by the loop."""

    def __init__(self, loop: VirtualLoop, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._loop = loop
        self._coroutine = coroutine
        self._wake = 0
        self.ended = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.on_end: Callable[[], None] = lambda: None

    def cancel(self) -> None:
        if not self.ended:
            self.resume(error=Cancelled())

    def ticket(self) -> int:
        """Names the next suspension, so that a late wake-up of an earlier one is ignored."""
        self._wake += 1
        return self._wake

    def wake(self, ticket: int, value: Any = None, error: BaseException | None = None) -> None:
        if ticket == self._wake and not self.ended:
            self.resume(value, error)

    def resume(self, value: Any = None, error: BaseException | None = None) -> None:
        self._wake += 1
        self._loop.schedule(0.0, partial(self._step, value, error))

    def _step(self, value: Any, error: BaseException | None) -> None:
        if self.ended:
            return
        former, self._loop.current = self._loop.current, self
        try:
            if error is not None:
                self._coroutine.throw(error)
            else:
                self._coroutine.send(value)
        except StopIteration as stop:
            self._end(stop.value, None)
        except Cancelled as end:
            self._end(
                None, end.with_traceback(None)
            )  # nobody reads it, and it would keep what it leads to alive
        except Exception as failure:  # whoever waits for the task judges
            self._end(None, failure)
        finally:
            self._loop.current = former
            del error  # it leads back to this frame

    def _end(self, result: Any, error: BaseException | None) -> None:
        self.ended, self.result, self.error = True, result, error
        self._loop.forget(self)
        self.on_end()

    def end_now(self) -> None:
        """Cancel it, and let it end before anything else happens."""
        self._step(None, Cancelled())


class SimulatedEvent:
    """`runtime.Event` for tasks of a virtual loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._is_set = False
        self._waiting: list[tuple[Task, int]] = []

    def set(self) -> None:
        self._is_set = True
        for task, ticket in self._waiting:
            task.wake(ticket)
        self._waiting.clear()

    async def wait(self) -> None:
        if not self._is_set:
            task = self._loop.current
            assert task is not None, "only tasks of the virtual loop wait"
            self._waiting.append((task, task.ticket()))
            await Wait()


class VirtualLoop:
    """Events in order of virtual time, then of scheduling."""

    def __init__(self) -> None:
        self.now = 0.0
        self.current: Task | None = None
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._cancelled: set[int] = set()
        """Of the events, those that are not to happen."""
        self._tasks: dict[Task, None] = {}
        """Those that have not ended."""

    def close(self) -> None:
        """End every task, so that none is found suspended by whoever collects the garbage."""
        for task in list(self._tasks):
            task.end_now()

    def forget(self, task: Task) -> None:
        """This one has ended."""
        self._tasks.pop(task, None)

    def schedule(self, delay: float, action: Callable[[], None]) -> int:
        """Let this happen in so many seconds; a number to `cancel` it by."""
        number = next(self._numbers)
        heappush(self._events, (self.now + delay, number, action))
        return number

    def cancel(self, number: int) -> None:
        """An event that was scheduled and has not happened is not to happen; time passes as if it did."""
        self._cancelled.add(number)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Task:
        task = Task(self, coroutine)
        self._tasks[task] = None
        task.resume()
        return task

    @property
    def next_at(self) -> float:
        """When the next event is due; infinite when there is none."""
        return self._events[0][0] if self._events else inf

    def step(self) -> None:
        """Let the next event happen, at its time."""
        self.now, number, action = heappop(self._events)
        if number in self._cancelled:
            self._cancelled.remove(number)
        else:
            action()

    def run_before(self, limit: float, interrupted: Callable[[], bool]) -> None:
        """Let everything happen that is due before `limit`, until `interrupted()`, asked after each event."""
        events, cancelled = self._events, self._cancelled
        while events and events[0][0] < limit:
            self.now, number, action = heappop(events)
            if number in cancelled:
                cancelled.remove(number)
                continue
            action()
            if interrupted():
                return

    def run_until(self, done: Callable[[], bool], limit: float) -> None:
        """Run events until `done()`; raises DeadlockError when none is left, or at time `limit`."""
        while not done():
            if not self._events:
                raise DeadlockError(f"nothing left to do at {self.now:.3f} s")
            if self._events[0][0] > limit:
                raise DeadlockError(f"not done at the limit of {limit:.3f} s")
            self.step()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float = 600.0) -> T:
        """Run a coroutine to its end; its result or error.  `timeout` in virtual seconds."""
        task = self.start(coroutine)
        self.run_until(lambda: task.ended, self.now + timeout)
        if task.error is not None:
            raise task.error
        result: T = task.result
        return result
