"""A simulated cluster with a small control loop, writers, and the invariants of the log.

The invariants are checked while things happen: every document that is installed anywhere is looked at once,
and so is every acknowledgement; `check_everything` reads the whole log at the end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from itertools import pairwise

import pytest

from chaos.checkers.history import Append
from chaos.checkers.log_order import broken_rules
from chaos.store.log_invariants import LogInvariants
from datastore_adapter import (
    EpochDocument,
    LogAdapter,
    LogClient,
    LogSettings,
    Record,
    SimulatedCluster,
    SimulatedRuntime,
)
from datastore_adapter.interface import (
    AdapterError,
    Done,
    Fence,
    Observation,
    Placement,
    ReplicaState,
    Running,
    ServiceRoles,
    StepGraph,
    StepStatus,
)
from datastore_adapter.log.errors import ExtentAwayError, OutcomeUnknownError
from datastore_adapter.log.host.simulated import DIRECTORY
from datastore_adapter.log.messages import Entry, Request, Write, WriteBatch
from datastore_adapter.log.runtime.virtual_loop import Task

CLUSTER_ID = "c0ffee"
STREAMS = ("red", "green", "blue")


def spread(hosts: Iterable[str], segments: int, copies: int) -> dict[str, tuple[str, ...]]:
    """Chains round robin over `hosts`."""
    names = list(hosts)
    return {
        f"s{index:02d}": tuple(names[(index + copy) % len(names)] for copy in range(min(copies, len(names))))
        for index in range(segments)
    }


async def told_by(records: AsyncIterator[Record]) -> tuple[list[Record], ExtentAwayError | None]:
    """All that comes, and what it ends with."""
    told: list[Record] = []
    try:
        async for record in records:
            told += [record]
    except ExtentAwayError as error:
        return told, error
    return told, None


def records_of(request: Request) -> dict[int, Entry]:
    """The records that a request brings to a log unit, by address."""
    match request:
        case Write():
            return {request.address: request.entry}
        case WriteBatch():
            return {address: entry for _, records in request.records for address, entry in records}
        case _:
            return {}


class Harness:
    """One cluster and what is known to have happened to it."""

    def __init__(
        self,
        hosts: int = 6,
        *,
        segments: int = 12,
        copies: int = 3,
        seed: int = 0,
        settings: LogSettings | None = None,
    ) -> None:
        names = [f"n{index}" for index in range(hosts)]
        self.cluster = SimulatedCluster(names, seed=seed, settings=settings)
        self.loop = self.cluster.loop
        self.segments = segments
        self.copies = copies
        self.layout_servers = 3
        self.view_epoch = 1
        self.acknowledged: dict[int, tuple[str, bytes]] = {}
        self.attempted: set[bytes] = set()
        self.appends: list[Append] = []
        """What the clients saw."""
        self.uncertain: set[bytes] = set()
        self.invariants = LogInvariants(
            lambda host: self.cluster.hosts[host].node, lambda: self.acknowledged, pytest.fail
        )
        self.on_request: Callable[[str, str, Request], None] = lambda source, destination, request: None
        self.cluster.on_request = self._look
        self.runtime = self.cluster.runtime("observer")
        founder = self.cluster.hosts[names[0]]
        self.cluster.node(names[0]).layout_server.found(CLUSTER_ID, names[0], founder.address)
        self.drained: set[str] = set()
        self.cut_off: set[str] = set()
        """Hosts that run, and that the membership has removed because it does not reach them."""
        self.steady = True
        """Hosts that are down stay down, so that a plan's view of who lives is right."""
        self._writing = True

    # hosts

    @property
    def live(self) -> list[str]:
        return sorted(self.members)

    @property
    def members(self) -> dict[str, str]:
        """Host name -> address, of those that the membership sees."""
        return {name: address for name, address in self.cluster.addresses.items() if name not in self.cut_off}

    def crash(self, *names: str) -> None:
        """Power loss of some hosts, noticed by the membership at once."""
        for name in names:
            self.cluster.crash(name)
        self.view_epoch += 1

    def cut_off_with(self, name: str, client: str, others: Iterable[str]) -> None:
        """A host and a client lose touch with everybody else, `others` being the other clients."""
        rest = [*(host for host in self.cluster.hosts if host != name), *others]
        self.cluster.isolate(name, rest)
        self.cluster.isolate(client, rest)
        self.cut_off.add(name)
        self.view_epoch += 1

    def reunite(self) -> None:
        self.cluster.heal()
        self.cut_off.clear()
        self.view_epoch += 1

    def lose_ends(self, name: str, segment: str, size: int) -> None:
        """A host that is down loses the end of what it has of segments, and the commit logs that would tell it."""
        disk = self.cluster.hosts[name].storage
        for path in disk.files():
            if path.startswith(f"{DIRECTORY}/unit/{segment}"):
                disk.cut(path, max(0, disk.size(path) - size))
            elif path.startswith(f"{DIRECTORY}/commit/"):
                disk.remove(path)

    def restart(self, *names: str) -> None:
        for name in names:
            self.cluster.restart(name)
        self.view_epoch += 1

    @property
    def document(self) -> EpochDocument:
        """The latest document that any host knows."""
        known = [
            host.node.document for host in self.cluster.hosts.values() if host.node and host.node.document
        ]
        return max(known, key=lambda document: document.epoch)

    # control

    def adapter(self, name: str = "controller") -> LogAdapter:
        adapter = LogAdapter(self.cluster.runtime(name), name, settings=self.cluster.settings)
        adapter.set_hosts(self.view_epoch, self.members)
        return adapter

    def target(self, observation: Observation) -> Placement:
        """Keep what is alive, fill up with the least loaded, so many layout servers, one sequencer."""
        usable = [name for name in self.live if name not in self.drained and name not in observation.relieved]
        load = dict.fromkeys(usable, 0)
        chains: dict[str, list[str]] = {}
        current = {segment.key: segment for segment in observation.segments}
        wanted = [f"s{index:02d}" for index in range(self.segments)]
        for key in sorted({*wanted, *current}):
            replicas = current[key].replicas if key in current else ()
            kept = [
                replica.host
                for replica in sorted(replicas, key=lambda replica: replica.position)
                if replica.host in usable and replica.state in (ReplicaState.IN_SYNC, ReplicaState.SYNCING)
            ][: self.copies]
            chains[key] = kept
            for host in kept:
                load[host] += 1
        for chain in chains.values():
            while len(chain) < min(self.copies, len(usable)):
                host = min(
                    (host for host in usable if host not in chain), key=lambda host: (load[host], host)
                )
                chain.append(host)
                load[host] += 1
        roles = observation.roles
        servers = [host for host in roles.layout_servers if host in usable][: self.layout_servers]
        servers += [host for host in usable if host not in servers][: self.layout_servers - len(servers)]
        sequencer = next((host for host in roles.sequencers if host in usable), usable[0])
        units = [host for host in roles.log_units if host in self.live]
        return Placement(
            {key: tuple(chain) for key, chain in chains.items()},
            ServiceRoles(tuple(servers), (sequencer,), tuple(dict.fromkeys((*units, *usable)))),
            frozenset(current).difference(wanted),
        )

    async def settle(self, adapter: LogAdapter, limit: float = 60.0) -> Observation:
        """Run the control loop until there is nothing to do; the last observation."""
        runtime = self.runtime
        deadline = runtime.now() + limit
        while True:
            assert runtime.now() < deadline, "the control loop does not settle"
            adapter.set_hosts(self.view_epoch, self.members)
            observation = await adapter.observe()
            if isinstance(observation, Observation):
                graph = await adapter.repair(observation)
                if not graph.steps:
                    graph = adapter.lower(observation, self.target(observation))
                if not graph.steps:
                    return observation
                await self.execute(adapter, graph, observation)
            await runtime.sleep(0.05)

    async def execute(
        self, adapter: LogAdapter, graph: StepGraph, observation: Observation
    ) -> list[StepStatus]:
        """Run the steps in order, up to the first that fails."""
        statuses: list[StepStatus] = []
        for step in graph.steps:
            if adapter.precheck(step, observation) is not None:
                break
            try:
                await adapter.start(
                    step, Fence(self.view_epoch, observation.layout_epoch, "plan", step.number)
                )
            except AdapterError:
                break
            while isinstance(status := await adapter.poll(step), Running):
                await self.runtime.sleep(0.01)
            statuses.append(status)
            assert getattr(status, "code", "") != "internal", status
            if not isinstance(status, Done):
                break
        return statuses

    # clients

    def client(self, name: str = "client") -> LogClient:
        runtime: SimulatedRuntime = self.cluster.runtime(name)
        return LogClient(
            runtime, [host.address for host in self.cluster.hosts.values()], self.cluster.settings
        )

    def start_writers(self, count: int = 3, pause: float = 0.02) -> list[Task]:
        """Tasks that append until `stop_writers`."""
        return [self.loop.start(self._write(f"writer{index}", pause)) for index in range(count)]

    async def _write(self, name: str, pause: float) -> None:
        client = self.client(name)
        number = 0
        while self._writing:
            await self.append(client, STREAMS[number % len(STREAMS)], f"{name}/{number}".encode())
            number += 1
            await self.runtime.sleep(pause)

    async def append(self, client: LogClient, stream: str, payload: bytes) -> None:
        self.attempted.add(payload)
        called = self.runtime.now()
        try:
            address = await client.append(stream, payload)
        except OutcomeUnknownError:
            self.uncertain.add(payload)
            self.appends.append(Append(stream, payload, called))
        else:
            self.appends.append(Append(stream, payload, called, self.runtime.now(), address))
            assert address not in self.acknowledged, "two acknowledged records at one address"
            self.acknowledged[address] = (stream, payload)

    async def stop_writers(self, writers: Iterable[Task]) -> None:
        self._writing = False
        for writer in writers:
            while not writer.ended:
                await self.runtime.sleep(0.01)
            if writer.error is not None:
                raise writer.error
        self._writing = True

    async def write(self, count: int, client: LogClient | None = None) -> None:
        """Append some records, one after the other."""
        client = client or self.client()
        for _ in range(count):
            number = len(self.attempted)
            await self.append(client, STREAMS[number % len(STREAMS)], f"record {number}".encode())

    # invariants

    def _look(self, source: str, destination: str, request: Request) -> None:
        document = self.invariants.look(request)
        if document is not None and self.steady:
            self._check_copies_of(document)
        self.on_request(source, destination, request)

    def _check_copies_of(self, document: EpochDocument) -> None:
        """Copies never fall because of a plan."""
        before = self.invariants.documents.get(document.epoch - 1)
        if before is not None and before.layout.segments:
            for segment in document.layout.segments:
                self._check_copies(before, document, segment.key)

    def _check_copies(self, before: EpochDocument, after: EpochDocument, key: str) -> None:
        old, new = before.layout.segment(key), after.layout.segment(key)
        if old is None or new is None:
            return  # it is new, or nothing was left of it
        # What is on a broken disk is no copy to count on.
        sound = {host for host in self.members if not self.cluster.hosts[host].storage.broken}
        first = max(old.extents[0].start, new.extents[0].start)  # below it is trimmed
        for address in sorted({max(first, extent.start) for extent in (*old.extents, *new.extents)}):
            had = [host for host in old.extent_of(address).chain if host in sound]
            has = [host for host in new.extent_of(address).chain if host in sound]
            assert len(has) >= min(self.copies, len(had)), f"{key}@{address}: {had} -> {has}"

    async def check_everything(self) -> dict[int, tuple[str, bytes]]:
        """Read the whole log: every acknowledged record once, at its address, nothing else twice."""
        client = self.client("checker")
        content: dict[int, tuple[str, bytes]] = {}
        for address in range(await client.tail()):
            record = await client.read(address)
            if record is not None:
                content[address] = (record.stream, record.payload)
        for address, expected in self.acknowledged.items():
            assert content.get(address) == expected, (
                f"address {address}: {expected} -> {content.get(address)}"
            )
        payloads = {address: payload for address, (_, payload) in content.items()}
        seen = {append.value for append in self.appends}
        unanswered = [Append("a test", payload, 0.0) for payload in sorted(self.attempted - seen)]
        assert broken_rules([*self.appends, *unanswered], payloads) == []
        await self.check_streams(client, content)
        self.check_replicas()
        return content

    async def check_streams(self, client: LogClient, content: Mapping[int, tuple[str, bytes]]) -> None:
        for stream in STREAMS:
            expected = [(a, payload) for a, (name, payload) in sorted(content.items()) if name == stream]
            found = [(record.address, record.payload) async for record in client.stream(stream)]
            assert found == expected
            latest = [
                (record.address, record.payload) for record in await client.latest(stream, len(content) + 1)
            ]
            assert latest == expected[::-1], f"back-pointers of {stream} miss {set(expected) - set(latest)}"

    def check_replicas(self) -> None:
        """Every replica named holds an equal copy of every acknowledged record."""
        layout = self.document.layout
        for address in self.acknowledged:
            segment = layout.segment_of(address)
            copies = set()
            for host in segment.extent_of(address).chain:
                node = self.cluster.hosts[host].node
                if node is not None:
                    copies.add(node.log_unit.stores[segment.key].read(address))
            assert len(copies) == 1, f"replicas of {address} differ: {copies}"

    def assert_tidy(self) -> None:
        """After repair: one extent per segment and striping, full chains, no failed background tasks."""
        for segment in self.document.layout.segments:
            stripes = [
                self.document.layout.stripe_of(segment.key, extent.start) for extent in segment.extents
            ]
            assert all(left != right for left, right in pairwise(stripes)), segment
            assert len(segment.open_extent.chain) == min(self.copies, len(set(self.live) - self.drained)), (
                segment
            )
