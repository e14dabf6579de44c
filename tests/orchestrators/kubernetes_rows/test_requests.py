"""Quantities and what a pod requests in all."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrators.kubernetes.rows.manifests import Pod, UnreadableError, read
from orchestrators.kubernetes.rows.quantities import amount
from orchestrators.kubernetes.rows.requests import requests, requests_to_place


@pytest.mark.parametrize(
    ("resource", "text", "expected"),
    [
        ("cpu", "100m", 100),
        ("cpu", "1.5", 1500),
        ("cpu", 2, 2000),
        ("cpu", "1u", 1),  # rounded up
        ("cpu", "+.5", 500),
        ("memory", "1Ki", 1024),
        ("memory", "1.5Gi", 1_610_612_736),
        ("memory", "1E", 10**18),
        ("memory", "1E3", 1000),
        ("memory", "12e-1", 2),
        ("memory", "100m", 1),
        ("memory", "0.1Ki", 103),
        ("nvidia.com/gpu", "3", 3),
    ],
)
def test_quantities_are_exact_and_rounded_up(resource: str, text: str | int, expected: int) -> None:
    assert amount(resource, text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "1e400", "1e-400", "-1", "1kk", "0x10", "1 Gi", "١", "NaN", "1e", "9" * 5000, "1_000", "1Mi5"],
)
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(UnreadableError):
        amount("memory", text)


def container(cpu: str | None = None, **more: Any) -> dict[str, Any]:
    return {"name": "c", **({"resources": {"requests": {"cpu": cpu}}} if cpu else {}), **more}


def total(spec: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, int]:
    return requests(read({"metadata": {"name": "p"}, "spec": spec, "status": status or {}}, Pod))


def test_containers_are_added_and_init_containers_are_not() -> None:
    assert total({"containers": [container("1"), container("2"), container()]}) == {"cpu": 3000}
    largest = {"containers": [container("1")], "initContainers": [container("3"), container("2")]}
    assert total(largest) == {"cpu": 3000}


def test_sidecars_run_beside_what_comes_after_them() -> None:
    sidecar = container("1", restartPolicy="Always")
    assert total({"containers": [container("1")], "initContainers": [sidecar]}) == {"cpu": 2000}
    assert total({"containers": [container("1")], "initContainers": [container("5"), sidecar]}) == {
        "cpu": 5000
    }
    assert total({"containers": [container("1")], "initContainers": [sidecar, container("5")]}) == {
        "cpu": 6000
    }


def test_overhead_is_added_and_what_is_said_of_the_whole_pod_counts() -> None:
    spec = {"containers": [container("1")], "overhead": {"cpu": "250m", "memory": "1Ki"}}
    assert total(spec) == {"cpu": 1250, "memory": 1024}
    whole = {**spec, "resources": {"requests": {"cpu": "4", "hugepages-2Mi": "2Mi"}}}
    assert total(whole) == {"cpu": 4250, "memory": 1024, "hugepages-2Mi": 2 << 20}


def test_where_nothing_is_requested_the_limit_is() -> None:
    limited = container(resources={"limits": {"cpu": "2", "memory": "1Ki"}, "requests": {"memory": "1"}})
    assert total({"containers": [limited]}) == {"cpu": 2000, "memory": 1}


def test_a_container_that_is_resized_has_the_larger_of_both() -> None:
    has = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}
    assert total({"containers": [container("1")]}, has) == {"cpu": 3000}
    assert total({"containers": [container("4")]}, has) == {"cpu": 4000}
    never = {**has, "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
    assert total({"containers": [container("4")]}, never) == {"cpu": 3000}


@pytest.mark.parametrize("asked", [{"cpu": "1Ei"}, {"memory": "8E"}, {"gpu": "1"}])
def test_requests_that_no_node_can_have_are_refused(asked: dict[str, str]) -> None:
    spec = {"containers": [{"name": "c", "resources": {"requests": asked}}]}
    with pytest.raises(UnreadableError):
        requests_to_place(read({"metadata": {"name": "p"}, "spec": spec}, Pod))
