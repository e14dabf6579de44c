"""Controllers on a fake engine, one per host, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeVar

import trio

from mgmt.control.controller import Controller
from mgmt.control.events import ControlEvent
from mgmt.control.settings import ControlSettings
from mgmt.control.step_scheduling import ExecutionLimits
from mgmt.placement.hosts import Host, HostView, controller_of
from mgmt.placement.intent import Intent, PolicyChoice
from mgmt.solving.async_solver import ThreadSolver
from mgmt.solving.placement_solver import PlacementSolver, PolicySolver
from tests.fake_adapter import FakeAdapter, FakeEngine
from tests.mgmt.control.greedy_solver import GreedySolver

_Result = TypeVar("_Result")

SOLVE_SECONDS = 0.2
SETTINGS = ControlSettings(limits=ExecutionLimits(transfers=8, transfers_per_host=4))


def six_hosts() -> tuple[Host, ...]:
    return make_hosts(6, 3)


def make_hosts(count: int, racks: int) -> tuple[Host, ...]:
    return tuple(
        Host(f"n{index + 1}", f"127.0.0.1:{9000 + index}", f"r{index % racks + 1}", seniority=index)
        for index in range(count)
    )


@cache
def pack_solver() -> PolicySolver:
    """The product's solver, one for all controllers of this process: what it keeps is only what it compiled."""
    return PolicySolver()


@dataclass
class Node:
    controller: Controller
    adapter: FakeAdapter
    solver: PlacementSolver
    views: trio.MemorySendChannel[HostView]
    scope: trio.CancelScope


@dataclass
class Harness:
    nursery: trio.Nursery
    engine: FakeEngine
    hosts: dict[str, Host]
    epoch: int = 0
    nodes: dict[str, Node] = field(default_factory=dict)
    settings: ControlSettings = SETTINGS
    make_solver: Callable[[], PlacementSolver] = GreedySolver
    events: list[tuple[str, ControlEvent]] = field(default_factory=list)
    solve_seconds: float = SOLVE_SECONDS

    async def _solve_in_virtual_time(self, function: Callable[[], _Result]) -> _Result:
        """Stands in for the worker thread: a thread does not advance the test's clock."""
        await trio.sleep(self.solve_seconds)
        return function()

    @property
    def view(self) -> HostView:
        return HostView(self.epoch, tuple(self.hosts.values()))

    @property
    def controller(self) -> Controller:
        name = controller_of(self.view)
        assert name is not None
        return self.nodes[name].controller

    def start(self, name: str, initial: Intent | None = None) -> Node:
        adapter, solver = FakeAdapter(self.engine), self.make_solver()
        controller = Controller(
            adapter,
            name,
            initial=initial,
            solver=ThreadSolver(solver, self._solve_in_virtual_time),
            settings=self.settings,
            listener=lambda event: self.events.append((name, event)),
            wall=lambda: 1e9 + trio.current_time(),
        )
        send, receive = trio.open_memory_channel[HostView](64)
        node = self.nodes[name] = Node(controller, adapter, solver, send, trio.CancelScope())
        self.nursery.start_soon(self._run, node, receive)
        return node

    async def _run(self, node: Node, views: trio.MemoryReceiveChannel[HostView]) -> None:
        with node.scope:
            await node.controller.run(views)

    def kill(self, name: str) -> None:
        """The host is gone without a word; nobody knows yet."""
        self.engine.up.discard(name)
        node = self.nodes.pop(name)
        node.scope.cancel()
        node.adapter.crash()

    def remove(self, *names: str) -> None:
        """A view without these hosts is agreed."""
        self.change({name: host for name, host in self.hosts.items() if name not in names})

    def lose(self, *names: str) -> None:
        """Hosts are killed, and one view removes them."""
        for name in names:
            self.kill(name)
        self.remove(*names)

    def add(self, host: Host) -> None:
        self.engine.up.add(host.name)
        if host.name not in self.nodes:
            self.start(host.name)
        self.change({**self.hosts, host.name: replace(host, seniority=100 + self.epoch)})

    def change(self, hosts: dict[str, Host]) -> None:
        self.epoch += 1
        self.hosts = hosts
        for node in self.nodes.values():
            node.views.send_nowait(self.view)

    async def until(self, condition: Callable[[], bool], within: float = 120.0) -> None:
        with trio.fail_after(within):
            while not condition():  # noqa: ASYNC110 - virtual time; the product offers no events for tests
                await trio.sleep(0.05)

    async def settled(self, within: float = 120.0) -> None:
        await self.until(self.is_settled, within)

    def is_settled(self) -> bool:
        """Whether the controller says so, and speaks of the present view."""
        name = controller_of(self.view)
        if name not in self.nodes:
            return False  # dead, and nobody knows yet
        status = self.controller.status()
        return bool(status["settled"] and status["view_epoch"] == self.epoch)

    def rounds(self) -> int:
        return self.controller.statistics()["rounds"]

    async def more_rounds(self, count: int = 1) -> None:
        wanted = self.rounds() + count
        await self.until(lambda: self.rounds() >= wanted)

    def copying(self) -> bool:
        """Whether any transfer was started since the first placement."""
        return any(event.data["kind"] == "copy" for event in self.of_kind("step-started"))

    def of_kind(self, kind: str) -> list[ControlEvent]:
        return [event for _, event in self.events if event.kind == kind]

    def kinds(self) -> list[str]:
        return [event.kind for _, event in self.events]

    def check_placement(self) -> None:
        """Three complete, rack-distinct copies of every segment on live, undrained hosts, and live roles."""
        engine, drains = self.engine, self.engine.intent["drains"]
        for key in engine.intent["segments"]:
            chain = engine.chain(key)
            assert sorted(engine.in_sync(key)) == sorted(chain)
            assert len(chain) == engine.intent["replication_factor"]
            assert len({self.hosts[host].rack for host in chain}) == len(chain)
            assert not set(chain) & set(drains)
        named = {*engine.roles.layout_servers, *engine.roles.sequencers}
        assert named <= set(self.hosts) - set(drains)

    def load(self, host: str) -> int:
        return sum(host in self.engine.chain(key) for key in self.engine.segments)


@asynccontextmanager
async def harness(
    hosts: tuple[Host, ...] | None = None,
    *,
    segments: int = 12,
    settings: ControlSettings = SETTINGS,
    placed: bool = True,
    make_solver: Callable[[], PlacementSolver] = GreedySolver,
    policies: PolicyChoice | None = None,
    initial: Intent | None = None,
    prepare: Callable[[FakeEngine], None] = lambda engine: None,
) -> AsyncIterator[Harness]:
    """All hosts in one view; with ``placed``, the first placement has settled.  ``prepare``: the engine before that."""
    hosts = hosts or six_hosts()
    async with trio.open_nursery() as nursery:
        engine = FakeEngine([host.name for host in hosts])
        made = Harness(nursery, engine, {}, settings=settings, make_solver=make_solver)
        prepare(engine)
        initial = initial or Intent.initial(segments, expect=len(hosts))
        if policies is not None:
            initial = replace(initial, policies=policies)
        for host in hosts:
            made.start(host.name, initial if host is hosts[0] else None)
        if placed:
            made.change({host.name: host for host in hosts})
            await made.settled()
        yield made
        nursery.cancel_scope.cancel()
