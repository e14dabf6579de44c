"""The scheduler on a real kube-apiserver: what it binds, what it survives, and that its rights are enough.

It runs with the service account and the role of ``deploy/kubernetes/rota-scheduler.yaml``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from orchestrators.kubernetes.api.client import ApiClient
from orchestrators.kubernetes.api.credentials import Credentials
from orchestrators.kubernetes.placement import Placer
from orchestrators.kubernetes.scheduling.election import ElectionSettings
from orchestrators.kubernetes.service import Service, ServiceSettings
from tests.orchestrators.kubernetes.control_plane import ControlPlane, control_plane, node, pod
from tests.orchestrators.kubernetes.servers.programs import missing

MISSING = missing(["kube-apiserver"])
pytestmark = [pytest.mark.kubernetes, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

MANIFEST = Path(__file__).parents[3] / "deploy/kubernetes/rota-scheduler.yaml"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
PATIENCE = 120.0
QUICK = ElectionSettings(duration=3, renewed_within=2, period=0.5)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with control_plane() as found:
        _apply(found, MANIFEST)
        yield found


@pytest.fixture(scope="module")
def placer() -> Placer:
    return Placer()


@pytest.fixture(autouse=True)
def _clean(plane: ControlPlane) -> Iterator[None]:
    yield
    for path in (PODS, "/api/v1/nodes"):
        for item in plane.request("GET", path)["items"]:
            plane.request("DELETE", f"{path}/{item['metadata']['name']}?gracePeriodSeconds=0")


def _apply(plane: ControlPlane, manifest: Path) -> None:
    places = {
        "ServiceAccount": "/api/v1/namespaces/kube-system/serviceaccounts",
        "Deployment": "/apis/apps/v1/namespaces/kube-system/deployments",
    }
    rights = "/apis/rbac.authorization.k8s.io/v1"
    for document in yaml.safe_load_all(manifest.read_text()):
        kind = document["kind"]
        cluster = kind.startswith("ClusterRole")
        where = f"{rights}{'' if cluster else '/namespaces/kube-system'}/{kind.lower()}s"
        plane.request("POST", places.get(kind, where), document)


@asynccontextmanager
async def scheduling(plane: ControlPlane, placer: Placer, **settings: Any) -> Any:
    async with (
        ApiClient(Credentials(plane.kubeconfig("rota")).access) as client,
        trio.open_nursery() as nursery,
    ):
        service = Service(client, placer, ServiceSettings(**{"lease": None, **settings}))
        nursery.start_soon(service.run)
        yield service
        nursery.cancel_scope.cancel()


def _pods(plane: ControlPlane) -> dict[str, dict[str, Any]]:
    return {item["metadata"]["name"]: item for item in plane.request("GET", PODS)["items"]}


def _nodes(plane: ControlPlane) -> dict[str, str | None]:
    return {name: item["spec"].get("nodeName") for name, item in _pods(plane).items()}


async def _until(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    end = time.monotonic() + seconds
    while not (found := await trio.to_thread.run_sync(condition)):
        assert time.monotonic() < end, "it did not happen in time"
        await trio.sleep(0.2)
    return found


def _make(plane: ControlPlane, *items: dict[str, Any]) -> None:
    for item in items:
        plane.request("POST", "/api/v1/nodes" if item["kind"] == "Node" else PODS, item)


async def test_pods_are_bound_within_capacity(plane: ControlPlane, placer: Placer) -> None:
    _make(plane, *(node(f"n{i}", "2") for i in range(4)), *(pod(f"p{i}", "500m") for i in range(16)))
    async with scheduling(plane, placer):
        await _until(lambda: all(_nodes(plane).values()))
    found = list(_nodes(plane).values())
    assert {found.count(f"n{i}") for i in range(4)} == {4}


async def test_a_pod_without_a_place_is_told_why_in_kubernetes_manner(
    plane: ControlPlane, placer: Placer
) -> None:
    tainted = node("n1")
    tainted["spec"] = {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    _make(plane, tainted, node("n2", "1"), pod("large", "3"))

    def condition() -> Any:
        conditions = _pods(plane)["large"]["status"].get("conditions") or ()
        return [each for each in conditions if each["type"] == "PodScheduled"]

    async with scheduling(plane, placer, explaining=20.0):
        (found,) = await _until(condition)
        reasons = await _until(
            lambda: [
                each["note"]
                for each in plane.request("GET", EVENTS)["items"]
                if each["regarding"]["name"] == "large" and each["reason"] == "FailedScheduling"
            ]
        )
        assert (found["status"], found["reason"]) == ("False", "Unschedulable")
        assert found["message"].startswith("0/2 nodes are available: 1 ")
        assert "1 node(s) had untolerated taint(s)" in found["message"]
        assert reasons == [found["message"]]
        _make(plane, node("n3"))
        await _until(lambda: _nodes(plane)["large"] == "n3")


async def test_the_server_is_restarted(plane: ControlPlane, placer: Placer) -> None:
    _make(plane, node("n1"), pod("before"))
    async with scheduling(plane, placer) as service:
        await _until(lambda: all(_nodes(plane).values()))
        plane.stop_apiserver()
        await trio.sleep(1)
        await trio.to_thread.run_sync(plane.start_apiserver)
        await trio.to_thread.run_sync(_make, plane, pod("after"))
        await _until(lambda: all(_nodes(plane).values()))
        assert service.scheduler.statistics.bound == 2


async def test_of_two_replicas_one_is_killed(
    plane: ControlPlane, placer: Placer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> None:
        """Who is killed hands nothing over."""

    _make(plane, node("n1"), *(pod(f"p{i}") for i in range(30)))
    settings: dict[str, Any] = {"lease": ("kube-system", "rota-scheduler"), "election": QUICK}
    async with scheduling(plane, placer, **settings) as one:
        monkeypatch.setattr(one, "_release", nothing)
        await _until(lambda: any(_nodes(plane).values()))
    async with scheduling(plane, placer, **settings) as other:
        _make(plane, pod("after"))
        await _until(lambda: all(_nodes(plane).values()))
        assert other.scheduler.statistics.bound >= 1
        assert (
            one.scheduler.statistics.bound + other.scheduler.statistics.bound <= 31
        )  # the server binds once


async def test_a_pod_that_somebody_else_binds_is_bound_once(plane: ControlPlane, placer: Placer) -> None:
    _make(plane, node("n1"), node("n2"), *(pod(f"p{i}") for i in range(20)))
    for i in range(0, 20, 2):
        target = {"kind": "Node", "name": "n2"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": f"p{i}"}, "target": target}
        plane.request("POST", f"{PODS}/p{i}/binding", binding)
    async with scheduling(plane, placer) as service:
        await _until(lambda: all(_nodes(plane).values()))
        assert service.scheduler.statistics.bound == 10
    assert {_nodes(plane)[f"p{i}"] for i in range(0, 20, 2)} == {"n2"}


async def test_hostile_manifests_are_told_and_the_others_scheduled(
    plane: ControlPlane, placer: Placer
) -> None:
    hostile = pod("huge", "1")
    resources = hostile["spec"]["containers"][0]["resources"]
    resources["requests"]["example.com/thing"] = "9000P"
    resources["limits"] = {"example.com/thing": "9000P"}
    labels = {f"label-{i}": "x" * 60 for i in range(2000)}
    many = pod("labels")
    many["metadata"]["labels"] = labels
    _make(plane, node("n1"), hostile, many, pod("plain"))

    def told() -> set[str]:
        events = plane.request("GET", EVENTS)["items"]
        return {each["regarding"]["name"] for each in events if each["reason"] == "FailedScheduling"}

    async with scheduling(plane, placer):
        await _until(lambda: _nodes(plane)["plain"] and {"huge", "labels"} <= told())
    assert _nodes(plane) == {"plain": "n1", "huge": None, "labels": None}
