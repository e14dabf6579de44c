"""Which packets get lost: the faults of links in force at one moment, for backends with real packets.

The network half of the fault vocabulary, applied one after the other to a small state that says for every host and
link what is lost. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from chaos import faults
from chaos.faults import Fault


class LinkState:
    """What is lost at present. Nothing, at the beginning."""

    def __init__(self, loss: float = 0.0) -> None:
        self.loss = loss
        """Share of packets lost on every link."""
        self._ingress: dict[str, float] = {}
        self._egress: dict[str, float] = {}
        self._group: dict[str, int] = {}
        self._blocked: dict[tuple[str, str], None] = {}

    def apply(self, fault: Fault) -> bool:
        """Whether it is a fault of links that packets can be subjected to; then it is in force."""
        match fault:
            case faults.Partition(groups):
                self._group = {name: number for number, group in enumerate(groups, 1) for name in group}
            case faults.Heal():
                self._group = {}
            case faults.DropIngress(probability, hosts):
                self._ingress.update(dict.fromkeys(hosts, probability))
            case faults.DropEgress(probability, hosts):
                self._egress.update(dict.fromkeys(hosts, probability))
            case faults.Block(source, destination):
                self._blocked[source, destination] = None
            case faults.Unblock(source, destination):
                self._blocked.pop((source, destination), None)
            case faults.Loss(probability):
                self.loss = probability
            case _:
                return False
        return True

    def ingress(self, host: str) -> float:
        """Share of what arrives at `host` that is lost there."""
        return self._ingress.get(host, 0.0)

    def egress(self, host: str) -> float:
        """Share of what `host` sends that is lost there."""
        return self._egress.get(host, 0.0)

    def blocks(self, source: str, destination: str) -> bool:
        """Whether nothing at all passes from `source` to `destination`."""
        return (source, destination) in self._blocked or self._group.get(source, 0) != self._group.get(
            destination, 0
        )

    def blocked_links(self) -> tuple[tuple[str, str], ...]:
        """The links blocked one by one, partitions aside."""
        return tuple(self._blocked)

    def groups(self, hosts: Iterable[str]) -> list[list[str]]:
        """The sides of the partition among `hosts`; one side when there is none."""
        sides: dict[int, list[str]] = {}
        for host in hosts:
            sides.setdefault(self._group.get(host, 0), []).append(host)
        return list(sides.values())
