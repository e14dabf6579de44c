"""What to do next about the moves of a plan, told the time and what vCenter says: no input or output, and no clock.

A shell asks for :meth:`Migrations.actions`, performs them, and reports: what was started or refused, what vCenter shows
(:meth:`observed`), that the connection was lost.  vCenter is the truth.  A request whose answer was lost is looked for,
and made again only when there is neither its task nor its effect; so nothing is moved twice, whatever is lost in the
middle.  ``journal`` is what a later process needs to go on.

    waiting -> starting -> running -> done
                  |           |-> failed, or stalled -> cancelling -> failed
                  `-> unknown (no answer) -> running, done, or waiting again
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from orchestrators.vsphere.inventory import Inventory, Machine, Move
from orchestrators.vsphere.move_order import Budgets, Occupancy, startable


class State(StrEnum):
    """How far a migration is."""

    WAITING = "waiting"
    STARTING = "starting"  # asked for, not answered yet
    UNKNOWN = "unknown"  # asked for; the answer was lost
    RUNNING = "running"
    CANCELLING = "cancelling"
    DONE = "done"
    FAILED = "failed"  # vCenter said so, or gave no sign of an end
    LEFT_OUT = "left out"  # it is no longer possible, or no longer wanted


_UNDER_WAY = (State.STARTING, State.UNKNOWN, State.RUNNING, State.CANCELLING)
_OWN = "VirtualMachine.relocate"
"""How the names of tasks begin that are asked for here; others are not taken for them."""
_ENDED = (State.DONE, State.FAILED, State.LEFT_OUT)


class Task(msgspec.Struct, frozen=True):
    """A task of vCenter."""

    id: str
    entity: str
    """The id of the machine or host that it is about."""
    state: str
    """``queued``, ``running``, ``success`` or ``error``."""
    progress: int = 0
    error: str = ""
    kind: str = ""
    """vCenter's name of what it does, such as ``VirtualMachine.relocate``."""

    @property
    def is_running(self) -> bool:
        return self.state in ("queued", "running")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds."""

    stalled: float = 900.0
    """Without progress a migration is cancelled.  Shorter: a plan waits less for one that hangs, and large machines on
    slow networks may be taken for such."""
    cancelling: float = 120.0
    """Afterwards one that is not cancelled is given up: it counts on both hosts until it ends."""
    settling: float = 15.0
    """So long after a lost answer neither task nor effect is there, and it is asked for again."""
    others: float = 1800.0
    """So long a plan that can do nothing itself waits for moves that hang or are not of this plan."""


@dataclass(frozen=True, slots=True)
class Start:
    """Ask vCenter to move a machine."""

    machine: str
    destination: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Ask vCenter to cancel a task."""

    machine: str
    task: str


