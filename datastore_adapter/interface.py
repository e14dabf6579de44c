"""What the management plane knows of a datastore: one small interface, and the values it trades in.

Nothing here does input or output.  An engine (the embedded log, Valkey/Redis Cluster) implements
:class:`Adapter`; the control loop in ``mgmt`` talks to nothing else.

The flow is one way: ``observe`` tells what the engine holds now, ``lower`` turns a wanted
:class:`Placement` into a graph of :class:`Step`, and the executor starts steps one by one, each
carrying a :class:`Fence`, so that a deposed controller can change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


class AdapterError(Exception):
    """Base of everything an adapter raises on purpose."""


class FencedError(AdapterError):
    """The fence is older than what the engine has seen: another controller took over.  Stop and observe again."""


class StaleIntentError(AdapterError):
    """The compare-and-set lost: the epoch document changed meanwhile.  Read it again and retry."""

    def __init__(self, expected: int, current: int) -> None:
        super().__init__(f"the epoch document is at epoch {current}, not {expected}; read it again and retry")
        self.expected = expected
        self.current = current


SlotRange = tuple[int, int]
"""Slots of a shard, the first and the last of them."""


class Role(StrEnum):
    PRIMARY = "primary"
    REPLICA = "replica"


class ReplicaState(StrEnum):
    SYNCING = "syncing"  # holds new writes, lacks some old data; never served for what it lacks
    IN_SYNC = "in_sync"
    STALE = "stale"  # holds data of an old layout
    GONE = "gone"  # its host is not in the view


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of one segment: ``position`` 0 is the primary (the head of the chain)."""

    segment: str
    host: str
    position: int
    role: Role
    state: ReplicaState
    bytes: int = 0
    lag: int = 0
    history_id: str = ""


@dataclass(frozen=True, slots=True)
class Away:
    """Records from address ``start`` up to ``end`` that cannot be read, because no host that has them is there."""

    start: int
    end: int
    hosts: tuple[str, ...]
    """One of them has to come back; none: nobody has them any more."""


@dataclass(frozen=True, slots=True)
class SegmentObservation:
    key: str
    replicas: tuple[Replica, ...]
    bytes: int = 0
    retired: bool = False
    """It keeps its records, and takes no more."""
    trimmed: bool = False
    """It is retired, and none of its records is left: a plan may leave it out."""
    away: tuple[Away, ...] = ()
    """What the engine goes on without; ``replicas`` are those of the rest."""
    fewest_copies: int | None = None
    """Live copies of whichever of its data has fewest.  In the middle of a move a host with the old data and one with
    the new together hold one more than are in sync.  None: as many as are in sync."""
    slots: tuple[SlotRange, ...] = ()
    """What it holds of the key space, where the engine divides that into slots: ascending, none next to another."""
    load: float = 0.0
    """Operations per second, where the engine counts them."""


class DiskState(StrEnum):
    """What is wrong with a disk."""

    FULL = "full"  # it takes no more; what it has is served
    FAILED = "failed"  # it failed lately: it may serve again, and may fail again
    SLOW = "slow"  # far slower than those of the other hosts, who wait for it


@dataclass(frozen=True, slots=True)
class DiskTrouble:
    """A host whose disk is not to be relied on; it stays a member."""

    state: DiskState
    reason: str
    """In words."""
    is_relieved: bool = True
    """Whether new data is kept from it, and its copies are made elsewhere: else too few others would be left."""


@dataclass(frozen=True, slots=True)
class ServiceRoles:
    """Hosts by service role.  Order matters: ``sequencers[0]`` is the active one."""

    layout_servers: tuple[str, ...] = ()
    sequencers: tuple[str, ...] = ()
    log_units: tuple[str, ...] = ()


def layout_servers_wanted(hosts: int) -> int:
    """How many layout servers there are to be, of so many hosts that can carry one.

    A majority of three outlives one that dies, of five two that die together.
    """
    return 5 if hosts >= 5 else min(3, hosts)


