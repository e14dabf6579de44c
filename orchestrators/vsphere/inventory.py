"""What there is in a vCenter, as far as placing machines needs it: plain values, and the JSON document of a dump.

Amounts of cpu are MHz, of memory MiB.  Hosts and machines are named as in vCenter; where a name is used twice, both
are called ``name (id)``.  ``id`` is vCenter's own name of a managed object (``host-12``, ``vm-301``).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from orchestrators.vsphere.errors import DumpError

FORMAT = 1
"""Of dumps."""


class Host(msgspec.Struct, frozen=True, omit_defaults=True):
    """A host of a cluster."""

    id: str
    name: str
    cluster: str
    cpu: int
    memory: int
    evacuated: bool = False
    """In maintenance mode or on its way there: its machines are to leave."""
    available: bool = True
    """Connected, and neither in standby nor quarantined; else nothing can be moved to it or away from it."""
    site: str = ""
    """By its custom attribute ``site``: what fails together."""
    reaches: tuple[str, ...] = ()
    """Datastores and networks, by id."""


class Machine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A machine that is powered on."""

    id: str
    name: str
    host: str
    cpu: int
    """What it demands."""
    memory: int
    """What it occupies on its host: consumed memory, or what it was given where no statistics are known."""
    cpu_reservation: int = 0
    memory_reservation: int = 0
    uses: tuple[str, ...] = ()
    """Datastores and networks, by id."""
    stays: str = ""
    """Why it may not be moved; empty where it may."""
    task: str = ""
    """The running task that moves it, by id; empty when none does."""


class RuleKind(StrEnum):
    """What a rule of DRS demands."""

    TOGETHER = "together"
    APART = "apart"
    ON = "on"  # machines must run on these hosts, or should
    OFF = "off"  # machines must not run on these hosts, or should not


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """An enabled rule of a cluster; machines and hosts by name."""

    name: str
    kind: RuleKind
    machines: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    must: bool = True


class Cluster(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cluster, and how it is looked after already."""

    id: str
    name: str
    drs: str = "off"
    """Its automation: ``off``, ``manual``, ``partiallyAutomated`` or ``fullyAutomated``."""
    failover_hosts: int = 0
    """For the loss of how many hosts admission control keeps room."""
    rules: tuple[Rule, ...] = ()


class Inventory(msgspec.Struct, frozen=True):
    """One state of a vCenter."""

    clusters: tuple[Cluster, ...]
    hosts: tuple[Host, ...]
    machines: tuple[Machine, ...]
    format: int = FORMAT

    def cluster(self, name: str) -> Cluster:
        """Raises KeyError."""
        for cluster in self.clusters:
            if cluster.name == name:
                return cluster
        raise KeyError(name)

    def part(self, cluster: str) -> Inventory:
        """What belongs to one cluster: it is planned by itself, for machines do not leave it."""
        hosts = tuple(host for host in self.hosts if host.cluster == cluster)
        names = {host.name for host in hosts}
        machines = tuple(machine for machine in self.machines if machine.host in names)
        return Inventory((self.cluster(cluster),), hosts, machines)

    def with_evacuated(self, names: Iterable[str]) -> Inventory:
        """The same, with further hosts that are to be emptied.  Raises KeyError for one that is not there."""
        wanted = set(names)
        if unknown := sorted(wanted - {host.name for host in self.hosts}):
            raise KeyError(unknown[0])
        hosts = (
            msgspec.structs.replace(host, evacuated=host.evacuated or host.name in wanted)
            for host in self.hosts
        )
        return msgspec.structs.replace(self, hosts=tuple(hosts))


class Move(NamedTuple):
    """A machine goes from one host to another."""

    machine: str
    source: str
    destination: str


def save(inventory: Inventory, path: Path) -> None:
    """Write a dump.  Raises OSError."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(inventory), indent=1))


def load(path: Path) -> Inventory:
    """Read a dump.  Raises DumpError for a file that is none, OSError for one that cannot be read."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Inventory)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DumpError(f"{path} is no dump of a vCenter: {error}") from error
    if found.format != FORMAT:
        raise DumpError(f"{path} is a dump of format {found.format}; this rota reads {FORMAT}")
    return found
