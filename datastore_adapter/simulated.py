"""A whole cluster of the log's state machines in virtual time, deterministic by seed.

What it is: an event loop with its own clock, a network that delays, loses, partitions, and hosts that crash
and restart from what their storage kept.  Client, reconfiguration and adapter run on it unchanged.
What it is not: fault schedules or invariants; whoever hosts it brings them (tests, `chaos`).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from itertools import count
from typing import Any, TypeVar

from datastore_adapter.errors import CallTimeoutError, LogError, PeerUnreachableError, StorageError
from datastore_adapter.memory_storage import MemoryStorage
from datastore_adapter.messages import (
    Refused,
    Reply,
    Request,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from datastore_adapter.node import LogNode
from datastore_adapter.settings import LogSettings

T = TypeVar("T")


class DeadlockError(Exception):
    """Nothing is left to happen, and the task waited for has not ended."""


class _Cancelled(BaseException):
    """Thrown into a cancelled task."""


class _Wait:
    """Suspends the task until somebody resumes it with a value or an error."""

    __slots__ = ()

    def __await__(self) -> Generator[_Wait, Any, Any]:
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
            self.resume(error=_Cancelled())

    def ticket(self) -> int:
        """Names the next suspension, so that a late wake-up of an earlier one is ignored."""
        self._wake += 1
        return self._wake

    def wake(self, ticket: int, value: Any = None, error: BaseException | None = None) -> None:
        if ticket == self._wake and not self.ended:
            self.resume(value, error)

    def resume(self, value: Any = None, error: BaseException | None = None) -> None:
        self._wake += 1
        self._loop.schedule(0.0, lambda: self._step(value, error))

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
        except (_Cancelled, Exception) as failure:
            self._end(None, failure)
        finally:
            self._loop.current = former

    def _end(self, result: Any, error: BaseException | None) -> None:
        self.ended, self.result, self.error = True, result, error
        self.on_end()


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
            await _Wait()


class VirtualLoop:
    """Events in order of virtual time, then of scheduling."""

    def __init__(self) -> None:
        self.now = 0.0
        self.current: Task | None = None
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def schedule(self, delay: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._numbers), action))

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Task:
        task = Task(self, coroutine)
        task.resume()
        return task

    def run_until(self, done: Callable[[], bool], limit: float) -> None:
        """Run events until `done()`; raises DeadlockError when none is left, or at time `limit`."""
        while not done():
            if not self._events:
                raise DeadlockError(f"nothing left to do at {self.now:.3f} s")
            if self._events[0][0] > limit:
                raise DeadlockError(f"not done at the limit of {limit:.3f} s")
            self.now, _, action = heapq.heappop(self._events)
            action()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float = 600.0) -> T:
        """Run a coroutine to its end; its result or error.  `timeout` in virtual seconds."""
        task = self.start(coroutine)
        self.run_until(lambda: task.ended, self.now + timeout)
        if task.error is not None:
            raise task.error
        result: T = task.result
        return result


class SimulatedHost:
    """One host: its storage, and its node while it runs."""

    def __init__(self, name: str, settings: LogSettings) -> None:
        self.name = name
        self.address = f"{name}:1"
        self.storage = MemoryStorage()
        self.settings = settings
        self.node: LogNode | None = None
        self.start()

    def start(self) -> None:
        self.node = LogNode(self.name, self.storage, self.settings)

    def crash(self, rng: random.Random) -> None:
        """Power loss."""
        self.node = None
        self.storage.crash(rng)

    def erase(self) -> None:
        """The disk is replaced by an empty one; only while it is down."""
        self.storage = MemoryStorage()


class SimulatedCluster:
    """Hosts by name and the network between them.  Clients are called by their runtime's name."""

    def __init__(
        self,
        names: Iterable[str],
        *,
        seed: int = 0,
        settings: LogSettings | None = None,
        delay: tuple[float, float] = (0.0002, 0.002),
    ) -> None:
        self.loop = VirtualLoop()
        self.random = random.Random(seed)
        self.settings = settings or LogSettings.local()
        self.delay = delay
        self.loss = 0.0
        """Share of requests and of replies that are lost."""
        self.blocked: set[tuple[str, str]] = set()
        """Pairs (from, to) of names between which nothing passes."""
        self.hosts = {name: SimulatedHost(name, self.settings) for name in names}
        self._by_address = {host.address: host for host in self.hosts.values()}
        self.on_request: Callable[[str, str, Request], None] = lambda source, destination, request: None
        """Called before a request is handled: (source, destination, request); may crash hosts."""

    @property
    def addresses(self) -> dict[str, str]:
        """Host name -> address, of the hosts that run."""
        return {name: host.address for name, host in self.hosts.items() if host.node is not None}

    def runtime(self, name: str) -> SimulatedRuntime:
        """A runtime for procedures on host `name` (or on a client of that name)."""
        return SimulatedRuntime(self, name, random.Random(self.random.getrandbits(64)))

    def node(self, name: str) -> LogNode:
        node = self.hosts[name].node
        assert node is not None, f"{name} is down"
        return node

    def crash(self, name: str) -> None:
        self.hosts[name].crash(self.random)

    def restart(self, name: str) -> None:
        self.hosts[name].start()

    def isolate(self, name: str, others: Iterable[str]) -> None:
        """Cut `name` off from `others`, both ways."""
        for other in others:
            self.blocked |= {(name, other), (other, name)}

    def move(self, name: str, address: str) -> None:
        """Give a host another address; nobody is told."""
        host = self.hosts[name]
        del self._by_address[host.address]
        host.address = address
        self._by_address[address] = host

    def heal(self) -> None:
        self.blocked.clear()
        self.loss = 0.0

    def passes(self, source: str, destination: str) -> bool:
        return (source, destination) not in self.blocked and self.random.random() >= self.loss

    def latency(self) -> float:
        return self.random.uniform(*self.delay)

    def host_at(self, address: str) -> SimulatedHost | None:
        return self._by_address.get(address)


