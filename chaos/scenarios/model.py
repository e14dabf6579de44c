"""What a scenario is: who is faulty, what goes wrong when, and what is promised.

Data and small pure functions over what was recorded.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from chaos.checkers.store_outcome import Roles, StoreOutcome
from chaos.faults import At, Hosts, is_over
from chaos.recording.views import QuorumNotice, View
from membership.protocol.view.configuration import Configuration
from membership.settings import Settings


@dataclass(frozen=True)
class Outcome:
    """What was recorded from the moment the faults began (in `bootstrap`: from the first start)."""

    nodes: int
    faulty: Hosts
    """The hosts that the scenario hurt; all others are healthy."""
    first_size: int | None
    """Members in the view at the beginning; None when there was no view yet."""
    views: tuple[View, ...]
    """The views that came after; seconds count from the beginning of the record."""
    agreement: bool
    """No invariant broke, and at the end every running member of the latest view stood in it."""
    converged: bool
    """At the end the latest view was exactly the running processes, and each stood in it."""
    notices: tuple[QuorumNotice, ...]
    """Who lost and regained its quorum; seconds as above."""
    settings: Settings
    store: StoreOutcome | None = None
    """What the store showed, if there was one."""
    schedule: tuple[At, ...] = ()
    """What was done, and when; seconds as above."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the views, in order, the one at the beginning included."""
        later = tuple(view.size for view in self.views)
        return later if self.first_size is None else (self.first_size, *later)

    @cached_property
    def removed(self) -> tuple[str, ...]:
        """The hosts removed at least once, in order of removal."""
        return tuple(dict.fromkeys(name for view in self.views for name in view.removed))

    @property
    def faulty_removed(self) -> Hosts:
        """The faulty hosts among the removed."""
        return tuple(name for name in self.removed if name in self.faulty)

    @property
    def healthy_removed(self) -> Hosts:
        """The healthy hosts among the removed: always a mistake, unless a scenario says otherwise."""
        return tuple(name for name in self.removed if name not in self.faulty)

    @cached_property
    def readded(self) -> Hosts:
        """The hosts that came in again after a removal although what was done to them, if anything, was not over."""
        gone: dict[str, None] = {}
        again: dict[str, None] = {}
        for view in self.views:
            back = [name for name in view.joined if name in gone or name in view.removed]
            again.update((name, None) for name in back if not is_over(self.schedule, name, view.seconds))
            gone.update((name, None) for name in view.removed)
        return tuple(again)


@dataclass(frozen=True, slots=True)
class Promise:
    """A sentence that must be true of the outcome."""

    sentence: str
    holds: Callable[[Outcome], bool]


@dataclass(frozen=True, slots=True)
class ScenarioContext:
    """What a scenario's schedule may look at when the cluster stands and the faults are about to begin."""

    configuration: Configuration
    nodes: int
    faulty: int
    """How many hosts to hurt."""
    duration: float
    """Seconds for which the record goes on."""
    settings: Settings
    rng: random.Random
    roles: Roles | None = None
    """Who is what in the store, if there is one."""

    @property
    def store(self) -> Roles:
        """The roles; only for scenarios with a store."""
        assert self.roles is not None, "a scenario that needs a store runs with one"
        return self.roles

    def choose_faulty(self) -> Hosts:
        """`faulty` hosts, chosen by the seed among all."""
        return tuple(f"n{number}" for number in sorted(self.rng.sample(range(self.nodes), self.faulty)))


@dataclass(frozen=True, slots=True)
class Plan:
    """Whom a scenario hurts, and when what happens (seconds from the beginning of the record)."""

    faulty: Hosts
    schedule: tuple[At, ...] = ()


def few(nodes: int) -> int:
    """One host in fifty, at least one."""
    return max(1, nodes // 50)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario. `plan` is asked when all nodes are members; None when there is no fault to plan."""

    name: str
    summary: str
    """What happens and what it must show, in one line."""
    promises: tuple[Promise, ...]
    duration: float
    """Seconds of the record, unless the caller says otherwise."""
    plan: Callable[[ScenarioContext], Plan] | None = None
    faulty: Callable[[int], int] = field(default=few)
    """How many hosts to hurt by default, from the number of nodes."""
    minimum_duration: float = 10.0
    """Seconds within which nothing of what is promised can be seen yet ..."""
    seconds_per_faulty: float = 0.0
    """... and so much more for each host that is hurt."""
    minimum_nodes: int = 1
    loss: float = 0.0
    """Ambient loss unless the caller gives one."""
    leaps: bool = False
    """Whether the simulator leaps over quiet time (see `simulation_fast_forward`); its traffic is not sampled then."""
    needs_quorum: bool = True
    """Whether more than half of the nodes must be left healthy."""
    needs_store: bool = False
    """Whether it shows nothing without a store."""
    waits_for_placement: bool = True
    """With a store: whether the faults wait until everything is placed."""
    with_store: Scenario | None = None
    """What runs in its place where there is a store; None: the same. What is promised of the store itself always
    comes besides (`promises` of its outcome)."""
    runs_with_servers: bool = False
    """Whether its faults hit the servers of Valkey or Redis on a host as they would in life."""

    def least_duration(self, faulty: int) -> float:
        """The shortest record, in seconds, in which the promises can be seen with so many hosts hurt."""
        return self.minimum_duration + self.seconds_per_faulty * faulty


AGREEMENT = Promise(
    "all members of the last view stand in it, in one chain", lambda outcome: outcome.agreement
)
CONVERGED = Promise("in the end the view is exactly the running processes", lambda outcome: outcome.converged)
EXACTLY_THE_FAULTY = Promise(
    "every faulty host is removed, and nobody else",
    lambda outcome: not outcome.healthy_removed and len(outcome.faulty_removed) == len(outcome.faulty),
)
NOBODY_HEALTHY = Promise("no healthy host is removed", lambda outcome: not outcome.healthy_removed)
NOT_READDED = Promise("nobody removed comes back while its fault lasts", lambda outcome: not outcome.readded)
ONE_CHANGE = Promise("one view change is enough", lambda outcome: len(outcome.views) == 1)
CAME_BACK = Promise(
    "afterwards all are in one view again",
    lambda outcome: bool(outcome.sizes) and outcome.sizes[-1] == outcome.nodes and outcome.converged,
)
NO_CHANGE = Promise("the view does not change", lambda outcome: not outcome.views)


def _store(outcome: Outcome) -> StoreOutcome:
    assert outcome.store is not None
    return outcome.store


ONE_PLAN_EACH = Promise("one plan for each view change", lambda outcome: set(_store(outcome).plans) == {1})
