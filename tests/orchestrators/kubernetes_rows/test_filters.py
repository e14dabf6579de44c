"""Rows and pack against the twin: for random clusters the same nodes will do for each pod that needs a place.

Each pod is offered to each node alone, beside the pods that run.  All these cases are solved at once, side by side in
one state: the optimum places exactly those pods whose node will do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations
from typing import Any, NamedTuple

import pytest

import mgmt
from orchestrators.kubernetes.rows import ClusterObjects, rows_of
from tests.budget import budgeted
from tests.orchestrators.kubernetes_rows.filters import World, failures, near_enough
from tests.orchestrators.kubernetes_rows.random_clusters import cluster

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLUSTERS = 5
"""How many are solved at once."""
NAMES = {"name", "node", "template", "other", "node_set", "affinity", "id", "topology"}
Tables = dict[str, list[dict[str, Any]]]


class Case(NamedTuple):
    seed: int
    pod: str
    node: str


def cases(seed: int) -> Iterator[tuple[Case, Tables, set[str]]]:
    """The rows of each case, and what the twin says."""
    objects = cluster(seed)
    around = world(objects)
    for pod in objects.pods:
        if "nodeName" in pod["spec"]:
            continue
        rows = rows_of(replace(objects, pods=[*around.running, pod]), "rota", NOW)
        assert not rows.refused
        for name, node in around.nodes.items():
            case = Case(seed, pod["metadata"]["name"], name)
            yield case, alone(case, rows.tables), failures(pod, node, around)


def alone(case: Case, tables: Mapping[str, list[dict[str, Any]]]) -> Tables:
    """The rows of a case: the pod goes to its node or nowhere."""
    return apart("/".join(map(str, case)), tables, [case.node])


def apart(prefix: str, tables: Mapping[str, list[dict[str, Any]]], nodes: Iterable[str]) -> Tables:
    """The rows with names of their own, and one rule more: pods go to these nodes or nowhere."""
    templates = {pod["template"] for pod in tables["pod"]}
    rules = [{"template": each, "rule": "own", "node_set": "own", "inside": True} for each in templates]
    every = {
        **tables,
        "node_rule": [*tables["node_rule"], *rules],
        "node_set": [*tables["node_set"], *({"name": "own", "node": each} for each in nodes)],
    }
    return {
        table: [named(prefix, NAMES | ({"key"} if table == "node_label" else set()), row) for row in rows]
        for table, rows in every.items()
    }


def named(prefix: str, columns: set[str], row: dict[str, Any]) -> dict[str, Any]:
    return {
        column: f"{prefix}:{value}" if column in columns and value is not None else value
        for column, value in row.items()
    }


def world(objects: ClusterObjects) -> World:
    return World(
        {node["metadata"]["name"]: node for node in objects.nodes},
        tuple(pod for pod in objects.pods if "nodeName" in pod["spec"]),
        {each["metadata"]["name"]: each["metadata"]["labels"] for each in objects.namespaces},
        {(c["metadata"]["namespace"], c["metadata"]["name"]): c for c in objects.persistent_volume_claims},
        {each["metadata"]["name"]: each for each in objects.persistent_volumes},
        {each["metadata"]["name"]: each for each in objects.storage_classes},
        {
            (node["metadata"]["name"], driver["name"]): driver["allocatable"]["count"]
            for node in objects.csi_nodes
            for driver in node["spec"]["drivers"]
        },
    )


class Pack:
    def __init__(self) -> None:
        pack = mgmt.load_pack("kubernetes")
        self.database = mgmt.Database()
        self.database.load_schema(pack.schema)
        self.model = mgmt.Model.build(self.database, pack)

    def placed(self, every: Iterable[Tables]) -> dict[str, str]:
        """Where each pod is put that has a place."""
        together: Tables = {}
        for tables in every:
            for table, rows in tables.items():
                together.setdefault(table, []).extend(rows)
        self.database.replace_rows(together)
        solution = self.model.solve(budget=250)
        assert solution.objectives[0].name == "pods_left_out"
        assert solution.objectives[0].proven
        places = solution.assignments["pod", "controllable__node"]
        return {str(key[0]): str(node) for key, node in places.items() if node is not None}


@pytest.fixture(scope="module")
def pack() -> Pack:
    return Pack()


def disagreements(pack: Pack, seeds: Iterable[int], reasons: Counter[str]) -> list[str]:
    every = [each for seed in seeds for each in cases(seed)]
    placed = {name.partition(":")[0] for name in pack.placed(tables for _, tables, _ in every)}
    found = []
    for case, _, failed in every:
        reasons.update(failed or {"none"})
        if ("/".join(map(str, case)) in placed) != (not failed):
            found.append(f"{case}: the twin says {failed or 'yes'}")
    return found


@pytest.mark.parametrize("first", budgeted(range(0, 200, CLUSTERS), 1))
def test_the_same_nodes_will_do(pack: Pack, first: int) -> None:
    reasons: Counter[str] = Counter()
    assert disagreements(pack, range(first, first + CLUSTERS), reasons) == []
    assert len(reasons) > 5, reasons


def violations(pack: Pack, seeds: Iterable[int]) -> tuple[list[str], int]:
    """What the twin finds wrong with where all pods of some clusters end up, and how many have a place."""
    clusters = {seed: cluster(seed) for seed in seeds}
    every = [
        apart(str(seed), rows_of(each, "rota", NOW).tables, [node["metadata"]["name"] for node in each.nodes])
        for seed, each in clusters.items()
    ]
    placed = {tuple(name.split(":")): node.split(":")[1] for name, node in pack.placed(every).items()}
    found = []
    for seed, objects in clusters.items():
        around = world(objects)
        new = [
            with_place(pod, placed[str(seed), identity(pod)])
            for pod in objects.pods
            if (str(seed), identity(pod)) in placed
        ]
        for pod in new:
            others = tuple(each for each in new if each is not pod)
            failed = failures(
                pod, around.nodes[pod["spec"]["nodeName"]], replace(around, running=around.running + others)
            )
            found += [f"cluster {seed}: {identity(pod)} breaks {failed}"] if failed - {"affinity"} else []
        if not any(in_order(order, around) for order in permutations(new)):
            found.append(f"cluster {seed}: there is no order in which all affinities are met")
    return found, len(placed)


def in_order(pods: Iterable[Mapping[str, Any]], around: World) -> bool:
    """Whether each pod meets its affinities among those before it: the first of all may be anywhere."""
    for pod in pods:
        if not near_enough(pod, around.nodes[pod["spec"]["nodeName"]], around):
            return False
        around = replace(around, running=(*around.running, pod))
    return True


def identity(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def with_place(pod: Mapping[str, Any], node: str) -> Mapping[str, Any]:
    return {**pod, "spec": {**pod["spec"], "nodeName": node}}


@pytest.mark.parametrize("first", budgeted(range(1000, 1200, CLUSTERS), 1))
def test_where_all_pods_end_up_no_filter_is_broken(pack: Pack, first: int) -> None:
    """Each pod is looked at as if all others had been there before it; affinities are met in some order."""
    found, placed = violations(pack, range(first, first + CLUSTERS))
    assert found == []
    assert placed > CLUSTERS
