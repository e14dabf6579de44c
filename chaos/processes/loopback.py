"""Backend `process`: agents on loopback, with faults injected in their own transports. Needs no root.

An address of the run's own network for every host, and the translation of faults into what each agent's transport
has to throw away.
"""

from __future__ import annotations

from collections.abc import Mapping

from chaos.errors import BadArgumentError
from chaos.processes import control_messages as control
from chaos.processes.agent_process import AgentProcess
from chaos.processes.link_state import LinkState
from membership.address import Address
from membership.runtime.own_network import OwnNetwork


class LoopbackLinks:
    """Hosts 127.X.Y.1 and on, in a network of this run's own, so that runs side by side do not meet."""

    most_hosts = 200

    def __init__(self) -> None:
        self._network = OwnNetwork.claim()
        self._hosts: list[str] = []

    def add(self, number: int) -> None:
        """Remember the host; there is nothing to make."""
        if number >= self.most_hosts:
            raise BadArgumentError(
                f"at most {self.most_hosts} hosts, newcomers included, run on this backend; use fewer nodes"
            )
        self._hosts.append(f"n{number}")

    def address(self, number: int) -> Address:
        """One address per host, one port for all."""
        return self._network.address(number + 1)

    def prefix(self, number: int) -> list[str]:
        """Every host is this one."""
        return []

    def apply(self, state: LinkState, agents: Mapping[str, AgentProcess]) -> None:
        """Tell every agent what to lose."""
        for name, agent in agents.items():
            if agent.begun:
                agent.send(control.Inject(self.injected(state, name)))

    def injected(self, state: LinkState, name: str) -> control.Injected:
        """Ambient loss happens once, where a packet arrives."""
        others = [host for host in self._hosts if host != name]
        return control.Injected(
            ingress_loss=1 - (1 - state.loss) * (1 - state.ingress(name)),
            egress_loss=state.egress(name),
            blocked_ingress=tuple(self._text(host) for host in others if state.blocks(host, name)),
            blocked_egress=tuple(self._text(host) for host in others if state.blocks(name, host)),
        )

    def _text(self, host: str) -> str:
        return str(self.address(int(host.removeprefix("n"))))

    def traffic(self, agent: AgentProcess, sample: control.Sample) -> tuple[int, int]:
        """As the agent's transport counted."""
        return sample.received, sample.sent

    def close(self) -> None:
        """Give the addresses back."""
        self._network.close()
