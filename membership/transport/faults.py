"""Fault injection inside one process's transport: datagrams and streams that are lost, late, or blocked per peer.

`rota agent --loss 0.2` and the chaos scenarios on real processes use it. Seeded, free of input and output, and
changeable at any time.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

from membership.address import Address


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong at present. Nothing, by default."""

    ingress_loss: float = 0.0
    """Share of incoming datagrams that are thrown away, 0 to 1."""
    egress_loss: float = 0.0
    """Share of outgoing datagrams that are thrown away, 0 to 1."""
    delay_min: float = 0.0
    """Seconds an outgoing datagram is held back at least ..."""
    delay_max: float = 0.0
    """... and at most; uniform in between. Unequal delays also reorder."""
    blocked_ingress: frozenset[Address] = frozenset()
    """Peers (by advertised address) from which nothing arrives, neither datagrams nor streams."""
    blocked_egress: frozenset[Address] = frozenset()
    """Peers to which nothing goes."""

    def __post_init__(self) -> None:
        for name in ("ingress_loss", "egress_loss"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is a share from 0 to 1, not {getattr(self, name)}")
        if not 0.0 <= self.delay_min <= self.delay_max:
            raise ValueError(f"0 <= delay_min <= delay_max must hold, not {self.delay_min}, {self.delay_max}")


NO_FAULTS = Faults()

_STREAMS_SUFFER_FROM = 0.5
"""TCP repeats what is lost, so a stream gets through moderate loss; from this share on it may fail too."""


class FaultInjector:
    """Applies `Faults` with its own random source. One per transport.

    Datagrams are judged one by one. A stream is judged when it is opened and at every frame: it fails
    while its link is blocked, and from 50 % loss on opening it fails with the probability of the loss.
    """

    def __init__(self, faults: Faults = NO_FAULTS, *, seed: int | None = None) -> None:
        """`seed`: the same seed and the same calls give the same losses; None takes a random one."""
        self._random = random.Random(seed)
        self._faults = faults
        self.active = faults != NO_FAULTS

    @property
    def faults(self) -> Faults:
        """The faults in force; assign to change them."""
        return self._faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._faults = faults
        self.active = faults != NO_FAULTS

    def block(self, peers: Iterable[Address]) -> None:
        """Cut both directions to `peers`, besides those blocked already."""
        cut = frozenset(peers)
        self.faults = replace(
            self._faults,
            blocked_ingress=self._faults.blocked_ingress | cut,
            blocked_egress=self._faults.blocked_egress | cut,
        )

    def unblock(self, peers: Iterable[Address]) -> None:
        """Mend both directions to `peers`."""
        mended = frozenset(peers)
        self.faults = replace(
            self._faults,
            blocked_ingress=self._faults.blocked_ingress - mended,
            blocked_egress=self._faults.blocked_egress - mended,
        )

    def loses_incoming(self, source: Address) -> bool:
        """Whether a datagram that has just arrived from `source` is to be thrown away."""
        return source in self._faults.blocked_ingress or self._random.random() < self._faults.ingress_loss

    def loses_outgoing(self, destination: Address) -> bool:
        """Whether a datagram about to go to `destination` is to be thrown away."""
        return destination in self._faults.blocked_egress or self._random.random() < self._faults.egress_loss

    def delay(self) -> float:
        """Seconds to hold an outgoing datagram back."""
        if self._faults.delay_max == 0.0:
            return 0.0
        return self._random.uniform(self._faults.delay_min, self._faults.delay_max)

    def refuses_stream(self, peer: Address | None) -> bool:
        """Whether a stream to or from `peer` cannot be opened now (None: a client that is no member)."""
        if not self.active:
            return False
        if peer is not None and (self.sending_blocked(peer) or self.receiving_blocked(peer)):
            return True
        loss = max(self._faults.ingress_loss, self._faults.egress_loss)
        return loss >= _STREAMS_SUFFER_FROM and self._random.random() < loss

    def sending_blocked(self, peer: Address) -> bool:
        """Whether frames to `peer` cannot pass at present."""
        return peer in self._faults.blocked_egress or self._faults.egress_loss >= 1.0

    def receiving_blocked(self, peer: Address) -> bool:
        """Whether frames from `peer` cannot pass at present."""
        return peer in self._faults.blocked_ingress or self._faults.ingress_loss >= 1.0
