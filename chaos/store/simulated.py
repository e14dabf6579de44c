"""The store on simulated hosts: every host runs the log's node and a control loop beside its membership core.

The very objects an agent runs, `LogNode`, `LogAdapter` and `Controller` with the product's solver, over the links of
the simulation. A host that is down loses what its disk had not made durable; one that is paused stands still with all
of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import trio

from chaos.checkers.store_outcome import Roles, has_enough_copies
from chaos.simulation.event_queue import TICKS_PER_SECOND
from chaos.simulation.network import Network
from chaos.store.adapter import BridgedAdapter
from chaos.store.guest_run import GuestRun
from datastore_adapter import (
    EpochDocument,
    LogAdapter,
    LogClient,
    LogSettings,
    SimulatedCluster,
    SimulatedRuntime,
)
from membership.protocol.view.configuration import Configuration
from mgmt.control.controller import Controller
from mgmt.control.events import ControlEvent
from mgmt.control.settings import ControlSettings
from mgmt.placement.hosts import HostView, host_view
from mgmt.placement.intent import Intent
from mgmt.solving.async_solver import ThreadSolver
from mgmt.solving.placement_solver import PolicySolver

_Result = TypeVar("_Result")

SOLVE_SECONDS = 0.2
"""Virtual seconds a solve takes: what the real one takes for a few hosts, with its process starting."""
COPIES = 3
SEGMENTS = 6
EPOCH_SECONDS = 1.7e9
"""Unix time at the beginning of the simulation."""


_CONTROL = ControlSettings(solve_budget=60.0, longest_solve_budget=60.0)
"""However slow this machine is, a solve comes to the same end."""
_DETAILS = frozenset({"step-started", "step-done"})


class StoreHost:
    """What runs on one host beside its membership core."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self.runtime = runtime
        self.controller: Controller | None = None
        self.scope = trio.CancelScope()
        self.views: trio.MemorySendChannel[HostView] | None = None
        self.view_epoch = -1


