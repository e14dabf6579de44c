"""Plans: the best placement of a cluster's machines by the ``vm_balance`` pack, as moves in a safe order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import pstdev

import mgmt
from mgmt import Model, Solution, SolveStatus
from orchestrators.vsphere.inventory import Inventory, Move, RuleKind
from orchestrators.vsphere.move_order import Budgets, Occupancy, Order, most_loaded_first, ordered
from orchestrators.vsphere.pack_rows import rows_of

PACK = "vm_balance"


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """What a plan is made with."""

    budget: float = 5.0
    """Seconds to solve.  Longer: more even, or proven so, in large clusters."""
    migrations: int | None = None
    """At most so many machines move; None: as many as it takes."""
    failover_hosts: int | None = None
    """Room is kept for the loss of so many hosts; None: as the cluster's admission control says."""
    gain_per_move: float = 0.02
    """By how many percentage points the standard deviation of the hosts' use has to become smaller with each move that
    no rule requires.  Higher: fewer moves, less even; 0: as even as can be."""
    budgets: Budgets = field(default_factory=Budgets)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Balance:
    """How a placement uses the hosts that may be used, in parts of their cpu."""

    highest: float
    lowest: float
    deviation: float

    @property
    def spread(self) -> float:
        return self.highest - self.lowest


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about one cluster."""

    cluster: str
    solution: Solution
    order: Order
    required: Mapping[str, str]
    """Machines that must move, and the rule."""
    before: Balance
    after: Balance
    held: str = ""
    """Which moves for balance are not made, and why."""

    @property
    def is_proven(self) -> bool:
        return self.solution.status is not SolveStatus.FEASIBLE


class Planner:
    """The pack compiled once, for any number of plans."""

    def __init__(self) -> None:
        pack = mgmt.load_pack(PACK)
        self.database = mgmt.Database()
        self.database.load_schema(pack.schema)
        self.model = Model.build(self.database, pack)

    def fill(
        self, part: Inventory, settings: PlanSettings, samples: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        """The state of one cluster."""
        rows = rows_of(
            part,
            samples=samples,
            migrations=settings.migrations,
            failover_hosts=settings.failover_hosts,
        )
        self.database.replace_rows(rows)

    def plan(
        self, part: Inventory, settings: PlanSettings, samples: Mapping[str, tuple[int, ...]] | None = None
    ) -> Plan:
        """The best placement of one cluster (``Inventory.part``), and how to get there.

        Raises mgmt.InfeasibleError with the rules that clash, mgmt.SolveTimeout, ContradictoryRulesError.
        """
        self.fill(part, settings, samples)
        solution = self.model.solve(settings.budget, settings.seed)
        return plan_of(part, solution, settings)


def plan_of(part: Inventory, solution: Solution, settings: PlanSettings) -> Plan:
    """A solution as moves in order, without those for balance that gain too little."""
    required = required_moves(part)
    moves = [Move(str(d.primary_key[0]), str(d.old), str(d.new)) for d in solution.deltas]
    chosen = worthwhile(part, moves, required, settings.gain_per_move / 100)
    order = ordered(part, most_loaded_first(part, chosen, required), settings.budgets)
    final = {step.move.machine: step.move.destination for step in order.steps}
    after = balance_of(part, final)
    held = ""
    if len(chosen) < len(moves):
        best = balance_of(part, {move.machine: move.destination for move in moves}).deviation
        held = (
            f"{len(moves) - len(chosen)} further moves would bring the deviation from {100 * after.deviation:.2f} to "
            f"{100 * best:.2f} points, less than {settings.gain_per_move:g} for each"
        )
    return Plan(part.clusters[0].name, solution, order, required, balance_of(part, {}), after, held)


def worthwhile(
    part: Inventory, moves: Sequence[Move], required: Mapping[str, str], least: float
) -> list[Move]:
    """Those that are required, and of the others the most effective until one gains less than ``least``.

    What a move gains is by how much the standard deviation of the hosts' use becomes smaller.  Machines that are kept
    together go together.
    """
    if least <= 0:
        return list(moves)
    chosen = [move for move in moves if move.machine in required]
    shares = _Shares(part, chosen)
    groups = _groups(part, [move for move in moves if move.machine not in required])
    while groups:
        best = max(groups, key=shares.gain)
        if shares.gain(best) < least:
            break
        groups.remove(best)
        chosen += best
        shares.make(best)
    return chosen


class _Shares:
    """How much of each host that may be used is used, move by move."""

    def __init__(self, part: Inventory, made: Sequence[Move]) -> None:
        self._cpu = {host.name: host.cpu for host in part.hosts if host.available and not host.evacuated}
        self._size = {machine.name: machine.cpu for machine in part.machines}
        used = _used(part, {move.machine: move.destination for move in made})
        self._share = {name: used[name] / most for name, most in self._cpu.items()}
        self._sum()

    def _sum(self) -> None:
        values = self._share.values()
        self._total, self._squares = sum(values), sum(value * value for value in values)
        self._deviation = pstdev(values) if values else 0.0

    def _changes(self, group: Sequence[Move]) -> dict[str, float]:
        found: Counter[str] = Counter()
        for move in group:
            found[move.source] -= self._size[move.machine]
            found[move.destination] += self._size[move.machine]
        return {host: amount / self._cpu[host] for host, amount in found.items() if host in self._cpu}

    def gain(self, group: Sequence[Move]) -> float:
        """By how much the deviation becomes smaller with each of these moves."""
        changes, number = self._changes(group), len(self._share)
        total = self._total + sum(changes.values())
        squares = self._squares + sum((2 * self._share[host] + more) * more for host, more in changes.items())
        variance = squares / number - (total / number) ** 2
        return (self._deviation - sqrt(max(0.0, variance))) / len(group)

    def make(self, group: Sequence[Move]) -> None:
        for host, more in self._changes(group).items():
            self._share[host] += more
        self._sum()


def _groups(part: Inventory, moves: Sequence[Move]) -> list[list[Move]]:
    """Moves by themselves, but those of a rule that keeps machines together with each other."""
    group_of: dict[str, list[Move]] = {move.machine: [move] for move in moves}
    for rule in part.clusters[0].rules:
        if rule.kind is RuleKind.TOGETHER:
            joined: list[Move] = []
            for name in rule.machines:
                joined += [move for move in group_of.get(name, ()) if move not in joined]
            for move in joined:
                group_of[move.machine] = joined
    found: list[list[Move]] = []
    for group in group_of.values():
        if not any(group is other for other in found):
            found.append(group)
    return found


def balance_of(part: Inventory, moved: Mapping[str, str]) -> Balance:
    """With some machines on other hosts."""
    cpu = {host.name: host.cpu for host in part.hosts if host.available and not host.evacuated}
    used = _used(part, moved)
    shares = [used[name] / most for name, most in cpu.items()]
    if not shares:
        return Balance(0.0, 0.0, 0.0)
    return Balance(max(shares), min(shares), pstdev(shares))


def _used(part: Inventory, moved: Mapping[str, str]) -> Counter[str]:
    """Cpu by host."""
    used: Counter[str] = Counter()
    for machine in part.machines:
        used[moved.get(machine.name, machine.host)] += machine.cpu
    return used


def required_moves(part: Inventory) -> dict[str, str]:
    """Machines that break a rule where they are, and that rule; a plan moves them, or others of the same rule."""
    occupancy = Occupancy(part)
    found: dict[str, str] = {}
    evacuated = {host.name for host in part.hosts if host.evacuated}
    for machine in part.machines:
        if machine.host in evacuated:
            found[machine.name] = f"{machine.host} is to be emptied"
        elif machine.host in occupancy.available and not occupancy.is_permitted(machine.name, machine.host):
            found[machine.name] = f"it may not run on {machine.host}"
    for rule in part.clusters[0].rules:
        places = [occupancy.place[name] for name in rule.machines if name in occupancy.place]
        if rule.kind is RuleKind.TOGETHER:
            broken = len(set(places)) > 1
        else:
            broken = rule.kind is RuleKind.APART and len(set(places)) < len(places)
        if broken:
            for name in rule.machines:
                found.setdefault(name, f"rule {rule.name}")
    for host, load in occupancy.load.items():
        over = [kind for kind, most in occupancy.capacity[host]._asdict().items() if load[kind] > most]
        if over:
            for machine in part.machines:
                if machine.host == host:
                    found.setdefault(machine.name, f"{host} is over its {over[0].replace('_', ' ')}")
    return found
