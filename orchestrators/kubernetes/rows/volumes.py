"""What a pod's volumes ask of its node: where they can be reached from, and how many can be attached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from orchestrators.kubernetes.rows.manifests import (
    Claim,
    CsiNode,
    Lenient,
    NodeRequirement,
    NodeSelector,
    NodeTerm,
    PersistentVolume,
    Pod,
    StorageClass,
    UnreadableError,
    VolumeAttachment,
    read,
)

_PLAIN: Final = frozenset(
    [
        "hostPath",
        "emptyDir",
        "gitRepo",
        "secret",
        "nfs",
        "glusterfs",
        "flexVolume",
        "cephfs",
        "flocker",
        "downwardAPI",
        "fc",
        "azureFile",
        "configMap",
        "quobyte",
        "photonPersistentDisk",
        "projected",
        "scaleIO",
        "storageos",
        "csi",
        "image",
    ]
)
"""Sources that any node will do for, as far as a scheduler knows."""
_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_OLDER: Final = {
    "failure-domain.beta.kubernetes.io/zone": _ZONE,
    "failure-domain.beta.kubernetes.io/region": _REGION,
}
_BOUND: Final = "pv.kubernetes.io/bind-completed"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_NOWHERE_LABELLED: Final = NodeTerm(
    tuple(NodeRequirement(key, "DoesNotExist") for key in (_ZONE, _REGION, *_OLDER))
)
_Kind = TypeVar("_Kind", bound=Lenient)


@dataclass(slots=True)
class Needs:
    """What the volumes of a pod ask for."""

    reach: list[NodeSelector] = field(default_factory=list)
    attached: set[tuple[str, str]] = field(default_factory=set)
    """Driver and handle of each volume that counts against a driver's limit."""
    awaiting: list[str] = field(default_factory=list)
    """Claims that get their volume once a node has been chosen."""
    exclusive: list[str] = field(default_factory=list)
    """Claims that one pod alone may use."""


