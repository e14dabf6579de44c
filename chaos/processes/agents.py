"""A whole cluster of real agent processes: the counterpart of `Cluster` in real time.

A `ClusterUnderTest`. It starts agents through the command line (membership only), takes their reports, applies the
fault vocabulary with signals and through `Links`, and records the chain of views. It is not deterministic: the seed
decides who is hurt and when, not what the scheduler makes of it.
"""

from __future__ import annotations

import heapq
import itertools
import random
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from chaos import faults
from chaos.checkers.invariants import ViewInvariants
from chaos.errors import BackendError, BadArgumentError, InvariantViolation, NotRunnableError
from chaos.faults import At, Fault
from chaos.processes import control_messages as control
from chaos.processes.agent_process import AgentProcess, wait_until_ended
from chaos.processes.control_listener import AgentConnection, ControlListener
from chaos.processes.link_state import LinkState
from chaos.processes.links import Links
from chaos.recording.cluster_under_test import SizeSamples
from chaos.recording.traffic import Traffic
from chaos.recording.views import QuorumNotice, View, difference
from chaos.script import format_fault
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.protocol.view.view_difference import ViewChanged
from membership.settings import Settings

_LOADING = 120.0
"""Seconds within which all interpreters must have loaded the agent; many on few cores take turns."""
_ENDING = 5.0
"""Seconds within which what an agent has started ends when it was killed."""
_SEED_HOSTS = 3
_TRACE_LINES = 40


