"""The live hosts as the management plane sees them, built from the agreed view; and which of them is the controller.

This is not membership: nothing here detects or agrees anything.  The rule that makes one manager the
controller is a pure function of the view, so it needs no election messages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

DEFAULT_CAPACITY = 10**12
_OWN_TAGS = {"rack", "zone", "capacity", "manager", "store", "engine", "http", "rota"}
"""Tags with a meaning here, or of the agents."""


@dataclass(frozen=True, slots=True)
class Host:
    """One live host."""

    name: str
    address: str
    """``host:port`` of its agent."""
    rack: str = ""
    """Empty: the host is a failure domain of its own."""
    zone: str = ""
    capacity_bytes: int = DEFAULT_CAPACITY
    is_manager: bool = True
    """Whether it may become the controller."""
    seniority: int = 0
    """Rank by time of joining, 0 the longest member; equal on every host of one view."""
    incarnation: str = ""
    """Differs between two runs of one host, where that is known."""
    labels: tuple[tuple[str, str], ...] = ()
    """The tags whose meaning is the operators' alone, for policies to speak of; sorted."""

    @property
    def failure_domain(self) -> str:
        """The rack, or the host itself when it carries no rack label."""
        return self.rack or self.name


@dataclass(frozen=True)
class HostView:
    """The hosts of one agreed view.  Every member of ``epoch`` builds an equal value.

    What is derived of them is asked for at every copy of every segment, so it is made once.
    """

    epoch: int
    hosts: tuple[Host, ...]

    def __post_init__(self) -> None:
        names = [host.name for host in self.hosts]
        if len(set(names)) != len(names):
            twice = min(name for name in names if names.count(name) > 1)
            raise ValueError(f"host {twice!r} stands twice in view {self.epoch}; names must be unique")

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(host.name for host in self.hosts)

    @cached_property
    def by_name(self) -> Mapping[str, Host]:
        return {host.name: host for host in self.hosts}

    @cached_property
    def by_seniority(self) -> tuple[Host, ...]:
        return tuple(sorted(self.hosts, key=lambda host: (host.seniority, host.name)))

    @property
    def addresses(self) -> Mapping[str, str]:
        return {host.name: host.address for host in self.hosts}

    def without(self, names: Collection[str]) -> HostView:
        """The same view, as if these hosts were not in it."""
        return HostView(self.epoch, tuple(host for host in self.hosts if host.name not in names))


class MemberRecord(Protocol):
    """What is needed of a member of the view."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> object:
        """Its text is ``host:port``."""
        ...

    @property
    def incarnation(self) -> bytes: ...

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        """Tags; those with a meaning: ``rack``, ``zone``, ``capacity`` (bytes), ``manager`` (``no``: never the
        controller) and ``store`` (``no``: carries nothing, so the management plane does not see it)."""
        ...


def host_view(epoch: int, members: Sequence[MemberRecord]) -> HostView:
    """The live hosts of an agreed view, from its members, the longest member first."""
    hosts = (
        _host(member, dict(member.metadata), rank)
        for rank, member in enumerate(members)
        if dict(member.metadata).get("store") != "no"
    )
    return HostView(epoch, tuple(hosts))


def _host(member: MemberRecord, tags: Mapping[str, str], seniority: int) -> Host:
    capacity = tags.get("capacity", "")
    return Host(
        name=member.name,
        address=str(member.address),
        rack=tags.get("rack", ""),
        zone=tags.get("zone", ""),
        # Another version's agent may carry a tag this one cannot read: never a reason to stop.
        capacity_bytes=int(capacity) if capacity.isascii() and capacity.isdigit() else DEFAULT_CAPACITY,
        is_manager=tags.get("manager", "yes") != "no",
        seniority=seniority,
        incarnation=member.incarnation.hex(),
        labels=tuple(sorted((key, value) for key, value in tags.items() if key not in _OWN_TAGS)),
    )


EMPTY_VIEW = HostView(-1, ())
"""Before the first view."""


def managers_of(view: HostView) -> tuple[Host, ...]:
    """Live hosts with the manager role, the most senior first."""
    return tuple(host for host in view.by_seniority if host.is_manager)


def controller_of(view: HostView) -> str | None:
    """The most senior live host with the manager role; None when there is none."""
    managers = managers_of(view)
    return managers[0].name if managers else None
