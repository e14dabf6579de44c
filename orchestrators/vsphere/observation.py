"""From vCenter's properties to an inventory.  Pure: properties are looked at, never fetched.

``PROPERTIES`` are those that the property collector is asked for.  One that a server does not have is not there, and
its default is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from orchestrators.vsphere.errors import NoPermissionError
from orchestrators.vsphere.inventory import Cluster, Host, Inventory, Machine, Rule, RuleKind
from orchestrators.vsphere.migrations import Task
from orchestrators.vsphere.ownership import AUTOMATIC

HOST: Final = "HostSystem"
CLUSTER: Final = "ClusterComputeResource"
MACHINE: Final = "VirtualMachine"

PROPERTIES: Final[Mapping[str, tuple[str, ...]]] = {
    HOST: (
        "name", "parent", "runtime.connectionState", "runtime.inMaintenanceMode", "runtime.standbyMode",
        "summary.hardware.cpuMhz", "summary.hardware.numCpuCores", "summary.hardware.memorySize", "datastore",
        "network", "customValue",
    ),
    CLUSTER: ("name", "configurationEx"),
    MACHINE: (
        "name", "runtime.host", "runtime.powerState", "runtime.connectionState", "runtime.faultToleranceState",
        "config.template", "config.hardware.memoryMB", "config.cpuAllocation", "config.memoryAllocation",
        "summary.quickStats.overallCpuUsage", "summary.quickStats.overallCpuDemand",
        "summary.quickStats.hostMemoryUsage", "datastore", "network",
    ),
}  # fmt: skip

MOVING: Final = ("VirtualMachine.relocate", "VirtualMachine.migrate", "Drm.ExecuteVMotionLRO")
"""How the names of tasks that move machines begin."""
EVACUATING: Final = "HostSystem.enterMaintenanceMode"
SITE: Final = "site"
"""The custom attribute of hosts that says which of them fail together."""

Properties = Mapping[str, Any]


def inventory_of(
    objects: Mapping[str, tuple[str, Properties]], tasks: Sequence[Task], site_key: int | None = None
) -> Inventory:
    """``objects``: type and properties by id; ``site_key``: of the custom attribute ``site``, if there is one.

    Raises NoPermissionError where the settings of a cluster cannot be read: its rules are not known then.
    """
    clusters = {id_: values for id_, (kind, values) in objects.items() if kind == CLUSTER}
    cluster_names = _names(objects, CLUSTER)
    hosts = {
        id_: values
        for id_, (kind, values) in objects.items()
        if kind == HOST and _id(values.get("parent")) in clusters
    }
    host_names = _names(objects, HOST)
    machines = {
        id_: values
        for id_, (kind, values) in objects.items()
        if kind == MACHINE and _runs(values) and _id(values.get("runtime.host")) in hosts
    }
    all_names = _names(objects, MACHINE)
    machine_names = {id_: all_names[id_] for id_ in machines}  # rules name those that run
    running = [task for task in tasks if task.is_running]
    evacuated = {task.entity for task in running if task.kind == EVACUATING}
    moved = {task.entity: task.id for task in running if task.kind.startswith(MOVING)}
    return Inventory(
        tuple(
            _cluster(id_, cluster_names[id_], values.get("configurationEx"), host_names, machine_names)
            for id_, values in clusters.items()
        ),
        tuple(
            _host(
                id_, host_names[id_], cluster_names[_id(values["parent"])], values, id_ in evacuated, site_key
            )
            for id_, values in hosts.items()
        ),
        _with_overrides(
            [
                _machine(id_, machine_names[id_], host_names, values, moved.get(id_, ""))
                for id_, values in machines.items()
            ],
            clusters.values(),
        ),
    )


def _names(objects: Mapping[str, tuple[str, Properties]], wanted: str) -> dict[str, str]:
    """Of all objects of a type, by id.  Twins have the id beside their name, also of those that are switched off: what
    a name means is not to change when one of them is switched on."""
    plain = {
        id_: unquote(str(values.get("name", id_)))
        for id_, (kind, values) in objects.items()
        if kind == wanted
    }
    times = Counter(plain.values())
    return {id_: f"{name} ({id_})" if times[name] > 1 else name for id_, name in plain.items()}


def _id(reference: Any) -> str:
    """Of a managed object."""
    return "" if reference is None else str(reference._moId)


def _ids(references: Iterable[Any] | None) -> tuple[str, ...]:
    return tuple(sorted(map(_id, references or ())))


def _runs(values: Properties) -> bool:
    on = str(values.get("runtime.powerState", "")) == "poweredOn"
    return on and not values.get("config.template", False)


def _host(
    id_: str, name: str, cluster: str, values: Properties, evacuated: bool, site_key: int | None
) -> Host:
    connected = str(values.get("runtime.connectionState", "connected")) == "connected"
    awake = str(values.get("runtime.standbyMode") or "none") == "none"
    sites = [value.value for value in values.get("customValue") or () if value.key == site_key]
    cores = int(values.get("summary.hardware.numCpuCores", 1))
    return Host(
        id=id_,
        name=name,
        cluster=cluster,
        cpu=max(1, int(values.get("summary.hardware.cpuMhz", 0)) * cores),
        memory=int(values.get("summary.hardware.memorySize", 0)) >> 20,
        evacuated=evacuated or bool(values.get("runtime.inMaintenanceMode", False)),
        available=connected and awake,
        site=str(sites[0]) if sites else "",
        reaches=tuple(sorted((*_ids(values.get("datastore")), *_ids(values.get("network"))))),
    )


def _machine(id_: str, name: str, hosts: Mapping[str, str], values: Properties, task: str) -> Machine:
    given = int(values.get("config.hardware.memoryMB", 0))
    cpu_reservation = _reservation(values.get("config.cpuAllocation"))
    memory_reservation = _reservation(values.get("config.memoryAllocation"))
    used = int(values.get("summary.quickStats.hostMemoryUsage") or 0)
    demand = values.get("summary.quickStats.overallCpuDemand")
    cpu = int(demand or values.get("summary.quickStats.overallCpuUsage") or 0)
    stays = ""
    if str(values.get("runtime.connectionState", "connected")) != "connected":
        stays = f"it is {values['runtime.connectionState']}"
    elif str(values.get("runtime.faultToleranceState") or "notConfigured") != "notConfigured":
        stays = "it is fault tolerant"
    elif task:
        stays = f"{task} is moving it"
    return Machine(
        id=id_,
        name=name,
        host=hosts[_id(values["runtime.host"])],
        cpu=cpu,
        memory=max(used or given, memory_reservation),
        cpu_reservation=cpu_reservation,
        memory_reservation=memory_reservation,
        uses=tuple(sorted((*_ids(values.get("datastore")), *_ids(values.get("network"))))),
        stays=stays,
        task=task,
    )


def _reservation(allocation: Any) -> int:
    return int(getattr(allocation, "reservation", None) or 0)


def _cluster(
    id_: str, name: str, configuration: Any, hosts: Mapping[str, str], machines: Mapping[str, str]
) -> Cluster:
    if configuration is None:
        raise NoPermissionError(
            f"the settings of cluster {name} cannot be read, so its rules are not known: give System.Read on it"
        )
    drs = configuration.drsConfig
    automatic = "off"
    if drs is not None and drs.enabled:
        automatic = str(drs.defaultVmBehavior or "fullyAutomated")
    return Cluster(
        id_,
        name,
        automatic,
        _failover_hosts(configuration.dasConfig),
        tuple(_rules(configuration, hosts, machines)),
    )


def _failover_hosts(availability: Any) -> int:
    """What admission control keeps room for, where it counts in hosts."""
    if availability is None or not availability.enabled or not availability.admissionControlEnabled:
        return 0
    policy = availability.admissionControlPolicy
    return int(getattr(policy, "failoverLevel", None) or getattr(availability, "failoverLevel", None) or 0)


def _rules(configuration: Any, hosts: Mapping[str, str], machines: Mapping[str, str]) -> Iterable[Rule]:
    groups: dict[str, tuple[str, ...]] = {}
    for group in configuration.group or ():
        for kind, names in (("vm", machines), ("host", hosts)):
            if getattr(group, kind, None) is not None:
                groups[group.name] = tuple(names[_id(r)] for r in getattr(group, kind) if _id(r) in names)
    for rule in configuration.rule or ():
        if not rule.enabled:
            continue
        kind = type(rule).__name__.rpartition(".")[2]
        must = bool(getattr(rule, "mandatory", False))
        if kind in ("AffinityRuleSpec", "AntiAffinityRuleSpec"):
            members = tuple(machines[_id(r)] for r in rule.vm or () if _id(r) in machines)
            together = kind == "AffinityRuleSpec"
            if len(members) > 1:
                yield Rule(rule.name, RuleKind.TOGETHER if together else RuleKind.APART, members)
        elif kind == "VmHostRuleInfo":
            members = groups.get(rule.vmGroupName, ())
            for side, which in (
                (RuleKind.ON, rule.affineHostGroupName),
                (RuleKind.OFF, rule.antiAffineHostGroupName),
            ):
                if which and members:
                    yield Rule(rule.name, side, members, groups.get(which, ()), must)


def _with_overrides(machines: list[Machine], clusters: Iterable[Properties]) -> tuple[Machine, ...]:
    """Machines stay that an override of their cluster takes out of what DRS does, or leaves to DRS alone."""
    why: dict[str, str] = {}
    for values in clusters:
        configuration = values.get("configurationEx")
        drs = getattr(configuration, "drsConfig", None)
        by_hand = drs is not None and drs.enabled and str(drs.defaultVmBehavior) != AUTOMATIC
        for override in getattr(configuration, "drsVmConfig", None) or ():
            if override.enabled is False:
                why[_id(override.key)] = "an override of the cluster turns DRS off for it"
            elif str(override.behavior) == "manual":
                why[_id(override.key)] = "an override of the cluster makes its moves manual"
            elif by_hand and str(override.behavior) == AUTOMATIC:
                why[_id(override.key)] = "DRS moves it by itself, by an override of the cluster"
    return tuple(
        msgspec.structs.replace(machine, stays=machine.stays or why.get(machine.id, ""))
        for machine in machines
    )
