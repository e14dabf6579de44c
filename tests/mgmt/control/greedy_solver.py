"""A tiny planner behind the control loop's solver seam, so that these tests are about the loop alone.

Rules: only live, undrained hosts; copies of a segment in distinct racks; loads differ by at most one where
moves within a rack allow it; as many layout servers as the hosts can carry, spread over racks; one sequencer.
"""

from __future__ import annotations

from collections import Counter

from datastore_adapter.interface import layout_servers_wanted
from mgmt.placement.intent import PolicyChoice
from mgmt.placement.placement_rows import HostRow, PlacementState
from mgmt.solution import Delta
from mgmt.solving.placement_questions import Explanation, Question
from mgmt.solving.placement_solver import Infeasible, Solved, SolveOutcome
from mgmt.solving.policy_listing import PolicyEntry


class GreedySolver:
    def __init__(self) -> None:
        self.solves = 0
        self.prepared = 0

    def prepare(self, policies: PolicyChoice) -> None:
        self.prepared += 1

    def policies(self, policies: PolicyChoice) -> tuple[PolicyEntry, ...]:
        return (
            PolicyEntry("greedy", "rule", None, 1, "greedy.sql:1:1", "whoever comes first is served first"),
        )

    def solve(self, state: PlacementState, policies: PolicyChoice, budget: float, seed: int) -> SolveOutcome:
        self.solves += 1
        usable = {row.name: row for row in state.hosts if row.alive and not row.drained}
        rows = {(row.segment, row.slot): row for row in state.replicas}
        hosts = {slot: row.host if row.host in usable else None for slot, row in rows.items()}
        open_to_new = {name: row for name, row in usable.items() if name not in state.frozen}
        if not _fill(hosts, usable, open_to_new):
            return Infeasible(
                ("one_replica_per_rack", "only_live_hosts"), ("one_replica_per_rack (pack:1:1)",), 0.1
            )
        _balance(hosts, usable, open_to_new)
        deltas = [
            Delta("replica", slot, "host", rows[slot].host, host)
            for slot, host in hosts.items()
            if host != rows[slot].host
        ]
        deltas += _primaries(state, hosts)
        deltas += _roles(state, usable)
        return Solved("optimal" if deltas else "unchanged", tuple(deltas), (), 0.1)

    def explain(
        self, state: PlacementState, policies: PolicyChoice, question: Question, budget: float, seed: int
    ) -> Explanation:
        return Explanation((f"{question.kind}: whoever comes first is served first",))


Hosts = dict[tuple[str, int], str | None]


def _racks(hosts: Hosts, usable: dict[str, HostRow], segment: str) -> set[str]:
    return {usable[host].rack for slot, host in hosts.items() if slot[0] == segment and host is not None}


def _fill(hosts: Hosts, usable: dict[str, HostRow], open_to_new: dict[str, HostRow]) -> bool:
    load = Counter(host for host in hosts.values() if host is not None)
    for slot in sorted(hosts):
        if hosts[slot] is not None:
            continue
        taken = _racks(hosts, usable, slot[0])
        free = [name for name, row in sorted(open_to_new.items()) if row.rack not in taken]
        if not free:
            return False
        chosen = hosts[slot] = min(free, key=lambda name: (load[name], name))
        load[chosen] += 1
    return True


def _balance(hosts: Hosts, usable: dict[str, HostRow], open_to_new: dict[str, HostRow]) -> None:
    load = Counter(dict.fromkeys(usable, 0))
    load.update(host for host in hosts.values() if host is not None)
    moved = True
    while moved:
        moved = False
        for slot in sorted(hosts):
            host = hosts[slot]
            assert host is not None
            mates = [name for name, row in sorted(open_to_new.items()) if row.rack == usable[host].rack]
            idle = min(mates, key=lambda name: (load[name], name), default=host)
            if load[host] - load[idle] >= 2:
                hosts[slot] = idle
                load[host] -= 1
                load[idle] += 1
                moved = True


def _primaries(state: PlacementState, hosts: Hosts) -> list[Delta]:
    deltas: list[Delta] = []
    led = Counter(hosts[row.segment, row.slot] for row in state.replicas if row.is_primary and row.host)
    for segment in state.segments:
        rows = [row for row in state.replicas if row.segment == segment.key]
        stays = [row for row in rows if row.is_primary and hosts[row.segment, row.slot] == row.host]
        if stays:
            continue
        # A copy that is already there leads better than one still to be made.
        best = min(rows, key=lambda row: (hosts[row.segment, row.slot] != row.host, led[row.host], row.slot))
        led[best.host] += 1
        for row in rows:
            if row.is_primary != (row is best):
                key = (row.segment, row.slot)
                deltas.append(Delta("replica", key, "is_primary", row.is_primary, row is best))
    return deltas


def _roles(state: PlacementState, usable: dict[str, HostRow]) -> list[Delta]:
    servers = [row.name for row in state.hosts if row.layout_server and row.name in usable]
    wanted = layout_servers_wanted(len(usable))
    while len(servers) != wanted:
        held = Counter(usable[name].rack for name in servers)
        if len(servers) > wanted:
            servers.remove(max(servers, key=lambda name: (held[usable[name].rack], name)))
        else:
            spare = sorted(usable.keys() - servers)
            servers.append(min(spare, key=lambda name: (held[usable[name].rack], name)))
    sequencers = [row.name for row in state.hosts if row.sequencer and row.name in usable] or [min(usable)]
    deltas: list[Delta] = []
    for row in state.hosts:
        for column, old, new in (
            ("layout_server", row.layout_server, row.name in servers),
            ("sequencer", row.sequencer, row.name == sequencers[0]),
        ):
            if old != new:
                deltas.append(Delta("host", (row.name,), column, old, new))
    return deltas