@dataclass(frozen=True, slots=True)
class Observation:
    """What the engine reports, read from a majority: never a guess.  ``layout_epoch`` is -1 before a layout exists."""

    layout_epoch: int
    cluster_id: str
    segments: tuple[SegmentObservation, ...]
    roles: ServiceRoles
    unresponsive: frozenset[str] = frozenset()
    intent: Mapping[str, Any] = field(default_factory=dict)
    """The operators' intent as it stands in the epoch document (``mgmt.placement.intent``); plain JSON-like data."""
    disks: Mapping[str, DiskTrouble] = field(default_factory=dict)
    """Of hosts whose disks are not in order.  Engines tell who is full or failed; who is slow is judged by others."""
    sync_seconds: Mapping[str, float] = field(default_factory=dict)
    """Of each host that answered, what it takes to make something durable of late; 0: not known."""
    room: Mapping[str, int] = field(default_factory=dict)
    """About how many bytes more the disks take, of hosts that are or were full."""
    unfinished: bool = False
    """A change of the engine's own was left half done, so that it does not serve fully: see ``Adapter.repair``."""
    servers: Mapping[str, int] = field(default_factory=dict)
    """How many copies each live host can hold, where each takes a server process of its own.  Empty: any number."""
    notices: tuple[str, ...] = ()
    """What operators should know of the engine, a sentence each: a setting at odds with what the plane promises."""

    @property
    def relieved(self) -> frozenset[str]:
        """Hosts whose disks are not in order, and that are to hold nothing."""
        return frozenset(host for host, trouble in self.disks.items() if trouble.is_relieved)


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No majority answered; nothing may be concluded about the engine."""

    reason: str
    lost: tuple[str, ...] = ()
    """Layout servers without which there is no majority: they have left the view, or lost the disk that voted.  Nothing
    changes until one is back, or an operator orders to go on without them (``Adapter.recover``)."""
    known: Observation | None = None
    """The latest that live hosts know, which may not be in force any more: to show to people, never to act upon."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What is wanted: per segment its hosts in order, the primary first, and who carries the service roles."""

    segments: Mapping[str, tuple[str, ...]]
    roles: ServiceRoles
    retired: frozenset[str] | None = None
    """Of these segments, those that are to take no more records; None: the same as now."""
    slots: Mapping[str, tuple[SlotRange, ...]] | None = None
    """Which slots each segment is to hold, where the engine divides its keys into such; None: the same as now."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a document is changed: for the history, and for nothing else."""

    by: str = ""
    """The host whose controller changes it."""
    at: float = 0.0
    """Unix seconds, by that host's clock."""
    why: str = ""
    """One line for people."""
    asked_at: str = ""
    """The host where an operator asked for it; empty: the control loop did it by itself."""


NO_CAUSE = Cause()


@dataclass(frozen=True, slots=True, order=True)
class Fence:
    """Carried by every mutating call; compared in this order."""

    view_epoch: int
    layout_epoch: int
    plan_id: str
    step: int
    cause: Cause = field(default=Cause(), compare=False)
    """What the engine notes beside the change."""


@dataclass(frozen=True, slots=True)
class LayoutVersion:
    """What was in force at one epoch."""

    epoch: int
    placement: Placement
    holders: Mapping[str, tuple[str, ...]]
    """Per segment every host with a copy or a part of one: during a move more than ``placement`` names."""
    intent: Mapping[str, Any]
    view_epoch: int
    plan_id: str
    """Of the plan it belongs to, if any."""
    cause: Cause


@dataclass(frozen=True, slots=True)
class Step:
    """One thing for the engine to do.  ``after`` names the steps that must be done first."""

    number: int
    kind: str  # the engine's own vocabulary, e.g. "open", "copy", "close"
    description: str  # one line for people
    after: frozenset[int] = frozenset()
    segment: str | None = None
    source: str | None = None
    destination: str | None = None
    bytes: int = 0
    required: bool = True
    reversible: bool = True
    arguments: Mapping[str, Any] = field(default_factory=dict)
    bytes_per_second: float = 0.0
    """What a transfer may use at most, where the engine can throttle; 0: unlimited.  No part of what the step is."""


