"""Whether pods are where they may be: a program of its own, which reads nothing but objects of the API."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from string import ascii_letters
from typing import Any

Json = Mapping[str, Any]
_UNITS = {
    "m": Decimal("0.001"),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "": Decimal(1),
}


def amount(text: str) -> Decimal:
    number = text.rstrip(ascii_letters)
    unit = text[len(number) :]
    return Decimal(number) * _UNITS[unit]


def violations(nodes: Sequence[Json], pods: Sequence[Json]) -> list[str]:
    """Every broken rule, in words."""
    bound = [pod for pod in pods if pod["spec"].get("nodeName")]
    by_name = {node["metadata"]["name"]: node for node in nodes}
    found = [
        f"{_name(pod)} is on {pod['spec']['nodeName']}, which there is not"
        for pod in bound
        if pod["spec"]["nodeName"] not in by_name
    ]
    bound = [pod for pod in bound if pod["spec"]["nodeName"] in by_name]
    found += _overfull(by_name, bound)
    found += _wrong_nodes(by_name, bound)
    found += _too_close(by_name, bound)
    found += _uneven(by_name, bound)
    return found


def fullest_above_mean(nodes: Sequence[Json], pods: Sequence[Json]) -> float:
    """By how much the node with most of its cpu requested is above the mean, as a share of the mean."""
    share: dict[str, Decimal] = {node["metadata"]["name"]: Decimal(0) for node in nodes}
    total = {node["metadata"]["name"]: amount(node["status"]["allocatable"]["cpu"]) for node in nodes}
    for pod in pods:
        if (name := pod["spec"].get("nodeName")) in share:
            share[name] += requested(pod, "cpu") / total[name]
    mean = sum(share.values(), Decimal(0)) / len(share)
    return float(max(share.values()) / mean - 1) if mean else 0.0


def requested(pod: Json, resource: str) -> Decimal:
    return sum(
        (
            amount(each.get("resources", {}).get("requests", {}).get(resource, "0"))
            for each in pod["spec"]["containers"]
        ),
        Decimal(0),
    )


def _overfull(nodes: Mapping[str, Json], pods: Sequence[Json]) -> Iterator[str]:
    for resource in ("cpu", "memory"):
        used: dict[str, Decimal] = defaultdict(Decimal)
        for pod in pods:
            used[pod["spec"]["nodeName"]] += requested(pod, resource)
        for name, sum_ in used.items():
            if sum_ > amount(nodes[name]["status"]["allocatable"][resource]):
                yield f"{name} has {sum_} {resource} requested, more than it has"
    for name, number in Counter(pod["spec"]["nodeName"] for pod in pods).items():
        if number > int(nodes[name]["status"]["allocatable"]["pods"]):
            yield f"{name} has {number} pods"


def _wrong_nodes(nodes: Mapping[str, Json], pods: Sequence[Json]) -> Iterator[str]:
    for pod in pods:
        node = nodes[pod["spec"]["nodeName"]]
        labels = node["metadata"].get("labels") or {}
        if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
            yield f"{_name(pod)} is on a node that its selector does not match"
        for taint in node["spec"].get("taints") or ():
            if taint["effect"] != "PreferNoSchedule" and not any(
                _tolerates(each, taint) for each in pod["spec"].get("tolerations") or ()
            ):
                yield f"{_name(pod)} is on {node['metadata']['name']} with taint {taint['key']}"


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return bool(
        toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", "")
    )


def _too_close(nodes: Mapping[str, Json], pods: Sequence[Json]) -> Iterator[str]:
    for pod in pods:
        affinity = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            here = _domain(nodes, pod, term["topologyKey"])
            for other in pods:
                if (
                    other is not pod
                    and here is not None
                    and _domain(nodes, other, term["topologyKey"]) == here
                    and _selected(other, term["labelSelector"])
                ):
                    yield f"{_name(pod)} shares {here} with {_name(other)}"


def _uneven(nodes: Mapping[str, Json], pods: Sequence[Json]) -> Iterator[str]:
    counted: dict[tuple[str, str, int], Counter[str]] = defaultdict(Counter)
    for pod in pods:
        for rule in pod["spec"].get("topologySpreadConstraints") or ():
            if rule["whenUnsatisfiable"] == "DoNotSchedule":
                key = rule["topologyKey"], str(rule["labelSelector"]), rule["maxSkew"]
                domain = _domain(nodes, pod, rule["topologyKey"])
                counted[key][str(domain)] += 1
    for (topology, _, skew), numbers in counted.items():
        domains = {node["metadata"].get("labels", {}).get(topology) for node in nodes.values()} - {None}
        least = min(numbers.get(domain, 0) for domain in domains)
        if max(numbers.values()) - least > skew:
            yield f"{topology} is uneven: {dict(numbers)}"


def _domain(nodes: Mapping[str, Json], pod: Json, topology: str) -> str | None:
    labels: Mapping[str, str] = nodes[pod["spec"]["nodeName"]]["metadata"].get("labels") or {}
    return labels.get(topology)


def _selected(pod: Json, selector: Json) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())


def _name(pod: Json) -> str:
    return str(pod["metadata"]["name"])
