"""What a pod requests in all, as kube-scheduler adds it up.

Init containers run one after the other before the others, and sidecars (init containers that restart) run beside all
that come after them: so the sum over containers and sidecars, or the largest moment of starting if that is more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrators.kubernetes.rows.manifests import (
    Amounts,
    Container,
    ContainerStatus,
    Pod,
    PodStatus,
    UnreadableError,
)
from orchestrators.kubernetes.rows.quantities import LARGEST, amount

Requests = dict[str, int]
_NATIVE: Final = ("cpu", "memory", "ephemeral-storage", "hugepages-", "attachable-volumes-")


def requests(pod: Pod) -> Requests:
    """What is requested of each resource, zeros left out."""
    spec = pod.spec
    statuses = _statuses(pod.status)
    infeasible = bool(statuses) and _resize_is_infeasible(pod.status)
    total: Requests = {}
    for container in spec.containers:
        _add(total, _of_container(container, statuses, infeasible))
    sidecars: Requests = {}
    starting: Requests = {}
    for container in spec.init_containers or ():
        moment = _of_container(container, statuses, infeasible)
        _add(moment, sidecars)
        if container.restart_policy == "Always":
            sidecars = moment
        _raise(starting, moment)
    _add(total, sidecars)
    _raise(total, starting)
    if spec.resources is not None:
        for resource, value in _amounts(spec.resources.requests).items():
            if resource in ("cpu", "memory") or resource.startswith("hugepages-"):
                total[resource] = value
    _add(total, _amounts(spec.overhead))
    return {resource: value for resource, value in total.items() if value}


def requests_to_place(pod: Pod) -> Requests:
    """The same for a pod that needs a place: what cannot be on any node is an error."""
    found = requests(pod)
    for resource, value in found.items():
        if "/" not in resource and not resource.startswith(_NATIVE):
            raise UnreadableError(f"the resource {resource!r} is not known")
        if value > LARGEST:
            raise UnreadableError(f"it requests {value:.3g} of {resource}, which is more than any node has")
    return found


def _of_container(
    container: Container, statuses: Mapping[str, ContainerStatus], infeasible: bool
) -> Requests:
    resources = container.resources
    asked: Requests = {}
    if resources is not None:
        asked = _amounts(resources.limits) | _amounts(resources.requests)
    status = statuses.get(container.name)
    if status is None or status.resources is None:
        return asked
    given = _amounts(status.resources.requests)
    _raise(given, _amounts(status.allocated_resources))
    if not infeasible:
        _raise(given, asked)
    return given


def _statuses(status: PodStatus) -> dict[str, ContainerStatus]:
    """A container may be resized while it runs: what it has may be more than what it asks for."""
    every = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    return {each.name: each for each in every if each.resources is not None}


def _resize_is_infeasible(status: PodStatus) -> bool:
    pending = (each for each in status.conditions or () if each.type == "PodResizePending")
    return any(each.reason == "Infeasible" for each in pending)


def _amounts(given: Amounts | None) -> Requests:
    return {resource: amount(resource, value) for resource, value in given.items()} if given else {}


def _add(to: Requests, more: Requests) -> None:
    for resource, value in more.items():
        to[resource] = to.get(resource, 0) + value


def _raise(to: Requests, at_least: Requests) -> None:
    for resource, value in at_least.items():
        to[resource] = max(to.get(resource, 0), value)