@dataclass(frozen=True, slots=True)
class StepGraph:
    """Steps in a valid execution order (each ``after`` points backwards); numbers are 0..n-1."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Pending:
    """Not started, or forgotten by a restarted engine: start it again."""


@dataclass(frozen=True, slots=True)
class Running:
    done: int
    total: int
    unit: str = "bytes"
    rate: float = 0.0  # units per second


@dataclass(frozen=True, slots=True)
class Done:
    pass


@dataclass(frozen=True, slots=True)
class Failed:
    code: str
    message: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class Cancelled:
    pass


StepStatus = Pending | Running | Done | Failed | Cancelled


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a step must not be started in the state observed."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Capabilities:
    name: str
    resumable_transfer: bool
    cancellable_transfer: bool
    moves_primaries: bool
    throttles_transfer: bool = False
    """Whether ``Step.bytes_per_second`` is kept."""
    slots: int = 0
    """Into how many slots its keys are divided; 0: it has none, and ``Placement.slots`` means nothing to it."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What going on without a majority comes to."""

    layout_epoch: int
    """The new one, or the one it would go on from."""
    risks: tuple[str, ...] = ()
    """What may be lost by it, a sentence each."""


class Adapter(Protocol):
    """One datastore engine.  Calls may be repeated: ``start`` is idempotent by step id and by effect.

    What is promised here is held against every engine by one suite, ``tests/contract``; a further engine needs a rig.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do; always the same."""
        ...

    def set_hosts(self, view_epoch: int, addresses: Mapping[str, str]) -> None:
        """Tell the adapter who is in the view: host name -> ``host:port``.  Hosts not named are gone."""
        ...

    async def observe(self) -> Observation | Unreachable:
        """What stands now, from a majority.  Never raises for an engine that does not answer."""
        ...

    async def history(self) -> tuple[LayoutVersion, ...] | Unreachable:
        """What was in force and is, by epoch ascending, as far back as the engine keeps it; epochs may be missing."""
        ...

    async def set_intent(self, expected_epoch: int, intent: Mapping[str, Any], fence: Fence) -> int:
        """Agree new intent into the epoch document by compare-and-set; returns the new layout epoch.

        Raises :class:`StaleIntentError` when the document moved on, :class:`FencedError` when deposed,
        :class:`AdapterError` when no majority answered: then it may or may not have been agreed.
        """
        ...

    async def check(self, fence: Fence) -> None:
        """Whether whoever carries ``fence`` may still change something, by what a majority of the engine says.

        Raises :class:`FencedError` when deposed, :class:`AdapterError` when no majority answered.
        """
        ...

    def lower(self, current: Observation, target: Placement) -> StepGraph:
        """The steps from what stands to what is wanted; none when it stands.

        Pure and deterministic: the dry run of a plan needs no server.  Raises ValueError for what cannot be.
        """
        ...

    def precheck(self, step: Step, observation: Observation) -> Refusal | None:
        """Why the step must not be started in this state, if it must not; asks nobody."""
        ...

    async def start(self, step: Step, fence: Fence) -> None:
        """Begin the step; one that runs is not begun twice, one that was done does no harm.

        Raises :class:`FencedError` when deposed, as far as this adapter knows already; otherwise the step fails with
        the code ``fenced``, for good.
        """
        ...

    async def poll(self, step: Step) -> StepStatus:
        """How it is.  ``Pending``: this adapter did not start it."""
        ...

    async def cancel(self, step: Step) -> None:
        """Stop it, if it runs; what it has done stays done, and starting it again takes it up from there."""
        ...

    def inverse(self, step: Step) -> Step | None:
        """The step that leads back; None where nothing needs undoing, or nothing can be undone.  Pure."""
        ...

    async def repair(self, observation: Observation) -> StepGraph:
        """Steps that finish what was left open: a sealed but undecided epoch, a half copied replica."""
        ...

    async def forget(self, hosts: Collection[str], fence: Fence) -> None:
        """Record an operator's word that ``hosts`` never come back: what only they held is given up.

        Raises :class:`FencedError`, or :class:`AdapterError` for a host that is in the view, or that holds nothing, and
        when no majority of the engine answered.
        """
        ...

    async def recover(self, fence: Fence, *, only_look: bool = False) -> Recovery:
        """By an operator's word, go on with the hosts of the view although no majority of the engine's is among them.

        ``only_look``: what it would go on from, and nothing is changed.  Raises
        :class:`AdapterError` when a majority is there, or a host of the view does not answer.
        """
        ...

    async def failover(self, segment: str, fence: Fence, prefer: str | None = None) -> None:
        """Make ``prefer``, or a live replica, the primary of the segment; returns when it is.

        Raises :class:`FencedError`, or :class:`AdapterError` when that is no replica or it could not be done.
        """
        ...
