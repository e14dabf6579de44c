"""What a pod requests in all, as kube-scheduler adds it up.

Init containers run one after the other before the others, and sidecars (init containers that restart) run beside all
that come after them: so the sum over containers and sidecars, or the largest moment of starting if that is more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from orchestrators.kubernetes.rows.manifests import (
    Amounts,
    Container,
    ContainerStatus,
    Pod,
    PodStatus,
    Resources,
    UnreadableError,
)
from orchestrators.kubernetes.rows.quantities import LARGEST, amount

Requests = dict[str, int]
_NATIVE: Final = ("cpu", "memory", "ephemeral-storage", "hugepages-", "attachable-volumes-")


def requests(pod: Pod) -> Requests:
    """What is requested of each resource, zeros left out."""
    spec = pod.spec
    statuses = _statuses(pod.status)
    infeasible = _resize_is_infeasible(pod.status)
    total: Requests = {}
    for container in spec.containers:
        total = _sum(total, _of_container(container, statuses, infeasible))
    sidecars: Requests = {}
    starting: Requests = {}
    for container in spec.init_containers or ():
        own = _of_container(container, statuses, infeasible)
        if container.restart_policy == "Always":
            sidecars = own = _sum(sidecars, own)
        else:
            own = _sum(sidecars, own)
        starting = _most(starting, own)
    total = _most(_sum(total, sidecars), starting)
    if spec.resources is not None:
        for resource, value in _amounts(spec.resources.requests).items():
            if resource in ("cpu", "memory") or resource.startswith("hugepages-"):
                total[resource] = value
    total = _sum(total, _amounts(spec.overhead))
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
    resources = container.resources or Resources()
    asked = _amounts({**(resources.limits or {}), **(resources.requests or {})})
    status = statuses.get(container.name)
    if status is None or status.resources is None:
        return asked
    given = _most(_amounts(status.resources.requests), _amounts(status.allocated_resources))
    return given if infeasible else _most(asked, given)


def _statuses(status: PodStatus) -> dict[str, ContainerStatus]:
    """A container may be resized while it runs: what it has may be more than what it asks for."""
    return {
        each.name: each
        for each in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    }


def _resize_is_infeasible(status: PodStatus) -> bool:
    pending = (each for each in status.conditions or () if each.type == "PodResizePending")
    return any(each.reason == "Infeasible" for each in pending)


def _amounts(given: Amounts | None) -> Requests:
    return {resource: amount(resource, value) for resource, value in (given or {}).items()}


def _sum(*parts: Requests) -> Requests:
    return {resource: sum(part.get(resource, 0) for part in parts) for resource in _all(parts)}


def _most(*parts: Requests) -> Requests:
    return {resource: max(part.get(resource, 0) for part in parts) for resource in _all(parts)}


def _all(parts: Iterable[Requests]) -> dict[str, None]:
    return dict.fromkeys(resource for part in parts for resource in part)
