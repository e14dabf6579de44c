"""Which pods need a place, which run, and which are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrators.kubernetes.rows.manifests import (
    Affinity,
    NodeAffinity,
    Pod,
    PodAffinity,
    UnreadableError,
    read,
    read_pod,
)
from orchestrators.kubernetes.rows.requests import Requests, requests, requests_to_place
from orchestrators.kubernetes.rows.selectors import check_selector

_MOST_LABELS = 1000
_RUNNING = (
    "containers",
    "initContainers",
    "overhead",
    "resources",
    "nodeName",
    "priority",
    "priorityClassName",
)


@dataclass(frozen=True, slots=True)
class Refused:
    """A pod that is not offered to the solver, and why."""

    namespace: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Known:
    """A pod that was read, with what it requests."""

    pod: Pod
    requests: Requests
    whole: bool = True
    """Whether everything that it says was understood."""

    name: str = field(init=False)
    """With its namespace."""

    def __post_init__(self) -> None:
        metadata = self.pod.metadata
        object.__setattr__(self, "name", f"{metadata.namespace}/{metadata.name}")


@dataclass(slots=True)
class Pods:
    pending: list[Known] = field(default_factory=list)
    running: list[Known] = field(default_factory=list)
    gated: list[Known] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


def sort_pods(manifests: Iterable[Mapping[str, Any]], scheduler_name: str) -> Pods:
    """The pods that hold something or need a place from this scheduler, by name."""
    pods = Pods()
    for manifest in manifests:
        spec, status = _part(manifest, "spec"), _part(manifest, "status")
        if status.get("phase") in ("Succeeded", "Failed"):
            continue
        if spec.get("nodeName"):
            pods.running.append(_running(manifest))
        elif spec.get("schedulerName") == scheduler_name and not _part(manifest, "metadata").get(
            "deletionTimestamp"
        ):
            try:
                known = _pending(manifest)
            except UnreadableError as error:
                pods.refused.append(Refused(*_identity(manifest), str(error)))
            else:
                (pods.gated if known.pod.spec.scheduling_gates else pods.pending).append(known)
    for each in (pods.pending, pods.running, pods.gated):
        each.sort(key=lambda known: known.name)
    return pods


def _pending(manifest: Mapping[str, Any]) -> Known:
    pod = read_pod(manifest)
    if len(pod.metadata.labels or ()) > _MOST_LABELS:
        raise UnreadableError(f"it has more than {_MOST_LABELS} labels")
    if pod.spec.resource_claims:
        raise UnreadableError(
            "resource claims (dynamic resource allocation) are not covered by this scheduler"
        )
    _check_selectors(pod)
    return Known(pod, requests_to_place(pod))


def _check_selectors(pod: Pod) -> None:
    for spread in pod.spec.topology_spread_constraints or ():
        check_selector(spread.label_selector)
        if spread.min_domains is not None and spread.when_unsatisfiable != "DoNotSchedule":
            raise UnreadableError("minDomains goes with whenUnsatisfiable: DoNotSchedule only")
    affinity = pod.spec.affinity or Affinity()
    for both in (affinity.pod_affinity or PodAffinity(), affinity.pod_anti_affinity or PodAffinity()):
        required = both.required_during_scheduling_ignored_during_execution or ()
        preferred = both.preferred_during_scheduling_ignored_during_execution or ()
        for term in (*required, *(each.pod_affinity_term for each in preferred)):
            check_selector(term.label_selector)
            check_selector(term.namespace_selector)
    nodes = (affinity.node_affinity or NodeAffinity()).required_during_scheduling_ignored_during_execution
    if nodes is not None and not nodes.node_selector_terms:
        raise UnreadableError("a required node affinity without terms")


def _running(manifest: Mapping[str, Any]) -> Known:
    """A pod on a node.  Whatever else it says, it has its place there: what cannot be read is left out."""
    spec = _part(manifest, "spec")
    less = {**manifest, "spec": {key: spec[key] for key in _RUNNING if key in spec}}
    for each in (manifest, less):
        try:
            pod = read(each, Pod)
            _check_selectors(pod)
            return Known(pod, requests(pod), whole=each is manifest)
        except UnreadableError:
            continue
    namespace, name = _identity(manifest)
    least = {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"containers": [], "nodeName": str(spec["nodeName"])},
    }
    return Known(read(least, Pod), {}, whole=False)


def _part(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = manifest.get(name)
    return part if isinstance(part, Mapping) else {}


def _identity(manifest: Mapping[str, Any]) -> tuple[str, str]:
    metadata = _part(manifest, "metadata")
    return str(metadata.get("namespace") or "default"), str(metadata.get("name") or "?")
