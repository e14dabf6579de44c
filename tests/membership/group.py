"""Cores that stand in one view already, each with memory of its own, on the simulator's network.

What it is: the instance for tests that need a precise moment of a view change: who votes for what, which message is
lost, who dies when.
What it isn't: a cluster that forms by itself (see conftest.Cluster and chaos.Cluster).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from chaos import Host, NetworkSettings, Simulator
from membership.protocol.context.effects import Effects
from membership.protocol.core import Core
from membership.protocol.core.status import Status
from membership.protocol.messages import AlertKind
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut, Removal
from membership.protocol.view.member import Member
from membership.protocol.view.view_difference import ViewChanged
from membership.settings import Settings

Lost = Callable[[int, int, Any], bool]
"""Whether a message from one index to another is lost; joiners have the indices after the members'."""


class _Standing:
    """A core that has its first view before the simulation starts."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def start(self, now: float) -> Effects:
        return self.core.tick(now)

    def receive(self, source: Any, message: Any, now: float) -> Effects:
        return self.core.receive(source, message, now)

    def tick(self, now: float) -> Effects:
        return self.core.tick(now)


class Group:
    """`size` members of one view. They share nothing but messages: no cache hides that two views differ."""

    def __init__(
        self,
        lab: Any,
        size: int,
        *,
        settings: Settings | None = None,
        network: NetworkSettings | None = None,
        seed: int = 0,
    ) -> None:
        self.settings = settings or Settings()
        self.view: Configuration = lab.configuration(size)
        self.simulator = Simulator(seed=seed, network=network)
        self.simulator.on_events = self._on_events
        self.simulator.before_send = self._before_send
        self.lost: Lost = lambda sender, receiver, message: False
        self.after: Callable[[int, Any], None] = lambda sender, message: None
        """Called with every message as it is sent."""
        self.cores: list[Core] = []
        self.hosts: list[Host] = []
        self.events: list[tuple[float, int, Any]] = []
        self.sent: list[tuple[float, int, Any]] = []
        self.chain: dict[int, tuple[bytes, tuple[Member, ...]]] = {}
        for index in range(size):
            self._add(lab.core_in(self.view, index, self.settings), _Standing)
        self.run(0.001)

    def _add(self, core: Core, wrap: Callable[[Core], Any] | None = None) -> int:
        self.cores.append(core)
        name = f"{core.me.name} {len(self.cores)}"
        process = core if wrap is None else wrap(core)
        host = self.simulator.add_host(name, core.me.address, lambda generation, rng: process)
        self.hosts.append(host)
        self.simulator.start(host)
        return len(self.cores) - 1

    def join(self, core: Core) -> int:
        """Start one more process, which joins; its index."""
        return self._add(core)

    @property
    def now(self) -> float:
        return self.simulator.now

    def run(self, seconds: float, stop: Callable[[], bool] | None = None) -> bool:
        return self.simulator.run(self.now + seconds, stop=stop)

    # What is done to it.

    def propose(self, index: int, cut: Cut) -> None:
        """This member's cut detector comes to this cut."""

        def vote(process: _Standing, now: float) -> Effects:
            instance = process.core._instance
            assert instance is not None
            instance.change.propose(cut, now)
            instance._wake_for_votes(now)
            return process.core.tick(now)

        self.simulator.command(self.hosts[index], vote)

    def accuse(self, index: int, subject: int) -> None:
        """This observer of the subject reports it, for whatever reason."""

        def report(process: _Standing, now: float) -> Effects:
            instance = process.core._instance
            assert instance is not None
            rings = instance.reporter.own_rings(process.core._context.view.members[subject])
            assert rings, "not an observer of that subject"
            instance.reporter._batch.add_removal(AlertKind.REMOVE, subject, rings, now)
            return process.core.tick(now)

        self.simulator.command(self.hosts[index], report)

    def crash(self, *indices: int) -> None:
        for index in indices:
            self.simulator.crash(self.hosts[index])

    def cut(self, *removed: int, joins: Iterable[Member] = ()) -> Cut:
        return Cut.of(joins, [Removal(self.view.members[index].incarnation) for index in removed])

    # What came of it.

    def alive(self) -> list[Core]:
        return [core for core, host in zip(self.cores, self.hosts, strict=True) if host.up]

    def together(self, epoch: int) -> bool:
        """Whether all that run and are members stand in this epoch or a later one, all in the same."""
        views = [core.configuration for core in self.alive() if core.status is Status.MEMBER]
        return (
            all(v is not None and v.epoch >= epoch for v in views) and len({v.epoch for v in views if v}) == 1
        )

    def seen(self, kind: type[Any], index: int | None = None) -> list[tuple[float, int, Any]]:
        return [
            (at, who, event)
            for at, who, event in self.events
            if isinstance(event, kind) and index in (None, who)
        ]

    def _index(self, host: Host) -> int:
        return self.hosts.index(host)

    def _on_events(self, host: Host, events: Sequence[Any]) -> None:
        for event in events:
            self.events.append((self.now, self._index(host), event))
            if isinstance(event, ViewChanged):
                view = event.configuration
                standing = (view.id, view.members)
                assert self.chain.setdefault(view.epoch, standing) == standing, "two views of one epoch"

    def _before_send(self, host: Host, destinations: Sequence[Any], message: Any) -> Sequence[Any]:
        sender = self._index(host)
        self.sent.append((self.now, sender, message))
        self.after(sender, message)
        addresses = [host.address for host in self.hosts]
        return [
            address
            for address in destinations
            if address in addresses and not self.lost(sender, addresses.index(address), message)
        ]
