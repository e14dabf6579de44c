"""Real agent processes on this machine, one per host: what ``rota up``, ``rota demo`` and the tests run on.

Every agent has an address of its own on loopback, the same whenever it is started again: the others know it by that.
It reports through a pipe where it listens, so nothing is guessed and nothing waits for a fixed time.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import trio

from membership import Address, Key
from membership.runtime.own_network import OwnNetwork
from membership.wire.key_ring import write_key_file
from mgmt.solving.libraries import what_is_missing
from rota.agent.engine.password import DIRECTORY, PASSWORD_FILE
from rota.agent.parent_process import LIFELINE_DESCRIPTOR, READY_DESCRIPTOR
from rota.client.api_client import ApiClient
from rota.client.target import Target
from rota.errors import ApiError, LocalClusterError, NotInstalledError
from rota.local.cluster_file import ClusterFile, Place

START_TIMEOUT = 30.0
LEAVE_TIMEOUT = 10.0
POLL_INTERVAL = 0.1


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What to start."""

    directory: Path
    nodes: int = 6
    racks: int = 3
    preset: str = "local"
    loss: float = 0.0
    store: str = "log"
    """The log, or servers of ``valkey`` or ``redis`` that the agents run."""
    engines: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Servers to adopt instead, by the name of their agent, as URLs."""
    segments: int | None = None
    replication_factor: int | None = None
    """None: as many as the store has by default."""
    first_api: Address | None = None
    """Where the first agent serves HTTP if nobody else does."""
    host: str = ""
    """An address of this machine that all agents listen on, at any ports; none: one for each in the cluster's own
    network."""
    keys: tuple[Key, ...] = ()
    """Keys of every agent, each in a file of its own; none: nothing is encrypted."""
    places: Mapping[str, Place] = field(default_factory=dict)
    """Where the agents of an earlier cluster in this folder listened; they are started there again."""

    def rack_of(self, index: int) -> str:
        """Racks are assigned round robin."""
        return f"r{index % self.racks + 1}"


@dataclass(eq=False)
class AgentProcess:
    """One running agent."""

    name: str
    rack: str
    process: trio.Process
    log: Path
    address: Address = Address("127.0.0.1", 0)
    api: Address = Address("127.0.0.1", 0)
    target: Target = field(default_factory=lambda: Target("http://127.0.0.1:0"))
    """How its HTTP interface is reached: nowhere, until it has told its address."""
    expected_to_end: bool = field(default=False)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    async def get(self, path: str, **query: Any) -> Any:
        client = ApiClient(self.target)
        return await trio.to_thread.run_sync(lambda: client.get(path, **query), abandon_on_cancel=True)

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        client = ApiClient(self.target, timeout=60.0)
        return await trio.to_thread.run_sync(lambda: client.post(path, body), abandon_on_cancel=True)

    def last_lines(self, lines: int = 5) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return "(no log)"


class LocalCluster:
    """The agents of one local cluster; made by :func:`open_local_cluster`."""

    def __init__(self, plan: ClusterPlan) -> None:
        self.plan = plan
        self.agents: dict[str, AgentProcess] = {}
        self.network = _network(plan)
        self._numbers = itertools.count(1)
        # The end to write to is this process's alone: the system closes it, however this process ends.
        self._lifeline, self._held = os.pipe()

    def close(self) -> None:
        """To be called when no agent is left."""
        if self.network is not None:
            self.network.close()
        for descriptor in (self._lifeline, self._held):
            os.close(descriptor)

    @property
    def password_file(self) -> Path:
        """Of the servers of Valkey or Redis, if the agents run any; there once all agents have joined."""
        return self.plan.directory / "n1" / DIRECTORY / PASSWORD_FILE

    def program(self, name: str) -> tuple[list[str], dict[str, str]]:
        """What runs as the agent of this name, and what its environment has besides."""
        return [sys.executable, "-m", "rota"], {}

    def options(self) -> list[str]:
        """What every agent is told besides."""
        return []

    def target(self, api: Address) -> Target:
        """How an agent that serves HTTP there is reached."""
        return Target(f"http://{api}")

    def live(self) -> list[AgentProcess]:
        return [agent for agent in self.agents.values() if agent.alive]

    def in_order(self) -> list[AgentProcess]:
        """By name, n2 before n10."""
        return sorted(self.agents.values(), key=lambda agent: (len(agent.name), agent.name))

    async def start(self) -> None:
        """Start all: the first agent founds the cluster, the others join it together.

        Where they ran before, in this object or by the plan's ``places``, they come back at the addresses they had,
        all at once, and find each other by what they remember.
        """
        places = dict(self.plan.places) | self.places
        if not places:
            first = self._new_place()
            await self._start_agent(0, None, replace(first, api=self.plan.first_api or first.api))
            founder = next(iter(self.agents.values())).address
        else:
            founder = next(iter(places.values())).address
        async with trio.open_nursery() as nursery:
            for index in range(0 if places else 1, self.plan.nodes):
                seed = founder if index else None
                place = places.get(f"n{index + 1}") or self._new_place()
                nursery.start_soon(self._start_agent, index, seed, place)

    async def start_one(self, name: str) -> None:
        """Start this agent again where it ran before, with another one's address as its seed."""
        seed = next(place.address for other, place in self.places.items() if other != name)
        await self._start_agent(int(name.removeprefix("n")) - 1, seed, self.places[name])

    def _new_place(self) -> Place:
        """Where no agent of this cluster has been."""
        if self.network is None:
            return Place(Address(self.plan.host, 0), Address(self.plan.host, 0))
        address = self.network.address(next(self._numbers))
        return Place(address, Address(address.host, address.port + 1))

    async def start_elsewhere(self, name: str, seed: Address) -> None:
        """Start this agent again, not where it ran before."""
        await self._start_agent(int(name.removeprefix("n")) - 1, seed, self._new_place())

    @property
    def places(self) -> dict[str, Place]:
        """Where the agents listen, or did while they ran."""
        return {agent.name: Place(agent.address, agent.api) for agent in self.in_order()}

    def remember(self) -> None:
        """Keep in the folder how these agents were started.  Raises :class:`LocalClusterError`."""
        ClusterFile(self.plan.racks, self.places, self.plan.store).save(self.plan.directory)

    async def _start_agent(self, index: int, seed: Address | None, place: Place) -> None:
        plan = self.plan
        name = f"n{index + 1}"
        data_dir = plan.directory / name
        data_dir.mkdir(parents=True, exist_ok=True)
        log = plan.directory / f"{name}.log"
        program, environment = self.program(name)
        arguments = [
            *program, "agent",
            "--listen", str(place.address), "--api", str(place.api),
            "--name", name, "--tag", f"rack={plan.rack_of(index)}",
            "--data-dir", str(data_dir), "--preset", plan.preset, "--loss", str(plan.loss),
        ]  # fmt: skip
        urls = plan.engines.get(name, ())
        arguments += [word for url in urls for word in ("--engine", url)] or ["--store", plan.store]
        if seed is None:
            arguments += ["--expect", str(plan.nodes)]
            arguments += [] if plan.segments is None else ["--segments", str(plan.segments)]
            if plan.replication_factor is not None:
                arguments += ["--replication-factor", str(plan.replication_factor)]
        else:
            arguments += ["--seed", str(seed)]
        if plan.keys:
            key_file = plan.directory / f"{name}.key"
            write_key_file(key_file, plan.keys)
            arguments += ["--key-file", str(key_file)]
        arguments += self.options()
        reader, writer = os.pipe()
        try:
            with log.open("ab") as output:
                process = await trio.lowlevel.open_process(
                    arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=[writer, self._lifeline],
                    env={
                        **os.environ,
                        **environment,
                        READY_DESCRIPTOR: str(writer),
                        LIFELINE_DESCRIPTOR: str(self._lifeline),
                    },
                    # Ctrl-C on the terminal is ours to handle: the agents are asked to leave one by one.
                    start_new_session=True,
                )
        finally:
            os.close(writer)
        agent = AgentProcess(name, plan.rack_of(index), process, log)
        self.agents[name] = agent
        async with trio.lowlevel.FdStream(reader) as ready:
            await self._wait_ready(agent, ready)

    async def _wait_ready(self, agent: AgentProcess, ready: trio.lowlevel.FdStream) -> None:
        received = b""
        with trio.move_on_after(START_TIMEOUT):
            async for chunk in ready:
                received += chunk
        if not received.endswith(b"\n"):
            raise LocalClusterError(
                f"agent {agent.name} did not start; its log {agent.log} ends with:\n{agent.last_lines()}"
            )
        report = json.loads(received)
        agent.address = Address.parse(report["listen"])
        agent.api = Address.parse(report["api"])
        agent.target = self.target(agent.api)

    async def wait_until_settled(
        self, *, timeout: float, what: str, size: int | None = None, interval: float = POLL_INTERVAL
    ) -> dict[str, dict[str, Any]]:
        """Until the control loop has nothing left to do, in a view of ``size`` if given; as `wait_until`."""
        return await self.wait_until(
            lambda answers: any(
                is_settled(answer) and size in (None, answer["size"]) for answer in answers.values()
            ),
            timeout=timeout,
            what=what,
            interval=interval,
        )

    async def wait_until(
        self,
        condition: Callable[[dict[str, dict[str, Any]]], bool],
        *,
        timeout: float,
        what: str,
        interval: float = POLL_INTERVAL,
    ) -> dict[str, dict[str, Any]]:
        """Ask every live agent for its status until ``condition`` holds of all answers; returns them.

        Raises :class:`LocalClusterError` naming ``what`` when ``timeout`` seconds pass, or an agent died unasked.
        """
        answers: dict[str, dict[str, Any]] = {}
        with trio.move_on_after(timeout):
            while True:
                self.check_processes()
                answers = await self.statuses()
                if len(answers) == len(self.live()) and condition(answers):
                    return answers
                await trio.sleep(interval)
        seen = ", ".join(f"{name}: view {a.get('epoch')} of {a.get('size')}" for name, a in answers.items())
        trouble = {text for a in answers.values() if (text := (a.get("control") or {}).get("last_error"))}
        told = "; ".join([seen or "no agent answers", *sorted(trouble)])
        raise LocalClusterError(f"{what} did not happen within {timeout:.0f} s ({told})")

    async def wait_together(self, timeout: float) -> dict[str, dict[str, Any]]:
        """Wait until all agents of the plan stand in one view; their statuses.  Raises as :meth:`wait_until`."""
        size = self.plan.nodes
        return await self.wait_until(
            lambda answers: all(answer["size"] == size for answer in answers.values()),
            timeout=timeout,
            what=f"all {size} agents in one view",
        )

    async def statuses(self) -> dict[str, dict[str, Any]]:
        """The status of every live agent that answers."""
        answers: dict[str, dict[str, Any]] = {}

        async def ask(agent: AgentProcess) -> None:
            # An agent that dies between the look and the question is simply not in the answer.
            with contextlib.suppress(ApiError):
                answers[agent.name] = await agent.get("/v1/status")

        async with trio.open_nursery() as nursery:
            for agent in self.live():
                nursery.start_soon(ask, agent)
        return answers

    def check_processes(self) -> None:
        """Raise when an agent ended although nobody killed it."""
        for agent in self.agents.values():
            if not agent.alive and not agent.expected_to_end:
                raise LocalClusterError(
                    f"agent {agent.name} ended with status {agent.process.returncode}; "
                    f"its log {agent.log} ends with:\n{agent.last_lines()}"
                )

    def kill(self, name: str) -> None:
        """SIGKILL: the host is gone without a word."""
        agent = self.agents[name]
        agent.expected_to_end = True
        agent.process.send_signal(signal.SIGKILL)

    async def stop(self) -> None:
        """Everybody leaves: all but the founder together, then it; whoever takes longer than the bound is killed."""
        founder, *others = self.in_order() if self.agents else (None,)
        for group in (others, [founder] if founder else []):
            await self._leave(group)

    async def _leave(self, agents: list[AgentProcess]) -> None:
        for agent in agents:
            agent.expected_to_end = True
            if agent.alive:
                agent.process.send_signal(signal.SIGTERM)
        with trio.move_on_after(LEAVE_TIMEOUT):
            for agent in agents:
                await agent.process.wait()
        await self._kill(agents)

    async def kill_all(self) -> None:
        """SIGKILL for all that is left, without a word to anybody."""
        await self._kill(list(self.agents.values()))

    async def _kill(self, agents: list[AgentProcess]) -> None:
        for agent in agents:
            agent.expected_to_end = True
            if agent.alive:
                agent.process.kill()
            await agent.process.wait()


