"""Why a pod has no node, in Kubernetes' manner: ``0/50 nodes are available: 30 Insufficient cpu, 20 ...``.

The minimal core of "this pod must have a node" names the rules that together leave it none.  How many nodes each of
them forbids is asked of the rule alone: one copy of the pod for each node, which may be on that node or nowhere, and as
many as possible placed.  Rules about several pods do not hold for copies one by one; they are named for the nodes that
are left over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from mgmt import CoreMember, InfeasibleError, PolicyError, SourceText
from orchestrators.kubernetes.placement import Key, Placement, Placer, after
from orchestrators.kubernetes.rows import ClusterObjects

ASKED: Final = "the_pod_has_a_node"
_MUST: Final = SourceText(
    "the question", f"CREATE CONSTRAINT {ASKED} AS SELECT name FROM pod CHECK controllable__node IS NOT NULL;"
)
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
    placed = tuple(pod for pod in pods.values() if pod["spec"].get("nodeName"))
    known: dict[str, str] = {}
    for key in placement.left_out:
        shape = _shape(pods[key])
        if shape not in known:
            left = end - time.monotonic()
            reasons = ""
            if left > LEAST_SECONDS:
                reasons = _reasons(placer, replace(there, pods=(*placed, pods[key])), left, now)
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


def _reasons(placer: Placer, objects: ClusterObjects, seconds: float, now: datetime) -> str:
    placer.load(objects, now)
    try:
        placer.model.extended(_MUST).solve(seconds, now=now)
    except InfeasibleError as error:
        return ", ".join(_sentence(member) for member in error.core if member.constraint != ASKED)
    except PolicyError as error:
        return str(error)
    return "it gives way to pods of higher priority"


_WORDS: Final = {
    "node_predicates": "node(s) were not ready, cordoned or under pressure",
    "node_selector_matches": "node(s) didn't match Pod's node affinity/selector",
    "node_affinity_matches": "node(s) didn't match Pod's node affinity/selector",
    "taints_are_tolerated": "node(s) had untolerated taint(s)",
    "host_ports": "node(s) didn't have free ports for the requested pod ports",
    "host_ports_of_running_pods": "node(s) didn't have free ports for the requested pod ports",
    "capacity": "Insufficient resources",
}


def _sentence(member: CoreMember) -> str:
    words = member.reason or _WORDS.get(member.constraint)
    return f"{words} ({member.constraint})" if words else member.constraint
