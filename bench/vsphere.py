"""Balancing the machines of a vCenter: rota's plan beside a greedy balancer in the manner of DRS.

The balancer makes, again and again, the one move that lowers the standard deviation of the hosts' load most, as the
published descriptions of DRS say: to a target, and never one that breaks a rule or fills a host.  Both get the same
rules, and both results are checked by the same few lines here, which know nothing of either.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import trio

from bench.result import Result
from mgmt import SolveStatus
from orchestrators.vsphere.execution import carry_out, connected
from orchestrators.vsphere.inventory import Cluster, Host, Inventory, Machine, Rule, RuleKind
from orchestrators.vsphere.migrations import Migrations, State
from orchestrators.vsphere.move_order import Occupancy
from orchestrators.vsphere.planning import Plan, Planner, PlanSettings, balance_of
from orchestrators.vsphere.simulator import Description, SimulatedVCenter, skewed

_LEAST = 1e-4
"""By how much a move has to lower the deviation, as a part of it, for the greedy balancer to make it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a balancer comes to."""

    places: Mapping[str, str]
    moves: int
    seconds: float


def inventory_of(described: Description, seed: int = 0) -> Inventory:
    """What a simulated vCenter would show, and rules: pairs together, groups apart, machines on a few hosts."""
    draw = Random(seed)
    hosts = tuple(
        Host(f"host-{n}", f"esx{n:02}", "c", size.cores * size.mhz, size.memory)
        for n, size in enumerate(described.hosts)
    )
    machines = tuple(
        Machine(f"vm-{n}", f"vm{n:04}", f"esx{load.host:02}", load.cpu, load.memory)
        for n, load in enumerate(described.machines)
    )
    names = [machine.name for machine in machines]
    drawn = draw.sample(names, 5 * (len(hosts) // 3))
    rules: list[Rule] = []
    for number in range(len(hosts) // 3):
        first, second, third, fourth, fifth = drawn[5 * number : 5 * number + 5]
        some = tuple(host.name for host in draw.sample(hosts, 4))
        rules += [
            Rule(f"together {number}", RuleKind.TOGETHER, (first, second)),
            Rule(f"apart {number}", RuleKind.APART, (third, fourth)),
            Rule(f"on {number}", RuleKind.ON, (fifth,), some),
        ]
    return Inventory((Cluster("c-1", "c", "manual", 0, tuple(rules)),), hosts, machines)


def broken(state: Inventory, places: Mapping[str, str]) -> int:
    """How many rules and capacities do not hold."""
    memory: Counter[str] = Counter()
    cpu: Counter[str] = Counter()
    for machine in state.machines:
        memory[places[machine.name]] += machine.memory
        cpu[places[machine.name]] += machine.cpu
    found = sum(memory[host.name] > host.memory or cpu[host.name] > host.cpu for host in state.hosts)
    for rule in state.clusters[0].rules:
        where = [places[name] for name in rule.machines]
        if rule.kind is RuleKind.TOGETHER:
            found += len(set(where)) > 1
        elif rule.kind is RuleKind.APART:
            found += len(set(where)) < len(where)
        else:
            found += any((name in rule.hosts) != (rule.kind is RuleKind.ON) for name in where)
    return found


def greedy(state: Inventory, target: float) -> Outcome:
    """Rules first, then the best single move again and again until the deviation is ``target`` or no move helps."""
    began = time.perf_counter()
    balancer = _Greedy(state)
    balancer.keep_rules()
    balancer.level(target)
    return Outcome(balancer.places(), balancer.moves(), time.perf_counter() - began)


class _Greedy:
    def __init__(self, state: Inventory) -> None:
        self._state = state
        self._hosts = [host.name for host in state.hosts]
        number = {name: place for place, name in enumerate(self._hosts)}
        self._cpu = np.array([machine.cpu for machine in state.machines], float)
        self._memory = np.array([machine.memory for machine in state.machines], float)
        self._most_cpu = np.array([host.cpu for host in state.hosts], float)
        self._most_memory = np.array([host.memory for host in state.hosts], float)
        self._at = np.array([number[machine.host] for machine in state.machines])
        self._first = self._at.copy()
        self._used = np.bincount(self._at, self._cpu, len(self._hosts))
        self._taken = np.bincount(self._at, self._memory, len(self._hosts))
        occupancy = Occupancy(state)
        self._allowed = np.ones((len(self._cpu), len(self._hosts)), bool)
        self._index = {machine.name: place for place, machine in enumerate(state.machines)}
        self._free = np.ones(len(self._cpu), bool)
        for rule in state.clusters[0].rules:
            for name in rule.machines:
                mine = self._index[name]
                self._allowed[mine] = [occupancy.is_permitted(name, host) for host in self._hosts]
                self._free[mine] = False  # once its rule is kept, a machine of a rule stays

    def _go(self, machine: int, host: int) -> None:
        old = self._at[machine]
        for load, size in ((self._used, self._cpu), (self._taken, self._memory)):
            load[old] -= size[machine]
            load[host] += size[machine]
        self._at[machine] = host

    def _fits(self, machine: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        cpu = self._used + self._cpu[machine] <= self._most_cpu
        return np.asarray(
            cpu & (self._taken + self._memory[machine] <= self._most_memory) & self._allowed[machine]
        )

    def keep_rules(self) -> None:
        for rule in self._state.clusters[0].rules:
            members = [self._index[name] for name in rule.machines]
            for position, machine in enumerate(members):
                others = {int(self._at[mate]) for mate in members[:position]}
                good = self._fits(machine)
                if rule.kind is RuleKind.TOGETHER and position:
                    wanted = int(self._at[members[0]])
                elif (rule.kind is RuleKind.APART and int(self._at[machine]) in others) or not self._allowed[
                    machine, self._at[machine]
                ]:
                    good[list(others)] = False
                    wanted = int(np.argmin(np.where(good, self._used / self._most_cpu, np.inf)))
                else:
                    continue
                if wanted != self._at[machine]:
                    self._go(machine, wanted)

    def level(self, target: float) -> None:
        share = self._used / self._most_cpu
        while (deviation := float(np.std(share))) > target:
            source = int(np.argmax(share))
            mine = np.flatnonzero((self._at == source) & self._free)
            best, best_move = deviation * (1 - _LEAST), None
            for host in np.argsort(share)[: max(1, len(share) // 2)]:
                room = (self._used[host] + self._cpu[mine] <= self._most_cpu[host]) & (
                    self._taken[host] + self._memory[mine] <= self._most_memory[host]
                )
                after = (share**2).sum() - share[source] ** 2 - share[host] ** 2
                squares = (
                    after
                    + ((self._used[source] - self._cpu[mine]) / self._most_cpu[source]) ** 2
                    + ((self._used[host] + self._cpu[mine]) / self._most_cpu[host]) ** 2
                )
                sums = share.sum() + self._cpu[mine] * (1 / self._most_cpu[host] - 1 / self._most_cpu[source])
                deviations = np.sqrt(np.maximum(squares / len(share) - (sums / len(share)) ** 2, 0))
                deviations[~room] = np.inf
                if len(mine) and deviations.min() < best:
                    best, best_move = float(deviations.min()), (int(mine[deviations.argmin()]), int(host))
            if best_move is None:
                return
            self._go(*best_move)
            share = self._used / self._most_cpu

    def places(self) -> dict[str, str]:
        names = (machine.name for machine in self._state.machines)
        return {name: self._hosts[host] for name, host in zip(names, self._at, strict=True)}

    def moves(self) -> int:
        return int((self._at != self._first).sum())


def planned(planner: Planner, state: Inventory, budget: float, seed: int) -> tuple[Plan, Outcome]:
    """By rota; all of it: rows, search, the check, and the order."""
    began = time.perf_counter()
    plan = planner.plan(state, PlanSettings(budget=budget, seed=seed))
    seconds = time.perf_counter() - began
    final = {step.move.machine: step.move.destination for step in plan.order.steps}
    places = {machine.name: final.get(machine.name, machine.host) for machine in state.machines}
    return plan, Outcome(places, len(plan.order.steps), seconds)


def vsphere(seeds: Sequence[int], budget: float, server: bool) -> Result:
    """32 hosts and 1000 machines, and how long 100 hosts and 5000 machines take."""
    planner = Planner()
    planner.plan(inventory_of(skewed(4, 40)), PlanSettings(budget=0.5))  # what is loaded once
    runs = [
        (state, *planned(planner, state, budget, seed))
        for seed in seeds
        for state in [_state(32, 1000, seed)]
    ]
    others = [greedy(state, 0.0) for state, _, _ in runs]
    alike = [greedy(state, balance_of(state, outcome.places).deviation) for state, _, outcome in runs]
    large = [planned(planner, _state(100, 5000, seed), max(1.0, budget - 1), seed) for seed in seeds]
    states = [_state(100, 5000, seed) for seed in seeds]
    figures: dict[str, Any] = {
        "runs": len(runs),
        "rules_broken": sum(broken(state, outcome.places) for state, _, outcome in runs),
        "left_out": sum(len(plan.order.left_out) for _, plan, _ in runs),
        "deviation_before": _points(balance_of(state, {}).deviation for state, _, _ in runs),
        "deviation": _points(balance_of(state, outcome.places).deviation for state, _, outcome in runs),
        "spread": _points(balance_of(state, outcome.places).spread for state, _, outcome in runs),
        "moves": statistics.median(outcome.moves for _, _, outcome in runs),
        "proven": sum(plan.solution.status is not SolveStatus.FEASIBLE for _, plan, _ in runs),
        "seconds": round(statistics.median(outcome.seconds for _, _, outcome in runs), 2),
        "greedy_rules_broken": sum(
            broken(state, other.places) for (state, _, _), other in zip(runs, others, strict=True)
        ),
        "greedy_deviation": _points(
            balance_of(state, other.places).deviation
            for (state, _, _), other in zip(runs, others, strict=True)
        ),
        "greedy_moves": statistics.median(other.moves for other in others),
        "greedy_moves_to_the_same": statistics.median(other.moves for other in alike),
        "greedy_seconds": round(statistics.median(other.seconds for other in others), 2),
        "large_seconds": round(statistics.median(outcome.seconds for _, outcome in large), 2),
        "large_deviation_before": _points(balance_of(state, {}).deviation for state in states),
        "large_deviation": _points(
            balance_of(state, outcome.places).deviation
            for state, (_, outcome) in zip(states, large, strict=True)
        ),
        "large_moves": statistics.median(outcome.moves for _, outcome in large),
    }
    rows = [
        ("rules broken", str(figures["rules_broken"]), str(figures["greedy_rules_broken"])),
        ("deviation before, points", f"{figures['deviation_before']:.2f}", "-"),
        ("deviation after, points", f"{figures['deviation']:.3f}", f"{figures['greedy_deviation']:.3f}"),
        ("moves", str(figures["moves"]), str(figures["greedy_moves"])),
        ("s", f"{figures['seconds']:.2f}", f"{figures['greedy_seconds']:.2f}"),
        ("proven best", f"{figures['proven']} of {len(runs)}", "-"),
        ("100 hosts, 5000 machines: s", f"{figures['large_seconds']:.2f}", "-"),
        (
            "100 hosts, 5000 machines: deviation",
            f"{figures['large_deviation_before']:.2f} -> {figures['large_deviation']:.2f}",
            "-",
        ),
    ]
    if server:
        with SimulatedVCenter(skewed(32, 1000, seeds[0])) as served:
            figures |= trio.run(_applied, planner, served, seeds[0], budget)
        rows.append(
            (
                "moved on the simulated vCenter",
                f"{figures['applied']} in {figures['applied_seconds']:.0f} s",
                "-",
            )
        )
    ok = figures["rules_broken"] == 0 and figures.get("applied_rules_broken", 0) == 0
    return Result(
        figures, rows, "the greedy balancer of this benchmark, in the place of published figures", ok=ok
    )


def _state(hosts: int, machines: int, seed: int) -> Inventory:
    return inventory_of(skewed(hosts, machines, seed), seed)


def _points(parts: Any) -> float:
    """Median, in hundredths of a host."""
    return round(100 * float(statistics.median(parts)), 3)


async def _applied(planner: Planner, server: SimulatedVCenter, seed: int, budget: float) -> dict[str, Any]:
    """The same size on a simulated vCenter: observed, planned, moved and read again."""
    async with connected(server.address, server.credentials, lambda _: None) as vcenter:
        whole, _ = await vcenter.look()
        part = whole.part(whole.clusters[0].name)
        plan = planner.plan(part, PlanSettings(budget=budget, seed=seed))
        migrations = Migrations.of([step.move for step in plan.order.steps], part)
        began = time.perf_counter()
        await carry_out(vcenter, migrations, tell=lambda _: None)
        seconds = time.perf_counter() - began
        after, _ = await vcenter.look()
    places = {machine.name: machine.host for machine in after.machines}
    return {
        "applied": migrations.count(State.DONE),
        "applied_seconds": round(seconds, 1),
        "applied_rules_broken": broken(part, places),
        "applied_deviation": _points([balance_of(part, places).deviation]),
    }