def check_store(store: str) -> None:
    """Raises :class:`NotInstalledError` or :class:`SettingsError` where what places it, or its servers, are not
    installed."""
    if missing := what_is_missing("a cluster that places data"):
        raise NotInstalledError(missing)
    if store != "log":
        from rota.agent.engine.program import check_library, find_program

        check_library()
        find_program(store)


def _network(plan: ClusterPlan) -> OwnNetwork | None:
    """Where its agents listen, or did; None if that is no network of their own.  Raises :class:`LocalClusterError`."""
    if not plan.places:
        return None if plan.host else OwnNetwork.claim()
    host = next(iter(plan.places.values())).address.host
    if host in ("127.0.0.1", "::1"):
        return None
    network = OwnNetwork.claim_again(host)
    if network is None:
        raise LocalClusterError(
            f"{host} is in use by another cluster on this machine: try again when that has ended"
        )
    return network


def is_settled(status: Mapping[str, Any]) -> bool:
    """Whether this agent's status is the controller's, and nothing is left to be done for its present view."""
    control = status["control"]
    return bool(
        status["name"] == status["controller"]
        and control["settled"]
        # settled for an earlier view says nothing about this one
        and control["view_epoch"] == status["epoch"]
    )


@contextlib.asynccontextmanager
async def open_local_cluster(
    plan: ClusterPlan, kind: type[LocalCluster] = LocalCluster
) -> AsyncIterator[LocalCluster]:
    """Start a cluster; at the end no process of it is left, whatever happened."""
    cluster = kind(plan)
    try:
        await cluster.start()
        yield cluster
    finally:
        with trio.CancelScope(shield=True):
            await cluster.kill_all()
        cluster.close()
