"""What the simulator hosts: any sans-I/O process.

The structural types of a process and its effects. `membership.Core` fits; so does any state machine that is told the
time and what arrived, and answers with what to send and when to wake it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol


class Send(Protocol):
    """One message to one or more destinations."""

    @property
    def destinations(self) -> Sequence[Hashable]:
        """The addresses to send to."""

    @property
    def message(self) -> Any:
        """The message, shared by all destinations and never changed after."""

    @property
    def reliable(self) -> bool:
        """False: one datagram. True: one frame on a stream of its own (TCP)."""


class Effects(Protocol):
    """What a process wants done after an input."""

    @property
    def sends(self) -> Sequence[Send]:
        """The messages, in order."""

    @property
    def events(self) -> Sequence[object]:
        """What happened, for the process's host."""

    @property
    def wake_at(self) -> float:
        """Absolute time, in seconds of this process's clock, of the next `tick`; infinity for none."""


class Process(Protocol):
    """A pure state machine with explicit time in seconds."""

    def start(self, now: float) -> Effects:
        """Called once, first."""

    def receive(self, source: Any, message: Any, now: float) -> Effects:
        """A message arrived."""

    def tick(self, now: float) -> Effects:
        """The time asked for has come."""


class Codec(Protocol):
    """How messages become bytes: for counting, and for sending every message through it."""

    def encode(self, message: Any) -> bytes:
        """The bytes of `message`."""

    def decode(self, data: bytes) -> Any:
        """The message of `data`."""
