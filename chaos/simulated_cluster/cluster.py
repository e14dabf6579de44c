"""A whole cluster on the simulator: membership processes on hosts n0, n1, …, faults, invariants, records.

What runs on a host is what an agent runs: the process's state machine with its cores, the data directory and the file
of the last view, on simulated disks. Here is what an agent's shell does around them: it starts them, saves what is to
be saved, and lets them end. It records the chain of views. Nothing goes wrong here by itself.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, cast

from chaos.checkers import branches
from chaos.checkers.invariants import ViewInvariants
from chaos.checkers.quorum_promise import Links, QuorumPromise, Standing
from chaos.errors import BadArgumentError, InvariantViolation
from chaos.faults import At, DiskFault, DiskLoss, Fault
from chaos.recording.cluster_under_test import SizeSamples
from chaos.recording.traffic import Traffic
from chaos.recording.views import QuorumNotice, View, difference
from chaos.script import format_fault
from chaos.simulated_cluster.disks import Disks
from chaos.simulated_cluster.faults import SimulatedFaults, core_on, process_on
from chaos.simulated_cluster.message_faults import MessageFaults
from chaos.simulation.host import Host
from chaos.simulation.network import NetworkSettings
from chaos.simulation.simulator import Simulator
from membership.address import Address
from membership.errors import MembershipError
from membership.files.simulated import PowerCut
from membership.protocol import messages
from membership.protocol.context.effects import (
    Effects,
    Evicted,
    Left,
    QuorumLost,
    QuorumRegained,
    RecoveryFailed,
)
from membership.protocol.dissemination.broadcaster import Broadcaster
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.protocol.view.member import Member
from membership.protocol.view.view_difference import ViewChanged
from membership.runtime.change_feed import FINAL_STATUSES, ClusterStatus
from membership.runtime.core_factory import CoreFactory, Mode
from membership.runtime.core_factory import Identity as MemberIdentity
from membership.runtime.data_directory import Contents, DataDirectory, Identity, recall
from membership.runtime.last_view import LastView, LastViewError, Remembered
from membership.runtime.process import MemberProcess
from membership.settings import Settings

_SEED_HOSTS = 3
"""How many hosts every joiner knows as seeds: n0, n1, n2."""
_SEED_HOSTS_LATER = 32
"""The same for newcomers and for processes that come back: the first three may be long gone by then."""
_LEAST_TO_LOSE_ONE = 2
"""Members in a view of which no disk may be lost: half of them must have it."""
_TRACE_LINES = 40
_SAMPLING_PARTS = 10
"""Members report their sizes in so many parts, one after the other, as real ones report at moments of their own."""
_DISK_DELAY = (0.001, 0.02)
"""Seconds, least and most, until what a process writes is durable."""
_START_AGAIN = 1.0
"""Seconds after which a process is started again that its disk has ended, as a supervisor does."""
_SEEDS_AGAIN = (2.0, 30.0)
"""Seconds, least and most, after which a process that is still joining resolves its seeds again."""
_PORT = 7946


class Cluster:
    """`nodes` hosts that may run membership cores, and more that faults start.

    `rejoin`: an evicted process comes back with a new incarnation; otherwise it stays away. `keep_quorum`: a
    crash that would leave less than a majority of the latest view alive is skipped. Without `count_bytes` no
    message is encoded, which is faster, and the traffic is unknown. `remember`: what members keep on disks outlives
    their processes. `expect`: nobody is told to found the cluster: a cold start of so many processes at least.
    """

    mode = Mode.DECENTRALISED
    disk_errors: tuple[type[BaseException], ...] = (OSError, MembershipError, PowerCut)
    """With which an agent here ends where its disk refuses."""

    def __init__(
        self,
        nodes: int,
        *,
        seed: int = 0,
        settings: Settings | None = None,
        network: NetworkSettings | None = None,
        rejoin: bool = True,
        keep_quorum: bool = False,
        through_codec: bool = False,
        count_bytes: bool = True,
        broadcaster: Broadcaster | None = None,
        remember: bool = False,
        expect: int = 1,
    ) -> None:
        if nodes < 1:
            raise BadArgumentError(f"a cluster has at least one node, not {nodes}")
        self._made_at = time.process_time()
        self.nodes = nodes
        self.rejoin = rejoin
        self.keep_quorum = keep_quorum
        self.broadcaster = broadcaster
        self.expect = expect
        self.settings = Settings() if settings is None else settings
        codec = messages if count_bytes or through_codec else None
        self.simulator = Simulator(seed=seed, network=network, codec=codec, through_codec=through_codec)
        self.simulator.after_input = self._after_input
        self.simulator.on_events = self._on_events
        self._faults = SimulatedFaults(self.simulator, self, random.Random(seed))
        self.invariants = ViewInvariants(self._fail, standing=self._who_has)
        self.views: list[View] = []
        """The chain of views, in order of epoch."""
        self.sizes = SizeSamples()
        self.last_installation = 0.0
        """Virtual time at which a process last installed a view."""
        self.quorum_notices: list[QuorumNotice] = []
        self.trace: deque[str] = deque(maxlen=_TRACE_LINES)
        """The last notable events, as text."""
        self.disks = Disks(random.Random(f"{seed} contents of disks")) if remember else None
        """What members keep; None: nothing, and each process starts as if for the first time."""
        self.has_lost_disks = False
        """A process may have lost what it knew; with one that died before it saved anything that may be too much."""
        self._files: dict[str, LastView] = {}
        self._is_new: dict[str, bool] = {}
        """Whether what runs on a host has found no cluster's name on its disk, and not written one there."""
        self._saving: set[str] = set()
        self._gathering: dict[str, list[ViewChanged]] = {}
        self._disk_rng = random.Random(f"{seed} disks of members")
        self._cache = ConfigurationCache(capacity=64)
        self._installed: dict[str, Configuration | None] = {}
        self._standing: dict[Configuration, int] = {}
        self._ever_in: dict[Configuration, set[str]] = {}
        self._running = 0
        self._quorum_promise: QuorumPromise | None = None
        for number in range(nodes):
            self._add(number)

    # -- running --------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self.simulator.now

    @property
    def hosts(self) -> dict[str, Host]:
        """All hosts by name."""
        return self.simulator.hosts

    def start(self, spread: float = 1.0) -> None:
        """Start n0, which founds the cluster, now, and the others uniformly within `spread` seconds."""
        for host in self.hosts.values():
            delay = 0.0 if host.index == 0 else self.simulator.rng.uniform(0, spread)
            self.simulator.call_after(delay, lambda host=host: self.start_host(host))  # type: ignore[misc]

    def run(self, until: float, *, stop: Callable[[], bool] | None = None) -> bool:
        """Run up to virtual time `until`; True when `stop` ended it before. Raises InvariantViolation."""
        try:
            return self.simulator.run(until, stop=stop)
        except InvariantViolation:
            raise
        except Exception as error:
            # A core that raises would take its agent down: as bad as any broken promise.
            violation = f"a process raised {type(error).__name__}: {error}"
            raise InvariantViolation(
                violation, seed=self.simulator.seed, now=self.now, trace=tuple(self.trace)
            ) from error

    def skip(self, seconds: float) -> None:
        """Let time pass in which the members do nothing, see `Simulator.skip`. Raises InvariantViolation."""
        self.simulator.skip(seconds)

    def schedule(self, schedule: Iterable[At], *, offset: float = 0.0) -> None:
        """Let each fault happen at its time, counted from virtual time `offset`."""
        for at in schedule:
            self.simulator.call_at(offset + at.seconds, lambda fault=at.fault: self.apply(fault))  # type: ignore[misc]

    def begin_record(self, interval: float) -> None:
        """Count bytes from now on, and record every member's size each `interval` seconds."""
        for host in self.hosts.values():
            host.received_bytes = host.sent_bytes = 0
        self.simulator.sample_traffic()
        for part in range(_SAMPLING_PARTS):
            first = interval * part / _SAMPLING_PARTS
            self.simulator.observe(partial(self._sample, part), first=first, every=interval)

    def watch_quorums(self) -> None:
        """See that whoever is out of reach of a majority says so in time."""
        self._quorum_promise = QuorumPromise(self.settings, self._fail)
        self.simulator.observe(self._look_at_quorums, first=0.0, every=self.settings.probe_interval)

    def _look_at_quorums(self) -> None:
        if self._quorum_promise is None:
            return
        up = {name: host for name, host in self.hosts.items() if host.process is not None and not host.paused}
        standing = {name: _standing_on(host) for name, host in up.items()}
        self._quorum_promise.look(self.now, standing, self._links(up))

    def _links(self, hosts: Mapping[str, Host]) -> Links | None:
        """Whom each reaches directly; None while that is a matter of chance."""
        cuts = self.simulator.network.cuts()
        if cuts is None or self.message_faults.lose_any:
            return None
        return {
            name: [other for other, there in hosts.items() if (host.index, there.index) not in cuts]
            for name, host in hosts.items()
        }

    def _sample(self, part: int) -> None:
        now = self.now
        for host in self.hosts.values():
            if host.index % _SAMPLING_PARTS == part and host.process is not None and not host.paused:
                configuration = self._installed[host.name]
                if configuration is not None:
                    self.sizes.record(now, host.index, len(configuration))

    @property
    def message_faults(self) -> MessageFaults:
        """The faults by message type that are in force."""
        return self._faults.message_faults

    @property
    def traffic(self) -> Traffic:
        """Bytes per member and second."""
        return self.simulator.traffic

    @property
    def cpu_seconds(self) -> float:
        """Processor time of this process since the cluster was made."""
        return time.process_time() - self._made_at

    def close(self) -> None:
        """Nothing but memory is held."""

    # -- what it looks like ---------------------------------------------------------------------

    @property
    def latest(self) -> Configuration | None:
        """The view of the highest epoch anybody installed."""
        return self.invariants.latest

    def running(self) -> list[Host]:
        """The hosts with a process, paused or not."""
        return [host for host in self.hosts.values() if host.process is not None]

    def converged(self) -> bool:
        """Whether every running process stands in the latest view of one branch, and nobody else is in it."""
        if len(self._standing) != 1:
            return False
        ((view, standing),) = self._standing.items()
        return standing == self._running == len(view) and self.invariants.latest_of(view.lineage) is view

    @property
    def remembers(self) -> bool:
        """Whether the cluster goes on once everybody is started again, whoever has died: nobody has lost its memory."""
        if self.disks is None or self.has_lost_disks:
            return False
        return self._is_known_to_half()

    def _is_known_to_half(self) -> bool:
        """Whether at least half of the latest view would know of it, and so of every later one that may be it.

        They have not if most were newcomers, and lost their power before they had saved it: it needs an operator then,
        for nobody knows of a disk without a view that it was not lost. What only one was ever in is no such view.
        """
        latest = self.latest
        if latest is None or len(self._ever_in[latest]) == 1:
            return True
        memories = {name: file.saved for name, file in self._files.items() if file.saved is not None}
        views = {latest, *(view for memory in memories.values() for view in _views_of(memory))}
        return all(
            2 * sum(_would_know(memories.get(member.name), view) for member in view.members) >= len(view)
            for view in views
            if view.epoch >= latest.epoch
        )

    def agreed(self) -> bool:
        """Whether every running member of the latest view stands in it."""
        latest = self.latest
        return latest is not None and all(
            self._installed[host.name] is latest
            for host in self.running()
            if latest.index_of_incarnation(core_on(host).me.incarnation) is not None
        )

    def quorum_alive(self, *, without: Host | None = None) -> bool:
        """Whether some branch can go on: a process stands in it, and a majority of the very incarnations in its
        latest view still runs.

        `without`: as if that host did not run.
        """
        return branches.some_branch_goes_on(self._who_stands_where(without), self.invariants.latest_of)

    def strays(self) -> list[Member]:
        """Who should have come over to the kept branch by itself (see `branches`)."""
        standing = self._who_stands_where()
        return branches.strays(standing, branches.branch_to_keep(standing, self.invariants.latest_of))

    def end_lost_branches(self) -> bool:
        """Do what the operator does when recoveries went several ways: keep one branch, start the others' processes
        again. Whether there was anything to do."""
        standing = self._who_stands_where()
        kept = branches.branch_to_keep(standing, self.invariants.latest_of)
        ended = branches.given_up(standing, kept)
        for member in ended:
            self.note(f"{member.name} is started again: its branch is given up")
            self.stop_host(self.hosts[member.name])
            self.start_host(self.hosts[member.name])
        return bool(ended)

    def _who_has(self, view: Configuration) -> int:
        return self._standing.get(view, 0)

    def _who_stands_where(self, without: Host | None = None) -> dict[Member, Configuration | None]:
        return {
            core_on(host).me: self._installed[host.name] for host in self.running() if host is not without
        }

    # -- faults ---------------------------------------------------------------------------------

    def apply(self, fault: Fault) -> None:
        """Do this to the cluster now."""
        self.note(format_fault(fault))
        self._faults.apply(fault)
        self._look_at_quorums()

    def note(self, what: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.now:9.3f}  {what}")

    # -- hosting --------------------------------------------------------------------------------

    def _address(self, number: int) -> Address:
        return Address(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", _PORT)

    def _seeds(self, own: Address, first_start: bool) -> tuple[Address, ...]:
        # At a cold start all name the same ones, however often they are started.
        most = _SEED_HOSTS if first_start or self.expect > 1 else _SEED_HOSTS_LATER
        count = min(len(self.hosts), most)
        return tuple(seed for seed in map(self._address, range(count)) if seed != own)

    def _tags(self, number: int) -> tuple[tuple[str, str], ...]:
        """What a member on this host tells of itself."""
        return ()

    def _add(self, number: int) -> Host:
        name = f"n{number}"

        def make(generation: int, rng: random.Random) -> MemberProcess:
            address = cast("Address", self.hosts[name].address)
            process = self._make(name, address, number, generation, rng)
            process.set_seeds(self._seeds(address, generation == 0 and number < self.nodes))
            return process

        # Every machine counts its seconds from its own boot.
        offset = round(self.simulator.rng.uniform(0, 100_000), 3)
        return self.simulator.add_host(name, self._address(number), make, clock_offset=offset)

    def swap_addresses(self, first: Host, second: Host) -> None:
        """Let two hosts have each other's addresses, unless one of them runs."""
        if first.process is None and second.process is None:
            self.simulator.swap_addresses(first, second)
        else:
            self.note(f"{first.name} and {second.name} keep their addresses: one of them runs")

    def _make(
        self, name: str, address: Address, number: int, generation: int, rng: random.Random
    ) -> MemberProcess:
        factory = CoreFactory(
            MemberIdentity(name, address, self._tags(number)),
            settings=self.settings,
            rng=rng,
            cache=self._cache,
            mode=self.mode,
            broadcaster=self.broadcaster,
        )
        directory = self._directory(name)
        file = copy = None
        identity: Identity | None = None
        if directory is not None:
            contents = directory.open(has_seeds=True)
            identity = contents.identity
            self._is_new[name] = identity is None
            self._opened(name, directory, contents)
            file = self._files[name] = directory.file()
            copy = directory.copied_file()
        remembered = None if file is None else recall(file, copy)
        if file is not None:
            file.prepare()
        view = None if remembered is None else remembered.view
        cluster_id = None if identity is None else identity.cluster_id
        return MemberProcess(
            factory,
            found=self._is_founder(number, generation) and view is None,
            expect=self.expect,
            cluster_id=cluster_id if view is None else view.cluster_id,
            rejoin=self.rejoin,
            remembered=remembered,
            saved=None if file is None else file.saved,
            has_disk=file is not None,
            rng=rng,
        )

    def _is_founder(self, number: int, generation: int) -> bool:
        """Whether this process is told to found the cluster: n0 is, at first, unless all wait for each other."""
        return self.expect == 1 and number == generation == 0 and self.mode is Mode.DECENTRALISED

    # -- disks ----------------------------------------------------------------------------------

    def _directory(self, name: str) -> DataDirectory | None:
        return None if self.disks is None else self.disks.directory(name, self.settings.rings)

    def _opened(self, name: str, directory: DataDirectory, contents: Contents) -> None:
        """A process on this host has opened its data directory; from now on that is its own."""
        if contents.is_copy:
            directory.claim()

    def _begin_saving(self, host: Host) -> None:
        """Have what is to be saved on the disk, which takes a moment; the process may die before that is done."""
        process = process_on(host)
        memory = process.to_save
        if memory is None or host.name in self._saving:
            return
        self._saving.add(host.name)
        delay = self._disk_rng.uniform(*_DISK_DELAY) + process.save_pause + self._sync_seconds(host)
        self.simulator.call_after(delay, lambda: self._save(host, process, memory))

    def _sync_seconds(self, host: Host) -> float:
        return 0.0 if self.disks is None else self.disks.of(host.name).sync_seconds

    def _save(self, host: Host, process: MemberProcess, memory: Remembered) -> None:
        if host.process is process:
            self._saving.discard(host.name)
            self.simulator.command(host, partial(self._write, host, memory))

    def _write(self, host: Host, memory: Remembered, process: MemberProcess, now: float) -> Effects:
        """What was to be saved when the writing began; more may have come since."""
        file = self._files[host.name]
        for view in memory.stable.accepted:
            self.invariants.accepted(view)  # a write that is cut short may be on the disk all the same
        known = file.saved
        if known is not None and known.is_copy and not memory.is_copy and _id_of(known) == _id_of(memory):
            self._fail(f"{host.name} takes its last view for one that counts, though it knew of later ones")
        try:
            file.save(memory)
            file.complete()
        except LastViewError as error:
            self.note(f"{host.name}: {error}")
            effects = process.on_save_failed(str(error))
        except PowerCut as cut:
            self.simulator.call_after(0.0, lambda cut=cut: self._end_by(host, process, cut))  # type: ignore[misc]
            return process.idle()
        else:
            effects = process.on_saved(memory, now)
        self._begin_saving(host)
        return effects

    def _use_disk(self, host: Host, work: Callable[[], None]) -> None:
        """Let the process here do something with its disk that it cannot do without."""
        process = process_on(host)
        try:
            work()
        except self.disk_errors as error:
            # Not at once: it is in the middle of something.
            self.simulator.call_after(0.0, lambda error=error: self._end_by(host, process, error))  # type: ignore[misc]

    def _end_by(self, host: Host, process: MemberProcess, error: BaseException) -> None:
        """Its disk has ended this process, which is started again; if it is still there."""
        if host.process is process:
            self.note(f"{host.name} ends: {error}")
            self.stop_host(host)
            self._start_again(host)

    def _start_again(self, host: Host) -> None:
        self.simulator.call_after(_START_AGAIN, lambda: self.start_host(host))

    def copy_disk(self, host: Host) -> None:
        """Keep a copy of what is on its disk now."""
        if self.disks is not None:
            self.disks.copy(host.name)

    def hurt_disk(self, host: Host, fault: DiskFault) -> None:
        """Let this happen to its disk, whether a process runs or not."""
        if self.disks is not None:
            self.disks.hurt(host.name, fault)

    def lose_disk(self, host: Host, fault: DiskLoss) -> None:
        """Do this to the disk of a host that is down; one that runs is left alone."""
        if self.disks is None:
            return
        spared = self._spared(host)
        self.has_lost_disks |= spared is None
        self.note(self.disks.lose(host.name, fault) if spared is None else spared)

    def _spared(self, host: Host) -> str | None:
        """Why nothing may be done to the disk of this host, in words; None: it may."""
        if host.process is not None:
            return f"{host.name} runs: its disk is left alone"
        if self.latest is not None and len(self.latest) <= _LEAST_TO_LOSE_ONE:
            return f"{host.name} keeps its disk: too few others know what is on it"
        return None

    def host(self, name: str, *, add: bool = False) -> Host:
        """The host of this name. Raises BadArgumentError if there is none and it may not be added."""
        host = self.hosts.get(name)
        if host is None and add:
            return self._add(int(name.removeprefix("n")))
        if host is None:
            raise BadArgumentError(
                f"there is no host {name}: start it first, or name one of n0 … n{self.nodes - 1}"
            )
        return host

    def start_host(self, host: Host) -> None:
        """Start a process here, if none runs."""
        if host.process is not None:
            return
        if self.disks is not None:
            self.disks.of(host.name).power_on()
        self._installed[host.name] = None
        try:
            self.simulator.start(host)
        except self.disk_errors as error:
            self.note(f"{host.name} does not start: {error}")
            self._cut_power(host)
            self._start_again(host)
            return
        self._running += 1
        self._keep_seeds(host, _SEEDS_AGAIN[0])

    def _keep_seeds(self, host: Host, pause: float) -> None:
        """While its process joins, it resolves its seeds again from time to time."""
        process = process_on(host)

        def resolve() -> None:
            if host.process is process and process.joining:
                process.set_seeds(self._seeds(cast("Address", host.address), first_start=False))
                self._keep_seeds(host, min(2 * pause, _SEEDS_AGAIN[1]))

        self.simulator.call_after(pause * self.simulator.rng.uniform(0.5, 1.5), resolve)

    def crash_host(self, host: Host) -> None:
        """Kill the process here for good, unless it is needed for the quorum that is to be kept."""
        if self.keep_quorum and host.process is not None and not self.quorum_alive(without=host):
            self.note(f"{host.name} is spared to keep the quorum")
            return
        self.stop_host(host)

    def stop_host(self, host: Host) -> None:
        """The process here is at its end."""
        if host.process is not None:
            self._running -= 1
            self._stands(host, None)
            self._gathering.pop(host.name, None)
            self._saving.discard(host.name)
            self.simulator.crash(host)
            self._cut_power(host)

    def _cut_power(self, host: Host) -> None:
        if self.disks is not None:
            self.disks.of(host.name).cut_power()

    def _stands(self, host: Host, configuration: Configuration | None) -> None:
        before = self._installed.get(host.name)
        if before is not None:
            self._standing[before] -= 1
            if not self._standing[before]:
                del self._standing[before]
        self._installed[host.name] = configuration
        if configuration is not None:
            self._standing[configuration] = self._standing.get(configuration, 0) + 1
            self._ever_in.setdefault(configuration, set()).add(host.name)

    def _after_input(self, host: Host) -> None:
        if host.process is None or process_on(host).restart_at is not None:
            return
        alone = self._gathering.get(host.name)
        reported = alone[-1].configuration if alone else self._installed[host.name]
        if core_on(host).configuration is not reported:
            self._fail(f"{host.name} stands in a view that it did not report")

    def _on_view(self, host: Host, event: ViewChanged) -> None:
        if self._gathers(host):
            # A founder alone is nobody's idea of the cluster yet: it is held back until the others are in.
            self._gathering.setdefault(host.name, []).append(event)
            self.invariants.accepted(event.configuration)
            return
        for each in (*self._gathering.pop(host.name, ()), event):
            self._on_installed(host, each)

    def _gathers(self, host: Host) -> bool:
        """Whether a founder on this host still waits for the others."""
        return core_on(host).gathering > 0

    def _on_installed(self, host: Host, event: ViewChanged) -> None:
        configuration = event.configuration
        self.note(f"{host.name} installs epoch {configuration.epoch} of {len(configuration)}")
        self.last_installation = self.now
        if self.invariants.installed(core_on(host).me, event):
            self._record(self.invariants.before(configuration), configuration)
        self._stands(host, configuration)
        self._use_disk(host, lambda: self._show(host, configuration))
        self._faults.on_view(host)

    def _show(self, host: Host, view: Configuration) -> None:
        """The agent here has a view; with its first one it knows its cluster."""
        directory = self._directory(host.name)
        if directory is not None and self._is_new[host.name]:
            directory.save_identity(Identity(view.cluster_id, host.name))
            self._is_new[host.name] = False

    def _record(self, before: Configuration | None, after: Configuration) -> None:
        self.views.append(difference(before, after, self.now))

    def _on_events(self, host: Host, events: Sequence[Any]) -> None:
        for event in events:
            if isinstance(event, ViewChanged):
                self._on_view(host, event)
            elif isinstance(event, QuorumLost | QuorumRegained):
                lost = isinstance(event, QuorumLost)
                self.quorum_notices.append(QuorumNotice(self.now, host.name, lost))
                self.note(f"{host.name} {'lost' if lost else 'regained'} its quorum")
            elif isinstance(event, RecoveryFailed):
                self.note(f"{host.name} has not recovered: {event.reason}")
            elif isinstance(event, Evicted):
                self._on_evicted(host, event)
            elif isinstance(event, Left):
                self.note(f"{host.name} left")
        if process_on(host).state.status in FINAL_STATUSES:
            self._end(host)
        else:
            self._begin_saving(host)

    def _on_evicted(self, host: Host, event: Evicted) -> None:
        if event.restarted:
            self.note(f"{host.name} gives epoch {event.epoch} up: {', '.join(event.restarted)} started again")
        else:
            self.note(f"{host.name} was evicted")
            held = self._gathering.get(host.name)
            unseen = held[-1].configuration if held else None
            self.invariants.evicted(core_on(host).me, event.epoch, unseen)
        self._stands(host, None)
        self._gathering.pop(host.name, None)
        if process_on(host).joining:
            self._keep_seeds(host, _SEEDS_AGAIN[0])

    def _end(self, host: Host) -> None:
        """The process here is at its end, of which it writes down what is to be remembered."""
        process = process_on(host)
        if (memory := process.to_save) is not None:
            self._write(host, memory, process, self.now)
        self.stop_host(host)

    def _fail(self, what: str) -> NoReturn:
        raise InvariantViolation(what, seed=self.simulator.seed, now=self.now, trace=tuple(self.trace))


def _id_of(memory: Remembered) -> bytes | None:
    return None if memory.view is None else memory.view.id


def _views_of(memory: Remembered) -> tuple[Configuration, ...]:
    """The last view on this disk, and those that it voted for since."""
    return memory.stable.accepted if memory.view is None else (memory.view, *memory.stable.accepted)


def _would_know(memory: Remembered | None, view: Configuration) -> bool:
    """Whether a member of this view with this on its disk has it there, or was in the view before and so could vote."""
    if memory is None:
        return False
    was_before = memory.view is not None and memory.view.epoch == view.epoch - 1
    return was_before or any(known.id == view.id for known in _views_of(memory))


def _standing_on(host: Host) -> Standing:
    state = process_on(host).state
    is_member = state.status is ClusterStatus.MEMBER
    incarnation = core_on(host).me.incarnation
    return Standing(incarnation, host.clock_offset, state.view, state.quorum and is_member)