class AgentCluster:
    """`nodes` hosts that run agents, and more that faults start. Close it, whatever happens."""

    def __init__(
        self,
        nodes: int,
        links: Links,
        *,
        backend: str,
        seed: int,
        loss: float,
        preset: str = "lan",
        logs: Path | None = None,
    ) -> None:
        if nodes > links.most_hosts:
            raise BadArgumentError(f"at most {links.most_hosts} nodes run on backend {backend}, not {nodes}")
        self.nodes = nodes
        self.backend = backend
        self.traffic = Traffic()
        self.sizes = SizeSamples()
        self.last_installation = 0.0
        self.quorum_notices: list[QuorumNotice] = []
        self.trace: deque[str] = deque(maxlen=_TRACE_LINES)
        self._seed = seed
        self._rng = random.Random(seed)
        self._preset = preset
        self._links = links
        self._state = LinkState(loss)
        self._invariants = ViewInvariants(self._fail, ordered=False)
        self._cache = ConfigurationCache(capacity=10_000)
        self._rings = Settings.lan().rings
        self._first_installed: dict[int, tuple[Configuration, float]] = {}
        self._agents: dict[str, AgentProcess] = {}
        self._installed: dict[str, Configuration] = {}
        self._known_hosts = 0
        self._start_again: dict[str, None] = {}
        self._started = False
        self._closed = False
        self._recording = False
        self._cpu_before = 0.0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._began_at = time.monotonic()
        self._folder = tempfile.TemporaryDirectory(prefix="rota-chaos-")
        self._logs = Path(self._folder.name) if logs is None else logs
        self._socket_path = Path(self._folder.name) / "control"
        self._listener = ControlListener(self._socket_path, self._take, self._ended)

    # -- running --------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the first agent was told to begin."""
        return time.monotonic() - self._began_at

    def start(self, spread: float) -> None:
        """Load all agents; when all are ready, n0 begins, and the others within `spread` seconds."""
        for number in range(self.nodes):
            self._load(f"n{number}")
        deadline = time.monotonic() + _LOADING
        while not all(agent.connection for agent in self._agents.values()):
            if time.monotonic() > deadline:
                silent = [agent.name for agent in self._agents.values() if agent.connection is None]
                raise BackendError(
                    f"{len(silent)} agents were not ready within {_LOADING:.0f} s, {silent[0]} among them: "
                    f"{self._agents[silent[0]].last_lines()}; use fewer nodes"
                )
            self._listener.poll(0.2)
        self._links.apply(self._state, {})
        self._began_at = time.monotonic()
        self._started = True
        for agent in list(self._agents.values()):
            delay = 0.0 if agent.name == "n0" else self._rng.uniform(0, spread)
            self._call_at(delay, lambda agent=agent: self._begin(agent))  # type: ignore[misc]

    def run(self, until: float, *, stop: Callable[[], bool] | None = None) -> bool:
        """Go on until that time; True when `stop` ended it before. Raises InvariantViolation."""
        while (now := self.now) < until:
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
            if stop is not None and stop():
                return True
            next_at = min(until, self._timers[0][0]) if self._timers else until
            self._listener.poll(max(0.0, next_at - self.now))
        return False

    def schedule(self, schedule: Iterable[At], *, offset: float = 0.0) -> None:
        """Let each fault happen at its time, counted from `offset`."""
        for at in schedule:
            self._call_at(offset + at.seconds, lambda fault=at.fault: self.apply(fault))  # type: ignore[misc]

    def begin_record(self, interval: float) -> None:
        """Agents sample themselves once a second; what comes from now on is kept."""
        self._recording = True
        self.traffic = Traffic()

    def _call_at(self, when: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (when, next(self._count), call))

    # -- what it looks like ---------------------------------------------------------------------

    @property
    def latest(self) -> Configuration | None:
        """The view of the highest epoch anybody installed."""
        return self._first_installed[max(self._first_installed)][0] if self._first_installed else None

    @property
    def views(self) -> Sequence[View]:
        """The chain of views, in order of epoch."""
        views: list[View] = []
        before: Configuration | None = None
        for epoch in sorted(self._first_installed):
            configuration, at = self._first_installed[epoch]
            views.append(difference(before, configuration, at))
            before = configuration
        return views

    @property
    def cpu_seconds(self) -> float:
        """User and system time of all agents so far."""
        return self._cpu_before + sum(agent.cpu_seconds for agent in self._agents.values())

    def converged(self) -> bool:
        """Whether every running agent stands in the latest view, and nobody else is in it."""
        latest, running = self.latest, self._running()
        return (
            latest is not None
            and len(latest) == len(running)
            and all(self._installed.get(name) is latest for name in running)
        )

    def agreed(self) -> bool:
        """Whether every running member of the latest view stands in it."""
        latest = self.latest
        return latest is not None and all(
            self._installed.get(agent.name) is latest
            for agent in self._agents.values()
            if agent.alive and agent.me is not None and agent.me in latest
        )

    def _running(self) -> list[str]:
        return [name for name, agent in self._agents.items() if agent.begun and agent.alive]

    # -- faults ---------------------------------------------------------------------------------

    def apply(self, fault: Fault) -> None:
        """Do this to the agents now. Raises NotRunnableError for what real hosts do not do."""
        self.note(format_fault(fault))
        if self._state.apply(fault):
            self._links.apply(self._state, self._agents)
            return
        match fault:
            case faults.Start(names):
                for name in names:
                    self._start(name)
            case faults.Crash(names):
                # All at once first; waiting for the first's end must not give the others a last word.
                for name in names:
                    self._agent(name).signal(signal.SIGKILL)
                for name in names:
                    self._crash(name)
            case faults.Accuse(names):
                for name in names:
                    self._agent(name).send(control.Accuse())
            case faults.JumpClock(seconds, names):
                for name in names:
                    self._agent(name).send(control.JumpClock(seconds))
            case faults.Restart(names):
                for name in names:
                    self._crash(name)
                    self._load(name)
            case faults.Leave(names):
                for name in names:
                    self._agent(name).may_end = True
                    self._agent(name).send(control.Leave())
            case faults.Pause(names):
                for name in names:
                    self._agent(name).pause()
            case faults.Resume(names):
                for name in names:
                    self._agent(name).resume()
            case _:
                raise NotRunnableError(
                    f"`{format_fault(fault)}` can not be done to real agents (backend {self.backend}); "
                    "use --backend sim"
                )

    def note(self, what: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.now:9.3f}  {what}")

    def _agent(self, name: str) -> AgentProcess:
        if name not in self._agents:
            raise BadArgumentError(
                f"there is no host {name}: start it first, or name one of n0 … n{self.nodes - 1}"
            )
        return self._agents[name]

    def _crash(self, name: str) -> None:
        agent = self._agent(name)
        self._start_again.pop(name, None)
        self._forget(agent)
        agent.kill()

    # -- agents ---------------------------------------------------------------------------------

    def _load(self, name: str) -> None:
        """Start a process; it waits for `Begin`."""
        number = int(name.removeprefix("n"))
        first_start = name not in self._agents
        while self._known_hosts <= number:
            self._links.add(self._known_hosts)
            self._known_hosts += 1
        if not first_start:
            self._cpu_before += self._agents[name].cpu_seconds
        own = self._links.address(number)
        seeds = [
            self._links.address(seed) for seed in range(min(self._known_hosts, _SEED_HOSTS)) if seed != number
        ]
        if number == 0 and first_start:
            seeds = []
        arguments = [
            *self._links.prefix(number), sys.executable, "-m", "rota", "agent", "--insecure",
            "--name", name, "--listen", str(own), "--preset", self._preset,
            "--data-dir", str(Path(self._folder.name) / name), "--chaos-control", str(self._socket_path),
            *itertools.chain.from_iterable(("--seed", str(seed)) for seed in seeds),
            *self._arguments(number, founder=number == 0 and first_start),
        ]  # fmt: skip
        self._agents[name] = AgentProcess(name, arguments, self._logs / f"{name}.log")

    def _arguments(self, number: int, founder: bool) -> list[str]:
        """What else the agent on this host is started with: it is a member and nothing else."""
        return ["--no-store", "--api", "127.0.0.1:0"]

    def _start(self, name: str) -> None:
        agent = self._agents.get(name)
        if agent is None or not agent.alive:
            self._load(name)
        elif agent.may_end:
            self._start_again[name] = None  # as soon as the present process has left

    def _begin(self, agent: AgentProcess) -> None:
        if agent.connection is not None:
            agent.begun = True
            agent.send(control.Begin(self._links.injected(self._state, agent.name)))

    def _forget(self, agent: AgentProcess) -> None:
        self._installed.pop(agent.name, None)
        agent.me = None

    # -- reports --------------------------------------------------------------------------------

    def _ended(self, caller: AgentConnection) -> None:
        agent = caller.agent
        if agent is None or self._agents.get(agent.name) is not agent:
            return
        agent.connection = None
        self._forget(agent)
        if not agent.may_end:
            agent.kill()
            self._fail(f"agent {agent.name} ended by itself (status {agent.status}): {agent.last_lines()}")
        agent.kill()  # it has hung up; what is left of it has nothing more to say
        if self._start_again.pop(agent.name, self) is None:
            self._load(agent.name)

    def _take(self, caller: AgentConnection, report: control.Report) -> None:
        if isinstance(report, control.Hello):
            agent = self._agents[report.name]
            agent.connection, caller.agent = caller.connection, agent
            if self._started:
                self._begin(agent)
            return
        known = caller.agent
        if known is not None and (known.alive or not known.may_end):
            self._take_from(known, report)

    def _take_from(self, agent: AgentProcess, report: control.Report) -> None:
        match report:
            case control.Installed():
                self._on_installed(agent, report)
            case control.Quorum(at, lost):
                self.quorum_notices.append(QuorumNotice(at - self._began_at, agent.name, lost))
                self.note(f"{agent.name} {'lost' if lost else 'regained'} its quorum")
            case control.Gone(_, evicted):
                self.note(f"{agent.name} {'was evicted' if evicted else 'left'}")
                self._forget(agent)
                agent.may_end = agent.may_end or not evicted
            case control.Sample():
                self._on_sample(agent, report)

    def _on_installed(self, agent: AgentProcess, report: control.Installed) -> None:
        seconds = report.at - self._began_at
        configuration = self._cache.decode(report.configuration, report.id, self._rings)
        self.note(f"{agent.name} installs epoch {configuration.epoch} of {len(configuration)}")
        event = ViewChanged(
            configuration, None if report.first else self._installed.get(agent.name),
            report.joined, report.left, report.failed, report.replaced, report.evicted, report.updated,
        )  # fmt: skip
        self._invariants.installed(report.me, event)
        agent.me = report.me
        self._installed[agent.name] = configuration
        self.last_installation = max(self.last_installation, seconds)
        first = self._first_installed.get(configuration.epoch)
        if first is None or seconds < first[1]:
            self._first_installed[configuration.epoch] = configuration, seconds

    def _on_sample(self, agent: AgentProcess, sample: control.Sample) -> None:
        received, sent = self._links.traffic(agent, sample)
        before, agent.traffic = agent.traffic, (sample.at, received, sent)
        if not self._recording:
            return
        if before is not None and sample.at > before[0]:
            period = sample.at - before[0]
            self.traffic.record((received - before[1]) / period, (sent - before[2]) / period)
        if sample.size:
            self.sizes.record(sample.at - self._began_at, int(agent.name.removeprefix("n")), sample.size)

    def _fail(self, what: str) -> NoReturn:
        raise InvariantViolation(what, seed=self._seed, now=self.now, trace=tuple(self.trace))

    # -- the end --------------------------------------------------------------------------------

    def close(self) -> None:
        """Kill every agent, give everything back but the links. Closing twice is closing once."""
        if self._closed:
            return
        self._closed = True
        started = [pid for agent in self._agents.values() for pid in agent.started()]
        for agent in self._agents.values():
            agent.may_end = True
            agent.signal(signal.SIGKILL)
        for agent in self._agents.values():
            agent.kill()
        wait_until_ended(started, _ENDING)  # they write into the folder until then
        self._listener.close()
        self._folder.cleanup()
