"""Clusters and pods for both schedulers, as the API has them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.orchestrators.kubernetes.control_plane import node, pod

HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
GANGS: Final = Path(__file__).parents[2] / "examples/kubernetes"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """``first``: pods that have a node before; ``priorities``: classes by name; ``rules``: SQL for rota, a folder."""

    nodes: tuple[Json, ...]
    pods: tuple[Json, ...]
    first: tuple[Json, ...] = ()
    priorities: Mapping[str, int] = field(default_factory=dict)
    rules: Path | None = None


def many(seed: int, pods: int = 400, nodes: int = 50) -> Workload:
    """Pods of mixed sizes on equal nodes with room for all."""
    draw = random.Random(seed)
    return Workload(
        tuple(node(f"n{i:04}", "16", "64Gi", zone="abc"[i % 3]) for i in range(nodes)),
        tuple(_mixed(draw, f"p{i:04}") for i in range(pods)),
    )


def _mixed(draw: random.Random, name: str) -> Json:
    return pod(
        name, f"{draw.choice((100, 250, 500, 1000))}m", f"{draw.choice((128, 512, 1024, 2048))}Mi", app="many"
    )


def large(seed: int) -> Workload:
    """As many nodes as pods."""
    return many(seed, 1000, 1000)


def tight(seed: int, nodes: int = 20) -> Workload:
    """95 % full when all are placed: small pods are older than large ones, so who places them evenly is stuck."""
    draw = random.Random(seed)
    cuts = [3000] + [1000] * 4 + [200] * 3  # of a node of 8 cpu: 7600 m
    sizes = cuts * nodes
    small_first = sorted(sizes, key=lambda size: (size, draw.random()))
    return Workload(
        tuple(node(f"n{i:04}", "8", "64Gi") for i in range(nodes)),
        tuple(pod(f"p{i:04}", f"{size}m", "64Mi", app="tight") for i, size in enumerate(small_first)),
    )


def apart(seed: int, groups: int = 20, size: int = 20, nodes: int = 50) -> Workload:
    """Groups of pods of which no two may share a node."""

    def rule(group: str) -> Json:
        term = {"labelSelector": {"matchLabels": {"app": group}}, "topologyKey": HOST}
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    base = many(seed, 0, nodes)
    names = [f"g{i:02}" for i in range(groups)]
    return Workload(
        base.nodes,
        tuple(
            pod(f"{name}-{i:02}", "200m", "256Mi", app=name, affinity=rule(name))
            for name in names
            for i in range(size)
        ),
    )


def zones(seed: int, pods: int = 300, nodes: int = 48) -> Workload:
    """Spread evenly over three zones, of which one is lost."""
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    left = tuple(each for each in many(seed, 0, nodes).nodes if each["metadata"]["labels"][ZONE] != "c")
    return Workload(
        left,
        tuple(
            pod(f"web-{i:03}", "200m", "256Mi", app="web", topologySpreadConstraints=[spread])
            for i in range(pods)
        ),
    )


def preemption(seed: int, nodes: int = 20) -> Workload:
    """Nodes full of the lowest of three bands, for which pods of the other two come."""
    bands = {"low": 1, "middle": 2, "high": 3}
    quick: Json = {"terminationGracePeriodSeconds": 0}  # there is no kubelet that would end them
    return Workload(
        tuple(node(f"n{i:04}", "4", "16Gi") for i in range(nodes)),
        tuple(
            pod(f"{band}-{i:03}", "1", "64Mi", priorityClassName=band, **quick)
            for band in ("middle", "high")
            for i in range(nodes)
        ),
        tuple(
            pod(f"low-{i:03}", "1", "64Mi", priorityClassName="low", nodeName=f"n{i // 4:04}", **quick)
            for i in range(4 * nodes)
        ),
        bands,
    )


def gangs(seed: int, nodes: int = 20) -> Workload:
    """Gangs of eight, of which not all find room: kube-scheduler knows no gangs, and leaves some in pieces."""
    found = []
    for number in range(nodes):
        for i in range(8):
            each = pod(f"g{number:02}-{i}", "1", "64Mi")
            each["metadata"]["labels"] |= {"rota/gang": f"g{number}", "rota/gang-size": "8"}
            found.append(each)
    random.Random(seed).shuffle(found)
    return Workload(tuple(node(f"n{i:04}", "7", "16Gi") for i in range(nodes)), tuple(found), rules=GANGS)


WORKLOADS: Final[Mapping[str, Callable[[int], Workload]]] = {
    "many": many,
    "large": large,
    "tight": tight,
    "apart": apart,
    "zones": zones,
    "preemption": preemption,
    "gangs": gangs,
}
