"""From the objects of a cluster to the rows of the pack ``kubernetes``: a pure function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from orchestrators.kubernetes.rows.budgets import budget_rows
from orchestrators.kubernetes.rows.manifests import (
    Affinity,
    Metadata,
    Namespace,
    Pod,
    PriorityClass,
    UnreadableError,
    read,
)
from orchestrators.kubernetes.rows.nodes import COLUMNS, Nodes
from orchestrators.kubernetes.rows.pods import Known, Refused, sort_pods
from orchestrators.kubernetes.rows.quantities import LARGEST
from orchestrators.kubernetes.rows.templates import Template, Templates, Wishes, mentioned_keys
from orchestrators.kubernetes.rows.volumes import Needs, Volumes
from orchestrators.kubernetes.rows.wishes import Neighbours, check_nodes, template_rows

Manifest = Mapping[str, Any]
Row = dict[str, Any]
_AMOUNTS = {resource: column for resource, column in COLUMNS.items() if resource != "pods"}


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """Objects of the API, as they come: what ``json.loads`` makes of them."""

    nodes: Sequence[Manifest] = ()
    pods: Sequence[Manifest] = ()
    namespaces: Sequence[Manifest] = ()
    disruption_budgets: Sequence[Manifest] = ()
    priority_classes: Sequence[Manifest] = ()
    persistent_volumes: Sequence[Manifest] = ()
    persistent_volume_claims: Sequence[Manifest] = ()
    storage_classes: Sequence[Manifest] = ()
    csi_nodes: Sequence[Manifest] = ()
    volume_attachments: Sequence[Manifest] = ()


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows for ``Database.replace_rows``, and what is not in them."""

    tables: Mapping[str, list[Row]]
    refused: tuple[Refused, ...]
    """Pods of this scheduler that are not offered to the solver."""
    unreadable_nodes: tuple[tuple[str, str], ...] = ()
    """Nodes that take nothing, and why."""
    awaiting: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By pod (``namespace/name``) the claims that want ``volume.kubernetes.io/selected-node`` before it is bound."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A pod with its template."""

    known: Known
    template: Template
    priority: int


def rows_of(objects: ClusterObjects, scheduler_name: str, now: datetime, *, preempting: bool = False) -> Rows:
    """The pods that need a place from this scheduler, and all that decides where they may go.

    When ``preempting``, running pods of a lower priority than one that needs a place are offered, too.
    Pods are called ``namespace/name``.
    """
    nodes = Nodes(objects.nodes)
    pods = sort_pods(objects.pods, scheduler_name)
    volumes = Volumes(
        objects.persistent_volume_claims,
        objects.persistent_volumes,
        objects.storage_classes,
        objects.csi_nodes,
        objects.volume_attachments,
    )
    priorities = _Priorities(objects.priority_classes)
    running = [each for each in pods.running if each.pod.spec.node_name in nodes.number]
    offered = _offered(pods.pending, running, priorities) if preempting else []
    staying = _without(running, offered)
    in_use = {claim for each in running for claim in volumes.used(each.pod).exclusive}

    refused = list(pods.refused)
    mentioned = frozenset(key for each in (*pods.pending, *running) for key in mentioned_keys(each.pod))
    templates = Templates(mentioned)
    placed: list[_Placed] = []
    awaiting: dict[str, tuple[str, ...]] = {}
    for each in pods.pending:
        try:
            needs = volumes.needs(each.pod)
            if taken := next((claim for claim in needs.exclusive if claim in in_use), None):
                raise UnreadableError(f"claim {taken} is ReadWriteOncePod and used by another pod")
            wishes = _wishes(each, needs, nodes)
        except UnreadableError as error:
            refused.append(Refused(each.pod.metadata.namespace, each.pod.metadata.name, str(error)))
            continue
        in_use.update(needs.exclusive)
        if needs.awaiting:
            awaiting[each.name] = tuple(needs.awaiting)
        placed.append(_Placed(each, templates.of(each.name, each.pod, wishes), priorities.of(each.pod)))
    moving: list[_Placed] = []
    for each in offered:
        try:
            wishes = _wishes(each, volumes.needs(each.pod), nodes)
        except UnreadableError:
            staying.append(each)
        else:
            moving.append(_Placed(each, templates.of(each.name, each.pod, wishes), priorities.of(each.pod)))
    settled = [_Placed(each, templates.of(each.name, each.pod, None), 0) for each in staying]

    namespaces = {each.metadata.name: each.metadata.labels or {} for each in _readable(objects.namespaces)}
    tables = template_rows(Neighbours(list(templates.found.values()), namespaces), nodes)
    tables["node_resource"] = _resources(tables, nodes, volumes, staying)
    tables["pod"] = [_pod(each, now, None) for each in placed]
    tables["pod"] += [_pod(each, now, each.known.pod.spec.node_name) for each in moving]
    tables["running_pod"] = [_running_pod(each) for each in settled]
    tables |= budget_rows(objects.disruption_budgets, [each.known.pod for each in moving])
    tables |= nodes.rows()
    return Rows(tables, tuple(refused), tuple(nodes.unreadable), awaiting)


