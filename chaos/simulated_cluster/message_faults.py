"""Faults that choose by message type: lose a type on its way to a host, kill a host that sends one.

What the simulator asks before it sends (`Simulator.before_send`), so that a script can lose a decision at one member,
or let a coordinator die between the phases of its round.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from chaos.simulation.host import Host
from chaos.simulation.simulator import Simulator


class MessageFaults:
    """The rules in force. `kill` is called with the host that a rule kills, once its message is on its way."""

    def __init__(self, simulator: Simulator, rng: random.Random, kill: Callable[[Host], None]) -> None:
        self._simulator = simulator
        self._random = rng.random
        self._kill = kill
        self._losses: dict[tuple[str, Hashable], float] = {}
        self._deadly: list[tuple[str, set[str]]] = []

    def drop(self, kind: str, probability: float, hosts: Iterable[Host]) -> None:
        """Lose that share of messages of this type on their way to the hosts; 0 ends it."""
        for host in hosts:
            self._losses.pop((kind, host.address), None)
            if probability:
                self._losses[kind, host.address] = probability
        self._listen()

    @property
    def lose_any(self) -> bool:
        """Whether messages of some type are lost."""
        return bool(self._losses)

    def crash_on(self, kind: str, hosts: Iterable[Host]) -> None:
        """Kill the first of the hosts that sends a message of this type, right after it."""
        self._deadly.append((kind, {host.name for host in hosts}))
        self._listen()

    def disarm(self, hosts: Iterable[Host]) -> None:
        """Take back what `crash_on` has not done to these hosts yet."""
        names = {host.name for host in hosts}
        self._deadly = [(kind, armed - names) for kind, armed in self._deadly if armed - names]
        self._listen()

    def clear(self) -> None:
        """End every fault of this kind."""
        self._losses.clear()
        self._deadly.clear()
        self._listen()

    def _listen(self) -> None:
        self._simulator.before_send = self._before_send if self._losses or self._deadly else None

    def _before_send(self, host: Host, destinations: Sequence[Hashable], message: Any) -> Sequence[Hashable]:
        kind = type(message).__name__
        rule = next((rule for rule in self._deadly if rule[0] == kind and host.name in rule[1]), None)
        if rule is not None:
            self._deadly.remove(rule)
            process = host.process
            # After this, so that the message itself and what goes with it still leave the host.
            self._simulator.call_after(0.0, lambda: self._kill(host) if host.process is process else None)
        if not self._losses:
            return destinations
        return [address for address in destinations if not self._is_lost(kind, address)]

    def _is_lost(self, kind: str, address: Hashable) -> bool:
        loss = self._losses.get((kind, address))
        return loss is not None and self._random() < loss
