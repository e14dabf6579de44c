"""Plans: the best placement of a cluster's machines by the ``vm_balance`` pack, as moves in a safe order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from statistics import pstdev
from typing import Any

import msgspec

import mgmt
from mgmt import Model, Solution, SolveStatus
from orchestrators.vsphere.inventory import Inventory, Move, RuleKind
from orchestrators.vsphere.move_order import Budgets, Occupancy, Order, most_loaded_first, ordered
from orchestrators.vsphere.pack_rows import rows_of

PACK = "vm_balance"
_BALANCE = ("highest_utilisation", "lowest_utilisation")
"""What is left out where rules are to be kept and nothing more."""
_FOR_RULES = 0.3
"""Of the time, to keep rules with few moves before balance."""
_NOTHING = 1e-6
"""Parts of a host: what gains less is no gain."""
_TRIED = 4
"""Of the emptiest hosts, for each move that is estimated."""


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
        self._rules_only = self.model.revised(lambda query: None if query.name in _BALANCE else query)

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
        self,
        part: Inventory,
        settings: PlanSettings,
        samples: Mapping[str, tuple[int, ...]] | None = None,
        *,
        balance: bool = True,
    ) -> Plan:
        """The best placement of one cluster (``Inventory.part``), and how to get there.

        What rules require comes first, with as few moves as that takes; balance begins from there, and without
        ``balance`` waits where rules require moves and these keep them.  Raises mgmt.InfeasibleError with the rules
        that clash, mgmt.SolveTimeout, ContradictoryRulesError.
        """
        required = required_moves(part)
        kept: Inventory | None = part
        left = settings.budget
        if required:
            found = self._with_rules_kept(part, settings, required)
            kept, left = (None, left) if found is None else (_after(part, found), left - found.seconds)
            if found is not None and kept is not None and not balance and _moves(part, kept):
                return plan_of(part, kept, kept, found, settings, required)
        if kept is None:
            self.fill(part, settings, samples)
            solution = self.model.solve(settings.budget, settings.seed)
            return plan_of(part, part, _after(part, solution), solution, settings, required)
        moved = sum(one.host != other.host for one, other in zip(part.machines, kept.machines, strict=True))
        simple = best_single_moves(kept, settings.gain_per_move / 100)
        most = moved + len(simple)
        if settings.migrations is not None:
            most = min(most, settings.migrations - moved)
        limited = None if settings.gain_per_move <= 0 and settings.migrations is None else most
        self.fill(kept, replace(settings, migrations=limited), samples)
        solution = self.model.solve(max(left, settings.budget / 2), settings.seed)
        after = _after(kept, solution)
        if solution.status is SolveStatus.FEASIBLE and (limited is None or len(simple) <= limited):
            other = _moved(kept, _places(simple))
            if balance_of(other, {}).spread < balance_of(after, {}).spread and self._accepts(other):
                after = other
        return plan_of(part, kept, after, solution, settings, required)

    def _accepts(self, placed: Inventory) -> bool:
        """Whether a placement keeps all rules, by what the database says."""
        places: dict[tuple[Any, ...], Any] = {(machine.name,): machine.host for machine in placed.machines}
        return self.model.accepts({("vm", "controllable__host"): places})

    def _with_rules_kept(
        self, part: Inventory, settings: PlanSettings, concerned: Collection[str]
    ) -> Solution | None:
        """How rules are kept, if moving the machines concerned is enough for that."""
        stays = (
            machine if machine.name in concerned else msgspec.structs.replace(machine, stays="it may stay")
            for machine in part.machines
        )
        self.fill(msgspec.structs.replace(part, machines=tuple(stays)), settings)
        try:
            return self._rules_only.solve(_FOR_RULES * settings.budget, settings.seed, clashes=False)
        except (mgmt.InfeasibleError, mgmt.SolveTimeout):
            return None


def _after(part: Inventory, solution: Solution) -> Inventory:
    """The state that a solution leads to."""
    return _moved(part, {str(delta.primary_key[0]): str(delta.new) for delta in solution.deltas})


def _moved(part: Inventory, places: Mapping[str, str]) -> Inventory:
    machines = (
        msgspec.structs.replace(machine, host=places.get(machine.name, machine.host))
        for machine in part.machines
    )
    return msgspec.structs.replace(part, machines=tuple(machines))


def plan_of(
    part: Inventory,
    kept: Inventory,
    after: Inventory,
    solution: Solution,
    settings: PlanSettings,
    required: Mapping[str, str],
) -> Plan:
    """The way to ``after`` as moves in order, without those for balance if they gain too little.

    ``kept``: what the solution begins with, where rules are kept already.
    """
    rules, whole = _moves(part, kept), _moves(part, after)
    before, least = balance_of(part, _places(rules)).deviation, settings.gain_per_move / 100
    further = len(whole) - len(rules)
    gain = before - balance_of(part, _places(whole)).deviation
    held = ""
    if further > 0 and gain < least * further and not (required and kept is part):
        held = f"{further} moves for balance would lower the deviation by {100 * gain:.2f} points, too little for that"
        whole = rules
    order = ordered(part, most_loaded_first(part, whole, required), settings.budgets)
    final = {step.move.machine: step.move.destination for step in order.steps}
    return Plan(
        part.clusters[0].name,
        solution,
        order,
        required,
        balance_of(part, {}),
        balance_of(part, final),
        held,
    )


def _moves(part: Inventory, after: Inventory) -> list[Move]:
    pairs = zip(part.machines, after.machines, strict=True)
    return [Move(one.name, one.host, other.host) for one, other in pairs if one.host != other.host]


def _places(moves: Sequence[Move]) -> dict[str, str]:
    return {move.machine: move.destination for move in moves}


def best_single_moves(part: Inventory, least: float) -> list[Move]:
    """Moves that lower the deviation by ``least`` each: the best from the fullest host, again and again.

    As many are worth searching for; and where time ends before the search has found anything better, they are made.
    Machines that rules speak of are left alone.
    """
    shares, occupancy = _Shares(part, ()), Occupancy(part)
    bound = {name for rule in part.clusters[0].rules for name in rule.machines}
    on: dict[str, list[str]] = {host.name: [] for host in part.hosts}
    for machine in part.machines:
        if not machine.stays and machine.name not in bound:
            on[machine.host].append(machine.name)
    found: list[Move] = []
    while len(found) < len(part.machines):
        hosts = shares.fullest_first()
        moves = [
            Move(name, hosts[0], host)
            for host in hosts[: -1 - _TRIED : -1]
            for name in on[hosts[0]]
            if host != hosts[0]
        ]
        worth = [move for move in moves if shares.gain([move]) >= max(least, _NOTHING)]
        worth.sort(key=lambda move: shares.gain([move]), reverse=True)
        best = next((m for m in worth if not _forbidden(occupancy, m)), None)
        if best is None:
            return found
        shares.make([best])
        occupancy.begin(best)
        occupancy.end(best)
        on[best.source].remove(best.machine)
        on[best.destination].append(best.machine)
        found.append(best)
    return found


def _forbidden(occupancy: Occupancy, move: Move) -> bool:
    permitted = occupancy.is_permitted(move.machine, move.destination)
    return not permitted or bool(occupancy.obstacle(move.machine, move.destination))


class _Shares:
    """How much of each host that may be used is used, move by move."""

    def __init__(self, part: Inventory, made: Sequence[Move]) -> None:
        self._cpu = {host.name: host.cpu for host in part.hosts if host.available and not host.evacuated}
        self._size = {machine.name: machine.cpu for machine in part.machines}
        used = _used(part, {move.machine: move.destination for move in made})
        self._share = {name: used[name] / most for name, most in self._cpu.items()}
        self._sum()

    def fullest_first(self) -> list[str]:
        return sorted(self._share, key=self._share.__getitem__, reverse=True)

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
