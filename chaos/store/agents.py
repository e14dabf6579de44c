"""A cluster of real agents with a store, whichever it is: `AgentCluster` with a control loop in every agent.

Racks, an observer in a thread of its own that asks the agents over HTTP what they are at, and the story.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from chaos.checkers.store_outcome import CopiesWatch, Roles, StoreOutcome
from chaos.faults import Fault
from chaos.processes.agents import AgentCluster
from chaos.processes.links import Links
from chaos.script import format_fault
from chaos.store.observer import Observer
from membership.address import Address

_RACKS = 3


class AgentStoreCluster(AgentCluster):
    """`nodes` hosts in three racks."""

    segments: ClassVar[int]
    copies: ClassVar[int]
    """Of each segment."""

    def __init__(self, nodes: int, links: Links, *, seed: int, loss: float, logs: Path | None = None) -> None:
        super().__init__(nodes, links, backend="process", seed=seed, loss=loss, logs=logs)
        self.story: list[tuple[float, str]] = []
        """What happened when, in words."""
        self.watch = CopiesWatch()
        self._links_of_store = links
        self._observer = Observer(self._look)
        self._spread_over: dict[str, str] = {}

    # -- agents ---------------------------------------------------------------------------------

    def _arguments(self, number: int, founder: bool) -> list[str]:
        rack = f"r{number % _RACKS + 1}"
        name, own = f"n{number}", self._links_of_store.address(number)
        api = str(Address(own.host, own.port + 1))
        self._spread_over[name] = rack
        self._observer.ask(name, api)
        founding = ("--expect", self.nodes, "--segments", self.segments, "--replication-factor", self.copies)
        return [
            *("--api", api, "--tag", f"rack={rack}"),
            *(map(str, founding) if founder else ()),
        ]

    def _live(self) -> dict[str, str]:
        """The rack of each host whose agent runs."""
        return {name: self._spread_over[name] for name in self._running()}

    def apply(self, fault: Fault) -> None:
        self.story.append((self.now, format_fault(fault)))
        self._carry_out(fault)

    def _carry_out(self, fault: Fault) -> None:
        super().apply(fault)

    # -- the store ------------------------------------------------------------------------------

    def _look(self, observer: Observer) -> None:
        """Called by the observer, in its thread, after each round of questions."""
        if observer.layout is not None:
            broken = observer.broken_segments(self._live(), self.copies)
            self.watch.look(self.now, broken)

    def placing(self) -> bool:
        """Whether the first placement was decided."""
        return self._observer.placing

    def placed(self) -> bool:
        """Whether the store has nothing left to do in the latest view."""
        return self.latest is not None and self._observer.settled(self.latest.epoch)

    def roles(self) -> Roles:
        """Who is what in the store now."""
        layout, controller = self._observer.layout, self._observer.controller
        if layout is None or controller is None:
            return Roles("n0", "n0", ("n0",), dict(self._spread_over))
        roles: dict[str, Any] = layout["roles"]
        sequencers = roles["sequencers"] or [controller]
        return Roles(controller, sequencers[0], tuple(roles["layout_servers"]), dict(self._spread_over))

    def start(self, spread: float) -> None:
        super().start(spread)
        self._observer.begin()

    def begin_use(self, duration: float) -> None:
        """Clients use the store from now on, and the rule on copies is watched."""
        raise NotImplementedError

    def conclude(self, began: float) -> StoreOutcome:
        """Let the clients end and the store settle, read everything back, and report. `began`: the first fault."""
        raise NotImplementedError

    def _end_watching(self, began: float) -> list[int]:
        """The observer looks a last time, and its story is told; how many plans were begun in each view since."""
        self._observer.end()
        self._observer.look()
        plans = self._observer.plans()
        self.story += [(seconds - self._began_at, text) for seconds, text in self._observer.story]
        self.story.sort()
        return [plans.get(view.epoch, 0) for view in self.views if view.seconds >= began]

    def _run_until(self, done: Callable[[], bool], seconds: float) -> bool:
        return done() or self.run(self.now + seconds, stop=done)

    def close(self) -> None:
        self._observer.end()
        super().close()