class SimulatedRuntime:
    """`runtime.Runtime` on a simulated cluster."""

    def __init__(self, cluster: SimulatedCluster, name: str, rng: random.Random) -> None:
        self._cluster = cluster
        self._loop = cluster.loop
        self._name = name
        self._random = rng
        self.failures: list[BaseException] = []
        """Errors of spawned tasks, which should have none."""

    @property
    def random(self) -> random.Random:
        return self._random

    def now(self) -> float:
        return self._loop.now

    async def sleep(self, seconds: float) -> None:
        task = self._current()
        ticket = task.ticket()
        self._loop.schedule(seconds, lambda: task.wake(ticket))
        await _Wait()

    async def call(self, address: str, request: Request, timeout: float) -> Reply:
        """The request and the reply go through the codec, as they would on a wire."""
        task = self._current()
        ticket = task.ticket()
        late = CallTimeoutError(f"{address} did not answer within {timeout:g} s")
        self._loop.schedule(timeout, lambda: task.wake(ticket, error=late))
        host = self._cluster.host_at(address)
        frame = encode_request(0, request)

        def refuse() -> None:
            task.wake(ticket, error=PeerUnreachableError(f"{address} refuses connections"))

        def deliver() -> None:
            if host is None or host.node is None:
                if self._cluster.passes(host.name if host else address, self._name):
                    self._loop.schedule(self._cluster.latency(), refuse)
                return
            reply = self._handle(host, frame)
            if reply is not None and self._cluster.passes(host.name, self._name):
                self._loop.schedule(
                    self._cluster.latency(), lambda: task.wake(ticket, decode_reply(reply).reply)
                )

        if self._cluster.passes(self._name, host.name if host else address):
            self._loop.schedule(self._cluster.latency(), deliver)
        reply: Reply = await _Wait()
        return reply

    def _handle(self, host: SimulatedHost, frame: bytes) -> bytes | None:
        """The reply of a host, or None when it crashed over the request."""
        request = decode_request(frame).request
        self._cluster.on_request(self._name, host.name, request)
        node = host.node
        if node is None:
            return None
        outcome = node.handle(request)
        if outcome.needs_commit:
            try:
                node.log_unit.commit()
            except StorageError as error:
                return encode_reply(0, Refused("storage", str(error)))
        return encode_reply(0, outcome.reply)

    async def gather(
        self,
        calls: Sequence[Callable[[], Awaitable[T]]],
        enough: Callable[[Sequence[T | LogError | None]], bool] | None = None,
    ) -> list[T | LogError | None]:
        results: list[T | LogError | None] = [None] * len(calls)
        if not calls:
            return results
        parent = self._current()
        ticket = parent.ticket()
        tasks = [self._loop.start(_call(call)) for call in calls]
        open_tasks = len(tasks)

        def ended(index: int) -> None:
            nonlocal open_tasks
            open_tasks -= 1
            task = tasks[index]
            if isinstance(task.error, LogError):
                results[index] = task.error
            elif task.error is not None and not isinstance(task.error, _Cancelled):
                parent.wake(ticket, error=task.error)
                return
            elif task.error is None:
                results[index] = task.result
            if open_tasks == 0 or (enough is not None and enough(results)):
                parent.wake(ticket)

        for index, task in enumerate(tasks):
            task.on_end = lambda index=index: ended(index)  # type: ignore[misc]  # a default binds the index
        try:
            await _Wait()
        finally:
            for task in tasks:
                task.on_end = lambda: None
                task.cancel()
        return results

    def event(self) -> SimulatedEvent:
        return SimulatedEvent(self._loop)

    def spawn(self, task: Callable[[], Awaitable[None]]) -> Task:
        started = self._loop.start(_call(task))

        def ended() -> None:
            if started.error is not None and not isinstance(started.error, _Cancelled):
                self.failures.append(started.error)

        started.on_end = ended
        return started

    def _current(self) -> Task:
        assert self._loop.current is not None, "procedures run inside a task of the virtual loop"
        return self._loop.current


async def _call(function: Callable[[], Awaitable[T]]) -> T:
    return await function()
