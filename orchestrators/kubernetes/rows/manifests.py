"""The fields of Kubernetes' objects that a scheduler reads, with their types.

Objects are parsed at the edge.  Where the API gives fields a meaning for scheduling, an unknown field, a wrong type or
an unknown operator is an error that names its place: nothing is silently misread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

_ACRONYMS = {"host_ip": "hostIP"}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return _ACRONYMS.get(name, head + "".join(word.capitalize() for word in rest))


class UnreadableError(ValueError):
    """An object says something that is malformed, or that this scheduler does not know.  The text says what."""


class Lenient(Struct, frozen=True, gc=False, rename=_camel):
    """Fields beside these do not concern scheduling."""


class Strict(Struct, frozen=True, gc=False, rename=_camel, forbid_unknown_fields=True):
    """All fields there are."""


Amount = str | int | float
Amounts = dict[str, Amount]
Labels = dict[str, str]
Name = Annotated[str, Meta(min_length=1)]
Weight = Annotated[int, Meta(ge=1, le=100)]
Positive = Annotated[int, Meta(ge=1, lt=1 << 31)]
Inclusion = Literal["Honor", "Ignore"]


# ---- selectors and terms ------------------------------------------------------------------------------------------


class NodeRequirement(Strict, frozen=True):
    key: Name
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] | None = None


class LabelRequirement(Strict, frozen=True):
    key: Name
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] | None = None


class LabelSelector(Strict, frozen=True):
    match_labels: Labels | None = None
    match_expressions: tuple[LabelRequirement, ...] | None = None


class NodeTerm(Strict, frozen=True):
    match_expressions: tuple[NodeRequirement, ...] | None = None
    match_fields: tuple[NodeRequirement, ...] | None = None


class NodeSelector(Strict, frozen=True):
    node_selector_terms: tuple[NodeTerm, ...]


class PreferredNodeTerm(Strict, frozen=True):
    weight: Weight
    preference: NodeTerm


class NodeAffinity(Strict, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredNodeTerm, ...] | None = None


class PodTerm(Strict, frozen=True):
    topology_key: Name
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class PreferredPodTerm(Strict, frozen=True):
    weight: Weight
    pod_affinity_term: PodTerm


class PodAffinity(Strict, frozen=True):
    required_during_scheduling_ignored_during_execution: tuple[PodTerm, ...] | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredPodTerm, ...] | None = None


class Affinity(Strict, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(Strict, frozen=True):
    max_skew: Positive
    topology_key: Name
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: LabelSelector | None = None
    min_domains: Positive | None = None
    node_affinity_policy: Inclusion | None = None
    node_taints_policy: Inclusion | None = None
    match_label_keys: tuple[str, ...] | None = None


class Toleration(Strict, frozen=True):
    key: str | None = None
    operator: Literal["", "Equal", "Exists"] | None = None
    value: str | None = None
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = None
    """How long a pod stays once it is tainted.  Scheduling asks only whether it is tolerated."""


# ---- pods ---------------------------------------------------------------------------------------------------------


class Port(Lenient, frozen=True):
    host_port: Annotated[int, Meta(ge=0, le=65_535)] | None = None
    protocol: Literal["", "TCP", "UDP", "SCTP"] | None = None
    host_ip: str | None = None


class Resources(Lenient, frozen=True):
    requests: Amounts | None = None
    limits: Amounts | None = None
    """Where a container requests nothing of a resource, it requests its limit."""
    claims: tuple[Any, ...] | None = None


class Container(Lenient, frozen=True):
    name: str = ""
    image: str | None = None
    ports: tuple[Port, ...] | None = None
    resources: Resources | None = None
    restart_policy: str | None = None


class Gate(Lenient, frozen=True):
    name: str


class PodSpec(Lenient, frozen=True):
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] | None = None
    volumes: tuple[dict[str, Any], ...] | None = None
    node_name: str | None = None
    node_selector: Labels | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[SpreadConstraint, ...] | None = None
    scheduler_name: str | None = None
    scheduling_gates: tuple[Gate, ...] | None = None
    priority: Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)] | None = None
    priority_class_name: str | None = None
    preemption_policy: Literal["PreemptLowerPriority", "Never"] | None = None
    overhead: Amounts | None = None
    resources: Resources | None = None
    resource_claims: tuple[Any, ...] | None = None


ELSEWHERE = frozenset(
    [
        "ephemeralContainers",
        "restartPolicy",
        "terminationGracePeriodSeconds",
        "activeDeadlineSeconds",
        "dnsPolicy",
        "serviceAccountName",
        "serviceAccount",
        "automountServiceAccountToken",
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "shareProcessNamespace",
        "securityContext",
        "imagePullSecrets",
        "hostname",
        "subdomain",
        "hostAliases",
        "dnsConfig",
        "readinessGates",
        "runtimeClassName",
        "enableServiceLinks",
        "setHostnameAsFQDN",
        "os",
        "hostUsers",
        "hostnameOverride",
    ]
)
"""The other fields of a pod's specification in Kubernetes 1.34: they have no meaning for where it goes."""


