"""The benchmark of 400 pods: what it builds is what the workload says, and it ends with a proof."""

from __future__ import annotations

from bench.policies import workloads
from bench.policies.many_pods import assignment_of, many_pods


def test_the_assignment_is_the_workload() -> None:
    tables = workloads.many_pods(1)
    assignment = assignment_of(tables)
    assert (assignment.rows, assignment.values) == (400, 50)
    selected = {row["template"] for row in tables["node_selector"]}
    restricted = {
        pod["template"]
        for pod, row_class in zip(tables["pod"], assignment.row_class, strict=True)
        if not assignment.allowed[row_class].all()
    }
    assert restricted == selected
    cpu, memory, apart = assignment.limits
    assert cpu.load.weight.tolist() == [pod["cpu"] for pod in tables["pod"]]
    assert memory.load.weight.tolist() == [pod["memory"] for pod in tables["pod"]]
    assert apart.load.groups == len(tables["affinity"])


def test_the_optimum_is_proven() -> None:
    figures = many_pods([0], budget=60).figures
    assert (figures["status"], figures["gap"]) == ("optimal", 0)
    assert figures["pack_proven"] == 1
