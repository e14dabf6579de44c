"""An inventory of one cluster as rows of the ``vm_balance`` pack.

Hosts that are not available are left out with their machines: nothing can be moved there or away from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from orchestrators.vsphere.errors import VsphereError
from orchestrators.vsphere.inventory import Inventory, Rule, RuleKind

Row: TypeAlias = dict[str, str | int | bool]
Tables: TypeAlias = dict[str, list[Row]]


class ContradictoryRulesError(VsphereError):
    """Rules of a cluster leave a machine no host at all."""


def rows_of(
    inventory: Inventory,
    *,
    samples: Mapping[str, tuple[int, ...]] | None = None,
    migrations: int | None = None,
    failover_hosts: int | None = None,
) -> Tables:
    """All tables of the pack for a cluster (``Inventory.part``).

    ``samples``: what machines used of cpu over a window; ``migrations``: how many may move in one plan;
    ``failover_hosts``: for the loss of so many hosts room is kept, by default as the cluster's admission control says.
    Raises ContradictoryRulesError.
    """
    (cluster,) = inventory.clusters
    hosts = {host.name: host for host in inventory.hosts if host.available}
    machines = {machine.name: machine for machine in inventory.machines if machine.host in hosts}
    rules = [rule for rule in cluster.rules if any(name in machines for name in rule.machines)]
    if failover_hosts is None:
        failover_hosts = cluster.failover_hosts
    return {
        "host": [
            {"name": host.name, "cpu": host.cpu, "memory": host.memory, "maintenance": host.evacuated}
            for host in hosts.values()
        ],
        "vm": [
            {
                "name": machine.name,
                "cpu": machine.cpu,
                "memory": machine.memory,
                "host": machine.host,
                "cpu_reservation": machine.cpu_reservation,
                "memory_reservation": machine.memory_reservation,
                "stays": bool(machine.stays),
            }
            for machine in machines.values()
        ],
        "vm_usage": [
            {"vm": name, "at": number, "cpu": cpu}
            for name, window in (samples or {}).items()
            if name in machines
            for number, cpu in enumerate(window)
        ],
        "together": _members(rules, RuleKind.TOGETHER, machines),
        "apart": _members(rules, RuleKind.APART, machines),
        "allowed_host": _hosts_of(rules, list(hosts), machines, must=True),
        "preferred_host": _hosts_of(rules, list(hosts), machines, must=False),
        "vm_access": [
            {"vm": machine.name, "resource": resource}
            for machine in machines.values()
            for resource in machine.uses
        ],
        "host_access": [
            {"host": host.name, "resource": resource} for host in hosts.values() for resource in host.reaches
        ],
        "migration_limit": [] if migrations is None else [{"migrations": migrations}],
        "failover": [{"hosts": failover_hosts}] if failover_hosts else [],
    }


def _members(rules: list[Rule], kind: RuleKind, machines: Mapping[str, object]) -> list[Row]:
    return [
        {"rule": rule.name, "vm": name}
        for rule in rules
        if rule.kind is kind
        for name in rule.machines
        if name in machines
    ]


def _hosts_of(
    rules: list[Rule], hosts: list[str], machines: Mapping[str, object], *, must: bool
) -> list[Row]:
    """The hosts that rules of machines and hosts leave each machine; those that only should, as far as they agree."""
    left: dict[str, set[str]] = {}
    named: dict[str, list[str]] = {}
    for rule in rules:
        if rule.must != must or rule.kind not in (RuleKind.ON, RuleKind.OFF):
            continue
        on = rule.kind is RuleKind.ON
        allowed = {host for host in hosts if (host in rule.hosts) == on}
        for name in rule.machines:
            if name not in machines:
                continue
            both = left.get(name, set(hosts)) & allowed
            named.setdefault(name, []).append(rule.name)
            if both or must:
                left[name] = both
    for name, found in left.items():
        if not found:
            raise ContradictoryRulesError(
                f"{name} may run on no host that is there: {', '.join(named[name])} together leave none; "
                "change one of these rules of the cluster"
            )
    return [{"vm": name, "host": host} for name, found in left.items() for host in sorted(found)]