class Owner(Lenient, frozen=True):
    uid: str = ""
    controller: bool | None = None


class Metadata(Lenient, frozen=True):
    name: Name
    namespace: str = "default"
    uid: str = ""
    labels: Labels | None = None
    annotations: Labels | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: tuple[Owner, ...] | None = None


class ContainerStatus(Lenient, frozen=True):
    name: str = ""
    resources: Resources | None = None
    allocated_resources: Amounts | None = None


class Condition(Lenient, frozen=True):
    type: str
    status: str = ""
    reason: str | None = None


class PodStatus(Lenient, frozen=True):
    phase: str | None = None
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(Lenient, frozen=True):
    metadata: Metadata
    spec: PodSpec
    status: PodStatus = PodStatus()


# ---- what pods ask for --------------------------------------------------------------------------------------------


class Taint(Lenient, frozen=True):
    key: str
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: str | None = None


class NodeSpec(Lenient, frozen=True):
    unschedulable: bool | None = None
    taints: tuple[Taint, ...] | None = None


class Image(Lenient, frozen=True):
    names: tuple[str, ...] | None = None
    size_bytes: int | None = None


class NodeStatus(Lenient, frozen=True):
    allocatable: Amounts | None = None
    images: tuple[Image, ...] | None = None


class Node(Lenient, frozen=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(Lenient, frozen=True):
    metadata: Metadata


class PriorityClass(Lenient, frozen=True):
    metadata: Metadata
    value: int
    global_default: bool | None = None
    preemption_policy: Literal["PreemptLowerPriority", "Never"] | None = None


class BudgetSpec(Lenient, frozen=True):
    selector: LabelSelector | None = None


class BudgetStatus(Lenient, frozen=True):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, Any] | None = None


class DisruptionBudget(Lenient, frozen=True):
    metadata: Metadata
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


# ---- volumes ------------------------------------------------------------------------------------------------------


class VolumeAffinity(Strict, frozen=True):
    required: NodeSelector | None = None


class CsiSource(Lenient, frozen=True):
    driver: str
    volume_handle: str


class VolumeSpec(Lenient, frozen=True):
    node_affinity: VolumeAffinity | None = None
    csi: CsiSource | None = None


class PersistentVolume(Lenient, frozen=True):
    metadata: Metadata
    spec: VolumeSpec = VolumeSpec()


class ClaimSpec(Lenient, frozen=True):
    access_modes: tuple[str, ...] | None = None
    volume_name: str | None = None
    storage_class_name: str | None = None


class ClaimStatus(Lenient, frozen=True):
    phase: str | None = None


class Claim(Lenient, frozen=True):
    metadata: Metadata
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class TopologyRequirement(Strict, frozen=True):
    key: Name
    values: tuple[str, ...]


class TopologyTerm(Strict, frozen=True):
    match_label_expressions: tuple[TopologyRequirement, ...] | None = None


class StorageClass(Lenient, frozen=True):
    metadata: Metadata
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTerm, ...] | None = None


class AttachmentSource(Lenient, frozen=True):
    persistent_volume_name: str | None = None


class AttachmentSpec(Lenient, frozen=True):
    node_name: str
    source: AttachmentSource


class VolumeAttachment(Lenient, frozen=True):
    metadata: Metadata
    spec: AttachmentSpec


class DriverAllocatable(Lenient, frozen=True):
    count: Annotated[int, Meta(ge=0, lt=1 << 31)] | None = None


class CsiDriver(Lenient, frozen=True):
    name: str
    allocatable: DriverAllocatable | None = None


class CsiNodeSpec(Lenient, frozen=True):
    drivers: tuple[CsiDriver, ...] = ()


class CsiNode(Lenient, frozen=True):
    metadata: Metadata
    spec: CsiNodeSpec = CsiNodeSpec()


_KNOWN = frozenset(field.encode_name for field in msgspec.structs.fields(PodSpec)) | ELSEWHERE
_Kind = TypeVar("_Kind", bound=Struct)


def read(manifest: Mapping[str, Any], kind: type[_Kind]) -> _Kind:
    """An object of the API as a value."""
    try:
        return msgspec.convert(manifest, kind)
    except msgspec.ValidationError as error:
        raise UnreadableError(str(error).replace(" - at `$.", " at `")) from None


def read_pod(manifest: Mapping[str, Any]) -> Pod:
    """A pod, if there is nothing in it that is not known."""
    pod = read(manifest, Pod)
    if unknown := sorted(map(str, manifest["spec"].keys() - _KNOWN)):
        raise UnreadableError(f"spec.{unknown[0]} is not known to this scheduler")
    return pod
