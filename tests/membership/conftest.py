"""The laboratory for tests of the membership core: members, configurations, and cores that talk in memory.

Small on purpose: whole clusters run in the simulator of `chaos`; here one or a few cores are driven by hand.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from chaos import NetworkSettings, Simulator
from membership.address import Address
from membership.protocol.context.alert_signatures import incarnation_of
from membership.protocol.context.context import Context
from membership.protocol.context.effects import Effects, Evicted, Left, Send, StableStateToSave
from membership.protocol.context.stable_storage import StableState
from membership.protocol.core import Core
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member
from membership.protocol.view.view_difference import ViewChanged
from membership.settings import Settings

CLUSTER_ID = b"cluster-for-test"


class Laboratory:
    """Builders with deterministic identities."""

    def member(self, number: int, *, incarnation: int = 0, metadata: dict[str, str] | None = None) -> Member:
        identity = random.Random(number * 1000 + incarnation).randbytes(16)
        return Member.create(f"n{number}", Address("10.0.0.1", 1000 + number), identity, metadata or {})

    def members(self, count: int) -> list[Member]:
        return [self.member(number) for number in range(count)]

    def configuration(self, count: int, rings: int = 10) -> Configuration:
        members = self.members(count)
        first = Configuration.found(members[0], CLUSTER_ID, rings)
        return first if count == 1 else first.apply(Cut.of(members[1:]))

    def context(
        self, configuration: Configuration, index: int = 0, settings: Settings | None = None, seed: int = 1
    ) -> Context:
        context = Context(
            configuration.members[index], settings or Settings(), random.Random(seed), ConfigurationCache()
        )
        context.install(configuration)
        return context

    def core_in(
        self, configuration: Configuration, index: int = 0, settings: Settings | None = None, now: float = 0.0
    ) -> Core:
        """A core that has just installed this configuration."""
        core = Core(
            configuration.members[index],
            seeds=[],
            settings=settings or Settings(),
            rng=random.Random(index),
            cluster_id=configuration.cluster_id,
        )
        core._views._install(configuration, None, now)
        core._context.take_effects(now)
        return core

    def sent(self, source: Context | Effects, kind: type[Any] | None = None) -> list[Any]:
        """The messages sent, of one type."""
        effects = source.take_effects(0.0) if isinstance(source, Context) else source
        return [send.message for send in effects.sends if kind is None or isinstance(send.message, kind)]

    def deliveries(self, effects: Effects, kind: type[Any]) -> list[Send]:
        return [send for send in effects.sends if isinstance(send.message, kind)]


class KeyedSigner:
    """A stand-in for signatures where the crypto is not the point: whoever knows the public key could sign."""

    def __init__(self, public_key: bytes) -> None:
        self.public_key = public_key

    def sign(self, statement: bytes) -> bytes:
        return hashlib.blake2b(statement, key=self.public_key).digest()

    def verify(self, public_key: bytes, signature: bytes, statement: bytes) -> bool:
        return hashlib.blake2b(statement, key=public_key).digest() == signature


class Cluster:
    """Cores in the simulator; evicted ones come back with a new incarnation if `rejoin`.

    `remember`: each host's disk keeps the last view that its process was in, for the next one.
    """

    def __init__(
        self,
        nodes: int,
        *,
        seed: int = 0,
        settings: Settings | None = None,
        network: NetworkSettings | None = None,
        spread: float = 1.0,
        expect: int = 1,
        rejoin: bool = True,
        core: dict[str, Any] | None = None,
        signed: bool = False,
        remember: bool = False,
        **simulation: Any,
    ) -> None:
        self.signed = signed
        self.remember = remember
        self.disks: dict[str, StableState] = {}
        """What is durable on each host."""
        self.copies: set[str] = set()
        """Hosts whose disks may say nothing of later views: put back from copies, or others recovered without them."""
        self.full_disks: set[str] = set()
        """Hosts whose disks take nothing."""
        self.disk_delay = 0.01
        """Seconds until what is written is durable."""
        self.settings = settings or Settings()
        self.nodes = nodes
        self.expect = expect
        self.rejoin = rejoin
        self.core_arguments = core or {}
        self.cache = ConfigurationCache(64)
        self.simulator = Simulator(seed=seed, network=network, **simulation)
        self.simulator.on_events = self._on_events
        self.events: list[tuple[float, str, Any]] = []
        self.chain: dict[int, bytes] = {}
        self.histories: dict[tuple[tuple[bytes, ...], int], bytes] = {}
        self._moved: dict[int, Address] = {}
        for number in range(nodes):
            starts = 0.0 if number == 0 else 0.2 + self.simulator.rng.random() * spread
            self.add(number, start_at=starts)

    def add(self, number: int, *, name: str | None = None, start_at: float | None = None, **core: Any) -> Any:
        def make(generation: int, rng: random.Random) -> Core:
            address = self.address(number)
            arguments: dict[str, Any] = {
                "seeds": [Address("10.0.0.1", 1000 + other) for other in range(min(3, self.nodes))],
                "found": number == 0 and generation == 0,
                "expect": self.expect,
                "stable": self.disks.get(f"h{number}"),
                "is_copy": f"h{number}" in self.copies,
                "has_disk": self.remember,
                **self.core_arguments,
            } | core
            identity = rng.randbytes(16)
            if self.signed:
                arguments["signer"] = signer = KeyedSigner(rng.randbytes(32))
                identity = incarnation_of(signer.public_key)
            me = Member.create(name or f"n{number}", address, identity)
            return Core(me, settings=self.settings, rng=rng, cache=self.cache, **arguments)

        return self.simulator.add_host(f"h{number}", self.address(number), make, start_at=start_at)

    def address(self, number: int) -> Address:
        return self._moved.get(number, Address("10.0.0.1", 1000 + number))

    def exchange_addresses(self, numbers: Sequence[int]) -> None:
        """These hosts, which are down, come back with their disks, each at the address of the next one."""
        addresses = [self.address(number) for number in numbers]
        for number, address in zip(numbers, (*addresses[1:], addresses[0]), strict=True):
            host = self.simulator.hosts[f"h{number}"]
            assert not host.up
            self._moved[number] = host.address = address
            self.simulator._by_address[address] = host

    def _on_events(self, host: Any, events: Sequence[Any]) -> None:
        for event in events:
            self.events.append((self.simulator.now, host.name, event))
            if isinstance(event, ViewChanged):
                view = event.configuration
                if host.process.gathering:
                    continue  # a founder alone, seen by nobody
                known = self.histories.setdefault((view.lineage, view.epoch), view.id)
                assert known == view.id, "two histories"
                self.chain[view.epoch] = view.id
            elif isinstance(event, StableStateToSave) and self.remember:
                self.simulator.call_after(
                    self.disk_delay, partial(self._save, host, host.process, event.state)
                )
            elif isinstance(event, Left):
                if event.superseded:
                    self.copies.add(host.name)
            elif isinstance(event, Evicted):
                if event.superseded:
                    self.copies.add(host.name)
                self.simulator.call_after(0.3, partial(self._restart, host))

    def _save(self, host: Any, process: Core, state: StableState) -> None:
        """What is to be saved is on its disk, unless it died before."""
        if host.process is process and host.name not in self.full_disks:
            before = self.disks.get(host.name)
            if state.view is not None and (before is None or before.view is not state.view):
                self.copies.discard(host.name)
            self.disks[host.name] = state
            self.simulator.command(host, lambda core, now: core.saved(state, now))

    def _restart(self, host: Any) -> None:
        self.simulator.crash(host)
        if self.rejoin:
            self.simulator.start(host)

    @property
    def hosts(self) -> list[Any]:
        return list(self.simulator.hosts.values())

    @property
    def cores(self) -> list[Core]:
        return [host.process for host in self.hosts if host.process is not None]

    @property
    def now(self) -> float:
        return self.simulator.now

    @property
    def epoch(self) -> int:
        return max(self.chain)

    def run(self, seconds: float, stop: Callable[[], bool] | None = None) -> bool:
        return self.simulator.run(self.simulator.now + seconds, stop=stop)

    def together(self, size: int) -> bool:
        views = [core.configuration for core in self.cores]
        return len(views) == size and all(
            view is not None and len(view) == size and view is views[0] for view in views
        )

    def boot(self, seconds: float = 60.0) -> None:
        assert self.run(seconds, lambda: self.together(self.nodes)), "the cluster did not come together"

    def seen(self, kind: type[Any], since: float = 0.0) -> list[tuple[float, str, Any]]:
        return [
            (at, name, event) for at, name, event in self.events if at >= since and isinstance(event, kind)
        ]

    def removed(self, since: float = 0.0) -> set[str]:
        """Names of the members that anybody saw go."""
        return {
            member.name
            for _, _, event in self.seen(ViewChanged, since)
            for member in (*event.failed, *event.left)
        }


@pytest.fixture
def lab() -> Laboratory:
    return Laboratory()


@pytest.fixture
def cluster() -> type[Cluster]:
    return Cluster
