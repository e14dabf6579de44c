"""A cluster in the centralised mode on the simulator: members n0, n1, …, and the ensemble e0, e1, … they ask.

`Cluster` with other cores, and with disks that outlive the ensemble's processes. Faults may name the hosts of the
ensemble too. Views are checked as in the decentralised mode, except that a view must first appear at a voter, when a
majority of the disks hold the decision.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from chaos.checkers.invariants import ViewInvariants
from chaos.errors import BadArgumentError
from chaos.simulated_cluster.cluster import _PORT, Cluster
from chaos.simulation.host import Host
from chaos.simulation.network import NetworkSettings
from consensus import classic_quorum
from membership.address import Address
from membership.ensemble import Voter
from membership.ensemble.durable_state import decode_state
from membership.protocol.context.effects import StateToSave
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.member import Member
from membership.protocol.view.view_difference import ViewChanged
from membership.runtime.core_factory import Mode
from membership.settings import Settings

SMALLEST_ENSEMBLE = 3


class CentralisedCluster(Cluster):
    """`nodes` members whose membership an ensemble of `ensemble` voters records. Its traffic includes the voters'."""

    mode = Mode.CENTRALISED

    def __init__(
        self,
        nodes: int,
        *,
        ensemble: int,
        seed: int = 0,
        settings: Settings | None = None,
        network: NetworkSettings | None = None,
        rejoin: bool = True,
        through_codec: bool = False,
    ) -> None:
        if ensemble < SMALLEST_ENSEMBLE:
            raise BadArgumentError(f"an ensemble has at least {SMALLEST_ENSEMBLE} members, not {ensemble}")
        self.ensemble = tuple(f"e{number}" for number in range(ensemble))
        self._voters_disks: dict[str, bytes] = {}
        """What each voter has saved; it outlives crashes."""
        super().__init__(
            nodes,
            seed=seed,
            settings=settings,
            network=network,
            rejoin=rejoin,
            through_codec=through_codec,
        )
        self.invariants = CentralisedInvariants(self._fail, self._on_disk)
        for number, name in enumerate(self.ensemble):
            self.simulator.add_host(
                name,
                _voter_address(number),
                self._voter_factory(name, _voter_address(number)),
                clock_offset=round(self.simulator.rng.uniform(0, 100_000), 3),
            )

    def _voter_factory(self, name: str, address: Address) -> Callable[[int, random.Random], Voter]:
        def make(generation: int, rng: random.Random) -> Voter:
            return Voter(
                Member(name, address.host, address.port, rng.randbytes(16)),
                addresses=[_voter_address(number) for number in range(len(self.ensemble))],
                settings=self.settings,
                rng=rng,
                saved=self._voters_disks.get(name),
                cache=self._cache,
            )

        return make

    # -- what the base class asks of the hosts of members -----------------------------------------

    @property
    def hosts(self) -> dict[str, Host]:
        """The members' hosts by name, without the ensemble's."""
        return {name: host for name, host in self.simulator.hosts.items() if name not in self.ensemble}

    def voter(self, name: str) -> Voter | None:
        """The voter that runs on this host of the ensemble, if one does."""
        process = self.simulator.hosts[name].process
        assert process is None or isinstance(process, Voter)
        return process

    def start(self, spread: float = 1.0) -> None:
        """Start the ensemble now, and the members uniformly within `spread` seconds."""
        for name in self.ensemble:
            self.simulator.start(self.simulator.hosts[name])
        for host in self.hosts.values():
            delay = self.simulator.rng.uniform(0, spread)
            self.simulator.call_after(delay, lambda host=host: self.start_host(host))  # type: ignore[misc]

    def quorum_alive(self, *, without: Host | None = None) -> bool:
        """Whether a majority of the ensemble runs."""
        running = sum(self.simulator.hosts[name].up for name in self.ensemble)
        return running >= classic_quorum(len(self.ensemble))

    def _seeds(self, own: Address, first_start: bool) -> tuple[Address, ...]:
        return tuple(_voter_address(voter) for voter in range(len(self.ensemble)))

    def host(self, name: str, *, add: bool = False) -> Host:
        if name in self.ensemble:
            return self.simulator.hosts[name]
        return super().host(name, add=add)

    def start_host(self, host: Host) -> None:
        if host.name in self.ensemble:
            self.simulator.start(host)
        else:
            super().start_host(host)

    def stop_host(self, host: Host) -> None:
        if host.name in self.ensemble:
            self.simulator.crash(host)
        else:
            super().stop_host(host)

    def _after_input(self, host: Host) -> None:
        if host.name not in self.ensemble:
            super()._after_input(host)

    def _gathers(self, host: Host) -> bool:
        return False  # the ensemble decides the first view, which is everybody's

    def _on_events(self, host: Host, events: Sequence[Any]) -> None:
        if host.name not in self.ensemble:
            super()._on_events(host, events)
            return
        for event in events:
            if isinstance(event, StateToSave):
                self._voters_disks[host.name] = event.record
        assert isinstance(self.invariants, CentralisedInvariants)
        for event in events:
            if isinstance(event, ViewChanged):
                before = self.latest
                self.note(f"{host.name} decides epoch {event.configuration.epoch}")
                if self.invariants.decided(host.name, event) and event.configuration.epoch > 0:
                    self._record(before, event.configuration)

    def _on_disk(self, parent: Configuration, child: Configuration) -> int:
        """How many disks hold the decision that led from one view to the next, or a later view."""
        holders = 0
        for data in self._voters_disks.values():
            record = decode_state(data)
            if record.epoch >= child.epoch:
                holders += 1
            elif record.configuration_id == parent.id and record.accepted is not None:
                holders += self._cache.apply(parent, record.accepted) is child
        return holders


class CentralisedInvariants(ViewInvariants):
    """The checks of `ViewInvariants`; but it is voters who decide."""

    def __init__(
        self, fail: Callable[[str], NoReturn], on_disk: Callable[[Configuration, Configuration], int]
    ) -> None:
        super().__init__(fail)
        self._on_disk = on_disk
        self._at_voter: dict[str, int] = {}
        self._voters: dict[str, None] = {}

    def decided(self, voter: str, event: ViewChanged) -> bool:
        """A voter goes on to this view; True when nobody had it before."""
        view = event.configuration
        self._voters[voter] = None
        if event.previous is not None and view.epoch <= event.previous.epoch:
            self._fail(f"{voter} went from epoch {event.previous.epoch} back to {view.epoch}")
        if view.epoch < self._at_voter.get(voter, 0):
            self._fail(f"{voter} forgot epoch {self._at_voter[voter]} and began at {view.epoch}")
        self._at_voter[voter] = view.epoch
        known = self.chain.get(view.epoch)
        if known is not None:
            if known.id != view.id:
                self._fail(f"{voter} has a second view of epoch {view.epoch}")
            return False
        parent = self.chain.get(view.epoch - 1)
        if self.chain:
            if parent is None or event.previous is None or event.previous.id != parent.id:
                self._fail(f"{voter} was first at epoch {view.epoch} without being at the one before")
            holders = self._on_disk(parent, view)
            if holders < classic_quorum(len(self._voters)):
                self._fail(f"epoch {view.epoch} was decided while only {holders} disks held it")
        self.chain[view.epoch] = self.latest = view
        return True

    def _first(self, member: Member, before: Configuration | None, configuration: Configuration) -> None:
        self._fail(f"{member.name} installed epoch {configuration.epoch}, which no voter has decided")


def _voter_address(number: int) -> Address:
    return Address(f"10.255.0.{number}", _PORT)
