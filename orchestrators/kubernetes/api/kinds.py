"""The kinds of objects that a scheduler reads, and where the API has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """``field`` is where ``ClusterObjects`` has them; ``required``: without them nothing is scheduled."""

    name: str
    group: str
    plural: str
    field: str
    namespaced: bool
    required: bool = False

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Of all of them, of those of a namespace, of one, or of what belongs to one."""
        parts = [self.group]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *filter(None, (name, subresource))])


CORE: Final = "/api/v1"
NODE: Final = Kind("Node", CORE, "nodes", "nodes", namespaced=False, required=True)
POD: Final = Kind("Pod", CORE, "pods", "pods", namespaced=True, required=True)
CLAIM: Final = Kind(
    "PersistentVolumeClaim", CORE, "persistentvolumeclaims", "persistent_volume_claims", namespaced=True
)
PRIORITY: Final = Kind(
    "PriorityClass", "/apis/scheduling.k8s.io/v1", "priorityclasses", "priority_classes", namespaced=False
)
KINDS: Final = (
    NODE,
    POD,
    Kind("Namespace", CORE, "namespaces", "namespaces", namespaced=False),
    Kind(
        "PodDisruptionBudget",
        "/apis/policy/v1",
        "poddisruptionbudgets",
        "disruption_budgets",
        namespaced=True,
    ),
    PRIORITY,
    Kind("PersistentVolume", CORE, "persistentvolumes", "persistent_volumes", namespaced=False),
    CLAIM,
    Kind("StorageClass", "/apis/storage.k8s.io/v1", "storageclasses", "storage_classes", namespaced=False),
    Kind("CSINode", "/apis/storage.k8s.io/v1", "csinodes", "csi_nodes", namespaced=False),
    Kind(
        "VolumeAttachment",
        "/apis/storage.k8s.io/v1",
        "volumeattachments",
        "volume_attachments",
        namespaced=False,
    ),
)
LEASE: Final = Kind("Lease", "/apis/coordination.k8s.io/v1", "leases", "", namespaced=True)
EVENT: Final = Kind("Event", "/apis/events.k8s.io/v1", "events", "", namespaced=True)
CONFIG_MAP: Final = Kind("ConfigMap", CORE, "configmaps", "", namespaced=True)
