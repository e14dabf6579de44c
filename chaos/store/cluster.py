"""A simulated cluster with a store: membership, log, control loops and clients in one virtual time.

`Cluster` with a `SimulatedStore` on its hosts. It lets the three of them take turns: the simulator of the members,
the loop of the log's procedures, and the control loops, whichever has something to do first.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from math import inf, nextafter

from chaos import faults
from chaos.checkers.store_outcome import CopiesWatch, LogOutcome, Roles, log_outcome
from chaos.errors import InvariantViolation
from chaos.faults import DiskLoss, Fault
from chaos.recording.views import describe
from chaos.script import format_fault
from chaos.simulated_cluster.cluster import Cluster
from chaos.simulated_cluster.faults import process_on
from chaos.simulation.event_queue import TICKS_PER_SECOND
from chaos.simulation.host import Host
from chaos.simulation.network import NetworkSettings
from chaos.store.clients import Clients
from chaos.store.disks import StoreDisks, makes_good
from chaos.store.log_invariants import LogInvariants
from chaos.store.simulated import COPIES, SEGMENTS, SimulatedStore
from datastore_adapter import LogSettings
from datastore_adapter.log.errors import StorageError
from datastore_adapter.log.messages import Request
from datastore_adapter.log.runtime.virtual_loop import Task
from membership.protocol.view.configuration import Configuration
from membership.runtime.data_directory import Contents, DataDirectory
from membership.settings import Settings

_LOOKS = 10_000
"""Looks at the rule on copies in a run, at most four a second."""
_LOOKS_PER_COLLECTION = 500
"""The collector rests while the members are simulated, thousands of times in an hour, and what is young then it never
looks at again by itself: a day would take a gigabyte."""
_PAUSE = 0.2
"""Seconds between two calls of one client, on average ..."""
_CALLS = 8000
"""... and longer where it would make more calls than these in all."""
_LAST_CALLS = 70.0
"""Seconds within which every call of a client has ended: an append gives up after sixty."""
_LAST_APPENDS = 2 * SEGMENTS
"""Records that the store must take when all is healed: each segment has its turn."""
_READING = 3600.0
_SETTLING = 600.0
"""Seconds after which a store that is still not settled is given up ..."""
_SETTLING_AT_ALL = 120.0
"""... and the same where it may have lost too much ever to settle by itself."""


class StoreCluster(Cluster):
    """`nodes` hosts in `racks` racks; other arguments as of `Cluster`.

    `keep_disks`: losses of disks beyond what the store makes good by itself are skipped: one host's at a time, until it
    has been made good. `copies`: of each segment.
    """

    disk_errors = (*Cluster.disk_errors, StorageError)

    def __init__(
        self,
        nodes: int,
        *,
        racks: int = 3,
        seed: int = 0,
        settings: Settings | None = None,
        network: NetworkSettings | None = None,
        keep_quorum: bool = False,
        keep_disks: bool = True,
        copies: int = COPIES,
        through_codec: bool = False,
        count_bytes: bool = True,
    ) -> None:
        self._rack_count = racks
        self._using: Task | None = None
        self._looks = 0
        self.watch = CopiesWatch()
        self.story: list[tuple[float, str]] = []
        """What happened when, in words."""
        self.keep_disks = keep_disks
        self._lost_disk: str | None = None
        self._lost_disks = 0
        super().__init__(
            nodes,
            seed=seed,
            settings=settings,
            network=network,
            keep_quorum=keep_quorum,
            through_codec=through_codec,
            count_bytes=count_bytes,
        )
        self.log = SimulatedStore(
            self.simulator.network, seed=seed, expect=nodes, settings=LogSettings.lan(), copies=copies
        )
        self.log.on_event = self._tell
        for host in self.hosts.values():
            self.log.add_host(host.name, host.index, str(host.address))
        self._clients = Clients(self.log.client, seed=seed, pause=_PAUSE)
        self.disks = disks = StoreDisks(self.log.log, random.Random(f"{seed} disks"))
        self._log_invariants = LogInvariants(
            lambda name: self.log.log.hosts[name].node,
            lambda: self._clients.record.acknowledged,
            self.log.trouble.append,
            lambda name: name in disks.robbed,
        )
        self.log.log.on_request = self._on_request
        self.log.log.on_accepted = self._log_invariants.accepted
        self.log.log.on_power_cut = self._on_power_cut

    # -- time -----------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return max(self.simulator.now, self.log.loop.now)

    def run(self, until: float, *, stop: Callable[[], bool] | None = None) -> bool:
        """As `Cluster.run`, for all that runs on the hosts."""
        loop, guest, simulator = self.log.loop, self.log.guest, self.simulator
        while True:
            self._check_controllers()
            if stop is not None and stop():
                return True
            log_at = min(loop.next_at, guest.wake_at)
            if simulator.next_at <= min(log_at, until):
                super().run(_whole_ticks(min(log_at, until)), stop=lambda: guest.has_work)
            elif log_at > until:
                super().run(until)
                loop.now = max(loop.now, until)
                return False
            else:
                self._work(min(simulator.next_at, nextafter(until, inf)), stop)

    def skip(self, seconds: float) -> None:
        """The members do nothing for so long; the log, its control loops and its clients go on as ever."""
        loop, guest, end = self.log.loop, self.log.guest, self.simulator.now + seconds
        while min(loop.next_at, guest.wake_at) <= end:
            self._work(nextafter(end, inf))
            self._check_controllers()
        super().skip(seconds)

    def _work(self, limit: float, stop: Callable[[], bool] | None = None) -> None:
        """What the log or the control loops do next, before that time; `stop` may interrupt the log after any event."""
        loop, guest, trouble = self.log.loop, self.log.guest, self.log.trouble
        if guest.wake_at <= loop.next_at:
            loop.now = max(loop.now, guest.wake_at)
            guest.go_on()
            return
        try:
            loop.run_before(
                min(limit, guest.wake_at),
                lambda: guest.has_work or bool(trouble) or (stop is not None and stop()),
            )
        except Exception as error:
            # A server would refuse the request and go on, as who knows what.
            trouble.append(f"the log raised {type(error).__name__}: {error}")

    def _catch_up(self) -> None:
        """The log's clock is at what the simulator does now."""
        self.log.loop.now = max(self.log.loop.now, self.simulator.now)

    def close(self) -> None:
        self.log.close()

    def _check_controllers(self) -> None:
        if self.log.trouble:
            raise InvariantViolation(
                self.log.trouble[0], seed=self.simulator.seed, now=self.now, trace=tuple(self.trace)
            )

    def _on_request(self, source: str, destination: str, request: Request) -> None:
        self._log_invariants.look(request)

    def _tell(self, text: str) -> None:
        self.story.append((self.now, text))

    def tale(self, lines: int = 40) -> list[str]:
        """What happened last, as text."""
        return [f"{seconds:9.3f}  {text}" for seconds, text in self.story[-lines:]]

    def _record(self, before: Configuration | None, after: Configuration) -> None:
        super()._record(before, after)
        self._tell(describe(self.views[-1]))

    # -- hosts ----------------------------------------------------------------------------------

    def rack(self, number: int) -> str:
        """Racks are filled in turn."""
        return f"r{number % self._rack_count + 1}"

    @property
    def racks(self) -> dict[str, str]:
        """The rack of each host."""
        return {name: self.rack(int(name.removeprefix("n"))) for name in self.hosts}

    def _tags(self, number: int) -> tuple[tuple[str, str], ...]:
        return (("rack", self.rack(number)),)

    def start_host(self, host: Host) -> None:
        self._catch_up()
        if host.name not in self.log.log.hosts:
            self.log.add_host(host.name, host.index, str(host.address))
        super().start_host(host)

    def _on_power_cut(self, name: str) -> None:
        """The log's part of this host has lost power in the middle of something; so has the rest."""
        self._tell(f"the power of {name} goes")
        # Not at once: whatever it is that the log does now, it is not for the members to be told meanwhile.
        self.simulator.call_after(0.0, lambda: self._end_without_power(self.hosts[name]))

    def _end_without_power(self, host: Host) -> None:
        if self.log.runs_on(host.name) and self.log.log.hosts[host.name].node is None:
            self.stop_host(host)

    def swap_addresses(self, first: Host, second: Host) -> None:
        for host in (first, second):
            if host.name not in self.log.log.hosts:
                self.log.add_host(host.name, host.index, str(host.address))
        super().swap_addresses(first, second)
        for host in (first, second):
            self.log.log.move(host.name, str(host.address))

    def _opened(self, name: str, directory: DataDirectory, contents: Contents) -> None:
        self.log.start(name, is_copy=contents.is_copy)
        super()._opened(name, directory, contents)

    def _cut_power(self, host: Host) -> None:
        self._catch_up()
        self.log.stop(host.name)
        super()._cut_power(host)

    def _show(self, host: Host, view: Configuration) -> None:
        self._catch_up()
        # Only a process that knew of no cluster yet has the log begin.
        begins, founded = self._is_new[host.name], process_on(host).founded
        self.log.see(host.name, view, founded=founded, begins=begins)
        super()._show(host, view)

    def lose_disk(self, host: Host, fault: DiskLoss) -> None:
        if self._spared(host) is None:
            self._lost_disk = host.name
            self._lost_disks += 1
        super().lose_disk(host, fault)
        self._tell(self.trace[-1].split(maxsplit=1)[1])

    def _spared(self, host: Host) -> str | None:
        if self.log.runs_on(host.name):
            return f"{host.name} runs: its disk is left alone"
        if not self.keep_disks:
            return None
        if self._lost_disk not in (None, host.name):
            return f"{host.name} keeps its disk: what {self._lost_disk} has lost is not made good yet"
        alone = self.latest is None or len(self.latest) == 1
        if alone or not makes_good(self._log_invariants.latest, frozenset((host.name,))):
            return f"{host.name} keeps its disk: nobody else has what is on it"
        return None

    def _see_losses_made_good(self) -> None:
        """Whether the host that lost its disk last is back, and the store is settled with it."""
        if (
            self._lost_disk is not None
            and self.log.runs_on(self._lost_disk)
            and self.converged()
            and self.placed()
        ):
            self._lost_disk = None

    def apply(self, fault: Fault) -> None:
        self._catch_up()
        match fault:
            case faults.Pause(names):
                for name in names:
                    self.log.log.pause(name)
            case faults.Resume(names):
                for name in names:
                    self.log.log.resume(name)
        self._tell(format_fault(fault))
        super().apply(fault)

    # -- the store ------------------------------------------------------------------------------

    def placing(self) -> bool:
        """Whether the first placement was decided."""
        return self.log.placing

    def placed(self) -> bool:
        """Whether the store is settled in the latest view."""
        return self.latest is not None and self.log.settled(self.latest.epoch)

    def roles(self) -> Roles:
        """Who is what now."""
        assert self.latest is not None
        return self.log.roles(self.latest, self.racks)

    def begin_use(self, duration: float) -> None:
        """Clients use the store from now on, and the rule on copies is watched; for about so many seconds."""
        self._clients.pause = max(_PAUSE, duration / _CALLS)
        self._using = self.log.loop.start(self._clients.use())
        self._look_again(max(0.25, duration / _LOOKS))

    def _look_again(self, every: float) -> None:
        """By the log's clock, which goes on also where that of the members leaps."""
        self._look()
        self._looks += 1
        if self._looks % _LOOKS_PER_COLLECTION == 0:
            gc.collect()
        self.log.loop.schedule(every, lambda: self._look_again(every))

    def _look(self) -> None:
        self._see_losses_made_good()
        self.watch.look(self.now, self.log.broken_segments(self.racks))

    def conclude(self, began: float) -> LogOutcome:
        """Let the clients end and the store settle, read everything back, and report. `began`: the first fault."""
        trouble: list[str] = []
        self._clients.stop()
        if not self._run_until(lambda: self._using is None or self._using.ended, _LAST_CALLS):
            trouble.append(f"a client's call did not end within {_LAST_CALLS:.0f} s")
        elif self._using is not None and self._using.error is not None:
            trouble.append(f"the clients gave up: {self._using.error!r}")
        patience = _SETTLING if self.keep_disks else _SETTLING_AT_ALL
        at_rest = self._come_to_rest(patience, trouble)
        self._go_on(trouble)
        reading = self.log.loop.start(self._clients.read_back())
        if not self._run_until(lambda: reading.ended, _READING):
            trouble.append(f"the log could not be read within {_READING:.0f} s")
        elif reading.error is not None:
            trouble.append(f"the log could not be read: {reading.error!r}")
        if at_rest:
            # The view may change while the log is read, too: the end is when what it asks for is done.
            self._come_to_rest(patience, trouble)
        self._look()
        return log_outcome(
            self._clients.record,
            began=began,
            plans=self._plans(began),
            watch=self.watch,
            lost_disks=self._lost_disks,
            trouble=trouble,
        )

    def _go_on(self, trouble: list[str]) -> None:
        """Now that nothing is wrong any more, every segment takes records."""
        writing = self.log.loop.start(self._clients.go_on(_LAST_APPENDS))
        if not self._run_until(lambda: writing.ended, _LAST_APPENDS * _LAST_CALLS):
            trouble.append("an append to the healed store did not end")
        elif writing.error is not None:
            trouble.append(f"the healed store takes no record: {writing.error!r}")

    def _come_to_rest(self, seconds: float, trouble: list[str]) -> bool:
        """Wait until the store is settled and every copy where it belongs; note as trouble if it is not settled.

        Also when it is settled for now, copies may wait for hosts that are frozen, as they came and went too often.
        """
        at_rest = self._run_until(
            lambda: self.converged() and self.placed() and not self.log.broken_segments(self.racks), seconds
        )
        if not (self.converged() and self.placed()):
            trouble.append(f"the store did not settle within {seconds:.0f} s")
        return at_rest

    def _run_until(self, done: Callable[[], bool], seconds: float) -> bool:
        return done() or self.run(self.now + seconds, stop=done)

    def _plans(self, began: float) -> list[int]:
        """How many plans were begun in each view that came after `began`."""
        return [
            len({event.data["agreed_as"] for event, epoch in self.log.plans if epoch == view.epoch})
            for view in self.views
            if view.seconds >= began
        ]


def _whole_ticks(seconds: float) -> float:
    return int(seconds * TICKS_PER_SECOND + 1e-6) / TICKS_PER_SECOND
