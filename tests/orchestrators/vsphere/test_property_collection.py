"""What the property collector is asked for, and what becomes of its answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyVmomi")


def test_whole_properties_are_asked_for_and_replace_what_was_there() -> None:
    """Nested paths, such as ``configurationEx.drsConfig.defaultVmBehavior``, would leave the settings as they were."""
    from pyVmomi import vim, vmodl

    from orchestrators.vsphere.property_collection import Observer

    partial: list[bool] = []
    collector = SimpleNamespace(CreateFilter=lambda spec, flag: partial.append(flag))
    view = vim.view.ContainerView("view-1")
    content = SimpleNamespace(
        rootFolder=None,
        customFieldsManager=None,
        viewManager=SimpleNamespace(CreateContainerView=lambda *_: view),
        propertyCollector=SimpleNamespace(CreatePropertyCollector=lambda: collector),
    )
    connection: Any = SimpleNamespace(content=content)
    observer = Observer(connection)
    observer._begin()
    assert partial == [False]
    update = vmodl.query.PropertyCollector
    for value in ("first", "second"):
        observer._apply(
            update.ObjectUpdate(
                kind="modify",
                obj=vim.ClusterComputeResource("c1"),
                changeSet=[update.Change(name="name", op="assign", val=value)],
            )
        )
    assert observer._objects == {"c1": ("ClusterComputeResource", {"name": "second"})}
