"""Controllers on the real log, one per host, all in virtual time: their adapters, the nodes and the transfers are the
product's own; only the membership is told instead of found, and the solver is the tests'.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from math import inf, nextafter
from typing import TypeVar

import trio

from chaos.store.adapter import BridgedAdapter
from chaos.store.guest_run import GuestRun
from datastore_adapter import LogAdapter, LogClient, LogSettings, SimulatedCluster, SimulatedRuntime
from datastore_adapter.log.messages import Request, WriteChunk
from mgmt.control.controller import Controller
from mgmt.control.events import ControlEvent
from mgmt.control.settings import ControlSettings
from mgmt.placement.hosts import HostView, controller_of
from mgmt.placement.intent import Intent
from mgmt.solving.async_solver import ThreadSolver
from tests.mgmt.control.greedy_solver import GreedySolver
from tests.mgmt.control.harness import make_hosts

Answer = TypeVar("Answer")


class LogHarness:
    """`hosts` hosts in as many racks as `racks`, the first the controller; `use` it as a context manager."""

    def __init__(self, hosts: int, racks: int, segments: int, seed: int = 0, copies: int = 3) -> None:
        self.hosts = {host.name: host for host in make_hosts(hosts, racks)}
        self._all = dict(self.hosts)
        self.log = SimulatedCluster((), seed=seed, settings=LogSettings.local())
        for host in self.hosts.values():
            self.log.add(host.name, host.address)
        self.log.on_request = self._count
        self.guest = GuestRun(lambda: self.log.loop.now, seed)
        self.segments = segments
        self.epoch = 0
        self.received: Counter[tuple[str, str, int]] = Counter()
        """How often each record was sent to a host by a transfer: (segment, host, address)."""
        self.on_event: Callable[[str, ControlEvent], None] = lambda name, event: None
        self.controllers: dict[str, Controller] = {}
        self._views: dict[str, trio.MemorySendChannel[HostView]] = {}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._runtimes: dict[str, SimulatedRuntime] = {}
        founder = next(iter(self.hosts.values()))
        self.log.node(founder.name).layout_server.found("c0ffee", founder.name, founder.address)
        for host in self.hosts.values():
            intent = replace(Intent.initial(segments, expect=hosts), replication_factor=copies)
            self._start(host.name, intent if host is founder else None, random.Random(f"{seed} {host.name}"))

    def __enter__(self) -> LogHarness:
        self.change()
        return self

    def __exit__(self, *_: object) -> None:
        self.guest.close()
        loop = self.log.loop
        loop.run_before(nextafter(loop.now, inf), lambda: False)  # calls that were just begun are cancelled

    # hosts

    @property
    def view(self) -> HostView:
        return HostView(self.epoch, tuple(self.hosts.values()))

    def _start(self, name: str, initial: Intent | None, rng: random.Random) -> None:
        runtime = self._runtimes[name] = SimulatedRuntime(self.log, name, rng)
        adapter = LogAdapter(runtime, name, {name: self.log.hosts[name].address}, self.log.settings)
        controller = self.controllers[name] = Controller(
            BridgedAdapter(adapter, self.log.loop, self._wake),
            name,
            initial=initial,
            solver=ThreadSolver(GreedySolver(), _solve_in_virtual_time),
            settings=ControlSettings(),
            listener=lambda event: self.on_event(name, event),
            wall=lambda: 1e9 + self.log.loop.now,
        )
        self._views[name], views = trio.open_memory_channel[HostView](64)
        scope = self._scopes[name] = trio.CancelScope()
        self.guest.start_soon(_control, controller, views, scope)

    def change(self, *gone: str) -> None:
        """A view without these hosts is agreed."""
        self.epoch += 1
        self.hosts = {name: host for name, host in self.hosts.items() if name not in gone}
        for name in self.controllers:
            self._views[name].send_nowait(self.view)
        self.guest.has_work = True

    def kill(self, name: str) -> None:
        """The host is gone without a word; nobody knows yet."""
        del self.controllers[name]
        self._scopes[name].cancel()
        self._runtimes[name].end()
        self.log.crash(name)
        self.guest.has_work = True

    def revive(self, *names: str) -> None:
        """The hosts are started again, and agreed into the view, as the last in line."""
        for name in names:
            self.log.restart(name)
            last = max(host.seniority for host in self.hosts.values())
            self.hosts[name] = replace(self._all[name], seniority=last + 1, incarnation=str(self.epoch + 1))
            self._start(name, None, random.Random(f"revived {name}"))
        self.change()

    def _wake(self) -> None:
        self.guest.has_work = True

    def _count(self, source: str, destination: str, request: Request) -> None:
        if isinstance(request, WriteChunk):
            self.received.update((request.segment, destination, address) for address, _ in request.entries)

    # time

    def run_until(self, done: Callable[[], bool], within: float = 120.0) -> None:
        loop, guest = self.log.loop, self.guest
        deadline = loop.now + within
        while not done():
            assert min(guest.wake_at, loop.next_at) <= deadline, f"not within {within} s"
            if guest.wake_at <= loop.next_at:
                loop.now = max(loop.now, guest.wake_at)
                guest.go_on()
            else:
                loop.step()

    def settle(self) -> None:
        self.run_until(self.is_settled)

    def is_settled(self) -> bool:
        controller = self.controllers.get(controller_of(self.view) or "")
        if controller is None or not controller.settled:
            return False
        status = controller.status()
        return bool(status["settled"] and status["view_epoch"] == self.epoch)

    # what it holds

    def write(self, count: int) -> None:
        """Records, so many, in every segment about as many."""
        addresses = [host.address for host in self.log.hosts.values()]
        client_of = partial(LogAppends, self.log.runtime("client"), addresses, self.log.settings)
        task = self.log.loop.start(client_of(count).run())
        self.run_until(lambda: task.ended)
        assert task.error is None, task.error

    def chains(self) -> dict[str, tuple[str, ...]]:
        known = [host.node.document for host in self.log.hosts.values() if host.node and host.node.document]
        layout = max(known, key=lambda document: document.epoch).layout
        return {segment.key: segment.hosts() for segment in layout.segments}

    def requests(self, name: str, request: str, *arguments: str) -> None:
        """An operator's request to the controller `name`, to its end."""
        self.answer(partial(getattr(self.controllers[name].requests, request), *arguments))

    def answer(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """What is asked of a controller, to its end; raises what that raises."""
        done: list[Answer | Exception] = []

        async def asking() -> None:
            try:
                done.append(await ask())
            except Exception as error:  # told to the test below
                done.append(error)

        self.guest.start_soon(asking)
        self.run_until(lambda: bool(done))
        if isinstance(done[0], Exception):
            raise done[0]
        return done[0]


class LogAppends:
    """A client that appends so many records, some at a time."""

    def __init__(
        self, runtime: SimulatedRuntime, addresses: list[str], settings: LogSettings, count: int
    ) -> None:
        self._runtime = runtime
        self._client = LogClient(runtime, addresses, settings)
        self._count = count

    async def run(self) -> None:
        jobs = [partial(self._client.append, "drain", b"%d" % number) for number in range(self._count)]
        for result in await self._runtime.gather(jobs):
            if isinstance(result, Exception):
                raise result


async def _control(
    controller: Controller, views: trio.MemoryReceiveChannel[HostView], scope: trio.CancelScope
) -> None:
    with scope:
        await controller.run(views)


async def _solve_in_virtual_time(function: Callable[[], Answer]) -> Answer:
    await trio.sleep(0.2)
    return function()
