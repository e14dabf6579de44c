"""When to plan, and when to act on a plan: the loop of ``rota vsphere watch``, told the time.  Pure.

What a rule requires is done at once.  Balance waits until a cluster has been uneven for a while, is not done again
shortly after, and leaves machines alone whose move has failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from mgmt import InfeasibleError
from orchestrators.vsphere.inventory import Inventory
from orchestrators.vsphere.migrations import Entry, State
from orchestrators.vsphere.planning import Plan, required_moves

_RESTS = "its last move failed"


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """In seconds."""

    every: float = 60.0
    """Between two plans of a cluster while no rule is broken.  Shorter: unevenness is seen sooner."""
    settle: float = 300.0
    """So long every plan has had something to gain before machines move for balance.  Longer: short peaks move none."""
    cooldown: float = 600.0
    """After machines have moved, before any move for balance again."""
    rest: float = 3600.0
    """So long a machine stays whose move has failed."""
    window: float = 900.0
    """Over which the use of cpu counts: nine tenths of its samples are no higher than what a machine counts with."""
    sample: float = 30.0
    """Between two samples."""


@dataclass(slots=True)
class BalanceLoop:
    """The loop of one cluster."""

    settings: LoopSettings = field(default_factory=LoopSettings)
    _planned_at: float | None = None
    _uneven_since: float | None = None
    _moved_at: float | None = None
    _sampled_at: float | None = None
    _failed: dict[str, float] = field(default_factory=dict)
    _samples: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)
    _broken: frozenset[str] = frozenset()

    def observed(self, part: Inventory, now: float) -> Inventory:
        """Take a sample if it is time; the state as it usually is, in which those rest whose move failed."""
        if self._sampled_at is None or now - self._sampled_at >= self.settings.sample:
            self._sampled_at = now
            known = {machine.name for machine in part.machines}
            self._samples = {name: window for name, window in self._samples.items() if name in known}
            for machine in part.machines:
                window = self._samples.setdefault(machine.name, deque())
                window.append((now, machine.cpu))
                while now - window[0][0] > self.settings.window:
                    window.popleft()
        self._failed = {name: at for name, at in self._failed.items() if now - at < self.settings.rest}
        machines = (
            msgspec.structs.replace(
                machine,
                cpu=_usual(self._samples[machine.name]) if machine.name in self._samples else machine.cpu,
                stays=machine.stays or (_RESTS if machine.name in self._failed else ""),
            )
            for machine in part.machines
        )
        return msgspec.structs.replace(part, machines=tuple(machines))

    def planned(self, part: Inventory, now: float, plan: Callable[[Inventory, bool], Plan]) -> Plan:
        """By ``plan``, which is told whether balance is due.  Where rules cannot be kept otherwise, nobody rests."""
        balance = self._balance_left(now) <= 0
        try:
            return plan(part, balance)
        except InfeasibleError:
            awake = _awake(part)
            if awake == part:
                raise
            return plan(awake, balance)

    @property
    def samples(self) -> dict[str, tuple[int, ...]]:
        """Of cpu, of each machine, those of the window."""
        return {name: tuple(cpu for _, cpu in window) for name, window in self._samples.items()}

    def is_due(self, part: Inventory, now: float) -> bool:
        """Whether to plan: at once when other machines break a rule than when it was last planned."""
        broken = frozenset(required_moves(part))
        if self._planned_at is None or now - self._planned_at >= self.settings.every or broken - self._broken:
            self._planned_at, self._broken = now, broken
            return True
        return False

    def why_not_yet(self, plan: Plan, now: float) -> str:
        """Why a plan is not carried out now; empty if it is to be."""
        if not plan.order.steps:
            self._uneven_since = None
            return plan.held or "nothing to move"
        if any(step.move.machine in plan.required for step in plan.order.steps):
            return ""
        if self._uneven_since is None:
            self._uneven_since = now
        left = self._balance_left(now)
        return f"balance waits another {left:.0f} s" if left > 0 else ""

    def _balance_left(self, now: float) -> float:
        """Seconds until machines move for balance."""
        left = self.settings.settle - (0.0 if self._uneven_since is None else now - self._uneven_since)
        if self._moved_at is not None:
            left = max(left, self._moved_at + self.settings.cooldown - now)
        return left

    def carried_out(self, entries: Iterable[Entry], now: float) -> None:
        """What became of a plan."""
        failed = {entry.machine for entry in entries if entry.state is State.FAILED}
        self._failed.update(dict.fromkeys(failed, now))
        self._moved_at, self._uneven_since = now, None
        self._planned_at = now if failed else None  # what fails is not tried again without a pause


def _usual(window: Iterable[tuple[float, int]]) -> int:
    """What nine tenths of the samples do not exceed."""
    amounts = sorted(cpu for _, cpu in window)
    return amounts[-(-9 * len(amounts) // 10) - 1]


def _awake(part: Inventory) -> Inventory:
    machines = (
        msgspec.structs.replace(machine, stays="") if machine.stays == _RESTS else machine
        for machine in part.machines
    )
    return msgspec.structs.replace(part, machines=tuple(machines))
