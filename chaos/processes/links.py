"""What hosts of real agents are attached to: how a process gets there, and how packets get lost.

The interface that `loopback` and `namespaces` implement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from chaos.processes import control_messages as control
from chaos.processes.agent_process import AgentProcess
from chaos.processes.link_state import LinkState
from membership.address import Address


class Links(Protocol):
    """The network of one run."""

    most_hosts: int

    def add(self, number: int) -> None:
        """Make a place for host number `number`."""

    def address(self, number: int) -> Address:
        """Where the member on that host listens."""

    def prefix(self, number: int) -> list[str]:
        """What stands before a command to run it on that host."""

    def apply(self, state: LinkState, agents: Mapping[str, AgentProcess]) -> None:
        """Lose packets as `state` says, from now on."""

    def injected(self, state: LinkState, name: str) -> control.Injected:
        """What that agent's own transport has to lose."""

    def traffic(self, agent: AgentProcess, sample: control.Sample) -> tuple[int, int]:
        """Bytes that host received and sent so far."""

    def close(self) -> None:
        """Leave nothing behind."""