class _Priorities:
    """Of pods whose priority the API server has not filled in yet."""

    def __init__(self, classes: Iterable[Manifest]) -> None:
        self._values: dict[str, int] = {}
        self._default = 0
        for manifest in classes:
            try:
                each = read(manifest, PriorityClass)
            except UnreadableError:
                continue
            self._values[each.metadata.name] = each.value
            if each.global_default:
                self._default = each.value

    def of(self, pod: Pod) -> int:
        if pod.spec.priority is not None:
            return pod.spec.priority
        return self._values.get(pod.spec.priority_class_name or "", self._default)


def _offered(pending: Sequence[Known], running: Sequence[Known], priorities: _Priorities) -> list[Known]:
    preempting = [priorities.of(each.pod) for each in pending if each.pod.spec.preemption_policy != "Never"]
    if not preempting:
        return []
    highest = max(preempting)
    return [
        each
        for each in running
        if each.pod.metadata.deletion_timestamp is None and each.whole and priorities.of(each.pod) < highest
    ]


def _without(every: Sequence[Known], some: Sequence[Known]) -> list[Known]:
    names = {each.name for each in some}
    return [each for each in every if each.name not in names]


def _wishes(known: Known, needs: Needs, nodes: Nodes) -> Wishes:
    spec = known.pod.spec
    resources = {resource: value for resource, value in known.requests.items() if resource not in COLUMNS}
    attachments: dict[str, int] = {}
    for driver, _ in sorted(needs.attached):
        attachments[_volumes_of(driver)] = attachments.get(_volumes_of(driver), 0) + 1
    wishes = Wishes(
        spec.node_selector or {},
        spec.affinity or Affinity(),
        spec.tolerations or (),
        spec.topology_spread_constraints or (),
        dict(sorted(resources.items())),
        attachments,
        tuple(needs.reach),
        tuple(each.image or "" for each in (*(spec.init_containers or ()), *spec.containers)),
    )
    check_nodes(wishes, nodes)
    return wishes


def _volumes_of(driver: str) -> str:
    return f"volumes of {driver}"


def _resources(
    tables: Mapping[str, list[Row]], nodes: Nodes, volumes: Volumes, staying: Iterable[Known]
) -> list[Row]:
    """What running pods leave of the resources that are asked for."""
    asked = {row["resource"] for row in tables["template_resource"]}
    used: dict[tuple[str, str], int] = {}
    attached = {node: set(those) for node, those in volumes.attached.items()}
    for each in staying:
        node = each.pod.spec.node_name or ""
        for resource in asked & each.requests.keys():
            used[node, resource] = used.get((node, resource), 0) + each.requests[resource]
        attached.setdefault(node, set()).update(volumes.used(each.pod).attached)
    offered = [
        (machine.name, resource, machine.allocatable[resource] - used.get((machine.name, resource), 0))
        for machine in nodes.machines
        for resource in sorted(asked & machine.allocatable.keys())
    ]
    for (node, driver), limit in volumes.limits.items():
        if _volumes_of(driver) in asked and node in nodes.number:
            there = sum(each == driver for each, _ in attached.get(node, ()))
            offered.append((node, _volumes_of(driver), limit - there))
    return [{"node": node, "resource": resource, "spare": max(spare, 0)} for node, resource, spare in offered]


def _pod(placed: _Placed, now: datetime, node: str | None) -> Row:
    pod = placed.known.pod
    return {
        "name": placed.known.name,
        "template": placed.template.name,
        "priority": placed.priority,
        **_amounts(placed.known),
        "preempts": pod.spec.preemption_policy != "Never",
        "waited": _seconds_since(pod.metadata, now),
        "node": node,
    }


def _running_pod(placed: _Placed) -> Row:
    pod = placed.known.pod
    return {
        "name": placed.known.name,
        "node": pod.spec.node_name,
        "template": placed.template.name,
        **_amounts(placed.known),
        "terminating": pod.metadata.deletion_timestamp is not None,
    }


def _amounts(known: Known) -> Row:
    return {column: min(known.requests.get(resource, 0), LARGEST) for resource, column in _AMOUNTS.items()}


def _seconds_since(metadata: Metadata, now: datetime) -> int:
    try:
        created = datetime.fromisoformat(metadata.creation_timestamp or "")
    except ValueError:
        return 0
    return max(0, int((now - created).total_seconds())) if created.tzinfo is not None else 0


def _readable(manifests: Iterable[Manifest]) -> Iterable[Namespace]:
    for manifest in manifests:
        try:
            yield read(manifest, Namespace)
        except UnreadableError:
            continue
