"""Hostile and unknown manifests: that pod is refused with a reason, the others are offered."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from orchestrators.kubernetes.rows import ClusterObjects, rows_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODE = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}}


def pod(name: str, spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    whole = {"schedulerName": "rota", "containers": [{"name": "c"}], **(spec or {})}
    return {"metadata": {"name": name, "namespace": "n"}, "spec": whole, **more}


def required(kind: str, *terms: Any) -> dict[str, Any]:
    if kind == "nodeAffinity":
        terms = ({"nodeSelectorTerms": list(terms)},)
        return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms[0]}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def where(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def near(**more: Any) -> dict[str, Any]:
    return required("podAffinity", {"topologyKey": "zone", "labelSelector": {}, **more})


def spread(**more: Any) -> dict[str, Any]:
    wanted = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **more}
    return {"topologySpreadConstraints": [wanted]}


def requesting(**amounts: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"requests": amounts}}]}


HOSTILE: list[tuple[dict[str, Any], str]] = [
    (required("nodeAffinity", where("x", "Near", "y")), "'Near'"),
    (required("nodeAffinity", where("x", "In")), "x In []"),
    (required("nodeAffinity", where("x", "Gt", "many")), "x Gt ['many']"),
    (required("nodeAffinity", where("x", "Gt", "9" * 30)), "x Gt"),
    (required("nodeAffinity", where("x", "Exists", "y")), "x Exists ['y']"),
    (required("nodeAffinity", where("x", "In", "no such label")), "no label has such a value"),
    (required("nodeAffinity"), "without terms"),
    (
        required("nodeAffinity", {"matchFields": [{"key": "spec.x", "operator": "In", "values": ["a"]}]}),
        "matchFields",
    ),
    (required("nodeAffinity", {"matchAnything": []}), "matchAnything"),
    (near(labelSelector={"matchExpressions": [{"key": "x", "operator": "Gt", "values": ["1"]}]}), "'Gt'"),
    (near(labelSelector={"matchExpressions": [{"key": "x", "operator": "In"}]}), "x In []"),
    (near(topologyKey=""), "topologyKey"),
    (near(matchEverything=True), "matchEverything"),
    (spread(maxSkew=0), "maxSkew"),
    (spread(maxSkew="1"), "maxSkew"),
    (spread(whenUnsatisfiable="Panic"), "Panic"),
    (spread(whenUnsatisfiable="ScheduleAnyway", minDomains=2), "minDomains"),
    ({"tolerations": [{"operator": "Like"}]}, "Like"),
    ({"gangOf": 7}, "spec.gangOf"),
    ({"resourceClaims": [{"name": "gpu"}]}, "resource claims"),
    ({"containers": "none"}, "containers"),
    ({"containers": [{"name": "c", "ports": [{"hostPort": 70000}]}]}, "hostPort"),
    ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}]}, "no claim gone"),
    ({"volumes": [{"name": "v", "iscsi": {}}]}, "iscsi"),
    ({"volumes": [{"name": "v", "persistentVolumeClaim": 3}]}, "no claim"),
    (requesting(cpu="1e400"), "1e400"),
    (requesting(cpu="-1"), "negative"),
    (requesting(memory="4Ei"), "more than any node has"),
    (requesting(memory=["1"]), "resources.requests"),
    ({"priority": 1 << 40}, "priority"),
]


@pytest.mark.parametrize(("spec", "reason"), HOSTILE, ids=[reason for _, reason in HOSTILE])
def test_a_hostile_pod_is_refused_and_the_others_are_offered(spec: dict[str, Any], reason: str) -> None:
    rows = rows_of(ClusterObjects(nodes=[NODE], pods=[pod("bad", spec), pod("good")]), "rota", NOW)
    assert [(each.namespace, each.name) for each in rows.refused] == [("n", "bad")]
    assert reason in rows.refused[0].reason
    assert "\n" not in rows.refused[0].reason
    assert [row["name"] for row in rows.tables["pod"]] == ["n/good"]


def test_a_pod_with_a_million_labels_is_refused() -> None:
    many = pod("bad")
    many["metadata"]["labels"] = {f"l{number}": "" for number in range(1_000_000)}
    rows = rows_of(ClusterObjects(nodes=[NODE], pods=[many, pod("good")]), "rota", NOW)
    assert [each.reason for each in rows.refused] == ["it has more than 1000 labels"]


def test_a_running_pod_that_is_hostile_still_holds_what_it_requests() -> None:
    spec = {**requesting(cpu="3"), **required("nodeAffinity", where("x", "Near", "y")), "nodeName": "a"}
    worse = {"containers": 7, "nodeName": "a"}
    pods = [pod("odd", spec), pod("worse", worse), pod("good")]
    rows = rows_of(ClusterObjects(nodes=[NODE], pods=pods), "rota", NOW)
    assert [(row["name"], row["cpu"]) for row in rows.tables["running_pod"]] == [
        ("n/odd", 3000),
        ("n/worse", 0),
    ]
    assert not rows.refused


def test_pods_of_others_finished_ones_gated_ones_and_those_being_deleted_need_no_place() -> None:
    pods = [
        pod("other", {"schedulerName": "default-scheduler"}),
        pod("done", {"nodeName": "a"}, status={"phase": "Succeeded"}),
        pod("gated", {"schedulingGates": [{"name": "wait"}]}),
        {
            **pod("going"),
            "metadata": {"name": "going", "namespace": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        },
    ]
    rows = rows_of(ClusterObjects(nodes=[NODE], pods=pods), "rota", NOW)
    assert rows.tables["pod"] == rows.tables["running_pod"] == []
    assert not rows.refused


def test_a_node_that_cannot_be_read_takes_nothing() -> None:
    broken = {"metadata": {"name": "b"}, "status": {"allocatable": {"cpu": "lots"}}}
    rows = rows_of(ClusterObjects(nodes=[NODE, broken, {"metadata": 7}], pods=[pod("p")]), "rota", NOW)
    assert [row["name"] for row in rows.tables["node"]] == ["a"]
    assert [name for name, _ in rows.unreadable_nodes] == ["b", "?"]
