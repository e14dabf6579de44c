"""The objects of a cluster as lists and watches tell of them, and which news matter to placement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

Json: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[str, str]
"""Namespace and name."""

FINISHED = ("Succeeded", "Failed")


def key_of(item: Json) -> Key:
    metadata = item["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def uid_of(item: Json) -> str:
    return str(item["metadata"].get("uid", ""))


def node_of(pod: Json) -> str | None:
    """Where a pod is bound to."""
    return pod["spec"].get("nodeName") or None


def is_finished(pod: Json) -> bool:
    """Whether it runs no more, and takes nothing."""
    return (pod.get("status") or {}).get("phase") in FINISHED


def is_ending(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def priority_of(pod: Json) -> int:
    return int(pod["spec"].get("priority") or 0)


class ObjectCache:
    """All objects of one kind (``nodes``, ``pods``).  Each method returns whether anything changed that matters."""

    def __init__(self, kind: str) -> None:
        self._extract = {"nodes": _of_node, "pods": _of_pod}.get(kind, _of_any)
        self._items: dict[Key, dict[str, Any]] = {}
        self.is_listed = False

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._items.values())

    def get(self, key: Key) -> dict[str, Any] | None:
        return self._items.get(key)

    def replace(self, items: Iterable[dict[str, Any]]) -> bool:
        """What a list says: what is not in it is gone."""
        new = {key_of(item): _without_history(item) for item in items}
        old, self._items = self._items, new
        first, self.is_listed = not self.is_listed, True
        gone = old.keys() - new.keys()
        return first or bool(gone) or any(self._matters(old.get(key), item) for key, item in new.items())

    def change(self, item: dict[str, Any], *, deleted: bool = False) -> bool:
        """What a watch says of one object."""
        key = key_of(item)
        if deleted:
            return self._items.pop(key, None) is not None
        old = self._items.get(key)
        self._items[key] = _without_history(item)
        return self._matters(old, item)

    def _matters(self, old: Json | None, new: Json) -> bool:
        if old is None or uid_of(old) != uid_of(new):
            return True
        return self._extract(old) != self._extract(new)


def _without_history(item: dict[str, Any]) -> dict[str, Any]:
    """Who wrote which field is half of an object, and nobody here reads it."""
    item["metadata"].pop("managedFields", None)
    return item


def _of_node(node: Json) -> object:
    """All but heartbeats."""
    metadata, status = node["metadata"], node.get("status") or {}
    conditions = sorted((each["type"], each["status"]) for each in status.get("conditions") or ())
    return (
        metadata.get("labels"), node.get("spec"), status.get("allocatable"), status.get("images"), conditions,
    )  # fmt: skip


def _of_pod(pod: Json) -> object:
    """All but what a kubelet says of containers, and what schedulers say of themselves."""
    metadata = pod["metadata"]
    return metadata.get("labels"), is_ending(pod), pod.get("spec"), is_finished(pod)


def _of_any(item: Json) -> object:
    metadata = {key: value for key, value in item["metadata"].items() if key != "resourceVersion"}
    return {**item, "metadata": metadata}
