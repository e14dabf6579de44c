"""A whole cluster of the log's state machines in virtual time, deterministic by seed.

A network that delays, loses, partitions, and hosts that crash and restart from what their disks kept: the real files
of the log, on a simulated file system.  Client, reconfiguration and adapter run on it unchanged.  Fault schedules and
invariants are brought by whoever hosts it (tests, `chaos`).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

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
from datastore_adapter.log.storage.disk_health import CARE_INTERVAL
from datastore_adapter.log.storage.file_storage import FileStorage
from membership.files.simulated import PowerCut, SimulatedFiles

T = TypeVar("T")

DIRECTORY: Final = "/log"
"""Of the log, on each host's disk."""
COMMIT_LOG_BYTES: Final = 16 * 4096
"""So little that a short run sees the commit logs turn."""
_CHECKPOINT_SECONDS: Final = 0.05
"""Within which work in the background begins, unless it is waited for."""


class _Waiting(NamedTuple):
    """A request that has come to a host."""

    source: str
    request: Request
    respond: Callable[[Reply | None], None]
    """None: the host has crashed over it."""


class SimulatedHost:
    """One host: its disk, and its node while it runs."""

    def __init__(self, name: str, address: str, cluster: SimulatedCluster, rng: random.Random) -> None:
        self.name = name
        self.address = address
        self.settings = cluster.settings
        self.storage = SimulatedFiles(random.Random(rng.getrandbits(64)))
        self.node: LogNode | None = None
        self.files: FileStorage | None = None
        """Of the log there; of the process that runs, or ran last."""
        self.waiting: list[_Waiting] = []
        """What came while the process waited for its disk."""
        self.busy_until = 0.0
        self._cluster = cluster
        self._random = rng
        self._cared_for: LogNode | None = None
        self._own_disks: set[int] = set()
        """Those that a process here has used."""

    def start(self, *, is_copy: bool | None = None) -> None:
        """`is_copy`: whether the disk is a copy; None: if no process here has used it before.

        Raises StorageError, and PowerCut.
        """
        self.storage.power_on()
        identity = self.storage.identity
        if is_copy is None:
            is_copy = identity not in self._own_disks and bool(self.storage.files())
        try:
            self.files = FileStorage(
                Path(DIRECTORY),
                fsync=self.settings.fsync,
                commit_log_bytes=COMMIT_LOG_BYTES,
                reserve=self.settings.reserved_bytes,
                system=self.storage,
                background=self._in_background,
                draw=self._random.randbytes,
            )
            disk, loop = self.storage, self._cluster.loop
            self.node = LogNode(
                self.name,
                self.files,
                self.settings,
                is_copy=is_copy,
                draw=self._random.randbytes,
                clock=lambda: loop.now + disk.busy_seconds,
            )
        except StorageError:
            self.storage.kill()
            raise
        self._own_disks.add(identity)

    def _in_background(self, work: Callable[[], None]) -> Callable[[], None]:
        """Soon, or once it is waited for; as a thread of the process, it ends with it."""
        is_pending = True
        files = self.files

        def carry_out() -> None:
            nonlocal is_pending
            if is_pending:
                is_pending = False
                work()

        def in_its_turn() -> None:
            if self.node is not None and self.files is files:
                self._cluster.carry_out(self.name, carry_out)

        self._cluster.later(self.name, self._random.uniform(0.0, _CHECKPOINT_SECONDS), in_its_turn)
        return carry_out

    def look_after_disk(self) -> None:
        """As `log.host.server` does: in a while, and again as long as the disk needs it."""
        node = self.node
        if node is None or node is self._cared_for or not node.disk.needs_care:
            return
        self._cared_for = node

        def work() -> None:
            node.disk.care()
            node.after_care()

        def care() -> None:
            self._cared_for = None
            if self.node is node and self._cluster.carry_out(self.name, work):
                self.look_after_disk()

        self._cluster.later(self.name, CARE_INTERVAL, care)

    def crash(self) -> None:
        """Power loss."""
        self._end()
        if self.storage.is_on:
            self.storage.cut_power()

    def kill(self) -> None:
        """The process is killed: what it has written is not lost."""
        self._end()
        self.storage.kill()

    def _end(self) -> None:
        self.node = None
        self.busy_until = 0.0
        lost, self.waiting = self.waiting, []
        for waiting in lost:
            waiting.respond(None)

    # What an operator, or decay, does to the disk of a host that is down.

    def erase(self) -> None:
        """The disk is replaced by an empty one."""
        self.storage.erase()

    def copy_disk(self) -> SimulatedFiles:
        """A copy of the disk, as it would be if the power went off now."""
        return self.storage.snapshot()

    def restore_disk(self, copy: SimulatedFiles) -> None:
        """Put the files of a copy in place of what there is."""
        self.storage = copy.copy()

    def swap_disk(self, other: SimulatedFiles) -> SimulatedFiles:
        """Put in another disk that this host had before, as it was taken out; the one taken out now."""
        mine, self.storage = self.storage, other
        return mine

    def new_disk(self) -> SimulatedFiles:
        """An empty one, to be put in."""
        return SimulatedFiles(random.Random(self._random.getrandbits(64)))

    def lose_file(self) -> str | None:
        """One file vanishes; which."""
        paths = self.storage.files()
        if not paths:
            return None
        path = self._random.choice(paths)
        self.storage.remove(path)
        return path


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
        self.on_accepted: Callable[[str, Peer], None] = lambda host, peer: None
        """Called when a host accepts a request: (host, whom it was sent to)."""
        self.on_power_cut: Callable[[str], None] = lambda name: None
        """Told of a host that has lost power in the middle of what it did (`SimulatedFiles.fault`)."""

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

    def add(self, name: str, address: str, *, start: bool = True) -> None:
        """One more host; it runs."""
        # Of its own, so that what a host draws for its disk changes nothing on the network.
        rng = random.Random(f"{self._seed} {name}")
        host = self.hosts[name] = self._by_address[address] = SimulatedHost(name, address, self, rng)
        if start:
            host.start()

    def crash(self, name: str) -> None:
        """Power loss."""
        self._paused.pop(name, None)
        self.hosts[name].crash()

    def kill(self, name: str) -> None:
        """The process on a host is killed."""
        self._paused.pop(name, None)
        self.hosts[name].kill()

    def carry_out(self, name: str, work: Callable[[], None]) -> bool:
        """Let the process on a host do this; False when the host has lost power over it."""
        try:
            work()
        except PowerCut:
            self.crash(name)
            self.on_power_cut(name)
            return False
        return True

    def later(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        """Do this on host `name` in so many seconds, or when it runs again if it is paused then."""
        self.loop.schedule(seconds, partial(self.when_running, name, action))

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

    def restart(self, name: str, *, is_copy: bool | None = None) -> None:
        """At its address, or at a new one if another host has that by now.

        Raises StorageError, and PowerCut: it does not start.
        """
        host = self.hosts[name]
        if self.host_at(host.address) is not host:
            self.move(name, next(at for n in count(2) if self.host_at(at := f"{name}:{n}") is None))
        host.start(is_copy=is_copy)

    def submit(
        self, source: str, name: str, request: Request, respond: Callable[[Reply | None], None]
    ) -> None:
        """A request has come to a host that runs; it is told the reply, or None when it crashes over that."""
        host = self.hosts[name]
        host.waiting.append(_Waiting(source, request, respond))
        if self.loop.now >= host.busy_until:
            self._serve(host)

    def _serve(self, host: SimulatedHost) -> None:
        """Carry out what waits, make it durable together, and answer when the disk has done it."""
        node = host.node
        batch, host.waiting = host.waiting, []
        before = host.storage.busy_seconds
        replies: list[Reply] = []

        def work() -> None:
            assert node is not None
            outcomes = []
            for waiting in batch:
                self.on_request(waiting.source, host.name, waiting.request)
                if host.node is not node:
                    return
                outcomes.append(node.handle(waiting.request))
            refusal = node.commit() if any(outcome.needs_commit for outcome in outcomes) else None
            for reply, needs_commit in outcomes:
                replies.append(refusal if refusal is not None and needs_commit else reply)

        def answer() -> None:
            alive = host.node is node and len(replies) == len(batch)
            for waiting, reply in zip(batch, replies if alive else [None] * len(batch), strict=True):
                waiting.respond(reply)
            if alive and host.waiting:
                self._serve(host)

        seconds = 0.0
        if self.carry_out(host.name, work):
            seconds = host.storage.busy_seconds - before
            host.look_after_disk()
        if seconds > 0 and host.node is node:
            host.busy_until = self.loop.now + seconds
            self.later(host.name, seconds, answer)
        else:
            answer()

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
        self._cluster.later(self._name, seconds, action)

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

        def respond(reply: Reply | None) -> None:
            if reply is not None:
                end(answer_of(peer, decode_reply(encode_reply(0, reply, by))))

        refusal = host.node.misdirected(received.to)
        if refusal is not None:
            respond(refusal)
            return
        self._cluster.on_accepted(host.name, peer)
        if part_of(request) is Part.PULL:
            self._pull(host, received.request, respond)
        else:
            self._cluster.submit(self._name, host.name, received.request, respond)

    def _pull(self, host: SimulatedHost, request: Request, respond: Callable[[Reply], None]) -> None:
        """A host asks another one; nothing comes of it when it crashes meanwhile."""
        assert isinstance(request, PullChunk | Reclaim)
        self._cluster.on_request(self._name, host.name, request)
        node = host.node
        if node is None:
            return
        runtime = self._cluster.runtime(host.name)

        async def ask_unit(change: Request) -> Reply:
            replies: list[Reply | None] = []
            ended = runtime.event()

            def take(reply: Reply | None) -> None:
                replies.append(reply)
                ended.set()

            if host.node is node:
                self._cluster.submit(host.name, host.name, change, take)
                await ended.wait()
            reply = replies[0] if replies else None
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
