"""In which order machines move, so that no host is over its capacity on the way, and no rule about who is apart broken.

While a machine moves it counts on both hosts: memory is taken where it arrives from the first page on, and set free
where it leaves with the last.  What may start now depends on what is there now, so the same rule plans the order
(:func:`ordered`) and carries it out (``migrations``).

Where moves wait for each other in a circle, one machine goes to a third host for a while.  The waves of ``mgmt.plans``
are no help here: they are about copies that are made before old ones are dropped, and chains that stay readable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from orchestrators.vsphere.inventory import Inventory, Machine, Move, RuleKind


@dataclass(frozen=True, slots=True)
class Budgets:
    """How many machines move at the same time."""

    per_host: int = 4
    """Arriving at and leaving one host, together.  vCenter queues what is beyond 8 per host on fast networks, and what
    is beyond 4 on slow ones; a lower number leaves more of the network to the machines."""
    per_cluster: int = 16
    """In one cluster.  Lower: less is disturbed at a time, and a plan takes longer."""


class Amounts(NamedTuple):
    """What machines use of a host, or what it has."""

    cpu: int
    memory: int
    cpu_reservation: int
    memory_reservation: int


def amounts_of(machine: Machine) -> Amounts:
    return Amounts(machine.cpu, machine.memory, machine.cpu_reservation, machine.memory_reservation)


class Occupancy:
    """Where machines are, and where those that are on their way will be."""

    def __init__(self, inventory: Inventory) -> None:
        self.capacity = {
            host.name: Amounts(host.cpu, host.memory, host.cpu, host.memory) for host in inventory.hosts
        }
        self.open = {host.name for host in inventory.hosts if host.available and not host.evacuated}
        self.available = {host.name for host in inventory.hosts if host.available}
        self.size = {machine.name: amounts_of(machine) for machine in inventory.machines}
        self.place = {machine.name: machine.host for machine in inventory.machines}
        self.arriving: dict[str, str] = {}
        self.load: dict[str, Counter[str]] = {name: Counter() for name in self.capacity}
        self._apart: dict[str, set[str]] = {}
        self._allowed: dict[str, set[str]] = {}
        for rule in inventory.clusters[0].rules:
            for machine in rule.machines:
                if rule.kind is RuleKind.APART:
                    self._apart.setdefault(machine, set()).update(set(rule.machines) - {machine})
                elif rule.must and rule.kind is not RuleKind.TOGETHER:
                    on = rule.kind is RuleKind.ON
                    hosts = set(rule.hosts) if on else set(self.capacity) - set(rule.hosts)
                    self._allowed[machine] = self._allowed.get(machine, hosts) & hosts
        self._reaches = {host.name: set(host.reaches) for host in inventory.hosts}
        self._uses = {machine.name: machine.uses for machine in inventory.machines}
        for machine, host in self.place.items():
            self._add(host, machine, 1)

    def _add(self, host: str, machine: str, sign: int) -> None:
        for kind, amount in zip(Amounts._fields, self.size[machine], strict=True):
            self.load[host][kind] += sign * amount

    def begin(self, move: Move) -> None:
        """It counts on both hosts from now on."""
        self.arriving[move.machine] = move.destination
        self._add(move.destination, move.machine, 1)

    def end(self, move: Move) -> None:
        """It has arrived."""
        self._add(self.place[move.machine], move.machine, -1)
        self.place[move.machine] = move.destination
        del self.arriving[move.machine]

    def obstacle(self, machine: str, destination: str) -> str:
        """Why a machine cannot move there now; empty when it can."""
        if destination not in self.open:
            return f"{destination} takes no machines"
        if self.place[machine] not in self.available:
            return f"{self.place[machine]} is not connected"
        for kind, amount, most in zip(
            Amounts._fields, self.size[machine], self.capacity[destination], strict=True
        ):
            if amount and self.load[destination][kind] + amount > most:
                return f"{destination} has no room for its {kind.replace('_', ' ')}"
        for mate in sorted(self._apart.get(machine, ())):
            if destination in (self.place.get(mate), self.arriving.get(mate)):
                return f"{mate}, which it is kept apart from, is on {destination}"
        return ""

    def is_permitted(self, machine: str, host: str) -> bool:
        """Whether rules and storage let it be there at all."""
        if machine in self._allowed and host not in self._allowed[machine]:
            return False
        return self._reaches[host].issuperset(self._uses[machine])


def startable(
    pending: Iterable[Move], occupancy: Occupancy, under_way: Iterable[Move], budgets: Budgets
) -> list[Move]:
    """Those that may begin now, together with what is under way; they count as begun in ``occupancy``.

    Earlier ones go first; one that waits does not keep later ones waiting.
    """
    busy: Counter[str] = Counter()
    number = 0
    for move in under_way:
        busy[move.source] += 1
        busy[move.destination] += 1
        number += 1
    chosen: list[Move] = []
    for move in pending:
        if number >= budgets.per_cluster:
            break
        if max(busy[move.source], busy[move.destination]) >= budgets.per_host:
            continue
        if occupancy.obstacle(move.machine, move.destination):
            continue
        occupancy.begin(move)
        busy[move.source] += 1
        busy[move.destination] += 1
        number += 1
        chosen.append(move)
    return chosen


@dataclass(frozen=True, slots=True)
class Step:
    """One move of an order."""

    move: Move
    round: int
    """Moves of a round may be made at the same time; the next begins when they have ended."""
    detour: bool = False
    """It makes room for others, and the machine goes on later."""


@dataclass(frozen=True, slots=True)
class Order:
    """Steps in their order, and moves that cannot be made, with the reason."""

    steps: tuple[Step, ...]
    left_out: tuple[tuple[Move, str], ...] = ()

    @property
    def rounds(self) -> int:
        return max((step.round for step in self.steps), default=0)


@dataclass(slots=True)
class _Ordering:
    occupancy: Occupancy
    budgets: Budgets
    pending: list[Move]
    steps: list[Step] = field(default_factory=list)
    detoured: set[str] = field(default_factory=set)

    def run(self) -> Order:
        number = 0
        while self.pending:
            number += 1
            chosen = startable(self.pending, self.occupancy, (), self.budgets)
            detours: list[Move] = []
            if not chosen:
                detour = self._detour()
                if detour is None:
                    reasons = [(m, self.occupancy.obstacle(m.machine, m.destination)) for m in self.pending]
                    return Order(tuple(self.steps), tuple(reasons))
                self.occupancy.begin(detour)
                detours = [detour]
            for move in chosen:
                self.pending.remove(move)
            for move in (*chosen, *detours):
                self.occupancy.end(move)
                self.steps.append(Step(move, number, detour=move in detours))
            for move in detours:
                self.detoured.add(move.machine)
                self.pending = [
                    m._replace(source=move.destination) if m.machine == move.machine else m
                    for m in self.pending
                ]
        return Order(tuple(self.steps))

    def _detour(self) -> Move | None:
        """The smallest machine whose leaving lets another move begin, and the host with most room for it."""
        by_size = sorted(self.pending, key=lambda move: self.occupancy.size[move.machine].memory)
        for move in by_size:
            if move.machine in self.detoured:
                continue
            others = [other for other in self.pending if other.machine != move.machine]
            for host in self._by_room():
                if host in (move.source, move.destination) or not self.occupancy.is_permitted(
                    move.machine, host
                ):
                    continue
                if self.occupancy.obstacle(move.machine, host):
                    continue
                detour = Move(move.machine, move.source, host)
                if self._helps(detour, others):
                    return detour
        return None

    def _by_room(self) -> list[str]:
        loads, capacity = self.occupancy.load, self.occupancy.capacity
        return sorted(self.occupancy.open, key=lambda h: (loads[h]["memory"] - capacity[h].memory, h))

    def _helps(self, detour: Move, others: Sequence[Move]) -> bool:
        self.occupancy.begin(detour)
        self.occupancy.end(detour)
        helped = any(not self.occupancy.obstacle(other.machine, other.destination) for other in others)
        back = Move(detour.machine, detour.destination, detour.source)
        self.occupancy.begin(back)
        self.occupancy.end(back)
        return helped


def ordered(inventory: Inventory, moves: Sequence[Move], budgets: Budgets) -> Order:
    """An order of moves, those first that are named first as far as there is room."""
    order = _Ordering(Occupancy(inventory), budgets, list(moves)).run()
    split = _split(inventory, order) if order.left_out else {}
    if not split:
        return order
    whole = ordered(inventory, [move for move in moves if move.machine not in split], budgets)
    reasons = tuple((move, split[move.machine]) for move in moves if move.machine in split)
    return Order(whole.steps, (*whole.left_out, *reasons))


def _split(inventory: Inventory, order: Order) -> dict[str, str]:
    """Machines that are together and would not be after a part of the moves, with the reason why they stay."""
    place = {machine.name: machine.host for machine in inventory.machines}
    after = place | {step.move.machine: step.move.destination for step in order.steps}
    return {
        name: f"those that rule {rule.name} keeps together cannot all move"
        for rule in inventory.clusters[0].rules
        if rule.kind is RuleKind.TOGETHER
        and len({place[name] for name in rule.machines if name in place}) == 1
        and len({after[name] for name in rule.machines if name in after}) > 1
        for name in rule.machines
    }


def most_loaded_first(inventory: Inventory, moves: Iterable[Move], required: Mapping[str, str]) -> list[Move]:
    """What a rule requires goes first, then what leaves the hosts that are used most."""
    used: Counter[str] = Counter()
    for machine in inventory.machines:
        used[machine.host] += machine.cpu
    cpu = {host.name: host.cpu for host in inventory.hosts}
    return sorted(
        moves, key=lambda move: (move.machine not in required, -used[move.source] / cpu[move.source], move)
    )
