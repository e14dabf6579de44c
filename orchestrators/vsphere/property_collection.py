"""The inventory kept up to date: one filter of the property collector, and ``WaitForUpdatesEx``.

vCenter sends everything once, and from then on what has changed.  After a new login all of it begins anew.
"""

from __future__ import annotations

from typing import Any

from pyVmomi import vim, vmodl

from orchestrators.vsphere.connection import Connection, fault_text
from orchestrators.vsphere.errors import RefusedError, UnreachableError
from orchestrators.vsphere.inventory import Inventory
from orchestrators.vsphere.migrations import Task
from orchestrators.vsphere.observation import CLUSTER, HOST, MACHINE, PROPERTIES, SITE, inventory_of

_Collector = vmodl.query.PropertyCollector
_TYPES = {HOST: vim.HostSystem, CLUSTER: vim.ClusterComputeResource, MACHINE: vim.VirtualMachine}
_MOST_UPDATES = 1000
"""Objects in one answer; there may be more to come."""
_TASK_PROPERTIES = ["info"]


class Observer:
    """What one session has seen so far."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._objects: dict[str, tuple[str, dict[str, Any]]] = {}
        self._collector: Any = None
        self._version = ""
        self._site_key: int | None = None

    async def look(self, wait: float = 0.0) -> tuple[Inventory, list[Task]]:
        """The state now, or after the next change within ``wait`` seconds.

        Tasks are asked for first, so that what one of them has done is in the state.  Raises UnreachableError (also
        for an expired session), NoPermissionError.
        """
        try:
            if self._collector is None:
                await self._connection.call(self._begin)
            tasks = await self._connection.call(self._tasks)
            await self._connection.call(self._update, wait)
        except RefusedError as error:  # the collector is gone, or vCenter is being stopped
            raise UnreachableError(str(error)) from error
        return inventory_of(self._objects, tasks, self._site_key), tasks

    def forget(self) -> None:
        """Begin anew with the next look, after a new login."""
        self._collector, self._version, self._objects = None, "", {}

    def reference(self, kind: str, name: str, inventory: Inventory) -> Any:
        """vCenter's object of a host or machine with this name.  Raises KeyError."""
        named = inventory.hosts if kind == HOST else inventory.machines
        id_ = next(each.id for each in named if each.name == name)
        return _TYPES[kind](id_, self._connection.content.rootFolder._stub)

    def _begin(self) -> None:
        content = self._connection.content
        view = content.viewManager.CreateContainerView(content.rootFolder, list(_TYPES.values()), True)
        entries = _Collector.TraversalSpec(
            name="entries", type=vim.view.ContainerView, path="view", skip=False
        )
        spec = _Collector.FilterSpec(
            objectSet=[_Collector.ObjectSpec(obj=view, skip=True, selectSet=[entries])],
            propSet=[
                _Collector.PropertySpec(type=_TYPES[kind], all=False, pathSet=list(paths))
                for kind, paths in PROPERTIES.items()
            ],
        )
        collector = content.propertyCollector.CreatePropertyCollector()
        collector.CreateFilter(spec, False)  # whole properties: no nested paths, which nobody would look at
        fields = content.customFieldsManager.field if content.customFieldsManager is not None else ()
        self._site_key = next((field.key for field in fields or () if field.name.lower() == SITE), None)
        self._collector = collector

    def _update(self, wait: float) -> None:
        options = _Collector.WaitOptions(maxWaitSeconds=round(wait), maxObjectUpdates=_MOST_UPDATES)
        while True:
            answer = self._collector.WaitForUpdatesEx(self._version, options)
            if answer is None:
                return
            self._version = answer.version
            for changes in answer.filterSet:
                for change in changes.objectSet:
                    self._apply(change)
            if not answer.truncated:
                return
            options.maxWaitSeconds = 0

    def _apply(self, change: Any) -> None:
        id_ = str(change.obj._moId)
        if str(change.kind) == "leave":
            self._objects.pop(id_, None)
            return
        kind = type(change.obj).__name__.rpartition(".")[2]
        _, values = self._objects.setdefault(id_, (kind, {}))
        for each in change.changeSet:
            if str(each.op) in ("assign", "add"):
                values[each.name] = each.val
            else:
                values.pop(each.name, None)

    def _tasks(self) -> list[Task]:
        manager = self._connection.content.taskManager
        recent = _Collector.TraversalSpec(name="recent", type=vim.TaskManager, path="recentTask", skip=False)
        spec = _Collector.FilterSpec(
            objectSet=[_Collector.ObjectSpec(obj=manager, skip=True, selectSet=[recent])],
            propSet=[_Collector.PropertySpec(type=vim.Task, all=False, pathSet=_TASK_PROPERTIES)],
        )
        collector = self._connection.content.propertyCollector
        answer = collector.RetrievePropertiesEx([spec], _Collector.RetrieveOptions())
        found: list[Task] = []
        while answer is not None:
            found += [_task(each.propSet[0].val) for each in answer.objects if each.propSet]
            answer = collector.ContinueRetrievePropertiesEx(answer.token) if answer.token else None
        return found


def _task(info: Any) -> Task:
    return Task(
        id=str(info.key),
        entity="" if info.entity is None else str(info.entity._moId),
        state=str(info.state),
        progress=int(info.progress or 0),
        error="" if info.error is None else fault_text(info.error),
        kind=str(info.descriptionId),
    )
