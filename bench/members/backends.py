"""What the members of a membership benchmark run on: the simulator, or real sockets.

The one place where that is chosen, and where each backend's own options go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

from bench.members import simulated
from bench.members import socket_runs as crowd_runs
from bench.members.run import Run


class Backend(Protocol):
    """Where members run. ``clock``: what its seconds are."""

    clock: ClassVar[str]

    def bootstrap(self, nodes: int, seed: int) -> Run:
        """All members start together."""

    def crash(self, nodes: int, faulty: int, seed: int) -> Run:
        """``faulty`` of them vanish together."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """In virtual time. ``loss``: share of datagrams that is lost. ``codec``: encode and decode every message."""

    loss: float = 0.0
    codec: bool = False
    clock: ClassVar[str] = "virtual seconds"

    def bootstrap(self, nodes: int, seed: int) -> Run:
        return simulated.bootstrap(nodes, seed, loss=self.loss, codec=self.codec)

    def crash(self, nodes: int, faulty: int, seed: int) -> Run:
        return simulated.crash(nodes, faulty, seed, loss=self.loss, codec=self.codec)


@dataclass(frozen=True, slots=True)
class RealSockets:
    """In ``processes`` processes of this machine; all members start within ``spread`` seconds."""

    processes: int = 2
    spread: float = crowd_runs.SPREAD
    clock: ClassVar[str] = "seconds"

    def bootstrap(self, nodes: int, seed: int) -> Run:
        return crowd_runs.bootstrap(nodes, self.processes, seed, self.spread)

    def crash(self, nodes: int, faulty: int, seed: int) -> Run:
        return crowd_runs.crash(nodes, self.processes, faulty, seed, self.spread)


BACKENDS: Final = ("sim", "process")
"""Their names on the command line."""


def backend_of(name: str, *, loss: float, codec: bool, processes: int, spread: float) -> Backend:
    """The backend of this name. Raises ValueError for an option that it cannot heed."""
    if name == "sim":
        return Simulated(loss, codec)
    if loss or codec:
        raise ValueError(
            "--loss and --codec are of the simulator: real packets are always encoded, and lost by themselves"
        )
    return RealSockets(processes, spread)