class SimulatedStore:
    """The log's nodes and the control loops of all hosts. `settings` are the log's."""

    def __init__(
        self, network: Network, *, seed: int, expect: int, settings: LogSettings, copies: int = COPIES
    ) -> None:
        rng = random.Random(seed)
        self.log = SimulatedCluster((), seed=rng.getrandbits(64), settings=settings)
        self.log.link = self._link
        self.loop = self.log.loop
        self.guest = GuestRun(lambda: self.loop.now, rng.getrandbits(64))
        self.trouble: list[str] = []
        """What must not happen, in words."""
        self.plans: list[tuple[ControlEvent, int]] = []
        """The plans begun, each with the epoch of the view it was made in."""
        self.placing = False
        """Whether a step of any plan was started."""
        self.on_event: Callable[[str], None] = lambda text: None
        """Told what the control loops say, in words."""
        self._network = network
        self._numbers: dict[str, int] = {}
        self._expect = expect
        self._copies = copies
        self._hosts: dict[str, StoreHost] = {}
        self._solver = PolicySolver()  # what it keeps is only what it compiled

    def close(self) -> None:
        """End every control loop, and whatever else waits."""
        self.guest.close()
        self.loop.close()

    # -- links ----------------------------------------------------------------------------------

    def add_host(self, name: str, number: int, address: str) -> None:
        """A host `number` of the network; nothing runs on it yet."""
        self._numbers[name] = number
        self.log.add(name, address, start=False)

    def _link(self, source: str, destination: str) -> float | None:
        ticks = self._network.stream(self._number(source), self._number(destination))
        return None if ticks is None else ticks / TICKS_PER_SECOND

    def _number(self, name: str) -> int:
        if name not in self._numbers:  # a client on a machine of its own
            self._numbers[name] = self._network.add_host()
        return self._numbers[name]

    # -- hosts ----------------------------------------------------------------------------------

    def start(self, name: str, *, is_copy: bool) -> None:
        """The agent on this host starts, with what its disk holds.  Raises StorageError, and PowerCut."""
        if name not in self._hosts:
            self.log.restart(name, is_copy=is_copy)
            self._hosts[name] = StoreHost(self.log.runtime(name))

    def stop(self, name: str) -> None:
        """The agent on this host is gone, as in a power loss."""
        host = self._hosts.pop(name, None)
        if host is not None:
            host.runtime.end()
            host.scope.cancel()
            self.guest.has_work = True
            self.log.crash(name)

    def runs_on(self, name: str) -> bool:
        """Whether the agent on this host runs."""
        return name in self._hosts

    def see(self, name: str, view: Configuration, *, founded: bool, begins: bool) -> None:
        """The member on this host installed a view; its first one begins its control loop.

        `founded`: this host founded the cluster, in this life or an earlier one; `begins`: it knew of none before.
        """
        host = self._hosts[name]
        if host.views is None:
            if founded and begins:
                address = self.log.hosts[name].address
                self.log.node(name).layout_server.found(view.cluster_id.hex(), name, address)
            self._begin(name, host, founded)
        assert host.views is not None
        host.view_epoch = view.epoch
        host.views.send_nowait(host_view(view.epoch, view.by_seniority()))
        self.guest.has_work = True

    def _begin(self, name: str, host: StoreHost, founded: bool) -> None:
        address = self.log.hosts[name].address
        adapter = LogAdapter(host.runtime, name, {name: address}, self.log.settings)
        host.controller = Controller(
            BridgedAdapter(adapter, self.loop, self._wake),
            name,
            initial=Intent.initial(SEGMENTS, self._copies, self._expect) if founded else None,
            solver=ThreadSolver(self._solver, _solve_in_virtual_time),
            settings=_CONTROL,
            listener=partial(self._note, name),
            wall=lambda: EPOCH_SECONDS + self.loop.now,
        )
        host.views, views = trio.open_memory_channel[HostView](1 << 20)
        self.guest.start_soon(self._control, name, host, views)

    async def _control(self, name: str, host: StoreHost, views: trio.MemoryReceiveChannel[HostView]) -> None:
        assert host.controller is not None
        try:
            with host.scope:
                await host.controller.run(views)
        except Exception as error:
            self.trouble.append(f"the control loop of {name} ended: {error!r}")

    def _wake(self) -> None:
        self.guest.has_work = True

    def _note(self, name: str, event: ControlEvent) -> None:
        if event.kind == "plan":
            self.plans.append((event, self._hosts[name].view_epoch))
        self.placing = self.placing or event.kind == "step-started"
        if event.kind not in _DETAILS:
            self.on_event(f"{name} {event.kind}: {event.text}")

    # -- what it looks like ---------------------------------------------------------------------

    @property
    def document(self) -> EpochDocument | None:
        """The latest epoch document that any running host knows."""
        known = [host.node.document for host in self.log.hosts.values() if host.node and host.node.document]
        return max(known, key=lambda document: document.epoch, default=None)

    def settled(self, view_epoch: int) -> bool:
        """Whether the controller says that nothing is left to do for that view."""
        said = (host.controller.settled_in(view_epoch) for host in self._hosts.values() if host.controller)
        return next((settled for settled in said if settled is not None), False)

    def roles(self, view: Configuration, racks: Mapping[str, str]) -> Roles:
        """Who is what now."""
        document = self.document
        assert document is not None, "nothing is placed yet"
        layout = document.layout
        senior = view.by_seniority()[0]
        return Roles(senior.name, layout.sequencer or senior.name, layout.layout_servers, racks)

    def broken_segments(self, racks: Mapping[str, str]) -> int:
        """Segments that lack copies, or hold them in too few racks, given who really runs."""
        document = self.document
        if document is None or not document.layout.segments:
            return SEGMENTS
        live = {name: racks[name] for name in self._hosts}
        return sum(
            not all(has_enough_copies(extent.chain, live, self._copies) for extent in segment.extents)
            for segment in document.layout.segments
        )

    # -- clients --------------------------------------------------------------------------------

    def client(self, name: str) -> LogClient:
        """An application on a machine of its own, which knows every host's address."""
        addresses = [host.address for host in self.log.hosts.values()]
        return LogClient(self.log.runtime(name), addresses, self.log.settings)


async def _solve_in_virtual_time(function: Callable[[], _Result]) -> _Result:
    await trio.sleep(SOLVE_SECONDS)
    return function()
