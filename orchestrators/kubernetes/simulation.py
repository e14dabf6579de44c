"""What would be placed where, on a dump of a cluster (``kubectl get nodes,pods,pdb -A -o json``).."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from mgmt import Headroom, Why, WhyNot, headroom, why, why_not
from orchestrators.kubernetes.api.kinds import KINDS
from orchestrators.kubernetes.errors import ObjectsError
from orchestrators.kubernetes.explanations import explanations
from orchestrators.kubernetes.placement import TABLE, Key, Placement, Placer
from orchestrators.kubernetes.rows import ClusterObjects

ZONE = "topology.kubernetes.io/zone"
_HINT = "give what `kubectl get nodes,pods,pdb -A -o json` prints"


def objects_of(texts: Iterable[str]) -> ClusterObjects:
    """The objects of one or more dumps.  Raises ObjectsError."""
    fields = {kind.name: kind.field for kind in KINDS}
    found: dict[str, list[Mapping[str, Any]]] = {field: [] for field in fields.values()}
    for text in texts:
        try:
            document = json.loads(text)
        except ValueError as error:
            raise ObjectsError(f"this is no JSON: {error}; {_HINT}") from error
        for item in _items(document):
            if item["kind"] in fields:
                found[fields[item["kind"]]].append(item)
    if not found["nodes"]:
        raise ObjectsError(f"there is no node in it; {_HINT}")
    return ClusterObjects(**{field: tuple(items) for field, items in found.items()})


def _items(document: object) -> Iterator[Mapping[str, Any]]:
    """The objects of a document: one, or a list of any kind."""
    entries = document if isinstance(document, list) else [document]
    for entry in entries:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("kind"), str):
            raise ObjectsError(f"this holds something that is no object of Kubernetes; {_HINT}")
        kind: str = entry["kind"]
        if kind.endswith("List") or kind == "List":
            for item in entry.get("items") or ():
                yield from _items({"kind": kind.removesuffix("List"), **item})
        elif not isinstance(entry.get("metadata"), Mapping) or "name" not in entry["metadata"]:
            raise ObjectsError(f"a {kind} without a name; {_HINT}")
        else:
            yield entry


@dataclass(frozen=True, slots=True)
class Simulation:
    """``reasons``: of each pod without a node."""

    objects: ClusterObjects
    placement: Placement
    reasons: Mapping[Key, str]

    @property
    def pending(self) -> int:
        return len(self.placement.bound) + len(self.reasons)


class Simulator:
    """A cluster as it is, and as it would be.  Questions are about the pods that wait."""

    def __init__(
        self, objects: ClusterObjects, placer: Placer, *, every_scheduler: bool, budget: float
    ) -> None:
        self._placer, self._budget = placer, budget
        self._now = datetime.now(UTC)
        name = placer.scheduler_name
        self.objects = replace(
            objects, pods=tuple(_for(pod, name) if every_scheduler else pod for pod in objects.pods)
        )

    def run(self) -> Simulation:
        placement = self._placer.place(self.objects, budget=self._budget, now=self._now)
        reasons = explanations(self._placer, self.objects, placement, budget=10 * self._budget, now=self._now)
        return Simulation(self.objects, placement, dict(reasons))

    def without(self, zones: Collection[str] = (), nodes: Collection[str] = ()) -> Simulator:
        """The cluster after these were lost: what ran there waits again, but for pods that belong to their node."""
        known = {str(node["metadata"]["name"]) for node in self.objects.nodes}
        lost = {
            str(node["metadata"]["name"])
            for node in self.objects.nodes
            if (node["metadata"].get("labels") or {}).get(ZONE) in zones or node["metadata"]["name"] in nodes
        }
        for name in [*(set(nodes) - known), *(zones if not lost and zones else ())]:
            raise ObjectsError(f"no node is called, or is in the zone, {name!r}")
        left = tuple(node for node in self.objects.nodes if node["metadata"]["name"] not in lost)
        pods = tuple(
            each
            for pod in self.objects.pods
            if (each := _evacuated(pod, self._placer.scheduler_name) if _node(pod) in lost else pod)
            is not None
        )
        found = Simulator(
            replace(self.objects, nodes=left, pods=pods),
            self._placer,
            every_scheduler=False,
            budget=self._budget,
        )
        found._now = self._now
        return found

    def why(self, key: Key) -> tuple[Why, ...]:
        """Why a pod goes where it goes."""
        self._placer.load(self.objects, self._now)
        return why(self._placer.model, TABLE, self._row(key), budget=2 * self._budget)

    def why_not(self, key: Key, node: str) -> WhyNot:
        """Why a pod does not go to a node."""
        self._placer.load(self.objects, self._now)
        return why_not(self._placer.model, TABLE, self._row(key), node, budget=2 * self._budget)

    def headroom(self, key: Key) -> Headroom:
        """How many more pods like one would fit, one that runs too."""
        pods = tuple(
            {**pod, "spec": {**pod["spec"], "nodeName": None, "schedulerName": self._placer.scheduler_name}}
            if (pod["metadata"].get("namespace") or "", pod["metadata"]["name"]) == key
            else pod
            for pod in self.objects.pods
        )
        self._placer.load(replace(self.objects, pods=pods), self._now)
        return headroom(self._placer.model, TABLE, self._row(key), budget=5 * self._budget)

    def _row(self, key: Key) -> tuple[str]:
        name = "/".join(key)
        if all(
            (pod["metadata"].get("namespace") or "", pod["metadata"]["name"]) != key
            for pod in self.objects.pods
        ):
            raise ObjectsError(f"there is no pod {name}; name it as NAMESPACE/NAME")
        return (name,)


def _for(pod: Mapping[str, Any], scheduler: str) -> Mapping[str, Any]:
    return pod if _node(pod) else {**pod, "spec": {**pod["spec"], "schedulerName": scheduler}}


def _node(pod: Mapping[str, Any]) -> str | None:
    return pod["spec"].get("nodeName") or None


def _evacuated(pod: Mapping[str, Any], scheduler: str) -> Mapping[str, Any] | None:
    """A pod of a lost node as its controller would make it again; None: nobody would, or only on that node."""
    owners = {owner.get("kind") for owner in pod["metadata"].get("ownerReferences") or ()}
    if owners & {"DaemonSet", "Node"} or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return None
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {**pod, "spec": {**spec, "schedulerName": scheduler}, "status": {"phase": "Pending"}}
