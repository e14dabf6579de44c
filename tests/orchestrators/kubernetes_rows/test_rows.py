"""What becomes of objects in the tables: one test for each thing that the filters' twin does not see."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from orchestrators.kubernetes.rows import ClusterObjects, Rows, rows_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOST = "kubernetes.io/hostname"


def node(name: str, taints: list[dict[str, str]] | None = None, **more: Any) -> dict[str, Any]:
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}, **more}
    return {
        "metadata": {"name": name, "labels": {HOST: name}},
        "spec": {"taints": taints or []},
        "status": status,
    }


def pod(
    name: str, where: str | None = None, labels: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "n", "uid": f"uid-{name}", "labels": labels or {}}
    base = {"schedulerName": "rota", "containers": [{"name": "c", "image": "app"}]}
    return {"metadata": metadata, "spec": {**base, **({"nodeName": where} if where else {}), **spec}}


def rows(*pods: dict[str, Any], preempting: bool = False, **objects: Any) -> Rows:
    objects = {"nodes": [node("a"), node("b"), node("c")], **objects}
    return rows_of(ClusterObjects(pods=pods, **objects), "rota", NOW, preempting=preempting)


def points(found: Rows, reason: str) -> dict[str, int]:
    """What each node is worth to the one template, compared with the worst one."""
    sets: dict[str, set[str]] = {}
    for row in found.tables["node_set"]:
        sets.setdefault(row["name"], set()).add(row["node"])
    worth = dict.fromkeys(sorted(row["name"] for row in found.tables["node"]), 0)
    for row in found.tables["node_preference"]:
        assert row["reason"] == reason
        for name in sets.get(row["node_set"], ()):
            worth[name] += row["points"]
    return {name: value - min(worth.values()) for name, value in worth.items()}


def test_equal_pods_are_one_template_whatever_tells_them_apart() -> None:
    ordinals = [{"app": "x", "apps.kubernetes.io/pod-index": str(number)} for number in range(3)]
    found = rows(*(pod(f"p{number}", labels=own) for number, own in enumerate(ordinals)))
    assert {row["template"] for row in found.tables["pod"]} == {"n/p0"}
    selector = {"matchLabels": {"apps.kubernetes.io/pod-index": "0"}}
    term = {"topologyKey": HOST, "labelSelector": selector}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    found = rows(*(pod(f"p{number}", labels=own, affinity=affinity) for number, own in enumerate(ordinals)))
    assert len({row["template"] for row in found.tables["pod"]}) == 3


def test_preferred_nodes_share_two_hundred_points_by_weight() -> None:
    def preferring(weight: int, *names: str) -> dict[str, Any]:
        fields = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in names]
        return {"weight": weight, "preference": {"matchFields": fields}}

    preferred = [preferring(75, "a"), preferring(25, "a", "b")]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    assert points(rows(pod("p", affinity=affinity)), "node affinity") == {"a": 0, "b": 150, "c": 200}


def test_the_node_with_most_taints_to_avoid_is_worth_three_hundred_points_less() -> None:
    soft = [{"key": key, "effect": "PreferNoSchedule"} for key in ("x", "y")]
    nodes = [node("a", soft), node("b", soft[:1]), node("c")]
    assert points(rows(pod("p"), nodes=nodes), "taint") == {"a": 0, "b": 150, "c": 300}
    tolerating = pod("p", tolerations=[{"key": "x", "operator": "Exists"}])
    assert points(rows(tolerating, nodes=nodes), "taint") == {"a": 0, "b": 300, "c": 300}


def test_nodes_that_have_a_large_image_are_worth_up_to_a_hundred_points() -> None:
    nodes = [node("a", images=[{"names": ["app:latest"], "sizeBytes": 3 << 30}]), node("b"), node("c")]
    assert points(rows(pod("p"), nodes=nodes), "image") == {"a": 100, "b": 0, "c": 0}
    small = [node("a", images=[{"names": ["app:latest"], "sizeBytes": 60 << 20}]), node("b"), node("c")]
    assert points(rows(pod("p"), nodes=small), "image") == {"a": 0, "b": 0, "c": 0}


def test_preferred_affinities_mean_pods_of_either_side() -> None:
    term = {
        "weight": 50,
        "podAffinityTerm": {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "db"}}},
    }
    near = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    away = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    found = rows(pod("p", affinity=near), pod("r", "a", {"app": "db"}), pod("s", "b", affinity=away))
    assert [(row["template"], row["points"]) for row in found.tables["preferred_affinity"]] == [("n/p", 100)]
    found = rows(pod("p", None, {"app": "db"}), pod("s", "b", affinity=away))
    assert [(row["template"], row["points"]) for row in found.tables["preferred_affinity"]] == [("n/s", -100)]
    assert [row["template"] for row in found.tables["preferred_affinity_to"]] == ["n/p"]


def test_spreading_anyway_is_only_preferred() -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": HOST,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    found = rows(pod("p", None, {"app": "x"}, topologySpreadConstraints=[spread]))
    assert found.tables["topology_spread"] == []
    assert [row["points"] for row in found.tables["preferred_affinity"]] == [-20]


def test_priorities_come_from_the_pod_or_its_class_or_the_default() -> None:
    classes = [
        {"metadata": {"name": "high"}, "value": 7},
        {"metadata": {"name": "any"}, "value": 3, "globalDefault": True},
    ]
    found = rows(
        pod("p"), pod("q", priorityClassName="high"), pod("r", priority=-1), priority_classes=classes
    )
    assert {row["name"]: row["priority"] for row in found.tables["pod"]} == {"n/p": 3, "n/q": 7, "n/r": -1}


def test_how_long_a_pod_has_waited() -> None:
    waiting = pod("p")
    waiting["metadata"]["creationTimestamp"] = "2025-12-31T23:59:00Z"
    assert [row["waited"] for row in rows(waiting).tables["pod"]] == [60]


def test_pods_of_lower_priority_are_offered_when_preempting() -> None:
    going = pod("going", "a")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    pods = [pod("new", priority=5), pod("low", "a", priority=1), pod("equal", "b", priority=5), going]
    assert [row["name"] for row in rows(*pods).tables["pod"]] == ["n/new"]
    found = rows(*pods, preempting=True)
    assert [(row["name"], row["node"]) for row in found.tables["pod"]] == [("n/new", None), ("n/low", "a")]
    assert [(row["name"], row["terminating"]) for row in found.tables["running_pod"]] == [
        ("n/equal", False),
        ("n/going", True),
    ]
    polite = [pod("new", priority=5, preemptionPolicy="Never"), pod("low", "a", priority=1)]
    assert [row["name"] for row in rows(*polite, preempting=True).tables["pod"]] == ["n/new"]


def test_budgets_cover_the_pods_that_are_offered() -> None:
    budget = {
        "metadata": {"name": "b", "namespace": "n"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 1, "disruptedPods": {"gone": "2026-01-01T00:00:00Z"}},
    }
    elsewhere = {**budget, "metadata": {"name": "b", "namespace": "other"}}
    pods = [pod("new", priority=5), *(pod(name, "a", {"app": "x"}) for name in ("x", "gone")), pod("y", "a")]
    found = rows(*pods, preempting=True, disruption_budgets=[budget, elsewhere])
    assert found.tables["disruption_budget"] == [{"name": "n/b", "allowed": 1}]
    assert found.tables["budget_pod"] == [{"budget": "n/b", "pod": "n/x"}]


def claim(name: str, volume: str | None = None, **spec: Any) -> dict[str, Any]:
    bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}} if volume else {}
    return {"metadata": {"name": name, "namespace": "n", **bound}, "spec": {"volumeName": volume, **spec}}


def using(*claims: str) -> list[dict[str, Any]]:
    return [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]


LATE = {"metadata": {"name": "late"}, "provisioner": "d", "volumeBindingMode": "WaitForFirstConsumer"}


def test_claims_that_wait_for_a_node_are_named() -> None:
    found = rows(
        pod("p", volumes=using("one")),
        persistent_volume_claims=[claim("one", storageClassName="late")],
        storage_classes=[LATE],
    )
    assert found.awaiting == {"n/p": ("one",)}
    assert [row["resource"] for row in found.tables["template_resource"]] == ["volumes of d"]


def test_claims_that_cannot_be_had_are_reasons() -> None:
    fixed = {
        "metadata": {"name": "fixed"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": LATE["volumeBindingMode"],
    }
    now = {"metadata": {"name": "now"}, "provisioner": "d", "volumeBindingMode": "Immediate"}
    lost = {**claim("lost", storageClassName="late"), "status": {"phase": "Lost"}}
    claims = [
        claim("unbound", storageClassName="now"),
        claim("local", storageClassName="fixed"),
        claim("classless"),
        claim("gone", "no-such-volume"),
        lost,
    ]
    pods = [pod(each["metadata"]["name"], volumes=using(each["metadata"]["name"])) for each in claims]
    found = rows(*pods, persistent_volume_claims=claims, storage_classes=[LATE, fixed, now])
    assert {each.name: each.reason for each in found.refused} == {
        "unbound": "claim unbound has no volume yet",
        "local": "claim local waits for one of the volumes that exist to be chosen, which is not covered",
        "classless": "claim classless has no volume, and its class '' is not known",
        "gone": "claim gone: there is no volume no-such-volume",
        "lost": "claim lost has lost its volume",
    }


def test_a_claim_for_one_pod_alone_is_refused_to_a_second() -> None:
    alone = [claim("one", storageClassName="late", accessModes=["ReadWriteOncePod"])]
    pods = [pod("p", volumes=using("one")), pod("q", volumes=using("one"))]
    found = rows(*pods, persistent_volume_claims=alone, storage_classes=[LATE])
    assert [row["name"] for row in found.tables["pod"]] == ["n/p"]
    assert [(each.name, each.reason) for each in found.refused] == [
        ("q", "claim n/one is ReadWriteOncePod and used by another pod")
    ]


def test_an_ephemeral_volume_is_a_claim_of_the_pod() -> None:
    own = claim("p-data", storageClassName="late")
    wanting = pod("p", volumes=[{"name": "data", "ephemeral": {"volumeClaimTemplate": {}}}])
    assert rows(wanting, persistent_volume_claims=[own], storage_classes=[LATE]).refused[0].reason == (
        "volume data: the claim p-data is not this pod's"
    )
    own["metadata"]["ownerReferences"] = [{"uid": "uid-p", "controller": True}]
    found = rows(wanting, persistent_volume_claims=[own], storage_classes=[LATE])
    assert found.awaiting == {"n/p": ("p-data",)}
