"""The filters of a Kubernetes scheduler in plain Python, from the API's documentation, for one pod and one node.

The twin of ``orchestrators.kubernetes.rows`` and the pack.  It reads raw manifests and knows no templates, no sets of
nodes and no SQL.  Manifests are taken to be well-formed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any

Json = Mapping[str, Any]
UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
ZONES = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


@dataclass(frozen=True)
class World:
    nodes: Mapping[str, Json]
    running: tuple[Json, ...]
    namespaces: Mapping[str, Mapping[str, str]]
    claims: Mapping[tuple[str, str], Json]
    volumes: Mapping[str, Json]
    classes: Mapping[str, Json]
    limits: Mapping[tuple[str, str], int]

    def on(self, node: str) -> Iterator[Json]:
        return (pod for pod in self.running if pod["spec"]["nodeName"] == node)


def failures(pod: Json, node: Json, world: World) -> set[str]:
    """The filters that keep the pod off the node."""
    checks = {
        "node selector": labels_match(pod["spec"].get("nodeSelector") or {}, labels(node)),
        "node affinity": node_affinity(pod, node),
        "taints": tolerated(pod, node),
        "ports": ports_free(pod, node, world),
        "resources": fits(pod, node, world),
        "affinity": near_enough(pod, node, world),
        "anti-affinity": far_enough(pod, node, world),
        "existing anti-affinity": welcome(pod, node, world),
        "spread": spread_out(pod, node, world),
        "volumes": volumes_reachable(pod, node, world) and volumes_attachable(pod, node, world),
    }
    return {name for name, passed in checks.items() if not passed}


def labels(item: Json) -> Mapping[str, str]:
    return item["metadata"].get("labels") or {}


def labels_match(wanted: Mapping[str, str], own: Mapping[str, str]) -> bool:
    return all(own.get(key) == value for key, value in wanted.items())


def meets(requirement: Json, own: Mapping[str, str]) -> bool:
    key, values = requirement["key"], requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return key in own and own[key] in values
        case "NotIn":
            return key not in own or own[key] not in values
        case "Exists":
            return key in own
        case "DoesNotExist":
            return key not in own
        case operator:
            try:
                value = int(own[key])
            except (KeyError, ValueError):
                return False
            return value > int(values[0]) if operator == "Gt" else value < int(values[0])


def selected(selector: Json | None, own: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    return labels_match(selector.get("matchLabels") or {}, own) and all(
        meets(each, own) for each in selector.get("matchExpressions") or ()
    )


def term_matches(term: Json, node: Json) -> bool:
    by_label, by_field = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not by_label and not by_field:
        return False
    name = {"metadata.name": node["metadata"]["name"]}
    return all(meets(each, labels(node)) for each in by_label) and all(meets(each, name) for each in by_field)


def any_term(selector: Json, node: Json) -> bool:
    return any(term_matches(term, node) for term in selector["nodeSelectorTerms"])


def affinity(pod: Json, kind: str) -> Any:
    found = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return found.get("requiredDuringSchedulingIgnoredDuringExecution")


def node_affinity(pod: Json, node: Json) -> bool:
    required = affinity(pod, "nodeAffinity")
    return required is None or any_term(required, node)


def tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def tolerated(pod: Json, node: Json) -> bool:
    taints = [
        *(node["spec"].get("taints") or ()),
        *([UNSCHEDULABLE] if node["spec"].get("unschedulable") else ()),
    ]
    return all(
        any(tolerates(each, taint) for each in pod["spec"].get("tolerations") or ())
        for taint in taints
        if taint["effect"] != "PreferNoSchedule"
    )


def sidecars(pod: Json) -> list[Json]:
    return [each for each in pod["spec"].get("initContainers") or () if each.get("restartPolicy") == "Always"]


def ports(pod: Json) -> list[tuple[int, str, str]]:
    return [
        (port["hostPort"], port.get("protocol") or "TCP", port.get("hostIP") or "0.0.0.0")
        for each in (*sidecars(pod), *pod["spec"]["containers"])
        for port in each.get("ports") or ()
        if port.get("hostPort")
    ]


def ports_free(pod: Json, node: Json, world: World) -> bool:
    taken = [each for other in world.on(node["metadata"]["name"]) for each in ports(other)]
    return not any(
        one[:2] == other[:2] and (one[2] == other[2] or "0.0.0.0" in (one[2], other[2]))
        for one in ports(pod)
        for other in taken
    )


UNITS: Mapping[str, int | Fraction] = {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "m": Fraction(1, 1000),
}


def number(resource: str, value: str) -> int:
    factor = Fraction(1000 if resource == "cpu" else 1)
    for suffix, unit in UNITS.items():
        if value.endswith(suffix):
            return ceil(Fraction(value.removesuffix(suffix)) * unit * factor)
    return ceil(Fraction(value) * factor)


def asked(container: Json) -> Counter[str]:
    requests = (container.get("resources") or {}).get("requests") or {}
    return Counter({resource: number(resource, value) for resource, value in requests.items()})


def request(pod: Json) -> Counter[str]:
    """What its containers and sidecars use together, or the largest moment of its start, and the overhead."""
    spec = pod["spec"]
    together: Counter[str] = Counter()
    for each in (*spec["containers"], *sidecars(pod)):
        together += asked(each)
    beside: Counter[str] = Counter()
    for each in spec.get("initContainers") or ():
        moment = beside + asked(each)
        together |= moment
        if each.get("restartPolicy") == "Always":
            beside = moment
    return together + Counter(
        {each: number(each, value) for each, value in (spec.get("overhead") or {}).items()}
    )


def fits(pod: Json, node: Json, world: World) -> bool:
    there = node["status"]["allocatable"]
    others = list(world.on(node["metadata"]["name"]))
    if len(others) + 1 > number("pods", there.get("pods", "0")):
        return False
    used: Counter[str] = Counter()
    for other in others:
        used += request(other)
    return all(
        amount <= number(each, there.get(each, "0")) - used[each]
        for each, amount in request(pod).items()
        if amount
    )


def meant(term: Json, owner: Json, other: Json, world: World) -> bool:
    """Whether a term of an affinity speaks of another pod."""
    namespaces, chosen = term.get("namespaces") or (), term.get("namespaceSelector")
    namespace = other["metadata"]["namespace"]
    if chosen is None and not namespaces:
        inside = namespace == owner["metadata"]["namespace"]
    else:
        inside = namespace in namespaces or selected(chosen, world.namespaces.get(namespace, {}))
    own = labels(owner)
    same = all(labels(other).get(key) == own[key] for key in term.get("matchLabelKeys") or () if key in own)
    differs = all(
        labels(other).get(key) != own[key] for key in term.get("mismatchLabelKeys") or () if key in own
    )
    return inside and same and differs and selected(term.get("labelSelector"), labels(other))


def near_enough(pod: Json, node: Json, world: World) -> bool:
    terms = affinity(pod, "podAffinity") or ()
    if not terms:
        return True
    if any(term["topologyKey"] not in labels(node) for term in terms):
        return False
    friends = [
        labels(world.nodes[other["spec"]["nodeName"]])
        for other in world.running
        if all(meant(term, pod, other, world) for term in terms)
    ]
    keys = [term["topologyKey"] for term in terms]
    if all(any(place.get(key) == labels(node)[key] for place in friends) for key in keys):
        return True
    nobody = not any(key in place for place in friends for key in keys)
    return nobody and all(meant(term, pod, pod, world) for term in terms)


def far_enough(pod: Json, node: Json, world: World) -> bool:
    return not any(
        meant(term, pod, other, world) and same_domain(term["topologyKey"], node, other, world)
        for term in affinity(pod, "podAntiAffinity") or ()
        for other in world.running
    )


def welcome(pod: Json, node: Json, world: World) -> bool:
    return not any(
        meant(term, other, pod, world) and same_domain(term["topologyKey"], node, other, world)
        for other in world.running
        for term in affinity(other, "podAntiAffinity") or ()
    )


def same_domain(key: str, node: Json, other: Json, world: World) -> bool:
    there = labels(world.nodes[other["spec"]["nodeName"]])
    return key in there and there[key] == labels(node).get(key)


def spread_out(pod: Json, node: Json, world: World) -> bool:
    hard = [
        each
        for each in pod["spec"].get("topologySpreadConstraints") or ()
        if each["whenUnsatisfiable"] == "DoNotSchedule"
    ]
    return all(spread_evenly(each, hard, pod, node, world) for each in hard)


def spread_evenly(spread: Json, hard: list[Json], pod: Json, node: Json, world: World) -> bool:
    key, own = spread["topologyKey"], labels(pod)
    if key not in labels(node):
        return False

    def counted(other: Json) -> bool:
        selector = spread.get("labelSelector")
        same = {each: own[each] for each in spread.get("matchLabelKeys") or () if each in own}
        if selector is None or not (selector.get("matchLabels") or selector.get("matchExpressions") or same):
            return False
        return selected(selector, labels(other)) and labels_match(same, labels(other))

    pods_in: Counter[str] = Counter()
    for name, candidate in world.nodes.items():
        if any(each["topologyKey"] not in labels(candidate) for each in hard):
            continue
        wanted = labels_match(pod["spec"].get("nodeSelector") or {}, labels(candidate)) and node_affinity(
            pod, candidate
        )
        if spread.get("nodeAffinityPolicy") != "Ignore" and not wanted:
            continue
        if spread.get("nodeTaintsPolicy") == "Honor" and not tolerated(pod, candidate):
            continue
        pods_in[labels(candidate)[key]] += sum(
            other["metadata"]["namespace"] == pod["metadata"]["namespace"]
            and not other["metadata"].get("deletionTimestamp")
            and counted(other)
            for other in world.on(name)
        )
    least = min(pods_in.values(), default=0) if len(pods_in) >= (spread.get("minDomains") or 1) else 0
    return bool(pods_in[labels(node)[key]] + counted(pod) - least <= spread["maxSkew"])


def claims(pod: Json, world: World) -> Iterator[Json]:
    for volume in pod["spec"].get("volumes") or ():
        source = volume.get("persistentVolumeClaim")
        if source:
            yield world.claims[pod["metadata"]["namespace"], source["claimName"]]


def volumes_reachable(pod: Json, node: Json, world: World) -> bool:
    for claim in claims(pod, world):
        volume = world.volumes.get(claim["spec"].get("volumeName") or "")
        if volume is None:
            topologies = world.classes[claim["spec"]["storageClassName"]].get("allowedTopologies") or ()
            if topologies and not any(
                all(labels(node).get(each["key"]) in each["values"] for each in term["matchLabelExpressions"])
                for term in topologies
            ):
                return False
            continue
        required = (volume["spec"].get("nodeAffinity") or {}).get("required")
        if required is not None and not any_term(required, node):
            return False
        for key, value in labels(volume).items():
            if (
                key in ZONES
                and any(zone in labels(node) for zone in ZONES)
                and labels(node).get(key) not in value.split("__")
            ):
                return False
    return True


def volumes_attachable(pod: Json, node: Json, world: World) -> bool:
    def attached(to: Json) -> set[tuple[str, str]]:
        found = set()
        for claim in claims(to, world):
            volume = world.volumes.get(claim["spec"].get("volumeName") or "")
            if volume is None:
                provisioner = world.classes[claim["spec"]["storageClassName"]]["provisioner"]
                found.add((provisioner, "new " + claim["metadata"]["name"]))
            elif "csi" in volume["spec"]:
                found.add((volume["spec"]["csi"]["driver"], volume["spec"]["csi"]["volumeHandle"]))
        return found

    there = {each for other in world.on(node["metadata"]["name"]) for each in attached(other)}
    wanted = attached(pod)
    return all(
        sum(each == driver for each, _ in there | wanted) <= limit
        for (name, driver), limit in world.limits.items()
        if name == node["metadata"]["name"] and any(each == driver for each, _ in wanted - there)
    )
