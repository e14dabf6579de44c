"""What a scenario needs of a cluster: hosts that run members, links between them, a clock, and a record.

What the runner needs of a backend, and the record of view sizes that every backend keeps. The simulator's `Cluster`
is one; `AgentCluster` on loopback or in network namespaces are the others.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from chaos.checkers.store_outcome import Roles, StoreOutcome
from chaos.faults import At
from chaos.recording.traffic import Traffic
from chaos.recording.views import QuorumNotice, View
from membership.protocol.view.configuration import Configuration

SAMPLES = 1000
"""A member's size is recorded this often in a run, and at most once a second."""


class SizeSamples:
    """Who saw how many members, and when: one entry per member and second, in order of time."""

    __slots__ = ("hosts", "seconds", "sizes")

    def __init__(self) -> None:
        self.seconds = array("d")
        self.hosts = array("I")
        """Numbers of hosts: 3 for n3."""
        self.sizes = array("I")

    def record(self, seconds: float, host: int, size: int) -> None:
        """A member on this host saw that many members."""
        self.seconds.append(seconds)
        self.hosts.append(host)
        self.sizes.append(size)

    def since(self, beginning: float) -> SizeSamples:
        """The same with seconds counted from `beginning`."""
        moved = SizeSamples()
        moved.seconds = array("d", (seconds - beginning for seconds in self.seconds))
        moved.hosts, moved.sizes = self.hosts, self.sizes
        return moved

    def __len__(self) -> int:
        return len(self.seconds)

    def __iter__(self) -> Iterator[tuple[float, int, int]]:
        return zip(self.seconds, self.hosts, self.sizes, strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SizeSamples) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


class ClusterUnderTest(Protocol):
    """A backend while one scenario runs on it. Times are seconds since the first process started."""

    @property
    def now(self) -> float: ...
    @property
    def traffic(self) -> Traffic: ...
    @property
    def sizes(self) -> SizeSamples: ...
    @property
    def last_installation(self) -> float:
        """When a process last installed a view."""

    @property
    def latest(self) -> Configuration | None:
        """The view of the highest epoch anybody installed."""

    @property
    def views(self) -> Sequence[View]:
        """The chain of views, in order of epoch."""

    @property
    def quorum_notices(self) -> Sequence[QuorumNotice]: ...
    @property
    def cpu_seconds(self) -> float:
        """What all members together have cost so far."""

    def start(self, spread: float) -> None:
        """Start n0, which founds the cluster, now, and the others within `spread` seconds."""

    def run(self, until: float, *, stop: Callable[[], bool] | None = None) -> bool:
        """Go on until that time; True when `stop` ended it before. Raises InvariantViolation."""

    def schedule(self, schedule: Iterable[At], *, offset: float = 0.0) -> None:
        """Let each fault happen at its time, counted from `offset`."""

    def begin_record(self, interval: float) -> None:
        """Count bytes and record view sizes from now on, each member's every `interval` seconds."""

    def converged(self) -> bool:
        """Whether every running process stands in the latest view, and nobody else is in it."""

    def agreed(self) -> bool:
        """Whether every running member of the latest view stands in it."""

    def close(self) -> None:
        """End everything; nothing is left behind."""


class StoreUnderTest(ClusterUnderTest, Protocol):
    """A backend whose hosts carry a store, too, while one scenario runs on it."""

    @property
    def story(self) -> Sequence[tuple[float, str]]:
        """What happened when, in words."""

    def placing(self) -> bool:
        """Whether the first placement was decided: from then on it no longer waits for all hosts to be there."""

    def placed(self) -> bool:
        """Whether the store has nothing left to do in the latest view."""

    def roles(self) -> Roles:
        """Who is what in the store now."""

    def begin_use(self, duration: float) -> None:
        """Clients use the store from now on, and the rule on copies is watched; for about so many seconds."""

    def conclude(self, began: float) -> StoreOutcome:
        """Let the clients end and the store settle, read everything back, and report. `began`: the first fault."""
