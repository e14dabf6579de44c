"""Why a pod has no node, in Kubernetes' manner: ``0/50 nodes are available: 30 Insufficient cpu, 20 ...``.

The minimal core of "this pod must have a node" names the rules that together leave it none.  How many nodes each of
them forbids is asked of the rule alone: one copy of the pod for each node, which may be on that node or nowhere, and as
many as possible placed.  A node that two rules forbid is counted in both.  Rules about several pods are named without a
number: they do not hold for copies one by one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from mgmt import CoreMember, InfeasibleError, PolicyError, SolveTimeout, SourceText
from orchestrators.kubernetes.placement import TABLE, VARIABLE, Key, Placement, Placer, after
from orchestrators.kubernetes.rows import ClusterObjects

ASKED: Final = "the_pod_has_a_node"
_MUST: Final = SourceText(
    "the question", f"CREATE CONSTRAINT {ASKED} AS SELECT name FROM pod CHECK controllable__node IS NOT NULL;"
)
_AT_HOME: Final = """
CREATE CONSTRAINT each_at_its_node AS SELECT name FROM pod
CHECK controllable__node IS NULL OR name = '{prefix}' || controllable__node;
CREATE CONSTRAINT as_many_as_possible AS SELECT name FROM pod WHERE controllable__node IS NULL MINIMIZE count(*);
"""
WORDS: Final = {
    "node_predicates": "node(s) were not ready, cordoned or under pressure",
    "node_selector_matches": "node(s) didn't match Pod's node affinity/selector",
    "node_affinity_matches": "node(s) didn't match Pod's node affinity/selector",
    "node_rules": "node(s) didn't match Pod's node affinity/selector or volumes",
    "taints_are_tolerated": "node(s) had untolerated taint(s)",
    "host_ports_of_running_pods": "node(s) didn't have free ports for the requested pod ports",
    "capacity": "Insufficient cpu, memory, ephemeral-storage or pods",
    "other_resources": "Insufficient extended resources",
    "symmetry": "node(s) didn't satisfy existing pods anti-affinity rules",
    "pod_anti_affinity_to_running_pods": "node(s) didn't match pod anti-affinity rules",
    "nodes_have_the_topology": "node(s) didn't have the requested topology",
}
"""The pack's rules about one pod and one node, as Kubernetes calls what breaks them."""
LEAST_SECONDS: Final = 0.2


def explanations(
    placer: Placer, objects: ClusterObjects, placement: Placement, *, budget: float = 2.0, now: datetime
) -> Iterator[tuple[Key, str]]:
    """A message for each pod that was left out or refused, the same one for pods that are alike.

    What is not found in ``budget`` seconds is told without the reasons.
    """
    end = time.monotonic() + budget
    for key, reason in placement.refused.items():
        yield key, f"rota cannot judge this pod: {reason}"
    nodes = len(objects.nodes)
    there = after(objects, placement.bound)
    pods = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in there.pods}
    there = replace(there, pods=tuple(pod for pod in pods.values() if pod["spec"].get("nodeName")))
    known: dict[str, str] = {}
    for key in placement.left_out:
        shape = _shape(pods[key])
        if shape not in known:
            has_time = end - time.monotonic() > LEAST_SECONDS
            reasons = _reasons(placer, there, pods[key], end, now) if has_time else ""
            known[shape] = f"0/{nodes} nodes are available{': ' + reasons if reasons else ''}."
        preemption = placement.preemptions.get(key)
        if preemption is None:
            yield key, known[shape]
        else:
            others = ", ".join("/".join(victim) for victim in preemption.victims) or "others"
            yield key, f"{known[shape]} Preemption: {others} leave {preemption.node} for it."


def _shape(pod: Mapping[str, Any]) -> str:
    """Pods with equal ones are left out for the same reasons."""
    return repr((pod["metadata"]["namespace"], pod["metadata"].get("labels"), pod["spec"]))


def _reasons(
    placer: Placer, objects: ClusterObjects, pod: Mapping[str, Any], end: float, now: datetime
) -> str:
    """Of one pod, given where all others are."""
    placer.load(replace(objects, pods=(*objects.pods, pod)), now)
    try:
        placer.model.without_objectives().extended(_MUST).solve(end - time.monotonic(), now=now)
    except InfeasibleError as error:
        core = [member for member in error.core if member.constraint != ASKED]
    except SolveTimeout:
        return ""
    except PolicyError as error:
        return str(error)
    else:
        return "it gives way to pods of higher priority"
    counted = [member.constraint for member in core if member.constraint in WORDS]
    counts = _counts(placer, objects, pod, counted, end, now)
    words = [f"{counts.get(name, '')} {WORDS[name]}".lstrip() for name in counted]
    return ", ".join([*words, *(_named(member) for member in core if member.constraint not in WORDS)])


def _counts(
    placer: Placer,
    objects: ClusterObjects,
    pod: Mapping[str, Any],
    rules: Sequence[str],
    end: float,
    now: datetime,
) -> dict[str, int]:
    """How many nodes each of these rules forbids: a copy of the pod for each node, as many placed as it allows."""
    names = [str(node["metadata"]["name"]) for node in objects.nodes]
    metadata = pod["metadata"]
    copies = tuple({**pod, "metadata": {**metadata, "name": f"{metadata['name']}@{name}"}} for name in names)
    placer.load(replace(objects, pods=(*objects.pods, *copies)), now)
    prefix = f"{metadata['namespace']}/{metadata['name']}@".replace("'", "''")
    question = SourceText("the question", _AT_HOME.format(prefix=prefix))
    found: dict[str, int] = {}
    for rule in rules:
        left = end - time.monotonic()
        if left < LEAST_SECONDS:
            break
        alone = placer.model.revised(partial(_if_named, rule)).extended(question)
        try:
            placed = alone.solve(left, now=now).assignments[TABLE, VARIABLE]
        except PolicyError:
            continue
        found[rule] = sum(node is None for node in placed.values())
    return found


def _if_named(name: str, query: Any) -> Any:
    return query if query.name == name else None


def _named(member: CoreMember) -> str:
    return f"{member.reason} ({member.constraint})" if member.reason else f"the rule {member.constraint}"
