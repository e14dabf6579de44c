"""A whole cluster of the log's state machines in virtual time, deterministic by seed.

A network that delays, loses, partitions, and hosts that crash and restart from what their storage kept.  Client,
reconfiguration and adapter run on it unchanged.  Fault schedules and invariants are brought by whoever hosts it
(tests, `chaos`).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import count
from typing import TypeVar

from datastore_adapter.log.errors import (
    CallError,
    CallTimeoutError,
    LogError,
    PeerUnreachableError,
    StorageError,
)
from datastore_adapter.log.host.node import LogNode, Part, part_of
from datastore_adapter.log.log_unit.pulling import pull
from datastore_adapter.log.messages import (
    PullChunk,
    Reclaim,
    Refused,
    Reply,
    Request,
)
from datastore_adapter.log.messages.codec import decode_reply, decode_request, encode_reply, encode_request
from datastore_adapter.log.runtime.runtime import Peer, answer_of, whoever_at
from datastore_adapter.log.runtime.virtual_loop import Cancelled, SimulatedEvent, Task, VirtualLoop, Wait
from datastore_adapter.log.settings import LogSettings
from datastore_adapter.log.storage.memory_storage import MemoryStorage

T = TypeVar("T")


class SimulatedHost:
    """One host: its storage, and its node while it runs."""

    def __init__(self, name: str, settings: LogSettings, address: str, rng: random.Random) -> None:
        self.name = name
        self.address = address
        self.storage = MemoryStorage()
        self.settings = settings
        self.node: LogNode | None = None
        self._random = rng
        self.start()

    def start(self) -> None:
        draw = self._random.randbytes
        is_copy = self.storage.is_copy
        self.node = LogNode(self.name, self.storage, self.settings, is_copy=is_copy, draw=draw)
        self.storage.is_copy = False

    def crash(self, rng: random.Random) -> None:
        """Power loss."""
        self.node = None
        self.storage.crash(rng)

    # What an operator, or decay, does to the disk of a host that is down.

    def erase(self) -> None:
        """The disk is replaced by an empty one."""
        self.storage = MemoryStorage()

    def copy_disk(self) -> MemoryStorage:
        """A copy of the disk as it is."""
        return self.storage.copy()

    def restore_disk(self, copy: MemoryStorage) -> None:
        """Put the files of a copy in place of what there is."""
        self.storage = copy.copy()

    def swap_disk(self, other: MemoryStorage) -> MemoryStorage:
        """Put in another disk that this host had before, as it was taken out; the one taken out now."""
        mine, self.storage = self.storage, other
        return mine

    def lose_file(self) -> str | None:
        """One file vanishes; which."""
        names = self.storage.names("")
        if not names:
            return None
        name = self._random.choice(names)
        self.storage.remove(name)
        return name


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
        self._seed = seed
        self.settings = settings or LogSettings.local()
        self.delay = delay
        self.loss = 0.0
        """Share of requests and of replies that are lost."""
        self.blocked: set[tuple[str, str]] = set()
        """Pairs (from, to) of names between which nothing passes."""
        self.link: Callable[[str, str], float | None] | None = None
        """Asked, in place of the three above, how many seconds a message takes (from, to); None: it is lost."""
        self._paused: dict[str, list[Callable[[], None]]] = {}
        self.hosts: dict[str, SimulatedHost] = {}
        self._by_address: dict[str, SimulatedHost] = {}
        for name in names:
            self.add(name, f"{name}:1")
        self.on_request: Callable[[str, str, Request], None] = lambda source, destination, request: None
        """Called before a request is handled: (source, destination, request); may crash hosts."""

    @property
    def addresses(self) -> dict[str, str]:
        """Host name -> address, of the hosts that run."""
        return {name: host.address for name, host in self.hosts.items() if host.node is not None}

    @property
    def vacant(self) -> list[str]:
        """Addresses of hosts that are down, which another one may get."""
        return sorted(address for address, host in self._by_address.items() if host.node is None)

    def runtime(self, name: str) -> SimulatedRuntime:
        """A runtime for procedures on host `name` (or on a client of that name)."""
        return SimulatedRuntime(self, name, random.Random(self.random.getrandbits(64)))

    def node(self, name: str) -> LogNode:
        node = self.hosts[name].node
        assert node is not None, f"{name} is down"
        return node

    def add(self, name: str, address: str) -> None:
        """One more host; it runs."""
        # Of its own, so that what a host draws for its disk changes nothing on the network.
        rng = random.Random(f"{self._seed} {name}")
        host = self.hosts[name] = self._by_address[address] = SimulatedHost(name, self.settings, address, rng)
        assert host.node is not None

    def crash(self, name: str) -> None:
        self._paused.pop(name, None)
        self.hosts[name].crash(self.random)

    def pause(self, name: str) -> None:
        """Stop all processes on a host without their noticing: what comes waits, timers are late."""
        self._paused.setdefault(name, [])

    def resume(self, name: str) -> None:
        """Let a paused host go on with what has come meanwhile."""
        for action in self._paused.pop(name, []):
            self.loop.schedule(0.0, partial(self.when_running, name, action))

    def when_running(self, name: str, action: Callable[[], None]) -> None:
        """Do this on host `name`: now, or as soon as it is no longer paused."""
        if name in self._paused:
            self._paused[name].append(action)
        else:
            action()

    def restart(self, name: str) -> None:
        """At its address, or at a new one if another host has that by now."""
        host = self.hosts[name]
        if self.host_at(host.address) is not host:
            self.move(name, next(at for n in count(2) if self.host_at(at := f"{name}:{n}") is None))
        host.start()

    def isolate(self, name: str, others: Iterable[str]) -> None:
        """Cut `name` off from `others`, both ways."""
        for other in others:
            self.blocked |= {(name, other), (other, name)}

    def move(self, name: str, address: str) -> None:
        """Give a host another address; nobody is told.

        It may be one that another host had, which is down: from now on this one answers there.  So it is with a host
        that is added.
        """
        host, other = self.hosts[name], self.host_at(address)
        assert other is None or other is host or other.node is None, f"{other.name} runs at {address}"
        if self._by_address.get(host.address) is host:
            del self._by_address[host.address]
        host.address = address
        self._by_address[address] = host

    def heal(self) -> None:
        self.blocked.clear()
        self.loss = 0.0

    def passes(self, source: str, destination: str) -> bool:
        return (source, destination) not in self.blocked and self.random.random() >= self.loss

    def transit(self, source: str, destination: str) -> float | None:
        """Seconds a message takes; None when it does not arrive."""
        if self.link is not None:
            return self.link(source, destination)
        return self.random.uniform(*self.delay) if self.passes(source, destination) else None

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
        self.ended = False
        """Whether the process is gone: it sends nothing any more."""
        self._spawned: dict[Task, None] = {}

    def end(self) -> None:
        """The process is gone: so are the tasks in its background, and nothing is sent any more."""
        self.ended = True
        for task in list(self._spawned):
            task.cancel()

    @property
    def random(self) -> random.Random:
        return self._random

    def now(self) -> float:
        return self._loop.now

    async def sleep(self, seconds: float) -> None:
        task = self._current()
        ticket = task.ticket()
        self._later(seconds, lambda: task.wake(ticket))
        await Wait()

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do this in so many seconds, if this host runs then."""
        self._loop.schedule(seconds, partial(self._cluster.when_running, self._name, action))

    async def call(self, peer: Peer | str, request: Request, timeout: float) -> Reply:
        """The request and the reply go through the codec, as they would on a wire.

        A bare address is whoever is there.
        """
        peer = whoever_at(peer) if isinstance(peer, str) else peer
        task = self._current()
        ticket = task.ticket()
        expired = False

        def give_up() -> None:
            late = CallTimeoutError(f"{peer.address} did not answer within {timeout:g} s")
            task.wake(ticket, error=late)

        def expire() -> None:
            nonlocal expired
            expired = True
            self._cluster.when_running(self._name, give_up)

        deadline = self._loop.schedule(timeout, expire)
        host = self._cluster.host_at(peer.address)
        name = host.name if host else peer.address

        def end(outcome: Reply | CallError) -> None:
            back = self._cluster.transit(name, self._name)
            if back is not None:
                self._later(back, partial(wake, outcome))

        def wake(outcome: Reply | CallError) -> None:
            if isinstance(outcome, CallError):
                task.wake(ticket, error=outcome)
            else:
                task.wake(ticket, outcome)

        there = self._cluster.transit(self._name, name)
        if there is not None and not self.ended:
            arrive = partial(self.exchange, peer, request, end)
            self._loop.schedule(there, partial(self._cluster.when_running, name, arrive))
        try:
            reply: Reply = await Wait()
            return reply
        finally:
            if not expired:
                self._loop.cancel(deadline)

    def exchange(self, peer: Peer, request: Request, end: Callable[[Reply | CallError], None]) -> None:
        """A request arrives at an address; `end` gets what whoever is there answers, if anything."""
        host = self._cluster.host_at(peer.address)
        if host is None or host.node is None:
            end(PeerUnreachableError(f"{peer.address} refuses connections"))
            return
        by = host.node.me
        received = decode_request(encode_request(0, request, peer.identity))

        def respond(reply: Reply) -> None:
            end(answer_of(peer, decode_reply(encode_reply(0, reply, by))))

        refusal = host.node.misdirected(received.to)
        if refusal is not None:
            respond(refusal)
        elif part_of(request) is Part.PULL:
            self._pull(host, received.request, respond)
        else:
            reply = self._handle(host, received.request)
            if reply is not None:
                respond(reply)

    def _handle(self, host: SimulatedHost, request: Request) -> Reply | None:
        """The reply of a host, or None when it crashed over the request."""
        self._cluster.on_request(self._name, host.name, request)
        node = host.node
        if node is None:
            return None
        outcome = node.handle(request)
        if outcome.needs_commit:
            try:
                node.log_unit.commit()
            except StorageError as error:
                return Refused("storage", str(error))
        return outcome.reply

    def _pull(self, host: SimulatedHost, request: Request, respond: Callable[[Reply], None]) -> None:
        """A host asks another one; nothing comes of it when it crashes meanwhile."""
        assert isinstance(request, PullChunk | Reclaim)
        self._cluster.on_request(self._name, host.name, request)
        node = host.node
        if node is None:
            return
        runtime = self._cluster.runtime(host.name)

        async def ask_unit(change: Request) -> Reply:
            reply = runtime._handle(host, change) if host.node is node else None
            return Refused("crashed", "the host crashed") if reply is None else reply

        started = self._loop.start(pull(runtime, host.settings, node.document, ask_unit, request))

        def ended() -> None:
            if started.error is not None:
                self.failures.append(started.error)
            elif host.node is node:
                respond(started.result)

        started.on_end = ended

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
            error, task.error = task.error, None  # it leads to frames that lead to the task
            if isinstance(error, LogError):
                results[index] = error.with_traceback(None)  # a value from here on
            elif error is not None and not isinstance(error, Cancelled):
                parent.wake(ticket, error=error)
                return
            elif error is None:
                results[index] = task.result
            if open_tasks == 0 or (enough is not None and enough(results)):
                parent.wake(ticket)

        for index, task in enumerate(tasks):
            task.on_end = lambda index=index: ended(index)  # type: ignore[misc]  # a default binds the index
        try:
            await Wait()
        finally:
            for task in tasks:
                task.on_end = lambda: None
                task.cancel()
        return results

    def event(self) -> SimulatedEvent:
        return SimulatedEvent(self._loop)

    def spawn(self, task: Callable[[], Awaitable[None]]) -> Task:
        started = self._loop.start(_call(task))

        self._spawned[started] = None

        def ended() -> None:
            del self._spawned[started]
            if started.error is not None and not isinstance(started.error, Cancelled):
                self.failures.append(started.error)

        started.on_end = ended
        return started

    def _current(self) -> Task:
        assert self._loop.current is not None, "procedures run inside a task of the virtual loop"
        return self._loop.current


async def _call(function: Callable[[], Awaitable[T]]) -> T:
    return await function()
