"""The states the policy packs are measured on: the same for a seed, and as the papers describe them."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from bench.policies import workloads
from bench.policies.packs import PackBench
from bench.policies.workloads import Tables
from mgmt.language.policy_packs import load_pack
from mgmt.state.database import Database

MADE = {
    "node_scaling": ("kubernetes", lambda seed: workloads.node_scaling(40, 10, 50, seed)),
    "many_pods": ("kubernetes", workloads.many_pods),
    "apps": ("kubernetes", workloads.apps),
    "preemption": ("kubernetes", workloads.preemption),
    "virtual_machines": ("vm_balance", workloads.virtual_machines),
}


@pytest.mark.parametrize("name", MADE)
def test_the_same_seed_gives_the_same_rows_and_the_database_takes_them(name: str) -> None:
    pack, make = MADE[name]
    assert make(3) == make(3) != make(4)
    database = Database()
    database.load_schema(load_pack(pack).schema)
    database.replace_rows(make(3))


def test_node_scaling_is_the_published_workload() -> None:
    tables = workloads.node_scaling(500, 50, 70, 1)
    assert len(tables["pod"]) == 50
    assert {int(str(row["cpu"])) in range(70, 100) for row in tables["running_pod"]} == {True}
    assert {int(str(row["cpu"])) in range(5, 15) for row in tables["pod"]} == {True}
    assert {(row["cpu"], row["memory"], row["pods"]) for row in tables["node"]} == {(100, 100, 110)}


def test_machines_lie_between_39_and_85_percent_and_keep_their_rules() -> None:
    for seed in range(5):
        tables = workloads.virtual_machines(seed)
        assert (len(tables["host"]), len(tables["vm"])) == (16, 524)
        used: Counter[object] = Counter()
        for row in tables["vm"]:
            used[row["host"]] += int(str(row["cpu"]))
        assert (min(used.values()), max(used.values())) == (39_000, 85_000)
        where = {row["name"]: row["host"] for row in tables["vm"]}
        assert all(len(hosts) == 1 for hosts in _hosts(tables, "together", where))
        assert all(len(hosts) == 2 for hosts in _hosts(tables, "apart", where))


def _hosts(tables: Tables, rules: str, where: dict[object, object]) -> list[set[object]]:
    found: defaultdict[object, set[object]] = defaultdict(set)
    for row in tables[rules]:
        found[row["rule"]].add(where[row["vm"]])
    return list(found.values())


def test_a_small_preemption_displaces_only_the_lowest() -> None:
    bench = PackBench("kubernetes")
    run = bench.solve(workloads.preemption(1, nodes=4, pending=5), 60, 0)
    assert run.proven
    assert run.solution is not None
    places = run.solution.assignments["pod", "controllable__node"]
    lost = bench.database.execute("SELECT name, priority FROM pod")
    assert Counter(priority for name, priority in lost if places[name,] is None) == {1: 5}
