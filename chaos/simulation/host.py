"""One machine of the simulator, and what it keeps while its process is stopped or gone.

State; the simulator alone changes it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from typing import Any

from chaos.simulation.process import Effects, Process

Factory = Callable[[int, random.Random], Process]
"""Makes a host's process: given how often it was started before, and a random source of its own."""


class Host:
    """One simulated machine: at most one process at a time, one address."""

    __slots__ = (
        "address",
        "backlog",
        "clock_offset",
        "commands",
        "factory",
        "generation",
        "index",
        "name",
        "paused",
        "process",
        "queued_tick",
        "received_bytes",
        "sent_bytes",
        "wake_at",
        "wake_tick",
    )

    def __init__(
        self, index: int, name: str, address: Hashable, factory: Factory, clock_offset: float
    ) -> None:
        self.index = index
        self.name = name
        self.address = address
        self.factory = factory
        self.clock_offset = clock_offset
        """Seconds this host's clock is ahead of virtual time: cores must not compare each other's clocks."""
        self.generation = 0
        """How many processes were started here."""
        self.process: Process | None = None
        self.paused = False
        self.backlog: list[tuple[Host, Any, int]] = []
        self.commands: list[Callable[[Any, float], Effects]] = []
        self.wake_at: float | None = None
        self.wake_tick: int | None = None
        self.queued_tick: int | None = None
        self.received_bytes = 0
        self.sent_bytes = 0

    @property
    def up(self) -> bool:
        """Whether a process runs here (it may be paused)."""
        return self.process is not None

    def __repr__(self) -> str:
        return f"<Host {self.name} {'up' if self.up else 'down'}>"
