"""Small clusters, written in one line each."""

from __future__ import annotations

from orchestrators.vsphere.inventory import Cluster, Host, Inventory, Machine, Rule


def host(name: str, memory: int = 100, cpu: int = 100, **more: object) -> Host:
    return Host(f"host-{name}", name, "c", cpu, memory, **more)  # type: ignore[arg-type]


def machine(name: str, where: str, memory: int = 10, cpu: int = 10, **more: object) -> Machine:
    return Machine(f"vm-{name}", name, where, cpu, memory, **more)  # type: ignore[arg-type]


def cluster(
    hosts: list[Host], machines: list[Machine], *rules: Rule, drs: str = "manual", failover_hosts: int = 0
) -> Inventory:
    described = Cluster("c-1", "c", drs, failover_hosts, rules)
    return Inventory((described,), tuple(hosts), tuple(machines))