class Entry(msgspec.Struct, omit_defaults=True):
    """A migration; a list of these is the journal."""

    machine: str
    source: str
    destination: str
    state: State = State.WAITING
    task: str = ""
    progress: int = 0
    since: float = 0.0
    """When it came into this state, or last made progress."""
    ended: float = 0.0
    """Since when no running task of it is seen, although it is under way; 0 while one is."""
    why: str = ""
    """Of those that failed or were left out."""

    @property
    def move(self) -> Move:
        return Move(self.machine, self.source, self.destination)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell."""

    at: float
    machine: str
    text: str


@dataclass(slots=True)
class Migrations:
    """The migrations of one plan in one cluster."""

    entries: list[Entry]
    inventory: Inventory
    budgets: Budgets = field(default_factory=Budgets)
    timeouts: Timeouts = field(default_factory=Timeouts)
    notices: list[Notice] = field(default_factory=list)
    """What has happened since they were last taken away."""
    _cancelled: bool = False
    _resumed: bool = False
    _connected: bool = True
    _idle_since: float | None = None

    @classmethod
    def of(
        cls,
        moves: Iterable[Move],
        inventory: Inventory,
        budgets: Budgets | None = None,
        timeouts: Timeouts | None = None,
    ) -> Migrations:
        """Those of a plan, in its order."""
        entries = [Entry(*move) for move in moves]
        return cls(entries, inventory, budgets or Budgets(), timeouts or Timeouts())

    @classmethod
    def resumed(
        cls,
        journal: bytes,
        inventory: Inventory,
        now: float,
        budgets: Budgets | None = None,
        timeouts: Timeouts | None = None,
    ) -> Migrations:
        """Go on where a process ended.  Raises msgspec.DecodeError for what is no journal.

        What it had not asked for yet, or in vain, is left out: a plan of today replaces it.
        """
        found = cls.of((), inventory, budgets, timeouts)
        found._resumed = True
        found.entries = msgspec.json.decode(journal, type=list[Entry])
        for entry in found.entries:
            if entry.state is State.STARTING:
                found._become(entry, State.UNKNOWN, now)
            elif entry.state is State.WAITING:
                found._become(entry, State.LEFT_OUT, now, "it was not asked for before the last run ended")
        return found

    @property
    def journal(self) -> bytes:
        return msgspec.json.encode(self.entries)

    @property
    def finished(self) -> bool:
        return all(entry.state in _ENDED for entry in self.entries)

    @property
    def cancelled(self) -> bool:
        """Whether an end was asked for."""
        return self._cancelled

    @property
    def under_way(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.state in _UNDER_WAY]

    def count(self, state: State) -> int:
        return sum(entry.state is state for entry in self.entries)

    # What happened

    def started(self, machine: str, task: str, now: float) -> None:
        """vCenter has accepted."""
        entry = self._starting(machine)
        if entry is not None:
            entry.task = task
            self._become(entry, State.RUNNING, now)

    def refused(self, machine: str, why: str, now: float) -> None:
        """vCenter will not do it."""
        entry = self._starting(machine)
        if entry is not None:
            self._become(entry, State.FAILED, now, why)

    def disconnected(self, now: float) -> None:
        """Nothing is known any more of what was asked for and not answered."""
        self._connected = False
        for entry in self.entries:
            if entry.state is State.STARTING:
                self._become(entry, State.UNKNOWN, now)
            elif entry.state is State.CANCELLING:  # asked for again, unless it makes progress after all
                entry.state, entry.since = State.RUNNING, entry.since - self.timeouts.stalled

    def not_cancelled(self, machine: str, why: str, now: float) -> None:
        """vCenter does not cancel its task: it goes on, and is seen to."""
        self.notices.append(Notice(now, machine, f"{machine}: not cancelled: {why}"))

    def cancel(self, now: float) -> None:
        """Begin nothing more, and cancel what is under way."""
        self._cancelled = True
        for entry in self.entries:
            if entry.state is State.WAITING:
                self._become(entry, State.LEFT_OUT, now, "cancelled")

    def observed(self, inventory: Inventory, tasks: Sequence[Task], now: float) -> None:
        """What vCenter shows now: the state of the cluster, and its recent tasks."""
        self._connected = True
        self.inventory = inventory
        by_id = {task.id: task for task in tasks}
        machines = {machine.name: machine for machine in inventory.machines}
        occupancy = Occupancy(inventory)
        for entry in self._next_of_each():
            if entry.state is State.STARTING:
                continue
            machine = machines.get(entry.machine)
            if machine is None:
                task = by_id.get(entry.task)
                if task is not None and task.is_running:  # it has another name now
                    self._follow(entry, entry.source, task, now)
                else:
                    self._become(entry, State.LEFT_OUT, now, "it is gone, renamed, or switched off")
            elif entry.state is State.WAITING:
                if machine.host == entry.destination:
                    self._become(entry, State.DONE, now)
                elif machine.host != entry.source:
                    self._become(entry, State.LEFT_OUT, now, f"somebody moved it to {machine.host}")
                elif why := _unwanted(machine, entry.destination, occupancy):
                    self._become(entry, State.LEFT_OUT, now, why)
            else:
                task = by_id.get(entry.task or machine.task)
                self._follow(entry, machine.host, task, now)

    # What to do

    def actions(self, now: float) -> list[Start | Cancel]:
        """What to ask vCenter for now."""
        if not self._connected:
            return []
        found: list[Start | Cancel] = []
        for entry in self.entries:
            if entry.state is State.RUNNING and self._is_to_end(entry, now):
                self._become(entry, State.CANCELLING, now)
                found.append(Cancel(entry.machine, entry.task))
            elif entry.state is State.CANCELLING and now - entry.since > self.timeouts.cancelling:
                self._become(entry, State.FAILED, now, "it hangs, and cannot be cancelled")
        occupancy = self._occupancy()
        waiting = self._ready()
        moves = startable(
            [entry.move for entry in waiting],
            occupancy,
            self._moving(),
            self.budgets,
        )
        for move in moves:
            entry = next(entry for entry in waiting if entry.move == move)
            self._become(entry, State.STARTING, now)
            found.append(Start(move.machine, move.destination))
        if moves or self.under_way:
            self._idle_since = None
        else:
            self._leave_out(occupancy, now)
        return found

    def _leave_out(self, occupancy: Occupancy, now: float) -> None:
        """What waits in vain: nothing moves, or only what hangs or others have begun, and for too long."""
        self._idle_since = now if self._idle_since is None else self._idle_since
        moving = bool(self._moving())
        if moving and now - self._idle_since <= self.timeouts.others:
            return
        for entry in self._next_of_each() if moving else self._ready():
            why = (
                occupancy.obstacle(entry.machine, entry.destination)
                if entry.machine in occupancy.place
                else ""
            )
            self._become(entry, State.LEFT_OUT, now, why or "it waits for moves that do not end")

    def _is_to_end(self, entry: Entry, now: float) -> bool:
        return bool(entry.task) and (self._cancelled or now - entry.since > self.timeouts.stalled)

    def _next_of_each(self) -> list[Entry]:
        """Of each machine the next of its moves: one that makes a detour goes on when it has arrived there."""
        found: dict[str, Entry] = {}
        for entry in self.entries:
            if entry.state not in _ENDED:
                found.setdefault(entry.machine, entry)
        return list(found.values())

    def _ready(self) -> list[Entry]:
        """Those whose machine is where they begin, and is not being moved by anybody."""
        at = {machine.name: machine.host for machine in self.inventory.machines if not machine.task}
        return [
            entry
            for entry in self._next_of_each()
            if entry.state is State.WAITING and at.get(entry.machine) == entry.source
        ]

    def _own_moving(self) -> list[Entry]:
        """Those under way, and those that were given up and go on."""
        running = {machine.task for machine in self.inventory.machines if machine.task}
        return [
            entry
            for entry in self.entries
            if entry.state in _UNDER_WAY or (entry.state is State.FAILED and entry.task in running)
        ]

    def _moving(self) -> list[Move]:
        """All moves of the cluster; of those that others have begun, the destination is not known."""
        own = [entry.move for entry in self._own_moving()]
        known = {move.machine for move in own}
        others = (each for each in self.inventory.machines if each.task and each.name not in known)
        return own + [Move(each.name, each.host, "") for each in others]

    def _occupancy(self) -> Occupancy:
        occupancy = Occupancy(self.inventory)
        for entry in self._own_moving():
            there = entry.destination in occupancy.capacity
            if there and occupancy.place.get(entry.machine, entry.destination) != entry.destination:
                occupancy.begin(entry.move)
        return occupancy

    def _starting(self, machine: str) -> Entry | None:
        return next(
            (e for e in self.entries if e.machine == machine and e.state in (State.STARTING, State.UNKNOWN)),
            None,
        )

    def _follow(self, entry: Entry, host: str, task: Task | None, now: float) -> None:
        """One that is under way, whose machine is on ``host``."""
        if task is not None and task.is_running:
            entry.ended = 0.0
            if entry.state is State.UNKNOWN and not task.kind.startswith(_OWN):
                self._become(entry, State.LEFT_OUT, now, "DRS is moving it")
            elif entry.state is State.UNKNOWN:
                entry.task = task.id
                self._become(entry, State.RUNNING, now)
            elif task.progress != entry.progress and entry.state is State.RUNNING:
                entry.progress, entry.since = task.progress, now
        elif host == entry.destination:
            self._become(entry, State.DONE, now)
        elif task is not None and entry.task == task.id and task.state == "error":
            self._become(entry, State.FAILED, now, task.error or "vCenter does not say why")
        elif self._has_settled(entry, now):
            if entry.state is State.UNKNOWN:
                self._not_arrived(entry, now)
            elif task is not None or not entry.task:
                self._become(entry, State.FAILED, now, f"its task ended, and it is on {host}")
            else:
                self._become(entry, State.FAILED, now, f"its task is gone, and it is on {host}")

    def _not_arrived(self, entry: Entry, now: float) -> None:
        """It is asked for again, unless it is no longer wanted."""
        if self._cancelled:
            self._become(entry, State.LEFT_OUT, now, "cancelled")
        elif self._resumed:
            self._become(entry, State.LEFT_OUT, now, "its request did not arrive; it is planned anew")
        else:
            self._become(entry, State.WAITING, now)

    def _has_settled(self, entry: Entry, now: float) -> bool:
        """Whether what its task has done would be seen by now."""
        if not entry.ended:
            entry.ended = now
        return now - entry.ended > self.timeouts.settling

    def _become(self, entry: Entry, state: State, now: float, why: str = "") -> None:
        entry.state, entry.since, entry.why, entry.ended = state, now, why, 0.0
        if state in (State.STARTING, State.WAITING):
            entry.task = ""
        text = _TOLD[state].format(entry=entry)
        self.notices.append(Notice(now, entry.machine, f"{text}: {why}" if why else text))
        if state in (State.FAILED, State.LEFT_OUT):
            for later in self.entries:
                if later.machine == entry.machine and later.state is State.WAITING:
                    self._become(later, State.LEFT_OUT, now, "it has not got to where this begins")


def _unwanted(machine: Machine, destination: str, occupancy: Occupancy) -> str:
    """Why a move that waits is no longer to be made, by rules that have changed; empty if it is."""
    if machine.stays and not machine.task:
        return machine.stays
    if destination in occupancy.capacity and not occupancy.is_permitted(machine.name, destination):
        return f"it may no longer run on {destination}"
    return ""


_TOLD: Mapping[State, str] = {
    State.WAITING: "{entry.machine}: neither a task nor the move is there; it is asked for again",
    State.STARTING: "{entry.machine}: {entry.source} -> {entry.destination}",
    State.UNKNOWN: "{entry.machine}: whether it moves is not known; looking for its task",
    State.RUNNING: "{entry.machine}: moving to {entry.destination} ({entry.task})",
    State.CANCELLING: "{entry.machine}: cancelling {entry.task}",
    State.DONE: "{entry.machine}: on {entry.destination}",
    State.FAILED: "{entry.machine}: not moved to {entry.destination}",
    State.LEFT_OUT: "{entry.machine}: left out",
}