class Volumes:
    """The claims, volumes and classes of a cluster, and the limits of its nodes."""

    def __init__(
        self,
        claims: Iterable[Mapping[str, Any]],
        volumes: Iterable[Mapping[str, Any]],
        classes: Iterable[Mapping[str, Any]],
        nodes: Iterable[Mapping[str, Any]],
        attachments: Iterable[Mapping[str, Any]],
    ) -> None:
        self._claims = {
            (each.metadata.namespace, each.metadata.name): each for each in _readable(claims, Claim)
        }
        self._volumes = {each.metadata.name: each for each in _readable(volumes, PersistentVolume)}
        self._classes = {each.metadata.name: each for each in _readable(classes, StorageClass)}
        self.limits = {
            (node.metadata.name, driver.name): driver.allocatable.count
            for node in _readable(nodes, CsiNode)
            for driver in node.spec.drivers
            if driver.allocatable is not None and driver.allocatable.count is not None
        }
        self.attached: dict[str, set[tuple[str, str]]] = {}
        """By node what is attached, whether or not a pod uses it."""
        for each in _readable(attachments, VolumeAttachment):
            volume = self._volumes.get(each.spec.source.persistent_volume_name or "")
            if volume is not None and volume.spec.csi is not None:
                known = self.attached.setdefault(each.spec.node_name, set())
                known.add((volume.spec.csi.driver, volume.spec.csi.volume_handle))

    def needs(self, pod: Pod) -> Needs:
        """An error says which volume cannot be had, or is not covered."""
        found = Needs()
        for claim in self._claims_of(pod):
            self._add(claim, found)
        return found

    def used(self, pod: Pod) -> Needs:
        """The same for a pod that runs: what cannot be had is left out."""
        found = Needs()
        try:
            for claim in self._claims_of(pod):
                self._add(claim, found)
        except UnreadableError:
            pass
        return found

    def _claims_of(self, pod: Pod) -> Iterator[Claim]:
        for volume in pod.spec.volumes or ():
            name = volume.get("name")
            source = next((key for key in volume if key != "name"), "emptyDir")
            if source == "persistentVolumeClaim":
                claim_name = volume[source].get("claimName") if isinstance(volume[source], Mapping) else None
            elif source == "ephemeral":
                claim_name = f"{pod.metadata.name}-{name}"
            elif source in _PLAIN:
                continue
            else:
                raise UnreadableError(
                    f"volume {name}: volumes of type {source} are not covered by this scheduler"
                )
            claim = self._claims.get((pod.metadata.namespace, str(claim_name)))
            if claim is None:
                raise UnreadableError(f"volume {name}: there is no claim {claim_name}")
            if source == "ephemeral" and all(
                each.uid != pod.metadata.uid for each in claim.metadata.owner_references or ()
            ):
                raise UnreadableError(f"volume {name}: the claim {claim_name} is not this pod's")
            yield claim

    def _add(self, claim: Claim, found: Needs) -> None:
        name, metadata, spec = f"claim {claim.metadata.name}", claim.metadata, claim.spec
        if metadata.deletion_timestamp is not None:
            raise UnreadableError(f"{name} is being deleted")
        if claim.status.phase == "Lost":
            raise UnreadableError(f"{name} has lost its volume")
        if "ReadWriteOncePod" in (spec.access_modes or ()):
            found.exclusive.append(f"{metadata.namespace}/{metadata.name}")
        if spec.volume_name and _BOUND in (metadata.annotations or {}):
            volume = self._volumes.get(spec.volume_name)
            if volume is None:
                raise UnreadableError(f"{name}: there is no volume {spec.volume_name}")
            found.reach += _reach(volume)
            if volume.spec.csi is not None:
                found.attached.add((volume.spec.csi.driver, volume.spec.csi.volume_handle))
            return
        storage = self._classes.get(spec.storage_class_name or "")
        if storage is None:
            raise UnreadableError(
                f"{name} has no volume, and its class {spec.storage_class_name or ''!r} is not known"
            )
        if storage.volume_binding_mode != "WaitForFirstConsumer":
            raise UnreadableError(f"{name} has no volume yet")
        if spec.volume_name or storage.provisioner == _NO_PROVISIONER:
            raise UnreadableError(
                f"{name} waits for one of the volumes that exist to be chosen, which is not covered"
            )
        if storage.allowed_topologies:
            found.reach.append(_allowed(storage))
        found.awaiting.append(metadata.name)
        found.attached.add((storage.provisioner, f"{metadata.namespace}/{metadata.name}"))


def _reach(volume: PersistentVolume) -> Iterator[NodeSelector]:
    """From which nodes a volume can be reached: by its affinity, and by the labels of its zone and region."""
    affinity = volume.spec.node_affinity
    if affinity is not None and affinity.required is not None:
        yield affinity.required
    for key, value in (volume.metadata.labels or {}).items():
        zones = tuple(each.strip() for each in value.split("__"))
        if key not in (_ZONE, _REGION, *_OLDER) or not all(zones):
            continue
        terms = [NodeTerm((NodeRequirement(key, "In", zones),)), _NOWHERE_LABELLED]
        if key in _OLDER:
            absent = NodeRequirement(key, "DoesNotExist")
            terms.append(NodeTerm((absent, NodeRequirement(_OLDER[key], "In", zones))))
        yield NodeSelector(tuple(terms))


def _allowed(storage: StorageClass) -> NodeSelector:
    terms: Sequence[Any] = storage.allowed_topologies or ()
    return NodeSelector(
        tuple(
            NodeTerm(
                tuple(
                    NodeRequirement(each.key, "In", each.values)
                    for each in term.match_label_expressions or ()
                )
            )
            for term in terms
        )
    )


def _readable(manifests: Iterable[Mapping[str, Any]], kind: type[_Kind]) -> Iterator[_Kind]:
    """Pods that ask for one of the others are told that it is not there."""
    for manifest in manifests:
        try:
            yield read(manifest, kind)
        except UnreadableError:
            continue
