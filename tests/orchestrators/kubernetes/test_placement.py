"""From objects of the API to placements, reasons and what-ifs, by the pack itself."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mgmt import PolicyError, SourceText
from orchestrators.kubernetes.errors import ObjectsError
from orchestrators.kubernetes.explanations import explanations
from orchestrators.kubernetes.own_policies import of_folder
from orchestrators.kubernetes.placement import Placer
from orchestrators.kubernetes.rebalancing import rebalancing
from orchestrators.kubernetes.simulation import Simulator, objects_of
from tests.orchestrators.kubernetes.control_plane import node, pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GANGS = Path(__file__).parents[3] / "examples/kubernetes"


@pytest.fixture(scope="module")
def placer() -> Placer:
    return Placer()


def dump(*items: dict[str, Any]) -> str:
    return json.dumps({"kind": "List", "items": [{"spec": {}, **item} for item in items]})


def tainted(name: str) -> dict[str, Any]:
    return {**node(name), "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}


def test_the_reasons_are_counted_by_node(placer: Placer) -> None:
    objects = objects_of([dump(tainted("t1"), tainted("t2"), node("n1", "1"), pod("large", "3"))])
    placement = placer.place(objects, budget=60, now=NOW)
    ((key, message),) = explanations(placer, objects, placement, budget=60, now=NOW)
    assert key == ("default", "large")
    assert message.startswith("0/3 nodes are available: ")
    assert "2 node(s) had untolerated taint(s)" in message
    assert "1 Insufficient cpu" in message


def test_a_pod_of_higher_priority_has_others_make_way(placer: Placer) -> None:
    objects = objects_of(
        [dump(node("n1", "4"), pod("low", "3", nodeName="n1", priority=1), pod("high", "3", priority=5))]
    )
    placement = placer.place(objects, budget=60, now=NOW)
    preemption = placement.preemptions["default", "high"]
    assert (preemption.node, preemption.victims) == ("n1", (("default", "low"),))


def test_running_pods_that_break_their_rules_hold_nobody_up(placer: Placer) -> None:
    overcommitted = pod("large", "5", nodeName="n1")
    objects = objects_of(
        [dump(node("n1"), node("n2"), overcommitted, pod("huge", "64", priority=9), pod("small"))]
    )
    assert placer.place(objects, budget=60, now=NOW).bound == {("default", "small"): "n2"}


def test_nobody_is_evicted_beyond_a_budget_nor_beside_it(placer: Placer) -> None:
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "kept"}}},
        "status": {"disruptionsAllowed": 0},
    }
    kept, other = (pod(name, "2", nodeName="n1", priority=0) for name in ("kept", "other"))
    for cpu, victims in (("4", None), ("2", (("default", "other"),))):
        high = pod("high", cpu, priority=9)
        placement = placer.place(
            objects_of([dump(node("n1"), kept, other, high, budget)]), budget=60, now=NOW
        )
        found = placement.preemptions.get(("default", "high"))
        assert (found and found.victims) == victims


def test_a_zone_that_is_lost_sends_its_pods_elsewhere(placer: Placer) -> None:
    objects = objects_of(
        [
            dump(
                node("a1", zone="a"),
                node("b1", zone="b"),
                pod("web", nodeName="a1"),
                pod("new", scheduler="any"),
            )
        ]
    )
    simulator = Simulator(objects, placer, every_scheduler=True, budget=60)
    bound = simulator.without(zones=["a"]).run().placement.bound
    assert bound == {("default", "web"): "b1", ("default", "new"): "b1"}
    with pytest.raises(ObjectsError, match="'c'"):
        simulator.without(zones=["c"])


@pytest.mark.parametrize("text", ["{", "[1]", '{"kind": "List", "items": []}', '{"kind": "Node"}'])
def test_what_is_no_dump_is_refused(text: str) -> None:
    with pytest.raises(ObjectsError, match="kubectl get"):
        objects_of([text])


def test_rules_that_are_wrong_leave_those_before_in_force() -> None:
    placer = Placer(policies=of_folder(GANGS))
    with pytest.raises(PolicyError, match=r"own\.sql:1:"):
        placer.use([SourceText("own.sql", "CREATE CONSTRAINT broken AS SELEKT")])
    placer.use([])  # those of the folder stay
    gang = [pod(f"g{i}", "3") for i in range(3)]
    for each in gang:
        each["metadata"]["labels"] |= {"rota/gang": "g", "rota/gang-size": "3"}
    two, three = ([node(f"n{i}", "4") for i in range(number)] for number in (2, 3))
    assert not placer.place(objects_of([dump(*two, *gang)]), budget=60, now=NOW).bound
    assert len(placer.place(objects_of([dump(*three, *gang)]), budget=60, now=NOW).bound) == 3


def test_rebalancing_evicts_no_more_than_helps_and_budgets_allow() -> None:
    pods = [pod(f"web-{i}", "500m", app="web", nodeName="n0") for i in range(12)]
    for each in pods:
        each["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web", "controller": True}]
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 5},
    }
    text = dump(*(node(f"n{i}", "8") for i in range(4)), *pods, pod("alone", "1", nodeName="n1"), budget)
    found = rebalancing(objects_of([text]), evictions=20, budget=60)
    assert (len(found.evictions), found.movable) == (5, 12)
    assert {each.node for each in found.evictions} == {"n0"}
