"""From properties to an inventory: values as vCenter has them, made by the vendor's own types."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrators.vsphere.errors import CredentialsError, DrsIsMasterError, DumpError, NoPermissionError
from orchestrators.vsphere.inventory import Inventory, RuleKind, load, save
from orchestrators.vsphere.migrations import Task
from orchestrators.vsphere.observation import inventory_of
from orchestrators.vsphere.ownership import require_single_master

pytest.importorskip("pyVmomi")


def reference(id_: str) -> Any:
    return SimpleNamespace(_moId=id_)


def host(name: str, **more: Any) -> tuple[str, dict[str, Any]]:
    values = {
        "name": name,
        "parent": reference("c1"),
        "summary.hardware.cpuMhz": 2000,
        "summary.hardware.numCpuCores": 4,
        "summary.hardware.memorySize": 8 << 30,
        "datastore": [reference("ds1")],
    }
    return "HostSystem", {**values, **more}


def machine(name: str, where: str, **more: Any) -> tuple[str, dict[str, Any]]:
    values = {
        "name": name,
        "runtime.host": reference(where),
        "runtime.powerState": "poweredOn",
        "config.hardware.memoryMB": 1024,
    }
    return "VirtualMachine", {**values, **more}


def seen(tasks: tuple[Task, ...] = (), site_key: int | None = None, **objects: Any) -> Inventory:
    from pyVmomi import vim

    drs = vim.cluster.DrsConfigInfo(enabled=True, defaultVmBehavior="manual")
    configuration = vim.cluster.ConfigInfoEx(drsConfig=drs)
    everything = {
        "c1": ("ClusterComputeResource", {"name": "c", "configurationEx": configuration}),
        **objects,
    }
    return inventory_of(everything, tasks, site_key)


def test_what_machines_and_hosts_count_with() -> None:
    from pyVmomi import vim

    allocation = vim.ResourceAllocationInfo(reservation=512)
    found = seen(
        h1=host("esx1"),
        v1=machine("one", "h1"),
        v2=machine(
            "two%2f3",
            "h1",
            **{
                "config.memoryAllocation": allocation,
                "summary.quickStats.hostMemoryUsage": 300,
                "summary.quickStats.overallCpuUsage": 90,
                "summary.quickStats.overallCpuDemand": 120,
                "datastore": [reference("ds1")],
            },
        ),
        off=machine("off", "h1", **{"runtime.powerState": "poweredOff"}),
    )
    assert [(each.name, each.cpu, each.memory, each.reaches) for each in found.hosts] == [
        ("esx1", 8000, 8192, ("ds1",))
    ]
    counted = [(each.name, each.cpu, each.memory, each.memory_reservation) for each in found.machines]
    assert counted == [("one", 0, 1024, 0), ("two/3", 120, 512, 512)]
    assert (found.clusters[0].name, found.clusters[0].drs) == ("c", "manual")


def test_hosts_that_are_to_be_emptied_and_hosts_that_are_away() -> None:
    found = seen(
        (Task("t1", "h2", "running", kind="HostSystem.enterMaintenanceMode"),),
        7,
        h1=host("esx1", **{"runtime.inMaintenanceMode": True}),
        h2=host("esx2", customValue=[SimpleNamespace(key=7, value="north")]),
        h3=host("esx3", **{"runtime.connectionState": "notResponding"}),
        h4=host("esx4", parent=reference("standalone")),
    )
    shown = [(each.name, each.evacuated, each.available, each.site) for each in found.hosts]
    assert shown == [("esx1", True, True, ""), ("esx2", True, True, "north"), ("esx3", False, False, "")]


def test_a_machine_that_is_being_moved_stays_and_names_with_twins_are_told_apart() -> None:
    found = seen(
        (Task("t1", "v1", "running", kind="VirtualMachine.relocate"), Task("t2", "v2", "success")),
        h1=host("esx1"),
        v1=machine("twin", "h1"),
        v2=machine("twin", "h1"),
        v3=machine("half", "h1"),
        v4=machine("half", "h1", **{"runtime.powerState": "poweredOff"}),
    )
    assert [(each.name, each.task, each.stays) for each in found.machines] == [
        ("twin (v1)", "t1", "t1 is moving it"),
        ("twin (v2)", "", ""),
        ("half (v3)", "", ""),
    ]


def test_rules_overrides_and_admission_control_of_a_cluster() -> None:
    from pyVmomi import vim

    machines = [vim.VirtualMachine(id_) for id_ in ("v1", "v2")]
    hosts = [vim.HostSystem("h1")]
    configuration = vim.cluster.ConfigInfoEx(
        drsConfig=vim.cluster.DrsConfigInfo(enabled=True, defaultVmBehavior="fullyAutomated"),
        dasConfig=vim.cluster.DasConfigInfo(
            enabled=True,
            admissionControlEnabled=True,
            admissionControlPolicy=vim.cluster.FailoverLevelAdmissionControlPolicy(failoverLevel=2),
        ),
        group=[vim.cluster.VmGroup(name="vms", vm=machines), vim.cluster.HostGroup(name="hosts", host=hosts)],
        rule=[
            vim.cluster.AntiAffinityRuleSpec(name="apart", enabled=True, vm=machines),
            vim.cluster.AffinityRuleSpec(name="together", enabled=False, vm=machines),
            vim.cluster.VmHostRuleInfo(
                name="should", enabled=True, mandatory=False, vmGroupName="vms", affineHostGroupName="hosts"
            ),
        ],
        drsVmConfig=[vim.cluster.DrsVmConfigInfo(key=machines[0], enabled=False)],
    )
    found = seen(
        c1=("ClusterComputeResource", {"name": "c", "configurationEx": configuration}),
        h1=host("esx1"),
        v1=machine("one", "h1"),
        v2=machine("two", "h1"),
    )
    (cluster,) = found.clusters
    assert [(rule.name, rule.kind, rule.machines, rule.hosts, rule.must) for rule in cluster.rules] == [
        ("apart", RuleKind.APART, ("one", "two"), (), True),
        ("should", RuleKind.ON, ("one", "two"), ("esx1",), False),
    ]
    assert cluster.failover_hosts == 2
    assert [each.stays for each in found.machines] == ["an override of the cluster turns DRS off for it", ""]
    require_single_master([cluster], beside_drs=True)
    with pytest.raises(DrsIsMasterError, match="two masters would undo each other's moves"):
        require_single_master([cluster], beside_drs=False)


def test_settings_that_cannot_be_read_are_not_taken_for_none() -> None:
    with pytest.raises(NoPermissionError, match="the settings of cluster c cannot be read"):
        seen(c1=("ClusterComputeResource", {"name": "c"}))


def test_a_machine_that_an_override_leaves_to_drs_stays() -> None:
    from pyVmomi import vim

    override = vim.cluster.DrsVmConfigInfo(key=vim.VirtualMachine("v1"), behavior="fullyAutomated")
    for enabled, why in ((True, "DRS moves it by itself, by an override of the cluster"), (False, "")):
        drs = vim.cluster.DrsConfigInfo(enabled=enabled, defaultVmBehavior="manual")
        configuration = vim.cluster.ConfigInfoEx(drsConfig=drs, drsVmConfig=[override])
        found = seen(
            c1=("ClusterComputeResource", {"name": "c", "configurationEx": configuration}),
            h1=host("esx1"),
            v1=machine("one", "h1"),
        )
        assert found.machines[0].stays == why


def test_a_dump_is_read_back_and_anything_else_is_refused(tmp_path: Path) -> None:
    found = seen(h1=host("esx1"), v1=machine("one", "h1"))
    save(found, tmp_path / "dump.json")
    assert load(tmp_path / "dump.json") == found
    (tmp_path / "other.json").write_text('{"hosts": 3}')
    with pytest.raises(DumpError, match="is no dump of a vCenter"):
        load(tmp_path / "other.json")


def test_credentials_are_read_from_a_file_that_is_nobody_else_s(tmp_path: Path) -> None:
    from orchestrators.vsphere.connection import Credentials

    path = tmp_path / "login"
    path.write_text("user: ada@vsphere.local\npassword: s3cret: \n")
    path.chmod(0o600)
    found = Credentials.read(path)
    assert (found.user, found.password) == ("ada@vsphere.local", "s3cret:")
    assert "s3cret" not in repr(found)
    path.chmod(0o640)
    with pytest.raises(CredentialsError, match="others can read the credentials"):
        Credentials.read(path)
