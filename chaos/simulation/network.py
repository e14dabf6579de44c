"""The network model: whether and when a message arrives.

Seeded delay, loss, duplication and reordering on every link; drops at a host's ingress or egress; partitions; one-way
links. Hosts are numbered in the order they were added. It models neither bandwidth nor queues.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chaos.errors import BadArgumentError
from chaos.simulation.event_queue import TICKS_PER_SECOND

_STREAM_FAILS_FROM = 0.5
"""Share of lost packets from which a stream is no longer carried through by retransmission."""
_RETRANSMISSION_TICKS = TICKS_PER_SECOND // 5
"""First retransmission time-out of a stream (TCP's usual minimum, 0.2 s); it doubles each time."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The weather between healthy hosts."""

    minimum_delay: float = 0.001
    """Seconds one way, least. Default: one rack. Larger values make every exchange slower."""
    maximum_delay: float = 0.005
    """Seconds one way, most; uniform in between, so packets sent within 4 ms may overtake each other."""
    loss: float = 0.0
    """Probability that a datagram is lost, on every link alike. 0.01 to 0.05 is a bad network."""
    duplication: float = 0.0
    """Probability that a datagram arrives twice, each copy with its own delay."""
    tail_probability: float = 0.0
    """Probability that a message takes the long way: a heavy tail without modelling queues."""
    tail_delay: float = 0.2
    """Seconds one way, most, for those that take the long way (uniform from `maximum_delay`)."""

    def __post_init__(self) -> None:
        for name in ("loss", "duplication", "tail_probability"):
            _check_probability(name, getattr(self, name))
        if not 0 <= self.minimum_delay <= self.maximum_delay <= self.tail_delay:
            raise BadArgumentError(
                "delays must be ordered: 0 <= minimum_delay <= maximum_delay <= tail_delay"
            )


class Network:
    """The links among numbered hosts; all faults of the network are set here."""

    def __init__(self, rng: random.Random, settings: NetworkSettings | None = None) -> None:
        self._random = rng.random
        self._ingress: list[float] = []
        self._egress: list[float] = []
        self._slowness: list[int] = []
        self._group: list[int] = []
        self._blocked: dict[tuple[int, int], None] = {}
        self._calm = True
        self._touched = bytearray()
        self.configure(NetworkSettings() if settings is None else settings)

    def configure(self, settings: NetworkSettings) -> None:
        """Change the weather for everything sent from now on."""
        self.settings = settings
        self._low = round(settings.minimum_delay * TICKS_PER_SECOND)
        self._span = round(settings.maximum_delay * TICKS_PER_SECOND) - self._low + 1
        self._tail_span = round(settings.tail_delay * TICKS_PER_SECOND) - self._low - self._span + 2
        self._update()

    def add_host(self) -> int:
        """Number a new host; it has no faults."""
        self._ingress.append(0.0)
        self._egress.append(0.0)
        self._slowness.append(0)
        self._group.append(0)
        self._touched.append(0)
        return len(self._group) - 1

    def drop_ingress(self, host: int, probability: float) -> None:
        """Lose that share of what arrives at `host`; 0 ends it."""
        _check_probability("drop probability", probability)
        self._ingress[host] = probability
        self._update()

    def drop_egress(self, host: int, probability: float) -> None:
        """Lose that share of what `host` sends; 0 ends it."""
        _check_probability("drop probability", probability)
        self._egress[host] = probability
        self._update()

    def slow_down(self, host: int, seconds: float) -> None:
        """Add `seconds` to everything to and from `host`; 0 ends it."""
        if seconds < 0:
            raise BadArgumentError(f"a delay is not negative: {seconds}")
        self._slowness[host] = round(seconds * TICKS_PER_SECOND)
        self._update()

    def partition(self, groups: Sequence[Iterable[int]]) -> None:
        """Let only hosts of the same group reach each other; hosts in no group form one more."""
        self._group = [0] * len(self._group)
        for number, group in enumerate(groups, start=1):
            for host in group:
                self._group[host] = number
        self._update()

    def heal(self) -> None:
        """End the partition; drops, delays and blocked links stay."""
        self.partition(())

    def block(self, source: int, destination: int) -> None:
        """Let nothing pass from `source` to `destination`; the other direction stays as it is."""
        self._blocked[source, destination] = None
        self._update()

    def unblock(self, source: int, destination: int) -> None:
        """End a blocked link."""
        self._blocked.pop((source, destination), None)
        self._update()

    def unblock_all(self) -> None:
        """End every blocked link."""
        self._blocked.clear()
        self._update()

    def loss(self, source: int, destination: int) -> float:
        """The probability that a datagram sent now does not arrive."""
        return self._loss(source, destination) if self._connected(source, destination) else 1.0

    def cuts(self) -> frozenset[tuple[int, int]] | None:
        """The links on which nothing passes; None while anything is lost by chance, slow, or out of order."""
        settings = self.settings
        shares = {*self._ingress, *self._egress} - {0.0, 1.0}
        if settings.loss or settings.tail_probability or any(self._slowness) or shares:
            return None
        if not any(self._touched):
            return frozenset()
        hosts = range(len(self._group))
        return frozenset((a, b) for a in hosts for b in hosts if a != b and self.loss(a, b) == 1.0)

    def steady_within(self, seconds: float) -> bool:
        """Whether every datagram that is answered at once is answered within so many seconds, if at all."""
        settings = self.settings
        return not (settings.tail_probability or any(self._slowness)) and 2 * settings.maximum_delay < seconds

    def datagram(self, source: int, destination: int) -> tuple[int, ...]:
        """The delays, in ticks, of each copy that arrives: none when it is lost."""
        if self._calm and not (self._touched[source] or self._touched[destination]):
            return (self._low + int(self._random() * self._span),)
        if not self._connected(source, destination):
            return ()
        if (loss := self._loss(source, destination)) and self._random() < loss:
            return ()
        first = self._delay(source, destination)
        if (duplication := self.settings.duplication) and self._random() < duplication:
            return first, self._delay(source, destination)
        return (first,)

    def stream(self, source: int, destination: int) -> int | None:
        """The delay, in ticks, of one frame on a stream opened for it, or None when the stream fails.

        A stream needs both directions. Loss below one half either way only delays it by retransmissions;
        from one half on it succeeds as often as a packet makes it there and back.
        """
        handshake = 3 * (self._low + int(self._random() * self._span))
        if self._calm and not (self._touched[source] or self._touched[destination]):
            return handshake
        if not (self._connected(source, destination) and self._connected(destination, source)):
            return None
        there, back = self._loss(source, destination), self._loss(destination, source)
        loss = 1 - (1 - there) * (1 - back)
        if max(there, back) >= _STREAM_FAILS_FROM and self._random() < loss:
            return None
        loss = min(loss, _STREAM_FAILS_FROM)
        delay = handshake + 3 * (self._slowness[source] + self._slowness[destination])
        timeout = _RETRANSMISSION_TICKS
        while loss and self._random() < loss:
            delay += timeout
            timeout *= 2
        return delay

    def _connected(self, source: int, destination: int) -> bool:
        if self._group[source] != self._group[destination]:
            return False
        return not self._blocked or (source, destination) not in self._blocked

    def _loss(self, source: int, destination: int) -> float:
        arrives = (1 - self.settings.loss) * (1 - self._egress[source]) * (1 - self._ingress[destination])
        return 1 - arrives

    def _delay(self, source: int, destination: int) -> int:
        slowness = self._slowness[source] + self._slowness[destination]
        if (tail := self.settings.tail_probability) and self._random() < tail:
            return slowness + self._low + self._span - 1 + int(self._random() * self._tail_span)
        return slowness + self._low + int(self._random() * self._span)

    def _update(self) -> None:
        settings = self.settings
        self._calm = not (settings.loss or settings.duplication or settings.tail_probability)
        blocked = {host for link in self._blocked for host in link}
        self._touched = bytearray(
            bool(ingress or egress or slowness or group or host in blocked)
            for host, (ingress, egress, slowness, group) in enumerate(
                zip(self._ingress, self._egress, self._slowness, self._group, strict=True)
            )
        )


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise BadArgumentError(f"{name} is a probability between 0 and 1, not {value}")
